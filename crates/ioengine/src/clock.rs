//! Reads the time in nanoseconds since an arbitrary start, and sleeps until a given time.
//!
//! All code in the workspace uses the clock [`Monotonic`], except for xtask's benchmarks. On
//! x86-64, this clock reads the CPU's time-stamp counter (TSC) if the counter is trusted: the
//! kernel's clock source must be `tsc`, and the CPU must report that the counter has a constant
//! rate and never stops. The rate of the counter is calibrated with `CLOCK_MONOTONIC`. A reading
//! takes about 15 ns, compared with 31 ns for `clock_gettime`, on the machine described in
//! docs/methodology.md. Without a trusted counter, the clock calls `clock_gettime`.
//!
//! [`Monotonic::clocks`] reads this clock and the system clocks, so that a run can report whether
//! they diverged.

use std::sync::OnceLock;
use std::time::Duration;

use crate::sys;

/// A source of time. A simulator implements this trait with virtual time.
pub trait Clock {
    /// Returns the nanoseconds since a fixed, arbitrary point in time. The value never decreases.
    fn now_ns(&self) -> u64;
    /// Sleeps until `now_ns()` reaches `until_ns`, without spinning.
    fn sleep_until(&self, until_ns: u64);
    /// Waits until `now_ns()` reaches `until_ns`, as precisely as possible. May spin.
    fn wait_until(&self, until_ns: u64) {
        self.sleep_until(until_ns);
    }
}

/// Simulated time, which advances only when [`VirtualTime::pass`] is called. The simulation calls
/// this method when all of its workers wait.
pub trait VirtualTime: Clock {
    /// Returns how many engines the simulation has created so far. Engines are numbered from 0.
    fn engines(&self) -> u32;
    /// Advances the time until an engine has completions, but not beyond `until_ns`. Returns the
    /// number of this engine, or None if no engine has completions by `until_ns`.
    fn pass(&self, until_ns: u64) -> Option<u32>;
}

/// The monotonic clock of this machine. All instances in a process show the same time.
#[derive(Clone, Copy, Debug)]
pub struct Monotonic {
    scale: Option<&'static TscScale>,
}

/// Readings of [`Monotonic`] and of the system clocks at nearly the same time.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    ours_ns: u64,
    monotonic_ns: u64,
    boot_ns: u64,
    unix_ns: i64,
}

/// How far the clocks diverged over an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disagreement {
    /// Length of the interval according to `CLOCK_MONOTONIC` (ns).
    pub elapsed_ns: u64,
    /// Length of the interval according to [`Monotonic`], minus `elapsed_ns` (ns).
    pub ours_ns: i64,
    /// How long the machine was suspended during the interval (ns).
    pub asleep_ns: i64,
    /// Length of the interval according to the wall clock, minus `elapsed_ns` (ns). Positive if the
    /// wall clock was set forward, negative if it was set back.
    pub wall_ns: i64,
}

impl Clocks {
    /// Returns how far the clocks diverged between an earlier reading and this reading.
    pub fn since(&self, earlier: &Clocks) -> Disagreement {
        let difference = |later: u64, earlier: u64| later as i64 - earlier as i64;
        let elapsed = difference(self.monotonic_ns, earlier.monotonic_ns);
        Disagreement {
            elapsed_ns: elapsed.max(0) as u64,
            ours_ns: difference(self.ours_ns, earlier.ours_ns) - elapsed,
            asleep_ns: difference(self.boot_ns, earlier.boot_ns) - elapsed,
            wall_ns: self.unix_ns - earlier.unix_ns - elapsed,
        }
    }
}

impl Clocks {
    /// Converts a time of [`Monotonic`] to a time of `CLOCK_MONOTONIC`, which kernel events use for
    /// their timestamps. The two clocks drift apart by some microseconds per second, so their
    /// offset is interpolated between this reading and `later`.
    pub fn system_ns(&self, later: &Clocks, ours_ns: u64) -> u64 {
        let offset = |clocks: &Clocks| clocks.monotonic_ns as i64 - clocks.ours_ns as i64;
        let (first, last) = (offset(self), offset(later));
        let length = later.ours_ns.saturating_sub(self.ours_ns).max(1);
        let at = ours_ns as i64 - self.ours_ns as i64;
        let drift = i128::from(last - first) * i128::from(at) / i128::from(length);
        ours_ns.saturating_add_signed(first + drift as i64)
    }

