//! A side of a comparison: one or several stored runs that the user selected.
//!
//! The user selects a side as `RUN`, `label:NAME`, `host:NAME`, `FILE` or `FILE:RUN`. `RUN` is any
//! selector that [`Store::run`] accepts. A label or a host selects all its runs, and the trials of
//! these runs are merged. `FILE` is a database, or the output of another tool.

use analysis::units;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use exchange::import;
use lab::date;
use lab::failure::{Failure, Outcome};
use lab::json;
use lab::machine::{Host, TargetFacts};
use lab::point::Point;
use lab::record::{self, StoredFinding};
use lab::recorder::{self, RatesReader};
use results::{RunHead, RunRow, Store};
use serde::Deserialize;

use crate::matching;

/// One side of a comparison.
#[derive(Clone, Debug)]
pub struct Side {
    /// Name of the side, as the user typed it.
    pub name: String,
    /// The runs, the oldest first.
    pub runs: Vec<RunFacts>,
    /// All points. Points of several runs that measure the same workload are merged.
    pub points: Vec<Point>,
}

/// Facts about a run that may explain a difference.
#[derive(Clone, Debug)]
pub struct RunFacts {
    /// Origin of the run.
    pub source: Source,
    /// Start of the run (ns since 1970).
    pub started_unix_ns: i64,
    /// Version of halfpower, or name and version of another tool.
    pub version: String,
    /// Command line of the run.
    pub command_line: String,
    /// The host of the run.
    pub host: Host,
    /// The target of the run, or the first of several targets.
    pub target: TargetFacts,
    /// Verdict on the run. None if nothing was measured, or if the points of the run were not read.
    pub verdict: Option<results::Verdict>,
    /// Conclusions of a survey or a study, as names and sentences.
    pub conclusions: Vec<(String, String)>,
}

/// Origin of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The run is stored in a database under this number.
    Stored(i64),
    /// The run was read from the output of another tool.
    Foreign,
    /// The run was just measured.
    Now,
}

/// How much of a stored run is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Rates and percentiles, which can be read quickly.
    Rates,
    /// Rates, percentiles and latency distributions. The curves of a page need these distributions.
    Distributions,
}

/// Facts that are never compared, because they can differ between any two runs and explain nothing.
const NEVER_COMPARED: [&str; 2] = ["host boot id", "target name"];

impl Side {
    /// Finds the runs that `name` selects. Names without a file are looked up in `db`.
    ///
    /// # Errors
    /// There is no such run or file, the runs have no points, or the database cannot be read.
    pub fn load(name: &str, db: &Path, detail: Detail) -> Outcome<Side> {
        let (path, selector) = place_of(name, db);
        if import::is_foreign(&path) {
            return Side::of_file(name, &path);
        }
        let store = Store::open_read_only(&path)?;
        let snapshot = store.snapshot()?;
        let side = Side::of_rows(name, &store, runs_of(&store, selector)?, detail);
        drop(snapshot);
        side
    }

    /// Creates a side from runs of a database.
    ///
    /// # Errors
    /// The runs have no finished trial, or the database cannot be read.
    pub fn of_rows(
        name: &str,
        store: &Store,
        mut rows: Vec<RunRow>,
        detail: Detail,
    ) -> Outcome<Side> {
        rows.sort_by_key(|row| (row.started_unix_ns, row.id));
        let mut points = match detail {
            Detail::Rates => rates_of(store, &rows)?,
            Detail::Distributions => {
                let all = rows.iter().map(|row| recorder::load(store, row.id));
                all.collect::<Outcome<Vec<_>>>()?.concat()
            }
        };
        let runs = rows.into_iter().map(RunFacts::of).collect();
        points.retain(|point| !point.trials.is_empty());
        if points.is_empty() {
            return Err(Failure::failed(format!(
                "{name}: no trial was finished; choose another run (halfpower runs list shows all \
                 runs)"
            )));
        }
        Ok(Side { name: name.to_owned(), runs, points: matching::together(points) })
    }

    /// Marks a measured side as results of another tool. `tool` is the name and version of the
    /// tool.
    pub fn of_tool(tool: &str, mut side: Side) -> Side {
        for run in &mut side.runs {
            run.source = Source::Foreign;
            tool.clone_into(&mut run.version);
        }
        side
    }

    /// Reads a side from a results file of another tool.
    fn of_file(name: &str, path: &Path) -> Outcome<Side> {
        let (mut runs, mut points) = (Vec::new(), Vec::new());
        for imported in import::read(path)? {
            runs.push(RunFacts {
                source: Source::Foreign,
                started_unix_ns: imported.started_unix_ns,
                version: imported.tool,
                command_line: imported.title,
                host: imported.host,
                target: imported.target,
                verdict: Some(results::Verdict::Suspect),
                conclusions: Vec::new(),
            });
            points.extend(imported.points);
        }
        Ok(Side { name: name.to_owned(), runs, points: matching::together(points) })
    }

