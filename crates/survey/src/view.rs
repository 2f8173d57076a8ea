//! Makes the page of a survey: converts data and conclusions into types of the crate `report`,
//! which renders these as HTML.

use analysis::interval::Interval;
use analysis::units;
use ioengine::{Caching, Op};
use lab::date;
use lab::evidence::MeasuredPoint;
use lab::json;
use lab::point::{State, Verdict};
use lab::terminal::{self, Charts};
use report::model::{self, KeyFigure};
use report::view::{
    CostModelView, DistributionView, Estimate, HalfPowerView, LadderView, PapView, Pattern,
    PointView, ResidualView, RungView, SurveyView, TimeSeriesView,
};
use serde::Serialize;

use crate::advice;
use crate::findings;
use crate::insight::{Insight, OUT_OF_BOX_BYTES};
use crate::survey_data::SurveyData;

/// Returns the page of a survey as HTML.
pub fn html(data: &SurveyData, insight: &Insight<'_>) -> String {
    report::render(&report::survey_page(&of(data, insight)))
}

/// Returns the charts for the terminal, each as a list of lines.
pub fn charts(data: &SurveyData, insight: &Insight<'_>, charts: Charts) -> Vec<Vec<String>> {
    let Some(charset) = charts.charset() else { return Vec::new() };
    let all = report::terminal_charts(&of(data, insight));
    all.iter().filter_map(|one| report::text_chart(one, terminal::width(), charset)).collect()
}

/// Returns the content of the page.
pub fn of(data: &SurveyData, insight: &Insight<'_>) -> SurveyView {
    let host = &data.evidence.host;
    let place = data.target().place();
    SurveyView {
        target: format!("{} ({place})", data.target().name),
        host: format!("{}, {}, Linux {}", host.name, host.cpu, host.kernel),
        date: format!("{} UTC", date::utc(data.started_unix_ns)),
        verdict: model::Verdict {
            in_doubt: findings::in_doubt(insight),
            ..verdict(&insight.verdict)
        },
        key_figures: key_figures(insight),
        findings: findings::of(data, insight),
        advice: advice::of(insight).iter().map(advice_of).collect(),
        rules_without_experiment: advice::silent()
            .into_iter()
            .map(|(rule, study)| format!("{} (halfpower study {study} measures this)", rule.text))
            .collect(),
        points: insight.seen.iter().filter(|s| !s.key().has_small_pages()).map(point).collect(),
        pap: insight
            .pap
            .iter()
            .map(|pap| PapView {
                operation: pap.operation.to_string(),
                bytes_per_s: pap.bytes_per_s,
                source: pap.source.clone(),
            })
            .collect(),
        half_power: half_power(insight),
        cost_models: cost_models(insight),
        distributions: distributions(insight),
        time_series: time_series(insight),
        ladder: ladder(insight),
        instrument: instrument(data),
        provenance: provenance(data),
    }
}

fn state(state: State) -> model::State {
    match state {
        State::Valid => model::State::Valid,
        State::Suspect => model::State::Suspect,
        State::Invalid => model::State::Invalid,
    }
}

/// Converts a verdict to the type that the page uses.
pub fn verdict(verdict: &Verdict) -> model::Verdict {
    let reasons = verdict.reasons.clone();
    model::Verdict { state: state(verdict.state), reasons, in_doubt: None }
}

/// Converts a piece of advice to the type that the page uses.
pub fn advice_of(advice: &advice::Advice) -> model::Advice {
    model::Advice {
        id: advice.id.clone(),
        text: advice.text.clone(),
        gain: findings::gain(advice),
        how: advice.how.clone(),
        evidence: match advice.costs.as_str() {
            "" => advice.evidence.clone(),
            costs => format!("{}; costs: {costs}", advice.evidence),
        },
    }
}

