//! Study `request-size`: direct requests of several sizes at depth 1. It reports the rate, the
//! half-power size, the CPU cost of a request and of a byte, and the smallest size that the block
//! layer splits.

use analysis::costmodel::CostModel;
use analysis::units;
use lab::evidence::{Evidence, MeasuredPoint};
use survey::half_power;

use crate::catalogue::Study;
use crate::conclusion::Conclusion;
use crate::curve;

pub const STUDY: Study = Study {
    name: "request-size",
    papers: "Riedel 1997, section 3, Figures 3 and 4: unbuffered reads reach the media limit at 8 \
             KB, writes without write cache reach half power at 128 KB; a request of any size \
             costs 120 us of CPU time",
    needs: "",
    plan: include_str!("../../plans/request-size.toml"),
    claims: &[
        "R042", "R046", "R050", "R051", "R052", "R064", "R071", "R179", "R180", "C138", "C207",
    ],
    rules: &["larger-requests"],
    measure: None,
    analyse,
};

/// Maximum request size in the fit of the CPU cost (bytes). The block layer splits larger requests.
const COST_BYTES_MAX: u64 = 1 << 20;
/// A request counts as split if the mean size of the requests that reach the device is at most this
/// share of the request size.
const SPLIT: f64 = 0.75;

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    for rw in ["read", "write"] {
        let curve = curve::by_size(evidence, &[("rw", rw)]);
        if let Some((pap, source)) = curve::pap(evidence, &curve) {
            half_power(&mut found, &curve, rw, pap, &source);
        }
        cost(&mut found, &curve, rw);
        split(&mut found, evidence, &curve, rw);
    }
    size_claims(&mut found, evidence);
    cost_claims(&mut found, evidence);
    found
}

/// Reports the half-power size. Advises larger requests if they are faster than 4 KiB requests.
fn half_power(found: &mut Conclusion, curve: &[&MeasuredPoint], rw: &str, pap: f64, source: &str) {
    let (measured, fitted) = curve::half_power(curve, pap);
    let peak = format!("the PAP of {} ({source})", units::rate(pap));
    let fitted = fitted.map_or_else(
        || "at no size (fitted)".to_owned(),
        |bytes| format!("at {} (fitted)", units::size(bytes as u64)),
    );
    let best = curve.iter().map(|point| point.rate()).fold(0.0, f64::max);
    found.find(
        "half-power-size",
        match measured {
            Some(bytes) => format!(
                "{rw}s at depth 1 pass half of {peak} at {} (measured) and {fitted}",
                units::size(bytes)
            ),
            None if best > pap / 2.0 => format!(
                "{rw}s at depth 1 pass half of {peak} at one size, but not at the next larger \
                 size, so the half-power size is unknown; more trials may show it"
            ),
            None => format!(
                "{rw}s at depth 1 reach at most {:.0}% of {peak}, so they never pass half of the \
                 PAP; {rw}s at a larger depth may pass half of the PAP (halfpower study depth)",
                100.0 * best / pap
            ),
        },
    );
    let small = curve.iter().find(|point| point.bytes() == 4 << 10);
    let Some(small) = small.or(curve.first()) else { return };
    // The smallest size close to the peak is advised, because larger sizes gain little more.
    let Some(large) = curve::reaches_peak(curve) else { return };
    let Some(large) = curve.iter().find(|point| point.bytes() == large) else { return };
    if large.bytes() > small.bytes() && curve::differ(small, large) {
        let setting = format!("{rw}s of {}", units::size(large.bytes()));
        let text = format!(
            "{} instead of {} with {}",
            units::rate(large.rate()),
            units::rate(small.rate()),
            units::size(small.bytes())
        );
        found.advise("larger-requests", large.rate() / small.rate(), &setting, text);
    }
}

fn model(curve: &[&MeasuredPoint]) -> Option<CostModel> {
    let whole: Vec<&MeasuredPoint> =
        curve.iter().filter(|point| point.bytes() <= COST_BYTES_MAX).copied().collect();
    half_power::cost_model(&whole)
}

