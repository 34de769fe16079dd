//! Measures the CPU's convolution algorithms on the layers of AlexNet and ResNet-18 (and two 1x1 of ResNet-50).
//!
//! ```text
//! cargo run --release -p cudnn-layers --example conv_bench -- <layer> <algorithm> <threads> [mini-batch] [operation]
//! ```
//!
//! `<layer>` is a name of [`LAYERS`] or `all`, `<algorithm>` and `[operation]` any part of a name or `all`; the
//! mini-batch is 16 unless given. GF/s, of the best run, counts the operations of a direct convolution, taps on the
//! padding included.

use cudnn_layers::conv::{ConvOp, Convolver, candidates, kernel_id, operand_lens};
use std::time::{Duration, Instant};
use tensor::{Arena, ConvGeometry, Cpu, Device, Format, View, ViewMut, testing::random};

/// A layer: name, input channels, image, output channels, filter, stride, padding; images and filters are square.
type Layer = (&'static str, usize, usize, usize, usize, usize, usize);

const LAYERS: [Layer; 18] = [
    ("conv1", 3, 224, 64, 11, 4, 2),
    ("conv1-227", 3, 227, 96, 11, 4, 0),
    ("conv2", 64, 27, 192, 5, 1, 2),
    ("conv3", 192, 13, 384, 3, 1, 1),
    ("conv4", 384, 13, 256, 3, 1, 1),
    ("conv5", 256, 13, 256, 3, 1, 1),
    ("r3", 3, 224, 64, 7, 2, 3),
    ("r64", 64, 56, 64, 3, 1, 1),
    ("r64-128", 64, 56, 128, 3, 2, 1),
    ("r64-128-1x1", 64, 56, 128, 1, 2, 0),
    ("r128", 128, 28, 128, 3, 1, 1),
    ("r128-256", 128, 28, 256, 3, 2, 1),
    ("r128-256-1x1", 128, 28, 256, 1, 2, 0),
    ("r256", 256, 14, 256, 3, 1, 1),
    ("r256-512", 256, 14, 512, 3, 2, 1),
    ("r512", 512, 7, 512, 3, 1, 1),
    ("r50-64-256", 64, 56, 256, 1, 1, 0),
    ("r50-1024-256", 1024, 14, 256, 1, 1, 0),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |index: usize, default: &str| args.get(index).map_or(default, String::as_str).to_owned();
    let (layer, algorithm, op) = (arg(0, "all"), arg(1, "all"), arg(4, "all"));
    let number = |index, default: &str| {
        arg(index, default).parse().unwrap_or_else(|_| panic!("{:?} is not a number", arg(index, default)))
    };
    let (device, mini_batch) = (Device::Cpu(Cpu::new(number(2, "2"))), number(3, "16"));
    let chosen = |wanted: &str, name: &str| wanted == "all" || name.contains(wanted);

    println!(
        "{:13} {:14} {:28} {:>9} {:>9} {:>7} {:>9}",
        "layer", "operation", "algorithm", "median ms", "best ms", "GF/s", "MiB"
    );
    for (name, c, image, k, filter, stride, pad) in LAYERS {
        if layer != "all" && layer != name {
            continue;
        }
        let g = ConvGeometry::new([mini_batch, c, image, image], k, [filter; 2]);
        let g = g.stride([stride; 2]).pad([pad; 2]);
        for op in ConvOp::ALL.into_iter().filter(|each| chosen(&op, &format!("{each:?}"))) {
            let kernel = kernel_id(op, &g, Format::F32);
            let candidates = candidates(&device, &kernel, mini_batch as u32).expect("a convolution");
            for each in candidates.iter().filter(|each| chosen(&algorithm, &each.facts().name)) {
                let [median, best] = times_ms(&**each, op);
                println!(
                    "{name:13} {:14} {:28} {median:9.3} {best:9.3} {:7.1} {:9.3}",
                    format!("{op:?}"),
                    each.facts().name,
                    g.flops() / best / 1e6,
                    each.facts().workspace.0 as f64 / f64::from(1 << 20)
                );
            }
        }
    }
}

/// The median and the best of at least five runs (a quarter of a second of them) after one that warms up. The best is
/// what the code can do; the median tells whether the machine was busy with something else.
fn times_ms(convolver: &dyn Convolver, op: ConvOp) -> [f64; 2] {
    let [a, b, out] = operand_lens(op, &convolver.facts().geometry);
    let (a, b, mut out) = (random(a, 1), random(b, 2), vec![0.0; out]);
    let mut arena = Arena::new(convolver.facts().workspace.0 as usize).expect("memory for the workspace");
    let mut run_ms = || {
        let mut workspace = arena.view_mut(arena.all());
        let start = Instant::now();
        convolver.prepare(View::of(&b), workspace.reborrow());
        let operands = [View::of(&a), View::of(&b)];
        let ran = convolver.run(operands, ViewMut::of(&mut out).replaced(), workspace);
        ran.expect("the algorithm applies");
        start.elapsed().as_secs_f64() * 1e3
    };
    run_ms();
    let start = Instant::now();
    let mut times = Vec::new();
    while times.len() < 5 || start.elapsed() < Duration::from_millis(250) {
        times.push(run_ms());
    }
    times.sort_by(f64::total_cmp);
    [times[times.len() / 2], times[0]]
}
