//! `halfpower calibrate`: a simulated system that does what a stored run measured.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use results::{RunRow, Store};
use schemars::JsonSchema;
use serde::Serialize;
use simulator::Description;

use crate::calibrate::history::History;
use crate::calibrate::result::{
    self, Calibrated, ErrorsDocument, FittedPointDocument, ParameterDocument, ScoreDocument,
};
use crate::calibrate::structure;
use crate::cli::calibrate::CalibrateArgs;
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Outcome, check_not_under_dev};
use crate::json::{self, Program};
use crate::keeper;
use crate::machine::Host;
use crate::{date, sim_target, units};

/// What `--json` prints.
#[derive(Serialize, JsonSchema)]
pub struct CalibrateDocument {
    /// The program.
    pub halfpower: Program,
    /// Number of the run that was fitted.
    pub run: i64,
    /// Its uuid.
    pub run_uuid: String,
    /// What the system consists of.
    pub structure: String,
    /// Its parameters.
    pub parameters: Vec<ParameterDocument>,
    /// How good it is.
    pub score: ScoreDocument,
    /// All points.
    pub points: Vec<FittedPointDocument>,
    /// Points of the run that say nothing of the device, and why.
    pub left_out: Vec<String>,
    /// The system file.
    pub system: String,
}

/// Fits, prints, and writes the system file.
pub fn execute(args: &CalibrateArgs) -> Outcome {
    let console = Console::new(args.quiet);
    let store = Store::open_read_only(&args.db)?;
    let row = run_of(&store, &args.run)?;
    let history = History::of(&keeper::load(&store, row.id)?, args.holdout)?;
    if let Some(path) = &args.out {
        check(path)?;
    }
    let held_out = history.points.iter().filter(|point| point.held_out).count();
    if args.plan {
        let to = args.out.as_ref().map(|path| format!(" and write {}", path.display()));
        console::data(&format!(
            "fit a system to {} points of run {} and score it on {held_out} others{}; nothing was \
             done",
            history.points.len() - held_out,
            row.id,
            to.unwrap_or_default()
        ));
        return Ok(Exit::Ok);
    }
    history.left_out.iter().for_each(|why| console.say(format!("left out: {why}")));
    let base = base(args, &row, &history)?;
    let source = format!("calibrated from run {} on {}", row.id, day(row.started_unix_ns));
    let mut progress = console.open_progress();
    let calibrated = result::calibrate(&history, base, &source, &mut |what| progress.update(what));
    progress.finish();
    let mut calibrated = calibrated?;
    let name = args
        .out
        .as_deref()
        .and_then(Path::file_stem)
        .map_or_else(|| format!("run-{}", row.id), |stem| stem.to_string_lossy().into_owned());
    let title = format!("{}: {}, {source}", target_name(&row), calibrated.structure);
    calibrated.system.rename(&name, &title);
    if let Some(path) = &args.out {
        write(path, &calibrated.system.text())?;
    }
    if args.json {
        console::data(&json::print(&document(&row, &history, calibrated)));
    } else {
        print(&calibrated);
    }
    Ok(Exit::Ok)
}

/// The run that is meant: as `Store::run` understands it, or by its label.
fn run_of(store: &Store, selector: &str) -> Outcome<RunRow> {
    let labelled = |run: &RunRow| run.label.as_deref() == Some(selector);
    match store.runs()?.into_iter().find(labelled) {
        Some(run) => Ok(run),
        None => Ok(store.run(selector)?),
    }
}

fn day(unix_ns: i64) -> String {
    date::utc(unix_ns).chars().take(10).collect()
}

fn target_name(row: &RunRow) -> String {
    let target: serde_json::Value = serde_json::from_str(&row.target_json).unwrap_or_default();
    target["name"].as_str().unwrap_or("device").to_owned()
}

/// The system that is fitted: as asked, or the general one.
fn base(args: &CalibrateArgs, row: &RunRow, history: &History) -> Outcome<Description> {
    let host: Host = serde_json::from_str(&row.host_json).unwrap_or_default();
    let Some(name) = &args.system else {
        return structure::volume(history, host.cpus.max(1));
    };
    let mut base = sim_target::parse(name, &[])?;
    base.set("file_size", &history.extent_bytes().to_string())?;
    Ok(base)
}

/// Refuses a place where the file could not go, or where something else lies.
fn check(path: &Path) -> Outcome<()> {
    let shown = path.display();
    if std::fs::symlink_metadata(path).is_ok() {
        return Err(Failure::refused(format!("{shown} exists; give another --out")));
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        let folder = folder.display();
        return Err(Failure::usage(format!("--out: {folder} does not exist; create it first")));
    }
    check_not_under_dev(path, "--out")
}

fn write(path: &Path, text: &str) -> Outcome<()> {
    let made = OpenOptions::new().write(true).create_new(true).open(path);
    made.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| {
        let (shown, cause) = (path.display(), ioengine::error::cause(&error));
        Failure::failed(format!("writing {shown}: {cause}; give another --out"))
    })
}

fn document(row: &RunRow, history: &History, calibrated: Calibrated) -> CalibrateDocument {
    CalibrateDocument {
        halfpower: Program::this(),
        run: row.id.0,
        run_uuid: row.uuid.clone(),
        structure: calibrated.structure,
        parameters: calibrated.parameters,
        score: calibrated.score,
        points: calibrated.points,
        left_out: history.left_out.clone(),
        system: calibrated.system.text(),
    }
}

fn print(calibrated: &Calibrated) {
    console::data(&format!("structure: {}\n", calibrated.structure));
    let row = |cells: [&str; 4]| {
        let [key, value, interval, flag] = cells;
        console::data(format!("{key:<24} {value:>18} {interval:>24}  {flag}").trim_end());
    };
    row(["parameter", "value", "95% interval", ""]);
    for parameter in &calibrated.parameters {
        let number = result::significant;
        let value = format!("{} {}", number(parameter.value), parameter.unit);
        let interval = format!("{} to {}", number(parameter.low), number(parameter.high));
        let flag = if parameter.unidentified { "unidentified" } else { "" };
        row([&parameter.key, &value, &interval, flag]);
    }
    console::data("");
    for point in &calibrated.points {
        let role = if point.held_out { "held out" } else { "fitted" };
        console::data(&format!(
            "{:<58} {role:>8} {:>12} {:>12} {:>+7.1}%",
            point.point,
            units::rate_mb(point.measured_bytes_per_s),
            units::rate_mb(point.simulated_bytes_per_s),
            point.error * 100.0
        ));
    }
    let line = |what: &str, errors: &ErrorsDocument| {
        let percent = |share: f64| format!("{:.1}%", share * 100.0);
        console::data(&format!(
            "{what}: mean {}, median {}, worst {} of {} points",
            percent(errors.mean),
            percent(errors.median),
            percent(errors.worst),
            errors.points
        ));
    };
    console::data("");
    let score = &calibrated.score;
    line("error on fitted points", &score.fitted);
    if score.held_out.points > 0 {
        line("error on held-out points", &score.held_out);
        line("naive bound on held-out points", &score.naive_held_out);
    }
    console::data(&format!("repeatability of the run: {:.1}%", score.repeatability * 100.0));
}