    /// Returns the time of `CLOCK_MONOTONIC` at this reading (ns).
    pub fn monotonic_ns(&self) -> u64 {
        self.monotonic_ns
    }

    /// Returns the time of the wall clock at this reading (ns since 1970).
    pub fn unix_ns(&self) -> i64 {
        self.unix_ns
    }

    /// Converts a time of `CLOCK_MONOTONIC` to a time of [`Monotonic`]. The time must be close to
    /// this reading, because the drift between the clocks is ignored.
    pub fn ours_near(&self, monotonic_ns: u64) -> u64 {
        let ahead = monotonic_ns as i64 - self.monotonic_ns as i64;
        self.ours_ns.saturating_add_signed(ahead)
    }
}

/// Number of readings from which [`Monotonic::clocks`] selects the fastest, which was probably not
/// interrupted.
const TRIES: usize = 16;

/// Conversion of counter ticks to nanoseconds: `base_ns + ((ticks - base_ticks) * mult) >> 32`.
#[derive(Debug)]
struct TscScale {
    base_ticks: u64,
    base_ns: u64,
    mult: u64,
}

/// Duration of the calibration (ns). An error of about 30 ns in reading the system clock changes
/// the result by 3 parts per million.
const CALIBRATION_NS: u64 = 10_000_000;
/// How long before the deadline a sleep ends and spinning starts (ns). An idle CPU of a virtual
/// machine takes 40 to 50 µs to wake up, and the kernel's timer slack adds up to 50 µs.
const SHARP_NS: u64 = 120_000;

/// The conversion from TSC ticks to nanoseconds that all clocks of this process share. The first
/// clock sets it. The inner None means that the clocks call `clock_gettime`.
static SCALE: OnceLock<Option<TscScale>> = OnceLock::new();

impl Monotonic {
    /// Returns the clock of this process. The first call calibrates the clock, which takes 10 ms.
    pub fn new() -> Self {
        Monotonic { scale: SCALE.get_or_init(TscScale::calibrate).as_ref() }
    }

    /// Returns the clock of this process without the 10 ms calibration. Used by processes that do
    /// not measure. If no earlier call has calibrated the clock, it is never calibrated, and all
    /// instances in this process read the system clock.
    pub fn uncalibrated() -> Self {
        Monotonic { scale: SCALE.get_or_init(|| None).as_ref() }
    }

    /// Returns the source of the clock: "tsc" or "clock_gettime".
    pub fn source(&self) -> &'static str {
        if self.scale.is_some() { "tsc" } else { "clock_gettime" }
    }

    /// Reads this clock and the system clocks several times. Returns the reading that took the
    /// shortest time.
    pub fn clocks(&self) -> Clocks {
        let one = || {
            let before_ns = self.now_ns();
            let (monotonic_ns, boot_ns) = (sys::monotonic_ns(), sys::boot_ns());
            let unix_ns = sys::realtime_ns();
            let width_ns = self.now_ns().saturating_sub(before_ns);
            (width_ns, Clocks { ours_ns: before_ns, monotonic_ns, boot_ns, unix_ns })
        };
        let first = one();
        let tightest = (1..TRIES).map(|_| one()).fold(first, |a, b| if b.0 < a.0 { b } else { a });
        tightest.1
    }

    /// Sleeps until shortly before `until_ns` and spins for the rest of the time. The end of the
    /// wait is accurate to about a microsecond. The spinning uses up to 0.12 ms of CPU time.
    pub fn sleep_sharply_until(&self, until_ns: u64) {
        self.sleep_until(until_ns.saturating_sub(SHARP_NS));
        while self.now_ns() < until_ns {
            std::hint::spin_loop();
        }
    }

    /// Sleeps for a duration.
    pub fn sleep(&self, duration: Duration) {
        self.sleep_until(self.now_ns() + duration.as_nanos() as u64);
    }
}

impl Default for Monotonic {
    fn default() -> Self {
        Monotonic::new()
    }
}

impl Clock for Monotonic {
    #[inline]
    fn now_ns(&self) -> u64 {
        match self.scale {
            Some(scale) => scale.ns(sys::tsc()),
            None => sys::monotonic_ns(),
        }
    }

    fn sleep_until(&self, until_ns: u64) {
        loop {
            let now = self.now_ns();
            if now >= until_ns {
                return;
            }
            sys::sleep_ns(until_ns - now);
        }
    }

    fn wait_until(&self, until_ns: u64) {
        self.sleep_sharply_until(until_ns);
    }
}

