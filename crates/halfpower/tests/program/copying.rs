//! Tests `halfpower copy`: a copy is equal to its source or absent, even after interruptions.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ioengine::Monotonic;
use ioengine::open_file::resident_bytes;

use crate::fixture::{Place, list, noise, or_skip, pause, skip, text, whole};
use crate::known_truth::Served;
use crate::volume::{LoopDevice, Mounted, TwoDevices, Volume, make};

const MIB: u64 = 1 << 20;

fn same(one: &Path, other: &Path) -> bool {
    fs::read(one).unwrap() == fs::read(other).unwrap()
}

/// Returns a line for each entry below a directory, with its path, mode, link target and checksum.
/// If `exactly` is set, the line also has the modification time, owner and number of links.
fn tree_of(folder: &Path, exactly: bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(below) = folders.pop() {
        for entry in fs::read_dir(folder.join(&below)).unwrap() {
            let name = below.join(entry.unwrap().file_name());
            let path = folder.join(&name);
            let metadata = fs::symlink_metadata(&path).unwrap();
            let kind = metadata.file_type();
            let mut line = format!("{} {:o}", name.display(), metadata.mode());
            if exactly {
                let seconds = metadata.mtime();
                line += &format!(" {seconds} {} {}", metadata.uid(), metadata.nlink());
            }
            if kind.is_dir() {
                folders.push(name);
            } else if kind.is_symlink() {
                line += &format!(" -> {}", fs::read_link(&path).unwrap().display());
            } else if kind.is_file() {
                let bytes = fs::read(&path).unwrap();
                let sum =
                    bytes.iter().fold(7_u64, |sum, byte| sum * 31 % 0xFFFF_FFFB + u64::from(*byte));
                line += &format!(" {} {sum}", bytes.len());
            }
            found.push(line);
        }
    }
    found.sort();
    found
}

/// Creates a directory tree with entries of all kinds.
fn grown(place: &Place) -> PathBuf {
    let tree = place.path("tree");
    fs::create_dir_all(tree.join("a/b/empty")).unwrap();
    fs::create_dir(tree.join("closed")).unwrap();
    for (name, bytes) in [("one", 1), ("a/none", 0), ("a/b/page", 4096), ("a/large", 3 * MIB + 7)] {
        place.file(&format!("tree/{name}"), bytes);
    }
    place.file("tree/closed/inside", 100_000);
    let sparse = File::create(tree.join("sparse")).unwrap();
    sparse.write_all_at(&noise(70_000), 20 * MIB).unwrap();
    sparse.set_len(40 * MIB).unwrap();
    std::os::unix::fs::symlink("a/large", tree.join("link")).unwrap();
    std::os::unix::fs::symlink("nowhere", tree.join("a/broken")).unwrap();
    fs::hard_link(tree.join("one"), tree.join("a/same-as-one")).unwrap();
    let mode = |name: &str, bits| {
        fs::set_permissions(tree.join(name), PermissionsExt::from_mode(bits)).unwrap();
    };
    mode("a/b/page", 0o640);
    mode("one", 0o444);
    mode("closed", 0o550);
    tree
}

#[test]
fn a_file_is_copied_whole_durable_and_with_its_mode() {
    let place = Place::new();
    let big = place.file("big", 9 * MIB + 123);
    fs::set_permissions(&big, PermissionsExt::from_mode(0o640)).unwrap();
    for (name, flags) in [
        ("plain", ""),
        ("verified", "--verify"),
        ("cached", "--cached --no-sync"),
        ("threads", "--ioengine threads --bs 64k --iodepth 3"),
        ("kept", "--archive --resume"),
    ] {
        let document = place.document(&format!("copy big {name} {flags}"));
        assert!(same(&big, &place.path(name)), "{name}");
        let metadata = fs::metadata(place.path(name)).unwrap();
        assert_eq!(metadata.mode() & 0o777, 0o640, "{name}");
        assert_eq!(whole(&document["files"]), 1);
        assert_eq!(whole(&document["bytes"]), 9 * MIB + 123);
        assert_eq!(document["durable"], name != "cached");
        assert_eq!(document["verified"], name == "verified");
    }
    let times = |name| fs::metadata(place.path(name)).unwrap().mtime_nsec();
    assert_eq!(times("kept"), times("big"), "--archive keeps the modification time");
    assert_eq!(place.listing().len(), 6, "{:?}", place.listing());
}

