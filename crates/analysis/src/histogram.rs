//! Latency histogram with log-linear buckets, cheap enough to update on every request.
//!
//! Each power of two is divided into 128 equal buckets. The bucket of a value is computed from the
//! number of leading zero bits, without a search or a logarithm. Each value below 256 ns has a
//! separate bucket. For larger values, the width of a bucket is at most 1/128 of its lower bound,
//! so the midpoint is within 0.4% of every value in the bucket. The range ends at [`LIMIT_NS`]
//! (almost five hours). Larger values are counted separately. Count, sum, minimum and maximum are
//! exact.
//!
//! Counters are not shared between threads: each thread needs a separate histogram, and [`merge`]
//! combines them. The histogram does not correct for coordinated omission, because only the caller
//! knows when a request was due.
//!
//! [`merge`]: Histogram::merge

use std::fmt;
use thiserror::Error;

/// Base-two logarithm of the number of buckets per power of two.
const SUB_BUCKET_BITS: u32 = 7;

/// Number of buckets per power of two.
const SUB_BUCKETS: usize = 1 << SUB_BUCKET_BITS;

/// Base-two logarithm of [`LIMIT_NS`].
const LIMIT_BITS: u32 = 44;

/// Exclusive upper limit of the bucket range (ns): 2^44 ns, which is 4 h 53 min.
pub const LIMIT_NS: u64 = 1 << LIMIT_BITS;

/// Number of buckets. Their counters need 8 bytes each, 38 KiB in total.
pub const BUCKETS: usize = (LIMIT_BITS - SUB_BUCKET_BITS + 1) as usize * SUB_BUCKETS;

/// Returns the index of the bucket for `ns`. The index is [`BUCKETS`] or more if `ns` is
/// [`LIMIT_NS`] or more.
///
/// The index is `128 (e - 7) + ns / 2^(e - 7)`, where `e` is the position of the leading bit of
/// `ns`, but at least 7.
#[inline]
pub fn bucket_index(ns: u64) -> usize {
    let exponent = 63 - (ns | SUB_BUCKETS as u64).leading_zeros();
    let shift = exponent - SUB_BUCKET_BITS;
    ((shift as usize) << SUB_BUCKET_BITS) + (ns >> shift) as usize
}

/// Returns the bounds of bucket `index` in nanoseconds. The lower bound is inclusive and the upper
/// bound exclusive. `None` if there is no such bucket.
pub fn bucket_bounds(index: usize) -> Option<(u64, u64)> {
    if index >= BUCKETS {
        return None;
    }
    let shift = (index / SUB_BUCKETS).saturating_sub(1);
    let quotient = (index - shift * SUB_BUCKETS) as u64;
    Some((quotient << shift, (quotient + 1) << shift))
}

/// A bucket that contains at least one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Lower bound in nanoseconds, inclusive.
    pub low_ns: u64,
    /// Upper bound in nanoseconds, exclusive.
    pub high_ns: u64,
    /// Number of values in the bucket.
    pub count: u64,
}

/// The exact totals of a histogram. Together with the buckets, they are enough to restore the
/// histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exact {
    /// Number of values of [`LIMIT_NS`] or more.
    pub overflow: u64,
    /// Smallest value in nanoseconds.
    pub min_ns: u64,
    /// Largest value in nanoseconds.
    pub max_ns: u64,
    /// Sum of all values in nanoseconds.
    pub sum_ns: u128,
}

/// The serialized form of a histogram: the lower bound and the count of each non-empty bucket, and
/// the overflow count, minimum, maximum and sum.
#[cfg(feature = "serde")]
#[derive(serde::Serialize, serde::Deserialize)]
struct Parts {
    buckets: Vec<(u64, u64)>,
    exact: Option<(u64, u64, u64, u128)>,
}

#[cfg(feature = "serde")]
impl From<Histogram> for Parts {
    fn from(histogram: Histogram) -> Parts {
        let exact = histogram.exact();
        Parts {
            buckets: histogram.buckets().map(|bucket| (bucket.low_ns, bucket.count)).collect(),
            exact: exact.map(|exact| (exact.overflow, exact.min_ns, exact.max_ns, exact.sum_ns)),
        }
    }
}

#[cfg(feature = "serde")]
impl TryFrom<Parts> for Histogram {
    type Error = BucketError;

