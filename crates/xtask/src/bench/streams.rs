//! Runs tools that read, write or copy a file, and measures the duration and CPU time of each run.
//! Before each run, brings the page cache into a known state.
//!
//! The duration is that of the whole process, except for fio and the examples of seqio: for these,
//! the duration that they report is used. The duration that fio reports excludes a start-up of a
//! quarter of a second, which favours fio. The duration that an example of seqio reports begins
//! before the file is opened and memory is allocated, and ends when all data are read or durable.
//! [`Tool::timed_as_process`] selects the duration of the whole process for any tool.
//!
//! The CPU time covers the process and its children. Runs are not pinned to a core, so that the
//! kernel threads for writeback use the other cores as usual.

use super::clock::{pause, timed};
use super::host;
use super::statistics::quantile;
use super::tool::cpu_ns_of_children;
use super::turns::take_turns;
use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A write to this file makes the kernel drop clean caches (proc_sys_vm(5)).
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
/// Range of the random pause before a run (s). The cost of allocating memory depends on the time
/// since the memory was freed. With random pauses, the runs cover different times.
const PAUSES: (f64, f64) = (0.2, 0.6);
/// Duration of a pause that gives a hypervisor enough time to take back free memory (s).
const REST_SECONDS: u32 = 20;
/// Number of runs that measure the start-up cost of a tool. The median is used.
const START_UPS: u32 = 11;

/// Values of the placeholders `{from}`, `{to}` and `{bytes}` in command lines.
#[derive(Clone, Debug)]
pub struct Places {
    /// Input file or directory tree.
    pub from: PathBuf,
    /// Output file or directory tree, which is removed before and after each run.
    pub to: PathBuf,
    /// Folder to which the output of each run is moved, with all files truncated. None if outputs
    /// are removed instead. If many files were removed, the next run would be slower, because ext4
    /// does not reuse their inodes for some minutes and must search for other inodes.
    pub spent: Option<PathBuf>,
    /// Size of the input and of the output (bytes).
    pub bytes: u64,
}

/// The clock that times a run: the clock of the benchmark (for the whole process), of fio, or of
/// the example of seqio.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Timer {
    Process,
    Fio,
    Example,
}

/// A command line of a tool, with placeholders for the files.
#[derive(Clone, Debug)]
pub struct Tool {
    /// Name of the tool in the table.
    pub name: String,
    words: Vec<String>,
    timer: Timer,
}

/// Duration and CPU time of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Duration of the run (s).
    pub seconds: f64,
    /// User and system time of the whole process (s).
    pub cpu_seconds: f64,
}

impl Tool {
    /// Creates a tool from a command line, which is split at spaces. Placeholders are replaced when
    /// the tool runs.
    pub fn new(name: &str, line: &str) -> Tool {
        let words = line.split_whitespace().map(String::from).collect();
        Tool { name: name.to_string(), words, timer: Timer::Process }
    }

    /// Creates a tool from the path of a program, followed by the arguments in `line`.
    pub fn of_program(name: &str, program: &Path, line: &str) -> Tool {
        let mut tool = Tool::new(name, line);
        tool.words.insert(0, program.to_string_lossy().into_owned());
        tool
    }

    /// Creates a tool from an example program of seqio. The example reports its own duration.
    pub fn example(name: &str, program: &Path, line: &str) -> Tool {
        Tool { timer: Timer::Example, ..Tool::of_program(name, program, line) }
    }

    pub fn timed_as_process(self) -> Tool {
        Tool { timer: Timer::Process, ..self }
    }

    /// Appends a number to the command line, and the number with its unit to the name of the tool.
    pub fn with(mut self, number: &str, unit: &str) -> Tool {
        self.words.push(number.to_string());
        self.name += &format!(", {number} {unit}");
        self
    }

    /// Creates a tool from a shell script, in which `$0` is `{from}` and `$1` is `{to}`.
    pub fn shell(name: &str, script: &str) -> Tool {
        let words = ["sh", "-c", script, "{from}", "{to}"].map(String::from).to_vec();
        Tool { name: name.to_string(), words, timer: Timer::Process }
    }

    /// Creates a tool that runs fio with these flags. The duration is the one that fio reports.
    pub fn fio(name: &str, flags: &str) -> Tool {
        let line = format!("fio --name=peer --output-format=json --size={{bytes}} {flags}");
        Tool { timer: Timer::Fio, ..Tool::new(name, &line) }
    }

    /// Returns a tool that runs `program`. The arguments are `flags`, followed by the command line
    /// of this tool.
    pub fn under(&self, program: &Path, flags: &[&str]) -> Tool {
        let mut words = vec![program.to_string_lossy().into_owned()];
        words.extend(flags.iter().map(|flag| flag.to_string()));
        words.extend(self.words.iter().cloned());
        Tool { name: self.name.clone(), words, timer: Timer::Process }
    }

