//! Skewed random draws of blocks and request sizes.
//!
//! The mean time of a draw is bounded for any region size, and a draw needs no memory per block.
//! Zipf's law uses rejection-inversion (Hörmann and Derflinger, ACM TOMACS 6(3), 1996): a number is
//! drawn from a continuous distribution and rounded to a rank. The rare draws that would make a
//! rank too frequent are rejected. As in fio, the distribution called Pareto is the self-similar
//! law of Gray, Sundaresan, Englert, Baclawski and Weinberger (Quickly Generating Billion-Record
//! Synthetic Databases, SIGMOD 1994).
//!
//! Zipf and Pareto draw the popularity rank of a block. A one-to-one mapping of ranks to blocks
//! scatters the popular blocks over the region.

use crate::random::{Permutation, Stream};
use crate::spec::{Distribution, SizeShare, Zone};

/// Draws random blocks from a skewed distribution. A block may be drawn repeatedly.
#[derive(Clone, Debug)]
pub struct Skew {
    stream: Stream,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Zipf(Zipf, Permutation),
    Pareto(Pareto, Permutation),
    Zoned(Shares, Vec<Span>),
}

/// A range of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First block of the range.
    pub from: u64,
    /// Number of blocks in the range.
    pub count: u64,
}

impl Skew {
    /// Creates a generator of blocks in `0..blocks`, where `blocks` is at least 1. `seed`
    /// determines the draws. `places` determines which blocks are popular: workers with the same
    /// `places` have the same popular blocks. Returns None for an even distribution, for which the
    /// caller uses a permutation.
    pub fn new(distribution: &Distribution, blocks: u64, seed: u64, places: u64) -> Option<Skew> {
        let kind = match distribution {
            Distribution::Even => return None,
            Distribution::Zipf { theta } => {
                Kind::Zipf(Zipf::new(blocks, *theta), Permutation::new(blocks, places))
            }
            Distribution::Pareto { h } => {
                Kind::Pareto(Pareto::new(blocks, *h), Permutation::new(blocks, places))
            }
            Distribution::Zoned(zones) => {
                let shares = zones.iter().map(|zone| zone.access_percent);
                Kind::Zoned(Shares::new(shares), spans(zones, blocks))
            }
        };
        Some(Skew { stream: Stream::new(seed), kind })
    }

    /// Draws the next block. This function is not inlined, to keep the code of the other patterns
    /// small.
    #[inline(never)]
    pub fn next_index(&mut self) -> u64 {
        match &self.kind {
            Kind::Zipf(zipf, places) => places.place_of(zipf.draw(&mut self.stream)),
            Kind::Pareto(pareto, places) => places.place_of(pareto.draw(&mut self.stream)),
            Kind::Zoned(shares, spans) => {
                let span = spans[shares.draw(&mut self.stream)];
                span.from + self.stream.below(span.count)
            }
        }
    }
}

/// Returns the range of blocks of each zone. The ranges are adjacent and cover the whole region.
pub fn spans(zones: &[Zone], blocks: u64) -> Vec<Span> {
    let end = |percent: u64| (u128::from(blocks) * u128::from(percent) / 100) as u64;
    let mut percent = 0;
    let span = |zone: &Zone| {
        let from = end(percent);
        percent += u64::from(zone.region_percent);
        Span { from, count: end(percent) - from }
    };
    zones.iter().map(span).collect()
}

/// Draws popularity ranks by Zipf's law. Rank 0 is the most popular.
#[derive(Clone, Copy, Debug)]
struct Zipf {
    count: f64,
    theta: f64,
    low: f64,
    high: f64,
}

impl Zipf {
    fn new(count: u64, theta: f64) -> Zipf {
        let kind = Zipf { count: count as f64, theta, low: 0.0, high: 0.0 };
        Zipf { low: kind.area(1.5) - 1.0, high: kind.area(kind.count + 0.5), ..kind }
    }

    /// Returns the popularity of a rank, relative to the most popular rank. Ranks are counted from
    /// 1 here.
    fn height(&self, rank: f64) -> f64 {
        rank.powf(-self.theta)
    }

    /// Returns the integral of `height` from 1 to `x`. This form stays accurate for exponents near
    /// 1, where the usual form divides 0 by 0.
    fn area(&self, x: f64) -> f64 {
        let power = (1.0 - self.theta) * x.ln();
        x.ln() * if power == 0.0 { 1.0 } else { power.exp_m1() / power }
    }

    /// Returns the `x` at which the integral of `height` from 1 to `x` equals `area`.
    fn inverse(&self, area: f64) -> f64 {
        // Rounding errors may make the product smaller than -1, where the logarithm is undefined.
        let scaled = (area * (1.0 - self.theta)).max(-1.0);
        (area * if scaled == 0.0 { 1.0 } else { scaled.ln_1p() / scaled }).exp()
    }

