//! The result of a copy: the JSON document, and one line for the terminal.

use analysis::units;
use filecopy::{Counts, Problem, ProblemKind};
use schemars::JsonSchema;
use serde::Serialize;

use super::options::CopyOptions;
use crate::json::Program;

/// What `--json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CopyDocument {
    /// The program.
    pub halfpower: Program,
    /// Counts of what was copied.
    #[serde(flatten)]
    pub counts: Counts,
    /// Paths that could not be copied as asked, each with the reason.
    pub failures: Vec<FailureDocument>,
    /// Time until all data were durable, or written with --no-sync (ns).
    pub elapsed_ns: u64,
    /// Bytes copied by this run over that time (bytes per second).
    pub bytes_per_s: f64,
    /// CPU time of this process (ns).
    pub cpu_ns: u64,
    /// Whether the copies were read back and compared.
    pub verified: bool,
    /// Whether the data are flushed to the device.
    pub durable: bool,
}

/// One path that could not be copied as asked.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FailureDocument {
    /// Path of the source or of the destination.
    pub path: String,
    /// Kind of the failure: "refused", "failed" or "differs".
    pub kind: String,
    /// What failed, and the remedy.
    pub message: String,
}

/// The document of a copy that took this time and CPU time.
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

/// One line for the terminal.
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
    let mut parts = vec![format!("{what}{size} in {time}: {rate}")];
    if counts.bytes >= 1 << 26 {
        let gib = counts.bytes as f64 / (1_u64 << 30) as f64;
        let cpu = units::time(document.cpu_ns as f64 / gib);
        parts.push(format!("{cpu} of CPU per GiB"));
    }
    if counts.resumed_bytes > 0 {
        parts.push(format!("{} already there", units::size(counts.resumed_bytes)));
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

/// One line for the terminal, after a dry run.
pub(super) fn plan_summary(counts: &Counts) -> String {
    let (files, size) = (units::counted(counts.files, "file"), units::size(counts.bytes));
    format!("{files}, {size}: nothing was done")
}
