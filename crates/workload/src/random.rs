//! Seeded random numbers: a mixing function, random streams, and permutations that need no table.
//!
//! A permutation is computed from a counter that runs up to a power of two. A chain of bijections
//! (multiplication by odd numbers, xor with a right shift, addition) scrambles each value of the
//! counter, and results beyond the last block are skipped. Each pass therefore visits every block
//! exactly once, in a different order, without memory per block.

/// Mixes two numbers into one number whose bits all depend on both inputs (the finaliser of
/// SplitMix64, Steele, Lea and Flood 2014).
pub fn mix(seed: u64, number: u64) -> u64 {
    let mut x = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// A SplitMix64 generator of random numbers. It is fast, and good enough to choose between reads
/// and writes and to fill buffers.
#[derive(Clone, Debug)]
pub struct Stream {
    seed: u64,
    number: u64,
}

impl Stream {
    /// Creates a generator with the given seed.
    pub fn new(seed: u64) -> Stream {
        Stream { seed, number: 0 }
    }

    /// Returns the next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.number += 1;
        mix(self.seed, self.number)
    }

    /// Returns a random number from 0 (included) to 1 (excluded).
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a random integer below `count`. The relative error of each probability is less than
    /// `count` / 2^64.
    #[inline]
    pub fn below(&mut self, count: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(count)) >> 64) as u64
    }

    /// Returns true with a probability of `share` percent.
    #[inline]
    pub fn percent(&mut self, share: u8) -> bool {
        // This maps 32 random bits to a number from 0 to 99. The probabilities differ by at most
        // 2^-32.
        (((self.next_u64() >> 32) * 100) >> 32) < u64::from(share)
    }
}

/// Yields every number below `count` exactly once per pass, in random order.
#[derive(Clone, Debug)]
pub struct Permutation {
    count: u64,
    mask: u64,
    shift: u32,
    counter: u64,
    seed: u64,
    pass: u64,
    keys: [u64; 3],
}

impl Permutation {
    /// Creates a permutation of `0..count` that is different in each pass. `count` must be at least
    /// 1.
    pub fn new(count: u64, seed: u64) -> Permutation {
        let bits = 64 - (count - 1).leading_zeros();
        let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        let shift = bits.div_ceil(2).max(1);
        let keys = [0; 3];
        let mut permutation = Permutation { count, mask, shift, counter: 0, seed, pass: 0, keys };
        permutation.rekey();
        permutation
    }

    fn rekey(&mut self) {
        let base = mix(self.seed, self.pass);
        self.keys = [mix(base, 1), mix(base, 2) | 1, mix(base, 3) | 1];
        self.pass += 1;
    }

    /// Returns the next number of the permutation.
    #[inline]
    pub fn next_index(&mut self) -> u64 {
        loop {
            let index = self.scramble(self.counter);
            self.counter = (self.counter + 1) & self.mask;
            if self.counter == 0 {
                self.rekey();
            }
            if index < self.count {
                return index;
            }
        }
    }

    /// Maps each number below `count` to a number below `count`, one-to-one. The mapping changes
    /// when [`Permutation::next_index`] begins a new pass.
    #[inline]
    pub fn place_of(&self, index: u64) -> u64 {
        // Cycle walking: if a bijection is repeated until the value is in range, the result is a
        // bijection on the range.
        let mut at = self.scramble(index);
        while at >= self.count {
            at = self.scramble(at);
        }
        at
    }

    /// Maps `0..=mask` one-to-one onto itself.
    #[inline]
    fn scramble(&self, counter: u64) -> u64 {
        let mut x = counter.wrapping_add(self.keys[0]) & self.mask;
        x ^= x >> self.shift;
        x = x.wrapping_mul(self.keys[1]) & self.mask;
        x ^= x >> self.shift;
        x = x.wrapping_mul(self.keys[2]) & self.mask;
        x ^ (x >> self.shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_permutation_visits_each_block_exactly_once_in_every_pass(
            count in 1_u64..5000, seed: u64,
        ) {
            let mut permutation = Permutation::new(count, seed);
            for _ in 0..2 {
                let mut pass: Vec<u64> = (0..count).map(|_| permutation.next_index()).collect();
                pass.sort_unstable();
                prop_assert!(pass.iter().copied().eq(0..count));
            }
        }

        #[test]
        fn place_of_is_a_bijection(count in 1_u64..5000, seed: u64) {
            let permutation = Permutation::new(count, seed);
            let mut places: Vec<u64> = (0..count).map(|n| permutation.place_of(n)).collect();
            places.sort_unstable();
            prop_assert!(places.into_iter().eq(0..count));
        }
    }

    #[test]
    fn passes_and_seeds_differ_and_equal_seeds_repeat() {
        let take = |permutation: &mut Permutation| -> Vec<u64> {
            (0..1000).map(|_| permutation.next_index()).collect()
        };
        let mut one = Permutation::new(1000, 1);
        let (first, second) = (take(&mut one), take(&mut one));
        assert_ne!(first, second);
        assert_ne!(first, take(&mut Permutation::new(1000, 2)));
        assert_eq!(first, take(&mut Permutation::new(1000, 1)));
    }

    #[test]
    fn the_mean_jump_is_that_of_a_random_order() {
        // The mean distance of two independent uniform numbers below n is n/3.
        let count = 1 << 16;
        let mut permutation = Permutation::new(count, 3);
        let mut last = permutation.next_index();
        let mut sum = 0.0;
        for _ in 0..count - 1 {
            let next = permutation.next_index();
            sum += last.abs_diff(next) as f64;
            last = next;
        }
        let mean = sum / (count - 1) as f64 / count as f64;
        assert!((mean - 1.0 / 3.0).abs() < 0.02, "mean distance {mean}");
    }

    #[test]
    fn the_start_of_a_pass_visits_both_halves_evenly() {
        let count = 10_000;
        let mut permutation = Permutation::new(count, 11);
        let low = (0..1000).filter(|_| permutation.next_index() < count / 2).count();
        assert!((400..600).contains(&low), "{low} of 1000 in the lower half");
    }

    #[test]
    fn percent_is_true_with_the_requested_probability() {
        let mut stream = Stream::new(5);
        let reads = (0..100_000).filter(|_| stream.percent(70)).count();
        assert!((69_000..71_000).contains(&reads), "{reads}");
        assert!((0..1000).all(|_| stream.percent(100)));
        assert!(!(0..1000).any(|_| stream.percent(0)));
    }
}
