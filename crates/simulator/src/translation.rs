//! The mapping layer of a flash device. It records which physical slot holds each logical unit, and
//! runs garbage collection. It does not model time. `nand` adds the time of each physical
//! operation.
//!
//! A block is erased as a whole and then filled slot by slot. Only one block, the frontier, is
//! filled at a time. It receives new data from the host, and units that garbage collection moves. A
//! write invalidates the old slot of its unit. When few blocks are free, garbage collection chooses
//! a victim block, moves the valid units of the victim to the frontier, and erases the victim.
//! Blocks do not wear out. An SLC cache, if there is one, is a ring of separate slots that are
//! written before the blocks.

use std::collections::VecDeque;

use crate::random::Stream;

/// Value that means "no slot" or "no unit".
const NONE: u32 = u32::MAX;
/// Number of blocks that garbage collection keeps free: one for moved units, and one for the next
/// frontier.
const FREE_BLOCKS: usize = 2;
/// Number of blocks that hold no data in the steady state. Closed forms of write amplification do
/// not count these blocks. In the closed forms, alpha is the number of slots in the other blocks,
/// divided by the number of units.
pub const RESERVED_BLOCKS: u32 = FREE_BLOCKS as u32;

/// How garbage collection chooses a victim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// The block with the fewest valid units.
    Greedy,
    /// The block that was filled first (LRU).
    Fifo,
    /// The best of several blocks that are drawn at random: the one with the fewest valid units.
    /// The value is the number of draws.
    Choices(u32),
}

/// The dimensions of a map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MapSize {
    /// Number of logical units.
    pub units: u32,
    /// Number of blocks, including [`RESERVED_BLOCKS`].
    pub blocks: u32,
    /// Number of slots of a block. A slot holds one unit.
    pub slots_per_block: u32,
    /// Number of slots of the SLC cache.
    pub cache_slots: u32,
}

/// Counts of operations since the map was created.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MapCounts {
    /// Number of units written to blocks, by the host or from the SLC cache.
    pub written: u64,
    /// Number of valid units that garbage collection moved.
    pub moved: u64,
    /// Number of block erasures.
    pub erased: u64,
}

impl MapCounts {
    /// Returns the counts of the operations since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &MapCounts) -> MapCounts {
        MapCounts {
            written: self.written - earlier.written,
            moved: self.moved - earlier.moved,
            erased: self.erased - earlier.erased,
        }
    }

    /// Returns the number of units written to flash per unit written by the host.
    pub fn write_amplification(&self) -> f64 {
        (self.written + self.moved) as f64 / self.written.max(1) as f64
    }
}

/// The full blocks, from which garbage collection chooses a victim.
#[derive(Clone, Debug)]
enum Full {
    /// One list for each number of valid units. In each list, the oldest block is first.
    Greedy(Buckets),
    /// All full blocks by age, the oldest block first.
    Fifo(VecDeque<u32>),
    /// All full blocks, in any order.
    Choices { blocks: Vec<u32>, draws: u32, random: Stream },
}

/// Lists of blocks: one list for each number of valid units.
#[derive(Clone, Debug)]
struct Buckets {
    /// First and last block of each list.
    ends: Vec<[u32; 2]>,
    /// Previous and next block of each block, within its list.
    near: Vec<[u32; 2]>,
    /// Index below which all lists are empty.
    least: usize,
}

impl Buckets {
    fn new(blocks: u32, slots_per_block: u32) -> Buckets {
        Buckets {
            ends: vec![[NONE; 2]; slots_per_block as usize + 1],
            near: vec![[NONE; 2]; blocks as usize],
            least: 0,
        }
    }

    /// Appends a block to the list for `valid` valid units.
    fn add(&mut self, block: u32, valid: u32) {
        let [_, last] = self.ends[valid as usize];
        self.near[block as usize] = [last, NONE];
        match last {
            NONE => self.ends[valid as usize][0] = block,
            last => self.near[last as usize][1] = block,
        }
        self.ends[valid as usize][1] = block;
        self.least = self.least.min(valid as usize);
    }

    fn remove(&mut self, block: u32, valid: u32) {
        let [before, after] = self.near[block as usize];
        match before {
            NONE => self.ends[valid as usize][0] = after,
            before => self.near[before as usize][1] = after,
        }
        match after {
            NONE => self.ends[valid as usize][1] = before,
            after => self.near[after as usize][0] = before,
        }
    }

    /// Removes and returns the oldest block of the first list that is not empty.
    fn take(&mut self) -> Option<u32> {
        let found = self.ends[self.least..].iter().position(|[first, _]| *first != NONE)?;
        self.least += found;
        let block = self.ends[self.least][0];
        self.remove(block, self.least as u32);
        Some(block)
    }
}

