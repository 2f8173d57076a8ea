//! Builds the charts of a survey from its points.
//!
//! The points of a chart are grouped, for example by caching mode and queue depth. Each group
//! becomes a line. If there are too many lines for a chart, only an evenly spaced selection is
//! drawn. The table of all points contains the rest. A chart without lines is left out.

use crate::model::{Axis, Chart, Direction, Guide, Kind, Point, Scale, Series};
use crate::units::{Unit, bytes, rate};
use crate::view::{Estimate, Pattern, PointView, SurveyView};

/// Maximum number of combinations of caching mode and request size in a depth chart.
const SIZES_PER_CHART: usize = 4;

/// Minimum number of different depths in a depth curve.
const CURVE_POINTS: usize = 3;

const MIB: f64 = 1024.0 * 1024.0;

/// Builds a line chart from the series that have points. Returns `None` if no series has points.
pub(crate) fn lines(
    id: String,
    title: String,
    summary: String,
    (x, y): (Axis, Axis),
    series: Vec<Series>,
) -> Option<Chart> {
    let series: Vec<_> = series.into_iter().filter(|one| !one.points.is_empty()).collect();
    let guides = Vec::new();
    let chart = Chart { id, title, summary, x, y, series, guides, kind: Kind::Lines };
    (!chart.series.is_empty()).then_some(chart)
}

pub(crate) fn axis(label: &str, unit: Unit, scale: Scale) -> Axis {
    Axis { label: label.to_string(), unit, scale }
}

/// Returns the axis for request sizes.
pub(crate) fn size_axis() -> Axis {
    axis("Request size", Unit::Bytes, Scale::Log2)
}

fn depth_axis() -> Axis {
    axis("Depth", Unit::Count, Scale::Log2)
}

