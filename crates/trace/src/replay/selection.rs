//! Which requests of a trace are replayed or modelled: by level, and by the names of their files.

use crate::replay::{Level, Unfit};
use crate::request::{File, FileId, Header};

/// Paths below which files are not on storage.
const NO_STORAGE: [&str; 2] = ["/proc/", "/sys/"];
/// Devices that are not storage.
const NO_STORAGE_DEVICES: [&str; 8] =
    ["null", "zero", "full", "random", "urandom", "tty", "ptmx", "console"];

/// Which requests of a trace are replayed or modelled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Their level; None for the calls of the program, or for the block layer if the trace has no
    /// reads and writes of a program.
    pub level: Option<Level>,
    /// Files of the calls: paths of files, or of folders with all files below them. Empty for all
    /// files that are on storage.
    pub files: Vec<String>,
}

impl Selection {
    /// What a replay must know of each file of a trace.
    pub(super) fn of_files(&self, header: &Header) -> Vec<FileFacts> {
        let of =
            |file: &File| FileFacts { unfit: self.of_file(&file.name), end_bytes: file.end_bytes };
        header.files.iter().map(of).collect()
    }

    /// Whether each file of a trace is selected, in the order of the header. Requests of the block
    /// layer are selected whatever their file is.
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

/// Whether a file is `path`, or lies below it.
fn is_within(name: &str, path: &str) -> bool {
    let rest = name.strip_prefix(path.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What a replay must know of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FileFacts {
    /// Why its requests are left out; None: they are replayed.
    pub(super) unfit: Option<Unfit>,
    /// Its size, as far as the trace shows (bytes).
    pub(super) end_bytes: u64,
}

/// The facts of a file.
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
