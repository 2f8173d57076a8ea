//! The read trial: measures how fast the server itself reads a file, without the network. The trial
//! is short, never writes, and does not exceed the server's rate limit.

use std::sync::atomic::AtomicBool;

use cpucost::HostMeter;
use ioengine::{Caching, EngineKind, HostTarget, Monotonic, Target};
use workload::{Arrival, Control, Pattern, Workload, plan};

use crate::peer::folder::Folder;
use crate::peer::message::{ReadTrial, ReadTrialResult};

/// Smallest and largest request size (bytes).
const REQUEST_BYTES: (u32, u32) = (512, 16 << 20);
/// Maximum number of outstanding requests.
const DEPTH_MAX: u32 = 64;
/// Maximum size of all buffers (bytes).
const BUFFER_BYTES_MAX: u64 = 64 << 20;
/// Shortest and longest trial (ms).
const MILLISECONDS: (u32, u32) = (1, 10_000);
/// A trial counts as limited if its rate reaches this share of the rate limit.
const AT_LIMIT: f64 = 0.95;

/// Refuses a trial that would need too much time or memory.
///
/// # Errors
/// A parameter is out of range. The error contains the range.
pub fn check(trial: &ReadTrial) -> Result<(), String> {
    let (bytes, depth, ms) = (trial.request_bytes, trial.depth, trial.milliseconds);
    if !(REQUEST_BYTES.0..=REQUEST_BYTES.1).contains(&bytes) || bytes % REQUEST_BYTES.0 != 0 {
        return Err(format!(
            "request size {bytes} is invalid; use a multiple of 512 B up to 16 MiB"
        ));
    }
    if depth == 0 || depth > DEPTH_MAX {
        return Err(format!("depth {depth} is out of range; use 1 to {DEPTH_MAX}"));
    }
    if u64::from(bytes) * u64::from(depth) > BUFFER_BYTES_MAX {
        return Err(format!(
            "{depth} requests of {bytes} B need more than 64 MiB together; use smaller requests"
        ));
    }
    if !(MILLISECONDS.0..=MILLISECONDS.1).contains(&ms) {
        return Err(format!("{ms} ms is out of range; use 1 to 10000 ms"));
    }
    Ok(())
}