#[test]
fn what_exists_is_replaced_only_where_it_is_named() {
    let place = Place::new();
    place.file("new", 300_000);
    let old = place.file("old", 10);
    fs::set_permissions(&old, PermissionsExt::from_mode(0o600)).unwrap();
    place.cannot("copy new old").with_code(3).says("old exists", "--overwrite=old");
    place.cannot("copy new new").with_code(2).says("the source itself", "");
    place.does("copy new old --overwrite old --quiet");
    assert!(same(&place.path("new"), &old));
    assert_eq!(fs::metadata(&old).unwrap().mode() & 0o777, 0o600, "mode of the replaced file");
    // A symbolic link and a file with several hard links must not be replaced.
    place.file("other", 5);
    std::os::unix::fs::symlink("other", place.path("link")).unwrap();
    place.cannot("copy new link --overwrite link").with_code(3).says("is a symbolic link", "");
    place.file("more", 7);
    fs::hard_link(place.path("more"), place.path("name")).unwrap();
    place
        .cannot("copy new more --overwrite more")
        .with_code(3)
        .says("has 2 names", "specify the copy");
}

#[test]
fn a_wrong_destination_is_refused_with_the_remedy() {
    let place = Place::new();
    place.file("file", 10);
    fs::create_dir(place.path("folder")).unwrap();
    place
        .cannot("copy file")
        .with_code(2)
        .says("source or destination is missing", "halfpower copy SRC DST");
    place.cannot("copy missing there").with_code(2).says("missing:", "specify an existing file");
    place.cannot("copy file nowhere/").with_code(2).says("does not exist", "specify an existing");
    place
        .cannot("copy file folder file")
        .with_code(2)
        .says("is not a directory", "specify an existing");
    place.cannot("copy folder file").with_code(2).says("is not a directory", "another destination");
    place.cannot("copy -T file folder").with_code(2).says("is a directory", "another destination");
    place.cannot("copy folder folder/inside").with_code(3).says("into itself", "another");
    place.cannot("copy file /dev/copy").with_code(3).says("creates no files under /dev", "DST");
    place.cannot("copy file - --json").with_code(2).says("to standard output", "drop --json");
    place.cannot("copy folder -").with_code(2).says("is a directory", "tar");
    place.halfpower("copy -n -u file there").with_code(2).says("cannot be used with", "");
    place.cannot("copy file there --exclude [a").with_code(2).says("pattern '[a'", "");
    place.cannot("copy file there --ioengine null").with_code(2).says("cannot copy", "io_uring");
    let plan = place.does("copy file there --plan").prints("nothing was done");
    assert!(plan.stdout.contains("10 B") && !place.path("there").exists(), "{plan}");
}

#[test]
fn files_go_into_a_directory_that_exists() {
    let place = Place::new();
    place.file("one", 1000);
    place.file("two", 2000);
    fs::create_dir(place.path("folder")).unwrap();
    place.does("copy one two folder --quiet");
    place.does("copy one folder/three --quiet");
    place.does("copy two folder").says("nothing to copy", "copied by an earlier run");
    place.file("three", 5);
    place.cannot("copy three folder").with_code(3).says("exists", "--overwrite=folder/three");
    place.cannot("copy three folder --overwrite folder").with_code(3);
    place.does("copy three folder --overwrite folder/three --quiet");
    assert_eq!(Place::within(&place.path("folder")).listing(), ["one", "three", "two"]);
    assert!(same(&place.path("three"), &place.path("folder/three")));
    place.does("copy -t folder two --quiet");
    // One source is missing. All other sources must still be copied.
    fs::create_dir(place.path("into")).unwrap();
    let ended = place.halfpower("copy one missing two into").with_code(1);
    let ended = ended.says("missing: no such file", "");
    ended.says("1 entry was not copied", "the same command again to copy the rest");
    assert_eq!(Place::within(&place.path("into")).listing(), ["one", "two"]);
}

