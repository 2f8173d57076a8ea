//! Translates a job of fio to the targets and flags of `halfpower run`.
//!
//! The values are checked as on the command line, and error messages contain the line number in the
//! job file. A job file cannot permit halfpower to write. The user must give this permission on
//! halfpower's command line.

use std::path::PathBuf;

use lab::experiment::Experiment;
use lab::experiment::parameters;
use lab::failure::{Exit, Failure, Outcome};

use crate::fio::job_file::{Jobs, Section, Surroundings};
use crate::fio::load::{self, Load, Word};
use crate::fio::options::Options;
use crate::fio::storage::{self, Place, Storage};

/// A run of halfpower that corresponds to one job, or to several equal jobs.
#[derive(Clone, Debug)]
pub struct Run {
    /// Name of the job, or the names of equal jobs that run together.
    pub name: String,
    /// Location of the job for error messages: `FILE:LINE`, or the command line.
    pub place: String,
    /// Whether the job starts only after all jobs before it have ended.
    pub waits: bool,
    /// Names of the ignored options, which do not change what is measured.
    pub ignored: Vec<String>,
    /// Messages about approximated options, one line each.
    pub approximated: Vec<String>,
    threads: u64,
    load: Load,
    at: Place,
    /// Targets of the run. Equal jobs may run together on several targets.
    targets: Vec<PathBuf>,
}

/// Translates a job.
///
/// # Errors
/// halfpower cannot reproduce an option of the job. The message contains the option and the remedy.
pub fn translate(jobs: &Jobs, section: &Section, surroundings: &dyn Surroundings) -> Outcome<Run> {
    let options = Options::of(jobs, section, surroundings)?;
    let load = load::translate(&options)?;
    let name = options.text("name").unwrap_or(&section.name).to_owned();
    let at = storage::translate(&options, &load, &name, surroundings)?;
    let threads = options.count("numjobs")?.unwrap_or(1);
    let waits = options.is_on("stonewall")? == Some(true);
    let waits = waits || options.text("wait_for").is_some();
    let is_shared = !matches!(at.storage, Storage::TestFile { shared: None, .. });
    if threads > 1 && is_shared && !at.has_own_parts && load.does_io {
        if !load.is_random {
            let how = "threads start at different offsets of the file that they share";
            options.approximate("numjobs", how);
        } else if !load.has_runtime {
            options.approximate("size", "the size is the total of all threads");
        }
    }
    let (ignored, approximated) = options.settle()?;
    let targets = match &at.storage {
        Storage::Nothing => Vec::new(),
        Storage::TestFile { folder, .. } => vec![folder.clone()],
        Storage::Existing(paths) => paths.clone(),
    };
    let place = section.place.clone();
    let run = Run { name, place, waits, ignored, approximated, threads, load, at, targets };
    run.experiment()?;
    Ok(run)
}

impl Run {
    /// Returns the targets.
    pub fn targets(&self) -> &[PathBuf] {
        &self.targets
    }

    /// Returns the flags of `halfpower run`, without the targets.
    fn flags(&self) -> Vec<Word> {
        let default = |name, value: String| Word { name, value, place: self.place.clone() };
        let mut flags: Vec<Word> = self.load.words.iter().chain(&self.at.words).cloned().collect();
        if self.threads != 1 {
            flags.push(default("numjobs", self.threads.to_string()));
        }
        let has_own_files = matches!(self.at.storage, Storage::TestFile { shared: None, .. });
        let factor = if has_own_files || self.at.has_own_parts { self.threads } else { 1 };
        if let Some(bytes) = self.at.size_bytes {
            flags.push(default("size", load::size(bytes.saturating_mul(factor.max(1)))));
        }
        if factor == 1 && self.threads > 1 && self.load.does_io {
            flags.push(default("placement", "shared".to_owned()));
        }
        if let Some(rate) = self.load.rate_of_thread {
            flags.push(default("rate-iops", (rate * self.threads as f64).to_string()));
        }
        flags
    }

    /// Formats the flags of `halfpower run`, one word each, without the targets.
    pub fn words(&self) -> Vec<String> {
        let flags = self.flags().into_iter();
        let label = format!("--label={}", self.name);
        flags.map(|word| format!("--{}={}", word.name, word.value)).chain([label]).collect()
    }

