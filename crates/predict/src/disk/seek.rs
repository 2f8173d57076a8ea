//! Measures the seek curve: the minimum time between two requests, as a function of the distance
//! between their cylinders.
//!
//! A request completes when its last sector has passed under the head. For each distance, the time
//! between the completions of two requests has a minimum, the MTBRC (minimum time between request
//! completions; Worthington, Ganger, Patt and Wilkes 1995). The minimum is reached if the sector
//! arrives exactly when the head is ready. Each pair of requests gives two bounds on this minimum.
//! The upper bound is the time between the two completions, and the lower bound is this time minus
//! a revolution. The angle of the next pair is chosen to halve the gap between the bounds.

use analysis::interval::Interval;
use analysis::lsq::{self, Line};
use lab::failure::{Failure, Outcome};
use simulator::geometry::Geometry;
use workload::random::Stream;

use super::layout::{READ_BYTES, SECTOR_BYTES};
use super::probe::{Kind, Probe};

/// Maximum number of pairs of requests in one round for one distance.
const PAIRS: usize = 40;
/// Number of rounds for one distance. The median of their results is used.
const ROUNDS: usize = 3;
/// The first request of each pair is in one of this many cylinders, chosen at random.
const CYLINDERS: u64 = 1000;
/// The search for a minimum time ends when its upper and lower bounds differ by less than this
/// share of a revolution.
const RESOLUTION: f64 = 1.0 / 16_000.0;
/// Ratio between successive distances at which seeks are measured.
const RATIO: f64 = 1.45;
/// The step from one measured distance to the next is at most the longest distance divided by this
/// number, so that enough distances are on the far part of the curve.
const LONG_SEEKS: u64 = 12;
/// The search for the knee of the curve ends when the measured distances on both sides of the knee
/// differ by at most this factor.
const KNEE_RATIO: f64 = 1.02;
/// The two parts of the curve count as equal at a distance if they differ by less than this share.
const ALIKE: f64 = 0.005;
/// A read counts as a buffer hit if its time differs by less than this share from the time of known
/// hits.
const HIT_TOLERANCE: f64 = 0.1;

/// Converts between cylinders, offsets and angles of a disk whose layout is known.
pub struct Cylinders {
    geometry: Geometry,
    revolution_ns: f64,
    /// For each zone: its first cylinder, its first byte, and the number of bytes per cylinder.
    zones: Vec<(u64, u64, u64)>,
    count: u64,
    unit_bytes: u64,
    size_bytes: u64,
}

impl Cylinders {
    /// `zones` holds the number of cylinders and the sectors per track of each zone. `heads` is the
    /// number of surfaces.
    pub fn new(
        geometry: Geometry,
        revolution_ns: f64,
        zones: &[[u64; 2]],
        heads: u64,
        probe: &dyn Probe,
    ) -> Cylinders {
        let (mut cylinder, mut byte) = (0, 0);
        let mut starts = Vec::new();
        for [count, sectors] in zones {
            let each = heads * sectors * SECTOR_BYTES;
            starts.push((cylinder, byte, each));
            cylinder += count;
            byte += count * each;
        }
        let size_bytes = probe.size_bytes();
        let count = geometry.cylinder_of(size_bytes - 1);
        let unit_bytes = probe.unit_bytes();
        Cylinders { geometry, revolution_ns, zones: starts, count, unit_bytes, size_bytes }
    }

    /// Returns the index of the last cylinder that lies completely on the disk.
    fn last(&self) -> u64 {
        self.count.saturating_sub(1)
    }

    /// Returns the first byte and the length of a cylinder (bytes).
    fn range(&self, cylinder: u64) -> (u64, u64) {
        let after = self.zones.partition_point(|(first, ..)| *first <= cylinder);
        let (first, byte, each) = self.zones[after.max(1) - 1];
        (byte + (cylinder - first) * each, each)
    }

    /// Returns the angle at which a read at the offset `at` completes (ns, not modulo a
    /// revolution).
    fn angle(&self, at: u64) -> f64 {
        self.geometry.time_of(at + u64::from(READ_BYTES)) as f64
    }

