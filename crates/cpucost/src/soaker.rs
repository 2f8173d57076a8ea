//! Measures the upper bound of CPU cost: the CPU time that idle-priority spinner processes, one on
//! each CPU, lose while the work runs.
//!
//! A soaker takes all CPU time that no other process wants and counts it in calibrated units of
//! work, as in Chung et al. (Windows 2000 Disk IO Performance, MS-TR-2000-55, 2000). The CPU time
//! that the soaker does not get is the cost of the work. This cost includes time that process
//! accounting misses: kernel threads, interrupts, and gaps between samples.
//!
//! Older soakers have three faults. This soaker avoids the first two, and the caller can measure
//! the effect of the third:
//! - Priority: An older soaker ranks last only within its own task group. These spinners rank below
//!   every task group of the machine (module `isolation`).
//! - Calibration: Other load distorts the units of an older soaker. Here, units are calibrated by
//!   CPU time instead of elapsed time, and the lowest cost of several windows is used. All CPUs are
//!   calibrated together, in the same turbo and SMT state as in later measurements.
//! - Side effect: A soaker keeps CPUs awake, so the measured cost of the work lacks the cost of
//!   waking them. To show this effect, alternate trials with and without a soaker, and report the
//!   difference.
//!
//! The spinners are child processes, so their time is not charged to this process. Doubtful results
//! are refused ([`Declined`]) or flagged ([`SoakerReading::suspect`]).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;
use std::{fmt, io};

use crate::affinity::allowed_cpus;
pub use crate::isolation::Declined;
use crate::isolation::Isolation;
use crate::procstat::ProcStat;
use crate::spinners::{Progress, Spinners};

/// Duration of a calibration window. A spinner completes several thousand units of work in this
/// time, even on a busy CPU.
const WINDOW: Duration = Duration::from_millis(40);
/// Minimum number of windows in a calibration.
const WINDOWS: usize = 6;
/// Maximum duration of a calibration (ns). Windows are added until enough of them agree or this
/// time is over.
const CALIBRATION_MAX_NS: u64 = 1_000_000_000;
/// Number of the cheapest windows that are compared. The calibration succeeds if the costs of these
/// windows differ by at most [`MAX_SPREAD`].
const AGREEING_WINDOWS: usize = 3;
/// Maximum difference between the costs of the cheapest windows, as a share of the lowest cost.
const MAX_SPREAD: f64 = 0.10;
/// Minimum number of units of work in a window (about 4 ms of work). Windows with fewer units are
/// ignored.
const MIN_UNITS: u64 = 4_000;
/// Maximum relative error of the calibration. An idle share above 1.04 is therefore not plausible.
const TOLERANCE: f64 = 0.04;
/// Resolution of the kernel's CPU times: two ticks of 10 ms (ns).
const TICKS_NS: f64 = 20e6;
/// Name of the abstract Unix socket that each soaker binds. Only one soaker can bind this name.
const MACHINE_LOCK: &str = "halfpower-soaker";

/// Spinner processes at idle priority, one on each allowed CPU.
///
/// Start the soaker from a thread that is not pinned, because the soaker runs only on the CPUs that
/// this thread may use. Start the soaker before large buffers are allocated, because the spinners
/// are forked and share the memory of this process copy-on-write. The soaker is not `Send`, because
/// the kernel kills the spinners when the thread that started them ends. Only one soaker can run on
/// a machine at a time. Dropping the soaker ends the spinners.
///
/// ```compile_fail
/// fn move_to_another_thread<T: Send>() {}
/// move_to_another_thread::<cpucost::Soaker>();
/// ```
pub struct Soaker {
    /// This field is the first, so that the processes are killed before their control group is
    /// removed.
    spinners: Spinners,
    isolation: Isolation,
    calibration: Option<Calibration>,
    started: Option<IntervalStart>,
    _machine_lock: UnixDatagram,
}

/// The cost of a unit of work on each CPU, in the order of the spinners.
#[derive(Clone, Debug, PartialEq)]
struct Calibration {
    unit_cost_ns: Vec<f64>,
    error: f64,
}

struct IntervalStart {
    at_ns: u64,
    units: Vec<u64>,
    charged_ns: Vec<u64>,
    machine: Option<ProcStat>,
}

