//! Implements the subcommand `halfpower calibrate`. It fits a simulated system to stored runs, or
//! to a rotating disk that it measures. It prints the parameters and the score of the system, and
//! writes the system file.

use analysis::units;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use lab::console::{self, Console};
use lab::date;
use lab::failure::{Exit, Failure, Outcome, check_not_under_dev};
use lab::guard::Consent;
use lab::interrupt::Interrupt;
use lab::json::{self, Program};
use lab::machine::{Host, TargetFacts};
use lab::point::Point;
use lab::recorder;
use lab::simulated_target;
use lab::target::TargetSpec;
use results::{RunRow, Store};
use schemars::JsonSchema;
use serde::Serialize;
use simulator::Description;
use simulator::system::DriveModel;

use crate::disk;
use crate::disk::probe::{HostDisk, Probe, SimulatedDisk};
use crate::history::History;
use crate::result::{
    self, Calibrated, ErrorsDocument, FittedPointDocument, ParameterDocument, ScoreDocument,
};
use crate::rotating;
use crate::structure;

/// Options of a calibration.
#[derive(Clone, Debug)]
pub struct CalibrateOptions {
    /// The stored runs to fit. Each run is specified by its number, the beginning of its UUID, its
    /// label, or the word `latest`.
    pub runs: Vec<String>,
    /// Stored runs on which the system is scored, but to which it is not fitted.
    pub check: Vec<String>,
    /// Path of the results database.
    pub db: PathBuf,
    /// Path of a rotating disk to measure. None if stored runs are fitted.
    pub measure: Option<PathBuf>,
    /// The user's permission to write to the measured disk.
    pub consent: Consent,
    /// Name or file of the system that supplies all values that are not fitted. None means the
    /// built-in volume.
    pub system: Option<String>,
    /// Path of the system file to write. None if no file is written.
    pub out: Option<PathBuf>,
    /// Share of the points of `runs` that is held out, that is, only scored. None means 0.5, or 0
    /// if `check` is not empty.
    pub holdout: Option<f64>,
    /// Whether to print one JSON document instead of tables.
    pub json: bool,
    /// Whether to print only the result, warnings and errors.
    pub quiet: bool,
    /// Whether to print what would be done, without doing it.
    pub plan: bool,
}

/// The JSON document that `calibrate --json` prints.
#[derive(Serialize, JsonSchema)]
pub struct CalibrateDocument {
    /// The program that wrote the document.
    pub halfpower: Program,
    /// The stored runs. Empty if a disk was measured for the calibration.
    pub runs: Vec<CalibrationRun>,
    /// Name of the target that was measured.
    pub target: String,
    /// Name of the selected structure, which is a model of the device.
    pub structure: String,
    /// The fitted parameters.
    pub parameters: Vec<ParameterDocument>,
    /// How accurately the system predicts the measurements.
    pub score: ScoreDocument,
    /// Every usable point of the run, with its measured and its simulated rate.
    pub points: Vec<FittedPointDocument>,
    /// Points of the run that could not be used, each with the reason.
    pub left_out: Vec<String>,
    /// Why the search for a cache, a write buffer or burst credit was skipped. Null if the search
    /// was made or was not needed.
    pub not_sought: Option<String>,
    /// Parameters that the measurements do not determine, each with the reason.
    pub not_determined: Vec<String>,
    /// Text of the system file.
    pub system: String,
}

/// A stored run that a calibration used.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CalibrationRun {
    /// Number of the run.
    pub run: i64,
    /// UUID of the run.
    pub run_uuid: String,
    /// Whether the points of the run were only scored, not fitted.
    pub is_checked: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// If a run or a disk cannot be fitted, or the system file cannot be written.
pub fn execute(options: &CalibrateOptions) -> Outcome {
    match &options.measure {
        Some(target) => measure(options, target),
        None => fit(options),
    }
}