    /// Returns the time that one byte of the first zone takes to pass under the head (ns).
    fn ns_per_byte(&self) -> f64 {
        self.revolution_ns / self.geometry.tracks_from(0).next().map_or(1.0, |b| b as f64)
    }

    /// Checks whether a request lies within one track.
    fn is_in_track(&self, at: u64, length: u32) -> bool {
        let end = at + u64::from(length);
        let track = self.geometry.tracks_from(at).next().unwrap_or(1);
        let ns = self.geometry.time_of(end) - self.geometry.time_of(at);
        let plain_ns = u64::from(length) as f64 / track as f64 * self.revolution_ns;
        ns as f64 <= plain_ns * 1.01 + 1000.0
    }

    /// Returns an offset in a cylinder at which a read completes as close as possible to an angle
    /// (ns). The search starts at a random offset in `part`, which has a start and an end (shares
    /// of the cylinder).
    fn at_angle(&self, cylinder: u64, part: [f64; 2], angle: f64, dice: &mut Stream) -> u64 {
        let (first, each) = self.range(cylinder);
        let room = each.saturating_sub(u64::from(READ_BYTES)) as f64;
        let start = part[0] + (part[1] - part[0]) * dice.unit();
        let mut at = first as f64 + room * start;
        let ns_per_byte = self.revolution_ns
            / (self.geometry.tracks_from(first).next()).map_or(1.0, |bytes| bytes as f64);
        // Each pass moves `at` by the remaining angle. If the move crosses a track boundary, the
        // skew changes the angle. The move is therefore repeated.
        for _ in 0..3 {
            let here = self.angle(at as u64);
            let mut ahead = (angle - here).rem_euclid(self.revolution_ns);
            if ahead > self.revolution_ns / 2.0 {
                ahead -= self.revolution_ns;
            }
            at += ahead / ns_per_byte;
            let (low, high) = (first as f64, first as f64 + room);
            let track = self.revolution_ns / ns_per_byte;
            if at < low && at + track <= high {
                at += track;
            } else if at > high && at - track >= low {
                at -= track;
            }
            at = at.clamp(low, high);
        }
        (at as u64 / self.unit_bytes * self.unit_bytes).min(self.size_bytes - u64::from(READ_BYTES))
    }
}

/// Measures minimum times between requests.
pub struct Arm<'a> {
    /// The disk to measure.
    pub probe: &'a mut dyn Probe,
    /// The cylinders of the disk.
    pub cylinders: &'a Cylinders,
    /// Time of a small read from the buffer (ns).
    pub hit_ns: f64,
    /// Random number generator.
    pub dice: Stream,
}

