//! What the tests of nets and solvers share.

use crate::net::{Net, NetLayout, RunLayout};
use crate::run::{MiniBatch, NetRun};
use crate::spec::{NetSpec, NetState};
use crate::{error::NetError, layers::BuildOptions};
use cudnn_layers::conv::{ProfileOptions, candidates, profiler};
use planner::{
    BatchSizePolicy, Bytes, CostTable, DeviceHeader, Dtype, KernelId, Measurement, Plan, PlanOptions,
    Profiler, ProfilerError, Request, WorkspacePolicy,
};
use std::path::{Path, PathBuf};
use std::{sync::OnceLock, time::Duration};
use tensor::{Arena, Cpu, Device, Element, Span, testing::COMPARABLE_ERROR};

/// The shortest measurements there are: tests never depend on what is fastest.
pub(crate) fn quick_profile() -> ProfileOptions {
    ProfileOptions {
        repeats: 1,
        at_least: Duration::ZERO,
        largest_workspace: Bytes(2 << 30),
        every_algorithm: false,
    }
}

/// A limit that no small net reaches.
pub(crate) fn plan_options(batch: BatchSizePolicy, workspace: WorkspacePolicy) -> PlanOptions {
    PlanOptions {
        batch_size_policy: batch,
        workspace_policy: workspace,
        limit: Bytes::mib(1024),
        ..PlanOptions::default()
    }
}

/// The repository: where it was built, or, for tests that were copied to another machine (`.ci/gpu-tests`), where they
/// lie.
pub(crate) fn root() -> PathBuf {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::env::var_os("MICROBATCH_ROOT").map_or_else(built, PathBuf::from)
}

/// The GPU that the tests of this process share: opening one takes longer than most of them. Its stream and its faults
/// are shared, too: tests that record work or cause a fault take [`own_gpu`].
pub(crate) fn gpu() -> Device {
    static GPU: OnceLock<Device> = OnceLock::new();
    GPU.get_or_init(own_gpu).clone()
}

/// The same GPU opened once more.
pub(crate) fn own_gpu() -> Device {
    Device::Cuda(tensor::cuda::probe().unwrap().open(0).unwrap())
}

/// What can run a micro-batch of a kernel on a device.
pub(crate) struct Candidates {
    device: Device,
    /// Some of cuDNN's algorithms say that they apply and then do not run, so they are tried.
    trying: Option<Box<dyn Profiler>>,
}

impl Candidates {
    pub(crate) fn on(device: &Device) -> Self {
        let on_gpu = matches!(device, Device::Cuda(_));
        let trying = on_gpu.then(|| profiler(device, quick_profile()) as Box<dyn Profiler>);
        Self { device: device.clone(), trying }
    }

    /// The algorithms for `micro_batch` samples of `kernel`, in the order of the device's list. Those of cuDNN that are
    /// too coarse to be compared with anything are left out.
    pub(crate) fn of(&mut self, kernel: &KernelId, micro_batch: u32) -> Vec<Measurement> {
        let candidates = candidates(&self.device, kernel, micro_batch).unwrap();
        let mut all: Vec<_> = candidates.iter().map(|convolver| convolver.measurement(1.0, 0.0)).collect();
        if let Some(profiler) = &mut self.trying {
            let ran = profiler.measure(&Request::all(*kernel, micro_batch)).unwrap();
            all.retain(|one| ran.iter().any(|other| other.algorithm == one.algorithm));
            let largest = if kernel.dtype == Dtype::Bf16 { 4e-3 } else { COMPARABLE_ERROR };
            all.retain(|one| one.max_error <= largest);
        }
        all
    }
}

/// Plans that are known before: whatever the machine, each size has one algorithm, a deterministic one, and some sizes
/// are far better than others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forced {
    /// Which of the algorithms that apply, in the order of the list, counted round.
    pub(crate) algorithm: usize,
    /// Whether each size has another one.
    pub(crate) mixed: bool,
    /// The good sizes; all if there are none.
    pub(crate) sizes: &'static [u32],
}

impl Forced {
    /// The first algorithm of the list, undivided: on the processor the one that always applies.
    pub(crate) const IMPLICIT_GEMM: Self = Self { algorithm: 0, mixed: false, sizes: &[] };

