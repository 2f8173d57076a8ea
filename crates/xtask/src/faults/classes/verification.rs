//! Fault classes of data that differ from the written data: flipped bits, writes that are lost,
//! misdirected or torn, and files that another program damages.

use super::Class;
use super::transfers::{depth, sealed};
use crate::faults::device::Served;
use crate::faults::place::{Context, ENGINES, Place, flip_bit};
use crate::faults::running::pause;
use crate::faults::tally::{Tally, ensure};
use anyhow::Result;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

pub const CLASSES: &[Class] = &[
    Class {
        word: "flip-read",
        fault: "a bit flipped in a read",
        made: "`--inject read-flip@n`, `--rw read --verify`, four I/O engines",
        must: "exit 4; the message states the block's offset",
        run: flipped_reads,
    },
    Class {
        word: "flip-write",
        fault: "a bit flipped in a write",
        made: "`--inject write-flip@n` in the run or in a FUSE server, `--rw write --verify`",
        must: "exit 4; the message states the block's offset; the run is stored as failed and \
               invalid",
        run: |context| falsified(context, "flip", |number| (number << 16) + (1 << 15)),
    },
    Class {
        word: "lost-write",
        fault: "a write that never reaches the medium",
        made: "`--inject write-lose@n` in the run or in a FUSE server, `--rw write --verify`",
        must: "exit 4; the message states the block's offset; the run is stored as failed and \
               invalid",
        run: |context| falsified(context, "lose", |number| number << 16),
    },
    Class {
        word: "stale",
        fault: "a lost write that leaves the old block in place",
        made: "two `--verify` runs with different seeds, the second with `write-lose@n`",
        must: "exit 4; the message says that the block is stale",
        run: stale,
    },
    Class {
        word: "misdirected",
        fault: "a write to the wrong offset",
        made: "`--inject write-misdirect:SIZE@n` in the run or in a FUSE server, \
               `--rw write --verify`",
        must: "exit 4; the message states the intended offset",
        run: |context| falsified(context, "misdirect:128k", |number| number << 16),
    },
    Class {
        word: "astray",
        fault: "a write to the wrong offset, which overwrites a valid block",
        made: "`--inject write-misdirect:SIZE@n`, random order",
        must: "exit 4",
        run: astray,
    },
    Class {
        word: "torn",
        fault: "a write of which only half reaches the medium",
        made: "`--inject write-tear@n` in the run or in a FUSE server, `--rw write --verify`",
        must: "exit 4; the message states the offset of the second half; the run is stored as \
               failed and invalid",
        run: |context| falsified(context, "tear", |number| (number << 16) + (1 << 15)),
    },
    Class {
        word: "damaged",
        fault: "a file that is damaged between `--rw write --verify` and `--rw read --verify`",
        made: "a bit flipped, a block zeroed, two blocks swapped",
        must: "exit 4; the message states the block's offset",
        run: damaged_between_runs,
    },
    Class {
        word: "damaged-meanwhile",
        fault: "a block that is damaged between its write and its verification in the same run",
        made: "a bit flipped during a slow `--rw write --verify`",
        must: "exit 4; the message states the block's offset; the run is stored as failed and \
               invalid",
        run: damaged_in_a_run,
    },
];

const WRITE: &str = "--rw write --bs 64k --size 1m --verify --quiet";

fn flipped_reads(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    for engine in context.some(&ENGINES) {
        let place = context.place()?;
        sealed(&place)?;
        for number in [0_u64, 7, 15] {
            let line = format!(
                "run data --rw read --bs 64k --size 1m --iodepth {} --ioengine {engine} --trials \
                 1 --verify --quiet --inject read-flip@{number}",
                depth(engine)
            );
            // The fault flips a bit in the byte at one quarter of the request (16384 of 65536
            // bytes).
            let block = format!("offset {}", (number << 16) + 16384);
            tally.detected(&line, place.run(&line)?.fails(4, &["1 of 256 blocks", &block]));
            tally.also_detected(&line, place.newest_is("failed"));
        }
    }
    Ok(tally)
}

/// Injects a fault into the nth write, either in the run itself or in a FUSE server. Checks that
/// the verification reports the damaged block. `offset` takes n and returns the offset of this
/// block.
fn falsified(context: &Context, fault: &str, offset: fn(u64) -> u64) -> Result<Tally> {
    let mut tally = Tally::default();
    for engine in context.some(&ENGINES) {
        for (number, trials) in [(0, 1), (5, 3), (13, 1)] {
            let place = context.place()?;
            let line = format!(
                "run . {WRITE} --iodepth {} --ioengine {engine} --trials {trials} \
                 --inject write-{fault}@{number}",
                depth(engine)
            );
            check_reported(&mut tally, &place, &line, offset(number))?;
        }
        let place = context.place()?;
        let flags = format!("--size 1m --inject write-{fault}@3");
        let device = Served::new(context, "fixed=20us", &flags)?;
        let file = device.file();
        let line = format!("run {file} --overwrite={file} {WRITE} --ioengine {engine} --trials 1");
        check_reported(&mut tally, &place, &line, offset(3))?;
    }
    Ok(tally)
}

