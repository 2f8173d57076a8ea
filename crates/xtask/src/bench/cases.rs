//! The cases of `bench peers`: tools, workloads and limits.
//!
//! If a case compares halfpower with several other tools, halfpower runs second. The tools that run
//! first and third are then directly before and after halfpower. The order of the tools is reversed
//! in every second round.

use super::host;
use super::statistics::{estimate, spread_of_identical};
use super::table::{Bar, Row};
use super::tool::{
    Contestant, Measurement, parse_fio, parse_halfpower, parse_t_io_uring, parse_whole,
};
use super::turns::take_turns;
use anyhow::Result;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Size of the sparse file (bytes).
const HOLES_BYTES: u64 = 1 << 30;
/// Size of the data file (bytes). The file is too large for the cache of a small virtual disk.
const DATA_BYTES: u64 = 2 << 30;

/// A group of comparisons that `--only` can select.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Case {
    /// Overhead of the load generator, without I/O
    Null,
    /// Random 4 KiB direct reads of a sparse file, io_uring, depth 32
    Holes,
    /// Sequential 1 MiB direct reads, depth 8, default settings
    Seq,
    /// Agreement of the rates of halfpower and fio, both with buffers of 4 KiB pages
    Agree,
    /// CPU time of simulations: a disk, the reproduction of a paper, a rack
    Simulator,
}

impl Case {
    /// All cases, in the order in which they run.
    pub const ALL: [Self; 5] = [Self::Null, Self::Holes, Self::Seq, Self::Agree, Self::Simulator];
}

/// Settings of all cases.
pub struct Bench {
    /// Number of rounds of each case.
    pub rounds: u32,
    /// Duration of a run (s).
    pub seconds: u32,
    /// Core to which every run is pinned.
    pub core: usize,
    /// Absolute path of the folder for test files, and the working directory of the tools.
    pub folder: PathBuf,
    /// The program under test.
    pub halfpower: PathBuf,
    /// Path of fio's t/io_uring. None if it is not installed.
    pub t_io_uring: Option<PathBuf>,
    /// Flag that a signal sets to stop the benchmark.
    pub stop: Arc<AtomicBool>,
}

/// The values of the flags that halfpower and fio share.
struct Workload {
    rw: &'static str,
    bs: &'static str,
    depth: u32,
}

/// The results of all rounds. Each round contains one result for each tool.
type Rounds = Vec<Vec<Measurement>>;

impl Bench {
    /// Returns true if a signal stopped the benchmark.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Runs one case, which takes some minutes, and returns its rows.
    pub fn run(&self, case: Case) -> Result<Vec<Row>> {
        match case {
            Case::Null => self.null(),
            Case::Holes => self.holes(),
            Case::Seq => self.sequential(),
            Case::Agree => self.agree(),
            Case::Simulator => self.simulator(),
        }
    }

    fn null(&self) -> Result<Vec<Row>> {
        let workload = Workload { rw: "randread", bs: "4k", depth: 32 };
        let contestants = [
            self.halfpower("halfpower", &workload, None, &["--ioengine=null"]),
            self.fio("fio", &workload, None, &["--ioengine=null", "--size=1G", "--norandommap=0"]),
        ];
        let rounds = self.rounds("null", &contestants)?;
        let cpu = |place: usize| column(&rounds, |round| round[place].cpu_ns_per_request);
        let ratios =
            column(&rounds, |round| round[0].cpu_ns_per_request / round[1].cpu_ns_per_request);
        Ok(vec![
            Row::new("null", "halfpower CPU ns/request", estimate(&cpu(0)), Bar::AtMost(60.0)),
            Row::new("null", "fio CPU ns/request", estimate(&cpu(1)), Bar::None),
            Row::new("null", "CPU per request, halfpower/fio", estimate(&ratios), Bar::AtMost(0.4)),
        ])
    }

    fn holes(&self) -> Result<Vec<Row>> {
        let file = self.folder.join("holes");
        host::make_sparse_file(&file, HOLES_BYTES)?;
        let target = Some(file.as_path());
        let workload = Workload { rw: "randread", bs: "4k", depth: 32 };
        let uring = ["--ioengine=io_uring", "--direct=1", "--size=1G"];
        let tuned = [
            "--iodepth_batch_submit=32",
            "--iodepth_batch_complete_min=1",
            "--iodepth_batch_complete_max=32",
            "--fixedbufs",
            "--registerfiles",
            "--norandommap",
        ];
        let subject = [uring.as_slice(), &["--allow-holes"]].concat();
        let mut contestants = vec![
            self.fio("fio default", &workload, target, &uring),
            self.halfpower("halfpower", &workload, target, &subject),
            self.fio("fio tuned", &workload, target, &[uring.as_slice(), &tuned].concat()),
        ];
        contestants.extend(self.t_io_uring.as_deref().map(|program| self.lean(program, &file)));
        let rounds = self.rounds("holes", &contestants)?;
        let mut rows = vec![
            Row::rate("holes", "halfpower kIOPS", &rates(&rounds, 1), 1e-3),
            Row::ratio("holes", "IOPS, halfpower/fio default", &rounds_ratio(&rounds, 1, 0), 2.4),
            Row::ratio("holes", "IOPS, halfpower/fio tuned", &rounds_ratio(&rounds, 1, 2), 1.15),
        ];
        if contestants.len() > 3 {
            let ratio = estimate(&rounds_ratio(&rounds, 1, 3));
            rows.push(Row::new("holes", "IOPS, halfpower/t-io_uring", ratio, Bar::Goal(1.0)));
        }
        std::fs::remove_file(&file)?;
        Ok(rows)
    }

