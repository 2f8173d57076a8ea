//! Tests that copies with `Keep::All` equal their sources in every respect. For comparison, the
//! tests also count how often copies by `cp -a` and `rsync -aHAXS` differ from their sources.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use filecopy::{Keep, Settings};

use crate::bench::{cases, copies, folder, is_on_path, is_root, leftovers, settings, skip};
use crate::generator::{Recipe, grow};
use crate::random::Random;
use crate::snapshot::{Difference, Snapshot, differences};

/// Accepted differences of a copy: the property that differs, and the reason.
const INTENDED: &[(&str, &str)] = &[];

fn recipe(random: &mut Random) -> Recipe {
    Recipe { entries: 4 + random.below(40), as_root: is_root(), large_percent: 2 }
}

fn unintended(found: Vec<Difference>) -> Vec<Difference> {
    let is_intended =
        |difference: &Difference| INTENDED.iter().any(|(part, _)| *part == difference.part);
    found.into_iter().filter(|difference| !is_intended(difference)).collect()
}

fn run(program: &str, arguments: &[&str], from: &Path, to: &Path) {
    let output = Command::new(program).args(arguments).arg(from).arg(to).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {said}");
}

/// Name of a variant of the settings, and the function that returns the settings.
type Way = (&'static str, fn(&Path) -> Settings);

/// Returns two variants for tree `number`: the plain variant, and another that `number` selects.
fn ways(number: u64) -> Vec<Way> {
    let plain: fn(&Path) -> Settings = |folder| settings(folder, Keep::All);
    let others: [Way; 4] = [
        ("resumable", |folder| Settings { resume: true, ..settings(folder, Keep::All) }),
        ("verified", |folder| Settings { verify: true, ..settings(folder, Keep::All) }),
        ("all or nothing", |f| Settings { all_or_nothing: true, ..settings(f, Keep::All) }),
        ("one thread", |f| Settings { threads: 1, sync: false, ..settings(f, Keep::All) }),
    ];
    vec![("plain", plain), others[(number % 4) as usize]]
}

/// Copies random trees with several variants of the settings, and asserts that each copy equals its
/// source. Also copies the trees with cp and rsync. For each program and property, returns how
/// often these copies differ from their sources.
fn compare(trees: u64, first_seed: u64) -> BTreeMap<(&'static str, &'static str), u64> {
    let mut lacks: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let rivals: Vec<(&'static str, &[&str])> = [
        ("cp", &["-a", "-T"][..]),
        ("rsync", &["-aHAXS", "--specials", "--devices", "--super"][..]),
    ]
    .into_iter()
    .filter(|(program, _)| {
        let is_here = is_on_path(program);
        if !is_here {
            skip(program, "its copies are not compared; run: sudo apt-get install rsync");
        }
        is_here
    })
    .collect();
    for number in 0..trees {
        let seed = first_seed + number;
        let mut random = Random::new(seed);
        let folder = folder();
        let source = folder.path().join("source");
        std::fs::create_dir(&source).unwrap();
        let recipe = recipe(&mut random);
        grow(&source, recipe, &mut random);
        let wanted = Snapshot::of(&source);
        for (way, settings) in ways(number) {
            let copy = folder.path().join(way);
            copies(settings(folder.path()), &source, &copy);
            let found = unintended(differences(&wanted, &Snapshot::of(&copy)));
            assert!(found.is_empty(), "tree {seed}, {way}: {}", lines(&found));
            assert_eq!(leftovers(folder.path()), Vec::<std::path::PathBuf>::new(), "tree {seed}");
            // A repeated copy must find everything up to date.
            let again = settings(folder.path());
            if !again.all_or_nothing {
                let progress = std::sync::Arc::clone(&again.progress);
                copies(again, &source, &copy);
                let counts = progress.counts();
                assert_eq!((counts.files, counts.links, counts.special), (0, 0, 0), "tree {seed}");
                let found = unintended(differences(&wanted, &Snapshot::of(&copy)));
                assert!(found.is_empty(), "tree {seed}, {way}, again: {}", lines(&found));
            }
        }
        // Copying must not have changed the source.
        let changed = differences(&wanted, &Snapshot::of(&source));
        assert!(changed.is_empty(), "tree {seed}: the source has changed: {}", lines(&changed));
        for (program, flags) in &rivals {
            let copy = folder.path().join(program);
            let from = if *program == "rsync" { source.join("") } else { source.clone() };
            run(program, flags, &from, &copy);
            for difference in differences(&wanted, &Snapshot::of(&copy)) {
                *lacks.entry((program, difference.part)).or_default() += 1;
            }
        }
    }
    lacks
}

fn lines(found: &[Difference]) -> String {
    found.iter().map(|difference| format!("\n  {difference}")).collect()
}

#[test]
fn copies_of_random_trees_equal_their_sources() {
    if !is_root() {
        skip("archive", "owners and devices need root; the trees are copied without them");
    }
    compare(cases(50), 1);
}

#[test]
#[ignore = "copies 2,000 trees, which takes some minutes"]
fn two_thousand_random_trees_are_copied_as_cp_and_rsync_do_or_better() {
    let lacks = compare(cases(2000), 1_000_000);
    for ((program, part), number) in lacks {
        eprintln!("{program}: {part}: {number}");
    }
}
