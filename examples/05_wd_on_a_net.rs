//! One total for all kernels of a net: equal shares, divided as well as can be, or an arena that all use in turn.
//!
//! `cargo run --example 05_wd_on_a_net`

use microbatch::planner::{Bytes, CostTable, Kernel, KernelId, Math, PlanOptions, WorkspacePolicy, plan};
use std::{error::Error, fs};

const TABLE: &str = "/data/profiles/nvidia-h200/alexnet-256-powerOfTwo.jsonl";

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let table =
        CostTable::from_json_lines(&fs::read_to_string(env!("CARGO_MANIFEST_DIR").to_owned() + TABLE)?)?;
    // The kernels that were recorded are those of AlexNet: no net is needed to plan for them.
    let mut ids: Vec<KernelId> =
        table.iter().map(|(id, ..)| *id).filter(|id| id.math == Math::Fp32).collect();
    ids.dedup();
    let kernels: Vec<Kernel> =
        ids.into_iter().map(|id| Kernel { name: id.shape.to_string(), id, mini_batch: 256 }).collect();

    let total = Bytes::mib(120);
    let share = Bytes(total.0 / kernels.len() as u64);
    let mut times = Vec::new();
    for (way, workspace_policy, limit) in [
        ("WR: a share for each kernel", WorkspacePolicy::Wr, share),
        ("WD: divided", WorkspacePolicy::Wd, total),
        ("WS: one arena for all", WorkspacePolicy::Ws, total),
    ] {
        let plan =
            plan(&kernels, &table, &PlanOptions { workspace_policy, limit, ..PlanOptions::default() })?;
        println!("{way:<28} {:>6.2} ms in {}", plan.time_ms, plan.workspace_total());
        if let Some(division) = plan.division {
            let optimum = division.lower_bound_ms;
            println!("{:<28} no division is faster than {optimum:.2} ms", "");
            for planned in plan.kernels.iter().filter(|planned| planned.workspace > Bytes::mib(1)) {
                println!("{:<30} {:>9} for {}", "", planned.workspace.to_string(), planned.kernel.name);
            }
        }
        times.push(plan.time_ms);
    }
    // Kernels run one after the other, so memory that only one of them may use is memory wasted.
    assert!(times[0] > times[1] && times[1] > times[2]);
    Ok(())
}
