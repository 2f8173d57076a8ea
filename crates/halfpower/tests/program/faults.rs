//! Tests one fault of each kind. The fault must be detected, reported and stored, and no data may
//! be lost. `cargo xtask faults` tests more faults, each many times.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};

use results::{RunState, Store, Verdict};

use crate::fixture::{KIB, MIB, Place, Running, noise, or_skip, pause, temporary_folder, whole};
use crate::volume::{LoopDevice, Volume};

const SHORT: &str = "--bs 64k --size 1m --trials 1 --quiet";

/// Waits until a run is in its first trial.
#[track_caller]
fn measures(place: &Place, running: &mut Running) {
    running.until("the first trial runs", || {
        let store = Store::open_read_only(place.path("halfpower.db"));
        store.and_then(|store| store.run("latest")).is_ok()
    });
    pause(1500);
}

// ---- injected faults

#[test]
fn a_failing_request_is_named_and_the_run_is_stored_as_failed() {
    for (flags, cause) in [
        ("--rw read --inject read-eio@7", "reading at offset 458752: input/output error"),
        ("--rw write --inject write-enospc@3", "writing at offset 196608: no space left"),
        ("--rw read --inject eagain@2x1000000000", "reading at offset 131072: resource"),
        ("--rw read --inject twice@9", "the read at offset 589824 was completed twice"),
    ] {
        let place = Place::new();
        let ended = place.halfpower(&format!("run . {SHORT} {flags}")).with_code(1);
        assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
        assert_eq!(ended.says(cause, "; ").stdout, "");
        assert_eq!(place.stored_run().state, RunState::Failed);
        place.is_tidy();
    }
}

#[test]
fn what_a_driver_asks_to_be_done_again_is_done_again_and_counted() {
    let place = Place::new();
    let faults = "write-short:4k@3x5,write-eagain@20x1000,write-late:3@1030x5";
    let line = format!("run . --rw write {SHORT} --iodepth 8 --verify --inject {faults}");
    let trial = &place.document(&line)["trials"][0];
    assert_eq!(whole(&trial["bytes"]), MIB);
    assert_eq!((whole(&trial["short_transfers"]), whole(&trial["retries"])), (5, 1000));
}

#[test]
fn a_device_that_lies_about_writes_is_found_out_and_the_record_says_so() {
    for (fault, offset) in
        [("flip", 360_448), ("lose", 327_680), ("misdirect:128k", 327_680), ("tear", 360_448)]
    {
        let place = Place::new();
        let line = format!("run . --rw write {SHORT} --verify --inject write-{fault}@5 --json");
        let ended = place.halfpower(&line).with_code(4);
        let ended = ended.says("verification failed", &format!("offset {offset}"));
        assert_eq!(ended.json()["verdict"]["state"], "invalid", "{ended}");
        let run = place.stored_run();
        assert_eq!((run.state, run.verdict), (RunState::Failed, Some(Verdict::Invalid)));
        assert!(run.verdict_reasons_json.contains("verification failed"), "{run:?}");
        place.is_tidy();
    }
}

#[test]
fn a_lost_write_over_whole_blocks_is_an_earlier_writing() {
    let place = Place::new();
    place.file("data", MIB);
    let line = format!("run data --overwrite=data --rw write {SHORT} --verify");
    place.does(&line);
    let ended = place.halfpower(&format!("{line} --seed 7 --inject write-lose@5")).with_code(4);
    ended.says("offset 327680", "a later write to this block was lost");
}

#[test]
fn a_stall_is_the_greatest_latency() {
    let place = Place::new();
    let document = place.document(&format!("run . {SHORT} --inject hang:300ms@4"));
    assert!(whole(&document["trials"][0]["latency_ns"]["max"]) >= 300_000_000);
}

// ---- devices

/// A file that another process serves over FUSE.
struct Served {
    server: Child,
    folder: tempfile::TempDir,
}

impl Served {
    fn new(place: &Place, flags: &str) -> Result<Served, String> {
        let folder = temporary_folder();
        let line = format!("mount truth:fixed=200us {} --size 1m {flags}", folder.path().display());
        let mut command = place.command(&line);
        let mut server = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut first = [0];
        match server.stdout.as_mut().unwrap().read(&mut first) {
            Ok(1) => Ok(Served { server, folder }),
            _ => Err(format!("no FUSE here: {}", server.wait().unwrap())),
        }
    }

    fn file(&self) -> String {
        self.folder.path().join("device").display().to_string()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = Command::new("umount").arg("--lazy").arg(self.folder.path()).status();
    }
}

#[test]
fn a_device_that_goes_away_ends_the_run() {
    let place = Place::new();
    let mut device = or_skip!(Served::new(&place, ""));
    let line = format!("run {} --time-based --runtime 60 --allow-holes --quiet", device.file());
    let mut running = place.start(&line);
    measures(&place, &mut running);
    device.server.kill().unwrap();
    running.ended().with_code(1).says("reading at offset", "the device disappeared");
    assert_eq!(place.stored_run().state, RunState::Failed);
}

