//! `halfpower calibrate` from options to exit code: fits a simulated system to stored runs, or to a
//! rotating disk that it measures, prints its parameters and score, and writes the system file.

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
    /// The stored runs, each by its number, the beginning of its UUID, its label, or latest.
    pub runs: Vec<String>,
    /// Stored runs that are only scored.
    pub check: Vec<String>,
    /// Results database.
    pub db: PathBuf,
    /// A rotating disk to measure, instead of a stored run.
    pub measure: Option<PathBuf>,
    /// The user's permission to write to that disk.
    pub consent: Consent,
    /// System that supplies all values that are not fitted.
    pub system: Option<String>,
    /// Path of the system file.
    pub out: Option<PathBuf>,
    /// Share of the points of `runs` held out for scoring; half if not given, and none if other
    /// runs are scored.
    pub holdout: Option<f64>,
    /// Print one JSON document instead of tables.
    pub json: bool,
    /// Print only the result, warnings and errors.
    pub quiet: bool,
    /// Print what would be done and do nothing.
    pub plan: bool,
}

/// What `--json` prints.
#[derive(Serialize, JsonSchema)]
pub struct CalibrateDocument {
    /// The program.
    pub halfpower: Program,
    /// The stored runs; empty if the disk was measured for the calibration.
    pub runs: Vec<CalibrationRun>,
    /// Name of the target that was measured.
    pub target: String,
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
    /// Why no cache, write buffer or burst credit was searched for; null if a search was made.
    pub not_sought: Option<String>,
    /// Parameters that the measurements do not determine, each with the reason.
    pub not_determined: Vec<String>,
    /// Content of the system file.
    pub system: String,
}

/// A stored run of a calibration.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CalibrationRun {
    /// Number of the run.
    pub run: i64,
    /// UUID of the run.
    pub run_uuid: String,
    /// Whether its points were only scored, not fitted.
    pub is_checked: bool,
}

/// Runs the command.
///
/// # Errors
/// A run or disk that cannot be fitted, or a system file that cannot be written.
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
    let Some(row) = rows.first() else { return Err(Failure::usage("no run was named")) };
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
            "fit a system to {} points of {} and score it on {held_out} others{}; nothing was \
             done",
            history.points.len() - held_out,
            names_of(&rows),
            and_write(options)
        ));
        return Ok(Exit::Ok);
    }
    // The fit takes long, so an unwritable folder is reported before it.
    options.out.as_deref().map(check_writable).transpose()?;
    history.left_out.iter().for_each(|why| console.say(format!("left out: {why}")));
    let source = format!("calibrated from {} on {}", names_of(&rows), day(row.started_unix_ns));
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
            "destroying its data, in about twenty minutes"
        } else {
            "only reading, in about ten minutes"
        };
        console::data(&format!(
            "measure the rotating disk {name}, {writes}, and fit a system{}; nothing was done",
            and_write(options)
        ));
        return Ok(Exit::Ok);
    }
    options.out.as_deref().map(check_writable).transpose()?;
    let source = format!("calibrated from {name} on {}", day(ioengine::clock::unix_ns()));
    let mut progress = console.open_progress();
    let calibrated = disk::calibrate(probe.as_mut(), &source, &mut |what| progress.update(what));
    progress.finish();
    let origin = Origin { runs: Vec::new(), target: name, left_out: Vec::new(), source };
    finish(options, calibrated?, origin)
}

/// Opens the disk to measure.
fn probe_of(options: &CalibrateOptions, target: &Path) -> Outcome<Box<dyn Probe>> {
    match TargetSpec::of(target)? {
        TargetSpec::Simulated(_) => {
            let system = simulated_target::parse(&target.to_string_lossy(), &[])?.system()?;
            if !matches!(system.drive, DriveModel::Disk(_)) || system.setup.disks != 1 {
                return Err(Failure::usage(format!(
                    "{}: --measure is for a single rotating disk; sweep other systems and run \
                     halfpower calibrate latest",
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
                "{}: --measure needs the disk itself; name the block device (lsblk lists them)",
                target.display()
            )))
        }
    }
}

/// Where a calibration comes from.
struct Origin {
    /// The stored runs.
    runs: Vec<CalibrationRun>,
    target: String,
    left_out: Vec<String>,
    source: String,
}

/// Names, prints and writes a calibrated system.
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

/// What --plan says about the system file.
fn and_write(options: &CalibrateOptions) -> String {
    let path = options.out.as_ref();
    path.map(|path| format!(", and write {}", path.display())).unwrap_or_default()
}

/// Finds a run by its label, or as `Store::run` does: number, start of the UUID, or latest.
fn run_of(store: &Store, selector: &str) -> Outcome<RunRow> {
    let labelled = |run: &RunRow| run.label.as_deref() == Some(selector);
    match store.runs()?.into_iter().find(labelled) {
        Some(run) => Ok(run),
        None => Ok(store.run(selector)?),
    }
}

/// Finds several runs.
fn runs_of(store: &Store, selectors: &[String]) -> Outcome<Vec<RunRow>> {
    selectors.iter().map(|selector| run_of(store, selector)).collect()
}

/// The points of several runs.
fn points_of(store: &Store, rows: &[RunRow]) -> Outcome<Vec<Point>> {
    let mut points = Vec::new();
    for row in rows {
        points.extend(recorder::load(store, row.id)?);
    }
    Ok(points)
}

/// The numbers of runs: "run 3", or "runs 3, 4".
fn names_of(rows: &[RunRow]) -> String {
    let numbers: Vec<String> = rows.iter().map(|row| row.id.to_string()).collect();
    let plural = if rows.len() == 1 { "" } else { "s" };
    format!("run{plural} {}", numbers.join(", "))
}

/// Refuses to calibrate from a run on rotating disks.
fn refuse_disks(row: &RunRow, history: &History) -> Outcome<()> {
    let target: TargetFacts = serde_json::from_str(&row.target_json).unwrap_or_default();
    match rotating::why_rotating(&target, history) {
        None => Ok(()),
        Some(why) => Err(Failure::usage(format!(
            "run {} measured a rotating disk ({why}), and does not determine its rotation, zones, \
             seeks and buffer; let calibrate measure these: halfpower calibrate --measure {} --out \
             disk.toml",
            row.id,
            name_of_disk(&target)
        ))),
    }
}

/// The name of the disk below a target, as the argument of `--measure`.
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

/// The system to start from: that of --system, or the built-in volume.
fn base(options: &CalibrateOptions, row: &RunRow, history: &History) -> Outcome<Description> {
    let host: Host = serde_json::from_str(&row.host_json).unwrap_or_default();
    let Some(name) = &options.system else {
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