/// The result of the spinner on one CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SoakedCpu {
    /// Number that the kernel gives the CPU.
    pub cpu: usize,
    /// Work done by the spinner, as a fraction of the work that it could do on an idle CPU. A
    /// reading with a value above 1.04 is flagged.
    pub idle_share: f64,
    /// CPU time charged to the spinner, as a fraction of the interval. It is larger than
    /// `idle_share` if interrupts, a busy SMT sibling or the hypervisor slowed the spinner.
    pub charged_share: f64,
}

/// The CPU time that the spinners lost in an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct SoakerReading {
    /// Length of the interval (ns).
    pub elapsed_ns: u64,
    /// The result of each soaked CPU.
    pub per_cpu: Vec<SoakedCpu>,
    /// CPU time that the spinners did not get, summed over CPUs (0 to `elapsed_ns` × CPUs). To get
    /// the cost of the work, subtract `lost_ns` of a [`Soaker::background`] reading of the same
    /// length.
    pub lost_ns: u64,
    /// Relative error of the calibration, on the CPU with the largest error.
    pub calibrated_error: f64,
    /// Why the reading should not be trusted. None for a good reading.
    pub suspect: Option<String>,
}

impl SoakerReading {
    /// Returns the lost time that calibration errors may hide (ns). Add it to `lost_ns` to get an
    /// upper bound.
    pub fn hidden_ns(&self) -> f64 {
        let all_ns = self.elapsed_ns as f64 * self.per_cpu.len() as f64;
        (all_ns - self.lost_ns as f64).max(0.0) * self.calibrated_error
    }
}

impl fmt::Debug for Soaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Soaker")
            .field("cpus", &self.spinners.cpus())
            .field("isolation", &self.isolation)
            .field("calibration", &self.calibration)
            .finish_non_exhaustive()
    }
}

impl Soaker {
    /// Starts the spinners, which sleep until [`Soaker::begin`].
    ///
    /// # Errors
    /// Idle priority would not apply to the whole machine, another soaker runs, or child processes
    /// are not allowed.
    pub fn start() -> Result<Soaker, Declined> {
        let machine_lock = lock_machine()?;
        let isolation = Isolation::prepare()?;
        let spinners = Spinners::start(&allowed_cpus()).map_err(|error| cannot_start(&error))?;
        isolation.admit(spinners.pids())?;
        spinners.pin().map_err(|error| cannot_start(&error))?;
        spinners.set_idle_policy().map_err(|error| cannot_start(&error))?;
        Ok(Soaker {
            spinners,
            isolation,
            calibration: None,
            started: None,
            _machine_lock: machine_lock,
        })
    }

    /// Returns the CPUs on which the soaker runs.
    pub fn cpus(&self) -> &[usize] {
        self.spinners.cpus()
    }

    /// Measures the CPU time of a unit of work on each CPU. This takes about 0.3 s, or up to 1 s on
    /// a busy machine. The minimum of several measurements is used, so that other load does not
    /// distort the result. The measurements run at normal priority, so that even a busy CPU
    /// completes enough units. `sleep` and `now` use the caller's clock (ns).
    ///
    /// # Errors
    /// The lowest times of a CPU differ by more than 10%, or the CPU was too busy.
    pub fn calibrate(
        &mut self,
        sleep: &dyn Fn(Duration),
        now: &dyn Fn() -> u64,
    ) -> Result<(), Declined> {
        let spinners =
            Spinners::start(self.spinners.cpus()).map_err(|error| cannot_start(&error))?;
        spinners.run();
        let begun_ns = now();
        let mut progress_readings = vec![spinners.noted()];
        loop {
            sleep(WINDOW);
            progress_readings.push(spinners.noted());
            if progress_readings.len() <= WINDOWS {
                continue;
            }
            let calibration = Calibration::from_notes(self.spinners.cpus(), &progress_readings);
            if calibration.is_ok() || now().saturating_sub(begun_ns) > CALIBRATION_MAX_NS {
                self.calibration = Some(calibration?);
                return Ok(());
            }
        }
    }

    /// Starts an interval at `now_ns`. The spinners take all idle time until [`Soaker::end`].
    ///
    /// # Errors
    /// The soaker is not calibrated, or a spinner has died.
    pub fn begin(&mut self, now_ns: u64) -> Result<(), Declined> {
        if self.calibration.is_none() {
            return Err(Declined::new("the soaker is not calibrated", "calibrate it first"));
        }
        self.started = Some(IntervalStart {
            at_ns: now_ns,
            units: self.spinners.units(),
            charged_ns: self.charged_ns()?,
            machine: ProcStat::read().ok(),
        });
        self.spinners.run();
        Ok(())
    }

