//! The JSON document that `watch` and `trace` print: totals by operation, and lists of files and
//! devices. The document is built from the summary and the header of the trace.

use std::collections::{BTreeMap, HashMap};

use analysis::histogram::Histogram;
use lab::json::Program;
use schemars::JsonSchema;
use serde::Serialize;
use trace::{FileId, Header, Operation};

use crate::summary::{OfFile, OfProcess, Requests, Summary};
use crate::totals::TotalsDocument;
use crate::waits::{Class, OfClass};

/// Maximum number of files that a document lists. If there are more, the files with the most time
/// are listed.
const FILES_MAX: usize = 1000;
/// Maximum number of files or directories that are shown. If there are more files, they are grouped
/// by directory.
pub const FOLDERS_MAX: usize = 10;
/// A file that takes more than 1/20 of the total time is listed separately from its directory.
const ALONE_PARTS: u64 = 20;
/// Maximum number of path levels by which files are grouped.
const LEVELS_MAX: usize = 16;

/// The document of `watch --json` and `trace --json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TraceDocument {
    /// The program that wrote the document.
    pub halfpower: Program,
    /// The source of the trace: `watch`, or the format of an imported trace, such as `fio-iolog`.
    /// `proc` if the document has only totals.
    pub source: String,
    /// The command that was watched. Empty if unknown.
    pub command: String,
    /// The file system or device whose requests were recorded for all programs. Empty if a program
    /// was watched.
    pub target: String,
    /// Start of the trace (ns since 1970).
    pub started_unix_ns: Option<u64>,
    /// Duration of the recording (ns). If unknown, the time from the start of the first request to
    /// the end of the last request.
    pub duration_ns: u64,
    /// Number of requests of the program and of the block layer.
    pub requests: u64,
    /// The processes of the trace, with the names of their programs.
    pub processes: Vec<ProcessDocument>,
    /// Requests by program, in descending order of time. Empty if a single program made all
    /// requests.
    pub programs: Vec<ProgramDocument>,
    /// Number of threads that made requests, in all processes. At most 65,536 are counted.
    pub threads: u64,
    /// Time during which at least one request of the program was outstanding (ns).
    pub outstanding_ns: u64,
    /// Mean number of outstanding reads and writes while at least one was outstanding.
    pub mean_depth: Option<f64>,
    /// Reads, writes, flushes and other operations of the program, over all files.
    pub operations: Vec<OperationDocument>,
    /// Time between the end of a request and the start of the next request of the same thread.
    pub think_time: LatencyDocument,
    /// Time that the program waits for requests, by operation, access order and size (grouped by
    /// powers of two), in descending order of time. Requests of several classes may be outstanding
    /// at the same time, so the times overlap.
    pub waits: Vec<WaitDocument>,
    /// Bytes that the program moved, compared with the bytes that devices moved. Empty if the trace
    /// lacks one of the two numbers.
    pub amplification: Vec<AmplificationDocument>,
    /// Number of page faults in mapped files, including programs and libraries.
    pub page_faults: u64,
    /// The files with the most time in requests, in descending order of time. At most 1000.
    pub files: Vec<FileDocument>,
    /// Number of files that are not in `files`.
    pub files_left_out: u64,
    /// The files grouped by directory, in descending order of time. Empty if there are at most 10
    /// files.
    pub folders: Vec<FileDocument>,
    /// Block layer requests of all programs, by device.
    pub devices: Vec<FileDocument>,
    /// I/O totals that the kernel counted for the program. None for stored traces, or if the totals
    /// cannot be read.
    pub totals: Option<TotalsDocument>,
    /// Comparison of the program with a stored survey. Empty without `--against`.
    pub against: Vec<AgainstDocument>,
    /// Performance of the program while it waits for reads and writes, as a share of the device's
    /// best performance with the same access order. None without `--against`, or if nothing can be
    /// compared.
    pub share_of_device: Option<f64>,
    /// Comparison of the size and depth of the program's sequential requests with the half-power
    /// points of the survey. Empty without `--against`.
    pub places: Vec<PlaceDocument>,
    /// Predicted gains from possible changes to the program, the greatest first. Empty without
    /// `--against`.
    pub gains: Vec<GainDocument>,
    /// Overhead of the recording. None if this command did not record the trace.
    pub recording: Option<RecordingDocument>,
    /// Numbers of lost events, by cause.
    pub lost: Vec<LossDocument>,
    /// Notes on the limits of the result.
    pub notes: Vec<String>,
    /// Path of the trace file. Empty if there is none.
    pub trace: String,
}

