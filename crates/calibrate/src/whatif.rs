//! What a change would do: a load on a simulated system before and after it, by bounds and by
//! simulation, which parameters matter, and how far to trust the answer.

use std::sync::atomic::{AtomicUsize, Ordering};

use ioengine::{Caching, EngineKind};
use lab::failure::Outcome;
use lab::simulated::{self, BoundDocument, Simulated, on_all_cores};
use schemars::JsonSchema;
use serde::Serialize;
use simulator::{Description, SimWorld, System};
use workload::{Pattern, Workload, plan};

use crate::trust::{TrustDocument, trust};

/// How far each parameter is moved for its sensitivity, to either side.
const STEP: f64 = 0.05;
/// Slopes to either side that differ by more are those of a step.
const STEP_FROM: f64 = 0.3;
/// A parameter whose sensitivity is above this matters for whether to trust the answer.
const MATTERS: f64 = 0.1;
/// The request of a KAPS: thousand accesses of 8 KiB per second.
const ACCESS_BYTES: u32 = 8192;

/// A load on a system.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SideDocument {
    /// The load.
    pub workload: String,
    /// Simulated.
    pub bytes_per_s: f64,
    /// Simulated.
    pub requests_per_s: f64,
    /// Simulated: the median.
    pub latency_p50_ns: u64,
    /// Simulated: 99%.
    pub latency_p99_ns: u64,
    /// Simulated: CPU charged to the program, for each request.
    pub cpu_ns_per_request: f64,
    /// What limits: a resource, or "latency" where none does and more outstanding requests may
    /// help.
    pub bottleneck: String,
    /// How busy it is, or the busiest resource where none limits, 0 to 1.
    pub utilisation: f64,
    /// The tightest closed-form bound; null for loads of two directions and for those that ask for
    /// bytes more than once, for which none holds.
    pub bound: Option<BoundDocument>,
    /// What it costs, where prices are known.
    pub price: Option<PriceDocument>,
    /// How far to trust the throughput, by the points that the system was calibrated with; null
    /// where it was not calibrated.
    pub trust: Option<TrustDocument>,
}

/// What performance costs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PriceDocument {
    /// As given.
    pub price: f64,
    /// For each MB/s (10^6 bytes) of this load.
    pub per_mb_per_s: f64,
    /// For each thousand random accesses of 8 KiB per second at the depth of this load.
    pub per_kaps: f64,
}

/// How the throughput answers to a parameter.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SensitivityDocument {
    /// Its path in the system file.
    pub key: String,
    /// d ln(throughput) / d ln(parameter): 1 is in proportion, -1 in inverse proportion, 0 none.
    pub sensitivity: f64,
    /// Where its value comes from.
    pub source: String,
    /// Whether it matters and is only assumed, or was not identified by a calibration.
    pub doubtful: bool,
}

/// A question: a system and a load, before and after.
#[derive(Clone, Debug)]
pub struct Question {
    /// The system before.
    pub before: Description,
    /// The system after.
    pub after: Description,
    /// The load before.
    pub load: Workload,
    /// The load after.
    pub load_after: Workload,
    /// Prices before and after.
    pub prices: [Option<f64>; 2],
    /// Whether values of the system file were changed, before and after.
    pub are_changed: [bool; 2],
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Before.
    pub before: SideDocument,
    /// After.
    pub after: SideDocument,
    /// Every parameter, by how much it matters before the change ...
    pub sensitivities: Vec<SensitivityDocument>,
    /// ... and after it.
    pub sensitivities_after: Vec<SensitivityDocument>,
}

