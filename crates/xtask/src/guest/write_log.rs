//! Reads a log of all writes to a drive, and creates disk images from it. QEMU's `blklogwrites`
//! writes the log in the format of dm-log-writes
//! (Documentation/admin-guide/device-mapper/log-writes). An image contains what a power cut leaves:
//! all flushed writes, and a part of the unflushed writes.

use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Magic number at the start of the log.
const MAGIC: u64 = 0x006a_7366_7773_6872;
/// Unit of the offsets and lengths in the log (bytes).
const SECTOR_BYTES: u64 = 512;
/// Flag that marks an entry as a flush.
const FLUSH: u64 = 1;
/// Flag of a write with FUA (forced unit access), which is durable on completion.
const FUA: u64 = 2;
/// Flag that marks an entry as a discard.
const DISCARD: u64 = 4;

/// A write, flush or discard in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Offset on the drive (bytes).
    pub offset: u64,
    /// Length (bytes). 0 for a flush.
    pub bytes: u64,
    flags: u64,
    /// Offset of the written data in the log (bytes).
    data_at: u64,
}

impl Entry {
    fn is_flush(&self) -> bool {
        self.flags & FLUSH != 0
    }

    fn has_data(&self) -> bool {
        self.bytes > 0 && self.flags & DISCARD == 0
    }
}

/// A log of all writes to a drive.
#[derive(Debug)]
pub struct WriteLog {
    file: File,
    /// The entries in the order of the log.
    pub entries: Vec<Entry>,
}

/// Returns the number of entries in a log, which may still be growing.
pub fn count(log: &Path) -> Result<u64> {
    let mut head = [0; 24];
    let file = File::open(log)?;
    if file.read_exact_at(&mut head, 0).is_err() {
        return Ok(0);
    }
    Ok(number(&head, 16))
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl WriteLog {
    /// Reads the entries of a log.
    ///
    /// # Errors
    /// If the file is not a log, or is damaged.
    pub fn open(path: &Path) -> Result<WriteLog> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let mut head = [0; 28];
        file.read_exact_at(&mut head, 0).context("the log has no header")?;
        ensure!(
            number(&head, 0) == MAGIC,
            "the file is not a log of writes: it begins with {:x}",
            number(&head, 0)
        );
        let count = number(&head, 16);
        let mut at = SECTOR_BYTES;
        let mut entries = Vec::new();
        for _ in 0..count {
            let mut fields = [0; 32];
            file.read_exact_at(&mut fields, at).context("the log is cut off")?;
            let (sector, sectors, flags) =
                (number(&fields, 0), number(&fields, 8), number(&fields, 16));
            let entry = Entry {
                offset: sector * SECTOR_BYTES,
                bytes: sectors * SECTOR_BYTES,
                flags,
                data_at: at + SECTOR_BYTES,
            };
            at = entry.data_at + if entry.has_data() { entry.bytes } else { 0 };
            entries.push(entry);
        }
        Ok(WriteLog { file, entries })
    }

    /// Applies the first `count` entries to an image, as if a power cut followed. All writes before
    /// the last flush and all writes with FUA survive. Any other write survives if `keeps` returns
    /// true. With `is_lying`, flushes and FUA have no effect. Returns the writes that were lost.
    ///
    /// # Errors
    /// If the image or the log cannot be accessed.
    pub fn apply(
        &self,
        image: &File,
        count: usize,
        is_lying: bool,
        mut keeps: impl FnMut() -> bool,
    ) -> Result<Vec<Entry>> {
        let entries = &self.entries[..count.min(self.entries.len())];
        let flushed = entries.iter().rposition(Entry::is_flush).filter(|_| !is_lying);
        let safe = flushed.map_or(0, |at| at + 1);
        let mut lost = Vec::new();
        for (number, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.has_data()) {
            let is_safe = number < safe || (entry.flags & FUA != 0 && !is_lying);
            if !is_safe && !keeps() {
                lost.push(entry.clone());
                continue;
            }
            let mut data = vec![0; entry.bytes as usize];
            self.file.read_exact_at(&mut data, entry.data_at).context("the log is cut off")?;
            image.write_all_at(&data, entry.offset)?;
        }
        Ok(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};

    /// Creates a log from the sector number and the flags of each entry. An entry without a sector
    /// is a flush. A write fills one sector with the number of its entry, counted from 1.
    fn log(path: &Path, entries: &[(Option<u64>, u64)]) {
        let file = File::create(path).unwrap();
        let head = [MAGIC, 1, entries.len() as u64, SECTOR_BYTES];
        let head: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
        file.write_all_at(&head, 0).unwrap();
        let mut at = SECTOR_BYTES;
        for (number, (sector, flags)) in entries.iter().enumerate() {
            let length = u64::from(sector.is_some());
            let fields = [sector.unwrap_or(0), length, *flags, 0];
            let fields: Vec<u8> = fields.iter().flat_map(|word| word.to_le_bytes()).collect();
            file.write_all_at(&fields, at).unwrap();
            at += SECTOR_BYTES;
            if sector.is_some() {
                file.write_all_at(&[number as u8 + 1; SECTOR_BYTES as usize], at).unwrap();
                at += SECTOR_BYTES;
            }
        }
        file.set_len(at).unwrap();
    }

    fn image_after(log: &WriteLog, count: usize, is_lying: bool) -> (Vec<u8>, usize) {
        let mut image = tempfile::tempfile().unwrap();
        image.set_len(4 * SECTOR_BYTES).unwrap();
        let lost = log.apply(&image, count, is_lying, || false).unwrap();
        let mut bytes = Vec::new();
        image.rewind().unwrap();
        image.read_to_end(&mut bytes).unwrap();
        (bytes.iter().step_by(SECTOR_BYTES as usize).copied().collect(), lost.len())
    }

    #[test]
    fn a_power_cut_leaves_what_was_flushed_and_loses_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        log(&path, &[(Some(0), 0), (None, FLUSH), (Some(1), 0), (Some(2), FUA), (Some(0), 0)]);
        let log = WriteLog::open(&path).unwrap();
        assert_eq!(count(&path).unwrap(), 5);
        assert_eq!(image_after(&log, 1, false), (vec![0, 0, 0, 0], 1));
        assert_eq!(image_after(&log, 2, false), (vec![1, 0, 0, 0], 0));
        assert_eq!(image_after(&log, 5, false), (vec![1, 0, 4, 0], 2));
        assert_eq!(image_after(&log, 5, true), (vec![0, 0, 0, 0], 4));
        let image = tempfile::tempfile().unwrap();
        assert_eq!(log.apply(&image, 5, false, || true).unwrap(), []);
    }

    #[test]
    fn another_file_is_not_taken_for_a_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, [7; 600]).unwrap();
        assert!(WriteLog::open(&path).unwrap_err().to_string().contains("not a log"));
    }
}
