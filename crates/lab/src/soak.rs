//! Computes a lower and an upper bound of the CPU cost of a command from readings that were taken
//! before, during and after the command.
//!
//! The lower bound is the CPU time charged to the command and all processes that it started. The
//! upper bound is measured with the soaker: processes of lowest priority that use all CPU time that
//! is left over. The upper bound is the CPU time that the soaker lost during the command, plus the
//! soaker's calibration error, minus the background load. The background load is the smaller of the
//! losses before and after the command, so that the upper bound is not too small. All functions in
//! this file are pure; `session` takes the readings.

pub mod session;

use analysis::units;
use std::process::ExitStatus;

use cpucost::descendants::{LeftBehind, Running};
use cpucost::procstat::ProcStat;
use cpucost::rusage::ProcessTime;
use cpucost::{Declined, SoakerReading};
use schemars::JsonSchema;
use serde::Serialize;

use crate::check::Check;
use crate::json::{Program, VerdictDocument};
use crate::machine::Host;
use crate::point::{State, Verdict};

/// Maximum difference between the background loads before and after the command (CPUs). With a
/// larger difference, the verdict is suspect. The limit is about three times the variation from
/// second to second on a quiet machine with two CPUs.
const DRIFT_MAX_CPUS: f64 = 0.1;
/// Maximum background load of other programs, as a share of all CPUs. A larger load leaves too
/// little idle time for the soaker.
const BACKGROUND_MAX: f64 = 0.5;
/// Minimum run time of a command (ns). With a shorter run time, the verdict is suspect. The limit
/// is ten times the resolution of the readings, which is two ticks of 10 ms.
const SHORT_NS: u64 = 200_000_000;
/// Maximum amount by which the measured upper bound may be below the lower bound, as a share of the
/// time of all CPUs. The soaker's calibration error can cause such a difference
/// (docs/methodology.md, known limits).
const TOLERANCE: f64 = 0.04;

/// All readings before, during and after one execution.
#[derive(Debug)]
pub struct Readings {
    /// Exit status of the command.
    pub status: ExitStatus,
    /// Run time of the command (ns).
    pub elapsed_ns: u64,
    /// CPUs that the command may use, by CPU number.
    pub cpus: Vec<usize>,
    /// CPU time charged to the command and to the children it waited for.
    pub process: ProcessTime,
    /// Processes that the command started but did not wait for. Empty if unknown.
    pub left_behind: LeftBehind,
    /// `/proc/stat` at the start and at the end of the command. None if it cannot be read.
    pub machine: Option<(ProcStat, ProcStat)>,
    /// CPU time that the soaker lost, or the reason why the soaker did not run. The soaker consists
    /// of processes of lowest priority, which use all CPU time that is left over.
    pub soaked: Result<Soaked, Declined>,
}

/// CPU time that the soaker lost before, during and after a command.
#[derive(Debug)]
pub struct Soaked {
    /// CPU time lost in an interval before the command.
    pub before: SoakerReading,
    /// CPU time lost during the command.
    pub during: SoakerReading,
    /// CPU time lost in an interval after the command.
    pub after: SoakerReading,
}

/// CPU cost of a command, as printed by `soak --json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SoakDocument {
    /// The program that wrote the document.
    pub halfpower: Program,
    /// The machine on which the command ran.
    pub host: Host,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Exit code of the command. Null if a signal ended the command.
    pub exit_code: Option<i32>,
    /// The signal that ended the command. Null if the command exited.
    pub signal: Option<i32>,
    /// Run time of the command (ns).
    pub elapsed_ns: u64,
    /// Number of CPUs that the command may use.
    pub cpus: u32,
    /// CPU time of the command and of the machine (ns).
    pub cpu_ns: SoakCpuDocument,
    /// CPU time of the command as a share of the time of all CPUs.
    pub utilisation: UtilisationDocument,
    /// Background load before and after the command. Null without a soaker.
    pub background_cpus: Option<BackgroundDocument>,
    /// Processes that were still running when the command ended.
    pub left_running: Vec<RunningDocument>,
    /// Use of each CPU during the command.
    pub per_cpu: Vec<PerCpuDocument>,
    /// Why there is no upper bound. Null if there is one.
    pub declined: Option<DeclinedDocument>,
    /// Whether the upper bound can be trusted.
    pub verdict: VerdictDocument,
}

