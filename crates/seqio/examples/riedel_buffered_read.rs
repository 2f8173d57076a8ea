//! Compares the first sample program of Riedel, van Ingen and Gray (1997, Figure 18) with the same
//! program written with seqio.
//!
//! The program reads a file sequentially with buffered reads of 64 KiB.
mod support;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use seqio::Reader;
use support::{REQUEST_BYTES, compare, file_to_read, forget};

fn main() -> io::Result<()> {
    let path = file_to_read();
    compare(|| forget(&path), || paper(&path), || today(&path))
}

fn paper(path: &Path) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut request = vec![0; REQUEST_BYTES];
    let mut bytes = 0;
    loop {
        match file.read(&mut request)? {
            0 => return Ok(bytes),
            read => bytes += read as u64,
        }
    }
}

fn today(path: &Path) -> io::Result<u64> {
    let mut reader = Reader::open(path)?;
    let mut bytes = 0;
    while let Some(block) = reader.next_block()? {
        bytes += block.len() as u64;
    }
    Ok(bytes)
}
