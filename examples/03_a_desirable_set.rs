//! Two algorithms, eight samples: all divisions that are worth having, from the slowest and smallest to the fastest and
//! largest.
//!
//! `cargo run --example 03_a_desirable_set`

use microbatch::planner::{Algorithm, Bytes, Measurement, desirable_set};
use std::error::Error;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // FFT takes a millisecond to begin with, then half of one and a MiB for each sample; GEMM 2 ms a sample and no
    // memory.
    let row = |algorithm: &str, samples: u32, time_ms: f64, workspace: Bytes| Measurement {
        algorithm: Algorithm::from(algorithm),
        micro_batch: samples,
        time_ms,
        shared_ms: 0.0,
        workspace,
        max_error: 1e-6,
        deterministic: true,
    };
    let fft = |n: u32| row("FFT", n, 1.0 + 0.5 * f64::from(n), Bytes::mib(n.into()));
    let gemm = |n: u32| row("GEMM", n, 2.0 * f64::from(n), Bytes::ZERO);
    let table: Vec<Measurement> = (1..=8).flat_map(|n| [fft(n), gemm(n)]).collect();

    let set = desirable_set(&table, 8, Bytes::MAX);
    for configuration in set.iter() {
        println!(
            "{:>8}  {:>5.1} ms  {configuration}",
            configuration.workspace().to_string(),
            configuration.time_ms()
        );
    }
    // Each is larger than the one before, and faster: otherwise nobody would want it.
    let costs: Vec<(Bytes, f64)> = set.iter().map(|c| (c.workspace(), c.time_ms())).collect();
    assert!(costs.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 > pair[1].1));
    // Exercise: why is there none with 5, 6 or 7 MiB? What would FFT have to cost for one to appear?
    let mib: Vec<f64> = costs.iter().map(|cost| cost.0.as_mib()).collect();
    assert_eq!(mib, [0.0, 1.0, 2.0, 3.0, 4.0, 8.0]);
    Ok(())
}
