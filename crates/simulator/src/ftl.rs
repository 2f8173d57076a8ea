//! Simulates a flash device with a translation layer. The module `translation` contains the map and
//! the garbage collection, and `nand` contains the dies and channels.
//!
//! A write completes when it is in the write buffer. If the buffer has no space, the write waits.
//! Program operations are assigned to the dies in turn. The moves and erases of garbage collection
//! are spread evenly over the following writes. The dies therefore get an even mix of operations,
//! as with firmware that collects blocks of all dies at the same time.
//!
//! The maps of large devices contain only a sample of the units: a hash chooses one unit of each
//! group of neighbouring units. The sample gets the same access pattern as the whole device, with
//! fewer requests. The share of valid units and the write amplification are therefore the same.
//! Each move of a mapped unit counts as a move of all units of the group. A sampled map has fewer
//! and smaller blocks, but the same over-provisioning.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::models::{Cleaning, DriveState, FlashModel, SlcFull, TranslationModel};
use crate::nand::{Calendar, Nand, Op, Phase};
use crate::random::Stream;
use crate::translation::{Map, MapCounts, MapSize, Policy, RESERVED_BLOCKS};

/// Maximum number of slots in the maps of all devices of a system. This many slots use about 130 MB
/// of memory.
const SLOTS_ALL: u64 = 1 << 24;
/// Maximum number of slots in the map of one device. A map of this size has blocks of 512 slots,
/// whose write amplification differs from that of large blocks by less than 1%.
const SLOTS_MAX: u64 = 1 << 19;
/// Minimum number of slots in the map of one device, for systems with many devices.
const SLOTS_MIN: u64 = 1 << 13;
/// Number of times that the whole device is overwritten in random order, to bring garbage
/// collection into the steady state.
const OVERWRITES: u64 = 4;
/// Random seed of the maps, and of the overwrites that bring garbage collection into the steady
/// state.
const SEED: u64 = 0x5EED;
/// Maximum number of prepared maps that are kept for further devices and trials.
const KEPT_MAPS: usize = 4;

/// A write that waits for space in the buffer.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    command: u32,
    start_ns: u64,
    from: u64,
    length: u64,
}

/// Numbers of bytes that the host wrote, and that the device programmed for each purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlashWrites {
    /// Number of bytes that the host wrote.
    pub host_bytes: f64,
    /// Number of bytes programmed for host writes, in the SLC cache or in the blocks.
    pub written_bytes: f64,
    /// Number of bytes programmed to move data out of the SLC cache.
    pub folded_bytes: f64,
    /// Number of bytes programmed to move data in garbage collection.
    pub moved_bytes: f64,
}

impl FlashWrites {
    /// Returns the sums of the counts of two devices.
    #[must_use]
    pub fn plus(&self, other: &FlashWrites) -> FlashWrites {
        self.with(other, |a, b| a + b)
    }

    /// Returns the counts since an earlier time.
    #[must_use]
    pub fn since(&self, earlier: &FlashWrites) -> FlashWrites {
        self.with(earlier, |a, b| a - b)
    }

    fn with(&self, other: &FlashWrites, of: impl Fn(f64, f64) -> f64) -> FlashWrites {
        FlashWrites {
            host_bytes: of(self.host_bytes, other.host_bytes),
            written_bytes: of(self.written_bytes, other.written_bytes),
            folded_bytes: of(self.folded_bytes, other.folded_bytes),
            moved_bytes: of(self.moved_bytes, other.moved_bytes),
        }
    }
}

/// Defines which units of a device are mapped.
#[derive(Clone, Copy, Debug)]
struct Sampling {
    /// Number of units of the device.
    units: u64,
    /// Number of mapped units.
    mapped: u64,
}

impl Sampling {
    /// Returns the number of units of the device per mapped unit.
    fn scale(self) -> f64 {
        self.units as f64 / self.mapped as f64
    }

    /// Returns the number of the group that contains a unit. In the map, the mapped unit of the
    /// group has this number.
    #[inline]
    fn group(self, unit: u64) -> u64 {
        if self.units == self.mapped { unit } else { unit * self.mapped / self.units }
    }

    /// Returns the first unit of a group.
    #[inline]
    fn first(self, group: u64) -> u64 {
        if self.units == self.mapped { group } else { (group * self.units).div_ceil(self.mapped) }
    }

