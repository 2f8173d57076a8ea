//! Fuzz target for job files. Any text must yield runs, or an error with a remedy.

use std::path::Path;

use lab::experiment::Experiment;
use lab::failure::{Failure, Outcome};

use crate::fio::job_file::{self, Surroundings};
use crate::fio::schedule::{Wishes, plan};

/// A simulated machine. A path exists if it begins with `x`. Every included file has the text of
/// the job file itself.
struct MadeUp<'a>(&'a str);

impl Surroundings for MadeUp<'_> {
    fn read(&self, path: &Path, bytes_max: usize) -> Outcome<String> {
        match path.ends_with("none") || self.0.len() > bytes_max {
            true => Err(Failure::usage("no such file; specify an existing file")),
            false => Ok(self.0.to_owned()),
        }
    }
    fn variable(&self, name: &str) -> Option<String> {
        (!name.is_empty()).then(|| name.to_owned())
    }
    fn exists(&self, path: &Path) -> bool {
        path.to_string_lossy().starts_with('x')
    }
    fn page_bytes(&self) -> u64 {
        4096
    }
    fn memory_mib(&self) -> u64 {
        1000
    }
    fn cpus(&self) -> u64 {
        8
    }
}

/// Plans a job file with and without `--serial`. Every run must parse as an experiment that has no
/// permission to write.
///
/// # Panics
/// If a run does not parse, if a run has permission to write, or if an error has no remedy.
pub fn job_files(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let machine = MadeUp(&text);
    let jobs = match job_file::parse(Path::new("a.fio"), &text, &machine) {
        Ok(jobs) => jobs,
        Err(failure) => return check(&failure),
    };
    for serial in [true, false] {
        match plan(&jobs, &Wishes { serial, ..Wishes::default() }, &machine) {
            Ok(runs) => {
                for run in runs {
                    let consent = match run.experiment() {
                        Ok(experiment) => experiment.consent,
                        Err(why) => panic!("{}: {why}", run.line()),
                    };
                    assert!(consent == Experiment::default().consent, "{}", run.line());
                    assert!(run.words().iter().all(|word| word.starts_with("--")));
                }
            }
            Err(failure) => check(&failure),
        }
    }
}

fn check(failure: &Failure) {
    assert!(failure.message.contains([';', ':']), "no remedy: {failure}");
    assert!(!failure.message.contains('\n'), "not one line: {failure}");
}
