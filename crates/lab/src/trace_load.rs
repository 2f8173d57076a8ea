//! Replays a trace: reads what a program did, and creates the experiment that issues the program's
//! requests again.
//!
//! In the target, the files of the trace lie one after another. Each thread of the program becomes
//! a worker. If there are more than 16 threads, several threads share a worker. On a simulated
//! system, one worker issues the requests of all threads.

use std::sync::Arc;

use analysis::units;
use ioengine::{BufferPages, EngineKind, Hint};
use trace::replay::{Action, Changes, Feed, Level, Scan};
use trace::{Call, TraceReader};
use workload::replay::{
    ReplayDescription, ReplayOperation, ReplayRequest, ReplayRequests, ReplaySource,
};
use workload::{Replay, Workload};

use crate::experiment::{Experiment, PageCache, ReplayParameters, Rw};
use crate::failure::{Failure, Outcome};
use crate::simulated_target;
use crate::target::TargetSpec;
use crate::trace_file::{TraceFile, failed};

/// Maximum number of workers, which issue the requests of a replay.
const WORKERS_MAX: usize = 16;
/// Default number of trials of a short trace.
const TRIALS: u32 = 3;
/// Maximum duration of a short trace (ns). A longer trace is replayed once by default.
const LONG_NS: u64 = 60_000_000_000;
/// Maximum number of requests that one worker has in flight.
const DEPTH_MAX: u32 = 1024;
/// Maximum number of requests that each thread has in flight if the trace does not contain this
/// number.
const DEPTH_OF_UNKNOWN: u32 = 64;
/// Maximum size of the buffers of all workers together (bytes). Requests that need larger buffers
/// are issued in pieces.
const BUFFERS_MAX_BYTES: u64 = 256 << 20;
/// Maximum size of one piece of a large request (bytes).
const PIECE_MAX_BYTES: u64 = 16 << 20;
/// Granularity of pieces and regions (bytes). Their sizes are multiples of this value, so that
/// direct requests are aligned.
const GRANULE_BYTES: u64 = 4096;

/// A trace that is ready to be replayed.
#[derive(Clone, Debug)]
pub struct TraceLoad {
    /// Facts about the whole trace.
    pub scan: Arc<Scan>,
    name: String,
    file: Arc<TraceFile>,
    parameters: ReplayParameters,
    is_simulated: bool,
    /// Whether all targets are paths of this host. Only then is the I/O engine chosen from the
    /// trace.
    is_on_host: bool,
    workers: u32,
}

impl TraceLoad {
    /// Reads the trace of an experiment.
    ///
    /// # Errors
    /// The trace cannot be read, is damaged, or has no request that can be replayed.
    pub fn open(experiment: &Experiment, parameters: &ReplayParameters) -> Outcome<TraceLoad> {
        let name = parameters.trace.display().to_string();
        let file = TraceFile::open(&parameters.trace, parameters.format)?;
        let reader = TraceReader::open(file.path()).map_err(|error| failed(&error))?;
        let header = reader.header().clone();
        let scan = Scan::of(reader, &header, &parameters.selection);
        let scan = scan.map_err(|error| failed(&error))?;
        check_content(&name, &scan)?;
        let is_simulated =
            experiment.targets.iter().any(|path| simulated_target::is_simulated(path));
        let workers = if is_simulated { 1 } else { scan.lanes.len().clamp(1, WORKERS_MAX) as u32 };
        let mut targets = experiment.targets.iter().map(|path| TargetSpec::of(path));
        let is_on_host = targets.all(|target| target.is_ok_and(|target| target.is_on_host()));
        Ok(TraceLoad {
            scan: Arc::new(scan),
            name,
            file: Arc::new(file),
            parameters: parameters.clone(),
            is_simulated,
            is_on_host,
            workers,
        })
    }

    /// Returns the same trace with other changes to the program's requests.
    pub fn with_changes(&self, changes: Changes) -> TraceLoad {
        let mut load = self.clone();
        load.parameters.changes = changes;
        load
    }

