//! Stable devices: halfpower and fio measure a device in turns, and the intervals of halfpower are
//! compared with the true rate.
//!
//! If the device has a rate limit, this limit is the true rate. If the device has a delay, the true
//! rate is unknown, because the path to the device takes additional time. The median rate of all
//! runs of fio then counts as the truth, so the campaign only tests whether both programs agree. A
//! failed run counts as an interval that does not contain the truth.

use super::server::{Server, Target};
use crate::bench::statistics::quantile;
use crate::bench::tool::parse_fio;
use crate::faults::device::{LoopDevice, Volume};
use crate::faults::place::Context;
use crate::faults::running::Ended;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// A stable device and the load with which it is measured.
pub struct Device {
    /// Name of the device for `--case`.
    pub word: &'static str,
    /// Description of the device.
    pub what: &'static str,
    /// Direction and order of the requests, as in fio: `read`, `randread`, `randwrite` and so on.
    pub rw: &'static str,
    /// Request size (bytes).
    pub request_bytes: u64,
    /// Queue depth.
    pub depth: u32,
    /// Length of the warm-up (ms). It uses up the burst that the rate limit allows at the start.
    pub ramp_ms: u32,
    /// Source of the true rate.
    pub truth: Truth,
    /// Function that sets up the device.
    pub make: Make,
}

/// The source of the true rate of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Truth {
    /// The true rate is the configured limit of the device (requests per second).
    Limit(f64),
    /// The true rate is the median rate of all runs of fio.
    Fio,
}

/// Length of a warm-up that uses up the burst of a rate limit (ms).
const BURST_MS: u32 = 200;
/// Number of trials of a run. With six trials, the interval has a confidence level of about 97%.
const TRIALS: u32 = 6;
/// Duration of a run of fio (ms).
const FIO_MS: u32 = 2500;
/// Limit of 5 MB/s as an argument of nbdkit (bits/s).
const SLOW_BITS: &str = "40000000";
/// Limit of 50 MB/s as an argument of nbdkit (bits/s).
const FAST_BITS: &str = "400000000";

const K64: u64 = 64 << 10;
const K4: u64 = 4 << 10;

type Make = fn(&Context) -> Result<Target>;

const fn delay(word: &'static str, what: &'static str, depth: u32, make: Make) -> Device {
    let (rw, truth) = ("randread", Truth::Fio);
    Device { word, what, rw, request_bytes: K4, depth, ramp_ms: 0, truth, make }
}

const fn limit(word: &'static str, what: &'static str, load: (u64, f64), make: Make) -> Device {
    let (rw, truth) = ("randread", Truth::Limit(load.1));
    Device { word, what, rw, request_bytes: load.0, depth: 1, ramp_ms: BURST_MS, truth, make }
}

/// Converts a throughput limit (bytes/s) to a load of 64 KiB requests. Returns the request size
/// (bytes) and the limit as a request rate (requests/s).
const fn of_64k(bytes_per_s: f64) -> (u64, f64) {
    (K64, bytes_per_s / K64 as f64)
}

/// All devices, in the order of the table.
pub const ALL: &[Device] = &[
    delay("delay-2ms-1", "nbdkit, delay of 2 ms, depth 1", 1, |context| delayed(context, 2)),
    delay("delay-2ms-8", "nbdkit, delay of 2 ms, depth 8", 8, |context| delayed(context, 2)),
    delay("delay-10ms-1", "nbdkit, delay of 10 ms, depth 1", 1, |context| delayed(context, 10)),
    delay("delay-10ms-8", "nbdkit, delay of 10 ms, depth 8", 8, |context| delayed(context, 10)),
    delay("null-1ms", "QEMU, null device with 1 ms latency, depth 1", 1, |context| {
        let null = "driver=null-co,node-name=top,size=67108864,read-zeroes=on";
        let line = format!("--blockdev {null},latency-ns=1000000");
        Ok(Target::of(Server::qemu(context, &line)?))
    }),
    limit("rate-5", "nbdkit, rate of 5 MB/s, depth 1", of_64k(5e6), |context| {
        Ok(Target::of(rated(context, SLOW_BITS)?))
    }),
    limit("rate-50", "nbdkit, rate of 50 MB/s, depth 1", of_64k(50e6), |context| {
        Ok(Target::of(rated(context, FAST_BITS)?))
    }),
    Device {
        depth: 4,
        ..limit("rate-50-deep", "nbdkit, rate of 50 MB/s, depth 4", of_64k(50e6), |context| {
            Ok(Target::of(rated(context, FAST_BITS)?))
        })
    },
    limit("iops-500", "QEMU, 500 requests/s, depth 1", (K4, 500.0), |context| {
        Ok(Target::of(throttled(context, "iops-total=500")?))
    }),
    Device {
        depth: 4,
        ..limit("iops-500-deep", "QEMU, 500 requests/s, depth 4", (K4, 500.0), |context| {
            Ok(Target::of(throttled(context, "iops-total=500")?))
        })
    },
    Device {
        rw: "randwrite",
        ..limit("bytes-20", "QEMU, 20 MB/s, writes, depth 1", of_64k(20e6), |context| {
            Ok(Target::of(throttled(context, "bps-total=20000000")?))
        })
    },
    limit("loop-400", "loop device on QEMU, 400 requests/s", (K4, 400.0), |context| {
        Target::loop_on(throttled(context, "iops-total=400")?)
    }),
    limit("ext4-50", "ext4 on a loop device on nbdkit, 50 MB/s", of_64k(50e6), ext4_on_a_rate),
];

