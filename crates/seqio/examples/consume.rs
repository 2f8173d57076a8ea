//! Benchmark program of `cargo xtask bench seqio`. Reads a file through one of several interfaces,
//! and either counts its lines (`lines`) or ignores the data (`none`). Prints the plan and the
//! elapsed time, which includes opening the file. The interface `fixed` is `blocks` with a constant
//! queue depth.
#![allow(clippy::print_stdout, reason = "an example prints to the terminal")]

use std::hint::black_box;
use std::io::{self, BufRead, Read};

use ioengine::{Clock, Monotonic};
use seqio::tokio::AsyncReader;
use seqio::{Options, Plan, Reader};
use tokio::io::{AsyncBufReadExt, AsyncReadExt};

/// Default size of a read into the program's memory (KiB). It is small enough that the data are
/// still in the first-level cache when the lines are counted.
const PIECE_KIB: usize = 32;

/// Counts the bytes of a file and, if `looks` is true, also its lines.
struct Consumer {
    looks: bool,
    bytes: u64,
    lines: u64,
}

impl Consumer {
    fn take(&mut self, data: &[u8]) {
        let data = black_box(data);
        self.bytes += data.len() as u64;
        if self.looks {
            self.lines += data.iter().filter(|byte| **byte == b'\n').count() as u64;
        }
    }
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let (way, looks, path, kib) = match &arguments[..] {
        [_, way, consumer, path, kib @ ..] if ["none", "lines"].contains(&&**consumer) => {
            let kib = kib.first().map_or(Ok(PIECE_KIB), |kib| kib.parse());
            (way.as_str(), consumer == "lines", path, kib.unwrap_or_else(|_| usage()))
        }
        _ => usage(),
    };
    let piece = vec![0; kib << 10];
    let mut consumer = Consumer { looks, bytes: 0, lines: 0 };
    let clock = Monotonic::uncalibrated();
    let start_ns = clock.now_ns();
    let mut reader = Reader::open(path)?;
    if way == "fixed" {
        reader = Options::new().depth(reader.plan().depth).open(path)?;
    }
    let plan = reader.plan().clone();
    match way {
        "blocks" | "fixed" => blocks(reader, &mut consumer)?,
        "read" => read(reader, piece, &mut consumer)?,
        "bufread" => bufread(reader, &mut consumer)?,
        "async" => task(asynchronous(reader.into(), piece, &mut consumer))?,
        "asyncbuf" => task(asynchronous_buffered(reader.into(), &mut consumer))?,
        _ => usage(),
    }
    let Plan { depth_most, .. } = plan;
    let Consumer { bytes, lines, .. } = consumer;
    let took_ns = clock.now_ns() - start_ns;
    println!("{bytes} bytes, {lines} lines; {plan}; at most {depth_most}; took {took_ns} ns");
    Ok(())
}

fn usage() -> ! {
    println!("usage: consume blocks|fixed|read|bufread|async|asyncbuf none|lines FILE [KIB]");
    std::process::exit(2);
}

fn blocks(mut reader: Reader, consumer: &mut Consumer) -> io::Result<()> {
    while let Some(block) = reader.next_block()? {
        consumer.take(&block);
    }
    Ok(())
}

fn read(mut reader: Reader, mut piece: Vec<u8>, consumer: &mut Consumer) -> io::Result<()> {
    loop {
        match reader.read(&mut piece)? {
            0 => return Ok(()),
            read => consumer.take(&piece[..read]),
        }
    }
}

fn bufread(mut reader: Reader, consumer: &mut Consumer) -> io::Result<()> {
    loop {
        let ready = reader.fill_buf()?;
        let length = ready.len();
        if length == 0 {
            return Ok(());
        }
        consumer.take(ready);
        reader.consume(length);
    }
}

fn task(task: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    tokio::runtime::Builder::new_current_thread().build()?.block_on(task)
}

async fn asynchronous(
    mut reader: AsyncReader,
    mut piece: Vec<u8>,
    consumer: &mut Consumer,
) -> io::Result<()> {
    loop {
        match reader.read(&mut piece).await? {
            0 => return Ok(()),
            read => consumer.take(&piece[..read]),
        }
    }
}

async fn asynchronous_buffered(mut reader: AsyncReader, consumer: &mut Consumer) -> io::Result<()> {
    loop {
        let ready = reader.fill_buf().await?;
        let length = ready.len();
        if length == 0 {
            return Ok(());
        }
        consumer.take(ready);
        reader.consume(length);
    }
}
