//! Chooses what a survey measures next: points with wide intervals, and sizes where a curve bends.
//!
//! All functions depend only on the measurements so far, so the tests need no disk.

use analysis::bootstrap::median_interval;
use analysis::interval::CONFIDENCE;
use analysis::quantile::median;
use ioengine::BufferPages;
use workload::Pattern;

use crate::grid::{GridPoint, LARGE_BYTES, Limits, OUT_OF_BOX_BYTES, allowed};

/// A point needs no further trial if the relative half width of the confidence interval of its
/// median is at most 3%, the repeatability of the measurements in the papers.
const TARGET_HALF_WIDTH: f64 = 0.03;
/// A curve bends at a point if the point is farther than this from the line through its two
/// neighbours. Both axes are logarithmic (natural logarithm), so 0.15 is about 15% of the rate.
const BEND: f64 = 0.15;
/// Minimum relative half width assumed for the interval of a point with too few trials.
const FEW_HALF_WIDTH: f64 = 0.2;
/// Minimum rate of a point that may be the best point (share of the highest rate).
const NEAR_SHARE: f64 = 0.85;
/// Where a curve bends between two sizes, a new point is added only if the rate at the larger size
/// is at most this share of the peak rate.
const TOP_SHARE: f64 = 0.7;
/// Number of settings that the last rounds compare with the fastest setting. Of all fast settings,
/// the settings with the least data in flight are used.
const CONTENDERS: usize = 3;
/// Minimum rate of a setting that the last rounds compare (share of the fastest rate).
const CONTENDER_SHARE: f64 = 0.75;
/// Maximum number of trials of one point. More trials add little information.
const TRIALS_MAX: usize = 15;

/// A grid point with the rates of its trials without the soaker.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The grid point.
    pub spot: GridPoint,
    /// Rate of each trial [bytes per second].
    pub rates: Vec<f64>,
}

impl Measured {
    fn rate(&self) -> f64 {
        median(&self.rates).unwrap_or(0.0)
    }

    /// Returns the priority of a further trial of this point, or 0 if no further trial is needed.
    /// `peak` is the highest rate of the point's operation. The out-of-box point and points that
    /// may be the best have a higher priority, because users quote them.
    fn need(&self, peak: f64) -> f64 {
        let is_near = self.rate() >= NEAR_SHARE * peak;
        let (weight, trials_min) = match (self.spot.is_out_of_box(), is_near) {
            (true, _) => (4.0, 7),
            (false, true) => (2.0, 5),
            (false, false) => (1.0, 3),
        };
        if self.rates.len() >= TRIALS_MAX {
            return 0.0;
        }
        let interval = median_interval(&self.rates, CONFIDENCE);
        let width = interval.map_or(1.0, |interval| interval.half_width_relative());
        let is_few = self.rates.len() < trials_min;
        match (is_few, width > TARGET_HALF_WIDTH) {
            (true, _) => weight * width.max(FEW_HALF_WIDTH),
            (false, true) => weight * width,
            (false, false) => 0.0,
        }
    }
}

/// Returns new points at sizes between the measured sizes, where a curve bends or crosses half of
/// the peak. `pap` contains the peak rates of reads and of writes.
pub fn new_spots(measured: &[Measured], pap: [f64; 2], limits: &Limits) -> Vec<GridPoint> {
    let mut found: Vec<GridPoint> = Vec::new();
    for line in lines(measured) {
        let sequence: Vec<(&GridPoint, f64)> = line.iter().map(|m| (&m.spot, m.rate())).collect();
        for (index, pair) in sequence.windows(2).enumerate() {
            let ((low, low_rate), (high, high_rate)) = (pair[0], pair[1]);
            let half = pap[usize::from(low.write)] / 2.0;
            let crosses = low_rate <= half && high_rate > half;
            // At a bend near the highest rate, chance would decide whether a size is added. The
            // best size of one survey could then be missing from the next survey. Therefore, no
            // size is added there.
            let is_low = high_rate <= TOP_SHARE * 2.0 * half;
            let bends = is_low && (bends_at(&sequence, index) || bends_at(&sequence, index + 1));
            let gap = high.request_bytes / low.request_bytes;
            if gap > 2 && (crosses || bends) {
                let exponent = (low.request_bytes.ilog2() + high.request_bytes.ilog2()) / 2;
                found.push(GridPoint { request_bytes: 1 << exponent, ..*low });
            }
        }
    }
    found.retain(|spot| allowed(spot, limits) && !measured.iter().any(|m| m.spot == *spot));
    found
}