    fn command(&self, places: &Places) -> Command {
        let [from, to] = [&places.from, &places.to].map(|path| path.to_string_lossy());
        let bytes = places.bytes.to_string();
        let placed = |word: &String| {
            word.replace("{bytes}", &bytes).replace("{from}", &from).replace("{to}", &to)
        };
        let mut words = self.words.iter().map(placed);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).stdin(Stdio::null());
        command
    }

    /// Runs the tool once and returns its duration and CPU time.
    pub fn run(&self, places: &Places) -> Result<Run> {
        let mut command = self.command(places);
        let hears = if self.timer == Timer::Process { Stdio::null() } else { Stdio::piped() };
        command.stdout(hears).stderr(Stdio::piped());
        let before = cpu_ns_of_children()?;
        let (output, seconds) =
            timed(|| command.spawn().and_then(|child| child.wait_with_output()));
        let cpu_ns = cpu_ns_of_children()? - before;
        let output = output.with_context(|| format!("cannot start {command:?}"))?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            bail!("{} failed ({}): {command:?}\n{}", self.name, output.status, words.trim());
        }
        let seconds = match self.timer {
            Timer::Process => Ok(seconds),
            Timer::Fio => fio_seconds(&String::from_utf8_lossy(&output.stdout), places.bytes),
            Timer::Example => example_seconds(&String::from_utf8_lossy(&output.stdout)),
        };
        let seconds = seconds.with_context(|| format!("cannot use the output of {command:?}"))?;
        Ok(Run { seconds, cpu_seconds: cpu_ns as f64 / 1e9 })
    }

    /// Runs the tool and returns its output.
    pub fn output(&self, places: &Places) -> Result<String> {
        let output = self.command(places).output().context("cannot start the tool")?;
        if !output.status.success() {
            bail!("{} failed: {}", self.name, String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Parses `took N ns` in the output of an example of seqio and returns the duration (s).
fn example_seconds(text: &str) -> Result<f64> {
    let words = text.trim().strip_suffix(" ns").and_then(|text| text.rsplit_once("took "));
    let (_, ns) = words.ok_or_else(|| anyhow!("the output has no `took N ns`: {text}"))?;
    let ns: f64 = ns.parse().with_context(|| format!("not a time: {ns}"))?;
    Ok(ns / 1e9)
}

/// Parses fio's JSON and returns the duration of the job, including the flush (s). Fails if the job
/// did not transfer all bytes.
fn fio_seconds(text: &str, bytes: u64) -> Result<f64> {
    let start = text.find('{').ok_or_else(|| anyhow!("fio printed no JSON"))?;
    let json: Value = serde_json::from_str(&text[start..]).context("fio printed no valid JSON")?;
    let job = &json["jobs"][0];
    if job["error"].as_i64() != Some(0) {
        bail!("the job failed with error {}", job["error"]);
    }
    let sum = |field: &str| -> Result<f64> {
        let of = |direction: &str| job[direction][field].as_f64().context("the JSON lacks a field");
        Ok(of("read")? + of("write")?)
    };
    let moved = sum("io_bytes")?;
    if moved != bytes as f64 {
        bail!("fio transferred {moved} bytes instead of {bytes}");
    }
    Ok(moved / sum("bw_bytes")?)
}

/// The state of the page cache before a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// The page cache holds no pages of the files.
    Cold,
    /// The page cache is empty, and a pause lets a hypervisor take back free memory.
    Rested,
    /// The page cache still holds pages of earlier runs.
    AsItIs,
}

/// Settings that all comparisons share.
pub struct Stage {
    /// Number of rounds of a comparison.
    pub rounds: u32,
    /// Folder for test files.
    pub folder: PathBuf,
    /// Flag that a signal sets to stop the comparison.
    pub stop: Arc<AtomicBool>,
    /// Random generator for the length of the pause before each run.
    pub random: RefCell<fastrand::Rng>,
}

/// The runs of all rounds. Each round contains one run of each tool.
pub struct Rounds(pub Vec<Vec<Run>>);

impl Stage {
    /// Returns true if a signal stopped the benchmark.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Runs each tool once per round, in alternating order. The output is removed after each run.
    pub fn turns(
        &self,
        name: &str,
        rounds: u32,
        tools: &[Tool],
        places: &Places,
        before: Before,
    ) -> Result<Rounds> {
        let runs = take_turns(name, rounds, tools.len(), &self.stop, |place| {
            self.prepare(places, before)?;
            let run = tools[place].run(places);
            match &places.spent {
                Some(spent) if places.to.exists() => host::empty_into(&places.to, spent)?,
                _ => host::remove(&places.to)?,
            }
            run
        })?;
        Ok(Rounds(runs))
    }

    fn prepare(&self, places: &Places, before: Before) -> Result<()> {
        host::remove(&places.to)?;
        if before != Before::AsItIs {
            drop_caches()?;
        }
        if before == Before::Rested {
            for _ in 0..REST_SECONDS {
                if !self.is_stopped() {
                    pause(1.0);
                }
            }
        }
        let share = self.random.borrow_mut().f64();
        pause(PAUSES.0 + (PAUSES.1 - PAUSES.0) * share);
        Ok(())
    }

    /// Measures the CPU time that a tool needs to start, with a run on a small file (s).
    pub fn start_up_cpu_seconds(&self, tool: &Tool, small: &Places) -> Result<f64> {
        let rounds =
            self.turns("start", START_UPS, std::slice::from_ref(tool), small, Before::AsItIs)?;
        Ok(rounds.median(0, |run| run.cpu_seconds))
    }
}

impl Rounds {
    /// Returns a figure (for example the duration) of one tool in each round.
    pub fn of(&self, tool: usize, figure: impl Fn(&Run) -> f64) -> Vec<f64> {
        self.0.iter().map(|round| figure(&round[tool])).collect()
    }

    pub fn median(&self, tool: usize, figure: impl Fn(&Run) -> f64) -> f64 {
        quantile(&self.of(tool, figure), 0.5)
    }

    /// Returns the index of the tool whose median figure is smallest.
    pub fn least(&self, figure: impl Fn(&Run) -> f64 + Copy) -> usize {
        let tools = 0..self.0.first().map_or(0, Vec::len);
        let by_median =
            |a: &usize, b: &usize| self.median(*a, figure).total_cmp(&self.median(*b, figure));
        tools.min_by(by_median).unwrap_or(0)
    }
}

/// Drops the page cache. Needs root.
pub fn drop_caches() -> Result<()> {
    let synced = Command::new("sync").status().context("cannot start sync")?;
    if !synced.success() {
        bail!("sync failed");
    }
    std::fs::write(DROP_CACHES, "3").with_context(|| format!("cannot write to {DROP_CACHES}"))
}

/// Returns why caches cannot be dropped. None if they can be dropped.
pub fn cannot_drop_caches() -> Option<String> {
    let opened = std::fs::OpenOptions::new().write(true).open(DROP_CACHES);
    opened.err().map(|error| format!("{DROP_CACHES}: {error}; run as root to drop caches"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(folder: &Path) -> Stage {
        Stage {
            rounds: 2,
            folder: folder.to_path_buf(),
            stop: Arc::default(),
            random: RefCell::new(fastrand::Rng::with_seed(1)),
        }
    }

    #[test]
    fn the_duration_of_an_example_is_parsed() {
        let line =
            "7 bytes, 0 lines; direct, 1024 KiB x 4, io_uring: large; at most 8; took 1500 ns\n";
        assert_eq!(example_seconds(line).unwrap(), 1.5e-6);
        assert!(example_seconds("7 bytes").is_err());
    }

    #[test]
    fn placeholders_are_replaced() {
        let places =
            Places { from: "/a b/from".into(), to: "/a b/to".into(), spent: None, bytes: 7 };
        let command = Tool::fio("fio", "--filename={from} --rw=read").command(&places);
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        let filename = "--filename=/a b/from";
        assert_eq!(
            words,
            ["--name=peer", "--output-format=json", "--size=7", filename, "--rw=read"]
        );
        let shell = Tool::shell("cp", "cp \"$0\" \"$1\"");
        assert_eq!(shell.command(&places).get_args().last().unwrap(), "/a b/to");
    }

    #[test]
    fn a_run_has_duration_and_cpu_time_and_its_output_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places {
            from: folder.path().join("from"),
            to: folder.path().join("to"),
            spent: None,
            bytes: 1,
        };
        std::fs::write(&places.from, "x").unwrap();
        let spin = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; cp \"$0\" \"$1\"";
        let tools = [Tool::shell("spin", spin), Tool::shell("look", "test ! -e \"$1\"")];
        let stage = stage(folder.path());
        let rounds = stage.turns("test", 1, &tools, &places, Before::AsItIs).unwrap();
        let [spun, other] = rounds.0[0][..] else { panic!("two tools") };
        assert!(spun.seconds > 0.0 && spun.cpu_seconds > other.cpu_seconds);
        assert!(!places.to.exists() && places.from.exists());
        assert_eq!(rounds.least(|run| run.cpu_seconds), 1);
    }

    #[test]
    fn a_failing_tool_is_reported_with_its_output() {
        let places = Places { from: "from".into(), to: "to".into(), spent: None, bytes: 1 };
        let error = Tool::shell("broken", "echo because >&2; exit 3");
        let error = error.run(&places).unwrap_err().to_string();
        assert!(error.contains("because") && error.contains("exit 3"), "{error}");
    }

    #[test]
    fn the_duration_of_fio_is_its_own_and_needs_all_bytes() {
        let json = r#"fio: a warning
            {"jobs": [{"error": 0, "read": {"io_bytes": 1000, "bw_bytes": 500},
                "write": {"io_bytes": 0, "bw_bytes": 0}}]}"#;
        assert_eq!(fio_seconds(json, 1000).unwrap(), 2.0);
        assert!(fio_seconds(json, 2000).is_err(), "fewer bytes than requested");
        assert!(fio_seconds(r#"{"jobs": [{"error": 28}]}"#, 1).is_err());
    }
}