/// A process that appears in the trace.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProcessDocument {
    /// Process id.
    pub id: u32,
    /// Name of the program.
    pub name: String,
}

/// Number of events that were lost for one reason.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LossDocument {
    /// Description of the lost events.
    pub cause: String,
    /// Number of lost events.
    pub count: u64,
}

/// Overhead that the recording added to the program.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RecordingDocument {
    /// Time that recording adds to a system call, measured on this machine just before recording
    /// starts (ns).
    pub per_call_ns: f64,
    /// Number of recorded calls.
    pub calls: u64,
}

/// Summary of latencies.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LatencyDocument {
    /// Number of values.
    pub count: u64,
    /// Mean (ns).
    pub mean_ns: Option<f64>,
    /// Median (ns).
    pub p50_ns: Option<u64>,
    /// 99th percentile (ns).
    pub p99_ns: Option<u64>,
    /// Maximum (ns).
    pub max_ns: Option<u64>,
}

impl LatencyDocument {
    fn of(histogram: &Histogram) -> LatencyDocument {
        LatencyDocument {
            count: histogram.count(),
            mean_ns: histogram.mean(),
            p50_ns: histogram.quantile(0.5),
            p99_ns: histogram.quantile(0.99),
            max_ns: histogram.max(),
        }
    }
}

/// Statistics of all requests with the same operation.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OperationDocument {
    /// Name of the operation, such as `read`, `write` or `flush`.
    pub operation: String,
    /// Number of requests issued by each system call or interface.
    pub calls: Vec<CallDocument>,
    /// Latencies of the requests.
    pub latency: LatencyDocument,
    /// Time during which at least one request was outstanding (ns).
    pub outstanding_ns: u64,
    /// Sizes, access order and cache hits. None for operations that move no data.
    pub data: Option<DataDocument>,
}

/// Number of requests issued by one system call or interface, such as `pread64` or `io_uring`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CallDocument {
    /// Name of the system call or interface.
    pub call: String,
    /// Number of requests.
    pub count: u64,
}

/// Statistics of reads or of writes.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DataDocument {
    /// Number of requests.
    pub count: u64,
    /// Number of requests that failed.
    pub failed: u64,
    /// Number of bytes that were requested.
    pub asked_bytes: u64,
    /// Number of bytes that were moved from or to storage or the page cache.
    pub moved_bytes: u64,
    /// Number of requests of each size. After 64 different sizes, new sizes are rounded up to a
    /// power of two.
    pub sizes: Vec<SizeDocument>,
    /// Number of requests that start where the previous request of the file ended.
    pub sequential: u64,
    /// Number of requests that start where the previous request started.
    pub repeated: u64,
    /// Number of non-sequential requests that continue a constant stride.
    pub strided: u64,
    /// Number of requests that are neither sequential, repeated nor strided. The first request of
    /// each file is not counted.
    pub random: u64,
    /// Number of runs of sequential requests. A single request is also a run.
    pub runs: u64,
    /// Number of requests that bypassed the page cache.
    pub direct: u64,
    /// Number of requests that were durable on completion, without a separate flush.
    pub durable: u64,
    /// Number of requests for which the trace contains the number of bytes that the device moved.
    pub with_device_bytes: u64,
    /// Number of requests that neither used the device nor slept: buffered reads from the page
    /// cache, and buffered writes to the page cache. Only requests that `with_device_bytes` counts
    /// are included.
    pub in_memory: u64,
    /// Sum of the latencies of the requests that `with_device_bytes` counts and `in_memory` does
    /// not (ns).
    pub waited_ns: u64,
    /// Sum of the latencies of the requests that `with_device_bytes` counts (ns).
    pub known_ns: u64,
    /// Number of bytes that the device moved before the requests returned. Only requests that
    /// `with_device_bytes` counts are included.
    pub device_bytes: u64,
    /// Sum of the latencies of all requests (ns).
    pub busy_ns: u64,
}

