//! Decides whether a configuration meets a need, first by closed-form bounds and then by
//! simulation.
//!
//! `simulator::bounds` computes the highest throughput of each component for a stream that runs
//! alone. A stream that needs throughput X keeps a component with bound B busy for at least the
//! share X / B of the time (utilisation law). If the shares of all streams add up to more than 1 at
//! a component, the configuration cannot meet the need. Otherwise it is simulated: all streams run
//! together as open loops with Poisson arrivals, and every stated rate and latency limit must be
//! met.

use analysis::units;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use ioengine::{Caching, Op, Target};
use lab::failure::Outcome;
use lab::simulated::{self, Together};
use simulator::bounds::{self, Part, Shape};
use simulator::{SimWorld, System};
use workload::{Arrival, Pattern, Sample, Workload};

use crate::plan::candidate::{Candidate, Catalogue};
use crate::plan::need::{Need, Stream};

/// Queue depth for which the bounds are computed. It is so large that the number of outstanding
/// requests is never the limit.
const DEPTH_OF_BOUNDS: u32 = 1 << 20;
/// Maximum number of outstanding requests of one stream.
const DEPTH_MAX: u32 = 256;
/// Maximum total size of the buffers of one stream (bytes).
const BUFFER_BYTES: u64 = 64 << 20;
/// Minimum number of requests of the slowest stream in a simulation. Of 1000 requests, 10 are
/// slower than the p99, which is enough to estimate it.
const REQUESTS_MIN: f64 = 1000.0;
/// Maximum number of requests of all streams in a simulation.
const REQUESTS_MAX: f64 = 200_000.0;
/// Minimum and maximum duration of a simulation (ns of simulated time).
const TIME_NS: (f64, f64) = (5e8, 6e10);
/// Maximum time from the end of the run to the completion of the last request of a stream: a share
/// of the run, plus a time (ns). A stream that takes longer has a backlog and misses its rate.
const BACKLOG: (f64, f64) = (0.05, 1e7);
/// Alignment of the part of the file that each sequential stream uses (bytes).
const ALIGNMENT: u64 = 1 << 20;

/// The result of judging a configuration.
#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    /// The volume is smaller than the stated capacity. Contains the size of the volume (bytes).
    TooSmall(u64),
    /// The need cannot be met, because a component would have to be busy for more than 100% of the
    /// time.
    Excluded(Excluded),
    /// The simulation misses a rate or exceeds a latency limit.
    Misses(Outlook),
    /// The simulated results meet the need.
    Meets(Outlook),
}

/// A component that is too slow for the need.
#[derive(Clone, Debug, PartialEq)]
pub struct Excluded {
    /// Name of the component.
    pub part: String,
    /// Lower bound of the utilisation that the need requires. It is above 1.
    pub utilisation: f64,
}

/// The simulated results of a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlook {
    /// Results of each stream of the need.
    pub streams: Vec<StreamOutlook>,
    /// Name of the bottleneck, or of the busiest component if there is no bottleneck.
    pub busiest: String,
    /// Utilisation of the bottleneck, or of the busiest component if there is no bottleneck (0 to
    /// 1).
    pub utilisation: f64,
    /// The usable capacity (bytes).
    pub capacity_bytes: u64,
    /// The rates and latency limits that were missed. Empty if the need is met.
    pub missed: Vec<String>,
}

/// The simulated results of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamOutlook {
    /// Number of requests completed per second.
    pub requests_per_s: f64,
    /// Median latency (ns).
    pub p50_ns: u64,
    /// 99th percentile of the latency (ns).
    pub p99_ns: u64,
}

/// Judges a configuration.
///
/// # Errors
/// If the configuration is not a valid system, or if the simulation violates a physical limit,
/// which is a bug.
pub fn judge(catalogue: &Catalogue, candidate: &Candidate, need: &Need) -> Outcome<Judgement> {
    let capacity_bytes = capacity_of(&catalogue.system(candidate, u64::MAX >> 2)?);
    let wanted = need.capacity_bytes.unwrap_or(capacity_bytes);
    if wanted > capacity_bytes {
        return Ok(Judgement::TooSmall(capacity_bytes));
    }
    let system = catalogue.system(candidate, wanted)?;
    if let Some(excluded) = excluded(&system, need) {
        return Ok(Judgement::Excluded(excluded));
    }
    let outlook = simulate(&system, need, capacity_bytes)?;
    let is_met = outlook.missed.is_empty();
    Ok(if is_met { Judgement::Meets(outlook) } else { Judgement::Misses(outlook) })
}

