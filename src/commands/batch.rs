//! `--batch max`: the largest mini-batch that a budget of device memory holds, found by planning, not by running.

use super::budget::{Goal, too_small};
use super::inputs::in_math;
use super::origin::Origin;
use crate::{Error, Result};
use figures::{BatchPoint, BatchReport};
use memory::ArenaLayout;
use planner::{Bytes, Kernel, PlanOptions};
use std::collections::BTreeSet;
use trainer::planning::estimated_costs;
use trainer::spec::{NetSpec, Phase};
use trainer::{Net, NetError, layers::BuildOptions};

/// A net of any mini-batch, and the memory that it may take.
pub(super) struct BatchSearch {
    pub(super) spec: NetSpec,
    /// With something in the place of its data.
    pub(super) build: BuildOptions,
    pub(super) goal: Goal,
}

/// Most samples that `--batch` takes, too.
const MOST: usize = 1_000_000;

impl BatchSearch {
    fn net(&self, samples: usize) -> Result<Net, NetError> {
        let mut spec = self.spec.clone();
        spec.set_mini_batch(samples);
        Net::new(&spec, &self.build, spec.state.phase == Phase::Train)
    }

    /// The smallest budget that holds so many samples if no kernel has a workspace, and the layer that sets it.
    fn floor(&self, origin: &Origin, samples: usize) -> Result<(Bytes, String)> {
        let net = self.net(samples)?;
        let outline = net.outline(net.is_training());
        let costs = estimated_costs(&net, origin.rates());
        let floor = self.goal.policy.floor(&outline, &costs, net.classifier());
        Ok((ArenaLayout::base(std::slice::from_ref(&outline)) + floor.floor, floor.node))
    }

    /// The largest mini-batch that fits without workspaces.
    fn largest(&self, origin: &Origin) -> Result<usize> {
        let (budget, (one, layer)) = (self.goal.budget, self.floor(origin, 1)?);
        if one > budget {
            return Err(too_small(budget, one, &format!("layer '{layer}'")));
        }
        // Buffers grow with the samples: half of what is in doubt is settled by each try.
        let (mut fitting, mut too_many) = (1, MOST + 1);
        while too_many - fitting > 1 {
            let middle = fitting.midpoint(too_many);
            // What no memory holds does not fit either.
            match self.floor(origin, middle).is_ok_and(|(floor, _)| floor <= budget) {
                true => fitting = middle,
                false => too_many = middle,
            }
        }
        Ok(fitting)
    }

    /// What mini-batches up to the largest that fits bring, where kernels are measured, or can be.
    pub(super) fn report(&self, origin: &mut Origin, options: &PlanOptions) -> Result<BatchReport> {
        let (mut tried, mut largest, mut points) = (self.largest(origin)?, 0, Vec::new());
        let mut too_many = tried + 1;
        while largest < tried && tried < too_many {
            match self.point(origin, options, tried)? {
                Some(point) => (largest, points) = (tried, vec![point]),
                None => too_many = tried,
            }
            // Kernels want some workspace, too, but little beside what there is without.
            tried = if largest == 0 { tried - tried.div_ceil(50) } else { largest.midpoint(too_many) };
        }
        let sizes: BTreeSet<usize> = (1..8).map(|part| largest * part / 8).filter(|&size| size > 0).collect();
        for size in sizes {
            points.extend(self.point(origin, options, size)?);
        }
        points.sort_by_key(|point| point.mini_batch);
        let goal = (self.goal.policy.to_string(), self.goal.budget);
        let unrecorded = origin.recorded.is_some() && self.measured(origin, options, largest + 1)?.is_none();
        Ok(BatchReport::new(goal, (largest.max(1), unrecorded), points))
    }

    /// The net of so many samples and its kernels, which are measured; nothing if nothing is recorded of them.
    pub(super) fn measured(
        &self,
        origin: &mut Origin,
        options: &PlanOptions,
        mini_batch: usize,
    ) -> Result<Option<(Net, Vec<Kernel>)>> {
        let mut net = self.net(mini_batch)?;
        let kernels = in_math(net.kernels(), origin.math);
        match origin.planning.complete(&kernels, options, |_| ()) {
            Err(NetError::Profile(_)) if origin.recorded.is_some() => return Ok(None),
            measured => measured?,
        }
        Ok(Some((net, kernels)))
    }

    /// What `mini_batch` samples bring; nothing if they do not fit with workspaces, or nothing is recorded of them.
    fn point(
        &self,
        origin: &mut Origin,
        options: &PlanOptions,
        mini_batch: usize,
    ) -> Result<Option<BatchPoint>> {
        let Some((net, kernels)) = self.measured(origin, options, mini_batch)? else { return Ok(None) };
        match self.goal.plan(origin, (&mut vec![net], 0), &kernels, options) {
            Ok((_, _, schedule)) => Ok(Some(BatchPoint::new(mini_batch, schedule.planned_ms))),
            Err(Error::Refused(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
