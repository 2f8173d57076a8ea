//! How the modules of one crate may import each other: no ring, and only what the root declares
//! above.
//!
//! An import is any path from `crate`, `super` or `self` outside tests that leads into another
//! module. It counts where the two ways from the root part: `a::b` importing `a::c` is an arrow
//! from `b` to `c` inside `a`. A module and the modules inside it are one part and free among
//! each other, and names that the root re-exports are not followed.

use super::finding::Finding;
use super::paths::{UsedPath, paths};
use super::source::Source;
use std::collections::{BTreeMap, BTreeSet};

/// An import between two modules that lie in the same module.
struct Arrow<'a> {
    inside: Vec<String>,
    from: String,
    to: String,
    path: &'a str,
    line: usize,
}

/// Findings of one crate, given all files under its `src`.
pub fn check(files: &[&Source]) -> Vec<Finding> {
    let arrows = arrows(files);
    let mut findings = against_the_order(&arrows, &declared_in_root(files));
    findings.extend(in_a_ring(&arrows));
    findings
}

/// The modules that `lib.rs`, or else `main.rs`, declares, from top to bottom.
fn declared_in_root(files: &[&Source]) -> Vec<String> {
    let mut declared = Vec::new();
    for end in ["/src/lib.rs", "/src/main.rs"] {
        for root in files.iter().filter(|file| file.path.ends_with(end)) {
            for tokens in root.shipped_tokens().windows(3) {
                let is_declaration = tokens[0].text == "mod" && tokens[2].text == ";";
                if is_declaration && !declared.contains(&tokens[1].text) {
                    declared.push(tokens[1].text.clone());
                }
            }
        }
    }
    declared
}

fn arrows<'a>(files: &[&'a Source]) -> Vec<Arrow<'a>> {
    let modules: BTreeSet<Vec<String>> =
        files.iter().filter_map(|file| file.module_path()).collect();
    let mut arrows = Vec::new();
    for file in files {
        let here = file.module_path().unwrap_or_default();
        for used in paths(&file.shipped_tokens(), &["crate", "super", "self"]) {
            let there = module_of(&here, &used, &modules);
            let shared = here.iter().zip(&there).take_while(|(a, b)| a == b).count();
            if let (Some(from), Some(to)) = (here.get(shared), there.get(shared)) {
                arrows.push(Arrow {
                    inside: here[..shared].to_vec(),
                    from: from.clone(),
                    to: to.clone(),
                    path: &file.path,
                    line: used.line,
                });
            }
        }
    }
    arrows
}

/// The module that a path written in module `here` leads into.
fn module_of(here: &[String], used: &UsedPath, modules: &BTreeSet<Vec<String>>) -> Vec<String> {
    let mut place = here.to_vec();
    for word in &used.segments {
        match word.as_str() {
            "crate" => place.clear(),
            "super" => {
                place.pop();
            }
            "self" => {}
            name => {
                place.push(name.to_string());
                if !modules.contains(&place) {
                    place.pop();
                    break;
                }
            }
        }
    }
    place
}

