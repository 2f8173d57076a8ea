//! Kills copies at random moments and tests what they leave behind. Files that have their final
//! name must be complete, existing files must be intact, every leftover must be recorded, and the
//! next session must copy all missing files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use filecopy::{Keep, Settings};
use ioengine::{Clock, Monotonic};

use crate::bench::{cases, copies, copy, folder, is_root, leftovers, listed, replacing};
use crate::generator::{Recipe, grow};
use crate::random::Random;
use crate::snapshot::{Snapshot, differences};

/// Returns one of four variants of the settings for a child process that copies.
fn sessions(folder: &Path, way: u64) -> Settings {
    let settings = replacing(folder, Keep::All);
    match way % 4 {
        0 => settings,
        1 => Settings { resume: true, ..settings },
        2 => Settings { verify: true, threads: 2, ..settings },
        _ => Settings { sync: false, ..settings },
    }
}

fn start(folder: &Path, way: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--ignored", "--nocapture", "killed::copies_until_it_is_killed"]);
    command.env("HALFPOWER_TEST_FOLDER", folder).env("HALFPOWER_TEST_WAY", way.to_string());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
#[ignore = "a child process of another test"]
fn copies_until_it_is_killed() {
    let Some(folder) = std::env::var_os("HALFPOWER_TEST_FOLDER").map(PathBuf::from) else { return };
    let way = std::env::var("HALFPOWER_TEST_WAY").unwrap().parse().unwrap();
    let problems = copy(sessions(&folder, way), &folder.join("source"), &folder.join("copy"));
    assert!(problems.is_empty(), "{}", listed(&problems));
}

/// Returns the path, checksum and size of each regular file in a snapshot.
fn files(snapshot: &Snapshot) -> impl Iterator<Item = (&PathBuf, (&String, u64))> {
    let files = snapshot.0.iter().filter(|(_, entry)| entry.kind == "file");
    files.map(|(path, entry)| (path, (&entry.content, entry.size)))
}

/// Kills copies of one tree at random moments. Returns the number of copies that were unfinished
/// when killed.
pub fn kill_at_random(kills: u64, seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let folder = folder();
    let (source, target) = (folder.path().join("source"), folder.path().join("copy"));
    fs::create_dir(&source).unwrap();
    let recipe = Recipe { entries: 30, as_root: is_root(), large_percent: 3 };
    grow(&source, recipe, &mut random);
    fs::write(source.join("large"), random.bytes(20 << 20)).unwrap();
    let new = Snapshot::of(&source);
    // The destination already has older versions of some files.
    fs::create_dir(&target).unwrap();
    for (path, _) in files(&new).filter(|(path, _)| path.components().count() == 1).take(5) {
        fs::write(target.join(path), "as it was before").unwrap();
    }
    let old = Snapshot::of(&target);
    let whole_us = {
        let clock = Monotonic::new();
        let start_ns = clock.now_ns();
        let aside = folder.path().join("aside");
        copies(sessions(folder.path(), 0), &source, &aside);
        (clock.now_ns() - start_ns) / 1000 + 5_000
    };
    let clock = Monotonic::new();
    let mut unfinished = 0;
    for kill in 0..kills {
        let way = random.next();
        let mut child = start(folder.path(), way);
        clock.sleep(Duration::from_micros(random.below(whole_us)));
        unfinished += u64::from(child.try_wait().unwrap().is_none());
        let _ = child.kill();
        child.wait().unwrap();
        let now = Snapshot::of(&target);
        for (path, found) in files(&now) {
            let is_private = path.components().next().is_some_and(|first| {
                first.as_os_str().to_string_lossy().starts_with(".halfpower-")
                    && first.as_os_str().len() == 43
            });
            let is = |snapshot: &Snapshot| {
                files(snapshot).any(|(other, content)| other == path && content == found)
            };
            assert!(
                is_private || is(&new) || is(&old),
                "seed {seed}, kill {kill}: {path:?} is incomplete"
            );
        }
        for path in files(&old).map(|(path, _)| path) {
            assert!(now.0.contains_key(path), "seed {seed}, kill {kill}: {path:?} is gone");
        }
        check_leftovers(folder.path());
        if random.percent(30) {
            // For the next copy, the destination has only the old files again.
            let _ = fs::remove_dir_all(&target);
            fs::create_dir(&target).unwrap();
            for path in files(&old).map(|(path, _)| path) {
                fs::write(target.join(path), "as it was before").unwrap();
            }
        }
    }
    // A private file of a killed copy may be a hard link to the complete file, so the private
    // directories are removed before the last copy.
    for left in filecopy::leftovers(&folder.path().join("state")) {
        assert!(!left.in_use, "{left:?}");
        filecopy::clean(&left).unwrap();
    }
    copies(sessions(folder.path(), 1), &source, &target);
    let found = differences(&new, &Snapshot::of(&target));
    let found: Vec<_> = found.into_iter().filter(|one| one.part != "extra").collect();
    assert!(found.is_empty(), "seed {seed}: {found:?}");
    assert_eq!(leftovers(folder.path()), Vec::<PathBuf>::new(), "seed {seed}");
    unfinished
}

/// Checks the private directories of killed copies. They must be recorded, so that `clean` can
/// remove them, and only their owner may have access.
fn check_leftovers(folder: &Path) {
    use std::os::unix::fs::MetadataExt;
    let known = filecopy::leftovers(&folder.join("state"));
    for path in leftovers(folder) {
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(metadata.mode() & 0o077, 0, "{path:?}");
        let is_empty = fs::read_dir(&path).unwrap().next().is_none();
        let is_known = known.iter().any(|left| left.path == path.canonicalize().unwrap());
        // A private directory is recorded after it is created and before it is used. Therefore a
        // directory without a record must be empty.
        assert!(is_known || is_empty, "{path:?} has no record: {known:?}");
        if !is_known {
            fs::remove_dir(&path).unwrap();
        }
    }
}

#[test]
fn a_killed_copy_leaves_complete_new_files_and_intact_old_ones() {
    let kills = cases(24);
    let unfinished = kill_at_random(kills, 1);
    eprintln!("{unfinished} of {kills} copies were killed before they were finished");
}