    /// The plan of `net` under these measurements, installed.
    pub(crate) fn install(self, net: &mut Net, options: &PlanOptions) -> Plan {
        let mut candidates = Candidates::on(net.device());
        self.install_from(&mut candidates, net, options)
    }

    /// The same where the candidates are known from before.
    pub(crate) fn install_from(
        self,
        candidates: &mut Candidates,
        net: &mut Net,
        options: &PlanOptions,
    ) -> Plan {
        let mut table = CostTable::new(DeviceHeader::default());
        let kernels = net.kernels();
        let mut profiler = ForcedProfiler { forced: self, candidates };
        planner::profile(&mut table, &kernels, options, &mut profiler, |_| ()).unwrap();
        let plan = planner::plan(&kernels, &table, options).unwrap();
        net.install(&plan, true).unwrap();
        plan
    }
}

struct ForcedProfiler<'a> {
    forced: Forced,
    candidates: &'a mut Candidates,
}

impl Profiler for ForcedProfiler<'_> {
    fn measure(&mut self, request: &Request) -> Result<Vec<Measurement>, ProfilerError> {
        let Forced { algorithm, mixed, sizes } = self.forced;
        let micro_batch = request.micro_batch;
        let mut all = self.candidates.of(&request.kernel, micro_batch);
        all.retain(|candidate| candidate.deterministic);
        let place = algorithm + if mixed { micro_batch as usize } else { 0 };
        let mut chosen = all.swap_remove(place % all.len());
        let good = sizes.is_empty() || sizes.contains(&micro_batch);
        chosen.time_ms = if good { 1.0 } else { 1000.0 };
        Ok(vec![chosen])
    }
}

/// The training net of `text`, its convolutions not planned yet.
pub(crate) fn build(text: &str) -> Result<Net, NetError> {
    build_on(&Device::Cpu(Cpu::new(2)), text)
}

/// The same on `device`.
pub(crate) fn build_on(device: &Device, text: &str) -> Result<Net, NetError> {
    let spec = NetSpec::parse(Path::new("net.prototxt"), text).unwrap().for_state(&NetState::default());
    assert_eq!(spec.warnings, []);
    Net::new(&spec, &BuildOptions { device: device.clone(), seed: 1, synthetic: None }, true)
}

/// What is wrong with it.
pub(crate) fn build_error(text: &str) -> String {
    match build(text) {
        Ok(_) => panic!("this net should be refused: {text}"),
        Err(error) => error.to_string(),
    }
}

/// A net in an arena.
pub(crate) struct Running(pub(crate) crate::run::Execution);

impl Running {
    /// `text` with every convolution undivided, in an arena that holds NaN wherever nothing has been put.
    pub(crate) fn new(text: &str) -> Self {
        let mut net = build(text).unwrap();
        let options = plan_options(BatchSizePolicy::Undivided, WorkspacePolicy::Ws);
        let plan = Forced::IMPLICIT_GEMM.install(&mut net, &options);
        Self::in_layout(net, plan, |_, layout| layout)
    }

    /// `net` where `choose` puts it, with gradients that are kept.
    pub(crate) fn in_layout(
        mut net: Net,
        plan: Plan,
        choose: impl FnOnce(&[Net], RunLayout) -> RunLayout,
    ) -> Self {
        net.keeps_gradients = true;
        let run = NetRun::lay_out(vec![net], vec![plan], true).unwrap().in_layout(choose);
        let mut running = run.start(1).unwrap();
        let all = running.arena_mut().all();
        running.arena_mut().set(all, 0xff).unwrap();
        running.initialize(1).unwrap();
        let params = running.layout().nets[0].params.clone();
        let histories = params.iter().filter_map(|spans| spans.history);
        histories.for_each(|history| running.arena_mut().set(history, 0).unwrap());
        Self(running)
    }

    pub(crate) fn net(&self) -> &Net {
        &self.0.nets()[0]
    }

    pub(crate) fn layout(&self) -> &NetLayout {
        &self.0.layout().nets[0]
    }

