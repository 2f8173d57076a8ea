//! A fictitious survey of a virtual disk.
//!
//! Simple formulas compute the points. The half-power points, the key figures, the findings, the
//! advice and the rates of the components are computed from the points, so text and charts agree.
//! Nothing is measured, and the result is the same on every machine.

use report::model::{Advice, Finding, KeyFigure, State, Tone, Verdict};
use report::units::{bytes, count, nanoseconds, percent, rate};
use report::view::{
    CostModelView, DistributionView, Estimate, HalfPowerView, LadderView, PapView, Pattern,
    PointView, ResidualView, RungView, SurveyView, TimeSeriesView,
};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// Advertised rate of the link: PCIe 3.0 x4 (bytes per second).
const LINK: f64 = 3.9e9;
/// Rate of the device according to its data sheet (bytes per second).
const DEVICE: f64 = 3.7e9;
/// Asymptotic rate of reads in the model (bytes per second).
const TOP_READ: f64 = 3.65e9;
/// Asymptotic rate of writes in the model (bytes per second).
const TOP_WRITE: f64 = 2.1e9;

/// Returns the fixed CPU cost per request (ns) and the marginal CPU cost (ns per byte) of the
/// model.
fn cpu_cost(operation: &str, caching: &str) -> (f64, f64) {
    let (fixed, per_byte) = if caching == "buffered" { (1_900.0, 0.29) } else { (2_900.0, 0.0085) };
    let factor = if operation == "write" { 1.25 } else { 1.0 };
    (fixed * factor, per_byte * factor)
}

/// Builds the fictitious survey.
pub fn made_up() -> SurveyView {
    let points = points();
    SurveyView {
        target: "/var/lib/postgresql (ext4 on vda)".to_string(),
        host: "db-7, AMD EPYC 9354P, Linux 6.12".to_string(),
        date: "21 November 2026, 14:05 UTC".to_string(),
        verdict: Verdict {
            state: State::Suspect,
            reasons: vec![
                "Writes at depth 32 slowed down by 7%, because the cache of the device filled up."
                    .to_string(),
            ],
            in_doubt: Some("4 of 61 points are suspect".to_string()),
        },
        key_figures: key_figures(&points),
        findings: findings(&points),
        advice: advice(&points),
        rules_without_experiment: texts(&[
            "Stripe over several drives until the bus is saturated",
            "Preallocate files before writing them",
        ]),
        pap: vec![pap("read", LINK, "PCIe 3.0 x4"), pap("write", 2.2e9, "stated")],
        half_power: half_powers(&points),
        cost_models: cost_models(&points),
        distributions: distributions(&points),
        time_series: time_series(&points),
        ladder: Some(ladder(&points)),
        instrument: pairs(&[
            ("Null I/O engine, full statistics", "31 ns per request"),
            ("Share of one CPU at the highest rate", "4.2%"),
            ("Effect of the soaker", "+1.8% throughput, \u{2212}6% CPU per request"),
        ]),
        provenance: provenance(),
        points,
    }
}

