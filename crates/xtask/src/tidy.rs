//! `cargo xtask tidy`: checks style and layering rules that neither the compiler nor clippy checks.
//!
//! Every rule is a pure function from text to findings, with tests on short examples. This file
//! reads the checkout and applies the rules. `cargo test` also applies them, in the test
//! `the_repository_is_tidy`. The command reports problems and changes no files. With `--figures`,
//! the command prints statistics instead.

mod finding;

mod source;

mod paths;

mod arrows;
mod layout;
mod licences;
mod modules;
mod safety;
mod text;
mod words;

mod figures;

use crate::repository;
use anyhow::{Context, Result};
use finding::Finding;
use source::Source;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

/// Rules that are applied to each Rust file separately.
const SOURCE_RULES: [fn(&Source) -> Vec<Finding>; 9] = [
    layout::long_functions,
    layout::long_files,
    layout::long_lines,
    layout::missing_openings,
    safety::unsafe_outside_its_crates,
    safety::undocumented_unsafe,
    words::forbidden_words,
    words::operating_system_clocks,
    words::impure_imports,
];

/// The crate that is intended for use by other programs.
const PUBLIC_CRATE: &str = "halfpower-seqio";
/// Maximum number of direct and indirect dependencies of the public crate.
const MAX_DEPENDENCIES: usize = 8;

/// Options of `cargo xtask tidy`.
#[derive(clap::Args)]
pub struct Options {
    /// Instead of checking, print the sizes of crates and the counts of discouraged code patterns
    #[arg(long)]
    figures: bool,
}

/// Checks the checkout and prints every finding as `file:line: message`. The exit code is 1 if
/// there are findings.
pub fn run(options: &Options) -> Result<ExitCode> {
    if options.figures {
        print!("{}", figures::tables(&repository::root())?);
        return Ok(ExitCode::SUCCESS);
    }
    let findings = check(&repository::root())?;
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("tidy: {} findings", findings.len());
    Ok(ExitCode::FAILURE)
}

/// Applies all rules. Returns the findings, sorted by file and line.
fn check(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut sources = Vec::new();
    for path in repository::files(root)? {
        let bytes =
            std::fs::read(root.join(&path)).with_context(|| format!("cannot read {path}"))?;
        let Ok(text) = String::from_utf8(bytes) else { continue };
        findings.extend(text::leftovers(&path, &text));
        findings.extend(text::machine_paths(&path, &text));
        if let Some(name) = crate_of_manifest(&path) {
            findings.extend(arrows::check(name, &path, &text)?);
        }
        if path.ends_with(".rs") {
            sources.push(Source::parse(&path, &text)?);
        }
    }
    source::mark_test_modules(&mut sources);
    findings
        .extend(sources.iter().flat_map(|file| SOURCE_RULES.iter().flat_map(|rule| rule(file))));
    for files in by_crate(&sources).values() {
        findings.extend(modules::check(files));
    }
    let lock =
        std::fs::read_to_string(root.join("Cargo.lock")).context("cannot read Cargo.lock")?;
    findings.extend(licences::check(&repository::metadata(root)?, &lock)?);
    findings.extend(too_many_dependencies(&repository::packages_beneath(root, PUBLIC_CRATE)?));
    findings.sort();
    findings.dedup();
    Ok(findings)
}

/// Returns a finding if the public crate has too many dependencies. `packages` includes the crate
/// itself.
fn too_many_dependencies(packages: &[String]) -> Option<Finding> {
    let dependencies: Vec<&str> =
        packages.iter().map(String::as_str).filter(|name| *name != PUBLIC_CRATE).collect();
    (dependencies.len() > MAX_DEPENDENCIES).then(|| {
        let (count, names) = (dependencies.len(), dependencies.join(", "));
        let message =
            format!("{count} dependencies, but only {MAX_DEPENDENCIES} are allowed: {names}");
        Finding::new("crates/seqio/Cargo.toml", 1, message)
    })
}

/// Returns NAME if the path is `crates/NAME/Cargo.toml`.
fn crate_of_manifest(path: &str) -> Option<&str> {
    path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml").filter(|name| !name.contains('/'))
}

/// Groups the files in `src` folders by crate.
fn by_crate(sources: &[Source]) -> BTreeMap<&str, Vec<&Source>> {
    let mut crates: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.module_path().is_some()) {
        crates.entry(source.crate_name()).or_default().push(source);
    }
    crates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_tidy() {
        let findings = check(&repository::root()).unwrap();
        let report: Vec<String> = findings.iter().map(Finding::to_string).collect();
        assert!(report.is_empty(), "{} findings:\n{}", report.len(), report.join("\n"));
    }

    #[test]
    fn a_ninth_dependency_of_the_public_crate_is_a_finding() {
        let mut packages: Vec<String> = (1..=8).map(|index| format!("p{index}")).collect();
        packages.push(PUBLIC_CRATE.to_string());
        assert!(too_many_dependencies(&packages).is_none());
        packages.push("p9".to_string());
        assert!(too_many_dependencies(&packages).unwrap().to_string().contains("p9"));
    }

    #[test]
    fn a_manifest_belongs_to_the_crate_of_its_folder() {
        assert_eq!(crate_of_manifest("crates/report/Cargo.toml"), Some("report"));
        assert_eq!(crate_of_manifest("Cargo.toml"), None);
        assert_eq!(crate_of_manifest("fuzz/Cargo.toml"), None);
        assert_eq!(crate_of_manifest("crates/a/fuzz/Cargo.toml"), None);
    }
}