    /// Creates a side from runs without their points.
    pub fn of_runs(runs: Vec<RunFacts>) -> Side {
        Side { name: String::new(), runs, points: Vec::new() }
    }

    /// Creates a side from points that were just measured.
    pub fn of(name: &str, host: Host, target: TargetFacts, points: Vec<Point>) -> Side {
        let started =
            points.iter().flat_map(|point| &point.trials).map(|t| t.started_unix_ns).min();
        let run = RunFacts {
            source: Source::Now,
            started_unix_ns: started.unwrap_or_default(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command_line: name.to_owned(),
            host,
            target,
            verdict: None,
            conclusions: Vec::new(),
        };
        Side { name: name.to_owned(), runs: vec![run], points: matching::together(points) }
    }

    /// Returns the facts about program, host and target, as names and values. If the runs of the
    /// side differ in a fact, all its values are listed.
    pub fn facts(&self) -> Vec<(String, String)> {
        let mut all: Vec<(String, Vec<String>)> = Vec::new();
        for (name, value) in self.runs.iter().flat_map(RunFacts::named) {
            match all.iter_mut().find(|(known, _)| *known == name) {
                Some((_, values)) if values.contains(&value) => {}
                Some((_, values)) => values.push(value),
                None => all.push((name, vec![value])),
            }
        }
        all.into_iter().map(|(name, values)| (name, values.join(", "))).collect()
    }

    /// Checks whether a run of the side was made by another tool.
    fn is_foreign(&self) -> bool {
        self.runs.iter().any(|run| run.source == Source::Foreign)
    }

    /// For each run that is not valid, returns a sentence with the verdict on the run.
    pub fn doubts(&self) -> impl Iterator<Item = String> {
        self.runs.iter().filter_map(|run| {
            let word = run.verdict.filter(|verdict| *verdict != results::Verdict::Valid)?;
            Some(match run.source {
                Source::Stored(id) => format!("side '{}': run {id} is {word}", self.name),
                Source::Foreign | Source::Now => format!("side '{}' is {word}", self.name),
            })
        })
    }

    /// Describes the side in one line: the runs, the date, the target and the host.
    pub fn describe(&self) -> String {
        let Some(first) = self.runs.first() else { return self.name.clone() };
        let runs = match self.runs.as_slice() {
            [RunFacts { source: Source::Stored(id), .. }] => format!("run {id}"),
            [RunFacts { source: Source::Now, .. }] => "measured now".to_owned(),
            [RunFacts { source: Source::Foreign, version, .. }] => version.clone(),
            runs => units::counted(runs.len() as u64, "run"),
        };
        let at = date::utc(first.started_unix_ns);
        let (host, place) = (&first.host.name, first.target.place());
        format!("{}: {runs}, {at} UTC, {place} on {host}", self.name)
    }
}

impl RunFacts {
    /// Returns the facts of a stored run.
    pub fn of(row: RunRow) -> RunFacts {
        RunFacts {
            conclusions: conclusions(row.findings_json.as_deref()),
            source: Source::Stored(row.id.0),
            started_unix_ns: row.started_unix_ns,
            version: row.version,
            command_line: row.command_line,
            host: serde_json::from_str(&row.host_json).unwrap_or_default(),
            target: serde_json::from_str(&row.target_json).unwrap_or_default(),
            verdict: row.verdict,
        }
    }

    /// Returns the facts from the head of a stored run. The head has no command line, no verdict
    /// and no conclusions.
    pub fn of_head(head: RunHead) -> RunFacts {
        RunFacts {
            conclusions: Vec::new(),
            source: Source::Stored(head.id.0),
            started_unix_ns: head.started_unix_ns,
            version: head.version,
            command_line: String::new(),
            host: serde_json::from_str(&head.host_json).unwrap_or_default(),
            target: serde_json::from_str(&head.target_json).unwrap_or_default(),
            verdict: None,
        }
    }

    /// Returns the number of the run in its database, or 0 if the run is not stored.
    pub fn id(&self) -> i64 {
        match self.source {
            Source::Stored(id) => id,
            Source::Foreign | Source::Now => 0,
        }
    }

    /// Returns a text that identifies the target in all its runs: the simulated system, or the file
    /// system and the serial number of the device. If the serial number is unknown, the name of the
    /// device is used. The name of the target is used only if the device is unknown, because a test
    /// file can have another name in each run.
    pub fn target_identity(&self) -> String {
        let target = &self.target;
        if let Some(simulated) = &target.simulated {
            let changes = simulated.changes.iter().map(|(key, value)| format!(",{key}={value}"));
            return format!("sim:{}{}", simulated.system, changes.collect::<String>());
        }
        let device = target.device.as_ref();
        let known = |device: &lab::machine::DeviceFacts| {
            device.serial.clone().unwrap_or_else(|| device.name.clone())
        };
        match (&target.file_system, device.map(known)) {
            (Some(system), Some(device)) => format!("{system} on {device}"),
            (None, Some(device)) => device,
            _ => target.name.clone(),
        }
    }