fn key_figures(insight: &Insight<'_>) -> Vec<KeyFigure> {
    let mut figures = Vec::new();
    let mut add = |label: String, value: String, note: String| {
        figures.push(KeyFigure { label, value, note });
    };
    for operation in Op::ALL {
        if let Some(plain) = insight.out_of_box(operation) {
            let size = units::size(OUT_OF_BOX_BYTES);
            let note = format!("buffered, {size}, one at a time");
            add(format!("Out-of-box {operation}"), units::rate_mib(plain.rate()), note);
        }
        if let Some(best) = insight.best(operation) {
            let key = best.key();
            let size = units::size(key.request_bytes());
            let note = format!("{}, {size} x depth {}", key.caching, key.depth());
            add(format!("Best {operation}"), units::rate_mib(best.rate()), note);
        }
    }
    let half = insight.half_power.iter().filter(|h| {
        h.operation == Op::Read && h.caching == Caching::Direct && h.measured.is_some()
    });
    if let Some(shallow) = half.min_by_key(|h| h.depth) {
        let size = units::size(shallow.measured.unwrap_or(0));
        add(
            "Half-power size of reads".to_owned(),
            size,
            format!("direct, depth {}", shallow.depth),
        );
    }
    if let Some(point) = insight.at(Op::Read, Caching::Direct, OUT_OF_BOX_BYTES, 1)
        && let Some(cost) = point.summary.cpu_lower_ns
    {
        let note = "direct 64 KiB read".to_owned();
        add("CPU per request".to_owned(), units::time(cost), note);
    }
    figures
}

fn estimate(interval: Interval) -> Estimate {
    Estimate { value: interval.value, low: interval.low, high: interval.high }
}

fn point(point: &MeasuredPoint) -> PointView {
    let (key, summary) = (point.key(), &point.summary);
    let quantile = |q| summary.latency.quantile(q).map(|ns| ns as f64);
    PointView {
        pattern: if key.is_random() { Pattern::Random } else { Pattern::Sequential },
        operation: key.operation().to_owned(),
        caching: key.caching.name().to_owned(),
        request_bytes: key.request_bytes(),
        depth: key.depth(),
        threads: key.threads(),
        throughput_bytes_per_s: estimate(summary.bytes_per_s),
        requests_per_s: estimate(summary.requests_per_s),
        latency_p50_ns: quantile(0.5),
        latency_p99_ns: quantile(0.99),
        latency_p99_9_ns: quantile(0.999),
        cpu_lower_ns_per_request: summary.cpu_lower_ns,
        cpu_upper_ns_per_request: summary.cpu_upper_ns,
        trials: point.point.trials.len() as u32,
        state: state(summary.verdict.state),
    }
}

fn half_power(insight: &Insight<'_>) -> Vec<HalfPowerView> {
    let view = |found: &crate::half_power::HalfPower| HalfPowerView {
        operation: found.operation.to_string(),
        caching: found.caching.name().to_owned(),
        depth: found.depth,
        measured_bytes: found.measured,
        fitted_bytes: found.fitted,
        throughput_bytes_per_s: found.rate,
        remark: found.reason.clone().or_else(|| found.in_doubt()).unwrap_or_default(),
    };
    insight.half_power.iter().map(view).collect()
}

fn cost_models(insight: &Insight<'_>) -> Vec<CostModelView> {
    let view = |cost: &crate::insight::Cost| CostModelView {
        operation: cost.operation.to_string(),
        caching: cost.caching.name().to_owned(),
        fixed_ns: estimate(cost.model.fixed_ns),
        marginal_ns_per_kib: estimate(cost.model.marginal_ns_per_kib),
        r2: cost.model.r2,
        residuals: cost
            .model
            .residuals
            .iter()
            .map(|residual| ResidualView {
                request_bytes: residual.request_bytes,
                measured_ns: residual.measured_ns,
                fitted_ns: residual.fitted_ns,
            })
            .collect(),
    };
    insight.costs.iter().map(view).collect()
}

/// Returns the latency distributions of random 8 KiB requests at every depth, and of the best
/// sequential settings.
fn distributions(insight: &Insight<'_>) -> Vec<DistributionView> {
    let mut chosen: Vec<&MeasuredPoint> = insight.random(Op::Read);
    chosen.extend(insight.random(Op::Write));
    for operation in Op::ALL {
        chosen.extend(insight.best(operation));
    }
    let view = |point: &&MeasuredPoint| DistributionView {
        name: name(point),
        cumulative: point.summary.latency.cumulative().collect(),
        requests: point.summary.latency.count(),
    };
    chosen.iter().map(view).collect()
}

fn name(point: &MeasuredPoint) -> String {
    let key = point.key();
    format!("{} {} {} x {}", key.caching, key.rw(), units::size(key.request_bytes()), key.depth())
}

