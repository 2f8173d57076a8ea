//! Tests `soak`: it must not disturb the command, must end with the exit code of the command, and
//! must give a lower and an upper bound of its CPU cost.
//!
//! Other programs also run on the machine, so the tests compare costs with wide margins and repeat
//! failed attempts.

use std::os::unix::process::CommandExt;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::fixture::{Place, list, or_skip, pause, real, whole};
use crate::json::Schema;

/// A shell command that keeps a CPU busy for one second of wall-clock time.
const BUSY: &str = "timeout 1 sh -c 'while :; do :; done'; true";

/// Maximum number of attempts, including those on a busy machine.
const MOMENTS: u32 = 12;

/// Number of failed attempts on a quiet machine after which a test fails. Single attempts may fail,
/// because a program that runs only in the middle of an attempt is not noticed.
const QUIET_MOMENTS: usize = 6;

/// Runs a shell script under `soak`. Tries again while another `soak` is running.
fn soaked(script: &str) -> Result<Value, String> {
    let place = Place::new();
    loop {
        let mut command = place.command("soak --settle 0.5 --json --");
        command.args(["sh", "-c", script]);
        let ended = place.start_command(command, "soak").ended().with_code(0);
        let document = ended.json();
        match document["declined"]["reason"].as_str() {
            None => return Ok(document),
            Some(reason) if reason.contains("another soaker") => pause(100),
            Some(reason) => return Err(reason.to_owned()),
        }
    }
}

/// Repeats a check until it succeeds. Panics after too many failures on a quiet machine. Returns an
/// error if `soak` cannot measure here, or if the machine is always busy.
fn in_some_attempt(script: &str, check: impl Fn(&Value) -> bool) -> Result<(), String> {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut seen = Vec::new();
    for _ in 0..MOMENTS {
        let document = soaked(script)?;
        let background = &document["background_cpus"];
        let (before, after) = (real(&background["before"]), real(&background["after"]));
        let cpus = real(&document["cpus"]);
        // Programs that start or end during the attempt count towards the upper bound, so the
        // attempt is discarded.
        if before.max(after) > 0.6 * cpus || (before - after).abs() > 0.15 * cpus {
            continue;
        }
        if check(&document) {
            return Ok(());
        }
        seen.push(document);
        assert!(seen.len() < QUIET_MOMENTS, "{seen:#?}");
    }
    Err("other programs keep the machine busy".to_owned())
}

fn bounds(document: &Value) -> (f64, f64) {
    (real(&document["cpu_ns"]["lower"]), real(&document["cpu_ns"]["upper"]))
}

#[test]
fn a_busy_loop_lies_between_its_bounds() {
    or_skip!(in_some_attempt(BUSY, |document| {
        let (lower, upper) = bounds(document);
        let elapsed = real(&document["elapsed_ns"]);
        lower > 0.3 * elapsed && lower <= 1.05 * elapsed && upper >= lower && upper < 1.8 * lower
    }));
}

#[test]
fn a_sleeping_command_costs_next_to_nothing() {
    or_skip!(in_some_attempt("sleep 1", |document| {
        let (lower, upper) = bounds(document);
        let elapsed = real(&document["elapsed_ns"]);
        lower < 0.05 * elapsed && upper < 0.3 * elapsed
    }));
}

#[test]
fn work_left_to_a_process_of_its_own_is_in_both_bounds() {
    let script = format!("(setsid sh -c \"{BUSY}\" &) ; sleep 1.2");
    or_skip!(in_some_attempt(&script, |document| {
        let (lower, upper) = bounds(document);
        assert!(list(&document["left_running"]).is_empty(), "{document}");
        lower > 0.25 * real(&document["elapsed_ns"]) && upper >= lower
    }));
}

