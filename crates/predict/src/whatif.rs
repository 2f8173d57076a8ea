//! Predicts how a change of the system or the load affects the performance.
//!
//! The answer contains simulated results and closed-form bounds before and after the change, the
//! sensitivity of the throughput to each parameter, and an estimate of the error.

use analysis::units;
use std::sync::atomic::{AtomicUsize, Ordering};

use ioengine::{Caching, EngineKind};
use lab::failure::{Failure, Outcome};
use lab::resource_usage::{BindingDocument, HeldDocument};
use lab::simulated::{self, BoundDocument, Simulated, on_all_cores};
use schemars::JsonSchema;
use serde::Serialize;
use simulator::{Description, SimWorld, System};
use workload::{Pattern, Workload, plan};

use crate::trust::{TrustDocument, trust};

/// Fraction by which each parameter is increased and decreased to measure its sensitivity.
const STEP: f64 = 0.05;
/// The throughput is assumed to jump near the current value of a parameter if the slopes below and
/// above the current value differ by more than this limit and do not have opposite signs.
const STEP_DIFFERENCE: f64 = 0.3;
/// A parameter counts as important if its absolute sensitivity is above this.
const MIN_SENSITIVITY: f64 = 0.1;
/// Size of the requests that KAPS counts (bytes). KAPS are random 8 KiB accesses per second.
const ACCESS_BYTES: u32 = 8192;
/// Maximum number of requests of a trace for which sensitivities are computed. Longer traces take
/// too long.
const MOVED_REQUESTS_MAX: u64 = 100_000;

/// Results of simulating the load on the system, either before or after the change.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SideDocument {
    /// Description of the load.
    pub workload: String,
    /// Simulated throughput (bytes per second).
    pub bytes_per_s: f64,
    /// Simulated request rate (requests per second).
    pub requests_per_s: f64,
    /// Simulated median latency (ns).
    pub latency_p50_ns: u64,
    /// Simulated 99th percentile of the latency (ns).
    pub latency_p99_ns: u64,
    /// Simulated CPU time of the process per request (ns).
    pub cpu_ns_per_request: f64,
    /// Name of the resource that limits the throughput, or "latency" if no resource does. In that
    /// case, more outstanding requests may help.
    pub bottleneck: String,
    /// Utilisation of the limiting resource, or of the busiest resource if no resource limits the
    /// throughput (0 to 1).
    pub utilisation: f64,
    /// A resource that is busier than the limiting resource, but mostly waits for that resource.
    /// Null if there is no such resource.
    pub held: Option<HeldDocument>,
    /// The tightest closed-form bound on the throughput. Null if no bound applies, for example to
    /// mixed reads and writes, or to a load that accesses the same bytes more than once.
    pub bound: Option<BoundDocument>,
    /// Price per performance. Null if no price was specified.
    pub price: Option<PriceDocument>,
    /// Estimated error of the throughput, from the calibration points. Null if the system was not
    /// calibrated.
    pub trust: Option<TrustDocument>,
}

/// Price per performance of a load on a system.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PriceDocument {
    /// The price from `--price` or `--price-to`.
    pub price: f64,
    /// Price per MB/s of throughput (10^6 bytes per second).
    pub per_mb_per_s: f64,
    /// Price per random 8 KiB read per second (KAPS), at the queue depth of this load.
    pub per_kaps: f64,
}

/// Sensitivity of the throughput to a parameter.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SensitivityDocument {
    /// Path of the parameter in the system file.
    pub key: String,
    /// The derivative d ln(throughput) / d ln(parameter). 1 means that the throughput is
    /// proportional to the parameter, -1 that it is inversely proportional, and 0 that the
    /// parameter has no effect.
    pub sensitivity: f64,
    /// Source of the parameter's value, as the system file states it.
    pub source: String,
    /// Whether the parameter is important (absolute sensitivity above 0.1), but its value is only
    /// assumed or was not identified by the calibration.
    pub doubtful: bool,
}

