//! Tests the program with MPI under Open MPI's mpirun: on one host, and on two simulated hosts
//! (network namespaces of this machine).
//!
//! The build with MPI overwrites the program that other tests start, because both builds use the
//! same target directory. These tests are therefore a separate test program. Before the first test
//! begins, the program without MPI is built again.
#![cfg(test)]

#[path = "program/fixture.rs"]
#[allow(dead_code)] // Only the test program `program` uses all of it.
mod fixture;
#[path = "program/rank_checks.rs"]
mod rank_checks;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use fixture::{Ended, MIB, Place, list, or_skip, root, wait_until, whole};
use rank_checks::{is_sum_of_its_ranks, process_of_rank, signal_rank, stored_trials_are_sums};
use results::RunState;
use serde_json::Value;

/// How far the clock of the second host is ahead of the clock of the first host (s).
const AHEAD_S: u64 = 5000;

fn output_of(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            let words = String::from_utf8_lossy(&output.stderr);
            Err(format!("{command:?}: {}", words.trim()))
        }
    }
}

// ---- the launcher and the program

/// Returns the name of Open MPI's mpirun. An error says how to install it.
fn mpirun() -> Result<&'static str, String> {
    let is_open_mpi = |name: &&str| {
        let version = output_of(Command::new(name).arg("--version"));
        version.is_ok_and(|text| text.contains("Open MPI"))
    };
    let found = ["mpirun.openmpi", "mpirun"].into_iter().find(|name| is_open_mpi(name));
    found.ok_or_else(|| "mpirun of Open MPI is missing (apt install openmpi-bin)".to_owned())
}

/// Builds the program with MPI and returns its path. An error says why the build is impossible
/// here.
fn program() -> Result<PathBuf, String> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    PROGRAM
        .get_or_init(|| {
            output_of(Command::new("mpicc").arg("--version"))
                .map_err(|_| "mpicc is missing (apt install libopenmpi-dev libclang-dev)")?;
            let built = Path::new(env!("CARGO_BIN_EXE_halfpower"));
            let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("halfpower-with-mpi");
            build(&["--features", "mpi"]);
            let _ = fs::remove_file(&copy);
            fs::hard_link(built, &copy).unwrap();
            build(&[]);
            Ok(copy)
        })
        .clone()
}

/// Builds the program with the same profile as this test.
fn build(flags: &[&str]) {
    let built = Path::new(env!("CARGO_BIN_EXE_halfpower"));
    let folder = built.parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--locked", "--package", "halfpower", "--bin", "halfpower"]).args(flags);
    cargo.arg("--target-dir").arg(folder.parent().unwrap());
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    output_of(&mut cargo).unwrap_or_else(|why| panic!("{why}"));
}

/// Sets the variables without which Open MPI refuses to run as root.
fn as_root(command: &mut Command) {
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
}

/// Returns the command `mpirun -n COUNT halfpower WORDS` with `place` as working directory.
fn launch(place: &Place, count: u32, words: &str) -> Result<Command, String> {
    let mut command = place.command_of(mpirun()?);
    as_root(&mut command);
    command.args(["--oversubscribe", "-n", &count.to_string()]).arg(program()?);
    command.args(words.split_whitespace());
    Ok(command)
}

/// Returns the document that rank 0 printed. Also accepts exit code 5 (invalid), because the
/// verdict of a short trial may be invalid.
#[track_caller]
fn document(ended: &Ended) -> Value {
    assert!([Some(0), Some(5)].contains(&ended.status.code()), "{ended}");
    ended.json()
}

/// Prints and returns the time from the start of the first rank to the start of the last rank (ns).
fn start_skew_ns(document: &Value) -> u64 {
    let skew_ns = whole(&document["trials"][0]["ranks_summary"]["start_skew_ns"]);
    eprintln!("start skew: {} us", skew_ns / 1000);
    skew_ns
}

