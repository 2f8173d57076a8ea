//! Draws that are not even: which block comes next, and how long the next request is.
//!
//! Every draw takes a bounded time on average, whatever the size of the region, and no memory for
//! each block. Zipf's law is drawn by rejection-inversion (Hörmann and Derflinger, ACM TOMACS 6(3),
//! 1996): the continuous law is inverted and rounded, and where rounding gave a block too much, the
//! draw is made again, which is seldom. Pareto here is the self-similar law of Gray, Sundaresan,
//! Englert, Baclawski and Weinberger (Quickly Generating Billion-Record Synthetic Databases, SIGMOD
//! 1994), as in fio. Both give the rank of a block; its place comes from a bijection, so that
//! popular blocks lie scattered and each rank has exactly one.

use crate::random::{Permutation, Stream};
use crate::spec::{Distribution, SizeShare, Zone};

/// Draws blocks, with repetition.
#[derive(Clone, Debug)]
pub struct Skew {
    stream: Stream,
    law: Law,
}

#[derive(Clone, Debug)]
enum Law {
    Zipf(Zipf, Permutation),
    Pareto(Pareto, Permutation),
    Zoned(Shares, Vec<Span>),
}

/// Consecutive blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first.
    pub from: u64,
    /// How many.
    pub count: u64,
}

impl Skew {
    /// Draws from `0..blocks` (at least 1) by `seed`; popular blocks lie where `places` puts them,
    /// the same for all who share it. None for an even distribution, which is no matter of chance.
    pub fn new(distribution: &Distribution, blocks: u64, seed: u64, places: u64) -> Option<Skew> {
        let law = match distribution {
            Distribution::Even => return None,
            Distribution::Zipf { theta } => {
                Law::Zipf(Zipf::new(blocks, *theta), Permutation::new(blocks, places))
            }
            Distribution::Pareto { h } => {
                Law::Pareto(Pareto::new(blocks, *h), Permutation::new(blocks, places))
            }
            Distribution::Zoned(zones) => {
                let shares = zones.iter().map(|zone| zone.access_percent);
                Law::Zoned(Shares::new(shares), spans(zones, blocks))
            }
        };
        Some(Skew { stream: Stream::new(seed), law })
    }

    /// The next block. Kept out of the loop that every other pattern goes through.
    #[inline(never)]
    pub fn next_index(&mut self) -> u64 {
        match &self.law {
            Law::Zipf(zipf, places) => places.place_of(zipf.draw(&mut self.stream)),
            Law::Pareto(pareto, places) => places.place_of(pareto.draw(&mut self.stream)),
            Law::Zoned(shares, spans) => {
                let span = spans[shares.draw(&mut self.stream)];
                span.from + self.stream.below(span.count)
            }
        }
    }
}

/// The blocks of each zone of a region: all of them, once.
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

/// Ranks from 0, the most popular, by Zipf's law.
#[derive(Clone, Copy, Debug)]
struct Zipf {
    count: f64,
    theta: f64,
    low: f64,
    high: f64,
}

impl Zipf {
    fn new(count: u64, theta: f64) -> Zipf {
        let law = Zipf { count: count as f64, theta, low: 0.0, high: 0.0 };
        Zipf { low: law.area(1.5) - 1.0, high: law.area(law.count + 0.5), ..law }
    }

    /// How popular a rank counted from 1 is, beside the first.
    fn height(&self, rank: f64) -> f64 {
        rank.powf(-self.theta)
    }

    /// The integral of the height from 1 to x. Written so that nothing is lost where the exponent
    /// is near 1 and the usual form divides 0 by 0.
    fn area(&self, x: f64) -> f64 {
        let power = (1.0 - self.theta) * x.ln();
        x.ln() * if power == 0.0 { 1.0 } else { power.exp_m1() / power }
    }

    /// The x up to which the integral is `area`.
    fn inverse(&self, area: f64) -> f64 {
        // Rounding may take it past -1, where the logarithm ends.
        let scaled = (area * (1.0 - self.theta)).max(-1.0);
        (area * if scaled == 0.0 { 1.0 } else { scaled.ln_1p() / scaled }).exp()
    }

