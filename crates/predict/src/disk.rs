//! Calibrates the model of a rotating disk. Each parameter is measured with requests whose times
//! depend mainly on this parameter, as in DIXtrac (Schindler and Ganger 1999, "Automated Disk Drive
//! Characterization").
//!
//! `probe` issues single requests and measures their times. `layout` finds the duration of a
//! revolution, the zones, the skews and the number of surfaces from the angles at which reads
//! complete. `seek` finds the seek curve. `buffer` finds the overheads, the read-ahead, the
//! segments and the write cache. At the end, `predict` measures and simulates other workloads. The
//! errors of the simulation are the score of the model.

pub mod probe;
mod layout;
mod seek;
mod buffer;
mod predict;

use analysis::interval::Interval;
use lab::failure::{Failure, Outcome};
use simulator::geometry::Geometry;
use simulator::system::{DriveModel, WRITES_PER_ENTRY};
use simulator::{Description, System};
use workload::random::Stream;
use workload::{Pattern, Workload};

use crate::result::{
    Calibrated, ErrorsDocument, FittedPointDocument, ParameterDocument, ScoreDocument, significant,
};
use crate::score::{Errors, UNIDENTIFIED};

use self::buffer::{Buffers, ReadBuffer, WriteCache};
use self::layout::{Layout, READ_BYTES, SECTOR_BYTES, times};
use self::predict::Predicted;
use self::probe::{Kind, Probe, SimulatedDisk};
use self::seek::{Arm, Curve, Cylinders};

/// The system file with which a calibration starts.
const BASE: &str = include_str!("disk/disk.toml");
/// The queue depth of the trial that determines in which order the disk serves its queue.
const QUEUE_DEPTH: u32 = 32;
/// The duration of the trial that determines in which order the disk serves its queue (ns).
const QUEUE_NS: u64 = 8_000_000_000;
/// Two queue orders cannot be distinguished if the errors of their simulated rates differ by less
/// than this share.
const ORDERS_DIFFER: f64 = 0.03;
/// The number of long writes in the test for zero-latency writes.
const TRACK_WRITES: usize = 24;
/// The size of the writes that measure the bus rate of a disk without a write cache (bytes).
const LONG_WRITE_BYTES: u32 = 64 << 10;
/// The maximum factor by which `refine_write_buffer` corrects the size of the write cache.
const REFINED_WITHIN: f64 = 1.5;
/// The number of bisection steps in `refine_write_buffer`.
const REFINEMENTS: usize = 9;
/// The number of writes in the test for a media cache.
const FAR_WRITES: u64 = 24;
/// The seed of all random choices.
const SEED: u64 = 42;

/// The system file under construction, and the values that were determined so far.
struct Values<'a> {
    base: Description,
    source: &'a str,
    parameters: Vec<ParameterDocument>,
    not_determined: Vec<String>,
}

impl Values<'_> {
    /// Writes a value to the system file, and adds the value and its interval to the result.
    /// `found` has the unit that the system file uses for `key`.
    fn put(&mut self, key: &str, found: Interval) -> Outcome<()> {
        let unit = self.base.value_of(key).map(|(_, unit)| unit).unwrap_or_default();
        // Noise may make a small value negative.
        let Interval { value, low, high } = found;
        let [value, low] = [value, low].map(|x| x.max(0.0));
        let unidentified = !high.is_finite() || (low > 0.0 && high / low > UNIDENTIFIED);
        let flag = if unidentified { ", unidentified" } else { "" };
        let bounds = format!("{} to {}", significant(low), significant(high));
        let source = format!("{}: 95% interval {bounds}{flag}", self.source);
        self.base.put(key, value, &source)?;
        let key = key.to_owned();
        self.parameters.push(ParameterDocument { key, value, low, high, unit, unidentified });
        Ok(())
    }

    /// Adds a value to the result that is not part of the system file.
    fn show(&mut self, key: String, found: Interval, unit: &str) {
        let Interval { value, low, high } = found;
        let (unit, unidentified) = (unit.to_owned(), false);
        self.parameters.push(ParameterDocument { key, value, low, high, unit, unidentified });
    }

    fn not_determined(&mut self, what: &str) {
        self.not_determined.push(what.to_owned());
    }
}

