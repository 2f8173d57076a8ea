//! Checks the release files: compares the bytes of two builds, runs the ARM program under QEMU, and
//! tests the Debian package in a new root file system.
//!
//! A check whose tools or privileges are missing is reported as skipped. debootstrap creates the
//! new root file system in a temporary folder, which is removed afterwards.

use super::archive::{unpack, with_end};
use super::names;
use crate::bench::host;
use anyhow::{Context, Result, ensure};
use nix::unistd::geteuid;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Exit codes of a completed measurement: 0, and 5 if the result is invalid.
const COMPLETED: [i32; 2] = [0, 5];
/// The Debian release that debootstrap installs.
const DEBIAN: &str = "bookworm";
/// Arguments of a short survey of a simulated system, which needs no storage device.
const SURVEY: [&str; 5] = ["survey", "sim:sata-ssd", "--quick", "--quiet", "--no-store"];

/// Runs all checks and prints their results. Returns false if a check fails.
///
/// # Errors
/// If a check cannot be completed, for example because a file cannot be read.
pub fn run(out: &Path, other: &Path, work: &Path) -> Result<bool> {
    let results = [
        ("two builds give the same bytes", equal(out, other)?),
        ("the program for ARM runs under QEMU", arm(out, work)?),
        ("the Debian package installs, runs and is removed completely", package(out, work)?),
    ];
    let mut are_passed = true;
    for (name, result) in results {
        match result {
            Outcome::Passed => println!("passed: {name}"),
            Outcome::Failed(why) => {
                are_passed = false;
                println!("FAILED: {name}: {why}");
            }
            Outcome::Skipped(reason) => println!("skipped: {name}: {reason}"),
        }
    }
    Ok(are_passed)
}

enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

/// Compares the names and the bytes of the files in two folders.
fn equal(out: &Path, other: &Path) -> Result<Outcome> {
    let (names, others) = (names(out)?, names(other)?);
    if names != others {
        return Ok(Outcome::Failed(format!("the file names differ: {names:?} and {others:?}")));
    }
    for name in names {
        if fs::read(out.join(&name))? != fs::read(other.join(&name))? {
            return Ok(Outcome::Failed(format!("the bytes of {name} differ")));
        }
    }
    Ok(Outcome::Passed)
}

/// Runs the ARM program under QEMU on a simulated system and on a file.
fn arm(out: &Path, work: &Path) -> Result<Outcome> {
    let qemu = ["qemu-aarch64", "qemu-aarch64-static"].into_iter().find_map(host::on_path);
    let Some(qemu) = qemu else {
        return Ok(Outcome::Skipped("QEMU is missing; install qemu-user".to_owned()));
    };
    let Some(archive) = with_end(out, "-aarch64-linux.tar.gz")? else {
        return Ok(Outcome::Skipped("no program for aarch64 was built".to_owned()));
    };
    let folder = tempfile::tempdir_in(work)?;
    unpack(&archive, folder.path())?;
    let program = folder.path().join("halfpower");
    let file = folder.path().join("file").display().to_string();
    fs::write(&file, vec![0; 8 << 20])?;
    // Buffered I/O is used, because QEMU 7 reports an alignment of 0, which means that direct I/O
    // is not supported.
    let run = ["run", &file, "--rw", "randread", "--direct=0", "--runtime", "1"];
    let run = [&run[..], &["--trials", "1", "--no-store", "--quiet"]].concat();
    for words in [&["--version"][..], &SURVEY, &run] {
        let mut command = Command::new(&qemu);
        command.arg(&program).args(words).current_dir(folder.path());
        if let Err(why) = succeeds(&mut command)? {
            return Ok(Outcome::Failed(why));
        }
    }
    Ok(Outcome::Passed)
}

/// Installs the Debian package in a new root file system, runs the program, and removes the package
/// again.
fn package(out: &Path, work: &Path) -> Result<Outcome> {
    if !geteuid().is_root() {
        return Ok(Outcome::Skipped("needs root".to_owned()));
    }
    let Some(debootstrap) = host::on_path("debootstrap") else {
        return Ok(Outcome::Skipped("debootstrap is missing; install it".to_owned()));
    };
    let Some(deb) = with_end(out, "_amd64.deb")? else {
        return Ok(Outcome::Skipped("no package for amd64 was built".to_owned()));
    };
    let folder = tempfile::tempdir_in(work)?;
    let root = folder.path().join("root");
    let mut command = Command::new(debootstrap);
    command.args(["--variant=minbase", DEBIAN]).arg(&root);
    let output = command.output().context("cannot start debootstrap")?;
    if !output.status.success() {
        return Ok(Outcome::Skipped(format!(
            "debootstrap {DEBIAN} failed; check that a Debian mirror is reachable"
        )));
    }
    fs::copy(&deb, root.join("halfpower.deb"))?;
    let before = files_of(&root)?;
    let steps: [&[&str]; 4] = [
        &["dpkg", "--install", "/halfpower.deb"],
        &["halfpower", "--version"],
        &[&["halfpower"], &SURVEY[..]].concat(),
        &["halfpower", "run", "/tmp", "--size", "1m", "--trials", "1", "--no-store", "--quiet"],
    ];
    for words in steps {
        if let Err(why) = succeeds(Command::new("chroot").arg(&root).args(words))? {
            return Ok(Outcome::Failed(why));
        }
    }
    for path in ["usr/share/man/man1/halfpower.1.gz", "usr/share/doc/halfpower/copyright"] {
        ensure!(root.join(path).exists(), "the package has no {path}");
    }
    let remove = ["dpkg", "--purge", "halfpower"];
    if let Err(why) = succeeds(Command::new("chroot").arg(&root).args(remove))? {
        return Ok(Outcome::Failed(why));
    }
    // Removing the package may leave the HTML report, the stored state of the user, and the logs
    // and package lists of dpkg.
    let kept = ["var/lib/dpkg", "var/log", "halfpower.html", "root/.local"];
    let is_left = |path: &&PathBuf| !kept.iter().any(|kept| path.starts_with(root.join(kept)));
    let after = files_of(&root)?;
    let left: Vec<&PathBuf> = after.difference(&before).filter(is_left).collect();
    if left.is_empty() {
        return Ok(Outcome::Passed);
    }
    Ok(Outcome::Failed(format!("these files were not removed: {left:?}")))
}

/// Returns the paths of all files and folders below a folder.
fn files_of(folder: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
            found.insert(entry.path());
        }
    }
    Ok(found)
}

/// Runs a command. If the command fails, the inner error contains the last three lines of output. A
/// measurement with an invalid result counts as a success, because results are often invalid on a
/// busy machine or in an emulator.
fn succeeds(command: &mut Command) -> Result<Result<(), String>> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    let lines: Vec<&str> = printed.lines().collect();
    let last = &lines[lines.len().saturating_sub(3)..];
    if output.status.code().is_some_and(|code| COMPLETED.contains(&code)) {
        return Ok(Ok(()));
    }
    Ok(Err(format!("{command:?} ended with {}: {}", output.status, last.join(" / "))))
}
