//! Study `memory`: the rates of memory, of the CPU caches, and of files in memory. They are upper
//! limits for the rates of storage.
//!
//! The measurements are those of `halfpower memory` (`lab::memory`). This module derives findings
//! from them and judges the claims.

use analysis::units;
use lab::evidence::Evidence;
use lab::failure::Outcome;
use lab::memory::{self, MemoryReadings, MemorySpec};
use report::model::{Axis, Chart, Kind, Point, Scale, Series};
use report::units::Unit;

use crate::catalogue::Study;
use crate::conclusion::{Conclusion, words_of_times};
use crate::runner::StudyRunner;

pub const STUDY: Study = Study {
    name: "memory",
    papers: "Riedel 1997, section 5.1 and Table 2; Chung 2000, sections 3.1 and 4.1: eight tests \
             of memory speed with the program memspeed; a server that only delivers data reaches \
             at most half of the memory's rate",
    needs: "",
    plan: include_str!("../../plans/memory.toml"),
    claims: &["R134", "R136", "C046", "C047"],
    rules: &[],
    measure: Some(measure),
    analyse,
};

fn measure(runner: &mut StudyRunner<'_>) -> Outcome<()> {
    if runner.study_targets.iter().any(|study_target| !study_target.is_real()) {
        runner.skip(
            "the study measures the memory of this host",
            "specify a directory or file of this host",
        );
        return Ok(());
    }
    let folder = runner
        .study_targets
        .iter()
        .find_map(|study_target| study_target.folder())
        .map(ToOwned::to_owned);
    let of_this_host = MemorySpec::of_this_host(runner.quick);
    let spec = MemorySpec { folder: folder.or(of_this_host.folder.clone()), ..of_this_host };
    let readings = memory::measure(runner.lab, &spec)?;
    note(&mut runner.evidence, &readings);
    for skipped in &readings.skipped {
        runner.leave_out("file in memory", skipped);
    }
    Ok(())
}

fn note(evidence: &mut Evidence, readings: &MemoryReadings) {
    for cell in &readings.table {
        let labels = [
            ("kernel", cell.kernel.name().to_owned()),
            ("level", cell.level.name.clone()),
            ("set_bytes", cell.level.set_bytes.to_string()),
            ("threads", cell.threads.to_string()),
        ];
        evidence.note("memory", "bytes/s", &labels, cell.bytes_per_s.value);
    }
    for curve in &readings.curves {
        for (bytes, rate) in &curve.points {
            let labels =
                [("kernel", curve.kernel.name().to_owned()), ("set_bytes", bytes.to_string())];
            evidence.note("curve", "bytes/s", &labels, *rate);
        }
        for (number, plateau) in curve.plateaus.iter().enumerate() {
            let labels = [
                ("kernel", curve.kernel.name().to_owned()),
                ("number", number.to_string()),
                ("to_bytes", plateau.to_bytes.to_string()),
            ];
            evidence.note("plateau", "bytes/s", &labels, plateau.rate);
        }
    }
    for path in &readings.paths {
        let labels = [("path", path.name.to_owned())];
        evidence.note("path", "bytes/s", &labels, path.bytes_per_s.value);
    }
}

fn analyse(evidence: &Evidence) -> Conclusion {
    let mut found = Conclusion::default();
    let rate = |kernel: &str, threads: &str| {
        let labels = [("kernel", kernel), ("level", "DRAM"), ("threads", threads)];
        evidence.value("memory", &labels)
    };
    for (kernel, does) in [("load", "reads"), ("store", "writes"), ("copy", "copies")] {
        let Some(alone) = rate(kernel, "1") else { continue };
        let all = evidence.read("memory", &[("kernel", kernel), ("level", "DRAM")]);
        let together = all.last().map(|reading| (reading.labels["threads"].clone(), reading.value));
        let more = match together {
            Some((threads, rate)) if threads != "1" => {
                format!(", and {threads} threads at {}", units::rate(rate))
            }
            _ => String::new(),
        };
        let alone = units::rate(alone);
        found.find("memory", format!("one thread {does} memory at {alone}{more}"));
    }
    caches(&mut found, evidence);
    paths(&mut found, evidence, rate("load", "1"), rate("copy", "1"));
    if let (Some(lines), Some(words)) = (rate("touch-read", "1"), rate("load", "1")) {
        let times = lines / words;
        let here = format!(
            "rate of reading one word per cache line, compared with reading all words: {}",
            words_of_times(times)
        );
        found.value("R134", Some(times), here);
    }
    if !evidence.read("memory", &[]).is_empty() {
        let why =
            "the machine does not report the advertised rate of its memory; see its data sheet";
        found.cannot(&["C046", "C047"], why);
    }
    found.charts.extend(chart(evidence));
    found
}

