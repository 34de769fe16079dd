//! Lists of convolutions in DeepBench's columns.

use super::ShapeSpec;
use crate::prototxt::SpecError;
use csv::{ReaderBuilder, StringRecord, Trim};
use planner::ConvShape;
use std::{fs, path::Path};

/// The columns, in DeepBench's order; the first, the names, may be left out.
#[rustfmt::skip]
const COLUMNS: [&str; 12] = [
    "source", "W", "H", "C_in", "N", "C_out", "kernel_w", "kernel_h", "pad_w", "pad_h", "stride_w", "stride_h",
];

/// Reads a list of convolutions from a file.
///
/// # Errors
/// Of [`parse_csv`], or the file is not read.
pub fn read_csv(file: &Path) -> Result<Vec<ShapeSpec>, SpecError> {
    let name = file.display().to_string();
    let bytes = fs::read(file).map_err(|error| SpecError::unreadable(&name, &error))?;
    parse_csv(&name, &String::from_utf8_lossy(&bytes))
}

/// Reads a list of convolutions: a line of column names, in any order, or DeepBench's columns in their order without
/// one, `source` before them or not. Empty lines and lines that begin with `#` do not count. Names are `source:line`.
///
/// # Errors
/// With the line that is no convolution.
pub fn parse_csv(name: &str, text: &str) -> Result<Vec<ShapeSpec>, SpecError> {
    match parse(text).map_err(|(line, reason)| SpecError::at(format_args!("{name}:{line}"), reason))? {
        shapes if shapes.is_empty() => Err(SpecError::at(name, "it lists no convolution")),
        shapes => Ok(shapes),
    }
}

/// Reads a list; an error has its line and what is wrong there.
fn parse(text: &str) -> Result<Vec<ShapeSpec>, (usize, String)> {
    let mut header: Option<StringRecord> = None;
    let mut shapes = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let at = |reason: String| (line, reason);
        let cells = cells(text).map_err(at)?;
        if header.is_none() {
            header = Some(header_of(&cells).map_err(at)?);
        }
        let columns = header.as_ref().expect("the first line has told");
        if !columns.iter().eq(cells.iter().map(known)) {
            shapes.push(shape(&cells, columns, line).map_err(at)?);
        }
    }
    Ok(shapes)
}

/// The cells of one line.
fn cells(line: &str) -> Result<StringRecord, String> {
    let mut reader = ReaderBuilder::new();
    reader.has_headers(false).trim(Trim::All).buffer_capacity(line.len());
    let record = reader.from_reader(line.as_bytes()).into_records().next();
    record.unwrap_or_else(|| Ok(StringRecord::new())).map_err(|error| error.to_string())
}

/// A column's name in its usual spelling; anything else as it is.
fn known(cell: &str) -> &str {
    COLUMNS.into_iter().find(|column| column.eq_ignore_ascii_case(cell)).unwrap_or(cell)
}

/// The first line if it has a column's name besides `source`, as no number is called so; else the usual columns.
fn header_of(cells: &StringRecord) -> Result<StringRecord, String> {
    let header: StringRecord = cells.iter().map(known).collect();
    let count = |column: &str| header.iter().filter(|name| *name == column).count();
    if COLUMNS[1..].iter().all(|column| count(column) == 0) {
        // DeepBench's own lists have no `source`.
        return Ok(COLUMNS[usize::from(cells.len() < COLUMNS.len())..].iter().collect());
    }
    let missing = COLUMNS[1..].iter().find(|column| count(column) == 0);
    match (missing, COLUMNS.iter().find(|column| count(column) > 1)) {
        (_, Some(column)) => Err(format!("the column {column} is there twice")),
        (Some(column), _) => {
            let columns = COLUMNS[1..].join(" ");
            Err(format!("the column {column} is missing; the columns are [{}] {columns}", COLUMNS[0]))
        }
        (None, None) => Ok(header),
    }
}

fn shape(cells: &StringRecord, columns: &StringRecord, line: usize) -> Result<ShapeSpec, String> {
    if let Some(missing) = columns.get(cells.len()) {
        return Err(format!("{missing} is missing: too few columns ({})", cells.len()));
    }
    let cell = |column: &str| columns.iter().position(|name| name == column).map(|at| &cells[at]);
    let number = |column: &str| {
        let cell = cell(column).expect("the header has every column but the source");
        cell.parse::<u32>().map_err(|_| format!("{column} is \"{cell}\", which is no whole number"))
    };
    let shape = ConvShape {
        c: number("C_in")?,
        h: number("H")?,
        w: number("W")?,
        k: number("C_out")?,
        r: number("kernel_h")?,
        s: number("kernel_w")?,
        pad: [number("pad_h")?, number("pad_w")?],
        stride: [number("stride_h")?, number("stride_w")?],
        ..ConvShape::default()
    };
    let name = format!("{}:{line}", cell("source").unwrap_or("conv"));
    let spec = ShapeSpec { name, shape, mini_batch: number("N")? };
    spec.check()?;
    Ok(spec)
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
        assert_eq!(parse(&LIST.to_ascii_uppercase()).unwrap()[1].name, "RESNET:5");
    }

    #[test]
    fn a_quoted_cell_may_hold_commas_and_quotes() {
        let list = LIST.replace("\"ResNet\"", "\"ResNet, \"\"50\"\"\"");
        assert_eq!(parse(&list).unwrap()[1].name, "ResNet, \"50\":5");
    }

    #[test]
    fn a_source_may_be_left_out_with_and_without_a_header() {
        let plain = "700,161,1,4,32,20,5,0,0,2,2";
        for list in [plain.to_owned(), format!("{}\n{plain}", COLUMNS[1..].join(","))] {
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
        assert_eq!(with("700", ""), (2, "W is \"\", which is no whole number".to_owned()));
        assert_eq!(with(",2,2", ""), (2, "stride_w is missing: too few columns (10)".to_owned()));
        assert!(with("161", "4").1.contains("window of 5"));
        assert!(with(", 8,", ", 0,").1.contains("mini-batch"));
        assert_eq!(with("ResNet\", 56", "ResNet\", 4000000000").0, 5);
    }
}
