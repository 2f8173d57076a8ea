//! Decides how `halfpower copy` copies each source, and refuses copies that are impossible or not
//! allowed.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use filecopy::{Destination, Keep, Links, ProblemKind, inputs};
use ioengine::{Caching, HostTarget};

use super::options::CopyOptions;
use crate::failure::{Exit, Failure, Outcome, check_not_under_dev};
use crate::guard::{self, Permit};
use crate::journal;

/// How one source is copied.
#[derive(Debug)]
pub enum Work {
    /// Copies a file, directory tree, symbolic link or special file.
    Entry { from: PathBuf, to: Destination },
    /// Copies standard input, a named pipe or a character device to a file.
    Stream { from: PathBuf, to: Destination },
    /// Copies any source to a block device.
    Device { from: PathBuf, target: Box<HostTarget>, name: PathBuf, permit: Option<Permit> },
    /// Copies any source to standard output.
    Output { from: PathBuf },
}

impl Work {
    /// Returns true if the source is a directory tree.
    pub fn is_tree(&self) -> bool {
        matches!(self, Work::Entry { from, .. } if from.is_dir())
    }
}

/// Returns the sources and the destination.
///
/// # Errors
/// The sources or the destination are missing, or the target directory is not a directory.
pub fn sources_and_destination(options: &CopyOptions) -> Outcome<(&[PathBuf], &Path)> {
    if let Some(directory) = &options.target_directory {
        if !directory.is_dir() {
            let shown = directory.display();
            let what = format!("-t {shown} is not a directory; specify an existing directory");
            return Err(Failure::usage(what));
        }
        return Ok((&options.paths, directory));
    }
    match options.paths.split_last() {
        Some((to, sources)) if !sources.is_empty() => Ok((sources, to)),
        _ => Err(Failure::usage("source or destination is missing; use halfpower copy SRC DST")),
    }
}

/// Returns the destinations of all directory trees.
pub fn tree_destinations(works: &[Work]) -> Vec<PathBuf> {
    let tree = |work: &Work| match work {
        Work::Entry { to, .. } if work.is_tree() => Some(to.path.clone()),
        _ => None,
    };
    works.iter().filter_map(tree).collect()
}

/// Decides how a source is copied.
///
/// # Errors
/// The copy is impossible or not allowed.
pub fn resolve(options: &CopyOptions, from: &Path, to: &Path, many: bool) -> Outcome<Work> {
    let is_stdin = inputs::is_stdin(from);
    if to == Path::new("-") {
        return to_output(options, from, many);
    }
    let source = if is_stdin { None } else { Some(metadata_of(options, from)?) };
    let existing = fs::metadata(to).ok();
    let kind = existing.as_ref().map(fs::Metadata::file_type);
    if kind.is_some_and(|kind| kind.is_block_device()) {
        return to_device(options, from, source.as_ref(), to, many);
    }
    let is_directory = kind.is_some_and(|kind| kind.is_dir());
    let named_as_directory = to.as_os_str().as_encoded_bytes().ends_with(b"/");
    let is_tree = source.as_ref().is_some_and(fs::Metadata::is_dir);
    let into = options.target_directory.is_some() || (is_directory && !options.no_target_directory);
    if !is_directory && named_as_directory && !is_tree {
        let to = to.display();
        let what = if kind.is_some() { "is not a directory" } else { "does not exist" };
        return Err(Failure::usage(format!("{to} {what}; specify an existing directory")));
    }
    if many && options.no_target_directory {
        return Err(Failure::usage("-T takes only one source; drop -T to copy into a directory"));
    }
    check_not_under_dev(to, "DST")?;
    check_link(to)?;
    let Some(source) = source else {
        if into {
            let to = to.display();
            let what = format!("{to} is a directory; specify a file to receive standard input");
            return Err(Failure::usage(what));
        }
        return Ok(Work::Stream { from: from.to_path_buf(), to: destination(to) });
    };
    let is_merged = is_tree && (holds_contents(from) || (!many && was_made_from(from, to)));
    let path = if into && !is_merged { to.join(name_of(from)?) } else { to.to_path_buf() };
    if !is_tree && path.is_dir() {
        let shown = path.display();
        let what = format!("{shown} is a directory but the source is not; use another destination");
        return Err(Failure::usage(what));
    }
    if is_tree && fs::symlink_metadata(&path).is_ok() && !path.is_dir() {
        let shown = path.display();
        let what = format!("{shown} is not a directory but the source is; use another destination");
        return Err(Failure::usage(what));
    }
    if fs::metadata(&path).is_ok_and(|existing| is_same(&existing, &source)) {
        let shown = path.display();
        return Err(Failure::usage(format!(
            "{shown} is the source itself; use another destination"
        )));
    }
    let (from, to) = (from.to_path_buf(), destination(&path));
    let kind = source.file_type();
    if (kind.is_fifo() || kind.is_char_device()) && options.keep != Keep::All {
        return Ok(Work::Stream { from, to });
    }
    if is_tree {
        filecopy::check_tree(&from, &to, options.all_or_nothing).map_err(|problem| {
            let exit =
                if problem.kind == ProblemKind::Refused { Exit::Refused } else { Exit::Failed };
            Failure::new(exit, problem.to_string())
        })?;
    }
    Ok(Work::Entry { from, to })
}

