//! Fault classes of storage space and files: full file systems, targets that are truncated, and
//! databases that are invalid or cannot be written.

use super::Class;
use crate::faults::device::Volume;
use crate::faults::place::{Context, ENGINES, MIB, Place, noise};
use crate::faults::running::pause;
use crate::faults::tally::{Tally, ensure};
use anyhow::Result;
use std::fs::{self, File};

pub const CLASSES: &[Class] = &[
    Class {
        word: "full",
        fault: "a full file system",
        made: "a run writes to a sparse file that is larger than its file system (ext4)",
        must: "exit 1; the message states cause and remedy; the run is stored as failed",
        run: full,
    },
    Class {
        word: "full-layout",
        fault: "not enough free space for the test file",
        made: "an ext4 on a loop device is filled up",
        must: "exit 1 before anything is written; no files are left behind",
        run: full_before,
    },
    Class {
        word: "db-full",
        fault: "the file system of the database fills up",
        made: "`sweep --db` on a nearly full ext4",
        must: "exit 1; stored trials are kept; later runs succeed once there is free space",
        run: database_fills_up,
    },
    Class {
        word: "db-none",
        fault: "an invalid database: random bytes, a truncated database, or a database of another \
                program or of a newer version",
        made: "`--db` with a file that is not a database, or with a database truncated to n bytes",
        must: "exit 1; the message states the remedy; the file is not changed",
        run: no_database,
    },
    Class {
        word: "truncated",
        fault: "the target is truncated while it is measured",
        made: "truncate(2) to half the size during reads with four I/O engines",
        must: "exit 1; the message says that the target shrank",
        run: truncated,
    },
    Class {
        word: "stdout-full",
        fault: "standard output that cannot be written",
        made: "`> /dev/full`",
        must: "exit 1; the results are stored",
        run: stdout_full,
    },
];

fn full(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    let volume = Volume::new(context, 32 * MIB)?;
    let data = volume.folder().join("data");
    File::create(&data)?.set_len(64 * MIB)?;
    let data = data.display();
    for engine in context.some(&ENGINES) {
        for direct in [0, 1] {
            let place = context.place()?;
            let line = format!(
                "run {data} --overwrite={data} --rw write --bs 256k --size 64m --direct={direct} \
                 --ioengine {engine} --trials 1 --quiet"
            );
            let ended = place.run(&line)?;
            tally.detected(&line, ended.fails(1, &["no space left on device", "; free space"]));
            tally.also_detected(&line, place.newest_is("failed"));
        }
    }
    Ok(tally)
}

fn full_before(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    let volume = Volume::new(context, 48 * MIB)?;
    volume.fill_up(8 * MIB)?;
    let folder = volume.folder().display().to_string();
    let untouched = |place: &Place<'_>| {
        let left = crate::faults::place::strays(volume.folder());
        ensure(left.is_empty(), || left.join(", ")).and_then(|()| place.is_tidy())
    };
    for rest in ["--size 7m --rw write", "--size 40m", "", "--rw randrw --size 1g --iodepth 4"] {
        let place = context.place()?;
        let line = format!("run {folder} {rest} --quiet");
        tally.detected(&line, place.run(&line)?.fails(1, &["not enough for a test file", ";"]));
        tally.kept(&line, untouched(&place));
    }
    Ok(tally)
}

fn database_fills_up(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    let rooms: &[u64] = &[0, 64, 128, 256, 512];
    for room_kib in context.some(rooms) {
        let volume = Volume::new(context, 32 * MIB)?;
        let place = context.place()?;
        volume.fill_up(room_kib << 10)?;
        let db = volume.folder().join("results.db").display().to_string();
        let line = format!(
            "sweep --ioengine null --bs 4k,8k --runtime 0.005 --trials 2000 --quiet --db {db}"
        );
        let mut running = place.start(&line)?;
        let mut seen = 0;
        running.until(|_| {
            pause(30);
            let trials = place.runs(&db).ok().and_then(|runs| runs.first().map(|run| run.trials));
            seen = trials.unwrap_or(seen).max(seen);
            false
        })?;
        let ended = running.ended()?;
        tally.detected(&format!("{room_kib} KiB free: {line}"), ended.fails(1, &[&db]));
        fs::remove_file(volume.folder().join("filler"))?;
        let kept = || {
            let again = place
                .run(&format!("run --ioengine null --runtime 0.01 --trials 1 --quiet --db {db}"));
            again.map_err(|error| error.to_string())?.ends_with(0)?;
            let before: u64 = place.runs(&db)?.iter().map(|run| run.trials).sum();
            ensure(before > seen, || {
                format!("the database had {seen} trials; after one more run, it has only {before}")
            })
        };
        tally.kept(&line, kept());
    }
    Ok(tally)
}