/// Fits a system to stored runs.
fn fit(options: &CalibrateOptions) -> Outcome {
    let console = Console::new(options.quiet);
    let store = Store::open_read_only(&options.db)?;
    let rows = runs_of(&store, &options.runs)?;
    let checked = runs_of(&store, &options.check)?;
    let Some(row) = rows.first() else { return Err(Failure::usage("no run was specified")) };
    let holdout = options.holdout.unwrap_or(if checked.is_empty() { 0.5 } else { 0.0 });
    let points = points_of(&store, &rows)?;
    let history = History::of_runs(&points, &points_of(&store, &checked)?, holdout)?;
    for row in rows.iter().chain(&checked) {
        refuse_disks(row, &history)?;
    }
    if let Some(path) = &options.out {
        check_out(path)?;
    }
    let base = base(options, row, &history)?;
    let held_out = history.points.iter().filter(|point| point.held_out).count();
    if options.plan {
        console::data(&format!(
            "would fit a system to {} points of {} and score the system on {held_out} other \
             points{}; nothing was done",
            history.points.len() - held_out,
            names_of(&rows),
            and_write(options)
        ));
        return Ok(Exit::Ok);
    }
    // The fit takes long, so an unwritable directory is reported before the fit.
    options.out.as_deref().map(check_writable).transpose()?;
    history.left_out.iter().for_each(|why| console.say(format!("left out: {why}")));
    let source = format!("calibrated with {} of {}", names_of(&rows), day(row.started_unix_ns));
    let mut progress = console.open_progress();
    let calibrated = result::calibrate(&history, base, &source, &mut |what| progress.update(what));
    progress.finish();
    let run = |row: &RunRow, is_checked: bool| CalibrationRun {
        run: row.id.0,
        run_uuid: row.uuid.clone(),
        is_checked,
    };
    let fitted = rows.iter().map(|row| run(row, false));
    let origin = Origin {
        runs: fitted.chain(checked.iter().map(|row| run(row, true))).collect(),
        target: target_name(row),
        left_out: history.left_out.clone(),
        source,
    };
    finish(options, calibrated?, origin)
}

/// Measures a rotating disk and fits a system to it.
fn measure(options: &CalibrateOptions, target: &Path) -> Outcome {
    let console = Console::new(options.quiet);
    if let Some(path) = &options.out {
        check_out(path)?;
    }
    let name = target.display().to_string();
    let mut probe = probe_of(options, target)?;
    if options.plan {
        let writes = if probe.may_write() {
            "this destroys the data on it and takes about twenty minutes"
        } else {
            "this only reads from it and takes about ten minutes"
        };
        console::data(&format!(
            "would measure the rotating disk {name} ({writes}) and fit a system{}; nothing was \
             done",
            and_write(options)
        ));
        return Ok(Exit::Ok);
    }
    options.out.as_deref().map(check_writable).transpose()?;
    let source = format!("calibrated by measuring {name} on {}", day(ioengine::clock::unix_ns()));
    let mut progress = console.open_progress();
    let calibrated = disk::calibrate(probe.as_mut(), &source, &mut |what| progress.update(what));
    progress.finish();
    let origin = Origin { runs: Vec::new(), target: name, left_out: Vec::new(), source };
    finish(options, calibrated?, origin)
}

fn probe_of(options: &CalibrateOptions, target: &Path) -> Outcome<Box<dyn Probe>> {
    match TargetSpec::of(target)? {
        TargetSpec::Simulated(_) => {
            let system = simulated_target::parse(&target.to_string_lossy(), &[])?.system()?;
            if !matches!(system.drive, DriveModel::Disk(_)) || system.setup.disks != 1 {
                return Err(Failure::usage(format!(
                    "{}: --measure is for a single rotating disk; for other systems, run \
                     halfpower sweep, then halfpower calibrate latest",
                    target.display()
                )));
            }
            Ok(Box::new(SimulatedDisk::new(&system, 1, true)?))
        }
        TargetSpec::Existing(path) => {
            lab::bench::check_path(&path, &options.consent)?;
            Ok(Box::new(HostDisk::open(&path, &options.consent, Interrupt::install())?))
        }
        TargetSpec::Directory(_) | TargetSpec::Reference(_) | TargetSpec::Network(_) => {
            Err(Failure::usage(format!(
                "{}: --measure needs the disk itself; specify a block device (see lsblk)",
                target.display()
            )))
        }
    }
}