#[test]
fn the_same_command_again_means_the_same_copy() {
    let place = Place::new();
    let tree = grown(&place);
    let plain = |folder: &Path| tree_of(folder, false);
    for flags in ["", "--archive", "--preserve --verify", "--archive --resume"] {
        for _ in 0..3 {
            place.does(&format!("copy tree copy --quiet {flags}"));
            assert_eq!(plain(&place.path("copy")), plain(&tree), "{flags}");
        }
        fs::remove_dir_all(place.path("copy")).unwrap();
    }
    // As with cp, the destination may be an existing directory or a new name.
    fs::create_dir(place.path("into")).unwrap();
    for _ in 0..2 {
        place.does("copy tree into --quiet");
        place.does("copy tree/ into/ --quiet");
        assert_eq!(Place::within(&place.path("into")).listing(), ["tree"]);
    }
    for _ in 0..2 {
        place.does("copy tree/. into --quiet");
        place.does("copy -T tree other --quiet");
    }
    assert_eq!(plain(&place.path("other")), plain(&tree));
    assert!(place.path("into/a/b/page").exists());
    place.does("copy tree new/ --quiet");
    assert_eq!(plain(&place.path("new")), plain(&tree));
}

#[test]
fn a_tree_is_copied_with_all_that_is_in_it() {
    let place = Place::new();
    let tree = grown(&place);
    let document = place.document("copy tree copy");
    let plain = |folder: &Path| tree_of(folder, false);
    assert_eq!(plain(&place.path("copy")), plain(&tree));
    assert_eq!((whole(&document["files"]), whole(&document["directories"])), (7, 5));
    assert!(fs::metadata(place.path("copy/sparse")).unwrap().blocks() * 512 < 4 * MIB);
    fs::write(place.path("copy/a/b/page"), "changed").unwrap();
    fs::write(place.path("copy/own"), "stays").unwrap();
    let ended = place.halfpower("copy tree copy").with_code(3);
    let ended = ended.says("copy/a/b/page exists", "--overwrite=copy/a/b/page");
    ended.says("1 entry was not copied completely", "to copy the rest");
    place.does("copy tree copy --overwrite copy --quiet");
    assert_eq!(fs::read_to_string(place.path("copy/own")).unwrap(), "stays");
    let ended = place.halfpower("copy tree copy --delete").with_code(3);
    ended.says("copy/own is not in the source", "--overwrite");
    place.does("copy tree copy --delete --overwrite copy --verbose").prints("removed copy/own");
    assert_eq!(plain(&place.path("copy")), plain(&tree));
    assert_eq!(place.listing(), ["copy", "tree"], "temporary files are left behind");
}

