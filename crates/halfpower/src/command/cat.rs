//! `halfpower cat`: the bytes of files on standard output, as they are.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use seqio::{Cache, Options};

use crate::cli::streams::CatArgs;
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Outcome};
use crate::streams::{self, Source};
use crate::units;

/// Why the bytes of a file did not get through.
enum Stopped {
    /// The file cannot be read; others may.
    Reading(String),
    /// Nobody takes them any more, and nobody needs to be told.
    Gone,
    /// They cannot be written.
    Writing(io::Error),
}

/// Copies the files to standard output.
pub fn execute(args: &CatArgs) -> Outcome {
    let files = streams::named(&args.files);
    if args.plan {
        files.iter().for_each(|path| console::data(&plan(path)));
        return Ok(Exit::Ok);
    }
    let console = Console::new(args.quiet);
    // Not through the stream of the standard library, which looks for the ends of lines.
    let output = io::stdout().as_fd().try_clone_to_owned().map(File::from);
    let mut output = output.map_err(|error| cannot_write(&error))?;
    let mut exit = Exit::Ok;
    for path in &files {
        match copy(path, args, &mut output, console) {
            Ok(()) => {}
            Err(Stopped::Gone) => break,
            Err(Stopped::Writing(error)) => return Err(cannot_write(&error)),
            Err(Stopped::Reading(message)) => {
                console::error(&message);
                exit = Exit::Failed;
            }
        }
    }
    Ok(exit)
}

fn plan(path: &Path) -> String {
    let size = streams::size_of(path).map(|bytes| format!(" ({})", units::size(bytes)));
    let shown = streams::shown(path);
    format!("read {shown}{} to standard output; nothing is written", size.unwrap_or_default())
}

fn options(args: &CatArgs) -> Options {
    match (args.direct, args.cached) {
        (true, _) => Options::new().cache(Cache::Direct),
        (_, true) => Options::new().cache(Cache::Buffered),
        _ => Options::new().leave_cache(true),
    }
}

fn copy(path: &Path, args: &CatArgs, output: &mut File, console: Console) -> Result<(), Stopped> {
    if is_same(path, output) {
        let shown = streams::shown(path);
        let message = format!("{shown} is where the output goes; send it to another file");
        return Err(Stopped::Reading(message));
    }
    let reading = |error: io::Error| Stopped::Reading(error.to_string());
    let mut source = Source::open(path, &options(args)).map_err(reading)?;
    if args.direct && !source.plan().direct {
        let why = &source.plan().why;
        console.say(format!("{} is read through the page cache: {why}", streams::shown(path)));
    }
    while let Some(block) = source.next_block().map_err(reading)? {
        output.write_all(&block).map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe => Stopped::Gone,
            _ => Stopped::Writing(error),
        })?;
    }
    Ok(())
}

/// Whether a file would be read and grow at the same time.
fn is_same(path: &Path, output: &File) -> bool {
    let input = match streams::is_stdin(path) {
        true => io::stdin().as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata()),
        false => fs::metadata(path),
    };
    let (Ok(input), Ok(output)) = (input, output.metadata()) else { return false };
    let identity = |metadata: &fs::Metadata| (metadata.dev(), metadata.ino());
    output.is_file() && input.len() > 0 && identity(&input) == identity(&output)
}

fn cannot_write(error: &io::Error) -> Failure {
    let cause = ioengine::error::cause(error);
    Failure::failed(format!("writing to standard output: {cause}; send it where there is room"))
}