/// A process that the command left running.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunningDocument {
    /// Process id.
    pub pid: i32,
    /// Name of the process.
    pub name: String,
    /// CPU time charged to the process until the command ended (ns), with a resolution of 10 ms. It
    /// is included in the lower bound.
    pub cpu_ns: u64,
}

/// CPU time during a command (ns).
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SoakCpuDocument {
    /// Lower bound: CPU time charged to the command and all processes that it started, until the
    /// command ended.
    pub lower: u64,
    /// Upper bound: CPU time lost by the soaker, plus its calibration error, minus the background
    /// load. Null without a soaker.
    pub upper: Option<u64>,
    /// User time, included in `lower`.
    pub user: u64,
    /// System time, included in `lower`.
    pub system: u64,
    /// CPU time that was used by anything other than the soaker. Null if unknown.
    pub machine: Option<u64>,
    /// CPU time lost by the soaker, including the background load. Null without a soaker.
    pub soaker: Option<u64>,
}

/// CPU time of the command as a share of the time of all CPUs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct UtilisationDocument {
    /// Lower bound of the command's share.
    pub lower: f64,
    /// Upper bound of the command's share. Null without a soaker.
    pub upper: Option<f64>,
}

/// Average number of CPUs that other programs used, measured by the soaker.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BackgroundDocument {
    /// Average number of CPUs in use in an interval before the command.
    pub before: f64,
    /// Average number of CPUs in use in an interval after the command.
    pub after: f64,
}

/// Use of one CPU during the command, including the background load.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PerCpuDocument {
    /// CPU number.
    pub cpu: usize,
    /// Share of the elapsed time in which the soaker could not use the CPU. Null without a soaker.
    pub lost_share: Option<f64>,
    /// Share of the elapsed time in which the CPU was busy with anything other than the soaker,
    /// from `/proc/stat`. Null if unknown.
    pub busy_share: Option<f64>,
}

/// Why there is no upper bound.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DeclinedDocument {
    /// Why there is no upper bound.
    pub reason: String,
    /// How to get an upper bound.
    pub remedy: String,
}

/// Returns the average number of CPUs that the soaker lost in an interval.
fn lost_cpus(reading: &SoakerReading) -> f64 {
    reading.lost_ns as f64 / reading.elapsed_ns.max(1) as f64
}

impl Readings {
    /// Returns the CPU time charged to the command and all processes that it started.
    fn charged(&self) -> ProcessTime {
        let (mut all, left) = (self.process, self.left_behind.time());
        all.add(left.user_ns, left.system_ns);
        all
    }

    /// Returns the run time multiplied by the number of CPUs (ns).
    fn whole_ns(&self) -> f64 {
        self.elapsed_ns as f64 * self.cpus.len() as f64
    }

    /// Returns the CPU time that the soaker lost, minus the background load (ns). The calibration
    /// error is not included. None without a soaker.
    fn beyond_background_ns(&self) -> Option<f64> {
        let soaked = self.soaked.as_ref().ok()?;
        let background = lost_cpus(&soaked.before).min(lost_cpus(&soaked.after));
        Some(soaked.during.lost_ns as f64 - background * soaked.during.elapsed_ns as f64)
    }

    /// Returns the upper bound, which is at least the lower bound (ns). None without a soaker.
    fn upper_ns(&self) -> Option<u64> {
        let upper_ns = self.beyond_background_ns()? + self.soaked.as_ref().ok()?.during.hidden_ns();
        Some((upper_ns.max(0.0) as u64).max(self.charged().total_ns))
    }