    /// Returns the experiment that replays the trace. Settings that the user did not specify are
    /// derived from the trace.
    pub fn experiment(&self, given: &Experiment) -> Experiment {
        // The page cache of this host does not cache network targets and reference devices.
        let has_cache = self.is_on_host || self.is_simulated;
        let as_recorded = || has_cache.then(|| self.is_mostly_direct());
        let caching = given.direct.or_else(as_recorded);
        let direct = caching.unwrap_or(true);
        let depth = self.depth();
        let (rw, read_percents) = match self.read_percent() {
            100 => (Rw::RandRead, None),
            0 => (Rw::RandWrite, None),
            percent => (Rw::RandReadWrite, Some(vec![percent])),
        };
        let needed_bytes = self.needed_bytes();
        let own_size = given.size_bytes.or((!self.parameters.folds).then_some(needed_bytes));
        let engine_kinds = match given.engine_kinds.as_slice() {
            [None] if self.is_on_host => vec![self.engine_kind(depth, direct)],
            given => given.to_vec(),
        };
        Experiment {
            replay: None,
            rw: vec![rw],
            read_percents,
            request_bytes: Some(vec![self.piece_bytes()]),
            depths: vec![depth],
            threads: vec![self.workers],
            engine_kinds,
            direct: caching,
            write_through: given.write_through || self.is_mostly_durable(),
            size_bytes: own_size,
            trials: self.parameters.trials.unwrap_or_else(|| self.trials()),
            page_cache: given.page_cache.or_else(|| self.page_cache(direct)),
            hint: given.hint.or_else(|| self.hint(direct)),
            // By default, `halfpower replay` requests buffers on 4 KiB pages. A simulated system
            // would refuse this, because it has no memory pages.
            buffer_pages: if self.is_simulated { BufferPages::Huge } else { given.buffer_pages },
            ..given.clone()
        }
    }

    /// Returns the share of reads among reads and writes (percent). For a mix of reads and writes,
    /// the share is from 1 to 99.
    pub fn read_percent(&self) -> u8 {
        match self.scan.requests {
            [_, 0, _] => 100,
            [0, _, _] => 0,
            [reads, writes, _] => (100 * reads / (reads + writes)).clamp(1, 99) as u8,
        }
    }

    /// Returns the given workload with the requests of the trace.
    pub fn apply(&self, workload: Workload) -> Workload {
        let ReplayParameters { changes, pace, folds, .. } = self.parameters;
        let description = ReplayDescription {
            trace: self.name.clone(),
            fingerprint: self.scan.fingerprint,
            requests: self.scan.count(),
            bytes: self.scan.bytes[0].saturating_add(self.scan.bytes[1]),
            recorded_ns: self.scan.duration_ns,
            pace,
            changes: changes.to_string(),
            folded: folds,
        };
        let source = TraceSource {
            file: self.file.clone(),
            scan: self.scan.clone(),
            changes,
            workers: self.workers,
        };
        Workload {
            replay: Some(Replay {
                description,
                span_bytes: self.scan.span_bytes,
                new_ranges: if folds { Vec::new() } else { self.scan.new_ranges.clone() },
                // In a trace of libaio, a request ends only when the program reaps its completion.
                takes_only_awaited: self.scan.call == Call::LIBAIO && changes.depth.is_none(),
                source: Some(Arc::new(source)),
            }),
            limit_bytes: None,
            limit_ns: None,
            // The flushes of the program are replayed, so no flush is added.
            flush_at_end: false,
            ..workload
        }
    }

    /// Returns the size of a target that can hold all files of the trace (bytes).
    fn needed_bytes(&self) -> u64 {
        let whole = self.scan.span_bytes.checked_next_multiple_of(GRANULE_BYTES);
        whole.unwrap_or(u64::MAX).max(self.piece_bytes().into())
    }

    /// Returns facts about the replay that the user should know, one per line.
    pub fn notes(&self) -> Vec<String> {
        let scan = &*self.scan;
        let left: Vec<String> = scan
            .left_out
            .iter()
            .map(|left| format!("{} {}", units::count(left.count as f64), left.what))
            .collect();
        let mut notes = Vec::new();
        if !left.is_empty() {
            notes.push(format!("not replayed: {}", left.join(", ")));
        }
        let total = scan.bytes[0].saturating_add(scan.bytes[1]);
        if scan.direct_bytes > 0 && scan.direct_bytes < total {
            let share = 100.0 * scan.direct_bytes as f64 / total as f64;
            notes.push(format!(
                "{share:.0}% of the bytes were transferred with direct I/O, but the whole trace is \
                 replayed in one mode"
            ));
        }
        if scan.durable_writes > 0 && !self.is_mostly_durable() {
            notes.push(format!(
                "{} writes were synchronous (O_SYNC, O_DSYNC), but are replayed as ordinary \
                 writes",
                units::count(scan.durable_writes as f64)
            ));
        }
        if !scan.has_latencies && self.parameters.changes.depth.is_none() {
            notes.push(
                "the trace has no completion times, so replayed requests do not wait for each \
                 other (each thread has at most 64 requests in flight)"
                    .into(),
            );
        }
        notes
    }

