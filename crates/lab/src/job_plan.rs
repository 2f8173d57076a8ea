//! Describes what a run would do, for `--plan`: its files, settings, trials, writes and time.
//! Changes nothing, and opens targets for reading only.

use crate::bench;
use crate::failure::Outcome;
use crate::job::Job;
use crate::point_key::PointKey;
use crate::settings;
use analysis::units;

/// Returns lines of text that describe what a job would do. `endurance_bytes` is the rated
/// endurance of the device: the number of bytes that can be written to it in its life.
///
/// # Errors
/// A target cannot be used, or settings cannot be changed.
pub fn lines(job: &Job, endurance_bytes: Option<u64>) -> Outcome<Vec<String>> {
    let preparation = bench::preparation(job)?;
    let changes = settings::plan(job.targets.paths(), &job.host)?;
    let destroys = preparation.destroys.iter().map(|what| format!("destroy {what}"));
    let mut lines: Vec<String> = preparation.lines.into_iter().chain(changes).collect();
    lines.extend(destroys);
    let (mut seconds, mut endless, mut writes) = (0.0, false, preparation.write_bytes);
    let mut at_least = "";
    for axes in &job.axes {
        let workload = job.workload(axes, preparation.region_bytes, job.direct.unwrap_or(true));
        let trials = u64::from(job.trials) * if job.soaker { 2 } else { 1 };
        if let Some(load) = &job.trace {
            lines.push(format!("{}, {trials} trials", PointKey::of(&workload).describe()));
            writes = writes.saturating_add(load.scan.bytes[1].saturating_mul(trials));
            seconds += trials as f64 * load.scan.duration_ns as f64 / 1e9;
            continue;
        }
        match workload.limit_ns {
            Some(ns) => seconds += trials as f64 * (ns + workload.warm_up_ns) as f64 / 1e9,
            None => endless = true,
        }
        let share = f64::from(100 - axes.read_percent) / 100.0;
        let warms_up = workload.warm_up_ns > 0 || workload.steady.is_some();
        if share > 0.0 && (workload.limit_bytes.is_none() || warms_up) {
            at_least = "at least ";
        }
        // The workload runs on each target, so its writes count once for each target.
        let targets = job.targets.count() as u64;
        let written = (workload.limit_bytes.unwrap_or(0) as f64 * share) as u64;
        writes = writes.saturating_add(written.saturating_mul(trials * targets));
        lines.push(format!(
            "{} {}, depth {}{}, {}",
            workload.rw(),
            units::size(u64::from(axes.request_bytes)),
            axes.depth,
            if axes.threads > 1 { format!(" x {} threads", axes.threads) } else { String::new() },
            units::counted(trials, "trial")
        ));
    }
    if !job.targets.paths().is_empty() {
        let share = units::share_of_endurance(writes, endurance_bytes);
        lines.push(format!("writes {at_least}{} in total{share}", units::size(writes)));
    }
    let spent = if job.targets.simulated().is_some() { "virtual time" } else { "measuring" };
    let time = if job.trace.is_some() {
        format!(
            "{seconds:.3} s of {spent}, provided that each trial takes as long as the recorded \
             program did"
        )
    } else if endless && job.targets.simulated().is_some() {
        "the virtual time that the simulated system needs for all requests".to_owned()
    } else if endless {
        "the time that the target needs for all requests".to_owned()
    } else if job.base.steady.is_some() {
        format!("{seconds} s of {spent}, and up to 10 min before each trial to reach steady state")
    } else {
        format!("{seconds} s of {spent}")
    };
    lines.push(format!("would take {time}; nothing was done"));
    Ok(lines)
}
