//! `cargo xtask accuracy --only network`: measures halfpower's clients for NBD, NFS, SMB and iSCSI
//! with servers of other projects, over paths with known properties.
//!
//! The campaign has three parts:
//! - Latency: if a delay is added to a path, the measured latency must grow by this delay.
//! - Throughput: on a link with a limited rate, reads must reach this rate.
//! - CPU cost: `halfpower study network` measures the CPU cost of each path.
//!
//! All servers run on this machine, on private ports and in private network namespaces, and are
//! stopped and removed at the end. A case is skipped if a program or a privilege is missing.

mod link;
mod proxy;

mod ceiling;
mod cost;
mod delay;

use crate::bench::host;
use crate::bench::statistics::Estimate;
use crate::faults::place::Context;
use crate::faults::tally::{Missing, Stopped};
use crate::repository;
use crate::server::{self, Protocol, Server, Site, Workplace};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::Ordering;

/// Settings of the campaign.
pub struct Settings<'a> {
    /// The program under test.
    pub program: &'a Path,
    /// Number of rounds of each case.
    pub rounds: u32,
    /// Parts of case names. A case runs if its name contains one of them. If empty, all cases run.
    pub case: &'a [String],
    /// Folder in which a temporary folder for the test files is created.
    pub dir: &'a Path,
    /// Whether to write the tables into docs/accuracy.md.
    pub write: bool,
}

/// Size of the file that the servers serve, and of the local file for comparison (bytes).
const FILE_BYTES: u64 = 256 << 20;
/// Exit code after Ctrl-C.
const INTERRUPTED: u8 = 130;
/// Document into which the tables are written.
const PAGE: &str = "docs/accuracy.md";
/// Name of the case that measures the CPU cost of each path.
const COST: &str = "CPU cost";

/// Settings that all parts of the campaign share.
struct Campaign<'a> {
    context: &'a Context,
    rounds: u32,
    case: &'a [String],
}

/// A test case with its expected value and its result.
struct Row {
    name: String,
    expected: f64,
    /// Maximum relative error.
    bar: f64,
    outcome: Outcome,
}

/// The values that a case measured.
struct Found {
    /// Value measured by halfpower, or by a plain TCP transfer in the case that checks the link.
    measured: Estimate,
    /// Value measured by fio. None if fio did not run.
    other: Option<Estimate>,
}

/// How a case ended.
enum Outcome {
    Measured(Found),
    Skipped(String),
    Failed(String),
}

impl Row {
    /// Returns the relative error of the median.
    fn error(&self, found: &Found) -> f64 {
        found.measured.median / self.expected - 1.0
    }

    /// Returns true if the case was skipped or its error is within the limit.
    fn is_met(&self) -> bool {
        match &self.outcome {
            Outcome::Measured(found) => self.error(found).abs() <= self.bar,
            Outcome::Skipped(_) => true,
            Outcome::Failed(_) => false,
        }
    }

    /// Formats this case as a table row.
    fn line(&self) -> String {
        let (name, expected, bar) = (&self.name, self.expected, 100.0 * self.bar);
        let rest = match &self.outcome {
            Outcome::Measured(found) => format!(
                "{} | {:+.1}% | {bar:.0}% | {} | {}",
                shown(&found.measured),
                100.0 * self.error(found),
                if self.is_met() { "yes" } else { "no" },
                found.other.as_ref().map_or("-".to_owned(), shown),
            ),
            Outcome::Skipped(reason) => format!("- | - | {bar:.0}% | skipped: {reason} | -"),
            Outcome::Failed(reason) => format!("- | - | {bar:.0}% | failed: {reason} | -"),
        };
        format!("| {name} | {expected:.2} | {rest} |")
    }
}

fn shown(estimate: &Estimate) -> String {
    format!("{:.3} ({:.3} to {:.3})", estimate.median, estimate.low, estimate.high)
}

impl Campaign<'_> {
    fn server(&self, protocol: Protocol, site: Site<'_>, filters: [&str; 2]) -> Result<Server> {
        let Context { folder, stop, .. } = self.context;
        Server::start(&Workplace { folder, stop }, protocol, site, filters)
    }

    fn is_wanted(&self, name: &str) -> bool {
        self.case.is_empty() || self.case.iter().any(|part| name.contains(part.as_str()))
    }

    /// Measures a case and returns its row. None if the case is not selected. A failed measurement
    /// is recorded in the row, so only an interrupt is an error.
    fn row(
        &self,
        name: &str,
        expected: f64,
        bar: f64,
        measure: impl FnOnce(&str) -> Result<Found>,
    ) -> Result<Option<Row>> {
        if !self.is_wanted(name) {
            return Ok(None);
        }
        let outcome = match measure(name) {
            _ if self.context.stop.load(Ordering::Relaxed) => return Err(Stopped.into()),
            Ok(found) => Outcome::Measured(found),
            Err(error) if error.is::<Missing>() => Outcome::Skipped(error.to_string()),
            Err(error) => Outcome::Failed(format!("{error:#}")),
        };
        let row = Row { name: name.to_owned(), expected, bar, outcome };
        eprintln!("{}", row.line());
        Ok(Some(row))
    }

    /// Runs `halfpower run` on a URL and returns the JSON document that it prints. `before` is a
    /// command prefix, for example `ip netns exec NAME`, or empty.
    fn run(&self, before: &[&str], url: &str, words: &[&str]) -> Result<Value> {
        let place = self.context.place()?;
        let mut line = before.iter();
        let mut command = match line.next() {
            Some(first) => {
                let mut command = Command::new(server::installed(first)?);
                command.args(line).arg(&self.context.program);
                command
            }
            None => Command::new(&self.context.program),
        };
        command.args(["run", url, "--no-store", "--json", "--quiet"]).args(words);
        command.arg(format!("--overwrite={url}"));
        if url.starts_with("smb:") {
            let (user, password) = server::CREDENTIALS;
            command.env("HALFPOWER_USER", user).env("HALFPOWER_PASSWORD", password);
        }
        let ended = place.start_command(command)?.ended()?;
        ended.document().map_err(|wrong| anyhow::anyhow!("halfpower run {url}: {wrong}"))
    }
}