#[test]
fn an_archive_keeps_modes_times_owners_attributes_and_links_of_all_kinds() {
    let place = Place::new();
    let tree = grown(&place);
    let made = Command::new("mkfifo").arg(tree.join("pipe")).status().unwrap();
    assert!(made.success());
    let page = tree.join("a/b/page");
    let set = rustix::fs::setxattr(&page, "user.note", b"kept", rustix::fs::XattrFlags::empty());
    for flags in ["", "--resume", "--verify", "--all-or-nothing"] {
        place.does(&format!("copy --archive tree copy --quiet {flags}"));
        let copy = place.path("copy");
        assert_eq!(tree_of(&copy, true), tree_of(&tree, true), "{flags}");
        assert!(fs::symlink_metadata(copy.join("pipe")).unwrap().file_type().is_fifo());
        let inode = |name: &str| fs::metadata(copy.join(name)).unwrap().ino();
        assert_eq!(inode("one"), inode("a/same-as-one"));
        if set.is_ok() {
            let mut value = [0; 10];
            let length = rustix::fs::getxattr(copy.join("a/b/page"), "user.note", &mut value[..]);
            assert_eq!(&value[..length.unwrap()], b"kept");
        }
        fs::remove_dir_all(copy).unwrap();
    }
    std::os::unix::fs::symlink("tree/one", place.path("named")).unwrap();
    std::os::unix::fs::symlink("nowhere", place.path("dangling")).unwrap();
    place.does("copy --archive named link --quiet");
    assert_eq!(fs::read_link(place.path("link")).unwrap(), Path::new("tree/one"));
    place.does("copy --archive dangling dangles --quiet");
    assert_eq!(fs::read_link(place.path("dangles")).unwrap(), Path::new("nowhere"));
    place.cannot("copy dangling there").with_code(2).says("dangling symbolic link", "--archive");
}

#[test]
fn patterns_leave_entries_out_in_the_order_in_which_they_were_typed() {
    let place = Place::new();
    fs::create_dir_all(place.path("tree/cache")).unwrap();
    for name in ["main.c", "main.o", "keep.o", "cache/file"] {
        place.file(&format!("tree/{name}"), 10);
    }
    place.does("copy tree copy -q --include keep.o --exclude *.o --exclude cache/");
    assert_eq!(Place::within(&place.path("copy")).listing(), ["keep.o", "main.c"]);
    place.does("copy tree other -q --exclude *.o --include keep.o");
    assert_eq!(Place::within(&place.path("other")).listing(), ["cache", "main.c"]);
    let plan = place.does("copy tree third --dry-run --exclude cache/");
    assert!(plan.stdout.contains("copy tree/main.c -> third/main.c"), "{plan}");
    assert!(!plan.stdout.contains("cache") && !place.path("third").exists(), "{plan}");
}

#[test]
fn streams_are_copied_from_where_they_stand() {
    let place = Place::new();
    let file = place.file("file", 3 * MIB);
    let mut command = place.command("copy - out --quiet");
    command.stdin(File::open(&file).unwrap());
    place.start_command(command, "copy - out").ended().with_code(0);
    assert!(same(&file, &place.path("out")));
    let mut command = place.command("copy - rest --quiet --verify");
    let mut input = File::open(&file).unwrap();
    std::io::Seek::seek(&mut input, std::io::SeekFrom::Start(MIB)).unwrap();
    command.stdin(input);
    place.start_command(command, "copy - rest").ended().with_code(0);
    assert!(fs::read(place.path("rest")).unwrap() == fs::read(&file).unwrap()[MIB as usize..]);
    let mut command = place.command("copy file -");
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success() && output.stdout == fs::read(&file).unwrap());
    assert!(Command::new("mkfifo").arg(place.path("pipe")).status().unwrap().success());
    let running = place.start("copy pipe from-pipe --quiet");
    fs::write(place.path("pipe"), fs::read(&file).unwrap()).unwrap();
    running.ended().with_code(0);
    assert!(same(&file, &place.path("from-pipe")));
}

#[test]
fn a_closed_standard_output_is_an_error_and_not_a_hole() {
    let place = Place::new();
    place.file("file", 100_000);
    let program = env!("CARGO_BIN_EXE_halfpower");
    for line in ["copy file -", "cat file", "engines", "checksum file"] {
        let shell = format!("{program} {line} >&-");
        let mut command = Command::new("sh");
        command.args(["-c", &shell]).current_dir(place.path(""));
        let ended = place.start_command(command, line).ended().with_code(1);
        assert!(
            ended.stderr.contains("stdout") || ended.stderr.contains("standard output"),
            "{ended}"
        );
    }
}

/// Returns the private directory of an unfinished copy. None if there is no such directory.
fn unfinished(place: &Place) -> Option<PathBuf> {
    let name = place.listing().into_iter().find(|name| name.starts_with(".halfpower-"))?;
    Some(place.path(&name))
}

