//! Prints the FNV-1a checksum of files. Only the line that opens the file uses seqio. The function
//! `checksum` accepts any `BufRead`.
#![allow(clippy::print_stdout, reason = "an example prints to the terminal")]

use std::io::{self, BufRead};

fn main() -> io::Result<()> {
    for path in std::env::args_os().skip(1) {
        // Without seqio, this line uses `std::io::BufReader::new(std::fs::File::open(&path)?)`.
        let file = seqio::Reader::open(&path)?;
        println!("{:016x} {}", checksum(file)?, path.display());
    }
    Ok(())
}

/// Computes the 64-bit FNV-1a checksum (Fowler, Noll, Vo).
fn checksum(mut from: impl BufRead) -> io::Result<u64> {
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    loop {
        let ready = from.fill_buf()?;
        if ready.is_empty() {
            return Ok(sum);
        }
        for byte in ready {
            sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let length = ready.len();
        from.consume(length);
    }
}
