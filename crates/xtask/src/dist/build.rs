//! Clones a commit, builds the static programs in the clone, and generates the manual page, the
//! shell completions and the bill of materials.
//!
//! In messages and in the bill of materials, fixed paths replace the paths of the build machine, so
//! that clones at different paths give the same bytes.

use super::Architecture;
use super::tools::{Tools, must};
use crate::repository::output_of;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The path that replaces the path of the clone in messages and in the bill of materials.
const SOURCE_SHOWN: &str = "/halfpower";

/// A clone of a commit.
pub struct Source {
    /// The root folder of the clone.
    pub folder: PathBuf,
    /// Version of the workspace, from `Cargo.toml`.
    pub version: String,
    /// Time of the commit (Unix, s).
    pub commit_unix_s: u64,
}

/// Documents that `halfpower generate` prints.
pub struct Pages {
    pub manual: Vec<u8>,
    /// The path of each completion script, relative to /usr/share, and the text of the script.
    pub completions: Vec<(&'static str, Vec<u8>)>,
}

/// Each shell, and the path of its completion script, relative to /usr/share.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/halfpower"),
    ("zsh", "zsh/vendor-completions/_halfpower"),
    ("fish", "fish/vendor_completions.d/halfpower.fish"),
];

impl Source {
    /// Clones the commit that is checked out in `root`. An existing clone in `folder` is replaced,
    /// except for its build folder.
    ///
    /// # Errors
    /// If git fails.
    pub fn clone_of(root: &Path, folder: &Path) -> Result<Source> {
        let kept = folder.with_extension("target");
        let built = folder.join("target");
        if built.exists() {
            fs::rename(&built, &kept)?;
        }
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(folder)?;
        must(Command::new("git").args(["clone", "--quiet"]).arg(root).arg(folder))?;
        if kept.exists() {
            fs::rename(&kept, &built)?;
        }
        let time =
            output_of(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(folder))?;
        let manifest: toml::Table = fs::read_to_string(folder.join("Cargo.toml"))?.parse()?;
        let version = manifest["workspace"]["package"]["version"].as_str();
        Ok(Source {
            folder: folder.to_path_buf(),
            version: version.context("Cargo.toml has no workspace.package.version")?.to_owned(),
            commit_unix_s: time.trim().parse().context("git log printed no commit time")?,
        })
    }

    /// Builds the program and returns its path.
    ///
    /// # Errors
    /// If the build fails.
    pub fn build(&self, tools: &Tools, architecture: Architecture) -> Result<PathBuf> {
        let platform = architecture.platform();
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
        let home = home.context("neither CARGO_HOME nor HOME is set")?;
        // Paths in messages and debug information must not depend on the machine.
        let maps = [(&self.folder, SOURCE_SHOWN), (&home, "/cargo")];
        let rust = maps.map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()));
        let c = maps.map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display()));
        let mut cargo = tools.cargo();
        cargo.args(["zigbuild", "--locked", "--profile", "dist", "--package", "halfpower"]);
        cargo.args(["--target", &platform]).current_dir(&self.folder);
        cargo.env("CARGO_ENCODED_RUSTFLAGS", rust.join("\u{1f}"));
        cargo.env("CFLAGS", c.join(" "));
        cargo.env("SOURCE_DATE_EPOCH", self.commit_unix_s.to_string());
        cargo.env_remove("RUSTFLAGS").env("CARGO_INCREMENTAL", "0");
        must(&mut cargo)?;
        Ok(self.folder.join("target").join(platform).join("dist/halfpower"))
    }

    /// Writes the bill of materials in the CycloneDX format: every crate that the program is built
    /// from, with its version, licence, checksum and dependencies.
    ///
    /// # Errors
    /// If `cargo cyclonedx` fails.
    pub fn write_bill_of_materials(&self, tools: &Tools, to: &Path) -> Result<()> {
        let program = self.folder.join("crates/halfpower");
        let mut cargo = tools.cargo();
        cargo.args(["cyclonedx", "--quiet", "--format", "json", "--spec-version", "1.5"]);
        cargo.args(["--target", &Architecture::X86.platform(), "--all"]);
        cargo.args(["--override-filename", "bill-of-materials"]);
        cargo.env("SOURCE_DATE_EPOCH", self.commit_unix_s.to_string());
        must(cargo.current_dir(&program))?;
        let written = fs::read_to_string(program.join("bill-of-materials.json"));
        let text = written.context("cargo cyclonedx wrote no bill of materials")?;
        // The file contains the paths of local crates, which depend on the build machine.
        fs::write(to, text.replace(&self.folder.display().to_string(), SOURCE_SHOWN))?;
        Ok(())
    }
}

/// Generates the manual page and the completions with `program`, which must run on this machine.
///
/// # Errors
/// If the program fails.
pub fn pages(program: &Path) -> Result<Pages> {
    let generate = |what: &str| -> Result<Vec<u8>> {
        Ok(output_of(Command::new(program).args(["generate", what]))?.into_bytes())
    };
    let mut completions = Vec::new();
    for (shell, path) in SHELLS {
        completions.push((path, generate(shell)?));
    }
    Ok(Pages { manual: generate("man")?, completions })
}