    fn is_mostly_direct(&self) -> bool {
        let total = u128::from(self.scan.bytes[0]) + u128::from(self.scan.bytes[1]);
        // Requests at the block layer have already passed the page cache.
        self.scan.level == Level::Block || u128::from(self.scan.direct_bytes) * 2 > total
    }

    fn is_mostly_durable(&self) -> bool {
        self.scan.durable_writes * 2 > self.scan.requests[1]
    }

    /// Returns the default number of trials.
    fn trials(&self) -> u32 {
        if self.scan.duration_ns <= LONG_NS { TRIALS } else { 1 }
    }

    /// Returns whether the page cache was warm or cold for the program. None for direct requests,
    /// for targets that are not paths of this host, and for a trace without this information.
    fn page_cache(&self, direct: bool) -> Option<PageCache> {
        let [read, device] = self.scan.buffered_read_bytes;
        let is_warm = device < read / 2;
        let applies = !direct && read > 0 && self.is_on_host;
        applies.then_some(if is_warm { PageCache::Warm } else { PageCache::Cold })
    }

    /// Returns a hint that turns off the kernel's read-ahead, if the program read several files and
    /// at least half of its reads waited for the device. In the target, all files lie one after
    /// another, so read-ahead would continue from one file into the next.
    fn hint(&self, direct: bool) -> Option<Hint> {
        let [waited, known] = self.scan.waiting_reads;
        let is_unserved = known > 0 && 2 * waited >= known;
        let applies = !direct && self.scan.file_count > 1 && self.is_on_host;
        (applies && is_unserved).then_some(Hint::Random)
    }

    /// Returns the largest number of requests that any worker has in flight.
    pub fn depth(&self) -> u32 {
        let Changes { depth, .. } = self.parameters.changes;
        let of_lane = |lane: &trace::replay::LaneFacts| match depth {
            Some(depth) => depth,
            None if !self.scan.has_latencies => DEPTH_OF_UNKNOWN,
            None => lane.depth_max,
        };
        let of_worker = |worker: usize| {
            let lanes = self.scan.lanes.iter().skip(worker).step_by(self.workers as usize);
            lanes.map(of_lane).fold(0, u32::saturating_add)
        };
        let most = (0..self.workers as usize).map(of_worker).max();
        most.unwrap_or(1).clamp(1, DEPTH_MAX)
    }

    /// Returns the buffer size for one request (bytes). This is the length of the longest request,
    /// or less if all buffers together would need too much memory.
    pub fn piece_bytes(&self) -> u32 {
        let slots = u64::from(self.depth()) * u64::from(self.workers);
        let affordable = (BUFFERS_MAX_BYTES / slots) / GRANULE_BYTES * GRANULE_BYTES;
        let most = affordable.clamp(GRANULE_BYTES, PIECE_MAX_BYTES);
        // A request may be extended at both ends to whole multiples of `GRANULE_BYTES`.
        let largest = self.scan.largest_bytes.saturating_add(GRANULE_BYTES - 1);
        let merged = self.parameters.changes.merge_bytes.unwrap_or(0);
        let wanted = largest.max(merged).div_ceil(GRANULE_BYTES).saturating_mul(GRANULE_BYTES);
        wanted.min(most) as u32
    }

    /// Returns the I/O engine that issues requests as the program did. None selects the best engine
    /// of this host.
    fn engine_kind(&self, depth: u32, direct: bool) -> Option<EngineKind> {
        let name = self.scan.call.name();
        match (depth, name) {
            (1, "page fault") if !direct => Some(EngineKind::Mmap),
            (1, "io_uring") => Some(EngineKind::IoUring),
            (1, "libaio") if direct => Some(EngineKind::Libaio),
            (1, _) => Some(EngineKind::Sync),
            (_, "libaio") if direct => Some(EngineKind::Libaio),
            _ => None,
        }
        .filter(|engine_kind| engine_kind.availability().available)
    }
}

/// Fails if a trace has no reads and no writes that can be replayed.
fn check_content(name: &str, scan: &Scan) -> Outcome<()> {
    if scan.requests[0] + scan.requests[1] > 0 {
        return Ok(());
    }
    let remedy = match scan.level {
        Level::Calls => "record a program that reads or writes files, or use --level block",
        Level::Block => "record a program that reads or writes files, or use --level calls",
    };
    let level = scan.level.name();
    Err(Failure::usage(format!(
        "{name} has no reads and writes that can be replayed (level {level}); {remedy}"
    )))
}

