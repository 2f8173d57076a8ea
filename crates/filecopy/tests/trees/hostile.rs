//! Tests with hostile users who may write to the destination. They must not be able to read files
//! without permission, nothing outside the destination may change, and their files must not be
//! mistaken for copies.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use filecopy::{Keep, ProblemKind, Settings};

use crate::bench::{cases, copies, copy, folder, is_root, leftovers, listed, settings, skip};
use crate::random::Random;
use crate::snapshot::{Snapshot, differences};

const NOBODY: u32 = 65_534;
/// Name of a file to which the hostile process appends one byte for each of its actions.
const MOVES: &str = "moves-made";
/// First bytes of every file that only its owner may read.
const SECRET: &[u8] = b"for the eyes of its owner alone";

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_file_of_somebody_else_is_never_taken_for_an_unfinished_copy() {
    let folder = folder();
    let (source, to) = (folder.path().join("secret"), folder.path().join("to"));
    fs::create_dir(&to).unwrap();
    fs::write(&source, Random::new(1).bytes(9 << 20)).unwrap();
    chmod(&source, 0o600);
    // The first of these names is the name of the unfinished copy in earlier versions. The second
    // looks like the name of a private directory.
    for name in [".secret.halfpower-partial", ".halfpower-00000000000000000000000000000000"] {
        fs::write(to.join(name), "trap").unwrap();
        chmod(&to.join(name), 0o666);
    }
    let resumable = Settings { resume: true, ..settings(folder.path(), Keep::Mode) };
    copies(resumable, &source, &to.join("secret"));
    let metadata = fs::metadata(to.join("secret")).unwrap();
    assert_eq!(metadata.mode() & 0o777, 0o600);
    assert!(fs::read(to.join("secret")).unwrap() == fs::read(&source).unwrap());
    for name in [".secret.halfpower-partial", ".halfpower-00000000000000000000000000000000"] {
        assert_eq!(fs::read(to.join(name)).unwrap(), b"trap");
    }
}

#[test]
fn an_unfinished_copy_is_resumed_only_if_it_is_the_recorded_file() {
    let folder = folder();
    let (source, target) = (folder.path().join("source"), folder.path().join("copy"));
    let wanted = Random::new(1).bytes(24 << 20);
    fs::write(&source, &wanted).unwrap();
    let interrupted = || {
        let settings = Settings {
            resume: true,
            options: seqio::Options::new().cache(seqio::Cache::Direct).request_bytes(1 << 20),
            limiter: filecopy::Limiter::new(Some(60e6)),
            ..settings(folder.path(), Keep::Mode)
        };
        let stop = std::sync::Arc::clone(&settings.stop);
        std::thread::scope(|scope| {
            let progress = std::sync::Arc::clone(&settings.progress);
            scope.spawn(move || {
                while progress.counts().bytes < 8 << 20 {
                    std::thread::yield_now();
                }
                stop.store(true, std::sync::atomic::Ordering::SeqCst);
            });
            let problems = copy(settings, &source, &target);
            assert_eq!(problems[0].kind, ProblemKind::Stopped, "{}", listed(&problems));
        });
        let private = leftovers(folder.path());
        assert_eq!(private.len(), 1, "{private:?}");
        assert_eq!(fs::metadata(&private[0]).unwrap().mode() & 0o777, 0o700);
        fs::read_dir(&private[0]).unwrap().next().unwrap().unwrap().path()
    };
    let finish = || {
        let settings = Settings { resume: true, ..settings(folder.path(), Keep::Mode) };
        let progress = std::sync::Arc::clone(&settings.progress);
        copies(settings, &source, &target);
        assert!(fs::read(&target).unwrap() == wanted);
        fs::remove_file(&target).unwrap();
        progress.counts().resumed_bytes
    };
    interrupted();
    assert!(finish() > 0, "the copy is resumed");
    assert_eq!(leftovers(folder.path()), Vec::<PathBuf>::new());
    // Each of these functions tampers with the unfinished file.
    type Exchange = (&'static str, fn(&Path));
    let exchanges: [Exchange; 4] = [
        ("another file", |path| {
            fs::remove_file(path).unwrap();
            fs::write(path, vec![0; 24 << 20]).unwrap();
            chmod(path, 0o600);
        }),
        ("a second name", |path| {
            fs::hard_link(path, path.with_file_name("second")).unwrap();
        }),
        ("open to others", |path| chmod(path, 0o666)),
        ("a link", |path| {
            let aside = path.with_file_name("aside");
            fs::rename(path, &aside).unwrap();
            symlink(&aside, path).unwrap();
        }),
    ];
    for (what, exchange) in exchanges {
        exchange(&interrupted());
        assert_eq!(finish(), 0, "{what}: the copy starts over");
        for left in leftovers(folder.path()) {
            fs::remove_dir_all(left).unwrap();
        }
    }
    // A copy whose source has changed must start over.
    interrupted();
    let mut changed = wanted.clone();
    changed[0] ^= 1;
    fs::write(&source, &changed).unwrap();
    let settings = Settings { resume: true, ..settings(folder.path(), Keep::Mode) };
    copies(settings, &source, &target);
    assert!(fs::read(&target).unwrap() == changed);
}

#[test]
fn a_copy_is_private_until_it_has_its_name_and_never_wider_than_its_source() {
    let folder = folder();
    let (source, to) = (folder.path().join("source"), folder.path().join("to"));
    fs::create_dir(&to).unwrap();
    fs::write(&source, Random::new(1).bytes(2 << 20)).unwrap();
    for (keep, mode) in [(Keep::Mode, 0o600), (Keep::All, 0o640), (Keep::All, 0o000)] {
        chmod(&source, mode);
        let settings = Settings {
            limiter: filecopy::Limiter::new(Some(20e6)),
            options: seqio::Options::new().request_bytes(65536).depth(2),
            ..settings(folder.path(), keep)
        };
        let is_done = std::sync::atomic::AtomicBool::new(false);
        let target = to.join("copy");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    for entry in fs::read_dir(&to).unwrap().flatten() {
                        if let Ok(metadata) = entry.metadata() {
                            let seen = metadata.mode() & 0o777;
                            let allowed = if metadata.is_dir() { 0o700 } else { mode };
                            assert_eq!(seen & !allowed, 0, "{:?} has {seen:o}", entry.path());
                        }
                    }
                }
            });
            copies(settings, &source, &target);
            is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        fs::remove_file(&target).unwrap();
    }
}