fn pap(operation: &str, bytes_per_s: f64, source: &str) -> PapView {
    PapView { operation: operation.to_string(), bytes_per_s, source: source.to_string() }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

/// Returns the throughput of requests of `size` bytes at the queue depth `depth` (bytes per
/// second). In the model, a request needs a fixed time plus a time per byte.
fn modelled_rate(size: f64, depth: f64, fixed_ns: f64, top: f64) -> f64 {
    let alone = size / (fixed_ns * 1e-9 + size / top * 1.4);
    let offered = alone * depth;
    top * offered / (top.powi(3) + offered.powi(3)).cbrt()
}

/// Returns a reproducible factor close to 1 that imitates measurement noise.
fn variation(index: usize) -> f64 {
    let phase = (index as f64 * 12.9898).sin() * 43_758.547;
    1.0 + 0.03 * (phase - phase.floor() - 0.5)
}

fn points() -> Vec<PointView> {
    let mut points = Vec::new();
    for (operation, top) in [("read", TOP_READ), ("write", TOP_WRITE)] {
        for (caching, depths) in [("direct", &[1u32, 4, 8, 32][..]), ("buffered", &[1][..])] {
            for depth in depths {
                for exponent in 9..=24 {
                    let size = 1u64 << exponent;
                    points.push(point(Pattern::Sequential, operation, caching, size, *depth, top));
                }
            }
        }
        for depth in [1, 2, 4, 8, 16, 32, 64, 128] {
            points.push(point(Pattern::Random, operation, "direct", 8192, depth, top * 0.22));
        }
    }
    for (index, point) in points.iter_mut().enumerate() {
        let (factor, cpu_factor) = (variation(index), 1.0 + (variation(index + 1000) - 1.0) * 2.5);
        point.throughput_bytes_per_s = scaled(point.throughput_bytes_per_s, factor);
        point.requests_per_s = scaled(point.requests_per_s, factor);
        for cpu in [&mut point.cpu_lower_ns_per_request, &mut point.cpu_upper_ns_per_request] {
            *cpu = cpu.map(|ns| ns * cpu_factor);
        }
    }
    points
}

fn scaled(estimate: Estimate, factor: f64) -> Estimate {
    let Estimate { value, low, high } = estimate;
    Estimate { value: value * factor, low: low * factor, high: high * factor }
}

fn point(
    pattern: Pattern,
    operation: &str,
    caching: &str,
    request_bytes: u64,
    depth: u32,
    top: f64,
) -> PointView {
    let size = request_bytes as f64;
    let buffered = caching == "buffered";
    let (fixed, top) = if buffered { (4_000.0, top * 0.33) } else { (52_000.0, top) };
    let rate = modelled_rate(size, f64::from(depth), fixed, top);
    let latency = f64::from(depth) * size / rate * 1e9;
    let (fixed_ns, ns_per_byte) = cpu_cost(operation, caching);
    let cpu = fixed_ns + size * ns_per_byte;
    let estimate = |value: f64| Estimate { value, low: value * 0.965, high: value * 1.03 };
    PointView {
        pattern,
        operation: operation.to_string(),
        caching: caching.to_string(),
        request_bytes,
        depth,
        threads: 1,
        throughput_bytes_per_s: estimate(rate),
        requests_per_s: estimate(rate / size),
        latency_p50_ns: Some(latency * 0.94),
        latency_p99_ns: Some(latency * (1.7 + f64::from(depth).ln() * 0.25)),
        latency_p99_9_ns: Some(latency * 4.2),
        cpu_lower_ns_per_request: Some(cpu),
        cpu_upper_ns_per_request: Some(cpu * 1.22 + 600.0),
        trials: 5,
        state: if operation == "write" && depth == 32 { State::Suspect } else { State::Valid },
    }
}

fn find<'a>(
    points: &'a [PointView],
    pattern: Pattern,
    (operation, caching): (&str, &str),
    request_bytes: u64,
    depth: u32,
) -> &'a PointView {
    let wanted = |point: &&PointView| {
        point.pattern == pattern
            && point.operation == operation
            && point.caching == caching
            && point.request_bytes == request_bytes
            && point.depth == depth
    };
    points.iter().find(wanted).expect("the demo survey has this point")
}

fn read<'a>(points: &'a [PointView], caching: &str, size: u64, depth: u32) -> &'a PointView {
    find(points, Pattern::Sequential, ("read", caching), size, depth)
}

fn random(points: &[PointView], depth: u32) -> &PointView {
    find(points, Pattern::Random, ("read", "direct"), 8 * KIB, depth)
}

fn throughput(point: &PointView) -> f64 {
    point.throughput_bytes_per_s.value
}

/// Formats the throughput in MiB/s only, because large type has no room for a second unit.
fn mib_per_s(point: &PointView) -> String {
    rate(throughput(point)).split(" (").next().unwrap_or_default().to_string()
}

fn ns(value: Option<f64>) -> String {
    nanoseconds(value.expect("every point of the demo survey has latencies"))
}

fn cpu_per_mib(point: &PointView) -> f64 {
    let per_request = point.cpu_lower_ns_per_request.expect("every point has a CPU time");
    per_request * MIB as f64 / point.request_bytes as f64
}

