//! The plans of a training, kept with its snapshots: plans follow measurements, so a new plan may choose other
//! algorithms, which round differently. A training that keeps its plan resumes bit-exactly.

use super::identity;
use crate::snapshot::{PLANS, Tensors};
use crate::{error::Result, net::Net};
use cudnn_layers::conv::{Runner, geometry};
use memory::{Action, Outline, Schedule, policy::MemoryPolicy};
use planner::{Bytes, DeviceHeader, Kernel, Plan, PlanOptions, PlannedKernel, WdSolver, WorkspacePolicy};
use serde::{Deserialize, Serialize};
use tensor::Device;

/// The plans of a training's nets, and the device whose measurements they follow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanRecord {
    /// The device.
    pub device: DeviceHeader,
    /// The training net's plan, then those of the test nets.
    pub plans: Vec<Plan>,
    /// What the nets do under a policy for memory, if that is not to keep everything on the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedules: Option<ScheduleRecord>,
}

/// What nets that share an arena do in an iteration under a policy for memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleRecord {
    /// The policy.
    pub policy: MemoryPolicy,
    /// The budget of device memory that it was asked to keep.
    pub budget: Bytes,
    /// The actions of each net.
    pub actions: Vec<Vec<Action>>,
}

impl ScheduleRecord {
    /// The schedules of nets with these outlines.
    ///
    /// # Errors
    /// What is wrong with the actions, which a file may have brought, as the end of a sentence.
    pub fn schedules(&self, outlines: &[Outline]) -> Result<Vec<Schedule>, String> {
        if self.actions.len() != outlines.len() {
            return Err("its actions are those of other nets".to_owned());
        }
        let schedule = |(outline, actions): (&Outline, &Vec<Action>)| {
            let is_pass = |action: &&Action| {
                matches!(action, Action::Forward(_) | Action::Backward(_) | Action::Update(..))
            };
            if !actions.iter().filter(is_pass).eq(&Schedule::plain(outline).actions) {
                return Err("its actions are those of another net".to_owned());
            }
            Schedule::new(outline, actions.clone()).map_err(|error| error.to_string())
        };
        outlines.iter().zip(&self.actions).map(schedule).collect()
    }
}

/// Where the plan of the net that is trained comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PlanOrigin {
    /// From measurements; there was no other.
    #[default]
    Measured,
    /// From a snapshot: the training resumes bit-exactly.
    Recorded,
    /// From measurements, because the snapshot's plan does not fit; why, as the end of a sentence.
    Refused(String),
}

impl PlanRecord {
    /// The plan of each of `nets` that fits it, its device and `options`, and what that means for the first.
    pub fn plans(
        &self,
        nets: &mut [Net],
        options: impl Fn(usize) -> PlanOptions,
    ) -> (Vec<Option<Plan>>, PlanOrigin) {
        let mut origin = PlanOrigin::Recorded;
        let plan = |(index, net): (usize, &mut Net)| {
            let plan = self.plan(index, &net.kernels(), &identity(net.device()), &options(index));
            let plan = plan.and_then(|plan| check_algorithms(net.device(), plan));
            if let (0, Err(reason)) = (index, &plan) {
                origin = PlanOrigin::Refused(reason.clone());
            }
            plan.ok().cloned()
        };
        (nets.iter_mut().enumerate().map(plan).collect(), origin)
    }

    /// The plan of net number `net`, if it is good for `kernels` on `device` and was made with `options`.
    ///
    /// # Errors
    /// What differs, as the end of a sentence.
    pub fn plan(
        &self,
        net: usize,
        kernels: &[Kernel],
        device: &DeviceHeader,
        options: &PlanOptions,
    ) -> Result<&Plan, String> {
        let identity = |device: &DeviceHeader| {
            format!("{}, {} threads, {}", device.name, device.threads, device.library_version)
        };
        let (then, now) = (identity(&self.device), identity(device));
        if then != now {
            return Err(format!("it was made on another device ({then}; this is {now})"));
        }
        let plan = self.plans.get(net).ok_or("it has no such net")?;
        if !plan.kernels.iter().map(|planned| &planned.kernel).eq(kernels) {
            return Err("it is for other convolutions or another mini-batch".to_owned());
        }
        if plan.options != *options {
            let (then, now) = (describe(&plan.options), describe(options));
            return Err(format!("it was made with {then}, not with {now}"));
        }
        Ok(plan)
    }

    /// The plans that were saved beside a solver state's `history`, if any were: there are snapshots without.
    ///
    /// # Errors
    /// [`NetError::Refused`](crate::NetError::Refused) for plans that no planner made.
    pub fn recorded(history: &Tensors) -> Result<Option<Self>> {
        history.json(PLANS, "its plans are", Self::check)
    }

    /// Verifies what a plan that the planner has made cannot be without, as a file may say anything.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.plans.iter().try_for_each(|plan| {
            let PlanOptions { workspace_policy, limit, .. } = plan.options;
            if workspace_policy == WorkspacePolicy::Wd && plan.workspace_total() > limit {
                return Err(format!("its workspaces are more than {limit} together"));
            }
            plan.kernels.iter().try_for_each(check_kernel)
        })
    }
}

/// The plan, if it can run. A processor's algorithms are those of this program, of which another build may have others; a
/// GPU's are those of its libraries, whose versions are part of the device.
fn check_algorithms<'p>(device: &Device, plan: &'p Plan) -> Result<&'p Plan, String> {
    let is_ours = matches!(device, Device::Cpu(_));
    for PlannedKernel { kernel, configuration, .. } in plan.kernels.iter().filter(|_| is_ours) {
        let geometry = geometry(&kernel.id.shape, kernel.mini_batch);
        let runner = Runner::new(device, kernel.id.op, geometry, configuration);
        runner.map_err(|error| format!("{kernel} cannot run under it ({error})"))?;
    }
    Ok(plan)
}

/// A configuration that covers the mini-batch, and its workspace.
fn check_kernel(planned: &PlannedKernel) -> Result<(), String> {
    let PlannedKernel { kernel, configuration, workspace, .. } = planned;
    let error = |what: &str| Err(format!("{what} of {kernel} cannot be"));
    let has_empty = configuration.runs().iter().any(|run| run.count == 0 || run.micro.micro_batch == 0);
    if configuration.mini_batch() != kernel.mini_batch || has_empty {
        return error("the micro-batches");
    }
    if *workspace != configuration.workspace() {
        return error("the workspace");
    }
    Ok(())
}

/// What a user may have asked for, as in `powerOfTwo, wr 64 MiB`.
fn describe(options: &PlanOptions) -> String {
    let PlanOptions { batch_size_policy, workspace_policy, limit, wd_solver, .. } = options;
    let ilp = if *wd_solver == WdSolver::Ilp { " by ILP" } else { "" };
    format!("{batch_size_policy}, {workspace_policy} {limit}{ilp}{}", options.restrictions())
}