#[test]
fn a_target_that_is_cut_while_it_is_measured_is_reported() {
    let place = Place::new();
    let data = place.file("data", 4 * MIB);
    let mut running = place.start("run data --time-based --runtime 60 --quiet");
    measures(&place, &mut running);
    fs::File::options().write(true).open(data).unwrap().set_len(MIB).unwrap();
    running.ended().with_code(1).says("reading at offset", "it shrank");
}

#[test]
fn a_device_that_promises_more_than_it_has_ends_the_run() {
    let volume = or_skip!(Volume::new(32 * MIB));
    let image = volume.folder().join("image");
    fs::File::create(&image).unwrap().set_len(64 * MIB).unwrap();
    let device = or_skip!(LoopDevice::of(&image));
    let (place, path) = (Place::new(), device.path());
    let line = format!("run {path} --destroy-data-on={path} --rw write --bs 256k --size 64m -q");
    place.halfpower(&line).with_code(1).says("writing at offset", "; ");
    assert_eq!(place.stored_run().state, RunState::Failed);
}

#[test]
fn a_test_file_on_a_file_system_that_was_unmounted_is_cleaned_when_it_is_back() {
    let volume = or_skip!(Volume::new(48 * MIB));
    let place = Place::new();
    let folder = volume.folder().display();
    let line = format!("run {folder} --size 1m --time-based --runtime 6 --trials 1 --quiet");
    let mut running = place.start(&line);
    measures(&place, &mut running);
    or_skip!(volume.is_taken_away());
    running.ended().with_code(0);
    assert!(place.does("clean").stdout.contains("absent"));
    or_skip!(volume.is_back());
    assert_eq!(Place::within(volume.folder()).strays().len(), 1);
    assert!(place.does("clean").stdout.contains("removed"));
    Place::within(volume.folder()).is_tidy();
    place.is_tidy();
}

#[test]
fn two_runs_do_not_write_one_device_at_once() {
    let device = or_skip!(LoopDevice::new(4 * MIB));
    let (first, second, path) = (Place::new(), Place::new(), device.path());
    let line = format!(
        "run {path} --destroy-data-on={path} --rw write --time-based --runtime 6 --trials 1 -q"
    );
    let mut running = first.start(&line);
    measures(&first, &mut running);
    second.cannot(&line).with_code(3).says("cannot be claimed", "; ");
    running.ended().with_code(0);
}

// ---- the database

#[test]
fn a_database_whose_file_system_fills_up_keeps_its_trials() {
    let volume = or_skip!(Volume::new(32 * MIB));
    let place = Place::within(volume.folder());
    place.does("run --ioengine null --runtime 0.01 --trials 2 --quiet");
    for room in [64 * KIB, 256 * KIB] {
        volume.fill_up(room);
        let line = "sweep --ioengine null --bs 4k,8k --runtime 0.002 --trials 3000 --quiet";
        place.halfpower(line).with_code(1).says("halfpower.db", "");
        fs::remove_file(volume.folder().join("filler")).unwrap();
        assert!(place.store().runs().unwrap().len() >= 2);
    }
    let runs = place.document("runs list");
    let first = runs.as_array().unwrap().last().unwrap();
    assert_eq!((first["points"].as_u64(), first["trials"].as_u64()), (Some(1), Some(2)));
    place.does("run --ioengine null --runtime 0.01 --trials 1 --quiet");
}

#[test]
fn a_database_that_was_cut_off_is_damaged_and_stays_as_it_is() {
    let place = Place::new();
    place.does("run --ioengine null --runtime 0.01 --trials 3 --quiet");
    let good = fs::read(place.path("halfpower.db")).unwrap();
    for length in [200, 4096, good.len() / 2, good.len() - 4096, good.len() - 1] {
        fs::write(place.path("halfpower.db"), &good[..length]).unwrap();
        let again = place.cannot("run --ioengine null --runtime 0.01 --trials 1 --quiet");
        again.with_code(1).says("is damaged", "move it away");
        place.cannot("runs list").with_code(1).says("is damaged", "move it away");
    }
    fs::write(place.path("halfpower.db"), noise(4096)).unwrap();
    place.cannot("runs list").with_code(1).says("not a halfpower database", "choose another");
}

// ---- limits

#[test]
fn a_limit_on_memory_is_found_out_before_anything_is_made() {
    let place = Place::new();
    let line = "run . --bs 8m --numjobs 64 --size 512m --quiet";
    let ended = place.halfpower_after("ulimit -v 400000", line).with_code(2);
    ended.says("(ulimit -v) leaves", "; raise that limit");
    assert!(!place.has_made_a_test_file());
}

