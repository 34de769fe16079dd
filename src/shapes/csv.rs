//! Lists of convolutions in DeepBench's columns.

use super::Convolution;
use planner::ConvShape;
use std::{fs, io, path::Path};
use thiserror::Error;

/// The columns, in DeepBench's order; a column [`SOURCE`] may stand before them.
const COLUMNS: [&str; 11] =
    ["W", "H", "C_in", "N", "C_out", "kernel_w", "kernel_h", "pad_w", "pad_h", "stride_w", "stride_h"];

/// The column of names.
const SOURCE: &str = "source";

/// In which cell each column stands.
struct Order {
    source: Option<usize>,
    columns: [usize; COLUMNS.len()],
}

/// A list that cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CsvError {
    /// The file cannot be read.
    #[error("cannot read {file}: {source}")]
    Read {
        /// The file.
        file: String,
        /// What the system says.
        source: io::Error,
    },
    /// A line makes no sense.
    #[error("{file}:{line}: {reason}")]
    Line {
        /// The file.
        file: String,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong there.
        reason: String,
    },
    /// There is no convolution in it.
    #[error("{0} lists no convolution")]
    Empty(String),
}

/// Reads a list of convolutions: a line of column names, in any order, or DeepBench's columns in their order without one,
/// `source` before them or not. Empty lines and lines that begin with `#` are skipped. Convolutions are named
/// `source:line`.
///
/// # Errors
/// With the line that is no convolution.
pub fn read_csv(file: &Path) -> Result<Vec<Convolution>, CsvError> {
    let name = file.display().to_string();
    let bytes = fs::read(file).map_err(|source| CsvError::Read { file: name.clone(), source })?;
    let convolutions = parse(&String::from_utf8_lossy(&bytes)).map_err(|(line, reason)| CsvError::Line {
        file: name.clone(),
        line,
        reason,
    })?;
    if convolutions.is_empty() { Err(CsvError::Empty(name)) } else { Ok(convolutions) }
}

/// Reads a list; an error has its line and what is wrong there.
fn parse(text: &str) -> Result<Vec<Convolution>, (usize, String)> {
    let mut order: Option<Order> = None;
    let mut convolutions = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim().trim_start_matches('\u{feff}');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let cells: Vec<&str> = line.split(',').map(|cell| cell.trim().trim_matches('"').trim()).collect();
        let at = |reason: String| (index + 1, reason);
        if order.is_none() && is_header(&cells) {
            order = Some(header(&cells).map_err(at)?);
            continue;
        }
        let order = order.get_or_insert_with(|| usual(&cells));
        convolutions.push(convolution(&cells, order, index + 1).map_err(at)?);
    }
    Ok(convolutions)
}

/// A first line that has a column's name besides `source` is a header: no number is called so.
fn is_header(cells: &[&str]) -> bool {
    cells.iter().any(|cell| COLUMNS.iter().any(|column| column.eq_ignore_ascii_case(cell)))
}

/// The order without a header: DeepBench's own lists have no `source`.
fn usual(cells: &[&str]) -> Order {
    let source = (cells.len() > COLUMNS.len()).then_some(0);
    let first = usize::from(source.is_some());
    Order { source, columns: std::array::from_fn(|column| column + first) }
}

/// The order that a header gives.
fn header(cells: &[&str]) -> Result<Order, String> {
    let place = |column: &str| {
        let mut found = (0..cells.len()).filter(|&cell| cells[cell].eq_ignore_ascii_case(column));
        match (found.next(), found.next()) {
            (_, Some(_)) => Err(format!("the column {column} is there twice")),
            (place, None) => Ok(place),
        }
    };
    let mut columns = [0; COLUMNS.len()];
    for (cell, column) in columns.iter_mut().zip(COLUMNS) {
        *cell = place(column)?.ok_or_else(|| {
            format!("the column {column} is missing; the columns are [{SOURCE}] {}", COLUMNS.join(" "))
        })?;
    }
    Ok(Order { source: place(SOURCE)?, columns })
}

