//! Reports token sequences that Rust files must not contain, or that only certain crates may
//! contain: panics, printing, SQL, clocks, and I/O in pure crates.
//!
//! These rules do not apply to tests. In tests, clippy forbids `Instant::now` and other clock calls
//! (`disallowed-methods` in `clippy.toml`).

use super::finding::Finding;
use super::paths::paths;
use super::source::{Source, Token};

/// A sequence of tokens that only certain crates may contain.
struct Forbidden {
    tokens: &'static [&'static str],
    /// Names of the crates that may contain the sequence.
    allowed_in: &'static [&'static str],
    /// Message that says what to do instead.
    remedy: &'static str,
}

/// Crates that may print to the terminal.
const PRINTERS: &[&str] = &["halfpower", "xtask"];
const PRINT_REMEDY: &str = "print through `lab::console`, or return the text";
const FINISH_REMEDY: &str = "unfinished code: finish the code or file an issue";

const FORBIDDEN: [Forbidden; 9] = [
    Forbidden {
        tokens: &[".", "unwrap", "(", ")"],
        allowed_in: &[],
        remedy: "no `.unwrap()` outside tests: use `expect` with the reason why it cannot fail",
    },
    Forbidden { tokens: &["println", "!"], allowed_in: PRINTERS, remedy: PRINT_REMEDY },
    Forbidden { tokens: &["print", "!"], allowed_in: PRINTERS, remedy: PRINT_REMEDY },
    Forbidden { tokens: &["eprintln", "!"], allowed_in: PRINTERS, remedy: PRINT_REMEDY },
    Forbidden { tokens: &["eprint", "!"], allowed_in: PRINTERS, remedy: PRINT_REMEDY },
    Forbidden { tokens: &["todo", "!"], allowed_in: &[], remedy: FINISH_REMEDY },
    Forbidden { tokens: &["unimplemented", "!"], allowed_in: &[], remedy: FINISH_REMEDY },
    Forbidden {
        tokens: &["rusqlite"],
        allowed_in: &["results"],
        remedy: "only the crate `results` may use SQL",
    },
    Forbidden {
        tokens: &["clap", "::"],
        allowed_in: &["halfpower", "xtask"],
        remedy: "only `halfpower` and `xtask` may use clap: use typed parameters instead",
    },
];

/// Reports the token sequences in [`FORBIDDEN`].
pub fn forbidden_words(source: &Source) -> Vec<Finding> {
    let tokens = source.shipped_tokens();
    let mut findings = Vec::new();
    for rule in &FORBIDDEN {
        // A build script passes instructions to cargo by printing them.
        let is_to_cargo = rule.remedy == PRINT_REMEDY && source.path.ends_with("/build.rs");
        if !is_to_cargo && !rule.allowed_in.contains(&source.crate_name()) {
            let lines = places(&tokens, rule.tokens);
            findings.extend(lines.map(|line| Finding::new(&source.path, line, rule.remedy)));
        }
    }
    findings
}

/// Returns the lines on which a sequence of tokens starts.
pub fn places<'a>(
    tokens: &'a [&'a Token],
    sequence: &'a [&'a str],
) -> impl Iterator<Item = usize> + 'a {
    let windows = tokens.windows(sequence.len());
    let hits = windows.filter(move |window| window.iter().zip(sequence).all(|(a, b)| a.text == *b));
    hits.map(|window| window[0].line)
}

/// Files that may read the clock of the operating system. `cargo xtask bench` has its own clock,
/// because a benchmark must be independent of the code under test.
const FILES_WITH_CLOCKS: [&str; 3] = [
    "crates/ioengine/src/clock.rs",
    "crates/ioengine/src/sys.rs",
    "crates/xtask/src/bench/clock.rs",
];
/// Names of the CPU-time clocks, which the crate `cpucost` may read.
const CPU_CLOCKS: [&str; 2] = ["CLOCK_PROCESS_CPUTIME_ID", "CLOCK_THREAD_CPUTIME_ID"];

/// Reports calls that read the clock of the operating system.
pub fn operating_system_clocks(source: &Source) -> Vec<Finding> {
    if FILES_WITH_CLOCKS.contains(&source.path.as_str()) {
        return Vec::new();
    }
    let tokens = source.shipped_tokens();
    let in_cpucost = source.crate_name() == "cpucost";
    let mut lines: Vec<usize> = Vec::new();
    for sequence in [["Instant", "::", "now"], ["SystemTime", "::", "now"]] {
        lines.extend(places(&tokens, &sequence));
    }
    for token in tokens {
        let is_cpu_clock = token.text == "clock_gettime" || CPU_CLOCKS.contains(&&*token.text);
        let is_clock = token.text.starts_with("CLOCK_") || token.text == "clock_gettime";
        if is_clock && !(in_cpucost && is_cpu_clock) {
            lines.push(token.line);
        }
    }
    let message =
        "read the time from `ioengine::clock`, so that the simulator can replace the clock";
    lines.into_iter().map(|line| Finding::new(&source.path, line, message)).collect()
}