/// Reports the CPU cost per request and per KiB.
fn cost(found: &mut Conclusion, curve: &[&MeasuredPoint], rw: &str) {
    let Some(model) = model(curve) else { return };
    let (fixed, marginal) = (model.fixed_ns, model.marginal_ns_per_kib);
    let between = |low: f64, high: f64| format!("{} to {}", units::time(low), units::time(high));
    let each_kib = if marginal.low > 0.0 {
        format!("{} per KiB", units::time(marginal.value))
    } else {
        "nothing measurable per KiB".to_owned()
    };
    let smallest = curve.first().and_then(|point| Some((point, curve::utilisation(point)?)));
    let busy = smallest.map(|(point, share)| {
        let size = units::size(point.bytes());
        format!("; requests of {size} keep one CPU {:.0}% busy", 100.0 * share)
    });
    found.find(
        "cpu-cost",
        format!(
            "a {rw} costs {} of CPU per request ({}), plus {each_kib}{}",
            units::time(fixed.value.max(0.0)),
            between(fixed.low.max(0.0), fixed.high),
            busy.unwrap_or_default()
        ),
    );
}

/// Reports the smallest request size that is split into several device requests.
fn split(found: &mut Conclusion, evidence: &Evidence, curve: &[&MeasuredPoint], rw: &str) {
    let device_bytes: Vec<(&MeasuredPoint, f64)> =
        curve.iter().filter_map(|point| Some((*point, point.device_request_bytes()?))).collect();
    let Some((largest, of_largest)) = device_bytes.last() else {
        let counted = evidence.is_simulated() || curve.is_empty();
        if !counted {
            let text = format!(
                "the device does not count requests, so it is unknown whether {rw}s are split"
            );
            found.find("split", text);
        }
        return;
    };
    let limit = evidence.device().and_then(|device| device.max_request_bytes).map_or_else(
        || "the system reports no limit".to_owned(),
        |bytes| format!("the system's limit (max_sectors) is {}", units::size(bytes)),
    );
    let first = device_bytes.iter().find(|(point, device)| *device <= SPLIT * point.bytes() as f64);
    let at_device = |bytes: f64| units::size((bytes / 512.0).round() as u64 * 512);
    found.find(
        "split",
        match first {
            Some((point, device)) => {
                let is_same = at_device(*of_largest) == at_device(*device);
                let for_largest = if is_same || point.bytes() == largest.bytes() {
                    String::new()
                } else {
                    let size = units::size(largest.bytes());
                    format!(", or of {} for {rw}s of {size}", at_device(*of_largest))
                };
                format!(
                    "{rw}s of {} and more are split: the device sees requests of {}{for_largest}; \
                     {limit}",
                    units::size(point.bytes()),
                    at_device(*device)
                )
            }
            None => format!(
                "{rw}s up to {} reach the device unsplit; {limit}",
                units::size(largest.bytes())
            ),
        },
    );
}

fn size_claims(found: &mut Conclusion, evidence: &Evidence) {
    let reads = curve::by_size(evidence, &[("rw", "read")]);
    let writes = curve::by_size(evidence, &[("rw", "write")]);
    for id in ["R046", "R071"] {
        found.value_if(id, at_peak(&reads, "read"));
    }
    if !reads.is_empty() {
        let why = "the claim needs reads at depth 2, and this study uses depth 1; see halfpower \
                   study depth";
        found.cannot(&["C207"], why);
    }
    if let Some((pap, source)) = curve::pap(evidence, &reads) {
        let top = reads.iter().map(|point| point.rate()).fold(0.0, f64::max);
        let share = 100.0 * top / pap;
        let advertised = !source.contains("measured");
        let text = format!("reads at depth 1 reach {share:.0}% of the PAP {source}");
        if advertised {
            found.value("R042", Some(share), text);
        } else {
            let why = "the advertised rate of the device is unknown; specify it with --pap";
            found.cannot(&["R042"], why);
        }
    }
    write_cache_claims(found, evidence, &writes);
}

