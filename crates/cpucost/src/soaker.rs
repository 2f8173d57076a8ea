//! The upper bound of CPU cost: what an idle-priority spinner on every CPU loses while work runs.
//!
//! The method is that of the sequential I/O studies: a soaker takes all the CPU time nobody else
//! wants, counts it in calibrated units of work, and the work is charged what is missing. It sees
//! what no account of a process shows: kernel threads, interrupts, and time sampling overlooks.
//!
//! Three faults of older soakers are avoided. The spinners rank last against every task group of
//! the machine, not only their own (module `isolation`). Units are calibrated against CPU time, not
//! elapsed time, with the least cost of several windows, so that other load does not stretch
//! them; and all CPUs are calibrated at once, in the state of turbo and SMT in which they will
//! measure. And a soaker changes what it measures (CPUs never sleep, so nothing pays for waking
//! them): run soaked and unsoaked trials in turn and state the difference.
//!
//! The spinners are child processes, so their time is in no account of this process. Anything
//! doubtful is declined ([`Declined`]) or flagged ([`SoakerReading::suspect`]).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;
use std::{fmt, io};

use crate::affinity::allowed_cpus;
use crate::crew::{Crew, Progress};
pub use crate::isolation::Declined;
use crate::isolation::Isolation;
use crate::procstat::ProcStat;

/// One calibration window: long enough for some thousand units on a CPU shared with others.
const WINDOW: Duration = Duration::from_millis(40);
/// Windows a calibration takes if all goes well.
const WINDOWS: usize = 6;
/// A calibration that has not settled by then, on a crowded machine, takes further windows until
/// this much time has passed.
const CALIBRATION_PATIENCE_NS: u64 = 1_000_000_000;
/// The best windows that must agree, to within [`MOST_SPREAD`] of the least.
const AGREEING_WINDOWS: usize = 3;
const MOST_SPREAD: f64 = 0.10;
/// Fewer units than this in a window, about 4 ms of work, say nothing about their cost.
const LEAST_UNITS: u64 = 4_000;
/// How good the calibration is known to be: 4%, so a share above 1.04 cannot be.
const TOLERANCE: f64 = 0.04;
/// Times the system tells are up to this old or coarse: two ticks of 10 ms.
const TICKS_NS: f64 = 20e6;
/// A name in the abstract socket namespace that one soaker on the machine can hold.
const MACHINE_LOCK: &str = "halfpower-soaker";

/// A calibrated spinner at idle priority on every allowed CPU.
///
/// Start it from a thread that is not pinned, for it soaks the CPUs that thread may use, and
/// before large buffers are allocated, for the spinners share this process's memory copy on
/// write. It stays on its thread (it is not `Send`), because the kernel ends the spinners when
/// the thread that started them ends. One soaker runs on a machine at a time. Dropping it ends
/// the spinners.
///
/// ```compile_fail
/// fn move_to_another_thread<T: Send>() {}
/// move_to_another_thread::<cpucost::Soaker>();
/// ```
pub struct Soaker {
    /// Declared, and so dropped, before the group it inhabits.
    crew: Crew,
    isolation: Isolation,
    calibration: Option<Calibration>,
    begun: Option<Begun>,
    _machine_lock: UnixDatagram,
}

/// What one unit costs on each CPU, in the order of the crew.
#[derive(Clone, Debug, PartialEq)]
struct Calibration {
    unit_cost_ns: Vec<f64>,
    error: f64,
}

/// The state of things when an interval began.
struct Begun {
    at_ns: u64,
    units: Vec<u64>,
    charged_ns: Vec<u64>,
    machine: Option<ProcStat>,
}

/// What the spinner of one CPU got.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SoakedCpu {
    /// The kernel's number of the CPU.
    pub cpu: usize,
    /// Work done over work possible: the share of the interval nobody else wanted. About 1 on an
    /// idle CPU; above 1.04 it is flagged.
    pub idle_share: f64,
    /// The share of the interval the system charged to the spinner. Larger than `idle_share` by
    /// what interrupts, a busy SMT sibling or the hypervisor took while it ran.
    pub charged_share: f64,
}

/// What the spinners lost in an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct SoakerReading {
    /// Length of the interval.
    pub elapsed_ns: u64,
    /// Each soaked CPU.
    pub per_cpu: Vec<SoakedCpu>,
    /// CPU time that went elsewhere, summed over CPUs: from 0 to `elapsed_ns` × CPUs. Subtract the
    /// rate of a [`Soaker::background`] reading to get what the work cost.
    pub lost_ns: u64,
    /// Relative spread of the calibration on the worst CPU.
    pub calibrated_error: f64,
    /// Why the reading should not be trusted, if it should not.
    pub suspect: Option<String>,
}