/// Refuses a destination that is another user's symbolic link, because it may point anywhere.
fn check_link(to: &Path) -> Outcome<()> {
    if filecopy::is_foreign_link(to) {
        return Err(Failure::refused(format!(
            "{} is a symbolic link owned by another user; specify the directory that the link \
             points to",
            to.display()
        )));
    }
    Ok(())
}

fn destination(path: &Path) -> Destination {
    Destination { path: path.to_path_buf() }
}

/// Returns true if a source is a path such as `DIR/.`, which specifies the content of a directory.
fn holds_contents(from: &Path) -> bool {
    let text = from.as_os_str().as_encoded_bytes();
    text == b"." || text.ends_with(b"/.") || text.ends_with(b"/./")
}

/// Returns true if an earlier command that copied the same source created the directory `to`. The
/// new command then updates `to` and does not create a subdirectory in `to`.
fn was_made_from(from: &Path, to: &Path) -> bool {
    journal::copies_folder().is_some_and(|folder| filecopy::is_copy_of(&folder, from, to))
}

fn is_same(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Returns true if a path is a named pipe or a character device. These can only be read in order.
pub fn is_stream(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| {
        let kind = found.file_type();
        kind.is_fifo() || kind.is_char_device()
    })
}

/// Reads the metadata of a source. If --archive copies symbolic links as links, the metadata of the
/// link is read.
fn metadata_of(options: &CopyOptions, path: &Path) -> Outcome<fs::Metadata> {
    let is_itself = options.keep == Keep::All && options.links == Links::Keep;
    let found = if is_itself { fs::symlink_metadata(path) } else { fs::metadata(path) };
    found.map_err(|error| {
        let shown = path.display();
        if !is_itself && fs::symlink_metadata(path).is_ok_and(|link| link.is_symlink()) {
            return Failure::usage(format!(
                "{shown} is a dangling symbolic link; --archive copies it as a link"
            ));
        }
        let cause = ioengine::error::cause(&error);
        Failure::usage(format!("{shown}: {cause}; specify an existing file, directory or device"))
    })
}

/// Returns the name of the copy of a source in a destination directory.
fn name_of(path: &Path) -> Outcome<std::ffi::OsString> {
    let own = path.file_name().map(ToOwned::to_owned);
    own.or_else(|| Some(path.canonicalize().ok()?.file_name()?.to_owned())).ok_or_else(|| {
        let path = path.display();
        Failure::usage(format!(
            "{path} does not end with a file name; add -T, and specify the path of the copy as the \
             destination"
        ))
    })
}

fn to_output(options: &CopyOptions, from: &Path, many: bool) -> Outcome<Work> {
    if many {
        return Err(Failure::usage(
            "only one source can be copied to standard output; use halfpower cat for several files",
        ));
    }
    if options.json || options.verbose {
        return Err(Failure::usage(
            "the copy is written to standard output, so nothing else can be printed there; drop \
             --json and --verbose, or specify a file",
        ));
    }
    if from.is_dir() {
        let from = from.display();
        return Err(Failure::usage(format!(
            "{from} is a directory and cannot be copied to standard output; pack it with tar first"
        )));
    }
    Ok(Work::Output { from: from.to_path_buf() })
}

/// Opens the block device that a source is copied to. Fails unless the user allowed destroying the
/// data on the device.
fn to_device(
    options: &CopyOptions,
    from: &Path,
    source: Option<&fs::Metadata>,
    to: &Path,
    many: bool,
) -> Outcome<Work> {
    if many || source.is_some_and(fs::Metadata::is_dir) {
        return Err(Failure::usage(
            "a device takes only one source; specify one file, device or stream",
        ));
    }
    let target = HostTarget::open(to, false, Caching::Buffered)?;
    guard::check_writable(&target, to, &options.consent)?;
    if ioengine::Target::zones(&target).is_some() {
        return Err(Failure::usage(format!(
            "{} is a zoned device: each zone must be written in ascending order, but a copy writes \
             in another order; nothing was written. Reset the zones with `blkzone reset`, and \
             write to the device with `dd oflag=direct bs=1M`",
            to.display()
        )));
    }
    if let Some(source) = source {
        let device = metadata_of(options, to)?;
        let size = inputs::size_of(from);
        if source.file_type().is_block_device() && source.rdev() == device.rdev() {
            return Err(Failure::usage(
                "source and destination are the same device; use another device",
            ));
        }
        if size.is_some_and(|size| size > ioengine::Target::size_bytes(&target)) {
            let (from, to) = (from.display(), to.display());
            let (size, room) = (size.unwrap_or(0), ioengine::Target::size_bytes(&target));
            return Err(Failure::usage(format!(
                "{from} has {size} bytes but {to} has only {room}; nothing was written, use a \
                 larger device"
            )));
        }
    }
    // The device is opened for writing only after all checks. The check for permission is repeated,
    // because the path may now lead to another device.
    let target = Box::new(HostTarget::open(to, !options.plan, Caching::Buffered)?);
    let permit = guard::check_writable(&target, to, &options.consent)?;
    let (from, name) = (from.to_path_buf(), to.to_path_buf());
    Ok(Work::Device { from, target, name, permit })
}