/// Divides a constant by an interval of positive values.
fn over(constant: f64, found: Interval) -> Interval {
    let Interval { value, low, high } = found;
    Interval { value: constant / value, low: constant / high, high: constant / low.max(1e-12) }
}

/// Returns the difference of two intervals. Negative values become 0.
fn less(one: Interval, other: Interval) -> Interval {
    let floor = |x: f64| x.max(0.0);
    Interval {
        value: floor(one.value - other.value),
        low: floor(one.low - other.high),
        high: floor(one.high - other.low),
    }
}

/// Calibrates the model of a rotating disk. `source` is recorded as the source of the values.
/// `tell` is called with the name of each step.
///
/// # Errors
/// The device does not behave as a rotating disk, or a request failed.
pub fn calibrate(
    probe: &mut dyn Probe,
    source: &str,
    tell: &mut dyn FnMut(&str),
) -> Outcome<Calibrated> {
    let base = Description::read(BASE, "disk")?;
    let mut values = Values { base, source, parameters: Vec::new(), not_determined: Vec::new() };
    let layout = Layout::of(probe, tell)?;
    put_layout(&mut values, &layout, probe.size_bytes())?;
    let revolution_ns = layout.revolution_ns.value;
    let ns_per_byte = revolution_ns / (layout.zones[0].sectors.value * SECTOR_BYTES as f64);
    tell("buffer");
    let reads = buffers_of(&mut *probe, &layout, SEED).reads()?;
    let geometry = Geometry::new(&disk_of(&values.base.system()?)?, 1.0);
    let zones = layout.cylinders(probe.size_bytes());
    let heads = layout.skews.heads.unwrap_or(1);
    let cylinders = Cylinders::new(geometry, revolution_ns, &zones, heads, probe);
    let hit_ns = reads.as_ref().map_or(1.0, |reads| reads.hit_ns);
    tell("seeks");
    let mut arm =
        Arm { probe: &mut *probe, cylinders: &cylinders, hit_ns, dice: Stream::new(SEED + 1) };
    let still_ns = arm.least_ns(0, Kind::Read, READ_BYTES)?;
    let curve = arm.curve(still_ns)?;
    let media_ns = ns_per_byte * f64::from(READ_BYTES);
    put_reads(&mut values, reads.as_ref(), still_ns, media_ns)?;
    put_curve(&mut values, &curve)?;
    if probe.may_write() {
        tell("media cache");
        refuse_media_cache(probe, &curve, still_ns.value, revolution_ns)?;
    }
    tell("order of the queue");
    put_order(&mut values, probe)?;
    if probe.may_write() {
        tell("writes");
        let bus_ns = reads.as_ref().map_or(0.0, |r| r.line.slope.value * f64::from(READ_BYTES));
        let overhead_ns = (hit_ns - bus_ns).max(0.0);
        let still = Still { read_ns: still_ns, hit_ns, overhead_ns, media_ns };
        put_writes(&mut values, probe, &cylinders, &layout, &still)?;
    } else {
        values.not_determined(
            "all parameters of writes (drive.write_settle, drive.firmware_write, write_cache, \
             drive.write_buffer, drive.write_entries): no permission to overwrite the data",
        );
    }
    tell("predictions");
    let predicted = predict::predict(probe, &values.base.system()?)?;
    Ok(calibrated(values, &predicted, &layout, &curve, still_ns))
}

/// Returns an error if writes to distant positions complete without a seek. Such a disk first
/// writes the data to a media cache. The pauses before the writes differ by parts of a revolution,
/// so that at least one write hardly waits for the platter.
fn refuse_media_cache(
    probe: &mut dyn Probe,
    curve: &Curve,
    still_ns: f64,
    revolution_ns: f64,
) -> Outcome<()> {
    let unit = u64::from(READ_BYTES).next_multiple_of(probe.unit_bytes());
    let last = (probe.size_bytes() / unit - 1) * unit;
    let mut least_ns = f64::INFINITY;
    for number in 0..FAR_WRITES {
        probe.rest((revolution_ns * (1.0 + number as f64 / FAR_WRITES as f64)) as u64)?;
        let at = if number.is_multiple_of(2) { number * unit } else { last - number * unit };
        let ns = probe.request(Kind::WriteThrough, at, READ_BYTES)?.ns();
        // The first write is ignored, because the arm may first have to move to the media cache.
        least_ns = if number == 0 { least_ns } else { least_ns.min(ns) };
    }
    let seek_ns = curve.seeks.last().map_or(0.0, |seek| curve.ns(seek.distance));
    if least_ns >= still_ns + seek_ns / 2.0 {
        return Ok(());
    }
    let [least, seek] = [least_ns, seek_ns].map(|ns| significant(ns / 1e6));
    Err(Failure::failed(format!(
        "writes that alternate between the start and the end of this disk take only {least} ms, \
         although a seek takes {seek} ms. The disk stores writes in a media cache (shingled disk, \
         SMR) or in flash, or ignores write-through. Its writes cannot be calibrated; calibrate \
         only the reads, without --overwrite and --destroy-data-on"
    )))
}