/// A process that runs as the user `nobody` and attacks a folder until it is killed.
struct Hostile(Child);

impl Hostile {
    fn start(folder: &Path, bin: &Path, seed: u64) -> Hostile {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(bin);
        command.args(["--exact", "--ignored", "--nocapture", "hostile::does_its_worst"]);
        command.env("HALFPOWER_TEST_FOLDER", folder).env("HALFPOWER_TEST_SEED", seed.to_string());
        command.stdout(Stdio::null()).stderr(Stdio::null()).uid(NOBODY).gid(NOBODY);
        Hostile(command.spawn().unwrap())
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "a child process of another test"]
fn does_its_worst() {
    let Some(folder) = std::env::var_os("HALFPOWER_TEST_FOLDER").map(PathBuf::from) else { return };
    let seed = std::env::var("HALFPOWER_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let mut random = Random::new(seed.unwrap_or(1));
    let to = folder.join("to");
    let moves = to.join(MOVES);
    let mut count = fs::OpenOptions::new().append(true).create(true).open(&moves).unwrap();
    loop {
        let mut seen = Vec::new();
        look_around(&to, &mut seen, &folder);
        for _ in 0..20 {
            let Some(path) = seen.get(random.below(seen.len().max(1) as u64) as usize) else {
                break;
            };
            let name = ["copy", "copy/secret-0", "copy/open-1", "copy/sub", "copy/sub/secret-2"];
            let name = to.join(*random.pick(&name));
            if *path == moves {
                continue;
            }
            count.write_all(b".").unwrap();
            // Errors are ignored, because forbidden actions fail.
            let _ = match random.below(9) {
                0 => fs::rename(path, to.join(format!("aside-{}", random.below(50)))),
                1 => fs::remove_file(path),
                2 => symlink(folder.join("victim"), &name),
                3 => symlink(folder.join("victim/precious"), &name),
                4 => fs::hard_link(path, to.join(format!("name-{}", random.below(50)))),
                5 => fs::create_dir(&name),
                6 => fs::rename(path, &name),
                7 => fs::write(&name, "trap"),
                _ => fs::set_permissions(path, fs::Permissions::from_mode(0o777)),
            };
        }
    }
}

/// Collects all visible paths below a folder. If a readable file contains the secret, writes the
/// path of that file to `to/LEAKED`.
fn look_around(folder: &Path, seen: &mut Vec<PathBuf>, report_to: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            look_around(&path, seen, report_to);
        } else if kind.is_file() {
            let mut bytes = Vec::new();
            let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
            let open = fs::OpenOptions::new().read(true).custom_flags(flags).open(&path);
            if open.and_then(|file| file.take(1 << 20).read_to_end(&mut bytes)).is_ok()
                && bytes.windows(SECRET.len()).any(|window| window == SECRET)
            {
                let _ = fs::write(report_to.join("to/LEAKED"), path.as_os_str().as_encoded_bytes());
            }
        }
        seen.push(path);
    }
}

