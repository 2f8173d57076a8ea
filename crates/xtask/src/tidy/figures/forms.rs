//! Finds discouraged code patterns, for example untyped JSON, and tuples and booleans where a named
//! type is clearer. Each public function searches one file for a pattern and returns the line
//! numbers of the matches outside tests.

use super::super::paths::paths;
use super::super::source::{Source, Token};
use super::super::words::places;

/// Names of crates, folders and files that define documents: JSON that is printed or stored.
const DOCUMENTS: [&str; 3] = ["document", "documents", "json"];

/// Finds the first use of `serde_json::Value` or `serde_json::json!` in a file that does not define
/// documents.
pub fn untyped_json(source: &Source) -> Vec<usize> {
    let stem = source.path.strip_suffix(".rs").unwrap_or(&source.path);
    if stem.split('/').any(|part| DOCUMENTS.contains(&part)) {
        return Vec::new();
    }
    let used = paths(&source.shipped_tokens(), &["serde_json"]);
    let is_untyped = |name: &String| name == "Value" || name == "json";
    let mut lines = used.iter().filter(|path| is_untyped(&path.segments[1])).map(|path| path.line);
    lines.next().into_iter().collect()
}

/// Finds structs named `...Document` or `...View`.
pub fn documents_and_views(source: &Source) -> Vec<usize> {
    let tokens = source.shipped_tokens();
    let is_one = |pair: &&[&Token]| {
        let name = &pair[1].text;
        pair[0].text == "struct" && (name.ends_with("Document") || name.ends_with("View"))
    };
    tokens.windows(2).filter(is_one).map(|pair| pair[0].line).collect()
}

/// Finds the definitions of types with this name.
pub fn definitions(source: &Source, name: &str) -> Vec<usize> {
    let tokens = source.shipped_tokens();
    let is_one = |pair: &&[&Token]| {
        matches!(&*pair[0].text, "struct" | "enum" | "union" | "type") && pair[1].text == name
    };
    tokens.windows(2).filter(is_one).map(|pair| pair[0].line).collect()
}

/// Finds lines that contain `is_simulated`, also in strings and comments.
pub fn is_simulated(source: &Source) -> Vec<usize> {
    let lines = source.text.lines().enumerate().map(|(index, line)| (index + 1, line));
    let has_word = lines.filter(|(_, line)| line.contains("is_simulated"));
    has_word.map(|(line, _)| line).filter(|line| !source.is_test_line(*line)).collect()
}

/// Finds arms of a `match` on a boolean. An `if` or an enum is clearer.
pub fn boolean_arms(source: &Source) -> Vec<usize> {
    let tokens = source.shipped_tokens();
    let is_arm = |window: &&[&Token]| {
        matches!(&*window[0].text, "{" | "," | "}")
            && matches!(&*window[1].text, "true" | "false")
            && window[2].text == "="
            && window[3].text == ">"
    };
    tokens.windows(4).filter(is_arm).map(|window| window[1].line).collect()
}

/// Finds literals that start with `&[("`, which are lists of names and values. A named type is
/// clearer.
pub fn lists_of_named_values(source: &Source) -> Vec<usize> {
    let tokens = source.shipped_tokens();
    let is_one = |window: &&[&Token]| {
        let begins = window.iter().zip(["&", "[", "("]).all(|(token, text)| token.text == text);
        begins && window[3].text.starts_with('"')
    };
    tokens.windows(4).filter(is_one).map(|window| window[0].line).collect()
}

/// Finds literals `["read", "write"]`. An enum is clearer.
pub fn lists_of_directions(source: &Source) -> Vec<usize> {
    let tokens = source.shipped_tokens();
    places(&tokens, &["[", "\"read\"", ",", "\"write\""]).collect()
}

/// Finds function parameters with a tuple pattern: `fn f((a, b): (A, B))`.
pub fn tuple_parameters(source: &Source) -> Vec<usize> {
    let tokens = source.shipped_tokens();
    let mut lines = Vec::new();
    for (index, pair) in tokens.windows(2).enumerate() {
        let is_named =
            pair[1].text.starts_with(|first: char| first.is_alphabetic() || first == '_');
        if pair[0].text == "fn" && is_named {
            lines.extend(tuples_in_list(parameter_list(&tokens[index + 2..])));
        }
    }
    lines
}

/// Returns the tokens after the `(` of a parameter list. `tokens` starts after the name of the
/// function.
fn parameter_list<'a, 'b>(tokens: &'a [&'b Token]) -> &'a [&'b Token] {
    let mut angles = Angles::default();
    for (index, token) in tokens.iter().enumerate() {
        angles.pass(&token.text);
        if angles.depth == 0 && token.text == "(" {
            return &tokens[index + 1..];
        }
    }
    &[]
}