/// Returns how many bytes a process has read from storage. `process` is its directory in /proc.
fn bytes_read(process: &Path) -> u64 {
    let text = fs::read_to_string(process.join("io")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: ")).unwrap();
    line.parse().unwrap()
}

#[test]
#[ignore = "builds the program with MPI"]
fn four_ranks_under_mpirun_add_up() {
    let place = Place::new();
    let words = "run . --mpi --rw write --bs 64k --size 8m --trials 1 --json --quiet";
    let ended = place.start_command(or_skip!(launch(&place, 4, words)), words).ended();
    let document = document(&ended);
    is_sum_of_its_ranks(&document, 8 << 20);
    start_skew_ns(&document);
    place.is_tidy();
    assert_eq!(place.listing(), ["halfpower.db"]);
}

#[test]
#[ignore = "builds the program with MPI"]
fn a_rank_that_is_killed_under_mpirun_leaves_a_report_of_the_others() {
    let place = Place::new();
    let words = "run . --mpi --rw randread --size 4m --time-based --runtime 5 --trials 60";
    let running = place.start_command(or_skip!(launch(&place, 4, words)), words);
    wait_until("a trial is stored", || place.stored_trials_so_far() > 0);
    // The rank is killed during a trial, so that only the other ranks have results of this trial.
    let read_so_far = || bytes_read(&process_of_rank("2/4", &place));
    let read_before = read_so_far();
    wait_until("the next trial runs", || read_so_far() > read_before + MIB);
    signal_rank("KILL", "2/4", &place);
    let ended = running.ended().with_code(1).prints("4 ranks on 1 host");
    let is_lost = |line: &str| line.starts_with("lost: rank 2 (") && line.contains("signal 9");
    assert!(ended.stdout.lines().any(is_lost), "{ended}");
    let points = place.stored_points();
    let (_, last) = points[0].trials.last().unwrap();
    let ranks: Value = serde_json::from_str(last.ranks_json.as_ref().unwrap()).unwrap();
    let present = list(&ranks).iter().filter(|rank| rank["lost"].is_null());
    let bytes: Vec<u64> = present.map(|rank| whole(&rank["bytes"])).collect();
    assert!(bytes.len() == 3 && bytes.iter().all(|bytes| *bytes > 0), "{ranks}");
    assert_eq!(last.bytes, bytes.iter().sum::<u64>());
    assert_eq!(place.stored_run().state, RunState::Failed);
}

#[test]
#[ignore = "builds the program with MPI"]
fn a_wrong_flag_under_mpirun_is_reported_once() {
    let place = Place::new();
    for (words, message) in [
        ("run . --mpi --depht 4", "unexpected argument '--depht'"),
        ("run . --mpi --rw sideways", "sideways"),
        ("study burst . --mpi", "study burst measures with one process"),
    ] {
        let ended = place.start_command(or_skip!(launch(&place, 4, words)), words).ended();
        assert_eq!(ended.status.code(), Some(2), "{ended}");
        assert_eq!(ended.stderr.matches(message).count(), 1, "{ended}");
    }
    place.is_tidy();
}

// ---- two hosts

/// Two simulated hosts: network namespaces that a virtual Ethernet link connects. Their host names
/// and clocks differ. Dropping this value removes them.
struct Hosts {
    names: [String; 2],
    /// Path of the script that mpirun calls in place of ssh.
    agent: PathBuf,
}

impl Hosts {
    fn new(place: &Place) -> Result<Hosts, String> {
        root()?;
        let time = ["--uts", "--time", "--fork", "--monotonic", &AHEAD_S.to_string(), "true"];
        output_of(Command::new("unshare").args(time))?;
        static MADE: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        // These are also the names of network interfaces, so they have at most 15 characters.
        let names = ["a", "b"].map(|letter| format!("hp{process}{letter}{number}"));
        let hosts = Hosts { names, agent: place.state().join("agent") };
        let [a, b] = &hosts.names;
        let script = format!(
            "#!/bin/sh\n# Arguments: a host, which is always the second one, and a command.\n\
             shift\n\
             exec ip netns exec {b} unshare --uts --time --fork --monotonic {AHEAD_S} \
             --boottime {AHEAD_S} sh -c \"echo {b} > /proc/sys/kernel/hostname; $*\"\n"
        );
        fs::write(&hosts.agent, script).unwrap();
        fs::set_permissions(&hosts.agent, Permissions::from_mode(0o755)).unwrap();
        for line in [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("link add {a} netns {a} type veth peer name {b} netns {b}"),
            format!("-n {a} addr add 10.77.77.1/30 dev {a}"),
            format!("-n {b} addr add 10.77.77.2/30 dev {b}"),
            format!("-n {a} link set lo up"),
            format!("-n {b} link set lo up"),
            format!("-n {a} link set {a} up"),
            format!("-n {b} link set {b} up"),
        ] {
            output_of(Command::new("ip").args(line.split_whitespace()))?;
        }
        Ok(hosts)
    }

    /// Runs `halfpower WORDS` on the two hosts. `each` is the number of ranks per host. mpirun runs
    /// on the first host.
    fn run(&self, place: &Place, each: u32, words: &str) -> Result<Ended, String> {
        let [first, _] = &self.names;
        let named = format!("echo {first} > /proc/sys/kernel/hostname; exec \"$@\"");
        let mut command = place.command_of("ip");
        as_root(&mut command);
        command.args(["netns", "exec", first, "unshare", "--uts", "sh", "-c", &named, "sh"]);
        command.arg(mpirun()?).args(["--oversubscribe", "--host"]);
        command.arg(format!("10.77.77.1:{each},10.77.77.2:{each}"));
        command.args(["-n", &(2 * each).to_string(), "--mca", "plm_rsh_agent"]).arg(&self.agent);
        for framework in ["oob_tcp_if_include", "btl_tcp_if_include"] {
            command.args(["--mca", framework, "10.77.77.0/30"]);
        }
        command.args(["-x", "HOME", "-x", "XDG_STATE_HOME"]).arg(program()?);
        command.args(words.split_whitespace());
        Ok(place.start_command(command, words).ended())
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            // The error is ignored, because the namespace may not exist.
            let _ = output_of(Command::new("ip").args(["netns", "del", name]));
        }
    }
}

