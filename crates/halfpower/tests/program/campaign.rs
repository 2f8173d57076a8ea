//! Tests that take minutes. They run only with `./test --all`.
//!
//! They check that the default survey keeps its time budget, that memory use does not grow in ten
//! minutes, and that a hundred kills at different moments lose no finished trial.

use std::fs;

use results::RunState;

use crate::fixture::{MIB, Place, pause, real, whole};

/// Returns the peak memory use of a process so far (bytes).
fn peak_memory_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

#[test]
#[ignore = "takes two minutes"]
fn the_default_survey_keeps_its_budget_and_its_limit_on_writes() {
    let place = Place::new();
    let document = place.document("survey .");
    place.is_tidy();
    assert!(real(&document["elapsed_ns"]) < 100e9, "{}", document["elapsed_ns"]);
    assert!(whole(&document["written_bytes"]) <= 16 << 30);
    assert_ne!(document["verdict"]["state"], "invalid", "{}", document["verdict"]);
}

#[test]
#[ignore = "takes ten minutes"]
fn memory_stays_flat_for_ten_minutes_at_the_highest_rate() {
    let place = Place::new();
    let line = "run --ioengine null --rw randrw --bs 4k --iodepth 32 --numjobs 2 --runtime 600 \
                --trials 1 --json";
    let mut running = place.start(line);
    let mut peak = 0;
    while running.child.try_wait().unwrap().is_none() {
        peak = peak.max(peak_memory_bytes(running.child.id()).unwrap_or(0));
        pause(1000);
    }
    let document = running.ended().with_code(0).json();
    // Any current machine completes more than 1e9 requests in ten minutes.
    assert!(whole(&document["trials"][0]["requests"]) > 1_000_000_000);
    assert!(peak < 64 * MIB + 2 * 32 * 4096, "{} MiB", peak / MIB);
}

#[test]
#[ignore = "takes several minutes"]
fn a_hundred_kills_lose_no_finished_trial_and_leave_nothing_that_clean_does_not_remove() {
    for moment in 0..100 {
        let place = Place::new();
        let line = "run . --size 4m --time-based --runtime 0.05 --trials 400";
        let mut running = place.start(line);
        running.until("the run has created a file", || !place.listing().is_empty());
        pause(moment * 7 % 400);
        let before = match place.path("halfpower.db").exists() {
            true => place.stored_trials_so_far(),
            false => 0,
        };
        running.signal("KILL");
        drop(running.ended());
        place.does("clean");
        place.is_tidy();
        if place.path("halfpower.db").exists() {
            assert!(place.stored_trials_so_far() >= before, "a finished trial was lost");
            place.does("run --ioengine null --runtime 0.01 --trials 1");
            let runs = place.store().runs().unwrap();
            assert!(runs.iter().all(|run| run.state != RunState::Running), "{runs:?}");
        }
    }
}