    #[inline]
    fn draw(&self, stream: &mut Stream) -> u64 {
        loop {
            let area = self.high + stream.unit() * (self.low - self.high);
            let rank = self.inverse(area).round().clamp(1.0, self.count);
            // Each rank keeps as much of the area left of its right end as its height is.
            if area >= self.area(rank + 0.5) - self.height(rank) {
                return rank as u64 - 1;
            }
        }
    }
}

/// Ranks from 0, the most popular, by the self-similar law.
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

/// Draws one of several by shares in percent.
#[derive(Clone, Debug)]
struct Shares {
    /// Which one each percent belongs to.
    owner: Vec<u8>,
}

impl Shares {
    /// Shares that are 100 together, of at most 256.
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

/// Draws request sizes.
#[derive(Clone, Debug)]
pub struct Sizes {
    stream: Stream,
    shares: Shares,
    bytes: Vec<u32>,
}

impl Sizes {
    /// Sizes by `seed`; None where there are none to choose from.
    pub fn new(sizes: &[SizeShare], seed: u64) -> Option<Sizes> {
        let shares = Shares::new(sizes.iter().map(|size| size.percent));
        let bytes: Vec<u32> = sizes.iter().map(|size| size.request_bytes).collect();
        (!bytes.is_empty()).then(|| Sizes { stream: Stream::new(seed), shares, bytes })
    }

    /// The size of the next request (bytes). Kept out of the loop of requests of one size.
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

    /// The greatest distance of the drawn numbers' distribution from `below`, the share that
    /// should lie below a number, times the root of their number (Kolmogorov and Smirnov): with
    /// whole numbers chance exceeds 3.0 in less than one of ten million samples.
    fn distance(mut draw: impl FnMut() -> u64, count: u64, below: impl Fn(u64) -> f64) -> f64 {
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
            // As near to 1 as makes the usual formula fall apart.
            let theta = if near_one { 1.0 + (theta - 2.0) * 1e-14 } else { theta };
            let mut sums = vec![0.0];
            for rank in 1..=count {
                sums.push(sums[rank as usize - 1] + (rank as f64).powf(-theta));
            }
            let (zipf, mut stream) = (Zipf::new(count, theta), Stream::new(seed));
            let below = |n: u64| sums[n as usize] / sums[count as usize];
            let found = distance(|| zipf.draw(&mut stream), count, below);
            prop_assert!(found < 3.0, "{found}");
        }

        #[test]
        fn a_share_h_of_the_blocks_gets_the_share_one_less_h_again_and_again(
            count in 1_u64..1_000_000_000, h in 0.01_f64..0.99, seed: u64,
        ) {
            let (pareto, mut stream) = (Pareto::new(count, h), Stream::new(seed));
            let below = |n: u64| (n as f64 / count as f64).powf((1.0 - h).ln() / h.ln());
            let found = distance(|| pareto.draw(&mut stream), count, below);
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
            // Within a zone the share grows evenly.
            let below = |n: u64| {
                let part = |(span, zone): (&Span, &Zone)| {
                    let within = n.saturating_sub(span.from).min(span.count) as f64;
                    f64::from(zone.access_percent) / 100.0 * within / span.count.max(1) as f64
                };
                spans.iter().zip(&zones).map(part).sum()
            };
            let found = distance(|| skew.next_index(), blocks, below);
            prop_assert!(found < 3.0, "{found}");
        }

        #[test]
        fn sizes_come_in_their_shares(first in 1_u8..100, seed: u64) {
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
    fn popular_blocks_lie_scattered_in_the_same_places_for_all_who_share_them() {
        let blocks = 1 << 16;
        let law = Distribution::Zipf { theta: 1.2 };
        let counts = |seed, places| {
            let mut skew = Skew::new(&law, blocks, seed, places).unwrap();
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
            let law = Distribution::Pareto { h: 0.2 };
            let mut skew = Skew::new(&law, 1 << 40, seed, 1).unwrap();
            (0..100).map(|_| skew.next_index()).collect()
        };
        assert_eq!(take(1), take(1));
        assert_ne!(take(1), take(2));
    }

    #[test]
    fn a_region_of_more_blocks_than_memory_is_drawn_from_at_any_exponent() {
        let count = 1 << 52;
        for theta in [0.1, 0.99, 1.0, 1.5, 10.0] {
            let (zipf, mut stream) = (Zipf::new(count, theta), Stream::new(3));
            assert!((0..1000).all(|_| zipf.draw(&mut stream) < count), "{theta}");
        }
    }
}
