//! Tests several targets that form one striped volume (`--chunk`). Every byte must be at the offset
//! that follows from the chunk size, on this host and in simulated systems.

use std::fs;
use std::path::Path;

use crate::fixture::{KIB, MIB, Place, list, measure_until, real, whole};

/// Reassembles a striped file from its members.
fn put_together(members: &[&Path], chunk: usize) -> Vec<u8> {
    let contents: Vec<Vec<u8>> = members.iter().map(|path| fs::read(path).unwrap()).collect();
    let rows = contents[0].len() / chunk;
    let mut bytes = Vec::new();
    for row in 0..rows {
        for content in &contents {
            bytes.extend_from_slice(&content[row * chunk..(row + 1) * chunk]);
        }
    }
    bytes
}

#[test]
fn every_byte_of_a_stripe_lies_where_the_chunk_says() {
    let place = Place::new();
    let names = ["a", "b", "c"];
    let paths = names.map(|name| place.file(name, MIB));
    let consent = "--overwrite=a --overwrite=b --overwrite=c";
    for (engine_kind, chunk, request) in
        [("io_uring", 16, 40), ("libaio", 64, 64), ("threads", 4, 60), ("sync", 128, 16)]
    {
        let depth = if engine_kind == "sync" { 1 } else { 3 };
        let direct = if engine_kind == "libaio" { "" } else { "--direct=0" };
        let line = format!(
            "a b c --chunk {chunk}k --bs {request}k --iodepth {depth} --ioengine {engine_kind} \
             --size 3m --verify --trials 1 --no-store {direct}"
        );
        if place.halfpower(&format!("run {line} --plan")).status.code() != Some(0) {
            continue;
        }
        // On a busy machine the run may be invalid, so only the bytes are checked.
        let ended = place.halfpower(&format!("run {line} --rw write {consent}"));
        assert!(format!("{ended}").contains("every block is correct"), "{ended}");
        let bytes = put_together(&paths.each_ref().map(|path| &**path), chunk * KIB as usize);
        assert_eq!(bytes.len() as u64, 3 * MIB);
        fs::write(place.path("whole"), bytes).unwrap();
        // The reassembled file must contain what was written to the stripe.
        let size = 3 * MIB / (request * KIB) * (request * KIB);
        let read =
            format!("--bs {request}k --size {size} --verify --trials 1 --no-store --rw read");
        place.does(&format!("run whole --direct=0 {read}"));
    }
}

#[test]
fn a_stripe_of_directories_has_test_files_of_its_share_which_are_removed() {
    let place = Place::new();
    for folder in ["x", "y"] {
        fs::create_dir(place.path(folder)).unwrap();
    }
    let line = "run x y --chunk 64k --size 1m --bs 96k --rw randwrite --trials 1 --no-store";
    let plan = place.does(&format!("{line} --plan"));
    assert!(plan.stdout.contains("into a stripe with chunks of 64 KiB"), "{plan}");
    assert_eq!(plan.stdout.matches("test file of 512 KiB").count(), 2, "{plan}");
    let document = place.does(&format!("{line} --json")).json();
    assert_eq!(whole(&document["workload"]["size_bytes"]), MIB);
    assert_eq!(whole(&document["workload"]["threads"]), 1, "one target, not two");
    for folder in ["x", "y"] {
        assert_eq!(fs::read_dir(place.path(folder)).unwrap().count(), 0);
    }
}

#[test]
fn what_cannot_be_striped_is_refused_with_a_remedy() {
    let place = Place::new();
    place.file("a", MIB);
    place.file("b", MIB);
    let refused = |line: &str, cause: &str, remedy: &str| {
        place.cannot(&format!("run {line} --no-store")).with_code(2).says(cause, remedy);
    };
    refused("a --chunk 64k", "--chunk stripes requests over several targets", "specify more");
    refused("a b --chunk 0", "the chunk size is 0 bytes", "use a size");
    refused("a b --chunk 64k --offset 2m", "--offset", "use a smaller --offset");
    refused(
        "a b --chunk 512 --bs 1m --iodepth 64 --direct=0",
        "gives more than 16384 pieces in flight",
        "use a larger --chunk",
    );
}

#[test]
fn devices_of_known_truth_are_striped_and_work_at_the_same_time() {
    let place = Place::new();
    // Each device serves one request at a time, in 10 ms. A busy machine only makes a run slower,
    // so the fastest of several runs counts.
    let rate = |targets: &str| {
        let line =
            format!("{targets} --bs 4k --iodepth 16 --runtime 500ms --time-based --size 16m");
        let document = place.does(&format!("run {line} --trials 1 --no-store --json")).json();
        real(&document["summary"]["requests_per_s"]["median"])
    };
    let four = format!("{}--chunk 4k", "truth:fixed=10ms ".repeat(4));
    let four = measure_until(|| rate(&four), |rate| *rate > 300.0);
    assert!(four > 300.0 && four < 410.0, "not the rate of 4 devices: {four}");
    let alone = rate("truth:fixed=10ms");
    assert!(alone < 103.0, "above the rate of one device: {alone}");
}

#[test]
fn in_a_simulated_system_a_chunk_is_the_chunk_of_its_volume() {
    let place = Place::new();
    let rate = |target: &str, flags: &str| {
        let line = format!("run {target} {flags} --bs 64k --iodepth 5 --size 8m --trials 1");
        let document = place.does(&format!("{line} --no-store --json")).json();
        real(&list(&document["trials"])[0]["elapsed_ns"])
    };
    let plain = "sim:nt4-ultrawide,disks=3";
    let by_flag = rate(plain, "--chunk 16k");
    let by_key = rate(&format!("{plain},volume=stripe,chunk=16k"), "");
    assert_eq!(by_flag, by_key);
    assert_ne!(by_flag, rate(plain, "--chunk 64k"));
}