/// The map of a flash device.
#[derive(Clone, Debug)]
pub struct Map {
    size: MapSize,
    /// Slot of each unit. Slots of the SLC cache have higher numbers than slots of blocks.
    slot_of: Vec<u32>,
    /// Unit in each slot. `NONE` if the slot holds no valid unit.
    unit_in: Vec<u32>,
    /// Number of valid units of each block.
    valid: Vec<u32>,
    /// Whether each block is full and can be chosen as a victim.
    is_full: Vec<bool>,
    free: Vec<u32>,
    full: Full,
    /// Block that is being filled. `next_slot` is its next free slot.
    frontier: u32,
    next_slot: u32,
    /// Index of the SLC cache slot that was filled first. This slot and the slots after it, up to
    /// `cache_used` slots in total, are in use.
    cache_first: u32,
    cache_used: u32,
    counts: MapCounts,
}

impl Map {
    /// Creates a map without data. The seed determines the draws of [`Policy::Choices`].
    ///
    /// # Panics
    /// If the blocks, without [`RESERVED_BLOCKS`] blocks, do not have more slots than there are
    /// units. If blocks and SLC cache together have more than 2^31 slots.
    pub fn new(size: MapSize, policy: Policy, seed: u64) -> Map {
        let MapSize { units, blocks, slots_per_block, cache_slots } = size;
        let slots = u64::from(blocks) * u64::from(slots_per_block);
        let reserve = u64::from(RESERVED_BLOCKS) * u64::from(slots_per_block);
        assert!(u64::from(units) + reserve < slots, "the blocks leave no spare slot: {size:?}");
        assert!(slots + u64::from(cache_slots) <= 1 << 31, "too many slots: {size:?}");
        let full = match policy {
            Policy::Greedy => Full::Greedy(Buckets::new(blocks, slots_per_block)),
            Policy::Fifo => Full::Fifo(VecDeque::new()),
            Policy::Choices(draws) => {
                Full::Choices { blocks: Vec::new(), draws: draws.max(1), random: Stream::new(seed) }
            }
        };
        Map {
            slot_of: vec![NONE; units as usize],
            unit_in: vec![NONE; slots as usize + cache_slots as usize],
            valid: vec![0; blocks as usize],
            is_full: vec![false; blocks as usize],
            free: (1..blocks).rev().collect(),
            full,
            frontier: 0,
            next_slot: 0,
            cache_first: 0,
            cache_used: 0,
            counts: MapCounts::default(),
            size,
        }
    }

    /// Returns the size of the map.
    pub fn size(&self) -> MapSize {
        self.size
    }

    /// Returns the operations since the map was created.
    pub fn counts(&self) -> MapCounts {
        self.counts
    }

    /// Returns the slot that holds a unit. `None` if the unit was never written or was trimmed.
    /// Slots at or above `blocks * slots_per_block` belong to the SLC cache.
    #[inline]
    pub fn slot_of(&self, unit: u32) -> Option<u32> {
        Some(self.slot_of[unit as usize]).filter(|slot| *slot != NONE)
    }

    /// Returns the number of valid units in a block.
    pub fn valid_in(&self, block: u32) -> u32 {
        self.valid[block as usize]
    }

    /// Returns the number of SLC cache slots in use, including slots whose unit is no longer valid.
    pub fn cached(&self) -> u32 {
        self.cache_used
    }

    /// Writes a unit to a block, not to the SLC cache.
    pub fn write(&mut self, unit: u32) {
        self.invalidate(unit);
        self.counts.written += 1;
        self.append(unit);
        self.collect();
    }

    /// Discards the data of a unit.
    pub fn trim(&mut self, unit: u32) {
        self.invalidate(unit);
    }

    /// Writes a unit to the SLC cache and returns true. If the cache is full, returns false and
    /// does nothing.
    pub fn write_to_cache(&mut self, unit: u32) -> bool {
        if self.cache_used == self.size.cache_slots {
            return false;
        }
        self.invalidate(unit);
        let place = (self.cache_first + self.cache_used) % self.size.cache_slots;
        self.cache_used += 1;
        self.put(unit, self.slots() + place);
        true
    }

    /// Empties the oldest slot of the SLC cache. If the slot holds a valid unit, the unit is
    /// written to a block. Returns whether the slot held a valid unit. `None` if the cache is
    /// empty.
    pub fn fold(&mut self) -> Option<bool> {
        if self.cache_used == 0 {
            return None;
        }
        let unit = self.unit_in[(self.slots() + self.cache_first) as usize];
        self.cache_first = (self.cache_first + 1) % self.size.cache_slots;
        self.cache_used -= 1;
        if unit != NONE {
            self.write(unit);
        }
        Some(unit != NONE)
    }

