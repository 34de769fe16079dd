//! What a convolution runs with in its checks.

use crate::layers::{ConvolutionLayer, Layer};
use crate::testing::Candidates;
use cudnn_layers::conv::ConvOp;
use planner::{Bytes, Configuration, Measurement, Run};
use tensor::{Device, Space};

/// What is installed in a convolution: a configuration per operation.
pub(super) type Installed = [Configuration; 3];

/// Every algorithm undivided and in unequal micro-batches, and micro-batches of different algorithms.
pub(super) fn configurations(device: &Device, planned: &ConvolutionLayer) -> Vec<Installed> {
    let mut candidates = Candidates::on(device);
    let kernels = ConvOp::ALL.map(|op| planned.kernel(device, "l", op));
    let n = kernels[0].mini_batch;
    assert!(n >= 3, "a mini-batch that can be divided unequally");
    // What runs at all three sizes, at each of them.
    let algorithms = kernels.map(|kernel| -> Vec<[Measurement; 3]> {
        let [whole, most, one] = [n, n - 1, 1].map(|size| candidates.of(&kernel.id, size));
        let same = |all: &[Measurement], as_here: &Measurement| {
            all.iter().find(|other| other.algorithm == as_here.algorithm).cloned()
        };
        let at_all = |here: Measurement| Some([same(&most, &here)?, same(&one, &here)?, here]);
        whole.into_iter().filter_map(at_all).map(|[most, one, whole]| [whole, most, one]).collect()
    });
    let most = algorithms.iter().map(Vec::len).max().expect("three operations");
    let pick =
        |op: usize, index: usize, size: usize| algorithms[op][index % algorithms[op].len()][size].clone();
    (0..most)
        .flat_map(|index| {
            let undivided = [0, 1, 2].map(|op| configuration([pick(op, index, 0)]));
            let divided = [0, 1, 2].map(|op| configuration([1, 2].map(|size| pick(op, index, size))));
            let mixed = [0, 1, 2].map(|op| configuration([pick(op, index, 1), pick(op, index + 1, 2)]));
            [undivided, divided, mixed]
        })
        .collect()
}

fn configuration(micro_batches: impl IntoIterator<Item = Measurement>) -> Configuration {
    Configuration::new(
        micro_batches.into_iter().map(|measured| Run {
            count: 1,
            micro: Measurement { workspace: Bytes::mib(1 << 20), ..measured },
        }),
    )
}

/// Installs all three kernels, the two of backward with workspaces side by side as under WD; returns the scratch of
/// each pass.
pub(super) fn install(layer: &mut dyn Layer, device: &Device, [y, dx, dw]: &Installed) -> [Space; 2] {
    let planned = layer.convolution().expect("only a convolution has configurations");
    let mut install = |op, configuration, offset| planned.install(device, op, configuration, offset).unwrap();
    let forward = install(ConvOp::Forward, y, 0);
    let data = install(ConvOp::BackwardData, dx, 0);
    let behind = Space::all_of([data, Space::aligned(0)]);
    [forward, Space::all_of([behind, install(ConvOp::BackwardFilter, dw, behind.bytes())])]
}
