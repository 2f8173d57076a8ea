//! Copies of what is no file and no directory: symbolic links, named pipes, sockets and devices are
//! made anew.

use std::ffi::OsStr;

use rustix::fs::{FileType, Mode, mknodat, symlinkat};

use crate::attributes::{Giving, give_link};
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

/// Makes the same under a name.
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
        Err(first) => match link(context, &first, info, target, name)? {
            true => Ok(()),
            false => make(context, source, info, target, name).map(drop),
        },
    }
}

/// Makes it; gives what it is then, where that is known.
fn make(
    context: &Context,
    source: SourceEntry,
    info: &EntryInfo,
    target: &TargetDirectory,
    name: &OsStr,
) -> Result<Option<EntryInfo>, Problem> {
    let settings = &context.settings;
    let (from, to) = (source.path(), target.join(name));
    let leads_to = match info.file_type() {
        FileType::Symlink => {
            let text = source.directory.read_link(source.name);
            Some(text.map_err(on_errno("reading the link", &from))?)
        }
        _ => None,
    };
    let compare = |there: &EntryInfo| {
        let is_same = match (&leads_to, target.directory()) {
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
        match &leads_to {
            Some(text) => symlinkat(text.as_c_str(), directory, name),
            // For nobody until it has its attributes.
            None => mknodat(directory, name, info.file_type(), Mode::empty(), info.rdev),
        }
        .map_err(on_errno("creating", &to))?;
        let link = (source.directory, source.name);
        let given = match leads_to.is_some() {
            true => give_link(settings, &context.left_out, link, info, (directory, name)),
            false => give(context, source, info, directory, name),
        };
        if let Err(problem) = given {
            context.report(problem);
        }
        Ok(())
    };
    // A symbolic link that keeps nothing has nothing to wait for.
    match leads_to.is_some() && settings.keep == Keep::Mode && !replaces {
        true => make(place.destination, name)?,
        false => make_entry(place, name, replaces, make)?,
    }
    match leads_to.is_some() {
        true => Progress::add(&settings.progress.links, 1),
        false => Progress::add(&settings.progress.special, 1),
    }
    settings.tell(&Event::Copied { from, to: to.clone() });
    place.destination.look_up(name).map_err(on_errno("looking at", &to))
}

/// Gives a special file its permission bits and what else it keeps.
fn give(
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
    Giving {
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