    /// Returns the number of slots of all blocks, without the SLC cache.
    fn slots(&self) -> u32 {
        self.size.blocks * self.size.slots_per_block
    }

    fn put(&mut self, unit: u32, slot: u32) {
        self.unit_in[slot as usize] = unit;
        self.slot_of[unit as usize] = slot;
    }

    /// Marks the slot of a unit as invalid.
    fn invalidate(&mut self, unit: u32) {
        let slot = std::mem::replace(&mut self.slot_of[unit as usize], NONE);
        if slot == NONE {
            return;
        }
        self.unit_in[slot as usize] = NONE;
        if slot >= self.slots() {
            return;
        }
        let block = slot / self.size.slots_per_block;
        let valid = self.valid[block as usize];
        self.valid[block as usize] = valid - 1;
        if let Full::Greedy(buckets) = &mut self.full
            && self.is_full[block as usize]
        {
            buckets.remove(block, valid);
            buckets.add(block, valid - 1);
        }
    }

    /// Writes a unit to the frontier.
    fn append(&mut self, unit: u32) {
        if self.next_slot == self.size.slots_per_block {
            self.close();
            self.frontier = self.free.pop().expect("garbage collection keeps blocks free");
            self.next_slot = 0;
        }
        let slot = self.frontier * self.size.slots_per_block + self.next_slot;
        self.next_slot += 1;
        self.valid[self.frontier as usize] += 1;
        self.put(unit, slot);
    }

    /// Adds the full frontier to the blocks that can become victims.
    fn close(&mut self) {
        let block = self.frontier;
        self.is_full[block as usize] = true;
        match &mut self.full {
            Full::Greedy(buckets) => buckets.add(block, self.valid[block as usize]),
            Full::Fifo(blocks) => blocks.push_back(block),
            Full::Choices { blocks, .. } => blocks.push(block),
        }
    }

    /// Runs garbage collection until enough blocks are free.
    fn collect(&mut self) {
        while self.free.len() < FREE_BLOCKS {
            let block = self.victim().expect("few blocks are free, so a block is full");
            self.is_full[block as usize] = false;
            let first = block * self.size.slots_per_block;
            for slot in first..first + self.size.slots_per_block {
                let unit = std::mem::replace(&mut self.unit_in[slot as usize], NONE);
                if unit != NONE {
                    self.counts.moved += 1;
                    self.append(unit);
                }
            }
            self.valid[block as usize] = 0;
            self.counts.erased += 1;
            self.free.push(block);
        }
    }

    fn victim(&mut self) -> Option<u32> {
        match &mut self.full {
            Full::Greedy(buckets) => buckets.take(),
            Full::Fifo(blocks) => blocks.pop_front(),
            Full::Choices { blocks, draws, random } => {
                let mut draw = || (random.next_u64() % blocks.len().max(1) as u64) as usize;
                let valid = &self.valid;
                let drawn = (0..*draws).map(|_| draw());
                let best = drawn.min_by_key(|index| {
                    blocks.get(*index).map_or(u32::MAX, |block| valid[*block as usize])
                })?;
                (best < blocks.len()).then(|| blocks.swap_remove(best))
            }
        }
    }

    /// Returns all inconsistencies of the map: a unit in two slots, a slot without its unit, a
    /// wrong count, a block in no list. The result is empty unless there is a bug.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let per_block = self.size.slots_per_block;
        let mut valid = vec![0; self.size.blocks as usize];
        for (slot, unit) in self.unit_in.iter().enumerate().filter(|(_, unit)| **unit != NONE) {
            if self.slot_of[*unit as usize] != slot as u32 {
                faults.push(format!("slot {slot} holds unit {unit}, which is mapped elsewhere"));
            }
            if (slot as u32) < self.slots() {
                valid[slot / per_block as usize] += 1;
            }
        }
        for (unit, slot) in self.slot_of.iter().enumerate().filter(|(_, slot)| **slot != NONE) {
            if self.unit_in[*slot as usize] != unit as u32 {
                faults.push(format!(
                    "the map puts unit {unit} into slot {slot}, but that slot holds another unit"
                ));
            }
        }
        if valid != self.valid {
            faults.push("the counts of valid units are wrong".to_owned());
        }
        let full = self.is_full.iter().filter(|is_full| **is_full).count();
        if full + self.free.len() + 1 != self.size.blocks as usize {
            faults.push(format!("blocks do not add up: {full} full, {} free", self.free.len()));
        }
        if self.free.iter().any(|block| self.valid[*block as usize] > 0) {
            faults.push("a free block holds data".to_owned());
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Write(u32),
        Cache(u32),
        Trim(u32),
        Fold,
    }

