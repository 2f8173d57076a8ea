//! Keeps a run in the database, trial by trial, as it happens.
//!
//! Without a database (`--no-store`) every call does nothing, so that callers need not ask.

use std::path::Path;

use ioengine::clock::unix_ns;
use results::{NewRun, PointId, RunEnd, RunId, RunKind, RunState, Seed, Store};

use crate::failure::Outcome;
use crate::machine::{self, Host};
use crate::point::{Point, PointKey, Trial, Verdict};
use crate::record;

/// The version of the JSON that the program prints and keeps.
pub const JSON_SCHEMA: u32 = 1;

/// A run being kept.
#[derive(Debug)]
pub struct Keeper {
    open: Option<(Store, RunId)>,
    points: Vec<PointId>,
}

/// What a run is, beyond its points.
#[derive(Debug)]
pub struct RunFacts<'a> {
    /// run, survey or sweep.
    pub kind: RunKind,
    /// Name given by the user.
    pub label: Option<String>,
    /// Seed of every random choice.
    pub seed: u64,
    /// The host.
    pub host: &'a Host,
    /// The target, as JSON.
    pub target_json: String,
    /// The settings, as JSON.
    pub settings_json: String,
}

impl Keeper {
    /// Keeps nothing.
    pub fn none() -> Keeper {
        Keeper { open: None, points: Vec::new() }
    }

    /// Begins a run in a database, making it if need be. Runs that a dead process left open are
    /// marked as interrupted.
    pub fn begin(path: &Path, facts: &RunFacts<'_>) -> Outcome<Keeper> {
        let mut store = Store::open(path)?;
        store.mark_interrupted_runs(machine::is_alive)?;
        let words: Vec<String> =
            std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        let run = store.begin_run(&NewRun {
            uuid: uuid::Uuid::new_v4().to_string(),
            kind: facts.kind,
            command_line: words.join(" "),
            label: facts.label.clone(),
            started_unix_ns: unix_ns(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schema: JSON_SCHEMA,
            seed: Seed(facts.seed),
            pid: std::process::id(),
            boot_id: facts.host.boot_id.clone(),
            host_json: serde_json::to_string(facts.host).unwrap_or_default(),
            target_json: facts.target_json.clone(),
            settings_json: facts.settings_json.clone(),
        })?;
        Ok(Keeper { open: Some((store, run)), points: Vec::new() })
    }

    /// Adds a point; its number is its place in the run.
    pub fn add_point(&mut self, key: &PointKey) -> Outcome<usize> {
        let number = self.points.len();
        if let Some((store, run)) = &mut self.open {
            self.points.push(store.add_point(*run, &record::point_row(key, number as u32))?);
        }
        Ok(number)
    }

    /// Adds a finished trial of a point: once this returns, it is safe.
    pub fn add_trial(&mut self, point: usize, trial: &Trial) -> Outcome<()> {
        if let Some((store, _)) = &mut self.open {
            let (row, latency, series) = record::trial_rows(trial);
            store.add_trial(self.points[point], &row, &latency, &series)?;
        }
        Ok(())
    }

    /// Ends the run and leaves the database as one plain file.
    pub fn finish(
        self,
        state: RunState,
        findings_json: Option<String>,
        verdict: Option<&Verdict>,
    ) -> Outcome<()> {
        let Some((mut store, run)) = self.open else { return Ok(()) };
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
        )?;
        store.close()?;
        Ok(())
    }
}

/// All points of a stored run with their trials.
pub fn load(store: &Store, run: RunId) -> Outcome<Vec<Point>> {
    let mut points = Vec::new();
    for (id, row) in store.points(run)? {
        let mut trials = Vec::new();
        for (trial, row) in store.trials(id)? {
            trials.push(record::trial_of(&row, &store.latency(trial)?, &store.series(trial)?));
        }
        points.push(Point { key: record::key_of(row), trials });
    }
    Ok(points)
}
