//! Aligned tables.

use serde::Serialize;
use std::fmt;

/// Rows under a header line; prints with each column as wide as its widest cell.
///
/// ```
/// let mut table = figures::Table::new(["kernel", ">ms"]);
/// table.row(["conv1 Forward", "12.5"]);
/// assert_eq!(table.to_string(), "  kernel           ms\n  conv1 Forward  12.5");
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// The columns' names. As in format strings, `>` before a name puts the cells to the right.
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

const GAP: &str = "  ";

impl Table {
    /// A table without rows; `>` before a column's name puts its cells to the right, where numbers belong.
    pub fn new<S: Into<String>>(columns: impl IntoIterator<Item = S>) -> Self {
        Self { columns: columns.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row; it has one cell for each column.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let row: Vec<String> = cells.into_iter().map(Into::into).collect();
        debug_assert_eq!(row.len(), self.columns.len(), "one cell for each column");
        self.rows.push(row);
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].as_str()).chain([name(&self.columns[column])]);
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    }

    fn line<'a>(&self, cells: impl Iterator<Item = &'a str>, widths: &[usize]) -> String {
        let mut line = String::new();
        for ((cell, &width), column) in cells.zip(widths).zip(&self.columns) {
            let is_right = column.starts_with('>');
            line += GAP;
            line += &if is_right { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
        }
        line.trim_end().to_owned()
    }
}

/// The name of a column without its alignment.
fn name(column: &str) -> &str {
    column.trim_start_matches('>')
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.columns.len()).map(|column| self.width(column)).collect();
        write!(f, "{}", self.line(self.columns.iter().map(|column| name(column)), &widths))?;
        let mut rows = self.rows.iter().map(|row| self.line(row.iter().map(String::as_str), &widths));
        rows.try_for_each(|line| write!(f, "\n{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_have_no_tail() {
        let mut table = Table::new(["kernel", ">ms", "why"]);
        table.row(["conv1 Forward", "12.5", ""]);
        table.row(["µ", "3", "fast"]);
        let expected = "  kernel           ms  why\n  conv1 Forward  12.5\n  µ                 3  fast";
        assert_eq!(table.to_string(), expected);
    }
}
