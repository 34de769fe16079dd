//! Cost models and random numbers for the tests.

use planner::*;
use proptest::prelude::*;

/// A reproducible stream of random numbers (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In 0..bound.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// In 0..1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// An algorithm whose time and workspace are affine in the number of samples.
#[derive(Clone, Debug)]
pub(crate) struct Affine {
    pub(crate) name: &'static str,
    pub(crate) call_ms: f64,
    pub(crate) sample_ms: f64,
    pub(crate) call_bytes: u64,
    pub(crate) sample_bytes: u64,
}

impl Affine {
    pub(crate) fn at(&self, micro_batch: u32) -> Measurement {
        let samples = f64::from(micro_batch);
        Measurement {
            algorithm: self.name.into(),
            micro_batch,
            time_ms: self.call_ms + self.sample_ms * samples,
            shared_ms: 0.0,
            workspace: Bytes(self.call_bytes + self.sample_bytes * u64::from(micro_batch)),
            max_error: 1e-6,
            deterministic: true,
        }
    }
}

/// FFT_TILING needs 1 MiB a sample, IMPLICIT_GEMM nothing and 50 % more time a sample.
pub(crate) fn fft_and_gemm() -> Vec<Affine> {
    let fft =
        Affine { name: "FFT_TILING", call_ms: 1.0, sample_ms: 0.1, call_bytes: 0, sample_bytes: 1 << 20 };
    let gemm =
        Affine { name: "IMPLICIT_GEMM", call_ms: 0.0, sample_ms: 0.15, call_bytes: 0, sample_bytes: 0 };
    vec![fft, gemm]
}

/// A kernel that differs from others in its number of output channels.
pub(crate) fn kernel(k: u32, mini_batch: u32) -> Kernel {
    let shape = ConvShape { c: 64, h: 27, w: 27, k, r: 5, s: 5, pad: [2, 2], ..ConvShape::default() };
    let id =
        KernelId { op: ConvOp::Forward, shape, dtype: Dtype::F32, math: Math::Fp32, layout: Layout::Nchw };
    Kernel { name: format!("conv{k}"), id, mini_batch }
}

/// A table of kernels that each have their own algorithms.
pub(crate) fn table(kernels: &[(Kernel, Vec<Affine>)], policy: BatchSizePolicy) -> CostTable {
    let mut table = CostTable::default();
    for (kernel, algorithms) in kernels {
        for size in policy.sizes(kernel.mini_batch) {
            let rows = algorithms.iter().map(|algorithm| algorithm.at(size)).collect();
            table.insert(kernel.id, size, rows).unwrap();
        }
    }
    table
}

/// Random micro-configurations of sizes up to `mini_batch`, on a coarse grid so that ties are common. Some
/// sizes have none; size 1 always has one without workspace if `feasible`.
pub(crate) fn random_micros(random: &mut Random, mini_batch: u32, feasible: bool) -> Vec<Measurement> {
    let mut micros = Vec::new();
    for micro_batch in 1..=mini_batch {
        for name in ["A", "B", "C"].into_iter().take(random.below(4) as usize) {
            let time_ms = (1 + random.below(4 * u64::from(micro_batch))) as f64 * 0.25;
            let workspace = Bytes(random.below(8) * u64::from(micro_batch) * 512);
            let (max_error, deterministic) = (1e-6, true);
            micros.push(Measurement {
                algorithm: name.into(),
                micro_batch,
                time_ms,
                shared_ms: 0.0,
                workspace,
                max_error,
                deterministic,
            });
        }
    }
    if feasible {
        let gemm = Affine { name: "GEMM", call_ms: 1.5, sample_ms: 0.0, call_bytes: 0, sample_bytes: 0 };
        micros.push(gemm.at(1));
    }
    micros
}

/// A table with these measurements, and empty groups for the sizes up to `mini_batch` that have none.
pub(crate) fn insert_micros(table: &mut CostTable, kernel: &Kernel, micros: &[Measurement]) {
    for size in 1..=kernel.mini_batch {
        let rows = micros.iter().filter(|micro| micro.micro_batch == size).cloned().collect();
        table.insert(kernel.id, size, rows).unwrap();
    }
}

pub(crate) fn options(
    batch_size_policy: BatchSizePolicy,
    workspace_policy: WorkspacePolicy,
    limit: Bytes,
) -> PlanOptions {
    PlanOptions { batch_size_policy, workspace_policy, limit, ..PlanOptions::default() }
}

/// Equal but for the order of a sum.
pub(crate) fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-9)
}

/// Kernels with random measurements, one without workspace among them; some kernels are identical. Of every other net's
/// algorithms one shares work among micro-batches.
pub(crate) fn random_net(seed: u64, count: usize, mini_batch: u32) -> (Vec<Kernel>, CostTable) {
    let mut random = Random(seed);
    let mut table = CostTable::default();
    let kernels: Vec<Kernel> = (0..count).map(|_| kernel(1 + random.below(8) as u32, mini_batch)).collect();
    for kernel in &kernels {
        if table.measurements(&kernel.id, 1).is_none() {
            let mut micros = random_micros(&mut random, mini_batch, true);
            let sharing = micros.iter_mut().filter(|micro| seed % 2 == 1 && micro.algorithm.as_str() == "B");
            // The least time there is.
            sharing.for_each(|micro| micro.shared_ms = 0.25);
            insert_micros(&mut table, kernel, &micros);
        }
    }
    (kernels, table)
}

pub(crate) fn workspace_policy() -> impl Strategy<Value = WorkspacePolicy> {
    prop_oneof![Just(WorkspacePolicy::Wr), Just(WorkspacePolicy::Wd), Just(WorkspacePolicy::Ws)]
}

/// Every micro-batch of a configuration in running order with the offset of its first sample.
pub(crate) fn micro_batches(configuration: &Configuration) -> impl Iterator<Item = (u32, &Measurement)> {
    let each = configuration.runs().iter();
    let each = each.flat_map(|run| std::iter::repeat_n(&run.micro, run.count as usize));
    each.scan(0, |next, micro| {
        let offset = *next;
        *next += micro.micro_batch;
        Some((offset, micro))
    })
}

/// Stands in for the device that a table was recorded on.
pub(crate) struct Recorded(pub(crate) CostTable);

impl Profiler for Recorded {
    fn measure(&mut self, request: &Request) -> Result<Vec<Measurement>, ProfilerError> {
        let found = self.0.measurements(&request.kernel, request.micro_batch);
        let rows = found.ok_or_else(|| format!("the table of {} does not have it", self.0.device.name))?;
        Ok(rows.iter().filter(|row| request.asks_for(row.algorithm.as_str())).cloned().collect())
    }
}
