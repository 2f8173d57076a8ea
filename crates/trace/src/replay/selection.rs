//! Selects, by level and by file, which requests of a trace are replayed or modelled.

use crate::replay::{Level, Unfit};
use crate::request::{File, FileId, Header};

/// Directories whose files are not on storage.
const NO_STORAGE: [&str; 2] = ["/proc/", "/sys/"];
/// Devices in /dev that are not storage.
const NO_STORAGE_DEVICES: [&str; 8] =
    ["null", "zero", "full", "random", "urandom", "tty", "ptmx", "console"];

/// Selects which requests of a trace are replayed or modelled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Level of the requests. None selects the calls of the program. If the trace has no reads and
    /// writes of a program, None selects the block layer.
    pub level: Option<Level>,
    /// Paths of the files whose calls are selected. The path of a directory selects all files below
    /// it. An empty list selects all files that are on storage.
    pub files: Vec<String>,
}

impl Selection {
    /// Returns the facts that a replay needs about each file of a trace.
    pub(super) fn of_files(&self, header: &Header) -> Vec<FileFacts> {
        let of =
            |file: &File| FileFacts { unfit: self.of_file(&file.name), end_bytes: file.end_bytes };
        header.files.iter().map(of).collect()
    }

    /// Returns, for each file of the header, whether the calls on the file are selected. Requests
    /// of the block layer are always selected.
    pub fn selected_files(&self, header: &Header) -> Vec<bool> {
        header.files.iter().map(|file| self.of_file(&file.name).is_none()).collect()
    }

    fn of_file(&self, name: &str) -> Option<Unfit> {
        if !self.files.is_empty() {
            let is_asked = self.files.iter().any(|path| is_within(name, path));
            return (!is_asked).then_some(Unfit::OtherFile);
        }
        let device = name.strip_prefix("/dev/");
        let is_device = device.is_some_and(|device| {
            NO_STORAGE_DEVICES.contains(&device) || device.starts_with("pts/")
        });
        let is_virtual = NO_STORAGE.iter().any(|folder| name.starts_with(folder));
        (is_device || is_virtual).then_some(Unfit::NoStorage)
    }
}

/// Returns whether the file `name` is `path` itself or is in the directory `path`.
fn is_within(name: &str, path: &str) -> bool {
    let rest = name.strip_prefix(path.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Facts that a replay needs about a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FileFacts {
    /// Why the requests of the file are left out. None if they are replayed.
    pub(super) unfit: Option<Unfit>,
    /// Highest offset that the trace shows for the file (bytes). The file may be larger.
    pub(super) end_bytes: u64,
}

/// Returns the facts about a file.
pub(super) fn facts(files: &[FileFacts], file: FileId) -> FileFacts {
    files.get(file.0 as usize).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_storage_are_left_out_unless_files_are_named() {
        let all = Selection::default();
        for name in ["/proc/self/maps", "/sys/block/vda/stat", "/dev/null", "/dev/pts/3"] {
            assert_eq!(all.of_file(name), Some(Unfit::NoStorage), "{name}");
        }
        for name in ["/data/f", "/dev/vda", "", "/process/x"] {
            assert_eq!(all.of_file(name), None, "{name}");
        }
        let files = vec!["/data/".to_owned(), "/sys/x".to_owned()];
        let some = Selection { files, ..Selection::default() };
        assert_eq!(some.of_file("/data/a/b"), None);
        assert_eq!(some.of_file("/sys/x"), None);
        assert_eq!(some.of_file("/database"), Some(Unfit::OtherFile));
    }
}