    /// Returns the mapped unit of a group. The choice is pseudo-random, so that a strided load
    /// accesses mapped units as often as other units.
    #[inline]
    fn chosen(self, group: u64) -> u64 {
        let first = self.first(group);
        match self.first(group + 1) - first {
            1 => first,
            units => first + Stream::new(group).next_u64() % units,
        }
    }
}

/// Operations of garbage collection that are spread over later writes.
#[derive(Clone, Copy, Debug, Default)]
struct Debt {
    owed: f64,
    /// Number of operations that become due with each unit that is written.
    pace: f64,
    due: f64,
}

impl Debt {
    /// Adds operations, which become due while the next `units` units are written.
    fn add(&mut self, more: f64, units: f64) {
        self.owed += more;
        self.pace = self.owed / units;
    }

    fn pay(&mut self, units: f64) {
        let paid = (self.pace * units).min(self.owed);
        self.owed -= paid;
        self.due += paid;
    }

    /// Takes `amount` operations and returns true if at least `amount` operations are due.
    /// Otherwise takes no operation and returns false.
    fn take(&mut self, amount: f64) -> bool {
        let is_due = self.due >= amount;
        self.due -= if is_due { amount } else { 0.0 };
        is_due
    }
}

/// A flash device with a translation layer.
pub(crate) struct Ftl {
    nand: Nand,
    map: Arc<Map>,
    sampling: Sampling,
    seen: MapCounts,
    unit_bytes: u64,
    page_units: u64,
    program_units: u64,
    /// Number of erase blocks of the device per block of the map.
    erases_per_block: f64,
    times: OpTimes,
    slc_full: SlcFull,
    slc_idle_ns: u64,
    /// Size of the write buffer (bytes).
    buffer_bytes: u64,
    /// Number of bytes in the write buffer.
    buffered: u64,
    /// Writes that wait for space in the write buffer.
    waiting: VecDeque<Waiting>,
    /// Numbers of units that wait, because there are too few for a program operation: first the
    /// number for the blocks, then the number for the SLC cache.
    open_units: [u64; 2],
    /// Number of units from the SLC cache that wait, because there are too few for a program
    /// operation.
    open_folded: f64,
    /// Number of mapped units that must be moved out of the SLC cache.
    fold_due: f64,
    moves: Debt,
    erases: Debt,
    /// Mean number of page reads that garbage collection needs to move one unit.
    reads_per_move: f64,
    /// Number of page reads that are due.
    reads_due: f64,
    next_program: u32,
    next_move: u32,
    next_erase: u32,
    last_request_ns: u64,
    writes: FlashWrites,
    /// Transfers over the link to the host, for reads and for writes.
    links: [Calendar; 2],
    /// Part of `writing_ns` during which writes waited for space in the buffer (ns).
    awaited_ns: u64,
    /// Value of `writing_ns` when the current wait began (ns). None if no write waits.
    awaited_from_ns: Option<u64>,
}

/// Durations of operations (ns).
#[derive(Clone, Copy, Debug)]
struct OpTimes {
    read: u64,
    program: u64,
    slc_program: u64,
    erase: u64,
    /// Time for transferring the data of a program operation over a channel.
    transfer: u64,
    slc_transfer: u64,
    /// Time for transferring a unit over a channel.
    unit_transfer: f64,
}

