//! Ranked advice: the rules of `advice.toml` whose gain was measured here.
//!
//! A rule speaks only when two measured points differ by more than their intervals and by at
//! least [`GAIN_MIN`]. Rules that a study prices are listed with its name.

use serde::Deserialize;

use crate::survey::insight::{Insight, Seen};
use crate::units;

/// The least gain worth a change of code.
pub const GAIN_MIN: f64 = 1.1;
/// The request size at which caching modes are compared (bytes).
const LARGE: u64 = 1 << 20;
/// Request sizes that count as small (bytes).
const SMALL: u64 = 8 << 10;

/// One row of the table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What the program calls it.
    pub id: String,
    /// Where it comes from.
    pub paper: String,
    /// Today's form.
    pub text: String,
    /// What to change.
    pub how: String,
    /// The study that prices it.
    pub experiment: String,
}

/// A rule with its gain here.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The rule.
    pub id: String,
    /// What to do, with the setting.
    pub text: String,
    /// The setting alone, with its gain: "reads of 1 MiB (2.6 times)".
    pub setting: String,
    /// The measurements that say so.
    pub evidence: String,
    /// Times better, of rate or of CPU.
    pub gain: f64,
    /// What it is a gain in: "throughput" or "CPU".
    pub gain_in: &'static str,
    /// How to do it.
    pub how: String,
}

/// All rules.
pub fn rules() -> Vec<Rule> {
    #[derive(Deserialize)]
    struct Table {
        rule: Vec<Rule>,
    }
    let table: Table =
        toml::from_str(include_str!("advice.toml")).expect("the table is tested to be well-formed");
    table.rule
}

/// Rules that a survey cannot price, with the study that does.
pub fn silent() -> Vec<(Rule, String)> {
    let waiting = rules().into_iter().filter(|rule| rule.experiment != "survey");
    waiting.map(|rule| (rule.clone(), rule.experiment)).collect()
}

