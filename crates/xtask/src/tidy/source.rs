//! Parses a Rust file into a flat list of tokens. Each token has its line and a flag that says
//! whether it is test code.
//!
//! The rules search for short sequences of tokens, so they need no syntax tree. Text in comments
//! and strings does not match, but code inside macro calls does. Test code consists of items with
//! `#[test]` or `#[cfg(test)]`, of files in `tests/`, `benches/` and `examples/`, and of modules
//! that are declared with `#[cfg(test)]`. Code under `cfg(any(test, ...))` is not test code,
//! because it may be shipped.

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, Group, Spacing, TokenStream, TokenTree};
use std::ops::RangeInclusive;

/// Folders of a Cargo package with code that is never shipped.
const TEST_FOLDERS: [&str; 3] = ["tests", "benches", "examples"];

/// A token of a Rust file. A `::` is one token, and so is each opening or closing delimiter.
#[derive(Clone, Debug)]
pub struct Token {
    /// Text of the token as it is written in the file.
    pub text: String,
    /// Number of the line on which the token starts, from 1.
    pub line: usize,
    /// Whether the token belongs to test code.
    pub in_test: bool,
}

/// A Rust file of the checkout.
pub struct Source {
    /// Path relative to the root of the checkout.
    pub path: String,
    /// Text of the file.
    pub text: String,
    /// The tokens of the file. Comments are left out, except doc comments, which are attributes.
    pub tokens: Vec<Token>,
    test_lines: Vec<RangeInclusive<usize>>,
    is_test: bool,
    last_colon_is_joint: bool,
}

impl Source {
    /// Parses a file. Returns an error if the text is not Rust code.
    pub fn parse(path: &str, text: &str) -> Result<Self> {
        let stream: TokenStream =
            text.parse().map_err(|error| anyhow!("{path} is not Rust code: {error}"))?;
        let in_test_folder = path.split('/').any(|part| TEST_FOLDERS.contains(&part));
        let mut source = Self {
            path: path.to_string(),
            text: text.to_string(),
            tokens: Vec::new(),
            test_lines: Vec::new(),
            is_test: false,
            last_colon_is_joint: false,
        };
        source.flatten(stream, false);
        if in_test_folder || text.lines().any(|line| line.trim() == "#![cfg(test)]") {
            source.mark_test();
        }
        Ok(source)
    }

    /// Returns the folder name of the crate: NAME for `crates/NAME/...`, or the first part of any
    /// other path.
    pub fn crate_name(&self) -> &str {
        let inside = self.path.strip_prefix("crates/").unwrap_or(&self.path);
        inside.split('/').next().unwrap_or(inside)
    }

    /// Returns the module path of the file. Empty for the crate root. None for a file in `src/bin`
    /// or outside `src`.
    pub fn module_path(&self) -> Option<Vec<String>> {
        let (_, inside) = self.path.split_once("/src/")?;
        let stem = inside.strip_suffix(".rs")?;
        let stem = stem.strip_suffix("/mod").unwrap_or(stem);
        match stem {
            "lib" | "main" => Some(Vec::new()),
            _ if stem.starts_with("bin/") => None,
            _ => Some(stem.split('/').map(String::from).collect()),
        }
    }

    /// Returns the tokens that are not test code.
    pub fn shipped_tokens(&self) -> Vec<&Token> {
        self.tokens.iter().filter(|token| !token.in_test).collect()
    }

    /// Returns the number of lines outside test code.
    pub fn shipped_lines(&self) -> usize {
        (1..=self.text.lines().count()).filter(|line| !self.is_test_line(*line)).count()
    }

    /// Returns whether a line belongs to test code. This includes comment lines inside test code.
    pub fn is_test_line(&self, line: usize) -> bool {
        self.is_test || self.test_lines.iter().any(|range| range.contains(&line))
    }

    fn mark_test(&mut self) {
        self.is_test = true;
        self.tokens.iter_mut().for_each(|token| token.in_test = true);
    }