    fn try_from(parts: Parts) -> Result<Histogram, BucketError> {
        let exact = parts.exact.map(|(overflow, min_ns, max_ns, sum_ns)| Exact {
            overflow,
            min_ns,
            max_ns,
            sum_ns,
        });
        Histogram::from_buckets(parts.buckets, exact)
    }
}

/// Why stored buckets are not a valid histogram.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum BucketError {
    /// A lower bound is not the start of a bucket in this layout.
    #[error(
        "no histogram bucket begins at {low_ns} ns: the buckets were stored by another version of \
         halfpower, so use that version to export them"
    )]
    UnknownBucket {
        /// The lower bound (ns).
        low_ns: u64,
    },
    /// The minimum, maximum, sum or overflow count contradicts the buckets.
    #[error(
        "the stored minimum, maximum, sum or overflow count contradicts the histogram \
         buckets: the record is damaged, so measure again or restore it from a copy"
    )]
    Contradiction,
}

/// Log-linear histogram of latencies in nanoseconds.
///
/// Counters saturate instead of wrapping.
#[derive(Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "Parts", try_from = "Parts"))]
pub struct Histogram {
    /// Counters of the buckets. None if the histogram was created without memory and has no value
    /// yet.
    counts: Option<Box<[u64; BUCKETS]>>,
    count: u64,
    overflow: u64,
    min_ns: u64,
    max_ns: u64,
    sum_ns: u128,
}

impl Histogram {
    /// Creates an empty histogram with memory for all buckets, so that recording never allocates.
    pub fn new() -> Self {
        Self { counts: Some(all_zero()), ..Self::default() }
    }

