//! The measurements of a survey or study before analysis: points, other readings, and the parts
//! that could not be measured.

use analysis::units;
use std::collections::BTreeMap;

use analysis::bootstrap::{Timed, nearest_ratio_interval};
use analysis::interval::{CONFIDENCE, Interval};
use schemars::JsonSchema;
use serde::Serialize;

use crate::machine::{DeviceFacts, Host, TargetFacts};
use crate::point::{Point, State, Summary};
use crate::point_key::PointKey;

/// The measurements of a survey or study, which are the input of all analysis.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The machine that was measured.
    pub host: Host,
    /// The targets, in the order of the command line.
    pub targets: Vec<TargetFacts>,
    /// All points that were measured.
    pub points: Vec<MeasuredPoint>,
    /// Measured numbers that are not rates of a workload, such as the time of an object upload.
    pub readings: Vec<Reading>,
    /// Parts of the study's plan that could not be measured.
    pub left_out: Vec<LeftOut>,
    /// Nominal rate of the hardware (PAP) that the user specified with `--pap` (bytes per second).
    /// None without `--pap`.
    pub pap_bytes_per_s: Option<f64>,
    /// Prices, power and capacities that the user specified.
    pub stated: Stated,
    /// Why the study could not run. None if the study ran.
    pub skipped: Option<Skipped>,
}

/// Facts about the targets that only the user can supply.
#[derive(Clone, Debug, Default)]
pub struct Stated {
    /// Price of each target, in any currency.
    pub prices: Vec<f64>,
    /// Electrical power of each target (watts).
    pub power_watts: Vec<f64>,
    /// Capacity of each target, which replaces the capacity that the system reports (bytes).
    pub capacities: Vec<u64>,
}

/// A measured point with its trials, the summary of the trials, and the settings from the study's
/// plan.
#[derive(Clone, Debug)]
pub struct MeasuredPoint {
    /// Name of the part of the study's plan to which the point belongs. Empty if the plan has no
    /// parts.
    pub part: String,
    /// Name of the target, or of the first target if the load used several.
    pub target: String,
    /// Index of the target in [`Evidence::targets`].
    pub target_index: usize,
    /// Number of disks that the load used at the same time.
    pub disks: u32,
    /// Values of the plan's flags, by flag. Flags that are axes of `sweep` are in `point` instead.
    pub given: BTreeMap<String, String>,
    /// The workload with its trials.
    pub point: Point,
    /// Statistics of the trials.
    pub summary: Summary,
}

/// A measured number that is not the rate of a workload, such as the time of an object upload.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Reading {
    /// Name of the quantity.
    pub quantity: String,
    /// Unit of the value, such as "bytes/s", "ns", "share".
    pub unit: String,
    /// Labels that distinguish the reading from other readings of the same quantity.
    pub labels: BTreeMap<String, String>,
    /// The number, in `unit`.
    pub value: f64,
}

/// A part of the study's plan that could not be measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LeftOut {
    /// Name of the part of the plan.
    pub part: String,
    /// Why the part could not be measured, with the remedy.
    pub reason: String,
}

/// Why a whole study could not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Skipped {
    /// Reason why the study could not run.
    pub reason: String,
    /// Change that would make the study possible.
    pub remedy: String,
}

impl MeasuredPoint {
    /// Makes a point of a survey, which has only one target.
    pub fn of(point: Point, target: &str) -> MeasuredPoint {
        let summary = point.summary();
        let (part, given) = (String::new(), BTreeMap::new());
        MeasuredPoint {
            part,
            target: target.to_owned(),
            target_index: 0,
            disks: 1,
            given,
            point,
            summary,
        }
    }

    /// Returns the workload, caching mode and target of the point.
    pub fn key(&self) -> &PointKey {
        &self.point.key
    }

    /// Returns the ratio of this point's rate to the rate of another point. The trials are compared
    /// in pairs that ran at about the same time, so a temporary slowdown of the machine has little
    /// effect.
    pub fn times(&self, other: &MeasuredPoint) -> Interval {
        let rates = |measured: &MeasuredPoint| -> Vec<Timed> {
            let trials = measured.point.unsoaked().into_iter();
            trials.map(|trial| (trial.started_unix_ns, trial.bytes_per_s())).collect()
        };
        let ratio = nearest_ratio_interval(&rates(self), &rates(other), CONFIDENCE);
        ratio.unwrap_or(Interval::exact(self.rate() / other.rate().max(1.0)))
    }