fn label(point: &PointView) -> String {
    let size = bytes(point.request_bytes as f64);
    format!("{}, {size}, depth {}", point.caching, point.depth)
}

fn out_of_box(points: &[PointView]) -> &PointView {
    read(points, "buffered", 128 * KIB, 1)
}

/// Returns the sequential read with the highest rate.
fn best(points: &[PointView]) -> &PointView {
    let reads = points
        .iter()
        .filter(|point| point.pattern == Pattern::Sequential && point.operation == "read");
    reads.max_by(|a, b| throughput(a).total_cmp(&throughput(b))).expect("the survey has reads")
}

fn key_figures(points: &[PointView]) -> Vec<KeyFigure> {
    let figure = |label: &str, value: String, note: String| KeyFigure {
        label: label.to_string(),
        value,
        note,
    };
    let (slow, fast, busy) = (out_of_box(points), best(points), random(points, 64));
    let [direct, buffered] = ["direct", "buffered"].map(|name| read(points, name, MIB, 1));
    let half = half_power(points, "read", "direct", 8);
    vec![
        figure("Default read", mib_per_s(slow), label(slow)),
        figure("Best found, read", mib_per_s(fast), label(fast)),
        figure("Half-power point", size_of(&half), "direct reads, depth 8".to_string()),
        figure(
            "Random 8 KiB reads",
            format!("{}/s", count(busy.requests_per_s.value)),
            format!("depth 64, p99 {}", ns(busy.latency_p99_ns)),
        ),
        figure(
            "CPU per MiB, read",
            nanoseconds(cpu_per_mib(direct)),
            format!("direct; buffered {}", nanoseconds(cpu_per_mib(buffered))),
        ),
        figure(
            "Bottleneck",
            "Device".to_string(),
            format!("{} of its data sheet", percent(throughput(fast) / DEVICE)),
        ),
    ]
}

fn size_of(half: &HalfPowerView) -> String {
    half.measured_bytes.map_or("never".to_string(), |size| bytes(size as f64))
}

fn findings(points: &[PointView]) -> Vec<Finding> {
    let finding = |tone, headline: String, detail: String| Finding {
        id: String::new(),
        headline,
        detail,
        tone,
    };
    let (slow, fast) = (out_of_box(points), best(points));
    let [alone, busy, late] = [1, 16, 128].map(|depth| random(points, depth));
    let Estimate { value, low, high } = fast.throughput_bytes_per_s;
    let [deep, single] = [8, 1].map(|depth| half_power(points, "read", "direct", depth));
    let per_mib = ["buffered", "direct"].map(|name| cpu_per_mib(read(points, name, MIB, 1)));
    vec![
        finding(
            Tone::Good,
            format!("Reads reach {} of the link rate ({}).", percent(value / LINK), label(fast)),
            format!("{}, 95% interval {} to {}.", rate(value), rate(low), rate(high)),
        ),
        finding(
            Tone::Warn,
            format!(
                "By default, reads reach {} of the best rate.",
                percent(throughput(slow) / value)
            ),
            "Buffered reads stay below half of the advertised rate at every size.".to_string(),
        ),
        finding(
            Tone::Note,
            format!("The half-power point of direct reads at depth 8 is {}.", size_of(&deep)),
            format!("At depth 1: {}.", size_of(&single)),
        ),
        finding(
            Tone::Note,
            format!(
                "Buffered reads use {:.0} times as much CPU time per MiB as direct reads.",
                per_mib[0] / per_mib[1]
            ),
            format!(
                "Buffered reads use {} per MiB, including the copy; direct reads use {} per MiB.",
                nanoseconds(per_mib[0]),
                nanoseconds(per_mib[1])
            ),
        ),
        finding(
            Tone::Note,
            "Above depth 16, more depth only adds latency to random reads.".to_string(),
            format!(
                "{}/s at depth 1, {}/s at 16, {}/s at 128; p99 from {} to {}.",
                count(alone.requests_per_s.value),
                count(busy.requests_per_s.value),
                count(late.requests_per_s.value),
                ns(busy.latency_p99_ns),
                ns(late.latency_p99_ns)
            ),
        ),
    ]
}

