//! Stores a run in the database, trial by trial, while it runs.
//!
//! Without a database (`--no-store`), only the request log is written.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ioengine::clock::unix_ns;
use results::{NewRun, PointEnd, PointId, PointRow, RunEnd, RunId, RunKind, RunState, Seed, Store};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Outcome, check_not_under_dev};
use crate::machine::{self, Host, TargetFacts};
use crate::point::{Point, Trial, Verdict};
use crate::point_key::PointKey;
use crate::record;
use crate::request_log::RequestLog;
use crate::workload_document::WorkloadDocument;

/// Version of the JSON that the program prints and stores.
pub const JSON_SCHEMA: u32 = 1;

/// A run that is being stored.
#[derive(Debug)]
pub struct Recorder {
    store: Option<Store>,
    run: Option<RunId>,
    points: Vec<(PointId, PointEnd)>,
    log: Option<RequestLog>,
}

/// User options for storing a run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Path of the database. None if results are not stored.
    pub db: Option<PathBuf>,
    /// Name that the user gave the run, if any.
    pub label: Option<String>,
    /// Nominal rate of the hardware (PAP, in bytes per second). None if it is unknown.
    pub pap_bytes_per_s: Option<f64>,
}

/// Facts about a run that are stored when the run begins.
#[derive(Debug)]
pub struct RunFacts<'a> {
    /// Kind of the run, such as a survey or a sweep.
    pub kind: RunKind,
    /// The command line to store. If it is None, the command line of this process is stored.
    pub command_line: Option<String>,
    /// Name that the user gave the run, if any.
    pub label: Option<String>,
    /// Seed for all random choices.
    pub seed: u64,
    /// The host that performs the run.
    pub host: &'a Host,
    /// The target, or the first of several targets.
    pub target: Option<&'a TargetFacts>,
    /// Further settings of the run, which are stored as JSON.
    pub settings: RunSettings,
}

/// Settings of a whole run. The settings of its points are stored separately.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunSettings {
    /// Nominal rate of the hardware (PAP, in bytes per second). None if it is unknown.
    pub pap_bytes_per_s: Option<f64>,
    /// Flags that were read from a plan file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plan_file: Vec<String>,
    /// Settings of the target's block device that were changed for the run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host_settings: Vec<HostSettingDocument>,
    /// Name of the study, if the run is part of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub study: Option<String>,
    /// Whether the run was a shortened one (`--quick`), with fewer points and shorter trials.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub quick: bool,
}

/// A setting of the target's block device that was changed for the run.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct HostSettingDocument {
    /// Name of the setting: its path below the device's `queue` directory in sysfs.
    pub name: String,
    /// Path of the file that holds the setting.
    pub path: String,
    /// The value before the run, which is restored after the run.
    pub old: String,
    /// The value during the run.
    pub new: String,
}

impl Recorder {
    /// Checks that the database can be opened or created, so that a long run does not fail because
    /// of it later. Does not create a missing database.
    ///
    /// # Errors
    /// The file is not a database of halfpower, is one of the targets, or cannot be created.
    pub fn check(path: Option<&Path>, targets: &[PathBuf]) -> Outcome<()> {
        let Some(path) = path else { return Ok(()) };
        let identity =
            |path: &Path| std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
        let mine = identity(path);
        if mine.is_some() && targets.iter().any(|target| identity(target) == mine) {
            return Err(Failure::refused(format!(
                "{} is both the target and the database; specify another file with --db, or use \
                 --no-store",
                path.display()
            )));
        }
        if path.exists() {
            return Recorder::open(Some(path)).map(drop);
        }
        if std::fs::symlink_metadata(path).is_ok() {
            return Err(Failure::refused(format!(
                "{} is a symbolic link to a missing file; specify another file with --db, or use \
                 --no-store",
                path.display()
            )));
        }
        check_not_under_dev(path, "--db")?;
        Store::check_beside(path)?;
        // To check that the folder is writable, a file with another name is created. The name of
        // the database is not used, because another run may be creating this database at the same
        // time.
        let beside = path.with_file_name(format!("halfpower-{}.probe", uuid::Uuid::new_v4()));
        let probe = std::fs::OpenOptions::new().write(true).create_new(true).open(&beside);
        let removed = probe.and_then(|_| std::fs::remove_file(&beside));
        removed.map_err(|error| {
            let cause = ioengine::error::cause(&error);
            Failure::failed(format!(
                "creating the database {}: {cause}; specify another file with --db, or use \
                 --no-store",
                path.display()
            ))
        })
    }