/// Returns the lines of the parameters that start with `(` or `&(`.
fn tuples_in_list(tokens: &[&Token]) -> Vec<usize> {
    let mut lines = Vec::new();
    let mut angles = Angles::default();
    let mut depth = 0_usize;
    let mut at_start = true;
    for token in tokens {
        let text = token.text.as_str();
        if depth == 0 {
            angles.pass(text);
            if at_start && text == "(" {
                lines.push(token.line);
            }
            at_start = matches!((text, angles.depth), (",", 0)) || (at_start && text == "&");
        }
        match text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" if depth == 0 => break,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
    }
    lines
}

/// Number of `<` that are not closed yet. The `>` of `->` does not close any.
#[derive(Default)]
struct Angles {
    depth: usize,
    is_arrow: bool,
}

impl Angles {
    fn pass(&mut self, text: &str) {
        match text {
            "<" => self.depth += 1,
            ">" if !self.is_arrow => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.is_arrow = text == "-";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [usize; 0] = [];

    fn parse(text: &str) -> Source {
        Source::parse("crates/a/src/b.rs", text).unwrap()
    }

    #[test]
    fn a_file_counts_once_for_untyped_json_and_a_document_never() {
        let text = "use std::fs;\nuse serde_json::{Value, json};\nfn f() { serde_json::json!({}) }";
        assert_eq!(untyped_json(&parse(text)), [2]);
        assert_eq!(untyped_json(&parse("fn f() { serde_json::to_string(&x) }")), NONE);
        for path in
            ["crates/documents/src/a.rs", "crates/a/src/document.rs", "crates/a/src/json.rs"]
        {
            assert_eq!(untyped_json(&Source::parse(path, text).unwrap()), NONE, "{path}");
        }
    }

    #[test]
    fn types_are_found_by_their_names() {
        let text = "pub struct RunDocument<T>(T);\nstruct View;\nenum OtherView {}\n\
                    struct Viewer;\ntype Finding = u8;\nfn f(x: Finding) {}\n\
                    #[cfg(test)]\nstruct TestView;\n";
        assert_eq!(documents_and_views(&parse(text)), [1, 2]);
        assert_eq!(definitions(&parse(text), "Finding"), [5]);
        assert_eq!(definitions(&parse(text), "Viewer"), [4]);
    }

    #[test]
    fn simulated_lines_of_tests_do_not_count() {
        let text = "// is_simulated\nfn f() {\n    if x.is_simulated() {}\n}\n\
                    #[test]\nfn t() {\n    is_simulated();\n}\n";
        assert_eq!(is_simulated(&parse(text)), [1, 3]);
    }

    #[test]
    fn arms_on_booleans_are_found_and_conditions_are_not() {
        let text = "fn f() {\n match b {\n  true => { 1 }\n  false => 2,\n }\n}\n\
                    fn g() { match (a, b) { (1, true) => x == true, _ => false } }\n";
        assert_eq!(boolean_arms(&parse(text)), [3, 4]);
    }

    #[test]
    fn literals_are_found_across_lines() {
        let text = "fn f() { g(&[(\"a\", 1)]) }\nfn h() { g(&[\n (\"a\", 1)]) }\n\
                    const A: [(&str, u8); 1] = [(\"a\", 1)];\nconst B: &[(u8, u8)] = &[(1, 2)];\n";
        assert_eq!(lists_of_named_values(&parse(text)), [1, 2]);
        let text = "const A: [&str; 2] = [\"read\", \"write\"];\n\
                    fn f() { [\"read\",\n \"write\",\n] }\n\
                    const B: [&str; 2] = [\"write\", \"read\"];\n";
        assert_eq!(lists_of_directions(&parse(text)), [1, 2]);
    }

    #[test]
    fn parameters_that_are_tuples_are_found_and_their_types_are_not() {
        assert_eq!(
            tuple_parameters(&parse("fn f((a, b): (u8, u8), &(c, d): &(u8, u8)) {}")),
            [1, 1]
        );
        assert_eq!(
            tuple_parameters(&parse(
                "fn f<F: Fn(u8) -> (u8, u8)>(\n x: F,\n (a, b): (u8, u8),\n) {}"
            )),
            [3]
        );
        let others = "fn f(x: (u8, u8), y: Map<u8, (u8, u8)>) -> (u8, u8) {}\n\
                      fn e(z: &dyn Fn(u8, (u8, u8)), y: u8) {}\n\
                      fn g() { h((1, 2)) }\ntype T = fn((u8, u8));\n";
        assert_eq!(tuple_parameters(&parse(others)), NONE);
    }
}