/// Returns the size of the volume (bytes).
fn capacity_of(system: &System) -> u64 {
    SimWorld::new(system, 0).files(Caching::Direct)[0].size_bytes()
}

/// Returns the component with the highest required utilisation. Returns `None` if this utilisation
/// is at most 100%.
fn excluded(system: &System, need: &Need) -> Option<Excluded> {
    let caching = simulated::caching_of(system);
    // Loads are summed by part and not by name, because two parts can have the same name, and one
    // part can have several names.
    let mut parts: BTreeMap<Part, Load> = BTreeMap::new();
    for stream in &need.streams {
        let shape = Shape {
            op: stream.op,
            random: stream.random,
            request_bytes: stream.request_bytes,
            depth: DEPTH_OF_BOUNDS,
            caching,
            bytes: None,
        };
        for bound in bounds::of(system, &shape) {
            let share = stream.bytes_per_s() / bound.bytes_per_s;
            parts.entry(bound.part).or_default().add(share, bound.name);
        }
    }
    let most = parts.into_values().max_by(|a, b| a.utilisation.total_cmp(&b.utilisation))?;
    let Load { utilisation, name, .. } = most;
    (utilisation > 1.0).then_some(Excluded { part: name, utilisation })
}

/// The load that all streams of a need cause on one part.
#[derive(Default)]
struct Load {
    /// Share of the time for which all streams together keep the part busy. It can exceed 1.
    utilisation: f64,
    /// Largest share of the time for which a single stream keeps the part busy.
    largest: f64,
    /// Name of the part. If streams have different names for the part, the name comes from the
    /// stream with the largest share.
    name: String,
}

impl Load {
    fn add(&mut self, share: f64, name: String) {
        self.utilisation += share;
        if self.name.is_empty() || share > self.largest {
            (self.largest, self.name) = (share, name);
        }
    }
}

fn simulate(system: &System, need: &Need, capacity_bytes: u64) -> Outcome<Outlook> {
    let run_ns = run_ns(need);
    let workloads: Vec<Workload> =
        (0..need.streams.len()).map(|index| workload(system, need, index, run_ns)).collect();
    let stop = AtomicBool::new(false);
    let caching = simulated::caching_of(system);
    let Together { samples, account } = simulated::together(system, &workloads, caching, &stop)?;
    let pairs = || need.streams.iter().zip(&samples);
    let binding = account.binding();
    let share = |name: &str| name == binding.resource;
    let busiest = account
        .resources
        .iter()
        .filter(|resource| binding.resource == "latency" || share(&resource.name))
        .max_by(|a, b| a.utilisation(1).total_cmp(&b.utilisation(1)));
    Ok(Outlook {
        streams: pairs().map(|(stream, sample)| outlook(stream, sample)).collect(),
        busiest: busiest.map_or(binding.resource.clone(), |resource| resource.name.clone()),
        utilisation: binding.utilisation,
        capacity_bytes,
        missed: pairs().filter_map(|(stream, sample)| missed(stream, sample, run_ns)).collect(),
    })
}

/// Returns the duration of the simulation (ns). It is long enough for `REQUESTS_MIN` requests of
/// the slowest stream, unless all streams together would exceed `REQUESTS_MAX` requests.
fn run_ns(need: &Need) -> u64 {
    let rates = || need.streams.iter().map(|stream| stream.requests_per_s);
    let slowest = rates().fold(f64::INFINITY, f64::min);
    let all: f64 = rates().sum();
    let wanted = (REQUESTS_MIN / slowest * 1e9).clamp(TIME_NS.0, TIME_NS.1);
    wanted.min(REQUESTS_MAX / all * 1e9).max(1e6) as u64
}

