//! Runs each fuzz target for a short time on random but reproducible mutations of its seeds, and on
//! all inputs that failed earlier.
//!
//! The fuzzer in `fuzz/` runs for hours and needs a nightly compiler. These tests are short and
//! work with any compiler.
#![cfg(test)]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use halfpower::fuzz::{TARGETS, Target};
use ioengine::{Clock, Monotonic};
use workload::random::Stream;

/// Maximum length of an input (bytes). Longer inputs take more time and rarely find more.
const LONGEST: usize = 4096;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz").join(name)
}

/// Returns the contents of all files of a directory, sorted by name. If the directory does not
/// exist, returns nothing.
fn files(folder: &Path) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Returns the words of the fuzzing dictionary.
fn words() -> Vec<Vec<u8>> {
    let text = fs::read_to_string(folder("command_line.dict")).unwrap();
    let quoted = text.lines().filter_map(|line| line.strip_prefix('"')?.strip_suffix('"'));
    quoted.map(|word| word.replace("\\x0a", "\n").into_bytes()).collect()
}

/// Runs a fuzz target on an input. If the target panics, stores the input in a file and panics with
/// the path of this file.
fn check(name: &str, target: Target, input: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| target(input))).is_err() {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("broke-{name}"));
        fs::write(&path, input).unwrap();
        panic!("the target {name} failed on {}; add this file to fuzz/regressions", path.display());
    }
}

/// Creates inputs by reproducible random mutations of the seeds.
struct Mutator {
    random: Stream,
    seeds: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
}

impl Mutator {
    fn below(&mut self, limit: usize) -> usize {
        (self.random.next_u64() % limit.max(1) as u64) as usize
    }

    fn one_of(&mut self, seeds: bool) -> Vec<u8> {
        let count = if seeds { self.seeds.len() } else { self.words.len() };
        let index = self.below(count);
        if seeds { self.seeds[index].clone() } else { self.words[index].clone() }
    }

    fn input(&mut self) -> Vec<u8> {
        let mut input = self.one_of(true);
        for _ in 0..=self.below(6) {
            self.mutate(&mut input);
        }
        input.truncate(LONGEST);
        input
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        let end = (at + self.below(32)).min(input.len());
        match self.below(8) {
            0 => input.truncate(at),
            1 => drop(input.drain(at..end)),
            2 => input.extend_from_within(at..end),
            3 => drop(input.splice(at..at, self.one_of(false))),
            4 => drop(input.splice(at..end, self.one_of(false))),
            5 => {
                let other = self.one_of(true);
                let from = self.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            6 if at < input.len() => input[at] ^= 1 << self.below(8),
            _ if at < input.len() => input[at] = [0, 1, 9, 127, 128, 255][self.below(6)],
            _ => input.push(self.below(256) as u8),
        }
    }
}

fn mutate_for(each_ns: u64) {
    let clock = Monotonic::new();
    for (name, target) in TARGETS {
        let seeds = files(&folder("seeds").join(name));
        assert!(!seeds.is_empty(), "the target {name} has no seeds");
        seeds.iter().for_each(|seed| check(name, *target, seed));
        let mut mutator = Mutator { random: Stream::new(1), seeds, words: words() };
        let end_ns = clock.now_ns() + each_ns;
        let mut inputs = 0;
        while clock.now_ns() < end_ns {
            check(name, *target, &mutator.input());
            inputs += 1;
        }
        println!("{name}: {inputs} inputs");
        assert!(inputs > 0);
    }
}

#[test]
fn mutated_seeds_break_no_promise() {
    mutate_for(1_000_000_000);
}

#[test]
#[ignore = "takes one minute for each fuzz target"]
fn a_minute_of_mutations_breaks_no_promise() {
    mutate_for(60_000_000_000);
}

#[test]
fn what_once_broke_a_promise_no_longer_does() {
    for (name, target) in TARGETS {
        for input in files(&folder("regressions").join(name)) {
            check(name, *target, &input);
        }
    }
}

#[test]
fn every_target_has_its_program() {
    let manifest = fs::read_to_string(folder("Cargo.toml")).unwrap();
    for (name, _) in TARGETS {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        let program = fs::read_to_string(folder("fuzz_targets").join(format!("{name}.rs")));
        assert!(program.unwrap().contains(&format!("run(\"{name}\", data)")), "{name}");
    }
}
