//! The results of each rank in a trial, and the total rate of all ranks. As in the benchmark IOR,
//! there are two total rates: until the first rank is done, and until the last rank is done.

use std::str::FromStr;

use analysis::quantile::median;
use analysis::units;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A rank is a straggler if its rate is below this share of the median rate of the ranks.
const STRAGGLER: f64 = 0.8;
/// Stragglers are reported only if at least this many ranks have results.
const RANKS_MIN: usize = 3;

/// How ranks share files and devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RankFiles {
    /// Each rank uses the target of its own command line (IOR: file per process).
    #[default]
    Own,
    /// All ranks share one file, and each rank uses one contiguous part (IOR: shared file,
    /// segmented).
    Segmented,
    /// All ranks share one file, and the requests of the ranks alternate (IOR: shared file,
    /// strided).
    Strided,
}

impl RankFiles {
    /// All variants.
    pub const ALL: [RankFiles; 3] = [RankFiles::Own, RankFiles::Segmented, RankFiles::Strided];

    /// Returns the value of `--rank-files` that selects this variant.
    pub fn name(self) -> &'static str {
        match self {
            RankFiles::Own => "own",
            RankFiles::Segmented => "segmented",
            RankFiles::Strided => "strided",
        }
    }

    /// Describes how the ranks share files.
    pub fn describe(self) -> &'static str {
        match self {
            RankFiles::Own => "each rank uses the target of its own command line",
            RankFiles::Segmented => "one shared file, segmented",
            RankFiles::Strided => "one shared file, strided",
        }
    }
}

impl FromStr for RankFiles {
    type Err = String;

    fn from_str(text: &str) -> Result<RankFiles, String> {
        let known = RankFiles::ALL.into_iter().find(|known| known.name() == text);
        known.ok_or_else(|| format!("'{text}' is not own, segmented or strided"))
    }
}

/// The ranks that measure together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RankGroup {
    /// Number of ranks.
    pub count: u32,
    /// How the ranks share files.
    pub files: RankFiles,
}

/// The results of one rank in a trial. The counts of a lost rank are 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankTrial {
    /// Rank number.
    pub rank: u32,
    /// Name of the rank's host.
    pub host: String,
    /// Time from the start of the first rank to the start of this rank (ns).
    pub start_ns: u64,
    /// Length of the rank's trial, including a final flush (ns).
    pub elapsed_ns: u64,
    /// Number of bytes that the rank moved.
    pub bytes: u64,
    /// Number of bytes that this rank had moved when the first rank was done. The number is
    /// interpolated from the time series.
    pub bytes_at_first_done: u64,
    /// Number of completed requests.
    pub requests: u64,
    /// Number of failed requests.
    pub errors: u64,
    /// Median latency (ns).
    pub latency_p50_ns: u64,
    /// 99th percentile of the latency (ns).
    pub latency_p99_ns: u64,
    /// Maximum latency (ns).
    pub latency_max_ns: u64,
    /// CPU time of the rank's process (ns).
    pub cpu_process_ns: u64,
    /// Why the rank has no result; absent for a rank that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

impl RankTrial {
    /// Returns the average rate of this rank during its trial (bytes per second).
    pub fn bytes_per_s(&self) -> f64 {
        per_second(self.bytes, self.elapsed_ns)
    }

    fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.elapsed_ns)
    }

    /// Returns the name of the rank in messages, such as "rank 3 (b)" for rank 3 on host b.
    pub fn name(&self) -> String {
        name_of(self.rank, &self.host)
    }
}

/// Returns the name of a rank in messages: "rank 3 (b)", or "rank 3" if its host is unknown.
pub fn name_of(rank: u32, host: &str) -> String {
    if host.is_empty() { format!("rank {rank}") } else { format!("rank {rank} ({host})") }
}

/// Summary of the ranks of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RanksSummary {
    /// Number of ranks, including lost ranks.
    pub ranks: usize,
    /// Number of hosts.
    pub hosts: usize,
    /// Time from the start of the first rank to the start of the last rank (ns).
    pub start_skew_ns: u64,
    /// Rate of all ranks until the first rank was done, IOR's "stonewall" rate (bytes per second).
    pub first_done_bytes_per_s: f64,
    /// Rate of all ranks until the last rank was done, IOR's rate (bytes per second).
    pub last_done_bytes_per_s: f64,
    /// Rates of the slowest, the median and the fastest rank (bytes per second).
    pub rank_bytes_per_s: [f64; 3],
    /// Numbers of the ranks whose rate is below 0.8 of the median. Empty if fewer than three ranks
    /// have results.
    pub stragglers: Vec<u32>,
    /// Numbers of the ranks without a result.
    pub lost: Vec<u32>,
}