fn disk_of(system: &System) -> Outcome<simulator::system::DiskModel> {
    match &system.drive {
        DriveModel::Disk(disk) => Ok(disk.as_ref().clone()),
        DriveModel::Flash(_) => Err(Failure::failed("the system has no disk")),
    }
}

fn put_layout(values: &mut Values<'_>, layout: &Layout, bytes: u64) -> Outcome<()> {
    values.put("drive.rotation", over(60e9, layout.revolution_ns))?;
    let heads = layout.skews.heads;
    values.put("drive.heads", Interval::exact(heads.unwrap_or(1) as f64))?;
    if heads.is_none() {
        values.not_determined(
            "drive.heads: set to 1, because track skew and cylinder skew are equal; seek distances \
             are therefore in tracks, not in cylinders",
        );
    }
    values.put("drive.track_skew", layout.skews.track)?;
    values.put("drive.cylinder_skew", layout.skews.cylinder)?;
    let zones = layout.cylinders(bytes);
    let source = format!("{}: computed from the angles at which reads complete", values.source);
    values.base.set_zones(&zones, &source);
    values.base.set("file_size", &bytes.to_string())?;
    for (number, zone) in layout.zones.iter().enumerate() {
        let rounded = Interval { value: zone.sectors.value.round(), ..zone.sectors };
        values.show(format!("zone {number}: sectors per track"), rounded, "sectors");
        if number > 0 {
            let gib = (1_u64 << 30) as f64;
            let [first, half] = [zone.first, zone.uncertain_bytes].map(|b| b as f64 / gib);
            values.show(format!("zone {number}: start"), Interval::symmetric(first, half), "GiB");
        }
    }
    Ok(())
}

fn put_reads(
    values: &mut Values<'_>,
    reads: Option<&ReadBuffer>,
    still_ns: Interval,
    media_ns: f64,
) -> Outcome<()> {
    let media_ns = Interval::exact(media_ns);
    let Some(reads) = reads else {
        values.put("drive.firmware_read", Interval::exact(0.0))?;
        values.put("drive.firmware_miss", times(less(still_ns, media_ns), 1e-3))?;
        values.not_determined(
            "bus.read, drive.segments, drive.prefetch, drive.retained: no read was a buffer hit",
        );
        return Ok(());
    };
    let bus_ns = times(reads.line.slope, f64::from(READ_BYTES));
    let overhead_ns = less(Interval::exact(reads.hit_ns), bus_ns);
    let host_ns = overhead_ns.value - reads.serial_ns;
    let half_ns = (overhead_ns.high - overhead_ns.low) / 2.0;
    values
        .put("drive.firmware_read", times(Interval::symmetric(reads.serial_ns, half_ns), 1e-3))?;
    values.put("host.direct_read.fixed", times(Interval::symmetric(host_ns, half_ns), 1e-3))?;
    let miss_ns = less(less(still_ns, media_ns), overhead_ns);
    values.put("drive.firmware_miss", times(miss_ns, 1e-3))?;
    values.put("drive.firmware_again", times(reads.again_ns, 1e-3))?;
    values.put("bus.read", over(1e3, reads.line.slope))?;
    let rate = 1e3 / reads.line.slope.value;
    values.base.put("bus.write", rate, "set to the rate of reads")?;
    values.put("drive.segments", reads.segments)?;
    values.put("drive.prefetch", times(reads.prefetch, 1.0 / 1024.0))?;
    values.put("drive.retained", times(reads.retained, 1.0 / 1024.0))
}

