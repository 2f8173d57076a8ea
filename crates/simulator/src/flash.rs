//! Simulates a flash device or a cloud volume: parallel units, a shared channel, a read cache, a
//! write buffer, limits on throughput and requests per second, and burst credit.
//!
//! All parts are FIFO servers. The completion time of a request is therefore known when the request
//! arrives, and a request needs only one event. If the device has a translation layer, the module
//! `ftl` simulates the units, the channel and the write buffer instead. A write may then have to
//! wait for space in the buffer.

use std::collections::{BTreeMap, HashMap};

use ioengine::Op;

use crate::ftl::{Ftl, FtlReading};
use crate::server::Server;
use crate::system::FlashModel;

/// Line size of the read cache (bytes).
const LINE_BYTES: u64 = 4096;

/// A flash device or cloud volume.
pub(crate) struct Flash {
    model: FlashModel,
    units: Vec<Server>,
    channel: [Server; 2],
    pacer: Server,
    requests: Credit,
    sustained: Credit,
    cache: Lru,
    /// Number of bytes in the write buffer at the time `buffered_ns`.
    buffered: f64,
    buffered_ns: u64,
    /// A server that is busy while the write buffer has no room for another write of the same
    /// length as the last write.
    full: Server,
    ftl: Option<Box<Ftl>>,
    /// Whether an event is scheduled at which waiting writes may find space in the buffer.
    pub is_watched: bool,
    /// Writes that the buffer has just accepted: command, length (bytes), and end of the transfer
    /// (ns).
    stepped: Vec<(u32, u64, u64)>,
}

/// Busy time of the components of a flash device (ns).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FlashTimes {
    /// Busy time of the units, summed over all units (ns).
    pub units_ns: u64,
    /// Busy times of the read channel and of the write channel (ns).
    pub channel_ns: [u64; 2],
    /// Time for which the limit on requests per second allowed no further request (ns).
    pub paced_ns: u64,
    /// Time for which the write buffer was full (ns).
    pub full_ns: u64,
    /// Time for which the burst credit in requests was exhausted (ns).
    pub requests_spent_ns: u64,
    /// Time for which the burst credit in bytes was exhausted (ns).
    pub spent_ns: u64,
    /// Counters of the translation layer. None if the device has no translation layer.
    pub translation: Option<FtlReading>,
}

/// A token bucket for burst credit, in bytes or in requests.
#[derive(Clone, Debug)]
struct Credit {
    most: f64,
    left: f64,
    earned_per_s: f64,
    at_ns: u64,
    /// A server that is busy while the credit does not cover another request of the same size as
    /// the last request.
    spent: Server,
}

impl Credit {
    /// Creates a full bucket. If `earned_per_s` is 0, the bucket does not limit requests.
    fn full(most: f64, earned_per_s: f64) -> Credit {
        Credit { most, left: most, earned_per_s, at_ns: 0, spent: Server::default() }
    }

    /// Spends credit for a request that arrives at `wish_ns`. Returns the time at which the request
    /// may continue (ns).
    fn spend(&mut self, amount: u64, wish_ns: u64) -> u64 {
        if self.earned_per_s <= 0.0 {
            return wish_ns;
        }
        let at_ns = self.at_ns.max(wish_ns);
        let earned = (at_ns - self.at_ns) as f64 * self.earned_per_s / 1e9;
        self.left = (self.left + earned).min(self.most) - amount as f64;
        self.at_ns = at_ns;
        if self.left < 0.0 {
            // The request waits until the missing credit has been earned.
            self.at_ns += (-self.left * 1e9 / self.earned_per_s).ceil() as u64;
            self.left = 0.0;
            let next_ns = (amount as f64).min(self.most) * 1e9 / self.earned_per_s;
            self.spent.mark_busy(at_ns, self.at_ns + next_ns as u64);
        }
        self.at_ns
    }
}

/// A read cache with LRU replacement. The reference device in `ioengine::truth` intentionally has a
/// separate copy of this code, because the simulator and the reference device check each other.
#[derive(Default)]
struct Lru {
    most: u64,
    used: u64,
    by_line: HashMap<u64, u64>,
    by_use: BTreeMap<u64, u64>,
}

impl Lru {
    /// Adds all lines of a request to the cache. Returns true if all lines were already cached.
    fn touch(&mut self, from: u64, length: u64) -> bool {
        if self.most == 0 {
            return false;
        }
        let mut all = true;
        for line in from / LINE_BYTES..(from + length).div_ceil(LINE_BYTES) {
            self.used += 1;
            match self.by_line.insert(line, self.used) {
                Some(before) => drop(self.by_use.remove(&before)),
                None => all = false,
            }
            self.by_use.insert(self.used, line);
            if self.by_use.len() as u64 > self.most
                && let Some((_, oldest)) = self.by_use.pop_first()
            {
                self.by_line.remove(&oldest);
            }
        }
        all
    }
}