/// Reads the requests of a trace for each worker.
#[derive(Debug)]
struct TraceSource {
    file: Arc<TraceFile>,
    scan: Arc<Scan>,
    changes: Changes,
    workers: u32,
}

impl ReplaySource for TraceSource {
    fn requests(&self, worker: u32) -> Result<ReplayRequests, String> {
        let reader = TraceReader::open(self.file.path()).map_err(|error| error.to_string())?;
        let of = (worker % self.workers, self.workers);
        let feed = Feed::new(reader, self.scan.clone(), self.changes, of);
        Ok(Box::new(feed.map(|request| match request {
            Ok(request) => Ok(replayed(&request)),
            Err(error) => Err(error.to_string()),
        })))
    }
}

/// Converts a request of a trace into a request of the load generator.
fn replayed(request: &trace::replay::ReplayRequest) -> ReplayRequest {
    let operation = match request.action {
        Action::Read => ReplayOperation::Read,
        Action::Write => ReplayOperation::Write,
        Action::Flush { data_only } => ReplayOperation::Flush { data_only },
        Action::Advise(call) => {
            let hint = call.advice().and_then(|advice| advice.parse().ok());
            let hint = if call.reads_ahead() { Some(Hint::WillNeed) } else { hint };
            ReplayOperation::Advise(hint.unwrap_or(Hint::Normal))
        }
    };
    ReplayRequest {
        lane: request.lane,
        operation,
        offset: request.offset,
        bytes: request.bytes,
        gap_ns: request.gap_ns,
        outstanding_max: request.outstanding,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use trace::replay::Selection;
    use workload::Pace;

    use super::*;
    use crate::job::Job;

    /// Returns a job that replays a trace of two threads. Each thread makes one buffered read at a
    /// time. Two of the three reads are served from the page cache.
    fn job(folder: &Path, target: &str) -> Job {
        let rows = "start_ns,latency_ns,thread,operation,file,offset,bytes,device_bytes\n\
                    0,9,1,read,f,0,4096,0\n2,9,2,read,f,8192,4096,4096\n20,9,1,read,f,0,4096,0\n";
        job_of(folder, target, rows)
    }

    fn job_of(folder: &Path, target: &str, rows: &str) -> Job {
        let trace = folder.join("t.csv");
        fs::write(&trace, rows).unwrap();
        let parameters = ReplayParameters {
            trace,
            format: None,
            selection: Selection::default(),
            pace: Pace::Fast,
            changes: Changes::default(),
            folds: false,
            trials: None,
        };
        let targets = vec![PathBuf::from(target)];
        let experiment = Experiment { targets, replay: Some(parameters), ..Experiment::default() };
        Job::resolve(&experiment, false).unwrap()
    }

    #[test]
    fn read_ahead_ends_where_it_did_not_serve_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().display().to_string();
        let on = |target: &str, other: &str, sleeps: u32| {
            let rows = format!(
                "start_ns,latency_ns,thread,operation,file,offset,bytes,device_bytes,sleeps\n\
                 0,9,1,read,f,0,4096,4096,1\n20,9,1,read,{other},0,4096,4096,{sleeps}\n\
                 40,9,1,read,{other},4096,4096,0,0\n"
            );
            job_of(folder.path(), target, &rows).hint
        };
        let of = |other: &str, sleeps| on(&here, other, sleeps);
        assert_eq!(of("g", 1), Some(Hint::Random), "two of three reads waited");
        assert_eq!(of("g", 0), None, "one of three waited");
        assert_eq!(of("f", 1), None, "one file is read ahead as it was");
        assert_eq!(on("sim:nvme-gen4", "g", 1), None, "a simulated system takes no hints");
    }

    #[test]
    fn requests_are_issued_as_the_program_did_where_the_target_allows_it() {
        let folder = tempfile::tempdir().unwrap();
        let of = |target: &str| {
            let job = job(folder.path(), target);
            let axes = &job.axes[0];
            (axes.engine_kind, axes.threads, job.direct, job.page_cache)
        };
        let here = folder.path().display().to_string();
        let host = (Some(EngineKind::Sync), 2, Some(false), Some(PageCache::Warm));
        assert_eq!(of(&here), host);
        assert_eq!(of("sim:nvme-gen4"), (None, 1, Some(false), None));
        assert_eq!(of("truth:fixed=1ms"), (Some(EngineKind::Delay), 2, None, None));
        assert_eq!(of("nbd://host/x"), (Some(EngineKind::Network), 2, None, None));
    }
}
