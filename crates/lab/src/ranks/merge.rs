//! Merges the results of all ranks into one: counts and histograms add up exactly, times are those
//! of rank 0's clock, and what belongs to a host counts once for each host.

use std::collections::BTreeMap;

use cpucost::CpuUsage;
use ioengine::target::DeviceCounters;
use workload::Sample;

use crate::point::Verdict;
use crate::rank_trial::RankTrial;
use crate::ranks::message::RankResult;

/// What rank 0 has of one rank.
#[derive(Debug)]
pub struct Part {
    /// Number of the rank.
    pub rank: u32,
    /// Name of its host.
    pub host: String,
    /// Its clock minus the clock of rank 0 (ns).
    pub offset_ns: i64,
    /// Its result, or why there is none.
    pub result: Result<RankResult, String>,
}

/// The merged result.
#[derive(Debug)]
pub struct Merged {
    /// The measurements of all ranks; times are of rank 0's clock.
    pub sample: Sample,
    /// The share of each rank.
    pub ranks: Vec<RankTrial>,
    /// What the checks of the ranks found.
    pub verdict: Verdict,
    /// The first damaged block of a rank.
    pub damage: Option<String>,
}

/// A rank's sample with what is needed to merge it.
struct Measured {
    rank: u32,
    host: String,
    sample: Sample,
    devices: String,
}

/// Merges the parts, which are in the order of their ranks.
///
/// # Errors
/// No rank has a result.
pub fn merge(parts: Vec<Part>) -> Result<Merged, String> {
    let (mut measured, mut lost) = (Vec::new(), Vec::new());
    let (mut reasons, mut damage) = (Reasons::default(), None);
    for Part { rank, host, offset_ns, result } in parts {
        let restored = result.and_then(|result| {
            let sample = result.sample.sample(|ns| ns.saturating_add_signed(-offset_ns))?;
            Ok((sample, result))
        });
        match restored {
            Ok((sample, RankResult { devices, verdict, damage: damaged, .. })) => {
                let name = format!("rank {rank} ({host})");
                damage = damage.or(damaged.map(|text| format!("{name}: {text}")));
                reasons.add(&Verdict::from(&verdict), &name);
                measured.push(Measured { rank, host, sample, devices });
            }
            Err(why) => {
                lost.push(RankTrial { rank, host, lost: Some(why), ..RankTrial::default() });
            }
        }
    }
    let mut ranks: Vec<RankTrial> = shares(&measured);
    let count = ranks.len();
    ranks.extend(lost);
    ranks.sort_by_key(|rank| rank.rank);
    let (cpu, device) = (cpu_of(&measured), device_of(&measured));
    let mut samples = measured.into_iter().map(|measured| measured.sample);
    let mut sample = samples.next().ok_or("no rank has a result")?;
    samples.for_each(|other| sample.merge(&other));
    (sample.cpu, sample.device) = (cpu, device);
    Ok(Merged { sample, ranks, verdict: reasons.verdict(count), damage })
}

/// The share of each rank.
fn shares(measured: &[Measured]) -> Vec<RankTrial> {
    let first_start = measured.iter().map(|one| one.sample.start_ns).min().unwrap_or(0);
    let first_end = measured.iter().map(|one| one.sample.end_ns).min().unwrap_or(0);
    let share = |one: &Measured| {
        let (sample, latency) = (&one.sample, one.sample.latency());
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

/// Bytes that a rank had moved at a time, from its series; within an interval the rate is taken as
/// constant.
fn bytes_until(sample: &Sample, at_ns: u64) -> u64 {
    if at_ns >= sample.end_ns {
        return sample.bytes();
    }
    let mut left_ns = at_ns.saturating_sub(sample.start_ns);
    let mut bytes = 0;
    let last = sample.series.intervals.len().saturating_sub(1);
    for (index, interval) in sample.series.intervals.iter().enumerate() {
        let start_ns = index as u64 * sample.series.interval_ns;
        let rest_ns = sample.elapsed_ns().saturating_sub(start_ns).max(1);
        let length_ns = if index == last {
            rest_ns.min(sample.series.interval_ns)
        } else {
            sample.series.interval_ns
        };
        if left_ns < length_ns {
            return bytes + (interval.bytes as f64 * left_ns as f64 / length_ns as f64) as u64;
        }
        bytes += interval.bytes;
        left_ns -= length_ns;
    }
    bytes
}

/// For each key, such as a host, the rank that ran longest: its readings of shared counters cover
/// most.
fn longest_of_each<'a, K: Ord>(
    measured: &'a [Measured],
    key: impl Fn(&'a Measured) -> K,
) -> Vec<&'a Measured> {
    let mut longest: BTreeMap<K, &Measured> = BTreeMap::new();
    for one in measured {
        let known = longest.entry(key(one)).or_insert(one);
        if one.sample.elapsed_ns() > known.sample.elapsed_ns() {
            *known = one;
        }
    }
    longest.into_values().collect()
}

/// The sum of an optional counter; None if one is missing.
fn sum<'a>(
    samples: impl IntoIterator<Item = &'a Measured>,
    of: impl Fn(&CpuUsage) -> Option<u64>,
) -> Option<u64> {
    samples.into_iter().map(|one| of(&one.sample.cpu)).sum()
}

