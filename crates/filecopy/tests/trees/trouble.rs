//! Tests of failures: every file that can be copied is copied, each failure is reported, and the
//! next session copies the missing files.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use filecopy::{Event, Keep, Problem, Settings};
use ioengine::Op;
use ioengine::fault::{Fault, FaultPlan, FaultRule};

use crate::bench::{
    cases, copies, copy, folder, is_root, leftovers, listed, replacing, settings, skip,
};
use crate::generator::{Recipe, grow};
use crate::random::Random;
use crate::snapshot::{Snapshot, differences};

/// Runs one step of a test as the user `nobody`, in another process.
fn as_nobody(test: &str, folder: &Path) -> std::process::Output {
    use std::os::unix::process::CommandExt;
    // The test program is copied, because the build directory may be readable only by its owner.
    let bin = folder.join("trees-of-nobody");
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&bin).status();
    assert!(copied.unwrap().success());
    let mut command = Command::new(&bin);
    command.args(["--exact", "--ignored", "--nocapture", test]);
    command.env("HALFPOWER_TEST_FOLDER", folder).uid(65_534).gid(65_534);
    command.output().unwrap()
}

fn folder_of_parent() -> Option<PathBuf> {
    std::env::var_os("HALFPOWER_TEST_FOLDER").map(PathBuf::from)
}