fn number(value: &Value, name: &str) -> Result<f64> {
    value[name].as_f64().with_context(|| format!("the JSON has no number `{name}`"))
}

/// Measures the selected cases and prints the tables. Returns 0 if all errors are within their
/// limits, 1 if not, 130 after Ctrl-C.
///
/// # Errors
/// If the campaign itself fails. Skipped and failed cases are reported as rows instead.
pub fn run(settings: &Settings<'_>) -> Result<ExitCode> {
    let whole = settings.case.is_empty();
    anyhow::ensure!(whole || !settings.write, "--write needs all cases; remove --case");
    let (folder, context) = Context::prepare("halfpower-network-", settings.program, settings.dir)?;
    let data = context.folder.join("data");
    std::fs::create_dir(&data).context("cannot create the folder for the served files")?;
    for name in [server::FILE, "local"] {
        let is_stopped = || context.stop.load(Ordering::Relaxed);
        host::make_full_file(&data.join(name), FILE_BYTES, is_stopped)?;
    }
    let campaign = Campaign { context: &context, rounds: settings.rounds, case: settings.case };
    let priority = if become_real_time() { "" } else { ", without real-time priority" };
    let machine = format!("{}{priority}", host::machine(&context.folder));
    let outcome = measure(&campaign);
    folder.close().context("cannot remove the temporary folder")?;
    let (delays, rates, costs) = match outcome {
        Err(error) if error.is::<Stopped>() => {
            eprintln!("interrupted; all servers, namespaces and temporary files are removed");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        other => other?,
    };
    let rounds = settings.rounds;
    let mut parts = Vec::new();
    for (section, unit, rows) in
        [("network delays", "added latency (ms)", &delays), ("network rates", "MB/s", &rates)]
    {
        if !rows.is_empty() {
            parts.push((section, format!("{rounds} rounds. {machine}.\n\n{}", table(unit, rows)?)));
        }
    }
    if let Some(costs) = costs {
        parts.push(("network costs", format!("{machine}.\n\n{costs}")));
    }
    for (section, text) in &parts {
        println!("{text}");
        if settings.write {
            repository::write_section(PAGE, section, text)?;
        }
    }
    let are_met = delays.iter().chain(&rates).all(Row::is_met);
    Ok(if are_met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Results of the campaign: the latency rows, the throughput rows, and the table of CPU costs. The
/// table is None if the case [`COST`] is not selected.
type Results = (Vec<Row>, Vec<Row>, Option<String>);

fn measure(campaign: &Campaign<'_>) -> Result<Results> {
    let delays = delay::rows(campaign)?;
    let rates = ceiling::rows(campaign)?;
    let costs = campaign.is_wanted(COST).then(|| cost::table(campaign)).transpose()?;
    Ok((delays, rates, costs))
}

/// Formats the table of a part of the campaign.
fn table(unit: &str, rows: &[Row]) -> Result<String> {
    let met = rows.iter().filter(|row| matches!(row.outcome, Outcome::Measured(_))).count();
    let within =
        rows.iter().filter(|row| matches!(row.outcome, Outcome::Measured(_)) && row.is_met());
    let mut text = format!(
        "Within the limit: {} of {met} measured cases.\n\n\
         | case | expected, {unit} | measured | error | limit | met | \
         fio |\n|---|---:|---:|---:|---:|---|---:|\n",
        within.count()
    );
    for row in rows {
        writeln!(text, "{}", row.line())?;
    }
    Ok(text)
}

/// Gives this process and its child processes real-time priority, so that other programs delay
/// neither the servers nor the proxy nor the program under test. Returns false if this is not
/// permitted.
fn become_real_time() -> bool {
    let mut command = Command::new("chrt");
    command.args(["--rr", "--pid", "5", &std::process::id().to_string()]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(outcome: Outcome) -> Row {
        Row { name: "x".to_owned(), expected: 4.0, bar: 0.05, outcome }
    }

    #[test]
    fn a_row_is_met_within_its_bar_or_when_it_was_skipped() {
        let measured = |median| {
            let measured = Estimate { median, low: median, high: median };
            row(Outcome::Measured(Found { measured, other: None }))
        };
        assert!(measured(4.19).is_met() && measured(3.81).is_met());
        assert!(!measured(4.21).is_met() && !measured(3.79).is_met());
        assert_eq!(
            measured(4.4).line(),
            "| x | 4.00 | 4.400 (4.400 to 4.400) | +10.0% | 5% | no | - |"
        );
        assert!(row(Outcome::Skipped(String::new())).is_met());
        assert!(!row(Outcome::Failed(String::new())).is_met());
    }

    #[test]
    fn a_table_counts_only_measured_cases() {
        let measured = Estimate { median: 4.0, low: 3.9, high: 4.1 };
        let good = Found { measured, other: None };
        let rows = [
            row(Outcome::Measured(good)),
            row(Outcome::Skipped("no nbdkit".to_owned())),
            row(Outcome::Failed("broken".to_owned())),
        ];
        let text = table("ms", &rows).unwrap();
        assert!(text.starts_with("Within the limit: 1 of 1 measured cases."), "{text}");
        assert!(text.contains("skipped: no nbdkit") && text.contains("failed: broken"), "{text}");
    }
}
