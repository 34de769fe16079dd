//! ResNet-18, on synthetic images.
//!
//! `cargo run --release --example resnet18 -- time` times it layer by layer and shows what its convolutions got;
//! `train` and `plan` do what they say. `--help` lists the options.

use microbatch::example::Example;
use std::process::ExitCode;

fn main() -> ExitCode {
    Example { name: "resnet18", mini_batch: 16, train_iterations: 30 }.main()
}