fn advice(points: &[PointView]) -> Vec<Advice> {
    let faster = |id: &str, text: &str, how: &str, from: &PointView, to: &PointView| Advice {
        id: id.to_string(),
        text: text.to_string(),
        gain: format!("{:.1} times the throughput", throughput(to) / throughput(from)),
        how: how.to_string(),
        evidence: format!(
            "{}: {}; {}: {}.",
            label(from),
            mib_per_s(from),
            label(to),
            mib_per_s(to)
        ),
    };
    let direct = |size, depth| read(points, "direct", size, depth);
    let [buffered_cpu, direct_cpu] =
        ["buffered", "direct"].map(|name| cpu_per_mib(read(points, name, MIB, 1)));
    vec![
        faster(
            "larger-requests",
            "Read in requests of 1 MiB instead of 16 KiB.",
            "--bs 1m",
            direct(16 * KIB, 1),
            direct(MIB, 1),
        ),
        faster(
            "depth",
            "Keep eight requests outstanding.",
            "--iodepth 8 --ioengine io_uring",
            direct(64 * KIB, 1),
            direct(64 * KIB, 8),
        ),
        Advice {
            id: "direct-large".to_string(),
            text: "Use direct access for large requests.".to_string(),
            gain: format!("{:.0} times less CPU", buffered_cpu / direct_cpu),
            how: "O_DIRECT, buffers aligned to 512 bytes".to_string(),
            evidence: format!(
                "CPU per MiB falls from {} to {}.",
                nanoseconds(buffered_cpu),
                nanoseconds(direct_cpu)
            ),
        },
    ]
}

/// Returns the half-power point of one curve.
fn half_power(points: &[PointView], operation: &str, caching: &str, depth: u32) -> HalfPowerView {
    let pap = if operation == "read" { LINK } else { 2.2e9 };
    let curve: Vec<_> = points
        .iter()
        .filter(|point| point.pattern == Pattern::Sequential && point.operation == operation)
        .filter(|point| point.caching == caching && point.depth == depth)
        .collect();
    let passed = curve.windows(2).find(|pair| throughput(pair[1]) > pap / 2.0);
    // For simplicity, the fitted half-power point is interpolated linearly between the two
    // neighbouring points.
    let crossing = passed.map(|pair| {
        let [below, above] = [pair[0], pair[1]].map(throughput);
        let along = (pap / 2.0 - below) / (above - below);
        pair[0].request_bytes as f64 * (1.0 + along)
    });
    let top = curve.iter().map(|point| throughput(point)).fold(0.0, f64::max);
    let never = || format!("never above {} of PAP", percent(top / pap));
    HalfPowerView {
        operation: operation.to_string(),
        caching: caching.to_string(),
        depth,
        measured_bytes: passed.map(|pair| pair[1].request_bytes),
        fitted_bytes: crossing,
        throughput_bytes_per_s: passed.map(|pair| throughput(pair[1])),
        remark: passed.map_or_else(never, |_| String::new()),
    }
}

fn half_powers(points: &[PointView]) -> Vec<HalfPowerView> {
    let curves = [("direct", 1), ("direct", 8), ("direct", 32), ("buffered", 1)];
    let of =
        |operation| curves.map(|(caching, depth)| half_power(points, operation, caching, depth));
    of("read").into_iter().chain(of("write")).collect()
}

fn cost_models(points: &[PointView]) -> Vec<CostModelView> {
    let model = |operation: &str, caching: &str| {
        let (fixed, per_byte) = cpu_cost(operation, caching);
        let residual = |exponent: u32| {
            let size = 1u64 << exponent;
            let point = find(points, Pattern::Sequential, (operation, caching), size, 1);
            ResidualView {
                request_bytes: size,
                measured_ns: point.cpu_lower_ns_per_request.unwrap_or(f64::NAN),
                fitted_ns: fixed + per_byte * size as f64,
            }
        };
        let estimate = |value: f64| Estimate { value, low: value * 0.93, high: value * 1.07 };
        CostModelView {
            operation: operation.to_string(),
            caching: caching.to_string(),
            fixed_ns: estimate(fixed),
            marginal_ns_per_kib: estimate(per_byte * 1024.0),
            r2: 0.997,
            residuals: (9..=24).map(residual).collect(),
        }
    };
    vec![model("read", "direct"), model("read", "buffered"), model("write", "direct")]
}

