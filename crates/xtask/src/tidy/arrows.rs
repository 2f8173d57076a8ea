//! Which crate may import which: the table of ARCHITECTURE.md, held against every manifest.
//!
//! Counts dependencies and build-dependencies, on every platform; dev-dependencies are free. A
//! crate of the table that does not exist yet is no finding, a crate that the table does not
//! know is one.

use super::finding::Finding;
use anyhow::{Context, Result};
use toml::{Table, Value};

/// Crates that know nothing of experiments: every crate above them may import all of these.
const LIBRARIES: [&str; 13] = [
    "units",
    "ioengine",
    "cpucost",
    "analysis",
    "results",
    "memspeed",
    "iotrace",
    "seqio",
    "filecopy",
    "workload",
    "simulator",
    "fusefile",
    "report",
];

/// Each crate with the crates of ours that it may import; from `lab` on, beside all libraries.
const ARROWS: [(&str, &[&str]); 20] = [
    ("units", &[]),
    ("ioengine", &[]),
    ("cpucost", &[]),
    ("analysis", &[]),
    ("results", &[]),
    ("memspeed", &[]),
    ("iotrace", &[]),
    ("seqio", &["ioengine"]),
    ("filecopy", &["ioengine", "seqio"]),
    ("workload", &["ioengine", "cpucost", "analysis"]),
    ("simulator", &["ioengine", "cpucost", "units"]),
    ("fusefile", &["ioengine"]),
    ("report", &["analysis", "results", "units"]),
    ("lab", &[]),
    ("survey", &["lab"]),
    ("calibrate", &["lab"]),
    ("papers", &["lab"]),
    ("study", &["lab", "survey", "papers"]),
    ("halfpower", &["lab", "survey", "calibrate", "papers", "study"]),
    ("xtask", &[]),
];

/// Crates of [`ARROWS`] that may import all libraries.
const ABOVE_LIBRARIES: [&str; 6] = ["lab", "survey", "calibrate", "papers", "study", "halfpower"];

/// Findings of one manifest; fails where it is not TOML.
pub fn check(crate_name: &str, path: &str, manifest: &str) -> Result<Vec<Finding>> {
    let Some(allowed) = arrows_of(crate_name) else {
        let message = format!("crate `{crate_name}` is not in the table of crates/xtask");
        return Ok(vec![Finding::new(path, 1, message)]);
    };
    let table: Table = manifest.parse().with_context(|| format!("{path} is not TOML"))?;
    let mut findings = Vec::new();
    for (key, value) in dependencies(&table) {
        let target = folder_name(key, value);
        let is_free = ABOVE_LIBRARIES.contains(&crate_name) && LIBRARIES.contains(&target);
        if arrows_of(target).is_some() && !is_free && !allowed.contains(&target) {
            let message = format!("crate `{crate_name}` must not import `{target}`");
            findings.push(Finding::new(path, line_of(manifest, key), message));
        }
    }
    Ok(findings)
}

fn arrows_of(crate_name: &str) -> Option<&'static [&'static str]> {
    ARROWS.iter().find(|(name, _)| *name == crate_name).map(|(_, allowed)| *allowed)
}

/// Every entry of the dependency tables that count, those of platforms included.
fn dependencies(manifest: &Table) -> Vec<(&String, &Value)> {
    let platforms = manifest.get("target").and_then(Value::as_table);
    let tables = platforms.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    let mut found = Vec::new();
    for table in tables.chain([manifest]) {
        for kind in ["dependencies", "build-dependencies"] {
            found.extend(table.get(kind).and_then(Value::as_table).into_iter().flatten());
        }
    }
    found
}

/// The folder of a dependency: its name in the registry without the project's prefix.
fn folder_name<'a>(key: &'a str, value: &'a Value) -> &'a str {
    let package = value.get("package").and_then(Value::as_str).unwrap_or(key);
    package.strip_prefix("halfpower-").unwrap_or(package)
}

fn line_of(manifest: &str, key: &str) -> usize {
    let names_key = |line: &str| {
        let rest = line.trim_start().strip_prefix(key).unwrap_or_default();
        rest.starts_with([' ', '.', '='])
    };
    manifest.lines().position(names_key).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(crate_name: &str, manifest: &str) -> Vec<String> {
        let findings = check(crate_name, "Cargo.toml", manifest).unwrap();
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn an_arrow_of_the_table_passes_and_so_does_a_dev_dependency() {
        let manifest = "[dependencies]\nioengine.workspace = true\nlibc = \"0.2\"\n\
                        [dev-dependencies]\nresults.workspace = true\n";
        assert_eq!(messages("workload", manifest), Vec::<String>::new());
    }

    #[test]
    fn an_arrow_upwards_or_sideways_fails_at_its_line() {
        let manifest = "[dependencies]\nlibc = \"0.2\"\nworkload = { workspace = true }\n";
        assert_eq!(
            messages("ioengine", manifest),
            ["Cargo.toml:3: crate `ioengine` must not import `workload`"]
        );
    }

    #[test]
    fn an_arrow_hidden_by_a_new_name_or_a_platform_fails() {
        let renamed = "[build-dependencies]\nio = { package = \"halfpower-ioengine\" }\n";
        assert_eq!(messages("analysis", renamed).len(), 1);
        let platform = "[target.'cfg(unix)'.dependencies]\nanalysis = { path = \"../analysis\" }\n";
        assert_eq!(messages("results", platform).len(), 1);
    }

    #[test]
    fn a_crate_without_a_row_fails() {
        assert!(messages("utils", "")[0].contains("not in the table"));
    }

    #[test]
    fn the_table_itself_has_no_ring() {
        for (index, (name, allowed)) in ARROWS.iter().enumerate() {
            let lower = |target: &&str| ARROWS[..index].iter().any(|(other, _)| other == target);
            assert!(allowed.iter().all(lower), "{name} imports a crate of a later row");
        }
    }
}