impl SoakerReading {
    /// What the calibration may hide (ns), to be added for an upper bound: the idle time is known
    /// only as well as the cost of a unit of it, so that some of what seemed idle may have been
    /// lost.
    pub fn hidden_ns(&self) -> f64 {
        let all_ns = self.elapsed_ns as f64 * self.per_cpu.len() as f64;
        (all_ns - self.lost_ns as f64).max(0.0) * self.calibrated_error
    }
}

impl fmt::Debug for Soaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Soaker")
            .field("cpus", &self.crew.cpus())
            .field("isolation", &self.isolation)
            .field("calibration", &self.calibration)
            .finish_non_exhaustive()
    }
}

impl Soaker {
    /// Starts the spinners, parked: they cost nothing until [`Soaker::begin`].
    ///
    /// # Errors
    /// Idle priority would not be idle against the whole machine, another soaker runs, or the
    /// system allows no child processes.
    pub fn start() -> Result<Soaker, Declined> {
        let machine_lock = lock_machine()?;
        let isolation = Isolation::prepare()?;
        let crew = Crew::start(&allowed_cpus()).map_err(|error| cannot_start(&error))?;
        isolation.admit(crew.pids())?;
        crew.pin().map_err(|error| cannot_start(&error))?;
        crew.set_idle_policy().map_err(|error| cannot_start(&error))?;
        Ok(Soaker { crew, isolation, calibration: None, begun: None, _machine_lock: machine_lock })
    }

    /// The CPUs it soaks.
    pub fn cpus(&self) -> &[usize] {
        self.crew.cpus()
    }

    /// Finds what a unit of work costs on each CPU, in about 0.3 s, on a crowded machine up to 1 s.
    /// Other load does not falsify it: the cost is the least CPU time per unit over several
    /// windows, taken at normal priority so that a busy CPU yields some. `sleep` sleeps on, and
    /// `now` reads, the caller's clock in ns.
    ///
    /// # Errors
    /// The best windows of a CPU differ by more than 10%, or it was too busy to be calibrated.
    pub fn calibrate(
        &mut self,
        sleep: &dyn Fn(Duration),
        now: &dyn Fn() -> u64,
    ) -> Result<(), Declined> {
        let crew = Crew::start(self.crew.cpus()).map_err(|error| cannot_start(&error))?;
        crew.run();
        let begun_ns = now();
        let mut notes = vec![crew.noted()];
        loop {
            sleep(WINDOW);
            notes.push(crew.noted());
            if notes.len() <= WINDOWS {
                continue;
            }
            let calibration = Calibration::from_notes(self.crew.cpus(), &notes);
            if calibration.is_ok() || now().saturating_sub(begun_ns) > CALIBRATION_PATIENCE_NS {
                self.calibration = Some(calibration?);
                return Ok(());
            }
        }
    }

    /// Begins an interval at `now_ns`: the spinners take all idle time until [`Soaker::end`].
    ///
    /// # Errors
    /// The soaker is not calibrated, or a spinner has died.
    pub fn begin(&mut self, now_ns: u64) -> Result<(), Declined> {
        if self.calibration.is_none() {
            return Err(Declined::new("it is not calibrated", "calibrate it first"));
        }
        self.begun = Some(Begun {
            at_ns: now_ns,
            units: self.crew.units(),
            charged_ns: self.charged_ns()?,
            machine: ProcStat::read().ok(),
        });
        self.crew.run();
        Ok(())
    }

    /// Ends the interval at `now_ns` and says what the spinners lost in it.
    ///
    /// # Errors
    /// No interval was begun, it has no length, or a spinner has died.
    pub fn end(&mut self, now_ns: u64) -> Result<SoakerReading, Declined> {
        let units = self.crew.units();
        self.crew.stop();
        let (Some(begun), Some(calibration)) = (self.begun.take(), &self.calibration) else {
            return Err(Declined::new("no interval was begun", "call begin first"));
        };
        let machine = ProcStat::read().ok();
        let charged_ns = self.charged_ns()?;
        let elapsed_ns = now_ns.saturating_sub(begun.at_ns);
        if elapsed_ns == 0 {
            return Err(Declined::new("the interval has no length", "measure for longer"));
        }
        let spun = self.crew.cpus().iter().enumerate().map(|(index, &cpu)| Spun {
            cpu,
            worked_ns: units[index].saturating_sub(begun.units[index]) as f64
                * calibration.unit_cost_ns[index],
            charged_ns: charged_ns[index].saturating_sub(begun.charged_ns[index]) as f64,
            idle_ns: idle_since(begun.machine.as_ref(), machine.as_ref(), cpu),
        });
        Ok(reading(elapsed_ns, &spun.collect::<Vec<_>>(), calibration.error))
    }

