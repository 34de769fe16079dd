//! What the subcommands that run a net have in common.

use super::batch::BatchSearch;
use super::budget::{Budget, Goal};
use super::inputs::{STAND_IN, in_math, ranks_note, refuse, synthetic, warn};
use super::origin::Origin;
use crate::args::{Batch, DEFAULT_SEED, PlanningArgs, RunArgs};
use crate::report::{Header, NetReport, Subject};
use crate::{Console, Error, Result, progress};
use figures::{BatchReport, BudgetReport, GpuMemory, MemoryEstimate, PlanReport, ScheduleReport};
use memory::{ArenaLayout, MemoryReport, Outline, Schedule, policy::MemoryPolicy};
use planner::{Bytes, Kernel, Plan, PlanOptions};
use tensor::Device;
use trainer::host::{self, check_memory};
use trainer::planning::{self, PlanRecord, ScheduleRecord, Verified};
use trainer::spec::{NetSpec, Phase};
use trainer::{Group, Net, NetRun, PlanOrigin, group::Launched, layers::BuildOptions};

/// Nets that are built and wait for their plans: the one way from there to a run.
pub(super) struct Session {
    /// What was resident before they were built.
    pub(super) at_start: Option<Bytes>,
    pub(super) options: PlanOptions,
    /// What the command line says of that, of memory and of verifying.
    pub(super) planning: PlanningArgs,
    pub(super) origin: Origin,
    /// The ranks that this run is one of.
    pub(super) group: Group,
    /// With `--batch max`, what mini-batches bring.
    pub(super) batches: Option<BatchReport>,
    /// The first is the one that the report is about.
    pub(super) nets: Vec<Net>,
}

/// How nets run, and what there is to say of it.
#[derive(Default)]
pub(super) struct Planned {
    pub(super) plans: Vec<Plan>,
    /// What they do, unless everything stays on the device.
    pub(super) schedules: Option<ScheduleRecord>,
    /// With a budget of memory in which everything stays, what that allows the first net.
    pub(super) budget: Option<BudgetReport>,
    /// Under a policy for memory, what becomes of the first net's feature maps.
    pub(super) schedule: Option<ScheduleReport>,
}

/// What a snapshot says of it, as far as that can be used again.
#[derive(Default)]
pub(super) struct Recorded {
    pub(super) plans: Vec<Option<Plan>>,
    schedules: Option<ScheduleRecord>,
}

/// What is done with a net.
pub(super) struct Request<'a> {
    pub(super) command: &'static str,
    pub(super) batch: Option<Batch>,
    pub(super) planning: &'a PlanningArgs,
    pub(super) run: &'a RunArgs,
    pub(super) seed: u64,
    pub(super) group: Group,
}

impl<'a> Request<'a> {
    /// The net alone, with its own mini-batch.
    pub(super) fn new(command: &'static str, planning: &'a PlanningArgs, run: &'a RunArgs) -> Self {
        let (seed, group) = (DEFAULT_SEED, Group::default());
        Self { command, batch: None, planning, run, seed, group }
    }
}

impl Session {
    /// Builds the net that `spec` describes, and prints the header.
    pub(super) fn open(
        request: &Request<'_>,
        mut spec: NetSpec,
        console: &mut Console,
    ) -> Result<(Self, Header)> {
        let is_training = spec.state.phase == Phase::Train;
        let is_useless = !is_training && request.planning.memory_policy.is_some();
        let untrained = "a net that is not trained: its feature maps wait for no backward pass";
        refuse([(is_useless, "--memory-policy")], untrained)?;
        let at_start = host::resident();
        let is_run = request.command != "plan";
        let mut origin = match is_run {
            true => Origin::device(request.run, &request.planning.measuring)?,
            false => Origin::any(request.run, request.planning)?,
        };
        let (chosen, mut notes) = request.run.chosen(request.batch.is_some(), origin.on_gpu());
        let batch = request.batch.or(chosen.map(Batch::Samples));
        if let Some(Batch::Samples(samples)) = batch {
            spec.set_mini_batch(samples);
        }
        let (args, ranks) = ((request.run, request.planning), (&request.group, None));
        notes.extend(origin.settle_layout(args, &spec, ranks)?);
        let is_sought = batch == Some(Batch::Largest);
        let batches = is_sought.then(|| batches(request, &spec, &mut origin)).transpose()?;
        batches.iter().for_each(|report| spec.set_mini_batch(report.largest));
        let options = request.planning.options(origin.on_gpu(), None)?;
        let synthetic = synthetic(request.run.synthetic, &spec)?.or((!is_run).then_some(STAND_IN));
        let build = BuildOptions { device: origin.device.clone(), seed: request.seed, synthetic };
        let mut net = Net::new(&spec, &build, is_training)?;
        notes.extend(ranks_note(request.group.share(), &net));
        let subject = Subject::Net(Box::new(NetReport::new(&spec, &mut net, synthetic)));
        let header = origin.header(request.command, subject, [warn(console, &spec.warnings), notes]);
        let (planning, group, nets) = (request.planning.clone(), request.group.clone(), vec![net]);
        let session = Self { at_start, options, planning, origin, group, batches, nets };
        session.check_memory()?;
        console.text(&header)?;
        session.batches.iter().try_for_each(|report| console.text(format!("\n{report}\n")))?;
        Ok((session, header))
    }

