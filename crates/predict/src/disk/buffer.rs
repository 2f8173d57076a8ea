//! Measures the buffer of a rotating disk: the overhead of a request, the bus rate, the read-ahead,
//! how much data stays in the buffer after a read, the number of segments, and the write cache.
//!
//! A read from the buffer takes far less time than a read from the media. Each size is found by
//! bisection (Schindler and Ganger 1999, "Automated Disk Drive Characterization"). Each step tries
//! a value and issues a read that hits the buffer only if the size is at least that value.

use analysis::interval::Interval;
use analysis::lsq::{self, Line};
use analysis::quantile::median;
use lab::failure::Outcome;
use workload::Workload;
use workload::random::Stream;

use super::layout::{READ_BYTES, centre, times};
use super::probe::{Kind, Probe, Timed};

/// Request sizes at which the transfer time is measured (bytes).
const SIZES: [u32; 7] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10];
/// Number of repetitions of each time measurement.
const TIMES: usize = 7;
/// Number of reads in each test for a buffer hit. The majority decides.
const VOTES: usize = 3;
/// A read is a buffer hit if it takes less than this factor times the time of known hits.
const HIT_FACTOR: f64 = 1.3;
/// Queue depth of the trial that measures [`ReadBuffer::serial_ns`].
const SERIAL_DEPTH: u32 = 8;
/// Duration of the trial that measures [`ReadBuffer::serial_ns`] (ns).
const SERIAL_NS: u64 = 1_000_000_000;
/// Largest amount of read-ahead or retained data that is searched for (bytes).
const BYTES_MAX: u64 = 256 << 20;
/// Largest number of segments that is searched for.
const SEGMENTS_MAX: u64 = 256;
/// The search for an amount of data ends when its two bounds differ by at most this factor.
const PRECISION: f64 = 1.01;
/// Pause after which the disk is idle and its read-ahead is complete (ns).
const REST_NS: u64 = 150_000_000;
/// Pause after which a cached write is on the media (ns).
const WRITE_REST_NS: u64 = 400_000_000;
/// A write waited for space in the cache if it takes longer than this factor times the usual time,
/// plus 100 us.
const FULL_FACTOR: f64 = 1.25;
/// Maximum number of writes in a burst. A cache that holds more writes is not filled, so its size
/// remains unknown.
const BURST_MAX: u64 = 40_000;
/// Maximum number of bytes in a burst.
const BURST_BYTES_MAX: u64 = 2 << 30;
/// The cache has a limit on bytes and a limit on the number of writes. This factor decides which
/// limit a burst reached. A burst of large writes reached the limit on bytes if it has fewer writes
/// than this factor times the number of small writes that fill the cache. The burst of small writes
/// reached the limit on bytes if its bytes are at least this factor times that limit.
const LIMITED: f64 = 0.8;
/// Number of writes that are timed after the cache is full, to measure how fast the disk frees
/// space.
const BURST_AFTER: usize = 24;

/// Measured properties of the buffer for reads.
#[derive(Clone, Debug)]
pub struct ReadBuffer {
    /// Fitted line: time of a read from the buffer (ns) as a function of the read size (bytes).
    pub line: Line,
    /// Time of a small read from the buffer (ns).
    pub hit_ns: f64,
    /// Part of the overhead of a read from the buffer during which the disk serves no other request
    /// (ns).
    pub serial_ns: f64,
    /// Additional time of reading the same data again, compared with reading data that the disk
    /// read ahead (ns).
    pub again_ns: Interval,
    /// Amount of data that the disk reads ahead (bytes).
    pub prefetch: Interval,
    /// Amount of data that stays in the buffer after it was read (bytes).
    pub retained: Interval,
    /// Number of segments: separate ranges of the disk that the buffer can hold at the same time.
    pub segments: Interval,
}

/// Measured properties of the write cache.
#[derive(Clone, Debug)]
pub struct WriteCache {
    /// Fitted line: time of a cached write (ns) as a function of the write size (bytes).
    pub line: Line,
    /// Capacity of the cache (bytes). `None` if no burst reached the limit on bytes.
    pub bytes: Option<Interval>,
    /// Maximum number of writes in the cache. `None` if the burst of small writes did not reach
    /// this limit.
    pub writes: Option<Interval>,
    /// A burst that reached the limit on bytes: the size of its writes (bytes), and the number of
    /// writes that did not wait for space. `None` if no burst reached the limit on bytes.
    pub by_bytes: Option<(u32, u64)>,
}

/// Measures the buffer of one disk.
pub struct Buffers<'a> {
    /// The disk to measure.
    pub probe: &'a mut dyn Probe,
    /// Duration of one revolution (ns).
    pub revolution_ns: f64,
    /// Time that one byte takes to pass under the head (ns).
    pub ns_per_byte: f64,
    /// Random number generator.
    pub dice: Stream,
}

