//! Nets that are laid out and wait to be run.

use super::{Execution, reduce::Reduction, slab::Slab};
use crate::net::{Net, RunLayout};
use crate::{error::Result, group::Group, planning::ScheduleRecord};
use cudnn_layers::update::StepState;
use memory::{Action, ArenaLayout, MemoryReport};
use planner::Plan;
use tensor::{Arena, Setting};

/// Nets that share an arena, under the plans of their convolutions. Nothing is allocated before its size can be shown.
pub struct NetRun {
    pub(super) nets: Vec<Net>,
    pub(crate) plans: Vec<Plan>,
    /// What they do under a policy for memory, unless that is to keep everything.
    pub(crate) schedules: Option<ScheduleRecord>,
    pub(super) layout: RunLayout,
    /// Whether there is room for a solver's history.
    pub(crate) updates: bool,
    pub(super) group: Group,
}

impl NetRun {
    /// Installs the plan of each net and lays them out; with room for a solver's history if there are `updates`.
    ///
    /// # Errors
    /// A plan that lacks a kernel, or was made for another net or device.
    ///
    /// # Panics
    /// If there is no net, or not one plan for each.
    pub fn lay_out(mut nets: Vec<Net>, plans: Vec<Plan>, updates: bool) -> Result<Self> {
        assert!(!nets.is_empty(), "there is a net to run");
        assert_eq!(nets.len(), plans.len(), "each net has a plan");
        for (net, plan) in nets.iter_mut().zip(&plans) {
            net.install(plan, true)?;
        }
        let layout = RunLayout::new(&nets.iter().collect::<Vec<_>>(), updates);
        Ok(Self { nets, plans, updates, schedules: None, layout, group: Group::default() })
    }

    /// The same with other schedules than to keep everything on the device.
    ///
    /// # Errors
    /// Actions that cannot be iterations of these nets.
    pub fn scheduled(self, record: ScheduleRecord) -> Result<Self> {
        let nets: Vec<&Net> = self.nets.iter().collect();
        let outlines: Vec<_> = nets.iter().map(|net| net.outline(self.updates)).collect();
        let schedules = record.schedules(&outlines).map_err(|message| nets[0].error(message))?;
        let layout = RunLayout::of(&nets, ArenaLayout::new(&outlines, schedules));
        Ok(Self { layout, schedules: Some(record), ..self })
    }

    /// The same as one of several ranks, which add up their gradients.
    pub fn in_group(self, group: Group) -> Self {
        Self { group, ..self }
    }

    /// The memory that it will take.
    pub fn memory(&self) -> &MemoryReport {
        &self.layout.report
    }

    /// What net number `net` does in an iteration, in order of launch.
    pub fn actions(&self, net: usize) -> &[Action] {
        &self.layout.nets[net].places.schedule.actions
    }

    /// Its nets; of a training first the one that is trained, then those that test.
    pub fn nets(&self) -> &[Net] {
        &self.nets
    }

    /// Allocates the arena and gives the parameters their first values.
    ///
    /// # Errors
    /// The device has not that much memory left.
    pub fn start(self, seed: u64) -> Result<Execution> {
        let Self { mut nets, plans, layout, group, .. } = self;
        let device = nets[0].device().clone();
        let arena = Arena::among(group.share().ranks, &device, layout.bytes())?;
        let slab_bytes = layout.report.nets.iter().map(|net| net.slab.0 as usize).max();
        let slab = Slab::new(&device, slab_bytes.unwrap_or(0))?;
        nets.iter_mut().for_each(|net| net.filled.fill(false));
        let mut running = Execution {
            recordings: Vec::new(),
            reduction: Reduction::new(&device, group, &arena)?,
            number: Setting::new(&device)?,
            rates: Setting::new(&device)?,
            state: Arena::on(&device, StepState::SPACE.bytes())?,
            device,
            nets,
            plans,
            layout,
            slab,
            arena,
        };
        running.initialize(seed)?;
        Ok(running)
    }
}