    /// Refuses nets that need more memory than there is even without any workspace.
    pub(super) fn check_memory(&self) -> Result<()> {
        // What does not stay on the device may fit all the same.
        if self.origin.recorded.is_some() || self.planning.device_memory.is_some() {
            return Ok(());
        }
        self.check_for(&ArenaLayout::plain(&self.outlines()).report)
    }

    /// Refuses a run for which there is no memory; rank 0 counts all replicas of its process.
    fn check_for(&self, MemoryReport { arena, host, .. }: &MemoryReport) -> Result<()> {
        // Each GPU has memory of its own.
        let replicas = if self.group.leads() && !self.origin.on_gpu() { self.replicas() } else { 1 };
        let of_all = [arena, host].map(|bytes| Bytes(bytes.0.saturating_mul(replicas)));
        Ok(check_memory(&self.origin.device, of_all, self.at_start)?)
    }

    /// The ranks of this process: those that a launcher has started have processes of their own.
    fn replicas(&self) -> u64 {
        let launched = Launched::find(|name| std::env::var(name).ok()).is_ok_and(|rank| rank.is_some());
        if launched { 1 } else { self.group.share().ranks as u64 }
    }

    pub(super) fn kernels(&mut self) -> Vec<Vec<Kernel>> {
        self.nets.iter_mut().map(|net| in_math(net.kernels(), self.origin.math)).collect()
    }

    /// What the memory of every net depends on: where parameters are updated, their history takes some, too.
    fn outlines(&self) -> Vec<Outline> {
        let updates = self.nets[0].is_training();
        self.nets.iter().map(|net| net.outline(updates)).collect()
    }

