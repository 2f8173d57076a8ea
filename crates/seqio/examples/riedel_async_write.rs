//! Compares the third sample program of Riedel, van Ingen and Gray (1997, Figure 20) with the same
//! program written with seqio.
//!
//! The program writes a preallocated file with direct I/O, and keeps eight requests of 64 KiB in
//! flight. Each buffer is filled just before its request is issued. The standard library has no
//! asynchronous requests, so each of eight threads issues every eighth request. Both programs end
//! with a flush.
mod support;

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};
use seqio::Options;
use support::{DEPTH, Pages, REQUEST_BYTES, compare, direct, file_to_write, remove};

fn main() -> io::Result<()> {
    let (path, bytes) = file_to_write();
    compare(|| remove(&path), || paper(&path, bytes), || today(&path, bytes))?;
    remove(&path)
}

fn paper(path: &Path, bytes: u64) -> io::Result<u64> {
    let file = &direct(OpenOptions::new().write(true).create_new(true), path)?;
    fallocate(file, FallocateFlags::empty(), 0, bytes)?;
    let every_eighth = |first: usize| -> io::Result<()> {
        let mut request = Pages::new();
        for number in (first as u64..bytes / REQUEST_BYTES as u64).step_by(DEPTH) {
            request.bytes().fill(number as u8);
            file.write_all_at(request.bytes(), number * REQUEST_BYTES as u64)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..DEPTH).map(|i| scope.spawn(move || every_eighth(i))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(written) => written,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    file.sync_all()?;
    Ok(bytes)
}

fn today(path: &Path, bytes: u64) -> io::Result<u64> {
    let mut writer = Options::new().size(bytes).durable(true).create_new(path)?;
    let mut number = 0;
    while writer.position() < bytes {
        let space = writer.space()?;
        let amount = space.len().min(REQUEST_BYTES);
        space[..amount].fill(number);
        writer.advance(amount);
        number = number.wrapping_add(1);
    }
    writer.finish()
}