    #[inline]
    fn draw(&self, stream: &mut Stream) -> u64 {
        loop {
            let area = self.high + stream.unit() * (self.low - self.high);
            let rank = self.inverse(area).round().clamp(1.0, self.count);
            // A draw in the left part of the rank's interval is rejected, so that the area of the
            // remaining part equals the rank's height.
            if area >= self.area(rank + 0.5) - self.height(rank) {
                return rank as u64 - 1;
            }
        }
    }
}

/// Draws popularity ranks by the self-similar law. Rank 0 is the most popular.
#[derive(Clone, Copy, Debug)]
struct Pareto {
    count: u64,
    power: f64,
}

impl Pareto {
    fn new(count: u64, h: f64) -> Pareto {
        Pareto { count, power: h.ln() / (-h).ln_1p() }
    }

    #[inline]
    fn draw(&self, stream: &mut Stream) -> u64 {
        let share = stream.unit().powf(self.power);
        ((share * self.count as f64) as u64).min(self.count - 1)
    }
}

/// Draws an index, where each index has a given probability (percent).
#[derive(Clone, Debug)]
struct Shares {
    /// For each of the 100 percentage points, the index that it selects.
    owner: Vec<u8>,
}

impl Shares {
    /// Creates shares from at most 256 percentages, which add up to 100.
    fn new(percents: impl Iterator<Item = u8>) -> Shares {
        let owned = percents.enumerate();
        let owner: Vec<u8> =
            owned.flat_map(|(i, percent)| std::iter::repeat_n(i as u8, percent.into())).collect();
        Shares { owner }
    }

    #[inline]
    fn draw(&self, stream: &mut Stream) -> usize {
        usize::from(self.owner[stream.below(self.owner.len() as u64) as usize])
    }
}

/// Draws random request sizes.
#[derive(Clone, Debug)]
pub struct Sizes {
    stream: Stream,
    shares: Shares,
    bytes: Vec<u32>,
}

impl Sizes {
    /// Creates a generator of request sizes. None if the list of sizes is empty.
    pub fn new(sizes: &[SizeShare], seed: u64) -> Option<Sizes> {
        let shares = Shares::new(sizes.iter().map(|size| size.percent));
        let bytes: Vec<u32> = sizes.iter().map(|size| size.request_bytes).collect();
        (!bytes.is_empty()).then(|| Sizes { stream: Stream::new(seed), shares, bytes })
    }

