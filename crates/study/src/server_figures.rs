//! Computes what the requests of a client cost the server: the CPU time per request and per KiB,
//! and the bytes that the server's device and network move for each byte that is read or written.
//! Also compares the client's reads with the server's own reads of the same file. A halfpower peer
//! on the server provides the readings.
//!
//! The counters cover the whole server. Therefore the load of the server while no trial runs (the
//! background load) is subtracted. If client and server are the same machine, the CPU time of the
//! client's process is subtracted too, and the findings mention this. All findings are computed
//! from stored readings.

use std::collections::BTreeMap;

use analysis::costmodel::{self, CostModel, CostPoint};
use analysis::interval::Interval;
use analysis::units;
use ioengine::Clock;
use lab::evidence::{Evidence, MeasuredPoint, Reading};
use lab::peer::client::ServerWatch;
use lab::peer::counters::{InterfaceBytes, ServerUsage, TICK_NS};
use lab::peer::message::ReadTrial;
use lab::trials::Lab;
use report::model::{Cell, Column, Table};
use report::units::Unit;

use crate::conclusion::{Conclusion, words_of_time, words_of_times};
use crate::runner::StudyRunner;

/// Name of the part of the plan that measures one request at a time. The costs per request and per
/// KiB are fitted to this part.
pub const ONE: &str = "one at a time";
/// Name of the part of the plan that measures random requests.
const RANDOM: &str = "random";
/// Name under which missing figures of the server are listed as left out.
const PART: &str = "server";
/// A request size at which the client's reads are compared with the server's own reads (bytes).
const LARGE: u64 = 64 << 10;
/// Number and length (ns) of the intervals in which the background load of the server is measured.
const BACKGROUND: (u32, u64) = (8, 250_000_000);
/// Length of the trials in which the server reads its own file (ms): without `--quick`, and with
/// it.
const READ_TRIAL_MS: (u32, u32) = (1000, 300);
/// If the server's network moved at least this share of a target's bytes, the target is on the
/// server.
const CROSSED: f64 = 0.5;
/// If the server's device moved at least this share of the bytes, the findings assume that the
/// server's cache had no effect.
const FROM_DEVICE: f64 = 0.9;
/// Maximum share of the server's CPUs that the background load may use. With a higher load, the
/// trials take CPU time from other work, so subtracting the background load does not give the cost
/// of the trials.
const BUSY: f64 = 0.5;
/// Half width of a 95% confidence interval, in standard errors.
const ERRORS: f64 = 2.0;

/// Records the name and the CPUs of the server, and measures the background load before the trials.
pub fn begin(runner: &mut StudyRunner<'_>) {
    let lab = runner.lab;
    let Some(watch) = &lab.server else { return };
    let greeting = watch.greeting();
    let host = &greeting.host;
    let shared = if watch.is_this_machine() { "yes" } else { "no" };
    let labels = [
        ("host", host.name.clone()),
        ("cpu", host.cpu.clone()),
        ("kernel", host.kernel.clone()),
        ("halfpower", greeting.halfpower.clone()),
        ("is-client", shared.to_owned()),
    ];
    runner.evidence.note("server-cpus", "count", &labels, f64::from(host.cpus));
    note_background(runner, watch, "before");
}

fn note_background(runner: &mut StudyRunner<'_>, watch: &ServerWatch, when: &str) {
    if let Some(busy) = measure_background(watch, runner.lab) {
        let labels = [("when", when.to_owned())];
        note_interval(&mut runner.evidence, "server-background", "cpus", &labels, busy);
    }
}

/// Returns the background load. Its interval covers the measurements before and after the trials.
fn background(evidence: &Evidence) -> Option<Interval> {
    let before = interval(evidence, "server-background", &[("when", "before")])?;
    let after = interval(evidence, "server-background", &[("when", "after")]).unwrap_or(before);
    Some(Interval {
        value: (before.value + after.value) / 2.0,
        low: before.low.min(after.low),
        high: before.high.max(after.high),
    })
}

/// Measures how many CPUs of the server are busy while no trial runs, with a 95% interval.
fn measure_background(watch: &ServerWatch, lab: &Lab) -> Option<Interval> {
    let first = watch.counters()?;
    let (mut last, mut shares) = (first.clone(), Vec::new());
    for _ in 0..BACKGROUND.0 {
        lab.clock.sleep_until(lab.clock.now_ns() + BACKGROUND.1);
        let now = watch.counters()?;
        shares.push(now.since(&last).busy_cpus());
        last = now;
    }
    let whole = last.since(&first);
    let resolution = TICK_NS as f64 / whole.elapsed_ns.max(1) as f64;
    let half = ERRORS * standard_error(&shares);
    Some(Interval::symmetric(whole.busy_cpus(), half.hypot(resolution)))
}

