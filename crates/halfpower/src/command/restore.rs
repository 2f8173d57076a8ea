//! `halfpower restore`: puts back settings of block devices that a killed run left changed.

use lab::console;
use lab::failure::{Exit, Failure, Outcome};
use lab::journal::settings::{self as journal, Entry, Recorded};
use lab::machine;
use lab::settings::{self, Fate, Standing};

use crate::cli::RestoreArgs;

/// Undoes what the journal names and nobody uses.
pub fn execute(args: &RestoreArgs) -> Outcome {
    let (mut said, mut failed) = (false, false);
    for found in journal::all() {
        said = true;
        let (name, pid) = (found.entry.device.name.clone(), found.entry.pid);
        match found.of_dead_owner() {
            None => console::data(&format!("in use: settings of {name}, by process {pid}")),
            Some((entry, recorded)) => failed |= !settle(&entry, recorded, args.plan),
        }
    }
    if !said {
        console::data("nothing to restore");
    }
    match failed {
        false => Ok(Exit::Ok),
        true if !machine::is_root() => Err(Failure::failed("restoring needs root; run as root")),
        true => Err(Failure::failed(
            "not everything could be restored; set what is named above by hand, then say \
             halfpower restore again",
        )),
    }
}

/// Undoes one entry, or with `plan` says what would be done; false where it could not.
fn settle(entry: &Entry, recorded: Recorded, plan: bool) -> bool {
    let name = &entry.device.name;
    let disk = match settings::standing(entry) {
        Standing::Pending(disk) => disk,
        Standing::Forget(why) => {
            console::data(&format!("forgotten settings of {name}: {why}"));
            if !plan {
                recorded.undone();
            }
            return true;
        }
    };
    if plan {
        for (change, fate) in entry.changes.iter().zip(settings::fates(&entry.changes)) {
            if change.wanted.is_some() {
                let said = settings::said(change, &disk, &fate).replacen("restored", "restore", 1);
                console::data(&said);
            }
        }
        return true;
    }
    let Some(_claim) = settings::claim_to_undo(&disk) else {
        console::data(&format!("in use: settings of {name}, by another run"));
        return true;
    };
    let mut whole = true;
    for (change, fate) in settings::undo(&entry.changes) {
        whole &= !matches!(fate, Fate::Failed(_));
        console::data(&settings::said(&change, &disk, &fate));
    }
    if whole {
        recorded.undone();
    }
    whole
}