/// Returns the workload of a stream, which is an open loop. Each sequential stream uses an equal
/// part of the file. Random streams use the whole file.
fn workload(system: &System, need: &Need, index: usize, run_ns: u64) -> Workload {
    let stream = &need.streams[index];
    let request = u64::from(stream.request_bytes);
    let file = system.setup.file_size / request * request;
    let part = file / need.streams.len() as u64 / ALIGNMENT * ALIGNMENT;
    let is_split = !stream.random && part >= request.max(ALIGNMENT);
    let (offset, bytes) = if is_split { (part * index as u64, part) } else { (0, file) };
    Workload {
        pattern: if stream.random { Pattern::Random } else { Pattern::Sequential },
        read_percent: if stream.op == Op::Read { 100 } else { 0 },
        request_bytes: stream.request_bytes,
        depth: (BUFFER_BYTES / request).clamp(2, u64::from(DEPTH_MAX)) as u32,
        region_offset: offset,
        region_bytes: bytes / request * request,
        arrival: Arrival::Poisson { requests_per_s: stream.requests_per_s },
        limit_ns: Some(run_ns),
        seed: 42 + index as u64,
        ..Workload::default()
    }
}

fn outlook(stream: &Stream, sample: &Sample) -> StreamOutlook {
    let latency = &sample.operations[usize::from(stream.op == Op::Write)].latency;
    let seconds = sample.end_ns.saturating_sub(sample.start_ns).max(1) as f64 / 1e9;
    StreamOutlook {
        requests_per_s: sample.requests() as f64 / seconds,
        p50_ns: latency.quantile(0.5).unwrap_or(0),
        p99_ns: latency.quantile(0.99).unwrap_or(0),
    }
}

