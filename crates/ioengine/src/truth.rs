//! A reference device: its parameters, and a schedule that computes each completion time.
//!
//! The correct result of a measurement on such a device is known, so halfpower can be tested on it.
//! The model is small enough for closed-form results. A request holds one of `parallelism` servers
//! for `fixed_ns`, then the single shared bus for `length / bytes_per_s`, a rate that may depend on
//! the offset. Optional parts are a read cache, a prefetch, a write buffer that drains, a granule
//! that makes smaller writes cost more, and a token bucket. A stripe consists of several such
//! devices with all these parts; a shared link may follow. [`Schedule`] turns arrival times into
//! completion times. It reads no clock, so that the I/O engine `delay`, the crate `fusefile` and
//! tests share the same model. It shares no code with the simulator, so the two can check each
//! other.

mod schedule;

pub use schedule::Schedule;

use crate::request::Op;

/// The parameters of the reference device. By default it completes every request immediately.
#[derive(Clone, Debug, PartialEq)]
pub struct Truth {
    /// How long each request holds a server before its data transfer (ns).
    pub fixed_ns: u64,
    /// Rate of the bus that all servers share (bytes per second); None: transfers take no time.
    pub bytes_per_s: Option<f64>,
    /// Rates by offset that replace `bytes_per_s`, ordered by their ends; empty: one rate
    /// everywhere.
    pub zones: Vec<Zone>,
    /// Number of servers: requests served at the same time.
    pub parallelism: u32,
    /// Cache for data that was already read or written.
    pub cache: Option<CacheTruth>,
    /// Read-ahead by the device for sequential reads.
    pub prefetch: Option<PrefetchTruth>,
    /// Write buffer: writes complete before they are on the medium.
    pub buffer: Option<BufferTruth>,
    /// Extra cost of requests that are not aligned to the medium's unit.
    pub granule: Option<GranuleTruth>,
    /// Burst credit: a token bucket over all requests.
    pub credit: Option<CreditTruth>,
    /// Several devices side by side; all parameters above apply to each device.
    pub stripe: Option<StripeTruth>,
    /// Rate of a link that every request passes last, cache hits included, one request at a time
    /// (bytes per second).
    pub link_bytes_per_s: Option<f64>,
    /// CPU time used per request in the submitting thread (ns); honoured only by the I/O engine
    /// `delay`.
    pub cpu_ns: u64,
}

/// A range of offsets with its own rate; it starts where the previous zone ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Zone {
    /// End offset (bytes); the last zone has no end.
    pub end_bytes: u64,
    /// Rate of requests that start in the zone (bytes per second).
    pub bytes_per_s: f64,
}

/// A least-recently-used cache of 4 KiB blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheTruth {
    /// Size of the cache (bytes).
    pub bytes: u64,
    /// Time of a read whose blocks are all cached; replaces every other cost (ns).
    pub hit_ns: u64,
}

/// Read-ahead. After a read that misses and starts where the previous read ended, the device keeps
/// reading the following data at its own rate, until the next miss or write. A miss that does not
/// continue the previous read starts no read-ahead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefetchTruth {
    /// How far the read-ahead goes beyond the end of the read that missed (bytes).
    pub bytes: u64,
    /// Time of a read that is entirely prefetched; replaces every other cost (ns).
    pub hit_ns: u64,
}

/// A write buffer: writes are accepted at the speed of servers and bus until it is full, then at
/// the drain rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BufferTruth {
    /// Size of the buffer (bytes).
    pub bytes: u64,
    /// Rate at which the buffer empties (bytes per second).
    pub drain_bytes_per_s: f64,
}

/// The unit in which data is written to the medium.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GranuleTruth {
    /// Size of the unit (bytes).
    pub bytes: u64,
    /// Extra time of a write per granule that it covers partially, for read-modify-write (ns).
    pub rewrite_ns: u64,
    /// Extra time of a request that touches more granules than its length requires (ns).
    pub straddle_ns: u64,
}

