//! The charts of a plan. A chart plots a quantity over the values of one flag, with a separate line
//! for each value of other flags.
//!
//! The plan specifies the quantity and the flags by name. `check` refuses unknown names.

use lab::evidence::{Evidence, MeasuredPoint};
use lab::experiment::parameters;
use lab::failure::{Failure, Outcome};
use report::model::{Axis, Chart, Kind, Point, Scale, Series};
use report::units::Unit;

use crate::plan::{FigurePlan, Plan, Words};

/// A value, and the lower and the upper end of its interval. The ends are None if the value has no
/// interval.
type Value = (f64, Option<f64>, Option<f64>);

/// A quantity that a chart can plot on the y axis.
pub struct Metric {
    /// Name of the quantity in a plan, such as `iops`.
    pub name: &'static str,
    /// Label of the quantity on the axis.
    pub label: &'static str,
    unit: Unit,
    of: fn(&MeasuredPoint) -> Option<Value>,
}

/// All quantities that the y axis can show.
pub const METRICS: &[Metric] = &[
    Metric {
        name: "throughput",
        label: "Throughput",
        unit: Unit::BytesPerSecond,
        of: |point| {
            let rate = point.summary.bytes_per_s;
            Some((rate.value, Some(rate.low), Some(rate.high)))
        },
    },
    Metric {
        name: "iops",
        label: "Requests per second",
        unit: Unit::PerSecond,
        of: |point| {
            let rate = point.summary.requests_per_s;
            Some((rate.value, Some(rate.low), Some(rate.high)))
        },
    },
    Metric {
        name: "latency",
        label: "Median latency",
        unit: Unit::Nanoseconds,
        of: |point| plain(point.latency_ns(0.5)),
    },
    Metric {
        name: "p99",
        label: "99th percentile latency",
        unit: Unit::Nanoseconds,
        of: |point| plain(point.latency_ns(0.99)),
    },
    Metric {
        name: "cpu-per-request",
        label: "CPU per request",
        unit: Unit::Nanoseconds,
        of: |point| plain(point.cpu_ns()),
    },
    Metric {
        name: "cpu-per-mib",
        label: "CPU per MiB",
        unit: Unit::Nanoseconds,
        of: |point| plain(point.cpu_ns().map(|ns| ns * (1 << 20) as f64 / point.bytes() as f64)),
    },
    Metric {
        name: "utilisation",
        label: "Share of one CPU",
        unit: Unit::Share,
        of: |point| plain(point.cpu_ns().map(|ns| ns * point.requests_per_s() / 1e9)),
    },
    Metric {
        name: "device-request",
        label: "Size of a device request",
        unit: Unit::Bytes,
        of: |point| plain(point.device_request_bytes()),
    },
];

fn plain(value: Option<f64>) -> Option<Value> {
    value.map(|value| (value, None, None))
}

