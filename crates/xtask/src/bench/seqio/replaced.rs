//! Cases in which a higher queue depth does not help: random reads, small files in the page cache,
//! pipes, files in memory, and checksums. In these cases, seqio may be at most 5% slower than the
//! tool that it replaces.

use super::{Lab, Side, Tool};
use crate::bench::host;
use crate::bench::streams::{Before, Places, cannot_drop_caches};
use crate::bench::table::Bar;
use anyhow::{Result, bail};
use std::path::Path;
use std::process::Command;

/// Limit on the ratio of durations: seqio may be at most 5% slower than the replaced tool.
const BAR: Bar = Bar::AtMost(1.05);
/// Number of random reads of 4 KiB in a run.
const VISITS: u32 = 1000;
const FILES: u32 = 2000;
/// Sizes of the small files (KiB).
const FILE_KIB: std::ops::RangeInclusive<u32> = 1..=64;
/// Number of passes over all small files in a run.
const TIMES: u32 = 5;

impl Lab {
    /// Measures random reads of a cold file, compared with `BufReader`.
    pub(super) fn random(&mut self) -> Result<()> {
        if self.is_skipped("random", cannot_drop_caches()) {
            return Ok(());
        }
        let data = self.data()?;
        let tools = ["std", "seqio"].map(|how| self.visits("random", how, VISITS));
        self.compare_with_replaced("random", "cold, 4 KiB", &tools, &data, Before::Cold)
    }

    /// Measures reads of small files in the page cache, compared with `BufReader`.
    pub(super) fn small_files(&mut self) -> Result<()> {
        let folder = self.places("files", 0);
        host::make_tree(&folder.from, FILES, 1, FILE_KIB, &self.stage.stop)?;
        let files = Places { from: folder.from.join("folder-000"), ..folder.clone() };
        let tools = ["std", "seqio"].map(|how| self.visits("files", how, TIMES));
        self.compare_with_replaced(
            "small",
            "hot files of 1 to 64 KiB",
            &tools,
            &files,
            Before::AsItIs,
        )?;
        host::remove(&folder.from)
    }

    /// Measures output into a pipe, compared with cat and pv.
    pub(super) fn pipe(&mut self) -> Result<()> {
        let Some(halfpower) = self.program("pipe", cannot_drop_caches())? else { return Ok(()) };
        let data = self.data()?;
        let into_pipe = |name: &str, program: &str| {
            Tool::shell(name, &format!(r#"{program} "$0" | cat >/dev/null"#))
        };
        let ours = into_pipe("halfpower cat | cat", &format!("'{}' cat", halfpower.display()));
        let mut rivals = vec![into_pipe("cat | cat", "cat")];
        match host::on_path("pv") {
            Some(_) => rivals.push(into_pipe("pv -q | cat", "pv -q")),
            None => {
                self.skipped.push("pipe, pv: pv is missing: install the package `pv`".to_string());
            }
        }
        for rival in rivals {
            let tools = [rival, ours.clone()];
            self.compare_with_replaced("pipe", "hot", &tools, &data, Before::AsItIs)?;
            self.compare_with_replaced("pipe", "cold", &tools, &data, Before::Cold)?;
        }
        Ok(())
    }

    /// Measures a copy of a file in memory, compared with cp.
    pub(super) fn in_memory(&mut self) -> Result<()> {
        let Some(halfpower) = self.program("tmpfs", no_memory(self.bytes))? else { return Ok(()) };
        let folder = self.stage.folder.join("memory");
        let mounted = Tmpfs::mount(&folder);
        let why = mounted.as_ref().err().map(|error| format!("{error:#}; run as root"));
        if self.is_skipped("tmpfs", why) {
            return Ok(());
        }
        let (from, to) = (folder.join("data"), folder.join("new"));
        self.lay_out(&from, self.bytes)?;
        let places = Places { from, to, spent: None, bytes: self.bytes };
        let tools = [
            Tool::new("cp", "cp {from} {to}"),
            Tool::of_program("halfpower copy", &halfpower, "copy --quiet {from} {to}"),
        ];
        self.compare_with_replaced("tmpfs", "copy", &tools, &places, Before::AsItIs)
    }

    /// Measures checksums, compared with b3sum, which computes the same hash on all CPUs.
    pub(super) fn checksum(&mut self) -> Result<()> {
        let missing = host::on_path("b3sum").is_none();
        let missing = missing.then(|| "b3sum is missing: install the package `b3sum`".to_string());
        let cannot = cannot_drop_caches().or(missing);
        let Some(halfpower) = self.program("checksum", cannot)? else { return Ok(()) };
        let data = self.data()?;
        let tools = [
            Tool::new("b3sum", "b3sum {from}"),
            Tool::of_program("halfpower checksum", &halfpower, "checksum --quiet {from}"),
        ];
        self.compare_with_replaced("checksum", "cold", &tools, &data, Before::Cold)?;
        let mut file = std::fs::File::open(&data.from)?;
        std::io::copy(&mut file, &mut std::io::sink())?;
        self.compare_with_replaced("checksum", "hot", &tools, &data, Before::AsItIs)
    }

    /// Adds a row with the duration of seqio (`tools[1]`) divided by the duration of the replaced
    /// tool (`tools[0]`).
    fn compare_with_replaced(
        &mut self,
        case: &'static str,
        what: &str,
        tools: &[Tool; 2],
        places: &Places,
        before: Before,
    ) -> Result<()> {
        let rounds = self.turns(&format!("{case}, {what}"), tools, places, before)?;
        let side = |tool: usize| Side {
            name: &tools[tool].name,
            values: rounds.of(tool, |run| run.seconds),
        };
        self.compare(case, &format!("s, {what}"), [side(1), side(0)], false, BAR);
        Ok(())
    }

    fn visits(&self, what: &str, how: &str, count: u32) -> Tool {
        let line = format!("{what} {how} {{from}} {count}");
        Tool::example(how, &self.examples.join("visits"), &line)
    }
}

/// Returns the reason why two files of this size do not fit into memory. None if they fit.
fn no_memory(bytes: u64) -> Option<String> {
    let free = available_memory().unwrap_or(0);
    (free < 3 * bytes).then(|| format!("only {free} bytes of RAM are free; use a smaller --size"))
}

/// A file system in memory, unmounted on drop.
struct Tmpfs<'a>(&'a Path);

impl Tmpfs<'_> {
    fn mount(folder: &Path) -> Result<Tmpfs<'_>> {
        std::fs::create_dir_all(folder)?;
        let mut mount = Command::new("mount");
        let mounted =
            mount.args(["-t", "tmpfs", "-o", "size=75%", "bench"]).arg(folder).output()?;
        if !mounted.status.success() {
            bail!("{}", String::from_utf8_lossy(&mounted.stderr).trim());
        }
        Ok(Tmpfs(folder))
    }
}

impl Drop for Tmpfs<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

/// Returns the available memory (bytes): `MemAvailable` of proc_meminfo(5).
fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}