    /// Returns the use of each CPU during the command.
    fn per_cpu(&self) -> Vec<PerCpuDocument> {
        let spinner = |cpu| {
            let soaked = self.soaked.as_ref().ok()?;
            soaked.during.per_cpu.iter().find(|soaked| soaked.cpu == cpu)
        };
        let idle_share = |cpu| {
            let (before, after) = self.machine.as_ref()?;
            let idle_ns = after.idle_ns(cpu)?.saturating_sub(before.idle_ns(cpu)?);
            Some(idle_ns as f64 / self.elapsed_ns.max(1) as f64)
        };
        let share = |cpu| PerCpuDocument {
            cpu,
            lost_share: spinner(cpu).map(|spun| (1.0 - spun.idle_share).clamp(0.0, 1.0)),
            busy_share: idle_share(cpu).map(|idle| {
                let spun = spinner(cpu).map_or(0.0, |spun| spun.charged_share);
                (1.0 - idle - spun).clamp(0.0, 1.0)
            }),
        };
        self.cpus.iter().map(|&cpu| share(cpu)).collect()
    }

    /// Judges whether the upper bound can be trusted.
    fn verdict(&self) -> Verdict {
        let mut verdict = Verdict::default();
        if let Some(text) = left_text(&self.left_behind.running) {
            verdict.flag(State::Suspect, Check::Background, text);
        }
        let Ok(soaked) = &self.soaked else { return verdict };
        let mut doubt = |reason: String| verdict.flag(State::Suspect, Check::Background, reason);
        for reading in [&soaked.before, &soaked.during, &soaked.after] {
            reading.suspect.iter().for_each(|reason| doubt(reason.clone()));
        }
        let (before, after) = (lost_cpus(&soaked.before), lost_cpus(&soaked.after));
        if (before - after).abs() > DRIFT_MAX_CPUS {
            doubt(format!(
                "the background load changed from {before:.2} to {after:.2} CPUs (allowed change: \
                 {DRIFT_MAX_CPUS} CPUs), so the upper bound may include CPU time of other \
                 programs; stop other programs; if processes of the command kept running, use a \
                 longer --settle"
            ));
        }
        if self.elapsed_ns < SHORT_NS {
            doubt(format!(
                "the command ran for only {}, but readings of CPU time have a resolution of up to \
                 20 ms; give the command more work",
                units::time(self.elapsed_ns as f64)
            ));
        }
        let lower = self.charged().total_ns as f64;
        if before.min(after) > BACKGROUND_MAX * self.cpus.len() as f64 {
            doubt(format!(
                "other programs use {:.2} of {} CPUs, which leaves the soaker too little idle \
                 time; stop them",
                before.min(after),
                self.cpus.len()
            ));
        } else if self
            .beyond_background_ns()
            .is_some_and(|ns| ns < lower - TOLERANCE * self.whole_ns())
        {
            doubt(
                "the command used more CPU time than the soaker lost, so one of these \
                 measurements is wrong; repeat the run"
                    .to_owned(),
            );
        }
        verdict
    }