    /// Formats the equivalent command, quoted for a shell.
    pub fn line(&self) -> String {
        let targets = self.targets.iter().map(|path| quoted(&path.to_string_lossy()));
        let words: Vec<String> = targets.chain(self.words().iter().map(|w| quoted(w))).collect();
        format!("halfpower run {}", words.join(" "))
    }

    /// Formats notes about ignored and approximated options, one line each.
    fn notes(&self) -> Vec<String> {
        let ignored = (!self.ignored.is_empty()).then(|| {
            let options = self.ignored.join(", ");
            format!("job {}: ignored options, which do not affect the load: {options}", self.name)
        });
        let line = |how: &String| format!("job {}: {how}", self.name);
        ignored.into_iter().chain(self.approximated.iter().map(line)).collect()
    }

    /// Adds the name of the job and the equivalent command to an error of the run.
    pub fn explain(&self, failure: &Failure) -> Failure {
        let (place, name) = (&self.place, self.name.escape_debug());
        let message =
            format!("{place}: job '{name}': {failure} (command of the job: {})", self.line());
        match failure.exit {
            Exit::Interrupted => Failure::interrupted(),
            exit => Failure::new(exit, message),
        }
    }

    /// Parses the flags of the run into an experiment.
    ///
    /// # Errors
    /// A flag has an invalid value. The message contains the line number in the job file.
    pub fn experiment(&self) -> Outcome<Experiment> {
        let mut experiment = Experiment { targets: self.targets.clone(), ..Experiment::default() };
        for word in self.flags() {
            let Some(parameter) = parameters::named(word.name) else { continue };
            let place = if word.place.is_empty() { &self.place } else { &word.place };
            (parameter.set)(&mut experiment, &word.value).map_err(|why| {
                let remedy = if why.contains(';') { "" } else { "; see halfpower run --help" };
                Failure::usage(format!("{place}: --{} {}: {why}{remedy}", word.name, word.value))
            })?;
        }
        Ok(experiment)
    }

    /// Returns the first flag that differs between two runs. None if their loads are equal.
    pub fn difference(&self, other: &Run) -> Option<&'static str> {
        let plain = |words: &[Word]| -> Vec<(&'static str, String)> {
            words.iter().map(|word| (word.name, word.value.clone())).collect()
        };
        let (ours, theirs) = (plain(&self.load.words), plain(&other.load.words));
        let missing = |from: &[(&'static str, String)], of: &[(&'static str, String)]| {
            from.iter().find(|word| !of.contains(word)).map(|(name, _)| *name)
        };
        let (at, there) = (plain(&self.at.words), plain(&other.at.words));
        missing(&ours, &theirs)
            .or_else(|| missing(&theirs, &ours))
            .or_else(|| missing(&at, &there))
            .or_else(|| missing(&there, &at))
            .or_else(|| (self.at.size_bytes != other.at.size_bytes).then_some("size"))
            .or_else(|| (self.at.has_own_parts != other.at.has_own_parts).then_some("offset"))
            .or_else(|| (self.load.rate_of_thread != other.load.rate_of_thread).then_some("rate"))
    }

    /// Adds a job with an equal load that runs at the same time. If both jobs use the same files,
    /// the run gets more threads. Otherwise it gets another target.
    ///
    /// # Errors
    /// The name of the flag that differs between the jobs.
    pub fn join(&mut self, other: &Run) -> Result<(), &'static str> {
        if let Some(name) = self.difference(other) {
            return Err(name);
        }
        if self.targets == other.targets && self.at.storage == other.at.storage {
            self.threads = self.threads.saturating_add(other.threads);
        } else if self.threads == other.threads
            && self.load.rate_of_thread.is_none()
            && other.targets.len() == 1
            && self.at.words.iter().all(|word| word.name != "chunk")
            && self.targets.iter().all(|target| *target != other.targets[0])
        {
            self.targets.extend(other.targets.iter().cloned());
        } else {
            return Err("filename");
        }
        let names = format!("{}, {}", self.name, other.name);
        self.name = if self.name == other.name { other.name.clone() } else { names };
        self.approximated.extend(other.approximated.iter().cloned());
        self.approximated.sort();
        self.approximated.dedup();
        Ok(())
    }
}

/// Formats notes about the ignored and approximated options of all runs, one line each.
pub fn notes(runs: &[Run]) -> impl Iterator<Item = String> {
    runs.iter().flat_map(Run::notes)
}

/// Quotes a word for a shell if necessary.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
