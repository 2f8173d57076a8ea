//! The result of a copy, as a JSON document and as one line for the terminal.

use analysis::units;
use filecopy::{Counts, Problem, ProblemKind};
use schemars::JsonSchema;
use serde::Serialize;

use super::options::CopyOptions;
use crate::json::Program;

/// The document that `halfpower copy --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CopyDocument {
    /// The program that wrote the document.
    pub halfpower: Program,
    /// Numbers of copied files, directories, links and bytes.
    #[serde(flatten)]
    pub counts: Counts,
    /// Paths that could not be copied as requested, each with the reason.
    pub failures: Vec<FailureDocument>,
    /// Elapsed time until all data were durable (ns). With --no-sync, elapsed time until all data
    /// were written.
    pub elapsed_ns: u64,
    /// Throughput: bytes copied by this run, divided by the elapsed time (bytes per second).
    pub bytes_per_s: f64,
    /// CPU time of this process during the copy (ns).
    pub cpu_ns: u64,
    /// Whether the copies were read back and compared with the sources.
    pub verified: bool,
    /// Whether the data were flushed to the device.
    pub durable: bool,
}

/// A path that could not be copied as requested.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FailureDocument {
    /// Path of the source or of the destination.
    pub path: String,
    /// Kind of the failure: "refused", "failed" or "differs".
    pub kind: String,
    /// Description of the failure, with the remedy.
    pub message: String,
}

pub(super) fn document(
    options: &CopyOptions,
    counts: Counts,
    problems: &[Problem],
    elapsed_ns: u64,
    cpu_ns: u64,
) -> CopyDocument {
    let kind = |kind| match kind {
        ProblemKind::Refused => "refused",
        ProblemKind::Differs => "differs",
        ProblemKind::Failed | ProblemKind::Stopped => "failed",
    };
    let failure = |problem: &Problem| FailureDocument {
        path: problem.path.display().to_string(),
        kind: kind(problem.kind).to_owned(),
        message: problem.to_string(),
    };
    CopyDocument {
        halfpower: Program::this(),
        failures: problems.iter().map(failure).collect(),
        elapsed_ns,
        bytes_per_s: counts.new_bytes() as f64 * 1e9 / elapsed_ns.max(1) as f64,
        cpu_ns,
        verified: options.verify,
        durable: options.sync,
        counts,
    }
}

pub(super) fn summary(document: &CopyDocument) -> String {
    let counts = &document.counts;
    let what = match (counts.files, counts.directories) {
        (1, 0) => String::new(),
        (files, 0) => format!("{}, ", units::counted(files, "file")),
        (files, directories) => {
            let files = units::counted(files, "file");
            let noun = if directories == 1 { "directory" } else { "directories" };
            format!("{files} in {directories} {noun}, ")
        }
    };
    let (size, time) = (units::size(counts.bytes), units::time(document.elapsed_ns as f64));
    let rate = units::rate(document.bytes_per_s);
    let mut parts = if counts.bytes > 0 && counts.bytes == counts.resumed_bytes {
        vec![format!("nothing to copy; the check took {time}")]
    } else {
        vec![format!("{what}{size} in {time}: {rate}")]
    };
    if counts.bytes >= 1 << 26 {
        let gib = counts.bytes as f64 / (1_u64 << 30) as f64;
        let cpu = units::time(document.cpu_ns as f64 / gib);
        parts.push(format!("{cpu} of CPU time per GiB"));
    }
    if counts.resumed_bytes > 0 {
        parts.push(format!("{} copied by an earlier run", units::size(counts.resumed_bytes)));
    }
    for (number, what) in [(counts.skipped, "skipped"), (counts.deleted, "removed")] {
        if number > 0 {
            parts.push(format!("{number} {what}"));
        }
    }
    if !counts.how.is_empty() {
        parts.push(counts.how.clone());
    }
    if document.verified {
        parts.push("read back and compared".to_owned());
    }
    parts.push(if document.durable { "durable" } else { "not yet durable" }.to_owned());
    parts.join("; ")
}

pub(super) fn plan_summary(counts: &Counts) -> String {
    let (files, size) = (units::counted(counts.files, "file"), units::size(counts.bytes));
    format!("would copy {files}, {size}; nothing was done")
}