#[test]
fn an_interrupt_leaves_nothing_or_what_the_next_one_goes_on_from() {
    let place = Place::new();
    let big = place.file("big", 24 * MIB);
    let mut running = place.start("copy big copy --limit-rate 4M/s");
    pause(1000);
    running.until("the copy still runs", || true);
    running.signal("INT");
    running.ended().with_code(130).says("interrupted", "no part of the copy was kept");
    assert_eq!(place.listing(), ["big"]);

    let mut running = place.start("copy big copy --limit-rate 6M/s --resume");
    let noted = place.state().join("halfpower/copies");
    let is_noted = || {
        let names = fs::read_dir(&noted).into_iter().flatten().flatten();
        names.map(|entry| entry.file_name()).any(|n| n.to_string_lossy().starts_with("partial-"))
    };
    running.until("the progress of the copy is recorded", is_noted);
    running.signal("INT");
    running.ended().with_code(130).says("interrupted", "to resume");
    assert!(unfinished(&place).is_some() && !place.path("copy").exists());
    let document = place.document("copy big copy --resume --verify");
    assert!(whole(&document["resumed_bytes"]) > 0, "{document}");
    assert!(same(&big, &place.path("copy")));
    assert_eq!(place.listing(), ["big", "copy"]);
}

#[test]
fn clean_removes_what_killed_copies_left_and_says_so() {
    let place = Place::new();
    place.file("big", 24 * MIB);
    let mut running = place.start("copy big copy --limit-rate 6M/s --resume");
    running.until("the copy has begun", || unfinished(&place).is_some());
    pause(200);
    place.does("clean").prints("in use");
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    assert!(unfinished(&place).is_some());
    place.does("clean --plan").prints("remove   ");
    assert!(unfinished(&place).is_some());
    place.does("clean").prints("removed  ");
    assert_eq!(place.listing(), ["big"]);
    place.does("clean").prints("nothing to clean");
}

#[test]
fn a_tree_that_was_interrupted_goes_on_where_it_stood() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    for number in 0..40 {
        place.file(&format!("tree/{number}"), 200_000);
    }
    let mut running = place.start("copy tree copy --limit-rate 2M/s");
    let count = || fs::read_dir(place.path("copy")).map_or(0, |files| files.count());
    running.until("some files are copied", || count() > 4);
    running.signal("INT");
    running.ended().with_code(130).says("complete files were kept", "to copy the rest");
    for entry in fs::read_dir(place.path("copy")).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(same(&place.path("tree").join(&name), &place.path("copy").join(&name)));
    }
    let document = place.document("copy tree copy");
    assert!(whole(&document["resumed_bytes"]) >= 200_000, "{document}");
    assert_eq!(tree_of(&place.path("copy"), false), tree_of(&place.path("tree"), false));
    assert_eq!(place.listing(), ["copy", "tree"]);
    let mut running = place.start("copy tree whole --limit-rate 2M/s --all-or-nothing");
    pause(1000);
    running.until("the copy still runs", || true);
    running.signal("INT");
    running.ended().with_code(130).says("no part of the copy was kept", "");
    assert_eq!(place.listing(), ["copy", "tree"]);
}