/// Groups the sequential points into curves over request size, one for each operation, caching mode
/// and depth. Each curve is in ascending order of size.
fn lines(measured: &[Measured]) -> Vec<Vec<&Measured>> {
    let mut lines: Vec<Vec<&Measured>> = Vec::new();
    let plain =
        |m: &&Measured| m.spot.pattern == Pattern::Sequential && m.spot.pages == BufferPages::Huge;
    for one in measured.iter().filter(plain) {
        let same = |line: &&mut Vec<&Measured>| {
            let first = line[0].spot;
            GridPoint { request_bytes: first.request_bytes, ..one.spot } == first
        };
        match lines.iter_mut().find(same) {
            Some(line) => line.push(one),
            None => lines.push(vec![one]),
        }
    }
    for line in &mut lines {
        line.sort_by_key(|m| m.spot.request_bytes);
    }
    lines
}

/// Returns whether a curve bends at a point. False for the first and the last point of a curve.
fn bends_at(sequence: &[(&GridPoint, f64)], index: usize) -> bool {
    let Some(around) = index.checked_sub(1).and_then(|from| sequence.get(from..from + 3)) else {
        return false;
    };
    let log =
        |(spot, rate): &(&GridPoint, f64)| (f64::from(spot.request_bytes).ln(), rate.max(1.0).ln());
    let ((x0, y0), (x1, y1), (x2, y2)) = (log(&around[0]), log(&around[1]), log(&around[2]));
    let expected = y0 + (y2 - y0) * (x1 - x0) / (x2 - x0);
    (y1 - expected).abs() > BEND
}