/// The advice of a survey, greatest gain first; never empty. What holds for reads and for writes
/// is said once.
pub fn of(insight: &Insight<'_>) -> Vec<Advice> {
    type Condition = fn(&Insight<'_>, &str) -> Option<Advice>;
    let conditions: [Condition; 7] = [
        larger_requests,
        deeper_requests,
        deeper_random,
        bypass_large,
        bypass_for_cpu,
        buffer_small,
        huge_pages,
    ];
    let both = |condition: Condition| {
        let read = condition(insight, "read");
        let write = condition(insight, "write");
        match (read, write) {
            (Some(read), Some(write)) => Some(joined(read, &write)),
            (read, write) => read.or(write),
        }
    };
    let mut found: Vec<Advice> = conditions.into_iter().filter_map(both).collect();
    found.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    if found.is_empty() {
        found.push(keep_defaults(insight));
    }
    found
}

/// The same rule for reads and for writes as one piece of advice, with the greater gain.
fn joined(read: Advice, write: &Advice) -> Advice {
    Advice {
        text: format!("{}; {}", read.text, write.setting),
        setting: format!("{}; {}", read.setting, write.setting),
        evidence: format!("{}; {}", read.evidence, write.evidence),
        gain: read.gain.max(write.gain),
        ..read
    }
}

/// A rule by its name.
///
/// # Panics
/// If there is none: names are the program's own.
pub fn rule(id: &str) -> Rule {
    let found = rules().into_iter().find(|rule| rule.id == id);
    found.expect("every rule with a condition is in the table, which is tested")
}

/// The gain in rate from one point to another, if it is more than noise.
fn rate_gain(from: &Seen<'_>, to: &Seen<'_>) -> Option<f64> {
    let gain = to.rate() / from.rate().max(1.0);
    let apart = to.summary.bytes_per_s.low > from.summary.bytes_per_s.high;
    (apart && gain >= GAIN_MIN).then_some(gain)
}

fn setting(seen: &Seen<'_>) -> String {
    let key = &seen.point.key;
    format!("{} {} x depth {}", key.caching, units::size(key.request_bytes), key.depth)
}

fn compared(from: &Seen<'_>, to: &Seen<'_>) -> String {
    format!(
        "{} gives {}, {} gives {}",
        setting(from),
        units::rate_mib(from.rate()),
        setting(to),
        units::rate_mib(to.rate())
    )
}

fn by_rate(id: &str, text: &str, from: &Seen<'_>, to: &Seen<'_>) -> Option<Advice> {
    let (rule, gain) = (rule(id), rate_gain(from, to)?);
    let setting = format!("{text} ({gain:.1} times)");
    Some(Advice {
        gain,
        gain_in: "throughput",
        evidence: compared(from, to),
        text: format!("{}: {setting}", rule.text),
        setting,
        how: rule.how,
        id: rule.id,
    })
}

/// From 4 KiB to the smallest size within 5% of the best, both at depth 1 and direct.
fn larger_requests(insight: &Insight<'_>, operation: &str) -> Option<Advice> {
    let curve = || {
        let direct = insight.sequential(operation).any(|s| s.point.key.is_direct());
        insight
            .sequential(operation)
            .filter(move |s| s.point.key.depth == 1 && s.point.key.is_direct() == direct)
    };
    let from = curve().find(|s| s.point.key.request_bytes == 4096)?;
    let top = curve().map(Seen::rate).reduce(f64::max)?;
    let to =
        curve().filter(|s| s.rate() >= 0.95 * top).min_by_key(|s| s.point.key.request_bytes)?;
    let size = units::size(to.point.key.request_bytes);
    let text = format!("{operation}s of {size} instead of 4 KiB");
    by_rate("larger-requests", &text, from, to)
}

/// At 64 KiB, from depth 1 to the smallest depth within 5% of the best.
fn deeper_requests(insight: &Insight<'_>, operation: &str) -> Option<Advice> {
    let curve = || {
        insight
            .sequential(operation)
            .filter(|s| s.point.key.is_direct() && s.point.key.request_bytes == 64 << 10)
    };
    let from = curve().find(|s| s.point.key.depth == 1)?;
    let top = curve().map(Seen::rate).reduce(f64::max)?;
    let to = curve().filter(|s| s.rate() >= 0.95 * top).min_by_key(|s| s.point.key.depth)?;
    let depth = to.point.key.depth;
    let text = format!("{depth} {operation}s of 64 KiB instead of one");
    by_rate("deeper-requests", &text, from, to)
}

fn deeper_random(insight: &Insight<'_>, operation: &str) -> Option<Advice> {
    let curve = insight.random(operation);
    let from = curve.iter().find(|s| s.point.key.depth == 1)?;
    let top = curve.iter().map(|s| s.rate()).reduce(f64::max)?;
    let to = curve.iter().find(|s| s.rate() >= 0.95 * top)?;
    let depth = to.point.key.depth;
    let text = format!("{depth} {operation}s of 8 KiB instead of one");
    by_rate("deeper-random", &text, from, to)
}

/// Buffered against direct at 1 MiB, the direct one at the best depth.
fn bypass_large(insight: &Insight<'_>, operation: &str) -> Option<Advice> {
    let from = insight.at(operation, "buffered", LARGE, 1)?;
    let direct = insight
        .sequential(operation)
        .filter(|s| s.point.key.is_direct() && s.point.key.request_bytes == LARGE);
    let to = direct.max_by(|a, b| a.rate().total_cmp(&b.rate()))?;
    let text = format!("{operation}s of 1 MiB");
    by_rate("bypass-cache-large", &text, from, to)
}

fn bypass_for_cpu(insight: &Insight<'_>, operation: &str) -> Option<Advice> {
    let from = insight.at(operation, "buffered", LARGE, 1)?;
    let to = insight.at(operation, "direct", LARGE, 1)?;
    let (high, low) = (from.summary.cpu_lower_ns?, to.summary.cpu_lower_ns?);
    let gain = high / low.max(1.0);
    let rule = rule("bypass-cache-cpu");
    let setting = format!("{operation}s of 1 MiB ({gain:.1} times less)");
    (gain >= 1.5).then(|| Advice {
        gain,
        gain_in: "CPU",
        text: format!("{}: {setting}", rule.text),
        setting,
        evidence: format!(
            "a MiB costs {} of CPU buffered and {} direct",
            units::time(high),
            units::time(low)
        ),
        how: rule.how,
        id: rule.id,
    })
}

/// The largest small size at which buffered beats direct, both one at a time.
fn buffer_small(insight: &Insight<'_>, operation: &str) -> Option<Advice> {
    let mut buffered: Vec<_> = insight
        .sequential(operation)
        .filter(|s| !s.point.key.is_direct() && s.point.key.request_bytes <= SMALL)
        .collect();
    buffered.sort_by_key(|s| std::cmp::Reverse(s.point.key.request_bytes));
    buffered.into_iter().find_map(|to| {
        let bytes = to.point.key.request_bytes;
        let from = insight.at(operation, "direct", bytes, 1)?;
        let text = format!("{operation}s of {}", units::size(bytes));
        by_rate("buffer-small", &text, from, to)
    })
}

fn huge_pages(insight: &Insight<'_>, operation: &str) -> Option<Advice> {
    let small = insight
        .seen
        .iter()
        .find(|s| s.point.key.has_small_pages() && s.point.key.operation() == operation)?;
    let key = &small.point.key;
    let huge = insight.at(operation, &key.caching, key.request_bytes, key.depth)?;
    let (rule, gain) = (rule("huge-page-buffers"), rate_gain(small, huge)?);
    let setting = format!("{operation}s of 1 MiB x depth {} ({gain:.1} times)", key.depth);
    Some(Advice {
        gain,
        gain_in: "throughput",
        text: format!("{}: {setting}", rule.text),
        setting,
        evidence: format!(
            "ordinary pages give {}, huge pages {}",
            units::rate_mib(small.rate()),
            units::rate_mib(huge.rate())
        ),
        how: rule.how,
        id: rule.id,
    })
}

fn keep_defaults(insight: &Insight<'_>) -> Advice {
    let rule = rule("keep-defaults");
    let evidence = match (insight.out_of_box("read"), insight.fastest("read")) {
        (Some(plain), Some(best)) => compared(plain, best),
        _ => "no measured change gains more than 10%".to_owned(),
    };
    Advice {
        id: rule.id,
        text: rule.text,
        setting: String::new(),
        how: rule.how,
        evidence,
        gain: 1.0,
        gain_in: "throughput",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::insight::tests::{evidence, made};

    #[test]
    fn the_table_is_well_formed_and_every_spoken_rule_is_in_it() {
        let rules = rules();
        let mut ids: Vec<&str> = rules.iter().map(|rule| rule.id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), rules.len(), "an id stands twice");
        for id in [
            "larger-requests",
            "deeper-requests",
            "deeper-random",
            "bypass-cache-large",
            "bypass-cache-cpu",
            "buffer-small",
            "huge-page-buffers",
            "keep-defaults",
        ] {
            assert_eq!(rule(id).experiment, "survey");
        }
        assert!(silent().iter().any(|(rule, _)| rule.id == "preallocate"));
    }

    #[test]
    fn a_device_with_a_fixed_cost_is_told_to_use_larger_and_deeper_requests() {
        let evidence = evidence();
        let found = of(&Insight::of(&evidence));
        let by_id = |id: &str| found.iter().find(|a| a.id == id);
        let larger = by_id("larger-requests").unwrap();
        assert!(larger.gain > 10.0, "{larger:?}");
        assert!(by_id("deeper-requests").is_some());
        assert!(by_id("bypass-cache-cpu").unwrap().gain > 10.0);
        assert!(found.windows(2).all(|pair| pair[0].gain >= pair[1].gain), "not ranked");
    }

    #[test]
    fn where_nothing_gains_the_advice_is_to_keep_the_defaults() {
        let mut evidence = evidence();
        evidence.points = [4_u64 << 10, 64 << 10, 1 << 20]
            .iter()
            .flat_map(|size| {
                ["direct", "buffered"].map(|mode| made("read", mode, *size, 1, (1e9, 1000.0)))
            })
            .collect();
        let found = of(&Insight::of(&evidence));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].id, "keep-defaults");
    }

    #[test]
    fn a_gain_within_the_noise_is_not_advised() {
        let mut evidence = evidence();
        for point in &mut evidence.points {
            for (trial, noise) in point.trials.iter_mut().zip([1, 10, 200]) {
                trial.elapsed_ns = trial.elapsed_ns * noise / 10;
            }
        }
        let found = of(&Insight::of(&evidence));
        assert!(found.iter().all(|a| a.gain_in == "CPU" || a.id == "keep-defaults"), "{found:?}");
    }
}