impl Flash {
    /// Creates an idle device of a system with `devices` devices.
    pub fn new(model: &FlashModel, devices: u32) -> Flash {
        let ftl = model.translation.as_ref();
        let ftl = ftl.map(|translation| Box::new(Ftl::new(model, translation, devices)));
        let cache = Lru { most: model.cache.bytes() / LINE_BYTES, ..Lru::default() };
        Flash {
            units: vec![Server::default(); model.units.count().max(1) as usize],
            channel: Default::default(),
            pacer: Server::default(),
            requests: Credit::full(model.request_credit.0, model.sustained_requests_per_s.0),
            sustained: Credit::full(model.credit.0, model.sustained.0),
            cache,
            buffered: 0.0,
            buffered_ns: 0,
            full: Server::default(),
            ftl,
            is_watched: false,
            stepped: Vec::new(),
            model: model.clone(),
        }
    }

    /// Returns the capacity (bytes).
    pub fn bytes(&self) -> u64 {
        self.model.capacity.bytes()
    }

    /// Returns the maximum time for which completion coalescing delays a completion (ns).
    pub fn coalesce_ns(&self) -> u64 {
        self.model.coalesce.ns()
    }

    /// Returns the completion time of a command that arrives now (ns). Returns None if the device
    /// has a translation layer and the command is a write that must wait for space in the buffer.
    /// `step` later returns the completion time of this write.
    #[inline]
    pub fn admit(&mut self, now_ns: u64, command: u32, op: Op, place: (u64, u64)) -> Option<u64> {
        if self.ftl.is_some() {
            return self.translate(now_ns, command, op, place);
        }
        Some(self.serve(now_ns, op, place.0, place.1))
    }

    /// Applies the limits on requests per second. Returns when a request that arrives now may start
    /// (ns).
    fn pace(&mut self, now_ns: u64, length: u64) -> u64 {
        let count = self.model.counts_as(length);
        let mut start_ns = now_ns;
        if self.model.requests_per_s.0 > 0.0 {
            let each_ns = (1e9 / self.model.requests_per_s.0).ceil() as u64;
            let (begun_ns, _) = self.pacer.serve(now_ns, each_ns * count);
            start_ns = begun_ns;
        }
        self.requests.spend(count, start_ns)
    }

    /// Serves a command with the translation layer. Returns when the command completes (ns), or
    /// None for a write that waits for space in the buffer.
    fn translate(
        &mut self,
        now_ns: u64,
        command: u32,
        op: Op,
        (from, length): (u64, u64),
    ) -> Option<u64> {
        let start_ns = self.pace(now_ns, length);
        let is_hit = self.cache.touch(from, length) && op == Op::Read;
        let ftl = self.ftl.as_mut()?;
        let moved_ns = match op {
            Op::Read if is_hit => start_ns + self.model.cache_hit.ns(),
            Op::Read => {
                let link_ns = self.model.read_rate.ns_for(length);
                ftl.read(start_ns, from, length, link_ns) + self.model.fixed_read.ns()
            }
            Op::Write => {
                let link_ns = self.model.write_rate.ns_for(length);
                let moved_ns = ftl.write(start_ns, command, (from, length), link_ns)?;
                moved_ns + self.model.fixed_write.ns()
            }
        };
        Some(self.sustained.spend(length, moved_ns))
    }

    /// Returns the time at which `step` must be called (ns). None if no write waits.
    pub fn next_ns(&self) -> Option<u64> {
        self.ftl.as_ref()?.next_ns()
    }

    /// Accepts waiting writes into the buffer while there is space. Adds the command and the
    /// completion time (ns) of each accepted write to `done`.
    pub fn step(&mut self, now_ns: u64, done: &mut Vec<(u32, u64)>) {
        let Some(ftl) = &mut self.ftl else { return };
        let rate = self.model.write_rate;
        ftl.step(now_ns, |length| rate.ns_for(length), &mut self.stepped);
        for (command, length, moved_ns) in self.stepped.drain(..) {
            let end_ns = moved_ns + self.model.fixed_write.ns();
            done.push((command, self.sustained.spend(length, end_ns)));
        }
    }

