//! Measures the layout of a rotating disk: the duration of a revolution, the track lengths and
//! zones, the skews and the number of surfaces.
//!
//! A read that misses the buffer completes when its last sector has passed under the head. The time
//! between the completions of two such reads, modulo a revolution, therefore gives the angle
//! between their last sectors (Worthington, Ganger, Patt and Wilkes 1995; Schindler and Ganger
//! 1999). Reads in descending order always miss the buffer, because the disk reads ahead in
//! ascending order.

use analysis::units;
use std::collections::BTreeMap;

use analysis::interval::Interval;
use analysis::quantile::{median, median_absolute_deviation};
use lab::failure::{Failure, Outcome};

use super::probe::Probe;

/// Size of a sector (bytes).
pub const SECTOR_BYTES: u64 = 512;
/// Size of the reads that measure the layout (bytes).
pub const READ_BYTES: u32 = 4096;
/// Distances between successive reads in the measurement of a revolution (bytes). Both are much
/// smaller than a track.
const FIRST_STEPS: [u64; 2] = [16 << 10, 32 << 10];
/// Number of reads that measure the duration of a revolution.
const REVOLUTION_READS: usize = 48;
/// Number of reads that measure the length of a track.
const TRACK_READS: usize = 40;
/// Number of reads per track in the measurement of the track length.
const STEPS_PER_TRACK: u64 = 6;
/// Number of equal intervals into which the disk is divided. The search for zones starts with the
/// track lengths at the ends of these intervals.
const PLACES: u64 = 48;
/// The position of a zone boundary is determined with a precision of the disk size divided by this
/// number.
const LIMIT_SHARE: u64 = 16_384;
/// Tracks belong to different zones if their lengths differ by more than this share.
const ZONES_DIFFER: f64 = 0.004;
/// Number of tracks over which the skews are measured.
const SKEW_TRACKS: u64 = 72;
/// Times that differ from the median by more than this many standard deviations are ignored. Such a
/// time comes from a request that was delayed or crossed a track boundary.
const FAR_DEVIATIONS: f64 = 5.0;
/// Number of passes over the tracks that measure the skews.
const SKEW_PASSES: u64 = 5;
/// Skews that differ by less than this share count as equal.
const SKEWS_DIFFER: f64 = 0.03;
/// Minimum skew that can be measured (revolutions).
const LEAST_SKEW: f64 = 0.004;
/// Plausible durations of a revolution (ns): 20,000 to 2,000 revolutions per minute.
const REVOLUTIONS_NS: std::ops::Range<f64> = 3e6..30e6;

/// A range of the disk whose tracks have the same length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Zone {
    /// Offset of the first byte of the zone (bytes).
    pub first: u64,
    /// Number of sectors per track.
    pub sectors: Interval,
    /// Uncertainty of the boundary to the previous zone, in each direction (bytes).
    pub uncertain_bytes: u64,
}

/// Skews and the number of surfaces of a disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Skews {
    /// Skew from the end of a track to the start of the next track (revolutions).
    pub track: Interval,
    /// Skew from the end of a cylinder to the start of the next cylinder (revolutions).
    pub cylinder: Interval,
    /// Number of surfaces. `None` if both skews are equal, because tracks and cylinders then look
    /// alike.
    pub heads: Option<u64>,
}

/// The measured layout of a disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Duration of one revolution (ns).
    pub revolution_ns: Interval,
    /// The zones, in the order of their offsets, from the outermost to the innermost.
    pub zones: Vec<Zone>,
    /// The skews and the number of surfaces.
    pub skews: Skews,
}

impl Layout {
    /// Measures the layout of a disk.
    ///
    /// # Errors
    /// If the device does not behave like a rotating disk, or a request failed.
    pub fn of(probe: &mut dyn Probe, tell: &mut dyn FnMut(&str)) -> Outcome<Layout> {
        tell("rotation");
        let (revolution_ns, ns_per_byte) = revolution(probe)?;
        let mut ruler = Ruler { probe, revolution_ns: revolution_ns.value };
        let track_bytes = revolution_ns.value / ns_per_byte;
        tell("zones");
        let zones = ruler.zones(track_bytes)?;
        tell("skews");
        let end = zones.get(1).map_or(ruler.probe.size_bytes(), |zone| zone.first);
        let skews = ruler.skews(zones[0].sectors.value, end)?;
        Ok(Layout { revolution_ns, zones, skews })
    }