    /// Formats the caching mode, request size and depth, for example "direct, 4 KiB x depth 8".
    pub fn setting(&self) -> String {
        let key = self.key();
        format!("{}, {} x depth {}", key.caching, units::size(key.request_bytes()), key.depth())
    }

    /// Returns the median rate of the trials (bytes per second).
    pub fn rate(&self) -> f64 {
        self.summary.bytes_per_s.value
    }

    /// Returns the median number of requests per second.
    pub fn requests_per_s(&self) -> f64 {
        self.summary.requests_per_s.value
    }

    /// Returns a quantile (0 to 1) of the latency (ns), or None if latency was not measured.
    pub fn latency_ns(&self, quantile: f64) -> Option<f64> {
        self.summary.latency.quantile(quantile).map(|ns| ns as f64)
    }

    /// Returns the CPU time per request that the kernel charged to the process (ns). This is the
    /// lower bound of the CPU cost.
    pub fn cpu_ns(&self) -> Option<f64> {
        self.summary.cpu_lower_ns
    }

    /// Returns the request size (bytes).
    pub fn bytes(&self) -> u64 {
        self.point.key.request_bytes()
    }

    /// Returns the queue depth of each thread.
    pub fn depth(&self) -> u32 {
        self.point.key.depth()
    }

    /// Returns the value of a flag for this point as text, or an empty string if the value is
    /// unknown. `part`, `target`, `disks` and `caching` are treated as flags, too.
    pub fn word(&self, flag: &str) -> String {
        let key = &self.point.key;
        match flag {
            "part" => self.part.clone(),
            "target" => self.target.clone(),
            "disks" => self.disks.to_string(),
            "caching" => key.caching.to_string(),
            "rw" => key.rw().to_owned(),
            "bs" => units::size(key.request_bytes()),
            "iodepth" => key.depth().to_string(),
            "numjobs" => key.threads().to_string(),
            "ioengine" => key.ioengine().to_owned(),
            "rwmixread" => key.read_percent().to_string(),
            other => self.given.get(other).cloned().unwrap_or_default(),
        }
    }

    /// Returns the value of a flag as a number, or None if the value is not a number. Sizes are in
    /// bytes.
    pub fn number(&self, flag: &str) -> Option<f64> {
        match flag {
            "bs" => Some(self.point.key.request_bytes() as f64),
            _ => {
                let word = self.word(flag);
                word.parse().ok().or_else(|| units::parse_size(&word).ok().map(|n| n as f64))
            }
        }
    }

    /// Returns whether a flag has this value. Values of the flag `bs` are compared as sizes, so
    /// `64k` equals `65536`.
    pub fn is(&self, flag: &str, word: &str) -> bool {
        match flag {
            "bs" => units::parse_size(word).is_ok_and(|bytes| bytes == self.bytes()),
            _ => self.word(flag) == word,
        }
    }

    /// Returns the mean size of the requests that the device served (bytes). If the workload only
    /// reads, only the device's reads are counted. If the workload only writes, only the device's
    /// writes are counted. Returns None if the device counters are missing or none of these
    /// requests was counted.
    pub fn device_request_bytes(&self) -> Option<f64> {
        let (reads, writes) =
            (self.point.key.read_percent() > 0, self.point.key.read_percent() < 100);
        let of = |wanted: bool, count: u64| if wanted { count } else { 0 };
        let counters = self.point.trials.iter().filter_map(|trial| trial.device);
        let (requests, sectors) = counters.fold((0, 0), |(requests, sectors), c| {
            (
                requests + of(reads, c.reads) + of(writes, c.writes),
                sectors + of(reads, c.read_sectors) + of(writes, c.write_sectors),
            )
        });
        (requests > 0).then(|| sectors as f64 * 512.0 / requests as f64)
    }
}

