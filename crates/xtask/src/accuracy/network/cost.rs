//! The CPU cost of each path: `halfpower study network` on the servers of the loopback interface,
//! beside a local file, as a table like Table 11 of Chung et al. 2000.
//!
//! The costs and intervals are the program's own, from the findings of its JSON document.

use super::Campaign;
use super::server::{CREDENTIALS, LOOPBACK, Protocol, Server};
use crate::faults::place::Place;
use crate::faults::tally::{Missing, Stopped};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fmt::Write;

/// Time limit of the study (ms).
const PATIENCE_MS: u64 = 550_000;

/// Runs the study and returns the table.
///
/// # Errors
/// An interrupt, or a study that fails.
pub fn table(campaign: &Campaign<'_>) -> Result<String> {
    let mut servers = Vec::new();
    let mut skipped = String::new();
    for protocol in Protocol::ALL {
        match Server::start(campaign.context, protocol, LOOPBACK, ["", ""]) {
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
    let findings = document["studies"][0]["findings"].as_array().context("no findings")?;
    let mut text =
        "| path | operation | CPU per request, fixed | CPU per KiB | with interrupts and \
                    the server |\n|---|---|---|---|---|\n"
            .to_owned();
    let mut fitted = 0;
    for (target, name) in &paths {
        let name = format!("{name}{}", features(&document, target));
        for operation in ["read", "write"] {
            let found = cost(findings, target, operation);
            fitted += u32::from(found.is_some());
            let row = found.map_or_else(
                || "no line fits | - | - |".to_owned(),
                |cost| format!("{} | {} | {} |", cost.fixed, cost.marginal, cost.upper),
            );
            writeln!(text, "| {name} | {operation} | {row}")?;
        }
    }
    ensure!(fitted > 0, "no finding of study network says what a path costs");
    Ok(text + &skipped)
}

/// What the client and the server of a path agreed on, in brackets.
fn features(document: &Value, target: &str) -> String {
    let targets = document["targets"].as_array().into_iter().flatten();
    let network = targets.filter(|described| described["name"] == target);
    let features = network.filter_map(|described| described["network"]["features"].as_str()).next();
    features.map_or(String::new(), |features| format!(" ({features})"))
}

/// The document of a study of all paths.
fn study(place: &Place<'_>, paths: &[(String, String)]) -> Result<Value> {
    let mut command = place.command("study network --quick --no-store --json --quiet");
    for (target, _) in paths {
        command.arg(target).arg(format!("--overwrite={target}"));
    }
    command.env("HALFPOWER_USER", CREDENTIALS.0).env("HALFPOWER_PASSWORD", CREDENTIALS.1);
    eprintln!("study network: about {} s", 15 * paths.len());
    let ended = place.start_command(command)?.ended_within(PATIENCE_MS, |_| {})?;
    let document = ended.document().map_err(|wrong| anyhow::anyhow!("study network: {wrong}"))?;
    if document["studies"][0]["interrupted"].as_bool() == Some(true) {
        return Err(Stopped.into());
    }
    let failure = &document["studies"][0]["failure"];
    ensure!(failure.is_null(), "study network: {failure}");
    Ok(document)
}

/// A cost as printed by the program.
#[derive(Debug, PartialEq)]
struct Cost {
    /// CPU time of a request, with its interval.
    fixed: String,
    /// CPU time per KiB, with its interval.
    marginal: String,
    /// Both with everything else that the machine does for them, if it could be measured.
    upper: String,
}

/// The finding on the cost of a path.
fn cost(findings: &[Value], target: &str, operation: &str) -> Option<Cost> {
    let begin = format!("{target}: a {operation} costs ");
    let costs = findings.iter().filter(|finding| finding["id"] == "cost");
    let text = costs.filter_map(|finding| finding["text"].as_str());
    let rest = text.filter_map(|text| text.strip_prefix(&begin)).next()?;
    let (fixed, rest) = rest.split_once(" of CPU and ")?;
    let (marginal, rest) = rest.split_once(" per KiB")?;
    let upper = rest.rsplit_once("on this machine ").map(|(_, upper)| format!("{upper} per KiB"));
    let upper = upper.unwrap_or_else(|| "not measured".to_owned());
    Some(Cost { fixed: fixed.to_owned(), marginal: marginal.to_owned(), upper })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_cost_of_a_path_is_found_with_and_without_an_upper_bound() {
        let finding =
            |id: &str, text: &str| json!({"id": id, "text": format!("nbd://h:1/: {text}")});
        let findings = [
            finding("latency", "a read costs nothing of CPU and 1 per KiB"),
            finding(
                "cost",
                "a read costs 10 us (8 us to 12 us) of CPU and 75 ns (61 ns to 88 ns) per KiB; \
                 with interrupts and a server on this machine 20 us and 80 ns",
            ),
            finding(
                "cost",
                "a write costs 1 us (0 s to 2 us) of CPU and 3 ns (2 ns to 4 ns) per KiB",
            ),
        ];
        let read = cost(&findings, "nbd://h:1/", "read").unwrap();
        assert_eq!(read.fixed, "10 us (8 us to 12 us)");
        assert_eq!(read.marginal, "75 ns (61 ns to 88 ns)");
        assert_eq!(read.upper, "20 us and 80 ns per KiB");
        assert_eq!(cost(&findings, "nbd://h:1/", "write").unwrap().upper, "not measured");
        assert_eq!(cost(&findings, "nbd://h:2/", "read"), None);
    }
}