/// Creates a source tree. Half of its files are readable only by root.
fn secret_tree(folder: &Path, random: &mut Random) -> PathBuf {
    let source = folder.join("source");
    fs::create_dir_all(source.join("sub")).unwrap();
    for number in 0..12 {
        let place = if number % 2 == 0 { source.clone() } else { source.join("sub") };
        let secret = place.join(format!("secret-{number}"));
        let length = 1000 + random.below(100_000) as usize;
        fs::write(&secret, [SECRET, &random.bytes(length)].concat()).unwrap();
        chmod(&secret, 0o600);
        let open = place.join(format!("open-{number}"));
        fs::write(&open, random.bytes(length)).unwrap();
        chmod(&open, 0o644);
    }
    chmod(&source, 0o755);
    chmod(&source.join("sub"), 0o755);
    source
}

/// Copies many times while a hostile process runs. Returns the number of actions of that process.
pub fn beside_a_hostile_user(rounds: u64, first_seed: u64, sticky: bool) -> u64 {
    let mut moves = 0;
    let bench = tempfile::tempdir().unwrap();
    chmod(bench.path(), 0o755);
    let bin = bench.path().join("trees-of-nobody");
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&bin).status();
    assert!(copied.unwrap().success());
    for round in 0..rounds {
        let seed = first_seed + round;
        let mut random = Random::new(seed);
        let folder = tempfile::tempdir().unwrap();
        chmod(folder.path(), 0o755);
        let state = tempfile::tempdir().unwrap();
        let source = secret_tree(folder.path(), &mut random);
        let victim = folder.path().join("victim");
        fs::create_dir(&victim).unwrap();
        fs::write(victim.join("precious"), "as it was").unwrap();
        let before = Snapshot::of(&victim);
        let to = folder.path().join("to");
        fs::create_dir(&to).unwrap();
        chmod(&to, if sticky { 0o1777 } else { 0o777 });
        let hostile = Hostile::start(folder.path(), &bin, seed);
        let target = to.join("copy");
        let keep = *random.pick(&[Keep::Mode, Keep::Basics, Keep::All]);
        for _ in 0..20 {
            let resume = random.percent(30);
            let again = Settings { resume, ..settings(state.path(), keep) };
            let problems = copy(again, &source, &target);
            if sticky && problems.is_empty() {
                let is_copy =
                    fs::symlink_metadata(&target).is_ok_and(|m| m.is_dir() && m.uid() == 0);
                if is_copy {
                    let differs = differences(&Snapshot::of(&source), &Snapshot::of(&target));
                    let wrong: Vec<_> = differs
                        .iter()
                        .filter(|one| ["content", "missing"].contains(&one.part))
                        .collect();
                    assert!(wrong.is_empty(), "seed {seed}: {wrong:?}");
                }
            }
            if random.percent(50) {
                let _ = fs::remove_dir_all(&target).or_else(|_| fs::remove_file(&target));
            }
        }
        drop(hostile);
        moves += fs::metadata(to.join(MOVES)).map_or(0, |metadata| metadata.len());
        assert!(!to.join("LEAKED").exists(), "seed {seed}: {:?}", fs::read(to.join("LEAKED")));
        let changed = differences(&before, &Snapshot::of(&victim));
        assert!(changed.is_empty(), "seed {seed}: something outside the destination was changed");
        let secret = Snapshot::of(&source);
        assert!(secret.0.values().all(|entry| entry.owner == (0, 0)), "seed {seed}");
    }
    moves
}

#[test]
fn beside_a_hostile_user_nothing_is_read_and_nothing_outside_changes() {
    if !is_root() {
        return skip("hostile", "running as another user needs root");
    }
    beside_a_hostile_user(cases(2), 1, true);
    beside_a_hostile_user(cases(2), 100, false);
}

#[test]
fn a_file_that_appears_under_the_name_of_a_copy_is_left_alone() {
    let folder = folder();
    let source = folder.path().join("source");
    fs::write(&source, Random::new(1).bytes(2 << 20)).unwrap();
    let target = folder.path().join("copy");
    let appears = target.clone();
    let settings = Settings {
        limiter: filecopy::Limiter::new(Some(40e6)),
        options: seqio::Options::new().cache(seqio::Cache::Direct).request_bytes(65536),
        ..settings(folder.path(), Keep::Mode)
    };
    std::thread::scope(|scope| {
        let progress = std::sync::Arc::clone(&settings.progress);
        scope.spawn(move || {
            while progress.counts().bytes == 0 {
                std::thread::yield_now();
            }
            File::create_new(appears).unwrap();
        });
        let problems = copy(settings, &source, &target);
        assert_eq!(problems[0].kind, ProblemKind::Refused, "{}", listed(&problems));
        assert!(problems[0].to_string().contains("was created by another program during the copy"));
    });
    assert_eq!(fs::metadata(&target).unwrap().len(), 0);
    assert_eq!(leftovers(folder.path()), Vec::<PathBuf>::new());
}