/// Judges the claims about writes, which depend on the drive's write cache.
fn write_cache_claims(found: &mut Conclusion, evidence: &Evidence, writes: &[&MeasuredPoint]) {
    let state = evidence.device().and_then(|device| device.write_cache.as_deref());
    if state != Some("write through") {
        let why = "the write cache is on or unknown; halfpower study write-cache can switch it";
        found.cannot(&["R050", "R064"], why);
    } else if let Some(media) = evidence.fastest(&[("rw", "read")]).map(MeasuredPoint::rate) {
        // As in the papers, the rate of reads is the media limit.
        let half = curve::half_power(writes, media).0;
        let words = half.map_or_else(|| "no size".to_owned(), units::size);
        let text = format!("at {words}, writes pass half of the rate of the fastest read");
        for id in ["R050", "R064"] {
            match half {
                Some(bytes) => found.value(id, Some(kib(bytes)), text.clone()),
                None => found.claim(id, false, text.clone()),
            }
        }
    }
    if state != Some("write back") {
        found.cannot(&["R051", "R052"], "the write cache is off or unknown");
        return;
    }
    for id in ["R051", "R052"] {
        found.value_if(id, at_peak(writes, "write"));
    }
}

/// Returns the smallest size that reaches 90% of the highest rate (KiB), and a sentence about it.
fn at_peak(curve: &[&MeasuredPoint], rw: &str) -> Option<(f64, String)> {
    let bytes = curve::reaches_peak(curve)?;
    let text = format!("{rw}s reach 90% of their highest rate at {}", units::size(bytes));
    Some((kib(bytes), text))
}

fn kib(bytes: u64) -> f64 {
    bytes as f64 / 1024.0
}

