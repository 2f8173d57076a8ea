//! `halfpower clean`: removes test files that a killed run left behind.

use std::fs;
use std::io::ErrorKind;

use crate::cli::CleanArgs;
use crate::console;
use crate::failure::{Exit, Failure, Outcome};
use crate::journal::{self, Stray};
use crate::settings;

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
    let changed = settings::left_behind();
    for device in &changed {
        console::data(&format!("settings of {device} are still changed; say halfpower restore"));
    }
    if told == 0 && changed.is_empty() {
        console::data("nothing to clean");
    }
    if failed > 0 {
        return Err(Failure::failed(format!(
            "{failed} of the test files could not be removed; run as their owner or as root, or \
             remount their file system read-write"
        )));
    }
    Ok(Exit::Ok)
}