impl Ftl {
    /// Creates a device in the initial state, for a system with `devices` devices.
    pub fn new(model: &FlashModel, translation: &TranslationModel, devices: u32) -> Ftl {
        let sampling_and_size = size_of(model, translation, devices);
        let (sampling, size) = sampling_and_size;
        let (map, last) = prepared(size, policy_of(translation), translation.state);
        let unit_bytes = translation.map_unit.bytes();
        let rate = translation.channel_rate;
        let slots = f64::from(size.slots_per_block) * sampling.scale();
        let mut ftl = Ftl {
            nand: Nand::new(
                model.units.count(),
                translation.channels.count(),
                model.unit_read.ns(),
                translation.suspend.ns(),
            ),
            seen: map.counts(),
            map,
            sampling,
            unit_bytes,
            page_units: model.unit_size.bytes() / unit_bytes,
            program_units: translation.program.bytes() / unit_bytes,
            erases_per_block: slots * unit_bytes as f64 / translation.block.0,
            times: OpTimes {
                read: model.unit_read.ns(),
                program: model.unit_write.ns(),
                slc_program: translation.slc_program.ns(),
                erase: translation.erase.ns(),
                transfer: rate.ns_for(translation.program.bytes()),
                slc_transfer: rate.ns_for(model.unit_size.bytes()),
                unit_transfer: rate.ns_for(unit_bytes << 10) as f64 / 1024.0,
            },
            slc_full: translation.slc_full,
            slc_idle_ns: translation.slc_idle.ns(),
            buffer_bytes: model.buffer.bytes(),
            buffered: 0,
            waiting: VecDeque::new(),
            open_units: [0; 2],
            open_folded: 0.0,
            fold_due: 0.0,
            moves: Debt::default(),
            erases: Debt::default(),
            reads_per_move: 1.0,
            reads_due: 0.0,
            next_program: 0,
            next_move: 0,
            next_erase: 0,
            last_request_ns: 0,
            writes: FlashWrites::default(),
            links: Default::default(),
            awaited_ns: 0,
            awaited_from_ns: None,
        };
        ftl.owe(last);
        ftl
    }

    /// Reads data for the host. The transfer over the link takes `link_ns`. Returns when the
    /// transfer is complete (ns).
    pub fn read(&mut self, start_ns: u64, from: u64, length: u64, link_ns: u64) -> u64 {
        self.advance(start_ns);
        self.last_request_ns = start_ns;
        let mut end_ns = start_ns;
        let (mut page, mut units) = (None, 0_u64);
        let transfer = |units: u64| (self.times.unit_transfer * units as f64) as u64;
        for unit in from / self.unit_bytes..(from + length).div_ceil(self.unit_bytes) {
            let place = self.page_of(unit);
            if place != page {
                if let Some((die, _)) = page {
                    end_ns = end_ns.max(self.nand.read(die, start_ns, transfer(units)));
                }
                (page, units) = (place, 0);
            }
            units += 1;
        }
        if let Some((die, _)) = page {
            end_ns = end_ns.max(self.nand.read(die, start_ns, transfer(units)));
        }
        self.links[0].book(start_ns, end_ns, link_ns).1
    }

    /// Returns the die and the page that contain a unit. None if the unit was never written.
    fn page_of(&self, unit: u64) -> Option<(u32, u64)> {
        let unit = unit.min(self.sampling.units - 1);
        let group = self.sampling.group(unit);
        let slot = u64::from(self.map.slot_of(group as u32)?);
        // The model assumes that all units of a group are near the mapped unit of the group.
        let place = self.sampling.first(slot) + (unit - self.sampling.first(group));
        let die = (place / self.program_units % u64::from(self.nand.dies())) as u32;
        Some((die, place / self.page_units))
    }

    /// Writes data of the host. The transfer over the link takes `link_ns`. Returns when the
    /// transfer is complete (ns). `None` if the write waits for space in the buffer. `step` later
    /// returns the completion of such a write.
    pub fn write(
        &mut self,
        start_ns: u64,
        command: u32,
        (from, length): (u64, u64),
        link_ns: u64,
    ) -> Option<u64> {
        self.advance(start_ns);
        self.last_request_ns = start_ns;
        if self.waiting.is_empty() && self.buffered < self.buffer_bytes {
            self.accept(start_ns, from, length);
            return Some(self.links[1].book(start_ns, start_ns, link_ns).1);
        }
        if self.waiting.is_empty() {
            self.awaited_from_ns = Some(self.writing_ns(start_ns));
        }
        self.waiting.push_back(Waiting { command, start_ns, from, length });
        None
    }

    /// Returns the time at which `step` must be called for the waiting writes (ns). None if no
    /// write waits.
    pub fn next_ns(&self) -> Option<u64> {
        self.nand.next_ns().filter(|_| !self.waiting.is_empty())
    }