/// Summarises the ranks of a trial; None for a trial of one process.
pub fn summary(ranks: &[RankTrial]) -> Option<RanksSummary> {
    if ranks.is_empty() {
        return None;
    }
    let present: Vec<&RankTrial> = ranks.iter().filter(|rank| rank.lost.is_none()).collect();
    let mut hosts: Vec<&str> = ranks.iter().map(|rank| rank.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let first_end = present.iter().map(|rank| rank.end_ns()).min().unwrap_or(0);
    let last_end = present.iter().map(|rank| rank.end_ns()).max().unwrap_or(0);
    let bytes = |of: fn(&RankTrial) -> u64| present.iter().map(|rank| of(rank)).sum();
    let mut rates: Vec<f64> = present.iter().map(|rank| rank.bytes_per_s()).collect();
    rates.sort_unstable_by(f64::total_cmp);
    let middle = median(&rates).unwrap_or(0.0);
    let is_slow = |rank: &&&RankTrial| rank.bytes_per_s() < STRAGGLER * middle;
    let stragglers = present.iter().filter(|_| present.len() >= RANKS_MIN).filter(is_slow);
    Some(RanksSummary {
        ranks: ranks.len(),
        hosts: hosts.len(),
        start_skew_ns: present.iter().map(|rank| rank.start_ns).max().unwrap_or(0),
        first_done_bytes_per_s: per_second(bytes(|rank| rank.bytes_at_first_done), first_end),
        last_done_bytes_per_s: per_second(bytes(|rank| rank.bytes), last_end),
        rank_bytes_per_s: [
            rates.first().copied().unwrap_or(0.0),
            middle,
            rates.last().copied().unwrap_or(0.0),
        ],
        stragglers: stragglers.map(|rank| rank.rank).collect(),
        lost: ranks.iter().filter(|rank| rank.lost.is_some()).map(|rank| rank.rank).collect(),
    })
}

/// Formats the results of the ranks in one trial as lines for the terminal. If the workload had
/// more than one trial (`trials`), the lines say that they describe the last trial.
pub fn lines(ranks: &[RankTrial], trials: usize) -> Vec<String> {
    let Some(summary) = summary(ranks) else { return Vec::new() };
    let last = if trials > 1 { "last trial: " } else { "" };
    let rate = units::rate_mb;
    let [slowest, middle, fastest] = summary.rank_bytes_per_s;
    let mut lines = vec![
        format!(
            "{last}{} on {}, started within {} of each other; rate per rank: median {}, range {} \
             to {}",
            units::counted(summary.ranks as u64, "rank"),
            units::counted(summary.hosts as u64, "host"),
            units::time(summary.start_skew_ns as f64),
            rate(middle),
            rate(slowest),
            rate(fastest),
        ),
        format!(
            "{last}rate of all ranks until the first rank finished: {}; until the last rank \
             finished: {}",
            rate(summary.first_done_bytes_per_s),
            rate(summary.last_done_bytes_per_s),
        ),
    ];
    for rank in ranks.iter().filter(|rank| summary.stragglers.contains(&rank.rank)) {
        lines.push(format!(
            "straggler: {} with a rate of {}, {:.2} times the median rate; p99 {}",
            rank.name(),
            rate(rank.bytes_per_s()),
            rank.bytes_per_s() / middle,
            units::time(rank.latency_p99_ns as f64),
        ));
    }
    let lost = ranks.iter().filter_map(|rank| Some((rank, rank.lost.as_ref()?)));
    lines.extend(lost.map(|(rank, why)| format!("lost: {}: {why}", rank.name())));
    lines
}

fn per_second(count: u64, elapsed_ns: u64) -> f64 {
    if elapsed_ns == 0 { 0.0 } else { count as f64 * 1e9 / elapsed_ns as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a rank that ran for `elapsed_s` at `rate` bytes per second.
    fn rank(number: u32, host: &str, elapsed_s: u64, rate: u64) -> RankTrial {
        RankTrial {
            rank: number,
            host: host.to_owned(),
            elapsed_ns: elapsed_s * 1_000_000_000,
            bytes: rate * elapsed_s,
            bytes_at_first_done: rate * elapsed_s,
            ..RankTrial::default()
        }
    }

    #[test]
    fn a_rank_of_an_unknown_host_is_named_by_its_number() {
        assert_eq!(name_of(0, ""), "rank 0");
        assert_eq!(name_of(3, "b"), "rank 3 (b)");
    }

    #[test]
    fn first_done_and_last_done_rates_differ_if_a_rank_needs_longer() {
        let slow = RankTrial { bytes_at_first_done: 500, ..rank(1, "b", 20, 50) };
        let summary = summary(&[rank(0, "a", 10, 100), slow]).unwrap();
        assert_eq!(summary.first_done_bytes_per_s, 150.0);
        assert_eq!(summary.last_done_bytes_per_s, 100.0);
        assert_eq!((summary.ranks, summary.hosts), (2, 2));
        assert!(summary.stragglers.is_empty(), "two ranks have no majority");
    }

    #[test]
    fn a_straggler_and_a_lost_rank_are_named() {
        let lost = RankTrial {
            rank: 3,
            host: "b".to_owned(),
            lost: Some("killed by signal 9".to_owned()),
            ..RankTrial::default()
        };
        let ranks = [rank(0, "a", 10, 1000), rank(1, "a", 10, 990), rank(2, "b", 10, 500), lost];
        let summary = summary(&ranks).unwrap();
        assert_eq!((summary.stragglers, summary.lost), (vec![2], vec![3]));
        let lines = lines(&ranks, 1);
        assert!(lines[2].starts_with("straggler: rank 2 (b)"), "{lines:?}");
        assert!(lines[2].contains("0.51 times the median"), "{lines:?}");
        assert_eq!(lines[3], "lost: rank 3 (b): killed by signal 9");
    }

    #[test]
    fn ranks_survive_json() {
        let ranks = [rank(0, "a", 10, 1000)];
        let text = serde_json::to_string(&ranks).unwrap();
        assert!(!text.contains("lost"));
        assert_eq!(serde_json::from_str::<Vec<RankTrial>>(&text).unwrap(), ranks);
    }
}
