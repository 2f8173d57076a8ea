//! Checks of runs with several ranks. Used by the tests under mpirun, and by the tests in which
//! threads of the test program relay the messages.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::fixture::{Place, list, whole};

/// Returns the /proc directory of the measuring process of a rank. The rank is for example "2/4".
/// The process must run in the directory of `place`.
#[track_caller]
pub fn process_of_rank(rank: &str, place: &Place) -> PathBuf {
    let folder = place.path(".").canonicalize().unwrap();
    let wanted = format!("HALFPOWER_RANK={rank}");
    let is_rank = |process: &PathBuf| {
        let here = fs::read_link(process.join("cwd")).is_ok_and(|path| path == folder);
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        here && environment.split(|byte| *byte == 0).any(|one| one == wanted.as_bytes())
    };
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let found: Vec<PathBuf> = processes.filter(is_rank).collect();
    assert_eq!(found.len(), 1, "number of processes of rank {rank}");
    found[0].clone()
}

/// Sends a signal to the measuring process of a rank.
#[track_caller]
pub fn signal_rank(signal: &str, rank: &str, place: &Place) {
    let process = process_of_rank(rank, place);
    let kill = Command::new("kill").args(["-s", signal]).arg(process.file_name().unwrap()).status();
    assert!(kill.unwrap().success());
}

/// Asserts that the counts of the only trial are the sums over its four ranks, and that each rank
/// moved `each` bytes.
#[track_caller]
pub fn is_sum_of_its_ranks(document: &Value, each: u64) {
    let trial = &document["trials"][0];
    let ranks = list(&trial["ranks"]);
    assert_eq!(ranks.len(), 4, "{trial}");
    let sum = |field: &str| ranks.iter().map(|rank| whole(&rank[field])).sum::<u64>();
    for field in ["bytes", "requests", "errors"] {
        assert_eq!(whole(&trial[field]), sum(field), "{field}: {trial}");
    }
    assert_eq!(whole(&trial["cpu_ns"]["process"]), sum("cpu_process_ns"), "{trial}");
    assert!(ranks.iter().all(|rank| whole(&rank["bytes"]) == each), "{trial}");
}

/// Asserts that every stored trial has `count` ranks, that no rank was lost, and that the counts of
/// the trial are the sums over the ranks. Returns the number of trials.
#[track_caller]
pub fn stored_trials_are_sums(place: &Place, count: usize) -> usize {
    let mut trials = 0;
    for (_, trial) in place.stored_points().iter().flat_map(|point| &point.trials) {
        let ranks: Value = serde_json::from_str(trial.ranks_json.as_ref().unwrap()).unwrap();
        let ranks = list(&ranks);
        assert_eq!(ranks.len(), count, "{ranks:?}");
        assert!(ranks.iter().all(|rank| rank["lost"].is_null()), "{ranks:?}");
        let sum = |field: &str| ranks.iter().map(|rank| whole(&rank[field])).sum::<u64>();
        assert_eq!((trial.bytes, trial.requests), (sum("bytes"), sum("requests")), "{ranks:?}");
        trials += 1;
    }
    trials
}
