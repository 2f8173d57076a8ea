//! `halfpower cat`: copies files to standard output unchanged, with large requests and several in
//! flight.

use analysis::units;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use filecopy::Settings;
use filecopy::stream::{Broken, Output};
use lab::console::{self, Console};
use lab::failure::{Exit, Failure, Outcome};
use seqio::{Cache, Options};

use crate::cli::inputs::CatArgs;
use crate::command::copy::cannot_write;
use crate::inputs;

pub fn execute(args: &CatArgs) -> Outcome {
    let files = inputs::named(&args.files);
    if args.plan {
        files.iter().for_each(|path| console::data(&plan(path)));
        return Ok(Exit::Ok);
    }
    inputs::check_stdout()?;
    let console = Console::new(args.quiet);
    let mut output = Output::stdout().map_err(|error| cannot_write(&error))?;
    let settings = Settings { options: options(args), ..Settings::default() };
    let mut exit = Exit::Ok;
    for path in &files {
        match copy(path, args, &mut output, &settings, console) {
            Ok(()) => {}
            Err(Broken::Gone) => break,
            Err(Broken::Writing(error)) => return Err(cannot_write(&error)),
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
    format!("read {shown}{} to standard output; nothing is written", size.unwrap_or_default())
}

fn options(args: &CatArgs) -> Options {
    match (args.direct, args.cached) {
        (true, _) => Options::new().cache(Cache::Direct),
        (_, true) => Options::new().cache(Cache::Buffered),
        _ => Options::new().leave_cache(true),
    }
}

fn copy(
    path: &Path,
    args: &CatArgs,
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
    if args.direct && !input.plan().direct {
        let why = &input.plan().why;
        console.say(format!("{} is read through the page cache: {why}", inputs::shown(path)));
    }
    output.send(&mut input, settings).map(drop)
}

/// Whether the input file is also the output, which would grow without end.
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