/// Crates that must not do I/O.
const PURE_CRATES: [&str; 2] = ["analysis", "report"];
/// Modules of `std` with side effects.
const IMPURE_MODULES: [&str; 7] = ["env", "fs", "net", "os", "process", "thread", "time"];

/// Reports uses of `std` modules with side effects, such as `std::fs`, in crates that must not do
/// I/O.
pub fn impure_imports(source: &Source) -> Vec<Finding> {
    if !PURE_CRATES.contains(&source.crate_name()) {
        return Vec::new();
    }
    let used = paths(&source.shipped_tokens(), &["std"]);
    let impure = used.iter().filter(|path| IMPURE_MODULES.contains(&&*path.segments[1]));
    let message =
        |name: &str| format!("`std::{name}` in a crate without I/O: take the data as a parameter");
    impure.map(|path| Finding::new(&source.path, path.line, message(&path.segments[1]))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [usize; 0] = [];

    fn lines_found(rule: fn(&Source) -> Vec<Finding>, path: &str, text: &str) -> Vec<usize> {
        let source = Source::parse(path, text).unwrap();
        rule(&source).iter().map(Finding::line).collect()
    }

    const LIBRARY: &str = "crates/workload/src/plan.rs";

    #[test]
    fn unwrap_fails_outside_tests_only() {
        let text = "fn f() { x.unwrap() }\nfn g() { x.unwrap_or(1) }\n// x.unwrap()\n\
                    #[test]\nfn t() { x.unwrap() }\n";
        assert_eq!(lines_found(forbidden_words, LIBRARY, text), [1]);
        assert_eq!(lines_found(forbidden_words, "crates/a/tests/main.rs", text), NONE);
    }

    #[test]
    fn only_the_program_prints() {
        let text =
            "fn f() { println!(\"x\"); }\nfn g() { eprintln!(\"x\"); }\nfn h() { writeln!(x) }";
        assert_eq!(lines_found(forbidden_words, LIBRARY, text), [1, 2]);
        assert_eq!(lines_found(forbidden_words, "crates/halfpower/src/main.rs", text), NONE);
    }

    #[test]
    fn only_the_store_knows_sql() {
        let text = "use rusqlite::Connection;";
        assert_eq!(lines_found(forbidden_words, LIBRARY, text), [1]);
        assert_eq!(lines_found(forbidden_words, "crates/results/src/store.rs", text), NONE);
    }

    #[test]
    fn unfinished_code_fails() {
        assert_eq!(lines_found(forbidden_words, LIBRARY, "fn f() {\n todo!() }"), [2]);
        assert_eq!(lines_found(forbidden_words, LIBRARY, "fn todo() {}"), NONE);
    }

    #[test]
    fn the_clock_is_read_in_one_place() {
        let text = "fn f() { std::time::Instant::now() }\nconst C: i32 = libc::CLOCK_MONOTONIC;\n\
                    fn g(since: Instant) {}\n";
        assert_eq!(lines_found(operating_system_clocks, LIBRARY, text), [1, 2]);
        assert_eq!(lines_found(operating_system_clocks, FILES_WITH_CLOCKS[0], text), NONE);
    }

    #[test]
    fn cpu_time_is_for_the_crate_that_measures_it() {
        let text = "fn f() { clock_gettime(CLOCK_THREAD_CPUTIME_ID) }\nfn g() { CLOCK_REALTIME }";
        assert_eq!(lines_found(operating_system_clocks, "crates/cpucost/src/a.rs", text), [2]);
        assert_eq!(lines_found(operating_system_clocks, LIBRARY, text), [1, 1, 2]);
    }

    #[test]
    fn pure_crates_have_no_side_effects() {
        let text =
            "use std::{fmt, fs::File};\nfn f() { std::env::var(\"x\") }\nuse std::io::Write;";
        assert_eq!(lines_found(impure_imports, "crates/report/src/page.rs", text), [1, 2]);
        assert_eq!(lines_found(impure_imports, LIBRARY, text), NONE);
    }
}
