//! Estimates starting values for a fit from the measured points: the fixed time and the transfer
//! rate of a request, the highest rates, and the rates to which long trials slow down.

use analysis::lsq;

use crate::history::{History, MeasuredPoint};

/// Estimates for one direction (reads or writes).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Direction {
    /// Fixed time per request: the time that a request of 0 bytes would take (ns).
    pub fixed_ns: f64,
    /// Rate at which a single request transfers its bytes after the fixed time [bytes per second].
    pub single_bytes_per_s: f64,
    /// Highest rate at any point of this direction [bytes per second].
    pub most_bytes_per_s: f64,
    /// Highest request rate at any point of this direction (requests per second).
    pub most_requests_per_s: f64,
    /// Highest rate of one host [bytes per second].
    pub most_bytes_per_s_of_host: f64,
    /// Highest request rate of one host (requests per second).
    pub most_requests_per_s_of_host: f64,
}

/// Starting values of a fit, estimated from the measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct InitialGuess {
    /// Estimates for reads; `None` if no reads were measured.
    pub read: Option<Direction>,
    /// Estimates for writes; `None` if no writes were measured.
    pub write: Option<Direction>,
    /// Estimated latency of a cache hit (ns). It is the lowest p10 latency among the points that
    /// read with at most two outstanding requests. 1000 if there is no such point.
    pub cache_hit_ns: f64,
    /// Estimated sustained rate: the most common final rate of the trials that slow down [bytes per
    /// second]. The first value is for all trials, the second for write trials only. `f64::MAX` if
    /// no trial slows down.
    pub late_bytes_per_s: [f64; 2],
    /// Estimated burst credit if `late_bytes_per_s` is the sustained rate (bytes). The first value
    /// is for all trials, the second for write trials only.
    pub credit_bytes: [f64; 2],
    /// Sizes of the regions that the points accessed (bytes).
    pub regions: Vec<f64>,
    /// Whether the device seems to have a cache, a write buffer or burst credit: its rate falls
    /// during a trial, the trials of a point differ in rate, or some reads are much faster than
    /// others. False if several hosts share the storage, because these parts are not modelled for
    /// shared storage.
    pub is_stateful: bool,
}

/// The measurements from which the starting values are estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The median rate of each point's trials. The mean time of a request follows from this rate
    /// (Little's law).
    Mean,
    /// The highest rate and the lowest median latency of each point's trials. These show the device
    /// while it still has burst credit.
    Fresh,
}

impl InitialGuess {
    /// Estimates the starting values from the points that are not held out.
    pub fn of(history: &History, source: Source) -> InitialGuess {
        let points: Vec<&MeasuredPoint> = history.points.iter().filter(|p| !p.held_out).collect();
        let [read, write] = [true, false].map(|reads| direction(&points, reads, source));
        // A run with only mixed workloads does not show the difference between reads and writes, so
        // both get the same estimates.
        let both = direction_of(&points, source);
        let neither = read.is_none() && write.is_none();
        let (read, write) = if neither { (both, both) } else { (read, write) };
        let single = || points.iter().filter(|p| p.reads() == Some(true) && p.outstanding() <= 2);
        let cache_hit_ns =
            single().map(|p| p.latency_ns[0]).filter(|ns| *ns > 0.0).fold(f64::MAX, f64::min);
        let hits = single().any(|p| p.latency_ns[2] > 2.0 * p.latency_ns[0]);
        let differ = points.iter().any(|p| p.spread > 0.15);
        let mut regions: Vec<f64> = points.iter().map(|p| p.key.size_bytes() as f64).collect();
        regions.sort_by(f64::total_cmp);
        regions.dedup();
        let slowdown = slowdown(history);
        InitialGuess {
            read,
            write,
            cache_hit_ns: if cache_hit_ns < f64::MAX { cache_hit_ns } else { 1000.0 },
            late_bytes_per_s: slowdown.late_bytes_per_s,
            credit_bytes: slowdown.credit_bytes,
            is_stateful: history.hosts() == 1 && (hits || differ || slowdown.any),
            regions,
        }
    }

    /// Returns the measured directions, each with its word in the keys of the system file (`read`
    /// or `write`).
    pub fn directions(&self) -> Vec<(&'static str, Direction)> {
        let read = self.read.map(|direction| ("read", direction));
        let write = self.write.map(|direction| ("write", direction));
        read.into_iter().chain(write).collect()
    }
}

fn direction(points: &[&MeasuredPoint], reads: bool, source: Source) -> Option<Direction> {
    let mine: Vec<&MeasuredPoint> =
        points.iter().filter(|p| p.reads() == Some(reads)).copied().collect();
    direction_of(&mine, source)
}

