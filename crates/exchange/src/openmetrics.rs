//! Exports stored points as Prometheus metrics (OpenMetrics 1.0), for example for the textfile
//! collector of node_exporter.
//!
//! Each point becomes a set of gauges and a latency summary, with the workload as labels. The units
//! are bytes and seconds, as the standard requires.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::path::Path;

use analysis::units;
use lab::machine::{Host, TargetFacts};
use lab::point::Point;
use lab::point_key::PointKey;

const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// A stored run to export.
#[derive(Debug)]
pub struct Run {
    /// Label of the run. None if the run has no label.
    pub label: Option<String>,
    /// Start of the run (ns since 1970).
    pub started_unix_ns: i64,
    /// The host of the run.
    pub host: Host,
    /// The target of the run.
    pub target: TargetFacts,
    /// The points of the run.
    pub points: Vec<Point>,
}

/// A gauge: its name, its help text, and the function that computes its value.
type Gauge = (&'static str, &'static str, fn(&Run, &Point) -> Option<f64>);

const GAUGES: [Gauge; 6] = [
    ("halfpower_throughput_bytes_per_second", "Median throughput of the trials.", |_, point| {
        Some(point.bytes_per_s().value)
    }),
    ("halfpower_requests_per_second", "Median rate of requests.", |_, point| {
        Some(point.summary().requests_per_s.value)
    }),
    ("halfpower_cpu_seconds_per_request", "CPU time of the process per request.", |_, point| {
        point.cpu_lower_ns().filter(|ns| *ns > 0.0).map(|ns| ns / 1e9)
    }),
    ("halfpower_trials", "Number of trials that the medians are computed from.", |_, point| {
        Some(point.unsoaked().len() as f64)
    }),
    ("halfpower_valid", "Whether the result is valid (1) or not (0).", |_, point| {
        Some(f64::from(u8::from(point.summary().verdict.state == lab::point::State::Valid)))
    }),
    ("halfpower_start_timestamp_seconds", "Start of the run (seconds since 1970).", |run, _| {
        Some(run.started_unix_ns as f64 / 1e9)
    }),
];

/// Formats the points of runs as metrics. If points of several runs have the same labels, only the
/// points of the first of these runs are written, so pass the newest run first.
pub fn text(runs: &[Run]) -> String {
    let mut points: Vec<(String, &Run, &Point)> = Vec::new();
    let mut known = HashSet::new();
    for run in runs {
        let mut of_run: HashMap<String, u32> = HashMap::new();
        for point in run.points.iter().filter(|point| !point.trials.is_empty()) {
            let mut labels = labels(run, &point.key);
            // Some settings have no label. If points of a run differ only in such settings, a
            // number makes their labels unique.
            let count = of_run.entry(labels.clone()).or_insert(0);
            *count += 1;
            if *count > 1 {
                let _ = write!(labels, ",point=\"{count}\"");
            }
            if known.insert(labels.clone()) {
                points.push((labels, run, point));
            }
        }
    }
    let mut text = String::new();
    for (name, help, value) in GAUGES {
        head(&mut text, name, "gauge", help);
        for (labels, run, point) in &points {
            if let Some(value) = value(run, point) {
                let _ = writeln!(text, "{name}{{{labels}}} {value}");
            }
        }
    }
    let name = "halfpower_latency_seconds";
    head(&mut text, name, "summary", "Time from the submission of a request to its completion.");
    for (labels, _, point) in &points {
        let latency = point.latency(None);
        for quantile in QUANTILES {
            if let Some(ns) = latency.quantile(quantile) {
                let seconds = ns as f64 / 1e9;
                let _ = writeln!(text, "{name}{{{labels},quantile=\"{quantile}\"}} {seconds}");
            }
        }
        let _ = writeln!(text, "{name}_sum{{{labels}}} {}", latency.sum_ns() as f64 / 1e9);
        let _ = writeln!(text, "{name}_count{{{labels}}} {}", latency.count());
    }
    text.push_str("# EOF\n");
    text
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn labels(run: &Run, key: &PointKey) -> String {
    let device = run.target.device.as_ref().map_or("", |device| device.name.as_str());
    let all = [
        ("label", run.label.clone().unwrap_or_default()),
        ("host", run.host.name.clone()),
        ("target", place(&run.target)),
        ("device", device.to_owned()),
        ("rw", key.rw().to_owned()),
        ("bs", units::size(key.request_bytes()).replace(' ', "")),
        ("iodepth", key.depth().to_string()),
        ("numjobs", key.threads().to_string()),
        ("ioengine", key.ioengine().to_owned()),
        ("caching", key.caching.name().to_owned()),
        ("rwmixread", key.read_percent().to_string()),
    ];
    let rate = key.requests_per_s().map(|rate| ("rate_iops", rate.to_string()));
    let all = all.into_iter().chain(rate);
    let all: Vec<String> =
        all.map(|(name, value)| format!("{name}=\"{}\"", escaped(&value))).collect();
    all.join(",")
}

/// Returns the name of the target. For a test file, returns its directory instead, because each run
/// creates a test file with a new name.
fn place(target: &TargetFacts) -> String {
    let path = Path::new(&target.name);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_test_file = name.starts_with("halfpower-") && name.ends_with(".test");
    match path.parent().filter(|_| is_test_file) {
        Some(folder) => folder.display().to_string(),
        None => target.name.clone(),
    }
}

/// Escapes backslashes, quotes and line ends in the value of a label.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::point::testing::point;

    fn run(label: &str, bytes: u64) -> Run {
        Run {
            label: Some(label.to_owned()),
            started_unix_ns: 5_000_000_000,
            host: Host::default(),
            target: TargetFacts { name: "a \"b\"\\\n".into(), ..TargetFacts::default() },
            points: vec![point(&[bytes])],
        }
    }

    #[test]
    fn the_target_of_a_test_file_is_its_folder() {
        let named = |name: &str| place(&TargetFacts { name: name.into(), ..Default::default() });
        assert_eq!(named("/data/halfpower-1.test"), "/data");
        assert_eq!(named("/data/mine"), "/data/mine");
    }

    #[test]
    fn each_metric_has_a_help_text_a_type_and_unique_labels() {
        let text = text(&[run("a", 4096 * 100), run("b", 4096 * 50), run("a", 4096 * 10)]);
        assert!(text.ends_with("# EOF\n"));
        for (name, _, _) in GAUGES {
            assert_eq!(text.matches(&format!("# TYPE {name} gauge\n")).count(), 1);
            let series: Vec<&str> =
                text.lines().filter(|line| line.starts_with(&format!("{name}{{"))).collect();
            assert!(series.len() <= 2, "{series:?}");
            assert!(series.iter().all(|line| line.contains(r#"target="a \"b\"\\\n""#)));
        }
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        for sample in samples {
            assert!(sample.rsplit(' ').next().unwrap().parse::<f64>().unwrap().is_finite());
        }
    }
}
