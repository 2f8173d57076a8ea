//! `halfpower checksum`: prints BLAKE3 checksums of files, or compares files with stored checksums.

use analysis::units;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use filecopy::checksum_file::{self, Sum};
use filecopy::{Hash, find, inputs};
use ioengine::{Clock, Monotonic};
use schemars::JsonSchema;
use seqio::Options;
use serde::Serialize;

use crate::console::{self, Console, Progress};
use crate::failure::{Exit, Failure, Outcome};
use crate::json::{self, Program};

const UPDATE_EVERY_BYTES: u64 = 16 << 20;

/// Options of `halfpower checksum`.
#[derive(Clone, Debug)]
pub struct ChecksumOptions {
    /// The files and directories to read. `-` is standard input.
    pub files: Vec<PathBuf>,
    /// Path of a checksum file, or `-` for standard input. If set, the files that the checksum file
    /// lists are checked, and `files` is ignored.
    pub check: Option<PathBuf>,
    /// Whether to print one JSON document instead of lines of text.
    pub json: bool,
    /// Whether to hide the progress and, with `check`, the names of files whose checksum matches.
    pub quiet: bool,
    /// Whether to print only the number and size of the files, without reading them.
    pub plan: bool,
}

/// The document that `halfpower checksum --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ChecksumDocument {
    /// The program that wrote the document.
    pub halfpower: Program,
    /// The files that were read.
    pub files: Vec<FileDocument>,
    /// The files that could not be read.
    pub unread: Vec<UnreadDocument>,
}

/// A file that was read.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FileDocument {
    /// Path of the file as specified by the user or found in a directory.
    pub path: String,
    /// Number of bytes read from the file.
    pub bytes: u64,
    /// BLAKE3 checksum of the file (64 hexadecimal digits).
    pub blake3: String,
    /// Whether the file matches the stored checksum; null without --check.
    pub matches: Option<bool>,
}

/// A file that could not be read.
#[derive(Debug, Serialize, JsonSchema)]
pub struct UnreadDocument {
    /// Path of the file as specified by the user or found in a directory.
    pub path: String,
    /// Why the file could not be read.
    pub error: String,
}

struct Wanted {
    path: PathBuf,
    /// Size of the file (bytes); None if unknown.
    size: Option<u64>,
    hash: Option<Hash>,
}

impl Wanted {
    fn new(path: PathBuf, hash: Option<Hash>) -> Wanted {
        Wanted { size: inputs::size_of(&path), path, hash }
    }
}

/// Reads the files, and prints or compares their checksums.
///
/// # Errors
/// The checksum file cannot be used. If a file to be checked differs or cannot be read, this
/// function returns `Ok` with a nonzero exit code.
pub fn execute(options: &ChecksumOptions) -> Outcome {
    let (wanted, unreadable) = match &options.check {
        Some(sums) => (listed(sums)?, Vec::new()),
        None => {
            let is_file = |path: &Path| inputs::is_stdin(path) || !path.is_dir();
            let (files, unreadable) = find::files(&options.files, is_file);
            (files.into_iter().map(|path| Wanted::new(path, None)).collect(), unreadable)
        }
    };
    let known: u64 = wanted.iter().filter_map(|wanted| wanted.size).sum();
    if options.plan {
        let files = units::counted(wanted.len() as u64, "file");
        console::data(&format!("would read {files}, {}; nothing was done", units::size(known)));
        return Ok(Exit::Ok);
    }
    let console = Console::new(options.quiet);
    let total = wanted.iter().all(|wanted| wanted.size.is_some()).then_some(known);
    let mut hashing = Hashing::new(console, total);
    let mut document = ChecksumDocument {
        halfpower: Program::this(),
        files: Vec::new(),
        unread: unreadable.into_iter().map(|(path, error)| unread(&path, error)).collect(),
    };
    for wanted in &wanted {
        match hashing.file(wanted) {
            Ok((hash, bytes)) => {
                let found = Found { wanted, hash, bytes };
                if !options.json {
                    found.print(options);
                }
                document.files.push(found.document());
            }
            Err(error) => document.unread.push(unread(&wanted.path, error.to_string())),
        }
    }
    hashing.progress.finish();
    if options.json {
        console::data(&json::print(&document));
    }
    Ok(exit_code(&document, console))
}

