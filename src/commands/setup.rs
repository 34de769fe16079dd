//! What the subcommands that run a net have in common.

use super::{
    budget::{self, Budget},
    origin::Origin,
};
use crate::{
    Console, Error,
    args::{PlanningArgs, RunArgs},
    progress,
    report::{BudgetReport, GpuMemory, Header, MemoryEstimate, NetReport, PlanReport},
};
use planner::{Bytes, Kernel, Plan, PlanOptions};
use std::path::Path;
use tensor::Device;
use trainer::{
    Net, NetRun, PlanOrigin,
    host::{self, check_memory},
    layers::{BuildOptions, SyntheticData},
    net::RunLayout,
    planning::{self, PlanRecord, Verified},
    prototxt::{Warning, collapsed},
    spec::{LayerKind, LayerSpec, NetSpec, Phase},
};

/// Defaults that were chosen, one sentence each, for the header.
#[derive(Clone, Debug, Default)]
pub struct Notes(pub Vec<String>);

/// Nets that are built and wait for their plans: the one way from there to a run.
pub(super) struct Session {
    /// What was resident before they were built.
    pub(super) at_start: Option<Bytes>,
    /// How they are planned.
    pub(super) options: PlanOptions,
    /// The budget of the whole run, if there is one.
    device_memory: Option<Bytes>,
    /// Whether every kernel is verified before it runs.
    verifies: bool,
    /// Whether parameters are updated, which takes room for their history.
    updates: bool,
    pub(super) origin: Origin,
    /// The first is the one that the report is about.
    pub(super) nets: Vec<Net>,
}

/// Which net, and what is done with it.
pub(super) struct Request<'a> {
    pub(super) command: &'static str,
    pub(super) model: &'a Path,
    pub(super) phase: Phase,
    pub(super) batch: Option<usize>,
    pub(super) planning: &'a PlanningArgs,
    pub(super) run: &'a RunArgs,
    pub(super) seed: u64,
    pub(super) notes: &'a Notes,
}

impl Session {
    /// Reads and builds the net that `request` asks for, and prints the header.
    pub(super) fn open(request: &Request<'_>, console: &mut Console) -> Result<(Self, Header), Error> {
        let at_start = host::resident();
        let is_run = request.command != "plan";
        let origin = match is_run {
            true => Origin::device(request.run, &request.planning.measuring)?,
            false => Origin::any(request.run, request.planning)?,
        };
        let mut spec = NetSpec::load(request.model)?.for_phase(request.phase);
        if let Some(samples) = request.batch {
            spec.set_mini_batch(samples);
        }
        let scaled_to = scaled_to(origin.on_gpu(), spec.mini_batch().unwrap_or(1));
        let options = request.planning.options(scaled_to, None)?;
        let limit = request.planning.limit_note(&options, scaled_to);
        let synthetic = match is_run {
            true => synthetic(request.run, &spec)?,
            false => Some(stand_in(request.run, &spec)?),
        };
        let build = BuildOptions { device: origin.device.clone(), seed: request.seed, synthetic };
        let mut net = Net::new(&spec, &build, request.phase == Phase::Train)?;
        let kernels = net.kernels().len();
        let header = Header {
            command: request.command,
            device: origin.report(),
            recorded: origin.recorded.clone(),
            net: NetReport::new(&spec, &net, kernels, synthetic),
            warnings: warn(console, &spec.warnings),
            notes: request.notes.0.iter().cloned().chain(limit).collect(),
        };
        let updates = request.command != "test";
        let session = Self::new(origin, (at_start, options), request.planning, vec![net], updates)?;
        console.text(&header)?;
        Ok((session, header))
    }

    /// Nets that are built already; refused if they need more memory than there is even without any workspace.
    pub(super) fn new(
        origin: Origin,
        (at_start, options): (Option<Bytes>, PlanOptions),
        planning: &PlanningArgs,
        nets: Vec<Net>,
        updates: bool,
    ) -> Result<Self, Error> {
        let (device_memory, verifies) = (planning.device_memory, planning.verify);
        if origin.recorded.is_none() {
            let layout = RunLayout::new(&nets.iter().collect::<Vec<_>>(), updates);
            check_memory(&origin.device, [layout.report.arena, layout.report.host], at_start)?;
        }
        Ok(Self { at_start, options, device_memory, verifies, updates, origin, nets })
    }

