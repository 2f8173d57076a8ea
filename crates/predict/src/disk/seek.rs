//! Measures the seek curve: the minimum time between two requests by the distance of their
//! cylinders.
//!
//! A request completes at the angle of its last sector. The minimum time between the completions of
//! two requests at a distance (MTBRC: Worthington, Ganger, Patt and Wilkes 1995) is reached if the
//! sector arrives exactly when the head is ready. Each pair of requests gives two bounds on this
//! minimum: the time that the pair took, and that time minus a revolution. The angle of the next
//! pair is chosen to halve the distance between the bounds.

use analysis::interval::Interval;
use analysis::lsq::{self, Line};
use lab::failure::{Failure, Outcome};
use simulator::geometry::Geometry;
use workload::random::Stream;

use super::layout::{READ_BYTES, SECTOR_BYTES};
use super::probe::{Kind, Probe};

/// Maximum number of pairs of requests for one distance.
const PAIRS: usize = 40;
/// Rounds of pairs for one distance; the median is used.
const ROUNDS: usize = 3;
/// Number of cylinders over which the pairs for one distance are spread.
const CYLINDERS: u64 = 1000;
/// The bounds of a time are narrowed to this share of a revolution.
const RESOLUTION: f64 = 1.0 / 16_000.0;
/// Ratio of neighbouring distances at which seeks are measured.
const RATIO: f64 = 1.45;
/// Minimum number of distances over the whole stroke, so that the far part of the curve has enough.
const LONG_SEEKS: u64 = 12;
/// The knee of the curve is located to within this ratio of distances.
const KNEE_RATIO: f64 = 1.02;
/// Both parts of the curve count as equal where they differ by less than this share.
const ALIKE: f64 = 0.005;
/// A read counts as a buffer hit if its time is within this share of the time of known hits.
const HIT_TOLERANCE: f64 = 0.1;

/// The cylinders of a disk whose layout is known, and their angles.
pub struct Cylinders {
    geometry: Geometry,
    revolution_ns: f64,
    /// For each zone: first cylinder, first byte, and bytes per cylinder.
    zones: Vec<(u64, u64, u64)>,
    count: u64,
    unit_bytes: u64,
    size_bytes: u64,
}

impl Cylinders {
    /// The cylinders of zones (cylinders and sectors per track) with a number of surfaces.
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

    /// The last whole cylinder.
    fn last(&self) -> u64 {
        self.count.saturating_sub(1)
    }

    /// First byte and length of a cylinder (bytes).
    fn range(&self, cylinder: u64) -> (u64, u64) {
        let after = self.zones.partition_point(|(first, ..)| *first <= cylinder);
        let (first, byte, each) = self.zones[after.max(1) - 1];
        (byte + (cylinder - first) * each, each)
    }

    /// The angle at which a read at a byte completes (ns).
    fn angle(&self, at: u64) -> f64 {
        self.geometry.time_of(at + u64::from(READ_BYTES)) as f64
    }

    /// Time in which a byte of the first zone passes under the head (ns).
    fn ns_per_byte(&self) -> f64 {
        self.revolution_ns / self.geometry.tracks_from(0).next().map_or(1.0, |b| b as f64)
    }

    /// Whether a request lies within one track.
    fn is_in_track(&self, at: u64, length: u32) -> bool {
        let end = at + u64::from(length);
        let track = self.geometry.tracks_from(at).next().unwrap_or(1);
        let ns = self.geometry.time_of(end) - self.geometry.time_of(at);
        let plain_ns = u64::from(length) as f64 / track as f64 * self.revolution_ns;
        ns as f64 <= plain_ns * 1.01 + 1000.0
    }

