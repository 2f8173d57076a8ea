//! Merges the results of all ranks into one result. Counts and histograms are added up. Times are
//! converted to the clock of rank 0. If several ranks share a host or a device, its counters are
//! added only once.

use std::collections::BTreeMap;

use cpucost::CpuUsage;
use ioengine::target::DeviceCounters;
use serde::{Deserialize, Serialize};
use workload::Sample;

use crate::point::{State, Verdict};
use crate::rank_trial::{self, RankTrial};

/// The result of one rank's trial.
#[derive(Debug, Serialize, Deserialize)]
pub struct RankResult {
    /// The measurements of the rank.
    pub sample: Sample,
    /// Device numbers of the block devices whose counters are in `sample`, such as "[(8, 0)]".
    pub devices: String,
    /// Verdict of the checks that the rank made.
    pub verdict: Verdict,
}

/// A rank, and the result that rank 0 received from it.
#[derive(Debug)]
pub struct Part {
    /// Number of the rank.
    pub rank: u32,
    /// Name of the host of the rank.
    pub host: String,
    /// Clock of the rank minus the clock of rank 0 (ns).
    pub offset_ns: i64,
    /// Result of the rank, or the reason why the rank has no result.
    pub result: Result<RankResult, String>,
}

/// The result of a trial, merged from the results of all ranks.
#[derive(Debug, Serialize, Deserialize)]
pub struct Merged {
    /// The measurements of all ranks. Times are on the clock of rank 0.
    pub sample: Sample,
    /// The contribution of each rank, in the order of the ranks. Lost ranks are included.
    pub ranks: Vec<RankTrial>,
    /// Merged verdict of the checks that the ranks made.
    pub verdict: Verdict,
}

/// A rank that has a result.
struct Measured {
    rank: u32,
    host: String,
    result: RankResult,
}

/// Merges the results of all ranks. `parts` must be in the order of the ranks.
///
/// # Errors
/// No rank has a result.
pub fn merge(parts: Vec<Part>) -> Result<Merged, String> {
    let (mut measured, mut lost) = (Vec::new(), Vec::new());
    for Part { rank, host, offset_ns, result } in parts {
        match result {
            Ok(mut result) => {
                result.sample.convert_times(|ns| ns.saturating_add_signed(-offset_ns));
                measured.push(Measured { rank, host, result });
            }
            Err(why) => {
                lost.push(RankTrial { rank, host, lost: Some(why), ..RankTrial::default() });
            }
        }
    }
    let mut ranks = shares(&measured);
    ranks.extend(lost);
    ranks.sort_by_key(|rank| rank.rank);
    let (cpu, device) = (cpu_of(&measured), device_of(&measured));
    let verdict = verdict_of(&measured);
    let mut samples = measured.into_iter().map(|measured| measured.result.sample);
    let mut sample = samples.next().ok_or("no rank has a result")?;
    samples.for_each(|other| sample.merge(&other));
    (sample.cpu, sample.device) = (cpu, device);
    Ok(Merged { sample, ranks, verdict })
}

/// Summarises what each rank contributed to the trial.
fn shares(measured: &[Measured]) -> Vec<RankTrial> {
    let first_start = measured.iter().map(|one| one.result.sample.start_ns).min().unwrap_or(0);
    let first_end = measured.iter().map(|one| one.result.sample.end_ns).min().unwrap_or(0);
    let share = |one: &Measured| {
        let (sample, latency) = (&one.result.sample, one.result.sample.latency());
        let quantile = |q| latency.quantile(q).unwrap_or(0);
        RankTrial {
            rank: one.rank,
            host: one.host.clone(),
            start_ns: sample.start_ns - first_start,
            elapsed_ns: sample.elapsed_ns(),
            bytes: sample.bytes(),
            bytes_at_first_done: bytes_until(sample, first_end),
            requests: sample.requests(),
            errors: sample.errors,
            latency_p50_ns: quantile(0.5),
            latency_p99_ns: quantile(0.99),
            latency_max_ns: latency.max().unwrap_or(0),
            cpu_process_ns: sample.cpu.process_ns,
            lost: None,
        }
    };
    measured.iter().map(share).collect()
}

