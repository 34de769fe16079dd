//! Reports of a kernel whose costs are known in closed form: what they say, as text and as JSON.

use figures::{BudgetReport, Comparison, ExplainReport, PlanReport, Ratio, study::plan_figure};
use memory::{Outline, OutlineNode, OutlineParam, Room};
use planner::{
    Algorithm, BatchSizePolicy, Bytes, ConvOp, ConvShape, CostTable, DeviceHeader, Dtype, Fronts, Kernel,
    KernelId, Layout, Math, Measurement, Plan, PlanOptions,
};
use std::slice;

/// FFT takes 1 ms and for each sample 1 ms and 1 MiB of workspace, GEMM 4 ms a sample and nothing.
fn table() -> (Kernel, CostTable) {
    let shape = ConvShape { c: 3, h: 9, w: 9, k: 4, r: 3, s: 3, ..ConvShape::default() };
    let (op, dtype, math, layout) = (ConvOp::Forward, Dtype::F32, Math::Fp32, Layout::Nchw);
    let kernel =
        Kernel { name: "conv1".to_owned(), id: KernelId { op, shape, dtype, math, layout }, mini_batch: 8 };
    let mut table = CostTable::new(DeviceHeader::default());
    for micro_batch in BatchSizePolicy::PowerOfTwo.sizes(8) {
        let row = |algorithm, start_ms: f64, ms: f64, mib| Measurement {
            algorithm: Algorithm::from(algorithm),
            micro_batch,
            time_ms: start_ms + ms * f64::from(micro_batch),
            shared_ms: 0.0,
            workspace: Bytes::mib(mib * u64::from(micro_batch)),
            max_error: 1e-6,
            deterministic: true,
        };
        table
            .insert(kernel.id, micro_batch, vec![row("FFT", 1.0, 1.0, 1), row("GEMM", 0.0, 4.0, 0)])
            .unwrap();
    }
    (kernel, table)
}

fn plan(limit: Bytes) -> (Plan, CostTable) {
    let (kernel, table) = table();
    let options = PlanOptions { limit, ..PlanOptions::default() };
    (planner::plan(&[kernel], &table, &options).unwrap(), table)
}