    fn sequential(&self) -> Result<Vec<Row>> {
        let file = self.data_file()?;
        let target = Some(file.as_path());
        let workload = Workload { rw: "read", bs: "1m", depth: 8 };
        let uring = ["--ioengine=io_uring", "--direct=1", "--size=2G"];
        let contestants = [
            self.halfpower("halfpower", &workload, target, &uring),
            self.fio("fio", &workload, target, &uring),
        ];
        let rounds = self.rounds("seq", &contestants)?;
        let mb = f64::from(1 << 20) / 1e6;
        Ok(vec![
            Row::rate("seq", "halfpower MB/s", &rates(&rounds, 0), mb),
            Row::rate("seq", "fio MB/s", &rates(&rounds, 1), mb),
            Row::ratio("seq", "rate, halfpower/fio default", &rounds_ratio(&rounds, 0, 1), 2.0),
        ])
    }

    fn agree(&self) -> Result<Vec<Row>> {
        let file = self.data_file()?;
        let mut rows = Vec::new();
        for (name, workload) in [
            ("read 64 KiB x 8", Workload { rw: "read", bs: "64k", depth: 8 }),
            ("write 64 KiB x 8", Workload { rw: "write", bs: "64k", depth: 8 }),
            ("randread 4 KiB x 32", Workload { rw: "randread", bs: "4k", depth: 32 }),
        ] {
            rows.extend(self.agree_on(name, &workload, &file)?);
        }
        Ok(rows)
    }

    fn agree_on(&self, name: &str, workload: &Workload, file: &Path) -> Result<[Row; 2]> {
        let uring = ["--ioengine=io_uring", "--direct=1", "--size=2G"];
        let consent = format!("--overwrite={}", file.display());
        let mut arguments = [uring.as_slice(), &["--buffer-pages=4k"]].concat();
        if workload.rw == "write" {
            arguments.push(&consent);
        }
        let rival = [uring.as_slice(), &["--iomem=malloc"]].concat();
        let contestants = [
            self.halfpower("halfpower again", workload, Some(file), &arguments),
            self.halfpower("halfpower", workload, Some(file), &arguments),
            self.fio("fio", workload, Some(file), &rival),
        ];
        let rounds = self.rounds(&format!("agree, {name}"), &contestants)?;
        let twins = rounds_ratio(&rounds, 1, 0);
        let bar = Bar::Agreement { spread: spread_of_identical(&twins) };
        let ratio = estimate(&rounds_ratio(&rounds, 1, 2));
        Ok([
            Row::new("agree", &format!("{name}, halfpower/fio"), ratio, bar),
            Row::new("agree", &format!("{name}, halfpower/itself"), estimate(&twins), Bar::None),
        ])
    }

    /// Measures the CPU time of simulations.
    fn simulator(&self) -> Result<Vec<Row>> {
        let simulates = |name, words: &str, parse| {
            let words = words.split_whitespace().map(OsString::from);
            let command = std::iter::once(self.halfpower.clone().into()).chain(words).collect();
            Contestant { name, command, parse }
        };
        let sequential = "run sim:nt4-ultrawide --rw read --bs 2k --size 2g";
        let rack = "run sim:rack --rw randread --bs 8k --runtime 10";
        let kept = "--trials 1 --no-store --json --quiet";
        let contestants = [
            simulates("2 KiB reads", &format!("{sequential} {kept}"), parse_halfpower),
            simulates("riedel97", "reproduce riedel97 --json --quiet", parse_whole),
            simulates("rack", &format!("{rack} {kept}"), parse_whole),
        ];
        let rounds = self.rounds("simulator", &contestants)?;
        let cpu = |place: usize, of: fn(f64) -> f64| {
            estimate(&column(&rounds, |round| of(round[place].cpu_ns_per_request)))
        };
        let (million_per_s, seconds) = (|ns| 1e3 / ns, |ns| ns / 1e9);
        let row = |figure, value, bar| Row::new("simulator", figure, value, bar);
        Ok(vec![
            row("million requests per CPU second", cpu(0, million_per_s), Bar::AtLeast(2.0)),
            row("CPU s to reproduce riedel97", cpu(1, seconds), Bar::AtMost(5.0)),
            row("CPU s to simulate 10 s of a rack", cpu(2, seconds), Bar::AtMost(60.0)),
        ])
    }

