//! Heat maps of latency over time. Each cell covers a range of latencies and a short time interval,
//! which this module calls a moment.
//!
//! [`latency_heat_map`] counts the requests in each cell. The shade of a cell shows its share of
//! the moment's requests. The map shows groups of requests, such as cache hits and cache misses,
//! which an average or a percentile over time would hide.

use maud::{Markup, html};

use crate::curves::axis;
use crate::model::{Chart, Kind, Point, Scale, Series};
use crate::scale::Projection;
use crate::svg::number;
use crate::units::Unit;

/// Number of moments. Each is about ten pixels wide on a screen.
const MOMENTS: usize = 48;
/// Number of latency ranges per factor of ten. With 8 ranges, the upper end of each range is 1.33
/// times its lower end.
const BANDS_PER_DECADE: f64 = 8.0;
/// Minimum opacity of a cell, so that the cell with the smallest share is still visible.
const FAINTEST: f64 = 0.14;

/// Builds a heat map of latency over time, with a series for each named list of requests. A request
/// is given as its completion time since the start of the trial and its latency (ns). Returns
/// `None` if there are no requests, or if all requests complete at the same time.
pub fn latency_heat_map(
    id: &str,
    title: &str,
    requests: impl IntoIterator<Item = (String, Vec<(u64, u64)>)>,
) -> Option<Chart> {
    let requests: Vec<_> = requests.into_iter().filter(|(_, list)| !list.is_empty()).collect();
    let all = || requests.iter().flat_map(|(_, list)| list);
    let (first, last) = (all().map(|one| one.0).min()?, all().map(|one| one.0).max()?);
    if first == last {
        return None;
    }
    let series = requests.iter().map(|(name, list)| Series {
        name: name.clone(),
        points: cells(list, first, last),
        dashed: false,
        hue: None,
    });
    Some(Chart {
        id: id.to_string(),
        title: title.to_string(),
        summary: "Distribution of latency over time. A horizontal stripe shows requests that were \
                  served in the same way, such as cache hits or cache misses."
            .to_string(),
        x: axis("Time since the start", Unit::Seconds, Scale::Linear),
        y: axis("Latency", Unit::Nanoseconds, Scale::Log10),
        series: series.collect(),
        guides: Vec::new(),
        kind: Kind::HeatMap,
    })
}

/// Returns the cells that contain requests, in the order of time.
fn cells(list: &[(u64, u64)], first: u64, last: u64) -> Vec<Point> {
    let width = (last - first) as f64 / MOMENTS as f64;
    let mut counts = std::collections::BTreeMap::<(usize, i32), u64>::new();
    let mut totals = [0_u64; MOMENTS];
    for (end, latency) in list {
        let moment = ((end - first) as f64 / width) as usize;
        let moment = moment.min(MOMENTS - 1);
        let band = (latency.max(&1).to_owned() as f64).log10() * BANDS_PER_DECADE;
        *counts.entry((moment, band.floor() as i32)).or_default() += 1;
        totals[moment] += 1;
    }
    let edge = |band: i32| 10f64.powf(f64::from(band) / BANDS_PER_DECADE);
    let cell = |((moment, band), count): ((usize, i32), u64)| Point {
        x: (first as f64 + moment as f64 * width) / 1e9,
        y: count as f64 / totals[moment] as f64,
        low: Some(edge(band)),
        high: Some(edge(band + 1)),
        note: None,
    };
    counts.into_iter().map(cell).collect()
}

/// Returns the width of a moment on the x axis. The width is the smallest distance between the
/// starts of two moments.
pub(crate) fn moment_width(chart: &Chart) -> f64 {
    let points = chart.series.iter().flat_map(|series| &series.points);
    let mut starts: Vec<f64> = points.map(|point| point.x).filter(|x| x.is_finite()).collect();
    starts.sort_by(f64::total_cmp);
    let steps = starts.windows(2).map(|pair| pair[1] - pair[0]);
    let span = starts.last().zip(starts.first()).map_or(1.0, |(last, first)| last - first);
    // The x values of cells of the same moment may differ by a rounding error.
    let step = steps.filter(|step| *step > span * 1e-6).fold(f64::INFINITY, f64::min);
    if step.is_finite() { step } else { 1.0 }
}

/// Draws the cells of a series. `first_row` is the row of its first cell in the data table.
pub(crate) fn shaded(
    chart: &Chart,
    series: &Series,
    (x, y): (&Projection, &Projection),
    first_row: usize,
) -> Markup {
    let points = chart.series.iter().flat_map(|one| &one.points);
    let largest = points.map(|point| point.y).filter(|y| y.is_finite()).fold(0.0, f64::max);
    let width = moment_width(chart);
    let place = |point: &Point| {
        let (left, right) = (x.position(point.x)?, x.position(point.x + width)?);
        let (bottom, top) = (y.position(point.low?)?, y.position(point.high?)?);
        let shade = (point.y / largest).sqrt();
        shade.is_finite().then_some((left, right, top, bottom, shade))
    };
    html! {
        @for (row, point) in series.points.iter().enumerate() {
            @if let Some((left, right, top, bottom, shade)) = place(point) {
                rect.mark.cell x=(number(left)) y=(number(top)) width=(number(right - left))
                    height=(number(bottom - top)) data-r=(first_row + row)
                    fill-opacity=(format!("{:.2}", FAINTEST + (1.0 - FAINTEST) * shade))
                    data-x=(number((left + right) / 2.0)) data-y=(number((top + bottom) / 2.0)) {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_groups() -> Vec<(u64, u64)> {
        let requests = (0..9_600_u64).flat_map(|index| {
            let end = index * 1_000_000;
            let slow = index >= 4_800 && index.is_multiple_of(4);
            [(end, if slow { 1_200_000 } else { 12_000 })]
        });
        requests.collect()
    }

    #[test]
    fn shares_of_a_moment_add_up_to_one_and_groups_stay_apart() {
        let chart = latency_heat_map("h", "H", [("read".to_string(), two_groups())]).unwrap();
        let points = &chart.series[0].points;
        let of = |at: f64| points.iter().filter(move |point| (point.x - at).abs() < 1e-6);
        let moments = crate::curves::distinct(points, |point| point.x.to_bits());
        assert_eq!(moments.len(), MOMENTS);
        for moment in moments.into_iter().map(f64::from_bits) {
            let sum: f64 = of(moment).map(|point| point.y).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{moment}: {sum}");
        }
        assert_eq!(of(points[0].x).count(), 1, "the first moment has one group");
        let last = points.last().unwrap();
        assert_eq!(of(last.x).count(), 2);
        assert!((last.y - 0.25).abs() < 0.02 && last.low < Some(1.2e6) && last.high > Some(1.2e6));
    }

    #[test]
    fn without_a_span_of_time_there_is_no_map() {
        assert!(latency_heat_map("h", "H", []).is_none());
        assert!(latency_heat_map("h", "H", [("read".to_string(), vec![(5, 9), (5, 8)])]).is_none());
    }
}
