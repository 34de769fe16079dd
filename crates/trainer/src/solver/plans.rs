//! The plans that a training's nets run under.

use super::TrainOptions;
use crate::{
    error::NetError,
    net::Net,
    planning::{self, Planning},
};
use planner::{Plan, Progress};

/// Where the plan of the training net comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanOrigin {
    /// From measurements just made; there was no other.
    Measured,
    /// From a snapshot: the training can go on from that snapshot bit by bit.
    Recorded,
    /// From measurements, because the snapshot's plan does not fit; why, as the end of a sentence.
    Refused(String),
}

/// Installs a plan in each net: the recorded one, or where that does not fit one that follows measurements. Returns the
/// plans, where the first comes from, and what went wrong with the database of measurements.
pub(super) fn install(
    nets: &mut [&mut Net],
    options: &TrainOptions,
    progress: impl FnMut(Progress<'_>),
) -> Result<(Vec<Plan>, PlanOrigin, Vec<String>), NetError> {
    let device = planning::identity(&options.device);
    let recorded = |index: usize, net: &mut Net| {
        let record = options.recorded.as_ref()?;
        Some(record.plan(index, &net.kernels(), &device, &options.plan).cloned())
    };
    let recorded: Vec<_> = nets.iter_mut().enumerate().map(|(index, net)| recorded(index, net)).collect();
    let origin = match recorded.first() {
        Some(Some(Ok(_))) => PlanOrigin::Recorded,
        Some(Some(Err(reason))) => PlanOrigin::Refused(reason.clone()),
        Some(None) | None => PlanOrigin::Measured,
    };
    let recorded: Vec<Option<Plan>> = recorded.into_iter().map(|plan| plan?.ok()).collect();
    let mut planning = Planning::new(&options.device, options.profile)
        .with_records(options.records.clone())
        .with_stop(options.stop.clone());
    let unplanned = nets.iter_mut().zip(&recorded).filter(|(_, plan)| plan.is_none());
    let mut unplanned: Vec<&mut Net> = unplanned.map(|(net, _)| &mut **net).collect();
    if !unplanned.is_empty() {
        planning.profile_for(&mut unplanned, &options.plan, progress)?;
    }
    let install = |(net, plan): (&mut &mut Net, Option<Plan>)| match plan {
        Some(plan) => net.install(&plan).map(|()| plan),
        None => planning.install(net, &options.plan),
    };
    let plans = nets.iter_mut().zip(recorded).map(install).collect::<Result<_, _>>()?;
    let unstored = planning.take_unstored().map(|error| error.to_string());
    Ok((plans, origin, planning.warnings().iter().cloned().chain(unstored).collect()))
}