/// Finds a quantity by its name in a plan.
pub fn metric(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

/// Names that a figure can use as axis or filter, in addition to the flags of `sweep`. The last
/// three are labels that built-in studies add.
const NOTED: [&str; 6] = ["part", "target", "disks", "caching", "at", "traced"];

/// Refuses figures with an unknown quantity or axis, or with a part that is not in the plan.
///
/// # Errors
/// A usage error with the title of the figure and the unknown name.
pub fn check(plan: &Plan) -> Outcome<()> {
    for figure in &plan.figures {
        let wrong = |what: String| Failure::usage(format!("figure {}: {what}", figure.title));
        if metric(&figure.y).is_none() {
            let names: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
            let names = names.join(", ");
            return Err(wrong(format!(
                "unknown quantity y = \"{}\"; use one of {names}",
                figure.y
            )));
        }
        let named = figure.by.iter().chain(figure.only.keys());
        if let Some(flag) = std::iter::once(&figure.x).chain(named).find(|flag| !is_known(flag)) {
            let others = "part, target, disks, caching";
            return Err(wrong(format!(
                "unknown axis '{flag}'; use a flag of halfpower sweep, written without --, or one \
                 of {others}"
            )));
        }
        let is_part = |name: &str| plan.parts().any(|part| part == name);
        if let Some(words) = figure.only.get("part").filter(|words| !words.any(is_part)) {
            let names: Vec<&str> = plan.parts().collect();
            let asked = match words {
                Words::One(one) => one.clone(),
                Words::Any(any) => any.join(", "),
            };
            let known = names.join(", ");
            return Err(wrong(format!("the plan has no part '{asked}'; its parts are {known}")));
        }
    }
    Ok(())
}

fn is_known(flag: &str) -> bool {
    NOTED.contains(&flag) || parameters::named(flag).is_some_and(|parameter| parameter.name == flag)
}

/// Builds the chart of a figure. None if no point of the figure was measured.
pub fn chart(id: String, plan: &FigurePlan, evidence: &Evidence) -> Option<Chart> {
    let metric = metric(&plan.y)?;
    let shown = |point: &&MeasuredPoint| {
        plan.only.iter().all(|(flag, words)| words.any(|word| point.is(flag, word)))
    };
    let points: Vec<&MeasuredPoint> = evidence.usable().filter(shown).collect();
    let names = names_of(&points, &plan.x);
    let mut by = plan.by.clone();
    let several = points.iter().any(|point| point.target_index != points[0].target_index);
    if several && plan.x != "target" && !by.iter().any(|flag| flag == "target") {
        by.insert(0, "target".to_owned());
    }
    let mut series: Vec<Series> = Vec::new();
    for point in &points {
        let Some((y, low, high)) = (metric.of)(point) else { continue };
        let x = match &names {
            None => point.number(&plan.x).unwrap_or_default(),
            Some(names) => place_of(names, &point.word(&plan.x)),
        };
        let name = line_of(point, &by, &plan.y);
        let dot = Point { x, y, low, high, note: None };
        match series.iter_mut().find(|one| one.name == name) {
            Some(one) => one.points.push(dot),
            None => {
                series.push(Series { name, points: vec![dot], dashed: false, hue: None });
            }
        }
    }
    series.iter_mut().for_each(|one| one.points.sort_by(|a, b| a.x.total_cmp(&b.x)));
    let kind = if names.is_some() { Kind::Bars } else { Kind::Lines };
    let (unit, scale) = match names {
        Some(names) => (Unit::Count, Scale::Category(names)),
        None => x_axis(&plan.x, &series),
    };
    let y_scale = if plan.log { Scale::Log10 } else { Scale::Linear };
    (!series.is_empty()).then(|| Chart {
        id,
        title: plan.title.clone(),
        summary: format!("{} by {}.", metric.label, label_of(&plan.x).to_lowercase()),
        x: Axis { label: label_of(&plan.x), unit, scale },
        y: Axis { label: metric.label.to_owned(), unit: metric.unit, scale: y_scale },
        series,
        guides: Vec::new(),
        kind,
    })
}

/// Returns the categories of the x axis. None if the x axis shows numbers.
fn names_of(points: &[&MeasuredPoint], x: &str) -> Option<Vec<String>> {
    if points.iter().all(|point| point.number(x).is_some()) && !is_word(x) {
        return None;
    }
    let mut names = Vec::new();
    for word in points.iter().map(|point| point.word(x)) {
        if !names.contains(&word) {
            names.push(word);
        }
    }
    Some(names)
}

/// Checks whether the values of a flag are categories even if they look like numbers.
fn is_word(flag: &str) -> bool {
    matches!(flag, "part" | "target" | "direct" | "write-through" | "cpus-allowed")
}

fn place_of(names: &[String], word: &str) -> f64 {
    names.iter().position(|name| name == word).unwrap_or_default() as f64
}

/// Returns the unit and the scale of an x axis with numbers. The scale is logarithmic if all
/// numbers are positive and span more than a factor of four.
fn x_axis(flag: &str, series: &[Series]) -> (Unit, Scale) {
    let all = || series.iter().flat_map(|one| one.points.iter().map(|point| point.x));
    let (low, high) = (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max));
    let unit = match (flag, parameters::named(flag).map(|parameter| parameter.value_name)) {
        ("rate", _) => Unit::BytesPerSecond,
        (_, Some("SIZE")) => Unit::Bytes,
        _ => Unit::Count,
    };
    (unit, if low > 0.0 && high > 4.0 * low { Scale::Log2 } else { Scale::Linear })
}

/// Returns the axis label of a flag.
fn label_of(flag: &str) -> String {
    match flag {
        "bs" => "Request size".to_owned(),
        "iodepth" => "Depth".to_owned(),
        "numjobs" => "Threads".to_owned(),
        "rwmixread" => "Share of reads (percent)".to_owned(),
        "ioengine" => "I/O engine".to_owned(),
        "disks" => "Number of targets".to_owned(),
        "fdatasync" => "Writes per fdatasync".to_owned(),
        "at" => "Position (share of the target)".to_owned(),
        other => {
            let mut letters = other.chars();
            let first = letters.next().map(|c| c.to_ascii_uppercase());
            first.into_iter().chain(letters).collect()
        }
    }
}

/// Returns the name of the chart line to which a point belongs. A part whose name only repeats the
/// operation is left out: `write`, not `write, writes`.
fn line_of(point: &MeasuredPoint, by: &[String], y: &str) -> String {
    let operation = by.iter().find(|flag| *flag == "rw").map(|flag| point.word(flag));
    let plural = operation.map(|rw| format!("{}s", rw.replace("rand", "random ")));
    let repeats = |flag: &str| flag == "part" && plural == Some(point.word(flag));
    let shown = by.iter().filter(|flag| !repeats(flag));
    let words: Vec<String> = shown.map(|flag| with_unit(flag, point.word(flag))).collect();
    let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
    if words.is_empty() { y.to_owned() } else { words.join(", ") }
}