/// CPU use of all ranks; the counters of whole machines once for each host.
fn cpu_of(measured: &[Measured]) -> CpuUsage {
    let by_host = longest_of_each(measured, |one| &one.host);
    let all = |of: fn(&CpuUsage) -> u64| measured.iter().map(|one| of(&one.sample.cpu)).sum();
    let hosts = |of: fn(&CpuUsage) -> Option<u64>| sum(by_host.iter().copied(), of);
    let user_ns: u64 = all(|cpu| cpu.user_ns);
    // To a rank, the other ranks of its host are other programs.
    let users_ns = hosts(|cpu| Some(cpu.others_user_ns? + cpu.user_ns));
    CpuUsage {
        elapsed_ns: measured.iter().map(|one| one.sample.cpu.elapsed_ns).max().unwrap_or(0),
        process_ns: all(|cpu| cpu.process_ns),
        user_ns,
        system_ns: all(|cpu| cpu.system_ns),
        machine_ns: hosts(|cpu| cpu.machine_ns),
        interrupt_ns: hosts(|cpu| cpu.interrupt_ns),
        others_user_ns: users_ns.map(|users_ns| users_ns.saturating_sub(user_ns)),
        stolen_ns: hosts(|cpu| cpu.stolen_ns),
        run_delay_ns: sum(measured, |cpu| cpu.run_delay_ns),
        available_ns: by_host.iter().map(|one| one.sample.cpu.available_ns).sum(),
        instructions: sum(measured, |cpu| cpu.instructions),
        cycles: sum(measured, |cpu| cpu.cycles),
    }
}

/// The counters of all devices, each once; None if a rank has none.
fn device_of(measured: &[Measured]) -> Option<DeviceCounters> {
    let by_device = longest_of_each(measured, |one| (&one.host, &one.devices));
    let counters = by_device.iter().map(|one| one.sample.device);
    counters.reduce(|sum, one| Some(sum? + one?)).flatten()
}

/// The reasons of the ranks' verdicts, each once.
#[derive(Default)]
struct Reasons {
    /// Each reason with its verdict and the names of its ranks.
    found: Vec<(Verdict, Vec<String>)>,
}

impl Reasons {
    fn add(&mut self, verdict: &Verdict, rank: &str) {
        for reason in &verdict.reasons {
            let mut one = Verdict::default();
            one.add(verdict.state, reason.clone());
            match self.found.iter_mut().find(|(known, _)| known.reasons == one.reasons) {
                Some((known, names)) => {
                    known.state = known.state.max(verdict.state);
                    names.push(rank.to_owned());
                }
                None => self.found.push((one, vec![rank.to_owned()])),
            }
        }
    }

    /// One verdict. Reasons that not all ranks share name their ranks.
    fn verdict(self, ranks: usize) -> Verdict {
        let mut verdict = Verdict::default();
        for (Verdict { state, reasons }, names) in self.found {
            for reason in reasons {
                match names.as_slice() {
                    names if names.len() == ranks => verdict.add(state, reason),
                    [name] => verdict.add(state, format!("{name}: {reason}")),
                    [name, ..] => {
                        let others = names.len() - 1;
                        verdict.add(state, format!("{name} and {others} more: {reason}"));
                    }
                    [] => {}
                }
            }
        }
        verdict
    }
}
