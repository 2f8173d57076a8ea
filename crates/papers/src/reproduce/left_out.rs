//! Lists the published values that are not part of any score, with the reason for each.
//!
//! Each row of a data file is either a scored value of a figure, or excluded by a rule in this
//! module. A test checks that every row is one of the two.

use crate::reproduce::figure::name_of;
use crate::reproduce::published::{self, Paper, Row};

/// Published values of a figure that are not scored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The name of the figure or table in the paper, such as `Table 4`.
    pub figure: String,
    /// The number of values that are not scored.
    pub points: usize,
    /// The kind of the values, such as `advertised rates`.
    pub what: &'static str,
    /// Why the values are not scored.
    pub why: &'static str,
}

/// A rule that excludes rows from the score. It applies to rows whose text in `column` begins with
/// one of `words`, or to all rows if there are no words. `what` describes the content of the rows,
/// and `why` is the reason.
struct Rule {
    column: &'static str,
    words: &'static [&'static str],
    what: &'static str,
    why: &'static str,
}

/// A figure or table, its file, and the rules that exclude rows. The first rule that matches a row
/// applies.
struct Source {
    paper: Paper,
    key: &'static str,
    file: &'static str,
    rules: &'static [Rule],
}

const fn source(
    paper: Paper,
    key: &'static str,
    file: &'static str,
    rules: &'static [Rule],
) -> Source {
    Source { paper, key, file, rules }
}

const fn rule(
    column: &'static str,
    words: &'static [&'static str],
    what: &'static str,
    why: &'static str,
) -> Rule {
    Rule { column, words, what, why }
}

const ADVERTISED: Rule = rule("kind", &["PAP"], "advertised rates", "inputs of the simulator");
const COPIES: &str = "inputs of the simulator, which the paper measured with memory tests";

const SOURCES: &[Source] = &[
    source(Paper::Riedel97, "2", published::FIGURE_2, &[]),
    source(Paper::Riedel97, "3", published::FIGURE_3, &[]),
    source(Paper::Riedel97, "4", published::FIGURE_4, &[]),
    source(Paper::Riedel97, "5", published::FIGURE_5, &[]),
    source(Paper::Riedel97, "6", published::FIGURE_6, &[]),
    source(Paper::Riedel97, "10", published::FIGURE_10, &[]),
    source(
        Paper::Riedel97,
        "11",
        published::FIGURE_11,
        &[ADVERTISED, rule("component", &["memory bus"], "files in memory", "inputs R128, R129")],
    ),
    source(Paper::Riedel97, "13", published::FIGURE_13, &[]),
    source(Paper::Riedel97, "14", published::FIGURE_14, &[]),
    source(
        Paper::Riedel97,
        "t1",
        published::TABLE_1,
        &[rule("", &[], "hardware", "inputs that describe the set-up")],
    ),
    source(
        Paper::Riedel97,
        "t2",
        published::TABLE_2,
        &[rule("", &[], "memory bandwidth", "inputs that do not involve storage")],
    ),
    source(Paper::Riedel97, "t3", published::TABLE_3, &[]),
    source(
        Paper::Riedel97,
        "t4",
        published::TABLE_4,
        &[rule(
            "phase",
            &["Arbitrate Win", "(Re)Select End", "Data In End", "Status"],
            "later parts of a phase",
            "the values of all parts of a phase are added, and only the sum is scored",
        )],
    ),
    source(
        Paper::Chung2000,
        "t6",
        published::CHUNG_6,
        &[
            ADVERTISED,
            rule("component", &["memory bus"], "memory rates", COPIES),
            rule("condition", &["1 MB read"], "Ultra160 SCSI, 1 MB", "same rate as the PCI bus"),
        ],
    ),
    source(
        Paper::Chung2000,
        "t7",
        published::CHUNG_7,
        &[rule("unit", &["clocks/byte"], "clocks per byte", "inputs for simulating PIO reads")],
    ),
    source(Paper::Chung2000, "t9", published::CHUNG_9, &[]),
    source(
        Paper::Chung2000,
        "t10",
        published::CHUNG_10,
        &[rule("metric", &["capacity", "price", "MB per dollar"], "sizes and prices", "inputs")],
    ),
    source(
        Paper::Chung2000,
        "t11",
        published::CHUNG_11,
        &[
            rule(
                "pattern",
                &["network"],
                "UNC and mapped paths",
                "no system file describes such paths",
            ),
            rule("pattern", &["sequential"], "fixed and marginal costs", "inputs C123 to C140"),
        ],
    ),
    source(
        Paper::Chung2000,
        "costs",
        published::COSTS,
        &[rule("", &[], "fixed and marginal CPU costs", "inputs of the simulator")],
    ),
    source(
        Paper::Chung2000,
        "plateaus",
        published::PLATEAUS,
        &[rule(
            "interface",
            &["CIFS local"],
            "UNC and mapped paths",
            "no system file describes such paths",
        )],
    ),
];

