//! Formats the findings of a survey as sentences. The terminal, the JSON document and the page show
//! the same sentences.
//!
//! In these sentences, "the measured peak" is a measured rate, and "PAP" is a stated or advertised
//! rate.

use analysis::interval::Interval;
use analysis::units;
use ioengine::{Caching, EngineKind, Op};
use lab::check::Check;
use lab::evidence::MeasuredPoint;
use lab::point::State;
use lab::rank_trial;
use lab::terminal::wrapped;
use report::model::{Finding, Tone};

use crate::advice::{self, Advice};
use crate::insight::{Cost, Insight, OUT_OF_BOX_BYTES, Pap, PapBasis};
use crate::survey_data::SurveyData;
use crate::visits::SecondVisit;

/// Returns all findings, the most important first.
pub fn of(data: &SurveyData, insight: &Insight<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for operation in Op::ALL {
        found.extend(out_of_box(insight, operation));
        found.extend(best(insight, operation));
        found.extend(half_power(insight, operation));
    }
    found.extend(cpu(insight));
    found.extend(bottleneck(insight));
    found.extend(random(insight));
    found.extend(ranks(data, insight));
    found.extend(coverage(data));
    found.extend(doubtful(insight));
    found.extend(not_measured(data));
    found
}

fn finding(id: &str, tone: Tone, headline: String, detail: String) -> Finding {
    debug_assert!(explain::is_finding(id), "no topic for the finding {id}");
    Finding { id: id.to_owned(), headline, detail, tone }
}

fn out_of_box(insight: &Insight<'_>, operation: Op) -> Option<Finding> {
    let plain = insight.out_of_box(operation)?;
    let size = units::size(OUT_OF_BOX_BYTES);
    let pap = insight.pap_of(operation)?;
    let share = plain.rate() / pap;
    let tone = if share > 0.5 { Tone::Good } else { Tone::Warn };
    let cold = if operation == Op::Read { "cold " } else { "" };
    Some(finding(
        "out-of-box",
        tone,
        format!(
            "Out of the box ({cold}buffered {operation}s, {size}, one at a time): {}",
            units::rate(plain.rate())
        ),
        format!(
            "{:.0}% of {}, {}; {}",
            100.0 * share,
            peak_name(insight, operation),
            units::rate_mib(pap),
            range(&plain.summary.bytes_per_s, plain)
        ),
    ))
}

