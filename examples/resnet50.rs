//! ResNet-50, on synthetic images.
//!
//! `cargo run --release --example resnet50 -- time` times it layer by layer and shows what its convolutions got;
//! `train` and `plan` do what they say. `--help` lists the options.

use microbatch::example::Example;
use std::process::ExitCode;

fn main() -> ExitCode {
    Example { name: "resnet50", mini_batch: 8, train_iterations: 20 }.main()
}