impl TscScale {
    /// Calibrates the TSC against the system clock. None if the TSC cannot be used.
    fn calibrate() -> Option<TscScale> {
        if !tsc_is_trusted() {
            return None;
        }
        let (ticks_0, ns_0) = sys::tsc_and_monotonic();
        sys::sleep_ns(CALIBRATION_NS);
        let (ticks_1, ns_1) = sys::tsc_and_monotonic();
        let (ticks, ns) = (ticks_1.checked_sub(ticks_0)?, ns_1.checked_sub(ns_0)?);
        if ticks == 0 || ns == 0 {
            return None;
        }
        let mult = ((u128::from(ns) << 32) / u128::from(ticks)) as u64;
        Some(TscScale { base_ticks: ticks_0, base_ns: ns_0, mult })
    }

    #[inline]
    fn ns(&self, ticks: u64) -> u64 {
        let passed = ticks.saturating_sub(self.base_ticks);
        self.base_ns + ((u128::from(passed) * u128::from(self.mult)) >> 32) as u64
    }
}

/// Returns true if the kernel uses the TSC as its clock source, and the CPU reports that the TSC
/// has a constant rate and never stops.
fn tsc_is_trusted() -> bool {
    if !cfg!(target_arch = "x86_64") {
        return false;
    }
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let kernel_uses_it = std::fs::read_to_string(source).is_ok_and(|s| s.trim() == "tsc");
    let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    kernel_uses_it && flags.contains("constant_tsc") && flags.contains("nonstop_tsc")
}

/// Returns the CPU time that the calling thread has used (ns).
pub fn thread_cpu_ns() -> u64 {
    sys::thread_cpu_ns()
}

/// Returns the time of the wall clock (ns since 1970, UTC). The wall clock can be set, so its times
/// are used only as labels, never to measure durations.
pub fn unix_ns() -> i64 {
    sys::realtime_ns()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_clocks_of_a_process_share_one_source() {
        let (first, second) = (Monotonic::uncalibrated(), Monotonic::new());
        assert_eq!(first.source(), second.source());
        let (earlier, later) = (first.now_ns(), second.now_ns());
        assert!(later >= earlier && later - earlier < 60_000_000_000);
    }

    #[test]
    fn the_clock_never_decreases() {
        let clock = Monotonic::new();
        let mut last = clock.now_ns();
        for _ in 0..100_000 {
            let now = clock.now_ns();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn timestamps_are_converted_by_linear_interpolation() {
        let at = |ours_ns, monotonic_ns| Clocks { ours_ns, monotonic_ns, boot_ns: 0, unix_ns: 0 };
        let (first, last) = (at(1_000, 1_500), at(2_000, 2_510));
        let stamps = [1_000, 1_500, 2_000, 3_000, 0].map(|ns| first.system_ns(&last, ns));
        assert_eq!(stamps, [1_500, 2_005, 2_510, 3_520, 490]);
        assert_eq!(first.system_ns(&first, 1_100), 1_600, "one reading has a constant offset");
    }

    #[test]
    fn the_clock_agrees_with_the_system_within_one_in_a_thousand() {
        let clock = Monotonic::new();
        let before = clock.clocks();
        clock.sleep(Duration::from_millis(100));
        let apart = clock.clocks().since(&before);
        assert!(apart.elapsed_ns >= 100_000_000, "{apart:?}");
        assert!(apart.ours_ns.unsigned_abs() < apart.elapsed_ns / 1000, "{apart:?}");
        assert!(apart.asleep_ns.abs() < 1_000_000_000, "{apart:?}");
    }

    #[test]
    fn each_kind_of_clock_divergence_is_reported() {
        let before = Clocks { ours_ns: 10, monotonic_ns: 20, boot_ns: 1020, unix_ns: 50_000 };
        let after = Clocks { ours_ns: 1_012, monotonic_ns: 1_020, boot_ns: 9_020, unix_ns: 11_000 };
        let apart =
            Disagreement { elapsed_ns: 1000, ours_ns: 2, asleep_ns: 7000, wall_ns: -40_000 };
        assert_eq!(after.since(&before), apart);
        assert_eq!(before.since(&before), Disagreement::default());
    }

    #[test]
    fn sleep_until_never_wakes_early_and_returns_at_once_for_the_past() {
        let clock = Monotonic::new();
        let until = clock.now_ns() + 2_000_000;
        clock.sleep_until(until);
        assert!(clock.now_ns() >= until);
        clock.sleep_until(until);
    }
}
