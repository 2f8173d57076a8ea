//! Tests invalid command lines. Each must print one clear line with the remedy, end with the right
//! exit code, and change nothing.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use crate::fixture::{KIB, MIB, Place, list, or_skip, temporary_folder};
use crate::volume::Volume;

// ---- missing targets, and targets of the wrong type

#[test]
fn a_missing_path_is_not_created() {
    let place = Place::new();
    place.cannot("run missing").with_code(2).says("missing does not exist", "specify an existing");
    place.cannot("run missing --rw write").with_code(2).says("missing does not exist", "specify");
    place.cannot("run no/such/folder").with_code(2).says("does not exist", "specify an existing");
}

#[test]
fn a_missing_device_is_not_created() {
    let name = "/dev/halfpower-no-such-device";
    let place = Place::new();
    for rw in ["read", "write"] {
        let ended = place.cannot(&format!("run {name} --rw {rw} --size 1m"));
        ended.with_code(3).says("does not exist", "creates no files under /dev");
        assert!(!fs::exists(name).unwrap());
    }
}

#[test]
fn no_test_file_is_laid_out_under_dev() {
    let place = Place::new();
    let names = || {
        let mut names: Vec<_> =
            fs::read_dir("/dev").unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.retain(|name| name.to_string_lossy().contains("halfpower"));
        names
    };
    for folder in ["/dev", "/dev/", "/dev/shm/..", "/dev/../dev"] {
        let ended = place.cannot(&format!("run {folder} --rw write --size 1m"));
        ended.with_code(3).says("creates no files there", "use a block device");
    }
    assert!(names().is_empty(), "{:?}", names());
}

#[test]
fn no_test_file_is_laid_out_under_dev_through_a_link() {
    let place = Place::new();
    std::os::unix::fs::symlink("/dev", place.path("link")).unwrap();
    let ended = place.cannot("run link --rw write --size 64k");
    ended.with_code(3).says("creates no files there", "use a block device");
}

#[test]
fn what_is_neither_file_nor_device_is_no_target() {
    let ended = Place::new().cannot("run /dev/null");
    ended.with_code(2).says("neither a file nor a block device", "specify a regular file");
}

#[test]
fn a_directory_where_a_device_was_meant_is_pointed_out() {
    let place = Place::new();
    let folder = place.path("folder");
    fs::create_dir(&folder).unwrap();
    // `--destroy-data-on` is for block devices, but the target is a directory.
    let line = format!("run folder --rw write --size 1m --destroy-data-on={}", folder.display());
    place.cannot(&line).with_code(3).says("directory", "block device");
}

#[test]
fn a_file_smaller_than_asked_is_not_extended() {
    let place = Place::new();
    place.file("data", MIB);
    let lines = [
        "run data --size 2m",
        "run data --offset 512k --size 1m",
        "run data --overwrite=data --rw write --size 2m",
    ];
    for line in lines {
        place
            .cannot(line)
            .with_code(2)
            .says("has 1048576 bytes, but the region ends at", "smaller --size");
    }
    let beyond = place.cannot("run data --offset 2m");
    beyond.with_code(2).says("data", "--offset");
}

#[test]
fn an_empty_file_has_nothing_to_measure() {
    let place = Place::new();
    place.file("data", 0);
    place.cannot("run data").with_code(2).says("data is empty", "directory");
}

#[test]
fn a_simulated_system_is_not_mistaken_for_a_path() {
    Place::new().cannot("run sim:nt4").with_code(2).says("no simulated system", "one of nt4-");
}

#[test]
fn a_run_needs_a_target() {
    Place::new().cannot("run --rw read").with_code(2).says("no target", "--ioengine null");
}

// ---- existing data