    /// What the budget, if there is one, leaves to the kernels of every net.
    fn budgets<'k>(&self, kernels: &'k [Vec<Kernel>]) -> Option<Vec<Budget<'k>>> {
        let (bytes, outlines) = (self.planning.device_memory?, self.outlines());
        let budget = |(net, kernels): (usize, &'k Vec<Kernel>)| Budget::new(bytes, &outlines, net, kernels);
        Some(kernels.iter().enumerate().map(budget).collect())
    }

    /// The limit of every net's plan, as it stands in the plan: with a budget the most that this leaves to any kernel.
    fn limits(&self, kernels: &[Vec<Kernel>]) -> Vec<Bytes> {
        match self.budgets(kernels) {
            Some(budgets) => budgets.iter().map(Budget::limit).collect(),
            None => vec![self.options.limit; kernels.len()],
        }
    }

    /// The plans of `record` that are good for the nets, and what that means for the first.
    pub(super) fn recorded(&mut self, record: &PlanRecord) -> (Recorded, PlanOrigin) {
        let schedules = match &record.schedules {
            Some(ScheduleRecord { policy, budget, .. })
                if self.planning.device_memory != Some(*budget)
                    || self.planning.memory_policy.is_some_and(|p| p != *policy) =>
            {
                Err(format!("it was made with --memory-policy {policy} for {budget} of device memory"))
            }
            Some(schedules) => schedules.schedules(&self.outlines()).map(|_| Some(schedules.clone())),
            None if self.planning.memory_policy.is_some_and(|policy| policy != MemoryPolicy::Keep) => {
                Err("it keeps everything on the device".to_owned())
            }
            None => Ok(None),
        };
        let schedules = match schedules {
            Ok(schedules) => schedules,
            Err(reason) => return (Recorded::default(), PlanOrigin::Refused(reason)),
        };
        let kernels = self.kernels();
        let mut limits = self.limits(&kernels);
        if schedules.is_some() {
            // They follow from the actions, which are recorded.
            limits.iter_mut().zip(&record.plans).for_each(|(limit, plan)| *limit = plan.options.limit);
        }
        let options = &self.options;
        let (plans, origin) =
            record.plans(&mut self.nets, |net| PlanOptions { limit: limits[net], ..options.clone() });
        (Recorded { plans, schedules }, origin)
    }

    /// Measures what plans need of nets that have none in `recorded`, and says how much that was. Rank 0 does.
    pub(super) fn profile(&mut self, recorded: &[Option<Plan>], console: &mut Console) -> Result<()> {
        if !self.group.leads() {
            return Ok(());
        }
        let all = self.kernels();
        let planned = |net: usize| recorded.get(net).is_some_and(Option::is_some);
        let needed: Vec<Kernel> =
            (0..all.len()).filter(|&net| !planned(net)).flat_map(|net| all[net].clone()).collect();
        if needed.is_empty() && !all.iter().all(Vec::is_empty) {
            return Ok(());
        }
        let limit = match (self.planning.memory_policy, self.limits(&all).into_iter().max()) {
            (None, Some(limit)) if limit > Bytes::ZERO => limit,
            // With what leaves the device, there is more to be had.
            _ => self.planning.device_memory.unwrap_or(self.options.limit),
        };
        self.origin.profile(&needed, &PlanOptions { limit, ..self.options.clone() }, console)
    }

    /// A plan for every net: the recorded one, if there is one; of several ranks that of the first.
    pub(super) fn plan(&mut self, recorded: Recorded) -> Result<Planned> {
        let (mut own, device) = (None, planning::identity(&self.origin.device));
        let record = self.group.clone().from_leader(|| {
            let Planned { plans, schedules, .. } = own.insert(self.own_plan(recorded)?);
            Ok::<_, Error>(PlanRecord { device, plans: plans.clone(), schedules: schedules.clone() })
        })?;
        match own {
            Some(planned) => Ok(planned),
            None => match self.recorded(&record) {
                (_, PlanOrigin::Refused(reason)) => {
                    Err(Error::Refused(format!("the plan of rank 0 cannot be used, as {reason}")))
                }
                (recorded, _) => self.own_plan(recorded),
            },
        }
    }

    fn own_plan(&mut self, recorded: Recorded) -> Result<Planned> {
        let kernels = self.kernels();
        let budgets = self.budgets(&kernels);
        let goal = self.goal(&recorded, budgets.as_deref())?;
        let (mut plans, mut planned) = (recorded.plans.into_iter(), Planned::default());
        let mut actions = Vec::new();
        for (net, kernels) in kernels.iter().enumerate() {
            let of_net = goal.filter(|_| self.nets[net].is_training());
            let known = recorded.schedules.as_ref().map(|schedules| schedules.actions[net].clone());
            let (plan, of_plan) = match (plans.next().flatten(), &budgets, of_net) {
                (Some(plan), ..) => (plan, known),
                (None, None, _) => (self.origin.plan(kernels, None, &self.options)?, None),
                (None, Some(_), Some(goal)) => {
                    let nets = (&mut self.nets, net);
                    let (plan, actions, of_net) =
                        goal.plan(&mut self.origin, nets, kernels, &self.options)?;
                    planned.schedule = planned.schedule.or(Some(of_net).filter(|_| net == 0));
                    (plan, Some(actions))
                }
                (None, Some(budgets), None) => {
                    let (plan, of_net) = budgets[net].plan(&mut self.origin, &self.options)?;
                    planned.budget = planned.budget.or(Some(of_net).filter(|_| net == 0));
                    (plan, None)
                }
            };
            planned.plans.push(plan);
            let plain = || Schedule::plain(&self.outlines()[net]).actions;
            actions.push(of_plan.unwrap_or_else(plain));
        }
        planned.schedules = goal.map(|Goal { policy, budget }| ScheduleRecord { policy, budget, actions });
        Ok(planned)
    }

    /// The policy for memory, and its budget: that of a snapshot, else what is asked for, else ours where not
    /// everything fits with the fastest kernels; nothing where everything stays on the device.
    fn goal(&self, recorded: &Recorded, budgets: Option<&[Budget<'_>]>) -> Result<Option<Goal>> {
        let (Some(budget), Some(budgets)) = (self.planning.device_memory, budgets) else { return Ok(None) };
        let is_planned = recorded.plans.first().is_some_and(Option::is_some);
        let known = recorded.schedules.as_ref().map(|record| record.policy).or(self.planning.memory_policy);
        let policy = match known {
            Some(policy) => policy,
            None if is_planned || !self.nets[0].is_training() => MemoryPolicy::Keep,
            None if budgets[0].enough(&self.origin, &self.options)? <= budget => MemoryPolicy::Keep,
            None => MemoryPolicy::Joint,
        };
        Ok((policy != MemoryPolicy::Keep).then_some(Goal { policy, budget }))
    }

    /// Verifies the kernels if asked to, lays the nets out under their plans, and prints plan and memory; refuses what
    /// there is no memory for. The nets go to the run.
    pub(super) fn lay_out(
        &mut self,
        Planned { plans, schedules, .. }: &Planned,
        console: &mut Console,
    ) -> Result<(NetRun, MemoryEstimate)> {
        let device = &self.origin.device;
        if self.planning.verify {
            verify(device, plans, console)?;
        }
        let updates = self.nets[0].is_training();
        let run = NetRun::lay_out(std::mem::take(&mut self.nets), plans.clone(), updates)?;
        let mut run = run.in_group(self.group.clone());
        if let Some(schedules) = schedules {
            run = run.scheduled(schedules.clone())?;
        }
        let report = run.memory();
        if let Some(budget) = self.planning.device_memory.filter(|&budget| report.arena > budget) {
            let (net, arena) = (run.nets()[0].name(), report.arena);
            return Err(Error::Refused(format!(
                "net '{net}': its arena takes {arena}, more than the {budget} that it was planned for"
            )));
        }
        self.check_for(report)?;
        host::release_freed();
        let resident = [self.at_start, host::resident(), host::peak_resident()];
        let gpu = match device {
            Device::Cuda(cuda) => cuda.memory().ok().map(|[free, _]| [free, cuda.own_bytes()].map(Bytes)),
            Device::Cpu(_) => None,
        };
        let gpu = gpu.map(|[free, scratch]| GpuMemory { free, scratch });
        let memory = MemoryEstimate::new(report, self.replicas(), resident, gpu);
        Ok((run, memory))
    }
}