/// Computes from the time series of a rank how many bytes the rank had transferred by `at_ns`. The
/// rate within an interval is assumed to be constant.
fn bytes_until(sample: &Sample, at_ns: u64) -> u64 {
    if at_ns >= sample.end_ns {
        return sample.bytes();
    }
    let passed_ns = at_ns.saturating_sub(sample.start_ns);
    let interval_ns = sample.series.interval_ns.max(1);
    let whole = (passed_ns / interval_ns) as usize;
    let intervals = &sample.series.intervals;
    let before: u64 = intervals.iter().take(whole).map(|interval| interval.bytes).sum();
    // The last interval ends with the trial, so it can be shorter than the others.
    let start_ns = whole as u64 * interval_ns;
    let length_ns = interval_ns.min(sample.elapsed_ns().saturating_sub(start_ns)).max(1);
    let share = (passed_ns - start_ns) as f64 / length_ns as f64;
    before + intervals.get(whole).map_or(0, |interval| (interval.bytes as f64 * share) as u64)
}

/// Groups the ranks by a key, such as the host, and returns the longest-running rank of each group.
/// The counter readings of this rank cover the most time.
fn longest_of_each<'a, K: Ord>(
    measured: &'a [Measured],
    key: impl Fn(&'a Measured) -> K,
) -> Vec<&'a Measured> {
    let mut longest: BTreeMap<K, &Measured> = BTreeMap::new();
    for one in measured {
        let known = longest.entry(key(one)).or_insert(one);
        if one.result.sample.elapsed_ns() > known.result.sample.elapsed_ns() {
            *known = one;
        }
    }
    longest.into_values().collect()
}

/// Adds up an optional counter of several ranks. None if any rank lacks the counter.
fn sum<'a>(
    samples: impl IntoIterator<Item = &'a Measured>,
    of: impl Fn(&CpuUsage) -> Option<u64>,
) -> Option<u64> {
    samples.into_iter().map(|one| of(&one.result.sample.cpu)).sum()
}

/// Returns the CPU use of all ranks. Counters of a whole machine are counted once for each host.
fn cpu_of(measured: &[Measured]) -> CpuUsage {
    let by_host = longest_of_each(measured, |one| &one.host);
    let all =
        |of: fn(&CpuUsage) -> u64| measured.iter().map(|one| of(&one.result.sample.cpu)).sum();
    let hosts = |of: fn(&CpuUsage) -> Option<u64>| sum(by_host.iter().copied(), of);
    let user_ns: u64 = all(|cpu| cpu.user_ns);
    // Each rank counts the other ranks of its host as other programs. Therefore `users_ns` is the
    // user time of all programs on all hosts, including the ranks. To compute `others_user_ns`, the
    // user time of all ranks is subtracted.
    let users_ns = hosts(|cpu| Some(cpu.others_user_ns? + cpu.user_ns));
    CpuUsage {
        elapsed_ns: measured.iter().map(|one| one.result.sample.cpu.elapsed_ns).max().unwrap_or(0),
        process_ns: all(|cpu| cpu.process_ns),
        user_ns,
        system_ns: all(|cpu| cpu.system_ns),
        machine_ns: hosts(|cpu| cpu.machine_ns),
        interrupt_ns: hosts(|cpu| cpu.interrupt_ns),
        others_user_ns: users_ns.map(|users_ns| users_ns.saturating_sub(user_ns)),
        stolen_ns: hosts(|cpu| cpu.stolen_ns),
        run_delay_ns: sum(measured, |cpu| cpu.run_delay_ns),
        available_ns: by_host.iter().map(|one| one.result.sample.cpu.available_ns).sum(),
        instructions: sum(measured, |cpu| cpu.instructions),
        cycles: sum(measured, |cpu| cpu.cycles),
    }
}

/// Adds up the counters of all devices. A device that several ranks share is counted once. None if
/// the counters of a device are missing.
fn device_of(measured: &[Measured]) -> Option<DeviceCounters> {
    let by_device = longest_of_each(measured, |one| (&one.host, &one.result.devices));
    let counters = by_device.iter().map(|one| one.result.sample.device);
    counters.reduce(|sum, one| Some(sum? + one?)).flatten()
}

