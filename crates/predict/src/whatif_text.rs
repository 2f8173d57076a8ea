//! Formats the answer to a what-if question as text and as a JSON document.
//!
//! The text consists of a table of the results before and after the change, the sensitivities, and
//! the estimated error of the prediction.

use analysis::units;
use lab::json::Program;
use schemars::JsonSchema;
use serde::Serialize;

use crate::result::significant;
use crate::trust::Basis;
use crate::whatif::{Answer, PriceDocument, SensitivityDocument, SideDocument};

/// Maximum number of parameters that are printed.
const PRINTED: usize = 10;

/// The JSON document that `whatif --json` prints.
#[derive(Serialize, JsonSchema)]
pub struct WhatifDocument {
    /// The program that wrote the document.
    pub halfpower: Program,
    /// Name or file of the system, as typed.
    pub system: String,
    /// The changes, as typed on the command line.
    pub changes: Vec<String>,
    /// Results before the change.
    pub before: SideDocument,
    /// Results after the change.
    pub after: SideDocument,
    /// Throughput after the change divided by the throughput before.
    pub ratio: f64,
    /// Sensitivity of the throughput before the change to each parameter of the system, the
    /// strongest first.
    pub sensitivities: Vec<SensitivityDocument>,
    /// Sensitivity of the throughput after the change to each parameter, the strongest first.
    pub sensitivities_after: Vec<SensitivityDocument>,
}

impl WhatifDocument {
    /// Builds the document from an answer, the system, and the changes as typed on the command
    /// line.
    pub fn new(system: String, changes: Vec<String>, answer: Answer) -> WhatifDocument {
        WhatifDocument {
            halfpower: Program::this(),
            system,
            changes,
            ratio: answer.after.bytes_per_s / answer.before.bytes_per_s,
            before: answer.before,
            after: answer.after,
            sensitivities: answer.sensitivities,
            sensitivities_after: answer.sensitivities_after,
        }
    }
}

/// Formats the answer as a table, followed by the sensitivities and the estimated error.
pub fn lines(answer: &Answer) -> Vec<String> {
    let mut lines = Vec::new();
    let Answer { before, after, .. } = answer;
    lines.push(format!("{:<24} {:>26} {:>26}", "", "before", "after"));
    let mut row = |what: &str, of: &dyn Fn(&SideDocument) -> String| {
        let (before, after) = (of(before), of(after));
        lines.push(format!("{what:<24} {before:>26} {after:>26}"));
    };
    row("load", &|side| side.workload.clone());
    row("throughput", &|side| units::rate(side.bytes_per_s));
    if before.trust.is_some() {
        row("... error range", &|side| error_range(side));
    }
    row("requests per second", &|side| units::count(side.requests_per_s));
    row("latency p50", &|side| units::time(side.latency_p50_ns as f64));
    row("latency p99", &|side| units::time(side.latency_p99_ns as f64));
    row("CPU per request", &|side| units::time(side.cpu_ns_per_request));
    row("bottleneck", &|side| side.bottleneck.clone());
    row("... utilisation", &|side| format!("{:.0}%", side.utilisation * 100.0));
    if before.held.is_some() || after.held.is_some() {
        let held = |side: &SideDocument| side.held.as_ref().map(|held| held.resource.clone());
        row("... delayed resource", &|side| held(side).unwrap_or_else(|| "-".to_owned()));
    }
    let bound = |side: &SideDocument| side.bound.clone();
    row("bound", &|side| bound(side).map_or("-".into(), |b| units::rate(b.bytes_per_s)));
    row("... set by", &|side| bound(side).map_or("-".into(), |b| b.name));
    if before.price.is_some() || after.price.is_some() {
        let price = |side: &SideDocument, of: fn(&PriceDocument) -> f64| {
            side.price.as_ref().map_or("-".into(), |price| significant(of(price)))
        };
        row("price per MB/s", &|side| price(side, |price| price.per_mb_per_s));
        row("price per KAPS (8 KiB reads/s)", &|side| price(side, |price| price.per_kaps));
    }
    let ratio = after.bytes_per_s / before.bytes_per_s;
    let multiplies = format!("the change multiplies throughput by {ratio:.2}");
    lines.extend([String::new(), multiplies, String::new()]);
    if answer.has_sensitivities {
        lines.extend(sensitivities(answer));
    } else {
        lines.push("sensitivities: not computed, because the trace is too long".to_owned());
    }
    lines.extend(trust(answer));
    lines
}

/// Formats the range in which the throughput is expected. The error of the prediction is assumed to
/// be at most the largest error of the calibration points near the load.
fn error_range(side: &SideDocument) -> String {
    let trust = side.trust.as_ref();
    let ends = trust.and_then(|trust| trust.low_bytes_per_s.zip(trust.high_bytes_per_s));
    ends.map_or("unknown".into(), |(low, high)| {
        format!("{} to {}", units::rate_mb(low), units::rate_mb(high))
    })
}

/// Formats the parameters with the largest sensitivities before or after the change.
fn sensitivities(answer: &Answer) -> Vec<String> {
    let mut lines = vec![
        "sensitivity of the throughput: d ln(throughput) / d ln(parameter)".to_owned(),
        format!("{:<28} {:>6} {:>6}", "", "before", "after"),
    ];
    let sides = [&answer.sensitivities, &answer.sensitivities_after];
    let of = |side: &[SensitivityDocument], key: &str| {
        side.iter().find(|s| s.key == key).map_or(0.0, |s| s.sensitivity)
    };
    let mut all: Vec<&SensitivityDocument> = sides.into_iter().flatten().collect();
    all.sort_by(|a, b| b.sensitivity.abs().total_cmp(&a.sensitivity.abs()));
    let mut printed: Vec<&str> = Vec::new();
    for s in all {
        if printed.len() < PRINTED && !printed.contains(&s.key.as_str()) {
            printed.push(&s.key);
            let [before, after] = sides.map(|side| of(side, &s.key));
            lines.push(format!("{:<28} {before:>+6.2} {after:>+6.2}  {}", s.key, s.source));
        }
    }
    lines
}

/// Formats the estimated error and the doubtful parameters.
fn trust(answer: &Answer) -> Vec<String> {
    let mut lines = vec![String::new()];
    for (when, side) in [("before", &answer.before), ("after", &answer.after)] {
        if let Some(trust) = &side.trust {
            let word = match (trust.basis, trust.is_good()) {
                (Basis::Outside, _) => "none",
                (_, true) => "high",
                (_, false) => "limited",
            };
            lines.push(format!("trust {when:<7} {word}: {}", trust.text()));
        }
    }
    if !answer.has_sensitivities {
        return lines;
    }
    let doubts: Vec<&str> = answer.doubts().iter().map(|doubt| doubt.key.as_str()).collect();
    lines.push(match (doubts.is_empty(), answer.before.trust.is_some()) {
        (false, _) => format!(
            "important values that are assumed, or that a calibration did not identify: {}",
            doubts.join(", ")
        ),
        (true, true) => "all important values were identified by the calibration".into(),
        (true, false) => {
            "all important values were measured or documented; halfpower calibrate compares the \
             system with a real device"
                .to_owned()
        }
    });
    lines
}
