//! Formats the results of scenarios and power cuts for docs/compatibility.md.

use super::lying;
use super::power::Outcome;
use std::collections::{BTreeMap, BTreeSet};

/// The results of a scenario on one kernel.
#[derive(Debug)]
pub struct Row {
    pub name: String,
    /// Description of the device or situation.
    pub device: String,
    /// Release of the kernel.
    pub release: String,
    /// Name of each feature with its table cell: "yes", or "no" with the reason.
    pub features: Vec<(String, String)>,
    /// Descriptions of the devices and files that are in use. halfpower must not write to them.
    pub in_use: Vec<String>,
    /// Descriptions of the checks.
    pub checks: Vec<String>,
    /// Descriptions of the failed checks, with their output.
    pub failures: Vec<String>,
    /// Why the scenario was not run. None if the scenario was run.
    pub skipped: Option<String>,
}

impl Row {
    /// Returns "ok", the reason why the scenario was skipped, or the first line of the first
    /// failure.
    pub fn result(&self) -> String {
        let failure = self.failures.first().and_then(|failure| failure.lines().next());
        match (&self.skipped, failure) {
            (Some(why), _) => format!("skipped: {why}"),
            (None, Some(failure)) => format!("FAILED: {failure}"),
            (None, None) => "ok".to_owned(),
        }
    }
}

/// Suffix of a list entry if a write to the device or file in use was not refused.
const NOT_REFUSED: &str = " (FAILED)";

/// Formats the rows as a Markdown table, after a line with the number of scenarios. Keeps a row of
/// the older table unless its scenario was run again on the same kernel series. The list of devices
/// and files in use follows the table.
pub fn of(rows: &[Row], older: &str) -> String {
    let mut lines: BTreeMap<(String, String), String> = BTreeMap::new();
    for line in older.lines().filter(|line| line.starts_with("| `")) {
        let columns: Vec<&str> = line.split(" | ").collect();
        if let [name, _, release, ..] = columns[..] {
            let name = name.trim_start_matches("| ").trim_matches('`');
            lines.insert((name.to_owned(), series(release)), line.to_owned());
        }
    }
    for row in rows {
        let Row { name, device, release, .. } = row;
        let (checks, result) = (row.checks.join("; "), row.result());
        let line = format!("| `{name}` | {device} | {release} | {checks} | {result} |");
        let key = (name.clone(), series(release));
        if row.skipped.is_none() || !lines.contains_key(&key) {
            lines.insert(key, line);
        }
    }
    let passed = lines.values().filter(|line| line.ends_with("| ok |")).count();
    let mut text = format!(
        "{} scenarios in guests, {passed} passed (`cargo xtask guest`).\n\n\
         | scenario | device | kernel | what was checked | result |\n|---|---|---|---|---|\n",
        lines.len()
    );
    for line in lines.values() {
        text += &format!("{line}\n");
    }
    text + "\n" + &of_ways(rows, older)
}

/// Returns the series of a kernel release: "6.12" for "6.12.117+deb12-amd64".
fn series(release: &str) -> String {
    release.split('.').take(2).collect::<Vec<_>>().join(".")
}

/// Formats the list of devices and files in use, and counts the devices and files to which
/// halfpower refused to write. A device or file is counted only if all its scenarios passed. An
/// entry of the older list is kept unless one of its scenarios was run again.
fn of_ways(rows: &[Row], older: &str) -> String {
    let of_line = |line: &str| {
        let way = line.strip_prefix("- ")?;
        let refused = way.strip_suffix(NOT_REFUSED);
        Some((refused.unwrap_or(way).to_owned(), refused.is_none()))
    };
    let mut ways: BTreeMap<String, bool> = older.lines().filter_map(of_line).collect();
    let tried: Vec<&Row> = rows.iter().filter(|row| row.skipped.is_none()).collect();
    let of_rows: BTreeSet<&String> = tried.iter().flat_map(|row| &row.in_use).collect();
    for way in of_rows {
        let is_refused = tried.iter().all(|row| row.result() == "ok" || !row.in_use.contains(way));
        ways.insert(way.clone(), is_refused);
    }
    let refused = ways.values().filter(|is_refused| **is_refused).count();
    let mut text = format!(
        "Attempts to write to a device or file in use, with the consent of the user: {refused} of \
         {} are refused.\n\n",
        ways.len()
    );
    for (way, is_refused) in ways {
        let result = if is_refused { "" } else { NOT_REFUSED };
        text += &format!("- {way}{result}\n");
    }
    text
}

