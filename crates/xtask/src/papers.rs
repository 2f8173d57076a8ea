//! `cargo xtask papers`: the scores of both papers, put into README.md and docs/predict.md.
//!
//! The release program simulates every figure, table and claim, which takes seconds; a test of the
//! crate `papers` compares both pages with the current scores.

use crate::repository;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Options of the command.
#[derive(clap::Args)]
pub struct Options {
    /// Use this program instead of the release build
    #[arg(long)]
    program: Option<PathBuf>,
}

/// The pages with a table of scores, and which table each has.
const PAGES: [(&str, &str); 2] = [("README.md", "papers-short"), ("docs/predict.md", "papers")];

/// Writes the tables.
///
/// # Errors
/// A program that does not build or fails, or a page without a place for its table.
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
        bail!("generate {what} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).context("the table is no UTF-8")
}
