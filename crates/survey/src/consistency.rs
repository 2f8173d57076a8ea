//! Checks the figures and sentences of a survey for contradictions before they are printed. It does
//! not check whether the measurements are right.

use ioengine::Op;
use lab::point::State;
use report::model::Finding;

use crate::advice::{self, Advice};
use crate::findings;
use crate::insight::{Insight, Pap, PapBasis, shown_verdict};
use crate::survey_data::SurveyData;

/// Maximum relative difference of two figures that count as equal. Figures differ this much because
/// they are printed with three digits.
const ROUNDING: f64 = 0.01;
/// Texts that occur in a sentence only if a calculation is wrong.
const NONSENSE: [&str; 7] =
    ["NaN", "inf ", "+ 0 ns", "never at", " 0.0 times", "between 0 ", "+-0.0%"];

/// Returns all contradictions, one line each.
pub fn contradictions(data: &SurveyData, insight: &Insight<'_>) -> Vec<String> {
    let (findings, advice) = (findings::of(data, insight), advice::of(insight));
    let mut found = Vec::new();
    for operation in Op::ALL {
        found.extend(of_rates(insight, operation));
        found.extend(of_half_power(insight, operation));
    }
    found.extend(of_peaks(insight, &findings));
    found.extend(of_verdict(insight));
    advice.iter().for_each(|advice| found.extend(of_advice(insight, advice)));
    let sentences = findings.iter().flat_map(|f| [&f.headline, &f.detail]);
    let sentences = sentences.chain(advice.iter().flat_map(|a| [&a.text, &a.evidence]));
    for sentence in sentences {
        let wrong = NONSENSE.iter().filter(|nonsense| sentence.contains(*nonsense));
        found.extend(wrong.map(|nonsense| format!("\"{nonsense}\" in: {sentence}")));
    }
    found
}

/// Checks that the best rate, the out-of-box rate and the peak rate of an operation are consistent.
fn of_rates(insight: &Insight<'_>, operation: Op) -> Vec<String> {
    let mut found = Vec::new();
    let Some(best) = insight.best(operation) else { return found };
    let Some(pap) = insight.pap.iter().find(|pap| pap.operation == operation) else {
        return vec![format!("there is a best setting for {operation}s, but no peak rate")];
    };
    let above = insight.sequential(operation).find(|point| point.rate() > pap.bytes_per_s);
    if let Some(above) = above.filter(|_| pap.basis != PapBasis::Stated) {
        found.push(format!("{operation}s with {} exceed their peak rate", above.setting()));
    }
    if let Some(plain) = insight.out_of_box(operation)
        && plain.rate() > best.rate() * 1.15
    {
        found.push(format!("out-of-box {operation}s are faster than the best setting"));
    }
    let fastest = insight.fastest(operation).map_or(0.0, |point| point.rate());
    if best.rate() < 0.8 * fastest {
        found.push(format!("the best setting for {operation}s is far slower than the fastest"));
    }
    found
}

/// Checks that the rate at each half-power point exceeds half of the peak.
fn of_half_power(insight: &Insight<'_>, operation: Op) -> Vec<String> {
    let Some(pap) = insight.pap_of(operation) else { return Vec::new() };
    let curves = insight.half_power.iter().filter(|curve| curve.operation == operation);
    curves
        .filter(|curve| curve.measured.is_some() && curve.rate.is_none_or(|rate| rate <= pap / 2.0))
        .map(|curve| {
            format!(
                "the rate at the half-power point of {operation}s, depth {}, is below half of the \
                 peak",
                curve.depth
            )
        })
        .collect()
}

/// Returns a contradiction if the peak of reads is unconfirmed, but the bottleneck finding states
/// that several settings reach this peak.
fn of_peaks(insight: &Insight<'_>, findings: &[Finding]) -> Option<String> {
    let says =
        |id: &str, words: &str| findings.iter().any(|f| f.id == id && f.detail.contains(words));
    let is_single =
        |pap: &Pap| matches!(pap.basis, PapBasis::Measured { settings } if settings < 2);
    let is_unconfirmed = insight.pap.iter().any(|pap| pap.operation == Op::Read && is_single(pap));
    (is_unconfirmed && says("bottleneck", "settings reach the same rate"))
        .then(|| "the peak of reads is unconfirmed, yet several settings reach it".to_owned())
}

/// Checks that a survey with the verdict "valid" shows only valid figures.
fn of_verdict(insight: &Insight<'_>) -> Option<String> {
    let mut shown = Op::ALL.into_iter().flat_map(|op| [insight.best(op), insight.out_of_box(op)]);
    let is_doubtful =
        shown.any(|point| point.is_some_and(|point| shown_verdict(point).state != State::Valid));
    (is_doubtful && insight.verdict.state == State::Valid)
        .then(|| "the survey is valid, but a figure that it shows is not".to_owned())
}