fn delayed(context: &Context, ms: u32) -> Result<Target> {
    let line = format!("--filter=delay memory 64M rdelay={ms}ms wdelay={ms}ms");
    Ok(Target::of(Server::nbdkit(context, &line)?))
}

fn rated(context: &Context, bits_per_s: &str) -> Result<Server> {
    let line = format!("--filter=rate memory 64M rate={bits_per_s} burstiness=0.5");
    Server::nbdkit(context, &line)
}

/// Starts QEMU with a null device and a rate limit, for example `iops-total=500`.
pub fn throttled(context: &Context, limit: &str) -> Result<Server> {
    let line = format!(
        "--object throttle-group,id=group,limits.{limit} --blockdev \
         driver=null-co,node-name=null,size=67108864,read-zeroes=on --blockdev \
         driver=throttle,node-name=top,throttle-group=group,file=null"
    );
    Server::qemu(context, &line)
}

fn ext4_on_a_rate(context: &Context) -> Result<Target> {
    let server = rated(context, FAST_BITS)?;
    let device = LoopDevice::direct(PathBuf::from(server.file()))?;
    let ext4 = ["mkfs.ext4", "-q", "-F", "-O", "^has_journal"];
    let volume = Volume::on(context, device, &ext4)?;
    let file = volume.folder().join("file");
    std::fs::write(&file, crate::faults::place::noise(32 << 20))?;
    std::fs::File::open(&file)?.sync_all()?;
    Ok(Target::new(file.display().to_string(), vec![Box::new(volume), Box::new(server)]))
}

/// The result of one run of halfpower.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stated {
    /// Median rate (requests per second).
    pub median: f64,
    /// Lower end of the confidence interval of the median (requests per second).
    pub low: f64,
    /// Upper end of the confidence interval of the median (requests per second).
    pub high: f64,
    /// Whether the verdict is valid.
    pub is_valid: bool,
}

/// The results of all runs on one device.
#[derive(Debug, Default)]
pub struct Found {
    /// Rates of the successful runs of fio (requests per second).
    pub fio: Vec<f64>,
    /// Results of the successful runs of halfpower.
    pub stated: Vec<Stated>,
    /// Number of runs of halfpower or fio that failed.
    pub failed: u32,
    /// How often each reason made a verdict suspect or invalid. Numbers in the reasons are replaced
    /// by N.
    pub reasons: BTreeMap<String, u32>,
}

/// Sets up a device once and measures it `runs` times.
///
/// # Errors
/// If the device cannot be set up.
pub fn measure(context: &Context, device: &Device, runs: u32) -> Result<Found> {
    let target = (device.make)(context)?;
    let mut found = Found::default();
    for number in 1..=runs {
        match by_fio(context, device, &target.path) {
            Ok(rate) => found.fio.push(rate),
            Err(error) => found.fails(&format!("fio, run {number}: {error:#}")),
        }
        match by_halfpower(context, device, &target.path)? {
            Ok((stated, reasons)) => found.adds(stated, reasons),
            Err(error) => found.fails(&format!("halfpower, run {number}: {error}")),
        }
    }
    Ok(found)
}

impl Found {
    fn adds(&mut self, stated: Stated, reasons: Vec<String>) {
        self.stated.push(stated);
        for reason in reasons {
            eprintln!("  false alarm: {reason}");
            *self.reasons.entry(without_digits(&reason)).or_default() += 1;
        }
    }

    fn fails(&mut self, what: &str) {
        eprintln!("  failed: {what}");
        self.failed += 1;
    }

    /// Returns the true rate (requests per second). None if fio determines the true rate and every
    /// run of fio failed.
    pub fn truth(&self, truth: Truth) -> Option<f64> {
        match truth {
            Truth::Limit(rate) => Some(rate),
            Truth::Fio => (!self.fio.is_empty()).then(|| quantile(&self.fio, 0.5)),
        }
    }

    /// Returns the number of runs whose interval contains the truth.
    pub fn covering(&self, truth: f64) -> usize {
        self.stated.iter().filter(|stated| stated.low <= truth && truth <= stated.high).count()
    }

    /// Returns the number of runs with a false alarm.
    pub fn alarms(&self) -> usize {
        self.stated.iter().filter(|stated| !stated.is_valid).count()
    }
}