/// Merges the verdicts of all ranks into one. A reason that does not apply to all ranks begins with
/// the name of the first rank that it applies to.
fn verdict_of(measured: &[Measured]) -> Verdict {
    let mut found: BTreeMap<(State, &str), Vec<&Measured>> = BTreeMap::new();
    for one in measured {
        let Verdict { state, reasons } = &one.result.verdict;
        for reason in reasons {
            found.entry((*state, reason)).or_default().push(one);
        }
    }
    let mut verdict = Verdict::default();
    for ((state, reason), ranks) in found {
        let more = match ranks.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        verdict.add(
            state,
            match ranks.first().filter(|_| ranks.len() < measured.len()) {
                Some(first) => {
                    format!("{}{more}: {reason}", rank_trial::name_of(first.rank, &first.host))
                }
                None => reason.to_owned(),
            },
        );
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranks::message::Message;

    /// Returns a rank that read 1000 bytes per second for `seconds`, starting at `start_ns` on its
    /// clock.
    fn part(rank: u32, host: &str, (start_ns, offset_ns): (u64, i64), seconds: u64) -> Part {
        let mut sample = Sample::new(1_000_000_000);
        (sample.start_ns, sample.end_ns) = (start_ns, start_ns + seconds * 1_000_000_000);
        sample.operations[0].bytes = 1000 * seconds;
        sample.operations[0].requests = seconds;
        sample.operations[0].latency.record_n(1_000 * u64::from(rank + 1), seconds);
        (0..seconds).for_each(|second| sample.series.add(second * 1_000_000_000, 1000, 1));
        sample.cpu = CpuUsage {
            process_ns: 10,
            user_ns: 4,
            others_user_ns: Some(4),
            available_ns: 100,
            ..CpuUsage::default()
        };
        sample.device = Some(DeviceCounters { reads: 7 * seconds, ..DeviceCounters::default() });
        let devices = "[(8, 0)]".to_owned();
        let result = Ok(RankResult { sample, devices, verdict: Verdict::default() });
        Part { rank, host: host.to_owned(), offset_ns, result }
    }

    #[test]
    fn counts_add_up_and_what_belongs_to_a_host_counts_once_for_each_host() {
        let parts = vec![part(0, "a", (0, 0), 2), part(1, "a", (0, 0), 4), part(2, "b", (0, 0), 2)];
        let merged = merge(parts).unwrap();
        assert_eq!((merged.sample.bytes(), merged.sample.requests()), (8000, 8));
        assert_eq!(merged.sample.latency().count(), 8);
        assert_eq!(merged.sample.latency().max(), Some(3000));
        let CpuUsage { process_ns, available_ns, others_user_ns, .. } = merged.sample.cpu;
        assert_eq!((process_ns, available_ns), (30, 200));
        // On host a, ranks 0 and 1 each count the 4 ns of the other rank as CPU time of other
        // programs. On host b, other programs really used 4 ns.
        assert_eq!(others_user_ns, Some(4));
        assert_eq!(merged.sample.device.unwrap().reads, 28 + 14, "the longest rank of each host");
    }

    #[test]
    fn times_are_those_of_rank_0_and_first_done_is_counted_up_to_that_moment() {
        let ahead = part(1, "b", (1_500_000_000, 1_000_000_000), 4);
        let merged = merge(vec![part(0, "a", (0, 0), 2), ahead]).unwrap();
        assert_eq!(merged.ranks[1].start_ns, 500_000_000);
        assert_eq!(merged.sample.elapsed_ns(), 4_500_000_000);
        assert_eq!(merged.ranks[0].bytes_at_first_done, 2000);
        assert_eq!(merged.ranks[1].bytes_at_first_done, 1500);
    }

    #[test]
    fn a_lost_rank_and_a_doubt_of_one_rank_are_named() {
        let mut doubtful = part(1, "b", (0, 0), 2);
        let doubt =
            |verdict: &mut Verdict| verdict.add(State::Suspect, "the machine was suspended");
        doubt(&mut doubtful.result.as_mut().unwrap().verdict);
        let lost = Part { result: Err("killed".to_owned()), ..part(2, "b", (0, 0), 2) };
        let merged = merge(vec![part(0, "a", (0, 0), 2), doubtful, lost]).unwrap();
        assert_eq!(merged.verdict.state, State::Suspect);
        assert_eq!(merged.verdict.reasons, ["rank 1 (b): the machine was suspended"]);
        assert_eq!(merged.ranks[2].lost.as_deref(), Some("killed"));
        assert_eq!(merged.sample.requests(), 4);
        let nobody = Part { result: Err("killed".to_owned()), ..part(0, "a", (0, 0), 2) };
        assert!(merge(vec![nobody]).is_err());
    }

    #[test]
    fn a_result_arrives_exactly_as_it_was_sent() {
        let result = part(0, "a", (5, 0), 3).result.unwrap();
        let sent = format!("{result:?}");
        let text = serde_json::to_vec(&Message::Result(Box::new(result))).unwrap();
        let Message::Result(back) = serde_json::from_slice(&text).unwrap() else {
            panic!("another message")
        };
        assert_eq!(format!("{back:?}"), sent);
    }
}
