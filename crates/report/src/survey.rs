//! Creates the page of a survey.
//!
//! The first sections show which request size and which queue depth an application should use. The
//! next sections show the evidence: CPU cost, latency, throughput over time, the rates of the
//! pipeline's components, and all points. The module `curves` builds the charts that need only the
//! points, and this module builds all other charts. Sections without data are left out.

use crate::curves::{
    axis, cpu_charts, depth_charts, distinct, lines, operations, pairs, random_charts, size_axis,
    throughput_against_size,
};
use crate::model::{
    Block, Cell, Chart, Column, Direction, Guide, Kind, POINTS_SECTION, Page, Point, Scale,
    Section, Series, Table,
};
use crate::percentiles::percentile_chart;
use crate::units::Unit;
use crate::view::{
    CostModelView, DistributionView, Estimate, LadderView, Pattern, PointView, ResidualView,
    RungView, SurveyView,
};

/// Creates the page of a survey, which [`crate::render`] turns into HTML.
pub fn survey_page(view: &SurveyView) -> Page {
    let subtitle: Vec<_> =
        [&view.host, &view.date].into_iter().filter(|text| !text.is_empty()).cloned().collect();
    let sections = [
        request_size(view),
        depth(view),
        random(view),
        cpu(view),
        latency(view),
        over_time(view),
        ladder(view),
        all_points(view),
        instrument(view),
        silent_rules(view),
    ];
    Page {
        title: view.target.clone(),
        subtitle: subtitle.join(" \u{b7} "),
        verdict: view.verdict.clone(),
        key_figures: view.key_figures.clone(),
        findings: view.findings.clone(),
        advice: view.advice.clone(),
        sections: sections.into_iter().flatten().collect(),
        provenance: view.provenance.clone(),
    }
}

/// Creates a section. Returns None if `blocks` is empty.
fn section(id: &str, title: &str, lead: &str, blocks: Vec<Block>) -> Option<Section> {
    let (id, title, lead) = (id.to_string(), title.to_string(), lead.to_string());
    (!blocks.is_empty()).then_some(Section { id, title, lead, blocks })
}

fn charts(charts: impl IntoIterator<Item = Chart>) -> Vec<Block> {
    charts.into_iter().map(Block::Chart).collect()
}

fn column(label: &str, unit: Unit) -> Column {
    Column { label: label.to_string(), unit: Some(unit) }
}

fn text_column(label: &str) -> Column {
    Column { label: label.to_string(), unit: None }
}

fn request_size(view: &SurveyView) -> Option<Section> {
    let operations = operations(view);
    let curves = operations.iter().filter_map(|name| throughput_against_size(view, name));
    let mut blocks = charts(curves);
    if !view.half_power.is_empty() {
        blocks.push(Block::Table(half_power_table(view)));
    }
    section(
        "request-size",
        "Request size",
        "The half-power point is the smallest request size that reaches more than half of the peak \
         advertised performance (PAP). Vertical bars are 95% confidence intervals of the median.",
        blocks,
    )
}

/// Returns the charts of a survey that a terminal shows: the throughput of sequential reads by
/// request size, and the latency distribution of random reads.
pub fn terminal_charts(view: &SurveyView) -> Vec<Chart> {
    let throughput = throughput_against_size(view, "read");
    let mut random = view.clone();
    random.distributions.retain(|one| one.name.contains("randread"));
    let sections = latency(&random).into_iter().flat_map(|section| section.blocks);
    let latencies = sections.filter_map(|block| match block {
        Block::Chart(chart) if chart.id == "latency-cdf" => Some(chart),
        _ => None,
    });
    throughput.into_iter().chain(latencies).collect()
}

fn half_power_table(view: &SurveyView) -> Table {
    let rows = view.half_power.iter().map(|half| {
        let pap = view.pap.iter().find(|pap| pap.operation == half.operation);
        vec![
            half.operation.as_str().into(),
            half.caching.as_str().into(),
            Cell::Number(f64::from(half.depth)),
            half.measured_bytes.map(|size| size as f64).into(),
            half.fitted_bytes.into(),
            half.throughput_bytes_per_s.into(),
            pap.map(|pap| pap.bytes_per_s).into(),
            half.remark.as_str().into(),
        ]
    });
    Table {
        id: "half-power".to_string(),
        caption: "Half-power points".to_string(),
        columns: vec![
            text_column("Operation"),
            text_column("Caching"),
            column("Depth", Unit::Count),
            column("Measured", Unit::Bytes),
            column("Fitted", Unit::Bytes),
            column("Throughput there", Unit::BytesPerSecond),
            column("PAP", Unit::BytesPerSecond),
            text_column("Remark"),
        ],
        rows: rows.collect(),
    }
}

