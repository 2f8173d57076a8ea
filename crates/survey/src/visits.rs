//! Chooses the blocks that the sequential trials of a survey access. Trials access blocks that no
//! earlier trial accessed, until no such blocks are left.
//!
//! Each trial starts where the previous trial ended, so that a cache in the device cannot serve
//! data of earlier trials. After the end of the region, trials continue at its start, where the
//! least recently accessed blocks are. A separate test for a cache in the device reads the same
//! blocks twice in a row.

use analysis::quantile::median;
use serde::{Deserialize, Serialize};

/// Number of bytes to skip after a buffered read, because the kernel may have read them ahead.
const READ_AHEAD_BYTES: u64 = 2 << 20;
/// Number of pairs of reads in the cache test. Both reads of a pair read the same blocks.
pub const PAIRS: usize = 3;
/// The device has a cache only if the second read is faster than the first by at least this factor,
/// in the median of all pairs.
const FASTER: f64 = 1.3;
/// The device has a cache only if the second read is faster than the first by at least this factor,
/// in every pair.
const EACH_FASTER: f64 = 1.15;

/// Position of the next sequential trial, and the numbers of bytes that earlier trials read and
/// wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visits {
    #[serde(skip)]
    at: u64,
    /// Number of bytes that sequential trials read. Includes bytes that were skipped because the
    /// kernel may have read them ahead.
    pub read_bytes: u64,
    /// Number of bytes that sequential trials wrote.
    pub written_bytes: u64,
}

impl Visits {
    /// Returns the number of bytes that sequential trials accessed.
    pub fn all_bytes(&self) -> u64 {
        self.read_bytes.saturating_add(self.written_bytes)
    }

    /// Returns the offset at which the next trial starts, which is a multiple of `request_bytes`.
    /// The offset can exceed the size of the region, so the caller must take it modulo the region
    /// size.
    pub fn start(&self, request_bytes: u64) -> u64 {
        self.at.next_multiple_of(request_bytes.max(1))
    }

    /// Records a trial that started at offset `start` and accessed `bytes`.
    pub fn went(&mut self, start: u64, bytes: u64, write: bool, buffered: bool) {
        let ahead = if buffered && !write { READ_AHEAD_BYTES } else { 0 };
        self.at = start.saturating_add(bytes).saturating_add(ahead);
        let visited = if write { &mut self.written_bytes } else { &mut self.read_bytes };
        *visited = visited.saturating_add(bytes).saturating_add(ahead);
    }
}

/// Results of the test for a cache in the device: rates of direct 64 KiB reads, one at a time
/// [bytes per second].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SecondVisit {
    /// Rates of reading fresh blocks, before all other trials.
    pub first: Vec<f64>,
    /// Rates of reading the same blocks again, immediately after the first read.
    pub second: Vec<f64>,
    /// Rates of reading the least recently accessed blocks, at the end of the survey. Empty if the
    /// trials did not access the whole region.
    pub late: Vec<f64>,
}

impl SecondVisit {
    /// Returns the ratio of the second rate to the first rate. None unless the ratio is clearly
    /// above 1, which means that the device has a cache.
    pub fn times_faster(&self) -> Option<f64> {
        let ratios: Vec<f64> =
            self.first.iter().zip(&self.second).map(|(first, second)| second / first).collect();
        let each = ratios.len() >= PAIRS && ratios.iter().all(|ratio| *ratio >= EACH_FASTER);
        median(&ratios).filter(|times| each && *times >= FASTER)
    }

    /// Returns the ratio of the late rate to the first rate if it shows that the cache of the
    /// device holds the whole region. None if the ratio is not clearly above 1, or if the device
    /// has no cache. Without a cache, a ratio above 1 only means that the device became faster.
    pub fn times_faster_late(&self) -> Option<f64> {
        self.times_faster()?;
        let (first, late) = (median(&self.first)?, median(&self.late)?);
        let fastest = self.first.iter().copied().fold(0.0, f64::max);
        let each = self.late.iter().all(|rate| *rate >= EACH_FASTER * fastest);
        Some(late / first).filter(|times| each && *times >= FASTER && times.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_cache_is_detected_if_every_second_read_is_faster() {
        let of = |second: [f64; 3], late: &[f64]| SecondVisit {
            first: vec![100.0, 110.0, 90.0],
            second: second.to_vec(),
            late: late.to_vec(),
        };
        assert_eq!(of([200.0, 220.0, 180.0], &[]).times_faster(), Some(2.0));
        assert_eq!(of([200.0, 220.0, 91.0], &[]).times_faster(), None);
        assert_eq!(of([101.0, 112.0, 95.0], &[]).times_faster(), None);
        assert_eq!(SecondVisit::default().times_faster(), None);
        let cached = [200.0, 220.0, 180.0];
        assert_eq!(of(cached, &[]).times_faster_late(), None);
        assert_eq!(of(cached, &[200.0, 210.0, 220.0]).times_faster_late(), Some(2.1));
        assert_eq!(of(cached, &[100.0, 210.0, 220.0]).times_faster_late(), None);
        // The device has no cache but becomes faster.
        assert_eq!(of([100.0, 110.0, 90.0], &[200.0; 3]).times_faster_late(), None);
    }

    proptest! {
        #[test]
        fn no_trial_accesses_blocks_of_an_earlier_one(
            trials in prop::collection::vec((0_u32..12, 1_u64..40, any::<bool>()), 1..50),
        ) {
            let mut visits = Visits::default();
            let mut end = 0;
            for (exponent, requests, buffered) in trials {
                let request = 4096_u64 << exponent;
                let start = visits.start(request);
                prop_assert!(start >= end && start % request == 0);
                end = start + requests * request;
                visits.went(start, requests * request, false, buffered);
            }
            prop_assert!(visits.read_bytes <= visits.at);
        }
    }
}
