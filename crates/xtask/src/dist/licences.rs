//! Collects the names and the texts of the licences of all crates that the program is built from.
//!
//! The texts are read from the files of each crate. For a crate without a licence file, only the
//! name of the licence is listed.

use super::Architecture;
use super::build::Source;
use crate::repository::output_of;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Prefixes of the names of licence files, in upper case.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT"];

/// Returns one text with all licences. Crates with the same licence text are listed together.
///
/// # Errors
/// If cargo cannot list the crates.
pub fn of_dependencies(source: &Source) -> Result<String> {
    let mut crates: BTreeMap<String, String> = BTreeMap::new();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages(source)? {
        let field = |name: &str| package[name].as_str().unwrap_or_default().to_owned();
        let name = format!("{} {}", field("name"), field("version"));
        let manifest = field("manifest_path");
        let folder = Path::new(&manifest).parent().context("a crate has no manifest path")?;
        for text in texts_in(folder)? {
            texts.entry(text).or_default().push(name.clone());
        }
        crates.insert(name, field("license"));
    }
    let mut all = "Licences of the crates that halfpower is built from.\n\n".to_owned();
    for (name, licence) in &crates {
        let licence = if licence.is_empty() { "see the licence text below" } else { licence };
        writeln!(all, "{name}: {licence}")?;
    }
    for (text, names) in &texts {
        write!(all, "\n{}\n{}:\n\n{}\n", "-".repeat(80), names.join(", "), text.trim_end())?;
    }
    Ok(all)
}

/// Returns the crates that the static program is built from, without the crates of this repository.
fn packages(source: &Source) -> Result<Vec<Value>> {
    let cargo =
        |words: &[&str]| output_of(Command::new("cargo").args(words).current_dir(&source.folder));
    let platform = Architecture::X86.platform();
    let tree = cargo(&[
        "tree",
        "--locked",
        "--edges=normal",
        "--prefix=none",
        "--format={p}",
        "--package",
        "halfpower",
        "--target",
        &platform,
    ])?;
    // A line begins with the name and the version of a crate, for example `libc v0.2.180`.
    let used: Vec<[&str; 2]> = tree
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some([words.next()?, words.next()?.strip_prefix('v')?])
        })
        .collect();
    let metadata: Value = serde_json::from_str(&cargo(&[
        "metadata",
        "--locked",
        "--format-version=1",
        "--filter-platform",
        &platform,
    ])?)?;
    let packages = metadata["packages"].as_array().context("`cargo metadata` lists no packages")?;
    let is_used = |package: &&Value| {
        let is_it = |[name, version]: &[&str; 2]| {
            package["name"] == *name && package["version"] == *version
        };
        !package["source"].is_null() && used.iter().any(is_it)
    };
    Ok(packages.iter().filter(is_used).cloned().collect())
}

/// Reads the licence files in a folder.
fn texts_in(folder: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for entry in
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?
    {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if NAMES.iter().any(|beginning| name.starts_with(beginning)) && entry.file_type()?.is_file()
        {
            texts.push(String::from_utf8_lossy(&fs::read(entry.path())?).replace("\r\n", "\n"));
        }
    }
    texts.sort();
    Ok(texts)
}