/// Returns the distinct values of `key`, in the order of the input.
pub(crate) fn distinct<T, K: PartialEq>(items: &[T], key: impl Fn(&T) -> K) -> Vec<K> {
    let mut keys = Vec::new();
    for item in items {
        let key = key(item);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

/// Converts text to an identifier, with lower case letters and hyphens.
pub(crate) fn slug(text: &str) -> String {
    let letters = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    text.chars().map(letters).collect()
}

fn sequential(view: &SurveyView) -> Vec<&PointView> {
    view.points.iter().filter(|point| point.pattern == Pattern::Sequential).collect()
}

/// Returns the operations of the sequential points, for example `read` and `write`.
pub(crate) fn operations(view: &SurveyView) -> Vec<&str> {
    distinct(&sequential(view), |point| point.operation.as_str())
}

fn interval_point(x: f64, estimate: Estimate) -> Point {
    let (low, high) = (Some(estimate.low), Some(estimate.high));
    Point { x, y: estimate.value, low, high, note: None }
}

/// Returns a line for each distinct key, with its points sorted by x. Lines whose caching mode
/// differs from that of the first point are dashed.
fn grouped<'a, K: PartialEq>(
    points: &[&'a PointView],
    key: impl Fn(&'a PointView) -> K,
    name: impl Fn(&'a PointView) -> String,
    point: impl Fn(&'a PointView) -> Option<Point>,
) -> Vec<Series> {
    let first_caching = points.first().map_or("", |point| point.caching.as_str());
    let mut series = Vec::new();
    for wanted in distinct(points, |one| key(one)) {
        let members: Vec<_> = points.iter().copied().filter(|one| key(one) == wanted).collect();
        let Some(first) = members.first() else { continue };
        let mut points: Vec<_> = members.iter().copied().filter_map(&point).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        let dashed = first.caching != first_caching;
        series.push(Series { name: name(first), points, dashed, hue: None });
    }
    series
}

/// Builds the chart of throughput against request size for one operation. Each combination of
/// caching mode, depth and number of threads is a line. Guides mark PAP, PAP/2 and a half-power
/// point.
pub(crate) fn throughput_against_size(view: &SurveyView, operation: &str) -> Option<Chart> {
    let mut points = sequential(view);
    points.retain(|point| point.operation == operation);
    points.sort_by_key(|point| (point.caching == "buffered", point.depth));
    let half_power = |point: &PointView| {
        let found = view.half_power.iter().any(|half| {
            half.operation == operation
                && half.caching == point.caching
                && half.depth == point.depth
                && half.measured_bytes == Some(point.request_bytes)
        });
        found.then(|| "half-power point".to_string())
    };
    let pap = view.pap.iter().find(|pap| pap.operation == operation);
    let pap = pap
        .map_or(String::new(), |pap| format!(" PAP: {}, {}.", rate(pap.bytes_per_s), pap.source));
    let series = grouped(
        &points,
        |point| (point.caching.as_str(), point.depth, point.threads),
        |point| line_name(point, &points),
        |point| {
            let placed = interval_point(point.request_bytes as f64, point.throughput_bytes_per_s);
            Some(Point { note: half_power(point), ..placed })
        },
    );
    let mut chart = lines(
        format!("throughput-{}", slug(operation)),
        format!("Sequential {operation}: throughput against request size"),
        format!("The rate rises with the request size until the line flattens.{pap}"),
        (size_axis(), axis("Throughput", Unit::BytesPerSecond, Scale::Linear)),
        series,
    )?;
    chart.guides = half_power_guides(view, operation);
    Some(chart)
}

fn line_name(point: &PointView, all: &[&PointView]) -> String {
    let threaded = all.iter().any(|other| other.threads != 1);
    let threads = if threaded { format!(", {} threads", point.threads) } else { String::new() };
    format!("{}, depth {}{threads}", point.caching, point.depth)
}

fn half_power_guides(view: &SurveyView, operation: &str) -> Vec<Guide> {
    let guide = |label: String, at, direction| Guide { label, at, direction };
    let pap = view.pap.iter().find(|pap| pap.operation == operation);
    let mut guides: Vec<_> = pap
        .into_iter()
        .flat_map(|pap| {
            let half = pap.bytes_per_s / 2.0;
            [
                guide("PAP".to_string(), pap.bytes_per_s, Direction::Horizontal),
                guide("PAP/2".to_string(), half, Direction::Horizontal),
            ]
        })
        .collect();
    // Only the half-power point of direct requests at the smallest depth gets a guide. At larger
    // depths, smaller requests already exceed PAP/2.
    let shallowest = view
        .half_power
        .iter()
        .filter(|half| half.operation == operation && half.measured_bytes.is_some())
        .min_by_key(|half| (half.caching == "buffered", half.depth));
    if let Some((half, at)) = shallowest.and_then(|half| Some((half, half.measured_bytes?))) {
        let (caching, depth, size) = (&half.caching, half.depth, bytes(at as f64));
        let label = format!("half-power point: {size} ({caching}, depth {depth})");
        guides.push(guide(label, at as f64, Direction::Vertical));
    }
    guides
}

/// Returns the points of the depth charts of one operation. Combinations of caching mode and
/// request size with too few depths are left out. An evenly spaced selection of the others is kept.
fn depth_curves<'a>(view: &'a SurveyView, operation: &str) -> Vec<&'a PointView> {
    let mut points = sequential(view);
    points.retain(|point| point.operation == operation);
    points.sort_by_key(|point| (point.caching == "buffered", point.request_bytes));
    let key = |point: &&PointView| (point.caching.clone(), point.request_bytes);
    let mut keys = distinct(&points, key);
    keys.retain(|wanted| {
        let members: Vec<_> = points.iter().filter(|point| key(point) == *wanted).collect();
        distinct(&members, |point| point.depth).len() >= CURVE_POINTS
    });
    let chosen = spread(&keys, SIZES_PER_CHART);
    points.retain(|point| chosen.contains(&&key(point)));
    points
}

/// Returns at most `limit` items, evenly spaced, including the first and the last item.
pub(crate) fn spread<T>(items: &[T], limit: usize) -> Vec<&T> {
    if items.len() <= limit || limit < 2 {
        return items.iter().take(limit).collect();
    }
    (0..limit).map(|index| &items[index * (items.len() - 1) / (limit - 1)]).collect()
}

/// Builds the charts of throughput and latency against depth for the sequential points of one
/// operation.
pub(crate) fn depth_charts(view: &SurveyView, operation: &str) -> Vec<Chart> {
    let points = depth_curves(view, operation);
    let name =
        |point: &PointView| format!("{}, {}", point.caching, bytes(point.request_bytes as f64));
    let key = |point: &PointView| (point.caching.clone(), point.request_bytes);
    let throughput = grouped(&points, key, name, |point| {
        Some(interval_point(f64::from(point.depth), point.throughput_bytes_per_s))
    });
    let throughput = lines(
        format!("depth-throughput-{}", slug(operation)),
        format!("Sequential {operation}: throughput against depth"),
        "The rate rises with depth until the device is saturated.".to_string(),
        (depth_axis(), axis("Throughput", Unit::BytesPerSecond, Scale::Linear)),
        throughput,
    );
    let latency = lines(
        format!("depth-latency-{}", slug(operation)),
        format!("Sequential {operation}: latency against depth"),
        "After saturation, more depth only adds latency. Dashed lines show the p99.".to_string(),
        (depth_axis(), axis("Latency", Unit::Nanoseconds, Scale::Log10)),
        latencies(&points, key, name),
    );
    throughput.into_iter().chain(latency).collect()
}

/// Returns two lines of the same colour for each key: a solid line for the median latency, and a
/// dashed line for the 99th percentile.
fn latencies<K: PartialEq>(
    points: &[&PointView],
    key: impl Fn(&PointView) -> K + Copy,
    name: impl Fn(&PointView) -> String + Copy,
) -> Vec<Series> {
    let quantile = |which: &'static str, value: fn(&PointView) -> Option<f64>| {
        grouped(
            points,
            key,
            move |point| format!("{}, {which}", name(point)),
            move |point| {
                let x = f64::from(point.depth);
                Some(Point { x, y: value(point)?, ..Point::default() })
            },
        )
    };
    let median = quantile("p50", |point| point.latency_p50_ns);
    pairs(median, quantile("p99", |point| point.latency_p99_ns))
}

/// Combines each solid series with the dashed series of the same index and gives both the same
/// colour.
pub(crate) fn pairs(solid: Vec<Series>, dashed: Vec<Series>) -> Vec<Series> {
    let pair = |(hue, (one, other))| {
        let hue = Some(hue);
        [Series { dashed: false, hue, ..one }, Series { dashed: true, hue, ..other }]
    };
    solid.into_iter().zip(dashed).enumerate().flat_map(pair).collect()
}

/// Builds the charts of requests per second and latency against depth, for the random points of
/// each request size.
pub(crate) fn random_charts(view: &SurveyView) -> Vec<Chart> {
    let random = view.points.iter().filter(|point| point.pattern == Pattern::Random);
    let mut random: Vec<_> = random.collect();
    random.sort_by_key(|point| point.caching == "buffered");
    let sizes = distinct(&random, |point| point.request_bytes);
    sizes.into_iter().flat_map(|size| random_size_charts(&random, size)).collect()
}

fn random_size_charts(random: &[&PointView], size_bytes: u64) -> Vec<Chart> {
    let of_size = random.iter().copied().filter(|point| point.request_bytes == size_bytes);
    let points: Vec<_> = of_size.collect();
    let key = |point: &PointView| (point.operation.clone(), point.caching.clone());
    let name = |point: &PointView| format!("{} {}", point.caching, point.operation);
    let rates = grouped(&points, key, name, |point| {
        Some(interval_point(f64::from(point.depth), point.requests_per_s))
    });
    let size = bytes(size_bytes as f64);
    let rate = lines(
        format!("random-rate-{}", slug(&size)),
        format!("Random {size}: requests per second against depth"),
        "Number of random requests per second at each queue depth.".to_string(),
        (depth_axis(), axis("Requests per second", Unit::PerSecond, Scale::Linear)),
        rates,
    );
    let latency = lines(
        format!("random-latency-{}", slug(&size)),
        format!("Random {size}: latency against depth"),
        "Latency of random requests at each queue depth. Solid lines show the median, dashed lines \
         the 99th percentile."
            .to_string(),
        (depth_axis(), axis("Latency", Unit::Nanoseconds, Scale::Log10)),
        latencies(&points, key, name),
    );
    rate.into_iter().chain(latency).collect()
}

/// Builds the charts of CPU time per request and per MiB against request size. Solid lines show the
/// CPU time of the process, dashed lines the CPU time of the whole machine. For each operation and
/// caching mode, only the depth with the most request sizes is shown.
pub(crate) fn cpu_charts(view: &SurveyView) -> Vec<Chart> {
    let points = cpu_points(view);
    let key = |point: &PointView| (point.operation.clone(), point.caching.clone());
    let bound = |which: &'static str, per_mib: bool, value: fn(&PointView) -> Option<f64>| {
        let name =
            move |point: &PointView| format!("{} {}, {which}", point.caching, point.operation);
        grouped(&points, key, name, move |point| {
            let x = point.request_bytes as f64;
            let y = value(point)? * if per_mib { MIB / x } else { 1.0 };
            let note = Some(format!("depth {}", point.depth));
            Some(Point { x, y, note, ..Point::default() })
        })
    };
    let chart = |id: &str, title: &str, per_mib: bool, summary: &str| {
        let lower = bound("lower", per_mib, |point| point.cpu_lower_ns_per_request);
        let upper = bound("upper", per_mib, |point| point.cpu_upper_ns_per_request);
        lines(
            id.to_string(),
            title.to_string(),
            summary.to_string(),
            (size_axis(), axis("CPU time", Unit::Nanoseconds, Scale::Log10)),
            pairs(lower, upper),
        )
    };
    let request = chart(
        "cpu-request",
        "CPU per request against request size",
        false,
        "A request needs a fixed CPU time and, if its data are copied, a CPU time for each byte.",
    );
    let mib = chart(
        "cpu-mib",
        "CPU per MiB against request size",
        true,
        "Larger requests spread the fixed cost over more bytes.",
    );
    request.into_iter().chain(mib).collect()
}

fn cpu_points(view: &SurveyView) -> Vec<&PointView> {
    let mut points = sequential(view);
    points.retain(|point| point.cpu_lower_ns_per_request.is_some());
    points.sort_by_key(|point| point.caching == "buffered");
    let key = |point: &&PointView| (point.operation.clone(), point.caching.clone());
    let mut chosen = Vec::new();
    for wanted in distinct(&points, key) {
        let group: Vec<_> = points.iter().copied().filter(|point| key(point) == wanted).collect();
        let sizes = |depth: u32| group.iter().filter(|point| point.depth == depth).count();
        let best =
            group.iter().map(|point| point.depth).max_by_key(|depth| (sizes(*depth), *depth));
        chosen.extend(group.iter().filter(|point| Some(point.depth) == best));
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::{empty, full, point};
    use crate::view::{HalfPowerView, PapView};

    fn names(chart: &Chart) -> Vec<&str> {
        chart.series.iter().map(|series| series.name.as_str()).collect()
    }

    fn with_points(points: Vec<PointView>) -> SurveyView {
        SurveyView { points, ..empty() }
    }

    #[test]
    fn throughput_has_a_line_for_each_caching_mode_and_depth_sorted_by_size() {
        let sizes = [65_536, 4096, 1 << 20];
        let buffered = sizes.map(|size| point("read", "buffered", size, 1));
        let direct = sizes.map(|size| point("read", "direct", size, 8));
        let other = [point("write", "direct", 4096, 1)];
        let view = with_points(buffered.into_iter().chain(direct).chain(other).collect());
        let chart = throughput_against_size(&view, "read").unwrap();
        assert_eq!(names(&chart), ["direct, depth 8", "buffered, depth 1"]);
        assert_eq!(chart.series.iter().map(|one| one.dashed).collect::<Vec<_>>(), [false, true]);
        let xs: Vec<_> = chart.series[0].points.iter().map(|point| point.x).collect();
        assert_eq!(xs, [4096.0, 65_536.0, 1_048_576.0]);
    }

    #[test]
    fn pap_its_half_and_the_smallest_half_power_size_are_marked() {
        let mut view = with_points(vec![point("read", "direct", 65_536, 8)]);
        view.pap =
            vec![PapView { operation: "read".into(), bytes_per_s: 4e9, source: "link".into() }];
        view.half_power = vec![HalfPowerView {
            operation: "read".into(),
            caching: "direct".into(),
            depth: 8,
            measured_bytes: Some(65_536),
            fitted_bytes: None,
            throughput_bytes_per_s: None,
            remark: String::new(),
        }];
        let chart = throughput_against_size(&view, "read").unwrap();
        let at: Vec<_> = chart.guides.iter().map(|guide| guide.at).collect();
        assert_eq!(at, [4e9, 2e9, 65_536.0]);
        assert!(chart.summary.ends_with(" PAP: 3,815 MiB/s (4,000 MB/s), link."));
        assert_eq!(chart.series[0].points[0].note.as_deref(), Some("half-power point"));
    }

    #[test]
    fn depth_charts_need_three_depths_and_draw_four_sizes_at_most() {
        let two = [1, 2].map(|depth| point("read", "direct", 4096, depth));
        assert!(depth_charts(&with_points(two.to_vec()), "read").is_empty());
        let many = (12..24).flat_map(|exponent| {
            [1, 2, 4].map(|depth| point("read", "direct", 1 << exponent, depth))
        });
        let charts = depth_charts(&with_points(many.collect()), "read");
        assert_eq!(charts.len(), 2);
        assert_eq!(charts[0].series.len(), 4);
        assert_eq!(names(&charts[0])[3], "direct, 8 MiB");
        assert_eq!(charts[1].series.len(), 8, "p50 and p99 of each");
    }

    #[test]
    fn cpu_bounds_share_a_hue_and_a_missing_upper_bound_leaves_no_line() {
        let sizes = [4096, 65_536];
        let mut points = sizes.map(|size| point("read", "direct", size, 8)).to_vec();
        let charts = cpu_charts(&with_points(points.clone()));
        assert_eq!(names(&charts[0]), ["direct read, lower", "direct read, upper"]);
        assert_eq!(charts[0].series[0].hue, charts[0].series[1].hue);
        assert_eq!(charts[1].series[0].points[0].y, 3e3 * 256.0);
        points.iter_mut().for_each(|point| point.cpu_upper_ns_per_request = None);
        assert_eq!(cpu_charts(&with_points(points))[0].series.len(), 1);
    }

    #[test]
    fn cpu_is_drawn_at_the_depth_with_most_sizes() {
        let mut points = [4096, 65_536].map(|size| point("read", "direct", size, 8)).to_vec();
        points.push(point("read", "direct", 4096, 64));
        let charts = cpu_charts(&with_points(points));
        assert_eq!(charts[0].series[0].points.len(), 2);
        assert_eq!(charts[0].series[0].points[0].note.as_deref(), Some("depth 8"));
    }

    #[test]
    fn random_points_get_charts_of_their_own() {
        let view = full("read");
        assert_eq!(random_charts(&view).len(), 2);
        let sequential = throughput_against_size(&view, "read").unwrap();
        assert!(sequential.series.iter().flat_map(|one| &one.points).all(|p| p.x != 8192.0));
    }

    #[test]
    fn a_spread_keeps_both_ends() {
        let items: Vec<_> = (0..10).collect();
        assert_eq!(spread(&items, 4), [&0, &3, &6, &9]);
        assert_eq!(spread(&items[..2], 4), [&0, &1]);
    }
}