/// Burst credit as on cloud volumes: full at the start, spent by the bytes transferred, refilled at
/// the sustained rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CreditTruth {
    /// Size of the bucket (bytes).
    pub bytes: u64,
    /// The sustained rate (bytes per second).
    pub sustained_bytes_per_s: f64,
}

/// A stripe: a request is split at chunk boundaries, each piece goes to one device, and the request
/// completes when its last piece does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StripeTruth {
    /// Number of devices of the stripe.
    pub members: u32,
    /// Consecutive bytes on one device before the next device follows.
    pub chunk_bytes: u64,
}

impl Default for Truth {
    fn default() -> Self {
        Truth {
            fixed_ns: 0,
            bytes_per_s: None,
            zones: Vec::new(),
            parallelism: 1,
            cache: None,
            prefetch: None,
            buffer: None,
            granule: None,
            credit: None,
            stripe: None,
            link_bytes_per_s: None,
            cpu_ns: 0,
        }
    }
}

/// Transfer time of `bytes` at a rate (ns); 0 without a rate.
fn moving_ns(bytes: u64, bytes_per_s: Option<f64>) -> u64 {
    bytes_per_s.map_or(0, |rate| (bytes as f64 * 1e9 / rate).round() as u64)
}

/// Times and rates of a single device. With a stripe, they are those of one of its devices, and an
/// offset is an offset on that device. They do not include the link.
impl Truth {
    /// Rate of the bus for a request that starts at `offset` (bytes per second).
    pub fn rate_at(&self, offset: u64) -> Option<f64> {
        let zone = self.zones.partition_point(|zone| zone.end_bytes <= offset);
        let zone = self.zones.get(zone).or(self.zones.last());
        zone.map(|zone| zone.bytes_per_s).or(self.bytes_per_s)
    }

    /// How long a request at `offset` holds the bus (ns).
    pub fn transfer_at_ns(&self, offset: u64, length: u32) -> u64 {
        moving_ns(u64::from(length), self.rate_at(offset))
    }

    /// How long a request holds the bus, in the first zone if there are several (ns).
    pub fn transfer_ns(&self, length: u32) -> u64 {
        self.transfer_at_ns(0, length)
    }

    /// Time of one request on an idle device, without cache, prefetch, buffer, granule and credit
    /// (ns).
    pub fn service_ns(&self, length: u32) -> u64 {
        self.fixed_ns.saturating_add(self.transfer_ns(length))
    }

    /// Extra time of a request that is not aligned to the granule (ns).
    pub fn alignment_ns(&self, op: Op, offset: u64, length: u32) -> u64 {
        let Some(granule) = self.granule else { return 0 };
        let bytes = granule.bytes.max(1);
        let (length, end) = (u64::from(length), offset.saturating_add(u64::from(length)));
        let (first, last) = (offset / bytes, end.div_ceil(bytes));
        let partial = match (offset.is_multiple_of(bytes), end.is_multiple_of(bytes)) {
            (true, true) => 0,
            // If both ends are in the same granule, the granule counts once (the last arm).
            (false, false) if last - first > 1 => 2,
            _ => 1,
        };
        let rewritten = if op == Op::Write { partial } else { 0 };
        let straddles = u64::from(last - first > length.div_ceil(bytes));
        let straddling_ns = granule.straddle_ns.saturating_mul(straddles);
        granule.rewrite_ns.saturating_mul(rewritten).saturating_add(straddling_ns)
    }

    /// Requests per second with `depth` outstanding, without cache, prefetch, buffer, granule and
    /// credit: the asymptotic bound min(k / T, 1 / bus time), which deterministic service reaches
    /// (Denning and Buzen, The operational analysis of queueing network models, 1978).
    pub fn requests_per_s(&self, length: u32, depth: u32) -> f64 {
        let busy = f64::from(depth.min(self.parallelism)) * 1e9 / self.service_ns(length) as f64;
        match self.transfer_ns(length) {
            0 => busy,
            bus_ns => busy.min(1e9 / bus_ns as f64),
        }
    }

    /// The request size at which one outstanding request gets half of the bus's rate: T = f + s S
    /// gives n1/2 = f / s (Hockney's half-performance length). None without a bus rate.
    pub fn half_power_bytes(&self) -> Option<f64> {
        self.rate_at(0).map(|rate| self.fixed_ns as f64 / 1e9 * rate)
    }