#[test]
#[ignore = "builds the program with MPI"]
fn two_hosts_with_different_clocks_start_together_and_add_up() {
    let place = Place::new();
    or_skip!(program());
    let hosts = or_skip!(Hosts::new(&place));
    let words = "run . --mpi --rw write --bs 64k --size 8m --trials 1 --json --quiet";
    let ended = or_skip!(hosts.run(&place, 2, words));
    let document = document(&ended);
    is_sum_of_its_ranks(&document, 8 << 20);
    let ranks = list(&document["trials"][0]["ranks"]);
    let names: Vec<&str> = ranks.iter().map(|rank| rank["host"].as_str().unwrap()).collect();
    let [a, b] = hosts.names.each_ref().map(String::as_str);
    assert_eq!(names, [a, a, b, b]);
    assert_eq!(whole(&document["trials"][0]["ranks_summary"]["hosts"]), 2);
    // If the clocks were not compared, the ranks would start more than an hour apart.
    assert!(start_skew_ns(&document) < 1_000_000_000, "{ended}");
    place.is_tidy();
}

#[test]
#[ignore = "builds the program with MPI"]
fn a_survey_of_two_hosts_measures_both() {
    let place = Place::new();
    or_skip!(program());
    let hosts = or_skip!(Hosts::new(&place));
    let words = "survey . --mpi --budget 15s --size 8m --max-write 300m --json --quiet";
    let ended = or_skip!(hosts.run(&place, 1, words));
    let document = document(&ended);
    let [a, b] = &hosts.names;
    let text = format!("2 ranks on 2 hosts ({a}, {b})");
    let is_so = |finding: &Value| finding["text"].as_str().unwrap().starts_with(&text);
    assert!(list(&document["findings"]).iter().any(is_so), "{ended}");
    assert!(stored_trials_are_sums(&place, 2) > 0);
    place.is_tidy();
    assert_eq!(place.listing(), ["halfpower.db", "halfpower.html"]);
}