#[test]
fn an_unreadable_file_does_not_prevent_copying_the_others() {
    if !is_root() {
        return skip("trouble", "running as another user needs root");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let source = folder.path().join("source");
    fs::create_dir_all(source.join("closed")).unwrap();
    for name in ["one", "secret", "two", "closed/inside"] {
        fs::write(source.join(name), name).unwrap();
    }
    for (name, mode) in [("secret", 0o600), ("closed", 0o700)] {
        fs::set_permissions(source.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let output = as_nobody("trouble::copies_as_nobody", folder.path());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("source/secret: permission denied"), "{said}");
    assert!(said.contains("source/closed: permission denied"), "{said}");
    assert!(said.contains("2 problems"), "{said}");
    let copy = folder.path().join("copy");
    assert_eq!(fs::read_to_string(copy.join("two")).unwrap(), "two");
    assert!(!copy.join("secret").exists());
    // Root may read all files, so a copy by root adds the missing files.
    copies(replacing(folder.path(), Keep::All), &source, &copy);
    assert!(differences(&Snapshot::of(&source), &Snapshot::of(&copy)).is_empty());
}

#[test]
#[ignore = "a child process of another test"]
fn copies_as_nobody() {
    let Some(folder) = folder_of_parent() else { return };
    let own = folder.join("state-of-nobody");
    let problems = copy(settings(&own, Keep::All), &folder.join("source"), &folder.join("copy"));
    println!("{}{} problems", listed(&problems), problems.len());
}

#[test]
fn a_file_that_vanishes_is_named_and_nothing_else_is_lost() {
    let folder = folder();
    let source = folder.path().join("source");
    fs::create_dir(&source).unwrap();
    for number in 0..40 {
        fs::write(source.join(format!("{number}")), [7; 100]).unwrap();
    }
    // When the first file has been copied, the listener removes half of the source files.
    let (names, gone) = (source.clone(), AtomicBool::new(false));
    let listener = Arc::new(move |event: &Event| {
        if let (Event::Copied { .. }, false) = (event, gone.swap(true, Ordering::SeqCst)) {
            for number in 20..40 {
                let _ = fs::remove_file(names.join(format!("{number}")));
            }
        }
    });
    let target = folder.path().join("copy");
    let settings = Settings { listener, threads: 1, ..settings(folder.path(), Keep::Mode) };
    let problems = copy(settings, &source, &target);
    let copied = fs::read_dir(&target).unwrap().count();
    assert_eq!(copied + problems.len(), 40, "{}", listed(&problems));
    assert!(problems.iter().all(|problem| problem.errno == Some(2)), "{}", listed(&problems));
}

/// Opens the directory `levels` levels below `root`. Creates missing directories. All names are
/// long.
fn deep(root: &Path, levels: u32) -> rustix::fd::OwnedFd {
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
    let (flags, name) = (OFlags::DIRECTORY | OFlags::RDONLY, "d".repeat(200));
    let mut at = openat(CWD, root, flags, Mode::empty()).unwrap();
    for _ in 0..levels {
        let _ = mkdirat(&at, &name, Mode::RWXU);
        at = openat(&at, &name, flags, Mode::empty()).unwrap();
    }
    at
}

#[test]
fn deep_trees_and_long_paths_are_copied() {
    use rustix::fs::{Mode, OFlags, openat};
    const LEVELS: u32 = 60; // The path has 12,000 characters, three times the maximum.
    let folder = folder();
    let (source, copy) = (folder.path().join("source"), folder.path().join("copy"));
    fs::create_dir(&source).unwrap();
    let open = |root: &Path, flags| {
        let mode = Mode::from_raw_mode(0o600);
        File::from(openat(deep(root, LEVELS), "file", flags, mode).unwrap())
    };
    open(&source, OFlags::CREATE | OFlags::WRONLY).write_all(b"deep").unwrap();
    copies(settings(folder.path(), Keep::All), &source, &copy);
    let mut text = String::new();
    open(&copy, OFlags::RDONLY).read_to_string(&mut text).unwrap();
    assert_eq!(text, "deep");
    for tree in [&source, &copy] {
        assert!(Command::new("rm").arg("-rf").arg(tree).status().unwrap().success());
    }
}

/// A tmpfs of limited size that is unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: PathBuf, bytes: u64) -> Option<SmallDisk> {
        fs::create_dir(&at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(&at)
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(SmallDisk(at))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn on_a_full_disk_every_file_is_whole_or_named() {
    let folder = folder();
    if !is_root() {
        return skip("trouble", "mounting a small file system needs root");
    }
    let Some(disk) = SmallDisk::mount(folder.path().join("disk"), 3 << 20) else {
        return skip("trouble", "tmpfs cannot be mounted here");
    };
    let source = folder.path().join("source");
    fs::create_dir(&source).unwrap();
    let mut random = Random::new(5);
    for number in 0..60 {
        let length = 1000 + random.below(200_000) as usize;
        fs::write(source.join(format!("{number}")), random.bytes(length)).unwrap();
    }
    let target = disk.0.join("copy");
    let problems = copy(settings(folder.path(), Keep::Mode), &source, &target);
    assert!(!problems.is_empty());
    assert!(problems.iter().all(|problem| problem.errno == Some(28)), "{}", listed(&problems));
    assert_whole_or_named(&source, &target, &problems);
    assert_eq!(leftovers(&disk.0), Vec::<PathBuf>::new());
    // When there is more space, the next session copies the missing files.
    let grown = Command::new("mount").args(["-o", "remount,size=64m"]).arg(&disk.0).status();
    assert!(grown.unwrap().success());
    copies(settings(folder.path(), Keep::Mode), &source, &target);
    assert_whole_or_named(&source, &target, &[]);
}

/// Asserts that every source file was copied completely or is reported in a problem.
#[track_caller]
fn assert_whole_or_named(source: &Path, target: &Path, problems: &[Problem]) {
    for entry in fs::read_dir(source).unwrap() {
        let name = entry.unwrap().file_name();
        let (from, to) = (source.join(&name), target.join(&name));
        let is_named = problems.iter().any(|problem| problem.path == from || problem.path == to);
        match fs::read(&to) {
            Ok(bytes) => assert!(bytes == fs::read(&from).unwrap(), "{name:?} is wrong"),
            Err(_) => assert!(is_named, "{name:?} is missing and was not reported"),
        }
    }
}

#[test]
fn an_attribute_that_does_not_fit_is_named_and_the_file_is_there() {
    let folder = folder();
    if !is_root() {
        return skip("trouble", "mounting needs root");
    }
    // tmpfs supports large attributes, which the file system of the build directory usually does
    // not.
    let Some(memory) = SmallDisk::mount(folder.path().join("memory"), 8 << 20) else {
        return skip("trouble", "tmpfs cannot be mounted here");
    };
    let source = memory.0.join("file");
    fs::write(&source, "x").unwrap();
    let large = vec![b'x'; 60_000];
    let set = rustix::fs::setxattr(&source, "user.large", &large, rustix::fs::XattrFlags::empty());
    let other = folder.path().join("probe");
    fs::write(&other, "x").unwrap();
    let fits =
        rustix::fs::setxattr(&other, "user.large", &large, rustix::fs::XattrFlags::empty()).is_ok();
    if set.is_err() || fits {
        return skip("trouble", "both file systems accept attributes of the same size");
    }
    let target = folder.path().join("copy");
    let problems = copy(settings(folder.path(), Keep::All), &source, &target);
    assert_eq!(problems.len(), 1, "{}", listed(&problems));
    assert!(problems[0].to_string().contains("the attribute user.large"), "{}", problems[0]);
    assert_eq!(fs::read_to_string(&target).unwrap(), "x");
}

#[test]
fn a_device_error_is_reported_with_its_offset_and_leaves_no_copy() {
    for (op, doing) in [(Op::Read, "reading"), (Op::Write, "writing")] {
        let folder = folder();
        let (source, target) = (folder.path().join("source"), folder.path().join("copy"));
        fs::write(&source, Random::new(1).bytes(6 << 20)).unwrap();
        let rule = FaultRule { fault: Fault::Errno(5), only: Some(op), first: 20, count: 1 };
        let options = seqio::Options::new()
            .cache(seqio::Cache::Direct)
            .request_bytes(65536)
            .faults(FaultPlan { rules: vec![rule] });
        let settings = Settings { options, ..settings(folder.path(), Keep::Mode) };
        let problems = copy(settings, &source, &target);
        assert_eq!(problems.len(), 1, "{}", listed(&problems));
        let said = problems[0].to_string();
        assert!(said.contains(&format!("{doing} at byte {} of", 20 * 65536)), "{said}");
        assert!(!target.exists() && leftovers(folder.path()).is_empty());
    }
}

#[test]
fn a_copy_that_fails_verification_is_discarded() {
    let folder = folder();
    let (source, target) = (folder.path().join("source"), folder.path().join("copy"));
    fs::write(&source, Random::new(1).bytes(3 << 20)).unwrap();
    let rule = FaultRule { fault: Fault::Flip, only: Some(Op::Write), first: 7, count: 1 };
    let options = seqio::Options::new()
        .cache(seqio::Cache::Direct)
        .request_bytes(65536)
        .faults(FaultPlan { rules: vec![rule] });
    let verified = Settings { options, verify: true, ..settings(folder.path(), Keep::Mode) };
    let problems = copy(verified, &source, &target);
    assert_eq!(problems[0].kind, filecopy::ProblemKind::Differs, "{}", listed(&problems));
    assert!(!target.exists());
}

/// Size of a piece (bytes). A test file is rewritten in place, piece by piece from the start. Each
/// piece begins and ends with the version number of the file.
const PIECE_BYTES: usize = 10_000;

fn piece(file: u64, version: u64, number: u64) -> Vec<u8> {
    let mut bytes = Random::new(file << 48 ^ version << 16 ^ number).bytes(PIECE_BYTES);
    bytes[..8].copy_from_slice(&version.to_le_bytes());
    bytes[PIECE_BYTES - 8..].copy_from_slice(&version.to_le_bytes());
    bytes
}

fn version(file: u64, version: u64) -> Vec<u8> {
    let pieces = 3 + Random::new(file << 32 ^ version).below(20);
    (0..pieces).flat_map(|number| piece(file, version, number)).collect()
}

/// Checks whether the file had these contents at one moment. While the file is rewritten, it has
/// the bytes of the new version up to some offset, and the bytes of one older version after it. The
/// offset may be in the middle of a piece.
fn was_ever_so(file: u64, bytes: &[u8]) -> bool {
    let mut versions = Vec::new();
    for found in bytes.chunks(PIECE_BYTES) {
        versions.extend(found.first_chunk().map(|first| u64::from_le_bytes(*first)));
        let end = found.get(PIECE_BYTES - 8..).and_then(|end| end.first_chunk());
        versions.extend(end.map(|end| u64::from_le_bytes(*end)));
    }
    let falls = versions.windows(2).all(|pair| pair[0] >= pair[1]);
    versions.dedup();
    let ([newer, .., older] | [newer @ older]) = *versions else { return false };
    if !falls || versions.len() > 2 {
        return false;
    }
    let (newer, older) = (version(file, newer), version(file, older));
    let written = bytes.iter().zip(&newer).take_while(|(found, byte)| found == byte).count();
    written == bytes.len() || older.get(written..) == Some(&bytes[written..])
}

#[test]
fn the_test_of_states_admits_an_interrupted_writer_and_no_mixture() {
    let longest = |from: u64| (from..from + 50).max_by_key(|of| version(1, *of).len()).unwrap();
    let (old, new) = (longest(0), longest(100));
    let (older, newer) = (version(1, old), version(1, new));
    for written in [0, 9, 4096, PIECE_BYTES, PIECE_BYTES + 5000, newer.len()] {
        let state = [&newer[..written], older.get(written..).unwrap_or_default()].concat();
        assert!(was_ever_so(1, &state), "{written} bytes written");
    }
    let backwards = [&older[..PIECE_BYTES], &newer[PIECE_BYTES..]].concat();
    assert!(!was_ever_so(1, &backwards));
    let torn = [&newer[..4096], &older[4096..8192], &newer[8192..]].concat();
    assert!(!was_ever_so(1, &torn));
}

#[test]
fn files_that_change_while_they_are_copied_are_of_one_state_or_named() {
    const FILES: u64 = 12;
    let mut named = 0;
    for round in 0..cases(6) {
        let folder = folder();
        let source = folder.path().join("source");
        fs::create_dir(&source).unwrap();
        let path = |file: u64| source.join(format!("{file}"));
        for file in 0..FILES {
            fs::write(path(file), version(file, 0)).unwrap();
        }
        let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
        let target = folder.path().join("copy");
        let problems = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random::new(round);
                while !stop.load(Ordering::Relaxed) {
                    let number = rounds.fetch_add(1, Ordering::Relaxed) + 1;
                    let file = random.below(FILES);
                    let bytes = version(file, number);
                    // The file is rewritten in place and in pieces, as a careless program does.
                    let open = OpenOptions::new().write(true).open(path(file)).unwrap();
                    for (piece, at) in bytes.chunks(PIECE_BYTES).zip(0_u64..) {
                        open.write_all_at(piece, at * PIECE_BYTES as u64).unwrap();
                    }
                    open.set_len(bytes.len() as u64).unwrap();
                }
            });
            let settings = settings(folder.path(), Keep::Mode);
            let problems = copy(settings, &source, &target);
            stop.store(true, Ordering::Relaxed);
            problems
        });
        named += problems.len();
        for file in 0..FILES {
            let bytes = fs::read(target.join(format!("{file}"))).unwrap();
            let is_named = problems.iter().any(|problem| problem.path == path(file));
            assert!(is_named || was_ever_so(file, &bytes), "round {round}: {file} mixes versions");
        }
    }
    eprintln!("{named} files changed too often during the copy and were reported");
}

