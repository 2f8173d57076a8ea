//! Tests `tune`: what the subcommand stores, what it does not change, and what it refuses.

use std::fs;
use std::path::Path;

use ioengine::host::offers_direct;
use seqio::tune::{Setting, Tunings};
use serde_json::Value;

use crate::fixture::{MIB, Place, list, noise, or_skip, real, text, whole};
use crate::volume::LoopDevice;

/// Creates a working directory. Returns an error if its file system does not support direct I/O.
fn place() -> Result<Place, String> {
    let place = Place::new();
    let probe = place.file("probe", MIB);
    let direct = offers_direct(&probe);
    fs::remove_file(probe).unwrap();
    if direct { Ok(place) } else { Err("the build directory has no direct I/O".to_owned()) }
}

fn setting(document: &Value) -> Setting {
    let number = |name: &str| u32::try_from(whole(&document[name])).unwrap();
    Setting { request_bytes: number("request_bytes"), depth: number("depth") }
}

/// Reads the stored tunings with `seqio`.
fn kept(place: &Place) -> Tunings {
    let text = fs::read_to_string(place.state().join("halfpower/tune.toml")).unwrap();
    Tunings::read(&text).unwrap()
}

#[test]
fn what_was_found_is_kept_where_seqio_looks_and_the_test_file_goes() {
    let place = or_skip!(place());
    let document = place.document("tune . --size 64m");
    place.is_tidy();
    assert_eq!(place.listing(), [""; 0]);
    let kept = kept(&place);
    let tuned = &kept.storage[text(&document["storage"]["identity"])];
    assert_eq!(tuned.read, setting(&document["read"]["cheapest"]));
    assert_eq!(tuned.write, Some(setting(&document["write"]["cheapest"])));
    for op in ["read", "write"] {
        let rate = |name: &str| real(&document[op][name]["bytes_per_s"]);
        assert!(rate("cheapest") >= 0.97 * rate("best"), "{}", document[op]);
        let memory = |row: &Value| whole(&row["request_bytes"]) * whole(&row["depth"]);
        let table = list(&document[op]["table"]);
        assert!(table.iter().all(|row| memory(row) <= 8 * MIB && whole(&row["probes"]) > 0));
        // A setting with few probes is not chosen.
        let most = table.iter().map(|row| whole(&row["probes"])).max().unwrap();
        let near = |row: &&Value| {
            let known = whole(&row["probes"]) >= most.min(3);
            known && real(&row["bytes_per_s"]) >= 0.97 * rate("best")
        };
        let least = table.iter().filter(near).map(memory).min().unwrap();
        assert_eq!(whole(&document[op]["cheapest"]["buffer_bytes"]), least);
    }
    let written = whole(&document["written_bytes"]);
    assert!((65 * MIB..=17 * 64 * MIB).contains(&written), "{written}");
}

#[test]
fn a_file_is_only_read_unless_it_is_named() {
    let place = or_skip!(place());
    let path = place.file("file", 64 * MIB);
    let document = place.document("tune file");
    assert!(document["write"].is_null() && whole(&document["written_bytes"]) == 0);
    assert!(text(&document["not_written"]).contains("--overwrite"));
    assert!(fs::read(&path).unwrap() == noise(64 * MIB), "the file was written");
    let identity = text(&document["storage"]["identity"]);
    assert_eq!(kept(&place).storage[identity].write, None);

    let ended = place.does("tune file --overwrite=file --no-store");
    assert!(ended.stdout.starts_with("read: ") && ended.stdout.contains("\nwrite: "), "{ended}");
    assert_eq!(fs::metadata(&path).unwrap().len(), 64 * MIB);
    assert!(fs::read(&path).unwrap() != noise(64 * MIB), "the file was not written");
    assert_eq!(kept(&place).storage[identity].write, None, "--no-store stored the result");
    assert_eq!(place.listing(), ["file"]);
}

#[test]
fn a_device_is_only_read_unless_it_is_given_up() {
    let place = Place::new();
    let device = or_skip!(LoopDevice::blank(64 * MIB));
    let path = device.path();
    let ended = place.does(&format!("tune {path} --no-store"));
    assert!(device.content().iter().all(|byte| *byte == 0), "the device was written");
    let ended = ended.says("writes not measured", "--destroy-data-on");
    assert!(!ended.stdout.contains("write: "), "{ended}");
    let ended = place.does(&format!("tune {path} --no-store --destroy-data-on={path}"));
    let ended = ended.says("destroying all data", "it holds no data of a known format");
    assert!(ended.stdout.contains("\nwrite: "), "{ended}");
    assert!(device.content().iter().any(|byte| *byte != 0), "the device was not written");
}

#[test]
fn a_plan_says_what_would_be_written_and_writes_nothing() {
    let place = Place::new();
    let ended = place.does("tune --size 100m --plan");
    let ended = ended.prints("lay out a test file of 100 MiB in .");
    ended.prints("at most 1.56 GiB").prints("tune.toml");
    place.file("file", 64 * MIB);
    // Whether this succeeds depends on the file system. In any case, nothing may be changed.
    let before = place.snapshot();
    place.halfpower("tune file --overwrite=file --plan");
    assert!(place.snapshot() == before && !place.has_made_a_test_file());
    assert!(!place.state().join("halfpower/tune.toml").exists());
}

#[test]
fn what_makes_no_sense_is_not_written_over() {
    let place = Place::new();
    fs::create_dir_all(place.state().join("halfpower")).unwrap();
    let path = place.state().join("halfpower/tune.toml");
    fs::write(&path, "dear diary").unwrap();
    let ended = place.cannot("tune . --size 64m").with_code(1);
    ended.says("is not a valid tuning file", "--no-store");
    assert_eq!(fs::read_to_string(&path).unwrap(), "dear diary");
    assert!(!place.has_made_a_test_file());
}

#[test]
fn where_there_is_nothing_to_tune_it_is_said() {
    let place = Place::new();
    place.cannot("tune . --size 1m").with_code(2).says("too small", "--size 64m");
    place.file("small", MIB);
    place.cannot("tune small").with_code(2);
    place.cannot("tune small --overwrite=other").with_code(3).says("small", "--overwrite=small");
    place.cannot("tune /proc/version").with_code(2).says("nothing to tune", "use a directory");
    place.cannot("tune sim:nt4-ultrawide").with_code(2);
    if offers_direct(&place.path("small")) {
        place.file_of_holes("holes", 64 * MIB);
        place.cannot("tune holes").with_code(2).says("64 MiB of holes", "without holes");
    }
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return };
    let in_memory = folder.path().join("file");
    fs::write(&in_memory, "x").unwrap();
    if is_tmpfs(&in_memory) {
        let line = format!("tune {}", in_memory.display());
        place.cannot(&line).with_code(2).says("is in memory", "use a directory");
    }
}

fn is_tmpfs(path: &Path) -> bool {
    let storage = seqio::Storage::of(&fs::File::open(path).unwrap()).unwrap();
    storage.kind == seqio::Kind::Memory
}
