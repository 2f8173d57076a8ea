//! Where the next request goes: sequential, strided, or random without repetition.

use crate::plan::WorkerPlan;
use crate::random::Permutation;
use crate::spec::Pattern;

/// The offsets of one worker.
#[derive(Clone, Debug)]
pub struct Offsets {
    region_offset: u64,
    region_bytes: u64,
    request_bytes: u64,
    order: Order,
}

#[derive(Clone, Debug)]
enum Order {
    Sequential { at: u64 },
    Strided { at: u64, phase: u64, stride: u64 },
    Random(Permutation),
}

impl Offsets {
    /// The offsets that a worker's plan describes.
    pub fn new(pattern: Pattern, request_bytes: u32, plan: &WorkerPlan) -> Offsets {
        let request_bytes = u64::from(request_bytes);
        let order = match pattern {
            Pattern::Sequential => Order::Sequential { at: plan.start_bytes },
            Pattern::Strided { stride_bytes } => {
                Order::Strided { at: 0, phase: 0, stride: stride_bytes }
            }
            Pattern::Random => {
                Order::Random(Permutation::new(plan.region_bytes / request_bytes, plan.seed))
            }
        };
        let WorkerPlan { region_offset, region_bytes, .. } = *plan;
        Offsets { region_offset, region_bytes, request_bytes, order }
    }

    /// Position of the next request in the target (bytes).
    #[inline]
    pub fn next_offset(&mut self) -> u64 {
        let (request, region) = (self.request_bytes, self.region_bytes);
        let at = match &mut self.order {
            Order::Random(permutation) => permutation.next_index() * request,
            Order::Sequential { at } => {
                let here = *at;
                *at = if here + 2 * request > region { 0 } else { here + request };
                here
            }
            Order::Strided { at, phase, stride } => {
                let here = *at;
                *at += *stride;
                if *at + request > region {
                    *phase += request;
                    if *phase + request > (*stride).min(region) {
                        *phase = 0;
                    }
                    *at = *phase;
                }
                here
            }
        };
        self.region_offset + at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        }
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
            let mut offsets = Offsets::new(pattern, request_bytes, &plan);
            for _ in 0..3 {
                let mut pass: Vec<u64> = (0..blocks).map(|_| offsets.next_offset()).collect();
                pass.sort_unstable();
                let all = (0..blocks).map(|block| (1 << 20) + block * request);
                prop_assert!(pass.into_iter().eq(all));
            }
        }

        #[test]
        fn a_stride_between_blocks_stays_in_the_region_and_touches_no_byte_twice_in_a_pass(
            blocks in 1_u64..100, request_bytes in 1_u32..5000, more in 0_u64..20_000,
        ) {
            let (request, region) = (u64::from(request_bytes), blocks * u64::from(request_bytes));
            let pattern = Pattern::Strided { stride_bytes: request + more };
            let mut offsets = Offsets::new(pattern, request_bytes, &plan(region));
            let mut taken: Vec<u64> = (0..=blocks).map(|_| offsets.next_offset()).collect();
            // A pass ends where it began.
            let length = 1 + taken[1..].iter().position(|at| *at == taken[0]).unwrap();
            taken.truncate(length);
            taken.sort_unstable();
            prop_assert!(taken.windows(2).all(|pair| pair[1] - pair[0] >= request));
            prop_assert!(taken.iter().all(|at| at + request <= (1 << 20) + region));
        }
    }

    #[test]
    fn sequential_requests_start_again_at_the_end() {
        let mut offsets = Offsets::new(Pattern::Sequential, 4096, &plan(3 * 4096));
        let taken: Vec<u64> = (0..4).map(|_| offsets.next_offset() - (1 << 20)).collect();
        assert_eq!(taken, [0, 4096, 8192, 0]);
    }
}
