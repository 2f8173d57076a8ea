//! Tests signals. After a signal at any moment, the database must be readable and contain every
//! finished trial, and `halfpower clean` must find every test file that was left behind.

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use results::{RunState, Store};
use serde_json::Value;

use crate::fixture::{Ended, Place, list, or_skip, pause, root, whole};

/// Asserts that an interrupted run left no test file. If there is a database, it must be readable
/// and mark the run as interrupted.
#[track_caller]
fn is_in_order(place: &Place, ended: &Ended) {
    place.is_tidy();
    if place.path("halfpower.db").exists() {
        assert_eq!(place.listing(), ["halfpower.db"], "{ended}");
        assert_eq!(place.stored_run().state, RunState::Interrupted, "{ended}");
    } else {
        assert_eq!(place.listing(), [""; 0], "{ended}");
    }
}

/// Returns the start times of a point's trials, without trials that completed no request.
fn reported(point: &Value) -> Vec<i64> {
    let counted = list(&point["trials"]).iter().filter(|trial| whole(&trial["requests"]) > 0);
    counted.map(|trial| trial["started_unix_ns"].as_i64().unwrap()).collect()
}

fn stored(place: &Place) -> Vec<Vec<i64>> {
    let points = place.stored_points();
    let starts = points.iter().map(|p| p.trials.iter().map(|(_, row)| row.started_unix_ns));
    starts.map(Iterator::collect).collect()
}

#[test]
fn an_interrupt_while_the_test_file_is_laid_out_removes_it() {
    let place = Place::new();
    let mut running = place.start("run . --size 1g --trials 1");
    running.until("the test file exists", || !place.strays().is_empty());
    running.signal("INT");
    let ended = running.ended().was_interrupted();
    assert_eq!(ended.stdout, "", "{ended}");
    is_in_order(&place, &ended);
}

#[test]
fn an_interrupt_in_the_first_trial_keeps_what_was_measured_of_it() {
    let place = Place::new();
    let mut running = place.start("run . --size 4m --time-based --runtime 30");
    running.until_it_says("3 trials of 30 s");
    pause(1000);
    running.signal("INT");
    let ended = running.ended().with_code(130);
    assert_eq!(ended.stdout.lines().count(), 1, "{ended}");
    is_in_order(&place, &ended);
    let points = place.stored_points();
    assert_eq!(points[0].trials.len(), 1);
    let (_, trial) = &points[0].trials[0];
    assert!(trial.requests > 0 && trial.verdict_reasons_json.contains("interrupted"), "{trial:?}");
}

#[test]
fn an_interrupt_between_trials_keeps_every_finished_one() {
    let place = Place::new();
    let line = "run . --size 1m --time-based --runtime 0.05 --trials 400 --json";
    let mut running = place.start(line);
    running.until("three trials are stored", || place.stored_trials_so_far() >= 3);
    running.signal("INT");
    let ended = running.ended().with_code(130);
    is_in_order(&place, &ended);
    let reported = reported(&ended.json());
    assert!((3..400).contains(&reported.len()), "{} trials", reported.len());
    assert_eq!(stored(&place), [reported]);
}

#[test]
fn an_interrupted_sweep_keeps_the_trials_of_every_point() {
    let place = Place::new();
    let line = "sweep . --bs 4k,8k --size 1m --time-based --runtime 0.05 --trials 200 --json";
    let mut running = place.start(line);
    running.until("five trials are stored", || place.stored_trials_so_far() >= 5);
    running.signal("TERM");
    let ended = running.ended().with_code(130);
    is_in_order(&place, &ended);
    let reported: Vec<Vec<i64>> = list(&ended.json()["points"]).iter().map(reported).collect();
    assert_eq!(stored(&place), reported);
}

#[test]
fn under_nohup_the_end_of_the_terminal_does_not_end_a_run() {
    let place = Place::new();
    let line = "run . --size 4m --time-based --runtime 30 --trials 1";
    let mut command = place.command_of("nohup");
    let plain = place.command(line);
    command.arg(plain.get_program()).args(plain.get_args());
    let mut running = place.start_command(command, line);
    running.until_it_says("1 trial of 30 s");
    running.signal("HUP");
    pause(500);
    assert!(running.child.try_wait().unwrap().is_none(), "SIGHUP ended the run");
    running.signal("INT");
    is_in_order(&place, &running.ended().with_code(130));
}

#[test]
fn an_interrupt_at_any_moment_leaves_order() {
    for milliseconds in [0, 5, 10, 20, 40, 80, 160, 320] {
        let place = Place::new();
        let line = "run . --rw randrw --iodepth 4 --size 16m --time-based --runtime 5 --json";
        let running = place.start(line);
        pause(milliseconds);
        running.signal("INT");
        let ended = running.ended().was_interrupted();
        is_in_order(&place, &ended);
        if ended.stdout.is_empty() {
            continue;
        }
        assert_eq!(stored(&place), [reported(&ended.json())], "{ended}");
    }
}