    /// The kernels of every net.
    fn kernels(&mut self) -> Vec<Vec<Kernel>> {
        let math = self.origin.math;
        self.nets.iter_mut().map(|net| in_math(net.kernels(), math)).collect()
    }

    /// What the budget, if there is one, leaves to the kernels of every net.
    fn budgets<'k>(&self, kernels: &'k [Vec<Kernel>]) -> Option<Vec<Budget<'k>>> {
        let bytes = self.device_memory?;
        let outlines: Vec<_> = self.nets.iter().map(|net| net.outline(self.updates)).collect();
        let budget = |(net, kernels): (usize, &'k Vec<Kernel>)| Budget::new(bytes, &outlines, net, kernels);
        Some(kernels.iter().enumerate().map(budget).collect())
    }

    /// The limit of every net's plan, as it stands in the plan: the most that the budget leaves to any kernel, if there is one.
    fn limits(&self, kernels: &[Vec<Kernel>]) -> Vec<Bytes> {
        match self.budgets(kernels) {
            Some(budgets) => budgets.iter().map(Budget::largest).collect(),
            None => vec![self.options.limit; kernels.len()],
        }
    }

    /// The plans of `record` that are good for the nets, and what that means for the first.
    pub(super) fn recorded(&mut self, record: &PlanRecord) -> (Vec<Option<Plan>>, PlanOrigin) {
        let kernels = self.kernels();
        let limits = self.limits(&kernels);
        let options = &self.options;
        record.plans(&mut self.nets, |net| PlanOptions { limit: limits[net], ..options.clone() })
    }

    /// Measures what plans need of the nets that have none in `recorded`, and prints how much that was.
    pub(super) fn profile(&mut self, recorded: &[Option<Plan>], console: &mut Console) -> Result<(), Error> {
        let all = self.kernels();
        let planned = |net: usize| recorded.get(net).is_some_and(Option::is_some);
        let needed: Vec<Kernel> =
            (0..all.len()).filter(|&net| !planned(net)).flat_map(|net| all[net].clone()).collect();
        if needed.is_empty() && !all.iter().all(Vec::is_empty) {
            return Ok(());
        }
        let limit = self.limits(&all).into_iter().max().unwrap_or(self.options.limit);
        self.origin.profile(&needed, &PlanOptions { limit, ..self.options.clone() }, console)
    }

    /// A plan for every net: the recorded one, if there is one. With a budget of memory also says what that allows the first.
    pub(super) fn plan(
        &mut self,
        recorded: Vec<Option<Plan>>,
    ) -> Result<(Vec<Plan>, Option<BudgetReport>), Error> {
        let kernels = self.kernels();
        let budgets = self.budgets(&kernels);
        let mut recorded = recorded.into_iter();
        let (mut plans, mut report) = (Vec::new(), None);
        for (net, kernels) in kernels.iter().enumerate() {
            let plan = match (recorded.next().flatten(), &budgets) {
                (Some(plan), _) => plan,
                (None, None) => self.origin.plan(kernels, None, &self.options)?,
                (None, Some(budgets)) => {
                    let (plan, of_net) = budgets[net].plan(&mut self.origin, &self.options)?;
                    report = report.or(Some(of_net).filter(|_| net == 0));
                    plan
                }
            };
            plans.push(plan);
        }
        Ok((plans, report))
    }

    /// Verifies the kernels if asked to, lays the nets out under their plans, and prints plan and memory; refuses what there
    /// is no memory for. The nets go to the run.
    pub(super) fn lay_out(
        &mut self,
        plans: Vec<Plan>,
        console: &mut Console,
    ) -> Result<(NetRun, MemoryEstimate), Error> {
        let device = &self.origin.device;
        if self.verifies {
            verify(device, &plans, console)?;
        }
        let run = NetRun::lay_out(std::mem::take(&mut self.nets), plans, self.updates)?;
        let report = run.memory();
        if let Some(budget) = self.device_memory {
            budget::check(run.nets()[0].name(), report.arena, budget)?;
        }
        check_memory(device, [report.arena, report.host], self.at_start)?;
        host::release_freed();
        let resident = [self.at_start, host::resident(), host::peak_resident()];
        let memory = MemoryEstimate::new(report, resident, gpu_memory(device));
        Ok((run, memory))
    }
}