/// A change to evaluate: the system and the load, before and after the change.
#[derive(Clone, Debug)]
pub struct Question {
    /// The system before the change.
    pub before: Description,
    /// The system after the change.
    pub after: Description,
    /// The load before the change.
    pub load: Workload,
    /// The load after the change.
    pub load_after: Workload,
    /// The prices before and after the change. None if no price was specified.
    pub prices: [Option<f64>; 2],
    /// Whether the settings differ from the calibrated system (see [`is_changed_by`]), before and
    /// after the change.
    pub are_changed: [bool; 2],
}

/// Returns true if settings such as `disks=4` make the system differ from the calibrated system. If
/// the calibration used several hosts, `hosts` and `disks` may be changed, because each host has a
/// separate link and file.
pub fn is_changed_by(system: &Description, settings: &[String]) -> bool {
    let is_shared = system.calibration().iter().any(|point| point.hosts > 1);
    let names = settings.iter().flat_map(|setting| setting.split(','));
    let mut names = names.filter_map(|setting| setting.split('=').next());
    names.any(|name| !is_shared || !["hosts", "disks"].contains(&name.trim()))
}

/// The predicted effect of a change.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Results before the change.
    pub before: SideDocument,
    /// Results after the change.
    pub after: SideDocument,
    /// Sensitivities before the change, the strongest first.
    pub sensitivities: Vec<SensitivityDocument>,
    /// Sensitivities after the change, the strongest first.
    pub sensitivities_after: Vec<SensitivityDocument>,
    /// Whether sensitivities were computed (see [`has_sensitivities`]).
    pub has_sensitivities: bool,
}

impl Answer {
    /// Returns the parameters that are doubtful before or after the change, without duplicates.
    pub fn doubts(&self) -> Vec<&SensitivityDocument> {
        let mut doubts: Vec<&SensitivityDocument> = Vec::new();
        for found in self.sensitivities.iter().chain(&self.sensitivities_after) {
            if found.doubtful && doubts.iter().all(|known| known.key != found.key) {
                doubts.push(found);
            }
        }
        doubts
    }
}

/// Checks that the change can be simulated, without simulating it.
///
/// # Errors
/// If a system is invalid, or a load does not fit its system.
pub fn check(question: &Question) -> Outcome<()> {
    for side in sides(question) {
        let system = side.description.system()?;
        check_load(&system, side.load, simulated::caching_of(&system))?;
        if side.price.is_some() {
            check_load(&system, &kaps_load(side.load), Caching::Direct)?;
        }
    }
    Ok(())
}

fn check_load(system: &System, load: &Workload, caching: Caching) -> Outcome<()> {
    let load = Workload { engine_kind: EngineKind::IoUring, ..load.clone() };
    plan::resolve(&load, &SimWorld::new(system, load.seed).files(caching)[0])?;
    Ok(())
}

/// Predicts the effect of a change. `tell` is called with the completed share of the work (0 to 1).
///
/// # Errors
/// If a system is invalid, or a load does not fit its system.
pub fn answer(question: &Question, tell: &(dyn Fn(f64) + Sync)) -> Outcome<Answer> {
    let [load, load_after] =
        on_all_cores(&sides(question), |side| timed_load(side.description, side.load))
            .try_into()
            .map_err(|_| Failure::interrupted())?;
    let question = Question { load: load?, load_after: load_after?, ..question.clone() };
    let sides = sides(&question);
    let moved_sides = if has_sensitivities(&question.load) { &sides[..] } else { &[] };
    let moves = moved_sides.iter().zip(0_usize..).flat_map(|(side, number)| {
        side.description.keys().into_iter().map(move |key| (number, key))
    });
    let moves: Vec<(usize, String)> = moves.collect();
    let (done, all) = (AtomicUsize::new(0), moves.len() + sides.len());
    let count = || {
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        tell(done as f64 / all as f64);
    };
    let results = on_all_cores(&sides, |side| {
        let result = simulate_side(side);
        count();
        result
    });
    let mut results = results.into_iter();
    let mut next = || results.next().unwrap_or_else(|| Err(Failure::interrupted()));
    let (before, after) = (next()?, next()?);
    let moved = on_all_cores(&moves, |(number, key)| {
        let Side { description, load, .. } = sides[*number];
        let bytes_per_s = [before.bytes_per_s, after.bytes_per_s][*number];
        let found = sensitivity(description, load, key, bytes_per_s);
        count();
        Some((*number, found?))
    });
    let moved: Vec<(usize, SensitivityDocument)> = moved.into_iter().flatten().collect();
    let of = |side: usize| strongest(moved.iter().filter(|(n, _)| *n == side).map(|(_, s)| s));
    Ok(Answer {
        before,
        after,
        sensitivities: of(0),
        sensitivities_after: of(1),
        has_sensitivities: has_sensitivities(&question.load),
    })
}

