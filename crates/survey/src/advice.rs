//! Ranks the advice of a survey. Advice consists of the rules of `advice.toml` whose gain the
//! survey measured.
//!
//! A rule gives advice only if two measured points differ by more than their intervals and by at
//! least [`GAIN_MIN`]. With `--app`, the gain is relative to the requests that the user's program
//! issues today. Without `--app`, it is relative to the out-of-box setting. Rules that only a study
//! can measure are listed with the name of the study.

use analysis::units;
use ioengine::{Caching, Op};
use lab::evidence::MeasuredPoint;
use lab::point::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::grid;
use crate::insight::{Insight, as_good};

/// Minimum gain at which a change of the user's program is advised (a factor).
pub const GAIN_MIN: f64 = 1.1;
/// Assumed relative half width of the interval of a ratio of two CPU times. The CPU time that the
/// kernel charges to a process varies by this much.
const CPU_SCATTER: f64 = 0.3;
/// A gain counts as equal to the greatest gain if it is at least this share of the greatest gain.
const SAME_GAIN: f64 = 1.0 / 1.5;
/// Request size at which the caching modes are compared (bytes).
const LARGE: u64 = grid::LARGE_BYTES as u64;
/// Maximum request size that counts as small (bytes).
const SMALL: u64 = 8 << 10;

/// A rule of advice: one entry of `advice.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Name of the rule.
    pub id: String,
    /// Paper and section that state the rule.
    pub paper: String,
    /// The rule as a sentence, in today's terms.
    pub text: String,
    /// How to follow the rule.
    pub how: String,
    /// `survey` if a survey measures the rule's gain, otherwise the name of the study that does.
    pub experiment: String,
}

/// A rule with its measured gain.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Advice {
    /// Name of the rule.
    pub id: String,
    /// The rule as a sentence, with the setting to use.
    pub text: String,
    /// The part of `text` with the setting and its gain, for example "reads of 1 MiB (2.6 times)".
    #[serde(skip)]
    pub setting: String,
    /// The measurements that show the gain.
    pub evidence: String,
    /// Measured costs of the change: memory, latency and CPU time. Empty if there are none.
    pub costs: String,
    /// Gain (a factor).
    pub gain: f64,
    /// Gain by which advice is ranked (a factor). For throughput, it is the median ratio of pairs
    /// of trials. The trials of a pair ran at about the same time.
    #[serde(skip)]
    pub rank_gain: f64,
    /// Half width of the interval of the gain, as a share of the gain.
    #[serde(skip)]
    pub half_width: f64,
    /// What improves: "throughput" or "CPU".
    pub gain_in: &'static str,
    /// How to follow the rule.
    pub how: String,
}

/// Returns all rules.
pub fn rules() -> Vec<Rule> {
    #[derive(Deserialize)]
    struct Table {
        rule: Vec<Rule>,
    }
    let table: Table =
        toml::from_str(include_str!("advice.toml")).expect("a test checks that the table is valid");
    table.rule
}

/// Returns the advice rules whose gain a survey cannot measure, each with the name of the study
/// that measures the gain.
pub fn silent() -> Vec<(Rule, String)> {
    let unmeasured = rules().into_iter().filter(|rule| rule.experiment != "survey");
    unmeasured.map(|rule| (rule.clone(), rule.experiment)).collect()
}

/// Returns at least one piece of advice for a survey. Advice that improves throughput precedes
/// advice that saves CPU time. Within each group, the greatest gain is first. A rule that applies
/// to both reads and writes gives only one piece of advice.
pub fn of(insight: &Insight<'_>) -> Vec<Advice> {
    type Condition = fn(&Insight<'_>, Op) -> Option<Advice>;
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
        let read = condition(insight, Op::Read);
        let write = condition(insight, Op::Write);
        match (read, write) {
            (Some(read), Some(write)) => Some(joined(read, &write)),
            (read, write) => read.or(write),
        }
    };
    let found: Vec<Advice> = conditions.into_iter().filter_map(both).collect();
    if found.is_empty() {
        return vec![keep_defaults(insight)];
    }
    ranked(found)
}

/// Puts advice that improves throughput before advice that saves CPU time, and sorts both groups by
/// descending gain. Gains that count as equal keep their order, so that repeated surveys give the
/// same order.
fn ranked(found: Vec<Advice>) -> Vec<Advice> {
    let (of_rate, of_cpu) = found.into_iter().partition(|advice| advice.gain_in != "CPU");
    [of_rate, of_cpu].into_iter().flat_map(by_gain).collect()
}