    /// An offset in a cylinder at which a read completes as close as possible to an angle (ns since
    /// the start of a revolution). `part` is the allowed part of the cylinder: where it begins and
    /// ends, as shares.
    fn at_angle(&self, cylinder: u64, part: [f64; 2], angle: f64, dice: &mut Stream) -> u64 {
        let (first, each) = self.range(cylinder);
        let room = each.saturating_sub(u64::from(READ_BYTES)) as f64;
        let start = part[0] + (part[1] - part[0]) * dice.unit();
        let mut at = first as f64 + room * start;
        let ns_per_byte = self.revolution_ns
            / (self.geometry.tracks_from(first).next()).map_or(1.0, |bytes| bytes as f64);
        // The correction may cross a track boundary, whose skew changes the angle. It is therefore
        // repeated.
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
    /// The disk.
    pub probe: &'a mut dyn Probe,
    /// Its cylinders.
    pub cylinders: &'a Cylinders,
    /// Time of a small read from the buffer (ns).
    pub hit_ns: f64,
    /// Generator of random choices.
    pub dice: Stream,
}

impl Arm<'_> {
    /// Bounds on the minimum time from the completion of a read to the completion of a request of
    /// `length` bytes that lies `distance` cylinders outwards (ns).
    ///
    /// # Errors
    /// A request failed.
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
                "no pair of requests {distance} cylinders apart went to the media; calibrate the \
                 whole device, while nothing else uses it"
            ))
        })
    }

    /// One round of pairs for [`Arm::least_ns`].
    fn bounds_ns(&mut self, distance: u64, kind: Kind, length: u32) -> Outcome<Interval> {
        let revolution_ns = self.cylinders.revolution_ns;
        let room = self.cylinders.last() - distance.min(self.cylinders.last());
        // Within one cylinder, the second request lies before the first, because the disk reads
        // ahead.
        let parts = if distance == 0 { [[0.7, 1.0], [0.0, 0.6]] } else { [[0.0, 1.0]; 2] };
        let (mut low, mut high) = (0.0_f64, f64::INFINITY);
        let mut pairs = Pairs::new(revolution_ns, length, self.cylinders.ns_per_byte());
        for _ in 0..PAIRS {
            let wanted_ns = if high.is_finite() {
                (low + high) / 2.0
            } else {
                revolution_ns * self.dice.unit()
            };
            // No two pairs use the same places: data near earlier requests may be in the buffer.
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
    /// without a seek.
    ///
    /// # Errors
    /// A request failed.
    pub fn curve(&mut self, still_ns: Interval) -> Outcome<Curve> {
        // Slightly less than the whole stroke, so that several pairs of cylinders have this
        // distance.
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
        // Measures distances around the knee until it is known.
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

/// The times of pairs of requests, and by how much each differs from the time between the two
/// angles in the layout. A pair whose difference is unlike that of most pairs was delayed and does
/// not count.
struct Pairs {
    revolution_ns: f64,
    tolerance_ns: f64,
    /// Time of each pair, and its difference from the layout modulo a revolution (ns).
    all: Vec<(f64, f64)>,
}

impl Pairs {
    /// No pairs yet. The difference of a zero-latency write varies by up to the time of its data.
    fn new(revolution_ns: f64, length: u32, ns_per_byte: f64) -> Pairs {
        let tolerance_ns = 0.03 * revolution_ns + f64::from(length) * ns_per_byte;
        Pairs { revolution_ns, tolerance_ns, all: Vec::new() }
    }

    fn add(&mut self, ns: f64, expected_ns: f64) {
        self.all.push((ns, (ns - expected_ns).rem_euclid(self.revolution_ns)));
    }

    /// Distance between two differences on the circle (ns).
    fn apart(&self, one: f64, other: f64) -> f64 {
        let ahead = (one - other).rem_euclid(self.revolution_ns);
        ahead.min(self.revolution_ns - ahead)
    }

    /// The difference of most pairs (ns); 0 without pairs.
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

    /// The bounds on the minimum time from the pairs that agree (ns).
    fn bounds(&self) -> (f64, f64) {
        let shift_ns = self.shift_ns();
        let agreeing =
            || self.all.iter().filter(|pair| self.apart(pair.1, shift_ns) < self.tolerance_ns);
        let high = agreeing().map(|pair| pair.0).fold(f64::INFINITY, f64::min);
        let lows = agreeing().map(|pair| pair.0 - self.revolution_ns).filter(|low| *low < high);
        (lows.fold(0.0, f64::max), high)
    }
}

/// A measured seek.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seek {
    /// Cylinders.
    pub distance: u64,
    /// Seek time (ns).
    pub ns: f64,
    /// Half the distance between the bounds (ns).
    pub half_ns: f64,
}

/// A fitted seek curve. Up to the knee, the time is linear in the square root of the distance
/// (`near`); from there on, it is linear in the distance (`far`). Ruemmler and Wilkes 1994.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Time as a line over the square root of the distance (ns).
    pub near: Line,
    /// Time as a line over the distance (ns).
    pub far: Line,
    /// The last distance on the near part, and the first on the far part (cylinders).
    pub knee: [u64; 2],
    /// Mean error of the curve at the measured distances, as a share.
    pub error: f64,
    /// The measured seeks.
    pub seeks: Vec<Seek>,
}

impl Curve {
    /// Fits the curve to seeks, in the order of their distance; at least six.
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

    /// A constant curve, for disks with few cylinders.
    fn flat(seeks: &[Seek]) -> Curve {
        let mean = seeks.iter().map(|seek| seek.ns).sum::<f64>() / seeks.len().max(1) as f64;
        let points = [1.0, 2.0, 3.0].map(|x| lsq::Point { x, y: mean.max(1.0), weight: 1.0 });
        let line = lsq::line(&points).expect("three points with different x");
        let knee = [1, 1];
        Curve { near: line.clone(), far: line, knee, error: 0.0, seeks: seeks.to_vec() }
    }

    /// The time of a seek (ns).
    pub fn ns(&self, distance: u64) -> f64 {
        let d = distance as f64;
        if distance <= self.knee[0] { self.near.at(d.sqrt()) } else { self.far.at(d) }
    }

    /// The knee (cylinders): the intersection of both parts, if it lies between the measured
    /// distances around it; otherwise the middle between these distances, which are close. The
    /// interval contains all distances around it at which both parts give nearly the same time.
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

    /// The next distance to measure in the search for the knee; `None` once the knee is known.
    fn next_distance(&self) -> Option<u64> {
        let [low, high] = self.knee;
        let next = ((low as f64 * high as f64).sqrt()).round() as u64;
        let is_wide = high as f64 > low as f64 * KNEE_RATIO && high > low + 1;
        (is_wide && next > low && next < high).then_some(next)
    }
}

/// The standard error of a seek time, by which it is weighted in the fit (ns).
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

    /// Seeks of a disk with these parameters (ns, cylinders).
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
