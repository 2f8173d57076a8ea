//! The order of writes to a device whose zones must be written in order.
//!
//! Each slot writes a zone from its beginning to its end, and then takes the next zone that no
//! other slot has. A slot has at most one request in flight, so requests to the same zone cannot
//! overtake each other. The number of open zones is the number of slots. Each pass writes every
//! zone once. After the first pass, a zone is reset before it is written again.
//!
//! The order of zone appends does not matter, because the drive chooses their offsets. With
//! appends, all slots therefore write to the same zone.

use ioengine::zones::Zones;

/// Determines the next write of each slot.
#[derive(Clone, Debug)]
pub struct ZoneOrder {
    zone_bytes: u64,
    capacity_bytes: u64,
    /// Whether another pass begins after all zones were written.
    wraps: bool,
    /// For each zone, whether a slot has already taken it.
    given: Vec<bool>,
    /// Number of the zone at which the search for the next free zone begins.
    next_zone: usize,
    slots: Vec<Next>,
}

/// The zone of a slot's next write, and the offset in this zone (bytes).
#[derive(Clone, Copy, Debug)]
struct Next {
    zone: usize,
    at: u64,
    must_be_reset: bool,
    /// Whether no zone is left for the slot.
    is_done: bool,
}

impl ZoneOrder {
    /// Creates the order for a region that begins at a zone boundary and has at least `slots`
    /// zones. If all slots write to the same zone, pass 1 as `slots`. The order has more than one
    /// pass if `limit_bytes` is None or exceeds the capacity of the region's zones.
    pub fn new(zones: &Zones, region_bytes: u64, slots: u32, limit_bytes: Option<u64>) -> Self {
        let count = (region_bytes / zones.zone_bytes).max(1);
        let pass_bytes = count.saturating_mul(zones.capacity_bytes);
        let first = Next { zone: 0, at: 0, must_be_reset: false, is_done: false };
        let slots: Vec<Next> = (0..slots as usize).map(|zone| Next { zone, ..first }).collect();
        ZoneOrder {
            zone_bytes: zones.zone_bytes,
            capacity_bytes: zones.capacity_bytes,
            wraps: limit_bytes.is_none_or(|bytes| bytes > pass_bytes),
            given: (0..count as usize).map(|zone| zone < slots.len()).collect(),
            next_zone: slots.len(),
            slots,
        }
    }

    /// Returns true if no zone is left for the slot.
    pub fn is_done(&self, slot: u32) -> bool {
        self.slots[self.index(slot)].is_done
    }

    /// Returns the index of a slot in `slots`, which has only one element if slots share a zone.
    fn index(&self, slot: u32) -> usize {
        (slot as usize).min(self.slots.len() - 1)
    }

    /// Returns the zone that must be reset before the slot's next write: its offset in the region
    /// and its length (bytes). None if no reset is needed.
    pub fn reset_due(&self, slot: u32) -> Option<(u64, u64)> {
        let next = &self.slots[self.index(slot)];
        next.must_be_reset.then_some((next.zone as u64 * self.zone_bytes, self.zone_bytes))
    }

    /// Records that the zone of the slot has been reset.
    pub fn was_reset(&mut self, slot: u32) {
        let index = self.index(slot);
        self.slots[index].must_be_reset = false;
    }

    /// Returns the offset of the slot's next write in the region (bytes), and advances the slot.
    pub fn next_offset(&mut self, slot: u32, length: u64) -> u64 {
        let index = self.index(slot);
        let next = &mut self.slots[index];
        let offset = next.zone as u64 * self.zone_bytes + next.at;
        next.at += length;
        if next.at + length > self.capacity_bytes {
            self.take_zone(index);
        }
        offset
    }