    /// Counts one value.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.record_n(ns, 1);
    }

    /// Counts the same value `n` times, for a batch of requests with one timestamp.
    #[inline]
    pub fn record_n(&mut self, ns: u64, n: u64) {
        if n == 0 {
            return;
        }
        let counts = self.counts.get_or_insert_with(all_zero);
        let counter = counts.get_mut(bucket_index(ns)).unwrap_or(&mut self.overflow);
        *counter = counter.saturating_add(n);
        self.count = self.count.saturating_add(n);
        self.sum_ns = self.sum_ns.saturating_add(u128::from(ns) * u128::from(n));
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds all values of `other`.
    pub fn merge(&mut self, other: &Self) {
        if let Some(theirs) = &other.counts {
            let mine = self.counts.get_or_insert_with(all_zero);
            for (mine, theirs) in mine.iter_mut().zip(theirs.iter()) {
                *mine = mine.saturating_add(*theirs);
            }
        }
        self.count = self.count.saturating_add(other.count);
        self.overflow = self.overflow.saturating_add(other.overflow);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    /// Removes all values, but keeps the memory.
    pub fn clear(&mut self) {
        self.counts.iter_mut().for_each(|counts| counts.fill(0));
        self.count = 0;
        self.overflow = 0;
        self.min_ns = u64::MAX;
        self.max_ns = 0;
        self.sum_ns = 0;
    }

    /// Returns the number of values, including values of [`LIMIT_NS`] or more.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number of values of [`LIMIT_NS`] or more. [`Self::buckets`] and
    /// [`Self::cumulative`] omit these values. All other methods include them.
    pub fn overflow(&self) -> u64 {
        self.overflow
    }

    /// Returns the smallest value, which is exact. `None` if the histogram is empty.
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min_ns)
    }

    /// Returns the largest value, which is exact. `None` if the histogram is empty.
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max_ns)
    }

    /// Returns the exact sum of all values in nanoseconds.
    pub fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// Returns the mean in nanoseconds, from the exact sum. `None` if the histogram is empty.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64)
    }

    /// Returns the quantile `q` in nanoseconds: the smallest value such that at least the share `q`
    /// of all values is less than or equal to it.
    ///
    /// The minimum (`q` = 0) and the maximum (`q` = 1) are exact. Other quantiles are midpoints of
    /// buckets, clamped to the minimum and maximum. They are within 0.4% of the exact quantile and
    /// never decrease as `q` rises. If the quantile is [`LIMIT_NS`] or more, the maximum is
    /// returned. `None` if the histogram is empty or if `q` is not between 0 and 1.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        if self.count == 0 || !(0.0..=1.0).contains(&q) {
            return None;
        }
        // In floating point, 0.07 x 100 is slightly above 7. Without `next_down`, the rank would be
        // 8.
        let rank = (q * self.count as f64).next_down().ceil() as u64;
        if rank <= 1 {
            return Some(self.min_ns);
        }
        if rank >= self.count {
            return Some(self.max_ns);
        }
        let mut seen: u64 = 0;
        for bucket in self.buckets() {
            seen = seen.saturating_add(bucket.count);
            if seen >= rank {
                let midpoint = bucket.low_ns + (bucket.high_ns - bucket.low_ns) / 2;
                return Some(midpoint.clamp(self.min_ns, self.max_ns));
            }
        }
        Some(self.max_ns)
    }

    /// Returns the non-empty buckets in ascending order. Values of [`LIMIT_NS`] or more are in no
    /// bucket.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        let counts = self.counts.iter().flat_map(|counts| counts.iter().enumerate());
        counts.filter(|(_, count)| **count > 0).map(|(index, &count)| {
            let (low_ns, high_ns) = bucket_bounds(index).expect("the index is within the array");
            Bucket { low_ns, high_ns, count }
        })
    }

    /// Returns the cumulative distribution: the upper bound of each non-empty bucket (ns), and the
    /// share of all values below this bound. Values of [`LIMIT_NS`] or more are not included, so
    /// the last share is below 1 if there are such values.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let total = self.count().max(1) as f64;
        self.buckets().scan(0_u64, move |below, bucket| {
            *below = below.saturating_add(bucket.count);
            Some((bucket.high_ns as f64, *below as f64 / total))
        })
    }

    /// Returns the exact totals. Together with [`Self::buckets`], they are enough to restore the
    /// histogram with [`Self::from_buckets`]. `None` if the histogram is empty.
    pub fn exact(&self) -> Option<Exact> {
        (self.count > 0).then_some(Exact {
            overflow: self.overflow,
            min_ns: self.min_ns,
            max_ns: self.max_ns,
            sum_ns: self.sum_ns,
        })
    }

    /// Restores a histogram from buckets (lower bound in nanoseconds, count) and the result of
    /// [`Self::exact`]. `exact` is `None` for an empty histogram.
    ///
    /// # Errors
    /// [`BucketError`] if a bound is not the start of a bucket, or if `exact` contradicts the
    /// buckets.
    pub fn from_buckets(
        buckets: impl IntoIterator<Item = (u64, u64)>,
        exact: Option<Exact>,
    ) -> Result<Self, BucketError> {
        let mut rebuilt = Self::default();
        for (low_ns, count) in buckets {
            let index = bucket_index(low_ns);
            if bucket_bounds(index).is_none_or(|(low, _)| low != low_ns) {
                return Err(BucketError::UnknownBucket { low_ns });
            }
            let counter = &mut rebuilt.counts.get_or_insert_with(all_zero)[index];
            *counter = counter.saturating_add(count);
            rebuilt.count = rebuilt.count.saturating_add(count);
        }
        if let Some(exact) = exact {
            rebuilt.overflow = exact.overflow;
            rebuilt.count = rebuilt.count.saturating_add(exact.overflow);
            rebuilt.min_ns = exact.min_ns;
            rebuilt.max_ns = exact.max_ns;
            rebuilt.sum_ns = exact.sum_ns;
        }
        let consistent = match exact {
            None => rebuilt.count == 0,
            Some(exact) => rebuilt.count > 0 && rebuilt.holds(exact),
        };
        if consistent { Ok(rebuilt) } else { Err(BucketError::Contradiction) }
    }

    /// Checks whether `exact` can belong to the buckets. The minimum and the maximum must lie in
    /// the outermost buckets (or beyond the range), and the sum must be between count times minimum
    /// and count times maximum.
    fn holds(&self, exact: Exact) -> bool {
        let first = self.buckets().next();
        let last = self.buckets().last();
        let within = |ns: u64, bucket: Option<Bucket>| match bucket {
            Some(bucket) => (bucket.low_ns..bucket.high_ns).contains(&ns),
            None => ns >= LIMIT_NS,
        };
        let sums = u128::from(exact.min_ns) * u128::from(self.count)
            ..=u128::from(exact.max_ns) * u128::from(self.count);
        exact.min_ns <= exact.max_ns
            && within(exact.min_ns, first)
            && within(exact.max_ns, last.filter(|_| exact.overflow == 0))
            && sums.contains(&exact.sum_ns)
    }
}