/// Requests of all processes of one program.
#[derive(Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ProgramDocument {
    /// Name of the program.
    pub name: String,
    /// Number of processes of the program that made requests.
    pub processes: u64,
    /// Numbers of reads, writes and flushes, and the bytes that they moved.
    #[serde(flatten)]
    pub requests: OfProcess,
}

/// Number of requests of one size.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SizeDocument {
    /// Size of the requests (bytes).
    pub bytes: u64,
    /// Number of requests.
    pub count: u64,
}

impl DataDocument {
    fn of(requests: &Requests) -> DataDocument {
        let sizes = requests.sizes.iter();
        DataDocument {
            count: requests.count,
            failed: requests.failed,
            asked_bytes: requests.asked_bytes,
            moved_bytes: requests.moved_bytes,
            sizes: sizes
                .map(|(bytes, count)| SizeDocument { bytes: *bytes, count: *count })
                .collect(),
            sequential: requests.order.sequential,
            repeated: requests.order.repeated,
            strided: requests.order.strided,
            random: requests.order.random,
            runs: requests.order.runs,
            direct: requests.direct,
            durable: requests.durable,
            with_device_bytes: requests.with_device_bytes,
            in_memory: requests.in_memory,
            waited_ns: requests.waited_ns,
            known_ns: requests.known_ns,
            device_bytes: requests.device_bytes,
            busy_ns: requests.busy_ns,
        }
    }
}

/// Requests of a file, directory or device.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FileDocument {
    /// Name of the file, directory or device. Directories have no trailing slash.
    pub name: String,
    /// Number of files in the directory. 1 for a file or device.
    pub files: u64,
    /// Number of times the file was opened.
    pub opened: u64,
    /// Reads. None if there were none.
    pub reads: Option<DataDocument>,
    /// Writes. None if there were none.
    pub writes: Option<DataDocument>,
    /// Number of flushes.
    pub flushes: u64,
    /// Sum of the latencies of flushes (ns).
    pub flush_ns: u64,
    /// Number of page faults in mappings of the file.
    pub page_faults: u64,
    /// Number of all other requests, such as hints and truncations.
    pub others: u64,
}

/// The time that a program waits for a class of requests. A copy within the kernel, such as by
/// sendfile, counts as a read. The time of readahead hints, such as POSIX_FADV_WILLNEED, counts as
/// time of reads.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct WaitDocument {
    /// `read`, `write` or `flush`.
    pub operation: String,
    /// `sequential` or `random`. Empty if the requests have no offset. A run of adjacent requests
    /// counts as sequential if it begins at the start of the file or has at least 4 requests. A
    /// request that repeats the previous request counts as sequential, too.
    pub order: String,
    /// Most common request size of the class (bytes).
    pub bytes: u64,
    /// Number of requests.
    pub count: u64,
    /// Number of bytes moved.
    pub moved_bytes: u64,
    /// Time during which at least one request of the class was outstanding (ns).
    pub outstanding_ns: u64,
    /// `outstanding_ns` divided by the duration of the trace.
    pub share_of_time: f64,
    /// Mean number of outstanding requests while at least one was outstanding.
    pub depth: f64,
}

/// Number of bytes that a program read or wrote, compared with the number of bytes that devices
/// moved.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AmplificationDocument {
    /// `read` or `write`.
    pub operation: String,
    /// Number of bytes that the program read or wrote.
    pub program_bytes: u64,
    /// The part of `program_bytes` that was moved through the page cache (bytes).
    pub cache_bytes: u64,
    /// Number of bytes that devices moved for all programs. With stacked devices, such as LVM or
    /// RAID, the bytes are counted on each level of the stack.
    pub device_bytes: u64,
    /// Number of bytes that devices moved before the program's reads and readahead hints returned.
    /// Page faults are not included. 0 for writes, because most writes reach the device later.
    pub calls_device_bytes: u64,
    /// Ratio of `device_bytes` to `program_bytes`.
    pub factor: f64,
}

