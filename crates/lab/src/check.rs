//! The checks of a result. Each reason of a verdict begins with the name of its check, such as
//! `noisy: +-19% (limit 15%)`; `halfpower explain NAME` explains it.

/// Defines the checks with their names.
macro_rules! checks {
    ($($(#[$meaning:meta])* $check:ident = $name:literal,)*) => {
        /// A check of a result. The comment of each variant states what the check requires.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Check {
            $($(#[$meaning])* $check,)*
        }

        impl Check {
            /// All checks.
            pub const ALL: &'static [Check] = &[$(Check::$check),*];

            /// The name at the beginning of a reason.
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
    /// There are enough requests for the percentile that is shown.
    FewRequests = "few-requests",
    /// The rate does not rise or fall gradually within a trial.
    Drift = "drift",
    /// The rate does not change suddenly within a trial.
    RateChange = "rate-change",
    /// Requests complete all the time, without long pauses.
    Stall = "stall",
    /// The rate became steady (`--steady-state`).
    Steady = "steady",
    /// No holes and unwritten blocks.
    Holes = "holes",
    /// Cold reads reached the device.
    CacheHits = "cache-hits",
    /// Storage was measured, not memory.
    InMemory = "in-memory",
    /// No cache of the device holds the whole region.
    RegionCached = "region-cached",
    /// No I/O of other programs on the device.
    OtherIo = "other-io",
    /// No other programs on the CPUs.
    OtherCpu = "other-cpu",
    /// No steal time.
    Steal = "steal",
    /// The threads of the load did not wait for a CPU.
    CpuWait = "cpu-wait",
    /// The CPU is not the limit.
    CpuBound = "cpu-bound",
    /// No CPU quota held the load back.
    CpuQuota = "cpu-quota",
    /// The rate is not that of an I/O limit of the control group.
    IoLimit = "io-limit",
    /// The drive was not too hot.
    DriveHot = "drive-hot",
    /// The drive reported no new media errors.
    MediaErrors = "media-errors",
    /// The drive is not worn out.
    DriveWorn = "drive-worn",
    /// The depth was reached.
    DepthMissed = "depth-missed",
    /// Requests do not complete inside the submit call.
    Batched = "batched",
    /// An open loop delivered its rate.
    RateMissed = "rate-missed",
    /// The server never asked to wait.
    ServerBusy = "server-busy",
    /// Buffers lie on huge pages.
    SmallPages = "small-pages",
    /// The measuring clock agrees with the system's.
    Clock = "clock",
    /// The machine was not suspended.
    Suspended = "suspended",
    /// The date was not changed.
    WallClock = "wall-clock",
    /// No request failed.
    FailedRequests = "failed-requests",
    /// At least one request completed.
    NoRequests = "no-requests",
    /// Data read back equal the data written.
    Mismatch = "mismatch",
    /// No faults were injected.
    InjectedFaults = "injected-faults",
    /// The soaker measured the upper bound of the CPU cost.
    NoUpperBound = "no-upper-bound",
    /// The measurement ended by itself.
    Interrupted = "interrupted",
    /// No process of a run on several hosts was lost.
    LostRank = "lost-rank",
    /// halfpower measured the result itself.
    Imported = "imported",
    /// Enough points are valid for a conclusion.
    NoValidPoints = "no-valid-points",
    /// The background load did not change.
    Background = "background",
}