#[test]
fn a_process_that_is_left_running_is_named_and_goes_on() {
    let place = Place::new();
    let mut command = place.command("soak --unsoaked --json --");
    command.args(["sh", "-c", "setsid sleep 60 & exit 0"]);
    let ended = place.start_command(command, "soak").ended().with_code(0);
    let document = ended.json();
    let left = list(&document["left_running"]);
    assert_eq!(left.len(), 1, "{document}");
    let pid = whole(&left[0]["pid"]);
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).expect("it still runs");
    assert!(["sleep", "setsid", "sh"].contains(&name.trim()), "{name}");
    assert_eq!(document["verdict"]["state"], "suspect");
    assert!(document["verdict"]["reasons"][0].as_str().unwrap().contains("left a process running"));
    std::process::Command::new("kill").arg(pid.to_string()).status().unwrap();
}

#[test]
fn the_document_fits_its_schema_with_and_without_a_soaker() {
    let schema = Schema::of("soak");
    let place = Place::new();
    let unsoaked = place.does("soak --unsoaked --json -- true").json();
    schema.fits(&unsoaked);
    assert!(unsoaked["cpu_ns"]["upper"].is_null() && unsoaked["declined"]["reason"].is_string());
    let soaked = or_skip!(soaked("exit 0"));
    schema.fits(&soaked);
    assert!(soaked["cpu_ns"]["upper"].is_number() && soaked["declined"].is_null());
    assert_eq!(soaked["per_cpu"].as_array().unwrap().len() as u64, whole(&soaked["cpus"]));
    assert_eq!(soaked["command"][0], "sh");
}

#[test]
fn the_output_of_the_command_goes_through_untouched() {
    let place = Place::new();
    let ended = place.does("soak --unsoaked -- printf a\\nb");
    assert_eq!(ended.stdout, "a\nb");
    assert!(ended.stderr.contains("CPU lower bound"), "{ended}");
    let ended = place.does("soak --unsoaked --json -- echo hello");
    assert!(ended.stderr.contains("hello") && !ended.stdout.contains("\nhello"), "{ended}");
    assert_eq!(ended.json()["exit_code"], 0);
    assert_eq!(place.listing(), [""; 0]);
}

#[test]
fn it_ends_as_the_command_does() {
    let place = Place::new();
    for (script, code) in [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill $$", 143)] {
        let mut command = place.command("soak --unsoaked --");
        command.args(["sh", "-c", script]);
        let ended = place.start_command(command, script).ended().with_code(code);
        assert!(ended.stderr.contains("CPU lower bound"), "{ended}");
    }
    place.file("data", 10);
    place.halfpower("soak --unsoaked -- no-such-program").with_code(127).says("not found", "PATH");
    place.halfpower("soak --unsoaked -- ./data").with_code(126).says("permission", "chmod");
    place.halfpower("soak").with_code(2);
    place.halfpower("soak --settle 0 -- true").with_code(2).says("--settle 0", "at least");
}

#[test]
fn an_interrupt_of_both_ends_the_command_and_is_reported() {
    let place = Place::new();
    let mut command = place.command("soak --unsoaked -- sh -c");
    command.arg("echo begun >&2; exec sleep 60").process_group(0);
    let mut running = place.start_command(command, "soak");
    running.until_it_says("begun");
    let group = format!("kill -INT -{}", running.child.id());
    std::process::Command::new("sh").args(["-c", &group]).status().unwrap();
    let ended = running.ended().with_code(130);
    assert!(ended.stderr.contains("ended by signal 2"), "{ended}");
    assert!(ended.stderr.contains("CPU lower bound"), "{ended}");
}

#[test]
fn the_command_is_not_moved_with_the_spinners() {
    let document = or_skip!(soaked(
        "case $(cat /proc/self/cgroup) in *halfpower-soaker*) exit 1;; esac; \
         test \"$(sed -n 's/^policy[^0-9]*//p' /proc/self/sched)\" != 5"
    ));
    assert_eq!(document["exit_code"], 0);
}

#[test]
fn a_plan_runs_nothing() {
    let place = Place::new();
    let ended = place.does("soak --plan -- touch made");
    assert!(ended.stdout.contains("run touch made; nothing was done"), "{ended}");
    assert_eq!(place.listing(), [""; 0]);
}
