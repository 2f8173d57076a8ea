//! Measures how much recording slows down a system call. Prints the time of a read that needs no
//! device in three cases: without a recorder, with a recorder that does not watch this process, and
//! with a recorder that watches this process.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use calltrace::{Recorder, RecorderSpec};
use ioengine::{Clock, Monotonic};

const CALLS: u32 = 20_000;
const ROUNDS: u32 = 15;

fn call_ns(file: &File) -> f64 {
    let clock = Monotonic::new();
    let round = |_| {
        let begun_ns = clock.now_ns();
        for _ in 0..CALLS {
            let _ = file.read_at(&mut [0], 0);
        }
        (clock.now_ns() - begun_ns) as f64 / f64::from(CALLS)
    };
    (0..ROUNDS).map(round).fold(f64::MAX, f64::min)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = File::open("/proc/self/exe")?;
    let alone = call_ns(&file);
    let mut recorder = Recorder::start(&RecorderSpec::default())?;
    let beside = call_ns(&file);
    recorder.watch(std::process::id())?;
    let recorded = call_ns(&file);
    let mut out = io::stdout();
    writeln!(
        out,
        "time per read: {alone:.0} ns without a recorder, {beside:.0} ns with a recorder that does \
         not watch this process, {recorded:.0} ns with a recorder that watches this process"
    )?;
    writeln!(out, "lost events: {:?}", recorder.lost())?;
    while recorder.read(4096, |_| {}) > 0 {}
    Ok(())
}