/// Checks the rates in the evidence of a piece of advice. No rate may exceed the highest measured
/// rate, and the ratio of the rates must be the stated gain.
fn of_advice(insight: &Insight<'_>, advice: &Advice) -> Vec<String> {
    let mut found = Vec::new();
    if advice.gain_in != "throughput" || advice.id == "keep-defaults" {
        return found;
    }
    let highest = insight.seen.iter().map(|point| point.rate()).fold(0.0, f64::max) / 1048576.0;
    let mut gains = Vec::new();
    for part in advice.evidence.split("; ") {
        let rates: Vec<f64> = part
            .split(": ")
            .skip(1)
            .chain(part.split(", huge pages ").skip(1))
            .filter_map(|text| {
                text.trim_start_matches(|c: char| !c.is_ascii_digit())
                    .split(' ')
                    .next()?
                    .parse()
                    .ok()
            })
            .collect();
        if let Some(rate) = rates.iter().find(|rate| **rate > highest * (1.0 + ROUNDING)) {
            found.push(format!("advice cites {rate} MiB/s, but no rate was that high: {part}"));
        }
        if let [from, to] = rates[..] {
            gains.push(to / from.max(1e-9));
        }
    }
    let greatest = gains.iter().copied().fold(0.0, f64::max);
    if !gains.is_empty() && (greatest / advice.gain - 1.0).abs() > 0.05 {
        found.push(format!(
            "advice states a gain of {:.2}, but the greatest gain between the rates that it cites \
             is {greatest:.2}",
            advice.gain
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioengine::Caching;

    use crate::app::App;
    use crate::insight::tests::{data, point_of};
    use workload::random::Stream;

    /// Returns the survey of a device whose time per request, peak rate, parallelism, cache speed
    /// and noise are random. Some points are missing, suspect or invalid, or have only one trial.
    fn random_data(seed: u64) -> SurveyData {
        let mut stream = Stream::new(seed);
        let mut draw = |low: f64, high: f64| {
            low * (high / low).powf(stream.next_u64() as f64 / u64::MAX as f64)
        };
        let SurveyData { evidence, mut facts, .. } = data();
        let mut points = Vec::new();
        let (fixed_s, peak, parallel) = (draw(5e-6, 2e-2), draw(5e6, 1e10), draw(1.0, 64.0));
        let (cache, scatter) = (draw(0.2, 3.0), draw(1e-4, 0.3));
        for size in [512_u64, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20] {
            let bytes = size as f64;
            for operation in Op::ALL {
                for depth in [1, 8, 32] {
                    if draw(1.0, 100.0) > 93.0 {
                        continue;
                    }
                    let slots = f64::from(depth).min(parallel);
                    let rate = (slots * bytes / (fixed_s + bytes / peak)).min(peak);
                    let rate = rate * draw(1.0 - scatter, 1.0 + scatter);
                    let cpu = draw(500.0, 5e4) + bytes * draw(1e-4, 0.5);
                    points.push(point_of(operation, Caching::Direct, size, depth, (rate, cpu)));
                }
                let rate = peak * cache * draw(1.0 - scatter, 1.0 + scatter);
                let cpu = draw(300.0, 3e3) + bytes * draw(0.05, 0.5);
                points.push(point_of(operation, Caching::Buffered, size, 1, (rate, cpu)));
            }
        }
        for point in &mut points {
            match draw(1.0, 100.0) as u32 {
                90..=93 => point.trials.truncate(1),
                94..=96 => point.trials[0].verdict.add(State::Suspect, "the rate drifted"),
                97..=98 => point.trials[0].verdict.add(State::Invalid, "a hit"),
                _ => {}
            }
        }
        if seed.is_multiple_of(5) {
            facts.pap_bytes_per_s = Some(draw(1e7, 1e10));
        }
        if seed.is_multiple_of(7) {
            facts.app = Some(App { request_bytes: 4096, direct: true, depth: 1 });
        }
        let target = evidence.targets[0].clone();
        SurveyData::new(evidence.host, target, points, facts, 0)
    }

    #[test]
    fn surveys_of_two_hundred_random_devices_have_no_contradictions() {
        for seed in 0..200 {
            let data = random_data(seed);
            let found = contradictions(&data, &Insight::of(&data));
            assert!(found.is_empty(), "seed {seed}:\n{}", found.join("\n"));
        }
    }

    #[test]
    fn contradictions_are_found() {
        let data = data();
        let mut insight = Insight::of(&data);
        assert_eq!(contradictions(&data, &insight), [""; 0]);
        insight.pap[0].bytes_per_s /= 2.0;
        let found = contradictions(&data, &insight);
        assert!(found.iter().any(|one| one.contains("exceed their peak")), "{found:?}");
        insight.pap[0].basis = PapBasis::Measured { settings: 1 };
        let found = contradictions(&data, &insight);
        assert!(found.iter().any(|one| one.contains("yet several settings reach it")), "{found:?}");
        let mut insight = Insight::of(&data);
        insight.half_power[0].measured = Some(4096);
        insight.half_power[0].rate = Some(1.0);
        let found = contradictions(&data, &insight);
        assert!(found.iter().any(|one| one.contains("is below half")), "{found:?}");
        let mut advice = advice::of(&insight).remove(0);
        advice.gain_in = "throughput";
        advice.evidence = "one: 100 MiB/s, other: 300 MiB/s".to_owned();
        advice.gain = 2.0;
        assert!(of_advice(&insight, &advice)[0].contains("a gain of 2.00"));
    }
}