/// Verifies the kernels of `plans`, and prints how far the worst is from the definition.
pub(super) fn verify(device: &Device, plans: &[Plan], console: &mut Console) -> Result<()> {
    let bar = progress::bar(0, "verifying");
    let verified = planning::verify(device, plans, |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    });
    drop(bar);
    let Verified { kernels, different, worst } = verified?;
    match worst {
        Some((distance, name)) => console.text(format!(
            "  verified    {kernels} kernels, {different} of them different, replacing and adding, against exact sums over \
             their outputs: relative L2 distance about {distance:.1e} at most ({name})"
        )),
        None => console.text("  verified    no kernels"),
    }
}

/// Prints the policies and sums of the first net's plan, the memory of its run, and what a budget allows.
pub(super) fn announce(
    Planned { plans, budget, schedule, .. }: &Planned,
    memory: &MemoryEstimate,
    console: &mut Console,
) -> Result<PlanReport> {
    let plan = PlanReport::new(&plans[0], &[]);
    console.text(format!("  plan        {}", plan.policies()))?;
    if !plan.kernels.is_empty() {
        console.text(format!("              {}", plan.totals()))?;
    }
    console.text(format!("{memory}\n"))?;
    budget.iter().try_for_each(|budget| console.text(format!("{budget}\n")))?;
    schedule.iter().try_for_each(|schedule| console.text(format!("{schedule}\n")))?;
    Ok(plan)
}

/// What mini-batches bring of the net that `request` asks for, within its budget.
fn batches(request: &Request<'_>, spec: &NetSpec, origin: &mut Origin) -> Result<BatchReport> {
    let needs = || usage!("--batch max needs --device-memory, the memory to fill");
    let budget = request.planning.device_memory.ok_or_else(needs)?;
    let policy = match spec.state.phase {
        Phase::Train => request.planning.memory_policy.unwrap_or(MemoryPolicy::Joint),
        Phase::Test => MemoryPolicy::Keep,
    };
    let synthetic = synthetic(request.run.synthetic, spec)?.or(Some(STAND_IN));
    let build = BuildOptions { device: origin.device.clone(), seed: request.seed, synthetic };
    let search = BatchSearch { spec: spec.clone(), build, goal: Goal { policy, budget } };
    let options = request.planning.options(origin.on_gpu(), None)?;
    search.report(origin, &PlanOptions { limit: budget, ..options })
}
