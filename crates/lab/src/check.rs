//! The checks that determine the verdict on a result. Each reason in a verdict begins with the name
//! of a check, for example `noisy: +-19% (limit 15%)`. `halfpower explain noisy` explains this
//! check.

/// Defines the enum `Check` from a list of variants and names.
macro_rules! checks {
    ($($(#[$meaning:meta])* $check:ident = $name:literal,)*) => {
        /// A check of a result. The comment of each variant states the condition under which the
        /// check passes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Check {
            $($(#[$meaning])* $check,)*
        }

        impl Check {
            /// All checks.
            pub const ALL: &'static [Check] = &[$(Check::$check),*];

            /// Returns the name of the check. A reason begins with this name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Check::$check => $name,)*
                }
            }
        }
    };
}

checks! {
    /// The trials agree: the confidence interval of the rate is narrow.
    Noisy = "noisy",
    /// There is more than one trial.
    OneTrial = "one-trial",
    /// Enough requests completed for the rate and for the printed percentiles.
    FewRequests = "few-requests",
    /// The rate does not rise or fall gradually within a trial.
    Drift = "drift",
    /// The rate does not change suddenly within a trial.
    RateChange = "rate-change",
    /// There are no long pauses in which no request completes.
    Stall = "stall",
    /// The rate reached a steady state (`--steady-state`).
    Steady = "steady",
    /// The region has no holes and no unwritten blocks.
    Holes = "holes",
    /// Reads that should reach the device did not come from a cache.
    CacheHits = "cache-hits",
    /// The requests reached storage, not only memory.
    InMemory = "in-memory",
    /// The caches of the device are too small to hold the region.
    RegionCached = "region-cached",
    /// No other programs used the device.
    OtherIo = "other-io",
    /// No other programs used the CPUs.
    OtherCpu = "other-cpu",
    /// The hypervisor took no CPU time away from this machine (steal time).
    Steal = "steal",
    /// The threads of the load did not wait for a CPU.
    CpuWait = "cpu-wait",
    /// The CPU did not limit the rate.
    CpuBound = "cpu-bound",
    /// No CPU quota limited the load.
    CpuQuota = "cpu-quota",
    /// The control group's I/O limit (`io.max`) did not determine the rate.
    IoLimit = "io-limit",
    /// The drive was not too hot.
    DriveHot = "drive-hot",
    /// The drive reported no new media errors.
    MediaErrors = "media-errors",
    /// The drive is not worn out.
    DriveWorn = "drive-worn",
    /// The requested queue depth was reached.
    DepthMissed = "depth-missed",
    /// Requests complete after the submit call has returned, so several can be in flight.
    Batched = "batched",
    /// An open loop reached its requested rate.
    RateMissed = "rate-missed",
    /// The server never asked the client to wait.
    ServerBusy = "server-busy",
    /// The buffers of large requests are on huge pages, unless `--buffer-pages 4k` was used.
    SmallPages = "small-pages",
    /// The clock of the measurement agrees with the system clock.
    Clock = "clock",
    /// The machine was not suspended during a trial.
    Suspended = "suspended",
    /// The wall clock was not changed during a trial.
    WallClock = "wall-clock",
    /// No request failed.
    FailedRequests = "failed-requests",
    /// At least one request completed.
    NoRequests = "no-requests",
    /// The data that were read back equal the written data.
    Mismatch = "mismatch",
    /// No faults were injected.
    InjectedFaults = "injected-faults",
    /// The soaker (`--soaker`) could measure an upper bound of the CPU cost.
    NoUpperBound = "no-upper-bound",
    /// The measurement was not stopped early.
    Interrupted = "interrupted",
    /// No rank (process) of the run was lost before the end.
    LostRank = "lost-rank",
    /// The result was measured by halfpower and not imported from another tool.
    Imported = "imported",
    /// There are enough valid points for a conclusion.
    NoValidPoints = "no-valid-points",
    /// The background load was low and steady enough to trust the upper bound of the CPU cost.
    Background = "background",
}
