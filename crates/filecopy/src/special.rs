//! Copies symbolic links, named pipes, sockets and devices: creates a new entry of the same type,
//! with the attributes of the source.

use std::ffi::OsStr;

use rustix::fs::{FileType, Mode, mknodat, symlinkat};

use crate::attributes::{AttributeCopy, set_link_attributes};
use crate::context::Context;
use crate::directory::{Directory, EntryInfo};
use crate::existing::{Comparison, Decision, decide};
use crate::handle::Handle;
use crate::links::FirstCopy;
use crate::problem::{Problem, on_errno};
use crate::progress::{Event, Progress};
use crate::regular::{SourceEntry, link};
use crate::settings::Keep;
use crate::staging::make_entry;
use crate::target::TargetDirectory;

/// Copies a symbolic link or special file.
pub(crate) fn copy(
    context: &Context,
    source: SourceEntry,
    info: &EntryInfo,
    target: &TargetDirectory,
    name: &OsStr,
) -> Result<(), Problem> {
    if context.settings.keep < Keep::All || info.links < 2 {
        return make(context, source, info, target, name).map(drop);
    }
    match context.links.claim(info) {
        Ok(claim) => {
            if let Some(copy) = make(context, source, info, target, name)? {
                claim.settle(FirstCopy::new(&target.root, target.relative_of(name), &copy));
            }
            Ok(())
        }
        Err(first) => {
            if link(context, &first, info, target, name)? {
                Ok(())
            } else {
                make(context, source, info, target, name).map(drop)
            }
        }
    }
}

/// Creates the link or special file, unless the destination is up to date or the settings skip it.
/// Returns the metadata of the new or up-to-date entry. None if the entry was skipped, or in a dry
/// run.
fn make(
    context: &Context,
    source: SourceEntry,
    info: &EntryInfo,
    target: &TargetDirectory,
    name: &OsStr,
) -> Result<Option<EntryInfo>, Problem> {
    let settings = &context.settings;
    let (from, to) = (source.path(), target.join(name));
    let link_target = match info.file_type() {
        FileType::Symlink => {
            let text = source.directory.read_link(source.name);
            Some(text.map_err(on_errno("reading the link", &from))?)
        }
        _ => None,
    };
    let compare = |there: &EntryInfo| {
        let is_same = match (&link_target, target.directory()) {
            (Some(text), Some(directory)) => directory.read_link(name).is_ok_and(|t| t == *text),
            _ => there.rdev == info.rdev,
        };
        Ok(if is_same { Comparison::Same } else { Comparison::Different })
    };
    let replaces = match decide(settings, info, target, name, compare)? {
        Decision::Create => false,
        Decision::Replace(_) => true,
        Decision::UpToDate | Decision::Refresh => {
            context.is_up_to_date(&to);
            return target.look_up(name).map_err(on_errno("looking at", &to));
        }
        Decision::Leave => {
            context.skipped(&to);
            return Ok(None);
        }
    };
    let place = target.place(settings, &context.staging).filter(|_| !settings.dry_run);
    let Some(place) = place else {
        settings.tell(&Event::WouldCopy { from, to, replaces });
        return Ok(None);
    };
    let make = |directory: &Directory, name: &OsStr| {
        match &link_target {
            Some(text) => symlinkat(text.as_c_str(), directory, name),
            // The special file has no permissions until its attributes are set.
            None => mknodat(directory, name, info.file_type(), Mode::empty(), info.rdev),
        }
        .map_err(on_errno("creating", &to))?;
        let link = (source.directory, source.name);
        let given = if link_target.is_some() {
            set_link_attributes(settings, &context.left_out, link, info, (directory, name))
        } else {
            set_attributes(context, source, info, directory, name)
        };
        if let Err(problem) = given {
            context.report(problem);
        }
        Ok(())
    };
    // A new symbolic link whose attributes need not be set is created directly under its final
    // name.
    if link_target.is_some() && settings.keep == Keep::Mode && !replaces {
        make(place.destination, name)?;
    } else {
        make_entry(place, name, replaces, make)?;
    }
    let progress = &settings.progress;
    Progress::add(if link_target.is_some() { &progress.links } else { &progress.special }, 1);
    settings.tell(&Event::Copied { from, to: to.clone() });
    place.destination.look_up(name).map_err(on_errno("looking at", &to))
}

/// Sets permission bits and other attributes of a special file.
fn set_attributes(
    context: &Context,
    source: SourceEntry,
    info: &EntryInfo,
    directory: &Directory,
    name: &OsStr,
) -> Result<(), Problem> {
    let path = directory.join(name);
    let open = |directory: &Directory, name: &OsStr| {
        directory.open_entry(name).map_err(on_errno("opening", &path))
    };
    let (from, to) = (open(source.directory, source.name)?, open(directory, name)?);
    let is_it = EntryInfo::of(&to).is_ok_and(|made| made.file_type() == info.file_type());
    if !is_it {
        return Ok(());
    }
    if context.settings.keep == Keep::Mode {
        let mode = info.mode & 0o777 & !crate::regular::umask();
        let set = Handle::of_special(&to).set_mode(mode);
        return set.map_err(on_errno("setting the mode of", &path));
    }
    AttributeCopy {
        settings: &context.settings,
        left_out: &context.left_out,
        source: Handle::of_special(&from),
        info,
        target: Handle::of_special(&to),
        path: &path,
        is_old: false,
    }
    .all()
}
