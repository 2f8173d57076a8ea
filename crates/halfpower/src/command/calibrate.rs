//! `halfpower calibrate`: fits a simulated system to a stored run, prints its parameters and score,
//! and writes the system file.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use calibrate::history::History;
use calibrate::result::{
    self, Calibrated, ErrorsDocument, FittedPointDocument, ParameterDocument, ScoreDocument,
};
use calibrate::rotating;
use calibrate::structure;
use lab::console::{self, Console};
use lab::date;
use lab::failure::{Exit, Failure, Outcome, check_not_under_dev};
use lab::json::{self, Program};
use lab::machine::{Host, TargetFacts};
use lab::recorder;
use lab::simulated_target;
use results::{RunRow, Store};
use schemars::JsonSchema;
use serde::Serialize;
use simulator::Description;
use simulator::system::DriveModel;

use crate::cli::calibrate::CalibrateArgs;

/// What `--json` prints.
#[derive(Serialize, JsonSchema)]
pub struct CalibrateDocument {
    /// The program.
    pub halfpower: Program,
    /// Number of the run that was fitted.
    pub run: i64,
    /// UUID of that run.
    pub run_uuid: String,
    /// Name of the selected structure.
    pub structure: String,
    /// The fitted parameters.
    pub parameters: Vec<ParameterDocument>,
    /// Accuracy of the system.
    pub score: ScoreDocument,
    /// Every usable point of the run, measured and simulated.
    pub points: Vec<FittedPointDocument>,
    /// Points of the run that could not be used, each with the reason.
    pub left_out: Vec<String>,
    /// Why caches, write buffers and burst credit were not searched; null after a search.
    pub not_sought: Option<String>,
    /// Content of the system file.
    pub system: String,
}

pub fn execute(args: &CalibrateArgs) -> Outcome {
    let console = Console::new(args.quiet);
    let store = Store::open_read_only(&args.db)?;
    let row = run_of(&store, &args.run)?;
    let history = History::of(&recorder::load(&store, row.id)?, args.holdout)?;
    refuse_disks(&row, &history)?;
    if let Some(path) = &args.out {
        check_out(path)?;
    }
    let base = base(args, &row, &history)?;
    let held_out = history.points.iter().filter(|point| point.held_out).count();
    if args.plan {
        let to = args.out.as_ref().map(|path| format!(", and write {}", path.display()));
        console::data(&format!(
            "fit a system to {} points of run {} and score it on {held_out} others{}; \
             nothing was done",
            history.points.len() - held_out,
            row.id,
            to.unwrap_or_default()
        ));
        return Ok(Exit::Ok);
    }
    // The fit takes long, so an unwritable folder is reported before it.
    args.out.as_deref().map(check_writable).transpose()?;
    history.left_out.iter().for_each(|why| console.say(format!("left out: {why}")));
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
    let Calibrated { structure, score, .. } = &calibrated;
    let title = format!("{}: {structure}, {source}; {}", target_name(&row), score.line());
    calibrated.system.rename(&name, &title);
    let text = calibrated.system.text();
    if args.json {
        console::data(&json::print(&document(&row, &history, calibrated)));
    } else {
        print(&calibrated);
    }
    args.out.as_deref().map(|path| write(path, &text)).transpose()?;
    Ok(Exit::Ok)
}

/// Finds a run by its label, or as `Store::run` does: number, start of the UUID, or latest.
fn run_of(store: &Store, selector: &str) -> Outcome<RunRow> {
    let labelled = |run: &RunRow| run.label.as_deref() == Some(selector);
    match store.runs()?.into_iter().find(labelled) {
        Some(run) => Ok(run),
        None => Ok(store.run(selector)?),
    }
}

/// Refuses to calibrate from a run on rotating disks.
fn refuse_disks(row: &RunRow, history: &History) -> Outcome<()> {
    let target: TargetFacts = serde_json::from_str(&row.target_json).unwrap_or_default();
    match rotating::why_rotating(&target, history) {
        None => Ok(()),
        Some(why) => Err(Failure::usage(format!(
            "run {} measured a rotating disk, which cannot be fitted ({why}); calibrate a run on \
             flash, or start from a system with disks: halfpower simulate --show sata-hdd-7200",
            row.id
        ))),
    }
}

fn day(unix_ns: i64) -> String {
    date::utc(unix_ns).chars().take(10).collect()
}