fn against_the_order(arrows: &[Arrow<'_>], declared: &[String]) -> Vec<Finding> {
    let place = |module: &String| declared.iter().position(|name| name == module);
    let mut findings = Vec::new();
    for arrow in arrows.iter().filter(|arrow| arrow.inside.is_empty()) {
        if place(&arrow.to) > place(&arrow.from) {
            let Arrow { from, to, .. } = arrow;
            let message =
                format!("module `{from}` imports `{to}`, which the root declares below it");
            findings.push(Finding::new(arrow.path, arrow.line, message));
        }
    }
    findings
}

/// One finding for each pair of modules that is part of a ring.
fn in_a_ring(arrows: &[Arrow<'_>]) -> Vec<Finding> {
    let mut graphs: BTreeMap<&[String], BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for arrow in arrows {
        let graph = graphs.entry(&arrow.inside).or_default();
        graph.entry(&arrow.from).or_default().insert(&arrow.to);
    }
    let mut reported = BTreeSet::new();
    let mut findings = Vec::new();
    for arrow in arrows {
        let Some(way) = way_back(&graphs[&arrow.inside[..]], &arrow.to, &arrow.from) else {
            continue;
        };
        if reported.insert((&arrow.inside, &arrow.from, &arrow.to)) {
            let message = format!("ring of modules: {} -> {}", arrow.from, way.join(" -> "));
            findings.push(Finding::new(arrow.path, arrow.line, message));
        }
    }
    findings
}

/// A shortest way between two modules, both named; none where there is no way.
fn way_back<'a>(
    graph: &BTreeMap<&'a str, BTreeSet<&'a str>>,
    start: &'a str,
    goal: &str,
) -> Option<Vec<&'a str>> {
    let mut seen = BTreeSet::from([start]);
    let mut ways = std::collections::VecDeque::from([vec![start]]);
    while let Some(way) = ways.pop_front() {
        let last = way.last()?;
        if *last == goal {
            return Some(way);
        }
        for next in graph.get(last).into_iter().flatten().copied() {
            if seen.insert(next) {
                ways.push_back([way.as_slice(), &[next]].concat());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        let parse = |(name, text): &(&str, &str)| {
            Source::parse(&format!("crates/a/src/{name}"), text).unwrap()
        };
        let sources: Vec<Source> = files.iter().map(parse).collect();
        let findings = check(&sources.iter().collect::<Vec<_>>());
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_module_imports_what_is_declared_above_it() {
        let root = ("lib.rs", "mod low;\nmod high;\npub use high::Thing;");
        let high = ("high.rs", "use crate::low::{A, b};");
        assert_eq!(messages(&[root, ("low.rs", ""), high]), Vec::<String>::new());
    }

    #[test]
    fn a_module_that_imports_one_declared_below_it_fails() {
        let root = ("lib.rs", "mod low;\npub(crate) mod high;");
        let low = ("low.rs", "//! x\nfn f() { crate::high::g() }");
        assert_eq!(
            messages(&[root, low, ("high.rs", "")]),
            ["crates/a/src/low.rs:2: module `low` imports `high`, \
              which the root declares below it"]
        );
    }

    #[test]
    fn a_ring_is_told_with_its_way() {
        let found = messages(&[
            ("main.rs", "mod a;\nmod b;\nmod c;"),
            ("a.rs", "use crate::c::X;"),
            ("b.rs", "use super::a::X;"),
            ("c.rs", "use crate::b::X;"),
        ]);
        let ring = "crates/a/src/a.rs:1: ring of modules: a -> c -> b -> a".to_string();
        assert!(found.contains(&ring), "{found:?}");
    }

    #[test]
    fn a_ring_among_siblings_inside_a_module_fails_too() {
        let found = messages(&[
            ("lib.rs", "mod engine;"),
            ("engine.rs", "mod ring;\nmod sync;\nuse ring::R;\nuse self::sync::S;"),
            ("engine/ring.rs", "use super::sync::S; use super::List;"),
            ("engine/sync.rs", "use crate::engine::ring::R;"),
        ]);
        assert_eq!(
            found,
            [
                "crates/a/src/engine/ring.rs:1: ring of modules: ring -> sync -> ring",
                "crates/a/src/engine/sync.rs:1: ring of modules: sync -> ring -> sync",
            ]
        );
    }

    #[test]
    fn tests_and_names_re_exported_by_the_root_are_free() {
        let root = ("lib.rs", "mod low;\nmod high;\npub use high::Thing;");
        let low = ("low.rs", "use crate::Thing;\n#[cfg(test)] mod tests { use crate::high::X; }");
        assert_eq!(messages(&[root, low, ("high.rs", "")]), Vec::<String>::new());
    }
}
