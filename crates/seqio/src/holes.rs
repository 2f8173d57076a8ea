//! Where a file has data and where holes, asked for as one goes along (lseek(2), SEEK_DATA).

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// What a file is made of from some place on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// Nothing is stored there, and zeros are read.
    pub hole: bool,
    /// Where it ends, at the latest at the end that was asked about (bytes).
    pub until: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Holes {
    /// None where there are none, or nobody tells. Its position is moved by asking.
    file: Option<Arc<File>>,
    known: Option<(u64, Stretch)>,
}

impl Holes {
    /// Nobody looks for holes.
    pub fn none() -> Holes {
        Holes { file: None, known: None }
    }

    /// The holes of a file, whose position is nobody else's.
    pub fn of(file: &Arc<File>) -> Holes {
        let sparse = file.metadata().is_ok_and(|m| m.is_file() && m.blocks() * 512 < m.len());
        Holes { file: sparse.then(|| Arc::clone(file)), known: None }
    }

    /// What lies at a place before `end`.
    pub fn at(&mut self, place: u64, end: u64) -> Stretch {
        let all_data = Stretch { hole: false, until: end };
        let Some(file) = &self.file else { return all_data };
        if let Some((from, stretch)) = self.known
            && (from..stretch.until).contains(&place)
        {
            return Stretch { until: stretch.until.min(end), ..stretch };
        }
        let found = match seek(file, SeekFrom::Data(place)) {
            Ok(data) if data > place => Stretch { hole: true, until: data },
            Ok(_) => match seek(file, SeekFrom::Hole(place)) {
                Ok(hole) if hole > place => Stretch { hole: false, until: hole },
                _ => all_data,
            },
            Err(Errno::NXIO) => Stretch { hole: true, until: end },
            Err(_) => {
                self.file = None;
                return all_data;
            }
        };
        self.known = Some((place, found));
        Stretch { until: found.until.min(end), ..found }
    }

    /// Forgets what was found: the file may have changed.
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
        if !first.hole {
            eprintln!("skipped: the file system of the temporary folder does not tell of holes");
            return;
        }
        assert_eq!(first, Stretch { hole: true, until: 1 << 20 });
        assert_eq!(holes.at(4096, 8192), Stretch { hole: true, until: 8192 });
        assert_eq!(holes.at(1 << 20, 4 << 20), Stretch { hole: false, until: (1 << 20) + 65536 });
        assert_eq!(holes.at(2 << 20, 4 << 20), Stretch { hole: true, until: 4 << 20 });
    }

    #[test]
    fn a_file_that_is_stored_whole_is_not_asked() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[1; 65536], 0).unwrap();
        file.sync_all().unwrap();
        let mut holes = Holes::of(&Arc::new(file));
        assert!(holes.file.is_none());
        assert_eq!(holes.at(0, 65536), Stretch { hole: false, until: 65536 });
    }
}