    /// Accepts waiting writes while there is space. For each accepted write, adds the command, the
    /// length, and the end of the transfer over the link (ns) to `done`. `link_ns` returns the time
    /// to transfer a given number of bytes (ns).
    pub fn step(
        &mut self,
        now_ns: u64,
        link_ns: impl Fn(u64) -> u64,
        done: &mut Vec<(u32, u64, u64)>,
    ) {
        self.advance(now_ns);
        while self.buffered < self.buffer_bytes {
            let Some(Waiting { command, start_ns, from, length }) = self.waiting.pop_front() else {
                return;
            };
            let at_ns = now_ns.max(start_ns);
            self.accept(at_ns, from, length);
            let (_, end_ns) = self.links[1].book(now_ns, at_ns, link_ns(length));
            done.push((command, length, end_ns));
            if self.waiting.is_empty()
                && let Some(from_ns) = self.awaited_from_ns.take()
            {
                self.awaited_ns += self.writing_ns(now_ns) - from_ns;
            }
        }
    }

    /// Performs all operations up to `now_ns`, and empties the SLC cache while the device is idle.
    fn advance(&mut self, now_ns: u64) {
        self.nand.advance(now_ns);
        self.buffered -= self.nand.take_freed();
        while self.map.cached() > 0
            && let Some(idle_ns) = self.nand.idle_since_ns()
        {
            let at_ns = idle_ns.max(self.last_request_ns + self.slc_idle_ns);
            if at_ns >= now_ns {
                return;
            }
            // Each step moves only the data of one program operation per die, so that a request
            // that arrives need not wait long.
            let programs = u64::from(self.nand.dies()) * self.program_units;
            self.fold(at_ns, programs as f64);
            self.nand.advance(now_ns);
        }
    }

    /// Accepts a write into the buffer, and queues each program operation whose data are complete.
    fn accept(&mut self, at_ns: u64, from: u64, length: u64) {
        let first = from / self.unit_bytes;
        let units = (from + length).div_ceil(self.unit_bytes) - first;
        self.buffered += units * self.unit_bytes;
        self.writes.host_bytes += length as f64;
        let Sampling { units: all, .. } = self.sampling;
        let (begin, end) = (first.min(all - 1), (first + units).min(all));
        if self.map.size().cache_slots == 0 {
            // Without an SLC cache, the mapping of all units of the range is updated before the
            // flash program operations are queued.
            for group in self.sampling.group(begin)..=self.sampling.group(end - 1) {
                if (begin..end).contains(&self.sampling.chosen(group)) {
                    Arc::make_mut(&mut self.map).write(group as u32);
                }
            }
            self.settle();
            self.program(at_ns, false, units);
            return;
        }
        for unit in begin..end {
            self.accept_cached(at_ns, unit);
        }
    }

    /// Writes a unit to the SLC cache, or to the blocks if the cache is full.
    fn accept_cached(&mut self, at_ns: u64, unit: u64) {
        let cache_slots = self.map.size().cache_slots;
        if self.slc_full == SlcFull::Fold && self.map.cached() == cache_slots {
            self.fold(at_ns, 1.0);
        }
        let has_room = self.map.cached() < cache_slots;
        // With `SlcFull::Fold`, the cache makes room for every write.
        let to_cache = has_room || self.slc_full == SlcFull::Fold;
        let group = self.sampling.group(unit);
        if self.sampling.chosen(group) == unit {
            let map = Arc::make_mut(&mut self.map);
            if !to_cache || !map.write_to_cache(group as u32) {
                map.write(group as u32);
                self.settle();
            }
        }
        self.program(at_ns, to_cache, 1);
    }

    /// Adds written units, and queues a program operation whenever there are enough units for one.
    fn program(&mut self, ready_ns: u64, to_cache: bool, units: u64) {
        let OpTimes { program, slc_program, transfer, slc_transfer, .. } = self.times;
        let (each, step_ns, transfer_ns) = if to_cache {
            (self.page_units, slc_program, slc_transfer)
        } else {
            (self.program_units, program, transfer)
        };
        self.open_units[usize::from(to_cache)] += units;
        while self.open_units[usize::from(to_cache)] >= each {
            self.open_units[usize::from(to_cache)] -= each;
            let frees = each * self.unit_bytes;
            self.writes.written_bytes += frees as f64;
            let phase = Phase::Write;
            self.next_die_programs(Op { phase, ready_ns, transfer_ns, step_ns, steps: 1, frees });
        }
        if !to_cache {
            self.pay(ready_ns, units as f64);
        }
    }

