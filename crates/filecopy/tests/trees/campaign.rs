//! Tests with random faults, and a long campaign of all random tests. The campaign prints how many
//! cases it tested. docs/reliability.md cites these numbers.

use std::fs;
use std::path::Path;

use filecopy::{Keep, Settings};
use ioengine::Op;
use ioengine::fault::{Fault, FaultPlan, FaultRule};

use crate::bench::{cases, copies, copy, folder, is_root, leftovers, listed, settings, skip};
use crate::hostile::beside_a_hostile_user;
use crate::killed::kill_at_random;
use crate::random::Random;

/// Number of times that a copy of each tree is killed.
const KILLS_OF_A_TREE: u64 = 100;
/// Request size of copies with faults (bytes).
const REQUEST_BYTES: u32 = 64 << 10;

/// Returns a rule that injects a random fault into 1 to 3 requests of a copy operation. The first
/// faulty request is one of the first 60.
fn random_fault(random: &mut Random) -> FaultRule {
    let either = *random.pick(&[None, Some(Op::Read), Some(Op::Write)]);
    let written = Some(Op::Write);
    let (fault, only) = match random.below(10) {
        0 => (Fault::Errno(5), either),
        1 => (Fault::Errno(28), written),
        2 => (Fault::Errno(11), either),
        3 => (Fault::Errno(4), either),
        4 => (Fault::Short(1 + random.below(u64::from(REQUEST_BYTES)) as u32), either),
        5 => (Fault::Late(1 + random.below(6) as u32), either),
        6 => (Fault::Flip, written),
        7 => (Fault::Lose, written),
        8 => (Fault::Misdirect(u64::from(REQUEST_BYTES) * (1 + random.below(3))), written),
        _ => (Fault::Tear, written),
    };
    FaultRule { fault, only, first: random.below(60), count: 1 + random.below(3) }
}

/// Copies with random faults. Returns the number of copies that reported a problem.
fn faults_at_random(rounds: u64, first_seed: u64) -> u64 {
    let mut named = 0;
    let folder = folder();
    let source = folder.path().join("source");
    for round in 0..rounds {
        let seed = first_seed + round;
        let mut random = Random::new(seed);
        if round % 50 == 0 {
            let _ = fs::remove_dir_all(&source);
            fs::create_dir(&source).unwrap();
            for number in 0..3 {
                let length = (1 << 20) + random.below(1 << 20) as usize;
                fs::write(source.join(format!("file-{number}")), random.bytes(length)).unwrap();
            }
        }
        let rule = random_fault(&mut random);
        let options = seqio::Options::new()
            .cache(seqio::Cache::Direct)
            .request_bytes(REQUEST_BYTES)
            .depth(1 + random.below(8) as u32)
            .faults(FaultPlan { rules: vec![rule] });
        let target = folder.path().join("copy");
        // A misdirected write reports success, so only verification finds it.
        let with = |options| Settings {
            options,
            verify: true,
            resume: seed.is_multiple_of(4),
            threads: 1 + (seed % 3) as u32,
            ..settings(folder.path(), Keep::Mode)
        };
        let problems = copy(with(options), &source, &target);
        named += u64::from(!problems.is_empty());
        for entry in fs::read_dir(&source).unwrap() {
            let (from, name) = (entry.as_ref().unwrap().path(), entry.unwrap().file_name());
            let to = target.join(&name);
            let is_named = problems.iter().any(|problem| [&from, &to].contains(&&problem.path));
            match fs::read(&to) {
                Ok(bytes) => assert!(
                    bytes == fs::read(&from).unwrap(),
                    "seed {seed}, {rule:?}: {name:?} is wrong"
                ),
                Err(_) => assert!(
                    is_named,
                    "seed {seed}, {rule:?}: {name:?} is missing and was not reported: {}",
                    listed(&problems)
                ),
            }
        }
        // The next session, without faults, must copy all files that are still missing.
        copies(with(seqio::Options::new()), &source, &target);
        assert_same(&source, &target, seed);
        assert!(leftovers(folder.path()).is_empty(), "seed {seed}, {rule:?}");
        fs::remove_dir_all(&target).unwrap();
    }
    named
}

#[track_caller]
fn assert_same(source: &Path, target: &Path, seed: u64) {
    for entry in fs::read_dir(source).unwrap() {
        let name = entry.unwrap().file_name();
        let [one, other] = [source, target].map(|folder| fs::read(folder.join(&name)).unwrap());
        assert!(one == other, "seed {seed}: {name:?} differs");
    }
}

#[test]
fn after_a_fault_each_file_is_complete_or_reported_and_the_next_session_copies_the_rest() {
    faults_at_random(cases(20), 1);
}

#[test]
#[ignore = "takes about an hour"]
fn a_hundred_thousand_kills_faults_and_hostile_moves_leave_no_wrong_byte() {
    if !is_root() {
        return skip("campaign", "running as another user needs root");
    }
    let cases = cases(10_000);
    let unfinished: u64 =
        (0..cases / KILLS_OF_A_TREE).map(|tree| kill_at_random(KILLS_OF_A_TREE, 1000 + tree)).sum();
    eprintln!("kills: {cases}; the copy was unfinished in {unfinished} cases");
    let named = faults_at_random(cases, 1_000_000);
    eprintln!("faults: {cases}; a problem was reported in {named} cases");
    let rounds = cases / 50;
    let moves = beside_a_hostile_user(rounds, 1_000_000, true)
        + beside_a_hostile_user(rounds, 2_000_000, false);
    eprintln!("actions of the hostile user: {moves}, in {} folders", 2 * rounds);
}
