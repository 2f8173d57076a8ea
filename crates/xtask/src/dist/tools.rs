//! The tools that make the release files, installed in a folder of their own, at fixed versions.
//!
//! Zig is the C compiler and linker for musl, `cargo zigbuild` calls it, and `cargo cyclonedx`
//! writes the bill of materials.

use super::Architecture;
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Python packages: Zig with its C library for many platforms, and the cargo command that uses it.
const PYTHON_PACKAGES: [&str; 2] = ["ziglang==0.17.1", "cargo-zigbuild==0.24.1"];
/// The tool that writes the bill of materials, and its version.
const CYCLONEDX: [&str; 2] = ["cargo-cyclonedx", "0.5.9"];

/// The installed tools.
pub struct Tools {
    /// PATH with the tools first.
    path: OsString,
    /// Caches of Zig, outside of the home folder.
    cache: PathBuf,
}

impl Tools {
    /// Installs what is missing.
    ///
    /// # Errors
    /// If the registries of Python and Rust are not reached.
    pub fn install(folder: &Path, architectures: &[Architecture]) -> Result<Tools> {
        let environment = folder.join("python");
        if !environment.join("bin/cargo-zigbuild").exists() {
            must(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
            let mut pip = Command::new(environment.join("bin/pip"));
            must(pip.args(["install", "--quiet"]).args(PYTHON_PACKAGES))?;
        }
        let cargo = folder.join("cargo");
        if !cargo.join("bin/cargo-cyclonedx").exists() {
            let mut install = Command::new("cargo");
            install.args(["install", "--quiet", "--locked", CYCLONEDX[0], "--version"]);
            must(install.arg(CYCLONEDX[1]).arg("--root").arg(&cargo))?;
        }
        let mut rustup = Command::new("rustup");
        rustup.args(["target", "add", &Architecture::X86.platform()]);
        must(rustup.args(architectures.iter().map(|architecture| architecture.platform())))?;
        let mut paths = vec![environment.join("bin"), cargo.join("bin")];
        paths.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let cache = folder.join("zig-cache");
        fs::create_dir_all(&cache)?;
        Ok(Tools { path: std::env::join_paths(paths)?, cache })
    }

    /// A cargo command that finds the tools.
    pub fn cargo(&self) -> Command {
        let mut cargo = Command::new("cargo");
        cargo.env("PATH", &self.path);
        cargo.env("ZIG_GLOBAL_CACHE_DIR", &self.cache).env("ZIG_LOCAL_CACHE_DIR", &self.cache);
        cargo.env("CARGO_ZIGBUILD_CACHE_DIR", &self.cache);
        cargo
    }
}

/// Runs a command that must succeed.
pub fn must(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}
