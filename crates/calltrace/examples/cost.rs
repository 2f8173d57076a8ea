//! Prints what recording adds to a call: the time of a read that needs no device, alone, with
//! recording of others, and recorded itself.

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
        "alone {alone:.0} ns, beside a recording {beside:.0} ns, recorded {recorded:.0} ns"
    )?;
    writeln!(out, "lost {:?}", recorder.lost())?;
    while recorder.read(4096, |_| {}) > 0 {}
    Ok(())
}
