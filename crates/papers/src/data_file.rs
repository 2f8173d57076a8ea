//! A file of published data: comma-separated lines, the first with the names of the columns.
//!
//! The files are compiled into the program, so a row borrows the names of its columns.

use std::collections::BTreeMap;

/// A row of a file, by column name.
#[derive(Clone, Debug)]
pub struct Row(BTreeMap<&'static str, String>);

impl Row {
    /// The text in a column; empty if the column is missing.
    pub fn text(&self, column: &str) -> &str {
        self.0.get(column).map_or("", String::as_str)
    }

    /// Whether the file has this column and the row's cell is empty.
    pub fn is_empty(&self, column: &str) -> bool {
        self.0.get(column).is_some_and(String::is_empty)
    }

    /// The number in a column.
    pub fn number(&self, column: &str) -> Option<f64> {
        self.text(column).parse().ok()
    }
}

/// All rows of a file.
pub fn rows(file: &'static str) -> Vec<Row> {
    let mut lines = file.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let row = |line| Row(names.iter().copied().zip(cells(line)).collect());
    lines.filter(|line| !line.is_empty()).map(row).collect()
}

/// All cells of a file, with the names of its columns first.
pub fn cells_of(file: &'static str) -> Vec<Vec<String>> {
    file.lines().filter(|line| !line.is_empty()).map(cells).collect()
}

/// The cells of a CSV line. Commas between quotes belong to the cell; two quotes between quotes are
/// one quote.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut quoted) = (vec![String::new()], false);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        let cell = cells.len() - 1;
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                cells[cell].push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            other => cells[cell].push(other),
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_may_hold_commas_and_quotes() {
        assert_eq!(cells(r#"a,"b, c",,"say ""x""""#), ["a", "b, c", "", "say \"x\""]);
    }
}
