//! Formats the tables of stable devices and of situations as Markdown, with totals and limits.
//!
//! Each case has a row, and every run counts. A failed run counts as an interval that does not
//! contain the truth. A case that could not be set up counts as a missed limit. Only cases whose
//! tools are not installed are skipped.

use super::situations::{self, Situation};
use super::stable::{Device, Found, Truth};
use crate::bench::statistics::quantile;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Minimum share of intervals that must contain the true rate, for devices with a rate limit. The
/// intervals of six trials have a confidence level of 97%.
const COVERAGE_MIN: f64 = 0.93;
/// Maximum share of runs of stable devices that may raise a false alarm.
const ALARMS_MAX: f64 = 0.02;

/// The outcome of a case of the campaign.
pub enum Outcome<T> {
    /// The case was measured.
    Found(T),
    /// The case was skipped because its tools are not installed. The value is the reason.
    Skipped(String),
    /// The case could not be set up. The value is the error.
    Failed(String),
}

/// Results of all repetitions of a situation.
#[derive(Debug, Default)]
pub struct Tried {
    /// Number of repetitions.
    pub tries: u32,
    /// What halfpower reported in each repetition in which the expected alarm was missing.
    pub missed: Vec<String>,
}

/// A device with the outcome of its measurements.
pub type Measured = (&'static Device, Outcome<Found>);

/// Totals of the table of stable devices.
#[derive(Debug, Default, PartialEq)]
struct Totals {
    /// Number of runs on devices whose true rate is known in closed form (the rate limit), and
    /// number of these runs whose interval contains the true rate.
    closed: (usize, usize),
    /// Number of runs on all devices, and number of these runs whose interval contains the true
    /// rate.
    all: (usize, usize),
    /// Number of runs with a false alarm.
    alarms: usize,
    /// Number of runs that failed, plus the number of devices that could not be set up.
    failed: usize,
}

impl Totals {
    fn add(&mut self, truth: Truth, found: &Found) {
        // A failed run counts as an interval that does not contain the truth.
        let runs = found.stated.len() + found.failed as usize;
        let covering = found.truth(truth).map_or(0, |truth| found.covering(truth));
        if truth != Truth::Fio {
            self.closed = (self.closed.0 + runs, self.closed.1 + covering);
        }
        self.all = (self.all.0 + runs, self.all.1 + covering);
        self.alarms += found.alarms();
        self.failed += found.failed as usize;
    }

    fn are_met(&self) -> bool {
        let covered = self.closed.1 as f64 >= COVERAGE_MIN * self.closed.0 as f64;
        covered && self.alarms as f64 <= ALARMS_MAX * self.all.0 as f64 && self.failed == 0
    }
}

fn percent(part: usize, of: usize) -> String {
    if of == 0 { "-".to_string() } else { format!("{:.1}%", 100.0 * part as f64 / of as f64) }
}

/// Formats the table of the stable devices with its totals. Also returns whether all limits are
/// met.
pub fn devices(measured: &[Measured]) -> (String, bool) {
    let mut text =
        "| device and load | true rate, requests/s | source of the true rate | fio, median | \
         fio, spread | halfpower, median | error | intervals that contain the truth | false alarms \
         | failed runs |\n|---|---:|---|---:|---:|---:|---:|---:|---:|---:|\n"
            .to_string();
    let (mut totals, mut reasons) = (Totals::default(), BTreeMap::new());
    for (device, outcome) in measured {
        let cells = match outcome {
            Outcome::Skipped(why) => format!("skipped: {why} | - | - | - | - | - | - | - | -"),
            Outcome::Failed(why) => {
                totals.failed += 1;
                format!("failed: {why} | - | - | - | - | - | - | - | 1")
            }
            Outcome::Found(found) => {
                totals.add(device.truth, found);
                for (reason, count) in &found.reasons {
                    *reasons.entry(reason.clone()).or_insert(0) += count;
                }
                cells(device.truth, found)
            }
        };
        let _ = writeln!(text, "| {} | {cells} |", device.what);
    }
    let (closed, all) = (totals.closed, totals.all);
    let _ = writeln!(
        text,
        "\nIntervals that contain the truth: {} of {} ({}) on devices whose true rate is known in \
         closed form (limit: at least {:.0}%), and {} of {} ({}) on all devices.\nFalse alarms: {} \
         of {} runs ({}; limit: at most {:.0}%). Failed runs and set-ups: {}.",
        closed.1,
        closed.0,
        percent(closed.1, closed.0),
        COVERAGE_MIN * 100.0,
        all.1,
        all.0,
        percent(all.1, all.0),
        totals.alarms,
        all.0,
        percent(totals.alarms, all.0),
        ALARMS_MAX * 100.0,
        totals.failed
    );
    for (reason, count) in reasons {
        let _ = writeln!(text, "- {count} times: {reason}");
    }
    (text, totals.are_met())
}

/// Formats a rate with four significant digits.
fn rate(value: f64) -> String {
    let digits = (3.0 - value.abs().max(1e-3).log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{value:.digits$}")
}

fn cells(by: Truth, found: &Found) -> String {
    let medians: Vec<f64> = found.stated.iter().map(|stated| stated.median).collect();
    let median = |sample: &[f64]| (!sample.is_empty()).then(|| quantile(sample, 0.5));
    let spread = median(&found.fio).map(|middle| {
        let least = quantile(&found.fio, 0.0) / middle - 1.0;
        let most = quantile(&found.fio, 1.0) / middle - 1.0;
        format!("{:+.1}% to {:+.1}%", least * 100.0, most * 100.0)
    });
    let truth = found.truth(by);
    let error = truth.zip(median(&medians)).map(|(truth, said)| (said / truth - 1.0) * 100.0);
    let shown = |value: Option<f64>| value.map_or("-".to_string(), rate);
    let runs = found.stated.len();
    format!(
        "{} | {} | {} | {} | {} | {} | {} of {runs} | {} | {}",
        shown(truth),
        if by == Truth::Fio { "fio" } else { "closed form" },
        shown(median(&found.fio)),
        spread.unwrap_or("-".to_string()),
        shown(median(&medians)),
        error.map_or("-".to_string(), |error| format!("{error:+.2}%")),
        truth.map_or(0, |truth| found.covering(truth)),
        found.alarms(),
        found.failed
    )
}

/// Formats the outcome of a device as one line for the terminal.
pub fn device_line(device: &Device, outcome: &Outcome<Found>) -> String {
    match outcome {
        Outcome::Skipped(why) => format!("skipped: {why}"),
        Outcome::Failed(why) => format!("failed: {why}"),
        Outcome::Found(found) => cells(device.truth, found),
    }
}

/// Formats the outcome of a situation as one line for the terminal.
pub fn situation_line(outcome: &Outcome<Tried>) -> String {
    match outcome {
        Outcome::Skipped(why) => format!("skipped: {why}"),
        Outcome::Failed(why) => format!("failed: {why}"),
        Outcome::Found(tried) => {
            format!("{} of {} caught", tried.tries as usize - tried.missed.len(), tried.tries)
        }
    }
}

/// Formats the table of the situations. Also returns the number of missed alarms plus failed
/// set-ups.
pub fn situations(tried: &[(&'static Situation, Outcome<Tried>)]) -> (String, usize) {
    let mut text = "| what goes wrong | how it is produced | what must be reported | caught |\n\
                    |---|---|---|---:|\n"
        .to_string();
    let (mut tries, mut missed, mut failed) = (0, 0, 0);
    for (situation, outcome) in tried {
        match outcome {
            Outcome::Found(tried) => {
                tries += tried.tries;
                missed += tried.missed.len();
            }
            Outcome::Failed(_) => failed += 1,
            Outcome::Skipped(_) => {}
        }
        let caught = match outcome {
            Outcome::Found(t) => format!("{} of {}", t.tries as usize - t.missed.len(), t.tries),
            _ => situation_line(outcome),
        };
        let Situation { wrong, made, must, .. } = situation;
        let _ = writeln!(text, "| {wrong} | {made} | {must} | {caught} |");
    }
    let _ = writeln!(
        text,
        "\nMissed alarms: {missed} of {tries} (limit: 0). Situations that could not be produced: \
         {failed}.\n\nNot tested here:\n"
    );
    for (check, why) in situations::NOT_MADE {
        let _ = writeln!(text, "- {check}: {why}");
    }
    (text, missed + failed)
}

#[cfg(test)]
mod tests {
    use super::super::stable::Stated;
    use super::*;

    fn found(valid: u32, alarms: u32, failed: u32) -> Found {
        let stated = |is_valid| Stated { median: 10.1, low: 9.9, high: 10.2, is_valid };
        let mut all = vec![stated(true); valid as usize];
        all.extend(vec![stated(false); alarms as usize]);
        Found { fio: vec![9.0, 10.0, 11.0], stated: all, failed, ..Found::default() }
    }

    #[test]
    fn a_row_holds_truth_error_coverage_and_alarms() {
        let text = cells(Truth::Limit(10.0), &found(2, 1, 0));
        let row =
            "10.00 | closed form | 10.00 | -10.0% to +10.0% | 10.10 | +1.00% | 3 of 3 | 1 | 0";
        assert_eq!(text, row);
        let nothing = cells(Truth::Fio, &Found { failed: 2, ..Found::default() });
        assert_eq!(nothing, "- | fio | - | - | - | - | 0 of 0 | 0 | 2");
    }

    #[test]
    fn limits_count_every_run() {
        let mut totals = Totals::default();
        totals.add(Truth::Limit(10.0), &found(100, 0, 0));
        totals.add(Truth::Limit(9.0), &found(5, 0, 0));
        assert!(totals.are_met(), "{totals:?}");
        totals.add(Truth::Limit(9.0), &found(3, 0, 0));
        assert!(!totals.are_met(), "{totals:?}");
        let mut totals = Totals::default();
        totals.add(Truth::Fio, &found(98, 2, 0));
        assert!(totals.are_met(), "{totals:?}");
        totals.add(Truth::Fio, &found(0, 1, 0));
        assert!(!totals.are_met(), "{totals:?}");
        let mut totals = Totals::default();
        totals.add(Truth::Fio, &found(100, 0, 1));
        assert!(!totals.are_met(), "{totals:?}");
    }

    #[test]
    fn a_missed_alarm_fails_and_a_skip_does_not() {
        let situation = situations::ALL[0].first().unwrap();
        let skipped = [(situation, Outcome::Skipped("no FUSE".to_string()))];
        let (text, missing) = situations(&skipped);
        assert!(
            missing == 0 && text.contains("skipped: no FUSE") && text.contains("Not tested"),
            "{text}"
        );
        let missed = Tried { tries: 3, missed: vec!["valid".to_string()] };
        let (text, missing) = situations(&[(situation, Outcome::Found(missed))]);
        assert!(
            missing == 1 && text.contains("| 2 of 3 |") && text.contains("1 of 3 (limit: 0)"),
            "{text}"
        );
        let failed = [(situation, Outcome::Failed("no".to_string()))];
        assert!(situations(&failed).1 > 0);
    }
}
