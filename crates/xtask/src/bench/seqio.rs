//! `cargo xtask bench seqio`: compares the crate `seqio` and `halfpower copy` with fio, dd, cat and
//! cp on this machine.
//!
//! Separate rounds first choose the best settings of the other tools. Then the tools run in turns
//! (see the module `streams`). Caches are dropped before each run of a cold case, which needs root.
//! The cases are `read`, `hot` (from the page cache), `write` (a new file, with a flush), `copy`,
//! `tree` (many small files), `memory` and `adaptors` (overhead of the std and tokio traits). The
//! module `replaced` adds `random`, `small`, `pipe`, `tmpfs` and `checksum`. The benchmark builds
//! the release examples of the crate and, if needed, the program. Skipped cases are listed with the
//! reason. Results are printed, not stored.

mod replaced;

use super::hugepages::HugePages;
use super::rivals;
use super::scattered;
use super::statistics::{estimate, quantile};
use super::streams::{Before, Places, Rounds, Stage, Tool, cannot_drop_caches, drop_caches};
use super::table::{Bar, Row};
use super::{host, repository};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// Number of rounds that are used to choose the best setting of another tool.
const CHOOSING_ROUNDS: u32 = 3;
/// Size of a small file (bytes). The cost of a run on it is little more than the tool's start-up.
const SMALL_BYTES: u64 = 1 << 20;
/// CPU time above which `cat` counts as expensive (s/GiB).
const EXPENSIVE_CAT: f64 = 0.4;
/// Maximum number of rounds in the comparison that has a long pause before each run.
const RESTED_ROUNDS: u32 = 5;
/// Maximum memory of a stream in addition to the buffers of its requests (bytes).
const MEMORY_BESIDES_BYTES: u64 = 8 << 20;
/// Number of runs of each stream. The median of their peak memory is reported.
const MEMORY_RUNS: u32 = 3;
/// Number of files in the tree of small files.
const TREE_FILES: u32 = 20_000;
/// Number of folders in the tree of small files.
const TREE_FOLDERS: u32 = 100;
/// Sizes of the files in the tree of small files (KiB).
const TREE_KIB: std::ops::RangeInclusive<u32> = 1..=64;

const GIB: f64 = (1_u64 << 30) as f64;
const MIB: f64 = (1_u64 << 20) as f64;

/// A comparison that `--only` can select.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Case {
    /// Reads of a cold file, block by block
    Read,
    /// Reads of a file in the page cache
    Hot,
    /// Writes of a new file, including the flush
    Write,
    /// `halfpower copy` of one file
    Copy,
    /// `halfpower copy` of 20,000 small files
    Tree,
    /// Random reads of a cold file, compared with `BufReader`
    Random,
    /// Reads of small files in the page cache, compared with `BufReader`
    Small,
    /// `halfpower cat` into a pipe, compared with cat and pv
    Pipe,
    /// `halfpower copy` of a file in memory, compared with cp
    Tmpfs,
    /// `halfpower checksum`, compared with b3sum
    Checksum,
    /// Peak memory of streams
    Memory,
    /// Overhead of the traits of std and tokio
    Adaptors,
}

impl Case {
    const ALL: [Case; 12] = [
        Case::Read,
        Case::Hot,
        Case::Write,
        Case::Copy,
        Case::Tree,
        Case::Random,
        Case::Small,
        Case::Pipe,
        Case::Tmpfs,
        Case::Checksum,
        Case::Memory,
        Case::Adaptors,
    ];
}

/// Settings and results of all cases.
pub struct Lab {
    stage: Stage,
    bytes: u64,
    examples: PathBuf,
    huge: Option<HugePages>,
    has_fio: bool,
    rows: Vec<Row>,
    skipped: Vec<String>,
}

impl Lab {
    /// Builds the examples and checks which tools are available.
    pub fn new(stage: Stage, bytes: u64) -> Result<Lab> {
        let examples = repository::release_examples_of_seqio()?;
        let has_fio = host::on_path("fio").is_some();
        let mut skipped = Vec::new();
        let huge = HugePages::reserve(rivals::HUGE_PAGES);
        if let Err(error) = &huge {
            skipped.push(format!("fio with iomem=mmaphuge: {error:#}"));
        }
        Ok(Lab { stage, bytes, examples, huge: huge.ok(), has_fio, rows: Vec::new(), skipped })
    }

