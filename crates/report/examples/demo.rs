//! Prints a report made from invented but plausible numbers: a virtual disk with a queue, a
//! request cost and a top rate. Useful for looking at the page while working on it:
//! `cargo run --package halfpower-report --example demo > demo.html`.

// An example is a program of its own; its standard output is its product.
#![allow(clippy::print_stdout)]

use report::model::{Advice, Finding, KeyFigure, State, Tone, Verdict};
use report::view::{
    CostModelView, DistributionView, Estimate, HalfPowerView, LadderView, PapView, Pattern,
    PointView, ResidualView, RungView, SurveyView, TimeSeriesView,
};

const MIB: f64 = 1024.0 * 1024.0;

fn main() {
    print!("{}", report::render(&report::survey_page(&view())));
}

fn view() -> SurveyView {
    SurveyView {
        target: "/var/lib/postgresql (ext4 on vda)".to_string(),
        host: "db-7, AMD EPYC 9354P, Linux 6.12".to_string(),
        date: "21 November 2026, 14:05 UTC".to_string(),
        verdict: Verdict {
            state: State::Suspect,
            reasons: vec![
                "Write points drifted by 7% during the survey: the device slowed as its cache \
                 filled."
                    .to_string(),
            ],
        },
        key_figures: key_figures(),
        findings: findings(),
        advice: advice(),
        rules_without_experiment: texts(&[
            "stripe-width: stripe over as many drives as the bus can carry",
            "dma-over-pio: use DMA, never programmed transfers",
        ]),
        points: points(),
        pap: vec![
            PapView {
                operation: "read".to_string(),
                bytes_per_s: 3.9e9,
                source: "PCIe 3.0 x4".to_string(),
            },
            PapView {
                operation: "write".to_string(),
                bytes_per_s: 2.2e9,
                source: "highest plateau".to_string(),
            },
        ],
        half_power: half_power(),
        cost_models: cost_models(),
        distributions: distributions(),
        time_series: time_series(),
        ladder: Some(ladder()),
        instrument: pairs(&[
            ("Null personality, full statistics", "31 ns per request"),
            ("Share of one CPU at the highest rate", "4.2%"),
            ("Soaker's own disturbance", "+1.8% throughput, \u{2212}6% CPU per request"),
        ]),
        provenance: provenance(),
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

fn key_figures() -> Vec<KeyFigure> {
    let figure = |label: &str, value: &str, note: &str| KeyFigure {
        label: label.to_string(),
        value: value.to_string(),
        note: note.to_string(),
    };
    vec![
        figure("Out of the box, read", "1,190 MiB/s", "buffered, 128 KiB, depth 1"),
        figure("Best found, read", "3,430 MiB/s", "direct, 1 MiB, depth 8"),
        figure("Half power from", "128 KiB", "direct, depth 8"),
        figure("Random 8 KiB reads", "92.4k/s", "depth 64, p99 1.10 ms"),
        figure("CPU per MiB, read", "11.8 \u{b5}s", "direct; buffered 312 \u{b5}s"),
        figure("Bottleneck", "Device", "88% of the link"),
    ]
}

fn findings() -> Vec<Finding> {
    let finding = |tone, headline: &str, detail: &str| Finding {
        headline: headline.to_string(),
        detail: detail.to_string(),
        tone,
    };
    vec![
        finding(
            Tone::Good,
            "Reads reach 92% of the link with 1 MiB direct requests at depth 8.",
            "3,430 MiB/s (3,597 MB/s), 95% interval 3,380 to 3,466, 9 trials.",
        ),
        finding(
            Tone::Warn,
            "Out of the box, reads get only a third of that.",
            "Buffered 128 KiB reads stay below PAP/2 at every size.",
        ),
        finding(
            Tone::Note,
            "Direct reads pass the half-power point at 128 KiB.",
            "By the fit at 103 KiB; depth 1 needs 512 KiB.",
        ),
        finding(
            Tone::Note,
            "Buffering costs 26 times the CPU of direct access per MiB.",
            "312 \u{b5}s against 11.8 \u{b5}s, copying included.",
        ),
        finding(
            Tone::Note,
            "Past depth 32 random reads only wait longer.",
            "Throughput +4%, p99 from 0.61 to 1.10 ms.",
        ),
    ]
}

fn advice() -> Vec<Advice> {
    let advice = |id: &str, text: &str, gain: &str, how: &str, evidence: &str| Advice {
        id: id.to_string(),
        text: text.to_string(),
        gain: gain.to_string(),
        how: how.to_string(),
        evidence: evidence.to_string(),
    };
    vec![
        advice(
            "larger-requests",
            "Read in requests of 1 MiB instead of 128 KiB.",
            "2.9x throughput",
            "--bs 1m",
            "Direct, depth 8: 3,430 against 1,190 MiB/s.",
        ),
        advice(
            "depth",
            "Keep eight requests outstanding.",
            "1.6x throughput",
            "--iodepth 8 --ioengine io_uring",
            "Depth 1: 2,140 MiB/s. Depth 32 adds nothing.",
        ),
        advice(
            "direct-large",
            "Use direct access for requests of 64 KiB and more.",
            "1/26 of the CPU",
            "O_DIRECT, buffers aligned to 512 bytes",
            "CPU per MiB falls from 312 to 11.8 \u{b5}s.",
        ),
        advice(
            "preallocate",
            "Preallocate files before writing them.",
            "1.3x throughput",
            "write once, then overwrite; fallocate alone is not enough",
            "Extending 1,410, preallocated 1,830 MiB/s.",
        ),
    ]
}

/// The rate of a device with a fixed time and a time per byte, shared by `depth` requests.
fn modelled_rate(size: f64, depth: f64, fixed_ns: f64, top: f64) -> f64 {
    let alone = size / (fixed_ns * 1e-9 + size / top * 1.4);
    let offered = alone * depth;
    top * offered / (top.powi(3) + offered.powi(3)).cbrt()
}

/// A small reproducible wobble around one.
fn wobble(index: usize) -> f64 {
    let phase = (index as f64 * 12.9898).sin() * 43_758.547;
    1.0 + 0.03 * (phase - phase.floor() - 0.5)
}

fn points() -> Vec<PointView> {
    let mut points = Vec::new();
    for (operation, top) in [("read", 3.65e9), ("write", 2.1e9)] {
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
        let factor = wobble(index);
        point.throughput_bytes_per_s = scaled(point.throughput_bytes_per_s, factor);
        point.requests_per_s = scaled(point.requests_per_s, factor);
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
    let cpu = if buffered { 1_900.0 + size * 0.29 } else { 2_900.0 + size * 0.0085 };
    let cpu = if operation == "write" { cpu * 1.25 } else { cpu };
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

fn half_power() -> Vec<HalfPowerView> {
    let row = |operation: &str, caching: &str, depth, measured, fitted, rate, remark: &str| {
        HalfPowerView {
            operation: operation.to_string(),
            caching: caching.to_string(),
            depth,
            measured_bytes: measured,
            fitted_bytes: fitted,
            throughput_bytes_per_s: rate,
            remark: remark.to_string(),
        }
    };
    vec![
        row("read", "direct", 1, Some(524_288), Some(388_000.0), Some(2.1e9), ""),
        row("read", "direct", 8, Some(65_536), Some(53_400.0), Some(2.4e9), ""),
        row("read", "buffered", 1, None, None, None, "never above 31% of PAP"),
        row("write", "direct", 8, Some(32_768), Some(29_700.0), Some(1.3e9), ""),
    ]
}

fn cost_models() -> Vec<CostModelView> {
    let model = |operation: &str, caching: &str, fixed: f64, per_byte: f64, salt: usize| {
        let residual = |exponent: u32| {
            let size = f64::from(1u32 << exponent);
            let fitted_ns = fixed + per_byte * size;
            let measured_ns =
                fitted_ns * (1.0 + (wobble(exponent as usize * 7 + salt) - 1.0) * 2.5);
            ResidualView { request_bytes: 1 << exponent, measured_ns, fitted_ns }
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
    vec![
        model("read", "direct", 2_900.0, 0.0085, 1),
        model("read", "buffered", 1_900.0, 0.29, 200),
        model("write", "direct", 3_300.0, 0.0102, 300),
    ]
}

fn distributions() -> Vec<DistributionView> {
    let distribution = |name: &str, typical_ns: f64, spread: f64| {
        let step = |index: i32| {
            let z = f64::from(index) / 40.0;
            let share = 1.0 / (1.0 + (-1.702 * z).exp());
            (typical_ns * (spread * z + 0.06 * z.max(0.0).powi(2)).exp(), share)
        };
        let cumulative = (-120..=320).map(step).chain([(typical_ns * 40.0, 1.0)]).collect();
        DistributionView { name: name.to_string(), cumulative }
    };
    vec![
        distribution("random 8 KiB read, depth 1", 82e3, 0.12),
        distribution("random 8 KiB read, depth 32", 350e3, 0.22),
        distribution("1 MiB direct read, depth 8", 2.3e6, 0.10),
    ]
}

fn time_series() -> Vec<TimeSeriesView> {
    let series = |name: &str, top: f64, drift: f64, salt: usize| {
        let sample = |index: usize| {
            let seconds = (index + 1) as f64 * 0.05;
            let warm = 1.0 - (-seconds * 6.0).exp();
            (seconds, top * warm * (1.0 - drift * seconds) * wobble(index + salt))
        };
        TimeSeriesView { name: name.to_string(), samples: (0..80).map(sample).collect() }
    };
    vec![
        series("1 MiB direct read, depth 8", 3.6e9, 0.002, 0),
        series("1 MiB direct write, depth 8", 2.1e9, 0.035, 500),
        series("128 KiB buffered read", 1.2e9, 0.0, 900),
    ]
}

fn ladder() -> LadderView {
    let rung = |component: &str, pap, rap, binding| RungView {
        component: component.to_string(),
        pap_bytes_per_s: pap,
        rap_bytes_per_s: rap,
        binding,
    };
    LadderView {
        rungs: vec![
            rung("Memory copy", None, Some(9.8e9), false),
            rung("Link, PCIe 3.0 x4", Some(3.9e9), None, false),
            rung("Device, direct", Some(3.5e9), Some(3.43e9 * 1.0485), true),
            rung("File system, buffered", None, Some(1190.0 * MIB), false),
        ],
        conclusion: "The device binds: direct reads deliver 98% of its advertised rate, and \
                     neither more depth nor larger requests add to it."
            .to_string(),
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
