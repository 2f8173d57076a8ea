//! Decides which jobs run together and which run in sequence.
//!
//! fio starts all jobs at once, except that a job with `stonewall` waits for the jobs before it.
//! halfpower measures one load at a time. Equal jobs become one run with more threads or targets.
//! Different jobs are refused, unless `--serial` makes them run in sequence.

use lab::failure::{Failure, Outcome};

use crate::fio::job_file::{Jobs, Surroundings};
use crate::fio::translate::{Run, translate};

/// The user's command-line flags for job files.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Names of the jobs to run. All jobs run if the list is empty.
    pub sections: Vec<String>,
    /// Whether jobs with approximated options are refused.
    pub strict: bool,
    /// Whether all jobs run in sequence, even if fio would run them at the same time.
    pub serial: bool,
}

/// Plans the runs of several job files, in the order of the files.
///
/// # Errors
/// The errors of [`plan`].
pub fn plan_all(
    files: &[Jobs],
    wishes: &Wishes,
    surroundings: &dyn Surroundings,
) -> Outcome<Vec<Run>> {
    let mut runs = Vec::new();
    for jobs in files {
        runs.extend(plan(jobs, wishes, surroundings)?);
    }
    Ok(runs)
}

/// Plans the runs of a job file, in the order of the jobs.
///
/// # Errors
/// halfpower cannot reproduce a job, or `wishes` contains the name of a job that does not exist.
pub fn plan(jobs: &Jobs, wishes: &Wishes, surroundings: &dyn Surroundings) -> Outcome<Vec<Run>> {
    let is_wanted = |name: &String| wishes.sections.is_empty() || wishes.sections.contains(name);
    for name in &wishes.sections {
        if !jobs.sections.iter().any(|section| section.name == *name) {
            let names: Vec<&str> = jobs.sections.iter().take(10).map(|s| &*s.name).collect();
            return Err(Failure::usage(format!(
                "--section {}: no job has this name; use one of: {}",
                name.escape_debug(),
                names.join(", ").escape_debug()
            )));
        }
    }
    let mut runs: Vec<Run> = Vec::new();
    for section in jobs.sections.iter().filter(|section| is_wanted(&section.name)) {
        let run = translate(jobs, section, surroundings)?;
        if let Some(approximation) = run.approximated.first().filter(|_| wishes.strict) {
            return Err(Failure::usage(format!("{approximation}; omit --strict to allow this")));
        }
        match runs.last_mut() {
            Some(last) if !run.waits && !wishes.serial => together(last, &run)?,
            _ => runs.push(run),
        }
    }
    Ok(runs)
}

/// Adds a job to the run of another job that fio would run at the same time.
fn together(first: &mut Run, run: &Run) -> Outcome<()> {
    first.join(run).map_err(|flag| {
        Failure::usage(format!(
            "{}: job '{}' runs at the same time as '{}' but has a different {flag}, and halfpower \
             measures one load at a time; add stonewall, select one job with --section, or use \
             --serial to run the jobs in sequence",
            run.place,
            run.name.escape_debug(),
            first.name.escape_debug()
        ))
    })
}

#[cfg(test)]
mod tests;