/// A cgroup of version 1 with limits. Dropping this value removes the cgroup.
struct Group(std::path::PathBuf);

impl Group {
    /// Creates a cgroup of a version 1 controller. Each limit consists of the name of a control
    /// file and its value.
    fn new(controller: &str, limits: &[(&str, &str)]) -> Result<Group, String> {
        let name = format!("halfpower-test-{}-{controller}", std::process::id());
        let folder = std::path::Path::new("/sys/fs/cgroup").join(controller).join(name);
        let cannot = |error: std::io::Error| format!("no control groups: {error}; run as root");
        fs::create_dir(&folder).map_err(cannot)?;
        let group = Group(folder);
        for (file, value) in limits {
            fs::write(group.0.join(file), value).map_err(cannot)?;
        }
        Ok(group)
    }

    fn entered(&self) -> String {
        format!("echo $$ > {}/cgroup.procs", self.0.display())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel removes ended processes from the cgroup with a delay.
        for _ in 0..50 {
            if fs::remove_dir(&self.0).is_ok() {
                break;
            }
            pause(20);
        }
    }
}

#[test]
fn the_memory_limit_of_a_control_group_is_kept_or_named() {
    let limit = [("memory.limit_in_bytes", "67108864")];
    let mut group = or_skip!(Group::new("memory", &limit));
    let place = Place::new();
    let line = "run . --bs 16m --iodepth 8 --size 256m --quiet --no-store";
    let ended = place.halfpower_after(&group.entered(), line).with_code(2);
    ended.says("the memory limit of the control group", "use a smaller --bs");
    for line in [
        "run . --bs 1m --iodepth 8 --size 64m --runtime 0.2 --trials 1 --quiet --no-store",
        "survey . --budget 5s --size 64m --quiet --no-store",
        "tune . --size 64m --quiet --no-store",
    ] {
        // The kernel frees the buffers of an io_uring ring some time after its process has ended.
        // Each command line gets a new cgroup, because a used cgroup may have no memory left.
        drop(group);
        group = or_skip!(Group::new("memory", &limit));
        let ended = place.halfpower_after(&group.entered(), line);
        // A short survey may be invalid (exit code 5), but it must not be killed.
        assert!(matches!(ended.status.code(), Some(0 | 5)), "{ended}");
    }
    place.is_tidy();
}

#[test]
fn a_cpu_quota_of_a_control_group_is_named_in_the_verdict() {
    let limits = [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "5000")];
    let group = or_skip!(Group::new("cpu", &limits));
    let place = Place::new();
    let line = "run . --rw randread --iodepth 32 --size 16m --time-based --runtime 1 --trials 1 \
                --no-store --json --quiet";
    let document = place.halfpower_after(&group.entered(), line).with_code(0).json();
    let verdict = &document["verdict"];
    assert_eq!(verdict["state"], "suspect", "{verdict}");
    assert!(verdict["reasons"].to_string().contains("CPU quota of the control group (0.05 CPUs)"));
}

#[test]
fn a_limit_on_requests_of_the_own_control_group_is_named_in_the_verdict() {
    let device = or_skip!(LoopDevice::new(64 << 20));
    let number = fs::read_to_string(device.path().replacen("/dev/", "/sys/block/", 1) + "/dev");
    // The limit is so low that it is the bottleneck even on a busy machine.
    let limit = format!("{} 1000000", number.unwrap().trim());
    let group = or_skip!(Group::new("blkio", &[("blkio.throttle.read_bps_device", &limit)]));
    let place = Place::new();
    let line = format!(
        "run {} --bs 16k --size 64m --runtime 2 --trials 2 --direct=1 --no-store --json --quiet",
        device.path()
    );
    // On a busy machine the throughput may stay below the limit for a while, so the run is
    // repeated.
    let mut seen = Vec::new();
    let is_named = (0..5).any(|_| {
        let document = place.halfpower_after(&group.entered(), &line).with_code(0).json();
        let verdict = &document["verdict"];
        assert_eq!(verdict["state"], "suspect", "{verdict}");
        seen.push(verdict.to_string());
        seen.last().is_some_and(|text| text.contains("control group limits reads to 1 MB/s"))
    });
    assert!(is_named, "{seen:?}");
    // Outside of the cgroup, the limit does not apply.
    let document = place.document(&line.replace("--json", ""));
    assert!(!document["verdict"].to_string().contains("control group"), "{document}");
}

#[test]
fn too_many_open_files_are_called_so() {
    for count in 5..9 {
        let place = Place::new();
        let ended = place.halfpower_after(&format!("ulimit -n {count}"), "run . --size 1m --quiet");
        if ended.status.code() != Some(0) {
            ended.with_code(1).says("too many open files", "ulimit -n");
        }
        place.is_tidy();
    }
}