fn cost_claims(found: &mut Conclusion, evidence: &Evidence) {
    let read = |bs: &str| evidence.find(&[("rw", "read"), ("bs", bs)]);
    let small = read("2k");
    let share = |point: Option<&MeasuredPoint>| {
        let point = point?;
        let percent = 100.0 * curve::utilisation(point)?;
        let size = units::size(point.bytes());
        Some((percent, format!("reads of {size} at depth 1 use {percent:.1}% of one CPU")))
    };
    found.value_if("R180", share(read("64k")));
    found.value_if("R179", share(small));
    let cpus = f64::from(evidence.host.cpus.max(1));
    // Claim C138 states CPU time as a share of all processors.
    if evidence.is_simulated() {
        found.cannot(&["C138"], "the share of all processors is known only on a real host");
    } else {
        let all = |(percent, text): (f64, String)| {
            let text = format!("{text}; the host has {cpus:.0} CPUs");
            (percent / cpus, text)
        };
        found.value_if("C138", share(small).map(all));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conclusion::Verdict;
    use lab::evidence::testing::{cell, evidence};
    use lab::machine::{DeviceFacts, TargetFacts};

    /// Builds points of reads from a device that takes 50 us per request plus 1 ns per byte. The
    /// CPU cost is 10 us per request plus 100 ns per KiB.
    fn model_device() -> Evidence {
        let sizes = ["2k", "4k", "16k", "64k", "256k", "1m", "4m"];
        let points = sizes.map(|bs| {
            let bytes = units::parse_size(bs).unwrap();
            let rate = bytes as f64 * 1e9 / (50_000.0 + bytes as f64);
            let mut point = cell(rate as u64, &[("rw", "read"), ("bs", bs)]);
            point.summary.cpu_lower_ns = Some(10_000.0 + bytes as f64 / 1024.0 * 100.0);
            point
        });
        evidence(points.to_vec())
    }

    fn text(found: &Conclusion, id: &str) -> String {
        found.findings.iter().find(|finding| finding.id == id).unwrap().headline.clone()
    }

    #[test]
    fn the_half_power_size_is_measured_and_fitted() {
        let found = analyse(&model_device());
        let text = text(&found, "half-power-size");
        assert!(text.contains("at 64 KiB (measured)"), "{text}");
        assert!(text.contains("PAP of 9") && text.contains("the measured plateau"), "{text}");
        assert_eq!(found.advice[0].id, "larger-requests");
    }

    #[test]
    fn a_curve_that_falls_below_half_again_has_an_unknown_half_power_size() {
        let rates = [("4k", 600_000_000), ("64k", 400_000_000)];
        let points = rates.map(|(bs, rate)| cell(rate, &[("rw", "read"), ("bs", bs)]));
        let mut evidence = evidence(points.to_vec());
        evidence.pap_bytes_per_s = Some(1e9);
        let text = text(&analyse(&evidence), "half-power-size");
        assert!(text.contains("at one size, but not at the next larger size"), "{text}");
    }

    #[test]
    fn a_request_and_a_byte_have_the_costs_of_the_model() {
        let found = analyse(&model_device());
        let text = text(&found, "cpu-cost");
        assert!(text.contains("costs 10 us"), "{text}");
        assert!(text.contains("100 ns per KiB"), "{text}");
    }

    #[test]
    fn the_claim_of_a_third_of_the_advertised_rate_needs_an_advertised_rate() {
        let mut evidence = model_device();
        let verdict = |evidence: &Evidence, id: &str| {
            analyse(evidence).claims.iter().find(|claim| claim.id == id).unwrap().verdict
        };
        assert_eq!(verdict(&evidence, "R042"), Verdict::CannotBeTried, "no advertised rate");
        assert_eq!(verdict(&evidence, "C207"), Verdict::CannotBeTried);
        let cases = [(3e9, Verdict::Holds), (3e10, Verdict::DoesNotHold)];
        for (pap, expected) in cases {
            evidence.pap_bytes_per_s = Some(pap);
            assert_eq!(verdict(&evidence, "R042"), expected, "{pap}");
        }
    }

    #[test]
    fn a_split_shows_as_smaller_device_requests() {
        let mut evidence = model_device();
        for point in &mut evidence.points {
            let counters = ioengine::target::DeviceCounters {
                reads: 100,
                read_sectors: 100 * point.point.key.request_bytes().min(1 << 20) / 512,
                ..Default::default()
            };
            point.point.trials.iter_mut().for_each(|trial| trial.device = Some(counters));
        }
        let device = DeviceFacts { max_request_bytes: Some(1 << 20), ..DeviceFacts::default() };
        evidence.targets = vec![TargetFacts { device: Some(device), ..TargetFacts::default() }];
        let text = text(&analyse(&evidence), "split");
        assert!(
            text.contains("of 4 MiB and more are split: the device sees requests of 1 MiB"),
            "{text}"
        );
        assert!(text.ends_with("(max_sectors) is 1 MiB"), "{text}");
    }

    #[test]
    fn claims_about_writes_depend_on_the_write_cache() {
        let write = |bs: &str, rate| cell(rate, &[("rw", "write"), ("bs", bs)]);
        let read = cell(1000, &[("rw", "read"), ("bs", "64k")]);
        let mut evidence =
            evidence(vec![write("8k", 950), write("64k", 990), write("1m", 1000), read]);
        let verdict = |evidence: &Evidence, id: &str| {
            analyse(evidence).claims.iter().find(|claim| claim.id == id).unwrap().verdict
        };
        let state = |word: &str| {
            let device =
                DeviceFacts { write_cache: Some(word.to_owned()), ..DeviceFacts::default() };
            vec![TargetFacts { device: Some(device), ..TargetFacts::default() }]
        };
        evidence.targets = state("write back");
        assert_eq!(verdict(&evidence, "R051"), Verdict::Holds);
        assert_eq!(verdict(&evidence, "R050"), Verdict::CannotBeTried);
        evidence.targets = state("write through");
        assert_eq!(verdict(&evidence, "R051"), Verdict::CannotBeTried);
        assert_eq!(verdict(&evidence, "R050"), Verdict::DoesNotHold);
    }
}