    /// Runs the cases in `only`, or all cases if it is empty. Returns the rows, and the skipped
    /// cases with the reason.
    pub fn run(mut self, only: &[Case]) -> Result<(Vec<Row>, Vec<String>)> {
        for case in Case::ALL {
            if only.is_empty() || only.contains(&case) {
                match case {
                    Case::Read => self.read()?,
                    Case::Hot => self.hot()?,
                    Case::Write => self.write()?,
                    Case::Copy => self.copy()?,
                    Case::Tree => self.tree()?,
                    Case::Random => self.random()?,
                    Case::Small => self.small_files()?,
                    Case::Pipe => self.pipe()?,
                    Case::Tmpfs => self.in_memory()?,
                    Case::Checksum => self.checksum()?,
                    Case::Memory => self.memory()?,
                    Case::Adaptors => self.adaptors()?,
                }
            }
        }
        Ok((self.rows, self.skipped))
    }

    fn read(&mut self) -> Result<()> {
        if self.is_skipped("read", cannot_drop_caches()) {
            return Ok(());
        }
        let data = self.data()?;
        let best =
            self.choose("read", rivals::readers(self.has_fio, self.huge.is_some()), &data)?;
        let mut tools = vec![best, self.consume("blocks", "none")];
        if !self.is_skipped("read, fio's defaults", self.no_fio()) {
            tools.push(rivals::default_reader());
        }
        let rounds = self.turns("read", &tools, &data, Before::Cold)?;
        self.rate("read", &rounds, &tools, (1, 0), 0.95);
        if tools.len() > 2 {
            self.rate("read", &rounds, &tools, (1, 2), 2.0);
            self.read_scattered(&data)?;
        }
        self.read_adaptive(&data)?;
        self.read_cpu(&data)
    }

    /// Measures cold reads while free memory is fragmented, as it is on a machine that has been up
    /// for days.
    fn read_scattered(&mut self, data: &Places) -> Result<()> {
        let scattered = scattered::memory();
        let why = scattered.as_ref().err().map(|error| format!("{error:#}"));
        if self.is_skipped("read, scattered memory", why) {
            return Ok(());
        }
        let mut tools = [rivals::default_reader(), self.consume("blocks", "none")];
        tools[0].name += ", scattered memory";
        let rounds = self.turns("read, scattered memory", &tools, data, Before::Cold)?;
        self.rate("read", &rounds, &tools, (1, 0), 2.0);
        Ok(())
    }

    /// Compares the rate of reads at an adaptive queue depth with the rate at a fixed depth. Runs
    /// more rounds than other cases, because the tolerated difference is only 3%.
    fn read_adaptive(&mut self, data: &Places) -> Result<()> {
        let tools = [self.consume("fixed", "none"), self.consume("blocks", "none")];
        let rounds = 3 * self.stage.rounds;
        let rounds = self.turns_of(rounds, "read, depth", &tools, data, Before::Cold)?;
        self.rate("read", &rounds, &tools, (1, 0), 0.97);
        Ok(())
    }

    /// Compares the CPU time of seqio for reads with the CPU time of fio, and then with the CPU
    /// time of `cat`. The start-up of the tools is subtracted.
    fn read_cpu(&mut self, data: &Places) -> Result<()> {
        if !self.is_skipped("read, CPU of fio", self.no_fio()) {
            let plan = self.requests(data)?;
            let lean = rivals::readers_with(plan.bytes >> 10, plan.depth, self.huge.is_some());
            let rounds = self.turns_of(CHOOSING_ROUNDS, "leanest", &lean, data, Before::Cold)?;
            let leanest = lean[rounds.least(|run| run.cpu_seconds)].clone();
            let tools = [self.consume("blocks", "none"), leanest];
            let costs = self.costs("read CPU", self.stage.rounds, &tools, data, Before::Cold)?;
            let sides = Side::of(&tools, costs);
            self.compare("read", "CPU s/GiB", sides, false, Bar::AtMost(0.8));
        }
        self.read_cpu_of_cat(data)
    }