    /// Creates the JSON document from these readings.
    pub fn document(&self, command: Vec<String>, host: Host) -> SoakDocument {
        use std::os::unix::process::ExitStatusExt;
        let (per_cpu, upper_ns, charged) = (self.per_cpu(), self.upper_ns(), self.charged());
        let soaked = self.soaked.as_ref();
        let busy: Option<f64> = per_cpu.iter().map(|cpu| cpu.busy_share).sum();
        let share = |ns: u64| ns as f64 / self.whole_ns().max(1.0);
        SoakDocument {
            halfpower: Program::this(),
            host,
            command,
            exit_code: self.status.code(),
            signal: self.status.signal(),
            elapsed_ns: self.elapsed_ns,
            cpus: self.cpus.len() as u32,
            cpu_ns: SoakCpuDocument {
                lower: charged.total_ns,
                upper: upper_ns,
                user: charged.user_ns,
                system: charged.system_ns,
                machine: busy.map(|cpus| (cpus * self.elapsed_ns as f64) as u64),
                soaker: soaked.ok().map(|soaked| soaked.during.lost_ns),
            },
            utilisation: UtilisationDocument {
                lower: share(charged.total_ns),
                upper: upper_ns.map(share),
            },
            background_cpus: soaked.ok().map(|soaked| BackgroundDocument {
                before: lost_cpus(&soaked.before),
                after: lost_cpus(&soaked.after),
            }),
            left_running: self.left_behind.running.iter().map(RunningDocument::from).collect(),
            per_cpu,
            declined: soaked.err().map(|declined| DeclinedDocument {
                reason: declined.reason.clone(),
                remedy: declined.remedy.clone(),
            }),
            verdict: VerdictDocument::from(&self.verdict()),
        }
    }
}

impl From<&Running> for RunningDocument {
    fn from(running: &Running) -> RunningDocument {
        let Running { pid, name, time } = running.clone();
        RunningDocument { pid, name, cpu_ns: time.total_ns }
    }
}

/// Returns a sentence about the processes that were left running. None if there are none.
fn left_text(running: &[Running]) -> Option<String> {
    const NAMED: usize = 5;
    let shown = |process: &Running| format!("{} ({})", process.name, process.pid);
    let mut names: Vec<String> = running.iter().take(NAMED).map(shown).collect();
    if running.len() > NAMED {
        names.push(format!("{} more", running.len() - NAMED));
    }
    let count = match running.len() {
        1 => "a process".to_owned(),
        several => format!("{several} processes"),
    };
    (!running.is_empty()).then(|| {
        format!(
            "the command left {count} running, {}: neither the lower nor the upper bound includes \
             CPU time that is used after the end of the command; make the command wait for its \
             processes",
            names.join(", ")
        )
    })
}