/// Kills copies at different moments. Each file that has its final name must be complete.
fn is_killed_at(place: &Place, what: &str, moments: u64, whole_us: u64) {
    let mut finished = 0;
    let lines = |name: &str| -> Vec<String> {
        let path = place.path(name);
        if path.is_dir() { tree_of(&path, false) } else { Vec::new() }
    };
    for moment in 0..moments {
        let mut running = place.start(&format!("copy {what} copy --quiet"));
        let us = whole_us * (moment * 7919 % moments) / moments;
        Monotonic::new().sleep(Duration::from_micros(us));
        running.child.kill().unwrap();
        running.child.wait().unwrap();
        let copy = place.path("copy");
        if copy.is_dir() {
            let (wanted, found) = (lines(what), lines("copy"));
            finished += u32::from(wanted == found);
            // A directory gets its final mode when its contents are complete, so only files are
            // compared.
            let is_file =
                |line: &&String| line.split(' ').nth(1).is_some_and(|m| m.starts_with("10"));
            for file in found.iter().filter(is_file) {
                assert!(wanted.contains(file), "killed after {us} us: incomplete: {file}");
            }
            fs::remove_dir_all(copy).unwrap();
        } else if copy.exists() {
            finished += 1;
            assert!(same(&place.path(what), &copy), "{us} us");
            fs::remove_file(copy).unwrap();
        }
    }
    eprintln!("{finished} of {moments} copies of {what} were finished before the kill");
    place.does(&format!("copy {what} copy --quiet"));
    place.does("clean");
    assert_eq!(place.listing().len(), 2, "unfinished copies remain: {:?}", place.listing());
}

/// Returns an upper limit for the duration of a copy (us): 1.5 times a measured duration plus
/// 20 ms.
fn length_us(place: &Place, what: &str) -> u64 {
    let document = place.document(&format!("copy {what} copy"));
    let copy = place.path("copy");
    if copy.is_dir() { fs::remove_dir_all(copy) } else { fs::remove_file(copy) }.unwrap();
    whole(&document["elapsed_ns"]) / 1000 * 3 / 2 + 20_000
}

#[test]
fn a_copy_that_is_killed_at_any_moment_is_whole_or_not_there() {
    let place = Place::new();
    place.file("big", 48 * MIB);
    let length = length_us(&place, "big");
    is_killed_at(&place, "big", 12, length);
}

#[test]
fn a_tree_that_is_killed_at_any_moment_is_whole_or_not_there() {
    let place = Place::new();
    grown(&place);
    let length = length_us(&place, "tree");
    is_killed_at(&place, "tree", 12, length);
}

#[test]
#[ignore = "takes some minutes"]
fn a_hundred_kills_leave_whole_copies_or_none() {
    let place = Place::new();
    place.file("big", 200 * MIB);
    let length = length_us(&place, "big");
    is_killed_at(&place, "big", 100, length);
}

#[test]
fn a_disk_that_is_full_is_one_clear_error_and_every_lost_file_is_named() {
    let volume = or_skip!(Volume::new(64 * MIB));
    let place = Place::new();
    place.file("big", 80 * MIB);
    fs::create_dir(place.path("tree")).unwrap();
    for number in 0..90 {
        place.file(&format!("tree/{number}"), MIB);
    }
    let there = Place::within(volume.folder());
    let target = volume.folder().join("copy");
    for flags in ["", "--resume"] {
        let ended = place.cannot(&format!("copy big {} {flags}", target.display()));
        ended.with_code(1).says("no space left", "free space");
        place.does("clean");
        assert_eq!(there.listing(), ["lost+found"]);
    }
    // A full disk must be reported even if the size of the source is unknown.
    let line = format!("copy - {}", target.display());
    let mut command = place.command(&line);
    command.stdin(File::open(place.path("big")).unwrap());
    let ended = place.start_command(command, &line).ended().with_code(1);
    assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
    assert_eq!(there.listing(), ["lost+found"]);
    // All files of the tree that fit must be copied, and every other file must be reported.
    let ended = place.halfpower(&format!("copy tree {}", target.display())).with_code(1);
    for number in 0..90 {
        let name = format!("{number}");
        let is_named = ended.stderr.contains(&format!("copy/{name}: no space left"));
        match target.join(&name).exists() {
            true => assert!(same(&place.path("tree").join(&name), &target.join(&name))),
            false => assert!(is_named, "{name} is neither copied nor reported: {ended}"),
        }
    }
    let ended = place.halfpower(&format!("copy tree {} --json", target.display())).with_code(1);
    let failures = list(&ended.json()["failures"]).len();
    assert!(failures > 20 && fs::read_dir(&target).unwrap().count() > 20, "{failures}");
    fs::remove_dir_all(&target).unwrap();
    let line = format!("copy tree {} --all-or-nothing", target.display());
    place.halfpower(&line).with_code(1).says("so nothing was copied", "the same command");
    assert_eq!(there.listing(), ["lost+found"]);
}

