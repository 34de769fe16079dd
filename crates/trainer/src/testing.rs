//! What the tests of nets and solvers share.

use crate::{
    error::NetError,
    layers::BuildOptions,
    net::{Layout, Net, NetLayout, run::Iteration},
    solver::initialize,
    spec::{NetSpec, NetState},
};
use cudnn_layers::conv::{ProfileOptions, cpu, profile};
use planner::{
    BatchSizePolicy, Bytes, CostTable, DeviceHeader, KernelId, Measurement, Plan, PlanOptions, Profiler,
    ProfilerError, WorkspacePolicy,
};
use std::{path::Path, time::Duration};
use tensor::{Accumulate, Arena, Cpu, Device, Span};

/// The shortest measurements there are: tests never depend on what is fastest.
pub(crate) fn quick_profile() -> ProfileOptions {
    ProfileOptions { repeats: 1, at_least: Duration::ZERO, ..ProfileOptions::default() }
}

pub(crate) fn plan_options(batch: BatchSizePolicy, workspace: WorkspacePolicy) -> PlanOptions {
    PlanOptions {
        batch_size_policy: batch,
        workspace_policy: workspace,
        limit: Bytes::mib(64),
        ..PlanOptions::default()
    }
}

/// A profiler under which the plan is known before: whatever the machine, each size has one algorithm, and some sizes are
/// far better than others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forced {
    /// Which of the algorithms that apply, in the order of the list, counted round.
    pub(crate) algorithm: usize,
    /// Whether each size has another one.
    pub(crate) mixed: bool,
    /// The good sizes; all if there are none.
    pub(crate) sizes: &'static [u32],
    /// Threads that will run it.
    pub(crate) threads: usize,
}

impl Forced {
    /// The algorithm that always applies, undivided.
    pub(crate) const IMPLICIT_GEMM: Self = Self { algorithm: 0, mixed: false, sizes: &[], threads: 2 };

    /// The plan of `net` under this profiler, installed.
    pub(crate) fn install(mut self, net: &mut Net, options: &PlanOptions) -> Plan {
        let Device::Cpu(cpu) = net.device() else { panic!("the algorithms are the CPU's") };
        self.threads = cpu.threads();
        let mut table = CostTable::new(DeviceHeader::default());
        let kernels = net.kernels();
        table.profile(&kernels, options.batch_size_policy, &mut self, |_| ()).unwrap();
        let plan = planner::plan(&kernels, &table, options).unwrap();
        net.install(&plan).unwrap();
        plan
    }
}

impl Profiler for Forced {
    fn measure(&mut self, kernel: &KernelId, micro_batch: u32) -> Result<Vec<Measurement>, ProfilerError> {
        let g = profile::geometry(&kernel.shape, micro_batch);
        let needs = |algorithm: &&'static dyn cpu::CpuAlgorithm| {
            Some((*algorithm, algorithm.workspace_len(kernel.op, &g, self.threads)?))
        };
        let all: Vec<_> = cpu::algorithms().iter().filter_map(needs).collect();
        let place = self.algorithm + if self.mixed { micro_batch as usize } else { 0 };
        let (algorithm, len) = all[place % all.len()];
        let good = self.sizes.is_empty() || self.sizes.contains(&micro_batch);
        Ok(vec![Measurement {
            algorithm: algorithm.name().into(),
            micro_batch,
            time_ms: if good { 1.0 } else { 1000.0 },
            shared_ms: 0.0,
            workspace: Bytes((len * size_of::<f32>()) as u64),
            max_error: algorithm.max_error(),
            deterministic: true,
        }])
    }
}

/// The training net of `text`, its convolutions not planned yet.
pub(crate) fn build(text: &str) -> Result<Net, NetError> {
    let spec = NetSpec::parse(Path::new("net.prototxt"), text).unwrap().for_state(&NetState::default());
    assert_eq!(spec.warnings, []);
    Net::new(&spec, &BuildOptions { device: Device::Cpu(Cpu::new(2)), seed: 1, synthetic: None }, true)
}

/// What is wrong with it.
pub(crate) fn build_error(text: &str) -> String {
    match build(text) {
        Ok(_) => panic!("this net should be refused: {text}"),
        Err(error) => error.to_string(),
    }
}

/// A net in an arena.
pub(crate) struct Running {
    pub(crate) net: Net,
    pub(crate) layout: NetLayout,
    pub(crate) arena: Arena,
}

impl Running {
    /// `text` with every convolution undivided, in an arena that holds NaN wherever nothing has been put.
    pub(crate) fn new(text: &str) -> Self {
        let mut net = build(text).unwrap();
        let options = plan_options(BatchSizePolicy::Undivided, WorkspacePolicy::Ws);
        Forced::IMPLICIT_GEMM.install(&mut net, &options);
        Self::in_layout(net, |_, layout| (layout.nets[0].clone(), layout.len))
    }

    /// `net` where `choose` puts it.
    pub(crate) fn in_layout(net: Net, choose: impl FnOnce(&Net, &Layout) -> (NetLayout, usize)) -> Self {
        let (layout, len) = choose(&net, &Layout::new(&[&net], false));
        let mut arena = Arena::new(len);
        arena.view_mut(Span { offset: 0, len: arena.len() }).host().fill(f32::NAN);
        initialize(&net, &layout, &mut arena, 1).unwrap();
        Self { net, layout, arena }
    }

    /// Forward and backward; returns the loss.
    pub(crate) fn iterate(&mut self, number: u64) -> f64 {
        let iteration = Iteration { number, accumulate: Accumulate::Replace };
        self.net.forward(&self.layout, &mut self.arena, iteration, |_| Ok(())).unwrap();
        let loss = self.net.loss(&self.layout, &self.arena).unwrap();
        self.net.backward(&self.layout, &mut self.arena, iteration, |_| Ok(())).unwrap();
        loss
    }

    /// The values of a parameter.
    pub(crate) fn parameter(&mut self, name: &str) -> &mut [f32] {
        let index = self.net.graph().params.iter().position(|param| param.name == name);
        let index = index.unwrap_or_else(|| panic!("there is no {name}"));
        self.arena.view_mut(self.layout.params[index].data).into_host()
    }

    /// The gradients of all trained parameters, by name.
    pub(crate) fn gradients(&self) -> Vec<(String, Vec<f32>)> {
        let params = self.net.graph().params.iter().zip(&self.layout.params);
        let gradient = |span| self.arena.view(span).host().to_vec();
        params.filter_map(|(param, spans)| Some((param.name.clone(), gradient(spans.diff?)))).collect()
    }

    /// The gradient of one.
    pub(crate) fn gradient(&self, name: &str) -> Vec<f32> {
        let found = self.gradients().into_iter().find(|(param, _)| param == name);
        found.unwrap_or_else(|| panic!("{name} has no gradient")).1
    }
}
