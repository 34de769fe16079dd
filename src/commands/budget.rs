//! Plans for a budget of device memory: every kernel may have what is free at its own step, and under a policy for
//! memory feature maps leave the device.

use super::origin::Origin;
use crate::{Error, Result, progress};
use figures::{BudgetReport, ScheduleReport};
use memory::policy::{BelowFloor, MemoryPolicy};
use memory::{Action, ArenaLayout, Outline, Room};
use planner::{Bytes, ConvOp, Explanation, Fronts, Kernel, Plan, PlanOptions};
use trainer::Net;

/// A budget, and what it leaves to the kernels of a net.
pub(super) struct Budget<'k> {
    bytes: Bytes,
    room: Room,
    kernels: &'k [Kernel],
}

impl<'k> Budget<'k> {
    /// For net number `net` of `nets`, which share an arena.
    pub(super) fn new(bytes: Bytes, nets: &[Outline], net: usize, kernels: &'k [Kernel]) -> Self {
        Self { bytes, room: Room::new(nets, net, kernels), kernels }
    }

    /// The most that is left to any of them.
    pub(super) fn limit(&self) -> Bytes {
        let free = (0..self.kernels.len()).map(|kernel| self.room.free(kernel, self.bytes));
        free.max().unwrap_or_default()
    }

    /// The plan, and what it is compared with.
    pub(super) fn plan(&self, origin: &mut Origin, options: &PlanOptions) -> Result<(Plan, BudgetReport)> {
        let fronts = self.fronts(origin, options)?;
        let (smallest, kernel) = self.room.smallest_budget(&fronts);
        if self.bytes < smallest {
            let kernel = kernel.map_or_else(|| "blobs and parameters".to_owned(), Kernel::to_string);
            return Err(too_small(self.bytes, smallest, &kernel));
        }
        let limits = self.room.limits(&fronts, self.bytes);
        let mut plan = origin.plan(self.kernels, Some(&limits), options)?;
        // Only behind the last buffer what is free grows with the budget, byte by byte.
        let enough = self.room.enough_budget(&fronts);
        for (index, planned) in plan.kernels.iter_mut().enumerate() {
            if let Explanation::LacksWorkspace { configuration, lacking, .. } = &mut planned.explanation {
                let needed = self.room.budget(index, configuration.workspace());
                *lacking = needed.min(enough).saturating_sub(self.bytes);
            }
        }
        // Wherever buffers lie: by that a plan is known when it is to be used again.
        plan.options.limit = self.limit();
        let report = BudgetReport::new(self.bytes, &self.room, &fronts, &plan);
        Ok((plan, report))
    }

    /// The budget in which everything stays, and every kernel is the fastest.
    pub(super) fn enough(&self, origin: &Origin, options: &PlanOptions) -> Result<Bytes> {
        Ok(self.room.enough_budget(&self.fronts(origin, options)?))
    }

    fn fronts(&self, origin: &Origin, options: &PlanOptions) -> Result<Fronts> {
        let fronts = Fronts::new(self.kernels, &origin.planning.table, options);
        fronts.map_err(|error| origin.explain(error.into()))
    }
}

/// A budget of device memory that no plan keeps: below the `smallest`, which `what` sets.
pub(super) fn too_small(budget: Bytes, smallest: Bytes, what: &str) -> Error {
    let (budget, smallest) = (budget.exact(), smallest.exact());
    Error::Refused(format!(
        "--device-memory {budget} is too small: the smallest budget with a plan is {smallest}, set by {what}"
    ))
}

/// A policy for memory, and the budget that it is to keep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Goal {
    pub(super) policy: MemoryPolicy,
    pub(super) budget: Bytes,
}

impl Goal {
    /// The plan and actions of net number `net` of `nets`, which share an arena, and what becomes of its feature maps.
    pub(super) fn plan(
        self,
        origin: &mut Origin,
        (nets, net): (&mut Vec<Net>, usize),
        kernels: &[Kernel],
        options: &PlanOptions,
    ) -> Result<(Plan, Vec<Action>, ScheduleReport)> {
        let Self { policy, budget } = self;
        let _bar = progress::one_step("planning", "what stays on the device is sought");
        let rates = origin.rates();
        let costs = origin.planning.costs(nets.remove(net), kernels, options, rates);
        let (costs, subject) = costs.map_err(|error| origin.explain(error))?;
        nets.insert(net, subject);
        let updates = nets[0].is_training();
        let outlines: Vec<Outline> = nets.iter().map(|net| net.outline(updates)).collect();
        let (outline, base) = (&outlines[net], ArenaLayout::base(&outlines));
        let below = |below: BelowFloor| match below.lacks {
            Bytes::ZERO => too_small(budget, base + below.floor, &format!("layer '{}'", below.node)),
            lacks => Error::Refused(format!(
                "--memory-policy {policy} wants {lacks} more of the host's memory than the {} that may be page-locked",
                costs.host
            )),
        };
        let within = budget.saturating_sub(base);
        let planned = policy.plan(outline, &costs, within, nets[net].classifier()).map_err(below)?;
        let limit = |kernel: &Kernel| {
            let node = outline.nodes.iter().position(|node| node.name == kernel.name);
            planned.limits[node.expect("its layer")][usize::from(kernel.id.op != ConvOp::Forward)]
        };
        let limits: Vec<Bytes> = kernels.iter().map(limit).collect();
        let plan = origin.plan(kernels, Some(&limits), options)?;
        let mut report = ScheduleReport::new(policy.to_string(), [budget, base], outline, &planned);
        report.unlimited_ms = costs.unlimited_ms(outline);
        if !origin.planning.measures_layers() {
            let [memory, copies] = [rates.memory, costs.bytes_per_ms[0]].map(|rate| rate / 1e6);
            report.estimate = Some(format!(
                "estimated, as there is no device to measure layers and copies on: {memory:.0} GB/s for passes without \
                 kernels, {copies:.0} GB/s for copies each way"
            ));
        }
        Ok((plan, planned.actions, report))
    }
}