/// Returns the rate over time of the best and of the out-of-box settings. If a setting has several
/// trials, the trial with the most intervals is used.
fn time_series(insight: &Insight<'_>) -> Vec<TimeSeriesView> {
    let chosen =
        Op::ALL.into_iter().flat_map(|op| [insight.best(op), insight.out_of_box(op)]).flatten();
    let view = |point: &MeasuredPoint| {
        let trial = point.point.unsoaked().into_iter().max_by_key(|t| t.series.len())?;
        // The last interval is incomplete, so it is left out.
        let whole = trial.series.len().saturating_sub(1);
        let samples = trial.series[..whole].iter().map(|point| {
            let end = point.start_ns.saturating_add(point.length_ns) as f64 / 1e9;
            (end, point.bytes as f64 * 1e9 / point.length_ns.max(1) as f64)
        });
        Some(TimeSeriesView { name: name(point), samples: samples.collect() })
    };
    chosen.filter_map(view).collect()
}

fn ladder(insight: &Insight<'_>) -> Option<LadderView> {
    let binding = insight.binding.as_ref().map(|binding| binding.index);
    let rung = |(index, rung): (usize, &analysis::ladder::Rung)| RungView {
        component: rung.component.clone(),
        pap_bytes_per_s: rung.pap_bytes_per_s,
        rap_bytes_per_s: rung.rap_bytes_per_s,
        binding: binding == Some(index),
    };
    let conclusion =
        findings::bottleneck(insight).map(|found| format!("{}: {}.", found.headline, found.detail));
    (!insight.rungs.is_empty()).then(|| LadderView {
        rungs: insight.rungs.iter().enumerate().map(rung).collect(),
        conclusion: conclusion.unwrap_or_default(),
    })
}

fn instrument(data: &SurveyData) -> Vec<(String, String)> {
    let facts = &data.facts;
    let mut rows = Vec::new();
    if let Some(floor) = facts.floor_ns_per_request {
        let name = "CPU per request on the null I/O engine, with full statistics";
        rows.push((name.to_owned(), units::time(floor)));
    }
    rows.push(("Bytes written by the survey".to_owned(), units::size(facts.written_bytes)));
    rows.push(("Duration".to_owned(), units::time(facts.elapsed_ns as f64)));
    rows.push(("Clock".to_owned(), data.evidence.host.clock.clone()));
    for missing in &facts.missing {
        rows.push(("Not available here".to_owned(), missing.clone()));
    }
    rows
}

#[derive(Serialize)]
struct RunView {
    halfpower: &'static str,
    seed: u64,
    region: String,
    points: usize,
    trials: usize,
}

fn provenance(data: &SurveyData) -> Vec<(String, Vec<(String, String)>)> {
    let seed = data.evidence.points.first().map_or(0, |point| point.key().seed());
    let run = RunView {
        halfpower: env!("CARGO_PKG_VERSION"),
        seed,
        region: units::size(data.facts.region_bytes),
        points: data.evidence.points.len(),
        trials: data.evidence.points.iter().map(|p| p.point.trials.len()).sum(),
    };
    vec![
        json::facts("Run", &run),
        json::facts("Host", &data.evidence.host),
        json::facts("Target", data.target()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insight::tests::data;
    use lab::point::SeriesPoint;

    #[test]
    fn the_page_of_a_survey_has_its_findings_and_charts() {
        let data = data();
        let html = html(&data, &Insight::of(&data));
        assert!(html.contains("Out of the box") && html.contains("<svg"));
        assert!(html.contains("Preallocate"));
    }

    #[test]
    fn a_survey_of_absurd_numbers_still_has_its_page() {
        let mut data = data();
        for point in data.points() {
            point.key.workload.request_bytes = u32::MAX;
            for trial in &mut point.trials {
                trial.directions[0].latency.record_n(1, u64::MAX);
                trial.directions[0].latency.record_n(1000, u64::MAX);
                let length_ns = i64::MAX as u64;
                let interval = SeriesPoint { start_ns: u64::MAX, length_ns, bytes: 1, requests: 1 };
                trial.series = vec![interval; 2];
            }
        }
        data.evidence.summarise();
        assert!(html(&data, &Insight::of(&data)).contains("<svg"));
    }
}
