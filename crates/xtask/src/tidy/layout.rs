//! Checks the length of functions, files and lines, and the `//!` comment at the start of each
//! file.
//!
//! The length of a function is counted from `fn` to the closing brace, without the doc comment.
//! Functions of tests may have any length. The length of a file is counted without its tests.

use super::finding::Finding;
use super::source::{Source, Token};
use std::ops::RangeInclusive;

/// Maximum number of lines of a function, including the signature and the braces.
const FUNCTION_LINES: usize = 70;
/// Maximum number of lines of a file. Lines of tests are not counted.
const FILE_LINES: usize = 700;
/// Maximum number of characters in a line.
const LINE_CHARACTERS: usize = 100;
/// Minimum number of characters in the `//!` comment at the start of a file.
const OPENING_CHARACTERS: usize = 60;

/// Reports functions outside tests that are too long.
pub fn long_functions(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for Function { name, line, body } in functions(&source.shipped_tokens()) {
        let lines = body.end() - line + 1;
        if lines > FUNCTION_LINES {
            let message = format!(
                "function `{name}` has {lines} lines, but only {FUNCTION_LINES} are allowed"
            );
            findings.push(Finding::new(&source.path, line, message));
        }
    }
    findings
}

/// Returns the line range of the body of each function outside tests. The range includes the lines
/// with the braces.
pub fn bodies(source: &Source) -> Vec<RangeInclusive<usize>> {
    functions(&source.shipped_tokens()).into_iter().map(|function| function.body).collect()
}

struct Function<'a> {
    name: &'a str,
    line: usize,
    body: RangeInclusive<usize>,
}

fn functions<'a>(tokens: &[&'a Token]) -> Vec<Function<'a>> {
    let mut functions = Vec::new();
    for (index, pair) in tokens.windows(2).enumerate() {
        let is_named =
            pair[1].text.starts_with(|first: char| first.is_alphabetic() || first == '_');
        if pair[0].text != "fn" || !is_named {
            continue;
        }
        if let Some(body) = body(&tokens[index..]) {
            functions.push(Function { name: &pair[1].text, line: pair[0].line, body });
        }
    }
    functions
}

/// Returns the range of lines from the opening to the closing brace of the body. None for a
/// declaration without a body.
fn body(tokens: &[&Token]) -> Option<RangeInclusive<usize>> {
    let mut depth = 0_usize;
    let mut first_line = None;
    for token in tokens {
        match token.text.as_str() {
            "{" if depth == 0 => {
                first_line = Some(token.line);
                depth = 1;
            }
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.checked_sub(1)?,
            ";" if depth == 0 => return None,
            _ => {}
        }
        if depth == 0
            && let Some(first_line) = first_line
        {
            return Some(first_line..=token.line);
        }
    }
    None
}

/// Reports a file that is too long. Lines of tests are not counted.
pub fn long_files(source: &Source) -> Vec<Finding> {
    let lines = source.shipped_lines();
    if lines <= FILE_LINES {
        return Vec::new();
    }
    let message =
        format!("the file has {lines} lines outside tests, but only {FILE_LINES} are allowed");
    vec![Finding::new(&source.path, 1, message)]
}

/// Reports lines that are too wide.
pub fn long_lines(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        let width = line.chars().count();
        if width > LINE_CHARACTERS {
            let message =
                format!("line of {width} characters, but only {LINE_CHARACTERS} are allowed");
            findings.push(Finding::new(&source.path, index + 1, message));
        }
    }
    findings
}

/// Reports a file whose `//!` comment is missing or too short.
pub fn missing_openings(source: &Source) -> Vec<Finding> {
    let opening = source.text.lines().map_while(|line| line.strip_prefix("//!"));
    let characters: usize = opening.map(|line| line.trim().chars().count()).sum();
    if characters >= OPENING_CHARACTERS {
        return Vec::new();
    }
    let message = "the file must begin with a `//!` paragraph that says what the file is for, how \
                   it works, and what it does not do";
    vec![Finding::new(&source.path, 1, message)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [usize; 0] = [];

    fn lines_found(rule: fn(&Source) -> Vec<Finding>, text: &str) -> Vec<usize> {
        let source = Source::parse("crates/a/src/lib.rs", text).unwrap();
        rule(&source).iter().map(Finding::line).collect()
    }

    fn function(lines: usize) -> String {
        format!("fn f(x: [u8; 2]) {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_of_70_lines_passes_and_one_of_71_fails() {
        assert_eq!(lines_found(long_functions, &function(70)), NONE);
        assert_eq!(lines_found(long_functions, &format!("\n{}", function(71))), [2]);
        assert_eq!(lines_found(long_functions, &format!("impl A {{\n{}}}", function(71))), [2]);
    }

    #[test]
    fn tests_declarations_and_function_types_have_no_length() {
        let test = format!("#[test]\n{}", function(90));
        assert_eq!(lines_found(long_functions, &test), NONE);
        let others = format!("trait T {{ fn f(); }} type F = fn(u8);\n{}", "\n".repeat(90));
        assert_eq!(lines_found(long_functions, &others), NONE);
    }

    #[test]
    fn a_file_of_700_lines_passes_whatever_its_tests_and_one_of_701_fails() {
        let text = "fn f() {}\n".repeat(700);
        assert_eq!(lines_found(long_files, &format!("{text}#[test]\nfn t() {{\n}}\n")), NONE);
        assert_eq!(lines_found(long_files, &format!("{text}fn g() {{}}\n")), [1]);
    }

    #[test]
    fn a_line_of_100_characters_passes_and_one_of_101_fails() {
        let text = format!("//{}\n//{}\n", "é".repeat(98), "é".repeat(99));
        assert_eq!(lines_found(long_lines, &text), [2]);
    }

    #[test]
    fn a_file_opens_with_a_paragraph() {
        let good = "//! Reads a file.\n//!\n\
                    //! Requests are large and deep. Does not look at the data.\n";
        assert_eq!(lines_found(missing_openings, good), NONE);
        assert_eq!(lines_found(missing_openings, "use std::fs;\n"), [1]);
        assert_eq!(
            lines_found(missing_openings, "//! Utils.\n//!\n//! And more of them.\n\n/// x\n"),
            [1]
        );
    }
}