/// Comparison of the size and depth of a program's sequential requests with the half-power points
/// of a survey.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PlaceDocument {
    /// `read` or `write`.
    pub operation: String,
    /// Size of the program's requests (bytes).
    pub request_bytes: u64,
    /// Mean number of outstanding requests of this class.
    pub depth: f64,
    /// Smallest measured request size with more than half of the peak throughput, at the measured
    /// depth nearest to the program's depth (bytes). None if no size reached half of the peak.
    pub half_power_bytes: Option<u64>,
    /// Smallest measured depth with more than half of the peak throughput, at the program's request
    /// size. None if no depth reached half of the peak, or if this size was not measured.
    pub half_power_depth: Option<u32>,
    /// The comparison as a sentence.
    pub text: String,
}

/// The predicted gain of a change.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GainDocument {
    /// Id of the advice rule. `halfpower explain RULE` explains the rule.
    pub rule: String,
    /// The advice as text, with the predicted gain and the reason.
    pub text: String,
    /// How to follow the advice.
    pub how: String,
    /// Share of the program's time that is spent waiting for the requests that the change affects.
    pub share_of_time: f64,
    /// Predicted speedup of the requests that the change affects (2 means twice as fast).
    pub times: f64,
    /// Predicted speedup of the program (2 means twice as fast).
    pub gain: f64,
    /// The calculation of the gain by Amdahl's law, such as `1 / (0.19 + 0.81 / 4.1)`.
    pub computed: String,
}

/// Comparison of a program's reads or writes with a survey.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AgainstDocument {
    /// `read` or `write`.
    pub operation: String,
    /// The target of the survey.
    pub target: String,
    /// Throughput of the program while at least one request is outstanding (bytes/s).
    pub bytes_per_s: f64,
    /// Request rate of the program while at least one request is outstanding (requests/s).
    pub requests_per_s: f64,
    /// The measured setting nearest to the program's requests. None if the survey measured no
    /// setting with this access order.
    pub nearest: Option<SettingDocument>,
    /// The fastest measured setting with the same access order. None if the survey measured no such
    /// setting.
    pub best: Option<SettingDocument>,
    /// The program's rate divided by the rate of the best setting. Random requests are compared by
    /// requests/s, sequential requests by bytes/s. None if there is no comparison.
    pub share_of_best: Option<f64>,
    /// The comparison as a sentence, or the reason why there is no comparison.
    pub text: String,
}

/// A setting that a survey measured.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SettingDocument {
    /// Caching, request size and depth, such as `direct, 8 KiB x depth 8`.
    pub setting: String,
    /// Throughput of the setting (bytes/s).
    pub bytes_per_s: f64,
    /// Request rate of the setting (requests/s).
    pub requests_per_s: f64,
}

impl TraceDocument {
    /// Builds the document of a trace from its summary and header.
    pub fn of(summary: &Summary, header: &Header, trace: String) -> TraceDocument {
        let (devices, _) = files(&summary.devices, header);
        let (files, files_left_out) = files(&summary.files, header);
        let losses = header.lost.iter();
        TraceDocument {
            halfpower: Program::this(),
            source: header.source.clone(),
            command: header.command.clone(),
            target: header.target.clone(),
            started_unix_ns: header.started_unix_ns,
            duration_ns: header.watched_ns.unwrap_or_else(|| summary.duration_ns()),
            requests: header.requests,
            processes: processes(header),
            programs: programs(summary, header),
            threads: summary.threads(),
            outstanding_ns: summary.outstanding_ns(),
            mean_depth: summary.mean_depth(),
            operations: operations(summary),
            think_time: LatencyDocument::of(&summary.think),
            waits: waits(summary, header.watched_ns.unwrap_or_else(|| summary.duration_ns())),
            amplification: amplification(summary),
            page_faults: summary.page_faults,
            folders: folders(&summary.files, header),
            files,
            files_left_out,
            devices,
            totals: None,
            against: Vec::new(),
            share_of_device: None,
            places: Vec::new(),
            gains: Vec::new(),
            recording: None,
            lost: losses.map(|l| LossDocument { cause: l.cause.clone(), count: l.count }).collect(),
            notes: header.notes.clone(),
            trace,
        }
    }