#[test]
fn a_source_that_fails_is_one_clear_error_with_the_place_and_no_copy() {
    let device = "truth:fixed=100us mounted --size 32m --inject read-eio@9";
    let mut served = or_skip!(Served::of(device));
    let ended = served.place.halfpower("copy mounted/device copy --bs 1m --iodepth 4");
    let ended = ended.with_code(1).says("reading at byte", "mounted/device: input/output error");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
    assert_eq!(served.place.listing(), ["mounted"]);
    served.ends();
}

#[test]
fn a_device_is_written_only_where_it_was_given_up_and_read_back() {
    let device = or_skip!(LoopDevice::new(32 * MIB));
    let place = Place::new();
    let image = place.file("image", 8 * MIB + 5000);
    let path = device.path();
    place.cannot(&format!("copy image {path}")).with_code(3).says("", "--destroy-data-on");
    place.does(&format!("copy image {path} --destroy-data-on {path} --verify --quiet"));
    assert!(device.content()[..8 * MIB as usize + 5000] == fs::read(&image).unwrap());
    place.does(&format!("copy {path} back --quiet"));
    assert!(device.content() == fs::read(place.path("back")).unwrap());
    // A source that is larger than the device is refused before anything is written.
    place.file("large", 32 * MIB + 1);
    let line = format!("copy large {path} --destroy-data-on {path}");
    place.cannot(&line).with_code(2).says("nothing was written", "a larger device");
    assert!(device.content() == fs::read(place.path("back")).unwrap());
    // The source is a stream, for example from a decompressor. If it is longer than the device, the
    // error must say so.
    let stream = |name: &str, line: &str| {
        let mut command = place.command(line);
        let mut cat =
            Command::new("cat").arg(place.path(name)).stdout(Stdio::piped()).spawn().unwrap();
        command.stdin(cat.stdout.take().unwrap());
        let ended = place.start_command(command, line).ended();
        let _ = cat.wait();
        ended
    };
    let line = format!("copy - {path} --destroy-data-on {path} --verify --quiet");
    stream("image", &line).with_code(0);
    assert!(device.content()[..8 * MIB as usize + 5000] == fs::read(&image).unwrap());
    let ended = stream("large", &line).with_code(1);
    ended.says(&format!("writing {path}: no space left on device"), "");
    place.cannot(&format!("copy - {path}")).with_code(3).says("", "--destroy-data-on");
}

#[test]
fn blocks_are_shared_where_the_file_system_can() {
    let device = or_skip!(LoopDevice::blank(256 * MIB));
    or_skip!(make(&["mkfs.btrfs", "-q", "-f", device.path()]));
    let mounted = or_skip!(Mounted::device(device.path()));
    let place = Place::within(mounted.folder());
    let big = place.file("big", 40 * MIB);
    let document = place.document("copy big copy");
    assert_eq!((whole(&document["reflinks"]), whole(&document["moved_bytes"])), (1, 0));
    assert!(same(&big, &place.path("copy")));
    // With `--verify`, the data are read and written instead of shared by a reflink.
    let document = place.document("copy big checked --verify");
    assert_eq!((whole(&document["reflinks"]), whole(&document["moved_bytes"])), (0, 40 * MIB));
    fs::create_dir(place.path("tree")).unwrap();
    place.file("tree/one", 10 * MIB);
    place.file("tree/two", 1000);
    assert_eq!(whole(&place.document("copy tree there")["reflinks"]), 1);
    assert_eq!(tree_of(&place.path("there"), false), tree_of(&place.path("tree"), false));
}