fn put_curve(values: &mut Values<'_>, curve: &Curve) -> Outcome<()> {
    values.put("drive.seek.near_fixed", times(curve.near.intercept, 1e-6))?;
    values.put("drive.seek.near_root", times(curve.near.slope, 1e-6))?;
    let knee = curve.knee();
    values.put("drive.seek.knee", knee)?;
    if knee.low < knee.value * 0.95 || knee.high > knee.value * 1.05 {
        values.not_determined(
            "drive.seek.knee: both parts of the seek curve are nearly equal near the knee",
        );
    }
    values.put("drive.seek.far_fixed", times(curve.far.intercept, 1e-6))?;
    values.put("drive.seek.far_each", times(curve.far.slope, 1e-6))
}

/// The times of requests without a seek.
struct Still {
    /// The minimum time of a read from the media (ns).
    read_ns: Interval,
    /// The time of a read from the buffer (ns).
    hit_ns: f64,
    /// The time of a read from the buffer without the transfer over the bus (ns).
    overhead_ns: f64,
    /// The time that the data of a read take to pass under the head (ns).
    media_ns: f64,
}

/// Measures and records the parameters of writes.
fn put_writes(
    values: &mut Values<'_>,
    probe: &mut dyn Probe,
    cylinders: &Cylinders,
    layout: &Layout,
    still: &Still,
) -> Outcome<()> {
    let cache = buffers_of(&mut *probe, layout, SEED + 2).writes(still.read_ns.value)?;
    probe.drain()?;
    let dice = Stream::new(SEED + 3);
    let mut arm = Arm { probe: &mut *probe, cylinders, hit_ns: still.hit_ns, dice };
    let begins_anywhere = is_zero_latency(&mut *arm.probe, layout)?;
    values.base.set("drive.zero_latency_write", if begins_anywhere { "on" } else { "off" })?;
    values.base.set("write_cache", if cache.is_some() { "on" } else { "off" })?;
    let mut through_ns = |length: u32| -> Outcome<Interval> {
        let mut found = arm.least_ns(0, Kind::WriteThrough, length)?;
        if begins_anywhere {
            // If a zero-latency write starts in the middle of its data, it takes a full revolution
            // and does not complete at a fixed angle. The lower bound can then be too low. The
            // error is at most the time in which the data pass under the head.
            let media_ns = still.media_ns / f64::from(READ_BYTES) * f64::from(length);
            found.value = found.high.min(found.low + media_ns);
        }
        Ok(found)
    };
    let small_ns = through_ns(READ_BYTES)?;
    let bus_ns_per_byte = match &cache {
        Some(cache) => cache.line.slope,
        None => {
            let more = f64::from(LONG_WRITE_BYTES - READ_BYTES);
            let more_ns = less(through_ns(LONG_WRITE_BYTES)?, small_ns);
            let media = Interval::exact(still.media_ns / f64::from(READ_BYTES));
            less(times(more_ns, 1.0 / more), media)
        }
    };
    if bus_ns_per_byte.value > 0.0 {
        values.put("bus.write", over(1e3, bus_ns_per_byte))?;
    }
    let bus_ns = times(bus_ns_per_byte, f64::from(READ_BYTES));
    // The time by which a write takes longer than a read, because of settling and firmware. The
    // time of the bus transfer is not included.
    let more_ns = less(less(small_ns, still.read_ns), bus_ns);
    let read_ns = Interval::exact(still.overhead_ns);
    let Some(cache) = &cache else {
        values.base.put("drive.firmware_write", still.overhead_ns / 1e3, "as for reads")?;
        values.put("drive.write_settle", times(more_ns, 1e-6))?;
        values.not_determined(
            "drive.firmware_write: set to the firmware time of reads, because the disk completes \
             no write in a cache; drive.write_settle includes any additional firmware time of \
             writes",
        );
        return Ok(());
    };
    let sum_ns = Interval {
        value: more_ns.value + read_ns.value,
        low: more_ns.low + read_ns.low,
        high: more_ns.high + read_ns.high,
    };
    values.put("drive.firmware_write", times(cache.line.intercept, 1e-3))?;
    let write_ns = Interval::exact(cache.line.intercept.value);
    values.put("drive.write_settle", times(less(sum_ns, write_ns), 1e-6))?;
    put_write_cache(values, cache)?;
    let Some(bytes) = cache.by_bytes else { return Ok(()) };
    refine_write_buffer(values, bytes, &|probe, size| {
        buffers_of(probe, layout, SEED + 2).count(size, &cache.line)
    })
}

