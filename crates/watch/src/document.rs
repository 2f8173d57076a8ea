//! The result of `watch` and `trace` as a JSON document: totals by operation, and files and devices
//! in descending order of their time. The document is built from a summary and the header of the
//! trace.

use std::collections::{BTreeMap, HashMap};

use analysis::histogram::Histogram;
use lab::json::Program;
use schemars::JsonSchema;
use serde::Serialize;
use trace::{FileId, Header, Operation};

use crate::summary::{OfFile, OfProcess, Requests, Summary};
use crate::totals::TotalsDocument;
use crate::waits::{Class, OfClass};

/// Maximum number of files in a document, those with the most time first. Further files are
/// counted.
const FILES_MAX: usize = 1000;
/// Maximum number of directories that are shown. If there are no more files than this, the files
/// are shown instead.
pub const FOLDERS_MAX: usize = 10;
/// A file is listed separately if its time exceeds the total time divided by this number.
const ALONE_PARTS: u64 = 20;
/// Maximum number of directory levels that are distinguished.
const LEVELS_MAX: usize = 16;

/// The document of `watch --json` and `trace --json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TraceDocument {
    /// The program that wrote the document.
    pub halfpower: Program,
    /// What recorded the trace: `watch`, or the tool that it was imported from.
    pub source: String,
    /// The command that was watched. Empty if unknown.
    pub command: String,
    /// The directory, file or device that was watched, in all programs. Empty if a program was
    /// watched.
    pub target: String,
    /// Start of the trace (ns since 1970).
    pub started_unix_ns: Option<u64>,
    /// Duration of the watch. If unknown, the time from the start of the first request to the end
    /// of the last request (ns).
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
    /// The requests that the program waits for, by operation, order and size (as a power of two),
    /// in descending order of time. Requests of several classes may be outstanding at the same
    /// time.
    pub waits: Vec<WaitDocument>,
    /// Bytes that the program moved, compared with the bytes that devices moved. Empty if the trace
    /// lacks one of the two numbers.
    pub amplification: Vec<AmplificationDocument>,
    /// Number of page faults in mapped files. Mapped programs and libraries are included.
    pub page_faults: u64,
    /// Files, in descending order of time.
    pub files: Vec<FileDocument>,
    /// Number of files that are not in the list.
    pub files_left_out: u64,
    /// The files by directory, in descending order of time. Empty if there are few files.
    pub folders: Vec<FileDocument>,
    /// Requests of the block layer by device, of all programs.
    pub devices: Vec<FileDocument>,
    /// Totals that the kernel counted for the program. None for stored traces, and if the totals
    /// cannot be read.
    pub totals: Option<TotalsDocument>,
    /// The program compared with a stored survey. Empty without `--against`.
    pub against: Vec<AgainstDocument>,
    /// Performance of the program while it waits for reads and writes, as a share of the device's
    /// performance in the best setting with the same access order. None without `--against`, or if
    /// nothing can be compared.
    pub share_of_device: Option<f64>,
    /// Size and depth of the program's sequential requests, compared with the half-power points of
    /// the survey. Empty without `--against`.
    pub places: Vec<PlaceDocument>,
    /// Predicted gains of possible changes, the greatest first. Empty without `--against`.
    pub gains: Vec<GainDocument>,
    /// Cost of the recording. None if this command did not record the trace.
    pub recording: Option<RecordingDocument>,
    /// Numbers of lost events, by cause.
    pub lost: Vec<LossDocument>,
    /// Notes on the limits of the result.
    pub notes: Vec<String>,
    /// Path of the trace file. Empty if there is none.
    pub trace: String,
}

/// A process of the trace.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProcessDocument {
    /// Process id.
    pub id: u32,
    /// Name of the program.
    pub name: String,
}

/// Events that were lost for the same cause.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LossDocument {
    /// Description of the lost events.
    pub cause: String,
    /// Number of lost events.
    pub count: u64,
}

/// Cost of the recording for the program.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RecordingDocument {
    /// Time that recording adds to a call, measured on this machine just before the watch (ns).
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

/// The requests of one operation, over all files.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OperationDocument {
    /// Name of the operation, such as `read`, `write` or `flush`.
    pub operation: String,
    /// Number of requests for each system call or interface.
    pub calls: Vec<CallDocument>,
    /// Latencies of the requests.
    pub latency: LatencyDocument,
    /// Time during which at least one request was outstanding (ns).
    pub outstanding_ns: u64,
    /// Sizes, access order and cache hits. None for operations that move no data.
    pub data: Option<DataDocument>,
}

/// Requests of one call.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CallDocument {
    /// Name of the system call or interface.
    pub call: String,
    /// Number of requests.
    pub count: u64,
}

/// Reads or writes.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DataDocument {
    /// Number of requests.
    pub count: u64,
    /// Number of requests that failed.
    pub failed: u64,
    /// Number of bytes that were requested.
    pub asked_bytes: u64,
    /// Number of bytes that were moved between the program and storage or page cache.
    pub moved_bytes: u64,
    /// Number of requests by size. Beyond 64 sizes, further sizes are rounded up to powers of two.
    pub sizes: Vec<SizeDocument>,
    /// Number of requests that start where the previous request of the file ended.
    pub sequential: u64,
    /// Number of requests that start where the previous request started.
    pub repeated: u64,
    /// Number of requests that repeat the distance between the two previous requests.
    pub strided: u64,
    /// Number of all other requests except the first of each file.
    pub random: u64,
    /// Number of runs of sequential requests.
    pub runs: u64,
    /// Number of requests that bypassed the page cache.
    pub direct: u64,
    /// Number of requests that made their own data durable, without a separate flush.
    pub durable: u64,
    /// Number of requests for which the trace has the number of bytes that the device moved before
    /// the request returned.
    pub with_device_bytes: u64,
    /// Number of requests in `with_device_bytes` that neither used the device nor slept. These are
    /// buffered reads whose data were in the page cache, and buffered writes to the page cache.
    pub in_memory: u64,
    /// Sum of the latencies of the requests in `with_device_bytes` but not in `in_memory` (ns).
    pub waited_ns: u64,
    /// Sum of the latencies of all requests in `with_device_bytes` (ns).
    pub known_ns: u64,
    /// Number of bytes that the device moved for the requests in `with_device_bytes` before they
    /// returned.
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
    /// Number of files: 1, or the number of files in the directory.
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
    /// Number of requests of other kinds.
    pub others: u64,
}