    /// Returns the completion time of a request that arrives now at a device without a translation
    /// layer (ns).
    fn serve(&mut self, now_ns: u64, op: Op, from: u64, length: u64) -> u64 {
        let model = &self.model;
        let fixed_ns = if op == Op::Read { model.fixed_read } else { model.fixed_write }.ns();
        let start_ns = self.pace(now_ns, length);
        if self.cache.touch(from, length) && op == Op::Read {
            // A cache hit also counts toward the limits of the volume.
            return self.sustained.spend(length, start_ns + self.model.cache_hit.ns());
        }
        let ready_ns = match op {
            Op::Write if self.model.buffer.0 > 0.0 => self.buffer(start_ns + fixed_ns, length),
            _ => self.work(op, start_ns + fixed_ns, from, length),
        };
        let rate = if op == Op::Read { self.model.read_rate } else { self.model.write_rate };
        let (_, moved_ns) = self.channel[op as usize].serve(ready_ns, rate.ns_for(length));
        self.sustained.spend(length, moved_ns)
    }

    /// Serves a request with one operation for each range of `unit_size` bytes that the request
    /// touches. Returns the time at which the last operation ends (ns).
    fn work(&mut self, op: Op, ready_ns: u64, from: u64, length: u64) -> u64 {
        let unit_size = self.model.unit_size.bytes().max(1);
        let time = if op == Op::Read { self.model.unit_read } else { self.model.unit_write };
        let amplified =
            if op == Op::Read { 1.0 } else { self.model.write_amplification.0.max(1.0) };
        let each_ns = (time.0 * amplified).ceil() as u64;
        let mut end_ns = ready_ns;
        for _ in from / unit_size..(from + length).div_ceil(unit_size) {
            let free = self.units.iter_mut().min_by_key(|unit| unit.free_ns());
            if let Some(unit) = free {
                end_ns = end_ns.max(unit.serve(ready_ns, each_ns).1);
            }
        }
        end_ns
    }

    /// Adds a write to the buffer. Returns when the buffer has room for it (ns).
    fn buffer(&mut self, ready_ns: u64, length: u64) -> u64 {
        let drain = (self.model.drain.0 / self.model.write_amplification.0.max(1.0)).max(1.0);
        let at_ns = self.buffered_ns.max(ready_ns);
        let drained = (at_ns - self.buffered_ns) as f64 * drain / 1e9;
        self.buffered = (self.buffered - drained).max(0.0) + length as f64;
        self.buffered_ns = at_ns;
        let over = self.buffered - self.model.buffer.0;
        if over > 0.0 {
            self.buffered_ns += (over * 1e9 / drain).ceil() as u64;
            self.buffered -= over;
            let next_ns = (length as f64).min(self.model.buffer.0) * 1e9 / drain;
            self.full.mark_busy(at_ns, self.buffered_ns + next_ns as u64);
        }
        self.buffered_ns
    }

    /// Returns the time at which the write buffer will be empty if nothing more is written (ns).
    pub fn drained_ns(&self, now_ns: u64) -> u64 {
        if self.model.buffer.0 <= 0.0 {
            return now_ns;
        }
        let drain = (self.model.drain.0 / self.model.write_amplification.0.max(1.0)).max(1.0);
        now_ns.max(self.buffered_ns + (self.buffered * 1e9 / drain).ceil() as u64)
    }

