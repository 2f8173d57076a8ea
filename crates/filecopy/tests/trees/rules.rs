//! Tests which attributes a copy keeps, which entries are copied, and what happens to existing
//! entries.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use filecopy::{
    Destination, Event, Existing, Filter, FilterRule, Keep, Links, ProblemKind, Session, Settings,
};
use rustix::fs::XattrFlags;

use crate::bench::{copies, copy, folder, is_root, listed, replacing, settings, skip};
use crate::snapshot::{Snapshot, differences};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn chown(path: &Path, uid: u32, gid: u32) {
    std::os::unix::fs::lchown(path, Some(uid), Some(gid)).unwrap();
}

/// Creates a small tree with the files `one`, `sub/two` and `sub/deep/three`.
fn tree(folder: &Path) -> PathBuf {
    let tree = folder.join("tree");
    fs::create_dir_all(tree.join("sub/deep")).unwrap();
    for (name, text) in [("one", "1"), ("sub/two", "22"), ("sub/deep/three", "333")] {
        fs::write(tree.join(name), text).unwrap();
    }
    tree
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn by_default_only_permission_bits_minus_the_umask_are_kept() {
    let folder = folder();
    let tree = tree(folder.path());
    let umask = 0o022;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask));
    for (name, bits) in [("one", 0o4777), ("sub/two", 0o444), ("sub", 0o1775), ("sub/deep", 0o700)]
    {
        chmod(&tree.join(name), bits);
    }
    let copy = folder.path().join("copy");
    copies(settings(folder.path(), Keep::Mode), &tree, &copy);
    assert_eq!(mode(&copy), mode(&tree) & 0o777 & !umask, "the top directory obeys the umask too");
    assert_eq!(mode(&copy.join("one")), 0o755, "the set-user-ID bit is not kept");
    assert_eq!(mode(&copy.join("sub/two")), 0o444);
    assert_eq!(mode(&copy.join("sub")) & 0o777, 0o755);
    assert_eq!(mode(&copy.join("sub/deep")), 0o700);
    let time = |path: PathBuf| fs::metadata(path).unwrap().mtime_nsec();
    assert_ne!(time(copy.join("one")), time(tree.join("one")), "the copy gets a new time");
}

#[test]
fn nobody_gets_more_rights_by_a_copy() {
    if !is_root() {
        return skip("rules", "other groups need root");
    }
    let folder = folder();
    let source = folder.path().join("source");
    fs::write(&source, "of the group").unwrap();
    chown(&source, 1000, 2000);
    for (bits, wanted) in [(0o640, 0o600), (0o660, 0o600), (0o664, 0o644), (0o604, 0o604)] {
        chmod(&source, bits);
        let copy = folder.path().join(format!("copy-{bits:o}"));
        copies(settings(folder.path(), Keep::Mode), &source, &copy);
        assert_eq!(mode(&copy), wanted, "{bits:o}: another group owns the copy");
    }
    // The default ACL of the directory would give other users access.
    let open = folder.path().join("open");
    fs::create_dir(&open).unwrap();
    let acl = acl(&[
        (1, 7, u32::MAX),
        (2, 7, 1234),
        (4, 7, u32::MAX),
        (16, 7, u32::MAX),
        (32, 0, u32::MAX),
    ]);
    let set = rustix::fs::setxattr(&open, "system.posix_acl_default", &acl, XattrFlags::empty());
    if set.is_err() {
        return skip("rules", "the file system has no access control lists");
    }
    chmod(&source, 0o660);
    copies(settings(folder.path(), Keep::Mode), &source, &open.join("copy"));
    assert_eq!(mode(&open.join("copy")) & 0o070, 0, "the ACL mask gives no access");
    copies(settings(folder.path(), Keep::All), &source, &open.join("archive"));
    let differs = differences(&Snapshot::of(&source), &Snapshot::of(&open.join("archive")));
    assert!(differs.is_empty(), "the copy must not have the directory's default ACL: {differs:?}");
    // If a file has an ACL, the group bits of its mode are the mask of the ACL.
    let listed = folder.path().join("listed");
    fs::write(&listed, "not of the group").unwrap();
    let strict =
        [(1, 6, u32::MAX), (2, 6, 1234), (4, 0, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)];
    let strict = self::acl(&strict);
    rustix::fs::setxattr(&listed, "system.posix_acl_access", &strict, XattrFlags::empty()).unwrap();
    assert_eq!(mode(&listed), 0o660);
    copies(settings(folder.path(), Keep::Mode), &listed, &folder.path().join("plain"));
    assert_eq!(mode(&folder.path().join("plain")), 0o600);
}

fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut acl = vec![2, 0, 0, 0];
    for (tag, bits, id) in entries {
        acl.extend_from_slice(&tag.to_le_bytes());
        acl.extend_from_slice(&bits.to_le_bytes());
        acl.extend_from_slice(&id.to_le_bytes());
    }
    acl
}

#[test]
fn with_preserve_owner_mode_and_times_are_kept_and_attributes_are_not() {
    let folder = folder();
    let source = folder.path().join("source");
    fs::write(&source, "x").unwrap();
    if is_root() {
        chown(&source, 1000, 2000);
    }
    chmod(&source, 0o6755);
    let _ = rustix::fs::setxattr(&source, "user.note", b"x", XattrFlags::empty());
    let copy = folder.path().join("copy");
    copies(settings(folder.path(), Keep::Basics), &source, &copy);
    let found = differences(&Snapshot::of(&source), &Snapshot::of(&copy));
    assert!(found.iter().all(|difference| difference.part == "attributes"), "{found:?}");
}

#[test]
fn a_replaced_file_keeps_its_own_owner_bits_and_attributes_but_no_more_rights() {
    let folder = folder();
    let (source, old) = (folder.path().join("source"), folder.path().join("old"));
    fs::write(&source, "new").unwrap();
    chmod(&source, 0o777);
    fs::write(&old, "old content").unwrap();
    if is_root() {
        chown(&old, 1000, 2000);
    }
    chmod(&old, 0o4750);
    let has_attributes =
        rustix::fs::setxattr(&old, "user.note", b"of old", XattrFlags::empty()).is_ok();
    let before = fs::metadata(&old).unwrap();
    copies(replacing(folder.path(), Keep::Mode), &source, &old);
    let after = fs::metadata(&old).unwrap();
    assert_eq!(read(&old), "new");
    assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
    assert_eq!(after.mode() & 0o7777, 0o750, "new content loses the set-user-ID bit");
    if has_attributes {
        let mut value = [0; 10];
        let length = rustix::fs::getxattr(&old, "user.note", &mut value[..]).unwrap();
        assert_eq!(&value[..length], b"of old");
    }
    // With `Keep::All`, the replaced file becomes equal to the source.
    copies(replacing(folder.path(), Keep::All), &source, &old);
    let found = differences(&Snapshot::of(&source), &Snapshot::of(&old));
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn what_exists_and_differs_is_refused_and_what_is_the_same_is_left_alone() {
    let folder = folder();
    let tree = tree(folder.path());
    let target = folder.path().join("copy");
    copies(settings(folder.path(), Keep::Mode), &tree, &target);
    let inode = |name: &str| fs::metadata(target.join(name)).unwrap().ino();
    let before = (inode("one"), inode("sub/two"));
    fs::write(tree.join("one"), "changed").unwrap();
    fs::write(tree.join("new"), "new").unwrap();
    let problems = copy(settings(folder.path(), Keep::Mode), &tree, &target);
    assert_eq!(problems.len(), 1, "{}", listed(&problems));
    assert_eq!((problems[0].kind, &problems[0].path), (ProblemKind::Refused, &target.join("one")));
    assert_eq!((read(target.join("one")), read(target.join("new"))), ("1".into(), "new".into()));
    copies(replacing(folder.path(), Keep::Mode), &tree, &target);
    assert_eq!(read(target.join("one")), "changed");
    assert_eq!(inode("sub/two"), before.1, "an unchanged file is not copied again");
    assert_ne!(inode("one"), before.0);
}

#[test]
fn existing_files_can_be_left_alone_or_replaced_if_they_are_older() {
    let folder = folder();
    let tree = tree(folder.path());
    let target = folder.path().join("copy");
    copies(settings(folder.path(), Keep::Mode), &tree, &target);
    fs::write(target.join("one"), "mine").unwrap();
    let leaves = |existing| Settings { existing, ..replacing(folder.path(), Keep::Mode) };
    copies(leaves(Existing::Leave), &tree, &target);
    assert_eq!(read(target.join("one")), "mine");
    copies(leaves(Existing::Update), &tree, &target);
    assert_eq!(read(target.join("one")), "mine", "the existing file is newer");
    let old = std::time::SystemTime::UNIX_EPOCH;
    File::options().write(true).open(target.join("one")).unwrap().set_modified(old).unwrap();
    copies(leaves(Existing::Update), &tree, &target);
    assert_eq!(read(target.join("one")), "1", "the existing file was older");
}

#[test]
fn what_the_source_does_not_have_is_removed_only_where_that_is_allowed() {
    let folder = folder();
    let tree = tree(folder.path());
    let target = folder.path().join("copy");
    copies(settings(folder.path(), Keep::Mode), &tree, &target);
    fs::write(target.join("extra"), "x").unwrap();
    fs::create_dir_all(target.join("sub/more/deep")).unwrap();
    fs::write(target.join("sub/more/deep/file"), "x").unwrap();
    fs::write(target.join("sub/keep.me"), "x").unwrap();
    let delete = |settings| Settings {
        delete: true,
        filter: Filter::new(vec![FilterRule::new(false, "*.me").unwrap()]),
        ..settings
    };
    let problems = copy(delete(settings(folder.path(), Keep::Mode)), &tree, &target);
    assert_eq!(problems.len(), 2, "{}", listed(&problems));
    assert!(target.join("extra").exists());
    copies(delete(replacing(folder.path(), Keep::Mode)), &tree, &target);
    assert!(!target.join("extra").exists() && !target.join("sub/more").exists());
    assert!(target.join("sub/keep.me").exists(), "a file excluded by the filter is not deleted");
    fs::remove_file(target.join("sub/keep.me")).unwrap();
    let found = differences(&Snapshot::of(&tree), &Snapshot::of(&target));
    assert!(found.iter().all(|difference| difference.part == "time"), "{found:?}");
}

#[test]
fn a_dry_run_tells_everything_and_does_nothing() {
    let folder = folder();
    let tree = tree(folder.path());
    let target = folder.path().join("copy");
    let told = |settings: Settings| {
        let events = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&events);
        let listener = Arc::new(move |event: &Event| {
            heard.lock().unwrap().push(match event {
                Event::WouldCopy { to, replaces, .. } => {
                    format!("{} {}", if *replaces { "replace" } else { "copy" }, to.display())
                }
                Event::WouldDelete(path) => format!("delete {}", path.display()),
                other => format!("{other:?}"),
            });
        });
        let before = Snapshot::of(folder.path());
        copies(Settings { dry_run: true, listener, ..settings }, &tree, &target);
        let changed = differences(&before, &Snapshot::of(folder.path()));
        assert!(changed.is_empty(), "the dry run changed something");
        let mut events = events.lock().unwrap().clone();
        events.sort();
        let short = |event: &String| event.replace(&format!("{}", target.display()), "DST");
        events.iter().map(short).collect::<Vec<_>>()
    };
    let all = [
        "copy DST",
        "copy DST/one",
        "copy DST/sub",
        "copy DST/sub/deep",
        "copy DST/sub/deep/three",
        "copy DST/sub/two",
    ];
    assert_eq!(told(settings(folder.path(), Keep::Mode)), all);
    copies(settings(folder.path(), Keep::Mode), &tree, &target);
    fs::write(tree.join("one"), "changed").unwrap();
    fs::remove_file(tree.join("sub/two")).unwrap();
    let told = told(Settings { delete: true, ..replacing(folder.path(), Keep::Mode) });
    let of_interest: Vec<&String> = told.iter().filter(|one| !one.starts_with("UpTo")).collect();
    assert_eq!(of_interest, ["delete DST/sub/two", "replace DST/one"]);
}

