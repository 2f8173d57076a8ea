//! `cargo xtask accuracy --only fio-agreement`: the same job files with fio and with halfpower.
//!
//! Each load is a job file. In each round, fio runs the job file, then halfpower, then fio again.
//! The result of a round is the ratio of halfpower's figure to the geometric mean of fio's two
//! figures. The ratio of fio's two figures shows how much the device itself varies.
//!
//! Direct loads run on a reference device that is served over FUSE. Buffered loads run on a file
//! system on such a device, with a small dirty limit. All loads then run again on a file on the
//! local disk. Both tools have real-time priority, so that other programs do not delay them. Needs
//! root.
//!
//! The results of fio on the reference devices are also imported. `halfpower compare` then compares
//! them with the stored runs of halfpower.

use super::pagecache::Device;
use crate::bench::host;
use crate::bench::statistics::{Estimate, estimate};
use crate::bench::turns::take_turns;
use crate::mounted::{Mounted, Priority};
use crate::repository;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicBool;

/// Maximum relative difference between the results of halfpower and fio on a reference device.
const DIFFERENCE_MAX: f64 = 0.05;
/// Rate of the reference device for the buffered loads (MB/s).
const CACHED_RATE_MB: u32 = 100;
/// Arguments for the reference device of the direct loads.
const DEVICE: [&str; 3] = ["truth:fixed=2ms,rate=100MB/s,parallel=8", "--size", "256m"];
/// Size of each test file (bytes).
const FILE_BYTES: u64 = 256 << 20;

/// The name of a load, whether its requests are buffered, and the lines of its job file, separated
/// by spaces.
type Load = (&'static str, bool, &'static str);

/// Options for job files without a size. The runtime is so short that no job makes a second pass
/// over the file. A second pass would be served from the page cache.
const TIMED: &str = "size=256m time_based runtime=1";
const LOADS: [Load; 14] = [
    ("sequential direct reads", false, "[a] rw=read bs=64k ioengine=libaio iodepth=4 direct=1"),
    ("random direct reads", false, "[a] rw=randread bs=4k ioengine=libaio iodepth=8 direct=1"),
    ("sequential direct writes", false, "[a] rw=write bs=64k ioengine=psync direct=1"),
    ("random direct writes", false, "[a] rw=randwrite bs=16k ioengine=io_uring iodepth=4 direct=1"),
    (
        "mixed, 70% reads",
        false,
        "[a] rw=randrw rwmixread=70 bs=4k ioengine=libaio iodepth=8 direct=1",
    ),
    (
        "500 reads per second",
        false,
        "[a] rw=randread bs=4k ioengine=libaio iodepth=8 direct=1 rate_iops=500",
    ),
    (
        "bssplit, half 4 KiB and half 16 KiB",
        false,
        "[a] rw=randread bssplit=4k/50:16k/50 norandommap=1 ioengine=libaio iodepth=4 direct=1",
    ),
    (
        "zipf 1.1",
        false,
        "[a] rw=randread bs=4k random_distribution=zipf:1.1 norandommap=1 ioengine=psync direct=1",
    ),
    (
        "4 jobs of random reads",
        false,
        "[a] rw=randread bs=4k ioengine=psync direct=1 numjobs=4 group_reporting",
    ),
    (
        "writes, then reads after a stonewall",
        false,
        "[a] rw=write bs=64k ioengine=psync direct=1 \
         [b] stonewall rw=randread bs=4k ioengine=libaio iodepth=8 direct=1",
    ),
    ("buffered sequential reads", true, "[a] rw=read bs=128k ioengine=psync size=128m"),
    ("buffered random reads", true, "[a] rw=randread bs=4k ioengine=psync"),
    (
        "buffered writes with end_fsync",
        true,
        "[a] rw=write bs=64k ioengine=psync end_fsync=1 size=128m",
    ),
    (
        "buffered writes with fsync after each write",
        true,
        "[a] rw=write bs=16k ioengine=psync fsync=1",
    ),
];