/// Returns the indices of the points on which conclusions depend: the out-of-box points, the points
/// that advice compares with them, and the settings that may be the best. The last rounds alternate
/// between all of these points, so that all are measured under the same conditions.
pub fn quoted(measured: &[Measured], pap: [f64; 2]) -> Vec<usize> {
    let mut found: Vec<usize> =
        (0..measured.len()).filter(|index| is_compared(&measured[*index].spot)).collect();
    for write in [false, true] {
        let is_sequential =
            |m: &Measured| m.spot.write == write && m.spot.pattern == Pattern::Sequential;
        let least = CONTENDER_SHARE * pap[usize::from(write)];
        let mut contenders: Vec<usize> = (0..measured.len())
            .filter(|index| is_sequential(&measured[*index]) && measured[*index].rate() >= least)
            .collect();
        let rate = |index: &usize| measured[*index].rate();
        let fastest = contenders.iter().copied().max_by(|a, b| rate(a).total_cmp(&rate(b)));
        let spot = |index: &usize| &measured[*index].spot;
        contenders.sort_by_key(|i| u64::from(spot(i).request_bytes) * u64::from(spot(i).depth));
        contenders.truncate(CONTENDERS);
        found.extend(contenders.into_iter().chain(fastest));
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Returns whether advice may compare this point with other points. Such points are sequential and
/// have one of the two sizes that advice uses.
fn is_compared(spot: &GridPoint) -> bool {
    let size = spot.request_bytes;
    spot.pattern == Pattern::Sequential && (size == OUT_OF_BOX_BYTES || size == LARGE_BYTES)
}

/// Returns the indices of up to `count` points that need further trials, in descending order of
/// priority. `pap` contains the highest rates of reads and of writes.
pub fn neediest(measured: &[Measured], pap: [f64; 2], count: usize) -> Vec<usize> {
    let need = |m: &Measured| m.need(pap[usize::from(m.spot.write)]);
    let mut needs: Vec<(usize, f64)> =
        measured.iter().enumerate().map(|(index, m)| (index, need(m))).collect();
    needs.retain(|(_, need)| *need > 0.0);
    needs.sort_by(|a, b| b.1.total_cmp(&a.1));
    needs.into_iter().take(count).map(|(index, _)| index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::sequential;
    use ioengine::Caching;

    fn limits() -> Limits {
        Limits {
            request_bytes_min: 512,
            region_bytes: 1 << 30,
            in_flight_bytes_max: 64 << 20,
            buffered: true,
            direct: true,
            write: true,
            zones: None,
        }
    }

    /// Returns measurements of a device at the given sizes, with three equal trials each. A request
    /// takes 100 us plus 1 ns per byte.
    fn device(sizes: &[u32]) -> Vec<Measured> {
        let rate = |size: u32| f64::from(size) / (100e-6 + f64::from(size) / 1e9);
        let measured = |size: &u32| Measured {
            spot: sequential(false, Caching::Direct, *size),
            rates: vec![rate(*size); 3],
        };
        sizes.iter().map(measured).collect()
    }

    #[test]
    fn the_crossing_of_half_power_is_narrowed_down() {
        // The half-power size is 100 kB, which is between 64 KiB and 256 KiB.
        let found =
            new_spots(&device(&[4 << 10, 64 << 10, 256 << 10, 1 << 20]), [1e9; 2], &limits());
        assert!(found.iter().any(|spot| spot.request_bytes == 128 << 10), "{found:?}");
    }

    #[test]
    fn a_straight_curve_gets_no_new_points() {
        let flat: Vec<Measured> = [4 << 10, 64 << 10, 1 << 20]
            .map(|size| Measured {
                spot: sequential(false, Caching::Direct, size),
                rates: vec![1e9; 3],
            })
            .into();
        assert!(new_spots(&flat, [1e9; 2], &limits()).is_empty());
    }

    #[test]
    fn noisy_points_come_first_and_settled_ones_not_at_all() {
        let mut measured = device(&[4 << 10, 64 << 10, 1 << 20]);
        measured[0].rates = vec![1.0; 6];
        measured[1].rates = vec![1.0, 1.1, 1.2];
        measured[2].rates = vec![1.0, 2.0, 3.0];
        assert_eq!(neediest(&measured, [f64::MAX; 2], 10), [2, 1]);
        assert_eq!(neediest(&measured, [f64::MAX; 2], 1), [2]);
    }

    #[test]
    fn the_out_of_box_point_comes_before_those_near_the_top_and_both_get_more_trials() {
        let mut measured = device(&[4 << 10, 64 << 10, 1 << 20]);
        measured[0].spot = sequential(false, Caching::Buffered, OUT_OF_BOX_BYTES);
        let peak = [measured[2].rate(), 0.0];
        // Three equal trials are enough only for the middle point, which is neither the out-of-box
        // point nor near the highest rate.
        assert_eq!(neediest(&measured, peak, 10), [0, 2]);
        for (one, trials) in measured.iter_mut().zip([7, 3, 5]) {
            one.rates = vec![one.rate(); trials];
        }
        assert!(neediest(&measured, peak, 10).is_empty());
    }

    #[test]
    fn the_last_rounds_measure_quoted_points_and_those_that_may_be_the_best() {
        let sizes = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
        let mut measured = device(&sizes);
        measured.push(Measured {
            spot: sequential(false, Caching::Buffered, OUT_OF_BOX_BYTES),
            rates: vec![1.0],
        });
        let peak = [measured[6].rate(), 0.0];
        let quoted = quoted(&measured, peak);
        let sizes: Vec<u32> =
            quoted.iter().map(|index| measured[*index].spot.request_bytes >> 10).collect();
        // Advice compares the sizes 64 KiB and 1 MiB. At 1 MiB and above, the rates are near the
        // highest rate, so these settings may be the best.
        assert_eq!(sizes, [64, 1024, 4096, 16384, 64]);
    }

    #[test]
    fn a_point_that_never_settles_does_not_use_up_the_budget() {
        let mut measured = device(&[4 << 10]);
        measured[0].rates = (0..TRIALS_MAX).map(|i| i as f64 + 1.0).collect();
        assert!(neediest(&measured, [f64::MAX; 2], 10).is_empty());
    }
}
