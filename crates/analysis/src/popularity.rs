//! Finds the law that the popularity of blocks follows: even popularity, Zipf's law, the
//! self-similar law (80/20, called pareto by fio), or zones of the region with different access
//! densities.
//!
//! The input is the number of blocks that were accessed once, twice, and so on. The blocks are not
//! ranked by their counts, because such a ranking makes even accesses look skewed if there are few
//! accesses per block.
//!
//! Each law gives the expected number of accesses of each block. If accesses are independent, the
//! actual number is Poisson distributed. This gives the expected number of blocks in each range of
//! access counts. The parameter of a law is chosen so that the expected and the counted numbers of
//! blocks are as close as possible by the Freeman-Tukey distance, `4 (sqrt(seen) -
//! sqrt(expected))^2` summed over the ranges. For the true law, this distance has a chi-squared
//! distribution. A skewed law is chosen only if it is clearly nearer than even popularity.
//!
//! In Zipf's law, the block of rank k is accessed in proportion to `k^-theta`. The self-similar law
//! is that of Gray et al. (SIGMOD 1994): a fraction h of the blocks gets the fraction 1 - h of the
//! accesses. Within these blocks, the same law applies again, and so on.

use std::collections::BTreeMap;

use statrs::function::erf::erfc;

/// Number of equal parts into which the region is divided to count accesses by position.
pub const PARTS: usize = 100;
/// Maximum number of zones of the zoned law.
const ZONES_MAX: usize = 4;
/// Number of most popular ranks that are computed one by one. The ranks after them are computed in
/// groups.
const RANKS_ALONE: u64 = 64;
/// Number of groups of ranks for each doubling of the rank.
const GROUPS_PER_DOUBLING: f64 = 6.0;
/// If the mean is at least this value, the Poisson distribution is approximated instead of summed.
const MEAN_APPROXIMATE: f64 = 60.0;
/// The margin (factor, amount) in comparisons of distances. For Zipf's law and the self-similar
/// law, `distance * factor + amount` is computed. Such a law is chosen if this value is below the
/// distance of even popularity. Zones then replace the chosen law if the distance of the zones is
/// at most `distance * factor + amount` of the chosen law. The amount is three times the standard
/// deviation of chi-squared with 12 degrees of freedom.
const BETTER: (f64, f64) = (1.2, 15.0);
/// Numbers of steps in the coarse and in the fine search for a parameter.
const STEPS: (u32, u32) = (40, 30);

/// A zone of the region, with an even density of accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Share of the accesses that fall into the zone (percent).
    pub access_percent: u8,
    /// Share of the region that the zone covers (percent).
    pub region_percent: u8,
}

/// How accesses are distributed over blocks.
#[derive(Clone, Debug, PartialEq)]
pub enum Law {
    /// All blocks are equally popular.
    Even,
    /// Zipf's law.
    Zipf {
        /// The exponent.
        theta: f64,
    },
    /// The self-similar law.
    Pareto {
        /// The fraction of blocks that gets the fraction 1 - h of the accesses.
        h: f64,
    },
    /// Zones of the region in the order of their position. Accesses are even within each zone.
    Zoned(Vec<Zone>),
}

/// The counted accesses to a region.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// For each number of accesses (1 or more), the number of blocks with this many accesses.
    /// Blocks whose accesses were not counted are left out.
    pub blocks_by_accesses: BTreeMap<u64, u64>,
    /// Number of blocks in the region.
    pub blocks: u64,
    /// Share of the blocks of the region whose accesses were counted, from 0 (none) to 1 (all).
    pub counted_share: f64,
    /// Number of accesses to all blocks.
    pub accesses: u64,
    /// Number of accesses to each part of the region, for all blocks.
    pub by_part: [u64; PARTS],
}

/// The law that is nearest to the counted accesses.
#[derive(Clone, Debug, PartialEq)]
pub struct Nearest {
    /// The nearest law.
    pub law: Law,
    /// Distance of the law from the counts. If the law holds, the distance is near the number of
    /// ranges of access counts (about 10 to 40).
    pub distance: f64,
    /// Distance of even popularity from the counts.
    pub even_distance: f64,
}

