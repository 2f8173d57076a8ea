//! Prints the storage requests of a command: `calls COMMAND ARGS`. Do not redirect the output to a
//! file on a disk: the requests of all disks are printed, including those that the output causes.

use std::io::{self, Write};
use std::process::Command;
use std::time::Duration;

use calltrace::{Recorder, RecorderSpec, Requests};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let mut recorder = Recorder::start(&RecorderSpec::default())?;
    let mut requests = Requests::new();
    recorder.watch_children(std::process::id())?;
    let mut child = Command::new(words.next().unwrap_or_default()).args(words).spawn()?;
    recorder.ignore(std::process::id())?;
    requests.learn_process(child.id());
    let mut out = io::stdout().lock();
    loop {
        let ended = child.try_wait()?.is_some();
        let read = recorder.read(10_000, |record| {
            requests.take(record, |r| {
                let _ = writeln!(
                    out,
                    "{:?}",
                    (
                        r.start_ns,
                        r.latency_ns,
                        r.thread,
                        r.call.name(),
                        r.operation,
                        r.file,
                        r.offset,
                        r.bytes,
                        r.result,
                        r.direct,
                        r.device_bytes
                    )
                );
            });
        });
        if ended && read == 0 {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    writeln!(out, "{:?}", requests.file_names())?;
    writeln!(out, "{:?} {:?}", recorder.lost(), recorder.missing())?;
    Ok(())
}