    fn rounds(&self, name: &str, contestants: &[Contestant]) -> Result<Rounds> {
        take_turns(name, self.rounds, contestants.len(), &self.stop, |place| {
            contestants[place].run(self.core, &self.folder)
        })
    }

    /// Returns the path of the data file. The first call creates the file.
    fn data_file(&self) -> Result<PathBuf> {
        let file = self.folder.join("data");
        if !file.exists() {
            eprintln!("writing {} bytes", DATA_BYTES);
            host::make_full_file(&file, DATA_BYTES, || self.is_stopped())?;
        }
        Ok(file)
    }

    fn halfpower(
        &self,
        name: &'static str,
        workload: &Workload,
        target: Option<&Path>,
        extra: &[&str],
    ) -> Contestant {
        let mut command: Vec<OsString> = vec![self.halfpower.clone().into(), "run".into()];
        command.extend(target.map(OsString::from));
        command.extend(["--trials=1", "--no-store", "--json", "--quiet"].map(OsString::from));
        command.extend(self.shared(workload));
        command.push("--time-based".into());
        command.extend(extra.iter().map(OsString::from));
        Contestant { name, command, parse: parse_halfpower }
    }

    fn fio(
        &self,
        name: &'static str,
        workload: &Workload,
        target: Option<&Path>,
        extra: &[&str],
    ) -> Contestant {
        let mut command: Vec<OsString> = vec!["fio".into(), "--name=peer".into()];
        if let Some(target) = target {
            let mut filename = OsString::from("--filename=");
            filename.push(target);
            command.push(filename);
        }
        command.push("--output-format=json".into());
        command.extend(self.shared(workload));
        command.push("--time_based".into());
        command.extend(extra.iter().map(OsString::from));
        Contestant { name, command, parse: parse_fio }
    }

    /// Returns the arguments that halfpower and fio share.
    fn shared(&self, workload: &Workload) -> [OsString; 4] {
        let Workload { rw, bs, depth } = workload;
        [
            format!("--rw={rw}"),
            format!("--bs={bs}"),
            format!("--iodepth={depth}"),
            format!("--runtime={}", self.seconds),
        ]
        .map(OsString::from)
    }

    /// Returns the command for t/io_uring. The flag `-p0` selects interrupts, because a file system
    /// on a plain disk does not support polling.
    fn lean(&self, program: &Path, file: &Path) -> Contestant {
        let mut command = vec![OsString::from(program)];
        let runtime = format!("-r{}", self.seconds);
        command.extend(["-d32", "-s32", "-c32", "-b4096", "-p0", &runtime].map(OsString::from));
        command.push(file.into());
        Contestant { name: "t/io_uring", command, parse: parse_t_io_uring }
    }
}

fn column(rounds: &Rounds, figure: impl Fn(&[Measurement]) -> f64) -> Vec<f64> {
    rounds.iter().map(|round| figure(round)).collect()
}

fn rates(rounds: &Rounds, place: usize) -> Vec<f64> {
    column(rounds, |round| round[place].requests_per_s)
}

/// Returns the ratio of the rates of two tools in each round.
fn rounds_ratio(rounds: &Rounds, subject: usize, rival: usize) -> Vec<f64> {
    column(rounds, |round| round[subject].requests_per_s / round[rival].requests_per_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench(folder: &Path) -> Bench {
        Bench {
            rounds: 2,
            seconds: 3,
            core: host::last_allowed_core().unwrap(),
            folder: folder.to_path_buf(),
            halfpower: "halfpower".into(),
            t_io_uring: None,
            stop: Arc::default(),
        }
    }

    fn words(contestant: &Contestant) -> String {
        let words = contestant.command.iter().map(|word| word.to_str().unwrap());
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn both_tools_are_asked_for_the_same_workload() {
        let bench = bench(Path::new("."));
        let workload = Workload { rw: "read", bs: "64k", depth: 8 };
        let file = Some(Path::new("f"));
        assert_eq!(
            words(&bench.halfpower("halfpower", &workload, file, &["--direct=1"])),
            "halfpower run f --trials=1 --no-store --json --quiet --rw=read --bs=64k \
             --iodepth=8 --runtime=3 --time-based --direct=1"
        );
        assert_eq!(
            words(&bench.fio("fio", &workload, file, &["--direct=1"])),
            "fio --name=peer --filename=f --output-format=json --rw=read --bs=64k \
             --iodepth=8 --runtime=3 --time_based --direct=1"
        );
    }
}