    /// A reading of `duration` with no work going on: what the rest of the machine takes, for the
    /// caller to subtract.
    ///
    /// # Errors
    /// As [`Soaker::begin`] and [`Soaker::end`].
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

    /// The CPU time of each spinner, provided that all of them live.
    fn charged_ns(&self) -> Result<Vec<u64>, Declined> {
        let charged_ns = self.crew.charged_ns();
        if !self.crew.is_whole() {
            return Err(Declined::new("a spinner process was killed", "start a new soaker"));
        }
        charged_ns.map_err(|error| cannot_start(&error))
    }
}

/// Takes the one place on the machine; the socket's end, however it comes, gives it back.
fn lock_machine() -> Result<UnixDatagram, Declined> {
    let bound = SocketAddr::from_abstract_name(MACHINE_LOCK)
        .and_then(|address| UnixDatagram::bind_addr(&address));
    bound.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Declined::new(
            "another soaker runs on this machine, and each would take the other's idle time",
            "wait for it to end",
        ),
        _ => Declined::new(
            format!("cannot make sure that no other soaker runs: {error}"),
            "allow Unix sockets",
        ),
    })
}

fn cannot_start(error: &io::Error) -> Declined {
    Declined::new(
        format!("the spinner processes cannot be set up: {error}"),
        "allow child processes (ulimit -u) and changes of CPU affinity and policy",
    )
}

impl Calibration {
    /// From notes taken at the edges of the windows, one for each of `cpus`.
    fn from_notes(
        cpus: &[usize],
        notes: &[Vec<Option<Progress>>],
    ) -> Result<Calibration, Declined> {
        let mut calibration = Calibration { unit_cost_ns: Vec::new(), error: 0.0 };
        for (index, cpu) in cpus.iter().enumerate() {
            let windows = notes.windows(2).filter_map(|edges| {
                let (before, after) = (edges[0][index]?, edges[1][index]?);
                Some(Progress {
                    units: after.units.saturating_sub(before.units),
                    cpu_ns: after.cpu_ns.saturating_sub(before.cpu_ns),
                })
            });
            let (cost_ns, spread) = least_cost(windows).ok_or_else(|| {
                Declined::new(
                    format!("CPU {cpu} was too busy to be calibrated"),
                    "stop other load on it, or try again",
                )
            })?;
            if spread > MOST_SPREAD {
                return Err(Declined::new(
                    format!("the calibration of CPU {cpu} varies by {:.0}%", spread * 100.0),
                    "fix the CPU frequency (performance governor) and stop other load",
                ));
            }
            calibration.unit_cost_ns.push(cost_ns);
            calibration.error = calibration.error.max(spread);
        }
        Ok(calibration)
    }
}

/// The least CPU time per unit, and how far the best windows lie apart relative to it. `None` if
/// too few windows saw enough work.
fn least_cost(windows: impl Iterator<Item = Progress>) -> Option<(f64, f64)> {
    let mut costs_ns: Vec<f64> = windows
        .filter(|window| window.units >= LEAST_UNITS && window.cpu_ns > 0)
        .map(|window| window.cpu_ns as f64 / window.units as f64)
        .collect();
    costs_ns.sort_by(f64::total_cmp);
    let worst_of_best = *costs_ns.get(AGREEING_WINDOWS - 1)?;
    Some((costs_ns[0], (worst_of_best - costs_ns[0]) / costs_ns[0]))
}

/// What the interval holds about one CPU.
struct Spun {
    cpu: usize,
    /// Units × unit cost.
    worked_ns: f64,
    /// CPU time charged to the spinner.
    charged_ns: f64,
    /// Time the CPU was idle although it had a spinner, as `/proc/stat` tells it.
    idle_ns: Option<u64>,
}

/// Idle time of one CPU between two readings of `/proc/stat`.
fn idle_since(earlier: Option<&ProcStat>, later: Option<&ProcStat>, cpu: usize) -> Option<u64> {
    Some(later?.idle_ns(cpu)?.saturating_sub(earlier?.idle_ns(cpu)?))
}

/// Adds an interval up.
fn reading(elapsed_ns: u64, spun: &[Spun], calibrated_error: f64) -> SoakerReading {
    let elapsed = elapsed_ns as f64;
    let lost_ns: f64 = spun.iter().map(|spun| elapsed - spun.worked_ns.clamp(0.0, elapsed)).sum();
    let per_cpu = spun.iter().map(|spun| SoakedCpu {
        cpu: spun.cpu,
        idle_share: spun.worked_ns / elapsed,
        charged_share: spun.charged_ns / elapsed,
    });
    SoakerReading {
        elapsed_ns,
        per_cpu: per_cpu.collect(),
        lost_ns: lost_ns as u64,
        calibrated_error,
        suspect: spun.iter().find_map(|spun| doubt(spun, elapsed)),
    }
}