    /// Returns the requests of an operation. None if there were none.
    pub fn operation(&self, operation: Operation) -> Option<&OperationDocument> {
        self.operations.iter().find(|of| of.operation == operation.name())
    }

    /// Returns the number of requests of the program, without page faults.
    pub fn calls(&self) -> u64 {
        let calls = self.operations.iter().flat_map(|of| &of.calls);
        calls.map(|call| call.count).sum()
    }
}

fn waits(summary: &Summary, duration_ns: u64) -> Vec<WaitDocument> {
    let document = |(class, of): (&Class, &OfClass)| WaitDocument {
        operation: class.operation.name().to_owned(),
        order: class.order.name().to_owned(),
        bytes: of.common_bytes,
        count: of.count,
        moved_bytes: of.moved_bytes,
        outstanding_ns: of.outstanding_ns(),
        share_of_time: of.outstanding_ns() as f64 / duration_ns.max(1) as f64,
        depth: of.latency_ns as f64 / of.outstanding_ns().max(1) as f64,
    };
    // A class whose count is 0 contains only readahead hints. It is left out, because the size of
    // hints differs from the size of the reads that follow.
    let classes = summary.waits.classes.iter().filter(|(_, of)| of.count > 0);
    let mut waits: Vec<WaitDocument> = classes.map(document).collect();
    waits.sort_by_key(|wait| std::cmp::Reverse(wait.outstanding_ns));
    waits
}

fn amplification(summary: &Summary) -> Vec<AmplificationDocument> {
    type Part = fn(&OfFile) -> &Requests;
    let parts: [(&str, Part); 2] = [("read", |of| &of.reads), ("write", |of| &of.writes)];
    let [reads, hints] = [summary.total(|of| &of.reads), summary.total(|of| &of.hints)];
    let read_bytes = reads.device_bytes.saturating_add(hints.device_bytes);
    let of = |(name, part): (&str, Part)| {
        let program = summary.total(part);
        let device_bytes = summary.devices.values().map(|of| part(of).moved_bytes).sum::<u64>();
        if program.moved_bytes == 0 || summary.devices.is_empty() {
            return None;
        }
        Some(AmplificationDocument {
            operation: name.to_owned(),
            program_bytes: program.moved_bytes,
            cache_bytes: program.moved_bytes - program.direct_bytes.min(program.moved_bytes),
            device_bytes,
            calls_device_bytes: if name == "read" { read_bytes } else { 0 },
            factor: device_bytes as f64 / program.moved_bytes as f64,
        })
    };
    parts.into_iter().filter_map(of).collect()
}

fn processes(header: &Header) -> Vec<ProcessDocument> {
    let processes = header.processes.iter();
    processes.map(|one| ProcessDocument { id: one.id, name: one.name.clone() }).collect()
}

fn programs(summary: &Summary, header: &Header) -> Vec<ProgramDocument> {
    let names: HashMap<u32, &str> =
        header.processes.iter().map(|one| (one.id, one.name.as_str())).collect();
    let mut programs: BTreeMap<&str, ProgramDocument> = BTreeMap::new();
    for (process, of) in &summary.processes {
        let name = names.get(process).copied().unwrap_or("(unknown)");
        let program = programs.entry(name).or_default();
        name.clone_into(&mut program.name);
        program.processes += 1;
        program.requests.add(of);
    }
    let mut programs: Vec<ProgramDocument> = programs.into_values().collect();
    programs.sort_by_key(|program| std::cmp::Reverse(program.requests.busy_ns));
    if programs.len() > 1 { programs } else { Vec::new() }
}

