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
        fn strided_requests_visit_each_block_once(blocks in 1_u64..64, step in 1_u64..16) {
            let stride_bytes = step * 4096;
            let pattern = Pattern::Strided { stride_bytes };
            let mut offsets = Offsets::new(pattern, 4096, &plan(blocks * 4096));
            let mut pass: Vec<u64> = (0..blocks).map(|_| offsets.next_offset()).collect();
            pass.sort_unstable();
            let all = (0..blocks).map(|block| (1 << 20) + block * 4096);
            prop_assert!(pass.into_iter().eq(all));
        }
    }

    #[test]
    fn sequential_requests_start_again_at_the_end() {
        let mut offsets = Offsets::new(Pattern::Sequential, 4096, &plan(3 * 4096));
        let taken: Vec<u64> = (0..4).map(|_| offsets.next_offset() - (1 << 20)).collect();
        assert_eq!(taken, [0, 4096, 8192, 0]);
    }
}