#[test]
fn a_copy_over_two_devices_of_a_volume_is_the_same_bytes() {
    let volume = or_skip!(TwoDevices::new("raid1", 128 * MIB));
    let place = Place::new();
    place.file("big", 20 * MIB + 1);
    let there = volume.folder().join("copy");
    place.does(&format!("copy big {} --verify --quiet", there.display()));
    assert!(same(&place.path("big"), &there));
}

fn resident(path: &Path) -> u64 {
    resident_bytes(&File::open(path).unwrap()).unwrap_or(u64::MAX)
}

/// Evicts a file from the page cache. Returns the number of bytes that are still cached.
fn cold(path: &Path) -> u64 {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    resident(path)
}

#[test]
fn a_tree_leaves_the_page_cache_as_it_was_found() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    let names = |folder: &str| ["hot", "cold"].map(|name| place.path(&format!("{folder}/{name}")));
    for name in ["tree/hot", "tree/cold"] {
        place.file(name, 100_000);
    }
    let [hot, source] = names("tree");
    let file = File::open(&hot).unwrap();
    let dont_cache = rustix::io::ReadWriteFlags::from_bits_retain(0x80);
    let mut byte = [0];
    let into = &mut [std::io::IoSliceMut::new(&mut byte)];
    if rustix::io::preadv2(&file, into, 0, dont_cache).is_err() || cold(&source) > 0 {
        let reason = "requests without page cache (RWF_DONTCACHE) are missing";
        return skip(std::any::type_name_of_val(&|| ()), reason);
    }
    let before = resident(&hot);
    place.does("copy tree copy --quiet");
    assert_eq!((resident(&hot), resident(&source)), (before, 0));
    assert_eq!(names("copy").map(|copy| resident(&copy)), [0, 0]);
    place.does("copy tree again --cached --quiet");
    assert!(names("again").iter().all(|copy| resident(copy) >= 100_000));
}

#[test]
fn the_page_cache_is_left_as_it_was_found() {
    let place = Place::new();
    for (name, bytes) in [("big", 16 * MIB), ("small", 100_000)] {
        let source = place.file(name, bytes);
        let hot = resident(&source);
        let copy = place.path("copy");
        place.does(&format!("copy {name} copy --quiet"));
        assert_eq!((resident(&source), resident(&copy)), (hot, 0), "{name}: cache has changed");
        if cold(&source) > 0 {
            let reason = "this file system ignores POSIX_FADV_DONTNEED";
            return skip(std::any::type_name_of_val(&|| ()), reason);
        }
        fs::remove_file(&copy).unwrap();
        place.does(&format!("copy {name} copy --quiet"));
        assert_eq!((resident(&source), resident(&copy)), (0, 0), "{name}: the page cache changed");
        fs::remove_file(&copy).unwrap();
        place.does(&format!("copy {name} copy --cached --quiet"));
        assert!(resident(&copy) >= bytes, "--cached keeps the copy in the page cache");
        fs::remove_file(copy).unwrap();
    }
}

#[test]
fn a_limit_is_kept_and_said() {
    let place = Place::new();
    place.file("big", 4 * MIB);
    let document = place.document("copy big copy --limit-rate 8M/s");
    // The limit only delays the start of each request, so the copy may take less than its size
    // divided by the limit.
    assert!(whole(&document["elapsed_ns"]) >= 300_000_000, "{document}");
    assert!(text(&document["how"]).contains("KiB"), "{document}");
}

#[test]
fn a_permission_with_a_slash_at_its_end_is_for_a_directory_and_not_for_a_file() {
    let place = Place::new();
    place.file("source", 4096);
    place.file("there", 8192);
    place.cannot("copy source there --overwrite=there/").with_code(3).says("there", "--overwrite");
    assert_eq!(fs::metadata(place.path("there")).unwrap().len(), 8192);
    place.does("copy source there --overwrite=there");
    assert_eq!(fs::metadata(place.path("there")).unwrap().len(), 4096);
}