/// Reads a file below the folder for the requested time, at a rate of at most `bytes_per_s_max`.
///
/// # Errors
/// The reason why the trial was refused or failed, with the remedy.
pub fn run(
    folder: &Folder,
    trial: &ReadTrial,
    bytes_per_s_max: f64,
    stop: &AtomicBool,
) -> Result<ReadTrialResult, String> {
    check(trial)?;
    let file = folder.file(&trial.path)?;
    let shown = trial.path.escape_debug().to_string();
    let open = |caching| HostTarget::open(&file.path(), false, caching);
    let target = match trial.direct.then(|| open(Caching::Direct)) {
        Some(Ok(target)) => target,
        // Direct I/O was not requested, or the file system does not support it.
        _ => open(Caching::Buffered).map_err(|error| {
            let error = error.to_string().replace(&file.path().display().to_string(), &shown);
            format!("opening {shown}: {error}")
        })?,
    };
    let target = target.called(shown);
    let request_bytes = trial.request_bytes;
    let region_bytes = target.size_bytes() / u64::from(request_bytes) * u64::from(request_bytes);
    if region_bytes == 0 {
        return Err(format!(
            "{} is smaller than one request of {request_bytes} B; use a larger file",
            target.name()
        ));
    }
    let direct = target.caching().is_direct();
    let workload = Workload {
        engine_kind: if trial.depth == 1 { EngineKind::Sync } else { EngineKind::best(direct) },
        pattern: if trial.random { Pattern::Random } else { Pattern::Sequential },
        request_bytes,
        depth: trial.depth,
        region_bytes,
        // Requests arrive at a constant rate that equals the rate limit. If the file is slower,
        // requests are always waiting, so the queue stays full as in a closed loop.
        arrival: Arrival::Constant { requests_per_s: bytes_per_s_max / f64::from(request_bytes) },
        limit_ns: Some(u64::from(trial.milliseconds) * 1_000_000),
        ..Workload::default()
    };
    let planned = plan::resolve(&workload, &target).map_err(|error| error.to_string())?;
    let mut control = Control { stop, on_progress: &mut |_| {}, start: None };
    let (clock, meter) = (Monotonic::new(), HostMeter::new());
    let sample = workload::run(&[&target], &planned, clock, &meter, &mut control)
        .map_err(|error| error.to_string())?;
    if sample.errors > 0 {
        return Err(format!("{} reads of {} failed; check the file", sample.errors, target.name()));
    }
    Ok(ReadTrialResult {
        bytes: sample.bytes(),
        requests: sample.requests(),
        elapsed_ns: sample.elapsed_ns(),
        direct,
        ioengine: workload.engine_kind.to_string(),
        limited: sample.bytes_per_s() >= AT_LIMIT * bytes_per_s_max,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIAL: ReadTrial = ReadTrial {
        path: String::new(),
        request_bytes: 4096,
        depth: 1,
        random: false,
        direct: false,
        milliseconds: 50,
    };

    fn folder_with(bytes: usize) -> (tempfile::TempDir, Folder) {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("data"), vec![7; bytes]).unwrap();
        let folder = Folder::open(place.path()).unwrap();
        (place, folder)
    }

    fn run_on(folder: &Folder, trial: &ReadTrial, limit: f64) -> Result<ReadTrialResult, String> {
        let trial = ReadTrial { path: "data".to_owned(), ..trial.clone() };
        run(folder, &trial, limit, &AtomicBool::new(false))
    }

    #[test]
    fn a_file_is_read_in_either_order_at_any_depth() {
        let (_place, folder) = folder_with(1 << 20);
        for (random, depth, direct) in [(false, 1, false), (true, 8, false), (true, 4, true)] {
            let trial = ReadTrial { random, depth, direct, ..TRIAL };
            let result = run_on(&folder, &trial, 1e12).unwrap();
            assert_eq!(result.bytes, 4096 * result.requests);
            assert!(result.requests > 0 && !result.limited, "{result:?}");
        }
    }

    #[test]
    fn the_limit_of_the_rate_holds_and_is_told() {
        let (_place, folder) = folder_with(1 << 20);
        let limit = 2_000_000.0;
        let result = run_on(&folder, &ReadTrial { milliseconds: 300, ..TRIAL }, limit).unwrap();
        let most = limit * result.elapsed_ns as f64 / 1e9 + 2.0 * 4096.0;
        assert!(result.bytes as f64 <= most, "{result:?}");
        assert!(result.limited, "{result:?}");
    }

    #[test]
    fn trials_that_need_much_time_or_memory_and_empty_files_are_refused() {
        let (_place, folder) = folder_with(100);
        for (trial, word) in [
            (ReadTrial { request_bytes: 0, ..TRIAL }, "request size"),
            (ReadTrial { request_bytes: 1000, ..TRIAL }, "request size"),
            (ReadTrial { request_bytes: u32::MAX, ..TRIAL }, "request size"),
            (ReadTrial { depth: 0, ..TRIAL }, "depth"),
            (ReadTrial { depth: u32::MAX, ..TRIAL }, "depth"),
            (ReadTrial { depth: 64, request_bytes: 16 << 20, ..TRIAL }, "64 MiB together"),
            (ReadTrial { milliseconds: 10_001, ..TRIAL }, "ms"),
            (TRIAL, "smaller than one request"),
        ] {
            let refused = run_on(&folder, &trial, 1e9).unwrap_err();
            assert!(refused.contains(word) && refused.contains(';'), "{refused}");
        }
    }
}