/// Returns true if sensitivities are computed. They are not computed for long traces, because the
/// whole trace is simulated for each changed value.
pub fn has_sensitivities(load: &Workload) -> bool {
    load.replay.as_ref().is_none_or(|replay| replay.description.requests <= MOVED_REQUESTS_MAX)
}

/// The load and the system on one side of a comparison: before or after the change.
struct Side<'a> {
    description: &'a Description,
    load: &'a Workload,
    price: Option<f64>,
    is_changed: bool,
}

fn sides(question: &Question) -> [Side<'_>; 2] {
    let [price, price_after] = question.prices;
    let [is_changed, is_changed_after] = question.are_changed;
    [
        Side { description: &question.before, load: &question.load, price, is_changed },
        Side {
            description: &question.after,
            load: &question.load_after,
            price: price_after,
            is_changed: is_changed_after,
        },
    ]
}

/// Returns the number of files of a system. Each file receives the whole load, not a share of it.
pub fn files(system: &System) -> u64 {
    SimWorld::new(system, 0).files(simulated::caching_of(system)).len() as u64
}

/// Replaces the byte limit of a load by a time limit if the system has several files. With a byte
/// limit, fast files would finish early, and the average rate would be too low. The time limit is
/// the time that the slowest file needs for its bytes. Loads with a flush at the end are not
/// changed, because the flush continues after the time limit.
fn timed_load(description: &Description, load: &Workload) -> Outcome<Workload> {
    let system = description.system()?;
    let (flushed, caching) = with_flush(&system, load);
    if files(&system) < 2 || flushed.flush_at_end {
        return Ok(load.clone());
    }
    let sample = simulated::simulate(&system, &flushed, caching)?.sample;
    let limit_ns = Some(sample.end_ns.saturating_sub(sample.start_ns));
    Ok(Workload { limit_bytes: None, limit_ns, ..load.clone() })
}

/// Returns the load and the caching mode of the system. A flush is added at the end of buffered
/// writes, as in `halfpower run`.
fn with_flush(system: &System, load: &Workload) -> (Workload, Caching) {
    let caching = simulated::caching_of(system);
    // A replayed trace already contains the flushes of the traced program.
    let flush_at_end = !caching.is_direct() && load.writes() && load.replay.is_none();
    (Workload { flush_at_end, ..load.clone() }, caching)
}

