//! Computes when the requests of an open loop are due, at a constant rate or as a Poisson process.
//!
//! In an open loop, the due time of a request does not depend on the device, and latency is
//! measured from the due time. A stall therefore counts against every request that it delayed,
//! which avoids coordinated omission.
//!
//! The gaps of a Poisson process are exponentially distributed, like the gaps between the requests
//! of many independent users. Several workers with Poisson processes together form a Poisson
//! process, whose rate is the sum of their rates.

use crate::random::Stream;

/// The rate and arrival process of one worker in an open loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Mean request rate of this worker alone (requests/s).
    pub requests_per_s: f64,
    /// The arrival process.
    pub process: Process,
}

/// The distribution of the gaps between requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Process {
    /// All gaps between requests are equal.
    Constant {
        /// Time from the start to the first request, as a fraction of the gap between requests.
        offset: f64,
    },
    /// The gaps between requests are exponentially distributed.
    Poisson {
        /// Seed of the random stream from which the gaps are drawn.
        seed: u64,
    },
}

/// The due times of the requests of one worker.
#[derive(Clone, Debug)]
pub struct Arrivals {
    start_ns: u64,
    period_ns: f64,
    /// Time from the start until the next request is due, in units of the mean gap. The time is a
    /// float, because errors would add up if each gap were rounded to nanoseconds.
    at: f64,
    gaps: Gaps,
}

#[derive(Clone, Debug)]
enum Gaps {
    Constant,
    Exponential(Stream),
}

impl Arrivals {
    /// Starts the sequence of due times at `start_ns`.
    pub fn new(start_ns: u64, rate: Rate) -> Arrivals {
        let (at, gaps) = match rate.process {
            Process::Constant { offset } => (offset, Gaps::Constant),
            Process::Poisson { seed } => {
                let mut stream = Stream::new(seed);
                (exponential(&mut stream), Gaps::Exponential(stream))
            }
        };
        Arrivals { start_ns, period_ns: 1e9 / rate.requests_per_s, at, gaps }
    }

    /// Returns the due time of the next request (ns).
    #[inline]
    pub fn next_due_ns(&self) -> u64 {
        self.start_ns.saturating_add((self.at * self.period_ns) as u64)
    }

    /// Advances to the next request.
    #[inline]
    pub fn take(&mut self) {
        self.at += match &mut self.gaps {
            Gaps::Constant => 1.0,
            Gaps::Exponential(stream) => exponential(stream),
        };
    }
}

/// Draws an exponentially distributed number with mean 1, by inversion.
#[inline]
fn exponential(stream: &mut Stream) -> f64 {
    // The number has 53 random bits. It is greater than 0, so that the logarithm is finite, and it
    // is at most 1.
    let uniform = ((stream.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    -uniform.ln()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn constant(requests_per_s: f64, offset: f64) -> Rate {
        Rate { requests_per_s, process: Process::Constant { offset } }
    }

    pub(crate) fn poisson(requests_per_s: f64, seed: u64) -> Rate {
        Rate { requests_per_s, process: Process::Poisson { seed } }
    }

    /// Returns all due times of several workers that are before `end_ns`, in ascending order.
    pub(crate) fn merged(rates: &[Rate], end_ns: u64) -> Vec<u64> {
        let mut all = Vec::new();
        for rate in rates {
            let mut arrivals = Arrivals::new(0, *rate);
            while arrivals.next_due_ns() < end_ns {
                all.push(arrivals.next_due_ns());
                arrivals.take();
            }
        }
        all.sort_unstable();
        all
    }

    /// Returns the Kolmogorov-Smirnov distance between the gaps and the exponential distribution
    /// with this rate, multiplied by the square root of the number of gaps. If the gaps are
    /// exponential, the result exceeds 1.63 in one of 100 samples and 2.3 in one of 20,000.
    pub(crate) fn distance_from_exponential(due_ns: &[u64], requests_per_s: f64) -> f64 {
        let mut gaps: Vec<f64> =
            due_ns.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e9).collect();
        gaps.sort_by(f64::total_cmp);
        let n = gaps.len() as f64;
        let apart = gaps.iter().enumerate().map(|(i, gap)| {
            let expected = 1.0 - (-gap * requests_per_s).exp();
            (expected - i as f64 / n).abs().max(((i + 1) as f64 / n - expected).abs())
        });
        apart.fold(0.0, f64::max) * n.sqrt()
    }

    #[test]
    fn constant_due_times_keep_the_rate_without_drift() {
        let mut arrivals = Arrivals::new(1_000, constant(3_000_000.0, 0.0));
        for _ in 0..3_000_000 {
            arrivals.take();
        }
        assert!(arrivals.next_due_ns().abs_diff(1_000_001_000) <= 1);
    }

    #[test]
    fn offsets_stagger_the_threads() {
        let first = Arrivals::new(0, constant(1000.0, 0.0));
        let second = Arrivals::new(0, constant(1000.0, 0.5));
        assert_eq!(second.next_due_ns() - first.next_due_ns(), 500_000);
    }

    #[test]
    fn the_gaps_of_a_poisson_process_are_exponential_at_any_rate() {
        for requests_per_s in [1.0, 333.0, 50_000.0, 2_000_000.0] {
            let end_ns = (20_000.0 / requests_per_s * 1e9) as u64;
            for seed in [1, 2, 3] {
                let due = merged(&[poisson(requests_per_s, seed)], end_ns);
                let distance = distance_from_exponential(&due, requests_per_s);
                assert!(distance < 2.3, "{distance} at {requests_per_s}/s");
                let count = due.len() as f64;
                assert!((count - 20_000.0).abs() < 4.0 * 20_000_f64.sqrt(), "{count} requests");
            }
        }
    }

    #[test]
    fn the_gaps_of_a_constant_rate_are_not_exponential() {
        let due = merged(&[constant(1000.0, 0.3)], 1_000_000_000);
        assert!(distance_from_exponential(&due, 1000.0) > 10.0);
    }

    #[test]
    fn a_poisson_process_keeps_its_rate_over_many_requests() {
        let mut arrivals = Arrivals::new(0, poisson(1e6, 9));
        for _ in 0..4_000_000 {
            arrivals.take();
        }
        let seconds = arrivals.next_due_ns() as f64 / 1e9;
        // The tolerance is four standard deviations of the sum of all gaps.
        assert!((seconds - 4.0).abs() < 4.0 * 4.0 / 2000.0, "{seconds} s instead of about 4 s");
    }

    #[test]
    fn equal_seeds_repeat_and_others_differ() {
        let take = |seed| merged(&[poisson(1000.0, seed)], 1_000_000_000);
        assert_eq!(take(5), take(5));
        assert_ne!(take(5), take(6));
    }
}
