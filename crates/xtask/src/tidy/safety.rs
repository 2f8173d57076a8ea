//! Checks that only certain crates use `unsafe`, and that each `unsafe` block has a comment that
//! says why the block is sound.
//!
//! The comment must contain `SAFETY:` and be directly above the statement. Reviewers check whether
//! the comment is correct.

use super::finding::Finding;
use super::source::Source;

/// Crates that may use `unsafe`. They make system calls, or use store instructions that bypass the
/// CPU caches.
const UNSAFE_CRATES: [&str; 4] = ["ioengine", "cpucost", "memspeed", "calltrace"];

/// Reports each `unsafe` in a crate that is not one of [`UNSAFE_CRATES`]. Tests are also checked.
pub fn unsafe_outside_its_crates(source: &Source) -> Vec<Finding> {
    if UNSAFE_CRATES.contains(&source.crate_name()) {
        return Vec::new();
    }
    let tokens = source.tokens.iter().filter(|token| token.text == "unsafe");
    let message =
        "`unsafe` is allowed only in the crates ioengine, cpucost, memspeed and calltrace";
    tokens.map(|token| Finding::new(&source.path, token.line, message)).collect()
}

/// Reports each `unsafe` block and `unsafe impl` without a `SAFETY:` comment.
pub fn undocumented_unsafe(source: &Source) -> Vec<Finding> {
    let lines: Vec<&str> = source.text.lines().collect();
    let mut findings = Vec::new();
    for pair in source.tokens.windows(2) {
        let needs_reason = pair[0].text == "unsafe" && matches!(&*pair[1].text, "{" | "impl");
        if needs_reason && !has_reason(&lines[..pair[0].line]) {
            let message = "`unsafe` without a `// SAFETY:` comment above it";
            findings.push(Finding::new(&source.path, pair[0].line, message));
        }
    }
    findings
}

/// Returns whether an `unsafe` in the last of `lines` has a `SAFETY:` comment. The comment may be
/// on the same line or above the statement.
fn has_reason(lines: &[&str]) -> bool {
    let Some((last, above)) = lines.split_last() else { return false };
    if last.contains("SAFETY:") {
        return true;
    }
    for line in above.iter().rev().map(|line| line.trim()) {
        let is_comment = line.starts_with("//");
        if is_comment && line.contains("SAFETY:") {
            return true;
        }
        if !is_comment && !line.starts_with("#[") && ends_before(line) {
            return false;
        }
    }
    false
}

/// Returns whether a new statement starts after this line.
fn ends_before(line: &str) -> bool {
    line.is_empty() || line.ends_with([';', '{', '}', ','])
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [usize; 0] = [];

    fn lines_found(rule: fn(&Source) -> Vec<Finding>, path: &str, text: &str) -> Vec<usize> {
        let source = Source::parse(path, text).unwrap();
        rule(&source).iter().map(Finding::line).collect()
    }

    #[test]
    fn unsafe_is_only_for_the_listed_crates_even_in_tests() {
        let text = "//! no unsafe here\nfn f() {\n    unsafe { g() }\n}\n";
        let rule = unsafe_outside_its_crates;
        assert_eq!(lines_found(rule, "crates/ioengine/src/sys.rs", text), NONE);
        assert_eq!(lines_found(rule, "crates/memspeed/src/arena.rs", text), NONE);
        assert_eq!(lines_found(rule, "crates/report/src/page.rs", text), [3]);
        assert_eq!(lines_found(rule, "crates/halfpower/tests/main.rs", text), [3]);
        assert_eq!(lines_found(rule, "crates/a/src/lib.rs", "#![forbid(unsafe_code)]"), NONE);
    }

    #[test]
    fn a_block_with_its_reason_passes() {
        let good = "fn f() {\n    // SAFETY: x is alive\n    // until the end.\n    \
                    let y =\n        unsafe { g(x) };\n}\n\
                    // SAFETY: no state\n#[cfg(unix)]\nunsafe impl Send for A {}\n";
        assert_eq!(lines_found(undocumented_unsafe, "crates/ioengine/src/sys.rs", good), NONE);
    }

    #[test]
    fn a_block_without_a_reason_of_its_own_fails() {
        let bad =
            "fn f() {\n    // SAFETY: for the first\n    unsafe { g() };\n    unsafe { h() };\n}\n";
        assert_eq!(lines_found(undocumented_unsafe, "crates/ioengine/src/sys.rs", bad), [4]);
        assert_eq!(
            lines_found(undocumented_unsafe, "crates/a/src/b.rs", "unsafe impl A for B {}"),
            [1]
        );
    }
}