fn buffers_of<'a>(probe: &'a mut dyn Probe, layout: &Layout, seed: u64) -> Buffers<'a> {
    let revolution_ns = layout.revolution_ns.value;
    let ns_per_byte = revolution_ns / (layout.zones[0].sectors.value * SECTOR_BYTES as f64);
    Buffers { probe, revolution_ns, ns_per_byte, dice: Stream::new(seed) }
}

/// Corrects the size of the write cache by simulation. The measured size is inexact, because the
/// disk writes data to the media while a burst fills the cache. With the corrected size, a
/// simulated disk accepts as many writes of a burst as the real disk. If no size near the measured
/// size has this property, the size is not changed.
fn refine_write_buffer(
    values: &mut Values<'_>,
    (size, count): (u32, u64),
    burst: &dyn Fn(&mut dyn Probe, u32) -> Outcome<u64>,
) -> Outcome<()> {
    let key = "drive.write_buffer";
    let Some(found) = values.parameters.iter().find(|parameter| parameter.key == key) else {
        return Ok(());
    };
    let limits = [found.low / REFINED_WITHIN, found.high * REFINED_WITHIN];
    let mut base = values.base.clone();
    let mut taken = |mib: f64| -> Outcome<u64> {
        base.put(key, mib, "refined")?;
        burst(&mut SimulatedDisk::new(&base.system()?, SEED, true)?, size)
    };
    if taken(limits[0])? >= count || taken(limits[1])? <= count {
        return Ok(());
    }
    // `edge` finds the size at which `is_below` changes from true to false.
    let mut edge = |is_below: &dyn Fn(u64) -> bool| -> Outcome<f64> {
        let [mut low, mut high] = limits;
        for _ in 0..REFINEMENTS {
            let middle = (low + high) / 2.0;
            if is_below(taken(middle)?) { low = middle } else { high = middle }
        }
        Ok((low + high) / 2.0)
    };
    let (low, high) = (edge(&|taken| taken < count)?, edge(&|taken| taken <= count)?);
    values.parameters.retain(|parameter| parameter.key != key);
    values.put(key, Interval { value: (low + high) / 2.0, low, high })
}

fn put_write_cache(values: &mut Values<'_>, cache: &WriteCache) -> Outcome<()> {
    match cache.bytes {
        Some(bytes) => values.put("drive.write_buffer", times(bytes, 1.0 / 1_048_576.0))?,
        None => values.not_determined(
            "drive.write_buffer: the cache reached its limit on the number of writes, but never \
             its limit on bytes",
        ),
    }
    match cache.writes {
        Some(writes) => {
            let entries = times(writes, 1.0 / f64::from(WRITES_PER_ENTRY));
            let rounded = Interval { value: entries.value.round().max(1.0), ..entries };
            values.put("drive.write_entries", rounded)?;
        }
        None => values.not_determined(
            "drive.write_entries: the cache reached its limit on bytes, but never its limit on the \
             number of writes",
        ),
    }
    Ok(())
}

/// Checks whether a write begins with whichever sector arrives first under the head (zero-latency
/// write). Such a write never takes more than a revolution. Without this feature, the longest of
/// many writes takes nearly a revolution more than the shortest.
fn is_zero_latency(probe: &mut dyn Probe, layout: &Layout) -> Outcome<bool> {
    let unit = probe.unit_bytes();
    let track = (layout.zones[0].sectors.value.round() as u64 * SECTOR_BYTES).max(unit);
    let length = (track / 4 * 3).min(u64::from(probe::LARGEST_BYTES) / 2) / unit * unit;
    let revolution_ns = layout.revolution_ns.value;
    // Each write begins at the start of a track, so that it stays within the track. Writes that the
    // host may split are left out.
    let limit = u64::from(probe::LARGEST_BYTES);
    let starts = (0..).map(|number| number * track / unit * unit);
    let starts = starts.filter(|at| at / limit == (at + length - 1) / limit);
    let (mut shortest_ns, mut longest_ns) = (f64::INFINITY, 0.0_f64);
    for (number, at) in starts.take(TRACK_WRITES).enumerate() {
        probe.request(Kind::WriteThrough, at, READ_BYTES)?;
        probe.rest((revolution_ns * (1.0 + number as f64 / TRACK_WRITES as f64)) as u64)?;
        let ns = probe.request(Kind::WriteThrough, at, length as u32)?.ns();
        (shortest_ns, longest_ns) = (shortest_ns.min(ns), longest_ns.max(ns));
    }
    let share = length as f64 / track as f64;
    Ok(longest_ns - shortest_ns < revolution_ns * (1.0 - share / 2.0))
}

