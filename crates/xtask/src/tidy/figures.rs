//! `cargo xtask tidy --figures`: prints the sizes of crates and the counts of discouraged code
//! patterns.
//!
//! All figures are counted in the sources, so they are the same on every machine. Lines are counted
//! in all crates. Patterns are counted only in shipped code, which excludes tests and `xtask`. For
//! a figure with a goal, the table shows whether the goal is met. A missed goal is not an error.

mod forms;
mod lines;
mod row;
mod texts;

use super::paths::paths;
use super::source::{self, Source};
use crate::repository;
use anyhow::{Context, Result};
use row::{Goal, Row};
use std::collections::BTreeSet;
use std::path::Path;

/// The crate of developer commands, which is not shipped.
const DEVELOPER_CRATE: &str = "xtask";
/// Goal: the workspace has fewer crates than this.
const MEMBERS: usize = 22;
/// Type names that the shipped crates should define only once.
const SHARED_TYPES: [&str; 3] = ["Evidence", "Finding", "Workload"];

/// A code pattern: its name, the function that finds its lines in a file, and the goal for its
/// count.
type Form = (&'static str, fn(&Source) -> Vec<usize>, Goal);

const FORMS: [Form; 8] = [
    (
        "files that use serde_json::Value or json! but define no documents",
        forms::untyped_json,
        Goal::None,
    ),
    ("names of command-line flags in library crates", texts::flag_names, Goal::Exactly(0)),
    ("structs named *Document or *View", forms::documents_and_views, Goal::None),
    ("lines with is_simulated", forms::is_simulated, Goal::None),
    ("parameters that are tuples", forms::tuple_parameters, Goal::None),
    ("match arms `true =>` or `false =>`", forms::boolean_arms, Goal::None),
    ("literals `&[(\"`", forms::lists_of_named_values, Goal::None),
    ("literals `[\"read\", \"write\"]`", forms::lists_of_directions, Goal::None),
];

/// Returns two tables: the sizes of crates, and all other figures.
pub fn tables(root: &Path) -> Result<String> {
    let sources = sources(root)?;
    let metadata = repository::metadata_of_members(root)?;
    let members = metadata["packages"].as_array().context("`cargo metadata` lists no packages")?;

    let (crates, mut rows) = lines::count(&sources);
    rows.push(Row::count("workspace members", members.len(), Goal::Below(MEMBERS)));
    rows.extend(forms(&sources));
    rows.push(lines::comments(&sources));
    Ok(format!("{}\n{}", lines::table(&crates), row::table(&rows)))
}

/// Reads the Rust files of all crates.
fn sources(root: &Path) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for path in repository::files(root)? {
        if path.starts_with("crates/") && path.ends_with(".rs") {
            let text = std::fs::read_to_string(root.join(&path))
                .with_context(|| format!("cannot read {path}"))?;
            sources.push(Source::parse(&path, &text)?);
        }
    }
    source::mark_test_modules(&mut sources);
    Ok(sources)
}

/// Counts the code patterns in the shipped crates.
fn forms(sources: &[Source]) -> Vec<Row> {
    let shipped: Vec<&Source> =
        sources.iter().filter(|source| source.crate_name() != DEVELOPER_CRATE).collect();
    let mut rows = vec![importers_of_clap(&shipped)];
    for name in SHARED_TYPES {
        let find = |source: &Source| forms::definitions(source, name);
        rows.push(Row::places(format!("types named {name}"), &shipped, find, Goal::Exactly(1)));
    }
    for (name, find, goal) in FORMS {
        rows.push(Row::places(name, &shipped, find, goal));
    }
    rows
}

/// Counts the crates that import clap.
fn importers_of_clap(sources: &[&Source]) -> Row {
    let imports = |source: &&&Source| !paths(&source.shipped_tokens(), &["clap"]).is_empty();
    let names: BTreeSet<&str> =
        sources.iter().filter(imports).map(|source| source.crate_name()).collect();
    let names = Vec::from_iter(names);
    Row::count("crates that import clap", names.len(), Goal::Exactly(1)).at(names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(path: &str, text: &str) -> Source {
        Source::parse(path, text).unwrap()
    }

    #[test]
    fn the_tables_of_this_repository_name_every_goal() {
        let text = tables(&repository::root()).unwrap();
        for name in ["workspace members", "types named Workload", "comment lines", "xtask"] {
            assert!(text.contains(name), "{text}");
        }
    }

    #[test]
    fn the_crate_of_developer_commands_is_not_counted() {
        let text = "use clap::Parser;\nstruct Finding;\n";
        let sources = [parse("crates/xtask/src/main.rs", text), parse("crates/a/src/b.rs", text)];
        let rows = forms(&sources);
        let found = |name: &str| {
            let row = rows.iter().find(|row| row.name() == name).unwrap();
            (row.value().to_string(), row.is_met())
        };
        assert_eq!(found("crates that import clap"), ("1".to_string(), Some(true)));
        assert_eq!(found("types named Finding"), ("1".to_string(), Some(true)));
        assert_eq!(found("types named Evidence"), ("0".to_string(), Some(false)));
    }
}
