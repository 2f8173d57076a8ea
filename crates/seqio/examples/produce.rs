//! Benchmark program of `cargo xtask bench seqio`. Writes a durable file through one of several
//! interfaces, and prints the plan and the elapsed time. With `all`, the program computes every
//! byte. With `stamp`, it fills each buffer once, and later changes only 8 bytes of each page.
#![allow(clippy::print_stdout, reason = "an example prints to the terminal")]

use std::hint::black_box;
use std::io::{self, Write};

use ioengine::{Clock, Monotonic};
use seqio::tokio::AsyncWriter;
use seqio::{Options, Writer};
use tokio::io::AsyncWriteExt;

/// Size of a write from the program's memory (bytes).
const PIECE_BYTES: usize = 128 << 10;
/// Distance between two changes with `stamp` (bytes). Every page is changed, so that no two pages
/// are equal.
const STAMP_BYTES: usize = 4096;

struct Producer {
    makes_all: bool,
    left: u64,
    state: u64,
    /// Start addresses of the buffers that have already been filled once.
    filled: Vec<usize>,
}

impl Producer {
    /// Fills memory with the next bytes. Returns the number of bytes filled.
    fn fill(&mut self, space: &mut [u8]) -> usize {
        let amount = self.left.min(space.len() as u64) as usize;
        let space = &mut space[..amount];
        let place = space.as_ptr() as usize;
        let known = self.filled.contains(&place);
        let every = if self.makes_all || !known { 8 } else { STAMP_BYTES };
        for part in space.chunks_mut(every) {
            self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let stamp = self.state.to_le_bytes();
            let length = part.len().min(8);
            part[..length].copy_from_slice(&stamp[..length]);
        }
        if !known {
            self.filled.push(place);
        }
        black_box(space);
        self.left -= amount as u64;
        amount
    }
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
    let (way, makes_all, path, bytes, told) = match words[..] {
        [way, "stamp", path, bytes] => (way, false, path, bytes, false),
        [way, "all", path, bytes] => (way, true, path, bytes, false),
        [way, "stamp", path, bytes, "foretold"] => (way, false, path, bytes, true),
        [way, "all", path, bytes, "foretold"] => (way, true, path, bytes, true),
        _ => usage(),
    };
    let Ok(bytes) = bytes.parse() else { usage() };
    let mut options = Options::new().durable(true);
    if told {
        options = options.size(bytes);
    }
    let mut producer = Producer { makes_all, left: bytes, state: bytes, filled: Vec::new() };
    let clock = Monotonic::uncalibrated();
    let start_ns = clock.now_ns();
    let writer = options.create(path)?;
    let plan = writer.plan().clone();
    match way {
        "space" => space(writer, &mut producer)?,
        "write" => write(writer, &mut producer)?,
        "async" => {
            let runtime = tokio::runtime::Builder::new_current_thread().build()?;
            runtime.block_on(asynchronous(writer.into(), &mut producer))?;
        }
        _ => usage(),
    }
    let took_ns = clock.now_ns() - start_ns;
    println!("{bytes} bytes; {plan}; at most {}; took {took_ns} ns", plan.depth_most);
    Ok(())
}

fn usage() -> ! {
    println!("usage: produce space|write|async stamp|all FILE BYTES [foretold]");
    std::process::exit(2);
}

fn space(mut writer: Writer, producer: &mut Producer) -> io::Result<()> {
    while producer.left > 0 {
        let filled = producer.fill(writer.space()?);
        writer.advance(filled);
    }
    writer.finish().map(drop)
}

fn write(mut writer: Writer, producer: &mut Producer) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    while producer.left > 0 {
        let filled = producer.fill(&mut piece);
        writer.write_all(&piece[..filled])?;
    }
    writer.finish().map(drop)
}

async fn asynchronous(mut writer: AsyncWriter, producer: &mut Producer) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    while producer.left > 0 {
        let filled = producer.fill(&mut piece);
        writer.write_all(&piece[..filled]).await?;
    }
    writer.shutdown().await
}