/// Replaces each number by N. Reasons that differ only in a number are thus counted together.
fn without_digits(reason: &str) -> String {
    let mut text = String::new();
    let mut in_number = false;
    for letter in reason.chars() {
        let is_number = letter.is_ascii_digit() || (in_number && letter == '.');
        if is_number && !in_number {
            text.push('N');
        }
        if !is_number {
            text.push(letter);
        }
        in_number = is_number;
    }
    text
}

fn by_fio(context: &Context, device: &Device, path: &str) -> Result<f64> {
    let place = context.place()?;
    let mut fio = Command::new("fio");
    fio.args(["--name=foreign", "--direct=1", "--ioengine=io_uring", "--time_based"]);
    fio.args(["--output-format=json".to_string(), format!("--filename={path}")]);
    fio.args([format!("--rw={}", device.rw), format!("--bs={}", device.request_bytes)]);
    fio.args([format!("--iodepth={}", device.depth), format!("--runtime={FIO_MS}ms")]);
    if device.ramp_ms > 0 {
        fio.arg(format!("--ramp_time={}ms", device.ramp_ms));
    }
    let ended = place.start_command(fio)?.ended()?;
    ensure!(ended.code == Some(0), "exit {:?}: {}", ended.code, ended.stderr.trim());
    Ok(parse_fio(&ended.stdout)?.requests_per_s)
}

type Run = Result<(Stated, Vec<String>), String>;

fn by_halfpower(context: &Context, device: &Device, path: &str) -> Result<Run> {
    let Device { rw, request_bytes, depth, .. } = device;
    let permission = match (rw.contains("write"), path.starts_with("/dev/")) {
        (false, _) => String::new(),
        (true, false) => format!("--overwrite={path}"),
        (true, true) => format!("--destroy-data-on={path}"),
    };
    let line = format!(
        "run {path} --rw {rw} --bs {request_bytes} --iodepth {depth} --trials {TRIALS} --runtime \
         0.5 --time-based --ramp-time {} {permission} --no-store --json --quiet",
        f64::from(device.ramp_ms) / 1e3
    );
    Ok(stated(&context.place()?.run(&line)?))
}

/// Parses the result of a run of halfpower. If the run printed no result, the error contains its
/// standard error.
fn stated(ended: &Ended) -> Run {
    let document: Value = serde_json::from_str(&ended.stdout)
        .map_err(|_| format!("exit {:?}: {}", ended.code, ended.stderr.trim()))?;
    let rate = &document["summary"]["requests_per_s"];
    let number = |name: &str| rate[name].as_f64().context(format!("the rate has no {name}"));
    let read = || -> Result<Stated> {
        Ok(Stated {
            median: number("median")?,
            low: number("low")?,
            high: number("high")?,
            is_valid: document["verdict"]["state"] == "valid",
        })
    };
    let stated = read().map_err(|error| error.to_string())?;
    let reasons = document["verdict"]["reasons"].as_array().into_iter().flatten();
    Ok((stated, reasons.filter_map(|reason| reason.as_str().map(String::from)).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(stdout: &str) -> Ended {
        Ended { code: Some(0), stdout: stdout.to_string(), ..Ended::default() }
    }

    #[test]
    fn a_document_is_read_with_its_interval_and_reasons() {
        let text = r#"{"summary": {"requests_per_s": {"median": 2.0, "low": 1.0, "high": 3.0}},
            "verdict": {"state": "suspect", "reasons": ["noisy: +-16% only"]}}"#;
        let (stated, reasons) = stated(&ended(text)).unwrap();
        assert_eq!(stated, Stated { median: 2.0, low: 1.0, high: 3.0, is_valid: false });
        assert_eq!(reasons, ["noisy: +-16% only"]);
        assert!(super::stated(&ended("{}")).unwrap_err().contains("median"));
        assert!(super::stated(&ended("")).unwrap_err().contains("exit Some(0)"));
    }

    #[test]
    fn intervals_with_the_truth_and_false_alarms_are_counted() {
        let stated = |low, high, is_valid| Stated { median: 10.0, low, high, is_valid };
        let found = Found {
            fio: vec![9.0, 12.0, 10.0],
            stated: vec![stated(9.0, 10.0, true), stated(10.5, 11.0, false)],
            ..Found::default()
        };
        assert_eq!(found.truth(Truth::Fio), Some(10.0));
        assert_eq!(found.truth(Truth::Limit(7.0)), Some(7.0));
        assert_eq!((found.covering(10.0), found.alarms()), (1, 1));
        assert_eq!(Found::default().truth(Truth::Fio), None);
    }

    #[test]
    fn reasons_are_one_where_only_figures_differ() {
        assert_eq!(without_digits("used 35% of 2.5 CPUs."), "used N% of N CPUs.");
        assert_eq!(without_digits("used 7% of 10 CPUs."), without_digits("used 35% of 2.5 CPUs."));
    }

    #[test]
    fn every_device_has_a_unique_name() {
        let mut words: Vec<&str> = ALL.iter().map(|device| device.word).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), ALL.len());
    }
}