/// The first reason not to trust what one spinner counted.
fn doubt(spun: &Spun, elapsed_ns: f64) -> Option<String> {
    let cpu = spun.cpu;
    let share = spun.worked_ns / elapsed_ns;
    if share > 1.0 + TOLERANCE {
        return Some(format!(
            "CPU {cpu} seems {:.1}% idle: its clock rate has changed; calibrate again",
            share * 100.0
        ));
    }
    if spun.worked_ns > spun.charged_ns * (1.0 + TOLERANCE) + TICKS_NS {
        return Some(format!(
            "the spinner of CPU {cpu} did more work than its CPU time allows: the clock rate has \
             changed; calibrate again"
        ));
    }
    let idle_ns = spun.idle_ns? as f64;
    (idle_ns > elapsed_ns * TOLERANCE + TICKS_NS).then(|| {
        format!(
            "CPU {cpu} was idle for {:.1}% of the time although a spinner was there: something \
             holds it back (a CPU quota?), and what it lost is overstated",
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

    fn spun(worked_ns: f64, charged_ns: f64, idle_ns: u64) -> Spun {
        Spun { cpu: 3, worked_ns, charged_ns, idle_ns: Some(idle_ns) }
    }

    /// The notes of one CPU whose windows of 10 000 units cost this much each, in ns per unit.
    fn notes_of(costs_ns: &[u64]) -> Vec<Vec<Option<Progress>>> {
        let mut progress = Progress { units: 7, cpu_ns: 70 };
        let mut notes = vec![vec![Some(progress)]];
        for cost_ns in costs_ns {
            progress.units += 10_000;
            progress.cpu_ns += cost_ns * 10_000;
            notes.push(vec![Some(progress)]);
        }
        notes
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
    fn an_unstable_or_starved_calibration_is_declined() {
        let told = Calibration::from_notes(&[5], &notes_of(&[100, 115, 130, 160])).unwrap_err();
        assert!(told.reason.contains("CPU 5 varies by 30%"), "{told}");
        let told = Calibration::from_notes(&[5], &notes_of(&[100, 100])).unwrap_err();
        assert!(told.reason.contains("too busy"), "{told}");
    }

    #[test]
    fn a_note_that_could_not_be_read_spoils_only_its_own_windows() {
        let mut notes = notes_of(&[100, 900, 900, 101, 102]);
        notes[2] = vec![None];
        let calibration = Calibration::from_notes(&[0], &notes).unwrap();
        assert_eq!(calibration.unit_cost_ns, vec![100.0]);
        assert!((calibration.error - 0.02).abs() < 1e-9);
    }

    #[test]
    fn each_cpu_has_its_own_cost_and_the_worst_spread_is_the_error() {
        let (slow, fast) = (notes_of(&[200, 202, 204]), notes_of(&[100, 100, 105]));
        let notes: Vec<_> =
            slow.iter().zip(&fast).map(|(slow, fast)| [&slow[..], fast].concat()).collect();
        let calibration = Calibration::from_notes(&[0, 1], &notes).unwrap();
        assert_eq!(calibration.unit_cost_ns, vec![200.0, 100.0]);
        assert!((calibration.error - 0.05).abs() < 1e-9);
    }

    #[test]
    fn what_cannot_be_is_flagged_with_its_reason() {
        let second = 1e9;
        assert_eq!(doubt(&spun(0.97 * second, second, 0), second), None);
        assert!(doubt(&spun(1.05 * second, second, 0), second).unwrap().contains("105.0% idle"));
        let told = doubt(&spun(0.5 * second, 0.3 * second, 0), second).unwrap();
        assert!(told.contains("more work than its CPU time"), "{told}");
        let told = doubt(&spun(0.5 * second, 0.5 * second, 450_000_000), second).unwrap();
        assert!(told.contains("idle for 45.0%"), "{told}");
    }

    proptest! {
        #[test]
        fn the_loss_is_never_negative_and_never_more_than_there_was(
            elapsed_ns in 1u64..1 << 50,
            shares in prop::collection::vec(0.0f64..2.0, 1..9),
        ) {
            let spun: Vec<_> = shares
                .iter()
                .map(|share| spun(share * elapsed_ns as f64, elapsed_ns as f64, 0))
                .collect();
            let reading = reading(elapsed_ns, &spun, 0.01);
            prop_assert!(reading.lost_ns <= elapsed_ns * shares.len() as u64);
            let impossible = shares.iter().any(|&share| share > 1.0 + TOLERANCE + 1e-9);
            prop_assert!(!impossible || reading.suspect.is_some());
        }
    }
}