fn convolution(cells: &[&str], order: &Order, line: usize) -> Result<Convolution, String> {
    let cell = |column: usize| {
        let found = cells.get(order.columns[column]).copied();
        found.ok_or_else(|| format!("{} columns are too few: {} is missing", cells.len(), COLUMNS[column]))
    };
    let number = |column: usize| {
        let text = cell(column)?;
        text.parse::<u32>()
            .map_err(|_| format!("{} is \"{text}\", which is no whole number", COLUMNS[column]))
    };
    let source = order.source.and_then(|place| cells.get(place).copied());
    let source = source.filter(|source| !source.is_empty()).unwrap_or("conv");
    let shape = ConvShape {
        w: number(0)?,
        h: number(1)?,
        c: number(2)?,
        k: number(4)?,
        s: number(5)?,
        r: number(6)?,
        pad: [number(8)?, number(7)?],
        stride: [number(10)?, number(9)?],
        ..ConvShape::default()
    };
    let convolution = Convolution { name: format!("{source}:{line}"), shape, mini_batch: number(3)? };
    convolution.check()?;
    Ok(convolution)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "source,W,H,C_in,N,C_out,kernel_w,kernel_h,pad_w,pad_h,stride_w,stride_h\n\
                        DeepSpeech,700,161,1,4,32,20,5,0,0,2,2\n\
                        \n# ResNet\n\"ResNet\", 56, 56, 64, 8, 64, 3, 3, 1, 1, 1, 1\n";

    #[test]
    fn deepbench_s_columns_are_read() {
        let convolutions = parse(LIST).unwrap();
        let [speech, resnet] = &convolutions[..] else { panic!("{convolutions:?}") };
        assert_eq!((speech.name.as_str(), speech.mini_batch), ("DeepSpeech:2", 4));
        assert_eq!(speech.shape.to_string(), "1x161x700, 32 filters 5x20, stride 2");
        assert_eq!((resnet.name.as_str(), resnet.shape.pad), ("ResNet:5", [1, 1]));
        // Without a header, and with the columns in another order.
        let body = LIST.split_once('\n').unwrap().1;
        assert_eq!(parse(body).unwrap()[0].shape, speech.shape);
        let turned: Vec<String> = LIST
            .lines()
            .filter(|line| line.contains(','))
            .map(|line| line.split(',').rev().collect::<Vec<_>>().join(","))
            .collect();
        assert_eq!(parse(&turned.join("\n")).unwrap()[0].shape, speech.shape);
    }

    #[test]
    fn a_source_may_be_left_out_with_and_without_a_header() {
        let plain = "700,161,1,4,32,20,5,0,0,2,2";
        for list in [plain.to_owned(), format!("{}\n{plain}", COLUMNS.join(","))] {
            let [speech] = &parse(&list).unwrap()[..] else { panic!("one convolution in {list}") };
            assert_eq!(speech.name, format!("conv:{}", list.lines().count()));
            assert_eq!(
                (speech.shape.to_string().as_str(), speech.mini_batch),
                ("1x161x700, 32 filters 5x20, stride 2", 4)
            );
        }
    }

    #[test]
    fn what_is_no_convolution_is_named_with_its_line() {
        let with = |from: &str, to: &str| parse(&LIST.replacen(from, to, 1)).unwrap_err();
        let columns =
            "the columns are [source] W H C_in N C_out kernel_w kernel_h pad_w pad_h stride_w stride_h";
        assert_eq!(with("C_in,", ""), (1, format!("the column C_in is missing; {columns}")));
        assert_eq!(with("C_in", "W"), (1, "the column W is there twice".to_owned()));
        assert_eq!(with("700", "7e2"), (2, "W is \"7e2\", which is no whole number".to_owned()));
        assert_eq!(with(",2,2", ""), (2, "10 columns are too few: stride_h is missing".to_owned()));
        assert!(with("161", "4").1.contains("window of 5"));
        assert!(with(", 8,", ", 0,").1.contains("mini-batch"));
        assert_eq!(with("ResNet\", 56", "ResNet\", 4000000000").0, 5);
    }
}