/// Returns the law that is nearest to the counts. None if there are no accesses, no blocks or no
/// counted blocks.
pub fn nearest(observed: &Observed) -> Option<Nearest> {
    let share = observed.counted_share;
    if observed.accesses == 0 || observed.blocks == 0 || !(share > 0.0 && share <= 1.0) {
        return None;
    }
    let ranges = Ranges::of(observed);
    let even = ranges.distance(&[(observed.blocks as f64, 1.0)]).min(ranges.passes());
    let blocks = observed.blocks;
    let zipf = ranges.search((0.05, 3.0), &|theta| zipf_groups(blocks, theta));
    let pareto = ranges.search((0.01, 0.49), &|h| pareto_groups(blocks, h));
    let of_ranks = match zipf.1 <= pareto.1 {
        true => (Law::Zipf { theta: zipf.0 }, zipf.1),
        false => (Law::Pareto { h: pareto.0 }, pareto.1),
    };
    let mut found = (Law::Even, even);
    let is_better = |this: f64, than: f64| this * BETTER.0 + BETTER.1 < than;
    if is_better(of_ranks.1, even) {
        found = of_ranks;
    }
    if let Some(zones) = zones(&observed.by_part) {
        let distance = ranges.distance(&zone_groups(blocks, &zones));
        // Zones must explain the counts about as well as the law that was chosen before. Otherwise
        // a single popular block could turn its part of the region into a zone.
        if distance <= found.1 * BETTER.0 + BETTER.1 {
            found = (Law::Zoned(zones), distance);
        }
    }
    Some(Nearest { law: found.0, distance: found.1, even_distance: even })
}

/// A group of blocks of equal popularity: the number of blocks, and their share of all accesses.
type Group = (f64, f64);

/// Returns the bounds of the groups of ranks. Together the groups cover 0 to `blocks`.
fn bounds(blocks: u64) -> Vec<(f64, f64)> {
    let mut bounds = Vec::new();
    let mut from = 0.0;
    let end = blocks as f64;
    while from < end {
        let width = match from < RANKS_ALONE as f64 {
            true => 1.0,
            false => (from * (2_f64.powf(1.0 / GROUPS_PER_DOUBLING) - 1.0)).floor().max(1.0),
        };
        let to = (from + width).min(end);
        bounds.push((from, to));
        from = to;
    }
    bounds
}

fn zipf_groups(blocks: u64, theta: f64) -> Vec<Group> {
    let area = |from: f64, to: f64| match (1.0 - theta).abs() < 1e-9 {
        true => (to / from).ln(),
        false => (to.powf(1.0 - theta) - from.powf(1.0 - theta)) / (1.0 - theta),
    };
    let mass = |(from, to): (f64, f64)| match to - from <= 1.0 {
        true => to.powf(-theta),
        false => area(from + 0.5, to + 0.5),
    };
    shares(bounds(blocks).into_iter().map(|bounds| (bounds.1 - bounds.0, mass(bounds))))
}

fn pareto_groups(blocks: u64, h: f64) -> Vec<Group> {
    let power = (-h).ln_1p() / h.ln();
    let below = |rank: f64| (rank / blocks as f64).powf(power);
    shares(bounds(blocks).into_iter().map(|(from, to)| (to - from, below(to) - below(from))))
}

fn zone_groups(blocks: u64, zones: &[Zone]) -> Vec<Group> {
    let part = |zone: &Zone| {
        let width = blocks as f64 * f64::from(zone.region_percent) / 100.0;
        (width, f64::from(zone.access_percent) / 100.0)
    };
    shares(zones.iter().map(part))
}

fn shares(groups: impl Iterator<Item = Group>) -> Vec<Group> {
    let groups: Vec<Group> = groups.collect();
    let sum: f64 = groups.iter().map(|(_, mass)| mass).sum();
    groups.into_iter().map(|(width, mass)| (width, mass / sum.max(f64::MIN_POSITIVE))).collect()
}