/// Settings of the campaign.
pub struct Settings<'a> {
    /// The program under test.
    pub program: &'a Path,
    /// Number of rounds of each load.
    pub rounds: u32,
    /// Runs only the workloads whose name contains one of these texts. Empty for all workloads.
    pub case: &'a [String],
    /// Folder on the local disk in which the temporary folder is created.
    pub dir: &'a Path,
    /// Whether to write the table into the documentation.
    pub write: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Tool {
    Fio,
    Halfpower,
}

/// The result of one run: the rate (bytes per second) and the mean latency (ns).
#[derive(Clone, Copy)]
struct Figures([f64; 2]);

/// The results of a load on one file. Each array has the ratio of the rates and the ratio of the
/// mean latencies.
struct Ratios {
    /// Ratios of halfpower to fio.
    tools: [Estimate; 2],
    /// Ratios between the two runs of fio in a round.
    control: [Estimate; 2],
}

/// Runs all loads. Returns exit code 0 if the results of halfpower and fio agree for every load on
/// the reference devices, otherwise 1.
///
/// # Errors
/// If the devices cannot be created on this machine, or a run fails.
pub fn run(settings: &Settings<'_>) -> Result<ExitCode> {
    let folder = tempfile::Builder::new().prefix("halfpower-fio-").tempdir_in(settings.dir)?;
    let on_disk = folder.path().canonicalize()?.join("data");
    host::make_full_file(&on_disk, FILE_BYTES, || false)?;
    let direct = Mounted::new(settings.program, &DEVICE, Priority::RealTime)?;
    let cached = Device::new(settings.program, CACHED_RATE_MB)?;
    let mut table = "| load | rate | mean latency | verdict of `compare` | rate on this disk | \
                     fio compared with itself on this disk |\n|---|---|---|---|---|---|\n"
        .to_string();
    let (mut rows, mut beyond) = (0, Vec::new());
    let is_wanted = |name: &str| {
        settings.case.is_empty() || settings.case.iter().any(|part| name.contains(part.as_str()))
    };
    for (name, is_buffered, job) in LOADS.into_iter().filter(|(name, ..)| is_wanted(name)) {
        let file = if is_buffered { &cached.file } else { &direct.file };
        let place = Place { settings, name, job, folder: folder.path(), file: Path::new(file) };
        let reference = place.ratios()?;
        let verdict = place.compared()?;
        let disk = Place { file: &on_disk, ..place }.ratios()?;
        let row = format!(
            "| {name} | {} | {} | {verdict} | {} | {} |",
            shown(&reference.tools[0]),
            shown(&reference.tools[1]),
            shown(&disk.tools[0]),
            shown(&disk.control[0]),
        );
        eprintln!("{row} fio compared with itself, reference device: {:?}", reference.control);
        writeln!(table, "{row}")?;
        rows += 1;
        if !reference.tools.iter().all(is_equal) || verdict != "same" {
            beyond.push(name);
        }
    }
    let mut text = format!(
        "{}, `cargo xtask accuracy --only fio-agreement --runs {}`. Ratios of halfpower to fio, \
         with 95% intervals. For {} of {rows} loads, rate and latency agree within 5% on the \
         reference devices, and `halfpower compare --same-within 5%` reports `same`.",
        host::machine(settings.dir),
        settings.rounds,
        rows - beyond.len(),
    );
    if !beyond.is_empty() {
        write!(text, " Other loads: {}.", beyond.join("; "))?;
    }
    let text = format!("{text}\n\n{table}");
    println!("{text}");
    if settings.write {
        repository::write_section("docs/compare-with-fio.md", "agreement", &text)?;
    }
    Ok(if beyond.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn shown(ratio: &Estimate) -> String {
    format!("{:.3} ({:.3} to {:.3})", ratio.median, ratio.low, ratio.high)
}

/// Returns true if the whole interval of a ratio is within the tolerated difference.
fn is_equal(ratio: &Estimate) -> bool {
    ratio.low >= 1.0 / (1.0 + DIFFERENCE_MAX) && ratio.high <= 1.0 + DIFFERENCE_MAX
}

/// A load and the file on which it runs.
#[derive(Clone, Copy)]
struct Place<'a> {
    settings: &'a Settings<'a>,
    name: &'a str,
    job: &'a str,
    folder: &'a Path,
    file: &'a Path,
}

impl Place<'_> {
    /// Runs all rounds and returns the ratios.
    fn ratios(&self) -> Result<Ratios> {
        // `compared` must not find the results of the previous file.
        for entry in std::fs::read_dir(self.folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|ending| ending == "json" || ending == "db") {
                std::fs::remove_file(path)?;
            }
        }
        let order = [Tool::Fio, Tool::Halfpower, Tool::Fio];
        let mut number = 0;
        let rounds =
            take_turns(self.name, self.settings.rounds, 3, &AtomicBool::new(false), |place| {
                number += 1;
                self.figures(order[place], number)
            })?;
        let ratio = |of: &dyn Fn(usize, &[Figures]) -> f64| {
            [0, 1].map(|which| {
                let of_rounds: Vec<f64> = rounds.iter().map(|round| of(which, round)).collect();
                estimate(&of_rounds)
            })
        };
        Ok(Ratios {
            tools: ratio(&|which, round| {
                round[1].0[which] / (round[0].0[which] * round[2].0[which]).sqrt()
            }),
            control: ratio(&|which, round| round[2].0[which] / round[0].0[which]),
        })
    }

    /// Runs a tool once and returns its figures. Stores the output of fio for `compared`.
    fn figures(&self, tool: Tool, number: u32) -> Result<Figures> {
        let job = self.folder.join("job.fio");
        std::fs::write(&job, job_file(self.file, self.job, number))?;
        let overwrite = format!("--overwrite={}", self.file.display());
        let mut words: Vec<&str> = Vec::new();
        if host::on_path("chrt").is_some() {
            words.extend(["chrt", "--rr", "5"]);
        }
        let (program, job) = (self.settings.program.to_string_lossy(), job.to_string_lossy());
        match tool {
            Tool::Fio => words.extend(["fio", &*job, "--output-format=json"]),
            Tool::Halfpower => {
                words.extend([&*program, "run", &*job, "--output-format=json"]);
                words.extend(["--trials=1", "--label=halfpower", &*overwrite]);
            }
        }
        let text = self.output(&words)?;
        if tool == Tool::Fio {
            std::fs::write(self.folder.join(format!("{number}.json")), &text)?;
        }
        parsed(&text).with_context(|| format!("cannot parse the output of {words:?}"))
    }

    /// Imports the results of fio. Returns the verdicts of `halfpower compare` on the imported runs
    /// and the stored runs of halfpower.
    fn compared(&self) -> Result<String> {
        let program = self.settings.program.to_string_lossy();
        let files = std::fs::read_dir(self.folder)?.map(|entry| Ok(entry?.path()));
        let files: Vec<PathBuf> = files.collect::<std::io::Result<_>>()?;
        let files = files.iter().filter(|path| path.extension().is_some_and(|e| e == "json"));
        let files: Vec<String> = files.map(|path| path.to_string_lossy().into_owned()).collect();
        let mut import = vec![&*program, "import", "--label=fio"];
        import.extend(files.iter().map(String::as_str));
        self.output(&import)?;
        let compare = ["compare", "label:fio", "label:halfpower", "--same-within=5%", "--json"];
        let text = match self.output(&[&[&*program], compare.as_slice()].concat()) {
            Ok(text) => text,
            Err(why) => {
                eprintln!("{why:#}");
                return Ok("failed".to_owned());
            }
        };
        let document: Value = serde_json::from_str(&text)?;
        let points =
            document["comparisons"][0]["points"].as_array().context("compare printed no points")?;
        let mut verdicts: Vec<&str> =
            points.iter().filter_map(|point| point["changes"][0]["verdict"].as_str()).collect();
        verdicts.sort_unstable();
        verdicts.dedup();
        ensure!(!verdicts.is_empty(), "`compare` gave no verdict on the load {}", self.name);
        Ok(verdicts.join(", "))
    }

    /// Runs a command in the temporary folder and returns its standard output.
    fn output(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(words[0]);
        let output = command.args(&words[1..]).current_dir(self.folder).output();
        let output = output.with_context(|| format!("cannot start {words:?}"))?;
        if !output.status.success() {
            bail!("{words:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Returns the job file of a load. The seed differs between runs, so that the intervals also cover
/// the variation due to random request sizes.
fn job_file(file: &Path, job: &str, seed: u32) -> String {
    let limits = if job.contains(" size=") { "" } else { TIMED };
    let lines: Vec<&str> = limits.split(' ').chain(job.split(' ')).collect();
    let (file, lines) = (file.display(), lines.join("\n"));
    format!("[global]\nfilename={file}\nrandseed={seed}\n{lines}\n")
}

/// Parses the JSON output of fio. Returns the geometric mean of the rates of all jobs, and the mean
/// latency of all requests. Fails if a job failed.
fn parsed(text: &str) -> Result<Figures> {
    let start = text.find('{').context("the output has no JSON")?;
    let document: Value = serde_json::from_str(&text[start..])?;
    let jobs = document["jobs"].as_array().context("the JSON has no jobs")?;
    let (mut rates, mut requests, mut latency_ns) = (Vec::new(), 0.0, 0.0);
    for job in jobs {
        ensure!(job["error"].as_i64() == Some(0), "a job failed with error {}", job["error"]);
        let mut rate = 0.0;
        for direction in [&job["read"], &job["write"]] {
            let number = |value: &Value| value.as_f64().context("the JSON lacks a number");
            let of_direction = number(&direction["total_ios"])?;
            rate += number(&direction["bw_bytes"])?;
            requests += of_direction;
            latency_ns += of_direction * number(&direction["lat_ns"]["mean"])?;
        }
        rates.push(rate);
    }
    ensure!(requests > 0.0 && !rates.contains(&0.0), "a job completed no requests");
    let logarithms: f64 = rates.iter().map(|rate| rate.ln()).sum();
    Ok(Figures([(logarithms / rates.len() as f64).exp(), latency_ns / requests]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_cover_all_jobs_and_directions() {
        let text = r#"warning
            {"jobs": [{"error": 0,
                "read": {"total_ios": 10, "bw_bytes": 300, "lat_ns": {"mean": 100.0}},
                "write": {"total_ios": 30, "bw_bytes": 100, "lat_ns": {"mean": 200.0}}},
             {"error": 0,
                "read": {"total_ios": 40, "bw_bytes": 900, "lat_ns": {"mean": 300.0}},
                "write": {"total_ios": 0, "bw_bytes": 0, "lat_ns": {"mean": 0.0}}}]}"#;
        let Figures([rate, latency_ns]) = parsed(text).unwrap();
        assert!((rate - 600.0).abs() < 1e-9 && (latency_ns - 237.5).abs() < 1e-9);
        assert!(parsed(r#"{"jobs": [{"error": 5}]}"#).is_err());
    }

    #[test]
    fn figures_are_equal_only_if_the_whole_interval_is_near_one() {
        let ratio = |low, high| Estimate { median: 1.0, low, high };
        assert!(is_equal(&ratio(0.96, 1.04)));
        assert!(!is_equal(&ratio(0.94, 1.04)) && !is_equal(&ratio(0.96, 1.06)));
    }

    #[test]
    fn a_job_file_has_an_option_in_each_line() {
        let text = job_file(Path::new("/x"), "[a] rw=read [b] stonewall", 7);
        assert!(text.starts_with("[global]\nfilename=/x\nrandseed=7\nsize=256m\n"), "{text}");
        assert!(text.ends_with("\n[a]\nrw=read\n[b]\nstonewall\n"), "{text}");
    }
}