fn operations(summary: &Summary) -> Vec<OperationDocument> {
    let data = |operation| match operation {
        Operation::Read => Some(summary.total(|file| &file.reads)),
        Operation::Write => Some(summary.total(|file| &file.writes)),
        _ => None,
    };
    let document = |(operation, of): (&Operation, &crate::summary::OfOperation)| {
        let calls = of.calls.iter();
        let call = |(call, count): (&trace::Call, &u64)| CallDocument {
            call: call.name().to_owned(),
            count: *count,
        };
        OperationDocument {
            operation: operation.name().to_owned(),
            calls: calls.map(call).collect(),
            latency: LatencyDocument::of(&of.latency),
            outstanding_ns: of.outstanding_ns(),
            data: data(*operation).map(|requests| DataDocument::of(&requests)),
        }
    };
    summary.operations.iter().map(document).collect()
}

/// Sorts files in descending order of time.
fn by_time<'a, K: Ord>(all: impl Iterator<Item = (K, &'a OfFile)>) -> Vec<(K, &'a OfFile)> {
    let mut sorted: Vec<(K, &OfFile)> = all.collect();
    let rank = |of: &OfFile| (of.busy_ns(), of.count());
    sorted.sort_by(|a, b| rank(b.1).cmp(&rank(a.1)).then(a.0.cmp(&b.0)));
    sorted
}

impl FileDocument {
    fn of(name: &str, files: u64, of: &OfFile) -> FileDocument {
        let data = |requests: &Requests| (requests.count > 0).then(|| DataDocument::of(requests));
        FileDocument {
            name: name.to_owned(),
            files,
            opened: of.opened,
            reads: data(&of.reads),
            writes: data(&of.writes),
            flushes: of.flushes.count,
            flush_ns: of.flushes.busy_ns,
            page_faults: of.page_faults,
            others: of.hints.count + of.others,
        }
    }

    /// Checks whether the time of reads, writes or flushes is known.
    pub fn has_time(&self) -> bool {
        let data = |data: &Option<DataDocument>| data.as_ref().is_some_and(|data| data.busy_ns > 0);
        data(&self.reads) || data(&self.writes) || self.flush_ns > 0
    }
}

/// Returns the files with the most time, and the number of files that are left out.
fn files(all: &HashMap<FileId, OfFile>, header: &Header) -> (Vec<FileDocument>, u64) {
    let sorted = by_time(all.iter().map(|(id, of)| (*id, of)));
    let left_out = sorted.len().saturating_sub(FILES_MAX) as u64;
    let document = |(id, of): (FileId, &OfFile)| FileDocument::of(header.file_name(id), 1, of);
    (sorted.into_iter().take(FILES_MAX).map(document).collect(), left_out)
}

/// Groups the files by directory, in descending order of time. Returns an empty list if there are
/// at most [`FOLDERS_MAX`] files.
///
/// The files are grouped at the deepest directory level that results in at most [`FOLDERS_MAX`]
/// entries. A file that takes much of the time is listed separately. If a directory has only one
/// file, the name of the file is listed.
fn folders(all: &HashMap<FileId, OfFile>, header: &Header) -> Vec<FileDocument> {
    // Files without times are left out. Only page faults were counted for them, for example for
    // shared libraries.
    let timed = || all.iter().filter(|(_, of)| of.busy_ns() > 0);
    if timed().count() <= FOLDERS_MAX {
        return Vec::new();
    }
    let whole_ns: u64 = timed().map(|(_, of)| of.busy_ns()).fold(0, u64::saturating_add);
    let grouped = |levels: usize| {
        let mut groups: BTreeMap<&str, Group<'_>> = BTreeMap::new();
        for (id, of) in timed() {
            let name = header.file_name(*id);
            let is_alone = of.busy_ns() > whole_ns / ALONE_PARTS;
            let group =
                groups.entry(if is_alone { name } else { upper(name, levels) }).or_default();
            group.files += 1;
            group.one = name;
            group.sum.add(of);
        }
        groups
    };
    let deepest = (1..=LEVELS_MAX).rev().map(grouped).find(|groups| groups.len() <= FOLDERS_MAX);
    let groups = deepest.unwrap_or_else(|| grouped(1));
    let named = groups.into_iter().map(|(folder, group)| {
        let name = if group.files == 1 { group.one } else { folder };
        ((name, group.files), group.sum)
    });
    let named: Vec<((&str, u64), OfFile)> = named.collect();
    let sorted = by_time(named.iter().map(|(name, of)| (*name, of)));
    sorted.into_iter().map(|((name, files), of)| FileDocument::of(name, files, of)).collect()
}