impl Buffers<'_> {
    /// Returns a random offset that is at least `bytes` bytes before the end of the disk.
    fn place(&mut self, bytes: u64) -> u64 {
        let unit = self.probe.unit_bytes().max(u64::from(READ_BYTES));
        let room = self.probe.size_bytes().saturating_sub(bytes + 4 * unit).max(unit);
        self.dice.below(room / unit) * unit
    }

    /// Measures reads from the buffer. Returns `None` if repeated reads are served from the media.
    ///
    /// # Errors
    /// If a request failed.
    pub fn reads(&mut self) -> Outcome<Option<ReadBuffer>> {
        let mut points: Vec<(u32, Interval)> = Vec::new();
        for size in SIZES {
            let again = self.median_of(|buffers| {
                let at = buffers.place(u64::from(size));
                buffers.probe.read(at, size)?;
                buffers.probe.rest(REST_NS)?;
                buffers.probe.read(at, size)
            })?;
            // The time of a read from the buffer grows at most in proportion to its size. A longer
            // time means that the media served the read.
            let most_ns = match points.last() {
                None => self.revolution_ns / 3.0,
                Some((before, time)) => time.value * f64::from(size / before) * 1.2,
            };
            if again.value > most_ns {
                break;
            }
            points.push((size, again));
        }
        let Some(line) = line_of(&points) else { return Ok(None) };
        let again = points[0].1;
        let ahead = self.median_of(|buffers| {
            let at = buffers.place(u64::from(READ_BYTES) * 2);
            buffers.probe.read(at, READ_BYTES)?;
            buffers.probe.rest(REST_NS)?;
            buffers.probe.read(at + u64::from(READ_BYTES), READ_BYTES)
        })?;
        let reads_ahead = ahead.value < again.value * HIT_FACTOR;
        let hit_ns = if reads_ahead { ahead.value.min(again.value) } else { again.value };
        let half_ns = (again.high - again.low + ahead.high - ahead.low) / 2.0;
        let again_ns = Interval::symmetric((again.value - hit_ns).max(0.0), half_ns);
        let limit_ns = again.value.max(hit_ns) * HIT_FACTOR;
        let prefetch = if reads_ahead {
            self.largest(|buffers, bytes| buffers.is_read_ahead(bytes, limit_ns))?
        } else {
            Interval::exact(0.0)
        };
        let retained = self.largest(|buffers, bytes| buffers.is_retained(bytes, limit_ns))?;
        let segments = self.segments(limit_ns)?;
        let bus_ns_per_byte = line.slope.value;
        let overhead_ns = (hit_ns - bus_ns_per_byte * f64::from(READ_BYTES)).max(0.0);
        let serial_ns =
            self.serial_ns(bus_ns_per_byte)?.map_or(overhead_ns, |ns| ns.min(overhead_ns));
        Ok(Some(ReadBuffer { line, hit_ns, serial_ns, again_ns, prefetch, retained, segments }))
    }

    /// Runs the smallest possible sequential reads with several requests in flight. Returns the
    /// time per request without the bus time (ns), or `None` if the media may have limited the
    /// rate.
    fn serial_ns(&mut self, bus_ns_per_byte: f64) -> Outcome<Option<f64>> {
        let unit = self.probe.unit_bytes();
        let workload = Workload {
            request_bytes: unit as u32,
            depth: SERIAL_DEPTH,
            region_bytes: (self.probe.size_bytes() / 8) >> 20 << 20,
            limit_ns: Some(SERIAL_NS),
            ..Workload::default()
        };
        let each_ns = unit as f64 * 1e9 / self.probe.load(&workload)?.max(1.0);
        let serial_ns = (each_ns - unit as f64 * bus_ns_per_byte).max(0.0);
        Ok((each_ns > 1.5 * unit as f64 * self.ns_per_byte).then_some(serial_ns))
    }

    /// Returns the median time of [`TIMES`] requests (ns).
    fn median_of(
        &mut self,
        mut timed: impl FnMut(&mut Self) -> Outcome<Timed>,
    ) -> Outcome<Interval> {
        let mut all = Vec::with_capacity(TIMES);
        for _ in 0..TIMES {
            all.push(timed(self)?.ns());
        }
        Ok(centre(&all))
    }

    /// Returns true if the majority of [`VOTES`] reads took less than `limit_ns`.
    fn most_hit(
        &mut self,
        limit_ns: f64,
        mut timed: impl FnMut(&mut Self) -> Outcome<Timed>,
    ) -> Outcome<bool> {
        let mut hits = 0;
        for _ in 0..VOTES {
            hits += usize::from(timed(self)?.ns() < limit_ns);
        }
        Ok(hits * 2 > VOTES)
    }

    /// Checks whether the disk reads ahead the data that start `bytes` bytes after the end of a
    /// read.
    fn is_read_ahead(&mut self, bytes: u64, limit_ns: f64) -> Outcome<bool> {
        let rest_ns = REST_NS + (bytes as f64 * self.ns_per_byte * 3.0) as u64;
        self.most_hit(limit_ns, |buffers| {
            let at = buffers.place(bytes + 2 * u64::from(READ_BYTES));
            let read = buffers.probe.read(at, READ_BYTES)?;
            let _ = read;
            buffers.probe.rest(rest_ns)?;
            buffers.probe.read(at + u64::from(READ_BYTES) + bytes, READ_BYTES)
        })
    }

    /// Reads a range sequentially, then checks whether the buffer still holds the data `bytes`
    /// bytes before the end of the range.
    fn is_retained(&mut self, bytes: u64, limit_ns: f64) -> Outcome<bool> {
        let piece = u64::from(16 * READ_BYTES);
        self.most_hit(limit_ns, |buffers| {
            let pieces = bytes.div_ceil(piece) + 1;
            let at = buffers.place(pieces * piece);
            for number in 0..pieces {
                buffers.probe.read(at + number * piece, piece as u32)?;
            }
            buffers.probe.read(at + pieces * piece - bytes, READ_BYTES)
        })
    }

    /// Finds the largest size for which `holds` returns true (bytes), by doubling and bisection.
    fn largest(
        &mut self,
        mut holds: impl FnMut(&mut Self, u64) -> Outcome<bool>,
    ) -> Outcome<Interval> {
        let unit = self.probe.unit_bytes().max(u64::from(READ_BYTES));
        let most = BYTES_MAX.min(self.probe.size_bytes() / 8);
        let (mut low, mut high) = (0, unit);
        while high <= most && holds(self, high)? {
            (low, high) = (high, high * 2);
        }
        if high > most {
            let low = low as f64;
            return Ok(Interval { value: low, low, high: f64::INFINITY });
        }
        while high > low + unit && high as f64 > low as f64 * PRECISION {
            let middle = (low + high) / 2 / unit * unit;
            if holds(self, middle)? { low = middle } else { high = middle }
        }
        let (low, high) = (low as f64, high as f64);
        Ok(Interval { value: if low > 0.0 { (low + high) / 2.0 } else { 0.0 }, low, high })
    }

    /// Finds how many scattered reads the buffer holds before it drops the data of the first read.
    fn segments(&mut self, limit_ns: f64) -> Outcome<Interval> {
        let mut remembers = |count: u64| {
            self.most_hit(limit_ns, |buffers| {
                let places: Vec<u64> =
                    (0..count).map(|_| buffers.place(u64::from(READ_BYTES))).collect();
                for place in &places {
                    buffers.probe.read(*place, READ_BYTES)?;
                }
                buffers.probe.read(places[0], READ_BYTES)
            })
        };
        let (mut low, mut high) = (1, 2);
        while high <= SEGMENTS_MAX && remembers(high)? {
            (low, high) = (high, high * 2);
        }
        while high <= SEGMENTS_MAX && high > low + 1 {
            let middle = (low + high) / 2;
            if remembers(middle)? { low = middle } else { high = middle }
        }
        let high = if high > SEGMENTS_MAX { f64::INFINITY } else { low as f64 };
        Ok(Interval { value: low as f64, low: low as f64, high })
    }

    /// Measures the write cache. Returns `None` if writes wait for the media.
    ///
    /// # Errors
    /// If a request failed.
    pub fn writes(&mut self, miss_ns: f64) -> Outcome<Option<WriteCache>> {
        let mut points: Vec<(u32, Interval)> = Vec::new();
        for size in SIZES {
            let time = self.median_of(|buffers| {
                let at = buffers.place(u64::from(size));
                buffers.probe.rest(WRITE_REST_NS)?;
                buffers.probe.request(Kind::Write, at, size)
            })?;
            let most_ns = match points.last() {
                None => miss_ns + self.revolution_ns / 4.0,
                Some((before, ns)) => ns.value * f64::from(size / before) * 1.2,
            };
            if time.value > most_ns {
                break;
            }
            points.push((size, time));
        }
        let Some(line) = line_of(&points) else { return Ok(None) };
        let mut cache = WriteCache { line, bytes: None, writes: None, by_bytes: None };
        self.capacity(&mut cache)?;
        Ok(Some(cache))
    }

    /// Measures how many bytes and how many writes the cache holds. Bursts of large writes reach
    /// the limit on bytes. Bursts of small writes reach the limit on the number of writes.
    fn capacity(&mut self, cache: &mut WriteCache) -> Outcome<()> {
        let small = self.burst(READ_BYTES, &cache.line)?;
        for size in [256_u32, 1024, 768, 448, 192, 144, 96, 64, 48, 32].map(|kib| kib << 10) {
            let burst = self.burst(size, &cache.line)?;
            if burst.writes.high >= small.writes.low * LIMITED || burst.writes.high.is_infinite() {
                continue;
            }
            if cache.by_bytes.is_none_or(|(_, count)| count < burst.count) {
                cache.by_bytes = Some((size, burst.count));
            }
            let found = times(burst.writes, f64::from(size));
            let before = cache.bytes.filter(|b| b.low.max(found.low) <= b.high.min(found.high));
            let (low, high) = before.map_or((found.low, found.high), |before| {
                (before.low.max(found.low), before.high.min(found.high))
            });
            if before.is_some() || cache.bytes.is_none() {
                cache.bytes = Some(Interval { value: (low + high) / 2.0, low, high });
            }
            if high < low * 1.02 {
                break;
            }
        }
        let all_bytes = small.writes.high * f64::from(READ_BYTES);
        let ends_by_bytes = cache.bytes.is_some_and(|bytes| all_bytes >= bytes.low * LIMITED);
        let is_open = ends_by_bytes || small.writes.high.is_infinite();
        cache.writes = (!is_open).then_some(small.writes);
        Ok(())
    }

    /// Counts the scattered writes of `size` bytes that an empty cache accepts before a write has
    /// to wait for space.
    ///
    /// # Errors
    /// If a request failed.
    pub fn count(&mut self, size: u32, line: &Line) -> Outcome<u64> {
        Ok(self.burst(size, line)?.count)
    }

    /// Fills an empty cache with scattered writes until writes have to wait for space.
    fn burst(&mut self, size: u32, line: &Line) -> Outcome<Burst> {
        self.probe.drain()?;
        let usual_ns = line.at(f64::from(size));
        let most = BURST_MAX.min(BURST_BYTES_MAX / u64::from(size));
        let full_ns = usual_ns * FULL_FACTOR + 100_000.0;
        let mut timed: Vec<Timed> = Vec::new();
        // The cache is full when two of the last three writes waited. A single slow write may have
        // been delayed for another reason.
        let is_slow = |time: &Timed| time.ns() > full_ns;
        while timed.iter().rev().take(3).filter(|time| is_slow(time)).count() < 2 {
            if timed.len() as u64 >= most {
                let low = timed.len() as f64;
                let writes = Interval { value: low, low, high: f64::INFINITY };
                return Ok(Burst { writes, count: timed.len() as u64 });
            }
            let at = self.place(u64::from(size));
            timed.push(self.probe.request(Kind::Write, at, size)?);
        }
        let before = timed.len().saturating_sub(3);
        let count = before + timed[before..].iter().take_while(|time| !is_slow(time)).count();
        let filled_ns = timed[count].start_ns as f64 - timed[0].start_ns as f64;
        let mut last_ns = timed[timed.len() - 1].end_ns;
        let mut gaps = Vec::with_capacity(BURST_AFTER);
        for _ in 0..BURST_AFTER {
            let at = self.place(u64::from(size));
            let end_ns = self.probe.request(Kind::Write, at, size)?.end_ns;
            gaps.push(end_ns as f64 - last_ns as f64);
            last_ns = end_ns;
        }
        // The disk already freed space while the burst filled the cache. The rate at which the disk
        // frees space is assumed to be the same as with a full cache.
        let mean_ns = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let slowest_ns = median(&gaps).unwrap_or(mean_ns).max(mean_ns);
        let drained = filled_ns / slowest_ns;
        let low = (count as f64 - (drained + 0.5).ceil()).max(1.0);
        let high = count as f64 + 1.0 - (drained - 0.5).max(0.0).floor();
        let writes = Interval { value: (low + high) / 2.0, low, high };
        Ok(Burst { writes, count: count as u64 })
    }
}

/// The result of a burst of writes.
struct Burst {
    /// Number of writes that did not wait for space.
    count: u64,
    /// Number of writes that the cache holds, corrected for the space that the disk freed during
    /// the burst.
    writes: Interval,
}

fn line_of(points: &[(u32, Interval)]) -> Option<Line> {
    let point = |(size, time): &(u32, Interval)| {
        let error = (time.high - time.low) / 2.0 / time.value;
        lsq::Point::with_relative_error(f64::from(*size), time.value, error)
    };
    lsq::line(&points.iter().map(point).collect::<Vec<_>>()).ok()
}