    /// Forward and backward; returns the loss.
    pub(crate) fn iterate(&mut self, number: u64) -> f64 {
        self.0.iterate(0, MiniBatch::new(number)).unwrap();
        self.0.loss(0).unwrap()
    }

    /// Adds `step` to an element of a parameter.
    pub(crate) fn move_parameter(&mut self, name: &str, element: usize, step: f32) {
        let index = self.net().graph().params.iter().position(|param| param.name == name);
        let index = index.unwrap_or_else(|| panic!("there is no {name}"));
        let span = self.layout().params[index].data;
        let mut moved = self.0.read_param(&self.net().graph().params[index], span).unwrap().into_owned();
        moved[element] += step;
        self.0.fill_param((0, index), span, |values| values.copy_from_slice(&moved)).unwrap();
    }

    /// The gradients of all trained parameters, by name.
    pub(crate) fn gradients(&self) -> Vec<(String, Vec<f32>)> {
        let params = self.net().graph().params.iter().zip(&self.layout().params);
        let gradient = |param, span| self.0.read_param(param, span).unwrap().into_owned();
        params.filter_map(|(param, spans)| Some((param.name.clone(), gradient(param, spans.diff?)))).collect()
    }

    /// The gradient of one.
    pub(crate) fn gradient(&self, name: &str) -> Vec<f32> {
        let found = self.gradients().into_iter().find(|(param, _)| param == name);
        found.unwrap_or_else(|| panic!("{name} has no gradient")).1
    }
}

/// Has `write` write the elements of `span`, wherever they lie.
pub(crate) fn set<T: Element>(arena: &mut Arena, span: Span, write: impl FnOnce(&mut [T])) {
    arena.fill(span, write).unwrap();
}

/// Largest relative distance allowed between loss number `step`, from 0, of two trainings of LeNet on the digits, on
/// two devices or under two plans, none of whose algorithms is coarser than [`COMPARABLE_ERROR`].
///
/// Rounding moves the first losses by 1e-7. Sooner or later it decides which of two nearly equal pixels is the largest
/// in its pool; from then on two trainings differ by a gradient, and every step makes that larger. Between two
/// algorithms of one accuracy class that was seen to begin at step 12, with 3e-5 at step 20 and 1e-3 at 33, on the
/// processor; and at step 3, with 4e-4 at 14 and 1e-2 at 45, on a GPU. A wrong update or a lost micro-batch moves the
/// very next losses by more than is allowed there.
pub(crate) fn lenet_loss_tolerance(step: usize) -> f64 {
    (1e-5 * 1.5f64.powf(step as f64)).min(0.05)
}

/// Largest relative distance allowed between the losses of the first few steps of a small net on two devices, its
/// outputs and (relative to the largest) its parameters: what twenty steps between the processor's own algorithms are
/// allowed.
pub(crate) const FIRST_LOSSES: f64 = 1e-4;

/// Numbers from -1 to 1 of a name, as `numbers` in tests/golden/torchvision_logits.py.
pub(crate) fn numbers(name: &str, count: usize) -> impl Iterator<Item = f64> {
    let seed =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (0..count as u32).map(move |index| {
        let x = index.wrapping_mul(2_654_435_761).wrapping_add(seed);
        let mixed = [(16, 0x85eb_ca6b), (13, 0xc2b2_ae35), (16, 1)]
            .iter()
            .fold(x, |x, &(shift, factor)| (x ^ (x >> shift)).wrapping_mul(factor));
        f64::from(mixed >> 8) / f64::from(1 << 23) - 1.0
    })
}

/// The weights of a module of PyTorch, as `weights` there.
pub(crate) fn weights(name: &str, shape: &[usize]) -> Vec<f32> {
    let numbers = numbers(name, shape.iter().product());
    let bound = (6.0 / shape[1..].iter().product::<usize>() as f64).sqrt();
    let value = |number: f64| match name {
        _ if shape.len() > 1 => number * bound,
        _ if name.ends_with("running_var") => 1.0 + 0.5 * number,
        _ if name.ends_with("weight") => 1.0 + 0.2 * number,
        _ => 0.1 * number,
    };
    numbers.map(|number| value(number) as f32).collect()
}