    /// Returns the busy times of all components up to `now_ns`.
    pub fn times_until(&self, now_ns: u64) -> FlashTimes {
        let translation = self.ftl.as_ref().map(|ftl| ftl.reading(now_ns));
        let units_ns = self.units.iter().map(|unit| unit.busy_ns(now_ns)).sum();
        let channel_ns = [0, 1].map(|op: usize| self.channel[op].busy_ns(now_ns));
        FlashTimes {
            units_ns: translation.map_or(units_ns, |own| own.phases_ns.iter().sum()),
            channel_ns: translation.map_or(channel_ns, |own| own.links_ns),
            translation,
            paced_ns: self.pacer.busy_ns(now_ns),
            full_ns: self.full.busy_ns(now_ns),
            requests_spent_ns: self.requests.spent.busy_ns(now_ns),
            spent_ns: self.sustained.spent.busy_ns(now_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::{Number, Rate, Size, Time};

    fn model() -> FlashModel {
        FlashModel {
            model: String::new(),
            capacity: Size(1e9),
            fixed_read: Time(100_000.0),
            fixed_write: Time(50_000.0),
            units: Number(1.0),
            unit_size: Size(4096.0),
            unit_read: Time(0.0),
            unit_write: Time(0.0),
            read_rate: Rate(0.0),
            write_rate: Rate(0.0),
            requests_per_s: Number(0.0),
            counted_size: Size(0.0),
            request_credit: Number(0.0),
            sustained_requests_per_s: Number(0.0),
            cache: Size(0.0),
            cache_hit: Time(0.0),
            buffer: Size(0.0),
            drain: Rate(0.0),
            write_amplification: Number(1.0),
            credit: Size(0.0),
            sustained: Rate(0.0),
            coalesce: Time(0.0),
            queue: None,
            translation: None,
        }
    }

    #[test]
    fn units_work_side_by_side_and_the_channel_is_shared() {
        let two = FlashModel {
            units: Number(2.0),
            unit_read: Time(1000.0),
            read_rate: Rate(4096e6),
            ..model()
        };
        let mut device = Flash::new(&two, 1);
        let ends: Vec<u64> = (0..4).map(|i| device.serve(0, Op::Read, i * 4096, 4096)).collect();
        assert_eq!(ends, [102_000, 103_000, 104_000, 105_000]);
    }

    #[test]
    fn credit_is_spent_first_and_earned_again() {
        let paid = FlashModel { credit: Size(8192.0), sustained: Rate(4096e3), ..model() };
        let mut volume = Flash::new(&paid, 1);
        let ends: Vec<u64> = (0..4).map(|i| volume.serve(0, Op::Read, i, 4096)).collect();
        assert_eq!(ends, [100_000, 100_000, 1_100_000, 2_100_000]);
    }

    #[test]
    fn large_requests_count_as_several_and_spend_the_credit_in_requests() {
        let counted = FlashModel {
            counted_size: Size(4096.0),
            request_credit: Number(3.0),
            sustained_requests_per_s: Number(1000.0),
            ..model()
        };
        let mut volume = Flash::new(&counted, 1);
        let ends: Vec<u64> =
            [4096, 8192, 4096, 8192].map(|length| volume.serve(0, Op::Read, 0, length)).to_vec();
        assert_eq!(ends, [100_000, 100_000, 1_100_000, 3_100_000]);
    }

    /// Sends small reads to a cloud volume with full burst credit, at `requests_per_s`. Returns the
    /// time until the first read is delayed (s).
    fn burst_s(system: &str, requests_per_s: u64) -> f64 {
        let system = crate::Description::named(system).unwrap().system().unwrap();
        let crate::system::DriveModel::Flash(model) = &system.drive else { panic!("no volume") };
        let mut volume = Flash::new(model, 1);
        let alone_ns = volume.serve(0, Op::Read, 0, 4096);
        let mut arrivals = (1..u64::MAX).map(|number| number * 1_000_000_000 / requests_per_s);
        let delayed = arrivals.find(|at| volume.serve(*at, Op::Read, 0, 4096) > at + 2 * alone_ns);
        delayed.unwrap() as f64 / 1e9
    }

    #[test]
    fn bursts_of_cloud_volumes_last_as_long_as_their_documentation_says() {
        // A gp2 volume of 100 GiB has 5.4 million credits and earns 300 credits per second. At
        // 3,000 requests per second, the credits last for 2,000 s. The test uses one request per
        // second less, because the limit of 3,000 is rounded to whole nanoseconds and would itself
        // cause delays.
        let gp2_s = burst_s("ebs-gp2-100g", 2999);
        assert!((gp2_s / 2000.0 - 1.0).abs() < 1e-3, "{gp2_s}");
        // Azure documents 30 minutes at the highest burst rate.
        let p10_s = burst_s("azure-p10", 3499);
        assert!((p10_s / 1800.0 - 1.0).abs() < 1e-3, "{p10_s}");
    }

    #[test]
    fn a_limit_is_kept_to_the_nanosecond() {
        let mut volume = Flash::new(&FlashModel { requests_per_s: Number(3e5), ..model() }, 1);
        let last_ns = (0..300_001).map(|_| volume.serve(0, Op::Read, 0, 512)).last().unwrap();
        assert!(last_ns - 100_000 >= 1_000_000_000, "{last_ns} ns for the requests of one second");
    }

    #[test]
    fn a_read_of_what_is_cached_takes_the_time_of_a_hit() {
        let cached = FlashModel { cache: Size(8192.0), cache_hit: Time(7.0), ..model() };
        let mut flash = Flash::new(&cached, 1);
        let mut read = |from| flash.serve(0, Op::Read, from, 4096);
        assert_eq!([read(0), read(4096), read(0), read(8192), read(4096)][2], 7);
        assert_eq!([read(8192), read(0)], [7, 100_000]);
    }

    #[test]
    fn a_full_write_buffer_takes_what_drains() {
        let buffer = FlashModel { buffer: Size(8192.0), drain: Rate(4096e3), ..model() };
        let mut flash = Flash::new(&buffer, 1);
        let ends: Vec<u64> = (0..4).map(|i| flash.serve(0, Op::Write, i, 4096)).collect();
        assert_eq!(ends, [50_000, 50_000, 1_050_000, 2_050_000]);
    }
}
