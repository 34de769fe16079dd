//! Measure a kernel on this machine, then plan it under rising limits: more workspace, fewer micro-batches, less time.
//!
//! `cargo run --release --example 04_wr_on_a_kernel`

use microbatch::cudnn_layers::conv::{ProfileOptions, profiler};
use microbatch::planner::{
    Bytes, ConvOp, ConvShape, CostTable, DeviceHeader, Dtype, Fronts, Kernel, KernelId, Layout, Math,
    PlanOptions, WorkspacePolicy, plan, profile,
};
use microbatch::tensor::{Cpu, Device};
use std::error::Error;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::Cpu(Cpu::new(2));
    let shape = ConvShape { c: 16, h: 20, w: 20, k: 24, r: 5, s: 5, pad: [2, 2], ..ConvShape::default() };
    let (op, dtype, math, layout) = (ConvOp::Forward, Dtype::F32, Math::Fp32, Layout::Nchw);
    let id = KernelId { op, shape, dtype, math, layout };
    let kernels = [Kernel { name: "conv".to_owned(), id, mini_batch: 16 }];

    // Every algorithm at 1, 2, 4, 8 and 16 samples. A table serves every limit, so it is measured once.
    let mut table = CostTable::new(DeviceHeader::default());
    let mut profiler = profiler(&device, ProfileOptions::on(&device));
    profile(&mut table, &kernels, &PlanOptions::default(), profiler.as_mut(), |_| ())?;

    let mut last_ms = f64::INFINITY;
    // Something is always needed; from there, twice as much each time.
    let fronts = Fronts::new(&kernels, &table, &PlanOptions::default())?;
    let (smallest, _) = fronts.smallest_limit(WorkspacePolicy::Wr).ok_or("there is a kernel")?;
    for doubled in 0..8 {
        let options = PlanOptions { limit: Bytes(smallest.0 << doubled), ..PlanOptions::default() };
        let plan = plan(&kernels, &table, &options)?;
        let planned = &plan.kernels[0];
        println!("{:>8}  {:>7.3} ms  {}", options.limit.to_string(), plan.time_ms, planned.configuration);
        println!("{:>21}{}", "", planned.explanation);
        assert!(planned.workspace <= options.limit && plan.time_ms <= last_ms);
        last_ms = plan.time_ms;
    }
    Ok(())
}