fn depth(view: &SurveyView) -> Option<Section> {
    let operations = operations(view);
    section(
        "depth",
        "Queue depth",
        "Depth is the number of requests outstanding per thread. The charts show at most four \
         request sizes. The table of all points contains every size.",
        charts(operations.iter().flat_map(|name| depth_charts(view, name))),
    )
}

fn random(view: &SurveyView) -> Option<Section> {
    section("random", "Random access", "", charts(random_charts(view)))
}

fn cpu(view: &SurveyView) -> Option<Section> {
    let mut blocks = charts(cpu_charts(view));
    if !view.cost_models.is_empty() {
        blocks.extend(charts([cost_fit(view), cost_residuals(view)].into_iter().flatten()));
        blocks.push(Block::Table(cost_table(view)));
    }
    section(
        "cpu",
        "CPU cost",
        "The lower bound is the CPU time that the kernel charges to the process. The upper bound \
         is all CPU time that the machine spent because of the workload. The fit splits the cost \
         into a fixed part for each request and a marginal part for each KiB.",
        blocks,
    )
}

fn cost_name(model: &CostModelView) -> String {
    format!("{} {}", model.caching, model.operation)
}

fn cost_fit(view: &SurveyView) -> Option<Chart> {
    let series = |which: &str, value: fn(&ResidualView) -> f64| {
        let one = |model: &CostModelView| Series {
            name: format!("{}, {which}", cost_name(model)),
            points: model
                .residuals
                .iter()
                .map(|r| point(r.request_bytes as f64, value(r)))
                .collect(),
            dashed: false,
            hue: None,
        };
        view.cost_models.iter().map(one).collect::<Vec<_>>()
    };
    let measured = series("measured", |residual| residual.measured_ns);
    let fitted = series("fitted", |residual| residual.fitted_ns);
    let chart = lines(
        "cost-fit".to_string(),
        "Cost model: CPU per request".to_string(),
        "Points are measurements. Dashed lines are the fit (fixed + marginal cost).".to_string(),
        (size_axis(), axis("CPU time", Unit::Nanoseconds, Scale::Log10)),
        pairs(measured, fitted),
    )?;
    Some(Chart { kind: Kind::Scatter, ..chart })
}

fn cost_residuals(view: &SurveyView) -> Option<Chart> {
    let one = |model: &CostModelView| Series {
        name: cost_name(model),
        points: model
            .residuals
            .iter()
            .map(|r| point(r.request_bytes as f64, residual(r)))
            .collect(),
        dashed: false,
        hue: None,
    };
    let chart = lines(
        "cost-residuals".to_string(),
        "Cost model: residuals".to_string(),
        "Distance of each measured point from the fit. A trend means that the model is wrong."
            .to_string(),
        (size_axis(), axis("Residual", Unit::Share, Scale::Linear)),
        view.cost_models.iter().map(one).collect(),
    )?;
    let zero = Guide { label: String::new(), at: 0.0, direction: Direction::Horizontal };
    Some(Chart { kind: Kind::Scatter, guides: vec![zero], ..chart })
}

/// Returns the measured cost minus the fitted cost, as a share of the fitted cost. The result is
/// rounded, because the fit of a simulated system is exact and would otherwise show rounding errors
/// as residuals.
fn residual(of: &ResidualView) -> f64 {
    ((of.measured_ns / of.fitted_ns - 1.0) * 1e9).round() / 1e9
}

