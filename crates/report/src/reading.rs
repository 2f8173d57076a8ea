//! Generates the sentence that explains how to read a chart.
//!
//! The page shows the sentence below the chart's summary. The sentence is derived from the kind,
//! axes and data of the chart, so it cannot contradict the drawing.

use crate::model::{Chart, Kind, Scale};
use crate::units::Unit;

/// Returns one sentence that explains how to read `chart`.
pub(crate) fn reading(chart: &Chart) -> String {
    let mut parts = vec![marks(chart)];
    parts.extend(better(chart));
    parts.extend(scales(chart));
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let drawn = matches!(chart.kind, Kind::Lines | Kind::Scatter | Kind::Steps);
    if drawn && points().any(|point| point.low.is_some() && point.high.is_some()) {
        parts.push("thin vertical bars are 95% intervals".to_string());
    }
    let mut text = parts.join("; ");
    if let Some(first) = text.get(..1) {
        text = format!("{}{}", first.to_uppercase(), &text[1..]);
    }
    format!("{text}.")
}

/// Explains what one mark of the chart shows.
fn marks(chart: &Chart) -> String {
    let (x, y) = (in_sentence(&chart.x.label), in_sentence(&chart.y.label));
    match chart.kind {
        Kind::Lines => format!("each point shows the {y} at one {x}"),
        Kind::Scatter => format!("each dot shows the {y} at one {x}"),
        Kind::Bars => format!("each bar shows the {y} of one {x}"),
        Kind::HeatMap => "each cell covers a time interval and a latency range; a stronger colour \
                          means a larger share of the requests of that interval"
            .to_string(),
        Kind::Steps => format!("each curve shows the {y} at each {x} on the horizontal axis"),
    }
}

/// Returns a label for the middle of a sentence. Its first letter is lower case, unless the label
/// starts with an abbreviation.
fn in_sentence(label: &str) -> String {
    let mut letters = label.chars();
    let first = letters.next();
    let abbreviation = letters.clone().next().is_some_and(|c| !c.is_lowercase() && c != ' ');
    if abbreviation {
        return label.to_string();
    }
    first.into_iter().flat_map(char::to_lowercase).chain(letters).collect()
}

/// States whether higher or lower values are better. Returns None for step charts, for heat maps,
/// and for units other than rates and times.
fn better(chart: &Chart) -> Option<String> {
    let (more, less) = match chart.kind {
        Kind::Bars => ("longer is faster", "shorter is better"),
        Kind::Steps | Kind::HeatMap => return None,
        _ => ("higher is faster", "lower is better"),
    };
    match chart.y.unit {
        Unit::BytesPerSecond | Unit::PerSecond => Some(more.to_string()),
        Unit::Nanoseconds => Some(less.to_string()),
        _ => None,
    }
}

/// States which axes are logarithmic, or how to read a percentile axis. Returns None if there is
/// nothing to explain.
fn scales(chart: &Chart) -> Option<String> {
    let is_log = |scale: &Scale| matches!(scale, Scale::Log2 | Scale::Log10);
    if chart.x.scale == Scale::Percentile {
        return Some(
            "above 90%, the number of slower requests falls to a tenth from each tick to the next"
                .to_string(),
        );
    }
    let text = match (is_log(&chart.x.scale), is_log(&chart.y.scale)) {
        (true, true) => "both axes are logarithmic",
        (true, false) => "the horizontal axis is logarithmic",
        (false, true) if chart.kind == Kind::Bars => "bars are on a logarithmic scale",
        (false, true) => "the vertical axis is logarithmic",
        (false, false) => return None,
    };
    Some(text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Axis, Point, Series};

    fn chart(kind: Kind, y: Unit, scales: [Scale; 2], low: Option<f64>) -> Chart {
        let axis = |label: &str, unit, scale| Axis { label: label.to_string(), unit, scale };
        let [x_scale, y_scale] = scales;
        let point = Point { x: 1.0, y: 2.0, low, high: low.map(|_| 3.0), note: None };
        let series = Series { name: "a".into(), points: vec![point], dashed: false, hue: None };
        Chart {
            id: "c".to_string(),
            title: "C".to_string(),
            summary: "C.".to_string(),
            x: axis("Request size", Unit::Bytes, x_scale),
            y: axis("CPU time", y, y_scale),
            series: vec![series],
            guides: Vec::new(),
            kind,
        }
    }

    #[test]
    fn the_sentence_names_direction_scale_and_intervals_only_where_they_are() {
        let full = chart(Kind::Lines, Unit::Nanoseconds, [Scale::Log2, Scale::Linear], Some(1.0));
        assert_eq!(
            reading(&full),
            "Each point shows the CPU time at one request size; lower is better; the horizontal \
             axis is logarithmic; thin vertical bars are 95% intervals."
        );
        let plain = chart(Kind::Scatter, Unit::Share, [Scale::Linear, Scale::Linear], None);
        assert_eq!(reading(&plain), "Each dot shows the CPU time at one request size.");
    }

    #[test]
    fn every_kind_has_a_sentence() {
        for kind in [Kind::Lines, Kind::Scatter, Kind::Bars, Kind::Steps] {
            let text = reading(&chart(kind, Unit::Count, [Scale::Log2, Scale::Log10], None));
            assert!(text.ends_with('.') && text.contains("CPU time"), "{text}");
        }
    }
}