/// The measurements to which a system was fitted.
struct Origin {
    runs: Vec<CalibrationRun>,
    target: String,
    left_out: Vec<String>,
    source: String,
}

/// Gives the calibrated system a name and a title, prints it, and writes the system file.
fn finish(options: &CalibrateOptions, mut calibrated: Calibrated, origin: Origin) -> Outcome {
    let stem = options.out.as_deref().and_then(Path::file_stem);
    let name = match (stem, origin.runs.first()) {
        (Some(stem), _) => stem.to_string_lossy().into_owned(),
        (None, Some(run)) => format!("run-{}", run.run),
        (None, None) => "disk".to_owned(),
    };
    let Calibrated { structure, score, .. } = &calibrated;
    let title = format!("{}: {structure}, {}; {}", origin.target, origin.source, score.line());
    calibrated.system.rename(&name, &title);
    let text = calibrated.system.text();
    if options.json {
        console::data(&json::print(&document(origin, calibrated)));
    } else {
        print(&calibrated);
    }
    options.out.as_deref().map(|path| write(path, &text)).transpose()?;
    Ok(Exit::Ok)
}

/// Formats the end of the `--plan` output, which states the system file that would be written.
fn and_write(options: &CalibrateOptions) -> String {
    let path = options.out.as_ref();
    path.map(|path| format!(", and write {}", path.display())).unwrap_or_default()
}

/// Finds a run by its label. If no run has this label, `Store::run` finds it by its number, the
/// start of its UUID, or the word `latest`.
fn run_of(store: &Store, selector: &str) -> Outcome<RunRow> {
    let labelled = |run: &RunRow| run.label.as_deref() == Some(selector);
    match store.runs()?.into_iter().find(labelled) {
        Some(run) => Ok(run),
        None => Ok(store.run(selector)?),
    }
}

fn runs_of(store: &Store, selectors: &[String]) -> Outcome<Vec<RunRow>> {
    selectors.iter().map(|selector| run_of(store, selector)).collect()
}

fn points_of(store: &Store, rows: &[RunRow]) -> Outcome<Vec<Point>> {
    let mut points = Vec::new();
    for row in rows {
        points.extend(recorder::load(store, row.id)?);
    }
    Ok(points)
}

/// Formats the numbers of runs, such as "run 3" or "runs 3, 4".
fn names_of(rows: &[RunRow]) -> String {
    let numbers: Vec<String> = rows.iter().map(|row| row.id.to_string()).collect();
    let plural = if rows.len() == 1 { "" } else { "s" };
    format!("run{plural} {}", numbers.join(", "))
}

/// Returns an error if a run measured a rotating disk, which cannot be calibrated from a run.
fn refuse_disks(row: &RunRow, history: &History) -> Outcome<()> {
    let target: TargetFacts = serde_json::from_str(&row.target_json).unwrap_or_default();
    match rotating::why_rotating(&target, history) {
        None => Ok(()),
        Some(why) => Err(Failure::usage(format!(
            "run {} measured a rotating disk ({why}), whose rotation, zones, seek times and buffer \
             cannot be derived from a run; measure them: halfpower calibrate --measure {} --out \
             disk.toml",
            row.id,
            name_of_disk(&target)
        ))),
    }
}

/// Returns the disk below a target as an argument for `--measure`, for example `/dev/sda`.
fn name_of_disk(target: &TargetFacts) -> String {
    let device = target.device.as_ref().map(|device| device.name.as_str());
    match device.filter(|name| !name.is_empty()) {
        Some(name) if target.simulated.is_none() => format!("/dev/{name}"),
        _ if target.name.is_empty() => "DEVICE".to_owned(),
        _ => target.name.clone(),
    }
}