fn cost_table(view: &SurveyView) -> Table {
    let numbers = |one: Estimate| [one.value, one.low, one.high].map(Cell::Number);
    let rows = view.cost_models.iter().map(|model| {
        let names = [&model.operation, &model.caching].map(|name| name.as_str().into());
        let (fixed, marginal) = (numbers(model.fixed_ns), numbers(model.marginal_ns_per_kib));
        let r2 = [Cell::Number(model.r2)];
        names.into_iter().chain(fixed).chain(marginal).chain(r2).collect()
    });
    Table {
        id: "cost-model".to_string(),
        caption: "Cost model, with 95% intervals".to_string(),
        columns: vec![
            text_column("Operation"),
            text_column("Caching"),
            column("Fixed per request", Unit::Nanoseconds),
            column("Fixed, low", Unit::Nanoseconds),
            column("Fixed, high", Unit::Nanoseconds),
            column("Marginal per KiB", Unit::Nanoseconds),
            column("Marginal, low", Unit::Nanoseconds),
            column("Marginal, high", Unit::Nanoseconds),
            column("Variance explained", Unit::Share),
        ],
        rows: rows.collect(),
    }
}

fn point(x: f64, y: f64) -> Point {
    Point { x, y, ..Point::default() }
}

fn latency(view: &SurveyView) -> Option<Section> {
    let thinned: Vec<_> = view.distributions.iter().map(thinned).collect();
    let series = view.distributions.iter().zip(&thinned).map(|(distribution, points)| Series {
        name: distribution.name.clone(),
        points: points.iter().map(|(ns, share)| point(*ns, *share)).collect(),
        dashed: false,
        hue: None,
    });
    let cumulative = lines(
        "latency-cdf".to_string(),
        "Latency: cumulative distribution".to_string(),
        "Share of the requests whose latency is at most the value on the axis.".to_string(),
        (
            axis("Latency", Unit::Nanoseconds, Scale::Log10),
            axis("Share of requests", Unit::Share, Scale::Linear),
        ),
        series.collect(),
    );
    let cumulative = cumulative.map(|chart| Chart { kind: Kind::Steps, ..chart });
    let named = view
        .distributions
        .iter()
        .map(|one| (one.name.clone(), one.cumulative.as_slice(), one.requests));
    let curves = percentile_chart(
        "latency-percentiles",
        "Latency by percentile",
        "Latency of the slowest requests. At each point, the given percentage of all requests took \
         at most the given latency.",
        named,
    );
    section("latency", "Latency", "", charts(cumulative.into_iter().chain(curves)))
}

/// Thins out a distribution. A point is dropped if its share is less than 0.004 above the share of
/// the last kept point, because such a small step is not visible. The first and the last point are
/// always kept.
fn thinned(distribution: &DistributionView) -> Vec<(f64, f64)> {
    let all = &distribution.cumulative;
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for (index, (ns, share)) in all.iter().copied().enumerate() {
        let moved = kept.last().is_none_or(|(_, last)| share - last >= 0.004);
        if moved || index + 1 == all.len() {
            kept.push((ns, share));
        }
    }
    kept
}

fn over_time(view: &SurveyView) -> Option<Section> {
    let series = view.time_series.iter().map(|one| Series {
        name: one.name.clone(),
        points: one.samples.iter().map(|(seconds, rate)| point(*seconds, *rate)).collect(),
        dashed: false,
        hue: None,
    });
    let chart = lines(
        "throughput-over-time".to_string(),
        "Throughput within a trial".to_string(),
        "A flat line shows a steady rate. Causes of steps and slopes are caches that fill, \
         throttling, and other programs that use the device."
            .to_string(),
        (
            axis("Time since the start", Unit::Seconds, Scale::Linear),
            axis("Throughput", Unit::BytesPerSecond, Scale::Linear),
        ),
        series.collect(),
    );
    section("over-time", "Over time", "", charts(chart))
}

fn ladder(view: &SurveyView) -> Option<Section> {
    let ladder = view.ladder.as_ref().filter(|ladder| !ladder.rungs.is_empty())?;
    section("ladder", "The ladder", &ladder.conclusion, charts([ladder_chart(ladder)]))
}

fn ladder_chart(ladder: &LadderView) -> Chart {
    let series = |name: &str, dashed: bool, value: fn(&RungView) -> Option<f64>| {
        let points = ladder.rungs.iter().enumerate().filter_map(|(index, rung)| {
            let binds = rung.binding && !dashed;
            let note = binds.then(|| "binding".to_string());
            Some(Point { note, ..point(index as f64, value(rung)?) })
        });
        Series { name: name.to_string(), points: points.collect(), dashed, hue: Some(0) }
    };
    let names = ladder.rungs.iter().map(|rung| rung.component.clone()).collect();
    Chart {
        id: "ladder-chart".to_string(),
        title: "Advertised and delivered rate of each component".to_string(),
        summary: "The advertised and the delivered rate of each component, in pipeline order."
            .to_string(),
        x: axis("Component", Unit::Count, Scale::Category(names)),
        y: axis("Rate", Unit::BytesPerSecond, Scale::Linear),
        series: vec![
            series("advertised (PAP)", true, |rung| rung.pap_bytes_per_s),
            series("delivered (RAP)", false, |rung| rung.rap_bytes_per_s),
        ],
        guides: Vec::new(),
        kind: Kind::Bars,
    }
}

