//! The cliff: with one byte of workspace less than it wants, a convolution takes several times as long. Micro-batches
//! climb it.
//!
//! `cargo run --example 02_the_cliff`

use microbatch::planner::{
    BatchSizePolicy, Bytes, ConvOp, ConvShape, CostTable, Dtype, Kernel, KernelId, Layout, Math, PlanOptions,
    plan,
};
use std::{error::Error, fs};

/// What cuDNN's algorithms took on a GPU, one JSON line for each kernel and size.
const TABLE: &str = "/data/profiles/nvidia-h200/alexnet-256-powerOfTwo.jsonl";

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let table =
        CostTable::from_json_lines(&fs::read_to_string(env!("CARGO_MANIFEST_DIR").to_owned() + TABLE)?)?;
    // AlexNet's second convolution: 192 filters of 5x5 over 64 channels of 27x27.
    let shape = ConvShape { c: 64, h: 27, w: 27, k: 192, r: 5, s: 5, pad: [2, 2], ..ConvShape::default() };
    let (op, dtype, math, layout) = (ConvOp::Forward, Dtype::F32, Math::Fp32, Layout::Nchw);
    let id = KernelId { op, shape, dtype, math, layout };
    let kernel = [Kernel { name: "conv2".to_owned(), id, mini_batch: 256 }];

    let rows = table.measurements(&id, 256).ok_or("conv2 was recorded")?;
    let fastest = rows.iter().min_by(|a, b| a.time_ms.total_cmp(&b.time_ms)).ok_or("with algorithms")?;
    println!(
        "The fastest for 256 samples is {}, which wants {}.\n",
        fastest.algorithm,
        fastest.workspace.exact()
    );

    let within = |limit: Bytes, batch_size_policy: BatchSizePolicy| {
        let options = PlanOptions { batch_size_policy, limit, ..PlanOptions::default() };
        plan(&kernel, &table, &options).map(|plan| (plan.time_ms, plan.kernels[0].configuration.to_string()))
    };
    let less = Bytes(fastest.workspace.0 - 1);
    let enough = within(fastest.workspace, BatchSizePolicy::Undivided)?;
    let fallen = within(less, BatchSizePolicy::Undivided)?;
    let climbed = within(less, BatchSizePolicy::PowerOfTwo)?;
    for (what, (ms, how)) in
        [("just enough", &enough), ("one byte less", &fallen), ("in micro-batches", &climbed)]
    {
        println!("{what:<18} {ms:.3} ms: {how}");
    }
    assert!(fallen.0 > 4.0 * enough.0 && climbed.0 < 1.3 * enough.0);
    Ok(())
}
