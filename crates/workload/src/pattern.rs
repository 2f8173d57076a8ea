//! Computes the offset of the next request. The order is sequential (for one worker, or shared by
//! all workers), strided, random without repetition, or random with a skewed distribution.
//!
//! Offsets are multiples of the smallest request size. A random request that would cross the end of
//! the region is moved back, so that it ends at the end of the region.

use crate::cursor::Cursor;
use crate::plan::WorkerPlan;
use crate::random::{Permutation, mix};
use crate::skew::Skew;
use crate::spec::{Pattern, Placement, Workload};
use crate::zone_order::ZoneOrder;

/// Constant that is mixed with the worker's seed to get the seed of skewed draws.
const DRAW_SEED: u64 = 0x5CE3;
/// Constant that is mixed with the workload's seed to get the seed for the location of popular
/// blocks.
const LOCATION_SEED: u64 = 0x97AC;

/// Generates the offsets of one worker's requests.
#[derive(Clone, Debug)]
pub struct Offsets {
    region_offset: u64,
    region_bytes: u64,
    /// Size of the largest request (bytes).
    request_bytes: u64,
    /// Size of the smallest request (bytes).
    granule_bytes: u64,
    order: Order,
}

#[derive(Clone, Debug)]
enum Order {
    Sequential { at: u64 },
    Interlocked(Cursor),
    Strided { at: u64, phase: u64, stride: u64 },
    Random(Permutation),
    Skewed(Skew),
    Zones(ZoneOrder),
}

impl Offsets {
    /// Creates the generator for the offsets of one worker.
    pub fn new(workload: &Workload, plan: &WorkerPlan) -> Offsets {
        let request_bytes = u64::from(workload.request_bytes);
        let granule_bytes = u64::from(workload.granule_bytes());
        let WorkerPlan { region_offset, region_bytes, .. } = *plan;
        let zoned = |zones| {
            let slots = if workload.options.zone_append { 1 } else { workload.depth };
            Order::Zones(ZoneOrder::new(zones, region_bytes, slots, plan.limit_bytes))
        };
        let order = || match workload.pattern {
            Pattern::Sequential if workload.placement == Placement::Interlocked => {
                Order::Interlocked(plan.cursor.clone().unwrap_or_default())
            }
            Pattern::Sequential => Order::Sequential { at: plan.start_bytes },
            Pattern::Strided { stride_bytes } => {
                Order::Strided { at: 0, phase: 0, stride: stride_bytes }
            }
            Pattern::Random => {
                let blocks = region_bytes / granule_bytes;
                let (seed, locations) =
                    (mix(plan.seed, DRAW_SEED), mix(workload.seed, LOCATION_SEED));
                Skew::new(&workload.distribution, blocks, seed, locations).map_or_else(
                    || Order::Random(Permutation::new(blocks, plan.seed)),
                    Order::Skewed,
                )
            }
        };
        let order = plan.zones.as_ref().map_or_else(order, zoned);
        Offsets { region_offset, region_bytes, request_bytes, granule_bytes, order }
    }

    /// Returns the offset in the target for the next request of `length` bytes.
    #[inline]
    pub fn next_offset(&mut self, length: u32) -> u64 {
        let (request, region, length) = (self.request_bytes, self.region_bytes, u64::from(length));
        let last = region - length;
        let at = match &mut self.order {
            Order::Random(permutation) => (permutation.next_index() * self.granule_bytes).min(last),
            Order::Skewed(skew) => (skew.next_index() * self.granule_bytes).min(last),
            Order::Sequential { at } => {
                let offset = if *at > last { 0 } else { *at };
                *at = offset + length;
                offset
            }
            // Callers that do not distinguish slots use the first slot.
            Order::Zones(order) => order.next_offset(0, length),
            Order::Interlocked(cursor) => cursor.take(length, region),
            Order::Strided { at, phase, stride } => {
                let offset = *at;
                *at += *stride;
                if *at + request > region {
                    *phase += request;
                    if *phase + request > (*stride).min(region) {
                        *phase = 0;
                    }
                    *at = *phase;
                }
                offset
            }
        };
        self.region_offset + at
    }

    /// Returns the offset in the target for the next request of `length` bytes in a slot. The slot
    /// matters only for writes that must fill zones in order.
    pub fn next_offset_of(&mut self, slot: u32, length: u32) -> u64 {
        match &mut self.order {
            Order::Zones(order) => self.region_offset + order.next_offset(slot, length.into()),
            _ => self.next_offset(length),
        }
    }

    /// Returns true if no zone is left for the slot to write.
    pub fn is_done(&self, slot: u32) -> bool {
        matches!(&self.order, Order::Zones(order) if order.is_done(slot))
    }

    /// Returns the zone that must be reset before the slot's next write, as its offset in the
    /// target and its length (bytes). None if no zone must be reset.
    pub fn reset_due(&self, slot: u32) -> Option<(u64, u64)> {
        let Order::Zones(order) = &self.order else { return None };
        order.reset_due(slot).map(|(offset, bytes)| (self.region_offset + offset, bytes))
    }