    /// Returns the number of cylinders and the sectors per track of each zone, as a system file
    /// lists them. All zones together have at least `bytes` bytes.
    pub fn cylinders(&self, bytes: u64) -> Vec<[u64; 2]> {
        let heads = self.skews.heads.unwrap_or(1);
        let (mut found, mut at) = (Vec::new(), 0_u64);
        for (index, zone) in self.zones.iter().enumerate() {
            let sectors = zone.sectors.value.round().max(1.0) as u64;
            let each = heads * sectors * SECTOR_BYTES;
            let end = self.zones.get(index + 1).map_or(bytes, |next| next.first);
            let length = end.saturating_sub(at);
            let is_last = index + 1 == self.zones.len();
            let count = if is_last { length.div_ceil(each) } else { (length + each / 2) / each };
            found.push([count.max(1), sectors]);
            at += count.max(1) * each;
        }
        found
    }
}

/// Returns the median of samples with its 95% interval (asymptotic, for a normal distribution).
pub fn centre(samples: &[f64]) -> Interval {
    let value = median(samples).unwrap_or(0.0);
    let deviation = 1.4826 * median_absolute_deviation(samples).unwrap_or(0.0);
    Interval::symmetric(value, 1.96 * 1.2533 * deviation / (samples.len().max(1) as f64).sqrt())
}

/// Returns the mean of the samples near the median, with its 95% interval. Samples far from the
/// median come from delayed requests or from track boundaries. A small delay increases one sample
/// and decreases the next sample by the same amount, so it changes the median, but not the mean.
fn mean_of_most(samples: &[f64]) -> Interval {
    let middle = centre(samples).value;
    let deviation = 1.4826 * median_absolute_deviation(samples).unwrap_or(0.0);
    let most = (FAR_DEVIATIONS * deviation).max(middle.abs() * 0.001);
    let near: Vec<f64> = samples.iter().copied().filter(|x| (x - middle).abs() <= most).collect();
    let mean = near.iter().sum::<f64>() / near.len().max(1) as f64;
    Interval::symmetric(mean, 1.96 * deviation / (near.len().max(1) as f64).sqrt())
}

/// Multiplies an interval by a positive factor.
pub fn times(found: Interval, factor: f64) -> Interval {
    let Interval { value, low, high } = found;
    Interval { value: value * factor, low: low * factor, high: high * factor }
}

/// Reads at offsets that descend from `top` in equal steps. Returns the times between the
/// completions (ns).
fn descend(probe: &mut dyn Probe, top: u64, step: u64, count: usize) -> Outcome<Vec<f64>> {
    let mut before_ns = probe.read(top, READ_BYTES)?.end_ns;
    let mut all = Vec::with_capacity(count);
    for number in 1..=count as u64 {
        let end_ns = probe.read(top - number * step, READ_BYTES)?.end_ns;
        all.push(end_ns as f64 - before_ns as f64);
        before_ns = end_ns;
    }
    Ok(all)
}

/// Measures the duration of a revolution, and the time per byte in the middle of the disk (ns). A
/// step of s bytes towards lower offsets takes a revolution minus the time of s bytes, so two step
/// sizes give both values.
fn revolution(probe: &mut dyn Probe) -> Outcome<(Interval, f64)> {
    let middle = probe.size_bytes() / 2;
    if middle < FIRST_STEPS[1] * 8 * REVOLUTION_READS as u64 {
        return Err(Failure::usage(
            "the target is too small to be a rotating disk; specify the disk itself",
        ));
    }
    let span = FIRST_STEPS[1] * REVOLUTION_READS as u64;
    let [one, two] = FIRST_STEPS.map(|step| {
        // The two series read different ranges, because the buffer may hold data that were read
        // before.
        let above = if step == FIRST_STEPS[0] { span } else { 0 };
        let top = middle / step * step + above;
        descend(probe, top, step, REVOLUTION_READS).map(|all| mean_of_most(&all))
    });
    let (one, two) = (one?, two?);
    let value = 2.0 * one.value - two.value;
    let half = 2.0 * (one.high - one.value) + (two.high - two.value);
    let ns_per_byte = (one.value - two.value) / FIRST_STEPS[0] as f64;
    if !REVOLUTIONS_NS.contains(&value) || ns_per_byte <= 0.0 {
        return Err(Failure::usage(format!(
            "the target does not behave like a rotating disk: reads at descending offsets take {} \
             each; if the target is flash, run halfpower sweep on it, then halfpower calibrate \
             latest",
            units::time(one.value)
        )));
    }
    Ok((Interval::symmetric(value, half), ns_per_byte))
}

/// Measures track lengths and skews from the angles between sectors. The duration of a revolution
/// must be known.
struct Ruler<'a> {
    probe: &'a mut dyn Probe,
    revolution_ns: f64,
}

