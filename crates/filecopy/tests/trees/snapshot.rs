//! Snapshots of trees for comparison: types, modes, owners, times, contents, links, attributes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Properties of one entry, for comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub kind: &'static str,
    pub mode: u32,
    pub owner: (u32, u32),
    pub modified: (i64, i64),
    pub size: u64,
    /// Checksum of a file's data, target of a symbolic link, or device number.
    pub content: String,
    /// The first path of the same inode, in path order. Shows which entries are hard links.
    pub same_as: PathBuf,
    /// Extended attributes including ACLs.
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Allocated storage (bytes). A copy may have slightly more than its source.
    pub stored: u64,
}

/// The entries of a tree, by path relative to its root. The root itself has the empty path.
#[derive(Clone, PartialEq, Eq)]
pub struct Snapshot(pub BTreeMap<PathBuf, Entry>);

impl Snapshot {
    pub fn of(root: &Path) -> Snapshot {
        let mut entries = BTreeMap::new();
        let mut first_of = BTreeMap::new();
        walk(root, Path::new(""), &mut entries);
        // Entries are visited in path order, so that the first name of a file is the same in every
        // copy.
        for (path, (entry, identity)) in &mut entries {
            entry.same_as = first_of.entry(*identity).or_insert_with(|| path.clone()).clone();
        }
        Snapshot(entries.into_iter().map(|(path, (entry, _))| (path, entry)).collect())
    }
}

type Found = BTreeMap<PathBuf, (Entry, (u64, u64))>;

fn walk(root: &Path, below: &Path, found: &mut Found) {
    let path = if below.as_os_str().is_empty() { root.to_path_buf() } else { root.join(below) };
    let metadata = fs::symlink_metadata(&path).unwrap();
    let kind = metadata.file_type();
    let (name, content) = if kind.is_dir() {
        ("directory", String::new())
    } else if kind.is_symlink() {
        ("link", format!("{:?}", fs::read_link(&path).unwrap()))
    } else if kind.is_file() {
        ("file", checksum(&path))
    } else if kind.is_fifo() {
        ("pipe", String::new())
    } else if kind.is_socket() {
        ("socket", String::new())
    } else {
        let device = metadata.rdev();
        (if kind.is_block_device() { "block" } else { "char" }, format!("{device:x}"))
    };
    let entry = Entry {
        kind: name,
        mode: if kind.is_symlink() { 0 } else { metadata.mode() & 0o7777 },
        owner: (metadata.uid(), metadata.gid()),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        size: if kind.is_file() || kind.is_symlink() { metadata.size() } else { 0 },
        content,
        same_as: PathBuf::new(),
        attributes: attributes(&path),
        stored: metadata.blocks() * 512,
    };
    found.insert(below.to_path_buf(), (entry, (metadata.dev(), metadata.ino())));
    if kind.is_dir() {
        let mut names: Vec<OsString> =
            fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        for name in names {
            walk(root, &below.join(name), found);
        }
    }
}

/// Computes a checksum of a file from all non-zero pages and their offsets, so that holes do not
/// change the checksum.
pub fn checksum(path: &Path) -> String {
    let file = fs::File::open(path).unwrap();
    let (mut hasher, mut at) = (blake3::Hasher::new(), 0);
    let mut page = [0; 4096];
    while let Ok(data) = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
        let end = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(data)).unwrap();
        at = data / 4096 * 4096;
        while at < end {
            let read = file.read_at(&mut page, at).unwrap();
            if page[..read].iter().any(|byte| *byte != 0) {
                hasher.update(&at.to_le_bytes()).update(&page[..read]);
            }
            at += 4096;
        }
    }
    hasher.finalize().to_hex()[..16].to_owned()
}

fn attributes(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 64 << 10];
    let length = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
    let names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0; 64 << 10];
        let name = OsString::from_vec(name.to_vec());
        let length = rustix::fs::lgetxattr(path, &name, &mut value[..]).unwrap_or(0);
        value.truncate(length);
        (name.as_bytes().to_vec(), value)
    };
    names.map(value).collect()
}

/// A difference between an entry of a copy and its source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    pub path: PathBuf,
    /// The property that differs: "missing", "extra", "kind", "mode", "owner", "time", "content",
    /// "hard link", "attributes", "holes".
    pub part: &'static str,
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}: {}", self.path, self.part, self.what)
    }
}

/// Returns all differences between a copy and its source.
pub fn differences(source: &Snapshot, copy: &Snapshot) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut add = |path: &Path, part, what: String| {
        found.push(Difference { path: path.to_path_buf(), part, what });
    };
    for (path, from) in &source.0 {
        let Some(to) = copy.0.get(path) else {
            add(path, "missing", from.kind.to_owned());
            continue;
        };
        if from.kind != to.kind {
            add(path, "kind", format!("{} became {}", from.kind, to.kind));
            continue;
        }
        if from.mode != to.mode {
            add(path, "mode", format!("{:o} became {:o}", from.mode, to.mode));
        }
        if from.owner != to.owner {
            add(path, "owner", format!("{:?} became {:?}", from.owner, to.owner));
        }
        if from.modified != to.modified {
            add(path, "time", format!("{:?} became {:?}", from.modified, to.modified));
        }
        if (&from.content, from.size) != (&to.content, to.size) {
            let (from, to) = ((&from.content, from.size), (&to.content, to.size));
            add(path, "content", format!("{from:?} became {to:?}"));
        }
        if from.same_as != to.same_as {
            add(path, "hard link", format!("{:?} became {:?}", from.same_as, to.same_as));
        }
        if from.attributes != to.attributes {
            let names = |entry: &Entry| {
                let names = entry.attributes.keys().map(|name| String::from_utf8_lossy(name));
                names.collect::<Vec<_>>().join(" ")
            };
            add(path, "attributes", format!("{} became {}", names(from), names(to)));
        }
        // The copy may have a few more blocks, because file systems allocate them differently.
        if from.kind == "file" && to.stored > from.stored.max(4096) + (128 << 10) {
            add(path, "holes", format!("{} bytes became {}", from.stored, to.stored));
        }
    }
    for path in copy.0.keys().filter(|path| !source.0.contains_key(*path)) {
        add(path, "extra", String::new());
    }
    found
}