fn by_gain(mut left: Vec<Advice>) -> Vec<Advice> {
    let mut found = Vec::new();
    while let Some(most) = left.iter().map(|advice| advice.rank_gain).reduce(f64::max) {
        // The advice with the greatest gain always meets this condition, so a position is found.
        let next = left.iter().position(|advice| advice.rank_gain >= SAME_GAIN * most).unwrap_or(0);
        found.push(left.remove(next));
    }
    found
}

/// Joins the advice that one rule gives for reads with the advice that it gives for writes. The
/// result has the greater of the two gains.
fn joined(read: Advice, write: &Advice) -> Advice {
    Advice {
        text: format!("{}; {}", read.text, write.setting),
        setting: format!("{}; {}", read.setting, write.setting),
        evidence: format!("{}; {}", read.evidence, write.evidence),
        costs: match (read.costs.as_str(), write.costs.as_str()) {
            (of_reads, of_writes) if of_reads == of_writes => read.costs,
            (of_reads, "") => format!("reads: {of_reads}"),
            ("", of_writes) => format!("writes: {of_writes}"),
            (of_reads, of_writes) => format!("reads: {of_reads}; writes: {of_writes}"),
        },
        half_width: if read.gain >= write.gain { read.half_width } else { write.half_width },
        gain: read.gain.max(write.gain),
        rank_gain: read.rank_gain.max(write.rank_gain),
        ..read
    }
}

/// Returns the rule of advice with the name `id`.
///
/// # Panics
/// If the table of rules has no such rule.
pub fn rule(id: &str) -> Rule {
    let found = rules().into_iter().find(|rule| rule.id == id);
    found.expect("a test checks that the table has every rule with a condition")
}

#[derive(Clone, Copy, Debug)]
struct Gain {
    /// Ratio of the median rates.
    times: f64,
    /// Trials that ran at about the same time are paired. This is the median ratio of the pairs.
    paired_times: f64,
    /// Half width of the interval of `paired_times`, as a share of `paired_times`.
    half_width: f64,
}

/// Returns the gain in throughput from one point to another. None if the gain is not significant,
/// or if a point is invalid or has only one trial. For a simulated system, one trial is enough,
/// because a simulation has no noise.
fn rate_gain(from: &MeasuredPoint, to: &MeasuredPoint) -> Option<Gain> {
    let is_usable = |point: &MeasuredPoint| {
        point.summary.verdict.state != State::Invalid
            && (point.point.unsoaked().len() > 1 || point.key().is_simulated)
    };
    let (times, paired) = (to.rate() / from.rate().max(1.0), to.times(from));
    let is_gain = paired.low > 1.0 && times >= GAIN_MIN;
    let half_width = paired.half_width_relative();
    let gain = Gain { times, paired_times: paired.value, half_width };
    (is_gain && is_usable(from) && is_usable(to)).then_some(gain)
}

fn compared(from: &MeasuredPoint, to: &MeasuredPoint) -> String {
    format!(
        "{}: {}, {}: {}",
        from.setting(),
        units::rate_mib(from.rate()),
        to.setting(),
        units::rate_mib(to.rate())
    )
}

/// Ratio of the new to the old latency or CPU time above which the increase is listed as a cost.
const LARGER: f64 = 1.1;

