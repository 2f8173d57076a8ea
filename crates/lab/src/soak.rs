//! What a command cost in CPU: the figures of one soaked interval, and what they mean.
//!
//! The lower bound is what the system charged to the command and all processes that it started. The
//! upper bound is what the soaker lost meanwhile, with what its calibration may hide, less the
//! background: the lesser of what it lost before and after, so that the bound stays one. Pure
//! functions of the readings.

use std::process::ExitStatus;

use cpucost::descendants::{LeftBehind, Running};
use cpucost::procstat::ProcStat;
use cpucost::rusage::ProcessTime;
use cpucost::{Declined, SoakerReading};
use schemars::JsonSchema;
use serde::Serialize;

use crate::json::{Program, VerdictDocument};
use crate::machine::Host;
use crate::point::{State, Verdict};

/// Backgrounds before and after may differ by so much of a CPU; beyond it the upper bound is
/// suspect. Some three times what a quiet machine of two CPUs showed from second to second.
const MOST_DRIFT_CPUS: f64 = 0.1;
/// Share of all CPUs that others may use; beyond it the soaker cannot lose what the command takes.
const MOST_BACKGROUND: f64 = 0.5;
/// Readings are up to two ticks of 10 ms coarse, which is a tenth of this (ns).
const SHORT_NS: u64 = 200_000_000;
/// How good the soaker's calibration is known to be: the part of the time of all CPUs by which the
/// upper bound may lie below the lower one (methodology, known limits).
const TOLERANCE: f64 = 0.04;

/// Everything read around and during one execution.
#[derive(Debug)]
pub struct Readings {
    /// How the command ended.
    pub status: ExitStatus,
    /// From its start to its end.
    pub elapsed_ns: u64,
    /// CPUs that it might use.
    pub cpus: Vec<usize>,
    /// What the system charged to it and to what it waited for.
    pub process: ProcessTime,
    /// What it did not wait for, where that could be found out.
    pub left_behind: LeftBehind,
    /// The machine at its start and end, where the system tells.
    pub machine: Option<(ProcStat, ProcStat)>,
    /// What the soaker lost, or why there was none.
    pub soaked: Result<Soaked, Declined>,
}

/// What the soaker lost.
#[derive(Debug)]
pub struct Soaked {
    /// Before the command.
    pub before: SoakerReading,
    /// While it ran.
    pub during: SoakerReading,
    /// After it.
    pub after: SoakerReading,
}

/// What a command cost: what `soak --json` prints.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SoakDocument {
    /// Which program wrote it.
    pub halfpower: Program,
    /// The machine.
    pub host: Host,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Its exit code; null where a signal ended it.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// From its start to its end.
    pub elapsed_ns: u64,
    /// CPUs that it might use.
    pub cpus: u32,
    /// CPU time.
    pub cpu_ns: SoakCpuDocument,
    /// CPU time over elapsed time and CPUs.
    pub utilisation: UtilisationDocument,
    /// CPUs in use when the command did not run; null without soaker.
    pub background_cpus: Option<BackgroundDocument>,
    /// Processes that it left running.
    pub left_running: Vec<RunningDocument>,
    /// Each CPU while the command ran.
    pub per_cpu: Vec<PerCpuDocument>,
    /// Why there is no upper bound, where there is none.
    pub declined: Option<DeclinedDocument>,
    /// Whether to trust the upper bound.
    pub verdict: VerdictDocument,
}

/// A process that the command left running.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunningDocument {
    /// Its number.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// CPU time charged to it until the command ended, to 10 ms; part of the lower bound.
    pub cpu_ns: u64,
}

/// CPU time of a command.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SoakCpuDocument {
    /// Charged to the command and to all processes that it started, until it ended; user + system.
    pub lower: u64,
    /// Lost by the soaker, background subtracted; null without soaker.
    pub upper: Option<u64>,
    /// The part of lower in user mode.
    pub user: u64,
    /// The part of lower in the kernel.
    pub system: u64,
    /// Busy time of the whole machine, the soaker's own not counted.
    pub machine: Option<u64>,
    /// Lost by the soaker, background included.
    pub soaker: Option<u64>,
}

/// Shares of the time of all CPUs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct UtilisationDocument {
    /// By the lower bound.
    pub lower: f64,
    /// By the upper bound.
    pub upper: Option<f64>,
}

/// CPUs in use when the command did not run, by the soaker.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BackgroundDocument {
    /// Before it.
    pub before: f64,
    /// After it.
    pub after: f64,
}

/// One CPU while the command ran, background included.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PerCpuDocument {
    /// The kernel's number.
    pub cpu: usize,
    /// Share of the time that the soaker lost there.
    pub lost_share: Option<f64>,
    /// Share of the time that it was busy with something else than the soaker, by the system.
    pub busy_share: Option<f64>,
}

/// Why there is no upper bound.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DeclinedDocument {
    /// What stands in the way.
    pub reason: String,
    /// What to do about it.
    pub remedy: String,
}

/// CPUs lost in an interval.
fn lost_cpus(reading: &SoakerReading) -> f64 {
    reading.lost_ns as f64 / reading.elapsed_ns.max(1) as f64
}

impl Readings {
    /// What the system charged to the command and to all that it started.
    fn charged(&self) -> ProcessTime {
        let (mut all, left) = (self.process, self.left_behind.time());
        all.add(left.user_ns, left.system_ns);
        all
    }

    /// CPU time of all CPUs together.
    fn whole_ns(&self) -> f64 {
        self.elapsed_ns as f64 * self.cpus.len() as f64
    }

