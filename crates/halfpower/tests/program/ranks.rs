//! Tests runs with several ranks. Each rank is a real process. Threads of the test relay the
//! messages over channels instead of MPI.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use lab::interrupt::Interrupt;
use lab::ranks::relay::{Ended, Transport, carry};
use results::RunState;
use serde_json::Value;

use crate::fixture::{Place, list, or_skip, wait_until, whole};
use crate::network::served;
use crate::rank_checks::{is_sum_of_its_ranks, signal_rank, stored_trials_are_sums};

/// The channels of a relay: one to each relay for sending, and one for receiving.
struct Channels {
    rank: u32,
    senders: Vec<Sender<(u32, Vec<u8>)>>,
    inbox: Receiver<(u32, Vec<u8>)>,
}

impl Transport for Channels {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn count(&self) -> u32 {
        self.senders.len() as u32
    }

    fn send(&mut self, to: u32, message: &[u8], _: &mut dyn FnMut() -> Option<u8>) {
        // As with MPI, messages to a relay that has ended are lost without an error.
        let _ = self.senders[to as usize].send((self.rank, message.to_vec()));
    }

    fn receive(&mut self) -> Option<(u32, Vec<u8>)> {
        self.inbox.try_recv().ok()
    }
}

/// Runs a command on several ranks. `change` alters the command of each rank. `beside` runs at the
/// same time. Returns the exit status and the output of rank 0.
pub fn on_ranks(
    count: u32,
    place: &Place,
    words: &str,
    change: impl Fn(u32, &mut Command),
    beside: impl FnOnce(),
) -> (Ended, String) {
    let (mut ended, text) = on_all_ranks(count, place, words, change, beside);
    (ended.remove(0), text)
}

/// Like [`on_ranks`], but returns the exit status of each rank.
fn on_all_ranks(
    count: u32,
    place: &Place,
    words: &str,
    change: impl Fn(u32, &mut Command),
    beside: impl FnOnce(),
) -> (Vec<Ended>, String) {
    let (senders, inboxes): (Vec<_>, Vec<_>) = (0..count).map(|_| channel()).unzip();
    let output = tempfile::NamedTempFile::new().unwrap();
    let ended = thread::scope(|scope| {
        let relays: Vec<_> = (0..)
            .zip(inboxes)
            .map(|(rank, inbox)| {
                let mut channels = Channels { rank, senders: senders.clone(), inbox };
                let mut command = place.command(words);
                change(rank, &mut command);
                if rank == 0 {
                    command.stdout(append(output.path())).stderr(append(output.path()));
                } else {
                    command.args(["--no-store", "--quiet"]);
                }
                scope.spawn(move || carry(&mut channels, &mut command, &Interrupt::default()))
            })
            .collect();
        beside();
        relays.into_iter().map(|relay| relay.join().unwrap().unwrap()).collect()
    });
    (ended, fs::read_to_string(output.path()).unwrap())
}

/// Opens a file for appending, so that several writers do not overwrite each other.
fn append(path: &Path) -> File {
    File::options().append(true).open(path).unwrap()
}

