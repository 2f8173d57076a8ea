//! Runs guests: QEMU with a kernel and an in-memory root file system. A guest returns its results
//! through a virtual serial port.

use super::image::Image;
use super::kernel::Kernel;
use super::scenario::{Check, Scenario};
use super::service::{SHARED, Services};
use crate::dist::Architecture;
use crate::faults::running::Running;
use crate::faults::tally::Missing;
use crate::server::installed;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Kernel modules of the virtual serial port through which every guest sends its results.
const MODULES: [&str; 2] = ["virtio_pci", "virtio_console"];
/// First part of the init script of a guest. The commands of [`Contents::script`] follow.
const INIT: &str = include_str!("init.sh");
/// A script that runs `halfpower run` for a second. A guest is slow and noisy, so an invalid result
/// (exit code 5) does not count as a failure.
const MEASURE: &str = "#!/bin/sh\nhalfpower run \"$@\" --runtime 1 --trials 1 --no-store\n\
                       code=$?\n[ $code -eq 5 ] || exit $code\n";
/// A script that repeatedly kills `halfpower study` and checks that `halfpower restore` restores
/// the write cache of the drive.
const KILL_STUDIES: &str = include_str!("kill_studies.sh");
/// Definition of a short study of the write cache, with one point.
const SHORT_STUDY: &str = include_str!("short_study.toml");
/// Name of the file with the root file system, in the folder of a guest.
const ROOT: &str = "initrd";
/// Name of the file with the data that the guest sends, in the folder of a guest.
pub const RESULTS: &str = "results";
/// Step number of the setup. The checks are the steps from 1.
const SETUP: u32 = 0;

/// The programs that are copied into all guests of an architecture.
pub struct Programs {
    /// Path of a statically linked busybox.
    pub busybox: PathBuf,
    /// Path of the program under test.
    pub halfpower: PathBuf,
}

/// The programs and settings that all guests share.
pub struct Laboratory {
    /// The programs of each architecture, or the reason why they are missing.
    pub programs: BTreeMap<Architecture, Result<Programs, String>>,
    /// The folder in which each guest gets a temporary folder.
    pub work: PathBuf,
    /// Whether the campaign must stop. Signal handlers set this flag.
    pub stop: Arc<AtomicBool>,
    /// Time limit of a guest (ms).
    pub patience_ms: u64,
}

/// The result of a step in the guest: the exit code and the output of its commands.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    pub number: u32,
    pub code: i32,
    pub output: String,
}

/// A check with its output and its result. The error says why the check failed.
pub struct Judged<'a> {
    pub check: &'a Check,
    pub output: String,
    pub result: Result<(), String>,
}

/// The contents of a guest's root file system besides busybox and the program under test.
#[derive(Clone, Debug, Default)]
pub struct Contents<'a> {
    /// Kernel modules that the guest loads at its start, with parameters: "null_blk zoned=1".
    pub modules: &'a [String],
    /// Kernel modules that are copied to /modules and are not loaded at the start.
    pub spare_modules: &'a [String],
    /// Names of programs that are copied from this host into the guest.
    pub tools: &'a [String],
    /// Path and content of additional files.
    pub files: &'a [(String, Vec<u8>)],
    /// The shell commands that the guest runs after its start.
    pub script: &'a str,
}

/// Maximum number of boots of a guest that crashes before its first step.
const BOOTS_MAX: u32 = 4;

/// The error for a guest that crashed before its first step. This happens about once in a hundred
/// boots, because QEMU does not always notice in time that the kernel changed its own code on
/// another CPU.
#[derive(Debug)]
pub struct CrashedAtBoot(String);

impl std::fmt::Display for CrashedAtBoot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the guest crashed before its first step:\n{}", self.0)
    }
}

impl std::error::Error for CrashedAtBoot {}

impl CrashedAtBoot {
    /// Returns the crash if the console shows a kernel panic. The caller must check that the guest
    /// has not sent any results, because a guest that has sent results did not crash at boot.
    pub fn seen_on(console: &str) -> Option<CrashedAtBoot> {
        console.contains("Kernel panic").then(|| CrashedAtBoot(tail(console)))
    }
}

/// Calls `run`, which runs a guest. Repeats the call if the guest crashes before its first step.
/// There are at most `BOOTS_MAX` calls.
///
/// # Errors
/// The last error of `run`.
pub fn booted<T>(run: impl Fn() -> Result<T>) -> Result<T> {
    for _ in 1..BOOTS_MAX {
        match run() {
            Err(error) if error.is::<CrashedAtBoot>() => println!("a guest crashed; retrying"),
            ended => return ended,
        }
    }
    run()
}

impl Laboratory {
    /// Returns the programs of an architecture.
    ///
    /// # Errors
    /// A message that says why the programs are missing.
    pub fn programs(&self, architecture: Architecture) -> Result<&Programs, String> {
        match self.programs.get(&architecture) {
            Some(found) => found.as_ref().map_err(String::clone),
            None => Err(format!("no programs for {}", architecture.name())),
        }
    }