impl Source {
    /// Returns, for each row with a value, the rule that excludes the row from the score. None if
    /// the row is scored.
    fn rows(&self) -> impl Iterator<Item = Option<&'static Rule>> {
        let rules = self.rules;
        let fits = |row: &Row, rule: &Rule| {
            let text = row.text(rule.column);
            rule.words.is_empty() || rule.words.iter().any(|word| text.starts_with(word))
        };
        let rows = published::rows(self.file).into_iter().filter(|row| !row.is_empty("value"));
        rows.map(move |row| rules.iter().find(|rule| fits(&row, rule)))
    }
}

/// Returns the published values of a paper that are not scored.
pub fn left_out(paper: Paper) -> Vec<LeftOut> {
    let mut all: Vec<LeftOut> = Vec::new();
    for source in SOURCES.iter().filter(|source| source.paper == paper) {
        for rule in source.rows().flatten() {
            let figure = name_of(source.key);
            let one = LeftOut { figure, points: 1, what: rule.what, why: rule.why };
            let same = |last: &&mut LeftOut| last.figure == one.figure && last.what == one.what;
            match all.last_mut().filter(same) {
                Some(last) => last.points += 1,
                None => all.push(one),
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::figures;

    #[test]
    fn every_published_point_is_scored_or_left_out_with_a_reason() {
        for source in SOURCES {
            let figure = figures(source.paper).into_iter().find(|one| one.key == source.key);
            let figure = figure.unwrap_or_else(|| panic!("{} has no figure", source.key));
            let columns = figure.charts.iter().flat_map(|chart| &chart.columns);
            let cells = columns.flat_map(|column| column.cells.iter().flatten());
            let scored = cells.filter(|cell| cell.published.is_some()).count();
            // Table 6 has one row for each of two disks, with the rates of the innermost and the
            // outermost tracks. The two rates of a row are scored as two values.
            let ranges = if source.key == "t6" { 2 } else { 0 };
            let rows: Vec<_> = source.rows().collect();
            let left_out = rows.iter().flatten().count();
            assert_eq!(scored, rows.len() - left_out + ranges, "{}", source.key);
        }
    }

    #[test]
    fn every_figure_with_published_points_has_its_file_here() {
        for paper in Paper::ALL {
            for figure in figures(paper) {
                let known = |source: &Source| (source.paper, source.key) == (paper, &*figure.key);
                assert!(!figure.has_published() || SOURCES.iter().any(known), "{}", figure.name());
            }
        }
    }

    #[test]
    fn points_are_left_out_by_kind_with_their_number() {
        let all = left_out(Paper::Riedel97);
        let table_4: Vec<_> = all.iter().filter(|one| one.figure == "Table 4").collect();
        assert_eq!(table_4.iter().map(|one| one.points).sum::<usize>(), 16);
        assert!(all.iter().all(|one| !one.why.is_empty()));
    }
}