/// A class of requests that a program waits for. A copy within the kernel counts as a read. The
/// time of hints that read ahead, such as POSIX_FADV_WILLNEED, counts as time of reads.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct WaitDocument {
    /// `read`, `write` or `flush`.
    pub operation: String,
    /// `sequential` or `random`. Empty if the requests have no offset. Runs that begin at the start
    /// of the file or have at least 4 requests are sequential. Requests that repeat the previous
    /// request are sequential, too.
    pub order: String,
    /// Most common request size of the class (bytes).
    pub bytes: u64,
    /// Number of requests.
    pub count: u64,
    /// Number of bytes moved.
    pub moved_bytes: u64,
    /// Time during which at least one request of the class was outstanding (ns).
    pub outstanding_ns: u64,
    /// `outstanding_ns` as a share of the duration of the program.
    pub share_of_time: f64,
    /// Mean number of outstanding requests while at least one was outstanding.
    pub depth: f64,
}

/// Bytes that reads or writes moved in the program, through the page cache and on devices.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AmplificationDocument {
    /// `read` or `write`.
    pub operation: String,
    /// Number of bytes that the program moved by its calls.
    pub program_bytes: u64,
    /// Number of bytes in `program_bytes` that were moved through the page cache.
    pub cache_bytes: u64,
    /// Number of bytes that devices moved for all programs. Bytes on stacked devices are counted at
    /// each level.
    pub device_bytes: u64,
    /// Number of bytes that devices moved before the program's reads and read-ahead hints returned,
    /// without page faults. 0 for writes, most of which reach the device later.
    pub calls_device_bytes: u64,
    /// Ratio of `device_bytes` to `program_bytes`.
    pub factor: f64,
}

/// Size and depth of a program's sequential requests, compared with the half-power points of a
/// survey.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PlaceDocument {
    /// `read` or `write`.
    pub operation: String,
    /// Size of the program's requests (bytes).
    pub request_bytes: u64,
    /// Mean number of these requests that were outstanding.
    pub depth: f64,
    /// Smallest measured request size that reached more than half of the peak, at the measured
    /// depth nearest to the program's depth (bytes). None if no size reached half of the peak.
    pub half_power_bytes: Option<u64>,
    /// Smallest measured depth that reached more than half of the peak, at the program's request
    /// size. None if no depth reached half of the peak, or if this size was not measured.
    pub half_power_depth: Option<u32>,
    /// The comparison as a sentence.
    pub text: String,
}

/// The predicted gain of a change.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GainDocument {
    /// The id of the rule of advice, which `halfpower explain RULE` explains.
    pub rule: String,
    /// The text of the rule, with the gain and the reason.
    pub text: String,
    /// Instructions for following the rule.
    pub how: String,
    /// Share of the program's time during which the program waits for the requests that the rule
    /// would change.
    pub share_of_time: f64,
    /// Predicted speedup, on the device, of the requests that the rule would change (2 means twice
    /// as fast).
    pub times: f64,
    /// Predicted speedup of the program (2 means twice as fast).
    pub gain: f64,
    /// The formula of the gain: Amdahl's law with the numbers of the program.
    pub computed: String,
}

/// Reads or writes of a program, compared with a survey.
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
    /// setting of this access order.
    pub nearest: Option<SettingDocument>,
    /// The fastest measured setting of the same access order. None if the survey measured no such
    /// setting.
    pub best: Option<SettingDocument>,
    /// Performance of the program as a share of the best setting: in requests/s for random
    /// requests, and in bytes/s for sequential requests. None if there is no comparison.
    pub share_of_best: Option<f64>,
    /// The comparison as a sentence, or the reason why there is no comparison.
    pub text: String,
}

/// A setting that a survey measured.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SettingDocument {
    /// Caching, request size and depth.
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
    // A class whose count is 0 contains only hints, and their size differs from the size of the
    // reads.
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

/// Returns the files with the most time, and the number of further files.
fn files(all: &HashMap<FileId, OfFile>, header: &Header) -> (Vec<FileDocument>, u64) {
    let sorted = by_time(all.iter().map(|(id, of)| (*id, of)));
    let left_out = sorted.len().saturating_sub(FILES_MAX) as u64;
    let document = |(id, of): (FileId, &OfFile)| FileDocument::of(header.file_name(id), 1, of);
    (sorted.into_iter().take(FILES_MAX).map(document).collect(), left_out)
}

/// Groups the files by directory, in descending order of time. Returns an empty list if there are
/// few files. A file with a large share of the time is listed separately. The directories are the
/// deepest for which the list has at most [`FOLDERS_MAX`] entries. A directory that has only one
/// file is listed by the name of the file.
fn folders(all: &HashMap<FileId, OfFile>, header: &Header) -> Vec<FileDocument> {
    // Files without times are left out. These are mapped programs and libraries, for which only
    // page faults are counted.
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
    /// Name of the file that was added last.
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

/// Returns the first `levels` levels of a path.
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