impl Arm<'_> {
    /// Measures the minimum time between the completions of two requests (ns). The first request is
    /// a read. The second request has `length` bytes and lies `distance` cylinders further
    /// outwards.
    ///
    /// # Errors
    /// If a request failed.
    pub fn least_ns(&mut self, distance: u64, kind: Kind, length: u32) -> Outcome<Interval> {
        let mut all = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            all.push(self.bounds_ns(distance, kind, length)?);
        }
        all.retain(|bounds| bounds.high.is_finite());
        // The median is used, because a delayed pair can spoil a round.
        all.sort_by(|a, b| a.value.total_cmp(&b.value));
        all.get(all.len() / 2).copied().ok_or_else(|| {
            Failure::failed(format!(
                "a seek of {distance} cylinders could not be measured, because no request reached \
                 the media; calibrate the whole device while no other program uses it"
            ))
        })
    }

    /// Issues one round of pairs for [`Arm::least_ns`].
    fn bounds_ns(&mut self, distance: u64, kind: Kind, length: u32) -> Outcome<Interval> {
        let revolution_ns = self.cylinders.revolution_ns;
        let room = self.cylinders.last() - distance.min(self.cylinders.last());
        // Within one cylinder, the second request has the lower offset, because the disk reads
        // ahead and the buffer may hold the data after the first request.
        let parts = if distance == 0 { [[0.7, 1.0], [0.0, 0.6]] } else { [[0.0, 1.0]; 2] };
        let (mut low, mut high) = (0.0_f64, f64::INFINITY);
        let mut pairs = Pairs::new(revolution_ns, length, self.cylinders.ns_per_byte());
        for _ in 0..PAIRS {
            let wanted_ns = if high.is_finite() {
                (low + high) / 2.0
            } else {
                revolution_ns * self.dice.unit()
            };
            // Each pair uses new random offsets, because the buffer may hold data near earlier
            // requests.
            let from = distance + self.dice.below(room.min(CYLINDERS) + 1);
            let to = from - distance;
            let any = revolution_ns * self.dice.unit();
            let first = self.cylinders.at_angle(from, parts[0], any, &mut self.dice);
            let angle_ns = self.cylinders.angle(first) + wanted_ns - pairs.shift_ns();
            let second = self.cylinders.at_angle(to, parts[1], angle_ns, &mut self.dice);
            let is_ahead = distance == 0 && second + u64::from(length) > first;
            if is_ahead || !self.cylinders.is_in_track(second, length) {
                continue;
            }
            let before = self.probe.read(first, READ_BYTES)?;
            let after = self.probe.request(kind, second, length)?;
            let ns = after.end_ns as f64 - before.end_ns as f64;
            let is_hit = |ns: f64| (ns / self.hit_ns - 1.0).abs() < HIT_TOLERANCE;
            if is_hit(before.ns()) || (kind == Kind::Read && is_hit(ns)) {
                continue;
            }
            let expected = self.cylinders.angle(second) - self.cylinders.angle(first);
            pairs.add(ns, expected);
            (low, high) = pairs.bounds();
            if high - low < RESOLUTION * revolution_ns {
                break;
            }
        }
        Ok(Interval { value: (low + high) / 2.0, low, high })
    }

    /// Measures seek times over all distances and fits the curve. `still_ns` is the minimum time
    /// between two requests without a seek.
    ///
    /// # Errors
    /// If a request failed.
    pub fn curve(&mut self, still_ns: Interval) -> Outcome<Curve> {
        // The longest distance is slightly less than the whole stroke, so that several pairs of
        // cylinders have this distance.
        let longest = self.cylinders.last() - self.cylinders.last() / 32;
        let mut samples: Vec<Seek> = Vec::new();
        let mut distance = 1;
        while distance < longest {
            samples.push(self.seek(distance, still_ns)?);
            let next = (distance as f64 * RATIO) as u64;
            distance = next.min(distance + longest / LONG_SEEKS).max(distance + 1);
        }
        samples.push(self.seek(longest, still_ns)?);
        let mut curve = Curve::of(&samples);
        while let Some(next) = curve.next_distance() {
            samples.push(self.seek(next, still_ns)?);
            samples.sort_by_key(|seek| seek.distance);
            curve = Curve::of(&samples);
        }
        Ok(curve)
    }

    fn seek(&mut self, distance: u64, still_ns: Interval) -> Outcome<Seek> {
        let least = self.least_ns(distance, Kind::Read, READ_BYTES)?;
        let half_ns = (least.high - least.low + still_ns.high - still_ns.low) / 2.0;
        Ok(Seek { distance, ns: (least.value - still_ns.value).max(1.0), half_ns })
    }
}

/// The measured pairs of requests. The time of each pair deviates from the time that the layout
/// predicts. A pair whose deviation differs from that of most pairs was delayed and is ignored.
struct Pairs {
    revolution_ns: f64,
    tolerance_ns: f64,
    /// Time of each pair, and its deviation from the time that the layout predicts, modulo a
    /// revolution (ns).
    all: Vec<(f64, f64)>,
}

impl Pairs {
    /// Creates an empty set of pairs. The tolerance grows with `length`, because the deviation of a
    /// zero-latency write varies by up to the transfer time of its data.
    fn new(revolution_ns: f64, length: u32, ns_per_byte: f64) -> Pairs {
        let tolerance_ns = 0.03 * revolution_ns + f64::from(length) * ns_per_byte;
        Pairs { revolution_ns, tolerance_ns, all: Vec::new() }
    }