    /// Ends the interval at `now_ns` and returns the CPU time that the spinners lost.
    ///
    /// # Errors
    /// No interval was started, the interval is empty, or a spinner has died.
    pub fn end(&mut self, now_ns: u64) -> Result<SoakerReading, Declined> {
        let units = self.spinners.units();
        self.spinners.stop();
        let (Some(started), Some(calibration)) = (self.started.take(), &self.calibration) else {
            return Err(Declined::new("no interval has begun", "call begin first"));
        };
        let machine = ProcStat::read().ok();
        let charged_ns = self.charged_ns()?;
        let elapsed_ns = now_ns.saturating_sub(started.at_ns);
        if elapsed_ns == 0 {
            return Err(Declined::new("the interval is empty", "measure for longer"));
        }
        let spinner =
            self.spinners.cpus().iter().enumerate().map(|(index, &cpu)| SpinnerInterval {
                cpu,
                worked_ns: units[index].saturating_sub(started.units[index]) as f64
                    * calibration.unit_cost_ns[index],
                charged_ns: charged_ns[index].saturating_sub(started.charged_ns[index]) as f64,
                idle_ns: idle_since(started.machine.as_ref(), machine.as_ref(), cpu),
            });
        Ok(reading(elapsed_ns, &spinner.collect::<Vec<_>>(), calibration.error))
    }

    /// Takes a reading over `duration` while no work runs. The reading shows the load of the rest
    /// of the machine, which the caller subtracts from other readings.
    ///
    /// # Errors
    /// The errors of [`Soaker::begin`] and [`Soaker::end`].
    pub fn background(
        &mut self,
        duration: Duration,
        sleep: &dyn Fn(Duration),
        now: &dyn Fn() -> u64,
    ) -> Result<SoakerReading, Declined> {
        self.begin(now())?;
        sleep(duration);
        self.end(now())
    }

    /// Returns the CPU time of each spinner. Fails if a spinner has died.
    fn charged_ns(&self) -> Result<Vec<u64>, Declined> {
        let charged_ns = self.spinners.charged_ns();
        if !self.spinners.is_whole() {
            return Err(Declined::new("a spinner process was killed", "start a new soaker"));
        }
        charged_ns.map_err(|error| cannot_start(&error))
    }
}

/// Makes sure that no other soaker runs, by binding the socket name [`MACHINE_LOCK`]. The kernel
/// releases the name when the socket is closed, even if the process is killed.
fn lock_machine() -> Result<UnixDatagram, Declined> {
    let bound = SocketAddr::from_abstract_name(MACHINE_LOCK)
        .and_then(|address| UnixDatagram::bind_addr(&address));
    bound.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Declined::new(
            "another soaker is running on this machine, and two soakers would take idle time from \
             each other",
            "wait until the other soaker ends",
        ),
        _ => Declined::new(
            format!("cannot check for other soakers on this machine: {error}"),
            "allow Unix sockets",
        ),
    })
}

fn cannot_start(error: &io::Error) -> Declined {
    Declined::new(
        format!("the spinner processes cannot be set up: {error}"),
        "raise the limit on processes (ulimit -u), and allow the system calls sched_setaffinity \
         and sched_setscheduler",
    )
}

impl Calibration {
    /// Computes the calibration from progress readings. Each reading has one entry per CPU of
    /// `cpus`. Two successive readings are the start and the end of a window.
    fn from_notes(
        cpus: &[usize],
        progress_readings: &[Vec<Option<Progress>>],
    ) -> Result<Calibration, Declined> {
        let mut calibration = Calibration { unit_cost_ns: Vec::new(), error: 0.0 };
        for (index, cpu) in cpus.iter().enumerate() {
            let windows = progress_readings.windows(2).filter_map(|edges| {
                let (before, after) = (edges[0][index]?, edges[1][index]?);
                Some(Progress {
                    units: after.units.saturating_sub(before.units),
                    cpu_ns: after.cpu_ns.saturating_sub(before.cpu_ns),
                })
            });
            let (cost_ns, spread) = least_cost(windows).ok_or_else(|| {
                Declined::new(
                    format!("CPU {cpu} was too busy to be calibrated"),
                    "stop other load on this CPU, or try again",
                )
            })?;
            if spread > MAX_SPREAD {
                return Err(Declined::new(
                    format!("the calibration of CPU {cpu} varies by {:.0}%", spread * 100.0),
                    "set a constant CPU frequency (performance governor) and stop other load",
                ));
            }
            calibration.unit_cost_ns.push(cost_ns);
            calibration.error = calibration.error.max(spread);
        }
        Ok(calibration)
    }
}

