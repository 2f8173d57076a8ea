//! Study `device-cache`: the size and the read-ahead of a device's cache, the latency of a hit, and
//! the rate of the link.
//!
//! The study reads regions of growing size several times. If a region fits into the cache, all
//! passes but the first hit the cache. If the region does not fit, an LRU cache has no hits at all.
//! A bisection then narrows down the cache size.
//!
//! Rereads of one block also hit the cache, so their latency does not include the time of the
//! medium. The latency of a block of S bytes is T = f + S / rate, where f is the fixed overhead and
//! rate is the rate of the link. A fit over several block sizes gives f and the rate.
//!
//! The read-ahead is measured first (`study::ahead`), because the other measurements leave blocks
//! in the cache.

use analysis::halfpower::{HalfPowerFit, SizePoint, fit};
use analysis::units;
use lab::bench::Bench;
use lab::evidence::Evidence;
use lab::failure::Outcome;
use lab::job::Job;
use workload::Workload;

use crate::ahead::{self, HIT_GAIN, ReadTarget};
use crate::catalogue::Study;
use crate::conclusion::Conclusion;
use crate::curve;
use crate::plan::Group;
use crate::runner::StudyRunner;
use crate::target::StudyTarget;

pub const STUDY: Study = Study {
    name: "device-cache",
    papers: "Riedel 1997, section 5.2 and Table 3: sequential reads, and rereads of one region, \
             show the drive's overhead (0.3 ms to 0.6 ms) and the rate of the bus; with pauses \
             between reads, prefetched data arrives at the rate of the bus (64 KB in 2 ms to \
             7 ms), not at the rate of the media",
    needs: "a device or file with direct I/O",
    plan: include_str!("../../plans/device-cache.toml"),
    claims: &["R140", "R142", "R145"],
    rules: &[],
    measure: Some(measure),
    analyse,
};

/// Number of passes over a region. The first pass loads the region. The later passes show whether
/// the region stayed in the cache.
const PASSES: u64 = 3;
/// The size of the smallest region (bytes).
const REGION_MIN: u64 = 256 << 10;
/// The size of the largest region (bytes). The first value applies with `--quick`.
const REGION_MAX: [u64; 2] = [64 << 20, 512 << 20];
/// The bisection ends when the smallest region that does not fit is at most this many times as
/// large as the largest region that fits.
const NARROW: f64 = 1.06;
/// The block sizes for rereads of one block (bytes).
const BLOCK_BYTES: [u32; 8] = [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536];
/// The minimum r2 of a fit from which the rate of the link is derived.
const R2_MIN: f64 = 0.95;
/// Number of reads of one block, for each block size.
const BLOCK_READS: u64 = 200;
fn measure(runner: &mut StudyRunner<'_>) -> Outcome<()> {
    let study_targets = runner.study_targets;
    for group in runner.groups()? {
        // Simulated systems read the disk through a driver instead of a file, like the program of
        // the papers.
        let changes = Some("path=driver,file_at=0.0".to_owned());
        let group = Group { changes, ..group };
        for study_target in study_targets {
            match runner.bench(&group, std::slice::from_ref(study_target)) {
                Ok((job, bench)) => match target(runner, study_target, &job, &bench) {
                    Err(failure) if !runner.lab.interrupt.is_set() => {
                        runner
                            .leave_out(&study_target.name.display().to_string(), &failure.message);
                    }
                    other => other?,
                },
                Err(failure) => runner.leave_out(&group.part, &failure.message),
            }
        }
    }
    Ok(())
}

fn target(
    runner: &mut StudyRunner<'_>,
    study_target: &StudyTarget,
    job: &Job,
    bench: &Bench,
) -> Outcome<()> {
    if !bench.place().caching().is_direct() && study_target.is_real() {
        let name = study_target.name.display().to_string();
        runner.leave_out(&name, "the target does not support direct I/O; use a target that does");
        return Ok(());
    }
    let name = study_target.name.display().to_string();
    // The read-ahead must be measured first, before other reads fill the device's cache.
    ahead::measure(runner, ReadTarget { name: &name, job, bench }, &BLOCK_BYTES)?;
    same_block(runner, &name, job, bench)?;
    rereads(runner, &name, job, bench)
}