#[test]
fn patterns_decide_what_of_a_tree_is_copied() {
    let folder = folder();
    let tree = tree(folder.path());
    fs::write(tree.join("sub/two.o"), "object").unwrap();
    fs::write(tree.join("keep.o"), "object").unwrap();
    let rules = [(true, "keep.o"), (false, "*.o"), (false, "deep/")];
    let rules = rules.iter().map(|(includes, text)| FilterRule::new(*includes, text).unwrap());
    let filter = Filter::new(rules.collect());
    let copy = folder.path().join("copy");
    copies(Settings { filter, ..settings(folder.path(), Keep::Mode) }, &tree, &copy);
    let paths: Vec<String> =
        Snapshot::of(&copy).0.keys().map(|path| path.display().to_string()).collect();
    assert_eq!(paths, ["", "keep.o", "one", "sub", "sub/two"]);
}

#[test]
fn links_are_kept_or_followed_and_one_that_leads_in_a_circle_is_a_problem() {
    let folder = folder();
    let tree = tree(folder.path());
    symlink("one", tree.join("to-file")).unwrap();
    symlink("sub/deep", tree.join("to-directory")).unwrap();
    let (kept, followed) = (folder.path().join("kept"), folder.path().join("followed"));
    copies(settings(folder.path(), Keep::Mode), &tree, &kept);
    assert_eq!(fs::read_link(kept.join("to-file")).unwrap(), Path::new("one"));
    let follow = || Settings { links: Links::Follow, ..settings(folder.path(), Keep::Mode) };
    copies(follow(), &tree, &followed);
    assert!(fs::symlink_metadata(followed.join("to-file")).unwrap().is_file());
    assert_eq!(read(followed.join("to-directory/three")), "333");
    symlink("..", tree.join("sub/circle")).unwrap();
    symlink("nowhere", tree.join("broken")).unwrap();
    let again = folder.path().join("again");
    let problems = copy(follow(), &tree, &again);
    let mut texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    texts.sort();
    assert!(texts[0].contains("broken is a dangling symbolic link"), "{texts:?}");
    assert!(texts[1].contains("sub/circle is a link to a directory above the link"), "{texts:?}");
    assert_eq!(texts.len(), 2);
    assert_eq!(read(again.join("sub/deep/three")), "333", "the other files are copied");
}

