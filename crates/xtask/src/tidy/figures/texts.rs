//! Finds comment lines, and finds flags of `halfpower` in the comments and string literals of
//! library crates. A library should use the names of its parameters instead, because other programs
//! that use the library have other flags.

use super::super::source::{Source, Token};
use std::collections::{BTreeMap, BTreeSet};

/// Library crates, which should not mention flags of `halfpower`.
const LIBRARIES: [&str; 8] =
    ["ioengine", "workload", "cpucost", "iotrace", "memspeed", "analysis", "simulator", "seqio"];
/// Programs whose flags a library may mention, if the name of the program precedes the flag on the
/// same line.
const OTHER_PROGRAMS: [&str; 3] = ["cargo", "fio", "losetup"];

/// Returns the lines outside tests that mention a flag such as `--name`. A line with several flags
/// is returned once for each flag. Returns no lines if the file is not part of a library crate.
pub fn flag_names(source: &Source) -> Vec<usize> {
    if !LIBRARIES.contains(&source.crate_name()) {
        return Vec::new();
    }
    let literals = literals(source).filter(|token| !token.in_test);
    let literals = literals
        .flat_map(|token| token.text.lines().enumerate().map(|(n, part)| (token.line + n, part)));
    let comments = comments(source);
    let comments = comments.iter().map(|(line, text)| (*line, text.as_str()));
    let shipped_comments = comments.filter(|(line, _)| !source.is_test_line(*line));
    let mut lines: Vec<usize> = literals
        .chain(shipped_comments)
        .flat_map(|(line, text)| std::iter::repeat_n(line, count_flags(text)))
        .collect();
    lines.sort_unstable();
    lines
}

/// Returns the numbers of the lines that contain only a comment.
pub fn comment_lines(source: &Source) -> BTreeSet<usize> {
    let lines: Vec<&str> = source.text.lines().collect();
    let is_alone = |line: &usize| lines[line - 1].trim_start().starts_with("//");
    comments(source).into_keys().filter(is_alone).collect()
}

/// Returns the `//` comments, by line number. The text of each comment includes the slashes. Block
/// comments are left out.
fn comments(source: &Source) -> BTreeMap<usize, String> {
    let mut literals_of: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for token in literals(source) {
        for (offset, part) in token.text.lines().enumerate() {
            literals_of.entry(token.line + offset).or_default().push(part);
        }
    }
    let mut comments = BTreeMap::new();
    for (index, line) in source.text.lines().enumerate() {
        let mut code = line.to_string();
        for literal in literals_of.get(&(index + 1)).into_iter().flatten() {
            code = code.replacen(literal, "", 1);
        }
        if let Some(start) = code.find("//") {
            comments.insert(index + 1, code[start..].to_string());
        }
    }
    comments
}

/// Returns the string literals as they are written in the source. Doc comments are left out, even
/// though the parser converts them to string literals. They are recognized by the `//` at the start
/// of the line.
fn literals(source: &Source) -> impl Iterator<Item = &Token> {
    let lines: Vec<&str> = source.text.lines().collect();
    let is_comment = move |token: &Token| lines[token.line - 1].trim_start().starts_with("//");
    let is_string = |token: &Token| {
        token.text.ends_with(['"', '#'])
            && token.text.contains('"')
            && !token.text.starts_with('\'')
    };
    source.tokens.iter().filter(move |token| is_string(token) && !is_comment(token))
}

/// Counts the flags of `halfpower` in a line of text. A flag is a word that starts with `--`, a
/// lowercase letter, and another lowercase letter or dash. Flags after the name of another program,
/// such as `fio --direct`, are not counted.
fn count_flags(text: &str) -> usize {
    let is_inner = |letter: char| letter.is_alphanumeric() || "-<!".contains(letter);
    let is_flag = |(start, _): &(usize, &str)| {
        let (before, behind) = text.split_at(*start);
        let mut letters = behind[2..].chars();
        letters.next().is_some_and(|first| first.is_ascii_lowercase())
            && letters.next().is_some_and(|second| second.is_ascii_lowercase() || second == '-')
            && !before.ends_with(is_inner)
            && !names_other_program(before)
    };
    text.match_indices("--").filter(is_flag).count()
}

fn names_other_program(text: &str) -> bool {
    text.split(|letter: char| !letter.is_alphanumeric()).any(|word| OTHER_PROGRAMS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Source {
        Source::parse("crates/workload/src/a.rs", text).unwrap()
    }

    #[test]
    fn flags_in_strings_and_comments_of_libraries_are_found() {
        let text = "//! Takes --rw-mix and --size.\n\
                    fn f() {\n    g(\"use `--depth`\"); // or --bs\n\
                    \x20   h(\"one\n        two --three\");\n}\n";
        assert_eq!(flag_names(&parse(text)), [1, 1, 3, 3, 5]);
        let program = Source::parse("crates/halfpower/src/a.rs", text).unwrap();
        assert!(flag_names(&program).is_empty());
    }

    #[test]
    fn flags_of_tests_and_of_other_programs_and_dashes_are_none() {
        let text = "// cargo test --release\n// losetup(8) with --direct-io\n\
                    // a -- b, c--de, --x\n// <!--comment--> ---rule\nfn f() { i - --n }\n\
                    #[test]\nfn t() {\n    // --flag\n    g(\"--flag\");\n}\n";
        assert!(flag_names(&parse(text)).is_empty(), "{:?}", flag_names(&parse(text)));
    }

    #[test]
    fn text_in_strings_is_no_comment() {
        let text = "//! Opening.\nconst A: &str = \"http://x\"; // why\n\
                    const B: &str = \"a\n// b\";\nconst C: &str = r#\"// c\"#;\n\
                    const D: char = '\"'; // \"d\"\n    /// Doc \"e\".\nfn f() {}\n";
        let source = parse(text);
        let found: Vec<usize> = comments(&source).into_keys().collect();
        assert_eq!(found, [1, 2, 6, 7]);
        assert_eq!(Vec::from_iter(comment_lines(&source)), [1, 7]);
    }
}
