//! Runs `halfpower study network` on one server of each protocol and on a local file, all on this
//! machine. Formats the CPU cost of each path like Table 11 of Chung et al. 2000.
//!
//! The study computes the costs and their confidence intervals. This module reads them from the
//! JSON output of the study.

use super::Campaign;
use crate::faults::place::Place;
use crate::faults::tally::{Missing, Stopped};
use crate::server::{CREDENTIALS, LOOPBACK, Protocol};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fmt::Write;

/// Time limit of the study (ms).
const PATIENCE_MS: u64 = 550_000;

/// Runs the study and returns the table.
///
/// # Errors
/// If the study fails or is interrupted.
pub fn table(campaign: &Campaign<'_>) -> Result<String> {
    let mut servers = Vec::new();
    let mut skipped = String::new();
    for protocol in Protocol::ALL {
        match campaign.server(protocol, LOOPBACK, ["", ""]) {
            Ok(server) => servers.push(server),
            Err(error) if error.is::<Missing>() => {
                writeln!(skipped, "- {}: skipped: {error}", protocol.name())?;
            }
            Err(error) => return Err(error),
        }
    }
    let local = campaign.context.folder.join("data/local").display().to_string();
    let mut paths: Vec<(String, String)> = servers
        .iter()
        .map(|server| {
            let (name, program) = (server.protocol.name(), server.protocol.program());
            (server.url(), format!("{name}, {program}"))
        })
        .collect();
    paths.push((local, "local file, direct".to_owned()));
    let document = study(&campaign.context.place()?, &paths)?;
    let readings = document["studies"][0]["readings"]
        .as_array()
        .context("the JSON of `study network` has no `readings`")?;
    let mut text =
        "| path | operation | fixed CPU time per request | CPU time per KiB | fixed CPU time and \
         CPU time per KiB, including interrupts and the server |\n|---|---|---|---|---|\n"
            .to_owned();
    let mut fitted = 0;
    for (target, name) in &paths {
        let name = format!("{name}{}", features(&document, target));
        for operation in ["read", "write"] {
            let cost = |bound| cost(readings, target, operation, bound);
            fitted += u32::from(cost("lower").is_some());
            let charged = cost("lower").map_or("no line fits | -".to_owned(), |cost| {
                format!("{} | {}", cost.fixed, cost.marginal)
            });
            let all = cost("upper").map_or("not measured".to_owned(), |cost| {
                format!("{} and {} per KiB", cost.fixed, cost.marginal)
            });
            writeln!(text, "| {name} | {operation} | {charged} | {all} |")?;
        }
    }
    ensure!(fitted > 0, "`study network` reports no cost for any path");
    Ok(text + &skipped)
}

/// Returns the protocol features that the client and the server negotiated, in parentheses. Empty
/// if the study lists no features.
fn features(document: &Value, target: &str) -> String {
    let targets = document["targets"].as_array().into_iter().flatten();
    let network = targets.filter(|described| described["name"] == target);
    let features = network.filter_map(|described| described["network"]["features"].as_str()).next();
    features.map_or(String::new(), |features| format!(" ({features})"))
}

/// Runs the study on all paths and returns its JSON document.
fn study(place: &Place<'_>, paths: &[(String, String)]) -> Result<Value> {
    let mut command = place.command("study network --quick --no-store --json --quiet");
    for (target, _) in paths {
        command.arg(target).arg(format!("--overwrite={target}"));
    }
    command.env("HALFPOWER_USER", CREDENTIALS.0).env("HALFPOWER_PASSWORD", CREDENTIALS.1);
    eprintln!("study network takes about {} s", 15 * paths.len());
    let ended = place.start_command(command)?.ended_within(PATIENCE_MS, |_| {})?;
    let document = ended.document().map_err(|wrong| anyhow::anyhow!("study network: {wrong}"))?;
    if document["studies"][0]["interrupted"].as_bool() == Some(true) {
        return Err(Stopped.into());
    }
    let failure = &document["studies"][0]["failure"];
    ensure!(failure.is_null(), "study network: {failure}");
    Ok(document)
}

/// The CPU cost of an operation. Each text contains a value and its confidence interval.
#[derive(Debug, PartialEq)]
struct Cost {
    /// CPU time per request, without the part that grows with the request size.
    fixed: String,
    /// Additional CPU time per KiB of the request.
    marginal: String,
}

/// Searches the readings of the study for the cost of an operation on a path. The bound "lower" is
/// the CPU time charged to the process. The bound "upper" also includes interrupts and the server
/// on this machine. None if the study did not report this cost.
fn cost(readings: &[Value], target: &str, operation: &str, bound: &str) -> Option<Cost> {
    let reading = |quantity: &str, interval: &str| {
        let is_it = |reading: &&Value| {
            let labels = &reading["labels"];
            let wanted =
                [("target", target), ("rw", operation), ("bound", bound), ("interval", interval)];
            reading["quantity"] == quantity
                && wanted.iter().all(|(label, word)| labels[*label] == *word)
        };
        readings.iter().find(is_it)?["value"].as_f64()
    };
    let words = |quantity: &str| {
        let [value, low, high] = ["value", "low", "high"].map(|edge| reading(quantity, edge));
        Some(format!("{} ({} to {})", time(value?), time(low?), time(high?)))
    };
    Some(Cost { fixed: words("fixed")?, marginal: words("marginal")? })
}

/// Formats a time with three significant digits. Negative times are shown as zero.
fn time(ns: f64) -> String {
    let (value, unit) = if ns < 999.5 { (ns.max(0.0), "ns") } else { (ns / 1e3, "us") };
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_cost_of_a_path_is_found_with_and_without_an_upper_bound() {
        let reading = |quantity: &str, interval: &str, value: f64| {
            let labels = json!({"target": "nbd://h:1/", "rw": "read", "bound": "lower",
                                "interval": interval});
            json!({"quantity": quantity, "labels": labels, "value": value})
        };
        let readings = [
            reading("fixed", "value", 10_040.0),
            reading("fixed", "low", -3.0),
            reading("fixed", "high", 123_456.0),
            reading("marginal", "value", 75.0),
            reading("marginal", "low", 1.234),
            reading("marginal", "high", 999.9),
        ];
        let read = cost(&readings, "nbd://h:1/", "read", "lower").unwrap();
        assert_eq!(read.fixed, "10.0 us (0.00 ns to 123 us)");
        assert_eq!(read.marginal, "75.0 ns (1.23 ns to 1.00 us)");
        assert_eq!(cost(&readings, "nbd://h:1/", "read", "upper"), None);
        assert_eq!(cost(&readings, "nbd://h:1/", "write", "lower"), None);
        assert_eq!(cost(&readings, "nbd://h:2/", "read", "lower"), None);
    }
}
