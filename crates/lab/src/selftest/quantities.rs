//! The quantities that the self-test measures. Each has a reference device, a true value and a
//! tolerance.

use analysis::changepoint::throttle;
use analysis::halfpower::{self, SizePoint};
use analysis::lsq;
use ioengine::engine::DelayDevice;
use ioengine::{Caching, EngineKind, HostTarget};
use workload::Pattern;

use crate::failure::Outcome;
use crate::point::{Point, Trial};
use crate::selftest::Quantity;
use crate::selftest::apparatus::{Apparatus, DEEP, DEVICE_BYTES, Probe, middle};
use crate::selftest::devices::{self, Assistant, Device};
use crate::selftest::throttled::Throttled;

const KIB: u32 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Parameters of a device with zero delay, which is used to measure the overhead of the I/O path.
const ZERO: &str = "";
/// Maximum relative error of the rate of a saturated device.
const RATE_TOLERANCE: f64 = 0.01;
/// Maximum relative error of all other quantities.
const TOLERANCE: f64 = 0.05;
/// Maximum relative error of the rate of a device that the kernel throttles. The kernel enforces
/// the limit in slices of 0.1 s. The trial lasts 6 s, so an error of one slice is 1.7%.
const SLICE_TOLERANCE: f64 = 0.02;
/// Maximum distance between the bounds of the CPU cost, as a share of the lower bound.
const BOUNDS_TOLERANCE: f64 = 0.15;

