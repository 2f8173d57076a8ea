//! A reference device, which is a model for tests of halfpower. Its parameters are known, so the
//! correct result of each measurement is known too.
//!
//! A request occupies one of `parallelism` servers. It takes `fixed_ns`, and then
//! `length / bytes_per_s` on a bus that all servers share. The bus rate may depend on the offset.
//! Optional parts are a read cache, a read-ahead, a write buffer that drains at a fixed rate, a
//! granule (unaligned requests cost more), and a token bucket. Several such devices can form a
//! stripe. A link may transfer the data of all requests after the devices have served the requests.
//!
//! [`Schedule`] computes completion times from arrival times. It reads no clock, so the I/O engine
//! `delay`, the crate `fusefile` and tests can share it. It shares no code with the simulator, so
//! each of the two can check the other.

mod schedule;

pub use schedule::Schedule;

use crate::request::Op;

/// The parameters of a reference device. With the defaults, every request completes immediately.
#[derive(Clone, Debug, PartialEq)]
pub struct Truth {
    /// Time for which each request holds a server before its data transfer (ns).
    pub fixed_ns: u64,
    /// Rate of the bus that all servers share (bytes per second). None if transfers take no time.
    pub bytes_per_s: Option<f64>,
    /// Zones with different bus rates, which replace `bytes_per_s`. The zones are sorted by their
    /// end offsets. Empty if the rate is the same everywhere.
    pub zones: Vec<Zone>,
    /// Number of servers, which is the number of requests that are served at the same time.
    pub parallelism: u32,
    /// Cache for data that was already read or written. None if there is no cache.
    pub cache: Option<CacheTruth>,
    /// Read-ahead by the device for sequential reads. None if there is no read-ahead.
    pub prefetch: Option<PrefetchTruth>,
    /// Write buffer, with which writes complete before they are on the medium. None if there is no
    /// buffer.
    pub buffer: Option<BufferTruth>,
    /// Extra cost of requests that are not aligned to the medium's unit. None if alignment has no
    /// effect.
    pub granule: Option<GranuleTruth>,
    /// Token bucket that limits the rate of all requests after a burst. None if there is no burst
    /// limit.
    pub credit: Option<CreditTruth>,
    /// Stripe of several devices. All parameters above then apply to each device. None if there is
    /// one device.
    pub stripe: Option<StripeTruth>,
    /// Rate of a link that transfers the data of every request, including cache hits, after the
    /// device has served the request (bytes per second). The link transfers the data of one request
    /// at a time. None if there is no link.
    pub link_bytes_per_s: Option<f64>,
    /// CPU time that each request uses in the submitting thread (ns). Only the I/O engine `delay`
    /// uses this value.
    pub cpu_ns: u64,
}

/// A range of offsets with a specific bus rate. The zone starts where the previous zone ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Zone {
    /// End offset of the zone (bytes). For the last zone, the value is ignored, because that zone
    /// extends to the end of the device.
    pub end_bytes: u64,
    /// Rate of requests that start in the zone (bytes per second).
    pub bytes_per_s: f64,
}

/// A least-recently-used cache of 4 KiB blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheTruth {
    /// Size of the cache (bytes).
    pub bytes: u64,
    /// Time of a read whose blocks are all cached (ns). This time replaces the fixed time, the
    /// transfer time and the alignment costs.
    pub hit_ns: u64,
}

/// Read-ahead by the device. If a read begins where the previous read ended, and the data is not
/// cached or prefetched, the read-ahead starts. The device then reads the following data at its own
/// rate, until the next miss or write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefetchTruth {
    /// Amount of data that is read ahead, from the end of the read that missed (bytes).
    pub bytes: u64,
    /// Time of a read that is entirely prefetched (ns). This time replaces the fixed time, the
    /// transfer time and the alignment costs.
    pub hit_ns: u64,
}