    /// What the soaker lost less the background, before doubts.
    fn beyond_background_ns(&self) -> Option<f64> {
        let soaked = self.soaked.as_ref().ok()?;
        let background = lost_cpus(&soaked.before).min(lost_cpus(&soaked.after));
        Some(soaked.during.lost_ns as f64 - background * soaked.during.elapsed_ns as f64)
    }

    /// The upper bound, never below the lower one: that much was charged in any case.
    fn upper_ns(&self) -> Option<u64> {
        let upper_ns = self.beyond_background_ns()? + self.soaked.as_ref().ok()?.during.hidden_ns();
        Some((upper_ns.max(0.0) as u64).max(self.charged().total_ns))
    }

    /// Each CPU while the command ran.
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

    /// Whether the upper bound can be trusted.
    fn verdict(&self) -> Verdict {
        let mut verdict = Verdict::default();
        if let Some(text) = left_text(&self.left_behind.running) {
            verdict.add(State::Suspect, text);
        }
        let Ok(soaked) = &self.soaked else { return verdict };
        let mut doubt = |reason: String| verdict.add(State::Suspect, reason);
        for reading in [&soaked.before, &soaked.during, &soaked.after] {
            reading.suspect.iter().for_each(|reason| doubt(reason.clone()));
        }
        let (before, after) = (lost_cpus(&soaked.before), lost_cpus(&soaked.after));
        if (before - after).abs() > MOST_DRIFT_CPUS {
            doubt(format!(
                "the background changed from {before:.2} to {after:.2} CPUs, more than \
                 {MOST_DRIFT_CPUS}: the upper bound may hold what others did; stop other load, or \
                 wait for what the command left behind with a longer --settle"
            ));
        }
        if self.elapsed_ns < SHORT_NS {
            doubt(format!(
                "it ran for {} only, and readings are up to 20 ms coarse; give it more to do",
                units::time(self.elapsed_ns as f64)
            ));
        }
        let lower = self.charged().total_ns as f64;
        if before.min(after) > MOST_BACKGROUND * self.cpus.len() as f64 {
            doubt(format!(
                "others use {:.2} of {} CPUs: there is too little idle time to lose; stop them",
                before.min(after),
                self.cpus.len()
            ));
        } else if self
            .beyond_background_ns()
            .is_some_and(|ns| ns < lower - TOLERANCE * self.whole_ns())
        {
            doubt("the soaker lost less than the system charged; repeat it".to_owned());
        }
        verdict
    }

    /// Everything as a document.
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

/// That processes were left running, in words.
fn left_text(running: &[Running]) -> Option<String> {
    const NAMED: usize = 5;
    let one = |one: &Running| format!("{} ({})", one.name, one.pid);
    let mut names: Vec<String> = running.iter().take(NAMED).map(one).collect();
    if running.len() > NAMED {
        names.push(format!("{} more", running.len() - NAMED));
    }
    let count = match running.len() {
        1 => "a process".to_owned(),
        several => format!("{several} processes"),
    };
    (!running.is_empty()).then(|| {
        format!(
            "it left {count} running, {}: CPU time used after its end is in neither bound; have \
             the command wait for its processes",
            names.join(", ")
        )
    })
}

/// The report in words.
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
    fn the_lesser_background_is_subtracted() {
        let document = document(&readings(50_000_000, 500_000_000, 20_000_000));
        // With 1% of the 500 ms that seemed idle.
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
    fn the_upper_bound_is_never_below_the_lower_one_and_says_so_where_it_was() {
        let near = document(&readings(0, 290_000_000, 0));
        assert_eq!((near.cpu_ns.upper, near.verdict.state.as_str()), (Some(300_000_000), "valid"));
        let far = document(&readings(0, 200_000_000, 0));
        assert_eq!(far.verdict.state, "suspect");
    }

    #[test]
    fn a_machine_that_others_keep_busy_makes_the_upper_bound_suspect() {
        let document = document(&readings(900_000_000, 950_000_000, 920_000_000));
        assert_eq!(document.cpu_ns.upper, Some(300_000_000));
        assert!(document.verdict.reasons[0].contains("others use 0.90 of 1 CPUs"), "{document:?}");
    }

    #[test]
    fn without_soaker_the_reason_and_its_remedy_are_said() {
        let declined = Declined { reason: "no right".into(), remedy: "be root".into() };
        let readings = Readings { soaked: Err(declined), ..readings(0, 0, 0) };
        let document = document(&readings);
        assert_eq!(document.cpu_ns.upper, None);
        assert!(text(&document).contains("no upper bound: no right; be root"));
    }

    #[test]
    fn what_was_not_waited_for_is_in_both_bounds_and_named_while_it_runs() {
        let mut readings = readings(0, 510_000_000, 0);
        readings.left_behind.ended.add(200_000_000, 0);
        let document_before = document(&readings);
        assert_eq!(document_before.cpu_ns.lower, 500_000_000);
        assert!(document_before.cpu_ns.upper >= Some(500_000_000), "a bound bounds");
        assert_eq!(document_before.verdict.state, "valid");
        let mut time = ProcessTime::default();
        time.add(0, 50_000_000);
        let running = Running { pid: 7, name: "server".to_owned(), time };
        readings.left_behind.running.push(running);
        let document = document(&readings);
        assert_eq!(document.cpu_ns.lower, 550_000_000);
        assert_eq!((document.left_running[0].pid, document.verdict.state.as_str()), (7, "suspect"));
        assert!(text(&document).contains("it left a process running, server (7): "));
    }
}
