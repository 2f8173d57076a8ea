//! Compares the second sample program of Riedel, van Ingen and Gray (1997, Figure 19) with the same
//! program written with seqio.
//!
//! The program writes a new file sequentially with direct writes of 64 KiB. Both programs end with
//! a flush.
mod support;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use seqio::Options;
use support::{Pages, REQUEST_BYTES, compare, direct, file_to_write, remove};

fn main() -> io::Result<()> {
    let (path, bytes) = file_to_write();
    compare(|| remove(&path), || paper(&path, bytes), || today(&path, bytes))?;
    remove(&path)
}

fn paper(path: &Path, bytes: u64) -> io::Result<u64> {
    let mut file = direct(OpenOptions::new().write(true).create_new(true), path)?;
    let mut request = Pages::new();
    for number in 0..bytes / REQUEST_BYTES as u64 {
        request.bytes().fill(number as u8);
        file.write_all(request.bytes())?;
    }
    file.sync_all()?;
    Ok(bytes)
}

fn today(path: &Path, bytes: u64) -> io::Result<u64> {
    let mut writer = Options::new().durable(true).create_new(path)?;
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