/// Ranges of access counts, and the number of blocks whose count lies in each range.
struct Ranges {
    /// Lowest count of each range, starting at 0. A range ends where the next one begins.
    from: Vec<u64>,
    seen: Vec<f64>,
    blocks: f64,
    counted_share: f64,
    accesses: f64,
}

impl Ranges {
    fn of(observed: &Observed) -> Ranges {
        let most = observed.blocks_by_accesses.last_key_value().map_or(1, |(count, _)| *count);
        let (mut from, mut next) = (vec![0, 1, 2, 3, 4], 6_u64);
        while next <= most && next < u64::MAX / 2 {
            from.extend([next, next.saturating_add(next / 3)]);
            next = next.saturating_mul(2);
        }
        from.dedup();
        let mut seen = vec![0.0; from.len()];
        for (accesses, blocks) in &observed.blocks_by_accesses {
            seen[from.partition_point(|low| low <= accesses) - 1] += *blocks as f64;
        }
        let counted = observed.blocks as f64 * observed.counted_share;
        let touched: f64 = seen.iter().sum();
        seen[0] = (counted - touched).max(0.0);
        let accesses = observed.accesses as f64;
        let (blocks, counted_share) = (observed.blocks as f64, observed.counted_share);
        Ranges { from, seen, blocks, counted_share, accesses }
    }

    fn apart(&self, expected: &[f64]) -> f64 {
        let apart = self.seen.iter().zip(expected);
        apart.map(|(seen, expected)| 4.0 * (seen.sqrt() - expected.sqrt()).powi(2)).sum()
    }

    /// Returns the distance of even popularity, assuming that the accesses are not random: the
    /// region is accessed in passes, and each pass accesses every block once.
    fn passes(&self) -> f64 {
        let mean = self.accesses / self.blocks;
        let mut expected = vec![0.0; self.from.len()];
        let (whole, more) = (mean.floor(), mean.fract());
        for (count, share) in [(whole, 1.0 - more), (whole + 1.0, more)] {
            let range = self.from.partition_point(|low| *low as f64 <= count) - 1;
            expected[range] += self.blocks * self.counted_share * share;
        }
        self.apart(&expected)
    }

    /// Returns the distance of a law from the counts.
    fn distance(&self, groups: &[Group]) -> f64 {
        let mut expected = vec![0.0; self.from.len()];
        for (width, share) in groups.iter().filter(|(width, _)| *width > 0.0) {
            let below = poisson_below(self.accesses * share / width, &self.from);
            let counted = width * self.counted_share;
            for (range, sum) in expected.iter_mut().enumerate() {
                let end = below.get(range + 1).copied().unwrap_or(1.0);
                *sum += counted * (end - below[range]).max(0.0);
            }
        }
        self.apart(&expected)
    }

    /// Returns the parameter with the smallest distance, to a relative precision of about 1e-4, and
    /// this distance.
    fn search(&self, (low, high): (f64, f64), groups: &dyn Fn(f64) -> Vec<Group>) -> (f64, f64) {
        let distance = |parameter: f64| self.distance(&groups(parameter));
        let step = (high / low).powf(1.0 / f64::from(STEPS.0));
        let at = |n: u32| low * step.powi(n as i32);
        let coarse = (0..=STEPS.0).map(|n| (at(n), distance(at(n))));
        let best = coarse.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((low, f64::INFINITY));
        // The fine search is a golden-section search between the two coarse steps next to the best
        // step.
        let golden = (5_f64.sqrt() - 1.0) / 2.0;
        let (mut from, mut to) = ((best.0 / step).max(low), (best.0 * step).min(high));
        let (mut left, mut right) = (to - golden * (to - from), from + golden * (to - from));
        let (mut of_left, mut of_right) = (distance(left), distance(right));
        for _ in 0..STEPS.1 {
            if of_left < of_right {
                (to, right, of_right) = (right, left, of_left);
                left = to - golden * (to - from);
                of_left = distance(left);
            } else {
                (from, left, of_left) = (left, right, of_right);
                right = from + golden * (to - from);
                of_right = distance(right);
            }
        }
        let fine = (left, of_left);
        if fine.1 < best.1 { fine } else { best }
    }
}

