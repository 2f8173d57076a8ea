//! Measures the rates of reads and writes of cached files, and the rate of `memcpy`. The difference
//! between file access and `memcpy` is the cost of the file system.
//!
//! There are two files: a temporary file, as in the memory tests of Riedel et al. (1997), and a hot
//! file, which is in the page cache. Each request moves 64 KiB between the file and one buffer,
//! which stays in a CPU cache. For a fair comparison, `memcpy` also copies between a large array
//! and one small buffer, not between two large arrays.

use analysis::units;
use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use analysis::bootstrap::median_interval;
use analysis::interval::{CONFIDENCE, Interval};
use ioengine::Clock;

use crate::failure::{Failure, Outcome};
use crate::trials::Lab;

/// Size of a request (bytes), as in the memory tests of Chung et al. (2000).
pub const REQUEST_BYTES: usize = 64 << 10;
/// Maximum size of a test file (bytes). One pass over a file of this size takes tens of
/// milliseconds.
const FILE_MAX_BYTES: u64 = 128 << 20;

/// Names of the measurements, in the order in which they run.
pub const PATHS: [&str; 5] = [
    "temporary-file-read",
    "temporary-file-write",
    "hot-file-read",
    "memcpy-to-buffer",
    "memcpy-from-buffer",
];

/// The result of one measurement.
#[derive(Clone, Debug)]
pub struct PathReading {
    /// Name of the measurement: one of [`PATHS`].
    pub name: &'static str,
    /// Size of the file or array (bytes).
    pub file_bytes: u64,
    /// Median rate (bytes of the file or array per second).
    pub bytes_per_s: Interval,
    /// Number of samples, each a pass over the whole file or array.
    pub samples: usize,
}

/// Returns the size of the test files and of the array (bytes). `far_bytes` is the size of the
/// working set in main memory.
pub fn file_bytes(far_bytes: u64) -> u64 {
    let requests = far_bytes.min(FILE_MAX_BYTES) / REQUEST_BYTES as u64;
    requests.max(1) * REQUEST_BYTES as u64
}

struct Places {
    temporary: File,
    /// The file in the page cache; None if it could not be created.
    hot: Option<File>,
    array: Vec<u8>,
    buffer: Vec<u8>,
}

/// Performs all measurements. Also returns which ones were skipped, each with the reason.
///
/// # Errors
///
/// A file cannot be created, written or read.
pub fn measure(
    lab: &Lab,
    folder: &Path,
    bytes: u64,
    repeats: usize,
) -> Outcome<(Vec<PathReading>, Vec<String>)> {
    let failed = |what: &str, e: &io::Error| {
        let cause = ioengine::error::cause(e);
        Failure::failed(format!("{what}: {cause}; free some memory"))
    };
    let temporary = memspeed::file::in_memory().and_then(|file| filled(file, bytes));
    let temporary = temporary.map_err(|e| failed("creating a temporary file in memory", &e))?;
    let (hot, skipped) = match hot_file(folder, bytes) {
        Ok(file) => (Some(file), Vec::new()),
        Err(reason) => (None, vec![format!("hot-file-read: {reason}")]),
    };
    let (array, buffer) = (vec![1; bytes as usize], vec![2; REQUEST_BYTES]);
    let mut places = Places { temporary, hot, array, buffer };
    let mut rates: [Vec<f64>; PATHS.len()] = Default::default();
    for _ in 0..repeats {
        for (name, rates) in PATHS.iter().zip(&mut rates) {
            let start_ns = lab.clock.now_ns();
            let moved = places.pass(name).map_err(|e| failed(name, &e))?;
            let took_ns = lab.clock.now_ns() - start_ns;
            if moved {
                rates.push(bytes as f64 * 1e9 / took_ns.max(1) as f64);
            }
        }
        if lab.interrupt.is_set() {
            break;
        }
    }
    let reading = |(name, rates): (&&'static str, &Vec<f64>)| {
        let bytes_per_s = median_interval(rates, CONFIDENCE)?;
        Some(PathReading { name, file_bytes: bytes, bytes_per_s, samples: rates.len() })
    };
    Ok((PATHS.iter().zip(&rates).filter_map(reading).collect(), skipped))
}

