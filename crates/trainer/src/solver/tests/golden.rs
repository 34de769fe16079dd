//! Losses that must not change without somebody noticing.

use super::{assert_near, conv, digits, head, layer, losses, solver, start};
use std::{fmt::Write, fs, path::PathBuf};

/// A reduction in another order, as other vector lengths make it, moves a loss by far less; a change of semantics by
/// more.
const TOLERANCE: f64 = 2e-5;

/// LeNet with half the channels on the digits, every convolution undivided by IMPLICIT_GEMM.
fn found() -> Vec<f64> {
    let ip = "inner_product_param { num_output: 50 weight_filler { type: 'xavier' } }";
    let pool = "pooling_param { kernel_size: 2 stride: 2 }";
    let net = [
        digits(16),
        conv("conv1", "data", "num_output: 10 kernel_size: 5 pad: 2"),
        layer("Pooling", "pool1", "conv1", "pool1", pool),
        conv("conv2", "pool1", "num_output: 25 kernel_size: 5 pad: 2"),
        layer("Pooling", "pool2", "conv2", "pool2", pool),
        layer("InnerProduct", "ip1", "pool2", "ip1", ip),
        layer("ReLU", "relu1", "ip1", "ip1", ""),
        head("ip1", 10),
    ];
    let inv = "base_lr: 0.01 lr_policy: 'inv' gamma: 0.0001 power: 0.75 momentum: 0.9 weight_decay: 0.0005";
    losses(&mut start(solver(&net.concat(), inv)), 10)
}

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/lenet_digits_losses.txt")
}

#[test]
fn lenet_on_digits_has_the_recorded_losses() {
    let text = fs::read_to_string(file()).unwrap();
    let numbers = text.lines().filter(|line| !line.starts_with('#'));
    let recorded: Vec<f64> = numbers.map(|line| line.parse().unwrap()).collect();
    assert_eq!(recorded.len(), 10);
    assert_near(&found(), &recorded, TOLERANCE, "the golden losses");
}

#[test]
#[ignore = "it records what the test above compares with"]
fn record() {
    let mut text = "# Losses of the first ten iterations of the net in crates/trainer/src/solver/tests/golden.rs: seed 3, data/digits,\n\
        # IMPLICIT_GEMM undivided. Made with: cargo test -p trainer --lib solver::tests::golden::record -- --ignored\n"
        .to_owned();
    found().iter().for_each(|loss| writeln!(text, "{loss:.9}").unwrap());
    fs::create_dir_all(file().parent().unwrap()).unwrap();
    fs::write(file(), text).unwrap();
}
