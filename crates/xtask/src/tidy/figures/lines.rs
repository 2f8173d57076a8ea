//! Counts the lines of each crate, including blank lines and comments. Also calculates the share of
//! comment lines inside functions.

use super::super::layout;
use super::super::source::Source;
use super::row::{Goal, Row, aligned};
use super::texts;
use std::collections::{BTreeMap, BTreeSet};

/// Name of the crate that contains the program.
const PROGRAM: &str = "halfpower";
/// Goal: maximum number of source lines of the crate that contains the program.
const PROGRAM_LINES: usize = 8_000;
/// Goal: maximum share of all source lines that one crate may contain (%).
const LARGEST_SHARE_PERCENT: usize = 15;

/// Numbers of lines of one crate, or of all crates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// Number of lines in `src`, with unit tests.
    source: usize,
    /// Number of lines of unit tests in `src`.
    unit_tests: usize,
    /// Number of lines outside `src`: in `tests`, `benches` and `examples`.
    tests: usize,
}

impl Lines {
    fn add(&mut self, source: &Source) {
        let lines = source.text.lines().count();
        if source.path.contains("/src/") {
            self.source += lines;
            self.unit_tests += lines - source.shipped_lines();
        } else {
            self.tests += lines;
        }
    }
}

/// Counts the lines of each crate. Also returns rows for the table of figures.
pub fn count(sources: &[Source]) -> (BTreeMap<&str, Lines>, Vec<Row>) {
    let mut crates: BTreeMap<&str, Lines> = BTreeMap::new();
    let mut all = Lines::default();
    for source in sources {
        all.add(source);
        crates.entry(source.crate_name()).or_default().add(source);
    }
    let large: Vec<&str> =
        crates.iter().filter(|(_, lines)| is_large(**lines, all)).map(|(name, _)| *name).collect();
    let program = crates.get(PROGRAM).copied().unwrap_or_default();
    let rows = vec![
        Row::count("source lines (crates/*/src)", all.source, Goal::None),
        Row::count("  including unit tests", all.unit_tests, Goal::None),
        Row::count("lines of tests, benches and examples", all.tests, Goal::None),
        Row::count(
            format!("crates with more than {LARGEST_SHARE_PERCENT}% of the source lines"),
            large.len(),
            Goal::Exactly(0),
        )
        .at(large.join(", ")),
        Row::count(
            format!("source lines of the program ({PROGRAM})"),
            program.source,
            Goal::AtMost(PROGRAM_LINES),
        )
        .at(format!("{} without unit tests", program.source - program.unit_tests)),
    ];
    (crates, rows)
}

fn is_large(lines: Lines, all: Lines) -> bool {
    lines.source * 100 > all.source * LARGEST_SHARE_PERCENT
}

/// Formats a table of the crates, largest first.
pub fn table(crates: &BTreeMap<&str, Lines>) -> String {
    let source = crates.values().map(|lines| lines.source).sum();
    let all = Lines { source, ..Lines::default() };
    let mut crates = Vec::from_iter(crates);
    crates.sort_by_key(|(_, lines)| std::cmp::Reverse(lines.source));
    let rows: Vec<[String; 6]> = crates
        .into_iter()
        .map(|(name, lines)| {
            let mark = if is_large(*lines, all) {
                format!("above {LARGEST_SHARE_PERCENT}%")
            } else {
                String::new()
            };
            [
                (*name).to_string(),
                lines.source.to_string(),
                lines.unit_tests.to_string(),
                lines.tests.to_string(),
                percent(lines.source, source),
                mark,
            ]
        })
        .collect();
    let mut cells = vec![["crate", "src", "unit tests in src", "tests, examples", "share", ""]];
    cells.extend(rows.iter().map(|row| row.each_ref().map(String::as_str)));
    aligned(&cells, &[1, 2, 3, 4])
}

/// Returns a row with the share of comment lines inside functions. Blank lines and tests are not
/// counted.
pub fn comments(sources: &[Source]) -> Row {
    let (mut comments, mut lines) = (0, 0);
    for source in sources {
        let inside = lines_in_functions(source);
        lines += inside.len();
        comments += inside.intersection(&texts::comment_lines(source)).count();
    }
    Row::figure("comment lines inside functions", percent(comments, lines))
        .at(format!("{comments} of {lines} lines"))
}

/// Returns the line numbers of all non-blank lines in function bodies, outside tests.
fn lines_in_functions(source: &Source) -> BTreeSet<usize> {
    let bodies = layout::bodies(source);
    let mut inside: BTreeSet<usize> =
        bodies.into_iter().flat_map(|body| body.start() + 1..*body.end()).collect();
    for (index, line) in source.text.lines().enumerate() {
        if line.trim().is_empty() {
            inside.remove(&(index + 1));
        }
    }
    inside
}

fn percent(part: usize, whole: usize) -> String {
    format!("{:.1}%", 100.0 * part as f64 / whole.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(path: &str, text: &str) -> Source {
        Source::parse(path, text).unwrap()
    }

    #[test]
    fn lines_are_counted_by_crate_and_tests_apart() {
        let sources = [
            parse("crates/a/src/lib.rs", "fn f() {}\n\n#[test]\nfn t() {}\n"),
            parse("crates/a/tests/t.rs", "fn t() {}\n"),
            parse("crates/b/src/lib.rs", "fn f() {}\n"),
        ];
        let (crates, _) = count(&sources);
        assert_eq!(crates["a"], Lines { source: 4, unit_tests: 2, tests: 1 });
        assert_eq!(crates["b"], Lines { source: 1, unit_tests: 0, tests: 0 });
    }

    #[test]
    fn a_crate_above_its_share_is_marked_and_one_at_it_is_not() {
        let lines = |count: usize| "// x\n".repeat(count);
        let sources = [
            parse("crates/a/src/lib.rs", &lines(15)),
            parse("crates/b/src/lib.rs", &lines(16)),
            parse("crates/halfpower/src/lib.rs", &lines(69)),
        ];
        let (crates, rows) = count(&sources);
        let row = rows.iter().find(|row| row.name().starts_with("crates with more than")).unwrap();
        assert_eq!((row.value(), row.is_met()), ("2", Some(false)));
        let marks: Vec<bool> = table(&crates).lines().map(|line| line.ends_with("15%")).collect();
        assert_eq!(marks, [false, true, true, false]);
        assert!(table(&crates).contains(" 15.0%\n"), "{}", table(&crates));
    }

    #[test]
    fn the_share_of_comments_is_that_inside_functions() {
        let text = "// outside\nfn f() {\n    // inside\n\n    g(); // behind\n    h();\n}\n\
                    #[test]\nfn t() {\n    // test\n}\n";
        let row = comments(&[parse("crates/a/src/lib.rs", text)]);
        assert_eq!(row.value(), "33.3%");
    }
}