/// Formats the report as text.
pub fn text(document: &SoakDocument) -> String {
    let time = |ns: u64| units::time(ns as f64);
    let ended = match (document.exit_code, document.signal) {
        (Some(code), _) => format!("exit {code}"),
        (None, signal) => format!("ended by signal {}", signal.unwrap_or_default()),
    };
    let of_all = |share: f64| format!("{:.1}% of {} CPUs", 100.0 * share, document.cpus);
    let cpu = &document.cpu_ns;
    let mut lines = vec![
        format!("{}: {}, {ended}", document.command.join(" "), time(document.elapsed_ns)),
        format!(
            "CPU lower bound {} (user {}, system {}), {}",
            time(cpu.lower),
            time(cpu.user),
            time(cpu.system),
            of_all(document.utilisation.lower)
        ),
    ];
    if let (Some(upper), Some(share)) = (cpu.upper, document.utilisation.upper) {
        lines.push(format!("CPU upper bound {}, {}", time(upper), of_all(share)));
    }
    if let Some(declined) = &document.declined {
        lines.push(format!("no upper bound: {}; {}", declined.reason, declined.remedy));
    }
    let machine = cpu.machine.map(|ns| format!("machine busy {}", time(ns)));
    let background = document.background_cpus.as_ref().map(|background| {
        format!("background {:.2} CPUs before, {:.2} after", background.before, background.after)
    });
    let around: Vec<String> = [machine, background].into_iter().flatten().collect();
    lines.push(around.join("; "));
    lines.extend(document.verdict.reasons.iter().map(|reason| format!("suspect: {reason}")));
    lines.retain(|line| !line.is_empty());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use cpucost::soaker::SoakedCpu;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn lost(lost_ns: u64) -> SoakerReading {
        let cpu = SoakedCpu { cpu: 0, idle_share: 1.0 - lost_ns as f64 / 1e9, charged_share: 0.5 };
        SoakerReading {
            elapsed_ns: SECOND,
            per_cpu: vec![cpu],
            lost_ns,
            calibrated_error: 0.01,
            suspect: None,
        }
    }

    fn readings(before: u64, during: u64, after: u64) -> Readings {
        let soaked = Soaked { before: lost(before), during: lost(during), after: lost(after) };
        Readings {
            status: ExitStatus::from_raw(0),
            elapsed_ns: SECOND,
            cpus: vec![0],
            process: ProcessTime {
                total_ns: 300_000_000,
                user_ns: 300_000_000,
                ..ProcessTime::default()
            },
            left_behind: LeftBehind::default(),
            machine: None,
            soaked: Ok(soaked),
        }
    }

    fn document(readings: &Readings) -> SoakDocument {
        readings.document(vec!["true".into()], Host::default())
    }

    #[test]
    fn the_smaller_background_is_subtracted() {
        let document = document(&readings(50_000_000, 500_000_000, 20_000_000));
        // The soaker ran for 500 ms and lost 500 ms. The background of 20 ms is subtracted from the
        // lost time, and a calibration error of 1% of the time that the soaker ran is added.
        assert_eq!(document.cpu_ns.upper, Some(485_000_000));
        assert_eq!(document.verdict.state, "valid");
        assert!((document.utilisation.upper.unwrap() - 0.485).abs() < 1e-9);
    }

    #[test]
    fn backgrounds_that_differ_make_the_upper_bound_suspect() {
        let document = document(&readings(10_000_000, 500_000_000, 150_000_000));
        assert_eq!(document.verdict.state, "suspect");
        assert!(document.verdict.reasons[0].contains("0.01 to 0.15 CPUs"), "{document:?}");
    }

    #[test]
    fn the_upper_bound_is_never_below_the_lower_one_and_suspect_if_measured_so() {
        let near = document(&readings(0, 290_000_000, 0));
        assert_eq!((near.cpu_ns.upper, near.verdict.state.as_str()), (Some(300_000_000), "valid"));
        let far = document(&readings(0, 200_000_000, 0));
        assert_eq!(far.verdict.state, "suspect");
    }

    #[test]
    fn other_programs_that_keep_the_machine_busy_make_the_upper_bound_suspect() {
        let document = document(&readings(900_000_000, 950_000_000, 920_000_000));
        assert_eq!(document.cpu_ns.upper, Some(300_000_000));
        let reason = &document.verdict.reasons[0];
        assert!(reason.contains("other programs use 0.90 of 1 CPUs"), "{document:?}");
    }

    #[test]
    fn without_a_soaker_the_report_has_the_reason_and_its_remedy() {
        let declined = Declined { reason: "no right".into(), remedy: "be root".into() };
        let readings = Readings { soaked: Err(declined), ..readings(0, 0, 0) };
        let document = document(&readings);
        assert_eq!(document.cpu_ns.upper, None);
        assert!(text(&document).contains("no upper bound: no right; be root"));
    }

    #[test]
    fn children_not_waited_for_are_in_both_bounds_and_named_while_they_run() {
        let mut readings = readings(0, 510_000_000, 0);
        readings.left_behind.ended.add(200_000_000, 0);
        let document_before = document(&readings);
        assert_eq!(document_before.cpu_ns.lower, 500_000_000);
        assert!(document_before.cpu_ns.upper >= Some(500_000_000), "upper below lower");
        assert_eq!(document_before.verdict.state, "valid");
        let mut time = ProcessTime::default();
        time.add(0, 50_000_000);
        let running = Running { pid: 7, name: "server".to_owned(), time };
        readings.left_behind.running.push(running);
        let document = document(&readings);
        assert_eq!(document.cpu_ns.lower, 550_000_000);
        assert_eq!((document.left_running[0].pid, document.verdict.state.as_str()), (7, "suspect"));
        assert!(text(&document).contains("the command left a process running, server (7): "));
    }
}
