//! Situations in which requests fail, read holes, are served from a cache or are issued too late,
//! or in which the queue depth is not reached.

use super::Situation;
use super::gear::{QUIET, alarm, python, run_and_check, with_command};
use crate::accuracy::foreign::server::Server;
use crate::accuracy::foreign::stable::throttled;
use crate::faults::place::{Context, MIB};
use crate::faults::tally::Check;
use anyhow::Result;
use std::fs::{self, File};
use std::process::Command;

/// The situations of this module. Each situation triggers a different check of halfpower.
pub const SITUATIONS: &[Situation] = &[
    Situation {
        word: "errors",
        wrong: "requests fail",
        made: "nbdkit's error filter fails 5% of the reads",
        must: "verdict invalid (requests failed), or the run ends with an I/O error",
        says: &["requests failed", "input/output error"],
        run: errors,
    },
    Situation {
        word: "holes",
        wrong: "the region that is read is sparse",
        made: "a sparse file on ext4 on a loop device",
        must: "invalid: holes or unwritten blocks",
        says: &["are holes or unwritten blocks"],
        run: holes,
    },
    Situation {
        word: "pages-left",
        wrong: "pages stay in the page cache although halfpower tries to drop them",
        made: "another process maps the file and locks its pages",
        must: "invalid: pages stayed in the page cache",
        says: &["stayed in the page cache"],
        run: pages_left,
    },
    Situation {
        word: "cold",
        wrong: "cold reads never reach the device",
        made: "another process reads the same file on a loop device repeatedly",
        must: "invalid: the device read less than requested",
        says: &["the rest came from a cache"],
        run: cold,
    },
    Situation {
        word: "depth",
        wrong: "the depth cannot be reached",
        made: "libaio with buffered reads, depth 8",
        must: "refused: the depth would not be reached",
        says: &[
            "would not be reached",
            "were in flight on average",
            "completed inside the submit call",
        ],
        run: depth,
    },
    Situation {
        word: "open-loop",
        wrong: "an open loop falls behind its rate",
        made: "2,000 requests/s are requested, and QEMU limits the rate to 500",
        must: "suspect: fewer requests delivered than requested",
        says: &["were delivered of the"],
        run: open_loop,
    },
    Situation {
        word: "never-issued",
        wrong: "requests that are due are never issued",
        made: "50,000 requests/s are requested, and QEMU limits the rate to 100",
        must: "suspect: requests were due and never issued",
        says: &["were due and never issued"],
        run: never_issued,
    },
];

fn errors(context: &Context, says: &[&str]) -> Result<Check> {
    let server = Server::nbdkit(context, "--filter=error memory 64M error-pread-rate=5%")?;
    let line = format!("run {} --rw randread --bs 4k --iodepth 4 --runtime 0.5", server.file());
    run_and_check(context, &line, says)
}

fn holes(context: &Context, says: &[&str]) -> Result<Check> {
    let volume = crate::faults::device::Volume::new(context, 64 * MIB)?;
    let file = volume.folder().join("holes");
    File::create(&file)?.set_len(32 * MIB)?;
    let line = format!("run {} --rw randread --bs 4k --runtime 0.5", file.display());
    run_and_check(context, &line, says)
}

/// Python script that maps a file, locks its pages and sleeps.
const LOCK: &str = "\
import ctypes, mmap, sys, time
file = open(sys.argv[1], 'r+b')
pages = mmap.mmap(file.fileno(), 0)
address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
libc = ctypes.CDLL(None, use_errno=True)
if libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(len(pages))) != 0:
    sys.exit('mlock: error %d' % ctypes.get_errno())
print('locked', flush=True)
time.sleep(600)
";

fn pages_left(context: &Context, says: &[&str]) -> Result<Check> {
    let place = context.place()?;
    let file = place.file("data", 32 * MIB)?;
    let mut command = Command::new(python()?);
    command.args(["-c", LOCK]).arg(&file);
    let mut holder = place.start_command(command)?;
    let locked = holder.until(|holder| holder.said().contains("locked"))?;
    anyhow::ensure!(locked, "the helper did not lock the pages");
    let line = format!("run {} --rw read --bs 64k --size 32m --direct=0 {QUIET}", file.display());
    Ok(with_command(&line, alarm(&place.run(&line)?, says)))
}

fn cold(context: &Context, says: &[&str]) -> Result<Check> {
    let volume = crate::faults::device::Volume::new(context, 160 * MIB)?;
    let place = context.place()?;
    let file = volume.folder().join("data");
    fs::write(&file, crate::faults::place::noise(128 * MIB))?;
    File::open(&file)?.sync_all()?;
    let path = file.display().to_string();
    let mut reader = Command::new("sh");
    reader.args(["-c", "while cat \"$0\" > /dev/null; do :; done", &path]);
    let _reader = place.start_command(reader)?;
    let line = format!("run {path} --rw randread --bs 4k --direct=0 --runtime 1 {QUIET}");
    Ok(with_command(&line, alarm(&place.run(&line)?, says)))
}

fn depth(context: &Context, says: &[&str]) -> Result<Check> {
    let server = Server::nbdkit(context, "--filter=delay memory 512M rdelay=1ms")?;
    let line = format!(
        "run {} --rw randread --bs 4k --direct=0 --ioengine libaio --iodepth 8 --runtime 0.5",
        server.file()
    );
    run_and_check(context, &line, says)
}

fn open_loop(context: &Context, says: &[&str]) -> Result<Check> {
    let server = throttled(context, "iops-total=500")?;
    let line = format!(
        "run {} --rw randread --bs 4k --iodepth 4 --rate-iops 2000 --runtime 1",
        server.file()
    );
    run_and_check(context, &line, says)
}

fn never_issued(context: &Context, says: &[&str]) -> Result<Check> {
    let server = throttled(context, "iops-total=100")?;
    let line = format!(
        "run {} --rw randread --bs 4k --iodepth 4 --rate-iops 50000 --runtime 1",
        server.file()
    );
    run_and_check(context, &line, says)
}
