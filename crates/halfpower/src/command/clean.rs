//! `halfpower clean`: removes test files, unfinished copies and mounts that killed runs left
//! behind. A journal lists them. Files and mounts that are in use are kept.

use analysis::units;
use std::fs;
use std::io::ErrorKind;

use lab::console;
use lab::failure::{Exit, Failure, Outcome};
use lab::journal::{self, Stray};
use lab::settings;

use crate::cli::CleanArgs;

pub fn execute(args: &CleanArgs) -> Outcome {
    let (mut listed, mut failed) = (0, 0);
    for (file, entry) in journal::entries() {
        let path = entry.path.display();
        let state = journal::state_of(&entry);
        listed += u32::from(matches!(state, Stray::Removable | Stray::Away));
        match state {
            Stray::InUse => console::data(&format!("in use   {path}")),
            Stray::Away => {
                console::data(&format!("absent   {path} (its file system is not mounted)"));
            }
            Stray::Removable if args.plan => console::data(&format!("remove   {path}")),
            Stray::Gone if args.plan => {}
            Stray::Removable => {
                match fs::remove_file(&entry.path) {
                    Err(error) if error.kind() != ErrorKind::NotFound => {
                        let cause = ioengine::error::cause(&error);
                        console::data(&format!("failed   {path}: {cause}"));
                        failed += 1;
                        continue;
                    }
                    _ => {}
                }
                let _ = fs::remove_file(file);
                console::data(&format!("removed  {path}"));
            }
            Stray::Gone => {
                let _ = fs::remove_file(file);
            }
        }
    }
    let copies = remove_unfinished_copies(args);
    (listed, failed) = (listed + copies.listed, failed + copies.failed);
    let mounts = remove_mounts(args);
    listed += mounts.listed;
    let changed = settings::left_behind();
    for device in &changed {
        console::data(&format!(
            "a run that was killed did not restore settings of {device}; run halfpower restore"
        ));
    }
    if listed == 0 && changed.is_empty() {
        console::data("nothing to clean");
    }
    if failed > 0 {
        return Err(Failure::failed(format!(
            "{failed} files could not be removed; run as their owner or as root, or remount \
             their file system read-write"
        )));
    }
    if mounts.failed > 0 {
        return Err(Failure::failed(format!(
            "{} mounts could not be removed; run fusermount3 -u DIR as their owner, or umount -l \
             DIR as root",
            mounts.failed
        )));
    }
    Ok(Exit::Ok)
}

/// Counts of leftovers of one kind, such as mounts.
#[derive(Default)]
struct Removed {
    /// Number of leftovers that were printed.
    listed: u32,
    /// Number of leftovers that could not be removed.
    failed: u32,
}

/// Removes unfinished copies, including those that could be resumed.
fn remove_unfinished_copies(args: &CleanArgs) -> Removed {
    let mut removed = Removed::default();
    let folder = journal::copies_folder();
    for leftover in folder.iter().flat_map(|folder| filecopy::leftovers(folder)) {
        let path = leftover.path.display();
        let what = match leftover.resumable_bytes {
            Some(bytes) => {
                format!(
                    "{path} (an unfinished copy that --resume could continue; {} copied so far)",
                    units::size(bytes)
                )
            }
            None => format!("{path} (an unfinished copy)"),
        };
        removed.listed += 1;
        if leftover.in_use {
            console::data(&format!("in use   {what}"));
        } else if args.plan {
            console::data(&format!("remove   {what}"));
        } else {
            match filecopy::clean(&leftover) {
                Ok(_) => console::data(&format!("removed  {what}")),
                Err(error) => {
                    let cause = ioengine::error::cause(&error);
                    console::data(&format!("failed   {what}: {cause}"));
                    removed.failed += 1;
                }
            }
        }
    }
    removed
}

/// Unmounts files whose server no longer runs.
fn remove_mounts(args: &CleanArgs) -> Removed {
    let mut removed = Removed::default();
    for (file, entry) in journal::mounts() {
        let path = entry.path.display();
        match journal::state_of_mount(&entry) {
            Stray::InUse => console::data(&format!("in use   {path} (mounted)")),
            Stray::Removable if args.plan => {
                console::data(&format!("unmount  {path}"));
                removed.listed += 1;
            }
            Stray::Removable => {
                removed.listed += 1;
                if let Err(error) = ioengine::mount::unmount(&entry.path, true) {
                    let cause = ioengine::error::cause(&error);
                    console::data(&format!("failed   {path}: {cause}"));
                    removed.failed += 1;
                    continue;
                }
                let _ = fs::remove_file(file);
                console::data(&format!("unmounted {path}"));
            }
            Stray::Gone | Stray::Away if args.plan => {}
            Stray::Gone | Stray::Away => _ = fs::remove_file(file),
        }
    }
    removed
}