fn target_name(row: &RunRow) -> String {
    let target: TargetFacts = serde_json::from_str(&row.target_json).unwrap_or_default();
    if target.name.is_empty() { "device".to_owned() } else { target.name }
}

/// The system to start from: that of --system, or the built-in volume.
fn base(args: &CalibrateArgs, row: &RunRow, history: &History) -> Outcome<Description> {
    let host: Host = serde_json::from_str(&row.host_json).unwrap_or_default();
    let Some(name) = &args.system else {
        return structure::volume(history, host.cpus.max(1));
    };
    let mut base = simulated_target::parse(name, &[])?;
    if matches!(base.system()?.drive, DriveModel::Disk(_)) {
        return Err(Failure::usage(format!(
            "--system {name} has disks, which cannot be fitted; use a flash system (sata-ssd, \
             nvme-gen4, cloud-gp-volume or a file of your own) or drop --system"
        )));
    }
    base.set("file_size", &history.extent_bytes().to_string())?;
    Ok(base)
}

/// Refuses an --out that exists or whose folder does not exist.
fn check_out(path: &Path) -> Outcome<()> {
    let shown = path.display();
    if fs::symlink_metadata(path).is_ok() {
        return Err(Failure::refused(format!("{shown} exists; give another --out")));
    }
    let folder = folder_of(path);
    if !folder.is_dir() {
        let folder = folder.display();
        return Err(Failure::usage(format!("--out: {folder} does not exist; create it first")));
    }
    check_not_under_dev(path, "--out")
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Checks that the folder is writable by creating and removing a file.
fn check_writable(path: &Path) -> Outcome<()> {
    let part = part_of(path);
    let created = OpenOptions::new().write(true).create_new(true).open(&part);
    created.and_then(|_| fs::remove_file(&part)).map_err(|error| write_failure(path, &error))
}

/// Temporary file beside the output.
fn part_of(path: &Path) -> PathBuf {
    path.with_file_name(format!("halfpower-{}.part", uuid::Uuid::new_v4()))
}

fn write_failure(path: &Path, error: &std::io::Error) -> Failure {
    let (shown, cause) = (path.display(), ioengine::error::cause(error));
    Failure::failed(format!("writing {shown}: {cause}; give another --out"))
}

/// Writes a temporary file and links it to `path` once it is complete. The output is never
/// incomplete, and `hard_link`, unlike `rename`, never replaces an existing file.
fn write(path: &Path, text: &str) -> Outcome<()> {
    let part = part_of(path);
    let created = OpenOptions::new().write(true).create_new(true).open(&part);
    let written = created.and_then(|mut file| {
        let complete = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        let linked = complete.and_then(|()| match fs::hard_link(&part, path) {
            // FAT has no hard links; `create_new` does not replace a file either.
            Err(error) if lacks_links(&error) => write_directly(path, text),
            linked => linked,
        });
        let _ = fs::remove_file(&part);
        linked
    });
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            Failure::refused(format!("{} exists; give another --out", path.display()))
        }
        _ => write_failure(path, &error),
    })
}

/// Whether an error of `hard_link` may mean that the file system has no hard links.
fn lacks_links(error: &std::io::Error) -> bool {
    let no_links = [ErrorKind::PermissionDenied, ErrorKind::Unsupported, ErrorKind::TooManyLinks];
    no_links.contains(&error.kind())
}

fn write_directly(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.inspect_err(|_| {
        let _ = fs::remove_file(path);
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
        not_sought: calibrated.not_sought,
        system: calibrated.system.text(),
    }
}

fn print(calibrated: &Calibrated) {
    console::data(&format!("structure: {}\n", calibrated.structure));
    if let Some(what) = &calibrated.not_sought {
        console::data(&format!("{what}\n"));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_file_is_complete_and_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        check_writable(&at("new")).unwrap();
        assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
        write(&at("new"), "text").unwrap();
        fs::write(at("precious"), "diary").unwrap();
        std::os::unix::fs::symlink("nothing", at("dangling")).unwrap();
        for name in ["new", "precious", "dangling"] {
            assert_eq!(write(&at(name), "other").unwrap_err().exit, Exit::Refused, "{name}");
        }
        assert_eq!(fs::read_to_string(at("new")).unwrap(), "text");
        assert_eq!(fs::read_to_string(at("precious")).unwrap(), "diary");
        assert!(
            write(&at("none/new"), "text").is_err() && check_writable(&at("none/new")).is_err()
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "a temporary file was left");
    }
}