#[test]
fn an_interrupt_as_soon_as_a_file_appears_is_not_lost_and_leaves_order() {
    for _ in 0..100 {
        let place = Place::new();
        let running = place.start("run . --rw randrw --size 16m --time-based --runtime 1");
        // The shell is started before the test file appears. It waits for a line of input, so that
        // it can then send the signal at once.
        let kill = format!("read order; kill -INT {}", running.child.id());
        let mut shell = Command::new("sh");
        let mut shell = shell.args(["-c", &kill]).stdin(Stdio::piped()).spawn().unwrap();
        while fs::read_dir(place.path(".")).unwrap().next().is_none() {}
        shell.stdin.take().unwrap().write_all(b"now\n").unwrap();
        is_in_order(&place, &running.ended().was_interrupted());
        assert!(shell.wait().unwrap().success());
    }
}

#[test]
fn an_interrupted_buffered_write_and_an_open_loop_end_in_order() {
    for flags in ["--rw write --direct=0", "--rate-iops 1", "--ioengine threads --iodepth 4"] {
        let place = Place::new();
        let mut running =
            place.start(&format!("run . --size 8m --time-based --runtime 30 {flags}"));
        running.until_it_says("3 trials of 30 s");
        pause(500);
        running.signal("HUP");
        let ended = running.ended().with_code(130);
        is_in_order(&place, &ended);
    }
}

#[test]
fn a_second_interrupt_ends_the_program_at_once() {
    let place = Place::new();
    // The output is larger than a pipe buffer, so the program cannot end while nobody reads it.
    let axes = "--bs 4k..1m --iodepth 1..32 --runtime 0.002 --trials 1";
    let line = format!("sweep --ioengine null {axes} --json");
    let mut command = place.command(&line);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let kill = |child: &std::process::Child| {
        let line = format!("kill -INT {}", child.id());
        assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
    };
    crate::fixture::wait_until("everything is measured", || {
        let store = Store::open_read_only(place.path("halfpower.db"));
        let run = store.and_then(|store| store.run("latest"));
        run.is_ok_and(|run| run.state == RunState::Finished)
    });
    pause(100);
    kill(&child);
    pause(100);
    assert!(child.try_wait().unwrap().is_none(), "the first interrupt ended the program");
    kill(&child);
    let mut status = None;
    crate::fixture::wait_until("the program has ended", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().signal(), Some(2));
}

#[test]
fn what_a_killed_run_left_is_removed_by_clean_and_its_trials_are_kept() {
    let place = Place::new();
    let line = "run . --size 1m --time-based --runtime 0.05 --trials 400";
    let mut running = place.start(line);
    running.until("two trials are stored", || place.stored_trials_so_far() >= 2);
    let stray = place.strays();
    assert_eq!(stray.len(), 1);

    // During the run, its test file is in use.
    let ended = place.does("clean");
    assert!(ended.stdout.contains("in use"), "{ended}");
    assert_eq!(place.strays(), stray);

    running.signal("KILL");
    running.ended();
    assert_eq!(place.strays(), stray);

    let plan = place.does("clean --plan");
    assert!(plan.stdout.contains("remove") && plan.stdout.contains(&stray[0]), "{plan}");
    assert_eq!(place.strays(), stray);

    let ended = place.does("clean");
    assert!(ended.stdout.contains("removed") && ended.stdout.contains(&stray[0]), "{ended}");
    place.is_tidy();
    assert!(place.does("clean").stdout.contains("nothing to clean"));

    // The next run marks the killed run as interrupted.
    assert!(place.stored_trials_so_far() >= 2);
    place.does("run --ioengine null --runtime 0.02 --trials 1");
    let states: Vec<RunState> = place.store().runs().unwrap().iter().map(|run| run.state).collect();
    assert_eq!(states, [RunState::Finished, RunState::Interrupted]);
}

#[test]
fn clean_in_another_namespace_of_processes_leaves_a_file_in_use() {
    or_skip!(root());
    let place = Place::new();
    let clean = || {
        let clean = place.command("clean");
        let mut elsewhere = Command::new("unshare");
        elsewhere.args(["--pid", "--fork", "--mount-proc"]).arg(clean.get_program()).arg("clean");
        for (name, value) in clean.get_envs() {
            value.iter().for_each(|value| _ = elsewhere.env(name, value));
        }
        place.start_command(elsewhere, "clean (in another namespace)").ended()
    };
    let nothing = clean();
    or_skip!(nothing.status.success().then_some(()).ok_or(nothing.stderr));
    let mut running = place.start("run . --size 1m --time-based --runtime 60");
    running.until_it_says("3 trials of 60 s");
    let stray = place.strays();
    let ended = clean().with_code(0);
    assert!(ended.stdout.contains("in use"), "{ended}");
    assert_eq!(place.strays(), stray);
    running.signal("KILL");
    running.ended();
    let ended = clean().with_code(0);
    assert!(ended.stdout.contains("removed"), "{ended}");
    place.is_tidy();
}

#[test]
fn clean_does_not_remove_a_file_that_took_the_place_of_the_stray() {
    let place = Place::new();
    let mut running = place.start("run . --size 1m --time-based --runtime 30");
    running.until_it_says("3 trials of 30 s");
    running.signal("KILL");
    running.ended();
    let stray = place.path(&place.strays()[0]);
    let precious = place.file("precious", 100);
    fs::rename(precious, &stray).unwrap();
    place.does("clean");
    assert_eq!(fs::metadata(&stray).unwrap().len(), 100, "a file of the user was removed");
    assert_eq!(place.journal(), [""; 0]);
}
