//! Counts the lines of files, like `wc -l`. The data are not copied in memory.
#![allow(clippy::print_stdout, reason = "an example prints to the terminal")]

use seqio::Reader;

fn main() -> std::io::Result<()> {
    for path in std::env::args_os().skip(1) {
        let mut reader = Reader::open(&path)?;
        let mut lines = 0;
        while let Some(block) = reader.next_block()? {
            lines += block.iter().filter(|byte| **byte == b'\n').count();
        }
        println!("{lines} {}", path.display());
    }
    Ok(())
}