#[test]
fn an_existing_file_is_not_overwritten_unless_it_is_named() {
    let place = Place::new();
    place.file("data", MIB);
    place.file("other", MIB);
    for rw in ["write", "randwrite", "rw", "randrw"] {
        let ended = place.cannot(&format!("run data --rw {rw} --size 64k"));
        ended.with_code(3).says("data exists and would be overwritten", "--overwrite=data");
    }
    let wrong = place.cannot("run data --rw write --overwrite=other");
    wrong.with_code(3).says("data exists", "--overwrite=data");
    let folder = place.cannot("run data --rw write --overwrite=.");
    folder.with_code(3).says("data exists", "--overwrite=data");
    let one_of_two = place.cannot("run data other --rw write --overwrite=data");
    one_of_two.with_code(3).says("other exists", "--overwrite=other");
    let cut = place.cannot("run data --rw write --allocation truncate --size 64k");
    cut.with_code(3).says("data exists", "--overwrite=data");
}

#[test]
fn a_read_never_cuts_a_file() {
    let place = Place::new();
    place.file("data", MIB);
    for allocation in ["truncate", "extend"] {
        let line = format!("run data --rw read --size 64k --allocation {allocation}");
        place.cannot(&line).with_code(2).says("--allocation", "--rw");
    }
}

#[test]
fn a_link_to_a_file_does_not_stand_for_the_permission() {
    let place = Place::new();
    place.file("data", MIB);
    std::os::unix::fs::symlink("data", place.path("link")).unwrap();
    let real = format!("--overwrite={}", place.path("data").canonicalize().unwrap().display());
    for consent in ["", "--overwrite=link", "--overwrite=data"] {
        let ended = place.cannot(&format!("run link --rw write --size 64k {consent}"));
        ended.with_code(3).says("link is a symbolic link", &real);
    }
    let ended = place.cannot("run data --rw write --size 64k --overwrite=link");
    ended.with_code(3).says("--overwrite=link is a symbolic link", "--overwrite=data");
    place.does("run link --rw read --size 64k --trials 1 --no-store");
}

#[test]
fn a_file_of_several_names_is_not_written_even_with_permission() {
    let place = Place::new();
    place.file("data", MIB);
    fs::hard_link(place.path("data"), place.path("twin")).unwrap();
    for line in ["run data --overwrite=data", "run twin --overwrite=data --overwrite=twin"] {
        let ended = place.cannot(&format!("{line} --rw write --size 64k"));
        ended.with_code(3).says("2 names", "copy the file");
    }
    place.does("run data --rw read --size 64k --trials 1 --no-store");
}

// ---- limits of I/O engines and caching modes

#[test]
fn a_depth_that_would_not_be_reached_is_an_error_that_names_the_remedy() {
    let place = Place::new();
    place.file("data", MIB);
    let sync = place.cannot("run data --ioengine sync --iodepth 8");
    sync.with_code(2).says("sync sends only one request", "--ioengine io_uring");
    let libaio = place.cannot("run data --ioengine libaio --iodepth 8 --direct=0");
    libaio.with_code(2).says("libaio is synchronous on buffered files", "--direct");
}

#[test]
fn a_depth_is_checked_before_a_test_file_is_laid_out() {
    let place = Place::new();
    let ended = place.cannot("run . --size 1m --ioengine sync --iodepth 8");
    ended.with_code(2).says("sync sends only one request", "--iodepth 1");
    assert!(!place.has_made_a_test_file());
}

#[test]
fn a_file_system_without_direct_io_is_named_with_the_way_around() {
    let place = Place::new();
    let ended = place.cannot("run /proc/cpuinfo --direct=1");
    ended.with_code(2).says("lacks direct I/O", "--direct=0");
}

#[test]
fn direct_requests_that_are_not_aligned_are_refused() {
    let place = Place::new();
    place.file("data", MIB);
    let odd = place.cannot("run data --direct --bs 1000");
    odd.with_code(2).says("--bs 1000 is not a multiple", "--direct=0");
    let offset = place.cannot("run data --direct --bs 4k --offset 100 --size 4k");
    offset.with_code(2).says("--offset 100 is not a multiple", "--direct=0");
    place.does("run data --direct=0 --bs 1000 --size 100k --trials 1 --no-store");
}

