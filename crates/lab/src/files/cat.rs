//! `halfpower cat`: copies files to standard output. To be fast, it keeps several large read
//! requests in flight.

use analysis::units;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use filecopy::stream::{Broken, Output};
use filecopy::{Settings, inputs};
use seqio::{Cache, Options};

use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Outcome};

/// Options of `halfpower cat`.
#[derive(Clone, Debug)]
pub struct CatOptions {
    /// The files and devices to copy. `-` is standard input.
    pub files: Vec<PathBuf>,
    /// Whether to read with direct I/O.
    pub direct: bool,
    /// Whether to read through the page cache and keep the data cached afterwards.
    pub cached: bool,
    /// Whether to print only warnings and errors.
    pub quiet: bool,
    /// Whether to print which files would be read, without reading them.
    pub plan: bool,
}

/// Copies the files to standard output.
///
/// # Errors
/// Standard output cannot be written, or the user interrupted the copy. If a file cannot be read,
/// the other files are still copied and the exit code is [`Exit::Failed`].
pub fn execute(options: &CatOptions) -> Outcome {
    if options.plan {
        options.files.iter().for_each(|path| console::data(&plan(path)));
        return Ok(Exit::Ok);
    }
    console::check_stdout()?;
    let console = Console::new(options.quiet);
    let mut output = Output::stdout().map_err(|error| console::cannot_write(&error))?;
    let settings = Settings { options: streams(options), ..Settings::default() };
    let mut exit = Exit::Ok;
    for path in &options.files {
        match copy(path, options, &mut output, &settings, console) {
            Ok(()) => {}
            Err(Broken::Gone) => break,
            Err(Broken::Writing(error)) => return Err(console::cannot_write(&error)),
            Err(Broken::Stopped) => return Err(Failure::interrupted()),
            Err(Broken::Reading(problem)) => {
                console::error(&problem.to_string());
                exit = Exit::Failed;
            }
        }
    }
    Ok(exit)
}

fn plan(path: &Path) -> String {
    let size = inputs::size_of(path).map(|bytes| format!(" ({})", units::size(bytes)));
    let shown = inputs::shown(path);
    format!("would copy {shown}{} to standard output; nothing was done", size.unwrap_or_default())
}

fn streams(options: &CatOptions) -> Options {
    match (options.direct, options.cached) {
        (true, _) => Options::new().cache(Cache::Direct),
        (_, true) => Options::new().cache(Cache::Buffered),
        _ => Options::new().leave_cache(true),
    }
}

fn copy(
    path: &Path,
    options: &CatOptions,
    output: &mut Output,
    settings: &Settings,
    console: Console,
) -> Result<(), Broken> {
    if is_same(path) {
        let shown = inputs::shown(path);
        let what = format!("{shown} is both input and output; redirect the output to another file");
        let kind = filecopy::ProblemKind::Failed;
        return Err(Broken::Reading(filecopy::Problem::new(kind, path, what)));
    }
    let mut input = inputs::open(path, &settings.options).map_err(Broken::Reading)?;
    if options.direct && !input.plan().direct {
        let why = &input.plan().why;
        console.say(format!("{} is read through the page cache: {why}", inputs::shown(path)));
    }
    output.send(&mut input, settings).map(drop)
}

/// Returns true if standard output is the input file. Appending a file to itself would never end.
fn is_same(path: &Path) -> bool {
    let of = |fd: io::Result<std::os::fd::OwnedFd>| fd.and_then(|fd| fs::File::from(fd).metadata());
    let input = if inputs::is_stdin(path) {
        of(io::stdin().as_fd().try_clone_to_owned())
    } else {
        fs::metadata(path)
    };
    let output = of(io::stdout().as_fd().try_clone_to_owned());
    let (Ok(input), Ok(output)) = (input, output) else { return false };
    let identity = |metadata: &fs::Metadata| (metadata.dev(), metadata.ino());
    output.is_file() && input.len() > 0 && identity(&input) == identity(&output)
}
