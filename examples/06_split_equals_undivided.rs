//! A divided mini-batch gives what the undivided one gives, in BackwardFilter too, whose micro-batches add up in one
//! output.
//!
//! `cargo run --release --example 06_split_equals_undivided`

use microbatch::cudnn_layers::conv::{ConvOp, Runner, candidates, find, kernel_id, operand_lens};
use microbatch::planner::{Configuration, Run};
use microbatch::tensor::{Arena, ConvGeometry, Cpu, Device, Format, View, ViewMut};
use std::error::Error;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::Cpu(Cpu::new(2));
    let geometry = ConvGeometry::new([7, 5, 12, 12], 6, [3, 3]).pad([1, 1]).validate()?;
    for op in ConvOp::ALL {
        let [a, b, out] = operand_lens(op, &geometry);
        let wave = |len: usize| -> Vec<f32> { (0..len).map(|i| (i as f32 * 0.7).sin()).collect() };
        let (a, b) = (wave(a), wave(b));
        let kernel = kernel_id(op, &geometry, Format::F32);
        let algorithm = candidates(&device, &kernel, 7)?.remove(0).facts().name.clone();
        // Runs so many micro-batches of so many samples, over an output that holds rubbish before.
        let run = |parts: &[(u32, u32)]| -> Result<Vec<f32>, Box<dyn Error>> {
            let mut runs = Vec::new();
            for &(count, samples) in parts {
                let convolver = find(&device, op, geometry.with_batch(samples as usize), &algorithm)?;
                runs.push(Run { count, micro: convolver.measurement(1.0, 0.0) });
            }
            let runner = Runner::new(&device, op, geometry, &Configuration::new(runs))?;
            let mut workspace = Arena::new(runner.workspace().bytes())?;
            let all = workspace.all();
            let mut result = vec![f32::NAN; out];
            let operands = [View::of(&a), View::of(&b)];
            runner.run(operands, ViewMut::of(&mut result).replaced(), workspace.view_mut(all))?;
            Ok(result)
        };
        let (whole, divided) = (run(&[(1, 7)])?, run(&[(2, 3), (1, 1)])?);
        let apart = std::iter::zip(&whole, &divided).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        println!("{op:<15} {algorithm}: 7 samples and 3 + 3 + 1 differ by {apart:.1e} at most");
        // Sums over samples are taken in another order, so BackwardFilter may differ in its last bits.
        assert!(if op == ConvOp::BackwardFilter { apart < 1e-3 } else { apart == 0.0 });
    }
    Ok(())
}
