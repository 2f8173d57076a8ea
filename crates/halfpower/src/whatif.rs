//! What a change would do: a load on a simulated system before and after it, by bounds and by
//! simulation, which parameters matter, and how far to trust the answer.

use ioengine::Caching;
use schemars::JsonSchema;
use serde::Serialize;
use simulator::bounds;
use simulator::{Description, System};
use workload::{Pattern, Workload};

use crate::failure::Outcome;
use crate::simulated::{self, BoundDocument, Simulated, on_all_cores};

/// How far each parameter is moved for its sensitivity, to either side.
const STEP: f64 = 0.05;
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
    /// The tightest closed-form bound; it holds for loads of one
    /// direction, and is null for mixes.
    pub bound: Option<BoundDocument>,
    /// What it costs, where prices are known.
    pub price: Option<PriceDocument>,
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
    /// d ln(throughput) / d ln(parameter) before the change: 1 is in proportion, -1 in inverse
    /// proportion, 0 none.
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
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Before.
    pub before: SideDocument,
    /// After.
    pub after: SideDocument,
    /// Every parameter, by how much it matters.
    pub sensitivities: Vec<SensitivityDocument>,
}

impl Answer {
    /// What the answer stands on that nobody has measured.
    pub fn doubts(&self) -> Vec<&SensitivityDocument> {
        self.sensitivities.iter().filter(|sensitivity| sensitivity.doubtful).collect()
    }
}

/// Answers a question.
///
/// # Errors
/// When a system cannot be, or a load does not fit it.
pub fn answer(question: &Question) -> Outcome<Answer> {
    let [price, price_after] = question.prices;
    let sides = [
        (&question.before, &question.load, price),
        (&question.after, &question.load_after, price_after),
    ];
    let found = on_all_cores(&sides, |(description, load, price)| side(description, load, *price));
    let mut found = found.into_iter();
    let mut next = || found.next().unwrap_or_else(|| Err(crate::failure::Failure::interrupted()));
    let (before, after) = (next()?, next()?);
    Ok(Answer { before, after, sensitivities: sensitivities(&question.before, &question.load) })
}

fn side(description: &Description, load: &Workload, price: Option<f64>) -> Outcome<SideDocument> {
    let system = description.system()?;
    let caching = simulated::caching_of(&system);
    let simulated = simulated::simulate(&system, load, caching)?;
    let moved = simulated.sample.bytes();
    let bounds = simulated::bounds_of(&system, load, caching, moved);
    simulated::check_bounds(&system, &bounds, simulated.bytes_per_s())?;
    let shape = simulated::shape_of(&system, load, caching, moved);
    let bound = shape.and_then(|shape| bounds::of(&system, &shape).into_iter().next());
    let bound = bound.as_ref().map(BoundDocument::from);
    let binding = simulated.account.binding();
    let latency = simulated.sample.latency();
    let quantile = |q| latency.quantile(q).unwrap_or(0);
    let price = price.map(|price| priced(price, &system, load, &simulated)).transpose()?;
    Ok(SideDocument {
        workload: describe(load),
        bytes_per_s: simulated.bytes_per_s(),
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

fn describe(load: &Workload) -> String {
    let size = crate::units::size(u64::from(load.request_bytes));
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
    let whole = load.region_bytes / u64::from(ACCESS_BYTES) * u64::from(ACCESS_BYTES);
    let accesses = Workload {
        pattern: Pattern::Random,
        read_percent: 100,
        request_bytes: ACCESS_BYTES,
        region_bytes: whole,
        ..load.clone()
    };
    let kaps = simulated::simulate(system, &accesses, Caching::Direct)?.requests_per_s() / 1e3;
    Ok(PriceDocument {
        price,
        per_mb_per_s: price / (simulated.bytes_per_s() / 1e6),
        per_kaps: price / kaps,
    })
}

/// How the throughput answers to each parameter of a system, the strongest first. Parameters
/// that cannot be moved, or do nothing, are left out.
fn sensitivities(description: &Description, load: &Workload) -> Vec<SensitivityDocument> {
    let keys = description.keys();
    let all = on_all_cores(&keys, |key| {
        let sensitivity = sensitivity(description, load, key)?;
        let source = description.source_of(key).unwrap_or_default();
        let unknown = source.starts_with("assumed") || source.contains("unidentified");
        let doubtful = sensitivity.abs() > MATTERS && unknown;
        Some(SensitivityDocument { key: key.clone(), sensitivity, source, doubtful })
    });
    let mut all: Vec<SensitivityDocument> =
        all.into_iter().flatten().filter(|s| s.sensitivity.abs() > 1e-4).collect();
    all.sort_by(|a, b| b.sensitivity.abs().total_cmp(&a.sensitivity.abs()));
    all
}

/// Central differences over 5% to either side; what counts things moves by one at least.
fn sensitivity(description: &Description, load: &Workload, key: &str) -> Option<f64> {
    let (value, unit) = description.value_of(key)?;
    let counts = ["units", "CPUs", "heads", "requests", "hosts", "disks", "buses", "cylinders"];
    let step = if counts.contains(&unit.as_str()) { (value * STEP).max(1.0) } else { value * STEP };
    let rate = |value: f64| {
        let mut moved = description.clone();
        moved.put(key, value, "moved").ok()?;
        let system = moved.system().ok()?;
        let caching = simulated::caching_of(&system);
        Some(simulated::simulate(&system, load, caching).ok()?.bytes_per_s())
    };
    let down = if value - step > 0.0 { value - step } else { value };
    let up = value + step;
    let sensitivity = (rate(up)? / rate(down)?).ln() / (up / down).ln();
    (value > 0.0 && sensitivity.is_finite()).then_some(sensitivity)
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
        answer(&Question { before, after, load, load_after, prices }).unwrap()
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