#[test]
fn hard_links_across_sources_become_hard_links_of_one_copy() {
    let folder = folder();
    let (a, b, to) = (folder.path().join("a"), folder.path().join("b"), folder.path().join("to"));
    for path in [&a, &b, &to] {
        fs::create_dir(path).unwrap();
    }
    fs::write(a.join("file"), "x").unwrap();
    symlink("file", a.join("link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        a.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o666),
        0,
    )
    .unwrap();
    chmod(&a.join("pipe"), 0o666);
    for name in ["file", "link", "pipe"] {
        fs::hard_link(a.join(name), b.join(format!("same-{name}"))).unwrap();
    }
    fs::hard_link(a.join("file"), folder.path().join("alone")).unwrap();
    let session = Session::new(settings(folder.path(), Keep::All));
    session.expect_many();
    for (from, name) in [(&a, "a"), (&b, "b"), (&folder.path().join("alone"), "alone")] {
        session.copy(from, &Destination { path: to.join(name) });
    }
    let problems = session.finish();
    assert!(problems.is_empty(), "{}", listed(&problems));
    let inode = |name: &str| fs::symlink_metadata(to.join(name)).unwrap().ino();
    for name in ["file", "link", "pipe"] {
        assert_eq!(inode(&format!("a/{name}")), inode(&format!("b/same-{name}")), "{name}");
    }
    assert_eq!(inode("alone"), inode("a/file"));
    assert!(fs::symlink_metadata(to.join("a/pipe")).unwrap().file_type().is_fifo());
    assert_eq!(mode(&to.join("a/pipe")), 0o666, "the umask is not applied");
}

#[test]
fn a_tree_can_appear_all_at_once_or_not_at_all() {
    let folder = folder();
    let tree = tree(folder.path());
    let whole = || Settings { all_or_nothing: true, ..settings(folder.path(), Keep::All) };
    let target = folder.path().join("copy");
    symlink("nowhere", tree.join("sub/broken")).unwrap();
    let fails = Settings { links: Links::Follow, ..whole() };
    let problems = copy(fails, &tree, &target);
    assert_eq!(problems.len(), 1, "{}", listed(&problems));
    assert!(!target.exists(), "no part of the tree was created");
    assert_eq!(crate::bench::leftovers(folder.path()), Vec::<PathBuf>::new());
    copies(whole(), &tree, &target);
    assert!(differences(&Snapshot::of(&tree), &Snapshot::of(&target)).is_empty());
    let problems = copy(whole(), &tree, &target);
    assert!(problems[0].to_string().contains("cannot appear there all at once"));
}

#[test]
fn a_copied_tree_is_recognised_as_the_copy_of_its_source() {
    let folder = folder();
    let tree = tree(folder.path());
    let (target, state) = (folder.path().join("copy"), folder.path().join("state"));
    assert!(!filecopy::is_copy_of(&state, &tree, &target));
    copies(settings(folder.path(), Keep::Mode), &tree, &target);
    assert!(filecopy::is_copy_of(&state, &tree, &target));
    assert!(!filecopy::is_copy_of(&state, &target, &tree));
    fs::rename(&target, folder.path().join("aside")).unwrap();
    fs::create_dir(&target).unwrap();
    assert!(!filecopy::is_copy_of(&state, &tree, &target), "another directory has this name now");
}

#[test]
fn a_directory_is_never_copied_into_itself() {
    let folder = folder();
    let tree = tree(folder.path());
    let refused = |to: &Path| {
        let problems = copy(settings(folder.path(), Keep::Mode), &tree, to);
        assert_eq!(problems.len(), 1, "{}", listed(&problems));
        problems[0].to_string()
    };
    assert!(refused(&tree.join("inside")).contains("into itself"));
    assert!(refused(&tree.join("sub/deep/inside")).contains("into itself"));
    assert!(refused(&tree).contains("the source itself"));
    symlink(&tree, folder.path().join("way")).unwrap();
    assert!(refused(&folder.path().join("way/inside")).contains("into itself"));
}

#[test]
fn holes_are_verified_without_being_read() {
    let folder = folder();
    let source = folder.path().join("source");
    let file = File::create(&source).unwrap();
    file.set_len(1 << 40).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 5000], 1 << 39).unwrap();
    let copy = folder.path().join("copy");
    let verified = Settings { verify: true, ..settings(folder.path(), Keep::All) };
    copies(verified, &source, &copy);
    let metadata = fs::metadata(&copy).unwrap();
    assert_eq!(metadata.len(), 1 << 40);
    assert!(metadata.blocks() * 512 <= 64 << 10, "{} blocks", metadata.blocks());
}

#[test]
fn flags_that_are_not_copied_are_reported() {
    let folder = folder();
    let source = folder.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("fixed"), "x").unwrap();
    let chattr = |flag: &str| {
        let path = source.join("fixed");
        let status = std::process::Command::new("chattr").arg(flag).arg(path).status();
        status.is_ok_and(|status| status.success())
    };
    if !is_root() || !chattr("+i") {
        return skip("rules", "chattr +i needs root and a file system that supports it");
    }
    let settings = settings(folder.path(), Keep::All);
    let progress = Arc::clone(&settings.progress);
    let problems = copy(settings, &source, &folder.path().join("copy"));
    assert!(chattr("-i"));
    assert!(problems.is_empty(), "{}", listed(&problems));
    let notes = progress.counts().notes;
    assert!(
        notes.iter().any(|note| note.contains("immutable") && note.contains("fixed")),
        "{notes:?}"
    );
}