    /// Compares the CPU time of seqio for reads with the CPU time of `cat`, which uses the page
    /// cache. If a hypervisor has taken back idle memory, `cat` is expensive, because each new page
    /// causes a fault on the host. The limit applies only to rounds in which `cat` is expensive.
    fn read_cpu_of_cat(&mut self, data: &Places) -> Result<()> {
        let tools = [self.consume("blocks", "none"), rivals::cat()];
        let rounds = self.stage.rounds.min(RESTED_ROUNDS);
        let [ours, cat] = self.costs("read CPU, rested", rounds, &tools, data, Before::Rested)?;
        let all = ours.iter().copied().zip(cat.iter().copied());
        let expensive: (Vec<f64>, Vec<f64>) = all.filter(|(_, cat)| *cat > EXPENSIVE_CAT).unzip();
        let what =
            format!("CPU s/GiB, rounds with expensive cat: {} of {rounds}", expensive.1.len());
        if expensive.1.is_empty() {
            let why = format!(
                "cat never used more than {EXPENSIVE_CAT} s of CPU time per GiB, so the limit does \
                 not apply"
            );
            self.skipped.push(format!("read, CPU of cat: {why}"));
            let sides = Side::of(&tools, [ours, cat]);
            self.compare("read", "CPU s/GiB, cheap cat", sides, false, Bar::None);
        } else {
            let sides = Side::of(&tools, expensive.into());
            self.compare("read", &what, sides, false, Bar::AtMost(0.1));
        }
        Ok(())
    }

    /// Measures the CPU time of two tools in every round, minus the CPU time of their start-up
    /// (s/GiB).
    fn costs(
        &self,
        name: &str,
        rounds: u32,
        tools: &[Tool; 2],
        data: &Places,
        before: Before,
    ) -> Result<[Vec<f64>; 2]> {
        let small = self.small()?;
        let [first, second] = tools;
        let started = [
            self.stage.start_up_cpu_seconds(first, &small)?,
            self.stage.start_up_cpu_seconds(second, &small)?,
        ];
        let rounds = self.turns_of(rounds, name, tools, data, before)?;
        let gib = data.bytes as f64 / GIB;
        let of = |tool: usize| rounds.of(tool, |run| (run.cpu_seconds - started[tool]) / gib);
        Ok([of(0), of(1)])
    }

    fn hot(&mut self) -> Result<()> {
        let data = self.data()?;
        let mut file = std::fs::File::open(&data.from).context("cannot open the data file")?;
        std::io::copy(&mut file, &mut std::io::sink()).context("cannot read the data file")?;
        // A run takes only a tenth of a second, so start-up matters. Both tools are therefore timed
        // as whole processes.
        let tools = [rivals::cat(), self.consume("blocks", "none").timed_as_process()];
        let rounds = self.turns("hot", &tools, &data, Before::AsItIs)?;
        self.rate("hot", &rounds, &tools, (1, 0), 0.95);
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        let cannot = cannot_drop_caches().or_else(|| self.no_fio());
        if self.is_skipped("write", cannot) {
            return Ok(());
        }
        let places = self.places("no file is read", self.bytes);
        let best = self.choose("write", rivals::writers(self.huge.is_some()), &places)?;
        let tools = [
            self.produce("space", "stamp", "foretold"),
            best,
            self.produce("space", "stamp", ""),
            rivals::durable_dd(),
        ];
        let rounds = self.turns("write", &tools, &places, Before::Cold)?;
        self.rate("write", &rounds, &tools, (0, 1), 0.95);
        self.rate("write", &rounds, &tools, (2, 1), 0.95);
        self.cpu("write", &rounds, &tools, (2, 3), Bar::AtMost(0.5));
        Ok(())
    }