fn day(unix_ns: i64) -> String {
    date::utc(unix_ns).chars().take(10).collect()
}

fn target_name(row: &RunRow) -> String {
    let target: TargetFacts = serde_json::from_str(&row.target_json).unwrap_or_default();
    if target.name.is_empty() { "device".to_owned() } else { target.name }
}

/// Returns the system to start from: the system that `--system` specifies, or the built-in volume.
fn base(options: &CalibrateOptions, row: &RunRow, history: &History) -> Outcome<Description> {
    let host: Host = serde_json::from_str(&row.host_json).unwrap_or_default();
    let Some(name) = &options.system else {
        return structure::volume(history, host.cpus.max(1));
    };
    let mut base = simulated_target::parse(name, &[])?;
    if matches!(base.system()?.drive, DriveModel::Disk(_)) {
        return Err(Failure::usage(format!(
            "--system {name} has rotating disks, which cannot be fitted; use a flash system \
             (sata-ssd, nvme-gen4, cloud-gp-volume or your own file) or omit --system"
        )));
    }
    base.set("file_size", &history.extent_bytes().to_string())?;
    Ok(base)
}

/// Returns an error if `--out` already exists or if its parent directory does not exist.
fn check_out(path: &Path) -> Outcome<()> {
    let shown = path.display();
    if fs::symlink_metadata(path).is_ok() {
        return Err(Failure::refused(format!("{shown} exists; specify another --out")));
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

/// Checks that the parent directory of `path` is writable, by creating and removing a file.
fn check_writable(path: &Path) -> Outcome<()> {
    let part = part_of(path);
    let created = OpenOptions::new().write(true).create_new(true).open(&part);
    created.and_then(|_| fs::remove_file(&part)).map_err(|error| write_failure(path, &error))
}

/// Returns the path of a temporary file in the directory of the output.
fn part_of(path: &Path) -> PathBuf {
    path.with_file_name(format!("halfpower-{}.part", uuid::Uuid::new_v4()))
}

fn write_failure(path: &Path, error: &std::io::Error) -> Failure {
    let (shown, cause) = (path.display(), ioengine::error::cause(error));
    Failure::failed(format!("writing {shown}: {cause}; specify another --out"))
}

/// Writes a temporary file and links it to `path` once it is complete. `path` therefore never has
/// partial content. In contrast to `rename`, `hard_link` never replaces an existing file.
fn write(path: &Path, text: &str) -> Outcome<()> {
    let part = part_of(path);
    let created = OpenOptions::new().write(true).create_new(true).open(&part);
    let written = created.and_then(|mut file| {
        let complete = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        let linked = complete.and_then(|()| match fs::hard_link(&part, path) {
            // FAT has no hard links. Creating the file with `create_new` does not replace an
            // existing file either.
            Err(error) if lacks_links(&error) => write_directly(path, text),
            linked => linked,
        });
        let _ = fs::remove_file(&part);
        linked
    });
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            Failure::refused(format!("{} exists; specify another --out", path.display()))
        }
        _ => write_failure(path, &error),
    })
}

/// Returns true if an error of `hard_link` may mean that the file system has no hard links.
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

fn document(origin: Origin, calibrated: Calibrated) -> CalibrateDocument {
    CalibrateDocument {
        halfpower: Program::this(),
        runs: origin.runs,
        target: origin.target,
        structure: calibrated.structure,
        parameters: calibrated.parameters,
        score: calibrated.score,
        points: calibrated.points,
        left_out: origin.left_out,
        not_sought: calibrated.not_sought,
        not_determined: calibrated.not_determined,
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
    for what in &calibrated.not_determined {
        console::data(&format!("not determined: {what}"));
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
            "{what}: mean {}, median {}, worst {} ({} points)",
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
        line("error of the naive bound on held-out points", &score.naive_held_out);
    }
    console::data(&format!("mean deviation between trials: {:.1}%", score.repeatability * 100.0));
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