/// A write buffer. Until the buffer is full, writes are accepted at the speed of the servers and
/// the bus. After that, they are accepted at the drain rate.
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
    /// Extra time of a write for each granule that the write covers only partially (ns). The device
    /// must read, modify and rewrite such a granule.
    pub rewrite_ns: u64,
    /// Extra time of a request that touches more granules than its length requires (ns).
    pub straddle_ns: u64,
}

/// A token bucket, like the burst credit of cloud volumes. The bucket is full at the start. Each
/// transferred byte uses one token, and the bucket is refilled at the sustained rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CreditTruth {
    /// Size of the bucket (bytes).
    pub bytes: u64,
    /// The sustained rate (bytes per second).
    pub sustained_bytes_per_s: f64,
}

/// A stripe of several devices. Each request is split into pieces at chunk boundaries. Each piece
/// is served by the device that has the chunk. The request completes when the last piece completes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StripeTruth {
    /// Number of devices of the stripe.
    pub members: u32,
    /// Size of a chunk, the amount of consecutive data on one device (bytes).
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

/// Returns the transfer time of `bytes` at a rate (ns), or 0 if there is no rate.
fn moving_ns(bytes: u64, bytes_per_s: Option<f64>) -> u64 {
    bytes_per_s.map_or(0, |rate| (bytes as f64 * 1e9 / rate).round() as u64)
}

/// Times and rates of one device, without the link. For a stripe, these functions describe one of
/// its devices, and offsets are offsets on that device.
impl Truth {
    /// Returns the rate of the bus for a request that starts at `offset` (bytes per second), or
    /// None if transfers take no time.
    pub fn rate_at(&self, offset: u64) -> Option<f64> {
        let zone = self.zones.partition_point(|zone| zone.end_bytes <= offset);
        let zone = self.zones.get(zone).or(self.zones.last());
        zone.map(|zone| zone.bytes_per_s).or(self.bytes_per_s)
    }

    /// Returns the time for which a request at `offset` holds the bus (ns).
    pub fn transfer_at_ns(&self, offset: u64, length: u32) -> u64 {
        moving_ns(u64::from(length), self.rate_at(offset))
    }

    /// Returns the time for which a request at offset 0 holds the bus (ns).
    pub fn transfer_ns(&self, length: u32) -> u64 {
        self.transfer_at_ns(0, length)
    }

    /// Returns the time of one request at offset 0 on an idle device, without cache, prefetch,
    /// buffer, granule and credit (ns).
    pub fn service_ns(&self, length: u32) -> u64 {
        self.fixed_ns.saturating_add(self.transfer_ns(length))
    }

    /// Returns the extra time of a request that is not aligned to the granule (ns).
    pub fn alignment_ns(&self, op: Op, offset: u64, length: u32) -> u64 {
        let Some(granule) = self.granule else { return 0 };
        let bytes = granule.bytes.max(1);
        let (length, end) = (u64::from(length), offset.saturating_add(u64::from(length)));
        let (first, last) = (offset / bytes, end.div_ceil(bytes));
        let partial = match (offset.is_multiple_of(bytes), end.is_multiple_of(bytes)) {
            (true, true) => 0,
            // If both ends are in the same granule, the last arm counts that granule once.
            (false, false) if last - first > 1 => 2,
            _ => 1,
        };
        let rewritten = if op == Op::Write { partial } else { 0 };
        let straddles = u64::from(last - first > length.div_ceil(bytes));
        let straddling_ns = granule.straddle_ns.saturating_mul(straddles);
        granule.rewrite_ns.saturating_mul(rewritten).saturating_add(straddling_ns)
    }

    /// Returns the request rate with `depth` requests outstanding (requests per second), without
    /// cache, prefetch, buffer, granule and credit. The result is the asymptotic bound min(k / T,
    /// 1 / bus time), where k is the number of requests in service, and T the service time of a
    /// request. Deterministic service reaches this bound (Denning and Buzen, The operational
    /// analysis of queueing network models, 1978).
    pub fn requests_per_s(&self, length: u32, depth: u32) -> f64 {
        let busy = f64::from(depth.min(self.parallelism)) * 1e9 / self.service_ns(length) as f64;
        match self.transfer_ns(length) {
            0 => busy,
            bus_ns => busy.min(1e9 / bus_ns as f64),
        }
    }