fn direction_of(points: &[&MeasuredPoint], source: Source) -> Option<Direction> {
    let least = points.iter().map(|p| p.outstanding()).min()?;
    let time_ns = |p: &MeasuredPoint| match source {
        Source::Mean => 1e9 * f64::from(p.outstanding()) / p.requests_per_s(),
        Source::Fresh => p.fresh_latency_ns,
    };
    let single: Vec<&&MeasuredPoint> = points.iter().filter(|p| p.outstanding() == least).collect();
    let samples: Vec<lsq::Point> = single
        .iter()
        .map(|p| (p.key.request_bytes() as f64, time_ns(p)))
        .filter(|(_, ns)| ns.is_finite() && *ns > 0.0)
        .map(|(bytes, ns)| lsq::Point::with_relative_error(bytes, ns, 0.02))
        .collect();
    let quickest_ns = single.iter().map(|p| time_ns(p)).fold(f64::MAX, f64::min);
    let largest = |of: fn(&MeasuredPoint) -> f64| points.iter().map(|p| of(p)).fold(0.0, f64::max);
    let (most_bytes_per_s, most_requests_per_s) = match source {
        Source::Mean => (largest(|p| p.bytes_per_s), largest(MeasuredPoint::requests_per_s)),
        Source::Fresh => (
            largest(|p| p.best_bytes_per_s),
            largest(|p| p.best_bytes_per_s / p.key.request_bytes() as f64),
        ),
    };
    let (intercept, slope) = match lsq::line(&samples) {
        Ok(line) => (line.intercept.value, line.slope.value),
        Err(_) => through_ends(&samples).unwrap_or((quickest_ns, 0.0)),
    };
    Some(Direction {
        fixed_ns: intercept.clamp(quickest_ns * 0.02, quickest_ns),
        single_bytes_per_s: if slope > 0.0 { 1e9 / slope } else { most_bytes_per_s * 4.0 },
        most_bytes_per_s,
        most_requests_per_s,
        most_bytes_per_s_of_host: largest(|p| p.bytes_per_s / f64::from(p.hosts)),
        most_requests_per_s_of_host: largest(|p| p.requests_per_s() / f64::from(p.hosts)),
    })
}

/// Returns the intercept and slope of the line through the smallest and the largest request. This
/// line is used if there are too few request sizes for a least-squares fit. None if all requests
/// have the same size.
fn through_ends(samples: &[lsq::Point]) -> Option<(f64, f64)> {
    let first = samples.iter().min_by(|a, b| a.x.total_cmp(&b.x))?;
    let last = samples.iter().max_by(|a, b| a.x.total_cmp(&b.x))?;
    let slope = (last.x > first.x).then(|| (last.y - first.y) / (last.x - first.x))?;
    Some((first.y - slope * first.x, slope))
}

/// Values estimated from the trials that slow down. The first value of each pair is for all trials,
/// the second for write trials only.
struct Slowdown {
    any: bool,
    late_bytes_per_s: [f64; 2],
    credit_bytes: [f64; 2],
}

/// Returns the most common rate. It is the rate for which the number of other rates within 3% is
/// largest. Trials that reach the same limit end at the same rate.
fn mode(rates: &[f64]) -> Option<f64> {
    let near = |rate: f64| rates.iter().filter(|other| (*other / rate - 1.0).abs() < 0.03).count();
    rates.iter().copied().max_by_key(|rate| near(*rate))
}

/// Estimates the sustained rates and the burst credit from the first fitted trial that slows down
/// and all fitted trials after it. These later trials start without credit, so their rate is the
/// sustained rate even if it is constant.
fn slowdown(history: &History) -> Slowdown {
    let (mut all, mut writes) = (Vec::new(), Vec::new());
    let mut any = false;
    for trial in history.fitted() {
        let late = trial.summary.late_bytes_per_s.unwrap_or(trial.summary.bytes_per_s);
        any |= late < 0.8 * trial.summary.bytes_per_s;
        if any {
            all.push(late);
            if history.points[trial.point].reads() == Some(false) {
                writes.push(late);
            }
        }
    }
    let sustained = |rates: &[f64]| mode(rates).unwrap_or(f64::MAX);
    let rates = [sustained(&all), sustained(&writes)];
    let moved: f64 = history.fitted().map(|trial| trial.bytes).sum();
    let credit = |rate: f64, writes: bool| {
        if rate < f64::MAX {
            history.credit_bytes(rate, |point| !writes || point.reads() != Some(true))
        } else {
            moved / if writes { 40.0 } else { 4.0 }
        }
    };
    Slowdown {
        any,
        late_bytes_per_s: rates,
        credit_bytes: [credit(rates[0], false), credit(rates[1], true)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::tests::{example, with_other_held_out_points};

    #[test]
    fn held_out_points_do_not_change_the_estimates() {
        let mut history = example();
        for trial in &mut history.trials {
            trial.summary.late_bytes_per_s = Some(trial.summary.bytes_per_s.min(10e6));
        }
        for source in [Source::Mean, Source::Fresh] {
            let guesses = InitialGuess::of(&history, source);
            assert!(guesses.is_stateful && guesses.credit_bytes[0] > 0.0, "{guesses:?}");
            assert_eq!(guesses, InitialGuess::of(&with_other_held_out_points(&history), source));
        }
    }
}
