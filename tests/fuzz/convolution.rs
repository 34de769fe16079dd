//! Every algorithm on one convolution.

use crate::harness::{Accepted, Input, Random, Verdict, refuse};
use crate::mutate::pick;
use microbatch::cudnn_layers::conv::{ConvOp, Convolver, Runner, candidates, kernel_id, operand_lens};
use microbatch::planner::{Bytes, Configuration, Measurement, Run};
use microbatch::tensor::{ConvGeometry, Cpu, Device, Format, View, ViewMut, testing};
use std::sync::LazyLock;

/// What is run takes at most so many operations and elements.
pub(crate) const MOST_FLOPS: f64 = 1e7;
pub(crate) const MOST_ELEMENTS: usize = 1 << 16;
const MOST_WORKSPACE: Bytes = Bytes(4 << 20);

/// Elements to which a workspace is aligned.
const CACHE_LINE: usize = 16;

/// Processors of some numbers of threads.
static DEVICES: LazyLock<[Device; 3]> =
    LazyLock::new(|| [1, 2, 3].map(|threads| Device::Cpu(Cpu::new(threads))));

pub(crate) fn device(random: &mut Random) -> Device {
    pick(random, &*DEVICES).clone()
}

/// Asks every algorithm what it needs for `g` and runs those that apply, if that is not too much: they must agree.
pub(crate) fn use_up(g: ConvGeometry, input: &mut Input<'_>) -> Verdict {
    let device = device(&mut input.random);
    let mut ran = false;
    for op in ConvOp::ALL {
        let candidates = candidates(&device, &kernel_id(op, &g, Format::F32), g.n as u32).or_else(refuse)?;
        let lens = operand_lens(op, &g);
        if g.flops() > MOST_FLOPS || lens.iter().any(|&len| len > MOST_ELEMENTS) {
            continue;
        }
        let [a, b] = [testing::random(lens[0], 1), testing::random(lens[1], 2)];
        let mut expected: Option<Vec<f32>> = None;
        for convolver in candidates {
            if convolver.facts().workspace > MOST_WORKSPACE {
                continue;
            }
            // The operands, the first result too, and the workspace.
            let bytes = (size_of::<f32>() * (lens.iter().sum::<usize>() + lens[2])) as u64;
            input.foretold = input.foretold.max(bytes + convolver.facts().workspace.0);
            ran = true;
            let out = run(&device, op, g, [&a, &b], &*convolver)?;
            let expected = &*expected.get_or_insert_with(|| out.clone());
            let distance = distance(&out, expected);
            assert!(
                distance <= testing::distance_tolerance(convolver.facts().max_error),
                "{} of {op}, {g:?}: off by {distance:e}",
                convolver.facts().name
            );
        }
    }
    Ok(if ran { Accepted::Used } else { Accepted::Huge })
}

/// The result of one algorithm, in micro-batches of half the samples.
fn run(
    device: &Device,
    op: ConvOp,
    g: ConvGeometry,
    [a, b]: [&[f32]; 2],
    whole: &dyn Convolver,
) -> Result<Vec<f32>, Box<dyn std::error::Error + Send + Sync>> {
    let part = g.n.div_ceil(2);
    let micro = |samples: usize| Run {
        count: 1,
        micro: Measurement { micro_batch: samples as u32, ..whole.measurement(1.0, 0.0) },
    };
    let runs = [part, g.n - part].into_iter().filter(|&samples| samples > 0).map(micro);
    let runner = Runner::new(device, op, g, &Configuration::new(runs)).or_else(refuse)?;
    let mut out = vec![f32::NAN; operand_lens(op, &g)[2]];
    let workspace_len = whole.facts().workspace.0 as usize / size_of::<f32>();
    let mut room = vec![f32::NAN; workspace_len + CACHE_LINE];
    let start = room.as_ptr().align_offset(CACHE_LINE * size_of::<f32>());
    let workspace = ViewMut::of(&mut room[start..start + workspace_len]);
    let operands = [View::of(a), View::of(b)];
    let ran = device.run(|| runner.run(operands, ViewMut::of(&mut out).replaced(), workspace));
    ran.or_else(refuse)?;
    Ok(out)
}

/// |found - expected| / |expected|.
fn distance(found: &[f32], expected: &[f32]) -> f64 {
    let squares =
        |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    let pairs = found.iter().zip(expected);
    let error = squares(&mut pairs.map(|(&found, &expected)| f64::from(found) - f64::from(expected)));
    let norm = squares(&mut expected.iter().map(|&expected| f64::from(expected)));
    if error == 0.0 { 0.0 } else { error / norm }
}
