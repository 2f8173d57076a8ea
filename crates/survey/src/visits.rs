//! Which blocks the trials of a survey visit: fresh ones, as long as there are any.
//!
//! Sequential trials begin where the one before them ended, so that a cache of the device cannot
//! answer what an earlier trial has read. When the region is used up they go on at its start: what
//! is visited again then was visited longest ago. Whether the device has such a cache is tried
//! beside the points: the same blocks twice, one after the other.

use analysis::quantile::median;
use serde::{Deserialize, Serialize};

/// What the kernel may have read ahead of buffered requests, which is skipped (bytes).
const READ_AHEAD_BYTES: u64 = 2 << 20;
/// Pairs of visits.
pub const PAIRS: usize = 3;
/// A second visit this many times as fast shows a cache; and each single one ...
const FASTER: f64 = 1.3;
/// ... this many times.
const EACH_FASTER: f64 = 1.15;

/// Where the next sequential trial begins, and how much was visited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visits {
    #[serde(skip)]
    at: u64,
    /// Bytes that sequential reads went over, those skipped among them.
    pub read_bytes: u64,
    /// Bytes that sequential writes went over.
    pub written_bytes: u64,
}

impl Visits {
    /// Bytes that sequential trials went over.
    pub fn all_bytes(&self) -> u64 {
        self.read_bytes.saturating_add(self.written_bytes)
    }

    /// Where a trial with requests of this size begins (bytes).
    pub fn start(&self, request_bytes: u64) -> u64 {
        self.at.next_multiple_of(request_bytes.max(1))
    }

    /// Notes what a trial went over that began there.
    pub fn went(&mut self, start: u64, bytes: u64, write: bool, buffered: bool) {
        let ahead = if buffered && !write { READ_AHEAD_BYTES } else { 0 };
        self.at = start.saturating_add(bytes).saturating_add(ahead);
        let visited = if write { &mut self.written_bytes } else { &mut self.read_bytes };
        *visited = visited.saturating_add(bytes).saturating_add(ahead);
    }
}

/// Direct reads of 64 KiB, one at a time, over fresh blocks, over the same again, and over those
/// that were visited longest ago [bytes per second].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SecondVisit {
    /// Over fresh blocks, before all other trials.
    pub first: Vec<f64>,
    /// Over the same blocks, just after.
    pub second: Vec<f64>,
    /// At the end of the survey, where the region was used up.
    pub late: Vec<f64>,
}

impl SecondVisit {
    /// How many times as fast a second visit is, if it is clearly faster: the device has a cache.
    pub fn times_faster(&self) -> Option<f64> {
        let ratios: Vec<f64> =
            self.first.iter().zip(&self.second).map(|(first, second)| second / first).collect();
        let each = ratios.len() >= PAIRS && ratios.iter().all(|ratio| *ratio >= EACH_FASTER);
        median(&ratios).filter(|times| each && *times >= FASTER)
    }

    /// How many times as fast blocks were in the end that had been visited longest ago, if they
    /// clearly were and the device has a cache: it holds the whole region. Without a cache it is
    /// the device's own rate that has changed.
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
    fn a_cache_is_seen_where_each_second_visit_is_faster() {
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
        // A device that is faster later and has no cache.
        assert_eq!(of([100.0, 110.0, 90.0], &[200.0; 3]).times_faster_late(), None);
    }

    proptest! {
        #[test]
        fn no_trial_visits_what_an_earlier_one_did(
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