/// Returns, for each of `counts`, the probability that a Poisson variable is below this count. The
/// counts must ascend.
fn poisson_below(mean: f64, counts: &[u64]) -> Vec<f64> {
    if mean < MEAN_APPROXIMATE {
        let (mut at, mut term, mut sum) = (0_u64, (-mean).exp(), 0.0_f64);
        let below = |count: &u64| {
            // The mean is below 60 here, so the probabilities of all counts below 400 already add
            // up to 1.
            while at < (*count).min(400) {
                sum += term;
                at += 1;
                term *= mean / at as f64;
            }
            sum.min(1.0)
        };
        return counts.iter().map(below).collect();
    }
    // The probability equals the probability that a gamma variable with shape `n` is above `mean`.
    // The cube root of a gamma variable is nearly normal (Wilson and Hilferty).
    let below = |count: &u64| {
        if *count == 0 {
            return 0.0;
        }
        let n = *count as f64;
        let z = ((mean / n).cbrt() - (1.0 - 1.0 / (9.0 * n))) * 3.0 * n.sqrt();
        erfc(z / std::f64::consts::SQRT_2) / 2.0
    };
    counts.iter().map(below).collect()
}

/// Divides the region into zones, each with an even density of accesses. None if a single zone
/// describes the region.
fn zones(by_part: &[u64; PARTS]) -> Option<Vec<Zone>> {
    let mut sums = vec![0.0];
    by_part.iter().for_each(|count| sums.push(sums[sums.len() - 1] + *count as f64));
    let all = sums[PARTS];
    let likelihood = |from: usize, to: usize| {
        let within: f64 = sums[to] - sums[from];
        if within > 0.0 { within * (within / (to - from) as f64).ln() } else { 0.0 }
    };
    // `best[k][to]` contains the log-likelihood of the best division of the parts before `to` into
    // k + 1 zones, and the start of the last of these zones.
    let mut best = vec![vec![(f64::NEG_INFINITY, 0); PARTS + 1]; ZONES_MAX];
    for (to, found) in best[0].iter_mut().enumerate().skip(1) {
        *found = (likelihood(0, to), 0);
    }
    for k in 1..ZONES_MAX {
        for to in k + 1..=PARTS {
            let options = (k..to).map(|from| (best[k - 1][from].0 + likelihood(from, to), from));
            let found = options.max_by(|a, b| a.0.total_cmp(&b.0));
            best[k][to] = found.unwrap_or((f64::NEG_INFINITY, 0));
        }
    }
    // Chance and small differences in density also improve the likelihood. A further zone is
    // therefore accepted only if it improves the likelihood by more than `worth`.
    let worth = (0.005 * all).max(12.0);
    let mut count = 0;
    for k in 1..ZONES_MAX {
        if best[k][PARTS].0 - best[count][PARTS].0 > worth * (k - count) as f64 {
            count = k;
        }
    }
    if count == 0 {
        return None;
    }
    let mut ends = vec![PARTS];
    for k in (1..=count).rev() {
        ends.push(best[k][ends[ends.len() - 1]].1);
    }
    ends.push(0);
    ends.reverse();
    let accesses: Vec<f64> = ends.windows(2).map(|pair| sums[pair[1]] - sums[pair[0]]).collect();
    let percents = percents(&accesses);
    let regions = ends.windows(2).map(|pair| (pair[1] - pair[0]) as u8);
    let zone = |(access_percent, region_percent)| Zone { access_percent, region_percent };
    Some(percents.into_iter().zip(regions).map(zone).collect())
}