    fn add(&mut self, ns: f64, expected_ns: f64) {
        self.all.push((ns, (ns - expected_ns).rem_euclid(self.revolution_ns)));
    }

    /// Returns the distance between two deviations, modulo a revolution (ns).
    fn apart(&self, one: f64, other: f64) -> f64 {
        let ahead = (one - other).rem_euclid(self.revolution_ns);
        ahead.min(self.revolution_ns - ahead)
    }

    /// Returns the deviation with which most pairs agree within the tolerance (ns), or 0 if there
    /// are no pairs.
    fn shift_ns(&self) -> f64 {
        let agreeing = |shift: f64| {
            self.all
                .iter()
                .filter(|(_, other)| self.apart(shift, *other) < self.tolerance_ns)
                .count()
        };
        let shifts = self.all.iter().map(|(_, shift)| *shift);
        shifts.max_by_key(|shift| agreeing(*shift)).unwrap_or(0.0)
    }

    /// Returns the lower and the upper bound on the minimum time (ns). Only pairs whose deviation
    /// is near that of most pairs are used.
    fn bounds(&self) -> (f64, f64) {
        let shift_ns = self.shift_ns();
        let agreeing =
            || self.all.iter().filter(|pair| self.apart(pair.1, shift_ns) < self.tolerance_ns);
        let high = agreeing().map(|pair| pair.0).fold(f64::INFINITY, f64::min);
        let lows = agreeing().map(|pair| pair.0 - self.revolution_ns).filter(|low| *low < high);
        (lows.fold(0.0, f64::max), high)
    }
}

/// The measured time of a seek.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seek {
    /// Distance of the seek (cylinders).
    pub distance: u64,
    /// Seek time (ns).
    pub ns: f64,
    /// Uncertainty of the seek time, in each direction (ns).
    pub half_ns: f64,
}

/// A fitted seek curve (Ruemmler and Wilkes 1994). Up to the knee, the time is linear in the square
/// root of the distance (`near`). Beyond the knee, the time is linear in the distance (`far`).
#[derive(Clone, Debug)]
pub struct Curve {
    /// Fitted line: seek time (ns) as a function of the square root of the distance (cylinders).
    pub near: Line,
    /// Fitted line: seek time (ns) as a function of the distance (cylinders).
    pub far: Line,
    /// The last measured distance on the near part, and the first on the far part (cylinders).
    pub knee: [u64; 2],
    /// Mean absolute error of the curve at the measured distances, as a share.
    pub error: f64,
    /// The measured seeks.
    pub seeks: Vec<Seek>,
}

impl Curve {
    /// Fits the curve to at least six seeks, sorted by distance. With fewer seeks, the curve is
    /// constant.
    fn of(seeks: &[Seek]) -> Curve {
        let mut best: Option<(f64, Curve)> = None;
        for split in 3..=seeks.len().saturating_sub(3) {
            let (near, far) = seeks.split_at(split);
            let root = |seek: &Seek| (seek.distance as f64).sqrt();
            let (Some(near), Some(far)) =
                (line(near, root), line(far, |seek| seek.distance as f64))
            else {
                continue;
            };
            let knee = [seeks[split - 1].distance, seeks[split].distance];
            let mut curve = Curve { near, far, knee, error: 0.0, seeks: seeks.to_vec() };
            let wrong = |seek: &Seek| {
                let ns = curve.ns(seek.distance);
                ((ns - seek.ns).abs() / seek.ns, ((ns - seek.ns) / weight_ns(seek)).powi(2))
            };
            let (error, sum) = seeks
                .iter()
                .map(wrong)
                .fold((0.0, 0.0), |(a, b), (error, square)| (a + error, b + square));
            curve.error = error / seeks.len() as f64;
            if best.as_ref().is_none_or(|(least, _)| sum < *least) {
                best = Some((sum, curve));
            }
        }
        best.map(|(_, curve)| curve).unwrap_or_else(|| Curve::flat(seeks))
    }

