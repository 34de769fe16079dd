//! How long planning takes once everything is measured: `cargo bench --bench planner`. With `-- --write-lp DIR` it
//! writes the ILPs of WD instead, for `peers/glpk`; with `-- --ilps` it times those of the recorded nets alone, as
//! `crates/figures/src/study/solved.txt` keeps them.
//!
//! The tables are synthetic but of true shape: AlexNet's 5 convolutions (15 kernels) at mini-batch 256 and
//! 1024, and ResNet-50's 53 (159 kernels, of which 60 distinct) at 32 and 256, each with five algorithms
//! whose time and workspace are affine in the micro-batch size with 2 % noise. Every number is the median of
//! many runs.

mod ilps;

use planner::*;
use std::{hint::black_box, io::Read, time::Instant};

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
            shared_ms: 0.0,
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
    fn groups(&self, total: Bytes) -> Vec<Vec<Cost>> {
        let group = |kernel: &Kernel| -> Vec<Cost> {
            let sizes = self.policy.sizes(kernel.mini_batch).into_iter();
            let micros = sizes.flat_map(|size| self.table.measurements(&kernel.id, size).unwrap_or_default());
            let set = desirable_set(micros, kernel.mini_batch, total);
            set.iter().map(Configuration::cost).collect()
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
        report_division(&self.name(), &self.groups(self.total()), self.total(), self.repeats, true);
    }

    /// The same ILP in CPLEX's LP format, with our answer as a comment.
    fn linear_program(&self) -> String {
        let groups = self.groups(self.total());
        let division = divide_exact(&groups, self.total()).expect("one algorithm needs no workspace");
        let sum = |group: usize, value: &dyn Fn(&Cost) -> f64| -> String {
            let terms = groups[group].iter().enumerate();
            terms.map(|(index, choice)| format!(" + {:.17} x{group}_{index}\n", value(choice))).collect()
        };
        let all = |value: &dyn Fn(&Cost) -> f64| -> String {
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

/// Times the exact method, and the ILP if `with_ilp`, and compares their answers with each other and with the bound.
fn report_division(name: &str, groups: &[Vec<Cost>], total: Bytes, repeats: usize, with_ilp: bool) {
    let divide = || divide_exact(groups, total).expect("one algorithm needs no workspace");
    let exact_ms = median_ms(repeats, || drop(black_box(divide())));
    let Division { time_ms, lower_bound_ms, .. } = divide();
    let binaries: usize = groups.iter().map(Vec::len).sum();
    let bound = 100.0 * (lower_bound_ms / time_ms - 1.0);
    print!("{name:<24} {binaries:>8} {exact_ms:>9.3} {bound:>+12.4} %");
    if with_ilp {
        let start = Instant::now();
        let ilp = divide_ilp(groups, total).expect("microlp solves it");
        println!(" {:>9.1}", start.elapsed().as_secs_f64() * 1e3);
        assert!((time_ms - ilp.time_ms).abs() <= 1e-7 * time_ms, "{time_ms} ms is not {} ms", ilp.time_ms);
    } else {
        println!();
    }
}

/// Totals from a thousandth of what all kernels could use up to all of it, in equal ratios.
fn totals(groups: &[Vec<Cost>], count: u32) -> impl Iterator<Item = Bytes> + use<> {
    let most: Bytes =
        groups.iter().map(|group| group.iter().map(|a| a.workspace).max().unwrap_or_default()).sum();
    (0..count).map(move |index| {
        let exponent = f64::from(index) / f64::from(count - 1) - 1.0;
        Bytes((most.0 as f64 * 1000f64.powf(exponent)) as u64)
    })
}

/// Times the exact method on every net at many totals, each the better of two runs: what it takes depends on the
/// instance much more than on its size.
fn report_spread(name: &str, nets: impl Iterator<Item = Vec<Vec<Cost>>>, totals_each: u32) {
    let mut times = Vec::new();
    for groups in nets {
        for total in totals(&groups, totals_each) {
            let time = || {
                let start = Instant::now();
                let found = black_box(divide_exact(&groups, total)).is_some();
                found.then(|| start.elapsed().as_secs_f64() * 1e3)
            };
            times.extend(time().zip(time()).map(|(once, again)| once.min(again)));
        }
    }
    times.sort_by(f64::total_cmp);
    let mean_ms = times.iter().sum::<f64>() / times.len() as f64;
    let (median_ms, worst_ms) = (times[times.len() / 2], times[times.len() - 1]);
    println!("{name:<46} {:>9} {mean_ms:>9.3} {median_ms:>9.3} {worst_ms:>9.3}", times.len());
}

/// The kernels of a recorded table in this arithmetic, each as often as `repeats` says, as nets repeat their blocks:
/// identical kernels are what branch and bound likes least.
fn recorded_groups(table: &CostTable, math: Math, policy: BatchSizePolicy, repeats: usize) -> Vec<Vec<Cost>> {
    let mut ids: Vec<KernelId> = table.iter().map(|(id, ..)| *id).filter(|id| id.math == math).collect();
    ids.dedup();
    let mini_batch = table.iter().map(|(_, size, _)| size).max().unwrap_or(1);
    let group = |id: &KernelId| -> Vec<Cost> {
        let sizes = policy.sizes(mini_batch).into_iter();
        let micros = sizes.flat_map(|size| table.measurements(id, size).unwrap_or_default());
        let set = desirable_set(micros, mini_batch, Bytes::MAX);
        let alternative =
            |c: &Configuration| Cost { time_ms: c.time_ms(), workspace: c.workspace().aligned() };
        set.iter().map(alternative).collect()
    };
    let distinct: Vec<Vec<Cost>> = ids.iter().map(group).collect();
    distinct.iter().cycle().take(repeats * distinct.len()).cloned().collect()
}

/// The tables of `data/profiles`, by name.
fn recorded_tables() -> std::io::Result<Vec<(String, CostTable)>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/data/profiles/nvidia-h200");
    let mut tables = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut text = String::new();
        match name.rsplit('.').next() {
            Some("jsonl") => text = std::fs::read_to_string(&path)?,
            Some("gz") => {
                flate2::read::GzDecoder::new(std::fs::File::open(&path)?).read_to_string(&mut text)?;
            }
            _ => continue,
        }
        let table = CostTable::from_json_lines(&text).map_err(std::io::Error::other)?;
        tables.push((name.split('.').next().unwrap_or_default().to_owned(), table));
    }
    tables.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(tables)
}

fn report_spreads(cases: &[Case]) -> std::io::Result<()> {
    println!(
        "\nThe exact method over many instances, each at totals from 1/1000 of what it could use to all, ms"
    );
    println!("{:<46} {:>9} {:>9} {:>9} {:>9}", "", "instances", "mean", "median", "worst");
    for case in cases {
        report_spread(&case.name(), std::iter::once(case.groups(Bytes::MAX)), 200);
    }
    for (kernels, size) in [(15, 70), (159, 30)] {
        let nets = (0..100).map(|net| synthetic_groups(net * kernels, kernels, size));
        report_spread(&format!("synthetic {kernels} x {size}"), nets, 5);
    }
    for (name, table) in recorded_tables()? {
        let policy = if name.contains("all") { BatchSizePolicy::All } else { BatchSizePolicy::PowerOfTwo };
        for (math, repeats) in [(Math::Fp32, 1), (Math::Fp32, 3), (Math::Tf32, 1), (Math::Tf32, 3)] {
            let groups = recorded_groups(&table, math, policy, repeats);
            if !groups.is_empty() {
                let name = format!("{name} {math}, {repeats} of each kernel");
                report_spread(&name, std::iter::once(groups), 200);
            }
        }
    }
    Ok(())
}

/// Desirable sets of `kernels` kernels with `size` configurations each: up to 5 to 512 MiB, for which the time
/// falls convexly to a fifth, with 2 % noise. `first` is the number of the first kernel.
fn synthetic_groups(first: usize, kernels: usize, size: usize) -> Vec<Vec<Cost>> {
    let unit = |ordinal: usize| noise(ordinal as u64, 1.0) - 0.5;
    let group = |kernel: usize| -> Vec<Cost> {
        let seed = 1000 * (kernel + 1);
        let slowest_ms = 0.05 * 160f64.powf(unit(seed));
        let most_bytes = 5.0 * 100f64.powf(unit(seed + 1)) * f64::from(1 << 20);
        let alternative = |index: usize| {
            let part = index as f64 / (size - 1) as f64;
            let time_ms = slowest_ms / (1.0 + 4.0 * part) * noise((seed + 2 + index) as u64, 0.02);
            Cost { time_ms, workspace: Bytes((part * most_bytes) as u64 / 256 * 256) }
        };
        (0..size).map(alternative).collect()
    };
    (first..first + kernels).map(group).collect()
}

/// Desirable set of one kernel at 1024 under `all` with 16 algorithms, of which `sharing` share half of what a call
/// costs whatever its size.
fn report_front(sharing: usize) {
    let algorithms: Vec<String> = (0..16).map(|index| format!("ALGORITHM_{index}")).collect();
    let row = |(index, name): (usize, &String), micro_batch: u32| {
        let samples = f64::from(micro_batch);
        let rank = index as f64;
        let call_ms = 0.01 * (1.0 + rank);
        Measurement {
            algorithm: name.as_str().into(),
            micro_batch,
            time_ms: (call_ms + samples * 0.02 / (1.0 + 0.3 * rank))
                * noise(u64::from(micro_batch) * 16 + index as u64, 0.02),
            shared_ms: if (5..5 + sharing).contains(&index) { 0.5 * call_ms } else { 0.0 },
            workspace: Bytes((rank * 300_000.0 * samples) as u64),
            max_error: 1e-6,
            deterministic: true,
        }
    };
    let micros: Vec<Measurement> = BatchSizePolicy::All
        .sizes(1024)
        .into_iter()
        .flat_map(|size| algorithms.iter().enumerate().map(move |algorithm| row(algorithm, size)))
        .collect();
    let set = || desirable_set(&micros, 1024, Bytes::MAX);
    let front_ms = median_ms(5, || drop(black_box(set())));
    println!("{sharing} of 16 algorithms share: {front_ms:.1} ms, {} points", set().len());
}

/// What the adaptive policy measures and loses against `all`, and how long its search takes.
fn report_adaptive(case: &Case) {
    let Case { kernels, table, .. } = case;
    for (workspace_policy, limit) in
        [(WorkspacePolicy::Wr, Bytes::mib(64)), (WorkspacePolicy::Wd, case.total())]
    {
        let options = |batch_size_policy| PlanOptions {
            batch_size_policy,
            workspace_policy,
            limit,
            ..PlanOptions::default()
        };
        let adaptive = options(BatchSizePolicy::Adaptive);
        let mut device = Estimator::new(table);
        let start = Instant::now();
        let mut measured = CostTable::default();
        profile(&mut measured, kernels, &adaptive, &mut device, |_| ()).expect("the table has every size");
        let search_ms = start.elapsed().as_secs_f64() * 1e3;
        let coverage = coverage(&measured, kernels, &adaptive);
        let all_ms = plan(kernels, table, &options(BatchSizePolicy::All)).expect("GEMM fits").time_ms;
        println!(
            "{:<24} {workspace_policy:>6} {:>9.1} % {:>+9.3} % {:>+9.3} % {search_ms:>10.0}",
            case.name(),
            100.0 * coverage.share(),
            100.0 * (coverage.time_ms.expect("GEMM fits") / all_ms - 1.0),
            100.0 * coverage.gap().expect("GEMM fits"),
        );
    }
}

/// Curves of whole nets.
fn report_curves(case: &Case) {
    let options = PlanOptions { batch_size_policy: case.policy, ..PlanOptions::default() };
    let fronts =
        || Fronts::new(&case.kernels, &case.table, &options).expect("one algorithm needs no workspace");
    let fronts_ms = median_ms(case.repeats.min(11), || drop(black_box(fronts())));
    let fronts = fronts();
    let curve = |policy| {
        let ms = median_ms(case.repeats.min(11), || drop(black_box(fronts.curve(policy))));
        format!("{ms:>9.3} ms {:>6} steps", fronts.curve(policy).points().len())
    };
    println!(
        "{:<24} {fronts_ms:>9.1} {} {}",
        case.name(),
        curve(WorkspacePolicy::Wr),
        curve(WorkspacePolicy::Wd)
    );
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    use BatchSizePolicy::{All, PowerOfTwo};
    if std::env::args().any(|argument| argument == "--ilps") {
        return ilps::report();
    }
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
        return Ok(cases.iter().try_for_each(write)?);
    }
    println!("Planning, ms: WR at 64 MiB, WS and WD at 8 MiB per kernel in total");
    println!("net                      kernels        WR        WS        WD");
    cases.iter().for_each(Case::report_planning);
    println!(
        "\nDivision alone, ms: our exact method, its lower bound against the optimum, and the paper's ILP by microlp"
    );
    println!("net                      binaries     exact   lower bound   microlp");
    cases[..2].iter().for_each(Case::report_division);
    for (kernels, size) in [(15, 70), (159, 30), (480, 70)] {
        let groups = synthetic_groups(0, kernels, size);
        let total = Bytes::mib(8 * kernels as u64);
        let with_ilp = kernels < 480;
        report_division(&format!("synthetic {kernels} x {size}"), &groups, total, 101, with_ilp);
    }
    report_spreads(&cases[..2])?;
    println!("\nDesirable set of one kernel at 1024 with all sizes");
    [0, 2, 6].into_iter().for_each(report_front);
    println!("\nCurves time(limit), ms: all desirable sets, then of WR and WD");
    cases.iter().for_each(report_curves);
    println!("\nadaptive, against all: measured, slower by, slower at most by its own bound; search, ms");
    cases.iter().filter(|case| case.policy == All).for_each(report_adaptive);
    Ok(())
}