    /// Opens or creates a database. If `path` is None, nothing is stored. Marks unfinished runs as
    /// interrupted if their process no longer exists.
    ///
    /// # Errors
    /// The database cannot be opened or was not made by halfpower.
    pub fn open(path: Option<&Path>) -> Outcome<Recorder> {
        let store = path.map(Store::open).transpose();
        let mut store = store.map_err(|error| {
            Failure::failed(format!("{error}; or specify another --db file, or use --no-store"))
        })?;
        if let Some(store) = &mut store {
            store.mark_interrupted_runs(machine::is_alive)?;
        }
        Ok(Recorder { store, run: None, points: Vec::new(), log: None })
    }

    /// Returns a second recorder for another run in the same database. The two recorders can be
    /// used at the same time.
    ///
    /// # Errors
    /// The database cannot be opened.
    pub fn another(&self) -> Outcome<Recorder> {
        let store = self.store.as_ref().map(Store::open_again).transpose()?;
        Ok(Recorder { store, run: None, points: Vec::new(), log: None })
    }

    /// Logs every request to a file. If `path` is None, requests are not logged.
    ///
    /// # Errors
    /// The file exists and is not a log, or cannot be written.
    pub fn log_to(&mut self, path: Option<&Path>) -> Outcome<()> {
        self.log = path.map(RequestLog::create).transpose()?;
        Ok(())
    }

    /// Returns true if requests are logged to a file.
    pub fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// Returns the number of requests that are missing from the log.
    pub fn log_lost(&self) -> u64 {
        self.log.as_ref().map_or(0, RequestLog::lost)
    }

    /// Stores the start of a run.
    pub fn begin(&mut self, facts: &RunFacts<'_>) -> Outcome<()> {
        let Some(store) = &mut self.store else { return Ok(()) };
        let typed = || {
            let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
            words.collect::<Vec<String>>().join(" ")
        };
        self.run = Some(store.begin_run(&NewRun {
            uuid: uuid::Uuid::new_v4().to_string(),
            kind: facts.kind,
            command_line: facts.command_line.clone().unwrap_or_else(typed),
            label: facts.label.clone(),
            started_unix_ns: unix_ns(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schema: JSON_SCHEMA,
            seed: Seed(facts.seed),
            pid: std::process::id(),
            boot_id: facts.host.boot_id.clone(),
            host_json: serde_json::to_string(facts.host).unwrap_or_default(),
            target_json: serde_json::to_string(&facts.target).unwrap_or_default(),
            settings_json: serde_json::to_string(&facts.settings).unwrap_or_default(),
        })?);
        Ok(())
    }

    /// Returns the open database and the current run. None if results are not stored.
    fn kept(&mut self) -> Option<(&mut Store, RunId)> {
        self.store.as_mut().zip(self.run)
    }

    /// Stores a point and returns its number within the run.
    pub fn add_point(&mut self, key: &PointKey) -> Outcome<usize> {
        let number = self.points.len();
        if let Some((store, run)) = self.kept() {
            let point = store.add_point(run, &WorkloadDocument::from(key).row(number as u32))?;
            self.points.push((point, record::point_end(None)));
        }
        Ok(number)
    }

    /// Appends a finished trial of a point to the log, and stores it durably in the database.
    pub fn add_trial(&mut self, point: usize, trial: &Trial) -> Outcome<()> {
        if let Some(log) = &mut self.log {
            log.add(point, trial)?;
        }
        let id = self.points.get(point).map(|(id, _)| *id);
        if let Some(((store, _), id)) = self.kept().zip(id) {
            let (row, latency, series) = record::trial_rows(trial);
            store.add_trial(id, &row, &latency, &series)?;
        }
        Ok(())
    }

    /// Computes the verdicts of points. [`Recorder::finish`] stores the verdicts. `first` is the
    /// number of `points[0]` within the run. A point without trials gets no verdict.
    pub fn judge(&mut self, first: usize, points: &[Point]) {
        let ends = self.points.iter_mut().skip(first);
        for ((_, end), point) in ends.zip(points).filter(|(_, point)| !point.trials.is_empty()) {
            *end = record::point_end(Some(&point.summary().verdict));
        }
    }

    /// Stores the end of the run and closes the database. The write-ahead log is merged into the
    /// database, so that the database is a single file.
    pub fn finish(
        mut self,
        state: RunState,
        findings_json: Option<String>,
        verdict: Option<&Verdict>,
    ) -> Outcome<()> {
        let points = std::mem::take(&mut self.points);
        let Some((store, run)) = self.kept() else { return Ok(()) };
        let (word, reasons) = match verdict {
            Some(verdict) => {
                let (word, reasons) = record::verdict_row(verdict);
                (Some(word), reasons)
            }
            None => (None, "[]".to_owned()),
        };
        store.finish_run(
            run,
            &RunEnd {
                state,
                finished_unix_ns: unix_ns(),
                findings_json,
                verdict: word,
                verdict_reasons_json: reasons,
            },
            &points,
        )?;
        self.store.map_or(Ok(()), Store::close)?;
        Ok(())
    }
}

/// Reads all points of a stored run with their trials.
///
/// # Errors
/// The database cannot be read, or was written by a newer version of halfpower.
pub fn load(store: &Store, run: RunId) -> Outcome<Vec<Point>> {
    let mut points = Vec::new();
    each_point(store, run, |point| points.push(point))?;
    Ok(points)
}

/// Calls `each` for each point of a stored run, in the order of the point numbers. Only one point
/// with its trials is in memory at a time.
///
/// # Errors
/// The same as for [`load`].
pub fn each_point(store: &Store, run: RunId, mut each: impl FnMut(Point)) -> Outcome<()> {
    for (id, row) in store.points(run)? {
        let key = key(row)?;
        let mut trials = Vec::new();
        for (trial, row) in store.trials(id)? {
            trials.push(record::trial_of(&row, &store.latency(trial)?, &store.series(trial)?));
        }
        each(Point { key, trials });
    }
    Ok(())
}

/// Reads stored points without histograms and time series, which comparisons do not need.
///
/// Most runs of a target measure the same workloads. The reader numbers the selected workloads from
/// 0 in the order in which it reads them, and parses the key of each workload only once. Workloads
/// that differ only in their seed have the same number. Their key contains the seed that was read
/// first.
#[derive(Debug, Default)]
pub struct RatesReader {
    keys: Vec<PointKey>,
    /// Number of each workload, by the text that `identity` returns. None if the workload is not
    /// wanted.
    numbers: HashMap<String, Option<usize>>,
}

impl RatesReader {
    /// Returns the keys that [`RatesReader::read`] selected, indexed by the number of the workload.
    pub fn keys(&self) -> &[PointKey] {
        &self.keys
    }

