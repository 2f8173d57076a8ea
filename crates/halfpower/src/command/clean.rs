//! `halfpower clean`: removes test files and mounts that a killed program left behind.

use std::fs;
use std::io::ErrorKind;

use lab::console;
use lab::failure::{Exit, Failure, Outcome};
use lab::journal::{self, Stray};
use lab::settings;

use crate::cli::CleanArgs;

/// Removes what the journal names and nobody uses.
pub fn execute(args: &CleanArgs) -> Outcome {
    let (mut told, mut failed) = (0, 0);
    for (file, entry) in journal::entries() {
        let path = entry.path.display();
        let state = journal::state_of(&entry);
        told += u32::from(matches!(state, Stray::Removable | Stray::Away));
        match state {
            Stray::InUse => console::data(&format!("in use   {path}")),
            Stray::Away => {
                console::data(&format!("away     {path} (its file system is not mounted)"));
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
    let (copies, kept_copies) = remove_unfinished_copies(args);
    (told, failed) = (told + copies, failed + kept_copies);
    let (mounts, still_mounted) = take_mounts_away(args);
    told += mounts;
    let changed = settings::left_behind();
    for device in &changed {
        console::data(&format!("settings of {device} are still changed; say halfpower restore"));
    }
    if told == 0 && changed.is_empty() {
        console::data("nothing to clean");
    }
    if failed > 0 {
        return Err(Failure::failed(format!(
            "{failed} of the files could not be removed; run as their owner or as root, or \
             remount their file system read-write"
        )));
    }
    if still_mounted > 0 {
        return Err(Failure::failed(format!(
            "{still_mounted} of the mounts could not be taken away; type fusermount3 -u DIR as \
             their owner, or umount -l DIR as root"
        )));
    }
    Ok(Exit::Ok)
}

/// Removes what killed copies left, also what could be resumed: how many were told of, and how many
/// stay.
fn remove_unfinished_copies(args: &CleanArgs) -> (u32, u32) {
    let (mut told, mut failed) = (0, 0);
    let folder = journal::copies_folder();
    for leftover in folder.iter().flat_map(|folder| filecopy::leftovers(folder)) {
        let path = leftover.path.display();
        let what = match leftover.resumable_bytes {
            Some(bytes) => {
                format!("{path} (a copy that --resume would go on with: {})", units::size(bytes))
            }
            None => format!("{path} (an unfinished copy)"),
        };
        told += 1;
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
                    failed += 1;
                }
            }
        }
    }
    (told, failed)
}

/// Takes away what nobody serves any more: how many were told of, and how many stay.
fn take_mounts_away(args: &CleanArgs) -> (u32, u32) {
    let (mut told, mut failed) = (0, 0);
    for (file, entry) in journal::mounts() {
        let path = entry.path.display();
        match journal::state_of_mount(&entry) {
            Stray::InUse => console::data(&format!("in use   {path} (mounted)")),
            Stray::Removable if args.plan => {
                console::data(&format!("unmount  {path}"));
                told += 1;
            }
            Stray::Removable => {
                told += 1;
                if let Err(error) = ioengine::mount::unmount(&entry.path, true) {
                    let cause = ioengine::error::cause(&error);
                    console::data(&format!("failed   {path}: {cause}"));
                    failed += 1;
                    continue;
                }
                let _ = fs::remove_file(file);
                console::data(&format!("unmounted {path}"));
            }
            Stray::Gone | Stray::Away if args.plan => {}
            Stray::Gone | Stray::Away => _ = fs::remove_file(file),
        }
    }
    (told, failed)
}