    /// Moves units out of the SLC cache.
    fn fold(&mut self, ready_ns: u64, units: f64) {
        self.fold_due += units / self.sampling.scale();
        while self.fold_due >= 1.0 {
            self.fold_due -= 1.0;
            let Some(is_valid) = Arc::make_mut(&mut self.map).fold() else {
                self.fold_due = 0.0;
                break;
            };
            if is_valid {
                self.open_folded += self.sampling.scale();
                self.settle();
                self.pay(ready_ns, self.sampling.scale());
            }
        }
        let each = self.program_units as f64;
        while self.open_folded >= each {
            self.open_folded -= each;
            self.writes.folded_bytes += each * self.unit_bytes as f64;
            self.read_pages(ready_ns, Phase::Fold, (self.program_units / self.page_units).max(1));
            self.next_die_programs(Op { ready_ns, ..self.plain_program(Phase::Fold) });
        }
    }

    /// Schedules the garbage-collection operations that the map has performed since the last call.
    fn settle(&mut self) {
        let counts = self.map.counts();
        if counts.erased > self.seen.erased {
            let delta = counts.since(&self.seen);
            self.seen = counts;
            self.owe(delta);
        }
    }

    /// Spreads the moves and erases in `done` over the next writes.
    fn owe(&mut self, done: MapCounts) {
        if done.erased == 0 {
            return;
        }
        let slots = done.erased as f64 * f64::from(self.map.size().slots_per_block);
        let valid = done.moved as f64 / slots;
        let scale = self.sampling.scale();
        // Number of units that can be written until the slots freed by the collection are used up.
        let gained = (slots - done.moved as f64).max(1.0) * scale;
        self.moves.add(done.moved as f64 * scale, gained);
        self.erases.add(done.erased as f64 * self.erases_per_block, gained);
        if valid > 0.0 {
            // A page is read if any of its units is valid.
            let page = self.page_units as f64;
            self.reads_per_move = (1.0 - (1.0 - valid).powf(page)) / (page * valid);
        }
    }

    /// Queues the garbage-collection operations that become due with a write of `units` units.
    fn pay(&mut self, ready_ns: u64, units: f64) {
        self.moves.pay(units);
        self.erases.pay(units);
        let each = self.program_units as f64;
        while self.moves.take(each) {
            self.reads_due += each * self.reads_per_move;
            let pages = self.reads_due as u64;
            self.reads_due -= pages as f64;
            if pages > 0 {
                self.read_pages(ready_ns, Phase::Collect, pages);
            }
            self.writes.moved_bytes += each * self.unit_bytes as f64;
            self.next_die_programs(Op { ready_ns, ..self.plain_program(Phase::Collect) });
        }
        while self.erases.take(1.0) {
            let step_ns = self.times.erase;
            let op =
                Op { phase: Phase::Erase, ready_ns, transfer_ns: 0, step_ns, steps: 1, frees: 0 };
            self.nand.enqueue(self.next_erase, op);
            self.next_erase = (self.next_erase + 1) % self.nand.dies();
        }
    }

    /// Returns the program operation for data that are moved within the flash.
    fn plain_program(&self, phase: Phase) -> Op {
        let OpTimes { program, transfer, .. } = self.times;
        Op { phase, ready_ns: 0, transfer_ns: transfer, step_ns: program, steps: 1, frees: 0 }
    }

    fn next_die_programs(&mut self, op: Op) {
        self.nand.enqueue(self.next_program, op);
        self.next_program = (self.next_program + 1) % self.nand.dies();
    }

    /// Queues reads of pages whose data are moved within the flash.
    fn read_pages(&mut self, ready_ns: u64, phase: Phase, steps: u64) {
        let OpTimes { read, transfer, .. } = self.times;
        let op = Op { phase, ready_ns, transfer_ns: transfer, step_ns: read, steps, frees: 0 };
        self.nand.enqueue(self.next_move, op);
        self.next_move = (self.next_move + 1) % self.nand.dies();
    }

    /// Returns the busy time of the dies up to `now_ns`, without reads of the host (ns).
    fn writing_ns(&self, now_ns: u64) -> u64 {
        self.nand.busy_until(now_ns)[1..].iter().sum()
    }

    /// Returns the counters up to `now_ns`.
    pub fn reading(&self, now_ns: u64) -> FtlReading {
        let writing_ns = self.writing_ns(now_ns);
        let begun = self.awaited_from_ns.map_or(0, |from_ns| writing_ns.saturating_sub(from_ns));
        FtlReading {
            phases_ns: self.nand.busy_until(now_ns),
            background_ns: writing_ns.saturating_sub(self.awaited_ns + begun),
            channels_ns: self.nand.channels_busy_ns(now_ns),
            channels: self.nand.channels(),
            links_ns: [0, 1].map(|way: usize| self.links[way].busy_ns(now_ns)),
            writes: self.writes,
        }
    }
}