fn peak_name(insight: &Insight<'_>, operation: Op) -> &'static str {
    let mine = |pap: &&Pap| pap.operation == operation;
    match insight.pap.iter().find(mine).map(|pap| pap.basis) {
        Some(PapBasis::Measured { .. }) => "the measured peak",
        _ => "the peak (PAP)",
    }
}

fn best(insight: &Insight<'_>, operation: Op) -> Option<Finding> {
    let best = insight.best(operation)?;
    let gain = insight.out_of_box(operation).map(|plain| {
        let (from, to) = (&plain.summary.bytes_per_s, &best.summary.bytes_per_s);
        let half_width = from.half_width_relative() + to.half_width_relative();
        (best.rate() / plain.rate().max(1.0), half_width)
    });
    let times = match gain {
        Some((gain, half_width)) if gain >= 1.05 => {
            format!(", {} the out-of-box rate", units::times(gain, half_width))
        }
        _ => String::new(),
    };
    let interval = best.summary.bytes_per_s;
    let peak = insight.pap.iter().find(|pap| pap.operation == operation)?;
    let equal = equals(insight, operation, best).map(|words| format!("{words}; "));
    Some(finding(
        "best",
        Tone::Note,
        format!("Best {operation}s: {} with {}{times}", units::rate(best.rate()), best.setting()),
        format!(
            "{}{}; {} is {}",
            equal.unwrap_or_default(),
            range(&interval, best),
            peak_name(insight, operation),
            peak.source
        ),
    ))
}

/// Formats the interval of a rate. A single trial has no interval.
fn range(interval: &Interval, point: &MeasuredPoint) -> String {
    match point.point.unsoaked().len() {
        0 | 1 => "no interval (one trial)".to_owned(),
        _ => {
            let (low, high) = (units::rate_mib(interval.low), units::rate_mib(interval.high));
            format!("95% interval {low} to {high}")
        }
    }
}

/// Describes the settings that are as good as the best, and the rate of the fastest setting. None
/// if no other setting is as good as the best.
fn equals(insight: &Insight<'_>, operation: Op, best: &MeasuredPoint) -> Option<String> {
    let good = insight.as_good(operation);
    let alike: Vec<u64> = good
        .iter()
        .map(|point| point.key())
        .filter(|key| key.caching == best.key().caching && key.depth() == best.key().depth())
        .map(|key| key.request_bytes())
        .collect();
    let (least, most) = (alike.iter().min()?, alike.iter().max()?);
    let fastest = insight.fastest(operation)?;
    let rates = if fastest.rate() > best.rate() {
        format!("; the fastest is {} ({})", units::rate_mib(fastest.rate()), fastest.setting())
    } else {
        String::new()
    };
    let others = match good.len() - alike.len() {
        0 => String::new(),
        others => format!(" and {}", units::counted(others as u64, "other setting")),
    };
    match (good.len(), least == most) {
        (0 | 1, _) => None,
        (several, true) => {
            Some(format!("{several} settings are equally fast, within noise{rates}"))
        }
        (_, false) => Some(format!(
            "{} {} to {} at depth {}{others} are equally fast, within noise{rates}",
            best.key().caching,
            units::size(*least),
            units::size(*most),
            best.key().depth()
        )),
    }
}

/// If the measured and the fitted half-power size differ by more than this factor, the finding
/// states that the fit does not apply. A ratio of 4 is normal, because neighbouring sizes of the
/// grid differ by a factor of 4.
const MAX_SIZE_RATIO: f64 = 4.5;

fn half_power(insight: &Insight<'_>, operation: Op) -> Option<Finding> {
    let curves = || {
        insight
            .half_power
            .iter()
            .filter(|h| h.operation == operation && h.caching == Caching::Direct)
    };
    let sizes: Vec<String> = curves()
        .filter_map(|curve| {
            let measured = units::size(curve.measured?);
            let size = match curve.between {
                Some((perhaps, surely)) => {
                    format!("{} or {}", units::size(perhaps), units::size(surely))
                }
                None => measured,
            };
            Some(format!("{size} at depth {}", curve.depth))
        })
        .collect();
    let never: Vec<String> =
        curves().filter(|c| c.measured.is_none()).map(|c| c.depth.to_string()).collect();
    let headline = if sizes.is_empty() {
        if never.is_empty() {
            return None;
        }
        let best = best_share(insight, operation).unwrap_or_default();
        format!("Direct {operation}s never reach half of the peak{best}")
    } else {
        let never = match never.as_slice() {
            [] => String::new(),
            depths => format!(", but not at depth {}", depths.join(" or ")),
        };
        let sizes = sizes.join(", ");
        format!("Direct {operation}s reach half of the peak with requests of {sizes}{never}")
    };
    let one = curves().find(|curve| curve.depth == 1);
    let fit = one.and_then(|curve| {
        let fitted = curve.fitted?;
        let size = units::size(fitted.round() as u64);
        let text = format!(
            "at depth 1, the fit T = f + s S (time T, request size S) gives a half-power size of \
             {size}"
        );
        let Some(measured) = curve.measured else {
            return Some(format!("{text}, but the measured rates show no half-power size"));
        };
        let ratio = measured as f64 / fitted.max(1.0);
        Some(if (1.0 / MAX_SIZE_RATIO..=MAX_SIZE_RATIO).contains(&ratio) {
            text
        } else {
            format!(
                "{text}, far from the measured size, so the fit does not describe request \
                 times here"
            )
        })
    });
    let path = one.and_then(|curve| Some(curve.path?.text()));
    let doubt = curves().any(|curve| curve.between.is_some()).then(|| {
        "two sizes are given where the confidence interval of a rate includes half of the peak"
            .to_owned()
    });
    let detail: Vec<String> = [fit, path, doubt].into_iter().flatten().collect();
    Some(finding("half-power", Tone::Note, headline, detail.join("; ")))
}

/// Formats the highest direct rate as a share of the peak, with the setting that reached this rate.
fn best_share(insight: &Insight<'_>, operation: Op) -> Option<String> {
    let pap = insight.pap_of(operation)?;
    let direct = insight.curve(operation, true).into_iter();
    let best = direct.max_by(|a, b| a.rate().total_cmp(&b.rate()))?;
    let key = best.key();
    let (share, size) = (100.0 * best.rate() / pap, units::size(key.request_bytes()));
    Some(format!(" (best: {share:.0}%, at {size}, depth {})", key.depth()))
}

/// Returns whether a cost model is shown. Both costs of the model must be positive, and the model
/// must predict the measured cost of a 1 MiB request within a factor of 1.5.
pub fn shows_model(insight: &Insight<'_>, cost: &Cost) -> bool {
    let (fixed, per_kib) = (cost.model.fixed_ns.value, cost.model.marginal_ns_per_kib.value);
    let measured = insight.at(cost.operation, cost.caching, 1 << 20, 1);
    let measured = measured.and_then(|point| point.summary.cpu_lower_ns);
    let predicted = fixed + per_kib * 1024.0;
    let fits = measured.is_none_or(|ns| (0.67..=1.5).contains(&(predicted / ns.max(1.0))));
    fixed > 0.0 && per_kib > 0.0 && fits
}

/// Formats a range of times (ns). Returns a single figure if both bounds give the same text.
fn time_between(low: f64, high: f64) -> String {
    let (low, high) = (units::time(low), units::time(high));
    if low == high { low } else { format!("{low} to {high}") }
}

fn cpu(insight: &Insight<'_>) -> Option<Finding> {
    let cost = |caching: Caching| {
        insight.costs.iter().find(|cost| cost.operation == Op::Read && cost.caching == caching)
    };
    let words = |caching: Caching| {
        let cost = cost(caching)?;
        let (fixed, per_kib) = (cost.model.fixed_ns.value, cost.model.marginal_ns_per_kib.value);
        if shows_model(insight, cost) {
            let (fixed, per_mib) = (units::time(fixed), units::time(per_kib * 1024.0));
            return Some(format!("{caching} {fixed} per request + {per_mib} per MiB"));
        }
        let small = insight.at(Op::Read, caching, 4096, 1)?.summary.cpu_lower_ns?;
        let large = insight.at(Op::Read, caching, 1 << 20, 1)?.summary.cpu_lower_ns?;
        let (small, large) = (units::time(small), units::time(large));
        Some(format!("{caching} {small} for 4 KiB, {large} for 1 MiB"))
    };
    let both: Vec<String> =
        [Caching::Buffered, Caching::Direct].into_iter().filter_map(words).collect();
    if both.is_empty() {
        return None;
    }
    let upper: Vec<String> = [Caching::Buffered, Caching::Direct]
        .into_iter()
        .filter_map(|caching| {
            let point = insight.at(Op::Read, caching, OUT_OF_BOX_BYTES, 1)?;
            let (low, high) = (point.summary.cpu_lower_ns?, point.summary.cpu_upper_ns?);
            Some(format!("a {caching} 64 KiB read takes {} of CPU", time_between(low, high)))
        })
        .collect();
    let headline = format!("CPU time of reads: {}", both.join("; "));
    Some(finding("cpu", Tone::Note, headline, upper.join("; ")))
}

/// Returns the finding about what limits the fastest reads. The finding names a component only if
/// the measurements give evidence for this limit.
pub fn bottleneck(insight: &Insight<'_>) -> Option<Finding> {
    let fastest = insight.fastest(Op::Read)?;
    let (headline, detail) = match &insight.binding {
        Some(binding) => {
            let rung = &insight.rungs[binding.index];
            let component = match rung.component.as_str() {
                "device, reads" if fastest.key().is_issued_by(EngineKind::Network) => {
                    "the network, the server, or its device".to_owned()
                }
                "device, reads" => "the device, or a layer below it".to_owned(),
                other => format!("the {other}"),
            };
            let why = match rung.component.as_str() {
                "device, reads" => format!(
                    "{} settings reach the same rate, none exceeds it, and no other component is \
                     near its limit",
                    insight.as_good(Op::Read).len()
                ),
                _ => binding.reason.to_string(),
            };
            (format!("The limit of sequential reads is {component}"), why)
        }
        None => (
            "No limit of sequential reads was found: the rate still rises".to_owned(),
            format!("{} at {}", units::rate(fastest.rate()), fastest.setting()),
        ),
    };
    let (headline, detail) = match insight.simulated_limit {
        Some(limit) if limit.resource == "latency" => (
            "No limit of sequential reads was found: no component is busy all the time".to_owned(),
            limit.text(),
        ),
        Some(limit) => {
            let remark = far_below(insight, &limit.resource);
            let detail = [Some(limit.text()), remark].into_iter().flatten().collect::<Vec<_>>();
            (format!("The limit of sequential reads is {}", limit.resource), detail.join("; "))
        }
        None => (headline, detail),
    };
    let (headline, detail) = match fastest.summary.verdict.reason(Check::InMemory) {
        Some(reason) => {
            ("The limit of sequential reads is memory, not storage".to_owned(), reason.to_owned())
        }
        None => (headline, detail),
    };
    let (headline, detail) = match insight.cpu_quota {
        Some(cpus) => (
            "The limit of all rates here is the CPU quota of the control group".to_owned(),
            format!("the quota allows {cpus:.2} CPUs and throttled the survey; raise cpu.max"),
        ),
        None => (headline, detail),
    };
    let out = out_of_box_limit(insight);
    let detail = [Some(detail), out].into_iter().flatten().collect::<Vec<_>>().join("; ");
    Some(finding("bottleneck", Tone::Note, headline, detail))
}

/// If reads get less than this share of the advertised rate of the limiting link, the link may be
/// set up incorrectly.
const FAR_BELOW: f64 = 0.5;

/// Returns a remark if the fastest reads get far less than the component advertises.
fn far_below(insight: &Insight<'_>, component: &str) -> Option<String> {
    let named = insight.rungs.iter().find(|rung| rung.component == component)?;
    let advertised = named.pap_bytes_per_s?;
    let share = insight.fastest(Op::Read)?.rate() / advertised.max(1.0);
    (share < FAR_BELOW).then(|| {
        let (share, advertised) = (100.0 * share, units::rate_mb(advertised));
        format!(
            "reads get {share:.0}% of the {advertised} that {component} advertises: check the \
             speed of the link and its cable"
        )
    })
}

/// Explains whether CPU time or latency limits reads in the out-of-box setting. None if the
/// out-of-box setting is nearly as fast as the fastest setting, or if its CPU time is unknown.
fn out_of_box_limit(insight: &Insight<'_>) -> Option<String> {
    let plain = insight.out_of_box(Op::Read)?;
    let best = insight.fastest(Op::Read)?;
    if plain.rate() > 0.9 * best.rate() {
        return None;
    }
    let per_request_ns = plain.key().request_bytes() as f64 * 1e9 / plain.rate().max(1.0);
    let share = plain.summary.cpu_lower_ns? / per_request_ns;
    Some(if share > 0.8 {
        format!("out of the box, the CPU is the limit ({:.0}% of one CPU)", 100.0 * share)
    } else {
        format!(
            "out of the box, latency is the limit: with one request at a time, neither the CPU \
             ({:.0}% busy) nor the device is busy all the time",
            100.0 * share
        )
    })
}

fn random(insight: &Insight<'_>) -> Option<Finding> {
    let words = |operation: Op| {
        let curve = insight.random(operation);
        let (first, last) =
            (curve.first()?, curve.iter().max_by(|a, b| a.rate().total_cmp(&b.rate()))?);
        let iops = |point: &MeasuredPoint| units::count(point.summary.requests_per_s.value);
        let p99 = last.summary.latency.quantile(0.99)? as f64;
        Some(format!(
            "{operation}s {} requests/s one at a time, {} requests/s at depth {} (p99 {})",
            iops(first),
            iops(last),
            last.key().depth(),
            units::time(p99)
        ))
    };
    let both: Vec<String> = Op::ALL.into_iter().filter_map(words).collect();
    (!both.is_empty()).then(|| {
        let headline = format!("Random 8 KiB requests: {}", both.join("; "));
        finding("random", Tone::Note, headline, String::new())
    })
}

/// Formats how many points are suspect or invalid. None if all points are valid. Suspect and
/// invalid points affect the verdict on the survey only if their figures are shown.
pub fn in_doubt(insight: &Insight<'_>) -> Option<String> {
    let (suspect, invalid, all) = insight.doubtful();
    match (suspect, invalid) {
        (0, 0) => None,
        (suspect, 0) => Some(format!("{suspect} of {all} points {} suspect", are(suspect))),
        (0, invalid) => Some(format!("{invalid} of {all} points {} invalid", are(invalid))),
        (suspect, invalid) => Some(format!(
            "{suspect} of {all} points {} suspect, {invalid} {} invalid",
            are(suspect),
            are(invalid)
        )),
    }
}

fn are(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

fn doubtful(insight: &Insight<'_>) -> Option<Finding> {
    let headline = in_doubt(insight)?;
    let detail = "the page (table of points) and the JSON document give the reasons".to_owned();
    Some(finding("doubtful-points", Tone::Note, headline, detail))
}

/// Returns the finding about the ranks, which are processes that measure together. It compares the
/// slowest rank with the median rank in the best settings.
fn ranks(data: &SurveyData, insight: &Insight<'_>) -> Option<Finding> {
    let hosts = &data.facts.ranks;
    let mut names: Vec<&str> = hosts.iter().map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let slowest = |operation: Op| {
        let trial = insight.best(operation)?.point.trials.last()?;
        let [slowest, median, _] = rank_trial::summary(&trial.ranks)?.rank_bytes_per_s;
        let share = slowest / median.max(1.0);
        Some(format!("best {operation}s: the slowest rank has {share:.2} times the median rate"))
    };
    let slowest: Vec<String> = Op::ALL.into_iter().filter_map(slowest).collect();
    (!hosts.is_empty()).then(|| {
        finding(
            "ranks",
            Tone::Note,
            format!(
                "{} on {} ({}) measured together, each on a separate target; rates are sums \
                 over all ranks",
                units::counted(hosts.len() as u64, "rank"),
                units::counted(names.len() as u64, "host"),
                names.join(", ")
            ),
            slowest.join("; "),
        )
    })
}

/// Returns the finding about how much of the region was accessed, and whether a cache in the device
/// makes repeated reads faster.
fn coverage(data: &SurveyData) -> Option<Finding> {
    let facts = &data.facts;
    let visited = facts.visits.all_bytes();
    let (size, region) = (units::size(visited), units::size(facts.region_bytes));
    let headline = match visited as f64 / facts.region_bytes.max(1) as f64 {
        _ if visited == 0 => return None,
        share if share > 1.0 => format!(
            "Sequential trials covered the region ({region}) {share:.1} times; each trial accessed \
             the blocks whose last access was longest ago"
        ),
        _ => {
            format!(
                "Sequential trials never repeated a block: they covered {size} of a region of \
                 {region}"
            )
        }
    };
    let second = facts.second_visit.as_ref();
    let detail = match second.and_then(SecondVisit::times_faster) {
        Some(times) => format!(
            "the device has a cache: reading the same blocks again was {times:.1} times as fast"
        ),
        None if second.is_some() => {
            "no device cache was found: reading the same blocks again was no faster".to_owned()
        }
        None => String::new(),
    };
    Some(finding("coverage", Tone::Note, headline, detail))
}

fn not_measured(data: &SurveyData) -> Vec<Finding> {
    let mut found = Vec::new();
    let facts = &data.facts;
    let mut add = |headline: String, detail: &str| {
        found.push(finding("not-measured", Tone::Note, headline, detail.to_owned()));
    };
    if let Some(why) = &facts.not_written {
        add("Writes were not measured".to_owned(), why);
    }
    if let Some(why) = &facts.unordered_writes {
        add("Buffered and random writes were not measured".to_owned(), why);
    }
    if !facts.direct {
        add("Direct I/O was not measured".to_owned(), "the file system does not support it");
    }
    if let Some(why) = &facts.soaker_declined {
        add("The upper bound of the CPU cost was not measured".to_owned(), why);
    }
    found
}

/// Formats verdict, findings, charts and advice for the terminal.
pub fn text(data: &SurveyData, insight: &Insight<'_>, charts: &[Vec<String>]) -> String {
    let mut lines = Vec::new();
    let place = data.target().place();
    let verdict = &insight.verdict;
    let target = &data.target().name;
    lines.extend(wrapped("", &format!("{target} ({place}): {}", verdict.state.word())));
    if verdict.state != State::Valid {
        lines.extend(verdict.reasons.iter().flat_map(|reason| wrapped("  ! ", reason)));
    }
    lines.push(String::new());
    lines.push("Findings".to_owned());
    for found in of(data, insight) {
        lines.extend(wrapped("  - ", &format!("{} [{}]", found.headline, found.id)));
        lines.extend(wrapped("    ", &found.detail));
    }
    lines.push(String::new());
    for chart in charts {
        lines.extend_from_slice(chart);
        lines.push(String::new());
    }
    lines.extend(advice_text(insight));
    if let Some(floor) = data.facts.floor_ns_per_request {
        let floor = units::time(floor);
        let text = format!("Overhead of halfpower itself: {floor} of CPU time per request.");
        lines.extend(wrapped("", &text));
        lines.push(String::new());
    }
    lines.extend(in_short(insight));
    lines.join("\n")
}

/// Maximum number of pieces of advice on the terminal. The page shows all advice.
const ADVICE_MAX: usize = 5;

fn advice_text(insight: &Insight<'_>) -> Vec<String> {
    let today = match &insight.app {
        Some(app) => format!("your program's requests: {}", app.text()),
        None => "out-of-box requests: buffered, 64 KiB, one at a time".to_owned(),
    };
    let mut lines = wrapped("", &format!("Advice, largest gain first (compared with {today})"));
    let all = advice::of(insight);
    for (number, advice) in all.iter().take(ADVICE_MAX).enumerate() {
        let text = format!("{} [{}]", advice.text, advice.id);
        lines.extend(wrapped(&format!("{:>3}. ", number + 1), &text));
        lines.extend(wrapped("     ", &advice.evidence));
        if !advice.costs.is_empty() {
            lines.extend(wrapped("     costs: ", &advice.costs));
        }
        lines.extend(wrapped("     how: ", &advice.how));
    }
    if let Some(more) = all.len().checked_sub(ADVICE_MAX).filter(|more| *more > 0) {
        let more = units::counted(more as u64, "more piece");
        lines.extend(wrapped("     ", &format!("the page has {more} of advice")));
    }
    lines.push(String::new());
    lines
}

/// Formats the summary at the end of the text: the rates, what limits the rates, the most valuable
/// change, and whether the survey can be trusted.
fn in_short(insight: &Insight<'_>) -> Vec<String> {
    let speed = |operation: Op| {
        let best = units::rate_mib(insight.best(operation)?.rate());
        Some(match insight.out_of_box(operation) {
            Some(plain) => {
                let plain = units::rate_mib(plain.rate());
                format!("{operation}s {plain} out of the box, {best} at best")
            }
            None => format!("{operation}s {best} at best"),
        })
    };
    let speeds: Vec<String> = Op::ALL.into_iter().filter_map(speed).collect();
    let limit = bottleneck(insight).map(|found| found.headline);
    let change = advice::of(insight).first().map(|advice| match advice.setting.as_str() {
        "" => advice.text.clone(),
        _ => format!("{} ({})", advice::rule(&advice.id).text, gain(advice)),
    });
    let verdict = &insight.verdict;
    let trust = match verdict.reasons.as_slice() {
        [] => "valid: every figure above passed its checks".to_owned(),
        [reason] => format!("{}: {reason}", verdict.state.word()),
        [reason, more @ ..] => {
            let more = units::counted(more.len() as u64, "more reason");
            format!("{}: {reason}; see {more} above", verdict.state.word())
        }
    };
    let mut lines = vec!["In short".to_owned()];
    for (label, text) in [
        ("  speed   ", (!speeds.is_empty()).then(|| speeds.join("; "))),
        ("  limit   ", limit),
        ("  change  ", change),
        ("  trust   ", Some(trust)),
    ] {
        lines.extend(text.iter().flat_map(|text| wrapped(label, text)));
    }
    lines.extend(wrapped("  words   ", "halfpower explain WORD explains a word in [brackets]"));
    lines
}

/// Formats a gain, such as "3.4 times the throughput" or "2.0 times less CPU".
pub fn gain(advice: &Advice) -> String {
    match (advice.id.as_str(), advice.gain_in) {
        ("keep-defaults", _) => "no measured change gains more than 10%".to_owned(),
        (_, "CPU") => format!("{} less CPU", units::times(advice.gain, advice.half_width)),
        (_, what) => format!("{} the {what}", units::times(advice.gain, advice.half_width)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insight::tests::data;
    use lab::machine::LinkFacts;
    use lab::rank_trial::RankTrial;
    use lab::resource_usage::BindingDocument;

    #[test]
    fn the_text_has_every_finding() {
        let data = data();
        let insight = Insight::of(&data);
        let text = text(&data, &insight, &[]);
        for part in [
            "Out of the box",
            "Best reads",
            "half of the peak",
            "CPU time of reads",
            "limit",
            "1. ",
            "trust",
        ] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    }

    #[test]
    fn a_limiting_link_far_below_what_it_advertises_is_pointed_out() {
        // The example device reads 1 GB/s.
        for (advertised, is_far_below) in [(1.2e9, false), (4e9, true)] {
            let mut data = data();
            let limit =
                BindingDocument { resource: "SATA".to_owned(), utilisation: 0.99, held: None };
            for key in
                data.points().into_iter().map(|point| point.key.describe()).collect::<Vec<_>>()
            {
                data.facts.simulated_limits.insert(key, limit.clone());
            }
            data.evidence.targets[0].links = vec![LinkFacts {
                component: "SATA".to_owned(),
                bytes_per_s: advertised,
                source: String::new(),
            }];
            data.evidence.summarise();
            let found = bottleneck(&Insight::of(&data)).unwrap();
            assert_eq!(found.headline, "The limit of sequential reads is SATA");
            let remark = "25% of the 4000 MB/s that SATA advertises";
            assert_eq!(found.detail.contains(remark), is_far_below, "{}", found.detail);
        }
    }

    #[test]
    fn what_was_not_measured_is_reported_with_the_reason() {
        let mut data = data();
        data.facts.not_written = Some("no consent".to_owned());
        data.facts.soaker_declined = Some("a container".to_owned());
        data.evidence.summarise();
        let insight = Insight::of(&data);
        let found = of(&data, &insight);
        assert_eq!(found.iter().filter(|f| f.id == "not-measured").count(), 2);
    }

    #[test]
    fn ranks_are_named_with_the_slowest_of_them() {
        let mut data = data();
        assert!(of(&data, &Insight::of(&data)).iter().all(|found| found.id != "ranks"));
        data.facts.ranks = ["a", "b", "b"].map(str::to_owned).to_vec();
        let rank = |rank, bytes| RankTrial {
            rank,
            bytes,
            elapsed_ns: 1_000_000_000,
            ..RankTrial::default()
        };
        for point in data.points() {
            for trial in &mut point.trials {
                trial.ranks = vec![rank(0, 100), rank(1, 100), rank(2, 50)];
            }
        }
        data.evidence.summarise();
        let found = of(&data, &Insight::of(&data));
        let ranks = found.iter().find(|found| found.id == "ranks").unwrap();
        assert!(ranks.headline.starts_with("3 ranks on 2 hosts (a, b)"), "{}", ranks.headline);
        assert!(ranks.detail.contains("the slowest rank has 0.50 times"), "{}", ranks.detail);
    }

    #[test]
    fn equal_bounds_are_one_figure() {
        assert_eq!(time_between(32_200.0, 32_201.0), "32.2 us");
        assert_eq!(time_between(32_200.0, 80_700.0), "32.2 us to 80.7 us");
    }
}