    /// Draws the size of the next request (bytes). This function is not inlined, to keep the code
    /// for fixed sizes small.
    #[inline(never)]
    pub fn draw(&mut self) -> u32 {
        self.bytes[self.shares.draw(&mut self.stream)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DRAWS: usize = 20_000;

    /// Computes the Kolmogorov-Smirnov statistic of `DRAWS` drawn numbers. `below` returns the
    /// expected share of numbers that are less than its argument. For integers, the statistic
    /// exceeds 3.0 by chance in fewer than one in ten million samples.
    fn ks_statistic(mut draw: impl FnMut() -> u64, count: u64, below: impl Fn(u64) -> f64) -> f64 {
        let mut drawn: Vec<u64> = (0..DRAWS).map(|_| draw()).collect();
        drawn.sort_unstable();
        assert!(drawn[DRAWS - 1] < count, "{} of {count}", drawn[DRAWS - 1]);
        let share = |n: u64| drawn.partition_point(|at| *at < n) as f64 / DRAWS as f64;
        let mut ends: Vec<u64> = drawn.iter().flat_map(|n| [*n, n + 1]).collect();
        ends.dedup();
        let apart = ends.into_iter().map(|n| (share(n) - below(n)).abs());
        apart.fold(0.0, f64::max) * (DRAWS as f64).sqrt()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn ranks_follow_zipfs_law_at_any_exponent(
            count in 1_u64..3000, theta in 0.01_f64..4.0, near_one: bool, seed: u64,
        ) {
            // With `near_one`, the exponent is so near to 1 that the usual formula loses all
            // precision.
            let theta = if near_one { 1.0 + (theta - 2.0) * 1e-14 } else { theta };
            let mut sums = vec![0.0];
            for rank in 1..=count {
                sums.push(sums[rank as usize - 1] + (rank as f64).powf(-theta));
            }
            let (zipf, mut stream) = (Zipf::new(count, theta), Stream::new(seed));
            let below = |n: u64| sums[n as usize] / sums[count as usize];
            let found = ks_statistic(|| zipf.draw(&mut stream), count, below);
            prop_assert!(found < 3.0, "{found}");
        }

        #[test]
        fn pareto_draws_follow_the_self_similar_law(
            count in 1_u64..1_000_000_000, h in 0.01_f64..0.99, seed: u64,
        ) {
            let (pareto, mut stream) = (Pareto::new(count, h), Stream::new(seed));
            let below = |n: u64| (n as f64 / count as f64).powf((1.0 - h).ln() / h.ln());
            let found = ks_statistic(|| pareto.draw(&mut stream), count, below);
            prop_assert!(found < 3.0, "{found}");
        }

        #[test]
        fn zones_hold_every_block_once_and_are_drawn_by_their_shares(
            cuts in proptest::collection::vec((0_u8..=100, 0_u8..=100), 0..5),
            blocks in 10_000_u64..1_000_000_000, seed: u64,
        ) {
            let ends = |of: fn(&(u8, u8)) -> u8| {
                let mut ends: Vec<u8> = cuts.iter().map(of).chain([0, 100]).collect();
                ends.sort_unstable();
                ends
            };
            let (access, region) = (ends(|cut| cut.0), ends(|cut| cut.1));
            let zones: Vec<Zone> = access.windows(2).zip(region.windows(2))
                .map(|(a, r)| Zone { access_percent: a[1] - a[0], region_percent: r[1] - r[0] })
                .filter(|zone| zone.region_percent > 0 || zone.access_percent == 0)
                .collect();
            prop_assume!(zones.iter().map(|z| u32::from(z.access_percent)).sum::<u32>() == 100);
            let spans = spans(&zones, blocks);
            let mut next = 0;
            for span in &spans {
                prop_assert_eq!(span.from, next);
                next += span.count;
            }
            prop_assert_eq!(next, blocks);
            let mut skew = Skew::new(&Distribution::Zoned(zones.clone()), blocks, seed, 0).unwrap();
            // Within a zone the cumulative share of accesses grows linearly.
            let below = |n: u64| {
                let part = |(span, zone): (&Span, &Zone)| {
                    let within = n.saturating_sub(span.from).min(span.count) as f64;
                    f64::from(zone.access_percent) / 100.0 * within / span.count.max(1) as f64
                };
                spans.iter().zip(&zones).map(part).sum()
            };
            let found = ks_statistic(|| skew.next_index(), blocks, below);
            prop_assert!(found < 3.0, "{found}");
        }

        #[test]
        fn sizes_are_drawn_by_their_shares(first in 1_u8..100, seed: u64) {
            let share = |request_bytes, percent| SizeShare { request_bytes, percent };
            let sizes = [share(4096, first), share(65536, 100 - first)];
            let mut sizes = Sizes::new(&sizes, seed).unwrap();
            let small = (0..DRAWS).filter(|_| sizes.draw() == 4096).count() as f64;
            let p = f64::from(first) / 100.0;
            let deviation = (DRAWS as f64 * p * (1.0 - p)).sqrt();
            prop_assert!((small - DRAWS as f64 * p).abs() < 6.0 * deviation);
        }
    }

    #[test]
    fn popular_blocks_are_scattered_and_shared_by_workers() {
        let blocks = 1 << 16;
        let kind = Distribution::Zipf { theta: 1.2 };
        let counts = |seed, places| {
            let mut skew = Skew::new(&kind, blocks, seed, places).unwrap();
            let mut counts = vec![0_u32; blocks as usize];
            (0..200_000).for_each(|_| counts[skew.next_index() as usize] += 1);
            counts
        };
        let hottest = |counts: &[u32]| {
            let mut order: Vec<usize> = (0..counts.len()).collect();
            order.sort_by_key(|block| std::cmp::Reverse(counts[*block]));
            order[..5].to_vec()
        };
        let one = hottest(&counts(1, 7));
        assert_eq!(one, hottest(&counts(2, 7)));
        assert_ne!(one, hottest(&counts(1, 8)));
        assert!(one.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 16), "{one:?}");
    }

    #[test]
    fn seeds_repeat_and_differ() {
        let take = |seed| -> Vec<u64> {
            let kind = Distribution::Pareto { h: 0.2 };
            let mut skew = Skew::new(&kind, 1 << 40, seed, 1).unwrap();
            (0..100).map(|_| skew.next_index()).collect()
        };
        assert_eq!(take(1), take(1));
        assert_ne!(take(1), take(2));
    }

    #[test]
    fn zipf_draws_work_for_huge_regions_at_any_exponent() {
        let count = 1 << 52;
        for theta in [0.1, 0.99, 1.0, 1.5, 10.0] {
            let (zipf, mut stream) = (Zipf::new(count, theta), Stream::new(3));
            assert!((0..1000).all(|_| zipf.draw(&mut stream) < count), "{theta}");
        }
    }
}
