//! What the measured points say at a glance, from simple to composed: the line f + s S of single
//! requests, the best rates, what falls off within a trial. The search starts there.

use analysis::lsq;

use crate::history::{History, Observed};

/// First guesses of one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Direction {
    /// Fixed time of a single request (ns).
    pub fixed_ns: f64,
    /// Rate at which its bytes follow (bytes per second).
    pub single_bytes_per_s: f64,
    /// Best rate of all points.
    pub most_bytes_per_s: f64,
    /// Best request rate of all points.
    pub most_requests_per_s: f64,
}

/// First guesses.
#[derive(Clone, Debug, PartialEq)]
pub struct Ladder {
    /// Reads.
    pub read: Option<Direction>,
    /// Writes.
    pub write: Option<Direction>,
    /// The fastest tenth of single reads (ns): what a hit may take.
    pub quick_read_ns: f64,
    /// The usual rate of the last quarter of trials that fall off, and of those that only write.
    pub late_bytes_per_s: [f64; 2],
    /// Bytes that were saved up, all and written only, if these are the rates that last.
    pub saved_bytes: [f64; 2],
    /// Sizes of the regions worked on (bytes).
    pub regions: Vec<f64>,
    /// Whether anything speaks of a memory: rates that fall, trials that differ, hits.
    pub remembers: bool,
}

/// Which time of a single request is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// Its mean.
    Mean,
    /// Its median in the quickest trial, and the best trials: what it takes before credit is spent
    /// and when no cache helps.
    Fresh,
}

impl Ladder {
    /// Reads the guesses off the points that are not held out.
    pub fn of(history: &History, take: Take) -> Ladder {
        let points: Vec<&Observed> = history.points.iter().filter(|p| !p.held_out).collect();
        let [read, write] = [true, false].map(|reads| direction(&points, reads, take));
        // A run of mixes alone tells the directions not apart.
        let both = direction_of(&points, take);
        let neither = read.is_none() && write.is_none();
        let (read, write) = if neither { (both, both) } else { (read, write) };
        let single = || points.iter().filter(|p| p.reads() == Some(true) && p.outstanding() <= 2);
        let quick_read_ns =
            single().map(|p| p.latency_ns[0]).filter(|ns| *ns > 0.0).fold(f64::MAX, f64::min);
        let hits = single().any(|p| p.latency_ns[2] > 2.0 * p.latency_ns[0]);
        let differ = points.iter().any(|p| p.spread > 0.15);
        let mut regions: Vec<f64> = points.iter().map(|p| p.key.size_bytes() as f64).collect();
        regions.sort_by(f64::total_cmp);
        regions.dedup();
        let falls = falls(history);
        Ladder {
            read,
            write,
            quick_read_ns: if quick_read_ns < f64::MAX { quick_read_ns } else { 1000.0 },
            late_bytes_per_s: falls.late_bytes_per_s,
            saved_bytes: falls.saved_bytes,
            remembers: hits || differ || falls.any,
            regions,
        }
    }

    /// The directions that were measured, with the key's ending of each.
    pub fn directions(&self) -> Vec<(&'static str, Direction)> {
        let read = self.read.map(|direction| ("read", direction));
        let write = self.write.map(|direction| ("write", direction));
        read.into_iter().chain(write).collect()
    }
}

fn direction(points: &[&Observed], reads: bool, take: Take) -> Option<Direction> {
    let mine: Vec<&Observed> =
        points.iter().filter(|p| p.reads() == Some(reads)).copied().collect();
    direction_of(&mine, take)
}

fn direction_of(points: &[&Observed], take: Take) -> Option<Direction> {
    let least = points.iter().map(|p| p.outstanding()).min()?;
    let time_ns = |p: &Observed| match take {
        Take::Mean => 1e9 * f64::from(p.outstanding()) / p.requests_per_s(),
        Take::Fresh => p.fresh_latency_ns,
    };
    let single: Vec<&&Observed> = points.iter().filter(|p| p.outstanding() == least).collect();
    let samples: Vec<lsq::Point> = single
        .iter()
        .map(|p| (p.key.request_bytes() as f64, time_ns(p)))
        .filter(|(_, ns)| ns.is_finite() && *ns > 0.0)
        .map(|(bytes, ns)| lsq::Point::with_relative_error(bytes, ns, 0.02))
        .collect();
    let quickest_ns = single.iter().map(|p| time_ns(p)).fold(f64::MAX, f64::min);
    let largest = |of: fn(&Observed) -> f64| points.iter().map(|p| of(p)).fold(0.0, f64::max);
    let (most_bytes_per_s, most_requests_per_s) = match take {
        Take::Mean => (largest(|p| p.bytes_per_s), largest(Observed::requests_per_s)),
        Take::Fresh => (
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
    })
}

/// The line through the smallest and the largest request, where there are too few for a fit.
fn through_ends(samples: &[lsq::Point]) -> Option<(f64, f64)> {
    let first = samples.iter().min_by(|a, b| a.x.total_cmp(&b.x))?;
    let last = samples.iter().max_by(|a, b| a.x.total_cmp(&b.x))?;
    let slope = (last.x > first.x).then(|| (last.y - first.y) / (last.x - first.x))?;
    Some((first.y - slope * first.x, slope))
}

struct Falls {
    any: bool,
    late_bytes_per_s: [f64; 2],
    saved_bytes: [f64; 2],
}

/// The value that most others are near: a limit is reached again and again.
fn commonest(rates: &[f64]) -> Option<f64> {
    let near = |rate: f64| rates.iter().filter(|other| (*other / rate - 1.0).abs() < 0.03).count();
    rates.iter().copied().max_by_key(|rate| near(*rate))
}

/// Looks for fitted trials whose rate falls; one that begins where another fell has its end too.
fn falls(history: &History) -> Falls {
    let (mut all, mut writes) = (Vec::new(), Vec::new());
    let mut any = false;
    for trial in history.fitted() {
        let late = trial.seen.late_bytes_per_s.unwrap_or(trial.seen.bytes_per_s);
        any |= late < 0.8 * trial.seen.bytes_per_s;
        if any {
            all.push(late);
            if history.points[trial.point].reads() == Some(false) {
                writes.push(late);
            }
        }
    }
    let lasting = |rates: &[f64]| commonest(rates).unwrap_or(f64::MAX);
    let rates = [lasting(&all), lasting(&writes)];
    let moved: f64 = history.fitted().map(|trial| trial.bytes).sum();
    let saved = |rate: f64, writes: bool| match rate < f64::MAX {
        true => history.beyond_bytes(rate, |point| !writes || point.reads() != Some(true)),
        false => moved / if writes { 40.0 } else { 4.0 },
    };
    Falls {
        any,
        late_bytes_per_s: rates,
        saved_bytes: [saved(rates[0], false), saved(rates[1], true)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::tests::{held_out_otherwise, measured};

    #[test]
    fn what_is_held_out_is_no_part_of_the_guesses() {
        let mut history = measured();
        for trial in &mut history.trials {
            trial.seen.late_bytes_per_s = Some(trial.seen.bytes_per_s.min(10e6));
        }
        for take in [Take::Mean, Take::Fresh] {
            let guesses = Ladder::of(&history, take);
            assert!(guesses.remembers && guesses.saved_bytes[0] > 0.0, "{guesses:?}");
            assert_eq!(guesses, Ladder::of(&held_out_otherwise(&history), take));
        }
    }
}
