//! One convolution, computed by every algorithm that there is: other times, other workspaces, the same result.
//!
//! `cargo run --release --example 01_four_ways`

use microbatch::cudnn_layers::conv::{ConvOp, Facts, candidates, kernel_id, operand_lens};
use microbatch::tensor::{Arena, ConvGeometry, Cpu, Device, Format, View, ViewMut};
use std::{error::Error, time::Instant};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // Eight samples of 16 channels, 24x24; 32 filters of 3x3.
    let geometry = ConvGeometry::new([8, 16, 24, 24], 32, [3, 3]).pad([1, 1]).validate()?;
    let kernel = kernel_id(ConvOp::Forward, &geometry, Format::F32);
    let [x, w, y] = operand_lens(ConvOp::Forward, &geometry);
    let wave = |len: usize| -> Vec<f32> { (0..len).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect() };
    let (x, w) = (wave(x), wave(w));
    let mut results: Vec<Vec<f32>> = Vec::new();
    for algorithm in candidates(&Device::Cpu(Cpu::new(2)), &kernel, 8)? {
        // Memory is handed to an algorithm, which says exactly how much it needs.
        let mut workspace = Arena::new(algorithm.facts().workspace.0 as usize)?;
        let all = workspace.all();
        let (mut out, start) = (vec![f32::NAN; y], Instant::now());
        algorithm.prepare(View::of(&w), workspace.view_mut(all));
        let y = ViewMut::of(&mut out).replaced();
        algorithm.run([View::of(&x), View::of(&w)], y, workspace.view_mut(all))?;
        let (ms, Facts { name, workspace, .. }) = (start.elapsed().as_secs_f64() * 1e3, algorithm.facts());
        println!("{name:<24} {ms:>8.3} ms in {workspace}");
        results.push(out);
    }
    assert!(results.len() >= 4, "direct, as products, Winograd's and by Fourier transforms");
    let largest = results[0].iter().fold(0.0_f32, |most, value| most.max(value.abs()));
    for other in &results[1..] {
        let apart = std::iter::zip(&results[0], other).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(apart < 1e-4 * largest, "they differ by rounding, not by {apart}");
    }
    Ok(())
}