/// Returns the standard error of the mean, or 0 for fewer than two values.
fn standard_error(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    if count < 2.0 {
        return 0.0;
    }
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (count - 1.0) / count).sqrt()
}

fn note_interval(
    evidence: &mut Evidence,
    quantity: &str,
    unit: &str,
    labels: &[(&str, String)],
    of: Interval,
) {
    for (value, edge) in [(of.value, "value"), (of.low, "low"), (of.high, "high")] {
        let labels = [labels, &[("interval", edge.to_owned())]].concat();
        evidence.note(quantity, unit, &labels, value);
    }
}

/// Reads an interval that [`note_interval`] recorded.
fn interval(evidence: &Evidence, quantity: &str, labels: &[(&str, &str)]) -> Option<Interval> {
    let edge = |edge| evidence.value(quantity, &[labels, &[("interval", edge)]].concat());
    Some(Interval { value: edge("value")?, low: edge("low")?, high: edge("high")? })
}

/// Checks whether the server is so busy with other work that the cost of the trials cannot be
/// measured.
fn is_too_busy(evidence: &Evidence, background: Interval) -> bool {
    let cpus = evidence.value("server-cpus", &[]);
    cpus.is_some_and(|cpus| background.high > BUSY * cpus)
}

/// Checks whether server and client are the same machine.
fn is_client(evidence: &Evidence) -> bool {
    !evidence.read("server-cpus", &[("is-client", "yes")]).is_empty()
}

/// Records what the trials cost the server, and measures how fast the server itself reads its file.
pub fn end(runner: &mut StudyRunner<'_>) {
    let lab = runner.lab;
    let Some(watch) = &lab.server else { return };
    if !lab.interrupt.is_set() {
        note_background(runner, watch, "after");
    }
    note_costs(&mut runner.evidence);
    note_bytes(&mut runner.evidence);
    if let Some(path) = runner.peer_path.filter(|_| !lab.interrupt.is_set()) {
        alone(runner, watch, path);
    }
    let was_counted = |point: &MeasuredPoint| !usages(point).is_empty();
    let evidence = &runner.evidence;
    if evidence.usable().any(was_counted) && served_targets(evidence).is_empty() {
        let host = watch.greeting().host.name.clone();
        let reason = format!(
            "no data crossed the network of {host}; use --peer with the address of the server that \
             has the targets"
        );
        runner.leave_out(PART, &reason);
    }
    if let Some(why) = watch.ended() {
        let reason = format!(
            "the connection to the halfpower peer was lost ({why}), so the figures of the server \
             cover only the earlier trials; start halfpower peer on the server and run the study \
             again"
        );
        runner.leave_out(PART, &reason);
    }
}

/// Returns the points of the target `name` that only read (if `rw` is "read") or only write.
fn of_direction<'a>(evidence: &'a Evidence, name: &str, rw: &str) -> Vec<&'a MeasuredPoint> {
    let percent = if rw == "read" { 100 } else { 0 };
    let fits =
        |point: &&MeasuredPoint| point.target == name && point.key().read_percent() == percent;
    evidence.usable().filter(fits).collect()
}

/// Returns the names of the targets whose data crossed the network of the server. Such targets are
/// accessed by address or on a mounted share. Local files of the client are left out.
fn served_targets(evidence: &Evidence) -> Vec<String> {
    let mut moved: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for point in evidence.usable() {
        for (usage, _, bytes) in usages(point) {
            let both = |one: &InterfaceBytes| one.sent.saturating_add(one.received);
            let busiest = usage.interfaces.iter().map(both).max().unwrap_or(0);
            let sums = moved.entry(&point.target).or_default();
            *sums = (sums.0 + busiest as f64, sums.1 + bytes as f64);
        }
    }
    let served = moved.into_iter().filter(|(_, (network, all))| *network >= CROSSED * all);
    served.map(|(name, _)| name.to_owned()).collect()
}

