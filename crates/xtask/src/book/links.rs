//! Checks the links of the pages: the linked file and the linked heading must exist.
//!
//! Links to other hosts are not opened, because a test must not depend on the network. The anchor
//! of a heading follows the rule of Git hosts and mdBook: lower case, no punctuation, and `-` for
//! each space.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// A broken link.
#[derive(Debug, PartialEq)]
pub struct Broken {
    /// Path of the page that contains the link, relative to the root of the repository.
    pub page: String,
    /// Line number of the link in the page, starting at 1.
    pub line: usize,
    /// Message that says why the link is broken.
    pub problem: String,
}

/// Checks all links of `pages`. The keys are the paths of the pages, relative to `root`, and the
/// values are their texts. Returns the number of links within the repository, and the broken links.
pub fn check(root: &Path, pages: &BTreeMap<String, String>) -> (usize, Vec<Broken>) {
    let anchors: BTreeMap<&String, BTreeSet<String>> =
        pages.iter().map(|(path, text)| (path, anchors_of(text))).collect();
    let mut broken = Vec::new();
    let mut count = 0;
    for (page, text) in pages {
        for (line, target) in links_of(text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            count += 1;
            if let Some(problem) = problem(root, page, &target, &anchors) {
                broken.push(Broken { page: page.clone(), line, problem });
            }
        }
    }
    (count, broken)
}

fn problem(
    root: &Path,
    page: &str,
    target: &str,
    anchors: &BTreeMap<&String, BTreeSet<String>>,
) -> Option<String> {
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => page.to_string(),
        file => resolved(page, file)?,
    };
    if !root.join(&path).exists() {
        return Some(format!("{target}: no such file"));
    }
    if anchor.is_empty() {
        return None;
    }
    match anchors.get(&path) {
        Some(names) if names.contains(anchor) => None,
        Some(_) => Some(format!("{target}: {path} has no heading with this name")),
        None => Some(format!(
            "{target}: {path} is not among the checked pages, so the heading cannot be checked"
        )),
    }
}

/// Resolves a relative link in `page`. Both `page` and the result are paths relative to the root.
pub fn resolved(page: &str, link: &str) -> Option<String> {
    let mut path = PathBuf::from(page).parent()?.to_path_buf();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    Some(path.to_string_lossy().into_owned())
}

/// Returns the links of a page with their line numbers, which start at 1. Ignores links in code.
pub fn links_of(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (at, line) in prose(text) {
        // The search starts at `](`, because the label of a link may be split over two lines.
        let line = without_code(line);
        let mut rest = line.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let Some((target, more)) = after.split_once(')') else { break };
            links.push((at + 1, target.trim().to_string()));
            rest = more;
        }
    }
    links
}

/// Returns the anchors of all headings of a page. Repeated headings get the suffix `-1`, `-2`, ...
fn anchors_of(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (_, line) in prose(text) {
        let heading = line.trim_start_matches('#');
        let level = line.len() - heading.len();
        if !(1..=6).contains(&level) || !heading.starts_with(' ') {
            continue;
        }
        let name = anchor(heading.trim());
        let mut unique = name.clone();
        let mut number = 1;
        while names.contains(&unique) {
            unique = format!("{name}-{number}");
            number += 1;
        }
        names.insert(unique);
    }
    names
}

/// Returns the anchor of a heading, as it appears after `#` in a link.
fn anchor(heading: &str) -> String {
    let named = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    named.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
}

/// Returns the lines of a page that are outside fenced code blocks, with their indices.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Removes the inline code from a line.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_get_the_names_of_git_hosts() {
        let text = "# From `fio`: a tour\n## Same\n## Same\n```\n# no heading\n```\n";
        let names: Vec<String> = anchors_of(text).into_iter().collect();
        assert_eq!(names, ["from-fio-a-tour", "same", "same-1"]);
    }

    #[test]
    fn links_in_code_are_none() {
        let text = "[a](b.md) `[c](d)` ![e](f.svg \"t\")\n```\n[g](h)\n```\n";
        let links: Vec<String> = links_of(text).into_iter().map(|(_, link)| link).collect();
        assert_eq!(links, ["b.md", "f.svg \"t\""]);
    }

    #[test]
    fn a_missing_file_or_heading_is_broken_and_the_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let pages: BTreeMap<String, String> = [
            (
                "docs/a.md",
                "# A\n[x](b.md#b) [y](#a) [z](../c.md) [w](b.md#gone) [v](https://x.y)\n",
            ),
            ("docs/b.md", "# B\n"),
        ]
        .map(|(path, text)| (path.to_string(), text.to_string()))
        .into();
        std::fs::create_dir(folder.path().join("docs")).unwrap();
        for path in pages.keys() {
            std::fs::write(folder.path().join(path), "").unwrap();
        }
        let (count, broken) = check(folder.path(), &pages);
        let problems: Vec<&str> = broken.iter().map(|broken| broken.problem.as_str()).collect();
        assert_eq!(count, 4);
        assert_eq!(
            problems,
            ["../c.md: no such file", "b.md#gone: docs/b.md has no heading with this name"]
        );
    }
}