/// Reports the rate and the size of each cache level. Each level is a plateau in the curve of load
/// rates.
fn caches(found: &mut Conclusion, evidence: &Evidence) {
    let plateaus = evidence.read("plateau", &[("kernel", "load")]);
    let words = |reading: &&lab::evidence::Reading| {
        let to = reading.labels["to_bytes"].parse().unwrap_or(0);
        format!("{} up to {}", units::rate(reading.value), units::size(to))
    };
    let words: Vec<String> = plateaus.iter().map(words).collect();
    if words.len() > 1 {
        let words = words.join(", ");
        found.find("caches", format!("rate of memory reads by size of the working set: {words}"));
    }
}

/// Reports the rates of files in memory, and compares them with the rates of memory (`load` and
/// `copy`).
fn paths(found: &mut Conclusion, evidence: &Evidence, load: Option<f64>, copy: Option<f64>) {
    let path = |name: &str| evidence.value("path", &[("path", name)]);
    let (read, write) = (path("temporary-file-read"), path("temporary-file-write"));
    if let (Some(read), Some(write)) = (read, write) {
        found.find(
            "temporary-file",
            format!(
                "a file in memory is read at {} and written at {}",
                units::rate(read),
                units::rate(write)
            ),
        );
    }
    if let (Some(hot), Some(copy)) = (path("hot-file-read"), copy) {
        let (hot_rate, copy_rate) = (units::rate(hot), units::rate(copy));
        let share = 100.0 * hot / copy;
        found.find(
            "page-cache",
            format!(
                "a cached file is read at {hot_rate}, {share:.0}% of the rate of memcpy \
                 ({copy_rate})"
            ),
        );
    }
    if let (Some(read), Some(load)) = (read, load) {
        let here =
            format!("a file in memory is read at {:.2} times the memory read rate", read / load);
        found.value("R136", Some(read / load), here);
    }
}

/// Builds a chart of the rate by the size of the working set.
fn chart(evidence: &Evidence) -> Option<Chart> {
    let mut series: Vec<Series> = Vec::new();
    for reading in evidence.read("curve", &[]) {
        let name = reading.labels["kernel"].clone();
        let x = reading.labels["set_bytes"].parse().ok()?;
        let point = Point { x, y: reading.value, ..Point::default() };
        match series.iter_mut().find(|one| one.name == name) {
            Some(one) => one.points.push(point),
            None => series.push(Series { name, points: vec![point], dashed: false, hue: None }),
        }
    }
    let axis = |label: &str, unit, scale| Axis { label: label.to_owned(), unit, scale };
    (!series.is_empty()).then(|| Chart {
        id: "memory-curve".to_owned(),
        title: "Rate by working set, one thread".to_owned(),
        summary: "Each cache level is a plateau. The last plateau is memory.".to_owned(),
        x: axis("Working set", Unit::Bytes, Scale::Log2),
        y: axis("Rate", Unit::BytesPerSecond, Scale::Linear),
        series,
        guides: Vec::new(),
        kind: Kind::Lines,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conclusion::Verdict;

    #[test]
    fn the_claim_allows_a_file_in_memory_half_the_rate_of_loads() {
        for (file, verdict) in [(4e9, Verdict::Holds), (6e9, Verdict::DoesNotHold)] {
            let mut evidence = Evidence::default();
            let labels = |kernel: &str| {
                [("kernel", kernel), ("level", "DRAM"), ("threads", "1")]
                    .map(|(name, word)| (name, word.to_owned()))
            };
            evidence.note("memory", "bytes/s", &labels("load"), 10e9);
            let path = |name: &str| [("path", name.to_owned())];
            evidence.note("path", "bytes/s", &path("temporary-file-read"), file);
            evidence.note("path", "bytes/s", &path("temporary-file-write"), file);
            let found = analyse(&evidence);
            let claim = found.claims.iter().find(|claim| claim.id == "R136").unwrap();
            assert_eq!(claim.verdict, verdict);
        }
    }
}