fn all_points(view: &SurveyView) -> Option<Section> {
    let threaded = view.points.iter().any(|point| point.threads != 1);
    let table = Table {
        id: "points".to_string(),
        caption: match (view.points.len(), threaded) {
            (count, true) => format!("{count} points"),
            (count, false) => format!("{count} points, one thread each"),
        },
        columns: point_columns(threaded),
        rows: view.points.iter().map(|point| point_row(point, threaded)).collect(),
    };
    let blocks = if view.points.is_empty() { Vec::new() } else { vec![Block::Table(table)] };
    section(POINTS_SECTION, "Every point", "Click a column heading to sort.", blocks)
}

/// Formats a point as a table row. The number of threads is left out if every point has one thread
/// (`threaded` is false), so that the table fits a screen.
fn point_row(point: &PointView, threaded: bool) -> Vec<Cell> {
    let throughput = point.throughput_bytes_per_s;
    let pattern = match point.pattern {
        Pattern::Sequential => "sequential",
        Pattern::Random => "random",
    };
    let mut row = vec![
        pattern.into(),
        point.operation.as_str().into(),
        point.caching.as_str().into(),
        Cell::Number(point.request_bytes as f64),
        Cell::Number(f64::from(point.depth)),
    ];
    row.extend(threaded.then(|| Cell::Number(f64::from(point.threads))));
    row.extend([
        Cell::Number(throughput.value),
        Cell::Number((throughput.high - throughput.low) / throughput.value / 2.0),
        Cell::Number(point.requests_per_s.value),
        point.latency_p50_ns.into(),
        point.latency_p99_ns.into(),
        point.latency_p99_9_ns.into(),
        point.cpu_lower_ns_per_request.into(),
        point.cpu_upper_ns_per_request.into(),
        Cell::Number(f64::from(point.trials)),
        point.state.word().into(),
    ]);
    row
}

fn point_columns(threaded: bool) -> Vec<Column> {
    let mut columns = vec![
        text_column("Pattern"),
        text_column("Operation"),
        text_column("Caching"),
        column("Request", Unit::Bytes),
        column("Depth", Unit::Count),
    ];
    columns.extend(threaded.then(|| column("Threads", Unit::Count)));
    columns.extend([
        column("Throughput", Unit::BytesPerSecond),
        column("\u{b1}", Unit::Share),
        column("Requests", Unit::PerSecond),
        column("p50", Unit::Nanoseconds),
        column("p99", Unit::Nanoseconds),
        column("p99.9", Unit::Nanoseconds),
        column("CPU, lower", Unit::Nanoseconds),
        column("CPU, upper", Unit::Nanoseconds),
        column("Trials", Unit::Count),
        text_column("Verdict"),
    ]);
    columns
}

fn instrument(view: &SurveyView) -> Option<Section> {
    let rows = view.instrument.iter();
    let rows = rows.map(|(name, value)| vec![name.as_str().into(), value.as_str().into()]);
    let table = Table {
        id: "instrument-cost".to_string(),
        caption: "Cost of measuring".to_string(),
        columns: vec![text_column("What"), text_column("Cost")],
        rows: rows.collect(),
    };
    let blocks = if table.rows.is_empty() { Vec::new() } else { vec![Block::Table(table)] };
    section(
        "instrument",
        "Overhead of halfpower",
        "CPU time of the load generator and its statistics. The results above include this time.",
        blocks,
    )
}

