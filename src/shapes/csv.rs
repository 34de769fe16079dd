//! Lists of convolutions in DeepBench's columns.

use super::Convolution;
use planner::ConvShape;
use std::{fs, io, path::Path};
use thiserror::Error;

/// The columns, in DeepBench's order.
const COLUMNS: [&str; 12] = [
    "source", "W", "H", "C_in", "N", "C_out", "kernel_w", "kernel_h", "pad_w", "pad_h", "stride_w",
    "stride_h",
];

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

/// Reads a list of convolutions: a line of column names, in any order, or DeepBench's columns in their order without one.
/// Empty lines and lines that begin with `#` are skipped. Convolutions are named `source:line`.
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
    let mut order: Option<[usize; COLUMNS.len()]> = None;
    let mut convolutions = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim().trim_start_matches('\u{feff}');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let cells: Vec<&str> = line.split(',').map(|cell| cell.trim().trim_matches('"').trim()).collect();
        let at = |reason: String| (index + 1, reason);
        match order {
            None if is_header(&cells) => order = Some(header(&cells).map_err(at)?),
            None => {
                order = Some(std::array::from_fn(|column| column));
                convolutions.push(convolution(&cells, order.as_ref(), index + 1).map_err(at)?);
            }
            Some(_) => convolutions.push(convolution(&cells, order.as_ref(), index + 1).map_err(at)?),
        }
    }
    Ok(convolutions)
}

/// A first line that has a column's name besides `source` is a header: no number is called so.
fn is_header(cells: &[&str]) -> bool {
    cells.iter().any(|cell| COLUMNS[1..].iter().any(|column| column.eq_ignore_ascii_case(cell)))
}

/// Where each column stands.
fn header(cells: &[&str]) -> Result<[usize; COLUMNS.len()], String> {
    let mut order = [0; COLUMNS.len()];
    for (place, column) in order.iter_mut().zip(COLUMNS) {
        let mut found = (0..cells.len()).filter(|&cell| cells[cell].eq_ignore_ascii_case(column));
        *place = found.next().ok_or_else(|| format!("the column {column} is missing"))?;
        if found.next().is_some() {
            return Err(format!("the column {column} is there twice"));
        }
    }
    Ok(order)
}

fn convolution(
    cells: &[&str],
    order: Option<&[usize; COLUMNS.len()]>,
    line: usize,
) -> Result<Convolution, String> {
    let cell = |column: usize| {
        let place = order.map_or(column, |order| order[column]);
        cells
            .get(place)
            .copied()
            .ok_or_else(|| format!("{} columns are too few: {} is missing", cells.len(), COLUMNS[column]))
    };
    let number = |column: usize| {
        let text = cell(column)?;
        text.parse::<u32>()
            .map_err(|_| format!("{} is \"{text}\", which is no whole number", COLUMNS[column]))
    };
    let source = match cell(0)? {
        "" => "conv",
        source => source,
    };
    let shape = ConvShape {
        w: number(1)?,
        h: number(2)?,
        c: number(3)?,
        k: number(5)?,
        s: number(6)?,
        r: number(7)?,
        pad: [number(9)?, number(8)?],
        stride: [number(11)?, number(10)?],
        ..ConvShape::default()
    };
    let convolution = Convolution { name: format!("{source}:{line}"), shape, mini_batch: number(4)? };
    convolution.check()?;
    Ok(convolution)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
    fn what_is_no_convolution_is_named_with_its_line() {
        let with = |from: &str, to: &str| parse(&LIST.replacen(from, to, 1)).unwrap_err();
        assert_eq!(with("C_in,", ""), (1, "the column C_in is missing".to_owned()));
        assert_eq!(with("C_in", "W"), (1, "the column W is there twice".to_owned()));
        assert_eq!(with("700", "7e2"), (2, "W is \"7e2\", which is no whole number".to_owned()));
        assert_eq!(with(",2,2", ""), (2, "10 columns are too few: stride_h is missing".to_owned()));
        assert!(with("161", "4").1.contains("window of 5"));
        assert!(with(", 8,", ", 0,").1.contains("mini-batch"));
        assert_eq!(with("ResNet\", 56", "ResNet\", 4000000000").0, 5);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_list_makes_it_panic(text in "[\"#,. \n\ra-zA-Z0-9_+-]{0,300}") {
            let _ = parse(&text);
        }

        #[test]
        fn no_damage_makes_it_panic(at in any::<usize>(), to in ".{0,12}", numbers in proptest::array::uniform12(any::<u32>())) {
            let mut chars: Vec<char> = LIST.chars().collect();
            let at = at % chars.len();
            chars.splice(at..at + 1, to.chars());
            let _ = parse(&chars.into_iter().collect::<String>());
            let line: Vec<String> = numbers.iter().map(u32::to_string).collect();
            if let Ok(convolutions) = parse(&line.join(",")) {
                prop_assert!(convolutions.iter().all(|convolution| convolution.check().is_ok()));
            }
        }
    }
}