/// Describes what a change from one setting to another costs the program: more memory for buffers,
/// a higher latency, or more CPU time. Empty if nothing increases.
fn costs(from: &MeasuredPoint, to: &MeasuredPoint) -> String {
    let buffers = |point: &MeasuredPoint| point.bytes() * u64::from(point.key().depth());
    let memory =
        (buffers(to) > buffers(from)).then(|| format!("{} of buffers", units::size(buffers(to))));
    let instead = |what: &str, of: &dyn Fn(&MeasuredPoint) -> Option<f64>| {
        let (before, after) = (of(from)?, of(to)?);
        let (then, now) = (units::time(before), units::time(after));
        (after > LARGER * before).then(|| format!("{what} {now} instead of {then}"))
    };
    let median = |point: &MeasuredPoint| point.latency_ns(0.5);
    let cpu_per_mib = |point: &MeasuredPoint| {
        Some(point.summary.cpu_lower_ns? * (1_u64 << 20) as f64 / point.bytes().max(1) as f64)
    };
    let latency = instead("a request takes", &median);
    let cpu = instead("CPU per MiB is", &cpu_per_mib);
    [memory, latency, cpu].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn by_rate(id: &str, text: &str, from: &MeasuredPoint, to: &MeasuredPoint) -> Option<Advice> {
    let (rule, gain) = (rule(id), rate_gain(from, to)?);
    let setting = format!("{text} ({})", units::times(gain.times, gain.half_width));
    Some(Advice {
        gain: gain.times,
        rank_gain: gain.paired_times,
        half_width: gain.half_width,
        gain_in: "throughput",
        evidence: compared(from, to),
        costs: costs(from, to),
        text: format!("{}: {setting}", rule.text),
        setting,
        how: rule.how,
        id: rule.id,
    })
}

/// Selects the settings that are, within noise, as fast as the fastest setting. Returns the
/// selected setting with the smallest `order`.
fn first_as_good<K: Ord>(
    curve: Vec<&MeasuredPoint>,
    order: impl Fn(&MeasuredPoint) -> K,
) -> Option<&MeasuredPoint> {
    as_good(curve).into_iter().min_by_key(|point| order(point))
}

/// Formats a setting, such as "direct 64 KiB one at a time".
fn setting_text(point: &MeasuredPoint) -> String {
    let key = point.key();
    let size = units::size(key.request_bytes());
    match key.depth() {
        1 => format!("{} {size} one at a time", key.caching),
        depth => format!("{} {size} x depth {depth}", key.caching),
    }
}

/// Advises larger requests at the same depth and caching mode.
fn larger_requests(insight: &Insight<'_>, operation: Op) -> Option<Advice> {
    let from = insight.today(operation)?;
    let (depth, direct) = (from.key().depth(), from.key().is_direct());
    let mut curve = insight.curve(operation, direct);
    curve.retain(|s| {
        s.key().depth() == depth && s.key().request_bytes() >= from.key().request_bytes()
    });
    let to = first_as_good(curve, |s| s.key().request_bytes())?;
    let size = units::size(to.key().request_bytes());
    let text = format!("{operation}s of {size} instead of {}", setting_text(from));
    by_rate("larger-requests", &text, from, to)
}

/// Advises a greater queue depth at the same request size. A greater depth needs direct I/O. None
/// if direct requests are as fast at depth 1 as at the greater depth: in this case, bypassing the
/// page cache gives the whole gain, and the depth gives none.
fn deeper_requests(insight: &Insight<'_>, operation: Op) -> Option<Advice> {
    let from = insight.today(operation)?;
    let bytes = from.key().request_bytes();
    let mut curve = insight.curve(operation, true);
    curve.retain(|s| s.key().request_bytes() == bytes);
    let to = first_as_good(curve, |s| s.key().depth())?;
    let (depth, size) = (to.key().depth(), units::size(bytes));
    let text = format!("{depth} direct {operation}s of {size} instead of {}", setting_text(from));
    let one = insight.at(operation, Caching::Direct, bytes, 1);
    let by_depth = one.is_none_or(|one| rate_gain(one, to).is_some());
    let is_deeper = depth > from.key().depth() && by_depth;
    is_deeper.then(|| by_rate("deeper-requests", &text, from, to)).flatten()
}

fn deeper_random(insight: &Insight<'_>, operation: Op) -> Option<Advice> {
    let curve = insight.random(operation);
    let from = *curve.iter().find(|s| s.key().depth() == 1)?;
    let to = first_as_good(curve, |s| s.key().depth())?;
    let depth = to.key().depth();
    let text = format!("{depth} {operation}s of 8 KiB instead of one");
    by_rate("deeper-random", &text, from, to)
}

/// Advises large direct requests instead of buffered requests of the same size and depth.
fn bypass_large(insight: &Insight<'_>, operation: Op) -> Option<Advice> {
    insight.today(operation).filter(|from| !from.key().is_direct())?;
    let from = insight.at(operation, Caching::Buffered, LARGE, 1)?;
    let to = insight.at(operation, Caching::Direct, LARGE, 1)?;
    let text = format!("direct {operation}s of 1 MiB instead of buffered ones");
    by_rate("bypass-cache-large", &text, from, to)
}

fn bypass_for_cpu(insight: &Insight<'_>, operation: Op) -> Option<Advice> {
    let from = insight.today(operation).filter(|from| !from.key().is_direct())?;
    let to = insight.at(operation, Caching::Direct, LARGE, 1)?;
    let of_mib = |point: &MeasuredPoint| {
        let requests = (1_u64 << 20) as f64 / point.key().request_bytes() as f64;
        Some(point.summary.cpu_lower_ns? * requests)
    };
    let (high, low) = (of_mib(from)?, of_mib(to)?);
    let gain = high / low.max(1.0);
    let rule = rule("bypass-cache-cpu");
    let times = units::times(gain, CPU_SCATTER);
    let setting =
        format!("{operation}s of 1 MiB instead of {} ({times} less CPU)", setting_text(from));
    (gain >= 1.5).then(|| Advice {
        gain,
        rank_gain: gain,
        half_width: CPU_SCATTER,
        gain_in: "CPU",
        text: format!("{}: {setting}", rule.text),
        setting,
        evidence: format!(
            "CPU per MiB with {}: {}, with {}: {}",
            from.setting(),
            units::time(high),
            to.setting(),
            units::time(low)
        ),
        costs: costs(from, to),
        how: rule.how,
        id: rule.id,
    })
}

/// Advises buffered I/O instead of direct I/O for small requests.
fn buffer_small(insight: &Insight<'_>, operation: Op) -> Option<Advice> {
    let from = insight.today(operation)?;
    let (bytes, direct) = (from.key().request_bytes(), from.key().is_direct());
    let to =
        insight.at(operation, Caching::Buffered, bytes, 1).filter(|_| direct && bytes <= SMALL)?;
    let text = format!("{operation}s of {}", units::size(bytes));
    by_rate("buffer-small", &text, from, to)
}

fn huge_pages(insight: &Insight<'_>, operation: Op) -> Option<Advice> {
    let small = insight
        .seen
        .iter()
        .find(|s| s.key().has_small_pages() && s.key().op() == Some(operation))?;
    let key = small.key();
    let huge = insight.at(operation, key.caching, key.request_bytes(), key.depth())?;
    let (rule, gain) = (rule("huge-page-buffers"), rate_gain(small, huge)?);
    let times = units::times(gain.times, gain.half_width);
    let setting = format!("{operation}s of 1 MiB x depth {} ({times})", key.depth());
    Some(Advice {
        gain: gain.times,
        rank_gain: gain.paired_times,
        half_width: gain.half_width,
        gain_in: "throughput",
        text: format!("{}: {setting}", rule.text),
        setting,
        evidence: format!(
            "{} with ordinary pages, {} with huge pages",
            units::rate_mib(small.rate()),
            units::rate_mib(huge.rate())
        ),
        costs: "each buffer takes a multiple of 2 MiB of memory".to_owned(),
        how: rule.how,
        id: rule.id,
    })
}

fn keep_defaults(insight: &Insight<'_>) -> Advice {
    let rule = rule("keep-defaults");
    let evidence = match (insight.out_of_box(Op::Read), insight.fastest(Op::Read)) {
        (Some(plain), Some(best)) => compared(plain, best),
        _ => "too few valid measurements to estimate the gain of a change".to_owned(),
    };
    Advice {
        id: rule.id,
        text: rule.text,
        setting: String::new(),
        how: rule.how,
        evidence,
        costs: String::new(),
        gain: 1.0,
        rank_gain: 1.0,
        half_width: 0.0,
        gain_in: "throughput",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::App;
    use crate::insight::tests::{data, point_of};
    use crate::survey_data::SurveyData;

    #[test]
    fn the_table_is_well_formed_and_has_every_rule_with_a_condition() {
        let rules = rules();
        let mut ids: Vec<&str> = rules.iter().map(|rule| rule.id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), rules.len(), "duplicate id");
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
    fn a_device_with_a_fixed_cost_per_request_gets_advice_to_go_deeper() {
        let data = data();
        let found = of(&Insight::of(&data));
        let by_id = |id: &str| found.iter().find(|a| a.id == id);
        // The rate is 600 MB/s out of the box, and 1 GB/s at depth 8.
        let deeper = by_id("deeper-requests").unwrap();
        assert!((deeper.gain / (1e9 / 6e8) - 1.0).abs() < 0.02, "{deeper:?}");
        assert!(deeper.text.contains("instead of buffered 64 KiB one at a time (1.7 times)"));
        assert!(by_id("larger-requests").is_none(), "the cache reads ahead at every size");
        assert!(by_id("bypass-cache-cpu").unwrap().gain > 10.0);
        let (of_rate, of_cpu): (Vec<&Advice>, Vec<&Advice>) =
            found.iter().partition(|advice| advice.gain_in != "CPU");
        for same in [&of_rate, &of_cpu] {
            assert!(same.windows(2).all(|pair| pair[0].gain >= SAME_GAIN * pair[1].gain));
        }
        assert!(found[..of_rate.len()].iter().all(|advice| advice.gain_in != "CPU"));
    }

    #[test]
    fn a_program_with_small_direct_requests_gets_advice_for_them() {
        let mut data = data();
        data.facts.app = Some(App { request_bytes: 4096, direct: true, depth: 1 });
        data.evidence.summarise();
        let found = of(&Insight::of(&data));
        let larger = found.iter().find(|a| a.id == "larger-requests").unwrap();
        assert!(larger.gain > 10.0, "{larger:?}");
        assert!(larger.text.contains("instead of direct 4 KiB one at a time"), "{larger:?}");
        assert!(found.iter().any(|a| a.id == "buffer-small"));
    }

    #[test]
    fn equal_gains_keep_their_order() {
        let mut data = data();
        let order = |data: &mut SurveyData| -> Vec<String> {
            data.evidence.summarise();
            of(&Insight::of(data)).into_iter().map(|advice| advice.id).collect()
        };
        let before = order(&mut data);
        for (index, point) in data.points().into_iter().enumerate() {
            for trial in &mut point.trials {
                trial.elapsed_ns = trial.elapsed_ns * (100 + index as u64 % 3) / 101;
            }
        }
        assert_eq!(order(&mut data), before);
    }

    /// Returns the advice of the rule `id` on the example device. If `other` is a request size and
    /// a rate, direct requests of this size have this rate at depth 1.
    fn advised(id: &str, other: Option<(u64, f64)>) -> Option<Advice> {
        let mut data = data();
        for (operation, (bytes, rate)) in Op::ALL.into_iter().zip(other.into_iter().cycle()) {
            let other = point_of(operation, Caching::Direct, bytes, 1, (rate, 7_000.0));
            let key = |p: &lab::point::Point| {
                (p.key.rw(), p.key.caching, p.key.request_bytes(), p.key.depth())
            };
            let wanted = key(&other);
            *data.points().into_iter().find(|p| key(p) == wanted).unwrap() = other;
        }
        data.evidence.summarise();
        of(&Insight::of(&data)).into_iter().find(|advice| advice.id == id)
    }

    #[test]
    fn bypassing_the_page_cache_is_compared_at_the_same_size_and_depth() {
        // Requests of 1 MiB at depth 1 reach 913 MB/s direct and 600 MB/s buffered. The rate at
        // greater depths must not matter.
        let gain = advised("bypass-cache-large", None).unwrap().gain;
        assert!((gain / 1.52 - 1.0).abs() < 0.02, "{gain}");
        assert_eq!(advised("bypass-cache-large", Some((LARGE, 6e8))), None);
    }

    #[test]
    fn more_outstanding_requests_are_advised_only_if_the_depth_gains() {
        assert!(advised("deeper-requests", None).is_some());
        // Here, one direct request at a time is as fast as eight.
        assert_eq!(advised("deeper-requests", Some((64 << 10, 1e9))), None);
    }

    #[test]
    fn single_trials_give_no_advice_on_throughput() {
        let mut data = data();
        data.points().into_iter().for_each(|point| point.trials.truncate(1));
        data.evidence.summarise();
        let found = of(&Insight::of(&data));
        assert!(found.iter().all(|advice| advice.gain_in == "CPU"), "{found:?}");
    }

    #[test]
    fn without_any_gain_the_advice_is_to_keep_the_defaults() {
        let mut data = data();
        data.evidence.points = [4_u64 << 10, 64 << 10, 1 << 20]
            .iter()
            .flat_map(|size| {
                [Caching::Direct, Caching::Buffered]
                    .map(|mode| point_of(Op::Read, mode, *size, 1, (1e9, *size as f64)))
            })
            .map(|point| MeasuredPoint::of(point, "t"))
            .collect();
        let found = of(&Insight::of(&data));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].id, "keep-defaults");
    }

    #[test]
    fn a_gain_within_the_noise_is_not_advised() {
        let mut data = data();
        for point in data.points() {
            for (trial, noise) in point.trials.iter_mut().zip([1, 10, 200]) {
                trial.elapsed_ns = trial.elapsed_ns * noise / 10;
            }
        }
        data.evidence.summarise();
        let found = of(&Insight::of(&data));
        assert!(found.iter().all(|a| a.gain_in == "CPU" || a.id == "keep-defaults"), "{found:?}");
    }
}