/// Nothing on a processor, or if the GPU does not answer.
fn gpu_memory(device: &Device) -> Option<GpuMemory> {
    let Device::Cuda(cuda) = device else { return None };
    let [free, _] = cuda.memory().ok()?;
    Some(GpuMemory { free: Bytes(free), scratch: Bytes(cuda.own_bytes()) })
}

/// Verifies the kernels of `plans`, and prints how far the worst is from the definition.
pub(super) fn verify(device: &Device, plans: &[Plan], console: &mut Console) -> Result<(), Error> {
    let bar = progress::bar(0, "verifying");
    let verified = planning::verify(device, plans, |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let Verified { kernels, different, worst } = verified?;
    match worst {
        Some((distance, name)) => console.text(format!(
            "  verified    {kernels} kernels, {different} of them different, replacing and adding, against exact sums over \
             their outputs: relative L2 distance about {distance:.1e} at most ({name})"
        )),
        None => console.text("  verified    no kernels"),
    }
}

/// Prints the policies and sums of a plan, the memory of its run, and what a budget of memory allows, if there is one.
pub(super) fn announce(
    plan: &Plan,
    memory: &MemoryEstimate,
    budget: Option<&BudgetReport>,
    console: &mut Console,
) -> Result<PlanReport, Error> {
    let plan = PlanReport::new(plan, &[]);
    console.text(format!("  plan        {}", plan.policies()))?;
    if !plan.kernels.is_empty() {
        console.text(format!("              {}", plan.totals()))?;
    }
    console.text(format!("{memory}\n"))?;
    budget.map_or(Ok(()), |budget| console.text(format!("{budget}\n")))?;
    Ok(plan)
}

/// The same kernels with this arithmetic.
pub(super) fn in_math(mut kernels: Vec<Kernel>, math: planner::Math) -> Vec<Kernel> {
    kernels.iter_mut().for_each(|kernel| kernel.id.math = math);
    kernels
}

/// The mini-batch that the default limit follows: on a CPU, where it is smaller than the original's limit is meant for.
pub(super) fn scaled_to(on_gpu: bool, mini_batch: usize) -> Option<usize> {
    (!on_gpu).then_some(mini_batch)
}

/// Prints `warnings` on stderr, those alike in one line, and returns all of them for the JSON object.
pub(super) fn warn(console: &Console, warnings: &[Warning]) -> Vec<String> {
    collapsed(warnings).iter().for_each(|warning| console.warn(warning));
    warnings.iter().map(Warning::to_string).collect()
}

/// The synthetic images that `--synthetic` asks for; refused for a net without a data set that they could replace.
pub(super) fn synthetic(run: &RunArgs, spec: &NetSpec) -> Result<Option<SyntheticData>, Error> {
    let Some(shape) = run.synthetic else { return Ok(None) };
    let reads = |layer: &LayerSpec| matches!(layer.kind, LayerKind::Data(_) | LayerKind::ImageData(_));
    if !spec.layers.iter().any(reads) {
        let reason = format!("--synthetic has no effect: {} reads no data set", spec.file.display());
        return Err(Error::Usage(reason));
    }
    Ok(Some(SyntheticData { shape: shape.0, stand_in: false }))
}

/// What stands for the data of a net that is not run, and whose data is therefore not opened.
pub(super) fn stand_in(run: &RunArgs, spec: &NetSpec) -> Result<SyntheticData, Error> {
    Ok(synthetic(run, spec)?.unwrap_or(SyntheticData { shape: None, stand_in: true }))
}
