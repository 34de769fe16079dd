//! How long planning takes once everything is measured: `cargo bench --bench planner`. With `-- --write-lp DIR` it
//! writes the ILPs of WD instead, for `peers/glpk`.
//!
//! The tables are synthetic but of true shape: AlexNet's 5 convolutions (15 kernels) at mini-batch 256 and
//! 1024, and ResNet-50's 53 (159 kernels, of which 60 distinct) at 32 and 256, each with five algorithms
//! whose time and workspace are affine in the micro-batch size with 2 % noise. Every number is the median of
//! many runs.

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
    repeats: usize,
}

impl Case {
    fn new(net: &'static str, work: Vec<Work>, policy: BatchSizePolicy, repeats: usize) -> Case {
        let mut table = CostTable::default();
        for (ordinal, (kernel, multiply_adds, outputs)) in work.iter().enumerate() {
            for micro_batch in policy.sizes(kernel.mini_batch) {
                let rows = measure(ordinal, micro_batch, *multiply_adds, *outputs);
                table.insert(kernel.id, micro_batch, rows).expect("costs are positive");
            }
        }
        Case { net, kernels: work.into_iter().map(|(kernel, ..)| kernel).collect(), table, policy, repeats }
    }

    fn planning_ms(&self, policy: WorkspacePolicy, limit: Bytes) -> f64 {
        let (batch_size_policy, workspace_policy) = (self.policy, policy);
        let options = PlanOptions { batch_size_policy, workspace_policy, limit, ..PlanOptions::default() };
        let planned =
            || plan(&self.kernels, &self.table, &options).expect("one algorithm needs no workspace");
        median_ms(self.repeats, || drop(black_box(planned())))
    }

    /// WD's choice: the desirable set of every kernel.
    fn groups(&self, total: Bytes) -> Vec<Vec<Alternative>> {
        let group = |kernel: &Kernel| -> Vec<Alternative> {
            let sizes = self.policy.sizes(kernel.mini_batch).into_iter();
            let micros = sizes.flat_map(|size| self.table.measurements(&kernel.id, size).unwrap_or_default());
            let set = desirable_set(micros, kernel.mini_batch, total);
            let alternative =
                |c: &Configuration| Alternative { time_ms: c.time_ms(), workspace: c.workspace() };
            set.iter().map(alternative).collect()
        };
        self.kernels.iter().map(group).collect()
    }

    fn total(&self) -> Bytes {
        Bytes::mib(8 * self.kernels.len() as u64)
    }

    fn name(&self) -> String {
        format!("{}-{}-{}", self.net, self.kernels[0].mini_batch, self.policy)
    }

    fn report_planning(&self) {
        let wr = self.planning_ms(WorkspacePolicy::Wr, Bytes::mib(64));
        let ws = self.planning_ms(WorkspacePolicy::Ws, self.total());
        let wd = self.planning_ms(WorkspacePolicy::Wd, self.total());
        println!("{:<24} {:>7} {wr:>9.3} {ws:>9.3} {wd:>9.3}", self.name(), self.kernels.len());
    }

    fn report_division(&self) {
        let groups = self.groups(self.total());
        let divide = || divide_exact(&groups, self.total()).expect("one algorithm needs no workspace");
        let exact_ms = median_ms(self.repeats, || drop(black_box(divide())));
        let start = Instant::now();
        let ilp = IlpMethod::GoodLp.divide(&groups, self.total()).expect("microlp solves it");
        let ilp_ms = start.elapsed().as_secs_f64() * 1e3;
        let Division { time_ms, binaries, lower_bound_ms, greedy_ms, .. } = divide();
        assert!((time_ms - ilp.time_ms).abs() <= 1e-7 * time_ms, "{time_ms} ms is not {} ms", ilp.time_ms);
        let percent = |ms: f64| 100.0 * (ms / time_ms - 1.0);
        println!(
            "{:<24} {binaries:>8} {exact_ms:>9.3} {ilp_ms:>9.1} {:>7.0}x {:>+12.4} % {:>+8.4} %",
            self.name(),
            ilp_ms / exact_ms,
            percent(lower_bound_ms),
            percent(greedy_ms),
        );
    }

    /// The same ILP in CPLEX's LP format, with our answer as a comment.
    fn linear_program(&self) -> String {
        let groups = self.groups(self.total());
        let division = divide_exact(&groups, self.total()).expect("one algorithm needs no workspace");
        let sum = |group: usize, value: &dyn Fn(&Alternative) -> f64| -> String {
            let terms = groups[group].iter().enumerate();
            terms.map(|(index, choice)| format!(" + {:.17} x{group}_{index}\n", value(choice))).collect()
        };
        let all = |value: &dyn Fn(&Alternative) -> f64| -> String {
            (0..groups.len()).map(|group| sum(group, value)).collect()
        };
        let mut text =
            format!("\\ optimum {:.12} ms\nMinimize\n time:\n{}", division.time_ms, all(&|a| a.time_ms));
        text += &format!(
            "Subject To\n total:\n{} <= {}\n",
            all(&|a| a.workspace.as_mib()),
            self.total().as_mib()
        );
        for group in 0..groups.len() {
            text += &format!(" kernel{group}:\n{} = 1\n", sum(group, &|_| 1.0));
        }
        text += "Binary\n";
        for (group, choices) in groups.iter().enumerate() {
            text.extend((0..choices.len()).map(|index| format!(" x{group}_{index}\n")));
        }
        text + "End\n"
    }
}

fn main() -> std::io::Result<()> {
    use BatchSizePolicy::{All, PowerOfTwo};
    let cases = [
        Case::new("AlexNet", alexnet(256), PowerOfTwo, 101),
        Case::new("ResNet-50", resnet50(32), PowerOfTwo, 101),
        Case::new("AlexNet", alexnet(256), All, 21),
        Case::new("AlexNet", alexnet(1024), All, 5),
        Case::new("ResNet-50", resnet50(256), PowerOfTwo, 51),
    ];
    let mut arguments = std::env::args().skip_while(|argument| argument != "--write-lp").skip(1);
    if let Some(folder) = arguments.next() {
        std::fs::create_dir_all(&folder)?;
        let write =
            |case: &Case| std::fs::write(format!("{folder}/{}.lp", case.name()), case.linear_program());
        return cases.iter().try_for_each(write);
    }
    println!("Planning, ms: WR at 64 MiB, WS and WD at 8 MiB per kernel in total");
    println!("net                      kernels        WR        WS        WD");
    cases.iter().for_each(Case::report_planning);
    println!(
        "\nDivision alone, ms: our exact method and microlp (once); bound and greedy against the optimum"
    );
    println!("net                      binaries     exact   microlp    ratio   lower bound      greedy");
    cases[..2].iter().for_each(Case::report_division);
    Ok(())
}