/// Records the median latency of rereading one block, for each size in [`BLOCK_BYTES`].
fn same_block(runner: &mut StudyRunner<'_>, name: &str, job: &Job, bench: &Bench) -> Outcome<()> {
    let plain = bench.setting(job, &job.axes[0]).workload;
    for bytes in BLOCK_BYTES {
        let workload = Workload {
            request_bytes: bytes,
            region_bytes: u64::from(bytes),
            limit_bytes: Some(u64::from(bytes) * BLOCK_READS),
            ..plain.clone()
        };
        let setting = bench.setting(job, &job.axes[0]);
        // A target with a large sector size cannot read the smallest blocks.
        if setting.place.check_fit(&workload).is_err() {
            continue;
        }
        let trial = runner.trial(job, bench, workload)?;
        if let Some(ns) = trial.latency().quantile(0.5) {
            let labels = [("target", name.to_owned()), ("bytes", bytes.to_string())];
            runner.evidence.note("same-block", "ns", &labels, ns as f64);
        }
    }
    Ok(())
}

/// Returns the median latency of the reads in several passes over a region (ns). None if half of
/// the reads or fewer were completed.
fn passes(runner: &StudyRunner<'_>, job: &Job, bench: &Bench, region: u64) -> Outcome<Option<f64>> {
    let plain = bench.setting(job, &job.axes[0]).workload;
    let workload = Workload { region_bytes: region, limit_bytes: Some(region * PASSES), ..plain };
    let trial = runner.trial(job, bench, workload)?;
    // If the trial ended too early, most reads belong to the first pass, which only fills the
    // cache.
    let is_complete = trial.bytes() * 2 > region * PASSES;
    Ok(trial.latency().quantile(0.5).filter(|_| is_complete).map(|ns| ns as f64))
}

/// Measures rereads of regions of growing size, then narrows down the cache size by bisection.
fn rereads(runner: &mut StudyRunner<'_>, name: &str, job: &Job, bench: &Bench) -> Outcome<()> {
    let most = REGION_MAX[usize::from(!runner.quick)].min(bench.region_bytes);
    let mut latencies: Vec<(u64, f64)> = Vec::new();
    let mut region = REGION_MIN;
    while region <= most {
        let Some(ns) = passes(runner, job, bench, region)? else { break };
        note(runner, name, region, ns);
        latencies.push((region, ns));
        region *= 2;
    }
    let Some((mut hit, mut miss, threshold_ns)) = curve::edge(&latencies, HIT_GAIN) else {
        return Ok(());
    };
    let request = u64::from(job.axes[0].request_bytes);
    while miss as f64 > hit as f64 * NARROW {
        let middle = ((hit as f64 * miss as f64).sqrt() as u64) / request * request;
        if middle <= hit || middle >= miss {
            break;
        }
        let Some(ns) = passes(runner, job, bench, middle)? else { break };
        note(runner, name, middle, ns);
        if ns < threshold_ns { hit = middle } else { miss = middle }
    }
    Ok(())
}

fn note(runner: &mut StudyRunner<'_>, name: &str, region: u64, ns: f64) {
    let labels = [("target", name.to_owned()), ("region", region.to_string())];
    runner.evidence.note("reread", "ns", &labels, ns);
}

/// Returns the cache size (bytes): the geometric mean of the largest region that fits and the
/// smallest region that does not.
fn cache_bytes(evidence: &Evidence, target: &str) -> Option<f64> {
    let (hit, miss, _) = curve::edge(&evidence.curve("reread", "region", target), HIT_GAIN)?;
    Some((hit as f64 * miss as f64).sqrt())
}

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    let names = ["same-block", "reread", "unpaused"].map(|quantity| evidence.read(quantity, &[]));
    let names = names.into_iter().flatten();
    let mut names: Vec<&str> =
        names.filter_map(|reading| Some(reading.labels.get("target")?.as_str())).collect();
    names.sort_unstable();
    names.dedup();
    for name in &names {
        cache(&mut found, evidence, name);
        ahead::conclude(&mut found, evidence, name);
        link(&mut found, evidence, name);
    }
    found.charts.extend(ahead::chart(evidence, &names));
    found
}