/// A function that measures the quantities of one group.
pub type Group = fn(&Apparatus<'_>) -> Outcome<Vec<Quantity>>;

/// All groups of quantities, each with the name that the progress line shows.
pub const GROUPS: [(&str, Group); 8] = [
    ("latency", latency),
    ("saturated throughput", throughput),
    ("fixed and marginal cost", cost_of_size),
    ("half-power depth", half_power_depth),
    ("burst credit and write buffer", reserves),
    ("cache size", cache),
    ("throttled block device", throttled),
    ("CPU per request", cpu),
];

/// Measures the latency at depth 1 on a device with a fixed latency.
fn latency(with: &Apparatus<'_>) -> Outcome<Vec<Quantity>> {
    let (device, zero) = (with.device("fixed=2ms")?, with.device(ZERO)?);
    let probe = Probe::reads(4 * KIB, 1, 400);
    let (total, path) =
        with.in_turn(5, |delayed| with.latency_ns(if delayed { &device } else { &zero }, probe))?;
    let measured = (total - path) / 1000.0;
    let (total, counted_path) = with.in_turn(5, |delayed| {
        let trial = with.trial(if delayed { &device } else { &zero }, probe)?;
        Ok(trial.elapsed_ns as f64 / trial.requests().max(1) as f64)
    })?;
    let counted = (total - counted_path) / 1000.0;
    let value = |name, measured| Quantity::value(name, "us", (2000.0, measured), TOLERANCE);
    Ok(vec![
        value("latency of a request", measured).with_path(path / 1000.0),
        // This latency is the elapsed time divided by the number of requests, so it needs no
        // timestamps of requests. If the timestamps have a constant error, the error cancels out in
        // the first latency, which is a difference. The error still changes the overhead `path`,
        // which then differs from `counted_path`.
        value("latency by counting", counted).with_path(counted_path / 1000.0),
    ])
}

/// Measures the rates of saturated devices. The queue depth is larger than the number of requests
/// that the device serves in parallel, so that the overhead of the I/O path does not lower the
/// rate.
fn throughput(with: &Apparatus<'_>) -> Outcome<Vec<Quantity>> {
    let servers = with.device("fixed=1ms,parallel=4")?;
    let bus = with.device("rate=300MB/s")?;
    let steady = |request_bytes| Probe {
        warm_up_ns: 100_000_000,
        ..Probe::reads(request_bytes, DEEP, 2000)
    };
    let of = |device: &Device, request_bytes, rate: fn(&Trial) -> f64| -> Outcome<f64> {
        let rates: Outcome<Vec<f64>> = (0..3)
            .map(|_| with.trial(device, steady(request_bytes)).map(|trial| rate(&trial)))
            .collect();
        Ok(middle(&rates?))
    };
    let requests = of(&servers, 4 * KIB, Trial::requests_per_s)?;
    let bytes = of(&bus, 64 * KIB, Trial::bytes_per_s)? / 1e6;
    Ok(vec![
        Quantity::value("saturated requests", "requests/s", (4000.0, requests), RATE_TOLERANCE),
        Quantity::value("saturated throughput", "MB/s", (300.0, bytes), RATE_TOLERANCE),
    ])
}

/// Parameters of a device with long requests. During such a request, the CPU goes idle and then
/// takes about 40 us to wake up. The overhead that is measured at zero delay hardly includes this
/// wake-up time. The wake-up time is small compared with the fixed cost of 2 ms.
const SIZED: &str = "fixed=2ms,rate=125MB/s";

/// Measures fixed cost, marginal cost and half-power request size. Fits T = f + s S to the time T
/// of a request of size S at depth 1. Here f is the fixed cost, s the marginal cost, and f / s the
/// half-power request size.
fn cost_of_size(with: &Apparatus<'_>) -> Outcome<Vec<Quantity>> {
    let (device, zero) = (with.device(SIZED)?, with.device(ZERO)?);
    let mut points = Vec::new();
    let mut paths = Vec::new();
    for kib in [4, 32, 64, 128, 256, 512] {
        let probe = Probe::reads(kib * KIB, 1, 250);
        let (total, path) = with
            .in_turn(5, |delayed| with.latency_ns(if delayed { &device } else { &zero }, probe))?;
        points.push(SizePoint {
            request_bytes: u64::from(kib * KIB),
            time_ns: total - path,
            relative_error: 0.01,
        });
        paths.push(lsq::Point::with_relative_error(f64::from(kib), path, 0.05));
    }
    let failed =
        |error: lsq::FitError| crate::failure::Failure::failed(format!("fitting: {error}"));
    let fit = halfpower::fit(&points).map_err(failed)?;
    let path = lsq::line(&paths).map_err(failed)?;
    let (fixed, marginal) = (fit.fixed_ns.value / 1000.0, fit.ns_per_byte.value * 1.024);
    let half_power = fit.half_power_bytes.value / 1024.0;
    let truth = devices::parse(SIZED)?;
    let marginal_truth = truth.transfer_ns(512 * KIB) as f64 / 512.0 / 1000.0;
    let half_power_truth = truth.half_power_bytes().unwrap_or(f64::NAN) / 1024.0;
    let value =
        |name, unit, truth, measured| Quantity::value(name, unit, (truth, measured), TOLERANCE);
    Ok(vec![
        value("fixed cost", "us", truth.fixed_ns as f64 / 1000.0, fixed)
            .with_path(path.intercept.value / 1000.0),
        value("marginal cost", "us/KiB", marginal_truth, marginal)
            .with_path(path.slope.value / 1000.0),
        value("half-power request size", "KiB", half_power_truth, half_power),
    ])
}

/// Measures the half-power depth of 64 KiB requests. Reports two depths: the interpolated depth,
/// and the first measured depth whose rate exceeds half of the maximum, as in a survey.
fn half_power_depth(with: &Apparatus<'_>) -> Outcome<Vec<Quantity>> {
    let text = "fixed=1800us,rate=327.68MB/s,parallel=64";
    let (device, request) = (with.device(text)?, 64 * KIB);
    let rate_at = |depth: u32| -> Outcome<f64> {
        let rates: Outcome<Vec<f64>> = (0..3)
            .map(|_| Ok(with.trial(&device, Probe::reads(request, depth, 300))?.bytes_per_s()))
            .collect();
        Ok(middle(&rates?))
    };
    let saturated = rate_at(DEEP)?;
    let mut rates = Vec::new();
    for depth in [2_u32, 3, 4, 5, 6, 7, 8] {
        rates.push((u64::from(depth), rate_at(depth)?));
    }
    let first = halfpower::measured(&rates, saturated).map_or(f64::NAN, |depth| depth as f64);
    let truth = devices::parse(text)?.half_power_depth(request).unwrap_or(f64::NAN);
    let measured = crossing(&rates, saturated / 2.0);
    Ok(vec![
        Quantity::value("half-power depth", "requests", (truth, measured), TOLERANCE),
        // In theory, the rate at the true depth is exactly half of the maximum. In practice,
        // overhead makes it slightly lower, so the next depth is the first one above half.
        Quantity::value("first depth past half", "requests", (truth + 1.0, first), 0.0),
    ])
}

/// Interpolates the depth at which the rate crosses `level`. Rates must rise with the depth.
fn crossing(rates: &[(u64, f64)], level: f64) -> f64 {
    let pair = rates.windows(2).find(|pair| pair[0].1 <= level && pair[1].1 > level);
    pair.map_or(f64::NAN, |pair| {
        let [(below, low), (above, high)] = [pair[0], pair[1]];
        below as f64 + (level - low) / (high - low) * (above - below) as f64
    })
}

/// Measures how many bytes a device transfers at full speed before it becomes slower: the burst
/// credit and the size of the write buffer.
fn reserves(with: &Apparatus<'_>) -> Outcome<Vec<Quantity>> {
    let spent = |text: &str, read_percent: u8| -> Outcome<f64> {
        let device = with.device(text)?;
        let probe = Probe { read_percent, ..Probe::reads(64 * KIB, DEEP, 3000) };
        let trial = with.trial(&device, probe)?;
        // A trial on such a device must report that it was throttled.
        if !trial.verdict.reasons.iter().any(|reason| reason.contains("throttled")) {
            return Ok(f64::NAN);
        }
        let series: Vec<(u64, f64)> =
            trial.series.iter().map(|point| (point.length_ns, point.bytes as f64)).collect();
        Ok(throttle(&series).map_or(f64::NAN, |found| found.credit) / MIB as f64)
    };
    let credit = spent("rate=300MB/s,credit=256m,sustained=100MB/s", 100)?;
    let buffer = spent("rate=300MB/s,buffer=192m,drain=100MB/s", 0)?;
    Ok(vec![
        Quantity::value("burst credit", "MiB", (256.0, credit), TOLERANCE),
        Quantity::value("write buffer", "MiB", (192.0, buffer), TOLERANCE),
    ])
}

/// Measures the size of the cache: the largest region that is served from the cache when it is read
/// sequentially for the second time.
fn cache(with: &Apparatus<'_>) -> Outcome<Vec<Quantity>> {
    let device = with.device("fixed=2ms,parallel=64,cache=48m,hit=50us")?;
    let request = u64::from(256 * KIB);
    let fits = |regions: u64| -> Outcome<bool> {
        let region_bytes = regions * request;
        let probe = Probe {
            pattern: Pattern::Sequential,
            region_bytes,
            limit_ns: None,
            limit_bytes: Some(region_bytes),
            ..Probe::reads(request as u32, 8, 0)
        };
        with.trial(&device, probe)?;
        let second = with.trial(&device, probe)?;
        Ok(second.latency().quantile(0.5).is_some_and(|ns| ns < 1_500_000))
    };
    let (mut fitting, mut missing) = (1_u64, DEVICE_BYTES / request);
    while fitting * 2 < missing && fits(fitting * 2)? {
        fitting *= 2;
    }
    missing = missing.min(fitting * 2);
    // The search ends when the two bounds differ by at most 2% or one request.
    while missing - fitting > (fitting / 50).max(1) {
        let between = (fitting + missing) / 2;
        if fits(between)? { fitting = between } else { missing = between }
    }
    let measured = ((fitting + missing) * request) as f64 / 2.0 / MIB as f64;
    Ok(vec![Quantity::value("cache size", "MiB", (48.0, measured), TOLERANCE)])
}

/// Measures the rate of a block device whose rate limit the kernel enforces in slices of 0.1 s.
fn throttled(with: &Apparatus<'_>) -> Outcome<Vec<Quantity>> {
    let (name, unit) = ("throttled block device", "MB/s");
    let device = match Throttled::new(DEVICE_BYTES, 50_000_000) {
        Ok(device) => device,
        Err(why) => return Ok(vec![Quantity::skipped(name, unit, 50.0, why)]),
    };
    let target = HostTarget::open(device.path(), false, Caching::Direct)?;
    device.is_open();
    let probe = Probe { warm_up_ns: 1_000_000_000, ..Probe::reads(64 * KIB, 8, 6000) };
    let trial = with.trial_on(&target, EngineKind::best(true), probe)?;
    let measured = trial.bytes_per_s() / 1e6;
    Ok(vec![Quantity::value(name, unit, (50.0, measured), SLICE_TOLERANCE)])
}

/// CPU time that the simulated device spends on each request in the submitting thread (us).
const CHARGED_US: u64 = 100;
/// CPU time that the simulated device spends on each request in a separate process (us).
const UNCHARGED_US: u64 = 6;

/// Minimum and maximum number of rounds. Each round has one trial with the soaker, which uses all
/// CPU time that is left over, and one trial without.
const CPU_ROUNDS: (u32, u32) = (7, 20);
/// The uncharged CPU time has a median with a confidence interval. This is the maximum distance
/// from the median to the upper end of the interval, as a share of the true CPU time. As in
/// surveys, rounds are added until the distance is small enough. More rounds are needed if other
/// programs use the machine.
const CPU_SPREAD: f64 = 0.04;

/// Measures the CPU time per request of a device whose true CPU time is known. A part of this time
/// is used in another process. The measured bounds must enclose the true value.
fn cpu(with: &Apparatus<'_>) -> Outcome<Vec<Quantity>> {
    let (name, unit) = ("CPU per request", "us");
    let truth = (CHARGED_US + UNCHARGED_US) as f64;
    if let Err(why) = with.lab.prepare_soaker() {
        return Ok(vec![Quantity::skipped(name, unit, truth, why)]);
    }
    let (_first, spinning) = spinning_device(CHARGED_US, UNCHARGED_US)?;
    let (_second, idle) = spinning_device(0, 0)?;
    let mut point = Point { key: crate::point_key::PointKey::default(), trials: Vec::new() };
    let mut paths = Vec::new();
    for round in 1..=CPU_ROUNDS.1 {
        let probe = Probe::reads(4 * KIB, 1, 700);
        point.trials.push(with.trial_on(&spinning, EngineKind::Delay, probe)?);
        let short = Probe { limit_ns: Some(200_000_000), ..probe };
        let path = with.trial_on(&idle, EngineKind::Delay, short)?;
        paths.push(path.cpu.process_ns as f64 / path.requests().max(1) as f64);
        let soaked = Probe { soaked: true, ..probe };
        point.trials.push(with.trial_on(&spinning, EngineKind::Delay, soaked)?);
        if round >= CPU_ROUNDS.0 && spread_us(&point) <= CPU_SPREAD * truth {
            break;
        }
    }
    let path = middle(&paths);
    let bound = |bound: Option<f64>| (bound.unwrap_or(f64::NAN) - path) / 1000.0;
    let bounds = (bound(point.cpu_lower_ns()), bound(point.cpu_upper_ns()));
    let cpu = Quantity::within(name, unit, truth, bounds, BOUNDS_TOLERANCE);
    Ok(vec![cpu.with_path(path / 1000.0)])
}

/// The uncharged CPU time has a median with a confidence interval. Returns the distance from the
/// median to the upper end of the interval (us).
fn spread_us(point: &Point) -> f64 {
    let uncharged: Vec<f64> = point.trials.iter().filter_map(Trial::uncharged_ns).collect();
    let lower = point.cpu_lower_ns().unwrap_or(f64::NAN);
    (point.cpu_upper_ns().unwrap_or(f64::NAN) - lower - middle(&uncharged)) / 1000.0
}

fn spinning_device(charged_us: u64, uncharged_us: u64) -> Outcome<(Assistant, HostTarget)> {
    let (assistant, pipe) = Assistant::start(uncharged_us * 1000)?;
    let device = DelayDevice::new(devices::parse(&format!("cpu={charged_us}us"))?);
    Ok((assistant, HostTarget::delay(DEVICE_BYTES, device.with_assistant(pipe))))
}