/// Describes what a stream missed, either its rate or its latency limit. Returns `None` if it
/// missed neither.
fn missed(stream: &Stream, sample: &Sample, run_ns: u64) -> Option<String> {
    let took_ns = sample.end_ns.saturating_sub(sample.start_ns) as f64;
    let latency = &sample.operations[usize::from(stream.op == Op::Write)].latency;
    let is_late = took_ns > run_ns as f64 * (1.0 + BACKLOG.0) + BACKLOG.1;
    if sample.never_issued > 0 || is_late || sample.requests() == 0 {
        let got = units::count(outlook(stream, sample).requests_per_s);
        return Some(format!("{stream}: only {got} requests/s"));
    }
    let limit = stream.latency?;
    let found_ns = latency.quantile(limit.percentile / 100.0).unwrap_or(u64::MAX);
    (found_ns >= limit.limit_ns)
        .then(|| format!("{stream}: p{} is {}", limit.percentile, units::time(found_ns as f64)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::candidate::Limits;
    use crate::plan::prices::{BUILT_IN, Prices};
    use simulator::Description;

    fn judged(need: &str, which: impl Fn(&Candidate) -> bool) -> Judgement {
        let catalogue = Catalogue::load(&Prices::parse(BUILT_IN).unwrap()).unwrap();
        let need = Need::parse(need).unwrap();
        let limits = Limits { price_max: None, devices_max: 64 };
        let all = catalogue.candidates(&need, &limits).unwrap();
        judge(&catalogue, all.iter().find(|one| which(one)).unwrap(), &need).unwrap()
    }

    fn atlas(disks: u32) -> impl Fn(&Candidate) -> bool {
        move |one| one.system == "w2k-atlas10k" && one.disks == disks
    }

    #[test]
    fn one_disk_serves_fifty_random_reads_and_not_five_thousand() {
        // According to Table 9 of the second paper, this disk serves 105 random 8 KB reads per
        // second at depth 1.
        let Judgement::Meets(outlook) = judged("reads 8k 50/s", atlas(1)) else {
            panic!("the disk can serve about 100 random reads per second")
        };
        assert!((outlook.streams[0].requests_per_s - 50.0).abs() < 5.0, "{outlook:?}");
        assert!(outlook.capacity_bytes > 17_000_000_000, "{outlook:?}");
        let no = judged("reads 8k 5000/s", atlas(1));
        assert!(matches!(&no, Judgement::Excluded(why) if why.part == "media"), "{no:?}");
    }

    #[test]
    fn bounds_of_several_streams_add_up() {
        let one = "reads 64k 15MB/s";
        assert!(matches!(judged(one, atlas(1)), Judgement::Meets(_)));
        let both = judged(&format!("{one}; writes 64k 15MB/s"), atlas(1));
        assert!(matches!(&both, Judgement::Excluded(why) if why.utilisation > 1.0), "{both:?}");
    }

    /// Returns a system of eight striped Atlas disks on one bus. In the text of its system file,
    /// `rename.0` is replaced by `rename.1`.
    fn striped(rename: (&str, &str)) -> System {
        let text = Description::named("w2k-atlas10k").unwrap().text();
        let mut text = Description::read(&text.replace(rename.0, rename.1), "renamed").unwrap();
        for (key, value) in [("disks", "8"), ("buses", "1"), ("volume", "stripe")] {
            text.set(key, value).unwrap();
        }
        text.system().unwrap()
    }

    #[test]
    fn shares_of_one_part_add_up_though_streams_call_it_differently() {
        // The bus transfers reads at the rate of PCI, and writes at the rate of the SCSI adapter.
        let system = striped(("", ""));
        let of = |need: &str| excluded(&system, &Need::parse(need).unwrap());
        assert_eq!(of("reads 64k 55MB/s"), None);
        assert_eq!(of("writes 64k 25MB/s"), None);
        let both = of("reads 64k 55MB/s; writes 64k 25MB/s").expect("the bus is overloaded");
        assert_eq!(both.part, "Ultra160 SCSI at the pace of PCI");
        assert!((1.0..1.3).contains(&both.utilisation), "{both:?}");
    }

    #[test]
    fn parts_of_the_same_name_do_not_add_up() {
        // PCI and the bus have the same name here. Each is busy for less than 100% of the time, but
        // the sum is more than 100%.
        let need = Need::parse("reads 64k 70MB/s").unwrap();
        let system = striped(("\"PCI\"", "\"Ultra160 SCSI\""));
        assert!(system.links.iter().any(|link| link.name == system.bus.name));
        assert_eq!(excluded(&system, &need), None);
        assert!(simulate(&system, &need, 0).unwrap().missed.is_empty());
    }

    #[test]
    fn a_latency_limit_is_missed_before_the_rate_is() {
        let found = judged("reads 8k 80/s p99<20ms", atlas(1));
        let Judgement::Misses(outlook) = found else { panic!("{found:?}") };
        assert!(outlook.missed[0].contains("p99 is"), "{outlook:?}");
        assert!(matches!(judged("reads 8k 80/s", atlas(1)), Judgement::Meets(_)));
    }

    #[test]
    fn a_volume_smaller_than_the_capacity_is_too_small() {
        let found = judged("reads 8k 1/s; capacity 20GB", atlas(1));
        assert!(matches!(found, Judgement::TooSmall(_)), "{found:?}");
        let found = judged("reads 8k 1/s; capacity 20GB", atlas(2));
        assert!(matches!(found, Judgement::Meets(_)), "{found:?}");
    }

    #[test]
    fn the_bounds_exclude_nothing_that_a_simulation_meets() {
        let catalogue = Catalogue::load(&Prices::parse(BUILT_IN).unwrap()).unwrap();
        let limits = Limits { price_max: None, devices_max: 16 };
        let mut excluded_count = 0;
        for text in [
            "reads 8k 400/s; writes 64k 20MB/s",
            "writes 4k 3000/s; reads 1m 500MB/s",
            "reads 4k 200k/s; writes 4k 100k/s",
        ] {
            let need = Need::parse(text).unwrap();
            for one in catalogue.candidates(&need, &limits).unwrap().iter().step_by(23) {
                let system = catalogue.system(one, 4 << 30).unwrap();
                let Some(why) = excluded(&system, &need) else { continue };
                excluded_count += 1;
                let outlook = simulate(&system, &need, 0).unwrap();
                assert!(!outlook.missed.is_empty(), "{text} on {one}: {why:?} {outlook:?}");
            }
        }
        assert!(excluded_count > 10, "{excluded_count}");
    }
}
