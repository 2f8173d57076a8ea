//! Random numbers for the simulated fleet.
//!
//! The differences between hosts follow Student's distribution, which has heavier tails than a
//! normal distribution. Disturbances have a given probability and a uniformly distributed size.

use std::f64::consts::TAU;

use fastrand::Rng;

/// Returns a normally distributed number with mean 0 and standard deviation 1 (Box-Muller method).
pub fn normal(random: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (TAU * random.f64()).cos()
}

/// Returns a number with Student's distribution, scaled to standard deviation 1. Fewer degrees of
/// freedom give heavier tails.
pub fn heavy(random: &mut Rng, freedom: u32) -> f64 {
    let squares: f64 = (0..freedom).map(|_| normal(random).powi(2)).sum();
    let freedom = f64::from(freedom);
    normal(random) / (squares / freedom).sqrt() * ((freedom - 2.0) / freedom).sqrt()
}

/// Returns true with the given probability.
pub fn happens(random: &mut Rng, probability: f64) -> bool {
    random.f64() < probability
}

/// Returns a uniformly distributed number between two bounds.
pub fn between(random: &mut Rng, low: f64, high: f64) -> f64 {
    low + (high - low) * random.f64()
}

/// Returns one of the choices at random. Each choice has a weight.
pub fn choice<T: Copy>(random: &mut Rng, choices: &[(T, f64)]) -> T {
    let mut left = random.f64() * choices.iter().map(|(_, weight)| weight).sum::<f64>();
    let found = choices.iter().find(|(_, weight)| {
        left -= weight;
        left < 0.0
    });
    found.unwrap_or(&choices[choices.len() - 1]).0
}