fn with_unit(flag: &str, word: String) -> String {
    match flag {
        "iodepth" => format!("depth {word}"),
        "numjobs" => format!("{word} threads"),
        "disks" if word == "1" => "1 target".to_owned(),
        "disks" => format!("{word} targets"),
        "part" | "target" | "rw" | "bs" | "caching" | "ioengine" | "hint" => word,
        other if word.is_empty() => other.to_owned(),
        other => format!("{other} {word}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::evidence::testing::{cell, evidence};

    fn figure(text: &str) -> FigurePlan {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_line_for_each_value_of_the_flags_named() {
        let evidence = evidence(vec![
            cell(4, &[("bs", "64k"), ("iodepth", "8")]),
            cell(2, &[("bs", "4k"), ("iodepth", "8")]),
            cell(1, &[("bs", "4k"), ("iodepth", "1")]),
        ]);
        let plan = figure("title = 't'\nx = 'bs'\ny = 'throughput'\nby = ['iodepth']");
        let chart = chart("c".to_owned(), &plan, &evidence).unwrap();
        let names: Vec<&str> = chart.series.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["depth 8", "depth 1"]);
        let points: Vec<(f64, f64)> =
            chart.series[0].points.iter().map(|point| (point.x, point.y)).collect();
        assert_eq!(points, [(4096.0, 2.0), (65536.0, 4.0)]);
        assert_eq!(chart.x.scale, Scale::Log2);
    }

    #[test]
    fn a_part_named_after_its_operation_is_left_out_of_the_legend() {
        let evidence = evidence(vec![
            cell(3, &[("part", "writes"), ("rw", "write"), ("bs", "4k")]),
            cell(2, &[("part", "random reads"), ("rw", "randread"), ("bs", "4k")]),
            cell(1, &[("part", "aligned"), ("rw", "write"), ("bs", "4k")]),
        ]);
        let plan = figure("title = 't'\nx = 'bs'\ny = 'throughput'\nby = ['rw', 'part']");
        let chart = chart("c".to_owned(), &plan, &evidence).unwrap();
        let names: Vec<&str> = chart.series.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["write", "randread", "write, aligned"]);
    }

    #[test]
    fn an_axis_of_sizes_is_in_bytes() {
        let cells = ["0", "128k", "4m"].map(|size| cell(1, &[("read-ahead", size)]));
        let plan = figure("title = 't'\nx = 'read-ahead'\ny = 'throughput'");
        let chart = chart("c".to_owned(), &plan, &evidence(cells.to_vec())).unwrap();
        assert_eq!(chart.x.unit, Unit::Bytes);
        assert_eq!(chart.series[0].points[2].x, 4_194_304.0);
    }

    #[test]
    fn words_become_bars_and_points_that_do_not_match_are_left_out() {
        let evidence = evidence(vec![
            cell(4, &[("part", "plain"), ("rw", "read")]),
            cell(2, &[("part", "hinted"), ("rw", "read")]),
            cell(1, &[("part", "hinted"), ("rw", "write")]),
        ]);
        let text = "title = 't'\nx = 'part'\ny = 'iops'\nwhere = {rw = 'read'}";
        let chart = chart("c".to_owned(), &figure(text), &evidence).unwrap();
        assert_eq!(chart.kind, Kind::Bars);
        assert_eq!(chart.series[0].points.len(), 2);
    }

    #[test]
    fn unknown_names_are_refused_with_the_known_ones() {
        let refused = |figure: &str| {
            let text = format!("[[part]]\nname = 'one'\n[[figure]]\ntitle = 'f'\n{figure}");
            check(&Plan::parse(&text).unwrap()).map_err(|failure| failure.message)
        };
        for (figure, words) in [
            ("x = 'blok'\ny = 'iops'", "unknown axis 'blok'"),
            ("x = 'bs'\ny = 'speed'", "use one of throughput, iops"),
            ("x = 'bs'\ny = 'iops'\nby = ['depth']", "unknown axis 'depth'"),
            ("x = 'bs'\ny = 'iops'\nwhere = {part = 'two'}", "its parts are one"),
        ] {
            let message = refused(figure).unwrap_err();
            assert!(message.starts_with("figure f: ") && message.contains(words), "{message}");
        }
        let good = "x = 'bs'\ny = 'iops'\nby = ['rw']\nwhere = {part = ['one', 'two']}";
        assert_eq!(refused(good), Ok(()));
    }

    #[test]
    fn a_figure_without_points_has_no_chart() {
        let plan = figure("title = 't'\nx = 'bs'\ny = 'p99'");
        assert!(chart("c".to_owned(), &plan, &Evidence::default()).is_none());
    }
}
