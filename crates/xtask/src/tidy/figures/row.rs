//! Formats the table of figures as plain text. Each row has a figure and its goal. The function
//! [`aligned`] also formats other tables.

use super::super::source::Source;
use std::collections::BTreeMap;

/// Maximum number of places (`path:line`) that a row lists. If there are more, the row shows the
/// number of places in each crate instead.
const NAMED_PLACES: usize = 3;
/// Maximum number of crates that a row lists. The crates with the most places are listed.
const NAMED_CRATES: usize = 4;

/// The goal of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The figure has no goal.
    None,
    /// The figure must equal this number.
    Exactly(usize),
    /// The figure must be this number or less.
    AtMost(usize),
    /// The figure must be less than this number.
    Below(usize),
}

impl Goal {
    /// Returns whether a count meets the goal. None if there is no goal.
    fn is_met(self, count: usize) -> Option<bool> {
        match self {
            Self::None => None,
            Self::Exactly(number) => Some(count == number),
            Self::AtMost(limit) => Some(count <= limit),
            Self::Below(limit) => Some(count < limit),
        }
    }

    fn text(self) -> String {
        match self {
            Self::None => String::new(),
            Self::Exactly(number) => number.to_string(),
            Self::AtMost(limit) => format!("<= {limit}"),
            Self::Below(limit) => format!("< {limit}"),
        }
    }
}

/// A row of the table.
pub struct Row {
    name: String,
    value: String,
    goal: String,
    is_met: Option<bool>,
    places: String,
}

impl Row {
    /// Returns a row for a count.
    pub fn count(name: impl Into<String>, count: usize, goal: Goal) -> Self {
        Self {
            name: name.into(),
            value: count.to_string(),
            goal: goal.text(),
            is_met: goal.is_met(count),
            places: String::new(),
        }
    }

    /// Returns a row for a figure that is not a count and has no goal.
    pub fn figure(name: &str, value: String) -> Self {
        Self { value, ..Self::count(name, 0, Goal::None) }
    }

    /// Returns a row with the number of lines that `find` returns for all files. The row also lists
    /// these lines. If there are many, it shows their number in each crate instead.
    pub fn places(
        name: impl Into<String>,
        sources: &[&Source],
        find: impl Fn(&Source) -> Vec<usize>,
        goal: Goal,
    ) -> Self {
        let mut places = Vec::new();
        let mut crates: BTreeMap<&str, usize> = BTreeMap::new();
        for source in sources {
            for line in find(source) {
                let path = source.path.strip_prefix("crates/").unwrap_or(&source.path);
                places.push(format!("{path}:{line}"));
                *crates.entry(source.crate_name()).or_default() += 1;
            }
        }
        let row = Self::count(name, places.len(), goal);
        if places.len() <= NAMED_PLACES {
            return row.at(places.join(", "));
        }
        let mut crates = Vec::from_iter(crates);
        crates.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let mut names: Vec<String> =
            crates.iter().map(|(name, count)| format!("{name} {count}")).collect();
        if names.len() > NAMED_CRATES {
            names.truncate(NAMED_CRATES);
            names.push("...".to_string());
        }
        row.at(names.join(", "))
    }

    /// Returns the row with this text in the column `where`.
    pub fn at(self, places: String) -> Self {
        Self { places, ..self }
    }

    fn mark(&self) -> &'static str {
        match self.is_met {
            None => "",
            Some(true) => "met",
            Some(false) => "NOT MET",
        }
    }

    /// Returns the name of the figure.
    #[cfg(test)]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the figure as it is printed.
    #[cfg(test)]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Returns whether the goal is met. None if there is no goal.
    #[cfg(test)]
    pub fn is_met(&self) -> Option<bool> {
        self.is_met
    }
}

/// Formats the rows as a table with a header and aligned columns.
pub fn table(rows: &[Row]) -> String {
    let mut cells = vec![["counter", "value", "goal", "", "where"]];
    cells.extend(
        rows.iter().map(|row| [&*row.name, &row.value, &row.goal, row.mark(), &row.places]),
    );
    aligned(&cells, &[1])
}

/// Formats cells as columns with two spaces between them. The columns with an index in `right` are
/// right-aligned.
pub fn aligned<const COLUMNS: usize>(cells: &[[&str; COLUMNS]], right: &[usize]) -> String {
    let width = |column: usize| {
        cells.iter().map(|line| line[column].chars().count()).max().unwrap_or_default()
    };
    let mut text = String::new();
    for line in cells {
        let padded: Vec<String> = line
            .iter()
            .enumerate()
            .map(|(column, cell)| {
                let width = width(column);
                if right.contains(&column) {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                }
            })
            .collect();
        text += padded.join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str) -> Source {
        Source::parse(path, "").unwrap()
    }

    #[test]
    fn a_goal_is_met_up_to_its_limit() {
        assert_eq!(Goal::None.is_met(5), None);
        assert_eq!(Goal::Below(22).is_met(21), Some(true));
        assert_eq!(Goal::Below(22).is_met(22), Some(false));
        assert_eq!(Goal::AtMost(8000).is_met(8000), Some(true));
        assert_eq!(Goal::AtMost(8000).is_met(8001), Some(false));
        assert_eq!(Goal::Exactly(1).is_met(0), Some(false));
    }

    #[test]
    fn few_places_are_named_and_many_are_counted_by_crate() {
        let sources = [source("crates/a/src/x.rs"), source("crates/b/src/y.rs")];
        let sources: Vec<&Source> = sources.iter().collect();
        let few = Row::places("n", &sources, |_| vec![7], Goal::Exactly(2));
        assert_eq!((few.places.as_str(), few.mark()), ("a/src/x.rs:7, b/src/y.rs:7", "met"));
        let lines = |source: &Source| vec![1; if source.crate_name() == "a" { 2 } else { 3 }];
        let many = Row::places("n", &sources, lines, Goal::Exactly(0));
        assert_eq!((many.places.as_str(), many.mark()), ("b 3, a 2", "NOT MET"));
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows =
            [Row::count("long name", 7, Goal::Below(9)), Row::figure("short", "12%".to_string())];
        assert_eq!(
            table(&rows),
            "counter    value  goal       where\n\
             long name      7  < 9   met\n\
             short        12%\n"
        );
    }
}