    /// Records that the slot's zone has been reset.
    pub fn was_reset(&mut self, slot: u32) {
        if let Order::Zones(order) = &mut self.order {
            order.was_reset(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Distribution, SizeShare};
    use proptest::prelude::*;

    fn plan(region_bytes: u64) -> WorkerPlan {
        WorkerPlan {
            region_offset: 1 << 20,
            region_bytes,
            start_bytes: 0,
            seed: 7,
            cpu: None,
            limit_bytes: None,
            rate: None,
            target: 0,
            number: 0,
            cursor: None,
            zones: None,
        }
    }

    fn workload(pattern: Pattern, request_bytes: u32) -> Workload {
        Workload { pattern, request_bytes, ..Workload::default() }
    }

    proptest! {
        #[test]
        fn every_pattern_visits_each_block_exactly_once_in_each_pass(
            blocks in 1_u64..300, request_bytes in 1_u32..100_000, kind in 0..3, step in 1_u64..20,
            start in 0_u64..300, seed: u64,
        ) {
            let request = u64::from(request_bytes);
            let pattern = match kind {
                0 => Pattern::Sequential,
                1 => Pattern::Strided { stride_bytes: step * request },
                _ => Pattern::Random,
            };
            let start_bytes = start % blocks * request;
            let plan = WorkerPlan { start_bytes, seed, ..plan(blocks * request) };
            let mut offsets = Offsets::new(&workload(pattern, request_bytes), &plan);
            for _ in 0..3 {
                let mut pass: Vec<u64> =
                    (0..blocks).map(|_| offsets.next_offset(request_bytes)).collect();
                pass.sort_unstable();
                let all = (0..blocks).map(|block| (1 << 20) + block * request);
                prop_assert!(pass.into_iter().eq(all));
            }
        }

        #[test]
        fn an_unaligned_stride_stays_in_the_region_and_never_overlaps_in_a_pass(
            blocks in 1_u64..100, request_bytes in 1_u32..5000, more in 0_u64..20_000,
        ) {
            let (request, region) = (u64::from(request_bytes), blocks * u64::from(request_bytes));
            let pattern = Pattern::Strided { stride_bytes: request + more };
            let mut offsets = Offsets::new(&workload(pattern, request_bytes), &plan(region));
            let mut taken: Vec<u64> =
                (0..=blocks).map(|_| offsets.next_offset(request_bytes)).collect();
            // A pass ends when the first offset is repeated.
            let length = 1 + taken[1..].iter().position(|at| *at == taken[0]).unwrap();
            taken.truncate(length);
            taken.sort_unstable();
            prop_assert!(taken.windows(2).all(|pair| pair[1] - pair[0] >= request));
            prop_assert!(taken.iter().all(|at| at + request <= (1 << 20) + region));
        }

        #[test]
        fn mixed_sizes_stay_in_the_region_and_are_aligned_to_the_smallest(
            granules in 1_u64..200, granule in 1_u32..5000, kind in 0..5,
            times in proptest::collection::vec(1_u32..20, 1..4), seed: u64,
        ) {
            let sizes: Vec<u32> = [granule].into_iter().chain(times.iter().map(|t| t * granule))
                .collect();
            let largest = sizes.iter().copied().max().unwrap();
            let region = u64::from(largest) + granules * u64::from(granule);
            let share = |&request_bytes: &u32| SizeShare { request_bytes, percent: 0 };
            let (pattern, distribution) = match kind {
                0 => (Pattern::Sequential, Distribution::Even),
                1 => (Pattern::Strided { stride_bytes: largest.into() }, Distribution::Even),
                2 => (Pattern::Random, Distribution::Even),
                3 => (Pattern::Random, Distribution::Zipf { theta: 0.9 }),
                _ => (Pattern::Random, Distribution::Pareto { h: 0.3 }),
            };
            let workload = Workload {
                distribution,
                request_sizes: sizes.iter().map(share).collect(),
                ..workload(pattern, largest)
            };
            let mut offsets = Offsets::new(&workload, &WorkerPlan { seed, ..plan(region) });
            for length in sizes.iter().cycle().take(500) {
                let at = offsets.next_offset(*length) - (1 << 20);
                prop_assert!(at + u64::from(*length) <= region);
                prop_assert!(at.is_multiple_of(granule.into()));
            }
        }
    }

    #[test]
    fn interlocked_workers_share_one_stream() {
        let placement = Placement::Interlocked;
        let workload = Workload { placement, ..workload(Pattern::Sequential, 4096) };
        let plan = WorkerPlan { cursor: Some(Cursor::default()), ..plan(3 * 4096) };
        let mut workers = [Offsets::new(&workload, &plan), Offsets::new(&workload, &plan)];
        let turns = [0, 1, 1, 0, 1];
        let taken = turns.map(|turn| workers[turn].next_offset(4096) - (1 << 20));
        assert_eq!(taken, [0, 4096, 8192, 0, 4096]);
    }

    #[test]
    fn sequential_requests_start_again_at_the_end() {
        let mut offsets = Offsets::new(&workload(Pattern::Sequential, 4096), &plan(3 * 4096));
        let taken: Vec<u64> = (0..4).map(|_| offsets.next_offset(4096) - (1 << 20)).collect();
        assert_eq!(taken, [0, 4096, 8192, 0]);
    }
}