    /// Returns the model of the target: the simulated system, or the model of the device. If the
    /// model is unknown, the text contains the file system instead.
    pub fn model(&self) -> String {
        let target = &self.target;
        let simulated =
            target.simulated.as_ref().map(|simulated| format!("sim:{}", simulated.system));
        let device = || target.device.as_ref()?.model.as_ref().map(|model| model.trim().to_owned());
        let unknown = || match &target.file_system {
            Some(system) => format!("unknown device with {system}"),
            None => "unknown device".to_owned(),
        };
        simulated.or_else(device).unwrap_or_else(unknown)
    }

    /// Returns all facts that are compared, as names and values.
    pub(crate) fn named(&self) -> Vec<(String, String)> {
        let mut all = vec![("halfpower version".to_owned(), self.version.clone())];
        for (title, facts) in [json::facts("host", &self.host), json::facts("target", &self.target)]
        {
            all.extend(facts.into_iter().map(|(name, value)| (format!("{title} {name}"), value)));
        }
        all.retain(|(name, _)| !NEVER_COMPARED.contains(&name.as_str()));
        all
    }
}

/// Returns the stored findings of a survey or study, as names and sentences. Findings with the same
/// name are numbered.
fn conclusions(findings_json: Option<&str>) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for StoredFinding { id, text } in record::stored_findings(findings_json) {
        let count = counts.entry(id.clone()).or_insert(0);
        *count += 1;
        all.push((if *count == 1 { id } else { format!("{id} {count}") }, text));
    }
    all
}

/// Returns the conclusions that differ between the newest runs of two sides: name, before, after.
/// Empty if either side has no conclusions.
pub fn conclusions_that_differ(a: &Side, b: &Side) -> Vec<(String, String, String)> {
    let of = |side: &Side| side.runs.last().map(|run| run.conclusions.clone()).unwrap_or_default();
    let (of_a, of_b) = (of(a), of(b));
    if of_a.is_empty() || of_b.is_empty() {
        return Vec::new();
    }
    let names = of_a.iter().chain(of_b.iter().filter(|(name, _)| find(&of_a, name).is_none()));
    names
        .map(|(name, _)| (name.clone(), shown(find(&of_a, name)), shown(find(&of_b, name))))
        .filter(|(_, a, b)| a != b)
        .collect()
}

/// Returns the facts in which two sides differ: name, value of the first side, value of the second
/// side.
pub fn differences(a: &Side, b: &Side) -> Vec<(String, String, String)> {
    let (of_a, of_b) = (a.facts(), b.facts());
    let names = of_a.iter().chain(of_b.iter().filter(|(name, _)| find(&of_a, name).is_none()));
    // Facts that another tool did not report are not differences.
    let is_known = |name: &str| {
        let unknown = |side: &Side, facts| side.is_foreign() && find(facts, name).is_none();
        !unknown(a, &of_a) && !unknown(b, &of_b)
    };
    names
        .filter(|(name, _)| is_known(name))
        .map(|(name, _)| (name.clone(), shown(find(&of_a, name)), shown(find(&of_b, name))))
        .filter(|(_, a, b)| a != b)
        .collect()
}

fn find<'a>(facts: &'a [(String, String)], name: &str) -> Option<&'a String> {
    facts.iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

fn shown(value: Option<&String>) -> String {
    value.cloned().unwrap_or_else(|| "-".to_owned())
}

/// Reads the points of stored runs without their latency distributions.
fn rates_of(store: &Store, rows: &[RunRow]) -> Outcome<Vec<Point>> {
    let (mut reader, mut points) = (RatesReader::default(), Vec::new());
    for row in rows {
        for (number, trials) in reader.read(store, row.id, |_| true)? {
            points.resize_with(reader.keys().len().max(points.len()), Vec::new);
            points[number].extend(trials);
        }
    }
    let keys = reader.keys().iter().cloned();
    Ok(keys.zip(points).map(|(key, trials)| Point { key, trials }).collect())
}

/// Splits `FILE:RUN` into the file and the run. If `name` has no run, the newest run is selected.
/// If `name` has no file, the run is in `db`.
fn place_of<'a>(name: &'a str, db: &Path) -> (PathBuf, &'a str) {
    let is_file = |text: &str| text.ends_with(".db") || Path::new(text).is_file();
    if is_file(name) {
        return (PathBuf::from(name), "latest");
    }
    let splits = name.match_indices(':').map(|(at, _)| (&name[..at], &name[at + 1..]));
    match splits.into_iter().find(|(file, _)| is_file(file)) {
        Some((file, run)) => (PathBuf::from(file), run),
        None => (db.to_path_buf(), name),
    }
}

