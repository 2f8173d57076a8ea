//! Compares the fourth sample program of Riedel, van Ingen and Gray (1997, Figure 21) with the same
//! program written with seqio.
//!
//! The program reads a file with direct I/O, and keeps eight requests of 64 KiB in flight until the
//! end of the file. The original uses completion routines. The standard library has none, so eight
//! threads take the offsets of their requests from a shared counter. The original gets the blocks
//! out of order. seqio returns them in order.
mod support;

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use seqio::{Cache, Options};
use support::{DEPTH, Pages, REQUEST_BYTES, compare, direct, file_to_read, forget};

fn main() -> io::Result<()> {
    let path = file_to_read();
    compare(|| forget(&path), || paper(&path), || today(&path))
}

fn paper(path: &Path) -> io::Result<u64> {
    let file = &direct(OpenOptions::new().read(true), path)?;
    let (next, bytes) = (&AtomicU64::new(0), &AtomicU64::new(0));
    let until_the_end = || -> io::Result<()> {
        let mut request = Pages::new();
        loop {
            let offset = next.fetch_add(REQUEST_BYTES as u64, Ordering::Relaxed);
            match file.read_at(request.bytes(), offset)? {
                0 => return Ok(()),
                read => bytes.fetch_add(read as u64, Ordering::Relaxed),
            };
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..DEPTH).map(|_| scope.spawn(until_the_end)).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(read) => read,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    Ok(bytes.load(Ordering::Relaxed))
}

fn today(path: &Path) -> io::Result<u64> {
    let mut reader = Options::new().cache(Cache::Direct).open(path)?;
    let mut bytes = 0;
    while let Some(block) = reader.next_block()? {
        bytes += block.len() as u64;
    }
    Ok(bytes)
}