#[test]
fn a_request_larger_than_the_region_is_refused() {
    let place = Place::new();
    place.file("data", MIB);
    place.cannot("run data --bs 2m").with_code(2).says("too small for a request", "smaller --bs");
    let parts = place.cannot("run data --bs 512k --numjobs 4");
    parts.with_code(2).says("too small for a request", "fewer --numjobs");
}

// ---- no space, no permission

#[test]
fn more_than_the_disk_holds_is_refused_before_anything_is_written() {
    let ended = Place::new().cannot("run . --size 1000000g");
    ended.with_code(1).says("not enough for a test file", "smaller --size");
}

#[test]
fn the_limit_on_file_sizes_is_respected_before_anything_is_written() {
    let place = Place::new();
    let ended = place.halfpower_after("ulimit -f 4096", "run . --size 8m --trials 1").with_code(1);
    assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
    ended.says("exceeds the file-size limit", "--size");
    place.is_tidy();
}

#[test]
fn a_database_that_reaches_the_limit_on_file_sizes_says_so() {
    let place = Place::new();
    let line = "run --ioengine null --runtime 0.02 --trials 1";
    let ended = place.halfpower_after("ulimit -f 8", line).with_code(1);
    ended.says("halfpower.db reached the limit on the size of files", "ulimit -f");
}

#[test]
fn a_current_directory_that_was_deleted_is_said_to_be() {
    let place = Place::new();
    for line in ["run . --no-store", "run sim:sata-hdd-7200", "survey . --quick"] {
        let ended = place.halfpower_after("mkdir gone; cd gone; rmdir ../gone", line);
        assert!(!ended.status.success(), "{ended}");
        ended.says("the current directory has been deleted", "change to another directory");
    }
}

#[test]
fn a_fio_job_file_is_not_taken_for_a_target() {
    let place = Place::new();
    let job = "; made by hand\n[global]\nrw=read\nbs=4k\n\n[job]\nsize=10m\n";
    fs::write(place.path("job.fio"), job).unwrap();
    for verb in ["sweep", "survey"] {
        let ended = place.cannot(&format!("{verb} job.fio"));
        ended.with_code(2).says("job.fio is a fio job file", "run its jobs with halfpower run");
    }
    // This file begins like a job file, but is measured as a target.
    fs::write(place.path("notes"), format!("[notes]\n{}", "x".repeat(8192))).unwrap();
    place.does("run notes --bs 4k --trials 1 --no-store");
}

#[test]
fn little_locked_memory_is_enough_for_one_ring_after_another() {
    let place = or_skip!(Place::of_nobody());
    let limited = |line: &str| place.halfpower_after("ulimit -l 8", line).with_code(0);
    let engines = limited("engines --json").json();
    let best = list(&engines["engines"]).iter().find(|e| e["name"] == engines["best"]).unwrap();
    assert_eq!(best["available"], true, "{engines}");
    limited("run . --size 1m --trials 5 --runtime 0.05 --no-store");
}

#[test]
fn a_full_disk_is_named_with_the_way_around() {
    let volume = or_skip!(Volume::new(48 * MIB));
    volume.fill_up(8 * MIB);
    let place = Place::new();
    let folder = volume.folder().display();
    let ended = place.cannot(&format!("run {folder} --size 7m --rw write"));
    ended.with_code(1).says("not enough for a test file of 7 MiB", "smaller --size");
    let ended = place.cannot(&format!("run {folder}"));
    ended.with_code(1).says("not enough for a test file", "another directory");
    assert!(Place::within(volume.folder()).strays().is_empty());
}

#[test]
fn a_database_on_a_full_disk_is_an_error_of_one_line() {
    let volume = or_skip!(Volume::new(32 * MIB));
    volume.fill_up(0);
    let place = Place::within(volume.folder());
    let ended = place.halfpower("run --ioengine null --runtime 0.05 --trials 1 --quiet");
    let ended = ended.with_code(1).says("halfpower.db", "");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
    place.does("run --ioengine null --runtime 0.05 --trials 1 --no-store");
}

