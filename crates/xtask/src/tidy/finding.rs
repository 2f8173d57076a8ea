//! A finding: the violation of a rule at a line of a file. Findings are printed like compiler
//! messages, as `file:line: message`.

use std::fmt;

/// A violation of a rule. Findings are ordered by file and line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl Finding {
    /// Returns a finding at a line of a file. The path is relative to the root of the checkout.
    /// Lines are counted from 1.
    pub fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_string(), line, message: message.into() }
    }

    /// Returns the line to which the finding refers.
    #[cfg(test)]
    pub fn line(&self) -> usize {
        self.line
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.path, self.line, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_reads_like_a_compiler_message() {
        let finding = Finding::new("crates/a/src/lib.rs", 7, "too long");
        assert_eq!(finding.to_string(), "crates/a/src/lib.rs:7: too long");
        assert_eq!(finding.line(), 7);
    }
}
