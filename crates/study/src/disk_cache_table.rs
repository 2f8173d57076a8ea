//! Builds the table of the papers' disk cache program: the times of repeated and of sequential
//! reads, by request size.
//!
//! The study `device-cache` measures the repeated reads. This file contains the plan for the
//! sequential reads.

use analysis::units;
use std::collections::BTreeMap;

use lab::evidence::{Evidence, Reading};
use report::model::Finding;
use serde::Serialize;

use crate::session::StudyResult;

/// The request sizes of the sequential reads, as in the papers' table.
const SIZES: [&str; 8] = ["512", "1k", "2k", "4k", "8k", "16k", "32k", "64k"];
/// The part of the plan that reads a small region with two outstanding requests.
const TWO_DEEP: &str = "two-deep";
/// Number of bytes per MB in the papers.
const MB: f64 = 1048576.0;

/// Builds the plan of the sequential reads as TOML. The plan has a part for each request size, and
/// a part at depth 2 that reads a region of 512 KiB.
pub fn plan(quick: bool) -> String {
    let runtime = if quick { 0.1 } else { 0.5 };
    let mut text = format!(
        "title = \"Disk cache\"\nasks = \"How long do sequential reads take?\"\ndirect = true\n\
         rw = \"read\"\ntrials = 1\nruntime = {runtime}\n"
    );
    for size in SIZES {
        text.push_str(&format!("\n[[part]]\nname = \"{size}\"\nbs = \"{size}\"\n"));
    }
    text.push_str(&format!(
        "\n[[part]]\nname = \"{TWO_DEEP}\"\nbs = \"64k\"\niodepth = 2\nsize = \"512k\"\n\
         time-based = true\n"
    ));
    text
}

/// The results as JSON.
#[derive(Debug, Serialize)]
pub struct DiskCacheDocument {
    ended_unix_ns: i64,
    rows: Vec<RowDocument>,
    regions: Vec<RegionDocument>,
    two_deep_bytes_per_s: Option<f64>,
}

#[derive(Debug, Serialize)]
struct RowDocument {
    request_bytes: u64,
    same_block_ns: Option<f64>,
    sequential_ns: Option<f64>,
}

#[derive(Debug, Serialize)]
struct RegionDocument {
    region_bytes: u64,
    reread_ns: f64,
}

/// The results of the disk cache program.
pub struct DiskCacheTable {
    /// The median times of a reread and of a sequential read (ns), by request size (bytes).
    rows: BTreeMap<u64, (Option<f64>, Option<f64>)>,
    /// The median time of a 64 KiB reread (ns), by region size (bytes).
    regions: BTreeMap<u64, f64>,
    /// The rate with two outstanding requests of 64 KiB (bytes per second).
    two_deep: Option<f64>,
}

impl DiskCacheTable {
    /// Builds the table from the evidence of rereads and of sequential reads.
    pub fn of(rereads: &Evidence, in_order: &Evidence) -> DiskCacheTable {
        let number = |labels: &BTreeMap<String, String>, name: &str| {
            labels.get(name).and_then(|text| text.parse::<u64>().ok())
        };
        let mut rows: BTreeMap<u64, (Option<f64>, Option<f64>)> = BTreeMap::new();
        for reading in rereads.read("same-block", &[]) {
            if let Some(bytes) = number(&reading.labels, "bytes") {
                rows.entry(bytes).or_default().0 = Some(reading.value);
            }
        }
        for cell in in_order.points.iter().filter(|cell| cell.part != TWO_DEEP) {
            rows.entry(cell.bytes()).or_default().1 = cell.latency_ns(0.5);
        }
        let region = |reading: &Reading| Some((number(&reading.labels, "region")?, reading.value));
        let two_deep = in_order.points.iter().find(|cell| cell.part == TWO_DEEP);
        DiskCacheTable {
            rows,
            regions: rereads.read("reread", &[]).into_iter().filter_map(region).collect(),
            two_deep: two_deep.map(|cell| cell.rate()),
        }
    }

    /// Converts the table to JSON. `ended_unix_ns` is the end of the measurement (ns since 1970).
    pub fn document(&self, ended_unix_ns: i64) -> DiskCacheDocument {
        let row = |(bytes, (same, ordered)): (&u64, &(Option<f64>, Option<f64>))| RowDocument {
            request_bytes: *bytes,
            same_block_ns: *same,
            sequential_ns: *ordered,
        };
        let region =
            |(bytes, ns): (&u64, &f64)| RegionDocument { region_bytes: *bytes, reread_ns: *ns };
        DiskCacheDocument {
            ended_unix_ns,
            rows: self.rows.iter().map(row).collect(),
            regions: self.regions.iter().map(region).collect(),
            two_deep_bytes_per_s: self.two_deep,
        }
    }

    /// Formats the table as lines for the terminal, followed by the findings of the study that
    /// measured the rereads.
    pub fn lines(&self, rereads: &StudyResult) -> Vec<String> {
        let ms =
            |ns: &Option<f64>| ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.4}", ns / 1e6));
        let rate = |bytes: &u64, ns: &Option<f64>| {
            let per_s = |ns: f64| format!("{:.1}", *bytes as f64 / MB * 1e9 / ns.max(1.0));
            ns.map_or_else(|| "-".to_owned(), per_s)
        };
        let mut lines = vec![format!(
            "{:>8} {:>16} {:>10} {:>14} {:>10}",
            "request", "same block (ms)", "MB/s", "in order (ms)", "MB/s"
        )];
        lines.extend(self.rows.iter().map(|(bytes, (same, ordered))| {
            let size = units::size(*bytes);
            let (hit, next) = (ms(same), ms(ordered));
            let (fast, stream) = (rate(bytes, same), rate(bytes, ordered));
            format!("{size:>8} {hit:>16} {fast:>10} {next:>14} {stream:>10}")
        }));
        if !self.regions.is_empty() {
            lines.push(format!("{:>8} {:>16}", "region", "64 KiB again (ms)"));
        }
        lines.extend(
            self.regions
                .iter()
                .map(|(bytes, ns)| format!("{:>8} {:>16}", units::size(*bytes), ms(&Some(*ns)))),
        );
        if let Some(rate) = self.two_deep {
            lines.push(format!("two requests of 64 KiB outstanding: {:.1} MB/s", rate / MB));
        }
        lines.extend(rereads.conclusion.findings.iter().map(Finding::text));
        lines
    }
}

#[cfg(test)]
mod tests {
    use lab::experiment::settings::Settings;

    use super::*;
    use crate::plan::Plan;

    #[test]
    fn its_plan_reads_in_order_and_writes_nothing() {
        for quick in [true, false] {
            let groups = Plan::parse(&plan(quick)).unwrap().groups(quick, &Settings::default());
            let groups = groups.unwrap();
            assert_eq!(groups.len(), SIZES.len() + 1);
            assert!(groups.iter().all(|group| group.words.contains(&"--rw=read".to_owned())));
        }
    }

    #[test]
    fn the_table_joins_rereads_and_reads_in_order() {
        let mut evidence = Evidence::default();
        let labels = [("target", "t".to_owned()), ("bytes", "2048".to_owned())];
        evidence.note("same-block", "ns", &labels, 500_000.0);
        let labels = [("target", "t".to_owned()), ("region", "262144".to_owned())];
        evidence.note("reread", "ns", &labels, 1e6);
        let table = DiskCacheTable::of(&evidence, &Evidence::default());
        assert_eq!(table.rows[&2048], (Some(500_000.0), None));
        assert_eq!(table.regions[&262_144], 1e6);
        assert_eq!(table.two_deep, None);
    }
}
