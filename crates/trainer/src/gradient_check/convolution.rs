//! What a convolution runs with in its checks.

use crate::layers::Layer;
use cudnn_layers::conv::{ConvOp, cpu};
use planner::{Bytes, Configuration, Measurement, Run};
use tensor::{ConvGeometry, Device, arena::ALIGNMENT};

/// What is installed in a convolution: a configuration per operation.
pub(super) type Installed = [Configuration; 3];

/// Every algorithm undivided and in unequal micro-batches, and micro-batches of different algorithms.
pub(super) fn configurations(g: &ConvGeometry) -> Vec<Installed> {
    assert!(g.n >= 3, "a mini-batch that can be divided unequally");
    let sizes = [g.n as u32 - 1, 1];
    let supported = |op: ConvOp| -> Vec<&'static str> {
        let applies = |n: usize, algorithm: &&dyn cpu::CpuAlgorithm| {
            algorithm.workspace_len(op, &g.with_batch(n), 2).is_some()
        };
        let all = cpu::algorithms().iter().copied();
        all.filter(|algorithm| [g.n, g.n - 1, 1].iter().all(|&n| applies(n, algorithm)))
            .map(cpu::CpuAlgorithm::name)
            .collect()
    };
    let names = ConvOp::ALL.map(supported);
    let most = names.iter().map(Vec::len).max().expect("three operations");
    let pick = |op: usize, index: usize| names[op][index % names[op].len()];
    (0..most)
        .flat_map(|index| {
            let undivided = [0, 1, 2].map(|op| configuration(&[(pick(op, index), g.n as u32)]));
            let divided = [0, 1, 2].map(|op| configuration(&sizes.map(|size| (pick(op, index), size))));
            let mixed = [0, 1, 2]
                .map(|op| configuration(&[(pick(op, index), sizes[0]), (pick(op, index + 1), sizes[1])]));
            [undivided, divided, mixed]
        })
        .collect()
}

fn configuration(micro_batches: &[(&str, u32)]) -> Configuration {
    Configuration::new(micro_batches.iter().map(|&(algorithm, micro_batch)| Run {
        count: 1,
        micro: Measurement {
            algorithm: algorithm.into(),
            micro_batch,
            time_ms: 1.0,
            shared_ms: 0.0,
            workspace: Bytes::mib(1 << 20),
            max_error: 0.0,
            deterministic: true,
        },
    }))
}

/// Installs all three kernels, the two of backward with workspaces side by side as under WD; returns the scratch of each
/// pass.
pub(super) fn install(layer: &mut dyn Layer, device: &Device, [y, dx, dw]: &Installed) -> [usize; 2] {
    let planned = layer.planned().expect("only a convolution has configurations");
    let mut install = |op, configuration, offset| planned.install(device, op, configuration, offset).unwrap();
    let forward = install(ConvOp::Forward, y, 0);
    let data = install(ConvOp::BackwardData, dx, 0).next_multiple_of(ALIGNMENT);
    [forward, data + install(ConvOp::BackwardFilter, dw, data)]
}