    fn flatten(&mut self, stream: TokenStream, in_test: bool) {
        let trees: Vec<TokenTree> = stream.into_iter().collect();
        let mut index = 0;
        while index < trees.len() {
            let test_end = if in_test { None } else { test_item_end(&trees[index..]) };
            let end = index + test_end.unwrap_or(1);
            if test_end.is_some() {
                let first = trees[index].span().start().line;
                self.test_lines.push(first..=trees[end - 1].span().end().line);
            }
            for tree in &trees[index..end] {
                self.push_tree(tree, in_test || test_end.is_some());
            }
            index = end;
        }
    }

    fn push_tree(&mut self, tree: &TokenTree, in_test: bool) {
        let line = tree.span().start().line;
        if let TokenTree::Punct(punct) = tree {
            if punct.as_char() == ':' && self.last_colon_is_joint {
                let colon = self.tokens.last_mut().expect("the last token is a colon");
                colon.text.push(':');
                self.last_colon_is_joint = false;
                return;
            }
            self.last_colon_is_joint =
                punct.as_char() == ':' && matches!(punct.spacing(), Spacing::Joint);
        } else {
            self.last_colon_is_joint = false;
        }
        match tree {
            TokenTree::Group(group) => self.push_group(group, in_test),
            other => self.tokens.push(Token { text: other.to_string(), line, in_test }),
        }
    }

    fn push_group(&mut self, group: &Group, in_test: bool) {
        let (open, close) = match group.delimiter() {
            Delimiter::Parenthesis => ("(", ")"),
            Delimiter::Brace => ("{", "}"),
            Delimiter::Bracket => ("[", "]"),
            Delimiter::None => return self.flatten(group.stream(), in_test),
        };
        let line = group.span_open().start().line;
        self.tokens.push(Token { text: open.to_string(), line, in_test });
        self.flatten(group.stream(), in_test);
        let line = group.span_close().start().line;
        self.tokens.push(Token { text: close.to_string(), line, in_test });
    }
}

/// Returns the number of token trees of the item at the start of `trees`, from its attributes to
/// its first `;` or block. None if the first attribute does not mark the item as test code.
fn test_item_end(trees: &[TokenTree]) -> Option<usize> {
    if !is_test_attribute(attribute(trees)?) {
        return None;
    }
    let mut index = 0;
    while attribute(&trees[index..]).is_some() {
        index += 2;
    }
    let is_end = |tree: &TokenTree| match tree {
        TokenTree::Punct(punct) => punct.as_char() == ';',
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        _ => false,
    };
    let rest = trees[index..].iter().position(is_end).map(|position| index + position + 1);
    Some(rest.unwrap_or(trees.len()))
}

/// Returns the contents of the attribute `#[...]` at the start of `trees`. None if `trees` does not
/// start with an attribute.
fn attribute(trees: &[TokenTree]) -> Option<&Group> {
    match trees {
        [TokenTree::Punct(hash), TokenTree::Group(group), ..]
            if hash.as_char() == '#' && group.delimiter() == Delimiter::Bracket =>
        {
            Some(group)
        }
        _ => None,
    }
}