/// Computes the CPU time per unit in each window. Returns the lowest of these times (ns), and the
/// relative spread of the [`AGREEING_WINDOWS`] lowest times. `None` if too few windows have enough
/// units.
fn least_cost(windows: impl Iterator<Item = Progress>) -> Option<(f64, f64)> {
    let mut costs_ns: Vec<f64> = windows
        .filter(|window| window.units >= MIN_UNITS && window.cpu_ns > 0)
        .map(|window| window.cpu_ns as f64 / window.units as f64)
        .collect();
    costs_ns.sort_by(f64::total_cmp);
    let worst_of_best = *costs_ns.get(AGREEING_WINDOWS - 1)?;
    Some((costs_ns[0], (worst_of_best - costs_ns[0]) / costs_ns[0]))
}

/// The readings of one spinner over an interval.
struct SpinnerInterval {
    cpu: usize,
    /// Work done: number of units × cost of a unit of work (ns).
    worked_ns: f64,
    /// CPU time charged to the spinner (ns).
    charged_ns: f64,
    /// Idle time of the CPU according to `/proc/stat` (ns). It is about 0 if nothing stopped the
    /// spinner. None if it is unknown.
    idle_ns: Option<u64>,
}

/// Returns the idle time of a CPU between two readings of `/proc/stat`.
fn idle_since(earlier: Option<&ProcStat>, later: Option<&ProcStat>, cpu: usize) -> Option<u64> {
    Some(later?.idle_ns(cpu)?.saturating_sub(earlier?.idle_ns(cpu)?))
}

/// Combines the results of all CPUs into a reading.
fn reading(elapsed_ns: u64, spinner: &[SpinnerInterval], calibrated_error: f64) -> SoakerReading {
    let elapsed = elapsed_ns as f64;
    let lost_ns: f64 =
        spinner.iter().map(|spinner| elapsed - spinner.worked_ns.clamp(0.0, elapsed)).sum();
    let per_cpu = spinner.iter().map(|spinner| SoakedCpu {
        cpu: spinner.cpu,
        idle_share: spinner.worked_ns / elapsed,
        charged_share: spinner.charged_ns / elapsed,
    });
    SoakerReading {
        elapsed_ns,
        per_cpu: per_cpu.collect(),
        lost_ns: lost_ns as u64,
        calibrated_error,
        suspect: spinner.iter().find_map(|spinner| suspect_reason(spinner, elapsed)),
    }
}