/// Counters of a device with a translation layer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FtlReading {
    /// Busy time of the dies in each phase (ns).
    pub phases_ns: [u64; 5],
    /// Busy time of the dies while no write waited, without reads of the host (ns).
    pub background_ns: u64,
    /// Busy time, summed over all channels (ns).
    pub channels_ns: u64,
    pub channels: u32,
    /// Busy time of the link to the host for reads, and for writes (ns).
    pub links_ns: [u64; 2],
    pub writes: FlashWrites,
}

/// Returns the sampling and the size of a device's map.
fn size_of(
    model: &FlashModel,
    translation: &TranslationModel,
    devices: u32,
) -> (Sampling, MapSize) {
    let units = model.capacity.bytes().div_ceil(translation.map_unit.bytes());
    let spare = 1.0 + translation.over_provisioning.0;
    let most = (SLOTS_ALL / u64::from(devices.max(1))).clamp(SLOTS_MIN, SLOTS_MAX);
    let dies = u64::from(model.units.count());
    let block_units = translation.block.bytes() / translation.map_unit.bytes() * dies;
    let all = (units as f64 * spare) as u64;
    let slots = all.min(most);
    // The number of blocks is one to four times the number of slots per block. But the map has no
    // more blocks than the device, and a block of the map is no larger than a block of all dies.
    let per_block = (1 << (slots.ilog2() / 2)).max(slots / (all / block_units).max(1));
    let per_block = per_block.min(block_units);
    let blocks = slots / per_block;
    let mapped = ((blocks * per_block) as f64 / spare) as u64;
    let sampling = Sampling { units, mapped: mapped.min(units) };
    let cache = translation.slc_cache.0 / translation.map_unit.0 / sampling.scale();
    let size = MapSize {
        units: sampling.mapped as u32,
        blocks: blocks as u32 + RESERVED_BLOCKS,
        slots_per_block: per_block as u32,
        cache_slots: cache.ceil() as u32,
    };
    (sampling, size)
}

fn policy_of(translation: &TranslationModel) -> Policy {
    match translation.cleaning {
        Cleaning::Greedy => Policy::Greedy,
        Cleaning::Fifo => Policy::Fifo,
        Cleaning::Choices => Policy::Choices(translation.candidates.count()),
    }
}

/// A map in the initial state, and the operations of the map's last garbage collection.
type Prepared = (Arc<Map>, MapCounts);
/// The parameters from which a map is prepared.
type Recipe = (MapSize, Policy, DriveState);

