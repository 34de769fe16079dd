//! How long planning takes once everything is measured: `cargo bench --bench planner`.
//!
//! The tables are synthetic but of true shape: AlexNet's 5 convolutions (15 kernels) at mini-batch 256 and 1024, and
//! ResNet-50's 53 (159 kernels, of which 60 distinct) at 32 and 256, each with five algorithms whose time and workspace
//! are affine in the micro-batch size with 2 % noise. Every number is the median of many runs.

use std::hint::black_box;
use std::time::Instant;

use planner::*;

/// Multiply-adds per sample in millions and output values per sample in thousands, about as in AlexNet.
const ALEXNET: [(f64, f64); 5] = [(70.0, 194.0), (224.0, 140.0), (112.0, 65.0), (149.0, 43.0), (100.0, 43.0)];

/// Five algorithms, each faster and hungrier than the one before: (name, time factor, workspace factor).
const ALGORITHMS: [(&str, f64, f64); 5] = [
    ("IMPLICIT_GEMM", 1.0, 0.0),
    ("IM2COL_GEMM", 0.8, 1.0),
    ("WINOGRAD_2X2_3X3", 0.55, 4.0),
    ("FFT_TILING", 0.4, 9.0),
    ("FFT", 0.35, 16.0),
];

/// A kernel with its multiply-adds and outputs per sample, in the units of [`ALEXNET`].
type Work = (Kernel, f64, f64);

/// A noise of up to `share` around 1, from the bits of an ordinal number (splitmix64).
fn noise(ordinal: u64, share: f64) -> f64 {
    let mut z = ordinal.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    1.0 + share * ((z ^ (z >> 31)) as f64 / u64::MAX as f64 - 0.5)
}

/// What all algorithms cost on `micro_batch` samples of the kernel number `ordinal`.
fn measure(ordinal: usize, micro_batch: u32, multiply_adds: f64, outputs: f64) -> Vec<Measurement> {
    let samples = f64::from(micro_batch);
    let row = |(index, &(name, time, workspace)): (usize, &(&str, f64, f64))| {
        let salt = ((ordinal as u64) << 32) | (u64::from(micro_batch) << 8) | index as u64;
        let call_ms = 0.01 * (1 + index) as f64;
        Measurement {
            algorithm: name.into(),
            micro_batch,
            time_ms: (call_ms + samples * time * multiply_adds / 10_000.0) * noise(salt, 0.02),
            workspace: Bytes((workspace * outputs * 4000.0 * samples) as u64 / 64 * 64),
            max_error: 1e-6,
            deterministic: true,
        }
    };
    ALGORITHMS.iter().enumerate().map(row).collect()
}

fn kernel(layer: usize, kind: usize, op: ConvOp, mini_batch: u32) -> Kernel {
    let shape = ConvShape { c: 64, h: 27, w: 27, k: kind as u32, ..ConvShape::default() };
    let id = KernelId { op, shape, dtype: Dtype::F32, math: Math::Fp32, layout: Layout::Nchw };
    Kernel { name: format!("conv{layer}"), id, mini_batch }
}

fn alexnet(mini_batch: u32) -> Vec<Work> {
    let layers = ALEXNET.iter().enumerate();
    let kernels = layers.flat_map(|(layer, &(multiply_adds, outputs))| {
        ConvOp::ALL.map(|op| (kernel(layer, layer, op, mini_batch), multiply_adds, outputs))
    });
    kernels.collect()
}

/// 53 layers of 20 kinds, as in ResNet-50's repeated blocks.
fn resnet50(mini_batch: u32) -> Vec<Work> {
    let kernels = (0..53).flat_map(|layer| {
        let kind = layer % 20;
        let (multiply_adds, outputs) = (25.0 + 10.0 * kind as f64, 800.0 / (1 + kind) as f64);
        ConvOp::ALL.map(|op| (kernel(layer, kind, op, mini_batch), multiply_adds, outputs))
    });
    kernels.collect()
}

/// Median milliseconds of `repeats` runs.
fn median_ms(repeats: usize, mut run: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..repeats)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[repeats / 2]
}

struct Case {
    net: &'static str,
    kernels: Vec<Kernel>,
    table: CostTable,
    policy: BatchSizePolicy,
}

impl Case {
    fn new(net: &'static str, work: Vec<Work>, policy: BatchSizePolicy) -> Case {
        let mut table = CostTable::default();
        for (ordinal, (kernel, multiply_adds, outputs)) in work.iter().enumerate() {
            for micro_batch in policy.sizes(kernel.mini_batch) {
                let rows = measure(ordinal, micro_batch, *multiply_adds, *outputs);
                table.insert(kernel.id, micro_batch, rows).expect("costs are positive");
            }
        }
        Case { net, kernels: work.into_iter().map(|(kernel, ..)| kernel).collect(), table, policy }
    }

    fn time_ms(&self, policy: WorkspacePolicy, limit: Bytes, method: IlpMethod, repeats: usize) -> f64 {
        let (batch_size_policy, workspace_policy) = (self.policy, policy);
        let options = PlanOptions { batch_size_policy, workspace_policy, limit, ..PlanOptions::default() };
        let planned =
            || plan_with(&self.kernels, &self.table, &options, method).expect("one needs no workspace");
        median_ms(repeats, || drop(black_box(planned())))
    }

    fn report(&self, repeats: usize, with_ilp: bool) {
        let (limit, total) = (Bytes::mib(64), Bytes::mib(8 * self.kernels.len() as u64));
        let exact = |policy, limit| self.time_ms(policy, limit, IlpMethod::Exact, repeats);
        let (wr, ws) = (exact(WorkspacePolicy::Wr, limit), exact(WorkspacePolicy::Ws, total));
        let wd = exact(WorkspacePolicy::Wd, total);
        let (sizes, samples) = (self.policy, self.kernels[0].mini_batch);
        let kernels = self.kernels.len();
        print!("{:<10} {samples:>5}  {sizes:<11} {kernels:>7} {wr:>9.3} {ws:>9.3} {wd:>9.3}", self.net);
        if with_ilp {
            let ilp = self.time_ms(WorkspacePolicy::Wd, total, IlpMethod::GoodLp, 1);
            print!(" {ilp:>12.1} {:>6.0}x", ilp / wd);
        }
        println!();
    }
}

fn main() {
    use BatchSizePolicy::{All, PowerOfTwo};
    println!("planning time in ms: WR at 64 MiB, WS and WD at 8 MiB per kernel in total");
    println!("net            N  sizes       kernels        WR        WS        WD  WD, microlp   ratio");
    Case::new("AlexNet", alexnet(256), PowerOfTwo).report(101, true);
    Case::new("AlexNet", alexnet(256), All).report(21, false);
    Case::new("AlexNet", alexnet(1024), All).report(5, false);
    Case::new("ResNet-50", resnet50(32), PowerOfTwo).report(101, true);
    Case::new("ResNet-50", resnet50(256), PowerOfTwo).report(51, false);
}