/// Returns the load of the server, the number of requests and the number of bytes for each trial of
/// a point. Trials without counters of the server are left out.
fn usages(point: &MeasuredPoint) -> Vec<(&ServerUsage, u64, u64)> {
    let trials = point.point.trials.iter();
    let usage = trials.filter_map(|trial| {
        let usage = trial.live.as_ref()?.server.as_ref()?;
        (trial.requests() > 0).then(|| (usage, trial.requests(), trial.bytes()))
    });
    usage.collect()
}

/// Returns the CPU time of the server per request (ns). The 95% interval includes the uncertainty
/// of the background load, the resolution of the kernel's CPU times (one clock tick), and the
/// scatter between trials.
fn cpu_per_request(
    point: &MeasuredPoint,
    background: Interval,
    is_client: bool,
) -> Option<Interval> {
    let usages = usages(point);
    let net = |usage: &ServerUsage| {
        let own = if is_client { usage.client_ns } else { 0 };
        usage.busy_ns as f64 - background.value * usage.elapsed_ns as f64 - own as f64
    };
    let requests = usages.iter().map(|(_, requests, _)| *requests as f64).sum::<f64>();
    let elapsed_ns = usages.iter().map(|(usage, _, _)| usage.elapsed_ns as f64).sum::<f64>();
    if usages.is_empty() {
        return None;
    }
    let each: Vec<f64> =
        usages.iter().map(|(usage, requests, _)| net(usage) / *requests as f64).collect();
    let value = usages.iter().map(|(usage, _, _)| net(usage)).sum::<f64>() / requests;
    let of_background = (background.high - background.low) / 2.0 * elapsed_ns / requests;
    let of_ticks = TICK_NS as f64 * (usages.len() as f64).sqrt() / requests;
    let of_scatter = ERRORS * standard_error(&each);
    Some(Interval::symmetric(value, of_background.hypot(of_ticks).hypot(of_scatter)))
}

/// Records the server's CPU time per request for each point, and the fitted costs per request and
/// per KiB.
fn note_costs(evidence: &mut Evidence) {
    let background = background(evidence);
    let Some(background) = background.filter(|busy| !is_too_busy(evidence, *busy)) else { return };
    let is_client = is_client(evidence);
    let mut noted = Vec::new();
    for name in served_targets(evidence) {
        for rw in ["read", "write"] {
            let mut to_fit = Vec::new();
            let of_path = vec![("target", name.clone()), ("rw", rw.to_owned())];
            for point in of_direction(evidence, &name, rw) {
                let Some(cpu) = cpu_per_request(point, background, is_client) else { continue };
                let own = ["part", "bs", "iodepth"].map(|flag| (flag, point.word(flag)));
                let labels = [of_path.clone(), own.to_vec()].concat();
                noted.push(("server-cpu", "ns", labels, cpu));
                if point.part == ONE {
                    let relative_error = cpu.half_width_relative().min(1.0);
                    let (request_bytes, cpu_ns) = (point.bytes(), cpu.value);
                    to_fit.push(CostPoint { request_bytes, cpu_ns, relative_error });
                }
            }
            if let Ok(CostModel { fixed_ns, marginal_ns_per_kib, .. }) = costmodel::fit(&to_fit) {
                noted.push(("server-fixed", "ns", of_path.clone(), fixed_ns));
                noted.push(("server-marginal", "ns/KiB", of_path, marginal_ns_per_kib));
            }
        }
    }
    for (quantity, unit, labels, of) in noted {
        note_interval(evidence, quantity, unit, &labels, of);
    }
}

/// Records how many bytes the server's device and network moved for each byte that was read or
/// written, and the share of interrupts in the server's CPU time.
fn note_bytes(evidence: &mut Evidence) {
    let mut noted = Vec::new();
    for name in served_targets(evidence) {
        for rw in ["read", "write"] {
            let points = of_direction(evidence, &name, rw);
            let trials: Vec<_> = points.into_iter().flat_map(usages).collect();
            let bytes = trials.iter().map(|(_, _, bytes)| *bytes as f64).sum::<f64>();
            if bytes == 0.0 {
                continue;
            }
            let labels = |more: (&'static str, String)| {
                vec![("target", name.clone()), ("rw", rw.to_owned()), more]
            };
            let (mut devices, mut interfaces) = (BTreeMap::new(), BTreeMap::new());
            for (usage, _, _) in &trials {
                if let Some(device) = &usage.device {
                    let moved = if rw == "read" { device.read } else { device.written };
                    *devices.entry(&device.name).or_insert(0.0) += moved as f64;
                }
                for one in &usage.interfaces {
                    let moved = if rw == "read" { one.sent } else { one.received };
                    *interfaces.entry(&one.name).or_insert(0.0) += moved as f64;
                }
            }
            let unit = "bytes/byte";
            for (device, moved) in devices {
                let labels = labels(("device", device.clone()));
                noted.push(("server-device-bytes", unit, labels, moved / bytes));
            }
            // The same byte may pass several interfaces, such as a bridge and a network card, so
            // only the busiest interface counts.
            let busiest = interfaces.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
            if let Some((interface, moved)) = busiest {
                let labels = labels(("interface", interface.clone()));
                noted.push(("server-network-bytes", unit, labels, moved / bytes));
            }
            let sum = |of: fn(&ServerUsage) -> u64| {
                trials.iter().map(|(usage, _, _)| of(usage) as f64).sum::<f64>()
            };
            let share = sum(|usage| usage.interrupt_ns) / sum(|usage| usage.busy_ns).max(1.0);
            noted.push((
                "server-interrupts",
                "share",
                labels(("of", "busy time".to_owned())),
                share,
            ));
        }
    }
    for (quantity, unit, labels, value) in noted {
        evidence.note(quantity, unit, &labels, value);
    }
}