fn simulate_side(side: &Side<'_>) -> Outcome<SideDocument> {
    let system = side.description.system()?;
    let (load, caching) = with_flush(&system, side.load);
    let load = &load;
    let simulated = simulated::simulate(&system, load, caching)?;
    let bytes = simulated.sample.bytes();
    let bounds = simulated::bounds_of(&system, load, caching, bytes);
    simulated::check_bounds(&system, &bounds, simulated.bytes_per_s())?;
    let bound = bounds.first().map(BoundDocument::from);
    let binding = BindingDocument::from(simulated.account.binding());
    let latency = simulated.sample.latency();
    let quantile = |q| latency.quantile(q).unwrap_or(0);
    let price =
        side.price.map(|price| price_document(price, &system, load, &simulated)).transpose()?;
    let bytes_per_s = simulated.bytes_per_s();
    Ok(SideDocument {
        trust: trust(
            &side.description.calibration(),
            load,
            system.setup.hosts,
            bytes_per_s,
            side.is_changed,
        ),
        workload: describe(load),
        bytes_per_s,
        requests_per_s: simulated.requests_per_s(),
        latency_p50_ns: quantile(0.5),
        latency_p99_ns: quantile(0.99),
        cpu_ns_per_request: simulated.cpu_lower_ns(),
        bottleneck: binding.resource,
        utilisation: binding.utilisation,
        held: binding.held,
        bound,
        price,
    })
}

/// Describes a load briefly: access pattern, request size, depth and threads.
pub fn describe(load: &Workload) -> String {
    if let Some(replay) = &load.replay {
        let what = &replay.description;
        let changes = if what.changes.is_empty() { "as recorded" } else { &what.changes };
        return changes.to_owned();
    }
    let size = units::size(u64::from(load.request_bytes));
    let threads = match load.threads {
        1 => String::new(),
        threads => format!(" x {threads} threads"),
    };
    format!("{} {size}, depth {}{threads}", load.rw(), load.depth)
}

fn price_document(
    price: f64,
    system: &System,
    load: &Workload,
    simulated: &Simulated,
) -> Outcome<PriceDocument> {
    let kaps = simulated::simulate(system, &kaps_load(load), Caching::Direct)?.requests_per_s();
    Ok(PriceDocument {
        price,
        per_mb_per_s: price / (simulated.bytes_per_s() / 1e6),
        per_kaps: price / kaps,
    })
}

/// Returns a load that measures KAPS: random 8 KiB reads at the queue depth of the given load.
fn kaps_load(load: &Workload) -> Workload {
    let requests = load.limit_bytes.map(|bytes| bytes / u64::from(load.request_bytes));
    Workload {
        pattern: Pattern::Random,
        read_percent: 100,
        request_bytes: ACCESS_BYTES,
        region_bytes: load.region_bytes / u64::from(ACCESS_BYTES) * u64::from(ACCESS_BYTES),
        limit_bytes: requests.map(|requests| requests * u64::from(ACCESS_BYTES)),
        flush_at_end: false,
        ..load.clone()
    }
}

/// Computes the sensitivity of the throughput to a parameter. Returns `None` if the parameter
/// cannot be changed.
fn sensitivity(
    description: &Description,
    load: &Workload,
    key: &str,
    bytes_per_s: f64,
) -> Option<SensitivityDocument> {
    let [weaker, stronger] = slopes(description, load, key, bytes_per_s)?;
    let is_step = (stronger - weaker).abs() > STEP_DIFFERENCE && stronger * weaker >= 0.0;
    // If the throughput jumps on one side of the current value, only the other side is used.
    let sensitivity = if is_step { weaker } else { (weaker + stronger) / 2.0 };
    let source = description.source_of(key).unwrap_or_default();
    let is_unknown = source.starts_with("assumed") || source.contains("unidentified");
    let doubtful = sensitivity.abs() > MIN_SENSITIVITY && is_unknown;
    Some(SensitivityDocument { key: key.to_owned(), sensitivity, source, doubtful })
}

/// Sorts parameters by absolute sensitivity, the strongest first, and drops those without effect.
fn strongest<'a>(all: impl Iterator<Item = &'a SensitivityDocument>) -> Vec<SensitivityDocument> {
    let mut all: Vec<_> = all.filter(|s| s.sensitivity.abs() > 1e-4).cloned().collect();
    all.sort_by(|a, b| b.sensitivity.abs().total_cmp(&a.sensitivity.abs()));
    all
}