/// Returns the counters of all buckets, set to zero. A vector of zeros is allocated from zeroed
/// pages, so no memory is written.
#[cold]
fn all_zero() -> Box<[u64; BUCKETS]> {
    vec![0; BUCKETS].into_boxed_slice().try_into().expect("the vector was made with this length")
}

impl Default for Histogram {
    /// Creates an empty histogram, which allocates its memory with the first value.
    fn default() -> Self {
        Self { counts: None, count: 0, overflow: 0, min_ns: u64::MAX, max_ns: 0, sum_ns: 0 }
    }
}

impl PartialEq for Histogram {
    fn eq(&self, other: &Self) -> bool {
        self.exact() == other.exact() && self.buckets().eq(other.buckets())
    }
}

impl Eq for Histogram {}

impl fmt::Debug for Histogram {
    /// Prints only the non-empty buckets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let buckets: Vec<_> = self.buckets().map(|b| (b.low_ns, b.count)).collect();
        f.debug_struct("Histogram")
            .field("exact", &self.exact())
            .field("buckets", &buckets)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_histogram_equals_one_without_memory() {
        let mut recorded = Histogram::default();
        assert_eq!(recorded, Histogram::new());
        recorded.merge(&Histogram::new());
        recorded.record(5);
        assert_eq!(recorded, histogram_of(&[5]));
        recorded.clear();
        assert_eq!(recorded, Histogram::default());
    }

    fn histogram_of(values: &[u64]) -> Histogram {
        let mut h = Histogram::new();
        for &v in values {
            h.record(v);
        }
        h
    }

    fn stored(h: &Histogram) -> Vec<(u64, u64)> {
        h.buckets().map(|b| (b.low_ns, b.count)).collect()
    }

    /// Generates values of every magnitude, including some beyond the range.
    fn values(most: usize) -> impl Strategy<Value = Vec<u64>> {
        let value = (0u32..64, any::<u64>()).prop_map(|(bits, v)| v >> bits);
        proptest::collection::vec(value, 0..most)
    }

    #[test]
    fn buckets_follow_on_without_gap_or_overlap_up_to_the_limit() {
        let mut expected_low = 0;
        for index in 0..BUCKETS {
            let (low, high) = bucket_bounds(index).unwrap();
            assert_eq!(low, expected_low);
            assert_eq!((bucket_index(low), bucket_index(high - 1)), (index, index));
            expected_low = high;
        }
        assert_eq!(expected_low, LIMIT_NS);
        assert_eq!(bucket_index(LIMIT_NS), BUCKETS);
        assert_eq!(bucket_bounds(BUCKETS), None);
    }

    #[test]
    fn an_empty_histogram_has_no_statistics() {
        let h = Histogram::new();
        assert_eq!((h.count(), h.min(), h.max(), h.exact()), (0, None, None, None));
        assert_eq!((h.mean(), h.quantile(0.5), h.buckets().count()), (None, None, 0));
    }

    #[test]
    fn small_values_are_exact() {
        let h = histogram_of(&(0..256).collect::<Vec<_>>());
        assert_eq!(h.quantile(0.5), Some(127));
        assert_eq!(h.quantile(0.07), Some(17));
        assert_eq!(h.mean(), Some(127.5));
    }

    #[test]
    fn seven_percent_of_a_hundred_values_is_the_seventh() {
        let h = histogram_of(&(1..=100).collect::<Vec<_>>());
        assert_eq!(h.quantile(0.07), Some(7));
        assert_eq!(h.quantile(0.99), Some(99));
    }

    #[test]
    fn values_beyond_the_range_are_counted_apart_and_kept_as_the_maximum() {
        let h = histogram_of(&[5, LIMIT_NS - 1, LIMIT_NS, u64::MAX]);
        assert_eq!((h.count(), h.overflow(), h.max()), (4, 2, Some(u64::MAX)));
        assert_eq!(h.buckets().map(|b| b.count).sum::<u64>(), 2);
        assert_eq!(h.quantile(0.75), Some(u64::MAX));
        assert_eq!(h.sum_ns(), 5 + 2 * u128::from(LIMIT_NS) - 1 + u128::from(u64::MAX));
    }