/// Setting of the server's own reads: request size (bytes), queue depth, and whether the offsets
/// are random.
type OwnReads = (u64, u32, bool);

/// Selects the reads of a target that are compared with the server's own reads: 64 KiB reads one at
/// a time, the fastest sequential reads, and the random reads with the greatest depth.
fn compared<'a>(evidence: &'a Evidence, name: &str) -> Vec<(OwnReads, &'a MeasuredPoint)> {
    let points = of_direction(evidence, name, "read");
    let is_random = |point: &&&MeasuredPoint| point.part == RANDOM;
    let large = points.iter().find(|point| point.part == ONE && point.bytes() == LARGE);
    let sequential = points.iter().filter(|point| !is_random(point));
    let fastest = sequential.max_by(|a, b| a.rate().total_cmp(&b.rate()));
    let random = points.iter().filter(is_random).max_by_key(|point| point.depth());
    let mut chosen: Vec<(OwnReads, &MeasuredPoint)> = Vec::new();
    for point in [large, fastest, random].into_iter().flatten() {
        let reads = (point.bytes(), point.depth(), point.part == RANDOM);
        if chosen.iter().all(|(other, _)| *other != reads) {
            chosen.push((reads, point));
        }
    }
    chosen
}

/// Makes the server read its file with the same settings as the client, first with direct I/O and
/// then through the server's cache. Records the rates.
fn alone(runner: &mut StudyRunner<'_>, watch: &ServerWatch, path: &str) {
    let milliseconds = if runner.quick { READ_TRIAL_MS.1 } else { READ_TRIAL_MS.0 };
    let mut noted = Vec::new();
    let mut known = BTreeMap::new();
    for name in served_targets(&runner.evidence) {
        for ((bytes, depth, random), point) in compared(&runner.evidence, &name) {
            for direct in [true, false] {
                let trial = ReadTrial {
                    path: path.to_owned(),
                    request_bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
                    depth,
                    random,
                    direct,
                    milliseconds,
                };
                let key = (bytes, depth, random, direct);
                let answer = known.entry(key).or_insert_with(|| watch.read_trial(&trial));
                let result = match answer {
                    Some(Ok(result)) if result.direct == direct => result,
                    // The server does not support direct I/O, so it read through its cache. The
                    // next trial measures such reads.
                    Some(Ok(_)) => continue,
                    Some(Err(why)) => {
                        let reason = format!("the server itself cannot read {path}: {why}");
                        return runner.leave_out(PART, &reason);
                    }
                    None => return,
                };
                let rate = result.bytes as f64 * 1e9 / result.elapsed_ns.max(1) as f64;
                let word = |is: bool, yes: &str, no: &str| if is { yes } else { no }.to_owned();
                let labels = vec![
                    ("target", name.clone()),
                    ("path", path.to_owned()),
                    ("rw", word(random, "randread", "read")),
                    ("bs", point.word("bs")),
                    ("iodepth", depth.to_string()),
                    ("caching", word(direct, "direct", "buffered")),
                    ("limited", word(result.limited, "yes", "no")),
                ];
                // If the peer limited the rate (--max-rate), the server could be faster, so the
                // share is unknown.
                let share = (!result.limited).then(|| point.rate() / rate.max(1.0));
                noted.extend(share.map(|it| ("server-delivered", "share", labels.clone(), it)));
                noted.push(("server-alone", "bytes/s", labels, rate));
            }
        }
    }
    for (quantity, unit, labels, value) in noted {
        runner.evidence.note(quantity, unit, &labels, value);
    }
}

