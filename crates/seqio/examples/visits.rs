//! Benchmark program of `cargo xtask bench seqio`. Makes many short reads with seqio or
//! `BufReader`: reads one file at random offsets, or reads all files of a directory.
#![allow(clippy::print_stdout, reason = "an example prints to the terminal")]

use std::fs::File;
use std::hint::black_box;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use ioengine::{Clock, Monotonic};
use seqio::Reader;

/// Size of a random read (bytes).
const VISIT_BYTES: usize = 4096;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, what, how, path, count] = &arguments[..] else { usage() };
    let (Ok(count), path) = (count.parse::<u64>(), Path::new(path)) else { usage() };
    // The directory is listed before the clock starts, so the time does not include the listing.
    let files = if what == "files" { listed(path)? } else { Vec::new() };
    let clock = Monotonic::uncalibrated();
    let start_ns = clock.now_ns();
    let bytes = match (what.as_str(), how.as_str()) {
        ("random", "seqio") => visit(Reader::open(path)?, count)?,
        ("random", "std") => visit(BufReader::new(File::open(path)?), count)?,
        ("files", "seqio") => read_all(&files, count, |path| Reader::open(path))?,
        ("files", "std") => read_all(&files, count, |path| File::open(path).map(BufReader::new))?,
        _ => usage(),
    };
    println!("{bytes} bytes; took {} ns", clock.now_ns() - start_ns);
    Ok(())
}

fn usage() -> ! {
    println!("usage: visits random|files seqio|std PATH COUNT");
    std::process::exit(2);
}

fn visit(mut file: impl Read + Seek, count: u64) -> io::Result<u64> {
    let pages = file.seek(SeekFrom::End(0))? / VISIT_BYTES as u64;
    let (mut piece, mut state) = ([0; VISIT_BYTES], 1_u64);
    for _ in 0..count {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        file.seek(SeekFrom::Start((state >> 16) % pages * VISIT_BYTES as u64))?;
        file.read_exact(&mut piece)?;
        black_box(&piece);
    }
    Ok(count * VISIT_BYTES as u64)
}

fn listed(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)?;
    let mut files: Vec<PathBuf> = entries.map(|e| Ok(e?.path())).collect::<io::Result<_>>()?;
    files.sort();
    Ok(files)
}

fn read_all<R: Read>(
    files: &[PathBuf],
    times: u64,
    open: impl Fn(&Path) -> io::Result<R>,
) -> io::Result<u64> {
    let (mut bytes, mut all) = (0, Vec::new());
    for _ in 0..times {
        for path in files {
            all.clear();
            open(path)?.read_to_end(&mut all)?;
            bytes += black_box(&all).len() as u64;
        }
    }
    Ok(bytes)
}
