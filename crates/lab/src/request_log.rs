//! Writes the file of `--log`, which has one CSV line per request. An existing file is replaced
//! only if it is an older log or empty.
//!
//! The requests of a trial are written when the trial ends, so that only the requests of one trial
//! are in memory.

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ioengine::Op;

use crate::failure::{Failure, Outcome, check_not_under_dev};
use crate::point::{LiveTrial, Trial};

/// The first line of a log. A file that contains data and does not begin with this line is not
/// replaced. The column `point` is the number of the point in a sweep. The column `thread` numbers
/// the threads of all targets consecutively.
const HEADER: &str = "point,trial,thread,op,offset,bytes,submit_ns,complete_ns,failed";

/// A log that is being written.
#[derive(Debug)]
pub struct RequestLog {
    path: PathBuf,
    file: BufWriter<File>,
    lost: u64,
}

impl RequestLog {
    /// Checks that a log can be written to `path`: it must be a new file, an older log or an empty
    /// file, and not a target.
    ///
    /// # Errors
    /// The path is refused. The message contains the remedy.
    pub fn check(path: &Path, targets: &[PathBuf]) -> Outcome<()> {
        let identity = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
        let mine = identity(path);
        if mine.is_some() && targets.iter().any(|target| identity(target) == mine) {
            let path = path.display();
            let what =
                format!("{path} is both the target and the log; specify another file with --log");
            return Err(Failure::refused(what));
        }
        place_of(path).map(drop)
    }

    /// Creates a log, or replaces an older one.
    ///
    /// # Errors
    /// The file exists and is not a log, or cannot be written.
    pub fn create(path: &Path) -> Outcome<RequestLog> {
        let (place, exists) = place_of(path)?;
        let opened = if exists {
            OpenOptions::new().write(true).truncate(true).open(&place)
        } else {
            OpenOptions::new().write(true).create_new(true).open(&place)
        };
        let mut log = RequestLog {
            path: path.to_path_buf(),
            file: BufWriter::new(opened.map_err(|error| cannot(path, &error))?),
            lost: 0,
        };
        writeln!(log.file, "{HEADER}").map_err(|error| cannot(path, &error))?;
        Ok(log)
    }

    /// Appends the requests of a finished trial.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, point: usize, trial: &Trial) -> Outcome<()> {
        let Some(live) = &trial.live else { return Ok(()) };
        self.lost += live.log_lost;
        self.lines(point, trial.ordinal, live).map_err(|error| cannot(&self.path, &error))
    }

    fn lines(&mut self, point: usize, ordinal: u32, live: &LiveTrial) -> std::io::Result<()> {
        // Times are relative to the start of the measured phase. They are negative for requests
        // that were submitted during the warm-up.
        let since = |ns: u64| ns.wrapping_sub(live.start_ns) as i64;
        for request in &live.log {
            let op = if request.op == Op::Read { "read" } else { "write" };
            let (thread, offset, bytes) = (request.worker, request.offset, request.length);
            let (submit, complete) = (since(request.submit_ns), since(request.complete_ns));
            let failed = u8::from(request.failed);
            writeln!(
                self.file,
                "{point},{ordinal},{thread},{op},{offset},{bytes},{submit},{complete},{failed}"
            )?;
        }
        self.file.flush()
    }

    /// Returns the number of requests that are missing from the log because the memory for the log
    /// of a trial was full.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

fn cannot(path: &Path, error: &std::io::Error) -> Failure {
    let (cause, path) = (ioengine::error::cause(error), path.display());
    Failure::failed(format!("writing {path}: {cause}; specify another file with --log"))
}

/// Returns the path of the file to write, with symbolic links resolved, and whether the file
/// exists.
fn place_of(path: &Path) -> Outcome<(PathBuf, bool)> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        let folder = folder.display();
        return Err(Failure::usage(format!(
            "--log: the directory {folder} does not exist; create it first"
        )));
    }
    let looked = fs::symlink_metadata(path);
    if looked.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        check_not_under_dev(path, "--log")?;
        return Ok((path.to_path_buf(), false));
    }
    let unreadable = |error: std::io::Error| {
        let (cause, path) = (ioengine::error::cause(&error), path.display());
        let what = format!(
            "{path} exists and cannot be examined ({cause}); specify another file with --log"
        );
        Failure::refused(what)
    };
    let real = path.canonicalize().map_err(unreadable)?;
    let metadata = fs::metadata(&real).map_err(unreadable)?;
    if metadata.is_file() && (metadata.len() == 0 || is_log(&real).map_err(unreadable)?) {
        return Ok((real, true));
    }
    let path = path.display();
    let what =
        format!("{path} exists and is not a log of halfpower; specify another file with --log");
    Err(Failure::refused(what))
}

fn is_log(path: &Path) -> std::io::Result<bool> {
    let wanted = format!("{HEADER}\n");
    let mut head = Vec::new();
    File::open(path)?.take(wanted.len() as u64).read_to_end(&mut head)?;
    Ok(head == wanted.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use workload::LoggedRequest;

    #[test]
    fn a_log_has_a_line_for_each_request_with_times_from_the_start_of_its_trial() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.csv");
        let mut log = RequestLog::create(&path).unwrap();
        let (submit_ns, complete_ns) = (990, 1_500);
        let request = LoggedRequest {
            worker: 2,
            op: Op::Write,
            failed: false,
            offset: 8192,
            length: 4096,
            submit_ns,
            complete_ns,
        };
        let log_of = vec![request, LoggedRequest { failed: true, op: Op::Read, ..request }];
        let live = LiveTrial { start_ns: 1_000, log: log_of, log_lost: 3, ..LiveTrial::default() };
        let trial = Trial { ordinal: 1, live: Some(Box::new(live)), ..Trial::default() };
        log.add(7, &trial).unwrap();
        assert_eq!(log.lost(), 3);
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let expected =
            [HEADER, "7,1,2,write,8192,4096,-10,500,0", "7,1,2,read,8192,4096,-10,500,1"];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_log_replaces_only_a_log_or_an_empty_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("old"), format!("{HEADER}\n1,2,3\n")).unwrap();
        fs::write(at("empty"), "").unwrap();
        for name in ["new", "old", "empty"] {
            drop(RequestLog::create(&at(name)).unwrap());
            assert_eq!(fs::read_to_string(at(name)).unwrap(), format!("{HEADER}\n"));
        }
        fs::write(at("precious"), format!("my {HEADER}")).unwrap();
        symlink("precious", at("link")).unwrap();
        symlink("none", at("dangling")).unwrap();
        for name in ["precious", "link", "dangling", "none/log", "."] {
            assert!(RequestLog::create(&at(name)).is_err(), "{name}");
        }
        assert_eq!(fs::read_to_string(at("precious")).unwrap(), format!("my {HEADER}"));
        assert!(RequestLog::check(&at("old"), &[at("old")]).is_err(), "the log is the target");
        assert!(RequestLog::check(&at("old"), &[at("new")]).is_ok());
    }
}
