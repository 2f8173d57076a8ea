//! Finds the path of a file from its identity. Paths are learned from recorded calls that open
//! files. The paths of files that were already open are read from `/proc/PID`.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::record::Inode;

/// Converts a device number from stat(2) to the kernel's internal format.
pub fn kernel_device(device: u64) -> u32 {
    (libc::major(device) << 20) | (libc::minor(device) & 0xF_FFFF)
}

/// Returns the identity of a file from its metadata.
fn inode_of(metadata: &fs::Metadata) -> Inode {
    const DEVICE: u32 = 0o060_000;
    if metadata.mode() & 0o170_000 == DEVICE {
        Inode { device: kernel_device(metadata.rdev()), number: 0 }
    } else {
        Inode { device: kernel_device(metadata.dev()), number: metadata.ino() }
    }
}

/// Paths of files and directories, by identity.
#[derive(Clone, Debug, Default)]
pub struct Names {
    paths: HashMap<Inode, String>,
}

impl Names {
    /// Returns the path of a file. None if the path is unknown.
    pub fn get(&self, inode: Inode) -> Option<&str> {
        self.paths.get(&inode).map(String::as_str)
    }

    /// Stores the path of a file. A relative path starts in the directory `folder`. Returns whether
    /// the path was unknown or has changed.
    pub fn learn(&mut self, inode: Inode, folder: Inode, path: &[u8]) -> bool {
        let path = String::from_utf8_lossy(path);
        // A path in /proc or /dev/fd is only a link, so it does not replace a known path.
        let is_link = path.starts_with("/proc/") || path.starts_with("/dev/fd/");
        if path.is_empty() || is_link && self.paths.contains_key(&inode) {
            return false;
        }
        let full = match self.paths.get(&folder) {
            Some(folder) if !path.starts_with('/') => joined(folder, &path),
            _ => path.into_owned(),
        };
        match self.paths.insert(inode, full.clone()) {
            Some(known) => known != full,
            None => true,
        }
    }

    /// Learns the paths of all files that a process has open or mapped.
    pub fn learn_open_files(&mut self, process: u32) {
        let folder = Path::new("/proc").join(process.to_string());
        if let Ok(maps) = fs::read_to_string(folder.join("maps")) {
            self.learn_maps(&maps);
        }
        for entry in fs::read_dir(folder.join("fd")).into_iter().flatten().flatten() {
            self.learn_link(&entry.path());
        }
    }

    /// Learns the path of the working directory of a process, and returns the identity of this
    /// directory.
    pub fn learn_folder(&mut self, process: u32) -> Option<Inode> {
        self.learn_link(&Path::new("/proc").join(process.to_string()).join("cwd"))
    }

    /// Learns the paths of mapped files from `/proc/PID/maps`. An example of a line is
    /// `7f0a8000-7f0a9000 r--p 00000000 fe:00 1234  /lib/libc.so`.
    fn learn_maps(&mut self, maps: &str) {
        for line in maps.lines() {
            let mut words = line.split_whitespace().skip(3);
            let Some((device, number)) = words.next().zip(words.next()) else { continue };
            let path = line.find('/').map_or("", |at| &line[at..]);
            let Some((major, minor)) = device.split_once(':') else { continue };
            let hexadecimal = |text| u32::from_str_radix(text, 16).ok();
            let numbers = hexadecimal(major).zip(hexadecimal(minor)).zip(number.parse().ok());
            if let Some(((major, minor), number)) = numbers
                && number != 0
                && !path.is_empty()
            {
                let inode = Inode { device: (major << 20) | (minor & 0xF_FFFF), number };
                self.paths.entry(inode).or_insert_with(|| path.to_owned());
            }
        }
    }

    /// Learns the path to which a link in `/proc/PID` points, and returns the identity of the file.
    fn learn_link(&mut self, link: &Path) -> Option<Inode> {
        // The process may close the descriptor and open another file with the same number. The path
        // is therefore used only if the file was the same before and after the link was read.
        let (before, path, after) = (fs::metadata(link), fs::read_link(link), fs::metadata(link));
        let (before, path, inode) = (before.ok()?, path.ok()?, inode_of(&after.ok()?));
        let path = path.to_string_lossy();
        let path = path.strip_suffix(" (deleted)").unwrap_or(&path);
        if inode_of(&before) != inode || !path.starts_with('/') {
            return None;
        }
        self.paths.entry(inode).or_insert_with(|| path.to_owned());
        Some(inode)
    }
}

/// Joins a directory and a relative path, and resolves `.` and `..` in the path.
fn joined(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLDER: Inode = Inode { device: 1, number: 2 };
    const FILE: Inode = Inode { device: 1, number: 3 };

    #[test]
    fn relative_paths_start_in_their_folder() {
        let mut names = Names::default();
        assert!(names.learn(FILE, FOLDER, b"log/a"));
        assert_eq!(names.get(FILE), Some("log/a"), "the folder is unknown");
        names.learn(FOLDER, Inode::default(), b"/var/lib");
        assert!(names.learn(FILE, FOLDER, b"./log/../b"));
        assert_eq!(names.get(FILE), Some("/var/lib/b"));
        assert!(!names.learn(FILE, FOLDER, b"/var/lib/b"), "the same path again");
        assert!(!names.learn(FILE, FOLDER, b""));
    }

    #[test]
    fn mapped_files_are_found() {
        let mut names = Names::default();
        names.learn_maps(
            "7f0a8000-7f0a9000 r--p 00000000 fe:01 1234      /lib/a b.so\n\
             7f0b8000-7f0b9000 rw-p 00000000 00:00 0 \n7ffc-7ffd rw-p 00000000 00:00 0 [stack]\n",
        );
        let inode = Inode { device: (0xFE << 20) | 1, number: 1234 };
        assert_eq!((names.get(inode), names.paths.len()), (Some("/lib/a b.so"), 1));
    }

    #[test]
    fn files_that_a_process_has_open_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("open file");
        let file = fs::File::create(&path).unwrap();
        let mut names = Names::default();
        names.learn_open_files(std::process::id());
        let inode = inode_of(&file.metadata().unwrap());
        assert_eq!(names.get(inode), path.to_str());
    }
}