/// Reads the name of a run's host. The other facts about the host are not parsed.
pub fn host_name(host_json: &str) -> String {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Named {
        name: String,
    }
    serde_json::from_str::<Named>(host_json).unwrap_or_default().name
}

fn runs_of(store: &Store, selector: &str) -> Outcome<Vec<RunRow>> {
    let (what, wanted) = match selector.split_once(':') {
        Some(("label", name)) => ("label", name),
        Some(("host", name)) => ("host", name),
        _ => return Ok(vec![store.run(selector)?]),
    };
    let mut rows = if what == "label" { store.runs_with_label(wanted)? } else { store.runs()? };
    rows.retain(|row| what == "label" || host_name(&row.host_json) == wanted);
    if rows.is_empty() {
        let db = store.path().display();
        return Err(Failure::failed(format!(
            "{db} has no run with the {what} '{wanted}'; halfpower runs list shows all runs"
        )));
    }
    Ok(rows)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns the facts of a run on a host with this kernel, and on a device with this firmware
    /// and serial number.
    pub(crate) fn ran_on(kernel: &str, firmware: &str, serial: &str) -> RunFacts {
        let host = Host { kernel: kernel.to_owned(), ..Host::default() };
        let device = lab::machine::DeviceFacts {
            firmware: Some(firmware.to_owned()),
            serial: Some(serial.to_owned()),
            ..Default::default()
        };
        let target = TargetFacts { device: Some(device), ..TargetFacts::default() };
        Side::of("x", host, target, Vec::new()).runs.remove(0)
    }

    #[test]
    fn a_name_is_a_run_a_file_or_both() {
        let db = Path::new("halfpower.db");
        let of = |name| place_of(name, db);
        assert_eq!(of("12"), (PathBuf::from("halfpower.db"), "12"));
        assert_eq!(of("label:before"), (PathBuf::from("halfpower.db"), "label:before"));
        assert_eq!(of("a/host1.db"), (PathBuf::from("a/host1.db"), "latest"));
        assert_eq!(of("host1.db:7"), (PathBuf::from("host1.db"), "7"));
        assert_eq!(of("host1.db:label:new"), (PathBuf::from("host1.db"), "label:new"));
    }

    #[test]
    fn conclusions_that_differ_are_paired_by_name_and_order() {
        let side = |json: &str| {
            let mut side = Side::of("x", Host::default(), TargetFacts::default(), Vec::new());
            side.runs[0].conclusions = conclusions(Some(json));
            side
        };
        let a = side(r#"{"findings": [{"id": "best", "text": "1"}, {"id": "best", "text": "2"}]}"#);
        let b = side(
            r#"{"findings": [{"id": "best", "text": "1"}, {"id": "best", "text": "3"},
            {"id": "cpu", "text": "4"}], "quick": true}"#,
        );
        let found = conclusions_that_differ(&a, &b);
        let text = |words: [&str; 3]| (words[0].into(), words[1].into(), words[2].into());
        assert_eq!(found, [text(["best 2", "2", "3"]), text(["cpu", "-", "4"])]);
        assert!(conclusions_that_differ(&a, &side("[]")).is_empty());
    }

    #[test]
    fn what_another_tool_does_not_report_is_not_a_difference() {
        let side = |kernel: &str| {
            let host = Host { kernel: kernel.to_owned(), governor: None, ..Host::default() };
            Side::of("x", host, TargetFacts::default(), Vec::new())
        };
        let ours = Host { governor: Some("schedutil".to_owned()), ..Host::default() };
        let ours = Side::of("y", ours, TargetFacts::default(), Vec::new());
        let found = differences(&Side::of_tool("fio-3.33", side("")), &ours);
        let names: Vec<&str> = found.iter().map(|(name, _, _)| name.as_str()).collect();
        assert_eq!(names, ["halfpower version"]);
        assert_eq!(differences(&side(""), &ours).len(), 1, "a fact that halfpower did not find");
    }

    #[test]
    fn facts_that_differ_are_listed_with_both_values() {
        let side = |kernel: &str, boot_id: &str| {
            let (kernel, boot_id) = (kernel.to_owned(), boot_id.to_owned());
            let host = Host { kernel, boot_id, ..Host::default() };
            Side::of("x", host, TargetFacts::default(), Vec::new())
        };
        let found = differences(&side("6.1", "a"), &side("6.12", "b"));
        assert_eq!(found, [("host kernel".to_owned(), "6.1".to_owned(), "6.12".to_owned())]);
    }
}
