//! `halfpower restore`: restores settings of block devices that killed runs left changed. A journal
//! lists these settings. Settings that a running process changed are left alone.

use lab::console;
use lab::failure::{Exit, Failure, Outcome};
use lab::journal::settings::{self as journal, Entry, Recorded};
use lab::machine;
use lab::settings::{self, Fate, Standing};

use crate::cli::RestoreArgs;

pub fn execute(args: &RestoreArgs) -> Outcome {
    let (mut is_empty, mut failed) = (true, false);
    for found in journal::all() {
        is_empty = false;
        let (name, pid) = (found.entry.device.name.clone(), found.entry.pid);
        match found.of_dead_owner() {
            None => console::data(&format!(
                "not restored: process {pid} is running and uses the settings of {name}"
            )),
            Some((entry, recorded)) => failed |= !restore(&entry, recorded, args.plan),
        }
    }
    if is_empty {
        console::data("nothing to restore");
    }
    if !failed {
        return Ok(Exit::Ok);
    }
    if !machine::is_root() {
        return Err(Failure::failed("restoring needs root; run as root"));
    }
    Err(Failure::failed(
        "some settings could not be restored; restore the settings listed above as failed by \
         hand, then run halfpower restore again to delete the record of these settings",
    ))
}

/// Restores the settings of one journal entry. With `plan`, only prints what would be restored.
/// Returns false on failure.
fn restore(entry: &Entry, recorded: Recorded, plan: bool) -> bool {
    let name = &entry.device.name;
    let (disk, changes) = match settings::standing(entry) {
        Standing::Pending { disk, changes } => (disk, changes),
        Standing::Absent(what) => {
            let file = recorded.file().display();
            let remedy = settings::WHEN_ABSENT;
            let text = format!(
                "not restored: {what}; {remedy}; to keep the changed setting instead, remove the \
                 file {file}"
            );
            console::data(&text);
            return true;
        }
        Standing::Forget(why) => {
            console::data(&format!("discarded the recorded settings of {name}: {why}"));
            if !plan {
                recorded.undone();
            }
            return true;
        }
    };
    if plan {
        for (change, fate) in changes.iter().zip(settings::fates(&changes)) {
            if change.wanted.is_some() {
                let text = settings::said(change, &disk, &fate).replacen("restored", "restore", 1);
                console::data(&text);
            }
        }
        return true;
    }
    let Some(_claim) = settings::claim_to_undo(&disk) else {
        console::data(&format!(
            "not restored: another run uses the settings of {}",
            disk.display()
        ));
        return true;
    };
    let mut is_complete = true;
    for (change, fate) in settings::undo(&changes) {
        is_complete &= !matches!(fate, Fate::Failed(_));
        console::data(&settings::said(&change, &disk, &fate));
    }
    if is_complete {
        recorded.undone();
    }
    is_complete
}
