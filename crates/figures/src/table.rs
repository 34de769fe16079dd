//! Rows of numbers and words: as text in aligned columns, as CSV and JSON.

use serde::Serialize;
use serde_json::{Value, json};
use std::{fmt, iter};

/// Rows under a header line; prints with each column as wide as its widest cell.
///
/// ```
/// let mut table = figures::Table::new(["kernel", ">ms"]);
/// table.row(["conv1 Forward", "12.5"]);
/// assert_eq!(table.to_string(), "  kernel           ms\n  conv1 Forward  12.5");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Table {
    /// The columns' names, with units. As in format strings, `>` before a name puts the cells to the right, where numbers
    /// belong in a text.
    pub columns: Vec<String>,
    /// One cell for each column.
    pub rows: Vec<Vec<Value>>,
}

impl Table {
    /// A table without rows.
    pub fn new<S: Into<String>>(columns: impl IntoIterator<Item = S>) -> Self {
        Self { columns: columns.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row; it has one cell for each column.
    pub fn row<V: Into<Value>>(&mut self, cells: impl IntoIterator<Item = V>) {
        // Six digits: more are not known of any time. A sum of nothing is -0.
        let rounded = |cell: Value| match cell.as_f64().filter(|_| cell.is_f64()) {
            Some(number) => json!(crate::six_digits(number + 0.0).parse().unwrap_or(number)),
            None => cell,
        };
        let row: Vec<Value> = cells.into_iter().map(Into::into).map(rounded).collect();
        debug_assert_eq!(row.len(), self.columns.len(), "one cell for each column");
        self.rows.push(row);
    }

    /// The rows as text, without quotes.
    pub fn texts(&self) -> impl Iterator<Item = Vec<String>> {
        let text = |cell: &Value| match (cell, cell.as_f64()) {
            (Value::String(text), _) => text.clone(),
            (Value::Null, _) => String::new(),
            // Without a fraction where there is none.
            (_, Some(number)) => number.to_string(),
            _ => cell.to_string(),
        };
        self.rows.iter().map(move |row| row.iter().map(text).collect())
    }
}

/// Adds a row of anything that serialises to a [`Table`].
macro_rules! row {
    ($table:expr; $($cell:expr),+ $(,)?) => { $table.row([$(serde_json::json!($cell)),+]) };
}
pub(crate) use row;

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.columns.iter().map(|column| column.trim_start_matches('>').to_owned()).collect();
        let lines: Vec<Vec<String>> = iter::once(names).chain(self.texts()).collect();
        let widest = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
        let widths: Vec<usize> = (0..self.columns.len()).filter_map(widest).collect();
        let padded = |((cell, &width), column): ((&String, &usize), &String)| match column.starts_with('>') {
            true => format!("  {cell:>width$}"),
            false => format!("  {cell:<width$}"),
        };
        for (at, line) in lines.iter().enumerate() {
            let line: String = line.iter().zip(&widths).zip(&self.columns).map(padded).collect();
            write!(f, "{}{}", if at > 0 { "\n" } else { "" }, line.trim_end())?;
        }
        Ok(())
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