/// Parses lines "NAME yes ..." and "NAME no ...". Returns each name with its table cell. The cell
/// of a "yes" line is "yes", or "yes (REMARK)" if the line ends with a remark in parentheses. The
/// cell of a "no" line is "no: REASON".
pub fn features_in(output: &str) -> Vec<(String, String)> {
    let read = |line: &str| {
        let at = |word: &'static str| Some((line.find(word)?, word));
        let (at, word) = [at(" yes"), at(" no ")].into_iter().flatten().min()?;
        let (name, rest) = (line[..at].trim(), line[at + word.len()..].trim());
        let result = if word == " yes" {
            let details = rest.rfind('(').filter(|_| rest.ends_with(')'));
            details.map_or("yes".to_owned(), |begin| format!("yes {}", &rest[begin..]))
        } else {
            format!("no: {}", rest.split_once(": ").map_or(rest, |(_, reason)| reason))
        };
        Some((name.to_owned(), result))
    };
    output.lines().filter_map(read).collect()
}

/// Formats a table with a row for each feature and a column for each kernel.
pub fn of_features(rows: &[Row]) -> String {
    let listed: Vec<&Row> = rows.iter().filter(|row| !row.features.is_empty()).collect();
    let mut names: Vec<&String> = Vec::new();
    for (name, _) in listed.iter().flat_map(|row| &row.features) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let releases: Vec<&str> = listed.iter().map(|row| row.release.as_str()).collect();
    let mut text =
        format!("| | {} |\n|---|{}\n", releases.join(" | "), "---|".repeat(releases.len()));
    for name in names {
        let cell = |row: &&Row| {
            let found = row.features.iter().find(|(listed, _)| listed == name);
            found.map_or("not tried", |(_, result)| result).replace('|', "\\|")
        };
        let cells: Vec<String> = listed.iter().map(cell).collect();
        text += &format!("| {name} | {} |\n", cells.join(" | "));
    }
    text
}

/// Describes the results of `--power-cuts` in two paragraphs.
pub fn of_power_cuts(outcome: &Outcome, lies: &lying::Outcome, release: &str) -> String {
    let Outcome { cuts, settings, reported, faults } = outcome;
    let of = |kind: &str| reported.get(kind).copied().unwrap_or(0);
    format!(
        "{cuts} power cuts of a guest (Linux {release}, ext4 on a virtio disk): {} faults. \
         Before the cuts, {} copies of files, {} resumable copies, {} copies of trees and {} runs \
         had been reported as done. Before {settings} of the cuts, the guest had switched the \
         write cache of a second drive to another mode; after the restart, `restore` had to \
         restore the previous mode.\n\n\
         {} drives that ignore flushes lost {} blocks at a power cut. On {} of these drives, \
         `--verify` reported the correct number of lost blocks and the correct first offset. \
         `--verify` reported no damage on {} of {} drives that lost no blocks.",
        faults.len(),
        of("file"),
        of("resumed"),
        of("tree"),
        of("run"),
        lies.tries,
        lies.lost_blocks,
        lies.caught,
        lies.intact,
        lies.honest
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_scenario_stands_in_the_table_with_its_reason() {
        let row = |failures: &[&str]| Row {
            name: "nvme".to_owned(),
            device: "an NVMe drive".to_owned(),
            release: "6.12".to_owned(),
            features: features_in(
                "sync  yes  blocking\nuring no  batched: kernel too old\nnothing\n",
            ),
            in_use: vec!["a mounted disk".to_owned()],
            checks: vec!["it is named".to_owned(), "it is read".to_owned()],
            failures: failures.iter().map(|text| (*text).to_owned()).collect(),
            skipped: None,
        };
        let failing =
            Row { name: "md".to_owned(), ..row(&["it is read: exit code 1\n$ halfpower"]) };
        let text = of(&[row(&[]), failing], "");
        assert!(text.starts_with("2 scenarios in guests, 1 passed"), "{text}");
        assert!(text.contains("| it is named; it is read | ok |"), "{text}");
        assert!(text.contains("| FAILED: it is read: exit code 1 |"), "{text}");
        assert!(
            of_features(&[row(&[])]).ends_with(
                "| | 6.12 |\n|---|---|\n| sync | yes |\n| uring | no: kernel too old |\n"
            )
        );
        assert!(text.contains(": 0 of 1 are refused.\n\n- a mounted disk (FAILED)"));
        assert!(of(&[row(&[])], "").ends_with(": 1 of 1 are refused.\n\n- a mounted disk\n"));
        let skipped = || Row { skipped: Some("no mdadm".to_owned()), ..row(&[]) };
        assert!(of(&[skipped()], "").ends_with(": 0 of 0 are refused.\n\n"));
        // If a scenario is run again, only its row for the same kernel series is replaced.
        let mended = Row { name: "md".to_owned(), release: "6.12.9".to_owned(), ..row(&[]) };
        let renewed = of(&[mended, skipped()], &text);
        assert!(renewed.starts_with("2 scenarios in guests, 2 passed"), "{renewed}");
        assert!(renewed.ends_with(": 1 of 1 are refused.\n\n- a mounted disk\n"), "{renewed}");
        let older = Row { release: "5.10".to_owned(), ..row(&[]) };
        assert!(of(&[older], &renewed).starts_with("3 scenarios in guests, 3 passed"), "{renewed}");
    }
}
