//! Checks the imports between crates: compares every manifest with the permitted imports, which
//! ARCHITECTURE.md describes.
//!
//! Dependencies and build-dependencies of all platforms are checked. Dev-dependencies are not
//! checked. A crate that is missing from the table [`ARROWS`] is a finding. A row of the table
//! without a crate is not a finding.

use super::finding::Finding;
use anyhow::{Context, Result};
use toml::{Table, Value};

/// General libraries, which all crates in [`ABOVE_LIBRARIES`] may import.
const LIBRARIES: [&str; 15] = [
    "explain",
    "ioengine",
    "cpucost",
    "analysis",
    "results",
    "memspeed",
    "iotrace",
    "trace",
    "calltrace",
    "seqio",
    "filecopy",
    "workload",
    "simulator",
    "fusefile",
    "report",
];

/// Each crate of the workspace with the crates that it may import, in layer order. The crates in
/// [`ABOVE_LIBRARIES`] may also import all libraries.
const ARROWS: [(&str, &[&str]); 26] = [
    ("explain", &[]),
    ("ioengine", &[]),
    ("cpucost", &[]),
    ("analysis", &[]),
    ("results", &[]),
    ("memspeed", &[]),
    ("iotrace", &[]),
    ("trace", &[]),
    ("calltrace", &["trace"]),
    ("seqio", &["ioengine"]),
    ("filecopy", &["ioengine", "seqio"]),
    ("workload", &["ioengine", "cpucost", "analysis"]),
    ("simulator", &["ioengine", "cpucost", "analysis"]),
    ("fusefile", &["ioengine"]),
    ("report", &["analysis", "explain", "results"]),
    ("lab", &[]),
    ("survey", &["lab"]),
    ("predict", &["lab"]),
    ("papers", &["lab"]),
    ("exchange", &["lab", "papers"]),
    ("compare", &["lab", "exchange"]),
    ("watch", &["lab", "survey"]),
    ("study", &["lab", "survey", "papers"]),
    ("serve", &["lab", "survey", "compare"]),
    (
        "halfpower",
        &["lab", "survey", "predict", "papers", "watch", "exchange", "compare", "study", "serve"],
    ),
    ("xtask", &[]),
];

/// Crates that may import all libraries, in addition to the crates listed in [`ARROWS`].
const ABOVE_LIBRARIES: [&str; 10] = [
    "lab",
    "survey",
    "predict",
    "papers",
    "exchange",
    "compare",
    "watch",
    "study",
    "serve",
    "halfpower",
];

/// Checks the imports in one manifest. Returns an error if the manifest is not TOML.
pub fn check(crate_name: &str, path: &str, manifest: &str) -> Result<Vec<Finding>> {
    let Some(allowed) = arrows_of(crate_name) else {
        let message =
            format!("crate `{crate_name}` is not in the table ARROWS of xtask; add it there");
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

/// Returns all dependencies and build-dependencies, including those for specific platforms.
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

/// Returns the folder name of a dependency: its package name without the prefix `halfpower-`.
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
    fn an_import_of_the_table_passes_and_so_does_a_dev_dependency() {
        let manifest = "[dependencies]\nioengine.workspace = true\nlibc = \"0.2\"\n\
                        [dev-dependencies]\nresults.workspace = true\n";
        assert_eq!(messages("workload", manifest), Vec::<String>::new());
    }

    #[test]
    fn an_import_that_breaks_the_layer_order_fails_at_its_line() {
        let manifest = "[dependencies]\nlibc = \"0.2\"\nworkload = { workspace = true }\n";
        assert_eq!(
            messages("ioengine", manifest),
            ["Cargo.toml:3: crate `ioengine` must not import `workload`"]
        );
    }

    #[test]
    fn an_import_that_is_renamed_or_of_one_platform_fails() {
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
    fn the_table_itself_has_no_cycle() {
        for (index, (name, allowed)) in ARROWS.iter().enumerate() {
            let lower = |target: &&str| ARROWS[..index].iter().any(|(other, _)| other == target);
            assert!(allowed.iter().all(lower), "{name} imports a crate of a later row");
        }
    }
}
