//! Finds paths such as `crate::engine::{Engine, uring::Ring}` in the tokens of a file, and expands
//! them into one path for each name. The paths may be in `use` declarations, expressions, types and
//! macro calls.

use super::source::Token;

/// A path that a file uses.
#[derive(Debug, PartialEq, Eq)]
pub struct UsedPath {
    /// Words of the path, such as `["crate", "engine", "Engine"]`. A final `*` is left out.
    pub segments: Vec<String>,
    /// Line of the path's last word.
    pub line: usize,
}

/// Returns all paths whose first word is one of `first_words`. Single words, as in `pub(crate)`,
/// are left out.
pub fn paths(tokens: &[&Token], first_words: &[&str]) -> Vec<UsedPath> {
    let mut found = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let follows_path = index > 0 && tokens[index - 1].text == "::";
        if !follows_path && first_words.contains(&token.text.as_str()) {
            expand(tokens, index, &[], &mut found);
        }
    }
    found.retain(|path| path.segments.len() > 1);
    found
}

/// Expands the path or the braces at `index`, puts `prefix` before each path, and appends the paths
/// to `found`. Returns the index of the next token.
fn expand(tokens: &[&Token], index: usize, prefix: &[String], found: &mut Vec<UsedPath>) -> usize {
    let Some(token) = tokens.get(index) else { return index };
    match token.text.as_str() {
        "{" => {
            let mut index = index + 1;
            while index < tokens.len() && tokens[index].text != "}" {
                let is_name = tokens[index].text != ",";
                let next = if is_name { expand(tokens, index, prefix, found) } else { index };
                index = next.max(index + 1);
            }
            index + 1
        }
        "*" => {
            found.push(UsedPath { segments: prefix.to_vec(), line: token.line });
            index + 1
        }
        word if is_word(word) => {
            let mut segments = prefix.to_vec();
            segments.push(word.to_string());
            if tokens.get(index + 1).is_some_and(|next| next.text == "::") {
                return expand(tokens, index + 2, &segments, found);
            }
            found.push(UsedPath { segments, line: token.line });
            let is_renamed = tokens.get(index + 1).is_some_and(|next| next.text == "as");
            index + if is_renamed { 3 } else { 1 }
        }
        _ => {
            found.push(UsedPath { segments: prefix.to_vec(), line: token.line });
            index
        }
    }
}

fn is_word(text: &str) -> bool {
    text.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
}

#[cfg(test)]
mod tests {
    use super::super::source::Source;
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let source = Source::parse("crates/a/src/lib.rs", text).unwrap();
        let all = paths(&source.shipped_tokens(), &["crate", "super"]);
        all.into_iter().map(|path| path.segments.join("::")).collect()
    }

    #[test]
    fn nested_imports_are_expanded() {
        assert_eq!(
            found("use crate::{a::{self, B}, c::*, d as e}; use std::fs;"),
            ["crate::a::self", "crate::a::B", "crate::c", "crate::d"]
        );
    }

    #[test]
    fn paths_in_expressions_types_and_macros_are_found() {
        assert_eq!(
            found("fn f(x: crate::a::T) { vec![super::b::g::<u8>(), crate::c!()] }"),
            ["crate::a::T", "super::b::g", "crate::c"]
        );
    }

    #[test]
    fn visibility_is_no_path() {
        assert_eq!(found("pub(crate) fn f() {}"), Vec::<String>::new());
    }
}