/// Checks that a run reports damage at this offset and is stored as failed and invalid.
fn check_reported(tally: &mut Tally, place: &Place<'_>, line: &str, offset: u64) -> Result<()> {
    let ended = place.run(line)?;
    let at = format!("offset {offset}");
    let reported = ended.ends_with(4).and_then(|()| {
        let said = ended
            .stderr
            .lines()
            .any(|said| said.ends_with(&at) || said.contains(&(at.clone() + " ")));
        if said { Ok(()) } else { Err(format!("the error lacks '{at}': {}", ended.stderr.trim())) }
    });
    tally.detected(line, reported);
    tally.also_detected(line, place.newest_is("failed"));
    tally.also_detected(line, place.newest_is_invalid());
    tally.kept(line, place.is_tidy());
    Ok(())
}

fn stale(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    for engine in context.some(&ENGINES) {
        for number in [0_u64, 7, 15] {
            let place = context.place()?;
            sealed(&place)?;
            let line = format!(
                "run data --overwrite=data {WRITE} --seed 7 --ioengine {engine} --trials 1 \
                 --inject write-lose@{number}"
            );
            let block = format!("block at offset {} is stale", number << 16);
            let ended = place.run(&line)?;
            let reported = ended.ends_with(4).and_then(|()| {
                let is_named = ended.stderr.contains(&block);
                ensure(is_named, || format!("the error lacks '{block}': {}", ended.stderr.trim()))
            });
            tally.detected(&line, reported);
            tally.also_detected(&line, place.newest_is("failed"));
        }
    }
    Ok(tally)
}

fn astray(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    for engine in context.some(&ENGINES) {
        for (number, bytes) in [(0, "64k"), (3, "128k"), (7, "4k")] {
            let place = context.place()?;
            sealed(&place)?;
            let line = format!(
                "run data --overwrite=data --rw randwrite --bs 64k --size 960k --verify --quiet \
                 --seed 9 --ioengine {engine} --trials 1 --inject write-misdirect:{bytes}@{number}"
            );
            tally.detected(&line, place.run(&line)?.ends_with(4));
            tally.also_detected(&line, place.newest_is("failed"));
        }
    }
    Ok(tally)
}

fn damaged_between_runs(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    let read = "run data --rw read --bs 64k --size 1m --trials 1 --verify --quiet";
    for block in [0_u64, 100, 255] {
        for kind in ["flipped", "zeroed", "swapped"] {
            let place = context.place()?;
            sealed(&place)?;
            let path = place.path("data");
            let file = File::options().read(true).write(true).open(&path)?;
            let (at, other) = (block * 4096, (block + 7) % 256 * 4096);
            match kind {
                "flipped" => flip_bit(&path, at + context.below(4096))?,
                "zeroed" => file.write_all_at(&[0; 4096], at)?,
                _ => {
                    let (mut one, mut two) = ([0; 4096], [0; 4096]);
                    file.read_exact_at(&mut one, at)?;
                    file.read_exact_at(&mut two, other)?;
                    file.write_all_at(&two, at)?;
                    file.write_all_at(&one, other)?;
                }
            }
            file.sync_all()?;
            let first = if kind == "swapped" { at.min(other) } else { at };
            let words = format!("offset {first}");
            for direct in ["--direct=1", "--direct=0"] {
                let line = format!("{read} {direct}");
                let ended = place.run(&line)?;
                let what = format!("block {block} {kind}: {line}");
                tally.detected(&what, ended.fails(4, &["verification failed", &words]));
            }
        }
    }
    Ok(tally)
}

fn damaged_in_a_run(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    for engine in context.some(&ENGINES) {
        let place = context.place()?;
        let path = place.file("data", 1 << 20)?;
        // The run writes slowly (20 requests per second), so that the bit is flipped after its
        // block was written and before the block is read back. No later write repairs the damage.
        let line = format!(
            "run data --overwrite=data {WRITE} --rate-iops 20 --ioengine {engine} --trials 1"
        );
        let before = fs::read(&path)?[..4096].to_vec();
        let mut running = place.start(&line)?;
        running.until(|_| fs::read(&path).is_ok_and(|now| now[..4096] != before))?;
        pause(50);
        let at = context.below(16 << 10);
        flip_bit(&path, at)?;
        let ended = running.ended()?;
        let block = format!("block at offset {}", at / 4096 * 4096);
        let reported = ended.ends_with(4).and_then(|()| {
            let is_named = ended.stderr.contains(&block);
            ensure(is_named, || format!("the error lacks '{block}': {}", ended.stderr.trim()))
        });
        tally.detected(&line, reported);
        tally.also_detected(&line, place.newest_is("failed"));
    }
    Ok(tally)
}