/// Parses the JSON document that rank 0 printed.
#[track_caller]
fn document(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn merged_counts_are_the_sums_of_the_ranks_and_only_rank_0_stores() {
    let place = Place::new();
    let words = "run . --mpi --rw write --bs 64k --size 8m --trials 1 --json --quiet";
    let (ended, text) = on_ranks(4, &place, words, |_, _| {}, || {});
    assert!(ended.all_alive && [0, 5].contains(&ended.code), "{ended:?}: {text}");
    is_sum_of_its_ranks(&document(&text), 8 << 20);
    place.is_tidy();
    assert_eq!(place.listing(), ["halfpower.db"]);
    assert_eq!(place.stored_points()[0].trials.len(), 1);
}

#[test]
fn ranks_that_share_a_file_write_each_block_of_it_once() {
    const BLOCK_BYTES: usize = 64 << 10;
    for files in ["segmented", "strided"] {
        let place = Place::new();
        fs::write(place.path("data"), vec![0; 128 * BLOCK_BYTES]).unwrap();
        let words = format!(
            "run data --overwrite data --mpi --rw write --bs 64k --size 8m --rank-files {files} \
             --trials 1 --json --quiet"
        );
        let (ended, text) = on_ranks(4, &place, &words, |_, _| {}, || {});
        assert!([0, 5].contains(&ended.code), "{files}: {ended:?}: {text}");
        // Each of the four ranks must write 2 MiB, and together they must write every block of the
        // file.
        is_sum_of_its_ranks(&document(&text), 2 << 20);
        let written = fs::read(place.path("data")).unwrap();
        assert_eq!(written.len(), 128 * BLOCK_BYTES);
        let mut blocks = written.chunks(BLOCK_BYTES);
        assert!(blocks.all(|block| block.iter().any(|byte| *byte != 0)), "{files}");
    }
}

#[test]
fn a_rank_that_is_killed_is_named_and_the_others_are_reported() {
    let place = Place::new();
    let words = "run . --mpi --rw randread --size 4m --time-based --runtime 1 --trials 60";
    let kill = || {
        wait_until("a trial is stored", || place.stored_trials_so_far() > 0);
        signal_rank("KILL", "2/4", &place);
    };
    let (ended, text) = on_ranks(4, &place, words, |_, _| {}, kill);
    assert_eq!(ended.code, 1, "{text}");
    assert!(text.contains("rank 2 (") && text.contains("killed by signal 9"), "{text}");
    assert!(text.contains("4 ranks on 1 host"), "{text}");
    for (_, trial) in &place.stored_points()[0].trials {
        let ranks: Value = serde_json::from_str(trial.ranks_json.as_ref().unwrap()).unwrap();
        let (lost, present): (Vec<_>, Vec<_>) =
            list(&ranks).iter().partition(|rank| rank["lost"].is_string());
        assert!(present.iter().all(|rank| whole(&rank["bytes"]) > 0), "{ranks}");
        assert_eq!(trial.bytes, present.iter().map(|r| whole(&r["bytes"])).sum::<u64>());
        assert!(lost.iter().all(|rank| rank["rank"] == 2) && lost.len() <= 1, "{ranks}");
    }
    assert_eq!(place.stored_run().state, RunState::Failed);
}

#[test]
fn a_rank_that_cannot_start_ends_the_run_with_its_reason() {
    let place = Place::new();
    let change = |rank: u32, command: &mut Command| {
        if rank == 1 {
            command.args(["--rw", "sideways"]);
        }
    };
    let words = "run . --mpi --size 4m --trials 1";
    let (ended, text) = on_ranks(2, &place, words, change, || {});
    assert_eq!(ended.code, 1, "{text}");
    assert!(text.contains("rank 1") && text.contains("exit code 2"), "{text}");
    place.is_tidy();
}

#[test]
fn ranks_that_would_measure_different_workloads_are_refused() {
    let place = Place::new();
    let change = |rank: u32, command: &mut Command| {
        if rank == 1 {
            command.args(["--bs", "8k"]);
        }
    };
    let words = "run . --mpi --size 4m --trials 1";
    let (ended, text) = on_ranks(2, &place, words, change, || {});
    assert_eq!(ended.code, 1, "{text}");
    assert!(text.contains("is about to measure") && text.contains("8 KiB"), "{text}");
    place.is_tidy();
}

#[test]
fn two_ranks_of_a_host_do_not_use_one_file_unless_they_share_it() {
    let place = Place::new();
    fs::write(place.path("data"), vec![1; 1 << 20]).unwrap();
    let words = "run data --mpi --bs 4k --trials 1 --no-store --json --quiet";
    let (ended, text) = on_ranks(2, &place, words, |_, _| {}, || {});
    assert_eq!(ended.code, 2, "{text}");
    assert!(text.contains("--rank-files segmented"), "{text}");
    fs::rename(place.path("data"), place.path("data.0")).unwrap();
    fs::write(place.path("data.1"), vec![1; 1 << 20]).unwrap();
    let words = words.replace("data", "data.{rank}") + " --runtime 1 --rank-shift 1";
    let (ended, text) = on_ranks(2, &place, &words, |_, _| {}, || {});
    assert!([0, 5].contains(&ended.code), "{text}");
    assert_eq!(list(&document(&text)["trials"][0]["ranks"]).len(), 2);
}

#[test]
fn ranks_may_read_one_target_of_a_server_but_not_write_it() {
    let (place, server) = or_skip!(served());
    let words = format!("run {} --mpi --bs 4k --size 1m --trials 1 --no-store", server.address);
    let (ended, text) = on_ranks(2, &place, &words, |_, _| {}, || {});
    assert!([0, 5].contains(&ended.code), "{text}");
    for further in ["", " --rank-files segmented"] {
        let write = format!("{words} --rw write {}{further}", server.overwrite());
        let (ended, text) = on_ranks(2, &place, &write, |_, _| {}, || {});
        assert_eq!(ended.code, 2, "{text}");
        assert!(text.contains("use {rank} in the target's name"), "{text}");
    }
}

#[test]
fn a_survey_of_ranks_measures_all_of_them_and_only_rank_0_writes() {
    let place = Place::new();
    let words = "survey . --mpi --budget 12s --size 8m --max-write 300m --json --quiet";
    let (ended, text) = on_all_ranks(3, &place, words, |_, _| {}, || {});
    let codes: Vec<u8> = ended.iter().map(|one| one.code).collect();
    assert!([0, 5].contains(&codes[0]) && codes[1..] == [0, 0], "{codes:?}: {text}");
    let document = document(&text);
    let findings = list(&document["findings"]);
    let ranks = findings.iter().find(|finding| finding["id"] == "ranks").unwrap();
    assert!(ranks["text"].as_str().unwrap().starts_with("3 ranks on 1 host"), "{ranks}");
    assert!(stored_trials_are_sums(&place, 3) > 0, "{text}");
    // Each rank writes its own test file. In total, no more than `--max-write` may be written.
    let written = whole(&document["written_bytes"]);
    assert!(((24 << 20)..=(300 << 20)).contains(&written), "{written}");
    place.is_tidy();
    assert_eq!(place.listing(), ["halfpower.db", "halfpower.html"]);
    assert_eq!(place.store().runs().unwrap().len(), 1);
}

#[test]
fn a_survey_keeps_what_it_measured_before_a_rank_was_killed() {
    let place = Place::new();
    let kill = || {
        wait_until("some trials are stored", || place.stored_trials_so_far() > 3);
        signal_rank("KILL", "1/3", &place);
    };
    let words = "survey . --mpi --budget 600s --size 8m";
    let (ended, text) = on_ranks(3, &place, words, |_, _| {}, kill);
    assert_eq!(ended.code, 1, "{text}");
    assert!(text.contains("these are partial results: rank 1 ("), "{text}");
    assert!(text.contains("killed by signal 9") && text.contains("Findings"), "{text}");
    assert_eq!(place.stored_run().state, RunState::Failed);
    assert!(stored_trials_are_sums(&place, 3) > 3);
    assert!(place.listing().contains(&"halfpower.html".to_owned()));
}

#[test]
fn competing_streams_are_those_of_all_ranks() {
    let place = Place::new();
    let words =
        "study competing . --mpi --quick --size 16m --runtime 0.2 --trials 2 --json --quiet";
    let (ended, text) = on_all_ranks(2, &place, words, |_, _| {}, || {});
    assert!([0, 5].contains(&ended[0].code) && ended[1].code == 0, "{ended:?}: {text}");
    // Each of the three streams is measured alone in two trials, which are stored. Trials with
    // several streams at once are not stored.
    assert_eq!(stored_trials_are_sums(&place, 2), 6);
    let document = document(&text);
    let readings = list(&document["studies"][0]["readings"]);
    let of = |mix: &str| {
        let is_rate =
            |reading: &&Value| reading["quantity"] == "rate" && reading["labels"]["mix"] == mix;
        readings.iter().filter(is_rate).count()
    };
    assert!(of("random + scan") >= 2 && of("random + scan + writer") >= 3, "{readings:?}");
    place.is_tidy();
    assert_eq!(place.listing(), ["halfpower-study.html", "halfpower.db"]);
}

#[test]
fn studies_that_only_run_their_plans_run_on_ranks() {
    let words = "--mpi --quick --size 16m --runtime 0.02 --trials 1 --json --quiet";
    let built_in = ["request-size", "depth", "hints", "write-through", "allocate", "mix", "zones"];
    for study in built_in.into_iter().chain(["mine.toml"]) {
        let place = Place::new();
        let plan = "title = 'Mine'\nasks = 'Which?'\nrw = 'randread'\nbs = ['4k', '8k']\n";
        fs::write(place.path("mine.toml"), plan).unwrap();
        let words = format!("study {study} . {words}");
        let (ended, text) = on_all_ranks(2, &place, &words, |_, _| {}, || {});
        assert!([0, 5].contains(&ended[0].code) && ended[1].code == 0, "{study}: {text}");
        assert!(document(&text)["studies"][0]["skipped"].is_null(), "{study}: {text}");
        assert!(stored_trials_are_sums(&place, 2) > 0, "{study}: {text}");
        place.is_tidy();
    }
}

#[test]
fn an_interrupt_of_one_rank_ends_the_survey_of_all_with_what_was_measured() {
    let place = Place::new();
    let interrupt = || {
        wait_until("some trials are stored", || place.stored_trials_so_far() > 3);
        signal_rank("INT", "1/2", &place);
    };
    let words = "survey . --mpi --budget 600s --size 8m";
    let (ended, text) = on_all_ranks(2, &place, words, |_, _| {}, interrupt);
    assert_eq!(ended[0].code, 130, "{text}");
    assert!(text.contains("interrupted: these are partial results"), "{text}");
    assert!(!text.contains("was lost"), "{text}");
    assert_eq!(place.stored_run().state, RunState::Interrupted);
    place.is_tidy();
}

#[test]
fn a_wrong_command_line_is_reported_by_one_rank_only() {
    let place = Place::new();
    let says = |words: &str, variables: &[(&str, &str)]| {
        let mut command = place.command(words);
        command.envs(variables.iter().copied());
        place.start_command(command, words).ended().with_code(2).stderr
    };
    let rank =
        |rank, local| [("OMPI_COMM_WORLD_RANK", rank), ("OMPI_COMM_WORLD_LOCAL_RANK", local)];
    // A wrong flag fails on all ranks, so only rank 0 reports it. Other errors may occur on one
    // host only (for example a missing plan file), so the first rank of each host reports them.
    for words in ["run . --mpi --depht 4", "run . --mpi --rw sideways"] {
        assert!(!says(words, &rank("0", "0")).is_empty(), "{words}");
        assert_eq!(says(words, &rank("2", "0")), "", "{words}");
    }
    let words = "study burst . --mpi";
    assert!(says(words, &rank("2", "0")).contains("one process"));
    assert_eq!(says(words, &rank("3", "1")), "");
    // Without `--mpi`, each process reports its own failure.
    assert!(!says("run . --depht 4", &rank("2", "1")).is_empty());
}

#[test]
fn what_cannot_run_on_ranks_says_so() {
    let place = Place::new();
    for words in ["study burst . --mpi", "study all . --mpi", "simulate --system rack --mpi"] {
        place.cannot(words).with_code(2);
    }
    let ended = place.cannot("study depth,engines . --mpi").with_code(2);
    assert!(ended.stderr.contains("study engines measures with one process"), "{ended}");
    let ended = place.cannot("run . --rank-files segmented").with_code(2);
    assert!(ended.stderr.contains("add --mpi"), "{ended}");
}
