//! Finds the data and the holes of a file with SEEK_DATA and SEEK_HOLE of lseek(2), while a stream
//! reads the file.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// An extent of a file that is entirely data or entirely a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// Whether the extent is a hole: nothing is stored, and reads return zeros.
    pub is_hole: bool,
    /// End of the extent (bytes).
    pub until: u64,
}

/// The holes of one file. A hole is looked up only when the stream reaches its offset.
#[derive(Debug)]
pub(crate) struct Holes {
    /// The file to search for holes. None if the file has no holes or the system does not report
    /// holes.
    file: Option<Arc<File>>,
    known: Option<(u64, Stretch)>,
}

impl Holes {
    /// Returns an empty set of holes, so that the whole file counts as data.
    pub fn none() -> Holes {
        Holes { file: None, known: None }
    }

    /// Returns the holes of a file. The search for holes changes the position of the descriptor, so
    /// no other code may depend on this position.
    pub fn of(file: &Arc<File>) -> Holes {
        let is_sparse = file.metadata().is_ok_and(|m| m.is_file() && m.blocks() * 512 < m.len());
        Holes { file: is_sparse.then(|| Arc::clone(file)), known: None }
    }

    /// Returns whether the file may have holes, because it has fewer blocks than its size needs.
    pub fn may_exist(&self) -> bool {
        self.file.is_some()
    }

    /// Returns the extent (data or hole) that contains `offset`, clipped to `end`.
    pub fn at(&mut self, offset: u64, end: u64) -> Stretch {
        let all_data = Stretch { is_hole: false, until: end };
        let Some(file) = &self.file else { return all_data };
        if let Some((from, stretch)) = self.known
            && (from..stretch.until).contains(&offset)
        {
            return Stretch { until: stretch.until.min(end), ..stretch };
        }
        let found = match seek(file, SeekFrom::Data(offset)) {
            Ok(data) if data > offset => Stretch { is_hole: true, until: data },
            Ok(_) => match seek(file, SeekFrom::Hole(offset)) {
                Ok(hole) if hole > offset => Stretch { is_hole: false, until: hole },
                _ => all_data,
            },
            Err(Errno::NXIO) => Stretch { is_hole: true, until: end },
            Err(_) => {
                self.file = None;
                return all_data;
            }
        };
        self.known = Some((offset, found));
        Stretch { until: found.until.min(end), ..found }
    }

    /// Discards cached results, because the file may have changed.
    pub fn forget(&mut self) {
        self.known = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn holes_and_data_follow_each_other_as_they_were_written() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[1; 65536], 1 << 20).unwrap();
        file.set_len(4 << 20).unwrap();
        let mut holes = Holes::of(&Arc::new(file));
        let first = holes.at(0, 4 << 20);
        if !first.is_hole {
            eprintln!("skipped: the file system of the temporary folder does not report holes");
            return;
        }
        assert_eq!(first, Stretch { is_hole: true, until: 1 << 20 });
        assert_eq!(holes.at(4096, 8192), Stretch { is_hole: true, until: 8192 });
        assert_eq!(
            holes.at(1 << 20, 4 << 20),
            Stretch { is_hole: false, until: (1 << 20) + 65536 }
        );
        assert_eq!(holes.at(2 << 20, 4 << 20), Stretch { is_hole: true, until: 4 << 20 });
    }

    #[test]
    fn a_file_without_holes_is_not_searched_for_them() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[1; 65536], 0).unwrap();
        file.sync_all().unwrap();
        let mut holes = Holes::of(&Arc::new(file));
        assert!(holes.file.is_none());
        assert_eq!(holes.at(0, 65536), Stretch { is_hole: false, until: 65536 });
    }
}