impl Ruler<'_> {
    fn aligned(&self, at: u64) -> u64 {
        let unit = self.probe.unit_bytes().max(u64::from(READ_BYTES));
        (at / unit * unit).max(unit)
    }

    /// Measures the number of sectors per track around the offset `at`. `track_bytes` is an
    /// estimate of the track length there.
    fn sectors(&mut self, at: u64, track_bytes: f64) -> Outcome<Interval> {
        let step = self.aligned(track_bytes as u64 / STEPS_PER_TRACK);
        let span = step * TRACK_READS as u64;
        let most = self.probe.size_bytes() - u64::from(READ_BYTES);
        let top = self.aligned((at + span / 2).clamp(span, most));
        let times = descend(self.probe, top, step, TRACK_READS)?;
        let forward = |ns: &f64| (-ns).rem_euclid(self.revolution_ns);
        let times: Vec<f64> = times.iter().map(forward).collect();
        let each = mean_of_most(&times);
        let sectors = |ns: f64| self.revolution_ns * step as f64 / ns / SECTOR_BYTES as f64;
        let (low, high) = (sectors(each.high), sectors(each.low));
        Ok(Interval { value: sectors(each.value), low, high })
    }

    fn zones(&mut self, track_bytes: f64) -> Outcome<Vec<Zone>> {
        let size = self.probe.size_bytes();
        let margin = (track_bytes * 4.0) as u64;
        let mut track_bytes = track_bytes;
        let mut places: Vec<(u64, Interval)> = Vec::new();
        // Each measurement needs an estimate of the track length. At first, the track length is
        // known only in the middle of the disk, so the positions are visited from the middle
        // towards both ends.
        let mut order: Vec<u64> = (0..=PLACES / 2).rev().collect();
        order.extend(PLACES / 2 + 1..=PLACES);
        for number in order {
            let at = margin + (size - 2 * margin) / PLACES * number;
            if number == PLACES / 2 + 1 {
                track_bytes = places[0].1.value * SECTOR_BYTES as f64;
            }
            let sectors = self.sectors(at, track_bytes)?;
            track_bytes = sectors.value * SECTOR_BYTES as f64;
            places.push((at, sectors));
        }
        places.sort_by_key(|(at, _)| *at);
        let resolution = (size / LIMIT_SHARE).max(margin);
        let mut all = vec![places[0]];
        for pair in places.windows(2) {
            self.between(pair[0], pair[1], resolution, &mut all)?;
            all.push(pair[1]);
        }
        Ok(joined(&all))
    }

    /// Bisects between two positions until the boundary between their zones is known to within
    /// `resolution` bytes. Does nothing if the track lengths are equal.
    fn between(
        &mut self,
        before: (u64, Interval),
        after: (u64, Interval),
        resolution: u64,
        all: &mut Vec<(u64, Interval)>,
    ) -> Outcome<()> {
        if after.0 - before.0 <= resolution || are_alike(before.1, after.1) {
            return Ok(());
        }
        let at = before.0 + (after.0 - before.0) / 2;
        let middle = (at, self.sectors(at, before.1.value * SECTOR_BYTES as f64)?);
        self.between(before, middle, resolution, all)?;
        all.push(middle);
        self.between(middle, after, resolution, all)
    }

    /// Measures the skews and the number of surfaces from the angles of the first tracks of the
    /// disk.
    fn skews(&mut self, sectors: f64, zone_end: u64) -> Outcome<Skews> {
        let track_bytes = sectors.round() * SECTOR_BYTES as f64;
        let step = self.aligned(track_bytes as u64 / 4);
        let tracks = SKEW_TRACKS.min((zone_end as f64 * 0.9 / track_bytes) as u64);
        let count = (tracks as f64 * track_bytes) as u64 / step;
        let plain_ns = step as f64 / track_bytes * self.revolution_ns;
        let mut seen: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for pass in 0..SKEW_PASSES {
            // Each pass reads at other offsets, because the buffer may hold data that were read
            // before.
            let top = self.aligned(step * count + step * (pass + 1) / (SKEW_PASSES + 1));
            let times = descend(self.probe, top, step, count as usize)?;
            for (number, ns) in times.iter().enumerate() {
                let share = (-ns - plain_ns).rem_euclid(self.revolution_ns) / self.revolution_ns;
                let middle = top as f64 - (number as f64 + 0.5) * step as f64;
                let limit = (middle / track_bytes).round();
                let has_limit = (limit * track_bytes - middle).abs() <= 0.55 * step as f64;
                if has_limit && (LEAST_SKEW..1.0 - LEAST_SKEW).contains(&share) {
                    seen.entry(limit as u64).or_default().push(share);
                }
            }
        }
        let often = seen.into_iter().filter(|(_, shares)| shares.len() as u64 * 2 > SKEW_PASSES);
        let jumps: Vec<(u64, f64)> =
            often.map(|(limit, shares)| (limit, centre(&shares).value)).collect();
        Ok(skews_of(&jumps))
    }
}

