//! Aligned tables.

use std::fmt;

/// On which side the cells of a column line up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Rows under a header line; prints with each column as wide as its widest cell.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

const GAP: &str = "  ";

impl Table {
    /// A table without rows.
    pub fn new<S: Into<String>>(columns: impl IntoIterator<Item = (S, Align)>) -> Self {
        Self {
            columns: columns.into_iter().map(|(name, align)| (name.into(), align)).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; it has one cell for each column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let row: Vec<String> = cells.into_iter().collect();
        debug_assert_eq!(row.len(), self.columns.len(), "one cell for each column");
        self.rows.push(row);
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| &row[column]).chain([&self.columns[column].0]);
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    }

    fn line<'a>(&self, cells: impl Iterator<Item = &'a String>, widths: &[usize]) -> String {
        let mut line = String::new();
        for ((cell, &width), (_, align)) in cells.zip(widths).zip(&self.columns) {
            line.push_str(GAP);
            match align {
                Align::Left => line.push_str(&format!("{cell:<width$}")),
                Align::Right => line.push_str(&format!("{cell:>width$}")),
            }
        }
        line.trim_end().to_owned()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.columns.len()).map(|column| self.width(column)).collect();
        write!(f, "{}", self.line(self.columns.iter().map(|(name, _)| name), &widths))?;
        for row in &self.rows {
            write!(f, "\n{}", self.line(row.iter(), &widths))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_have_no_tail() {
        let mut table = Table::new([("kernel", Align::Left), ("ms", Align::Right), ("why", Align::Left)]);
        table.row(["conv1 Forward", "12.5", ""].map(str::to_owned));
        table.row(["µ", "3", "fast"].map(str::to_owned));
        let expected = "  kernel           ms  why\n  conv1 Forward  12.5\n  µ                 3  fast";
        assert_eq!(table.to_string(), expected);
    }
}