/// Returns the slopes d ln(throughput) / d ln(parameter) for a decrease and an increase of the
/// parameter by 5%. The slope with the smaller absolute value is first. A parameter that is a count
/// changes by at least 1.
///
/// The slopes differ if the throughput jumps, for example at the request size above which requests
/// are split.
fn slopes(
    description: &Description,
    load: &Workload,
    key: &str,
    bytes_per_s: f64,
) -> Option<[f64; 2]> {
    let (value, unit) = description.value_of(key)?;
    let count_units =
        ["units", "CPUs", "heads", "requests", "hosts", "disks", "buses", "cylinders"];
    let step =
        if count_units.contains(&unit.as_str()) { (value * STEP).max(1.0) } else { value * STEP };
    let slope = |moved_to: f64| {
        let mut moved = description.clone();
        moved.put(key, moved_to, "moved").ok()?;
        let system = moved.system().ok()?;
        let (load, caching) = with_flush(&system, load);
        let rate = simulated::simulate(&system, &load, caching).ok()?.bytes_per_s();
        Some((rate / bytes_per_s).ln() / (moved_to / value).ln()).filter(|slope| slope.is_finite())
    };
    let less = Some(value - step).filter(|value| *value > 0.0).and_then(slope);
    let more = slope(value + step);
    let (less, more) = (less.or(more)?, more.or(less)?);
    Some(if less.abs() < more.abs() { [less, more] } else { [more, less] })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(request_bytes: u32) -> Workload {
        Workload {
            request_bytes,
            region_bytes: 20 << 20,
            limit_bytes: Some(4 << 20),
            limit_ns: Some(20_000_000_000),
            ..Workload::default()
        }
    }

    fn predict(change: &[(&str, &str)]) -> Answer {
        let before = Description::named("nt4-ultrawide").unwrap();
        let mut after = before.clone();
        change.iter().for_each(|(key, value)| after.set(key, value).unwrap());
        let prices = [Some(1000.0), Some(2000.0)];
        let (load, load_after) = (load(65536), load(65536));
        answer(
            &Question { before, after, load, load_after, prices, are_changed: [false; 2] },
            &|_| {},
        )
        .unwrap()
    }

    fn predict_for(
        name: &str,
        given: &[(&str, &str)],
        load: &Workload,
        set: (&str, &str),
    ) -> Answer {
        let mut before = Description::named(name).unwrap();
        given.iter().for_each(|(key, value)| before.set(key, value).unwrap());
        let mut after = before.clone();
        after.set(set.0, set.1).unwrap();
        let load = Workload {
            region_bytes: load.region_bytes.min(4 << 30),
            limit_bytes: Some(5000 * u64::from(load.request_bytes)),
            limit_ns: Some(20_000_000_000),
            ..load.clone()
        };
        let load_after = load.clone();
        answer(
            &Question {
                before,
                after,
                load,
                load_after,
                prices: [None; 2],
                are_changed: [false; 2],
            },
            &|_| {},
        )
        .unwrap()
    }

    fn random_writes(request_bytes: u32) -> Workload {
        let region_bytes = 20 << 20;
        let pattern = Pattern::Random;
        Workload { pattern, read_percent: 0, request_bytes, region_bytes, ..Workload::default() }
    }

    #[test]
    fn buffered_writes_include_the_flush() {
        let buffered = [("caching", "buffered")];
        // The region is large. In a small region, the writes would be sorted by offset and would
        // fit into the cache of the drive.
        let load = Workload { region_bytes: 4 << 30, ..random_writes(4096) };
        let answer = predict_for("sata-hdd-7200", &buffered, &load, ("caching", "direct"));
        let mb_per_s = answer.before.bytes_per_s / 1e6;
        assert!((0.3..10.0).contains(&mb_per_s), "{mb_per_s}");
        let mut strongest = answer.sensitivities.iter().take(2);
        let is_drive = strongest.any(|parameter| parameter.key.starts_with("drive."));
        assert!(is_drive, "{:?}", answer.sensitivities);
    }

    #[test]
    fn parameters_that_matter_only_after_the_change_are_doubted_too() {
        let answer = predict_for("nt4-fastwide", &[], &random_writes(8192), ("write_cache", "on"));
        let doubted = |all: &[SensitivityDocument]| all.iter().filter(|s| s.doubtful).count();
        assert!(doubted(&answer.sensitivities) == 0, "{:?}", answer.sensitivities);
        let after = doubted(&answer.sensitivities_after);
        assert!(after > 0 && answer.doubts().len() == after, "{:?}", answer.sensitivities_after);
    }

    #[test]
    fn a_bound_that_does_not_hold_is_left_out() {
        let load = Workload { request_bytes: 65536, region_bytes: 1 << 20, ..Workload::default() };
        let buffered = [("caching", "buffered")];
        let answer = predict_for("nt4-ultrawide", &buffered, &load, ("caching", "direct"));
        assert!(answer.before.bytes_per_s > 20e6, "{:?}", answer.before);
        assert!(answer.before.bound.is_none() && answer.after.bound.is_none(), "{answer:?}");
    }

    #[test]
    fn a_change_that_cannot_be_simulated_is_refused() {
        let before = Description::named("nt4-ultrawide").unwrap();
        let (load, prices) = (load(4096), [Some(1.0); 2]);
        let question = |load_after| Question {
            are_changed: [false; 2],
            before: before.clone(),
            after: before.clone(),
            load: load.clone(),
            load_after,
            prices,
        };
        assert!(check(&question(load.clone())).is_ok());
        let small = Workload { region_bytes: 4096, ..load.clone() };
        assert!(check(&question(small)).is_err(), "no request of 8 KiB fits into the region");
    }

    #[test]
    fn a_step_to_one_side_is_no_slope() {
        // 64 KiB is the largest request size that is not split. With a slightly lower limit, every
        // request is split.
        let stripe = [("disks", "4"), ("volume", "stripe")];
        let answer = predict(&stripe);
        let of = |key: &str| answer.sensitivities_after.iter().find(|s| s.key == key);
        assert!(of("host.max_transfer").is_none_or(|s| s.sensitivity.abs() < 0.3), "{answer:?}");
        assert!(of("bus.read").is_some_and(|s| s.sensitivity > 0.5), "{answer:?}");
    }

    #[test]
    fn half_the_rotation_rate_gives_half_the_throughput_at_a_higher_price_per_rate() {
        let answer = predict(&[("drive.rotation", "3600")]);
        let ratio = answer.after.bytes_per_s / answer.before.bytes_per_s;
        assert!((0.4..0.6).contains(&ratio), "{ratio}");
        let per = |side: &SideDocument| side.price.as_ref().unwrap().per_mb_per_s;
        assert!(per(&answer.after) > 3.0 * per(&answer.before));
        // The drive costs 1000 and serves about 100 random 8 KiB reads per second.
        let per_kaps = answer.before.price.as_ref().unwrap().per_kaps;
        assert!((5.0..20.0).contains(&per_kaps), "{per_kaps}");
        for side in [&answer.before, &answer.after] {
            assert!(side.bytes_per_s <= side.bound.as_ref().unwrap().bytes_per_s * 1.0001);
        }
    }

    #[test]
    fn sequential_reads_depend_on_the_rotation_and_hardly_on_the_bus() {
        let answer = predict(&[]);
        let of = |key: &str| {
            let found = answer.sensitivities.iter().find(|s| s.key == key);
            found.map_or(0.0, |s| s.sensitivity)
        };
        assert!(of("drive.rotation") > 0.7, "{:?}", answer.sensitivities);
        assert!(of("bus.read").abs() < 0.3, "{:?}", answer.sensitivities);
        assert!(answer.sensitivities[0].key == "drive.rotation");
    }
}