    /// Returns the request size at which one outstanding request gets half of the bus rate (bytes),
    /// or None if there is no bus rate. A request of S bytes takes T = f + s S, with the fixed time
    /// f and the transfer time s per byte. The result is n1/2 = f / s (Hockney's half-performance
    /// length).
    pub fn half_power_bytes(&self) -> Option<f64> {
        self.rate_at(0).map(|rate| self.fixed_ns as f64 / 1e9 * rate)
    }

    /// Returns the queue depth at which requests of this size get half of the bus rate, or None if
    /// there is no bus rate. The result may be fractional.
    pub fn half_power_depth(&self, length: u32) -> Option<f64> {
        let bus_ns = self.transfer_ns(length);
        (bus_ns > 0).then(|| self.service_ns(length) as f64 / bus_ns as f64 / 2.0)
    }

    /// Returns the number of hits after each miss of a sequential reader that waits for `think_ns`
    /// after each read. If this think time is at least the transfer time of a read, the read-ahead
    /// keeps up, and all reads that fit into the prefetch are hits. Otherwise all reads are misses,
    /// because each miss restarts the read-ahead.
    pub fn hits_per_miss(&self, length: u32, think_ns: u64) -> u64 {
        let fits = self.prefetch.map_or(0, |p| p.bytes / u64::from(length.max(1)));
        if think_ns >= self.transfer_ns(length) { fits } else { 0 }
    }

    /// Returns the time at which the last of `count` requests completes if all arrive at time 0 at
    /// an idle device (ns). The last request may have a different length. Each server starts its
    /// next request when its previous request has left the bus.
    ///
    /// Symbols: m requests, k servers, fixed time f, bus time b, bus time b' of the last request.
    ///
    /// - If f <= (k - 1) b, the bus never idles. The result is f + (m - 1) b + b'.
    /// - Otherwise the servers proceed in rounds. The last request is request r of round q (both
    ///   counted from 0). The result is (q + 1) f + (q + r) b + b'.
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

/// Times and rates of the whole reference device, with all devices of its stripe and the link.
impl Truth {
    /// Returns the time of a single request to an idle stripe (ns). The request starts at a chunk
    /// boundary on the first device. The device with the most pieces completes last, and then the
    /// link transfers the data. The result is valid only for devices without zones, cache,
    /// prefetch, buffer, granule and credit.
    pub fn alone_ns(&self, length: u32) -> u64 {
        let link_ns = moving_ns(u64::from(length), self.link_bytes_per_s);
        let Some(StripeTruth { members, chunk_bytes }) = self.stripe else {
            return self.service_ns(length).saturating_add(link_ns);
        };
        let (whole, members) = (u64::from(length), u64::from(members.max(1)));
        let chunk = chunk_bytes.clamp(1, whole.max(1));
        let pieces = whole.div_ceil(chunk).max(1);
        let rest = whole - (pieces - 1) * chunk;
        // The last piece may be short. This shortens the time only if every other device has fewer
        // pieces than the device with the last piece.
        let last = if (pieces - 1).is_multiple_of(members) { rest } else { chunk };
        let busiest = pieces.div_ceil(members);
        self.last_of_ns(busiest, chunk as u32, last as u32).saturating_add(link_ns)
    }

    /// Returns the rate of sequential requests of this length if all devices of the stripe are busy
    /// (bytes per second). This is the sum of the rates of all devices, or the rate of the link if
    /// that is lower. The result is valid only for devices without zones, cache, prefetch, buffer,
    /// granule and credit. The chunk size must be a multiple of the length, or the length a
    /// multiple of the chunk size.
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
