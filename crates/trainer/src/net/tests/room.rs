//! What is promised to kernels under a budget of memory is what the layout gives them.

use super::{DATA, conv, head, layer};
use crate::net::{Net, RunLayout};
use crate::testing::build;
use cudnn_layers::conv::{Convolver, candidates};
use memory::Room;
use planner::{
    Bytes, CostTable, DeviceHeader, Fronts, Kernel, Measurement, Plan, PlanOptions, Profiler, ProfilerError,
    Request,
};
use std::sync::Arc;
use tensor::{Cpu, Device};

/// All algorithms, each the faster the more workspace it needs.
struct Greedy;

impl Profiler for Greedy {
    fn measure(&mut self, request: &Request) -> Result<Vec<Measurement>, ProfilerError> {
        let candidates = candidates(&Device::Cpu(Cpu::new(2)), &request.kernel, request.micro_batch)?;
        let row = |convolver: &Arc<dyn Convolver>| {
            let workspace = convolver.facts().workspace.0 as f64;
            convolver.measurement(1.0 + f64::from(request.micro_batch) / (1.0 + workspace), 0.0)
        };
        Ok(candidates.iter().map(row).collect())
    }
}

fn net() -> (Net, Vec<Kernel>, CostTable) {
    let text = [
        DATA.to_owned(),
        conv("conv1", "data"),
        layer("ReLU", "relu1", "conv1", "conv1"),
        layer("LRN", "norm", "conv1", "norm"),
        conv("conv2", "norm"),
        conv("conv3", "conv2"),
        head("conv3"),
    ]
    .concat();
    let mut net = build(&text).unwrap();
    let kernels = net.kernels();
    let mut table = CostTable::new(DeviceHeader::default());
    planner::profile(&mut table, &kernels, &PlanOptions::default(), &mut Greedy, |_| ()).unwrap();
    (net, kernels, table)
}

fn plan_in(room: &Room, kernels: &[Kernel], table: &CostTable, budget: Bytes) -> Plan {
    let fronts = Fronts::new(kernels, table, &PlanOptions::default()).unwrap();
    fronts.plan_within(&room.limits(&fronts, budget), &PlanOptions::default()).unwrap()
}

#[test]
fn a_plan_for_a_budget_fits_it_and_more_memory_is_never_slower() {
    let (mut net, kernels, table) = net();
    for with_history in [false, true] {
        let room = Room::new(&[net.outline(with_history)], 0, &kernels);
        let fronts = Fronts::new(&kernels, &table, &PlanOptions::default()).unwrap();
        let needs = |fastest: bool| {
            let needed = fronts.iter().enumerate().map(|(kernel, (_, set))| {
                let points: Vec<_> = set.iter().collect();
                let chosen = if fastest { points[points.len() - 1] } else { points[0] };
                room.budget(kernel, chosen.workspace())
            });
            needed.max().unwrap()
        };
        // Other places may do with less than those beside which each workspace has a hole.
        let (smallest, enough) = (needs(false), room.enough_budget(&fronts));
        assert!(room.least() <= smallest && smallest < enough && enough <= needs(true));
        let unlimited_ms: f64 = fronts.iter().map(|(_, set)| set.iter().last().unwrap().time_ms()).sum();
        let (mut last_ms, mut suffered) = (f64::INFINITY, false);
        let step = (enough.0 - smallest.0) / 37;
        for budget in
            (0..=40).map(|index| Bytes(smallest.0 + index * step)).chain([Bytes(enough.0 - 64), enough])
        {
            let plan = plan_in(&room, &kernels, &table, budget);
            net.install(&plan, true).unwrap();
            let arena = RunLayout::new(&[&net], with_history).report.arena;
            assert!(arena <= budget, "{arena} is more than {budget}");
            if budget < enough {
                assert!(plan.time_ms <= last_ms + 1e-9 || budget.0 == enough.0 - 64);
                last_ms = plan.time_ms;
                suffered = plan.time_ms > unlimited_ms + 1e-9;
            } else {
                assert!((plan.time_ms - unlimited_ms).abs() < 1e-9);
            }
        }
        assert!(suffered, "just below what is enough, time suffers");
        let below: Vec<Bytes> =
            (0..kernels.len()).map(|kernel| room.limit(kernel, Bytes(smallest.0 - 64))).collect();
        assert!(fronts.plan_within(&below, &PlanOptions::default()).is_err() || smallest == room.least());
        // Whatever is installed, the room is the same.
        assert_eq!(Room::new(&[net.outline(with_history)], 0, &kernels).least(), room.least());
    }
}

#[test]
fn a_limit_and_its_budget_belong_together() {
    let (net, kernels, _) = net();
    let room = Room::new(&[net.outline(true)], 0, &kernels);
    for kernel in 0..kernels.len() {
        for workspace in [0, 1, 64, 1000, 100_000, 10_000_000].map(Bytes) {
            let budget = room.budget(kernel, workspace);
            assert!(room.limit(kernel, budget) >= workspace);
            let less = Bytes(budget.0 - 64);
            assert!(room.limit(kernel, less) < workspace || budget == room.least());
        }
        assert_eq!(room.limit(kernel, Bytes(0)), Bytes(0));
    }
}