fn silent_rules(view: &SurveyView) -> Option<Section> {
    let rules = distinct(&view.rules_without_experiment, |rule| rule.clone());
    section(
        "silent-rules",
        "Not measured by a survey",
        "This page recommends a change only if the survey measured the gain. To measure the gain \
         of one of the rules below, run a study.",
        if rules.is_empty() { Vec::new() } else { vec![Block::List(rules)] },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::render;
    use crate::view::tests::{empty, estimate, full};

    fn ids(page: &Page) -> Vec<&str> {
        page.sections.iter().map(|section| section.id.as_str()).collect()
    }

    #[test]
    fn a_full_survey_has_every_section_and_an_empty_one_none() {
        let page = survey_page(&full("read"));
        let all = ["request-size", "depth", "random", "cpu", "latency", "over-time", "ladder"];
        let rest = ["all-points", "instrument", "silent-rules"];
        assert_eq!(ids(&page), [&all[..], &rest[..]].concat());
        assert!(survey_page(&empty()).sections.is_empty());
    }

    #[test]
    fn identifiers_are_unique_in_the_page() {
        let mut view = full("read");
        view.points.extend(full("write").points);
        let html = render(&survey_page(&view));
        let mut ids: Vec<_> =
            html.split(" id=\"").skip(1).map(|rest| rest.split('"').next()).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }

    #[test]
    fn every_point_is_in_the_table_of_all_points_with_its_threads_if_any_has_several() {
        let mut view = full("read");
        for threads in [1, 4] {
            view.points[0].threads = threads;
            let section = all_points(&view).unwrap();
            let Block::Table(table) = &section.blocks[0] else { panic!("a table was expected") };
            assert_eq!(table.rows.len(), view.points.len());
            assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
            let told = table.columns.iter().any(|column| column.label == "Threads");
            assert_eq!(told, threads > 1);
        }
    }

    #[test]
    fn numbers_that_are_none_do_not_break_the_page() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, 1e300] {
            let mut view = full("read");
            for point in &mut view.points {
                point.throughput_bytes_per_s = estimate(bad);
                point.requests_per_s = estimate(bad);
                point.latency_p50_ns = Some(bad);
                point.cpu_lower_ns_per_request = Some(bad);
            }
            view.pap[0].bytes_per_s = bad;
            view.cost_models[0].residuals[0].fitted_ns = bad;
            view.distributions[0].cumulative[1] = (bad, bad);
            view.time_series[0].samples[0] = (bad, bad);
            view.ladder.as_mut().unwrap().rungs[0].pap_bytes_per_s = Some(bad);
            let html = render(&survey_page(&view));
            let drawing = html.split("<script>").next().unwrap();
            assert!(!drawing.contains("NaN") && !drawing.contains(">inf"), "{bad}");
            assert!(!drawing.contains("=\"inf") && !drawing.contains(" inf"), "{bad}");
        }
    }

    #[test]
    fn the_percentile_curve_ends_where_its_requests_do() {
        let page = survey_page(&full("read"));
        let latency = page.sections.iter().find(|section| section.id == "latency").unwrap();
        let Block::Chart(curves) = &latency.blocks[1] else { panic!("a chart was expected") };
        let points = &curves.series[0].points;
        let (first, last) = (points.first().unwrap(), points.last().unwrap());
        assert_eq!((first.x, first.y), (0.5, 1e5));
        assert_eq!((last.x, last.y), (0.9999, 4e5));
    }

    #[test]
    fn rounding_errors_of_an_exact_fit_are_no_residuals() {
        let exact = ResidualView { request_bytes: 1, measured_ns: 0.1 + 0.2, fitted_ns: 0.3 };
        assert_eq!(residual(&exact), 0.0);
        assert!((residual(&ResidualView { fitted_ns: 0.2, ..exact }) - 0.5).abs() < 1e-6);
    }

    #[test]
    fn thinning_keeps_both_ends_and_bounds_the_length() {
        let share = |index: i32| (f64::from(index + 1), f64::from(index + 1) / 50_000.0);
        let name = String::new();
        let cumulative = (0..50_000).map(share).collect();
        let long = DistributionView { name, cumulative, requests: 50_000 };
        let kept = thinned(&long);
        assert!(kept.len() < 400, "{}", kept.len());
        assert_eq!(kept.first(), long.cumulative.first());
        assert_eq!(kept.last(), long.cumulative.last());
    }

    #[test]
    fn the_binding_component_is_marked_in_the_ladder() {
        let page = survey_page(&full("read"));
        let html = render(&page);
        assert!(html.contains(">binding</tspan>"));
    }
}