    #[test]
    fn a_share_outside_zero_to_one_has_no_quantile() {
        let h = histogram_of(&[1, 2, 3]);
        assert_eq!((h.quantile(-0.1), h.quantile(1.1), h.quantile(f64::NAN)), (None, None, None));
    }

    #[test]
    fn counters_saturate_instead_of_wrapping() {
        let mut h = Histogram::new();
        h.record_n(9, u64::MAX);
        h.record_n(9, 2);
        assert_eq!((h.count(), h.quantile(0.5)), (u64::MAX, Some(9)));
    }

    #[test]
    fn recording_nothing_changes_nothing() {
        let mut h = histogram_of(&[7]);
        h.record_n(1, 0);
        assert_eq!(h, histogram_of(&[7]));
    }

    #[test]
    fn damaged_records_are_refused() {
        let h = histogram_of(&[1000, 2000, 3000]);
        let good = h.exact().unwrap();
        let rebuild = |exact| Histogram::from_buckets(stored(&h), exact);
        let refused = Err(BucketError::Contradiction);
        assert_eq!(rebuild(None), refused);
        assert_eq!(rebuild(Some(Exact { min_ns: 10, ..good })), refused);
        assert_eq!(rebuild(Some(Exact { max_ns: 9000, ..good })), refused);
        assert_eq!(rebuild(Some(Exact { sum_ns: 0, ..good })), refused);
        assert_eq!(rebuild(Some(Exact { overflow: 1, ..good })), refused);
        assert_eq!(Histogram::from_buckets([], Some(good)), refused);
        let shifted = Histogram::from_buckets([(1001, 1)], Some(good));
        assert_eq!(shifted, Err(BucketError::UnknownBucket { low_ns: 1001 }));
    }

    proptest! {
        #[test]
        fn a_midpoint_is_within_four_per_mille_of_every_value_in_its_bucket(ns in 0..LIMIT_NS) {
            let (low, high) = bucket_bounds(bucket_index(ns)).unwrap();
            prop_assert!((low..high).contains(&ns));
            let midpoint = low + (high - low) / 2;
            prop_assert!(midpoint.abs_diff(ns) as f64 <= 0.004 * ns as f64);
        }

        #[test]
        fn a_quantile_is_within_four_per_mille_of_the_sorted_value(
            mut v in proptest::collection::vec(0..LIMIT_NS, 1..200), q in 0.0..=1.0f64,
        ) {
            let found = histogram_of(&v).quantile(q).unwrap();
            v.sort_unstable();
            let rank = ((q * v.len() as f64).next_down().ceil() as usize).max(1);
            let truth = v[rank - 1];
            prop_assert!(found.abs_diff(truth) as f64 <= 0.004 * truth as f64);
        }

        #[test]
        fn merged_parts_equal_the_whole(a in values(100), b in values(100)) {
            let mut merged = histogram_of(&a);
            merged.merge(&histogram_of(&b));
            prop_assert_eq!(merged, histogram_of(&[a, b].concat()));
        }

        #[test]
        fn recording_n_at_once_equals_recording_n_times(ns in any::<u64>(), n in 0u64..50) {
            let mut at_once = Histogram::new();
            at_once.record_n(ns, n);
            prop_assert_eq!(at_once, histogram_of(&vec![ns; n as usize]));
        }

        #[test]
        fn quantiles_rise_with_the_share_and_stay_in_range(v in values(100)) {
            let h = histogram_of(&v);
            let quantiles: Vec<_> =
                (0..=100).filter_map(|p| h.quantile(f64::from(p) / 100.0)).collect();
            prop_assert!(quantiles.is_sorted());
            prop_assert_eq!(quantiles.first().copied(), h.min());
            prop_assert_eq!(quantiles.last().copied(), h.max());
        }

        #[test]
        fn stored_buckets_rebuild_the_histogram(v in values(100)) {
            let h = histogram_of(&v);
            prop_assert_eq!(Histogram::from_buckets(stored(&h), h.exact()), Ok(h));
        }

        #[test]
        fn a_cleared_histogram_is_a_new_one(v in values(20)) {
            let mut h = histogram_of(&v);
            h.clear();
            prop_assert_eq!(h, Histogram::new());
        }
    }
}
