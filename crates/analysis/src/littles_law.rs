//! Applies Little's law as a consistency check to every run.
//!
//! The mean number of requests in flight equals the rate of requests times their mean latency
//! (Little, A Proof for the Queuing Formula L = λW, 1961), whatever the device does. If a load
//! generator claims a depth of 32 but the product is 20, the generator is the limit, or the
//! latencies are wrong. The caller decides which share of the depth is acceptable.

const NS_PER_S: f64 = 1e9;

/// The measured number of requests in flight, compared with the depth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Check {
    /// Mean number of requests in flight.
    pub mean_in_flight: f64,
    /// Mean number of requests in flight divided by the depth. The share is near 1 if the depth was
    /// reached, and well above 1 if rate and latency do not belong to the same requests.
    pub share_of_depth: f64,
}

/// Compares the mean number of requests in flight with `depth`. The mean follows from `rate_per_s`
/// requests per second with a mean latency of `mean_latency_ns` nanoseconds. `depth` is the number
/// of requests that all threads together keep in flight (0 counts as 1).
pub fn check(rate_per_s: f64, mean_latency_ns: f64, depth: u64) -> Check {
    let mean_in_flight = rate_per_s * mean_latency_ns / NS_PER_S;
    Check { mean_in_flight, share_of_depth: mean_in_flight / depth.max(1) as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_thousand_a_second_of_320_us_each_fill_a_depth_of_32() {
        let c = check(100_000.0, 320_000.0, 32);
        assert!((c.mean_in_flight - 32.0).abs() < 1e-9);
        assert!((c.share_of_depth - 1.0).abs() < 1e-9);
    }

    #[test]
    fn half_the_latency_at_the_same_rate_fills_half_the_depth() {
        assert!((check(100_000.0, 160_000.0, 32).share_of_depth - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_depth_of_zero_does_not_divide_by_zero() {
        assert!((check(1000.0, 1e6, 0).share_of_depth - 1.0).abs() < 1e-9);
    }
}