/// Adds the findings about the server: its hardware, and what each network path costs the server.
pub fn conclude(found: &mut Conclusion, evidence: &Evidence) {
    let cpus = evidence.read("server-cpus", &[]);
    let Some(server) = cpus.first() else { return };
    let host = server.labels.get("host").map_or("", String::as_str);
    machine(found, evidence, server);
    let mut rows = Vec::new();
    for path in paths(evidence) {
        cost(found, evidence, host, path);
        bytes(found, evidence, path);
        rows.push(row(evidence, path));
    }
    own_reads(found, evidence);
    found.tables.extend(table(rows));
}

/// Returns each target and direction (read or write) for which the server's load was measured.
fn paths(evidence: &Evidence) -> Vec<(&str, &str)> {
    let mut paths = Vec::new();
    for reading in evidence.read("server-interrupts", &[]) {
        let label = |name: &str| reading.labels.get(name).map_or("", String::as_str);
        paths.push((label("target"), label("rw")));
    }
    paths
}

fn machine(found: &mut Conclusion, evidence: &Evidence, server: &Reading) {
    let label = |name: &str| server.labels.get(name).map_or("", String::as_str);
    let Some(busy) = background(evidence) else { return };
    let Interval { value, low, high } = busy;
    let [value, low, high] = [value, low, high].map(|cpus| format!("{:.2}", cpus.max(0.0)));
    let idle = format!("{value} ({low} to {high}) of the CPUs are busy while no trial runs");
    let (host, cpus, cpu) = (label("host"), server.value, label("cpu"));
    let text = if is_client(evidence) {
        format!(
            "server and client are one machine, {host} ({cpus} CPUs, {cpu}): {idle}; this \
             background load and the CPU time of this process are subtracted from the CPU time of \
             the server, but the interrupts of the client are not"
        )
    } else {
        format!(
            "the server is {host} ({cpus} CPUs, {cpu}): {idle}; this background load is subtracted \
             from the CPU time of the server"
        )
    };
    found.find("server", text);
}

fn cost(found: &mut Conclusion, evidence: &Evidence, host: &str, (name, rw): (&str, &str)) {
    let path = [("target", name), ("rw", rw)];
    let fitted =
        interval(evidence, "server-fixed", &path).zip(interval(evidence, "server-marginal", &path));
    let Some((fixed, marginal)) = fitted else {
        let busy = background(evidence).is_some_and(|busy| is_too_busy(evidence, busy));
        let why = if busy {
            "other work keeps the server too busy to measure the cost of a request; stop that work"
        } else {
            "the trials are too short to distinguish their CPU time on the server from its \
             background load; use a longer --runtime"
        };
        return found.find("server-cost", format!("{name}: {rw}s: {why}"));
    };
    let interrupts = evidence.value("server-interrupts", &path).unwrap_or_default();
    let less = if is_client(evidence) { " (without this process)" } else { "" };
    found.find(
        "server-cost",
        format!(
            "{name}: a {rw} costs the server {host}{less} {} of CPU plus {} per KiB; interrupts \
             are {:.0}% of the server's CPU time",
            words_of_time(fixed),
            words_of_time(marginal),
            100.0 * interrupts
        ),
    );
}

/// Returns the first reading of a quantity for a target and direction: the value of `label`, and
/// the number.
fn labelled<'a>(
    evidence: &'a Evidence,
    quantity: &str,
    (name, rw): (&str, &str),
    label: &str,
) -> Option<(&'a str, f64)> {
    let readings = evidence.read(quantity, &[("target", name), ("rw", rw)]);
    let reading = readings.first()?;
    Some((reading.labels.get(label)?, reading.value))
}