/// The files of a directory.
#[derive(Default)]
struct Group<'a> {
    files: u64,
    /// Name of the last added file.
    one: &'a str,
    sum: OfFile,
}

/// Formats a share as a percentage.
pub fn percent(share: f64) -> String {
    match share {
        share if share > 0.0 && share < 0.005 => "less than 1%".to_owned(),
        share => format!("{:.0}%", share * 100.0),
    }
}

/// Returns the first `levels` components of a path.
fn upper(path: &str, levels: usize) -> &str {
    let first = usize::from(path.starts_with('/'));
    let end = path.match_indices('/').nth(levels + first - 1);
    end.map_or(path, |(at, _)| &path[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups files that all took the same time. Returns the name and the number of files of each
    /// group.
    fn folders_of(names: &[String]) -> Vec<(String, u64)> {
        folders_of_times(names, &vec![10; names.len()])
    }

    fn folders_of_times(names: &[String], times_ns: &[u64]) -> Vec<(String, u64)> {
        let file = |name: &String| trace::File { name: name.clone(), end_bytes: 0 };
        let header = Header { files: names.iter().map(file).collect(), ..Header::default() };
        let of = |busy_ns: &u64| {
            let mut of = OfFile::default();
            (of.reads.count, of.reads.busy_ns) = (1, *busy_ns);
            of
        };
        let ids = (0..).map(FileId);
        let all = ids.zip(times_ns.iter().map(of)).collect();
        folders(&all, &header).into_iter().map(|folder| (folder.name, folder.files)).collect()
    }

    #[test]
    fn many_files_are_shown_by_folder() {
        let mut names: Vec<String> =
            (0..400).map(|n| format!("/home/me/tree/d{}/file{n}", n % 20)).collect();
        names.extend(["/home/me/t.tar", "/lib/x86_64/libc.so.6", "relative"].map(str::to_owned));
        let expected = [
            ("/home/me/tree", 400),
            ("/home/me/t.tar", 1),
            ("/lib/x86_64/libc.so.6", 1),
            ("relative", 1),
        ];
        assert_eq!(folders_of(&names), expected.map(|(name, files)| (name.to_owned(), files)));
    }

    #[test]
    fn a_file_with_much_of_the_time_is_shown_alone() {
        let names: Vec<String> = (0..40).map(|n| format!("/d{}/base/{n}", n % 2)).collect();
        let mut times_ns = vec![1; 40];
        times_ns[7] = 100;
        let expected = [("/d1/base/7", 1), ("/d0/base", 20), ("/d1/base", 19)];
        let found = folders_of_times(&names, &times_ns);
        assert_eq!(found, expected.map(|(name, files)| (name.to_owned(), files)));
    }

    #[test]
    fn few_files_are_shown_one_by_one() {
        let names: Vec<String> = (0..FOLDERS_MAX).map(|n| format!("/data/{n}")).collect();
        assert_eq!(folders_of(&names), []);
    }

    #[test]
    fn the_first_levels_of_a_path_are_a_folder_or_the_file() {
        assert_eq!(
            [upper("/a/b/c", 1), upper("/a/b/c", 2), upper("/a/b/c", 9)],
            ["/a", "/a/b", "/a/b/c"]
        );
        assert_eq!([upper("a/b", 1), upper("", 1), upper("/", 1)], ["a", "", "/"]);
    }
}
