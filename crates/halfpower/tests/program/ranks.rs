//! Several ranks: real processes whose relays are threads of this test and exchange messages over
//! channels instead of MPI.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use lab::interrupt::Interrupt;
use lab::ranks::relay::{Ended, Transport, carry};
use results::RunState;
use serde_json::Value;

use crate::fixture::{Place, list, wait_until, whole};

/// A relay's end of the channels to all relays.
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

    fn send(&mut self, to: u32, message: &[u8]) {
        // A relay that has ended hears nothing, as with MPI.
        let _ = self.senders[to as usize].send((self.rank, message.to_vec()));
    }

    fn receive(&mut self) -> Option<(u32, Vec<u8>)> {
        self.inbox.try_recv().ok()
    }
}

/// Runs a command on several ranks; `change` alters the command line of each, and `beside` runs
/// meanwhile. Returns how rank 0 ended and what it printed.
fn on_ranks(
    count: u32,
    place: &Place,
    words: &str,
    change: impl Fn(u32, &mut Command),
    beside: impl FnOnce(),
) -> (Ended, String) {
    let (senders, inboxes): (Vec<_>, Vec<_>) = (0..count).map(|_| channel()).unzip();
    let output = tempfile::NamedTempFile::new().unwrap();
    let first = thread::scope(|scope| {
        let relays: Vec<_> = (0..)
            .zip(inboxes)
            .map(|(rank, inbox)| {
                let mut channels = Channels { rank, senders: senders.clone(), inbox };
                let mut command = place.command(words);
                if rank == 0 {
                    command.stdout(append(output.path())).stderr(append(output.path()));
                } else {
                    command.args(["--no-store", "--quiet"]);
                }
                change(rank, &mut command);
                scope.spawn(move || carry(&mut channels, &mut command, &Interrupt::default()))
            })
            .collect();
        beside();
        let ended = relays.into_iter().map(|relay| relay.join().unwrap().unwrap());
        ended.collect::<Vec<_>>().remove(0)
    });
    (first, fs::read_to_string(output.path()).unwrap())
}

/// A file opened for appending, so that two streams do not overwrite each other.
fn append(path: &Path) -> File {
    File::options().append(true).open(path).unwrap()
}

/// The only document that rank 0 printed with `--json --quiet`.
#[track_caller]
fn document(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Kills the measuring process of a rank.
fn kill_rank(rank: &str, place: &Place) {
    let folder = place.path(".").canonicalize().unwrap();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let here = fs::read_link(process.path().join("cwd")).is_ok_and(|path| path == folder);
        let environment = fs::read(process.path().join("environ")).unwrap_or_default();
        let wanted = format!("HALFPOWER_RANK={rank}");
        let is_rank = environment.split(|byte| *byte == 0).any(|one| one == wanted.as_bytes());
        if here && is_rank {
            let pid = process.file_name();
            assert!(Command::new("kill").arg("-9").arg(pid).status().unwrap().success());
        }
    }
}

/// Asserts that the counts of the only trial are the sums over its four ranks, each of which moved
/// `each` bytes.
#[track_caller]
fn is_sum_of_its_ranks(document: &Value, each: u64) {
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
        // All blocks are written, and as many bytes were written as the file has.
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
        kill_rank("2/4", &place);
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
fn what_cannot_run_on_ranks_says_so() {
    let place = Place::new();
    for words in ["survey . --mpi", "study basics . --mpi", "simulate --system rack --mpi"] {
        place.cannot(words).with_code(2);
    }
    let ended = place.cannot("run . --rank-files segmented").with_code(2);
    assert!(ended.stderr.contains("add --mpi"), "{ended}");
}