    fn copy(&mut self) -> Result<()> {
        let Some(halfpower) = self.program("copy", cannot_drop_caches())? else { return Ok(()) };
        let data = self.data()?;
        let tools = [
            Tool::shell("cp && sync DST", r#"cp "$0" "$1" && sync "$1""#),
            Tool::of_program("halfpower copy", &halfpower, "copy --quiet {from} {to}"),
            Tool::shell("cp && sync", r#"cp "$0" "$1" && sync"#),
        ];
        let rounds = self.turns("copy", &tools, &data, Before::Cold)?;
        for rival in [0, 2] {
            let faster = rate_ratios(&rounds, 1, rival);
            if quantile(&faster, 0.5) >= 1.3 {
                self.rate("copy", &rounds, &tools, (1, rival), 1.3);
                self.cpu("copy", &rounds, &tools, (1, rival), Bar::None);
            } else {
                // The device limits both tools, so halfpower must reach the same rate with less CPU
                // time.
                self.rate("copy", &rounds, &tools, (1, rival), 0.97);
                self.cpu("copy", &rounds, &tools, (1, rival), Bar::AtMost(0.6));
            }
        }
        Ok(())
    }

    fn tree(&mut self) -> Result<()> {
        let Some(halfpower) = self.program("tree", cannot_drop_caches())? else { return Ok(()) };
        let spent = self.stage.folder.join("spent");
        let tree = Places { spent: Some(spent.clone()), ..self.places("tree", 0) };
        host::make_tree(&tree.from, TREE_FILES, TREE_FOLDERS, TREE_KIB, &self.stage.stop)?;
        let copy = |name, flags: &str| {
            Tool::of_program(name, &halfpower, &format!("copy --quiet {flags} {{from}} {{to}}"))
        };
        let durable = [
            Tool::shell("cp -r && sync -f", r#"cp -r "$0" "$1" && sync -f "$1""#),
            copy("halfpower copy", ""),
        ];
        let quick = [
            Tool::new("cp -r", "cp -r {from} {to}"),
            copy("halfpower copy --no-sync", "--no-sync"),
        ];
        for (state, before) in [("cold", Before::Cold), ("hot", Before::AsItIs)] {
            for tools in [&durable, &quick] {
                let name = format!("tree, {state}");
                let rounds = self.turns(&name, tools, &tree, before)?;
                let side = |tool: usize| Side {
                    name: &tools[tool].name,
                    values: rounds.of(tool, |run| run.seconds),
                };
                let what = format!("s, {state}");
                self.compare("tree", &what, [side(1), side(0)], false, Bar::AtMost(1.0));
            }
        }
        host::remove(&spent)?;
        host::remove(&tree.from)
    }

    fn memory(&mut self) -> Result<()> {
        if self.is_skipped("memory", cannot_drop_caches()) {
            return Ok(());
        }
        let data = self.data()?;
        let part = Places { from: self.stage.folder.join("part"), bytes: self.bytes / 8, ..data };
        self.lay_out(&part.from, part.bytes)?;
        let data = self.data()?;
        let plan = self.requests(&data)?;
        let limit = plan.depth_most * plan.bytes + MEMORY_BESIDES_BYTES;
        let bar = Bar::AtMost(limit as f64 / MIB);
        let mut tools = vec![self.consume("blocks", "none"), self.produce("space", "stamp", "")];
        if let Some(halfpower) = self.program("memory of copy", None)? {
            tools.push(Tool::of_program("halfpower copy", &halfpower, "copy --quiet {from} {to}"));
        }
        let judge = std::env::current_exe().context("cannot find this program")?;
        for tool in &tools {
            for places in [&data, &part] {
                let watched = tool.under(&judge, &["bench", "peak", "--"]);
                let mut peaks = Vec::new();
                for _ in 0..MEMORY_RUNS {
                    host::remove(&places.to)?;
                    drop_caches()?;
                    let said = watched.output(places)?;
                    let kib: f64 = said.trim().parse().with_context(|| format!("peak: {said}"))?;
                    peaks.push(kib / 1024.0);
                }
                host::remove(&places.to)?;
                let what = format!(
                    "peak memory of {} in MiB, for a file of {} MiB",
                    tool.name,
                    places.bytes >> 20
                );
                self.rows.push(Row::new("memory", &what, estimate(&peaks), bar));
            }
        }
        host::remove(&part.from)
    }

    fn adaptors(&mut self) -> Result<()> {
        if self.is_skipped("adaptors", cannot_drop_caches()) {
            return Ok(());
        }
        let data = self.data()?;
        // Each interface is compared with `blocks`, which does not copy data. The consumer `lines`
        // reads every byte. The consumer `none` reads no bytes, so the ratio to `blocks` mostly
        // shows the cost of the copies. The ratio therefore has no limit for `none`.
        for (consumer, bar) in [("lines", Bar::AtMost(1.15)), ("none", Bar::None)] {
            // The cost of Read and AsyncRead depends on the size of the caller's buffer.
            let ways = ["read", "bufread", "blocks", "async", "asyncbuf"];
            let mut tools = Vec::from(ways.map(|way| self.consume(way, consumer)));
            tools.extend(
                ["read", "async"].map(|way| self.consume(way, consumer).with("128", "KiB")),
            );
            let rounds =
                self.turns(&format!("adaptors, {consumer}"), &tools, &data, Before::Cold)?;
            for way in [0, 1, 3, 4, 5, 6] {
                self.cpu("adaptors", &rounds, &tools, (way, 2), bar);
            }
        }
        for (producer, bar) in [("all", Bar::AtMost(1.15)), ("stamp", Bar::None)] {
            let tools = ["write", "space", "async"].map(|way| self.produce(way, producer, ""));
            let rounds =
                self.turns(&format!("adaptors, {producer}"), &tools, &data, Before::Cold)?;
            for way in [0, 2] {
                self.cpu("adaptors", &rounds, &tools, (way, 1), bar);
            }
        }
        Ok(())
    }
}

/// One of the two tools of a comparison, with its measured value in each round.
struct Side<'a> {
    name: &'a str,
    values: Vec<f64>,
}

impl<'a> Side<'a> {
    fn of(tools: &'a [Tool; 2], [first, second]: [Vec<f64>; 2]) -> [Side<'a>; 2] {
        let [one, other] = tools;
        [Side { name: &one.name, values: first }, Side { name: &other.name, values: second }]
    }
}

fn rate_ratios(rounds: &Rounds, ours: usize, theirs: usize) -> Vec<f64> {
    rounds.0.iter().map(|round| round[theirs].seconds / round[ours].seconds).collect()
}

impl Lab {
    /// Adds a row that compares the rates of two tools.
    fn rate(
        &mut self,
        case: &'static str,
        rounds: &Rounds,
        tools: &[Tool],
        (ours, theirs): (usize, usize),
        bar: f64,
    ) {
        let bytes = self.bytes as f64;
        let side = |tool: usize| Side {
            name: &tools[tool].name,
            values: rounds.of(tool, |run| bytes / run.seconds / 1e6),
        };
        self.compare(case, "MB/s", [side(ours), side(theirs)], true, Bar::AtLeast(bar));
    }

    /// Adds a row that compares the CPU times per GiB of two tools, including their start-up.
    fn cpu(
        &mut self,
        case: &'static str,
        rounds: &Rounds,
        tools: &[Tool],
        (ours, theirs): (usize, usize),
        bar: Bar,
    ) {
        let gib = self.bytes as f64 / GIB;
        let side = |tool: usize| Side {
            name: &tools[tool].name,
            values: rounds.of(tool, |run| run.cpu_seconds / gib),
        };
        self.compare(case, "CPU s/GiB", [side(ours), side(theirs)], false, bar);
    }

    /// Adds a row with the median value of each tool, and the median ratio of their values in the
    /// same round.
    fn compare(
        &mut self,
        case: &'static str,
        what: &str,
        [ours, theirs]: [Side; 2],
        is_rate: bool,
        bar: Bar,
    ) {
        let number = |values: &[f64]| {
            let median = quantile(values, 0.5);
            if is_rate { format!("{median:.0}") } else { format!("{median:.3}") }
        };
        let text = format!(
            "{what}: {} {} / {} {}",
            ours.name,
            number(&ours.values),
            theirs.name,
            number(&theirs.values)
        );
        let ratios: Vec<f64> =
            ours.values.iter().zip(&theirs.values).map(|(ours, theirs)| ours / theirs).collect();
        let row = Row::new(case, &text, estimate(&ratios), bar);
        eprint!("{}", super::table::render(std::slice::from_ref(&row)));
        self.rows.push(row);
    }

    fn turns(&self, name: &str, tools: &[Tool], places: &Places, before: Before) -> Result<Rounds> {
        self.turns_of(self.stage.rounds, name, tools, places, before)
    }

    fn turns_of(
        &self,
        rounds: u32,
        name: &str,
        tools: &[Tool],
        places: &Places,
        before: Before,
    ) -> Result<Rounds> {
        self.stage.turns(name, rounds, tools, places, before)
    }

    /// Measures several tools in separate rounds and returns the fastest.
    fn choose(&self, name: &str, tools: Vec<Tool>, places: &Places) -> Result<Tool> {
        let name = format!("{name}, choosing");
        let rounds = self.turns_of(CHOOSING_ROUNDS, &name, &tools, places, Before::Cold)?;
        for (place, tool) in tools.iter().enumerate() {
            let rate = self.bytes as f64 / rounds.median(place, |run| run.seconds) / 1e6;
            let cpu = rounds.median(place, |run| run.cpu_seconds);
            eprintln!("  {}: {rate:.0} MB/s, {cpu:.3} s of CPU", tool.name);
        }
        let best = rounds.least(|run| run.seconds);
        tools.into_iter().nth(best).context("there are no tools to compare")
    }

    fn consume(&self, way: &str, consumer: &str) -> Tool {
        let name = match consumer {
            "none" => format!("seqio {way}"),
            looks => format!("seqio {way} ({looks})"),
        };
        let line = format!("{way} {consumer} {{from}}");
        Tool::example(&name, &self.examples.join("consume"), &line)
    }

    fn produce(&self, way: &str, producer: &str, size_flag: &str) -> Tool {
        let mut name = match producer {
            "stamp" => format!("seqio {way}"),
            makes => format!("seqio {way} ({makes})"),
        };
        if !size_flag.is_empty() {
            name += ", known size";
        }
        let line = format!("{way} {producer} {{to}} {{bytes}} {size_flag}");
        Tool::example(&name, &self.examples.join("produce"), &line)
    }

    /// Returns the request size and queue depth that seqio chooses for a cold file.
    fn requests(&self, data: &Places) -> Result<Requests> {
        drop_caches()?;
        Requests::of(&self.consume("blocks", "none").output(data)?)
    }

    /// Returns true if `why` contains a reason to skip the case, and records the reason.
    fn is_skipped(&mut self, what: &str, why: Option<String>) -> bool {
        let skipped = why.is_some();
        self.skipped.extend(why.map(|why| format!("{what}: {why}")));
        skipped
    }

    fn no_fio(&self) -> Option<String> {
        (!self.has_fio).then(|| "fio is missing: install the package `fio`".to_string())
    }

    /// Builds the release program and returns its path. Returns None and records a skipped case if
    /// `cannot` contains a reason why the case cannot run, or if the program has no subcommand
    /// `copy`.
    fn program(&mut self, case: &str, cannot: Option<String>) -> Result<Option<PathBuf>> {
        if self.is_skipped(case, cannot) {
            return Ok(None);
        }
        let program = repository::release_build()?;
        let mut command = std::process::Command::new(&program);
        let help = command.args(["copy", "--help"]).output().context("cannot start halfpower")?;
        let why =
            (!help.status.success()).then(|| "halfpower has no subcommand `copy`".to_string());
        Ok(if self.is_skipped(case, why) { None } else { Some(program) })
    }

    fn places(&self, from: &str, bytes: u64) -> Places {
        let folder = &self.stage.folder;
        Places { from: folder.join(from), to: folder.join("new"), spent: None, bytes }
    }

    /// Returns the paths of a run that reads the data file. The first call creates this file.
    fn data(&self) -> Result<Places> {
        let places = self.places("data", self.bytes);
        self.lay_out(&places.from, places.bytes)?;
        Ok(places)
    }

    /// Returns the paths of a run that reads a small file, to measure the start-up of the tool.
    fn small(&self) -> Result<Places> {
        let places = self.places("small", SMALL_BYTES);
        self.lay_out(&places.from, places.bytes)?;
        Ok(places)
    }

    fn lay_out(&self, path: &Path, bytes: u64) -> Result<()> {
        if !path.exists() {
            eprintln!("writing {bytes} bytes");
            host::make_laid_out_file(path, bytes, || self.stage.is_stopped())?;
        }
        if self.stage.is_stopped() {
            bail!("interrupted");
        }
        Ok(())
    }
}

/// Request size, queue depth and maximum queue depth that an example of seqio prints.
#[derive(Debug, PartialEq)]
struct Requests {
    bytes: u64,
    depth: u64,
    depth_most: u64,
}

impl Requests {
    /// Parses the output of an example, such as `..., 1024 KiB x 4, ...; at most 8; ...`.
    fn of(said: &str) -> Result<Requests> {
        let read = || {
            let (before, after) = said.split_once(" KiB x ")?;
            let kib: u64 = before.rsplit(' ').next()?.parse().ok()?;
            let depth = after.split(',').next()?.parse().ok()?;
            let (depth_most, _) = said.rsplit_once("; at most ")?.1.split_once(';')?;
            let depth_most = depth_most.parse().ok()?;
            Some(Requests { bytes: kib << 10, depth, depth_most })
        };
        read().with_context(|| {
            format!("cannot find the request size and depths in the output of an example: {said}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::streams::Run;
    use super::*;

    #[test]
    fn requests_are_read_from_what_an_example_says() {
        let said = "7 bytes, 0 lines; direct, 1024 KiB x 4, io_uring: large and cold; on virtual \
                    disk (default of its kind); at most 8; took 435007473 ns\n";
        let wanted = Requests { bytes: 1 << 20, depth: 4, depth_most: 8 };
        assert_eq!(Requests::of(said).unwrap(), wanted);
        assert!(Requests::of("7 bytes").is_err());
    }

    #[test]
    fn a_rate_is_the_inverse_of_a_time() {
        let run = |seconds| Run { seconds, cpu_seconds: 1.0 };
        let rounds = Rounds(vec![vec![run(2.0), run(1.0)], vec![run(3.0), run(6.0)]]);
        assert_eq!(rate_ratios(&rounds, 1, 0), [2.0, 0.5]);
    }
}