impl Evidence {
    /// Returns the usable points with these flag values, in the order of the plan.
    pub fn all(&self, flags: &[(&str, &str)]) -> Vec<&MeasuredPoint> {
        let fits = |point: &&MeasuredPoint| flags.iter().all(|(flag, word)| point.is(flag, word));
        self.usable().filter(fits).collect()
    }

    /// Returns the first usable point with these flag values.
    pub fn find(&self, flags: &[(&str, &str)]) -> Option<&MeasuredPoint> {
        self.all(flags).into_iter().next()
    }

    /// Returns the fastest usable point with these flag values.
    pub fn fastest(&self, flags: &[(&str, &str)]) -> Option<&MeasuredPoint> {
        self.all(flags).into_iter().max_by(|a, b| a.rate().total_cmp(&b.rate()))
    }

    /// Returns the name of a target, and the part of the evidence that concerns this target.
    pub fn of_target(&self, index: usize) -> (String, Evidence) {
        let mut points: Vec<MeasuredPoint> =
            self.points.iter().filter(|point| point.target_index == index).cloned().collect();
        let facts = self.targets.get(index).cloned();
        let name = match (points.first(), &facts) {
            (Some(point), _) => point.target.clone(),
            (None, Some(facts)) => facts.name.clone(),
            (None, None) => String::new(),
        };
        points.iter_mut().for_each(|point| point.target_index = 0);
        let is_own =
            |reading: &&Reading| reading.labels.get("target").is_none_or(|target| *target == name);
        let readings = self.readings.iter().filter(is_own).cloned().collect();
        let targets = facts.into_iter().collect();
        let own = Evidence { targets, points, readings, ..self.clone() };
        (name, own)
    }

    /// Returns all points whose verdict is not invalid.
    pub fn usable(&self) -> impl Iterator<Item = &MeasuredPoint> {
        self.points.iter().filter(|point| point.summary.verdict.state != State::Invalid)
    }

    /// Returns the readings of a quantity with these labels, in measurement order.
    pub fn read(&self, quantity: &str, labels: &[(&str, &str)]) -> Vec<&Reading> {
        let fits = |reading: &&Reading| {
            let has = |(name, word): &(&str, &str)| {
                reading.labels.get(*name).is_some_and(|found| found == word)
            };
            reading.quantity == quantity && labels.iter().all(has)
        };
        self.readings.iter().filter(fits).collect()
    }

    /// Returns the value of the first reading of a quantity with these labels.
    pub fn value(&self, quantity: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.read(quantity, labels).first().map(|reading| reading.value)
    }

    /// Returns the readings of a quantity on a target as pairs of x and y, sorted by x. The numeric
    /// label `label` of a reading is x, and the value of the reading is y.
    pub fn curve(&self, quantity: &str, label: &str, target: &str) -> Vec<(u64, f64)> {
        let readings = self.read(quantity, &[("target", target)]);
        let point =
            |reading: &&Reading| Some((reading.labels.get(label)?.parse().ok()?, reading.value));
        let mut points: Vec<(u64, f64)> = readings.iter().filter_map(point).collect();
        points.sort_by_key(|(number, _)| *number);
        points
    }

    /// Adds a reading.
    pub fn note(&mut self, quantity: &str, unit: &str, labels: &[(&str, String)], value: f64) {
        let labels = labels.iter().map(|(name, word)| ((*name).to_owned(), word.clone()));
        let (quantity, unit) = (quantity.to_owned(), unit.to_owned());
        self.readings.push(Reading { quantity, unit, labels: labels.collect(), value });
    }

    /// Returns the block device below the first target, or None if the device is unknown.
    pub fn device(&self) -> Option<&DeviceFacts> {
        self.targets.first()?.device.as_ref()
    }

    /// Returns whether the first target is a simulated system.
    pub fn is_simulated(&self) -> bool {
        self.targets.first().is_some_and(|target| target.simulated.is_some())
    }

    /// Returns whether a point was measured on a simulated system.
    pub fn is_of_simulated(&self, point: &MeasuredPoint) -> bool {
        let target = self.targets.get(point.target_index);
        target.is_some_and(|target| target.simulated.is_some())
    }