/// Returns a map in the initial state. The last few maps are kept, because all devices and trials
/// of a system begin with the same map.
fn prepared(size: MapSize, policy: Policy, state: DriveState) -> Prepared {
    static KEPT: Mutex<VecDeque<(Recipe, Prepared)>> = Mutex::new(VecDeque::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let recipe = (size, policy, state);
    if let Some((_, found)) = kept.iter().find(|(key, _)| *key == recipe) {
        return found.clone();
    }
    let (map, last) = prepare(size, policy, state);
    let made = (Arc::new(map), last);
    kept.truncate(KEPT_MAPS - 1);
    kept.push_front((recipe, made.clone()));
    made
}

fn prepare(size: MapSize, policy: Policy, state: DriveState) -> (Map, MapCounts) {
    let mut map = Map::new(size, policy, SEED);
    let mut last = MapCounts::default();
    if state == DriveState::Empty {
        return (map, last);
    }
    (0..size.units).for_each(|unit| map.write(unit));
    if state == DriveState::Filled {
        return (map, last);
    }
    let mut random = Stream::new(SEED);
    let mut overwrite = |map: &mut Map| {
        map.write((random.next_u64() % u64::from(size.units)) as u32);
    };
    (0..OVERWRITES * u64::from(size.units)).for_each(|_| overwrite(&mut map));
    // The overwrites continue until the next victim is collected, so that the cost of garbage
    // collection is known.
    while last.erased == 0 {
        let before = map.counts();
        overwrite(&mut map);
        last = map.counts().since(&before);
    }
    (map, last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::DriveModel;

    fn device(changes: &[(&str, &str)], devices: u32) -> Ftl {
        let small = [("drive.capacity", "2GiB"), ("drive.units", "8"), ("drive.buffer", "4MiB")];
        let own = [("drive.translation.channels", "4"), ("drive.translation.block", "1.5MiB")];
        let mut description = crate::Description::named("nvme-ftl").unwrap();
        for (key, value) in small.iter().chain(&own).chain(changes) {
            description.set(key, value).unwrap();
        }
        let system = description.system().unwrap();
        let DriveModel::Flash(model) = &system.drive else { panic!("no flash") };
        Ftl::new(model, model.translation.as_ref().unwrap(), devices)
    }

    /// Makes as many random writes as the device has units, and then as many again. Returns the
    /// write amplification of the second half. The hot part of the device (`hot_share`) gets the
    /// share `hot_writes` of the writes.
    fn amplification(ftl: &mut Ftl, hot_share: f64, hot_writes: f64) -> f64 {
        let mut random = Stream::new(3);
        let all = ftl.sampling.units;
        let hot = (all as f64 * hot_share) as u64;
        let mut at_ns = 0;
        let mut write = |ftl: &mut Ftl, count: u64| {
            for _ in 0..count {
                let is_hot = random.share() < hot_writes;
                let unit = if is_hot {
                    random.next_u64() % hot
                } else {
                    hot + random.next_u64() % (all - hot)
                };
                at_ns += 100_000;
                ftl.advance(at_ns);
                ftl.accept(at_ns, unit * ftl.unit_bytes, ftl.unit_bytes);
            }
        };
        write(ftl, all);
        let before = ftl.writes;
        write(ftl, all);
        let done = ftl.writes.since(&before);
        (done.written_bytes + done.moved_bytes) / done.host_bytes
    }

    #[test]
    fn a_sampled_map_amplifies_as_a_whole_one() {
        for (hot_share, hot_writes) in [(0.5, 0.5), (0.2, 0.8)] {
            let [whole, sampled] = [1, 256].map(|devices| {
                let mut ftl = device(&[], devices);
                let scale = ftl.sampling.scale();
                (amplification(&mut ftl, hot_share, hot_writes), scale)
            });
            assert!(whole.1 < 1.4 && sampled.1 > 8.0, "{whole:?} {sampled:?}");
            let difference = (sampled.0 / whole.0 - 1.0).abs();
            assert!(difference < 0.05, "{whole:?} {sampled:?} of {hot_writes} to {hot_share}");
        }
    }

    #[test]
    fn each_unit_is_in_one_group_and_each_group_has_one_mapped_unit() {
        for (units, mapped) in [(1000, 1000), (1000, 999), (1000, 7), (12_345, 1000)] {
            let sampling = Sampling { units, mapped };
            let mut found = vec![0; mapped as usize];
            for unit in 0..units {
                let group = sampling.group(unit);
                let range = sampling.first(group)..sampling.first(group + 1);
                assert!(range.contains(&unit), "{unit} of {sampling:?}");
                found[group as usize] += u32::from(sampling.chosen(group) == unit);
            }
            assert!(found.iter().all(|count| *count == 1), "{sampling:?}");
        }
    }

    #[test]
    fn what_is_written_together_is_on_few_pages() {
        let ftl = device(&[("drive.translation.state", "filled")], 1);
        let pages: std::collections::BTreeSet<_> = (0..32).map(|unit| ftl.page_of(unit)).collect();
        assert!((4..=6).contains(&pages.len()), "{pages:?}");
        assert!(pages.iter().all(Option::is_some));
        let empty = device(&[("drive.translation.state", "empty")], 1);
        assert_eq!(empty.page_of(7), None);
    }

    #[test]
    fn a_map_stays_small_however_large_the_device_is() {
        let large = [("drive.capacity", "60TB"), ("drive.translation.block", "96MiB")];
        let ftl = device(&large, 1);
        let size = ftl.map.size();
        assert!(u64::from(size.blocks) * u64::from(size.slots_per_block) < SLOTS_MAX * 2);
        let many = device(&large, 2048).map.size();
        assert!(u64::from(many.blocks) * u64::from(many.slots_per_block) < SLOTS_MIN * 2);
        assert!(many.blocks > 100, "{many:?}");
    }
}
