//! Code shared by the sample programs of Riedel, van Ingen and Gray (1997): aligned memory,
//! eviction of files from the page cache, and the comparison of two programs.
#![allow(dead_code, reason = "each program uses only some of the functions")]
#![allow(clippy::print_stdout, reason = "an example prints to the terminal")]
#![allow(clippy::disallowed_methods, reason = "an example may read the clock")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{Advice, OFlags, fadvise};

/// Request size of the paper's programs (bytes).
pub const REQUEST_BYTES: usize = 64 << 10;
/// Number of requests that the asynchronous programs keep in flight.
pub const DEPTH: usize = 8;
/// Number of runs of each program.
const ROUNDS: usize = 5;

/// Runs both programs alternately. Prints the median rate of each program, and the ratio of the
/// rates.
pub fn compare(
    before: impl Fn() -> io::Result<()>,
    paper: impl Fn() -> io::Result<u64>,
    today: impl Fn() -> io::Result<u64>,
) -> io::Result<()> {
    let ways: [(&str, &dyn Fn() -> io::Result<u64>); 2] =
        [("as in the paper", &paper), ("with seqio", &today)];
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for ((_, way), rates) in ways.iter().zip(&mut rates) {
            before()?;
            let begin = Instant::now();
            let bytes = way()?;
            rates.push(bytes as f64 / begin.elapsed().as_secs_f64());
        }
    }
    let medians = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[ROUNDS / 2]
    });
    for ((name, _), rate) in ways.iter().zip(medians) {
        println!("{name}: {:.0} MB/s", rate / 1e6);
    }
    println!("gain: {:.2}", medians[1] / medians[0]);
    Ok(())
}

/// Returns the path of the file to read, which is the argument of the program.
pub fn file_to_read() -> PathBuf {
    match &std::env::args_os().collect::<Vec<_>>()[..] {
        [_, path] => PathBuf::from(path),
        _ => usage("FILE"),
    }
}

/// Returns the path of the file to create and its size (bytes), which are the arguments of the
/// program. The size is a multiple of the request size.
pub fn file_to_write() -> (PathBuf, u64) {
    let arguments: Vec<String> = std::env::args().collect();
    match &arguments[..] {
        [_, path, mib] if !Path::new(path).exists() => match mib.parse::<u64>() {
            Ok(mib) => (PathBuf::from(path), mib << 20),
            Err(_) => usage("NEW-FILE MIB"),
        },
        _ => usage("NEW-FILE MIB"),
    }
}

fn usage(arguments: &str) -> ! {
    println!("usage: {} {arguments}", std::env::args().next().unwrap_or_default());
    std::process::exit(2);
}

/// Evicts a file from the page cache.
pub fn forget(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    file.sync_all()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

/// Removes the file of an earlier run, if there is one.
pub fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Opens a file with O_DIRECT. The paper's programs use FILE_FLAG_NO_BUFFERING.
pub fn direct(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.custom_flags(OFlags::DIRECT.bits() as i32).open(path)
}

/// Page-aligned memory for direct requests. The paper's programs use VirtualAlloc.
pub struct Pages {
    memory: Vec<u8>,
    begin: usize,
}

impl Pages {
    /// Allocates memory for one request.
    pub fn new() -> Pages {
        let memory = vec![1; REQUEST_BYTES + 4096];
        let begin = memory.as_ptr().align_offset(4096);
        Pages { memory, begin }
    }

    /// Returns the memory.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.begin..][..REQUEST_BYTES]
    }
}
