//! Pseudo-random numbers: SplitMix64 (Steele, Lea and Flood 2014).

/// A pseudo-random number generator.
#[derive(Clone, Debug)]
pub(crate) struct Stream(u64);

impl Stream {
    /// Creates a generator that starts with a seed.
    pub fn new(seed: u64) -> Stream {
        Stream(seed)
    }

    /// Returns the next random number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a random number, uniform in [0, 1).
    pub fn share(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