    /// The depth (a real number) at which requests of this size get half of the bus's rate.
    pub fn half_power_depth(&self, length: u32) -> Option<f64> {
        let bus_ns = self.transfer_ns(length);
        (bus_ns > 0).then(|| self.service_ns(length) as f64 / bus_ns as f64 / 2.0)
    }

    /// How many hits follow each miss of a sequential reader with this think time after each read.
    /// If the think time is at least the transfer time of a read, the read-ahead keeps up and all
    /// reads that fit into the prefetch hit. Otherwise no read hits, because each miss restarts the
    /// read-ahead.
    pub fn hits_per_miss(&self, length: u32, think_ns: u64) -> u64 {
        let fits = self.prefetch.map_or(0, |p| p.bytes / u64::from(length.max(1)));
        if think_ns >= self.transfer_ns(length) { fits } else { 0 }
    }

    /// Completion time of the last of `count` requests that arrive together at the idle device
    /// (ns); the last request may have a different length. Each server starts its next request when
    /// the previous one has left the bus; with m requests, fixed time f, bus time b, last bus time
    /// b' and k servers: if f <= (k - 1) b the bus never idles, and the time is f + (m - 1) b + b'.
    /// Otherwise the servers proceed in rounds: (q + 1) f + (q + r) b + b' for the r-th request of
    /// round q, both counted from 0.
    fn last_of_ns(&self, count: u64, length: u32, last_length: u32) -> u64 {
        let (servers, before) = (u64::from(self.parallelism.max(1)), count.saturating_sub(1));
        let (bus_ns, last_ns) = (self.transfer_ns(length), self.transfer_ns(last_length));
        let turns = |fixed: u64, bus: u64| {
            let moved = bus_ns.saturating_mul(bus).saturating_add(last_ns);
            self.fixed_ns.saturating_mul(fixed).saturating_add(moved)
        };
        if self.fixed_ns <= bus_ns.saturating_mul(servers - 1) {
            return turns(1, before);
        }
        let turn = before / servers;
        turns(turn + 1, turn + before % servers)
    }
}

/// Times and rates of the whole reference device: all devices of its stripe, and the link.
impl Truth {
    /// Time of one request that starts at a chunk of the first device, on an idle device without
    /// zones, cache, prefetch, buffer, granule and credit (ns). The device with the most pieces
    /// completes last; then the request passes the link.
    pub fn alone_ns(&self, length: u32) -> u64 {
        let link_ns = moving_ns(u64::from(length), self.link_bytes_per_s);
        let Some(StripeTruth { members, chunk_bytes }) = self.stripe else {
            return self.service_ns(length).saturating_add(link_ns);
        };
        let (whole, members) = (u64::from(length), u64::from(members.max(1)));
        let chunk = chunk_bytes.clamp(1, whole.max(1));
        let pieces = whole.div_ceil(chunk).max(1);
        let rest = whole - (pieces - 1) * chunk;
        // The last piece may be short. It is on the busiest member only if no other member has as
        // many pieces.
        let last = if (pieces - 1).is_multiple_of(members) { rest } else { chunk };
        let busiest = pieces.div_ceil(members);
        self.last_of_ns(busiest, chunk as u32, last as u32).saturating_add(link_ns)
    }

    /// The rate of sequential requests of this length with all devices of the stripe busy, without
    /// zones, cache, prefetch, buffer, granule and credit (bytes per second): the sum of all
    /// devices, or the rate of the link. Valid if the chunk size is a multiple of the length or the
    /// length a multiple of the chunk size.
    pub fn saturated_bytes_per_s(&self, length: u32) -> f64 {
        let (members, piece) = match self.stripe {
            Some(stripe) => (stripe.members, stripe.chunk_bytes.min(u64::from(length)) as u32),
            None => (1, length),
        };
        let each = self.requests_per_s(piece, self.parallelism) * f64::from(piece);
        let together = each * f64::from(members);
        self.link_bytes_per_s.map_or(together, |link| link.min(together))
    }
}