/// Returns whole percentages that add up to 100 and are as near as possible to the shares of the
/// weights (largest remainder). All percentages are 0 if the sum of the weights is not positive and
/// finite.
pub fn percents(weights: &[f64]) -> Vec<u8> {
    let sum: f64 = weights.iter().sum();
    if !(sum > 0.0 && sum.is_finite()) {
        return vec![0; weights.len()];
    }
    let exact: Vec<f64> = weights.iter().map(|weight| weight / sum * 100.0).collect();
    let mut percents: Vec<u8> = exact.iter().map(|percent| *percent as u8).collect();
    let given: u32 = percents.iter().map(|percent| u32::from(*percent)).sum();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by(|a, b| exact[*b].fract().total_cmp(&exact[*a].fract()));
    order.into_iter().take(100_u32.saturating_sub(given) as usize).for_each(|at| percents[at] += 1);
    percents
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Pseudo-random numbers that are the same in each run (xorshift64*).
    struct Dice(u64);

    impl Dice {
        fn unit(&mut self) -> f64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    /// Draws accesses at random, according to the popularity of each block.
    fn drawn(popularity: &[f64], accesses: u64, seed: u64) -> Observed {
        let mut sums = vec![0.0];
        popularity.iter().for_each(|mass| sums.push(sums[sums.len() - 1] + mass));
        let (mut dice, mut counts) = (Dice(seed | 1), vec![0_u64; popularity.len()]);
        for _ in 0..20 {
            dice.unit();
        }
        for _ in 0..accesses {
            let at = dice.unit() * sums[popularity.len()];
            let block = sums.partition_point(|sum| *sum <= at).clamp(1, popularity.len()) - 1;
            counts[block] += 1;
        }
        observed(&counts)
    }

    fn observed(counts: &[u64]) -> Observed {
        let mut blocks_by_accesses = BTreeMap::new();
        let mut by_part = [0; PARTS];
        for (block, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            *blocks_by_accesses.entry(*count).or_default() += 1;
            by_part[block * PARTS / counts.len()] += count;
        }
        let (blocks, accesses) = (counts.len() as u64, counts.iter().sum());
        Observed { blocks_by_accesses, blocks, counted_share: 1.0, accesses, by_part }
    }

    /// Reorders the blocks so that the position of a block does not depend on its rank.
    fn scattered(popularity: Vec<f64>) -> Vec<f64> {
        let count = popularity.len();
        let mut places = vec![0.0; count];
        let step = (count as f64 * 0.618) as usize | 1;
        for (rank, mass) in popularity.into_iter().enumerate() {
            places[(rank * step + 17) % count] = mass;
        }
        places
    }

    const BLOCKS: u64 = 1 << 14;

    fn zipf(theta: f64) -> Vec<f64> {
        scattered((1..=BLOCKS).map(|rank| (rank as f64).powf(-theta)).collect())
    }

    #[test]
    fn the_exponent_of_zipfs_law_is_found_also_with_few_accesses() {
        for theta in [0.5, 0.8, 1.0, 1.2, 1.6] {
            for accesses in [8_000, 100_000] {
                let Law::Zipf { theta: found } =
                    nearest(&drawn(&zipf(theta), accesses, 7)).unwrap().law
                else {
                    panic!("{theta}, {accesses}: no zipf")
                };
                assert!((found / theta - 1.0).abs() < 0.1, "{found} for {theta}, {accesses}");
            }
        }
    }

    #[test]
    fn the_fraction_of_the_self_similar_law_is_found() {
        for h in [0.1_f64, 0.2, 0.3] {
            let power = (-h).ln_1p() / h.ln();
            let below = |rank: u64| (rank as f64 / BLOCKS as f64).powf(power);
            let mass = (0..BLOCKS).map(|rank| below(rank + 1) - below(rank)).collect();
            let found = nearest(&drawn(&scattered(mass), 100_000, 3)).unwrap().law;
            let Law::Pareto { h: found } = found else { panic!("{h}: {found:?}") };
            assert!((found / h - 1.0).abs() < 0.1, "{found} for {h}");
        }
    }

    #[test]
    fn zones_are_found_with_their_bounds() {
        let mass = |block: u64| match block * 100 / BLOCKS {
            0..10 => 6.0,
            10..30 => 1.5,
            _ => 1.0 / 7.0,
        };
        let mass: Vec<f64> = (0..BLOCKS).map(mass).collect();
        let Law::Zoned(zones) = nearest(&drawn(&mass, 60_000, 5)).unwrap().law else { panic!() };
        let expected = [(60, 10), (30, 20), (10, 70)];
        assert_eq!(zones.len(), 3, "{zones:?}");
        for (zone, (access, region)) in zones.iter().zip(expected) {
            assert!(zone.access_percent.abs_diff(access) <= 1, "{zones:?}");
            assert!(zone.region_percent.abs_diff(region) <= 1, "{zones:?}");
        }
    }

    #[test]
    fn even_accesses_are_not_taken_for_skew() {
        let even = vec![1.0; BLOCKS as usize];
        for (accesses, seed) in [(100, 1), (5_000, 2), (16_384, 3), (200_000, 4)] {
            let found = nearest(&drawn(&even, accesses, seed)).unwrap();
            assert_eq!(found.law, Law::Even, "{accesses}: {found:?}");
        }
        // Every third block is accessed twice, and all other blocks once.
        let passes: Vec<u64> = (0..BLOCKS).map(|block| 1 + u64::from(block % 3 == 0)).collect();
        let found = nearest(&observed(&passes)).unwrap();
        assert_eq!(found.law, Law::Even, "{found:?}");
        assert!(found.distance < 1.0, "{found:?}");
    }

    #[test]
    fn a_sample_of_the_blocks_gives_the_same_law() {
        let mut all = drawn(&zipf(0.9), 200_000, 11);
        let mut dice = Dice(99);
        let mut kept = BTreeMap::new();
        for (accesses, blocks) in &all.blocks_by_accesses {
            let of = (0..*blocks).filter(|_| dice.unit() < 0.25).count() as u64;
            kept.insert(*accesses, of);
        }
        (all.blocks_by_accesses, all.counted_share) = (kept, 0.25);
        let Law::Zipf { theta } = nearest(&all).unwrap().law else { panic!() };
        assert!((theta / 0.9 - 1.0).abs() < 0.1, "{theta}");
    }

    #[test]
    fn nothing_has_no_law() {
        assert_eq!(nearest(&observed(&[0, 0])), None);
        assert_eq!(nearest(&Observed { counted_share: f64::NAN, ..observed(&[1]) }), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        #[test]
        fn probabilities_rise_to_one(mean in 0.0..1e7_f64) {
            let counts = [0, 1, 2, 5, 60, 400, 1_000_000, 1 << 40];
            let below = poisson_below(mean, &counts);
            prop_assert!(below.windows(2).all(|pair| pair[0] <= pair[1] + 1e-9), "{below:?}");
            prop_assert!(below[0] == 0.0 && below[7] > 0.999_999, "{below:?}");
        }

        #[test]
        fn any_counts_have_a_law_with_valid_parameters(
            counts in proptest::collection::vec(0_u64..1 << 50, 1..40), more: u32,
        ) {
            let mut observed = observed(&counts);
            observed.blocks += u64::from(more) * u64::from(more);
            if let Some(found) = nearest(&observed) {
                match found.law {
                    Law::Even => {}
                    Law::Zipf { theta } => prop_assert!((0.04..3.1).contains(&theta)),
                    Law::Pareto { h } => prop_assert!((0.009..0.5).contains(&h)),
                    Law::Zoned(zones) => {
                        let sum = |of: fn(&Zone) -> u8| {
                            zones.iter().map(|zone| u32::from(of(zone))).sum::<u32>()
                        };
                        prop_assert_eq!(sum(|zone| zone.access_percent), 100);
                        prop_assert_eq!(sum(|zone| zone.region_percent), 100);
                    }
                }
            }
        }

        #[test]
        fn percents_add_up_to_a_hundred(
            weights in proptest::collection::vec(0.0..1e12_f64, 1..90)
        ) {
            let found = percents(&weights);
            let sum: u32 = found.iter().map(|percent| u32::from(*percent)).sum();
            prop_assert_eq!(sum, if weights.iter().sum::<f64>() > 0.0 { 100 } else { 0 });
        }
    }
}
