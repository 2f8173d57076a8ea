//! A device whose every answer is known beforehand, as arithmetic: parameters and a schedule.
//!
//! What the instrument measures on such a device can be held against what it must measure. The
//! model is small enough for closed forms: a request holds one of `parallelism` servers for
//! `fixed_ns`, then the one bus for `length / bytes_per_s`, a rate that may depend on the place;
//! around them may lie a read cache, a prefetch, a write buffer that drains, a granule below which
//! writes cost more, and a token bucket. A stripe is several such devices side by side, each of
//! them whole; a link may come after them all. [`Schedule`] turns arrivals into moments of
//! completion and knows no clock, so that the I/O engine `delay`, the crate `fusefile` and a test
//! all run the same device. It shares nothing with the simulator: each checks the other.

mod schedule;

pub use schedule::Schedule;

use crate::request::Op;

/// What the device does, each part with its parameters. The default answers at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Truth {
    /// How long each request holds a server before its data move (ns).
    pub fixed_ns: u64,
    /// Rate of the bus that all servers share (bytes per second); None: data move in no time.
    pub bytes_per_s: Option<f64>,
    /// The rate by position in place of `bytes_per_s`, in the order of their ends; none: the same
    /// everywhere.
    pub zones: Vec<Zone>,
    /// Requests served at the same time.
    pub parallelism: u32,
    /// Reads of what was read or written before.
    pub cache: Option<CacheTruth>,
    /// Sequential reads of what the device has read on its own.
    pub prefetch: Option<PrefetchTruth>,
    /// Writes accepted before they are on the medium.
    pub buffer: Option<BufferTruth>,
    /// Requests off the boundaries of the medium.
    pub granule: Option<GranuleTruth>,
    /// A token bucket over all requests.
    pub credit: Option<CreditTruth>,
    /// Several devices side by side: all that is said above is said of each of them.
    pub stripe: Option<StripeTruth>,
    /// Rate of a link that whole requests pass one by one when all else is done (bytes per
    /// second), hits too.
    pub link_bytes_per_s: Option<f64>,
    /// CPU time that the device burns for each request in the thread that submits it (ns); only
    /// the I/O engine `delay` does.
    pub cpu_ns: u64,
}

/// A part of the device with a rate of its own, from the end of the one before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Zone {
    /// Where it ends (bytes); the last one has no end.
    pub end_bytes: u64,
    /// Rate of requests that begin in it (bytes per second).
    pub bytes_per_s: f64,
}

/// A least-recently-used cache of 4 KiB blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheTruth {
    /// Its size (bytes).
    pub bytes: u64,
    /// What a read costs whose blocks are all in it, in place of everything else (ns).
    pub hit_ns: u64,
}

/// Reading on: a read that misses and begins where the read before it ended leaves the device
/// reading what follows, at its own rate, until the next miss or write. A miss that does not
/// continue leaves nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefetchTruth {
    /// How far beyond that miss it goes (bytes).
    pub bytes: u64,
    /// What a read costs that lies wholly in what has been read on, in place of everything else
    /// (ns).
    pub hit_ns: u64,
}

/// A write buffer: writes are accepted at the speed of servers and bus until it is full, then as
/// fast as it drains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BufferTruth {
    /// Its size (bytes).
    pub bytes: u64,
    /// Rate at which it empties (bytes per second).
    pub drain_bytes_per_s: f64,
}

/// The unit in which the medium is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GranuleTruth {
    /// Its size (bytes).
    pub bytes: u64,
    /// What a write costs besides for each granule of which it writes a part: it is read, changed
    /// and written back (ns).
    pub rewrite_ns: u64,
    /// What a request costs besides that touches more granules than its length needs (ns).
    pub straddle_ns: u64,
}

/// Burst credit as cloud volumes have it: full at the start, spent by the bytes moved, refilled
/// at the sustained rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CreditTruth {
    /// The bucket (bytes).
    pub bytes: u64,
    /// The rate that lasts (bytes per second).
    pub sustained_bytes_per_s: f64,
}

/// Devices that take turns: a request is cut at the ends of chunks, each piece is a request to
/// one member, and it is complete when its last piece is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StripeTruth {
    /// How many.
    pub members: u32,
    /// What lies on one member before the next one's turn (bytes).
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

/// How long so many bytes take at a rate in bytes per second; no time without one (ns).
fn moving_ns(bytes: u64, bytes_per_s: Option<f64>) -> u64 {
    bytes_per_s.map_or(0, |rate| (bytes as f64 * 1e9 / rate).round() as u64)
}