fn unread(path: &Path, error: String) -> UnreadDocument {
    console::error(&error);
    UnreadDocument { path: path.display().to_string(), error }
}

struct Found<'a> {
    wanted: &'a Wanted,
    hash: Hash,
    bytes: u64,
}

impl Found<'_> {
    fn matches(&self) -> Option<bool> {
        self.wanted.hash.map(|hash| hash == self.hash)
    }

    fn document(&self) -> FileDocument {
        FileDocument {
            path: self.wanted.path.display().to_string(),
            bytes: self.bytes,
            blake3: self.hash.to_string(),
            matches: self.matches(),
        }
    }

    fn print(&self, options: &ChecksumOptions) {
        let name = self.wanted.path.as_os_str().as_bytes();
        match self.matches() {
            None => console::bytes(&Sum { hash: self.hash, name: name.to_vec() }.line()),
            Some(true) if options.quiet => {}
            Some(matches) => {
                let (escapes, name) = checksum_file::escaped(name);
                let verdict: &[u8] = if matches { b": OK" } else { b": FAILED" };
                console::bytes(&[escapes, &name, verdict].concat());
            }
        }
    }
}

fn exit_code(document: &ChecksumDocument, console: Console) -> Exit {
    let differs = |file: &&FileDocument| file.matches == Some(false);
    let different = document.files.iter().filter(differs).count();
    let all = units::counted(document.files.len() as u64, "file");
    if different > 0 {
        console.warn(format!("{different} of {all} do not match their checksums"));
        return Exit::VerificationFailed;
    }
    if document.unread.is_empty() { Exit::Ok } else { Exit::Failed }
}

struct Hashing {
    progress: Progress,
    clock: Monotonic,
    start_ns: u64,
    /// Total size of all files (bytes); None if unknown.
    total: Option<u64>,
    /// Number of bytes read so far.
    read: u64,
    /// Value of `read` at the last progress update.
    updated_at: u64,
}

impl Hashing {
    fn new(console: Console, total: Option<u64>) -> Hashing {
        let clock = Monotonic::uncalibrated();
        let start_ns = clock.now_ns();
        let progress = console.open_progress();
        Hashing { progress, clock, start_ns, total, read: 0, updated_at: 0 }
    }

    /// Reads a file. Returns its checksum and the number of bytes read.
    fn file(&mut self, wanted: &Wanted) -> Result<(Hash, u64), filecopy::Problem> {
        let mut source = inputs::open(&wanted.path, &Options::new().leave_cache(true))?;
        let before = self.read;
        let on_read = |read: u64| {
            self.read = before + read;
            self.update(&wanted.path);
        };
        filecopy::checksum(&mut source, on_read)
    }

    fn update(&mut self, path: &Path) {
        if self.read - self.updated_at < UPDATE_EVERY_BYTES {
            return;
        }
        self.updated_at = self.read;
        let elapsed_s = (self.clock.now_ns() - self.start_ns) as f64 / 1e9;
        let rate = units::rate(self.read as f64 / elapsed_s.max(1e-9));
        let share = self.total.map(|total| self.read as f64 / total.max(1) as f64);
        let (read, path) = (units::size(self.read), inputs::shown(path));
        self.progress.advance(share, &format!("{read} read at {rate}: {path}"));
    }
}

/// Reads a checksum file and returns the files that it lists.
fn listed(path: &Path) -> Outcome<Vec<Wanted>> {
    let shown = inputs::shown(path);
    let mut text = Vec::new();
    let read = if inputs::is_stdin(path) {
        io::stdin().read_to_end(&mut text).map(drop)
    } else {
        fs::read(path).map(|read| text = read)
    };
    read.map_err(|error| {
        let cause = ioengine::error::cause(&error);
        Failure::failed(format!("reading {shown}: {cause}; specify a checksum file"))
    })?;
    let sums = checksum_file::parse(&text).map_err(|(line, why)| {
        Failure::failed(format!(
            "{shown}:{line}: {why}; create the checksum file with halfpower checksum"
        ))
    })?;
    if sums.is_empty() {
        return Err(Failure::failed(format!("{shown} contains no checksum; nothing was compared")));
    }
    let wanted = |sum: Sum| Wanted::new(OsStr::from_bytes(&sum.name).into(), Some(sum.hash));
    Ok(sums.into_iter().map(wanted).collect())
}