    /// Returns the name of the device that contains all targets. Returns None if there is only one
    /// target, if the targets are on different devices, or if the targets are simulated.
    pub fn shared_device(&self) -> Option<&str> {
        let device = |of: usize| Some(&*self.targets.get(of)?.device.as_ref()?.name);
        let first = device(0).filter(|_| self.targets.len() > 1 && !self.is_simulated())?;
        (1..self.targets.len()).all(|of| device(of) == Some(first)).then_some(first)
    }
}

/// Helpers that make evidence for the tests of this crate and other crates.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    use workload::Pattern;

    use super::*;
    use crate::point::testing::point;

    /// Makes a point with the given rate and flags.
    pub fn cell(bytes_per_s: u64, flags: &[(&str, &str)]) -> MeasuredPoint {
        let mut point = point(&[bytes_per_s]);
        let mut given = BTreeMap::new();
        let (mut part, mut disks) = (String::new(), 1);
        for (flag, word) in flags {
            match *flag {
                "part" => part = (*word).to_owned(),
                "disks" => disks = word.parse().expect("tests give valid values"),
                "rw" => {
                    point.key.workload.read_percent = if word.ends_with("write") { 0 } else { 100 };
                    let random = word.starts_with("rand");
                    point.key.workload.pattern =
                        if random { Pattern::Random } else { Pattern::Sequential };
                }
                "bs" => {
                    point.key.workload.request_bytes =
                        units::parse_size(word).expect("tests give sizes") as u32;
                }
                "iodepth" => {
                    point.key.workload.depth = word.parse().expect("tests give valid values");
                }
                "numjobs" => {
                    point.key.workload.threads = word.parse().expect("tests give valid values");
                }
                "caching" => point.key.caching = word.parse().expect("tests give valid values"),
                "ioengine" if *word == "simulated" => point.key.is_simulated = true,
                "ioengine" => {
                    point.key.workload.engine_kind = word.parse().expect("tests give valid values");
                }
                _ => drop(given.insert((*flag).to_owned(), (*word).to_owned())),
            }
        }
        for trial in &mut point.trials {
            trial.directions[0].requests = trial.directions[0].bytes / point.key.request_bytes();
        }
        let summary = point.summary();
        MeasuredPoint {
            part,
            target: "t".to_owned(),
            target_index: 0,
            disks,
            given,
            point,
            summary,
        }
    }

    /// Makes evidence with these points.
    pub fn evidence(points: Vec<MeasuredPoint>) -> Evidence {
        Evidence { points, ..Evidence::default() }
    }

    impl Evidence {
        /// Recalculates the summaries of all points after a test has changed their trials.
        pub fn summarise(&mut self) {
            self.points.iter_mut().for_each(|one| one.summary = one.point.summary());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{cell, evidence};
    use super::*;

    #[test]
    fn points_are_found_by_their_flags_and_sizes_in_any_spelling() {
        let evidence = evidence(vec![
            cell(10, &[("bs", "64k"), ("offset", "0")]),
            cell(20, &[("bs", "64k"), ("offset", "512")]),
            cell(40, &[("bs", "1m"), ("offset", "512")]),
        ]);
        assert_eq!(evidence.all(&[("bs", "65536")]).len(), 2);
        let shifted = evidence.find(&[("bs", "64k"), ("offset", "512")]);
        assert_eq!(shifted.map(MeasuredPoint::rate), Some(20.0));
        assert_eq!(evidence.fastest(&[]).unwrap().bytes(), 1 << 20);
        assert_eq!(evidence.find(&[("bs", "2k")]).map(MeasuredPoint::rate), None);
    }

    #[test]
    fn what_measured_the_wrong_thing_is_not_used() {
        let mut wrong = cell(10, &[]);
        wrong.summary.verdict.add(State::Invalid, "a hit");
        assert!(evidence(vec![wrong]).all(&[]).is_empty());
    }

    #[test]
    fn readings_are_found_by_their_labels() {
        let mut evidence = Evidence::default();
        evidence.note("rate", "bytes/s", &[("kernel", "copy".to_owned())], 5.0);
        assert_eq!(evidence.value("rate", &[("kernel", "copy")]), Some(5.0));
        assert_eq!(evidence.value("rate", &[("kernel", "load")]), None);
    }
}