fn cache(found: &mut Conclusion, evidence: &Evidence, target: &str) {
    let latencies = evidence.curve("reread", "region", target);
    let (Some(first), Some(last)) = (latencies.first(), latencies.last()) else { return };
    let (hit, miss) = (units::time(first.1), units::time(last.1));
    let text = match cache_bytes(evidence, target) {
        Some(bytes) => format!(
            "{target} has a cache of {}: 64 KiB rereads take {hit} if the region fits into the \
             cache, and {miss} if it does not",
            units::size(bytes as u64)
        ),
        None => format!(
            "{target}: no cache is visible with regions of {} to {}: 64 KiB rereads take {hit} in \
             the smallest region and {miss} in the largest",
            units::size(first.0),
            units::size(last.0)
        ),
    };
    found.find("cache", text);
}

/// Fits the model T = f + S / rate. None if the times do not clearly rise with the request size.
fn rising(points: &[SizePoint]) -> Option<HalfPowerFit> {
    fit(points).ok().filter(|fit| fit.ns_per_byte.low > 0.0)
}

/// Returns the latencies of cache hits by request size, as input for [`rising`].
fn times(evidence: &Evidence, quantity: &str, target: &str) -> Vec<SizePoint> {
    let point = |(bytes, ns): &(u64, f64)| SizePoint {
        request_bytes: *bytes,
        time_ns: *ns,
        relative_error: 0.03,
    };
    evidence.curve(quantity, "bytes", target).iter().map(point).collect()
}

/// Reports the fixed overhead and the rate of the link, from rereads of one block and from prefetch
/// hits.
fn link(found: &mut Conclusion, evidence: &Evidence, target: &str) {
    let points = times(evidence, "same-block", target);
    let ahead = times(evidence, "read-ahead", target);
    for (id, what, points) in
        [("link", "a reread takes", &points), ("link-ahead", "a prefetched read takes", &ahead)]
    {
        let (Some(smallest), Some(largest)) = (points.first(), points.last()) else { continue };
        let text = match rising(points) {
            Some(fit) if fit.r2 < R2_MIN => format!(
                "{target}: {what} {} for {} and {} for {}. The times do not fit the model \"fixed \
                 cost + transfer time\" (r2 {:.3}), so the rate of the link is unknown",
                units::time(smallest.time_ns),
                units::size(smallest.request_bytes),
                units::time(largest.time_ns),
                units::size(largest.request_bytes),
                fit.r2
            ),
            Some(fit) => {
                let fixed = units::time(fit.fixed_ns.value.max(0.0));
                let rate = units::rate(fit.asymptote_bytes_per_s);
                let r2 = fit.r2;
                format!("{target}: {what} {fixed} plus a transfer at {rate} (r2 {r2:.3})")
            }
            None => format!("{target}: {what} {} at any size", units::time(smallest.time_ns)),
        };
        found.find(id, text);
    }
    if found.claims.is_empty() {
        // The claims need latencies that do not include the medium. If rereads found no cache,
        // reads of prefetched data are used.
        let hits = match cache_bytes(evidence, target) {
            Some(_) => points,
            None => ahead,
        };
        claims(found, evidence, target, &hits);
    }
}