/// Creates a file without a name (O_TMPFILE). The kernel removes the file when it is closed, even
/// if the program is killed.
fn hot_file(folder: &Path, bytes: u64) -> Result<File, String> {
    let name = folder.display();
    let free = ioengine::host::free_bytes_at(folder).map_err(|e| e.to_string())?;
    if free < 2 * bytes {
        return Err(format!(
            "{name} has only {} of free space, but 2 times {} (the size of the test file) must be \
             free; use another folder with --dir",
            units::size(free),
            units::size(bytes)
        ));
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600);
    let file = options.open(folder).and_then(|file| filled(file, bytes));
    file.map_err(|e| {
        let cause = ioengine::error::cause(&e);
        format!("creating an unnamed file in {name}: {cause}; use another folder with --dir")
    })
}

/// Fills a file with `bytes` bytes.
fn filled(file: File, bytes: u64) -> io::Result<File> {
    let block = vec![1; REQUEST_BYTES];
    for offset in (0..bytes).step_by(REQUEST_BYTES) {
        file.write_all_at(&block, offset)?;
    }
    Ok(file)
}

impl Places {
    /// Runs one pass of the measurement `name`. Returns false if its file does not exist.
    fn pass(&mut self, name: &str) -> io::Result<bool> {
        let bytes = self.array.len() as u64;
        let offsets = (0..bytes).step_by(REQUEST_BYTES);
        match name {
            "temporary-file-read" => {
                for offset in offsets {
                    self.temporary.read_exact_at(&mut self.buffer, offset)?;
                }
            }
            "temporary-file-write" => {
                for offset in offsets {
                    self.temporary.write_all_at(&self.buffer, offset)?;
                }
            }
            "hot-file-read" => {
                let Some(hot) = &self.hot else { return Ok(false) };
                for offset in offsets {
                    hot.read_exact_at(&mut self.buffer, offset)?;
                }
            }
            "memcpy-to-buffer" => {
                for part in self.array.chunks_exact(REQUEST_BYTES) {
                    black_box(&mut self.buffer).copy_from_slice(black_box(part));
                }
            }
            _ => {
                for part in self.array.chunks_exact_mut(REQUEST_BYTES) {
                    black_box(part).copy_from_slice(black_box(&self.buffer));
                }
            }
        }
        black_box(&mut self.buffer);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_moves_all_its_bytes() {
        let bytes = 3 * REQUEST_BYTES;
        let file = || filled(memspeed::file::in_memory().unwrap(), bytes as u64).unwrap();
        let (hot, array) = (Some(file()), vec![5; bytes]);
        let mut places = Places { temporary: file(), hot, array, buffer: vec![7; REQUEST_BYTES] };
        let mut content = vec![0; bytes];
        places.pass("temporary-file-write").unwrap();
        places.temporary.read_exact_at(&mut content, 0).unwrap();
        assert!(content.iter().all(|byte| *byte == 7), "not all of the file was written");
        for (path, then) in [("hot-file-read", 1), ("temporary-file-read", 7)] {
            assert!(places.pass(path).unwrap());
            assert!(places.buffer.iter().all(|byte| *byte == then), "{path}");
        }
        places.pass("memcpy-to-buffer").unwrap();
        assert!(
            places.buffer.iter().all(|byte| *byte == 5),
            "the buffer does not have the array's bytes"
        );
        places.buffer.fill(9);
        places.pass("memcpy-from-buffer").unwrap();
        assert!(places.array.iter().all(|byte| *byte == 9), "not all of the array was written");
        places.hot = None;
        assert!(!places.pass("hot-file-read").unwrap(), "a file that is not there was read");
    }

    #[test]
    fn a_file_has_a_whole_number_of_requests() {
        assert_eq!(file_bytes(1), REQUEST_BYTES as u64);
        assert_eq!(file_bytes((1 << 20) + 5), 1 << 20);
        assert_eq!(file_bytes(u64::MAX), FILE_MAX_BYTES);
    }
}