/// Determines the order in which the disk serves its queue. It is the order whose simulated rate at
/// depth [`QUEUE_DEPTH`] is closest to the measured rate.
fn put_order(values: &mut Values<'_>, probe: &mut dyn Probe) -> Outcome<()> {
    let workload = Workload {
        pattern: Pattern::Random,
        request_bytes: READ_BYTES,
        depth: QUEUE_DEPTH,
        region_bytes: probe.size_bytes() >> 20 << 20,
        limit_ns: Some(QUEUE_NS),
        ..Workload::default()
    };
    let measured = probe.load(&workload)?;
    let mut found: Vec<(f64, &str)> = Vec::new();
    for order in ["fcfs", "look", "sptf"] {
        values.base.set("drive.schedule", order)?;
        let simulated = predict::simulate(&values.base.system()?, &workload)?;
        found.push(((simulated / measured).ln().abs(), order));
    }
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    values.base.set("drive.schedule", found[0].1)?;
    if found[1].0 - found[0].0 < ORDERS_DIFFER {
        let [one, other] = [found[0].1, found[1].1];
        values.not_determined(&format!(
            "drive.schedule: {one} and {other} predict the same rate at depth {QUEUE_DEPTH}"
        ));
    }
    Ok(())
}

fn calibrated(
    mut values: Values<'_>,
    predicted: &[Predicted],
    layout: &Layout,
    curve: &Curve,
    still_ns: Interval,
) -> Calibrated {
    let stroke = curve.seeks.last().map_or(0, |seek| seek.distance / 3);
    let random_ns = still_ns.value + curve.ns(stroke) + layout.revolution_ns.value / 2.0;
    let track = layout.zones[0].sectors.value * SECTOR_BYTES as f64;
    let media = track * 1e9 / layout.revolution_ns.value;
    let naive = |load: &Predicted| {
        let bytes = f64::from(load.workload.request_bytes);
        let is_random = load.workload.pattern == Pattern::Random;
        let fixed_ns = if is_random { random_ns } else { 0.0 };
        let single_s = fixed_ns / 1e9 + bytes / media;
        (f64::from(load.workload.depth) * bytes / single_s).min(media)
    };
    let document = |load: &Predicted| FittedPointDocument {
        point: load.describe(),
        held_out: true,
        measured_bytes_per_s: load.measured,
        simulated_bytes_per_s: load.simulated,
        naive_bytes_per_s: naive(load),
        error: load.simulated / load.measured - 1.0,
    };
    let errors = |of: &dyn Fn(&Predicted) -> f64| -> ErrorsDocument {
        Errors::of(predicted.iter().map(|load| (of(load), load.measured))).into()
    };
    let seeks = curve.seeks.iter().map(|seek| (curve.ns(seek.distance), seek.ns));
    let spread = predicted.iter().map(|load| load.spread).sum::<f64>();
    let score = ScoreDocument {
        fitted: Errors::of(seeks).into(),
        held_out: errors(&|load| load.simulated),
        naive_held_out: errors(&naive),
        repeatability: spread / predicted.len().max(1) as f64,
    };
    let points: Vec<_> = predicted.iter().map(Predicted::point).collect();
    values.base.set_calibration(&points);
    Calibrated {
        structure: "rotating disk".to_owned(),
        parameters: values.parameters,
        points: predicted.iter().map(document).collect(),
        score,
        not_sought: None,
        not_determined: values.not_determined,
        system: values.base,
    }
}
