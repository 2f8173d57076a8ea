//! `cargo xtask dist`: builds the release files from a commit: static programs, packages,
//! checksums, the licences of all dependencies and a bill of materials.
//!
//! The commit is cloned and built in the clone, so that uncommitted changes and the path of the
//! checkout do not affect the files. The programs are linked statically with musl. Zig compiles the
//! C code for both architectures. All timestamps in the files are the time of the commit. `--check`
//! builds a second clone at another path and compares the bytes, runs the ARM program under QEMU,
//! and installs, uses and removes the Debian package in a new root file system.

mod tools;

mod build;

mod archive;
mod check;
mod licences;

use crate::repository;
use anyhow::{Context, Result, ensure};
use archive::Contents;
use build::Source;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use tools::Tools;

/// Default folder for the release files.
const OUT: &str = "target/dist";
/// Git pathspecs of the sources of the released programs: all crates except xtask, without tests.
const SOURCES: [&str; 5] =
    ["Cargo.lock", "Cargo.toml", "crates", ":(exclude)crates/xtask", ":(exclude)crates/*/tests/*"];

/// Options of `cargo xtask dist`.
#[derive(clap::Args)]
pub struct Options {
    /// Output folder; its content is replaced
    #[arg(long, default_value = OUT)]
    out: PathBuf,
    /// Only build for this architecture; repeatable [default: all]
    #[arg(long, value_enum)]
    arch: Vec<Architecture>,
    /// Also build a second time and compare the files, run the ARM program under QEMU, and test the
    /// Debian package in a new root file system; without root, qemu-user or debootstrap, some
    /// checks are skipped and reported
    #[arg(long)]
    check: bool,
}

/// An architecture for which static programs are built.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, serde::Deserialize,
)]
#[value(rename_all = "verbatim")]
pub enum Architecture {
    #[value(name = "x86_64")]
    #[serde(rename = "x86_64")]
    X86,
    #[value(name = "aarch64")]
    #[serde(rename = "aarch64")]
    Arm,
}

impl Architecture {
    const ALL: [Architecture; 2] = [Architecture::X86, Architecture::Arm];

    fn of_this_machine() -> Result<Architecture> {
        let here = Architecture::ALL.into_iter().find(|one| one.name() == std::env::consts::ARCH);
        here.context("`cargo xtask dist` runs only on x86_64 and aarch64")
    }

    /// Returns the name that `uname -m` prints.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::X86 => "x86_64",
            Architecture::Arm => "aarch64",
        }
    }

    /// Returns the name of the architecture in Debian.
    pub fn debian(self) -> &'static str {
        match self {
            Architecture::X86 => "amd64",
            Architecture::Arm => "arm64",
        }
    }

    /// Returns the Rust target triple.
    fn platform(self) -> String {
        format!("{}-unknown-linux-musl", self.name())
    }
}

/// Builds all release files. The exit code is 1 if a check fails.
///
/// # Errors
/// If a tool cannot be installed, or a build fails.
pub fn run(options: &Options) -> Result<ExitCode> {
    let root = repository::root();
    let out = root.join(&options.out);
    let architectures =
        if options.arch.is_empty() { Architecture::ALL.to_vec() } else { options.arch.clone() };
    let work = root.join("target/dist-build");
    fs::create_dir_all(&work)?;
    let tools = Tools::install(&work.join("tools"), &architectures)?;
    let source = Source::clone_of(&root, &work.join("first"))?;
    make(&source, &tools, &architectures, &out)?;
    println!("release files in {}:", options.out.display());
    for name in names(&out)? {
        println!("  {name}");
    }
    if !options.check {
        return Ok(ExitCode::SUCCESS);
    }
    let again = Source::clone_of(&root, &work.join("second/elsewhere"))?;
    let other = work.join("second/files");
    make(&again, &tools, &architectures, &other)?;
    let are_passed = check::run(&out, &other, &work)?;
    Ok(if are_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds the release files of a cloned commit into the folder `out`.
fn make(source: &Source, tools: &Tools, architectures: &[Architecture], out: &Path) -> Result<()> {
    if out.exists() {
        fs::remove_dir_all(out).with_context(|| format!("cannot empty {}", out.display()))?;
    }
    fs::create_dir_all(out)?;
    // The manual page and the completions are the same for all architectures. The program for this
    // machine prints them.
    let host = source.build(tools, Architecture::of_this_machine()?)?;
    let pages = build::pages(&host)?;
    let licences = licences::of_dependencies(source)?;
    for architecture in architectures {
        let program = source.build(tools, *architecture)?;
        let contents = Contents { source, program: &program, pages: &pages, licences: &licences };
        archive::write_tarball(&contents, *architecture, out)?;
        archive::write_deb(&contents, *architecture, out)?;
    }
    fs::write(out.join("LICENCES-OF-DEPENDENCIES.txt"), &licences)?;
    fs::copy(source.folder.join("packaging/Containerfile"), out.join("Containerfile"))?;
    source.write_bill_of_materials(tools, &out.join("halfpower.cdx.json"))?;
    write_checksums(out)
}

/// Unpacks the released program for an architecture into `folder` and returns its path.
///
/// # Errors
/// If no such program was built, or the sources have changed since it was built.
pub fn program(architecture: Architecture, folder: &Path) -> Result<PathBuf> {
    let remedy = format!("run: cargo xtask dist --arch {}", architecture.name());
    let root = repository::root();
    let out = root.join(OUT);
    ensure!(out.is_dir(), "no release program for {}; {remedy}", architecture.name());
    let archive = archive::with_end(&out, &format!("-{}-linux.tar.gz", architecture.name()))?;
    let archive = archive
        .with_context(|| format!("no release program for {}; {remedy}", architecture.name()))?;
    fs::create_dir_all(folder)?;
    archive::unpack(&archive, folder)?;
    let program = folder.join("halfpower");
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%ct", "--"]).args(SOURCES).current_dir(&root);
    let changed_unix_s: u64 = repository::output_of(&mut git)?.trim().parse()?;
    // All files in an archive have the time of the commit as their modification time.
    let made = fs::metadata(&program)?.modified()?.duration_since(std::time::UNIX_EPOCH)?;
    ensure!(
        made.as_secs() >= changed_unix_s,
        "the release program for {} is older than the sources; {remedy}",
        architecture.name()
    );
    Ok(program)
}

/// Writes the file SHA256SUMS in the format that `sha256sum --check` reads.
fn write_checksums(out: &Path) -> Result<()> {
    let mut command = Command::new("sha256sum");
    command.args(names(out)?).current_dir(out);
    fs::write(out.join("SHA256SUMS"), repository::output_of(&mut command)?)?;
    Ok(())
}

/// Returns the names of the entries of a folder in sorted order.
fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}
