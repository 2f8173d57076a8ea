//! Runs the examples on small files and checks their output. Their throughput is not checked.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bench::{content, folder};

/// Runs an example. Returns its standard output.
fn run(example: &str, arguments: &[&str]) -> String {
    let program = built(example);
    let remedy = "run `cargo test` without `--test`, or `cargo build --examples` first";
    assert!(program.exists(), "{example} is not built; {remedy}");
    let output = Command::new(&program).args(arguments).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{example} {arguments:?}: {said}{words}");
    said
}

/// Returns the path of a built example. Cargo puts test programs into `target/PROFILE/deps` and
/// examples into `target/PROFILE/examples`.
fn built(example: &str) -> PathBuf {
    let here = std::env::current_exe().unwrap();
    here.ancestors().nth(2).unwrap().join("examples").join(example)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn lines_are_counted_and_bytes_are_summed_as_anybody_would() {
    let folder = folder();
    let path = folder.path().join("file");
    let data = content(3_000_001, 3);
    std::fs::write(&path, &data).unwrap();
    let lines = data.iter().filter(|byte| **byte == b'\n').count();
    let counted = run("count_lines", &[text(&path)]);
    assert_eq!(counted, format!("{lines} {}\n", path.display()));
    let add = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(1_099_511_628_211);
    let sum = data.iter().fold(14_695_981_039_346_656_037, add);
    let summed = run("hash_file", &[text(&path)]);
    assert_eq!(summed, format!("{sum:016x} {}\n", path.display()));
}

#[test]
fn a_copy_is_the_same_file() {
    let folder = folder();
    let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
    std::fs::write(&from, content(3_000_001, 3)).unwrap();
    assert_eq!(run("copy", &[text(&from), text(&to)]), "3000001 bytes\n");
    assert!(std::fs::read(&from).unwrap() == std::fs::read(&to).unwrap());
}

#[test]
fn a_log_continues_after_its_last_complete_record() {
    let folder = folder();
    let path = folder.path().join("log");
    let said = run("log_writer", &[text(&path), "2500"]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "2500 records written");
    assert!(lines[1].starts_with("2499 records are complete"), "{said}");
    assert_eq!(
        lines[2..],
        ["2500 records after the recovery", "the last record is `the first after the crash`"]
    );
}

#[test]
fn every_way_of_the_benchmark_moves_all_of_the_bytes() {
    let folder = folder();
    let path = folder.path().join("file");
    let bytes = "3000001";
    for way in ["space", "write", "async"] {
        for (producer, told) in [("stamp", None), ("all", Some("foretold"))] {
            let mut arguments = vec![way, producer, text(&path), bytes];
            arguments.extend(told);
            let said = run("produce", &arguments);
            assert!(said.starts_with("3000001 bytes; "), "{said}");
            assert_eq!(std::fs::metadata(&path).unwrap().len(), 3_000_001);
        }
    }
    let lines = std::fs::read(&path).unwrap().iter().filter(|byte| **byte == b'\n').count();
    for way in ["blocks", "read", "bufread", "async", "asyncbuf"] {
        let said = run("consume", &[way, "lines", text(&path)]);
        assert!(said.starts_with(&format!("3000001 bytes, {lines} lines; ")), "{said}");
    }
}

#[test]
fn the_samples_of_the_paper_compare_both_ways_and_leave_nothing() {
    let folder = folder();
    let [old, new] = ["old", "new"].map(|name| folder.path().join(name));
    std::fs::write(&old, content(3 << 20, 3)).unwrap();
    for (sample, arguments) in [
        ("riedel_buffered_read", vec![text(&old)]),
        ("riedel_async_read", vec![text(&old)]),
        ("riedel_unbuffered_write", vec![text(&new), "3"]),
        ("riedel_async_write", vec![text(&new), "3"]),
    ] {
        let said = run(sample, &arguments);
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len(), 3, "{said}");
        assert!(lines[0].starts_with("as in the paper: ") && lines[2].starts_with("gain: "));
        assert!(!new.exists() && old.exists());
    }
}