/// One device: where there is a stripe, one member, at its own offsets. Nothing here counts the
/// link.
impl Truth {
    /// Rate of the bus for a request that begins at `offset` (bytes per second).
    pub fn rate_at(&self, offset: u64) -> Option<f64> {
        let zone = self.zones.partition_point(|zone| zone.end_bytes <= offset);
        let zone = self.zones.get(zone).or(self.zones.last());
        zone.map(|zone| zone.bytes_per_s).or(self.bytes_per_s)
    }

    /// Time that the data of a request at `offset` hold the bus (ns).
    pub fn transfer_at_ns(&self, offset: u64, length: u32) -> u64 {
        moving_ns(u64::from(length), self.rate_at(offset))
    }

    /// Time that a request's data hold the bus, in the first zone where there are several (ns).
    pub fn transfer_ns(&self, length: u32) -> u64 {
        self.transfer_at_ns(0, length)
    }

    /// Time of one request on an idle device, without cache, prefetch, buffer, granule and credit
    /// (ns).
    pub fn service_ns(&self, length: u32) -> u64 {
        self.fixed_ns.saturating_add(self.transfer_ns(length))
    }

    /// What a request costs besides because it lies off the granule's boundaries (ns).
    pub fn alignment_ns(&self, op: Op, offset: u64, length: u32) -> u64 {
        let Some(granule) = self.granule else { return 0 };
        let bytes = granule.bytes.max(1);
        let (length, end) = (u64::from(length), offset.saturating_add(u64::from(length)));
        let (first, last) = (offset / bytes, end.div_ceil(bytes));
        let partial = match (offset.is_multiple_of(bytes), end.is_multiple_of(bytes)) {
            (true, true) => 0,
            // Both ends in one granule.
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

    /// The depth, as a real number, at which requests of this size get half of the bus's rate.
    pub fn half_power_depth(&self, length: u32) -> Option<f64> {
        let bus_ns = self.transfer_ns(length);
        (bus_ns > 0).then(|| self.service_ns(length) as f64 / bus_ns as f64 / 2.0)
    }

    /// How many hits follow each miss of a sequential reader that thinks for so long after each
    /// read: all that fit into the prefetch where thinking takes as long as reading on, and none
    /// where it does not, because each miss begins anew.
    pub fn hits_per_miss(&self, length: u32, think_ns: u64) -> u64 {
        let fits = self.prefetch.map_or(0, |p| p.bytes / u64::from(length.max(1)));
        if think_ns >= self.transfer_ns(length) { fits } else { 0 }
    }

    /// When the last of so many requests is complete that come to the idle device at once, the
    /// last one of another length (ns). Each server begins anew when its request has left the bus;
    /// if that is before its turn comes again, the bus is never idle: f + (m - 1) b + b'. If not,
    /// all servers pass in turn: (q + 1) f + (q + r) b + b' for the r-th in turn q, both from 0.
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

/// All of it: members and link.
impl Truth {
    /// Time of one request that begins where the first member's chunk does, on an idle device
    /// without zones, cache, prefetch, buffer, granule and credit (ns): its pieces are complete
    /// when those of the member with the most are, and then it passes the link.
    pub fn alone_ns(&self, length: u32) -> u64 {
        let link_ns = moving_ns(u64::from(length), self.link_bytes_per_s);
        let Some(StripeTruth { members, chunk_bytes }) = self.stripe else {
            return self.service_ns(length).saturating_add(link_ns);
        };
        let (whole, members) = (u64::from(length), u64::from(members.max(1)));
        let chunk = chunk_bytes.clamp(1, whole.max(1));
        let pieces = whole.div_ceil(chunk).max(1);
        let rest = whole - (pieces - 1) * chunk;
        // The last piece, which may be short, is with the busiest member only if that one has one
        // more than all others.
        let last = if (pieces - 1).is_multiple_of(members) { rest } else { chunk };
        let busiest = pieces.div_ceil(members);
        self.last_of_ns(busiest, chunk as u32, last as u32).saturating_add(link_ns)
    }

    /// The rate of sequential requests of this length when enough of them are outstanding to keep
    /// all members busy, without zones, cache, prefetch, buffer, granule and credit (bytes per
    /// second): the members' together, or the link's. The length goes into a chunk, or chunks go
    /// into the length, without rest.
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
