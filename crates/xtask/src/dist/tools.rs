//! Installs fixed versions of the tools that build the release files. The tools are installed in a
//! separate folder.
//!
//! `cargo zigbuild` uses Zig as C compiler and linker for musl. `cargo cyclonedx` writes the bill
//! of materials.

use super::Architecture;
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Python packages of Zig and `cargo zigbuild`. Zig includes C libraries for many platforms.
const PYTHON_PACKAGES: [&str; 2] = ["ziglang==0.17.1", "cargo-zigbuild==0.24.1"];
/// Name and version of the tool that writes the bill of materials.
const CYCLONEDX: [&str; 2] = ["cargo-cyclonedx", "0.5.9"];

/// The installed tools.
pub struct Tools {
    /// Value of PATH for cargo. The folders of the installed tools are the first entries.
    path: OsString,
    /// Cache folder for Zig and `cargo zigbuild`, outside the home directory.
    cache: PathBuf,
}

impl Tools {
    /// Installs the tools in `folder`, unless they are installed already.
    ///
    /// # Errors
    /// If an installation fails, for example because a registry cannot be reached.
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

    /// Returns a cargo command with an environment in which cargo finds the tools.
    pub fn cargo(&self) -> Command {
        let mut cargo = Command::new("cargo");
        cargo.env("PATH", &self.path);
        cargo.env("ZIG_GLOBAL_CACHE_DIR", &self.cache).env("ZIG_LOCAL_CACHE_DIR", &self.cache);
        cargo.env("CARGO_ZIGBUILD_CACHE_DIR", &self.cache);
        cargo
    }
}

/// Runs a command. Returns an error if the command fails.
pub fn must(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}