/// Returns the first reason why the count of a spinner should not be trusted, if there is one.
fn suspect_reason(spinner: &SpinnerInterval, elapsed_ns: f64) -> Option<String> {
    let cpu = spinner.cpu;
    let share = spinner.worked_ns / elapsed_ns;
    if share > 1.0 + TOLERANCE {
        return Some(format!(
            "CPU {cpu} appears to be {:.1}% idle, which is impossible: its clock rate has changed \
             since the calibration; calibrate and measure again",
            share * 100.0
        ));
    }
    if spinner.worked_ns > spinner.charged_ns * (1.0 + TOLERANCE) + TICKS_NS {
        return Some(format!(
            "the spinner of CPU {cpu} did more work than its CPU time allows, because the clock \
             rate has changed; calibrate and measure again"
        ));
    }
    let idle_ns = spinner.idle_ns? as f64;
    (idle_ns > elapsed_ns * TOLERANCE + TICKS_NS).then(|| {
        format!(
            "CPU {cpu} was idle for {:.1}% of the time although a spinner ran on it; something, \
             such as a CPU quota, limits the spinner, so the CPU cost is overstated",
            idle_ns / elapsed_ns * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn window(units: u64, cpu_ns: u64) -> Progress {
        Progress { units, cpu_ns }
    }

    fn spinner(worked_ns: f64, charged_ns: f64, idle_ns: u64) -> SpinnerInterval {
        SpinnerInterval { cpu: 3, worked_ns, charged_ns, idle_ns: Some(idle_ns) }
    }

    /// Returns progress readings of one CPU. Each window has 10 000 units of work, which cost
    /// `costs_ns` per unit.
    fn notes_of(costs_ns: &[u64]) -> Vec<Vec<Option<Progress>>> {
        let mut progress = Progress { units: 7, cpu_ns: 70 };
        let mut progress_readings = vec![vec![Some(progress)]];
        for cost_ns in costs_ns {
            progress.units += 10_000;
            progress.cpu_ns += cost_ns * 10_000;
            progress_readings.push(vec![Some(progress)]);
        }
        progress_readings
    }

    #[test]
    fn the_least_cost_counts_and_windows_with_little_work_do_not() {
        let windows = [
            window(10_000, 17_000_000),
            window(10_000, 10_200_000),
            window(10, 1),
            window(10_000, 10_000_000),
            window(10_000, 10_500_000),
        ];
        let (cost_ns, spread) = least_cost(windows.into_iter()).unwrap();
        assert_eq!(cost_ns, 1_000.0);
        assert!((spread - 0.05).abs() < 1e-9);
    }

    #[test]
    fn an_unstable_or_starved_calibration_is_refused() {
        let told = Calibration::from_notes(&[5], &notes_of(&[100, 115, 130, 160])).unwrap_err();
        assert!(told.reason.contains("CPU 5 varies by 30%"), "{told}");
        let told = Calibration::from_notes(&[5], &notes_of(&[100, 100])).unwrap_err();
        assert!(told.reason.contains("too busy"), "{told}");
    }

    #[test]
    fn a_missing_reading_invalidates_only_its_own_windows() {
        let mut progress_readings = notes_of(&[100, 900, 900, 101, 102]);
        progress_readings[2] = vec![None];
        let calibration = Calibration::from_notes(&[0], &progress_readings).unwrap();
        assert_eq!(calibration.unit_cost_ns, vec![100.0]);
        assert!((calibration.error - 0.02).abs() < 1e-9);
    }

    #[test]
    fn each_cpu_has_its_own_cost_and_the_worst_spread_is_the_error() {
        let (slow, fast) = (notes_of(&[200, 202, 204]), notes_of(&[100, 100, 105]));
        let progress_readings: Vec<_> =
            slow.iter().zip(&fast).map(|(slow, fast)| [&slow[..], fast].concat()).collect();
        let calibration = Calibration::from_notes(&[0, 1], &progress_readings).unwrap();
        assert_eq!(calibration.unit_cost_ns, vec![200.0, 100.0]);
        assert!((calibration.error - 0.05).abs() < 1e-9);
    }

    #[test]
    fn impossible_readings_are_flagged_with_the_reason() {
        let second = 1e9;
        assert_eq!(suspect_reason(&spinner(0.97 * second, second, 0), second), None);
        assert!(
            suspect_reason(&spinner(1.05 * second, second, 0), second)
                .unwrap()
                .contains("105.0% idle")
        );
        let told = suspect_reason(&spinner(0.5 * second, 0.3 * second, 0), second).unwrap();
        assert!(told.contains("more work than its CPU time"), "{told}");
        let told =
            suspect_reason(&spinner(0.5 * second, 0.5 * second, 450_000_000), second).unwrap();
        assert!(told.contains("idle for 45.0%"), "{told}");
    }

    proptest! {
        #[test]
        fn the_loss_is_between_zero_and_the_available_time(
            elapsed_ns in 1u64..1 << 50,
            shares in prop::collection::vec(0.0f64..2.0, 1..9),
        ) {
            let spinner: Vec<_> = shares
                .iter()
                .map(|share| spinner(share * elapsed_ns as f64, elapsed_ns as f64, 0))
                .collect();
            let reading = reading(elapsed_ns, &spinner, 0.01);
            prop_assert!(reading.lost_ns <= elapsed_ns * shares.len() as u64);
            let impossible = shares.iter().any(|&share| share > 1.0 + TOLERANCE + 1e-9);
            prop_assert!(!impossible || reading.suspect.is_some());
        }
    }
}
