//! Tests that `cat` and `checksum` process all readable files, even if some files cannot be read.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::process::Stdio;

use crate::fixture::{KIB, MIB, Place, damage, list, noise, text, whole};

/// Returns the output of `halfpower LINE` as bytes.
fn printed(place: &Place, line: &str) -> Vec<u8> {
    let output = place.command(line).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn cat_prints_the_bytes_of_the_files_in_order_on_every_way() {
    let place = Place::new();
    let large = noise(3 * MIB + 77);
    fs::write(place.path("large"), &large).unwrap();
    fs::write(place.path("small"), "small").unwrap();
    place.file_of_holes("holes", 2 * MIB + 1);
    place.file("empty", 0);
    let holes = vec![0; 2 * MIB as usize + 1];
    let wanted = [b"small".as_slice(), &large, &holes, b"small"].concat();
    for way in ["", "--direct", "--cached"] {
        let found = printed(&place, &format!("cat {way} small large holes empty small"));
        assert!(found == wanted, "wrong bytes: cat {way}");
    }
}

#[test]
fn cat_reads_what_has_no_size() {
    let place = Place::new();
    let version = fs::read("/proc/version").unwrap();
    for way in ["", "--direct", "--cached"] {
        assert_eq!(printed(&place, &format!("cat {way} /proc/version")), version);
    }
    let mut cat = place.command("cat - -");
    let mut child = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    std::thread::spawn(move || input.write_all(&noise(300 * KIB)).unwrap());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stdout == noise(300 * KIB));
}

#[test]
fn what_is_left_of_standard_input_is_read_once() {
    let place = Place::new();
    fs::write(place.path("lines"), "first\nsecond\n").unwrap();
    let mut lines = File::open(place.path("lines")).unwrap();
    lines.read_exact(&mut [0; 6]).unwrap();
    let again = lines.try_clone().unwrap();
    let output = place.command("cat").stdin(lines).output().unwrap();
    assert_eq!(output.stdout, b"second\n");
    assert_eq!(place.command("cat").stdin(again).output().unwrap().stdout, b"");
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_the_others_follow() {
    let place = Place::new();
    fs::write(place.path("one"), "one").unwrap();
    fs::write(place.path("two"), "two").unwrap();
    let ended = place.halfpower("cat one nothing . two").with_code(1);
    assert_eq!(ended.stdout, "onetwo");
    assert_eq!(ended.stderr.lines().count(), 2, "{ended}");
    let ended = ended.says("opening nothing", "no such file");
    ended.says("reading .", "is a directory");
    let ended = place.halfpower("checksum one nothing two").with_code(1);
    assert_eq!(ended.stdout.lines().count(), 2, "{ended}");
    ended.says("opening nothing", "no such file");
}

#[test]
fn cat_ends_quietly_when_nobody_reads_on_and_loudly_when_there_is_no_room() {
    let place = Place::new();
    place.file("large", 4 * MIB);
    let mut cat = place.command("cat large");
    let mut child = cat.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 100]).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), b"".as_slice()));
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = place.command("cat large").stdout(full).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("no space left on device"), "{said}");
}

#[test]
fn cat_does_not_read_what_it_writes() {
    let place = Place::new();
    let path = place.file("file", 100);
    let grows = File::options().append(true).open(&path).unwrap();
    let output = place.command("cat file").stdout(grows).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(fs::metadata(&path).unwrap().len(), 100);
}

#[test]
fn checksums_are_those_of_blake3() {
    // Published test vectors: the length of an input (bytes) and its checksum. The input repeats
    // the bytes 0 to 250.
    let vectors = [
        (0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"),
        (1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"),
        (1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"),
        (102400, "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085"),
    ];
    let place = Place::new();
    for (bytes, digits) in vectors {
        let content: Vec<u8> = (0..bytes).map(|index| (index % 251) as u8).collect();
        fs::write(place.path("file"), &content).unwrap();
        assert_eq!(place.does("checksum file").stdout, format!("{digits}  file\n"));
        let input = File::open(place.path("file")).unwrap();
        let output = place.command("checksum").stdin(input).output().unwrap();
        assert_eq!(output.stdout, format!("{digits}  -\n").into_bytes());
    }
}

#[test]
fn a_directory_is_checked_in_order_and_a_changed_file_is_found() {
    let place = Place::new();
    let tree = place.path("tree");
    fs::create_dir_all(tree.join("b")).unwrap();
    for name in ["c", "b/z", "b/line\nbreak", "a\\b"] {
        fs::write(tree.join(name), name).unwrap();
    }
    fs::write(tree.join("large"), noise(2 * MIB)).unwrap();
    symlink("c", tree.join("link")).unwrap();
    symlink("..", tree.join("up")).unwrap();
    let sums = place.does("checksum tree").stdout;
    let names: Vec<&str> = sums.lines().map(|line| line.split_once("  ").unwrap().1).collect();
    let wanted = ["tree/a\\\\b", "tree/b/line\\nbreak", "tree/b/z", "tree/c", "tree/large"];
    assert_eq!(names, wanted);
    fs::write(place.path("SUMS"), &sums).unwrap();
    let same = place.does("checksum --check SUMS").stdout;
    assert_eq!(same.lines().filter(|line| line.ends_with(": OK")).count(), 5, "{same}");
    assert_eq!(place.does("checksum --check SUMS --quiet").stdout, "");

    damage(&tree.join("large"), MIB);
    let ended = place.halfpower("checksum --check SUMS --quiet").with_code(4);
    assert_eq!(ended.stdout, "tree/large: FAILED\n");
    fs::remove_file(tree.join("c")).unwrap();
    place.halfpower("checksum --check SUMS").with_code(4).says("opening tree/c", "no such file");
    fs::write(tree.join("large"), noise(2 * MIB)).unwrap();
    place.halfpower("checksum --check SUMS").with_code(1);
}

#[test]
fn the_document_of_checksums_tells_bytes_and_what_matches() {
    let place = Place::new();
    fs::write(place.path("file"), "abc").unwrap();
    let document = place.document("checksum file");
    let file = &list(&document["files"])[0];
    assert_eq!((text(&file["path"]), whole(&file["bytes"])), ("file", 3));
    let digits = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85";
    assert_eq!(text(&file["blake3"]), digits);
    assert!(file["matches"].is_null());
    fs::write(place.path("SUMS"), format!("{digits}  file\n{digits}  gone\n")).unwrap();
    let ended = place.halfpower("checksum --check SUMS --json").with_code(1);
    let document = ended.json();
    assert_eq!(document["files"][0]["matches"], true);
    assert_eq!(text(&document["unread"][0]["path"]), "gone");
}

#[test]
fn a_file_that_holds_no_checksums_is_refused_with_its_line() {
    let place = Place::new();
    fs::write(place.path("SUMS"), "\nhello\n").unwrap();
    fs::write(place.path("empty"), "").unwrap();
    place.cannot("checksum --check SUMS").with_code(1).says("SUMS:2: ", "create the checksum file");
    place.cannot("checksum --check empty").with_code(1).says("no checksum", "nothing was compared");
    place.cannot("checksum --check gone").with_code(1).says("reading gone", "a checksum file");
}

#[test]
fn plans_of_cat_and_checksum_read_nothing() {
    let place = Place::new();
    place.file("file", 3 * MIB);
    place.does("cat --plan file -").prints("would copy file (3 MiB) to standard output");
    place.does("checksum --plan . file").prints("would read 2 files, 6 MiB; nothing was done");
}
