//! Creates the initramfs of a guest: a cpio archive of the root file system, which the kernel
//! unpacks into memory at boot. The format is described in the kernel document
//! driver-api/early-userspace/buffer-format.

use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

// File type and permissions of an entry, encoded as in `st_mode` (see inode(7)).
const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;
/// Name of the entry that marks the end of an archive.
const END: &str = "TRAILER!!!";

/// An archive in memory, in the "newc" format of cpio.
#[derive(Default)]
pub struct Image {
    bytes: Vec<u8>,
    /// Number of entries so far. The entries have the inode numbers 1, 2, and so on.
    entries: u32,
    /// Paths of the folders and libraries that were already added.
    folders: BTreeSet<PathBuf>,
}

impl Image {
    /// Adds an executable file and its parent folders.
    pub fn add(&mut self, path: &str, content: &[u8]) {
        self.add_parents(path);
        self.entry(path, PROGRAM, content);
    }

    /// Adds a symbolic link and its parent folders.
    pub fn link(&mut self, path: &str, to: &str) {
        self.add_parents(path);
        self.entry(path, LINK, to.as_bytes());
    }

    /// Adds an empty folder and its parent folders.
    pub fn folder(&mut self, path: &str) {
        self.add_parents(&format!("{path}/x"));
    }

    /// Adds a program of this host at the path `to`, and the shared libraries that it needs.
    ///
    /// # Errors
    /// If the program or a library cannot be read.
    pub fn add_program(&mut self, from: &Path, to: &str) -> Result<()> {
        let content = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        self.add(to, &content);
        for library in libraries(from)? {
            if self.folders.insert(library.clone()) {
                let content = fs::read(&library)?;
                self.add(&library.to_string_lossy(), &content);
            }
        }
        Ok(())
    }

    /// Adds the end entry and returns the archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry(END, 0, &[]);
        self.bytes
    }

    fn add_parents(&mut self, path: &str) {
        let parents: Vec<PathBuf> =
            Path::new(path).ancestors().skip(1).map(Path::to_owned).collect();
        for parent in parents.iter().rev() {
            let name = parent.to_string_lossy();
            if !matches!(&*name, "" | "/") && self.folders.insert(parent.clone()) {
                self.entry(&name, FOLDER, &[]);
            }
        }
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let name = path.trim_start_matches('/');
        let (length, name_length) = (content.len(), name.len() + 1);
        let (inode, links) = (self.entries, 1);
        let fields =
            [inode, mode, 0, 0, links, 0, length as u32, 0, 0, 0, 0, name_length as u32, 0];
        self.bytes.extend(b"070701");
        for field in fields {
            write!(self.bytes, "{field:08X}").expect("a write to memory cannot fail");
        }
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    /// Pads the archive with zeros to a multiple of 4 bytes, because entries and contents must
    /// start at multiples of 4 bytes in this format.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// Returns the paths of the shared libraries and the dynamic loader that a program needs. Returns
/// no paths if the program is static.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("cannot start ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let paths = text.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(paths.map(PathBuf::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpio_entries_begin_at_multiples_of_four_and_end_with_the_trailer() {
        let mut image = Image::default();
        image.add("/bin/a", b"12345");
        image.link("/bin/b", "a");
        let bytes = image.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        let names: Vec<usize> = text.match_indices("070701").map(|(at, _)| at).collect();
        assert_eq!(names.len(), 4, "bin, bin/a, bin/b and the end");
        assert!(names.iter().all(|at| at % 4 == 0));
        assert!(text.contains("bin/a\0") && text.ends_with("TRAILER!!!\0\0\0\0"));
    }
}
