//! Filters entries by include and exclude patterns, as in `rsync --include` and `--exclude`.
//!
//! The first rule that matches an entry decides. An entry that matches no rule is copied. An
//! excluded directory is not entered. Patterns match the path of an entry relative to the source:
//!
//! - `*.o` has no slash and matches names at any depth.
//! - `a/b` matches the end of a path at any depth, for example `x/a/b`.
//! - `/build` begins with a slash and must match the whole path.
//! - `build/` ends with a slash and matches only directories.
//! - `*` and `?` do not match a slash, but `**` does.

use std::path::Path;

use glob::{MatchOptions, Pattern};

/// A pattern, and whether matching entries are included or excluded.
#[derive(Clone, Debug)]
pub struct FilterRule {
    includes: bool,
    pattern: Pattern,
    /// The pattern with `**/` in front, which matches at any depth. None if the pattern begins with
    /// a slash or contains no slash.
    anywhere: Option<Pattern>,
    is_path: bool,
    only_directories: bool,
}

/// An ordered list of include and exclude rules.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    rules: Vec<FilterRule>,
}

const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

impl FilterRule {
    /// Parses a pattern.
    ///
    /// # Errors
    /// The reason why the pattern is invalid.
    pub fn new(includes: bool, pattern: &str) -> Result<FilterRule, String> {
        let text = pattern.strip_suffix('/').unwrap_or(pattern);
        let (is_anchored, text) = match text.strip_prefix('/') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if text.is_empty() {
            return Err(format!("the pattern '{pattern}' is empty"));
        }
        let parse = |text: &str| {
            Pattern::new(text)
                .map_err(|error| format!("invalid pattern '{pattern}': {}", error.msg))
        };
        let is_path = is_anchored || text.contains('/');
        let anywhere = (is_path && !is_anchored).then(|| parse(&format!("**/{text}")));
        Ok(FilterRule {
            includes,
            pattern: parse(text)?,
            anywhere: anywhere.transpose()?,
            is_path,
            only_directories: pattern.ends_with('/'),
        })
    }

    fn matches(&self, path: &str, is_directory: bool) -> bool {
        if self.only_directories && !is_directory {
            return false;
        }
        let name = path.rsplit('/').next().unwrap_or(path);
        let held = if self.is_path { path } else { name };
        let holds = |pattern: &Pattern| pattern.matches_with(held, OPTIONS);
        holds(&self.pattern) || self.anywhere.as_ref().is_some_and(holds)
    }
}

impl Filter {
    /// Creates a filter. The first rule that matches an entry decides.
    pub fn new(rules: Vec<FilterRule>) -> Filter {
        Filter { rules }
    }

    /// Returns true if an entry must be copied. `path` is relative to the source.
    pub fn accepts(&self, path: &Path, is_directory: bool) -> bool {
        if self.rules.is_empty() {
            return true;
        }
        let path = path.to_string_lossy();
        let rule = self.rules.iter().find(|rule| rule.matches(&path, is_directory));
        rule.is_none_or(|rule| rule.includes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(rules: &[(bool, &str)], path: &str, is_directory: bool) -> bool {
        let rules = rules.iter().map(|(includes, text)| FilterRule::new(*includes, text).unwrap());
        Filter::new(rules.collect()).accepts(Path::new(path), is_directory)
    }

    #[test]
    fn names_match_at_any_depth_and_paths_from_their_start() {
        let excluded = |pattern: &str, path: &str| !accepts(&[(false, pattern)], path, false);
        assert!(excluded("*.o", "main.o") && excluded("*.o", "src/deep/main.o"));
        assert!(!excluded("*.o", "main.c") && !excluded("*.o", "x.o/main.c"));
        assert!(excluded("/build", "build") && !excluded("/build", "src/build"));
        assert!(excluded("a/b", "a/b") && excluded("a/b", "x/a/b") && !excluded("a/b", "a/x/b"));
        assert!(excluded("a/**", "a/x/y") && !excluded("a/*", "a/x/y"));
        assert!(excluded("[ab]?", "a1") && !excluded("[ab]?", "c1"));
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let rules = [(true, "keep.o"), (false, "*.o")];
        assert!(accepts(&rules, "keep.o", false) && !accepts(&rules, "other.o", false));
        assert!(accepts(&[], "anything", false));
    }

    #[test]
    fn a_slash_at_the_end_matches_directories_only() {
        let rules = [(false, "cache/")];
        assert!(!accepts(&rules, "a/cache", true) && accepts(&rules, "a/cache", false));
    }

    #[test]
    fn an_invalid_pattern_is_an_error() {
        assert!(FilterRule::new(true, "/").unwrap_err().contains("empty"));
        assert!(FilterRule::new(true, "[a").unwrap_err().contains("'[a'"));
        assert!(FilterRule::new(true, "a***").is_err());
    }
}
