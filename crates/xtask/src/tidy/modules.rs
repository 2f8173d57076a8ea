//! Checks the imports between the modules of a crate. The imports must not be cyclic. A top-level
//! module may import only top-level modules that the crate root declares before it.
//!
//! An import is any path outside tests that starts with `crate`, `super` or `self` and refers to
//! another module. Imports are checked between modules with the same parent: if `a::b::x` imports
//! `a::c::y`, this counts as an import of `c` by `b`. A module and its submodules may import each
//! other freely. A path to a name that the crate root re-exports does not count as an import.

use super::finding::Finding;
use super::paths::{UsedPath, paths};
use super::source::Source;
use std::collections::{BTreeMap, BTreeSet};

/// An import between two modules with the same parent.
struct Import<'a> {
    /// Module path of the parent. Empty for the crate root.
    inside: Vec<String>,
    from: String,
    to: String,
    path: &'a str,
    line: usize,
}

/// Checks one crate. `files` are all files in its `src` folder.
pub fn check(files: &[&Source]) -> Vec<Finding> {
    let imports = imports(files);
    let mut findings = against_the_order(&imports, &declared_in_root(files));
    findings.extend(cycles(&imports));
    findings
}

/// Returns the modules that `lib.rs` declares, followed by those that only `main.rs` declares, in
/// the order of the declarations.
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

fn imports<'a>(files: &[&'a Source]) -> Vec<Import<'a>> {
    let modules: BTreeSet<Vec<String>> =
        files.iter().filter_map(|file| file.module_path()).collect();
    let mut imports = Vec::new();
    for file in files {
        let here = file.module_path().unwrap_or_default();
        for used in paths(&file.shipped_tokens(), &["crate", "super", "self"]) {
            let there = module_of(&here, &used, &modules);
            let shared = here.iter().zip(&there).take_while(|(a, b)| a == b).count();
            if let (Some(from), Some(to)) = (here.get(shared), there.get(shared)) {
                imports.push(Import {
                    inside: here[..shared].to_vec(),
                    from: from.clone(),
                    to: to.clone(),
                    path: &file.path,
                    line: used.line,
                });
            }
        }
    }
    imports
}

/// Returns the module path of the innermost module in the path `used`. `here` is the module in
/// which `used` occurs.
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

fn against_the_order(imports: &[Import<'_>], declared: &[String]) -> Vec<Finding> {
    let place = |module: &String| declared.iter().position(|name| name == module);
    let mut findings = Vec::new();
    for import in imports.iter().filter(|import| import.inside.is_empty()) {
        if place(&import.to) > place(&import.from) {
            let Import { from, to, .. } = import;
            let message = format!(
                "module `{from}` imports `{to}`, which is declared after it; swap the declarations"
            );
            findings.push(Finding::new(import.path, import.line, message));
        }
    }
    findings
}

/// Reports each import that is part of a cycle. If a module imports another one several times, only
/// the first import is reported.
fn cycles(imports: &[Import<'_>]) -> Vec<Finding> {
    let mut graphs: BTreeMap<&[String], BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for import in imports {
        let graph = graphs.entry(&import.inside).or_default();
        graph.entry(&import.from).or_default().insert(&import.to);
    }
    let mut reported = BTreeSet::new();
    let mut findings = Vec::new();
    for import in imports {
        let Some(route) = shortest_path(&graphs[&import.inside[..]], &import.to, &import.from)
        else {
            continue;
        };
        if reported.insert((&import.inside, &import.from, &import.to)) {
            let message =
                format!("cyclic import of modules: {} -> {}", import.from, route.join(" -> "));
            findings.push(Finding::new(import.path, import.line, message));
        }
    }
    findings
}

/// Returns a shortest path from `start` to `goal`, including both modules. None if there is no
/// path.
fn shortest_path<'a>(
    graph: &BTreeMap<&'a str, BTreeSet<&'a str>>,
    start: &'a str,
    goal: &str,
) -> Option<Vec<&'a str>> {
    let mut visited = BTreeSet::from([start]);
    let mut queue = std::collections::VecDeque::from([vec![start]]);
    while let Some(route) = queue.pop_front() {
        let last = route.last()?;
        if *last == goal {
            return Some(route);
        }
        for next in graph.get(last).into_iter().flatten().copied() {
            if visited.insert(next) {
                queue.push_back([route.as_slice(), &[next]].concat());
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
        let why = "module `low` imports `high`, which is declared after it; swap the declarations";
        let found = messages(&[root, low, ("high.rs", "")]);
        assert_eq!(found, [format!("crates/a/src/low.rs:2: {why}")]);
    }

    #[test]
    fn a_cycle_is_reported_with_its_path() {
        let found = messages(&[
            ("main.rs", "mod a;\nmod b;\nmod c;"),
            ("a.rs", "use crate::c::X;"),
            ("b.rs", "use super::a::X;"),
            ("c.rs", "use crate::b::X;"),
        ]);
        let cycle = "crates/a/src/a.rs:1: cyclic import of modules: a -> c -> b -> a".to_string();
        assert!(found.contains(&cycle), "{found:?}");
    }

    #[test]
    fn a_cycle_among_siblings_inside_a_module_fails_too() {
        let found = messages(&[
            ("lib.rs", "mod engine;"),
            ("engine.rs", "mod ring;\nmod sync;\nuse ring::R;\nuse self::sync::S;"),
            ("engine/ring.rs", "use super::sync::S; use super::List;"),
            ("engine/sync.rs", "use crate::engine::ring::R;"),
        ]);
        assert_eq!(
            found,
            [
                "crates/a/src/engine/ring.rs:1: cyclic import of modules: ring -> sync -> ring",
                "crates/a/src/engine/sync.rs:1: cyclic import of modules: sync -> ring -> sync",
            ]
        );
    }

    #[test]
    fn tests_and_names_re_exported_by_the_root_are_exempt() {
        let root = ("lib.rs", "mod low;\nmod high;\npub use high::Thing;");
        let low = ("low.rs", "use crate::Thing;\n#[cfg(test)] mod tests { use crate::high::X; }");
        assert_eq!(messages(&[root, low, ("high.rs", "")]), Vec::<String>::new());
    }
}