    /// Boots a guest, runs a scenario, and judges each check.
    ///
    /// # Errors
    /// If the guest cannot be prepared or does not start, or its setup fails.
    pub fn run<'a>(&self, scenario: &'a Scenario, kernel: &Kernel) -> Result<Vec<Judged<'a>>> {
        booted(|| self.run_once(scenario, kernel))
    }

    fn run_once<'a>(&self, scenario: &'a Scenario, kernel: &Kernel) -> Result<Vec<Judged<'a>>> {
        let folder = tempfile::tempdir_in(&self.work)?;
        let services = Services::start(scenario, folder.path(), &self.stop)?;
        let script = services.ports_text() + &script(scenario);
        let contents = Contents {
            modules: &scenario.modules,
            spare_modules: &scenario.spare_modules,
            tools: &scenario.tools,
            files: &[],
            script: &script,
        };
        let mut qemu =
            self.qemu(kernel, scenario.machine.as_deref(), &scenario.boot, folder.path());
        add_devices(&mut qemu, scenario, folder.path())?;
        services.add_devices(&mut qemu);
        let running = self.boot(qemu, kernel, &contents, folder.path())?;
        let patience_ms = scenario.seconds.map_or(self.patience_ms, |seconds| seconds * 1000);
        let ended = running.ended_within(patience_ms, |_| {})?;
        let steps = steps(&fs::read(folder.path().join(RESULTS)).unwrap_or_default());
        let setup = steps.iter().find(|step| step.number == SETUP);
        match setup {
            Some(setup) if setup.code == 0 => {}
            Some(setup) => bail!("the setup failed (exit code {}):\n{}", setup.code, setup.output),
            None => {
                if let Some(crash) = CrashedAtBoot::seen_on(&ended.stdout) {
                    return Err(crash.into());
                }
                bail!("the guest did not start: {}\n{}", ended.stderr, tail(&ended.stdout));
            }
        }
        let mut judged = Vec::new();
        for (number, check) in (SETUP + 1..).zip(&scenario.check) {
            let step = steps.iter().find(|step| step.number == number);
            let output = step.map(|step| step.output.clone()).unwrap_or_default();
            let result = match step {
                Some(step) => check.judge(step.code, &step.output),
                None if ended.hung => Err(format!("the guest hung\n{}", tail(&ended.stdout))),
                None => Err(format!("the guest crashed\n{}", tail(&ended.stdout))),
            };
            judged.push(Judged { check, output, result });
        }
        Ok(judged)
    }

    /// Starts a guest with a command from [`Laboratory::qemu`].
    ///
    /// # Errors
    /// If QEMU, a program or a kernel module is missing.
    pub fn boot(
        &self,
        mut qemu: Command,
        kernel: &Kernel,
        contents: &Contents<'_>,
        folder: &Path,
    ) -> Result<Running> {
        let at = |name: &str| folder.join(name);
        fs::write(at(ROOT), self.root(contents, kernel)?)?;
        let (stdout, stderr) = (at("console"), at("errors"));
        qemu.stdin(Stdio::null()).stdout(File::create(&stdout)?).stderr(File::create(&stderr)?);
        let child = qemu.spawn().with_context(|| match kernel.architecture {
            Architecture::X86 => "cannot start QEMU; install qemu-system-x86",
            Architecture::Arm => "cannot start QEMU; install qemu-system-arm",
        })?;
        Ok(Running { child, stdout, stderr, stop: Arc::clone(&self.stop) })
    }

    /// Returns a QEMU command that boots a guest. The command has no drives yet. `machine` is a
    /// machine type of QEMU. None means the default type for the architecture.
    pub fn qemu(
        &self,
        kernel: &Kernel,
        machine: Option<&str>,
        boot: &str,
        folder: &Path,
    ) -> Command {
        let (program, usual, cpu, console) = match kernel.architecture {
            // The machine type `q35` has PCI Express.
            Architecture::X86 => ("qemu-system-x86_64", "q35", "max", "ttyS0"),
            // The standard algorithm of pointer authentication is slow to emulate. `pauth-impdef`
            // selects a faster algorithm.
            Architecture::Arm => ("qemu-system-aarch64", "virt", "max,pauth-impdef=on", "ttyAMA0"),
        };
        let mut command = Command::new(program);
        command.args(["-machine", machine.unwrap_or(usual), "-cpu", cpu]);
        command.args(["-accel", "tcg,thread=multi"]);
        command.args(["-smp", "2", "-m", "1G", "-nodefaults", "-no-reboot", "-display", "none"]);
        command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(folder.join(ROOT));
        let words = format!("console={console} panic=-1 loglevel=4 {boot}");
        command.args(["-append", words.trim(), "-serial", "stdio"]);
        let results = folder.join(RESULTS);
        command.args(["-device", "virtio-serial", "-chardev"]);
        command.arg(format!("file,id=results,path={}", results.display()));
        command.args(["-device", "virtserialport,chardev=results,name=results"]);
        command
    }

    /// Returns the root file system of a guest as an archive.
    fn root(&self, contents: &Contents<'_>, kernel: &Kernel) -> Result<Vec<u8>> {
        let mut image = Image::default();
        for folder in ["/proc", "/sys", "/dev", "/tmp", "/run", "/mnt", "/root"] {
            image.folder(folder);
        }
        let programs = self.programs(kernel.architecture).map_err(Missing)?;
        image.add_program(&programs.busybox, "/bin/busybox")?;
        image.link("/bin/sh", "busybox");
        image.add_program(&programs.halfpower, "/usr/bin/halfpower")?;
        image.add("/usr/bin/measure", MEASURE.as_bytes());
        image.add("/usr/bin/kill-studies", KILL_STUDIES.as_bytes());
        image.add("/etc/short-study.toml", SHORT_STUDY.as_bytes());
        for tool in contents.tools {
            image.add_program(&installed(tool)?, &format!("/usr/bin/{tool}"))?;
        }
        for (path, content) in contents.files {
            image.add(path, content);
        }
        let first_word = |line: &String| line.split(' ').next().unwrap_or("").to_owned();
        let named = contents.modules.iter().map(first_word);
        let named: Vec<String> = MODULES.map(str::to_owned).into_iter().chain(named).collect();
        let mut order = Vec::new();
        for (name, content) in kernel.load_order(&named)? {
            image.add(&format!("/modules/{name}.ko"), &content);
            let of = |line: &&String| first_word(line).replace('-', "_") == name;
            let line = contents.modules.iter().find(of).and_then(|line| line.split_once(' '));
            order.push(format!("{name}.ko {}", line.map_or("", |(_, parameters)| parameters)));
        }
        for (name, content) in kernel.load_order(contents.spare_modules)? {
            image.add(&format!("/modules/{name}.ko"), &content);
        }
        image.add("/modules/order", format!("{}\n", order.join("\n")).as_bytes());
        image.add("/init", format!("{INIT}{}", contents.script).as_bytes());
        Ok(image.finish())
    }
}

