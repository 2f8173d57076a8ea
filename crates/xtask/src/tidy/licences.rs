//! Checks the licence of every dependency against a list of permissive licences.
//!
//! `cargo metadata` returns licences as SPDX expressions. An exception (`WITH ...`) only grants
//! additional permissions, so a licence with an exception is accepted like the licence itself.
//! Licence files are not read.

use super::finding::Finding;
use anyhow::{Context, Result};
use serde_json::Value;
use spdx::{Expression, LicenseReq, ParseMode};

const ALLOWED: [&str; 12] = [
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Reports the packages whose licence is missing or not accepted. Each finding has the package's
/// line in `lock`, which is the text of Cargo.lock. `metadata` is the output of `cargo metadata`.
/// Returns an error if `metadata` does not have the expected form.
pub fn check(metadata: &Value, lock: &str) -> Result<Vec<Finding>> {
    let packages = metadata["packages"].as_array().context("`cargo metadata` lists no packages")?;
    let mut findings = Vec::new();
    for package in packages {
        let name = package["name"].as_str().context("a package has no name")?;
        let licence = package["license"].as_str();
        if !licence.is_some_and(is_allowed) {
            let licence = licence.unwrap_or("none");
            let message =
                format!("licence of `{name}` is not in the list ALLOWED of xtask: {licence}");
            findings.push(Finding::new("Cargo.lock", line_of(lock, name), message));
        }
    }
    Ok(findings)
}

fn is_allowed(licence: &str) -> bool {
    let is_listed = |requirement: &LicenseReq| {
        requirement.license.id().is_some_and(|id| ALLOWED.contains(&id.name))
    };
    Expression::parse_mode(licence, ParseMode::LAX).is_ok_and(|parsed| parsed.evaluate(is_listed))
}

fn line_of(lock: &str, name: &str) -> usize {
    let wanted = format!("name = \"{name}\"");
    lock.lines().position(|line| line == wanted).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn permissive_licences_pass_in_every_spelling() {
        for licence in [
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
            "GPL-3.0-only OR MIT",
        ] {
            assert!(is_allowed(licence), "{licence}");
        }
    }

    #[test]
    fn copyleft_unknown_and_missing_licences_fail() {
        for licence in ["GPL-3.0-only", "MIT AND AGPL-3.0-only", "Proprietary", ""] {
            assert!(!is_allowed(licence), "{licence}");
        }
        let metadata = json!({"packages": [
            {"name": "good", "license": "MIT"}, {"name": "bad", "license": null}
        ]});
        let lock = "[[package]]\nname = \"good\"\n\n[[package]]\nname = \"bad\"\n";
        let findings = check(&metadata, lock).unwrap();
        let messages: Vec<String> = findings.iter().map(Finding::to_string).collect();
        assert_eq!(
            messages,
            ["Cargo.lock:5: licence of `bad` is not in the list ALLOWED of xtask: none"]
        );
    }
}