    /// Returns a constant curve, for disks with few cylinders.
    fn flat(seeks: &[Seek]) -> Curve {
        let mean = seeks.iter().map(|seek| seek.ns).sum::<f64>() / seeks.len().max(1) as f64;
        let points = [1.0, 2.0, 3.0].map(|x| lsq::Point { x, y: mean.max(1.0), weight: 1.0 });
        let line = lsq::line(&points).expect("the three points have different x");
        let knee = [1, 1];
        Curve { near: line.clone(), far: line, knee, error: 0.0, seeks: seeks.to_vec() }
    }

    /// Returns the time of a seek (ns).
    pub fn ns(&self, distance: u64) -> f64 {
        let d = distance as f64;
        if distance <= self.knee[0] { self.near.at(d.sqrt()) } else { self.far.at(d) }
    }

    /// Returns the knee (cylinders). The knee is the intersection of the two parts of the curve, if
    /// the intersection lies between the two measured distances around the knee. Otherwise, it is
    /// the geometric mean of these distances. The interval contains all distances around the knee
    /// at which both parts give nearly the same time.
    pub fn knee(&self) -> Interval {
        let [low, high] = self.knee.map(|d| d as f64);
        let gap = |d: f64| self.near.at(d.sqrt()) - self.far.at(d);
        let (mut from, mut to) = (low, high);
        if gap(low).signum() == gap(high).signum() {
            from = (low * high).sqrt();
            to = from;
        }
        while to - from > 0.5 {
            let middle = (from + to) / 2.0;
            if gap(middle).signum() == gap(low).signum() { from = middle } else { to = middle }
        }
        let value = (from + to) / 2.0;
        let is_alike = |d: &f64| gap(*d).abs() < ALIKE * self.far.at(*d);
        let last = |factor: f64| {
            let steps = std::iter::successors(Some(value), |d| Some(d * factor));
            steps.take(200).take_while(is_alike).last().unwrap_or(value)
        };
        Interval { value, low: last(1.0 / 1.02).min(low), high: last(1.02).max(high) }
    }

    /// Returns the next distance to measure in the search for the knee, or `None` once the knee is
    /// known.
    fn next_distance(&self) -> Option<u64> {
        let [low, high] = self.knee;
        let next = ((low as f64 * high as f64).sqrt()).round() as u64;
        let is_wide = high as f64 > low as f64 * KNEE_RATIO && high > low + 1;
        (is_wide && next > low && next < high).then_some(next)
    }
}

/// Returns the standard error of a seek time, which determines its weight in the fit (ns).
fn weight_ns(seek: &Seek) -> f64 {
    seek.half_ns.max(seek.ns * 0.001).max(1.0)
}

fn line(seeks: &[Seek], x: impl Fn(&Seek) -> f64) -> Option<Line> {
    let point =
        |seek: &Seek| lsq::Point { x: x(seek), y: seek.ns, weight: weight_ns(seek).powi(-2) };
    lsq::line(&seeks.iter().map(point).collect::<Vec<_>>()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seeks(near: [f64; 2], knee: u64, far: [f64; 2]) -> impl Fn(u64) -> Seek {
        move |distance| {
            let d = distance as f64;
            let ns =
                if distance <= knee { near[0] + near[1] * d.sqrt() } else { far[0] + far[1] * d };
            Seek { distance, ns, half_ns: 1000.0 }
        }
    }

    #[test]
    fn both_parts_and_a_knee_with_a_step_are_found() {
        let seek = seeks([0.7e6, 14_200.0], 57_000, [3e6, 42.0]);
        let mut samples: Vec<Seek> = (0..33).map(|n| seek(1.5_f64.powi(n) as u64)).collect();
        samples.dedup_by_key(|seek| seek.distance);
        let mut curve = Curve::of(&samples);
        while let Some(next) = curve.next_distance() {
            samples.push(seek(next));
            samples.sort_by_key(|seek| seek.distance);
            curve = Curve::of(&samples);
        }
        let near = |value: f64, truth: f64| assert!((value / truth - 1.0).abs() < 0.02, "{value}");
        near(curve.near.intercept.value, 0.7e6);
        near(curve.near.slope.value, 14_200.0);
        near(curve.knee().value, 57_000.0);
        near(curve.far.intercept.value, 3e6);
        near(curve.far.slope.value, 42.0);
    }
}