fn distributions(points: &[PointView]) -> Vec<DistributionView> {
    let distribution = |name: &str, point: &PointView| {
        let [typical, p99] = [point.latency_p50_ns, point.latency_p99_ns]
            .map(|quantile| quantile.expect("every point has a median and a p99"));
        // The distribution is a logistic curve over the logarithm of latency. It passes through the
        // median and the p99.
        let spread = (p99 / typical).ln() / (0.99f64 / 0.01).ln();
        let step = |index: i32| {
            let z = f64::from(index) / 20.0;
            (typical * (spread * z).exp(), 1.0 / (1.0 + (-z).exp()))
        };
        let last = (typical * (spread * 12.0).exp(), 1.0);
        let cumulative = (-120..=230).map(step).chain([last]).collect();
        DistributionView { name: name.to_string(), cumulative, requests: 200_000 }
    };
    vec![
        distribution("random 8 KiB read, depth 1", random(points, 1)),
        distribution("random 8 KiB read, depth 32", random(points, 32)),
        distribution("1 MiB direct read, depth 8", read(points, "direct", MIB, 8)),
    ]
}

fn time_series(points: &[PointView]) -> Vec<TimeSeriesView> {
    let series = |name: &str, point: &PointView, drift: f64, salt: usize| {
        let sample = |index: usize| {
            let seconds = (index + 1) as f64 * 0.05;
            let warm = 1.0 - (-seconds * 40.0).exp();
            (seconds, throughput(point) * warm * (1.0 - drift * seconds) * variation(index + salt))
        };
        TimeSeriesView { name: name.to_string(), samples: (0..80).map(sample).collect() }
    };
    let write = find(points, Pattern::Sequential, ("write", "direct"), MIB, 32);
    vec![
        series("1 MiB direct read, depth 8", read(points, "direct", MIB, 8), 0.002, 0),
        series("1 MiB direct write, depth 32", write, 0.018, 500),
        series("128 KiB buffered read", out_of_box(points), 0.0, 900),
    ]
}

fn ladder(points: &[PointView]) -> LadderView {
    let rung = |component: &str, pap, rap, binding| RungView {
        component: component.to_string(),
        pap_bytes_per_s: pap,
        rap_bytes_per_s: rap,
        binding,
    };
    let (device, system) = (throughput(best(points)), throughput(out_of_box(points)));
    LadderView {
        rungs: vec![
            rung("Memory copy", None, Some(9.8e9), false),
            rung("Link, PCIe 3.0 x4", Some(LINK), None, false),
            rung("Device, direct", Some(DEVICE), Some(device), true),
            rung("File system, buffered", None, Some(system), false),
        ],
        conclusion: format!(
            "The device is the bottleneck: direct reads deliver {} of its data sheet rate, and \
             neither more depth nor larger requests increase it.",
            percent(device / DEVICE)
        ),
    }
}

fn provenance() -> Vec<(String, Vec<(String, String)>)> {
    let group = |name: &str, facts: &[(&str, &str)]| (name.to_string(), pairs(facts));
    vec![
        group(
            "Host",
            &[
                ("Kernel", "6.12.8-amd64"),
                ("CPU", "AMD EPYC 9354P, 4 CPUs visible"),
                ("Governor", "performance"),
                ("Memory", "15.6 GiB"),
            ],
        ),
        group(
            "Target",
            &[
                ("File system", "ext4, rw,relatime"),
                ("Device", "vda, virtio, 512 B sectors"),
                ("Scheduler", "none"),
                ("Write cache", "write back"),
            ],
        ),
        group(
            "Run",
            &[
                ("Version", "halfpower 0.1.0"),
                ("Seed", "42"),
                ("Budget", "90 s"),
                ("Written", "9.4 GiB"),
                ("Buffers", "huge pages, registered"),
            ],
        ),
    ]
}