/// Reports the bytes that the server's network and device move for each byte that is read or
/// written. If nearly all bytes pass through the device, each byte crosses the server's bus twice:
/// between network and memory, and between memory and device (Chung 2000, section 9).
fn bytes(found: &mut Conclusion, evidence: &Evidence, path: (&str, &str)) {
    let (name, rw) = path;
    let Some((interface, network)) = labelled(evidence, "server-network-bytes", path, "interface")
    else {
        return;
    };
    let device = labelled(evidence, "server-device-bytes", path, "device");
    let reads = rw == "read";
    let (moves, sends) = if reads { ("reads", "sends") } else { ("writes", "receives") };
    let (from, on_device) = match device {
        None => {
            let unknown = "; the device below the folder of the peer is unknown".to_owned();
            (unknown, None)
        }
        Some((device, moved)) => {
            let side = if reads { "from" } else { "to" };
            (format!(" and {moves} {moved:.2} {side} {device}"), Some(moved))
        }
    };
    let sum = match on_device {
        Some(moved) if moved >= FROM_DEVICE => {
            format!(
                ": {:.2} bytes in total, so each byte crosses the server's bus twice (the sum rule \
                 of Chung 2000, section 9)",
                moved + network
            )
        }
        Some(moved) if reads => {
            let cached = 100.0 * (1.0 - moved).clamp(0.0, 1.0);
            format!(": the server's cache delivers {cached:.0}% of the data")
        }
        Some(_) => ": the server's cache still holds the rest when a trial ends".to_owned(),
        None => String::new(),
    };
    found.find(
        "server-bytes",
        format!(
            "{name}: for each byte of a {rw}, the server {sends} {network:.2} bytes on {interface}\
             {from}{sum}"
        ),
    );
}

/// Compares the client's reads with the server's own reads of the file, for each setting.
fn own_reads(found: &mut Conclusion, evidence: &Evidence) {
    let alone = evidence.read("server-alone", &[]);
    let mut said: Vec<String> = Vec::new();
    for first in &alone {
        let label = |name: &str| first.labels.get(name).map_or("", String::as_str);
        let order = if label("rw") == "randread" { "random " } else { "" };
        let (size, depth) = (label("bs"), label("iodepth"));
        let lead = format!("{}: {order}reads of {size} at depth {depth}", label("target"));
        if said.contains(&lead) {
            continue;
        }
        let setting = ["target", "rw", "bs", "iodepth"];
        let is_same = |one: &&&Reading| {
            setting.iter().all(|name| one.labels.get(*name) == first.labels.get(*name))
        };
        let ways: Vec<String> =
            alone.iter().filter(is_same).map(|one| own_read(evidence, one)).collect();
        let (path, ways) = (label("path"), ways.join(", "));
        let own = format!("compared with the server's own reads of {path}");
        found.find("server-alone", format!("{lead}, {own}: {ways}"));
        said.push(lead);
    }
}

/// Formats the ratio of the client's rate to the rate of the server's own reads.
fn own_read(evidence: &Evidence, alone: &Reading) -> String {
    let labels: Vec<(&str, &str)> =
        alone.labels.iter().map(|(name, word)| (&**name, &**word)).collect();
    let is_direct = alone.labels.get("caching").is_some_and(|caching| caching == "direct");
    let how = if is_direct { "with direct I/O" } else { "through the server's cache" };
    let rate = units::rate_mib(alone.value);
    match evidence.value("server-delivered", &labels) {
        Some(share) => format!("{} the server's rate {how} ({rate})", words_of_times(share)),
        None => format!(
            "unknown {how}, because --max-rate limits the peer to {rate} (raise --max-rate)"
        ),
    }
}

fn row(evidence: &Evidence, path: (&str, &str)) -> Vec<Cell> {
    let labels = [("target", path.0), ("rw", path.1)];
    let of = |quantity| {
        let found = interval(evidence, quantity, &labels);
        [found.map(|of| of.value), found.map(|of| of.low), found.map(|of| of.high)]
    };
    let (fixed, marginal) = (of("server-fixed"), of("server-marginal"));
    let one = |quantity| evidence.value(quantity, &labels);
    let others =
        [one("server-interrupts"), one("server-network-bytes"), one("server-device-bytes")];
    let names = [path.0, path.1].map(Cell::from);
    let numbers = fixed.into_iter().chain(marginal).chain(others).map(Cell::from);
    names.into_iter().chain(numbers).collect()
}