fn is_test_attribute(group: &Group) -> bool {
    let text: String = group.stream().to_string().split_whitespace().collect();
    text == "test" || text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

/// Marks a file as test code if another file declares its module with `#[cfg(test)] mod name;`.
/// Also marks the files of its submodules.
pub fn mark_test_modules(sources: &mut [Source]) {
    let modules: Vec<String> = sources.iter().flat_map(test_modules).collect();
    for source in sources {
        let belongs = |module: &String| {
            source
                .path
                .strip_prefix(module.as_str())
                .is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        if modules.iter().any(belongs) {
            source.mark_test();
        }
    }
}

/// Returns the paths, without `.rs`, of the modules that the file declares only for tests.
fn test_modules(source: &Source) -> Vec<String> {
    let stem = source.path.strip_suffix(".rs").unwrap_or(&source.path);
    let is_folder_root = ["/lib", "/main", "/mod"].iter().any(|end| stem.ends_with(end));
    let folder =
        if is_folder_root { stem.rsplit_once('/').map_or("", |(folder, _)| folder) } else { stem };
    let declarations = source
        .tokens
        .windows(3)
        .filter(|tokens| tokens[0].in_test && tokens[0].text == "mod" && tokens[2].text == ";");
    declarations.map(|tokens| format!("{folder}/{}", tokens[1].text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped(text: &str) -> String {
        let source = Source::parse("crates/a/src/lib.rs", text).unwrap();
        let tokens: Vec<&str> = source.shipped_tokens().iter().map(|t| t.text.as_str()).collect();
        tokens.join(" ")
    }

    #[test]
    fn tokens_carry_their_lines_and_paths_have_one_separator() {
        let source = Source::parse("crates/a/src/lib.rs", "//! x\nuse a::b;\nlet c: d;").unwrap();
        let found: Vec<(&str, usize)> =
            source.tokens.iter().map(|token| (token.text.as_str(), token.line)).collect();
        assert!(found.ends_with(&[
            ("use", 2),
            ("a", 2),
            ("::", 2),
            ("b", 2),
            (";", 2),
            ("let", 3),
            ("c", 3),
            (":", 3),
            ("d", 3),
            (";", 3),
        ]));
    }

    #[test]
    fn test_items_are_left_out_and_the_item_after_them_is_not() {
        assert_eq!(shipped("#[cfg(test)] use a::{b, c}; fn d();"), "; fn d ( ) ;");
        assert_eq!(shipped("#[test] #[ignore] fn a() { b } fn c();"), "fn c ( ) ;");
        assert_eq!(shipped("#[cfg(all(test, unix))] mod t { x } y!();"), "y ! ( ) ;");
        assert_eq!(shipped("mod a { #[cfg(test)] mod t {} z }"), "mod a { z }");
    }

    #[test]
    fn code_that_can_ship_under_a_feature_is_not_test_code() {
        assert!(shipped("#[cfg(any(test, feature = \"x\"))] mod a {}").contains("mod a"));
    }

    #[test]
    fn lines_of_tests_do_not_count_as_shipped() {
        let text = "fn a() {\n}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        assert_eq!(Source::parse("crates/a/src/lib.rs", text).unwrap().shipped_lines(), 3);
        assert_eq!(Source::parse("crates/a/tests/main.rs", text).unwrap().shipped_lines(), 0);
    }

    #[test]
    fn a_module_declared_for_tests_is_test_code_in_its_own_file_and_below() {
        let mut sources = vec![
            Source::parse("crates/a/src/lib.rs", "#[cfg(test)]\nmod fixture;\nmod b;").unwrap(),
            Source::parse("crates/a/src/fixture.rs", "fn x() {}").unwrap(),
            Source::parse("crates/a/src/fixture/deep.rs", "fn x() {}").unwrap(),
            Source::parse("crates/a/src/b.rs", "fn x() {}").unwrap(),
        ];
        mark_test_modules(&mut sources);
        let shipped: Vec<bool> = sources.iter().map(|s| !s.shipped_tokens().is_empty()).collect();
        assert_eq!(shipped, [true, false, false, true]);
    }

    #[test]
    fn files_name_their_modules() {
        let module = |path: &str| Source::parse(path, "").unwrap().module_path();
        assert_eq!(module("crates/a/src/lib.rs"), Some(vec![]));
        assert_eq!(module("crates/a/src/b/c.rs"), Some(vec!["b".into(), "c".into()]));
        assert_eq!(module("crates/a/src/b/mod.rs"), Some(vec!["b".into()]));
        assert_eq!(module("crates/a/src/bin/tool.rs"), None);
        assert_eq!(module("crates/a/tests/main.rs"), None);
    }
}
