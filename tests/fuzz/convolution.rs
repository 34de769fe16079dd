//! Every algorithm on one convolution.

use std::sync::LazyLock;

use microbatch::{
    cudnn_layers::conv::{ConvOp, Runner, cpu::algorithms, operand_lens},
    planner::{Bytes, Configuration, Measurement, Run},
    tensor::{Accumulate, ConvGeometry, Cpu, Device, View, ViewMut, testing},
};

use crate::{
    harness::{Accepted, Input, Random, Verdict, refuse},
    mutate::pick,
};

/// What is run takes at most so many operations and elements.
pub(crate) const MOST_FLOPS: f64 = 1e7;
pub(crate) const MOST_ELEMENTS: usize = 1 << 16;
const MOST_WORKSPACE: usize = 1 << 20;

/// Elements to which a workspace is aligned.
const CACHE_LINE: usize = 16;

/// Processors of some numbers of threads.
static DEVICES: LazyLock<[Device; 3]> =
    LazyLock::new(|| [1, 2, 3].map(|threads| Device::Cpu(Cpu::new(threads))));

pub(crate) fn device(random: &mut Random) -> Device {
    pick(random, &*DEVICES).clone()
}

fn threads(device: &Device) -> usize {
    match device {
        Device::Cpu(cpu) => cpu.threads(),
        Device::Cuda(_) => unreachable!("the devices here are processors"),
    }
}

/// Asks every algorithm what it needs for `g` and runs those that apply, if that is not too much: they must agree.
pub(crate) fn use_up(g: ConvGeometry, input: &mut Input<'_>) -> Verdict {
    let device = device(&mut input.random);
    let mut ran = false;
    for op in ConvOp::ALL {
        let of = |algorithm: &&'static dyn microbatch::cudnn_layers::conv::cpu::CpuAlgorithm| {
            Some((
                algorithm.name(),
                algorithm.max_error(),
                algorithm.workspace_len(op, &g, threads(&device))?,
            ))
        };
        let applying: Vec<_> = algorithms().iter().filter_map(of).collect();
        let lens = operand_lens(op, &g);
        if g.flops() > MOST_FLOPS || lens.iter().any(|&len| len > MOST_ELEMENTS) {
            continue;
        }
        let [a, b] = [testing::random(lens[0], 1), testing::random(lens[1], 2)];
        let mut expected: Option<Vec<f32>> = None;
        for (name, max_error, workspace_len) in applying {
            if workspace_len > MOST_WORKSPACE {
                continue;
            }
            // The operands, the first result too, and the workspace.
            let bytes = size_of::<f32>() * (lens.iter().sum::<usize>() + lens[2] + workspace_len);
            input.foretold = input.foretold.max(bytes as u64);
            ran = true;
            let out = run(&device, op, g, [&a, &b], name, workspace_len)?;
            let expected = &*expected.get_or_insert_with(|| out.clone());
            let distance = distance(&out, expected);
            assert!(
                distance <= testing::distance_tolerance(max_error),
                "{name} of {op}, {g:?}: off by {distance:e}"
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
    name: &str,
    workspace_len: usize,
) -> Result<Vec<f32>, Box<dyn std::error::Error + Send + Sync>> {
    let part = g.n.div_ceil(2);
    let micro =
        |samples: usize| Run { count: 1, micro: measurement(name, samples as u32, workspace_len, 1.0) };
    let runs = [part, g.n - part].into_iter().filter(|&samples| samples > 0).map(micro);
    let runner = Runner::new(device, op, g, &Configuration::new(runs)).or_else(refuse)?;
    let mut out = vec![f32::NAN; operand_lens(op, &g)[2]];
    let mut room = vec![f32::NAN; workspace_len + CACHE_LINE];
    let start = room.as_ptr().align_offset(CACHE_LINE * size_of::<f32>());
    let workspace = ViewMut::from(&mut room[start..start + workspace_len]);
    device.run(|| {
        runner.run(
            device,
            [View::from(a), View::from(b)],
            ViewMut::from(&mut out),
            Accumulate::Replace,
            workspace,
        );
    });
    Ok(out)
}

/// That `name` took so long.
pub(crate) fn measurement(name: &str, micro_batch: u32, workspace_len: usize, time_ms: f64) -> Measurement {
    Measurement {
        algorithm: name.into(),
        micro_batch,
        time_ms,
        shared_ms: 0.0,
        workspace: Bytes((workspace_len * size_of::<f32>()) as u64),
        max_error: 1e-6,
        deterministic: true,
    }
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
