//! Deletes entries of the destination that the source does not have, if the settings allow it.
//! Entries that a filter excludes are kept.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::Path;

use crate::context::Context;
use crate::directory::{Directory, EntryInfo};
use crate::problem::{Problem, ProblemKind, on_errno};
use crate::progress::{Event, Progress};
use crate::settings::Change;
use crate::state::PRIVATE_PREFIX;
use crate::target::TargetDirectory;

/// Removes the entries of a directory whose names are not in `names`. `names` contains the names of
/// all entries of the source directory. Entries that a filter excludes are kept.
pub(crate) fn extras(
    context: &Context,
    target: &TargetDirectory,
    names: &HashSet<OsString>,
    relative: &Path,
) {
    let Some(directory) = target.directory().filter(|_| !target.is_new) else { return };
    let entries = match directory.entries() {
        Ok(entries) => entries,
        Err(error) => return context.report(on_errno("reading", &target.path)(error)),
    };
    // All names are collected before the first removal, because a directory that changes while it
    // is read may return a name twice.
    let extras: Vec<OsString> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.name)
        .filter(|name| !names.contains(name))
        .filter(|name| !name.as_encoded_bytes().starts_with(PRIVATE_PREFIX.as_bytes()))
        .collect();
    for name in extras {
        if context.settings.stops() {
            return;
        }
        let path = target.join(&name);
        let found = directory.look_up(&name).map_err(on_errno("looking at", &path));
        let removed = found.and_then(|found| match found {
            Some(info) => {
                let is_wanted =
                    context.settings.filter.accepts(&relative.join(&name), info.is_directory());
                if is_wanted { remove(context, directory, &name, &info) } else { Ok(()) }
            }
            None => Ok(()),
        });
        if let Err(problem) = removed {
            context.report(problem);
        }
    }
}

fn remove(
    context: &Context,
    directory: &Directory,
    name: &OsString,
    info: &EntryInfo,
) -> Result<(), Problem> {
    let path = directory.join(name);
    let settings = &context.settings;
    if let Err(why) = (settings.may_replace)(&path, info, Change::Remove) {
        return Err(Problem::new(ProblemKind::Refused, &path, why));
    }
    if settings.dry_run {
        settings.tell(&Event::WouldDelete(path));
        return Ok(());
    }
    let removed =
        if info.is_directory() { directory.remove_all(name) } else { directory.remove(name) };
    removed.map_err(on_errno("removing", &path))?;
    Progress::add(&settings.progress.deleted, 1);
    settings.tell(&Event::Deleted(path));
    Ok(())
}