#[test]
fn a_disk_that_fills_up_in_the_middle_ends_the_run_with_the_cause() {
    let volume = or_skip!(Volume::new(48 * MIB));
    let inside = Place::within(volume.folder());
    inside.file_of_holes("data", 96 * MIB);
    let data = inside.path("data").display().to_string();
    let place = Place::new();
    for flags in ["--direct=1 --iodepth 4", "--direct=0 --ioengine sync", "--direct=0"] {
        let line = format!(
            "run {data} --overwrite={data} --rw write --bs 256k --size 96m --trials 1 --quiet"
        );
        let ended = place.halfpower(&format!("{line} {flags}")).with_code(1);
        assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
        let ended = ended.says("no space left on device", "; free space");
        assert_eq!(ended.stdout, "", "{ended}");
        assert_eq!(place.stored_run().state, results::RunState::Failed);
        assert_eq!(inside.listing(), ["data", "lost+found"]);
    }
}

#[test]
fn growing_a_file_beyond_the_free_space_is_refused_before_it_is_cut() {
    let volume = or_skip!(Volume::new(32 * MIB));
    let inside = Place::within(volume.folder());
    inside.file("data", MIB);
    let line = "run data --overwrite=data --rw write --bs 64k --size 96m --allocation extend";
    inside
        .cannot(&format!("{line} --no-store"))
        .with_code(1)
        .says("there is space for only", "--size");
}

#[test]
fn a_read_only_file_system_is_read_and_not_written() {
    let volume = or_skip!(Volume::new(32 * MIB));
    let inside = Place::within(volume.folder());
    inside.file("data", MIB);
    or_skip!(volume.is_read_only_now());
    let place = Place::new();
    let folder = volume.folder().display();
    let layout = place.cannot(&format!("run {folder} --size 1m --rw write"));
    layout.with_code(1).says("read-only file system", "specify a writable directory");
    let write = format!("run {folder}/data --overwrite={folder}/data --rw write --size 64k");
    place.cannot(&write).with_code(1).says("read-only", "--rw read");
    place.does(&format!("run {folder}/data --rw read --bs 64k --size 1m --trials 1"));
    let store = inside.cannot("run --ioengine null --runtime 0.02 --trials 1 --quiet");
    store.with_code(1).says("halfpower.db", "--db");
    inside.does("run --ioengine null --runtime 0.02 --trials 1 --no-store");
}

#[test]
fn without_rights_a_foreign_folder_is_read_and_not_written() {
    let place = or_skip!(Place::of_nobody());
    let foreign = tempfile::tempdir().unwrap();
    fs::set_permissions(foreign.path(), Permissions::from_mode(0o755)).unwrap();
    let folder = foreign.path().display();
    let inside = Place::within(foreign.path());
    inside.file("data", 64 * KIB);
    inside.file("secret", 64 * KIB);
    fs::set_permissions(inside.path("secret"), Permissions::from_mode(0o600)).unwrap();
    let layout = place.cannot(&format!("run {folder} --size 1m"));
    layout.with_code(1).says("permission denied", "specify a writable directory");
    let secret = place.cannot(&format!("run {folder}/secret"));
    secret.with_code(1).says("permission denied", "run as root");
    let line = format!("run {folder}/data --overwrite={folder}/data --rw write --size 64k");
    place
        .cannot(&line)
        .with_code(1)
        .says("permission denied", "use a target that this user may write to");
    place.does(&format!("run {folder}/data --size 64k --trials 1"));
    assert_eq!(inside.listing(), ["data", "secret"]);
}

#[test]
fn a_folder_that_may_not_be_written_gets_no_database() {
    let place = or_skip!(Place::of_nobody());
    let foreign = temporary_folder();
    fs::set_permissions(foreign.path(), Permissions::from_mode(0o755)).unwrap();
    let db = foreign.path().join("halfpower.db");
    let line = format!("run --ioengine null --runtime 0.02 --quiet --db {}", db.display());
    place.cannot(&line).with_code(1).says("halfpower.db", "--db");
    assert!(!db.exists());
}