fn table(rows: Vec<Vec<Cell>>) -> Option<Table> {
    let columns = [
        ("Path", None),
        ("Direction", None),
        ("CPU per request", Some(Unit::Nanoseconds)),
        ("at least", Some(Unit::Nanoseconds)),
        ("at most", Some(Unit::Nanoseconds)),
        ("CPU per KiB", Some(Unit::Nanoseconds)),
        ("at least", Some(Unit::Nanoseconds)),
        ("at most", Some(Unit::Nanoseconds)),
        ("Share of interrupts", Some(Unit::Share)),
        ("Network bytes per byte", Some(Unit::Share)),
        ("Device bytes per byte", Some(Unit::Share)),
    ];
    (!rows.is_empty()).then(|| Table {
        id: "network-server".to_owned(),
        caption: "What each path costs the server, with 95% intervals".to_owned(),
        columns: columns
            .map(|(label, unit)| Column { label: label.to_owned(), unit })
            .into_iter()
            .collect(),
        rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::evidence::testing::{cell, evidence};
    use lab::peer::counters::{DeviceBytes, InterfaceBytes};

    const ELAPSED_NS: u64 = 1_000_000_000;

    /// Builds a point whose requests each cost the server 20 us of CPU time plus 2 us per KiB. In
    /// each trial, other programs use 0.5 CPUs of the server, and the client's process uses
    /// `client_ns` of the server's CPU time.
    fn point(bs: &str, client_ns: u64, device_share: f64) -> MeasuredPoint {
        let mut point = cell(256 << 20, &[("part", ONE), ("rw", "read"), ("bs", bs)]);
        let kib = (point.bytes() >> 10) as f64;
        for trial in &mut point.point.trials {
            let (requests, bytes) = (trial.requests() as f64, trial.bytes());
            let cost_ns = (20_000.0 + 2_000.0 * kib) * requests;
            let read = (bytes as f64 * device_share) as u64;
            trial.live_mut().server = Some(ServerUsage {
                elapsed_ns: ELAPSED_NS,
                busy_ns: cost_ns as u64 + ELAPSED_NS / 2 + client_ns,
                interrupt_ns: 0,
                device: Some(DeviceBytes { name: "vda".to_owned(), read, written: 0 }),
                interfaces: [("eth0", bytes), ("lo", 7)]
                    .map(|(name, sent)| InterfaceBytes { name: name.to_owned(), received: 0, sent })
                    .to_vec(),
                client_ns,
            });
        }
        point
    }

    fn concluded(is_client: &str, points: Vec<MeasuredPoint>) -> (Evidence, Conclusion) {
        let mut evidence = evidence(points);
        let labels = [("host", "srv".to_owned()), ("is-client", is_client.to_owned())];
        evidence.note("server-cpus", "count", &labels, 4.0);
        let busy = Interval::symmetric(0.5, 0.01);
        let when = [("when", "before".to_owned())];
        note_interval(&mut evidence, "server-background", "cpus", &when, busy);
        note_costs(&mut evidence);
        note_bytes(&mut evidence);
        let mut found = Conclusion::default();
        conclude(&mut found, &evidence);
        (evidence, found)
    }

    fn points(client_ns: u64, device_share: f64) -> Vec<MeasuredPoint> {
        ["4k", "64k", "1m"].map(|bs| point(bs, client_ns, device_share)).to_vec()
    }

    fn text(found: &Conclusion, id: &str) -> String {
        let texts = found.findings.iter().filter(|finding| finding.id == id);
        texts.map(|finding| finding.headline.clone()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_costs_of_a_request_and_a_kib_are_found_beside_the_background() {
        let (evidence, found) = concluded("no", points(0, 1.0));
        let path = [("target", "t"), ("rw", "read")];
        let fixed = interval(&evidence, "server-fixed", &path).unwrap();
        let marginal = interval(&evidence, "server-marginal", &path).unwrap();
        assert!(fixed.contains(20_000.0) && marginal.contains(2_000.0), "{fixed:?} {marginal:?}");
        assert!(text(&found, "server-cost").contains("costs the server srv 20 us ("));
        assert_eq!(found.tables[0].rows.len(), 1);
        assert_eq!(found.tables[0].rows[0].len(), found.tables[0].columns.len());
    }

    #[test]
    fn the_cpu_time_of_the_client_is_subtracted_on_one_machine_only_and_that_is_said() {
        let client_ns = 100_000_000;
        let cost = |is_client: &str| {
            let (evidence, found) = concluded(is_client, points(client_ns, 1.0));
            let labels = [("bs", "1 MiB")];
            (interval(&evidence, "server-cpu", &labels).unwrap().value, found)
        };
        let ((alone, found), (together, _)) = (cost("yes"), cost("no"));
        let true_ns = 20_000.0 + 2_000.0 * 1024.0;
        assert!((alone / true_ns - 1.0).abs() < 0.01, "{alone}");
        assert!(together > alone + client_ns as f64 / 300.0, "{together}");
        assert!(text(&found, "server").contains("CPU time of this process are subtracted"));
        assert!(text(&found, "server-cost").contains("without this process"));
    }

    #[test]
    fn a_byte_crosses_the_bus_twice_unless_the_cache_of_the_server_delivers_it() {
        let said = |share| text(&concluded("no", points(0, share)).1, "server-bytes");
        let twice = said(1.0);
        assert!(twice.contains("sends 1.00 bytes on eth0 and reads 1.00 from vda"), "{twice}");
        assert!(twice.contains("2.00 bytes in total") && twice.contains("twice"), "{twice}");
        let cached = said(0.25);
        assert!(cached.contains("the server's cache delivers 75%"), "{cached}");
    }

    #[test]
    fn trials_too_short_to_tell_the_server_from_its_background_have_no_cost() {
        let mut short = points(0, 1.0);
        for point in &mut short {
            for trial in &mut point.point.trials {
                let usage = trial.live_mut().server.as_mut().unwrap();
                usage.busy_ns = ELAPSED_NS / 4;
            }
        }
        let (_, found) = concluded("no", short);
        assert!(text(&found, "server-cost").contains("use a longer --runtime"));
    }

    #[test]
    fn a_server_that_is_busy_with_other_work_has_no_cost_and_the_reason_is_named() {
        let mut evidence = evidence(points(0, 1.0));
        let labels = [("host", "srv".to_owned()), ("is-client", "no".to_owned())];
        evidence.note("server-cpus", "count", &labels, 4.0);
        let (when, busy) = ([("when", "before".to_owned())], Interval::symmetric(3.0, 0.1));
        note_interval(&mut evidence, "server-background", "cpus", &when, busy);
        note_costs(&mut evidence);
        note_bytes(&mut evidence);
        assert!(evidence.read("server-cpu", &[]).is_empty());
        let mut found = Conclusion::default();
        conclude(&mut found, &evidence);
        assert!(text(&found, "server-cost").contains("stop that work"));
        assert!(text(&found, "server-bytes").contains("twice"), "bytes are still reported");
    }

    #[test]
    fn what_the_server_gets_itself_is_compared_with_what_the_client_gets() {
        let mut evidence = evidence(Vec::new());
        evidence.note("server-cpus", "count", &[("host", "srv".to_owned())], 4.0);
        let labels = |caching: &str| {
            let words = ["nbd://srv/", "disk", "read", "64 KiB", "1", caching];
            let names = ["target", "path", "rw", "bs", "iodepth", "caching"];
            let labels: Vec<(&str, String)> =
                names.into_iter().zip(words.map(str::to_owned)).collect();
            labels
        };
        evidence.note("server-alone", "bytes/s", &labels("direct"), 1e9);
        evidence.note("server-delivered", "share", &labels("direct"), 0.25);
        evidence.note("server-alone", "bytes/s", &labels("buffered"), 2e9);
        let mut found = Conclusion::default();
        conclude(&mut found, &evidence);
        let said = text(&found, "server-alone");
        assert!(
            said.contains("own reads of disk: 0.25 times the server's rate with direct I/O"),
            "{said}"
        );
        assert!(said.contains("unknown through the server's cache, because --max-rate"), "{said}");
        assert_eq!(said.lines().count(), 1, "each setting has only one finding");
    }

    #[test]
    fn a_background_that_changed_widens_its_interval() {
        let mut evidence = Evidence::default();
        for (when, value) in [("before", 0.1), ("after", 0.5)] {
            let (labels, busy) = ([("when", when.to_owned())], Interval::symmetric(value, 0.1));
            note_interval(&mut evidence, "server-background", "cpus", &labels, busy);
        }
        let both = background(&evidence).unwrap();
        assert!((both.value - 0.3).abs() < 1e-9 && both.contains(0.0) && both.contains(0.6));
    }

    #[test]
    fn a_local_file_beside_the_path_is_not_taken_for_a_file_of_the_server() {
        let mut all = points(0, 1.0);
        all[0].target = "/local".to_owned();
        let usage = |trial: &mut lab::point::Trial| {
            trial.live_mut().server.as_mut().unwrap().interfaces.truncate(0);
        };
        all[0].point.trials.iter_mut().for_each(usage);
        assert_eq!(served_targets(&evidence(all)), ["t"]);
    }

    #[test]
    fn without_a_peer_nothing_is_said_of_the_server() {
        let mut found = Conclusion::default();
        conclude(&mut found, &evidence(points(0, 1.0)));
        assert!(found.findings.is_empty() && found.tables.is_empty());
    }
}