fn claims(found: &mut Conclusion, evidence: &Evidence, target: &str, points: &[SizePoint]) {
    if points.is_empty() {
        let why = "the study found no cache and no read-ahead, so the link cannot be separated \
                   from the medium";
        found.cannot(STUDY.claims, why);
        return;
    }
    let Some(fit) = rising(points).filter(|fit| fit.r2 >= R2_MIN) else {
        let why = "hit latencies do not fit the model \"fixed cost + transfer time\" (r2 < 0.95)";
        found.cannot(STUDY.claims, why);
        return;
    };
    if let Some(small) = points.iter().find(|point| point.request_bytes == 2048) {
        let share = fit.fixed_ns.value / small.time_ns;
        let here =
            format!("the fixed overhead is {:.0}% of the time of a 2 KiB hit", 100.0 * share);
        found.claim("R140", share > 0.5, here);
    }
    let rereads = evidence.curve("reread", "region", target);
    if let Some((_, ns)) = rereads.last() {
        let (medium, link) = ((64 << 10) as f64 * 1e9 / ns, fit.asymptote_bytes_per_s);
        let here = format!("the link is {:.1} times as fast as the medium", link / medium);
        found.value("R142", Some(link / medium), here);
    }
    let follows =
        points.iter().zip(&fit.residuals).filter(|(point, left)| left.abs() <= 0.1 * point.time_ns);
    if let Some(largest) = follows.map(|(point, _)| point.request_bytes).max() {
        let here =
            format!("latencies fit \"fixed cost + transfer time\" up to {}", units::size(largest));
        found.claim("R145", largest >= 8192, here);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conclusion::Verdict;

    fn rereads(points: &[(u64, f64)]) -> Evidence {
        let mut evidence = Evidence::default();
        for (region, ns) in points {
            let labels = [("target", "t".to_owned()), ("region", region.to_string())];
            evidence.note("reread", "ns", &labels, *ns);
        }
        evidence
    }

    #[test]
    fn the_cache_ends_between_the_last_hit_and_the_first_miss() {
        let mib = 1 << 20;
        let latencies =
            [(mib, 20e3), (4 * mib, 21e3), (8 * mib, 22e3), (9 * mib, 1e6), (16 * mib, 1e6)];
        let bytes = cache_bytes(&rereads(&latencies), "t").unwrap();
        assert!((8.0..9.0).contains(&(bytes / f64::from(1 << 20))), "{bytes}");
        let found = analyse(&rereads(&latencies));
        assert!(found.findings[0].headline.contains("a cache of 8."), "{:?}", found.findings);
    }

    #[test]
    fn equal_latencies_show_no_cache() {
        let found = analyse(&rereads(&[(1 << 20, 1e6), (1 << 24, 1.1e6)]));
        assert!(found.findings[0].headline.contains("no cache is visible"), "{:?}", found.findings);
    }

    #[test]
    fn latencies_without_a_line_give_no_link_rate() {
        let mut evidence = Evidence::default();
        for (index, bytes) in BLOCK_BYTES.into_iter().enumerate() {
            let labels = [("target", "t".to_owned()), ("bytes", bytes.to_string())];
            let wild = if index % 2 == 0 { 1.4 } else { 0.9 };
            let ns = wild * (30e3 + 2.0 * f64::from(bytes));
            evidence.note("same-block", "ns", &labels, ns);
        }
        let text = &analyse(&evidence).findings[0].headline;
        assert!(text.contains("the rate of the link is unknown"), "{text}");
    }

    #[test]
    fn overhead_and_link_come_from_the_same_block() {
        let mut evidence = Evidence::default();
        for bytes in BLOCK_BYTES {
            let labels = [("target", "t".to_owned()), ("bytes", bytes.to_string())];
            evidence.note("same-block", "ns", &labels, 300e3 + f64::from(bytes) / 20e6 * 1e9);
        }
        let found = analyse(&evidence);
        let text = &found.findings[0].headline;
        assert!(text.contains("300 us") && text.contains("20 MB/s"), "{text}");
        let verdicts = |evidence: &Evidence| -> Vec<Verdict> {
            analyse(evidence).claims.iter().map(|claim| claim.verdict).collect()
        };
        // No regions were reread, so no cache was found. The latencies of rereads of a block may
        // therefore include the time of the medium.
        assert_eq!(verdicts(&evidence), [Verdict::CannotBeTried; 3]);
        // The latencies of reads of prefetched data do not include the time of the medium, even if
        // no cache was found.
        let mut ahead = evidence.clone();
        ahead
            .readings
            .iter_mut()
            .for_each(|reading| "read-ahead".clone_into(&mut reading.quantity));
        ahead.readings.extend(rereads(&[(1 << 20, 10e6), (1 << 24, 10e6)]).readings);
        assert_eq!(verdicts(&ahead), [Verdict::Holds; 3]);
        let found = analyse(&ahead).findings;
        let link = found.iter().find(|finding| finding.id == "link-ahead").unwrap();
        assert!(link.headline.contains("a prefetched read takes 300 us"), "{}", link.headline);
        evidence.readings.extend(rereads(&[(1 << 20, 4e6), (1 << 24, 10e6)]).readings);
        assert_eq!(verdicts(&evidence), [Verdict::Holds; 3]);
    }
}
