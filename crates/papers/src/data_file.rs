//! Parses files of published data. The files are in CSV format, and their first line has the names
//! of the columns.

use std::collections::BTreeMap;

/// A row of a file: the text of each cell, by column name.
#[derive(Clone, Debug)]
pub struct Row(BTreeMap<&'static str, String>);

impl Row {
    /// Returns the text in a column. The text is empty if the file has no such column.
    pub fn text(&self, column: &str) -> &str {
        self.0.get(column).map_or("", String::as_str)
    }

    /// Checks whether the row's cell in a column is empty. False if the file has no such column.
    pub fn is_empty(&self, column: &str) -> bool {
        self.0.get(column).is_some_and(String::is_empty)
    }

    /// Returns the number in a column. None if the cell contains no number.
    pub fn number(&self, column: &str) -> Option<f64> {
        self.text(column).parse().ok()
    }
}

/// Parses the text of a file and returns its rows.
pub fn rows(file: &'static str) -> Vec<Row> {
    let mut lines = file.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let row = |line| Row(names.iter().copied().zip(cells(line)).collect());
    lines.filter(|line| !line.is_empty()).map(row).collect()
}

/// Parses the text of a file and returns the cells of each line. The first line has the names of
/// the columns.
pub fn cells_of(file: &'static str) -> Vec<Vec<String>> {
    file.lines().filter(|line| !line.is_empty()).map(cells).collect()
}

/// Parses the cells of a CSV line. In a quoted cell, a comma is part of the text, and `""` is an
/// escaped quote.
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
