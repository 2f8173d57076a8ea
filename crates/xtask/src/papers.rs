//! `cargo xtask papers`: puts the scores of the two reproduced papers into README.md and
//! docs/predict.md.
//!
//! The release program simulates every figure, table and claim of the papers within seconds. A test
//! of the crate `papers` checks that both pages contain the current scores.

use crate::repository;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Options of `cargo xtask papers`.
#[derive(clap::Args)]
pub struct Options {
    /// Path of the halfpower program to run [default: the release build]
    #[arg(long)]
    program: Option<PathBuf>,
}

/// Each page with the argument of `halfpower generate` that prints its table of scores.
const PAGES: [(&str, &str); 2] = [("README.md", "papers-short"), ("docs/predict.md", "papers")];

/// Writes the tables into the pages.
///
/// # Errors
/// If the program does not build or fails, or a page has no section for the table.
pub fn run(options: &Options) -> Result<ExitCode> {
    let program = options.program.clone().map_or_else(repository::release_build, Ok)?;
    for (page, what) in PAGES {
        repository::write_section(page, "papers", &table(&program, what)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn table(program: &Path, what: &str) -> Result<String> {
    let output = Command::new(program)
        .args(["generate", what])
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    if !output.status.success() {
        bail!(
            "`halfpower generate {what}` failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    String::from_utf8(output.stdout).context("the table is not UTF-8")
}