#[test]
fn a_plan_is_runs_and_numbers_for_machines_and_a_table_for_people() {
    let (plan, _) = plan(Bytes::mib(4));
    let mut report = PlanReport { prediction: true, ..PlanReport::new(&plan, &[12.0]) };
    let json = serde_json::to_value(&report).unwrap();
    let kernel = &json["kernels"][0];
    assert_eq!(
        (&kernel["kernel"]["name"], &kernel["kernel"]["id"]["op"]),
        (&"conv1".into(), &"Forward".into())
    );
    assert_eq!((&kernel["division"], &kernel["workspace"]), (&"2x4 FFT".into(), &(4 << 20).into()));
    let run = &kernel["configuration"][0];
    assert_eq!((&run["count"], &run["micro"]["micro_batch"]), (&2.into(), &4.into()));
    // Undivided there is only GEMM within 4 MiB: 32 ms.
    assert_eq!(
        (&kernel["planned_ms"], &kernel["measured_ms"], &kernel["gain"]),
        (&10.0.into(), &12.0.into(), &3.2.into())
    );
    assert_eq!((&json["options"]["limit"], &json["workspace_total"]), (&(4 << 20).into(), &(4 << 20).into()));
    let text = report.to_string();
    for part in [
        "powerOfTwo; WR, at most 4 MiB of workspace for each kernel",
        "conv1 Forward  2x4 FFT         10.000  12.000    +20.0 %      4 MiB        32.000  3.20x            1e-6",
        "total: predicted 10.0 ms, undivided 32.0 ms, gain 3.20x; workspace 4 MiB, shared by all kernels",
        "conv1 Forward  FFT at 8 is 1.11x faster but lacks 4 MiB",
    ] {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
    report.options.limit = Bytes((4 << 20) - 1);
    assert!(report.policies().contains("WR, at most 4 MiB (4194303 bytes) of"), "{}", report.policies());
}

#[test]
fn an_explanation_has_the_front_its_costs_and_what_was_refused() {
    let (plan, table) = plan(Bytes::mib(0));
    let report = ExplainReport::new(&plan, &table).unwrap();
    let kernel = &report.kernels[0];
    assert_eq!((kernel.chosen, kernel.front.len()), (Some(0), kernel.costs.points().len()));
    let json = serde_json::to_value(&report).unwrap();
    // One MiB buys FFT for single samples: 16 ms instead of 32.
    assert_eq!(json["kernels"][0]["costs"][1], serde_json::json!({ "time_ms": 16.0, "workspace": 1 << 20 }));
    assert_eq!(json["price_ms_per_mib"], 16.0);
    let text = report.to_string();
    for part in [
        "conv1 Forward: 3x9x9, 4 filters 3x3, mini-batch 8, up to 0 B of workspace",
        "FFT at 8 is 3.6x faster but lacks 8 MiB",
        "the smallest feasible limit is 0 B: no kernel needs workspace",
        "one more MiB would save at most 16.000 ms",
    ] {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
}

/// What is beside the kernel: 10 MiB that are always taken, and nothing else.
fn room(kernel: &Kernel) -> Room {
    let (name, bytes, nothing) = ("w".to_owned(), Bytes::mib(10), Bytes::ZERO);
    let param = OutlineParam { name, bytes, copy: nothing, trained: false, history: nothing };
    let node = OutlineNode { name: kernel.name.clone(), ..OutlineNode::default() };
    let outline = Outline { nodes: vec![node], params: vec![param], ..Outline::default() };
    Room::new(&[outline], 0, slice::from_ref(kernel))
}

#[test]
fn a_budget_says_what_it_takes_and_where_time_suffers() {
    let (kernel, table) = table();
    let options = PlanOptions::default();
    let room = room(&kernel);
    let fronts = Fronts::new(&[kernel], &table, &options).unwrap();
    let plan = fronts.plan_within(&[Bytes::mib(2)], &options).unwrap();
    let report = BudgetReport::new(Bytes::mib(12), &room, &fronts, &plan);
    assert_eq!(
        (report.arena, report.wd_total, report.largest_limit),
        (Bytes::mib(12), Bytes::mib(2), Bytes::mib(2))
    );
    assert_eq!((report.smallest_budget, report.enough_budget), (Bytes::mib(10), Bytes::mib(18)));
    let explained = ExplainReport::new(&plan, &table).unwrap().in_budget(&report);
    assert!(explained.to_string().contains("this plan's budget of device memory is here"), "{explained}");
}

#[test]
fn a_budget_of_a_net_without_kernels_has_no_gains() {
    let options = PlanOptions::default();
    let fronts = Fronts::new(&[], &CostTable::default(), &options).unwrap();
    let room = Room::new(&[Outline::default()], 0, &[]);
    let plan = fronts.plan_within(&[], &options).unwrap();
    let report = BudgetReport::new(Bytes::mib(1), &room, &fronts, &plan);
    let said = report.to_string();
    assert!(!said.contains("NaN") && !said.contains("-0"), "{said}");
    assert!(report.unlimited_time_ms.is_sign_positive());
}

#[test]
fn a_drawing_of_a_part_of_the_kernels_says_so() {
    let (mut plan, _) = plan(Bytes::mib(4));
    let title = |plan: &Plan| plan_figure(&PlanReport::new(plan, &[]), "a net", "a GPU").title;
    assert!(!title(&plan).contains("slowest"), "{}", title(&plan));
    plan.kernels = vec![plan.kernels[0].clone(); 25];
    assert!(title(&plan).ends_with("(the slowest 24 of 25 kernels)"), "{}", title(&plan));
}

#[test]
fn a_comparison_puts_two_runs_side_by_side() {
    let [undivided, chosen] =
        [0, 1].map(|mib| PlanReport::new(&plan(Bytes::mib(mib)).0, &[32.0 / f64::from(1 + 3 * mib as u32)]));
    let totals = vec![Ratio::new("forward", [32.0, 8.0]), Ratio::new("update", [0.0, 0.0])];
    let compared = Comparison::new([&undivided, &chosen], totals);
    assert_eq!((compared.kernels[0].speedup, compared.totals[1].speedup), (Some(4.0), None));
    assert!(compared.to_string().contains("conv1 Forward        32.000      8.000   4.00x"), "{compared}");
}