/// Returns the names and contents of invalid databases, which halfpower must not change.
fn invalid_databases(place: &Place<'_>) -> Result<Vec<(String, Vec<u8>)>> {
    place.prepare("run --ioengine null --runtime 0.01 --trials 3 --quiet --db good.db")?;
    let good = fs::read(place.path("good.db"))?;
    let mut foreign = b"SQLite format 3\0".to_vec();
    foreign.resize(8192, 0);
    let mut newer = good.clone();
    // Bytes 60 to 63 of an SQLite file are the user_version, which is the schema version.
    newer[60..64].copy_from_slice(&99_u32.to_be_bytes());
    let mut files = vec![
        ("text".to_string(), b"dear diary".to_vec()),
        ("noise".to_string(), noise(8192)),
        ("foreign".to_string(), foreign),
        ("newer".to_string(), newer),
    ];
    for length in [1, 99, 100, 512, 4096, 6000, 8192, good.len() / 2, good.len() - 4096] {
        files.push((format!("cut-{length}"), good[..length].to_vec()));
    }
    for short_by in [1, 100, 4095] {
        files.push((format!("short-by-{short_by}"), good[..good.len() - short_by].to_vec()));
    }
    Ok(files)
}

fn no_database(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    let place = context.place()?;
    for (name, content) in invalid_databases(&place)? {
        fs::write(place.path(&name), &content)?;
        for line in [
            format!("run --ioengine null --runtime 0.01 --trials 1 --quiet --db {name}"),
            format!("runs list --db {name}"),
        ] {
            tally.detected(&line, place.run(&line)?.fails(1, &[&name, ":"]));
            let same = fs::read(place.path(&name))? == content;
            tally.kept(&line, ensure(same, || format!("{name} was changed")));
        }
    }
    Ok(tally)
}

fn truncated(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    for engine in context.some(&ENGINES) {
        for direct in [1, 0] {
            let place = context.place()?;
            let path = place.file("data", 4 * MIB)?;
            let line = format!(
                "run data --rw read --bs 64k --size 4m --time-based --runtime 20 --direct={direct} \
                 --ioengine {engine} --trials 1 --quiet"
            );
            let mut running = place.start(&line)?;
            place.wait_for_trial(&mut running)?;
            pause(100 + context.below(200));
            File::options().write(true).open(&path)?.set_len(2 * MIB)?;
            tally.detected(&line, running.ended()?.fails(1, &["reading at offset", "it shrank"]));
            tally.also_detected(&line, place.newest_is("failed"));
        }
    }
    Ok(tally)
}

fn stdout_full(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    let place = context.place()?;
    place.prepare("run --ioengine null --runtime 0.01 --trials 1 --quiet")?;
    for line in [
        "run --ioengine null --runtime 0.01 --trials 1 --quiet",
        "run --ioengine null --runtime 0.01 --trials 1 --quiet --json",
        "sweep --ioengine null --bs 4k,8k --runtime 0.01 --trials 1 --quiet --json",
        "run . --size 1m --trials 1 --quiet --plan",
        "runs list",
        "runs list --json",
        "engines",
        "clean",
        "generate schema",
    ] {
        let before = place.runs("halfpower.db").map_or(0, |runs| runs.len());
        let ended = place.start_command(place.shell("", line, "> /dev/full"))?.ended()?;
        tally.detected(line, ended.fails(1, &["could not be written to stdout", "; "]));
        if line.contains("--trials 1") && !line.contains("--plan") {
            tally.kept(line, place.newest_is("finished"));
            let after = place.runs("halfpower.db").map_or(0, |runs| runs.len());
            tally.kept(line, ensure(after == before + 1, || "the run is not stored".to_string()));
        }
    }
    Ok(tally)
}
