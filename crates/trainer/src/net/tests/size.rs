//! Nets of very many layers: the time to lay them out is near-linear in their number.

use super::{DATA, head};
use crate::{net::RunLayout, testing::build};
use std::{fmt::Write, time::Instant};

/// Far less than it takes where every layer looks at every other one.
const SECONDS: u64 = 5;

fn lay_out(text: &str) -> RunLayout {
    let start = Instant::now();
    let net = build(text).unwrap();
    let layout = RunLayout::new(&[&net], true);
    let taken = start.elapsed();
    assert!(taken.as_secs() < SECONDS, "{taken:?}");
    layout
}

#[test]
fn thirty_thousand_layers_one_after_another() {
    for in_place in [false, true] {
        let mut text = DATA.replace("dim: 6", "dim: 1");
        let mut bottom = "data".to_owned();
        for number in 0..30_000 {
            let top = if in_place { "r".to_owned() } else { format!("r{number}") };
            writeln!(text, "layer {{ name: 'relu{number}' type: 'ReLU' bottom: '{bottom}' top: '{top}' }}")
                .unwrap();
            bottom = top;
        }
        let layout = lay_out(&(text + &head(&bottom)));
        let report = &layout.report.nets[0];
        let [bound, transient] = [report.lower_bound.0, report.transient.0];
        assert!(bound <= transient && transient <= bound + bound / 10, "{transient} for {bound}");
    }
}

#[test]
fn twenty_thousand_tops_of_one_layer() {
    let mut text = DATA.replace("dim: 6", "dim: 1") + "layer { name: 'split' type: 'Split' bottom: 'data' ";
    (0..20_000).for_each(|number| write!(text, "top: 's{number}' ").unwrap());
    text += "}\n";
    lay_out(&(text + &head("s7")));
}

#[test]
fn ten_thousand_mentions_of_one_blob() {
    let mut text = DATA.replace("dim: 6", "dim: 1") + "layer { name: 'sum' type: 'Concat' top: 'sum' ";
    (0..10_000).for_each(|_| text += "bottom: 'data' ");
    text += "}\n";
    lay_out(&(text + &head("sum")));
}

#[test]
fn forty_thousand_blobs_read_by_one_layer() {
    let mut text = DATA.replace("dim: 6", "dim: 1") + "layer { name: 'split' type: 'Split' bottom: 'data' ";
    (0..40_000).for_each(|number| write!(text, "top: 's{number}' ").unwrap());
    text += "}\nlayer { name: 'sum' type: 'Concat' top: 'sum' ";
    (0..40_000).for_each(|number| write!(text, "bottom: 's{number}' ").unwrap());
    text += "}\n";
    lay_out(&(text + &head("sum")));
}