/// Returns the shell commands of a scenario: its setup and its checks as numbered steps.
fn script(scenario: &Scenario) -> String {
    let mut text = step_text(SETUP, &format!("set -e\n{}", scenario.setup));
    for (number, check) in (SETUP + 1..).zip(&scenario.check) {
        text += &step_text(number, &check.run);
    }
    text + "finish\n"
}

/// Returns the shell commands that run `commands` as a numbered step.
pub fn step_text(number: u32, commands: &str) -> String {
    format!("step {number} <<'END OF STEP'\n{}\nEND OF STEP\n", commands.trim())
}

/// Adds the drives and other devices of a scenario to the QEMU command.
fn add_devices(command: &mut Command, scenario: &Scenario, folder: &Path) -> Result<()> {
    for (number, size) in scenario.drives.iter().enumerate() {
        let file = folder.join(format!("d{number}"));
        File::create_new(&file)?
            .set_len(bytes_of(size).context("a drive size must be like 64M or 2G")?)?;
        command
            .arg("-drive")
            .arg(format!("if=none,id=d{number},format=raw,discard=unmap,file={}", file.display()));
    }
    for words in &scenario.qemu {
        let words = words.replace("{work}", &folder.join(SHARED).display().to_string());
        command.args(words.split_whitespace());
    }
    Ok(())
}

/// Parses a size such as 64M or 2G. Returns the number of bytes.
fn bytes_of(size: &str) -> Option<u64> {
    let (number, shift) = match size.strip_suffix('M') {
        Some(number) => (number, 20),
        None => (size.strip_suffix('G')?, 30),
    };
    Some(number.parse::<u64>().ok()? << shift)
}

/// Parses the data that the guest sent. For each step, the data contain a line "step NUMBER CODE
/// BYTES", followed by the output of the step.
pub fn steps(mut sent: &[u8]) -> Vec<Step> {
    let mut found = Vec::new();
    while let Some(end) = sent.iter().position(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(&sent[..end]).into_owned();
        sent = &sent[end + 1..];
        let words: Vec<&str> = line.split(' ').collect();
        let ["step", number, code, bytes] = words[..] else { break };
        let (Ok(number), Ok(code), Ok(bytes)) = (number.parse(), code.parse(), bytes.parse())
        else {
            break;
        };
        let Some((output, rest)) = sent.split_at_checked(bytes) else { break };
        sent = rest;
        found.push(Step { number, code, output: String::from_utf8_lossy(output).into_owned() });
    }
    found
}

/// Returns the last 25 lines of a text.
pub fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(25)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_guest_sends_is_read_step_by_step() {
        let found = steps(b"step 0 0 0\nstep 1 2 6\na\nb\nc\nstep 2 0 90\ncut");
        let step = |number, code, output: &str| Step { number, code, output: output.to_owned() };
        assert_eq!(found, [step(0, 0, ""), step(1, 2, "a\nb\nc\n")]);
        assert_eq!(steps(b"garbage\n"), []);
    }

    #[test]
    fn sizes_are_mebibytes_and_gibibytes() {
        assert_eq!((bytes_of("64M"), bytes_of("2G")), (Some(64 << 20), Some(2 << 30)));
        assert_eq!(bytes_of("64"), None);
    }
}
