//! Runs studies on simulations of the papers' machines. The studies must give the same verdicts on
//! the papers' claims as `reproduce`, and their default workloads must give the published figures.
//!
//! All targets are simulated, so the results do not depend on the machine that runs the tests.

// The test helpers may unwrap, because a panic in a helper fails the test.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use lab::console::Console;
use lab::evidence::Stated;
use lab::experiment::Experiment;
use lab::experiment::settings::Settings;
use lab::guard::Consent;
use lab::interrupt::Interrupt;
use lab::machine::Host;
use lab::recorder::RunOptions;
use lab::trials::Lab;
use papers::claims::{Paper, Verdict};
use papers::reproduce::reproduce;
use study::catalogue;
use study::plan::Plan;
use study::session::{Session, StudyResult};
use study::target::StudyTarget;

/// Names of the built-in simulated systems that model the machines in the papers' claims.
const SYSTEMS: [&str; 6] = [
    "nt4-ultrawide",
    "nt4-fastwide",
    "e5000-nt4sp6",
    "e5000-w2k",
    "w2k-atlas10k",
    "w2k-fireball-3ware",
];
/// Known exceptions: the id of each claim on which a study and `reproduce` give different verdicts
/// for the same machine, with the reason.
const DIFFERENT: [(&str, &str); 0] = [];

/// Runs a study on a simulated system, as with `--quick`.
fn study_of(name: &str, system: &str) -> StudyResult {
    let lab = Lab::new(Console::new(true), Interrupt::default());
    let target = format!("sim:{system}");
    let consent = Consent::default();
    let ready = StudyTarget::ready(Path::new(&target), None, (1 << 20, 1), &consent, &lab).unwrap();
    let session = Session {
        lab: &lab,
        host: Host::default(),
        study_targets: vec![ready],
        quick: true,
        toggle_write_cache: false,
        stated: Stated::default(),
        options: RunOptions::default(),
        base: Experiment::default(),
        typed: Settings::default(),
        size: None,
        peer_path: None,
    };
    let study = catalogue::named(name).unwrap();
    session.make(name, Some(study), Plan::parse(study.plan).unwrap()).unwrap()
}

/// Returns whether each claim holds according to `reproduce`, by the id of the claim.
fn reproduced() -> BTreeMap<String, bool> {
    let mut all = BTreeMap::new();
    for paper in Paper::ALL {
        let claims = reproduce(paper, Vec::new(), true).claims.unwrap();
        let contradicted = claims.contradicted.into_iter().map(|one| one.scored);
        let scored = claims.scored.into_iter().chain(contradicted);
        all.extend(scored.map(|one| (one.claim.id, one.pass)));
    }
    all
}

/// Runs a study and compares its verdicts with those of `reproduce`, for the claims of the paper
/// that describes the system. Returns the number of compared claims, and a line for each claim
/// whose verdicts differ.
fn compare(study: &str, system: &str, reproduced: &BTreeMap<String, bool>) -> (usize, Vec<String>) {
    let made = study_of(study, system);
    let (mut compared, mut differ) = (0, Vec::new());
    for claim in &made.conclusion.claims {
        let Some(pass) = reproduced.get(claim.id) else { continue };
        let is_own = Paper::of_claim(claim.id).describes(system);
        if claim.verdict == Verdict::CannotBeTried || !is_own {
            continue;
        }
        compared += 1;
        let known = DIFFERENT.iter().any(|(id, _)| *id == claim.id);
        if (claim.verdict == Verdict::Holds) != *pass && !known {
            differ.push(format!("{study} {system} {}: {}", claim.id, claim.here));
        }
    }
    (compared, differ)
}

#[test]
fn two_studies_say_the_same_as_reproduce() {
    let reproduced = reproduced();
    let studies = [("request-size", "nt4-ultrawide", 5), ("depth", "nt4-fastwide", 4)];
    for (study, system, least) in studies {
        let (compared, differ) = compare(study, system, &reproduced);
        assert!(compared >= least, "{study} on {system}: only {compared} claims were compared");
        assert!(differ.is_empty(), "{differ:#?}");
    }
}

#[test]
#[ignore = "runs every study on six systems, which takes long; ./test --all includes it"]
fn every_study_says_the_same_as_reproduce() {
    let reproduced = reproduced();
    let (mut compared, mut differ) = (0, Vec::new());
    for system in SYSTEMS {
        for study in catalogue::ALL {
            let (count, different) = compare(study.name, system, &reproduced);
            compared += count;
            differ.extend(different);
        }
    }
    assert!(compared > 60, "only {compared} claims were compared");
    assert!(differ.is_empty(), "{differ:#?}");
}

#[test]
fn reads_of_the_papers_drive_pass_half_of_its_own_advertised_rate() {
    let made = study_of("request-size", "nt4-ultrawide");
    let findings = made.conclusion.findings.iter();
    let texts: Vec<&str> = findings.map(|found| found.headline.as_str()).collect();
    let half = texts.iter().find(|text| text.contains("reads at depth 1")).unwrap();
    assert!(half.contains("pass half of the PAP of"), "{half}");
    assert!(half.contains("drive, media"), "{half}");
}

#[test]
fn random_requests_use_the_whole_disk() {
    // Tables 2 and 10 of the second paper give these kilobyte accesses per second (KAPS). The
    // authors measured with random requests of 8 KB at depth 1, alternating reads and writes.
    for (system, published) in [("w2k-atlas10k", 105.0), ("w2k-fireball-3ware", 78.0)] {
        for (study, part) in [("random", "past the cache"), ("price", "random")] {
            let made = study_of(study, system);
            let rate = |rw: &str| {
                let flags = [("part", part), ("rw", rw), ("bs", "8k"), ("iodepth", "1")];
                made.evidence.find(&flags).unwrap().requests_per_s()
            };
            let kaps = 2.0 / (1.0 / rate("randread") + 1.0 / rate("randwrite"));
            let off = (kaps / published - 1.0).abs();
            assert!(off <= 0.10, "{study} {system}: {kaps} KAPS, published: {published}");
        }
    }
}
