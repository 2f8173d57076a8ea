//! Writes a log as a database does. Each record has a length and a checksum, and groups of records
//! are made durable together. After a crash, the log continues after the last complete record.
//!
//! The file never extends beyond the last written byte, so the log ends at the end of the file.
#![allow(clippy::print_stdout, reason = "an example prints to the terminal")]

use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use seqio::{Options, Reader, Writer};

/// Number of records that become durable together.
const GROUP: u64 = 1000;

/// A log that is open for appending.
struct Log {
    writer: Writer,
    records: u64,
}

impl Log {
    fn create(path: &Path) -> io::Result<Log> {
        Ok(Log { writer: Options::new().create_new(path)?, records: 0 })
    }

    /// Truncates a log after the last complete record, and opens it for appending.
    fn resume(path: &Path) -> io::Result<Log> {
        let (records, end) = recover(path, |_| {})?;
        let mut file = OpenOptions::new().write(true).open(path)?;
        file.set_len(end)?;
        file.seek(SeekFrom::Start(end))?;
        Ok(Log { writer: Options::new().writer(file)?, records })
    }

    fn append(&mut self, record: &[u8]) -> io::Result<()> {
        let length = u32::try_from(record.len()).map_err(io::Error::other)?;
        self.writer.write_all(&length.to_le_bytes())?;
        self.writer.write_all(&checksum(record).to_le_bytes())?;
        self.writer.write_all(record)?;
        self.records += 1;
        if self.records.is_multiple_of(GROUP) { self.writer.sync_data() } else { Ok(()) }
    }

    fn finish(mut self) -> io::Result<u64> {
        self.writer.sync_data()?;
        self.writer.finish()?;
        Ok(self.records)
    }
}

/// Calls `each` for each complete record. Returns the number of complete records and the end of the
/// last complete record (bytes).
fn recover(path: &Path, mut each: impl FnMut(&[u8])) -> io::Result<(u64, u64)> {
    let mut reader = Reader::open(path)?;
    let size = reader.size()?;
    let (mut records, mut end) = (0, 0);
    loop {
        let mut head = [0; 12];
        if size - end < head.len() as u64 {
            return Ok((records, end));
        }
        reader.read_exact(&mut head)?;
        let (length, sum) = head.split_at(4);
        let length = u64::from(u32::from_le_bytes(length.try_into().expect("it has 4 bytes")));
        let whole = end + head.len() as u64 + length;
        if whole > size {
            return Ok((records, end));
        }
        let mut record = vec![0; length as usize];
        reader.read_exact(&mut record)?;
        if checksum(&record).to_le_bytes() != sum {
            return Ok((records, end));
        }
        each(&record);
        (records, end) = (records + 1, whole);
    }
}

/// Computes the 64-bit FNV-1a checksum.
fn checksum(record: &[u8]) -> u64 {
    let add = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    record.iter().fold(0xcbf2_9ce4_8422_2325, add)
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, records] = &arguments[..] else { usage() };
    let (path, Ok(records)) = (Path::new(path), records.parse::<u64>()) else { usage() };
    let mut log = Log::create(path)?;
    for number in 0..records {
        log.append(format!("record {number}").as_bytes())?;
    }
    println!("{} records written", log.finish()?);

    // Truncating the file simulates a crash that leaves the last record incomplete.
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(file.metadata()?.len().saturating_sub(3))?;
    let (whole, end) = recover(path, |_| {})?;
    println!("{whole} records are complete, up to byte {end}");

    let mut log = Log::resume(path)?;
    log.append(b"the first after the crash")?;
    println!("{} records after the recovery", log.finish()?);
    let mut last = Vec::new();
    recover(path, |record| last = record.to_vec())?;
    println!("the last record is `{}`", String::from_utf8_lossy(&last));
    Ok(())
}

fn usage() -> ! {
    println!("usage: log_writer NEW-FILE RECORDS");
    std::process::exit(2);
}