impl Answer {
    /// What either side of the answer stands on that nobody has measured, each once.
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

/// Refuses a question that could not be answered, without simulating anything.
///
/// # Errors
/// When a system cannot be, or a load does not fit it.
pub fn check(question: &Question) -> Outcome<()> {
    for (description, load, price, _) in sides(question) {
        let system = description.system()?;
        fits(&system, load, simulated::caching_of(&system))?;
        if price.is_some() {
            fits(&system, &accesses(load), Caching::Direct)?;
        }
    }
    Ok(())
}

fn fits(system: &System, load: &Workload, caching: Caching) -> Outcome<()> {
    let load = Workload { engine_kind: EngineKind::IoUring, ..load.clone() };
    plan::resolve(&load, &SimWorld::new(system, load.seed).files(caching)[0])?;
    Ok(())
}

/// Answers a question, telling what share of the work is done.
///
/// # Errors
/// When a system cannot be, or a load does not fit it.
pub fn answer(question: &Question, tell: &(dyn Fn(f64) + Sync)) -> Outcome<Answer> {
    let [load, load_after] = on_all_cores(&sides(question), |side| lasting(side.0, side.1))
        .try_into()
        .map_err(|_| lab::failure::Failure::interrupted())?;
    let question = Question { load: load?, load_after: load_after?, ..question.clone() };
    let sides = sides(&question);
    let moves = sides.iter().zip(0_usize..).flat_map(|((description, ..), number)| {
        description.keys().into_iter().map(move |key| (number, key))
    });
    let moves: Vec<(usize, String)> = moves.collect();
    let (done, all) = (AtomicUsize::new(0), moves.len() + sides.len());
    let count = || {
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        tell(done as f64 / all as f64);
    };
    let found = on_all_cores(&sides, |one| {
        let found = side(one);
        count();
        found
    });
    let mut found = found.into_iter();
    let mut next = || found.next().unwrap_or_else(|| Err(lab::failure::Failure::interrupted()));
    let (before, after) = (next()?, next()?);
    let moved = on_all_cores(&moves, |(number, key)| {
        let (description, load, ..) = sides[*number];
        let found =
            responds(description, load, key, [before.bytes_per_s, after.bytes_per_s][*number]);
        count();
        Some((*number, found?))
    });
    let moved: Vec<(usize, SensitivityDocument)> = moved.into_iter().flatten().collect();
    let of = |side: usize| strongest(moved.iter().filter(|(n, _)| *n == side).map(|(_, s)| s));
    Ok(Answer { before, after, sensitivities: of(0), sensitivities_after: of(1) })
}

type Side<'a> = (&'a Description, &'a Workload, Option<f64>, bool);

fn sides(question: &Question) -> [Side<'_>; 2] {
    let [price, price_after] = question.prices;
    let [changed, changed_after] = question.are_changed;
    [
        (&question.before, &question.load, price, changed),
        (&question.after, &question.load_after, price_after, changed_after),
    ]
}

/// Files that each get all of a load.
pub fn files(system: &System) -> u64 {
    SimWorld::new(system, 0).files(simulated::caching_of(system)).len() as u64
}

/// A load that keeps every file busy to its end: of several that get as many requests each, the
/// slowest decides when all are done, so all go on for as long as it takes. What is flushed at the
/// end goes on for longer than it is asked for, and stays as it is.
fn lasting(description: &Description, load: &Workload) -> Outcome<Workload> {
    let system = description.system()?;
    let (served, caching) = served(&system, load);
    if files(&system) < 2 || served.flush_at_end {
        return Ok(load.clone());
    }
    let sample = simulated::simulate(&system, &served, caching)?.sample;
    let limit_ns = Some(sample.end_ns.saturating_sub(sample.start_ns));
    Ok(Workload { limit_bytes: None, limit_ns, ..load.clone() })
}

/// A load as a system serves it: through its cache or past it, and buffered writes are over when
/// they are flushed, as with `run`.
fn served(system: &System, load: &Workload) -> (Workload, Caching) {
    let caching = simulated::caching_of(system);
    let flush_at_end = !caching.is_direct() && load.writes();
    (Workload { flush_at_end, ..load.clone() }, caching)
}

fn side(&(description, load, price, is_changed): &Side<'_>) -> Outcome<SideDocument> {
    let system = description.system()?;
    let (load, caching) = served(&system, load);
    let load = &load;
    let simulated = simulated::simulate(&system, load, caching)?;
    let moved = simulated.sample.bytes();
    let bounds = simulated::bounds_of(&system, load, caching, moved);
    simulated::check_bounds(&system, &bounds, simulated.bytes_per_s())?;
    let bound = bounds.first().map(BoundDocument::from);
    let binding = simulated.account.binding();
    let latency = simulated.sample.latency();
    let quantile = |q| latency.quantile(q).unwrap_or(0);
    let price = price.map(|price| priced(price, &system, load, &simulated)).transpose()?;
    let bytes_per_s = simulated.bytes_per_s();
    Ok(SideDocument {
        trust: trust(&description.calibration(), load, bytes_per_s, is_changed),
        workload: describe(load),
        bytes_per_s,
        requests_per_s: simulated.requests_per_s(),
        latency_p50_ns: quantile(0.5),
        latency_p99_ns: quantile(0.99),
        cpu_ns_per_request: simulated.cpu_lower_ns(),
        bottleneck: binding.resource,
        utilisation: binding.utilisation,
        bound,
        price,
    })
}

/// A load in a few words.
pub fn describe(load: &Workload) -> String {
    let size = units::size(u64::from(load.request_bytes));
    let threads = match load.threads {
        1 => String::new(),
        threads => format!(" x {threads} threads"),
    };
    format!("{} {size}, depth {}{threads}", load.rw(), load.depth)
}

fn priced(
    price: f64,
    system: &System,
    load: &Workload,
    simulated: &Simulated,
) -> Outcome<PriceDocument> {
    let accesses = accesses(load);
    let kaps = simulated::simulate(system, &accesses, Caching::Direct)?.requests_per_s() / 1e3;
    Ok(PriceDocument {
        price,
        per_mb_per_s: price / (simulated.bytes_per_s() / 1e6),
        per_kaps: price / kaps,
    })
}

/// The accesses of a KAPS at the depth of a load.
fn accesses(load: &Workload) -> Workload {
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

/// How the throughput answers to a parameter; None where it cannot be moved.
fn responds(
    description: &Description,
    load: &Workload,
    key: &str,
    bytes_per_s: f64,
) -> Option<SensitivityDocument> {
    let [weaker, stronger] = slopes(description, load, key, bytes_per_s)?;
    let is_step = (stronger - weaker).abs() > STEP_FROM && stronger * weaker >= 0.0;
    let sensitivity = if is_step { weaker } else { (weaker + stronger) / 2.0 };
    let source = description.source_of(key).unwrap_or_default();
    let unknown = source.starts_with("assumed") || source.contains("unidentified");
    let doubtful = sensitivity.abs() > MATTERS && unknown;
    Some(SensitivityDocument { key: key.to_owned(), sensitivity, source, doubtful })
}

/// The strongest first; those that do nothing are left out.
fn strongest<'a>(all: impl Iterator<Item = &'a SensitivityDocument>) -> Vec<SensitivityDocument> {
    let mut all: Vec<_> = all.filter(|s| s.sensitivity.abs() > 1e-4).cloned().collect();
    all.sort_by(|a, b| b.sensitivity.abs().total_cmp(&a.sensitivity.abs()));
    all
}

/// Slopes of the throughput for 5% less and for 5% more of a parameter, the weaker one first; what
/// counts things moves by one at least.
///
/// They differ at a step, such as a request that is just not cut in two: it answers in one
/// direction only.
fn slopes(
    description: &Description,
    load: &Workload,
    key: &str,
    bytes_per_s: f64,
) -> Option<[f64; 2]> {
    let (value, unit) = description.value_of(key)?;
    let counts = ["units", "CPUs", "heads", "requests", "hosts", "disks", "buses", "cylinders"];
    let step = if counts.contains(&unit.as_str()) { (value * STEP).max(1.0) } else { value * STEP };
    let slope = |moved_to: f64| {
        let mut moved = description.clone();
        moved.put(key, moved_to, "moved").ok()?;
        let system = moved.system().ok()?;
        let (load, caching) = served(&system, load);
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

    fn ask(change: &[(&str, &str)]) -> Answer {
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

    /// A load of 5000 requests within 20 MiB of a system, which then changes.
    fn ask_of(name: &str, given: &[(&str, &str)], load: &Workload, set: (&str, &str)) -> Answer {
        let mut before = Description::named(name).unwrap();
        given.iter().for_each(|(key, value)| before.set(key, value).unwrap());
        let mut after = before.clone();
        after.set(set.0, set.1).unwrap();
        let load = Workload {
            region_bytes: load.region_bytes.min(20 << 20),
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
    fn buffered_writes_are_over_when_they_are_flushed() {
        let buffered = [("caching", "buffered")];
        let answer =
            ask_of("sata-hdd-7200", &buffered, &random_writes(4096), ("caching", "direct"));
        let mb_per_s = answer.before.bytes_per_s / 1e6;
        assert!((0.3..10.0).contains(&mb_per_s), "{mb_per_s}");
        let mut strongest = answer.sensitivities.iter().take(2);
        let is_drive = strongest.any(|parameter| parameter.key.starts_with("drive."));
        assert!(is_drive, "{:?}", answer.sensitivities);
    }

    #[test]
    fn what_matters_only_after_the_change_is_doubted_too() {
        let answer = ask_of("nt4-fastwide", &[], &random_writes(8192), ("write_cache", "on"));
        let doubted = |all: &[SensitivityDocument]| all.iter().filter(|s| s.doubtful).count();
        assert!(doubted(&answer.sensitivities) == 0, "{:?}", answer.sensitivities);
        let after = doubted(&answer.sensitivities_after);
        assert!(after > 0 && answer.doubts().len() == after, "{:?}", answer.sensitivities_after);
    }

    #[test]
    fn a_bound_that_does_not_hold_is_not_told() {
        let load = Workload { request_bytes: 65536, region_bytes: 1 << 20, ..Workload::default() };
        let buffered = [("caching", "buffered")];
        let answer = ask_of("nt4-ultrawide", &buffered, &load, ("caching", "direct"));
        assert!(answer.before.bytes_per_s > 20e6, "{:?}", answer.before);
        assert!(answer.before.bound.is_none() && answer.after.bound.is_none(), "{answer:?}");
    }

    #[test]
    fn a_question_that_cannot_be_answered_is_refused_beforehand() {
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
        assert!(check(&question(small)).is_err(), "no access of 8 KiB fits");
    }

    #[test]
    fn a_step_to_one_side_is_no_slope() {
        // Requests of 64 KiB are the largest that are not cut: a little less cuts each in two.
        let stripe = [("disks", "4"), ("volume", "stripe")];
        let answer = ask(&stripe);
        let of = |key: &str| answer.sensitivities_after.iter().find(|s| s.key == key);
        assert!(of("host.max_transfer").is_none_or(|s| s.sensitivity.abs() < 0.3), "{answer:?}");
        assert!(of("bus.read").is_some_and(|s| s.sensitivity > 0.5), "{answer:?}");
    }

    #[test]
    fn half_the_rotation_is_half_the_rate_of_the_media_and_twice_the_price() {
        let answer = ask(&[("drive.rotation", "3600")]);
        let ratio = answer.after.bytes_per_s / answer.before.bytes_per_s;
        assert!((0.4..0.6).contains(&ratio), "{ratio}");
        let per = |side: &SideDocument| side.price.as_ref().unwrap().per_mb_per_s;
        assert!(per(&answer.after) > 3.0 * per(&answer.before));
        for side in [&answer.before, &answer.after] {
            assert!(side.bytes_per_s <= side.bound.as_ref().unwrap().bytes_per_s * 1.0001);
        }
    }

    #[test]
    fn sequential_reads_answer_to_the_rotation_in_proportion_and_to_the_bus_hardly() {
        let answer = ask(&[]);
        let of = |key: &str| {
            let found = answer.sensitivities.iter().find(|s| s.key == key);
            found.map_or(0.0, |s| s.sensitivity)
        };
        assert!(of("drive.rotation") > 0.7, "{:?}", answer.sensitivities);
        assert!(of("bus.read").abs() < 0.3, "{:?}", answer.sensitivities);
        assert!(answer.sensitivities[0].key == "drive.rotation");
    }
}