    const UNITS: u32 = 60;

    fn step() -> impl Strategy<Value = Step> {
        let unit = 0..UNITS;
        prop_oneof![
            6 => unit.clone().prop_map(Step::Write),
            2 => unit.clone().prop_map(Step::Cache),
            1 => unit.prop_map(Step::Trim),
            1 => Just(Step::Fold),
        ]
    }

    fn policy() -> impl Strategy<Value = Policy> {
        prop_oneof![Just(Policy::Greedy), Just(Policy::Fifo), (1..5_u32).prop_map(Policy::Choices)]
    }

    proptest! {
        #[test]
        fn each_unit_has_exactly_one_slot_and_none_is_lost_whatever_is_written(
            steps in prop::collection::vec(step(), 1..2000),
            policy in policy(),
            slots_per_block in 4..9_u32,
            spare in 1..12_u32,
        ) {
            let blocks = (UNITS + spare).div_ceil(slots_per_block) + RESERVED_BLOCKS;
            let size = MapSize { units: UNITS, blocks, slots_per_block, cache_slots: 10 };
            prop_assume!(UNITS + RESERVED_BLOCKS * slots_per_block < blocks * slots_per_block);
            let mut map = Map::new(size, policy, 1);
            let mut written = [false; UNITS as usize];
            for step in steps {
                match step {
                    Step::Write(unit) => map.write(unit),
                    Step::Cache(unit) => {
                        let was_full = map.cached() == 10;
                        prop_assert_eq!(map.write_to_cache(unit), !was_full);
                    }
                    Step::Trim(unit) => map.trim(unit),
                    Step::Fold => {
                        let was = map.cached();
                        prop_assert_eq!(map.fold().is_some(), was > 0);
                    }
                }
                match step {
                    Step::Write(unit) => written[unit as usize] = true,
                    Step::Cache(unit) => written[unit as usize] |= map.slot_of(unit).is_some(),
                    Step::Trim(unit) => written[unit as usize] = false,
                    Step::Fold => {}
                }
                prop_assert_eq!(map.faults(), Vec::<String>::new());
                for unit in 0..UNITS {
                    prop_assert_eq!(map.slot_of(unit).is_some(), written[unit as usize]);
                }
            }
        }
    }

    fn size() -> MapSize {
        MapSize { units: 800, blocks: 65, slots_per_block: 16, cache_slots: 0 }
    }

    #[test]
    fn sequential_writes_move_nothing() {
        for policy in [Policy::Greedy, Policy::Fifo] {
            let mut map = Map::new(size(), policy, 1);
            (0..10).for_each(|_| (0..800).for_each(|unit| map.write(unit)));
            assert_eq!(map.counts().moved, 0, "{policy:?}");
            assert!((map.counts().erased as i64 - 500).abs() < 65, "{:?}", map.counts());
        }
    }

    #[test]
    fn one_random_choice_is_worse_than_many_and_all_are_best() {
        let amplification = |policy| {
            let mut map = Map::new(size(), policy, 1);
            let mut random = Stream::new(7);
            (0..50_000).for_each(|_| map.write((random.next_u64() % 800) as u32));
            map.counts().write_amplification()
        };
        let found = [Policy::Choices(1), Policy::Choices(3), Policy::Choices(20), Policy::Greedy]
            .map(amplification);
        assert!(found.is_sorted_by(|a, b| a > b), "{found:?}");
    }

    #[test]
    fn trimmed_units_are_not_moved() {
        let mut map = Map::new(size(), Policy::Greedy, 1);
        (0..800).for_each(|unit| map.write(unit));
        (400..800).for_each(|unit| map.trim(unit));
        let mut random = Stream::new(7);
        let mut overwrite = |map: &mut Map| {
            let before = map.counts();
            (0..20_000).for_each(|_| map.write((random.next_u64() % 400) as u32));
            map.counts().since(&before).write_amplification()
        };
        let found = overwrite(&mut map);
        assert!(found < 1.2, "{found} with half of the device trimmed");
        (400..800).for_each(|unit| map.write(unit));
        assert!(overwrite(&mut map) > found + 0.3);
    }

    #[test]
    fn cached_units_that_are_written_again_are_not_folded() {
        let mut map = Map::new(MapSize { cache_slots: 4, ..size() }, Policy::Greedy, 1);
        assert_eq!(
            [3, 5, 3, 6, 7].map(|unit| map.write_to_cache(unit)),
            [true, true, true, true, false]
        );
        let folded: Vec<Option<bool>> = (0..5).map(|_| map.fold()).collect();
        assert_eq!(folded, [Some(false), Some(true), Some(true), Some(true), None]);
        assert_eq!((map.counts().written, map.cached()), (3, 0));
    }
}
