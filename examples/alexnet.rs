//! AlexNet in a single column (64-192-384-256-256), on synthetic images.
//!
//! `cargo run --release --example alexnet -- time` times it layer by layer and shows what its convolutions got; `train`
//! and `plan` do what they say. `--help` lists the options.

use microbatch::example::Example;
use std::process::ExitCode;

fn main() -> ExitCode {
    Example { name: "alexnet", mini_batch: 32, train_iterations: 50 }.main()
}