#[test]
fn concurrent_changes_do_not_stop_a_copy_or_leak_files_outside_the_tree() {
    for seed in 0..cases(10) {
        let folder = folder();
        let source = folder.path().join("source");
        fs::create_dir(&source).unwrap();
        let mut random = Random::new(seed);
        let recipe = Recipe { entries: 60, as_root: false, large_percent: 0 };
        let entries = grow(&source, recipe, &mut random);
        // Nothing outside the source tree may be copied through a link that appears during the
        // copy.
        let outside = folder.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret"), "not of the tree").unwrap();
        let stop = AtomicBool::new(false);
        let target = folder.path().join("copy");
        let problems = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let path = random.pick(&entries);
                    let _ = match random.below(6) {
                        0 => fs::remove_file(path),
                        1 => fs::rename(path, random.pick(&entries)),
                        2 => fs::remove_dir_all(path),
                        3 => std::os::unix::fs::symlink(&outside, path),
                        4 => fs::create_dir(path),
                        _ => create_at_once(path).and_then(|mut file| file.write_all(b"other")),
                    };
                }
            });
            let problems = copy(settings(folder.path(), Keep::All), &source, &target);
            stop.store(true, Ordering::Relaxed);
            problems
        });
        drop(problems);
        for (path, entry) in Snapshot::of(&target).0 {
            let copied = target.join(&path);
            if entry.kind == "file" && entry.size < 100 {
                let text = fs::read(&copied).unwrap();
                assert_ne!(text, b"not of the tree", "{path:?} was read through a link");
            }
        }
        assert_eq!(leftovers(&target), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_stopped_copy_keeps_whole_files_and_gives_directories_their_modes() {
    let folder = folder();
    let source = folder.path().join("source");
    fs::create_dir_all(source.join("sub")).unwrap();
    for number in 0..200 {
        fs::write(source.join(format!("sub/{number}")), [3; 5000]).unwrap();
    }
    fs::set_permissions(source.join("sub"), fs::Permissions::from_mode(0o755)).unwrap();
    let settings = settings(folder.path(), Keep::All);
    let (stop, copied) = (Arc::clone(&settings.stop), AtomicU64::new(0));
    let listener = Arc::new(move |event: &Event| {
        if matches!(event, Event::Copied { .. }) && copied.fetch_add(1, Ordering::SeqCst) == 50 {
            stop.store(true, Ordering::SeqCst);
        }
    });
    let target = folder.path().join("copy");
    let problems = copy(Settings { listener, ..settings }, &source, &target);
    assert!(problems.iter().all(|one| one.kind == filecopy::ProblemKind::Stopped));
    let there = fs::read_dir(target.join("sub")).unwrap().count();
    assert!((40..200).contains(&there), "{there} files");
    assert_eq!(fs::metadata(target.join("sub")).unwrap().mode() & 0o777, 0o755);
    for entry in fs::read_dir(target.join("sub")).unwrap() {
        assert_eq!(fs::read(entry.unwrap().path()).unwrap(), [3; 5000]);
    }
    copies(crate::bench::settings(folder.path(), Keep::All), &source, &target);
    assert!(differences(&Snapshot::of(&source), &Snapshot::of(&target)).is_empty());
}

/// Creates or truncates a file. Does not block if the path is a named pipe.
fn create_at_once(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    OpenOptions::new().write(true).create(true).truncate(true).custom_flags(flags).open(path)
}