    /// Gives a slot the next zone that no other slot has. If there is only one pass, zones that
    /// were already taken are skipped. If no zone remains, the slot is done.
    fn take_zone(&mut self, slot: usize) {
        let count = self.given.len();
        let is_taken = |zone: usize| {
            let mut others = self.slots.iter().enumerate();
            others.any(|(other, next)| other != slot && !next.is_done && next.zone == zone)
        };
        let order = (0..count).map(|step| (self.next_zone + step) % count);
        let free = order.filter(|zone| !self.given[*zone] || self.wraps);
        let Some(zone) = free.into_iter().find(|zone| !is_taken(*zone)) else {
            self.slots[slot].is_done = true;
            return;
        };
        let must_be_reset = std::mem::replace(&mut self.given[zone], true);
        self.next_zone = (zone + 1) % count;
        self.slots[slot] = Next { zone, at: 0, must_be_reset, is_done: false };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn zones(zone_bytes: u64, capacity_bytes: u64) -> Zones {
        Zones { zone_bytes, capacity_bytes, sequential_from_bytes: 0, open_max: None }
    }

    proptest! {
        #[test]
        fn every_zone_is_written_in_order_and_reset_before_it_is_written_again(
            count in 1_u64..20, slots in 1_u32..6, per_zone in 1_u64..5, spare in 0_u64..3,
            turns in proptest::collection::vec(0_u32..6, 0..300),
        ) {
            let slots = slots.min(count as u32);
            let zones = zones((per_zone + spare) * 4096, per_zone * 4096);
            let mut order = ZoneOrder::new(&zones, count * zones.zone_bytes, slots, None);
            let mut write_pointers = vec![0; count as usize];
            for turn in turns {
                let slot = turn % slots;
                if let Some((offset, bytes)) = order.reset_due(slot) {
                    prop_assert_eq!(bytes, zones.zone_bytes);
                    write_pointers[(offset / zones.zone_bytes) as usize] = 0;
                    order.was_reset(slot);
                }
                let offset = order.next_offset(slot, 4096);
                let zone = (offset / zones.zone_bytes) as usize;
                prop_assert_eq!(offset % zones.zone_bytes, write_pointers[zone]);
                write_pointers[zone] += 4096;
                prop_assert!(write_pointers[zone] <= zones.capacity_bytes);
            }
        }

        #[test]
        fn slots_that_append_fill_one_zone_after_the_other(
            count in 2_u64..20, per_zone in 1_u64..5,
            turns in proptest::collection::vec(0_u32..6, 0..200),
        ) {
            let zones = zones((per_zone + 1) * 4096, per_zone * 4096);
            let mut order = ZoneOrder::new(&zones, count * zones.zone_bytes, 1, None);
            for (number, slot) in (0_u64..).zip(turns) {
                let wrapped = number / per_zone >= count;
                let begins = number % per_zone == 0;
                prop_assert_eq!(order.reset_due(slot).is_some(), wrapped && begins);
                order.was_reset(slot);
                let offset = order.next_offset(slot, 4096);
                prop_assert_eq!(offset / zones.zone_bytes, number / per_zone % count);
            }
        }

        #[test]
        fn one_pass_writes_each_zone_once_however_the_slots_advance(
            count in 1_u64..20, slots in 1_u32..6, per_zone in 1_u64..5,
            turns in proptest::collection::vec(0_u32..6, 0..200),
        ) {
            let slots = slots.min(count as u32);
            let zones = zones(per_zone * 4096, per_zone * 4096);
            let bytes = count * zones.zone_bytes;
            let mut order = ZoneOrder::new(&zones, bytes, slots, Some(bytes));
            let mut written = Vec::new();
            // The slots first write in random order. Then each slot writes until it has no zone
            // left.
            let rest = (0..slots).flat_map(|slot| (0..200).map(move |_| slot));
            for slot in turns.into_iter().map(|turn| turn % slots).chain(rest) {
                if !order.is_done(slot) {
                    prop_assert_eq!(order.reset_due(slot), None);
                    written.push(order.next_offset(slot, 4096) / 4096);
                }
            }
            written.sort_unstable();
            prop_assert!(written.into_iter().eq(0..count * per_zone));
        }
    }
}