fn are_alike(one: Interval, other: Interval) -> bool {
    (one.value / other.value - 1.0).abs() < ZONES_DIFFER
}

/// Joins neighbouring positions with equal track lengths into zones.
fn joined(places: &[(u64, Interval)]) -> Vec<Zone> {
    let mut zones: Vec<Zone> = Vec::new();
    let mut from = 0;
    for end in 1..=places.len() {
        if end < places.len() && are_alike(places[end].1, places[from].1) {
            continue;
        }
        // A measurement on the boundary between two zones gives a mix of both track lengths. Such a
        // position is not a separate zone.
        let is_known = zones.last().is_some_and(|zone| are_alike(zone.sectors, places[from].1));
        if !is_known && (end - from > 1 || from == 0 || end == places.len()) {
            let values: Vec<f64> = places[from..end].iter().map(|(_, s)| s.value).collect();
            let widest = |s: &(u64, Interval)| (s.1.high - s.1.low) / 2.0;
            let half = places[from..end].iter().map(widest).fold(0.0, f64::max);
            let first = places[from].0;
            let before = places[from.saturating_sub(1)].0;
            let sectors = Interval::symmetric(centre(&values).value, half.max(0.5));
            let limit = if from == 0 { 0 } else { before + (first - before) / 2 };
            zones.push(Zone { first: limit, sectors, uncertain_bytes: (first - before) / 2 });
        }
        from = end;
    }
    zones
}

/// Derives the skews and the number of surfaces from the track boundaries. `jumps` contains the
/// number and the skew of each boundary (revolutions).
fn skews_of(jumps: &[(u64, f64)]) -> Skews {
    // Each real skew occurs several times. A value that occurs only once comes from a delayed
    // request.
    let alike = |one: f64| jumps.iter().filter(|j| (j.1 / one - 1.0).abs() < SKEWS_DIFFER).count();
    let jumps: Vec<(u64, f64)> = jumps.iter().copied().filter(|j| alike(j.1) > 1).collect();
    let mut shares: Vec<f64> = jumps.iter().map(|(_, share)| *share).collect();
    shares.sort_by(f64::total_cmp);
    let low = shares.first().copied().unwrap_or(0.0);
    let high = shares.last().copied().unwrap_or(0.0);
    if jumps.is_empty() || high - low < SKEWS_DIFFER * high {
        let both = centre(&shares);
        return Skews { track: both, cylinder: both, heads: None };
    }
    let is_high = |share: &f64| *share > (low + high) / 2.0;
    let group = |wanted: bool| -> Vec<(u64, f64)> {
        jumps.iter().filter(|(_, share)| is_high(share) == wanted).copied().collect()
    };
    let (highs, lows) = (group(true), group(false));
    // Most boundaries are between tracks of the same cylinder, so the skew that occurs less often
    // is the cylinder skew. With two surfaces, both skews occur equally often, and the boundaries
    // with even numbers are those between cylinders.
    let low_is_cylinder = lows.len() + 1 < highs.len()
        || (lows.len().abs_diff(highs.len()) <= 1 && lows.first().is_some_and(|j| j.0 % 2 == 0));
    let (cylinders, tracks) = if low_is_cylinder { (lows, highs) } else { (highs, lows) };
    let gaps: Vec<f64> = cylinders.windows(2).map(|w| (w[1].0 - w[0].0) as f64).collect();
    let heads = median(&gaps).map_or(cylinders[0].0, |gap| gap.round() as u64);
    let of = |group: &[(u64, f64)]| centre(&group.iter().map(|j| j.1).collect::<Vec<_>>());
    Skews { track: of(&tracks), cylinder: of(&cylinders), heads: Some(heads.max(1)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surfaces_follow_from_the_distance_of_the_larger_skews() {
        let jumps = |heads: u64, track: f64, cylinder: f64| -> Vec<(u64, f64)> {
            (1..60).map(|k| (k, if k % heads == 0 { cylinder } else { track })).collect()
        };
        for (heads, track, cylinder) in [(16, 0.1, 0.12), (2, 0.1, 0.12), (3, 0.3, 0.2)] {
            let found = skews_of(&jumps(heads, track, cylinder));
            assert_eq!(found.heads, Some(heads), "{found:?}");
            assert_eq!((found.track.value, found.cylinder.value), (track, cylinder));
        }
        assert_eq!(skews_of(&jumps(8, 0.1, 0.1)).heads, None);
    }
}
