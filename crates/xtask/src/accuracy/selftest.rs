//! Repeats the self-test and counts how often each quantity passes.
//!
//! For each quantity, prints the true value, the median measured value, the worst error, and the
//! number of runs in which the quantity passed. `--write` writes the table into docs/accuracy.md. A
//! run passes if all quantities pass. At least 95% of the runs must pass.

use crate::repository;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// Minimum share of runs that must pass.
const PASSES_MIN: f64 = 0.95;

/// Runs the self-test `runs` times. If `write` is set, writes the table into docs/accuracy.md.
/// Returns 0 if enough runs passed, otherwise 1.
pub fn run(program: &Path, runs: u32, write: bool) -> Result<ExitCode> {
    let mut documents = Vec::new();
    for number in 1..=runs {
        let output = Command::new(program)
            .args(["selftest", "--json", "--quiet"])
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start halfpower")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let Ok(document) = serde_json::from_str::<Value>(&text) else {
            bail!("run {number} printed no JSON document ({})", output.status);
        };
        eprintln!("run {number} of {runs}: {}", failures(&document));
        documents.push(document);
    }
    let passed = documents.iter().filter(|document| failures(document) == "pass").count();
    let text = format!("{}\n{}", heading(&documents, passed), table(&documents));
    println!("{text}");
    if write {
        repository::write_section("docs/accuracy.md", "selftest", &text)?;
    }
    let enough = passed as f64 >= PASSES_MIN * documents.len() as f64;
    Ok(if enough { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn quantities(document: &Value) -> impl Iterator<Item = &Value> {
    document["quantities"].as_array().into_iter().flatten()
}

/// Returns true if a quantity was measured and is within its limit.
fn passed(quantity: &Value) -> bool {
    quantity["pass"] == true && quantity["skipped"].is_null()
}

/// Describes the quantities that did not pass in one run. Returns "pass" if all passed.
fn failures(document: &Value) -> String {
    let mut names: Vec<String> = quantities(document)
        .filter(|quantity| !passed(quantity))
        .map(|q| match q["skipped"].as_str() {
            Some(why) => format!("{} skipped: {why}", q["quantity"]),
            None => format!("{} measured {}, error {}", q["quantity"], shown(q), q["error"]),
        })
        .collect();
    if document["device"] == "delay" {
        names.push("this machine has no FUSE".to_string());
    }
    if names.is_empty() { "pass".to_string() } else { names.join("; ") }
}

fn shown(quantity: &Value) -> String {
    match quantity["bounds"].as_array() {
        Some(bounds) => format!("{} to {}", bounds[0], bounds[1]),
        None => quantity["measured"].to_string(),
    }
}

fn heading(documents: &[Value], passed: usize) -> String {
    let host = &documents[0]["host"];
    let text = |name: &str| host[name].as_str().unwrap_or("?").to_string();
    format!(
        "In {passed} of {} runs, all quantities passed. {} x {}, Linux {}, devices: {}.\n",
        documents.len(),
        host["cpus"],
        text("cpu"),
        text("kernel"),
        documents[0]["device"].as_str().unwrap_or("?")
    )
}

/// Formats a table with one row for each quantity, which summarizes all runs.
fn table(documents: &[Value]) -> String {
    let mut text =
        "| quantity | truth | measured, median | worst error (or gap between lower and upper \
         bound) | limit | overhead of the I/O path | runs passed |\n|---|---|---|---|---|---|---|\n"
            .to_string();
    for (index, first) in quantities(&documents[0]).enumerate() {
        let all: Vec<&Value> =
            documents.iter().filter_map(|document| quantities(document).nth(index)).collect();
        let numbers = |of: &dyn Fn(&Value) -> Option<f64>| -> Vec<f64> {
            all.iter().filter_map(|quantity| of(quantity)).collect()
        };
        let value = |name: &'static str| numbers(&|q: &Value| q[name].as_f64());
        let bound = |side: usize| numbers(&|q: &Value| q["bounds"][side].as_f64());
        let measured = if bound(0).is_empty() {
            number(median(value("measured")))
        } else {
            format!("{} to {}", number(median(bound(0))), number(median(bound(1))))
        };
        // For a quantity with bounds, the relative gap between the bounds replaces the error.
        let gap = |q: &Value| Some(q["bounds"][1].as_f64()? / q["bounds"][0].as_f64()? - 1.0);
        let errors = if bound(0).is_empty() { value("error") } else { numbers(&gap) };
        let worst = errors.into_iter().max_by(|a, b| a.abs().total_cmp(&b.abs()));
        let worst = worst.map_or("-".to_string(), |worst| format!("{:+.2}%", worst * 100.0));
        let passed = all.iter().filter(|quantity| passed(quantity)).count();
        text.push_str(&format!(
            "| {} ({}) | {} | {measured} | {worst} | {:.0}% | {} | {passed}/{} |\n",
            first["quantity"].as_str().unwrap_or("?"),
            first["unit"].as_str().unwrap_or("?"),
            number(first["truth"].as_f64()),
            first["tolerance"].as_f64().unwrap_or(f64::NAN) * 100.0,
            number(median(value("path"))),
            all.len()
        ));
    }
    text
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Formats a number with four significant digits.
fn number(value: Option<f64>) -> String {
    let Some(value) = value.filter(|value| value.is_finite()) else { return "-".to_string() };
    if value == 0.0 {
        return "0".to_string();
    }
    let digits = (3.0 - value.abs().log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_with(measured: f64, pass: bool) -> Value {
        serde_json::json!({ "pass": pass, "quantities": [
            {"quantity": "latency", "unit": "us", "truth": 100.0, "measured": measured,
             "error": measured / 100.0 - 1.0, "tolerance": 0.05, "path": 2.0, "pass": pass},
            {"quantity": "CPU", "unit": "us", "truth": 10.0, "measured": 10.0, "error": 0.0,
             "bounds": [9.5, 10.5], "tolerance": 0.15, "pass": true}], "device": "fuse" })
    }

    #[test]
    fn the_table_counts_passes_and_names_the_worst_error() {
        let text = table(&[run_with(101.0, true), run_with(93.0, false), run_with(102.0, true)]);
        assert!(
            text.contains("| latency (us) | 100.0 | 101.0 | -7.00% | 5% | 2.000 | 2/3 |"),
            "{text}"
        );
        assert!(text.contains("| 9.500 to 10.50 | +10.53% | 15% |"), "{text}");
    }

    #[test]
    fn a_failing_run_names_the_failed_quantities() {
        assert_eq!(failures(&run_with(101.0, true)), "pass");
        assert!(failures(&run_with(93.0, false)).contains("latency"));
        let mut skipping = run_with(101.0, true);
        skipping["quantities"][1]["skipped"] = "no soaker".into();
        assert!(failures(&skipping).contains("skipped: no soaker"), "a skip is not a pass");
    }
}