    /// Reads the points of a run whose keys `is_wanted` accepts. For each point, returns the number
    /// of the workload and the trials. `is_wanted` is called only once for each workload.
    ///
    /// # Errors
    /// The same as for [`load`].
    pub fn read(
        &mut self,
        store: &Store,
        run: RunId,
        is_wanted: impl Fn(&PointKey) -> bool,
    ) -> Outcome<Vec<(usize, Vec<Trial>)>> {
        let mut points = Vec::new();
        for (id, row) in store.points(run)? {
            let number = match self.numbers.entry(identity(&row)) {
                Entry::Occupied(found) => *found.get(),
                Entry::Vacant(place) => {
                    let key = key(row)?;
                    let number = is_wanted(&key).then_some(self.keys.len());
                    self.keys.extend(number.map(|_| key));
                    *place.insert(number)
                }
            };
            let Some(number) = number else { continue };
            let trials = store.trial_rates(id)?;
            points.push((number, trials.iter().map(record::trial_of_rates).collect()));
        }
        Ok(points)
    }
}

/// Returns the text that identifies the workload of a row. The seed is left out, because runs that
/// measure the same workload have different seeds.
fn identity(row: &PointRow) -> String {
    let PointRow { rw, pattern, request_bytes, depth, threads, ioengine, caching, .. } = row;
    let PointRow { size_bytes, read_percent, rate_requests_per_s, workload_json, .. } = row;
    format!(
        "{rw} {pattern} {request_bytes} {depth} {threads} {ioengine} {caching} {size_bytes} \
         {read_percent} {rate_requests_per_s:?} {workload_json}"
    )
}

fn key(row: PointRow) -> Outcome<PointKey> {
    let key = WorkloadDocument::of_row(row).and_then(|document| document.key());
    key.map_err(|why| {
        Failure::failed(format!("{why}; use the version of halfpower that stored this run"))
    })
}
