//! The figures of the µ-cuDNN papers, and what they lack, of one net on one device: all from a cost table.

mod across;
mod claims;
mod kernel;
mod layers;
mod net;
mod page;
mod plots;

pub use across::figures;
pub use claims::claims;
pub use page::page;
pub use plots::{limit_figure, plan_figure};

use crate::draw::{Figure, Panel, Tone};
use crate::table::Table;
use memory::{LayerMemory, Outline};
use planner::{
    BatchSizePolicy, Bytes, ConvOp, CostTable, DesirableSet, Fronts, Kernel, Math, Plan, PlanError,
    PlanOptions, PlannedKernel, WorkspacePolicy,
};
use std::{cell::RefCell, collections::BTreeMap, slice, sync::Arc};

/// Their limits of each kernel: too little, just right, plenty.
const LIMITS: [Bytes; 3] = [Bytes::mib(8), Bytes::mib(64), Bytes::mib(512)];

/// The one of them that the papers speak of most.
const USUAL: Bytes = LIMITS[1];

/// AlexNet's convolution that they look at closely.
const CLOSELY: &str = "conv2";

/// How many times faster is called a gain: a tenth.
const NOTABLE: f64 = 1.1;

/// Those under which they compare DeepBench's list.
const GENEROUS: [Bytes; 3] = [Bytes::mib(128), Bytes::mib(256), Bytes::mib(512)];

/// How long ILPs took to solve, below a sentence that says where; `cargo bench --bench planner -- --ilps` prints it.
const SOLVED: &str = include_str!("solved.txt");

/// Kernels with what each of them gains, by the size of their filters; those that gain most first.
type Gains = BTreeMap<[u32; 2], Vec<(f64, PlannedKernel)>>;

/// The nets of `studies` in one arithmetic.
fn nets(studies: &[Study], math: Math) -> impl Iterator<Item = &Study> {
    studies.iter().filter(move |study| !study.is_list() && study.math() == math)
}

/// The same net as `study` among others, in one arithmetic.
fn twin<'s>(studies: &'s [Study], math: Math, study: &Study) -> Option<&'s Study> {
    nets(studies, math).find(|other| other.label() == study.label())
}

/// A net on a device.
#[derive(Clone, Debug, Default)]
pub struct Study {
    /// Its short name, such as `alexnet`.
    pub name: String,
    /// How the names of its figures begin; nothing for the net that is looked at most.
    pub prefix: String,
    /// What it is called.
    pub title: String,
    /// Its kernels.
    pub kernels: Vec<Kernel>,
    /// What they cost.
    pub table: Arc<CostTable>,
    /// The policy with the most sizes of which that knows.
    pub finest: BatchSizePolicy,
    /// Whether that was measured elsewhere.
    pub is_recorded: bool,
    /// The net without workspaces.
    pub outline: Outline,
    /// Its layers, likewise.
    pub layers: Vec<LayerMemory>,
    /// Desirable sets that were computed so far: plans under any limit are made of them.
    pub known: RefCell<Vec<(PlanOptions, Arc<Fronts>)>>,
}

impl Study {
    /// Every figure of this net alone.
    fn figures(&self) -> Vec<Figure> {
        let cliff = |study: &Self, kernel: &Kernel| study.cliff(kernel, &of_sizes(study.finest));
        let closely: [fn(&Self, &Kernel) -> Option<Figure>; 5] =
            [Self::algorithms, cliff, Self::micro_batches, Self::front, Self::divisions];
        let of_kernel = |kernel| closely.map(|figure| figure(self, kernel));
        let closely = self.kernel_of_interest().into_iter().flat_map(of_kernel);
        let timeline = self.limited(self.finest, USUAL).and_then(|plan| self.timeline_of(&plan));
        let whole = [self.sizes(), self.limits(), self.sharing(), self.wd(), self.layer_memory(), timeline];
        closely.chain(whole).flatten().collect()
    }

    /// Whether it is a list of convolutions, and no net.
    fn is_list(&self) -> bool {
        self.outline.nodes.is_empty()
    }

    /// Forward of the convolution that is looked at closely.
    fn kernel_of_interest(&self) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.name == CLOSELY && kernel.id.op == ConvOp::Forward)
    }

    fn mini_batch(&self) -> u32 {
        self.kernels.iter().map(|kernel| kernel.mini_batch).max().unwrap_or(0)
    }

    /// The arithmetic of its kernels.
    pub fn math(&self) -> Math {
        self.kernels.first().map_or(Math::Fp32, |kernel| kernel.id.math)
    }

    /// The device's model alone, as in `NVIDIA H200`.
    fn device(&self) -> &str {
        self.table.device.name.split(" (").next().unwrap_or_default()
    }

    /// The first word of that with a number, as in `H200`.
    fn model(&self) -> &str {
        self.device().split(' ').find(|word| word.contains(char::is_numeric)).unwrap_or("here")
    }

    /// Net and mini-batch.
    pub fn label(&self) -> String {
        format!("{} {}", self.title, self.mini_batch())
    }

    /// Where the numbers come from.
    pub fn source(&self) -> String {
        let device = &self.table.device;
        let versions = device.library_version.split(", driver").next().unwrap_or_default();
        let (name, date) = (self.device(), &device.date);
        match self.is_recorded {
            true => format!("Planned from measurements recorded on {name}, {versions}, {date}"),
            false => format!("Planned from measurements of this machine: {name}, {versions}"),
        }
    }

    /// The policies that the papers compare, as far as their sizes were measured.
    fn policies(&self) -> &'static [BatchSizePolicy] {
        use BatchSizePolicy::{All, PowerOfTwo, Undivided};
        if self.finest == All { &[Undivided, PowerOfTwo, All] } else { &[Undivided, PowerOfTwo] }
    }

    /// Convolution layers; a layer's kernels stand beside each other.
    fn convolutions(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        names.dedup();
        names
    }

    /// The paper's totals: a limit for each of the three kernels of every convolution.
    fn total(&self, each: Bytes) -> Bytes {
        Bytes(each.0 * 3 * self.convolutions().len() as u64)
    }

    /// A plan; none if not all kernels fit.
    fn plan(&self, sizes: BatchSizePolicy, policy: WorkspacePolicy, limit: Bytes) -> Option<Plan> {
        self.planned(&PlanOptions { workspace_policy: policy, limit, ..of_sizes(sizes) })
    }

    /// A plan with a limit for each kernel.
    fn limited(&self, sizes: BatchSizePolicy, limit: Bytes) -> Option<Plan> {
        self.plan(sizes, WorkspacePolicy::Wr, limit)
    }

    /// WD of the total that is so much for each kernel.
    fn divided(&self, each: Bytes) -> Option<Plan> {
        self.plan(self.finest, WorkspacePolicy::Wd, self.total(each))
    }

    /// A plan within the usual limit of algorithms with errors up to `max_error`.
    fn as_exact_as(&self, max_error: f32) -> Option<Plan> {
        self.planned(&PlanOptions { limit: USUAL, max_error: Some(max_error), ..of_sizes(self.finest) })
    }

    fn planned(&self, options: &PlanOptions) -> Option<Plan> {
        self.fronts(options).ok()?.plan(options).ok()
    }

    /// The desirable sets of all kernels, for every limit and workspace policy that `options` could have.
    ///
    /// # Errors
    /// As [`Fronts::new`].
    pub fn fronts(&self, options: &PlanOptions) -> Result<Arc<Fronts>, PlanError> {
        let (limit, workspace_policy) = (Bytes::ZERO, WorkspacePolicy::Wr);
        let key = PlanOptions { limit, workspace_policy, ..options.clone() };
        let mut known = self.known.borrow_mut();
        if let Some((_, fronts)) = known.iter().find(|(other, _)| *other == key) {
            return Ok(Arc::clone(fronts));
        }
        let fronts = Arc::new(Fronts::new(&self.kernels, &self.table, options)?);
        known.push((key, Arc::clone(&fronts)));
        Ok(fronts)
    }

    /// The desirable set of one kernel.
    fn desirable(&self, kernel: &Kernel, options: &PlanOptions) -> Option<DesirableSet> {
        let front = Fronts::new(slice::from_ref(kernel), &self.table, options).ok()?;
        Some(front.iter().next()?.1.clone())
    }

    /// What every kernel gains that fits undivided.
    fn gains(&self, limit: Bytes) -> Option<Gains> {
        let mut gains = Gains::new();
        for planned in &self.limited(self.finest, limit)?.kernels {
            let (filter, gain) = ([planned.kernel.id.shape.r, planned.kernel.id.shape.s], planned.gain());
            gains.entry(filter).or_default().extend(gain.map(|gain| (gain, planned.clone())));
        }
        gains.values_mut().for_each(|kernels| kernels.sort_by(|a, b| b.0.total_cmp(&a.0)));
        Some(gains)
    }

    /// The binary variables of the ILP that gives 16 MiB for each kernel, and its milliseconds if recorded.
    fn ilp(&self, policy: BatchSizePolicy) -> Option<(usize, Option<f64>)> {
        let binaries = self.plan(policy, WorkspacePolicy::Wd, self.total(Bytes::mib(16)))?.division?.binaries;
        let programme = format!("{}-{} {policy} {binaries} ", self.name, self.mini_batch());
        Some((binaries, SOLVED.lines().find_map(|line| line.strip_prefix(&programme)?.parse().ok())))
    }

    /// Seconds in which all algorithms of all different kernels run once at every size of a policy.
    fn measuring_s(&self, policy: BatchSizePolicy) -> f64 {
        let nothing = CostTable::new(self.table.device.clone());
        let measured = nothing.missing(&self.kernels, policy).into_iter();
        let measured = measured.filter_map(|(kernel, size)| self.table.measurements(&kernel.id, size));
        measured.flatten().map(|one| one.time_ms).sum::<f64>() / 1e3
    }

    /// A figure of this net that shows `what`.
    fn figure(&self, name: &str, what: &str, caption: String, panels: Vec<Panel>, data: Table) -> Figure {
        let (net, samples, math, device) = (&self.title, self.mini_batch(), self.math(), self.device());
        let title = format!("{what}: {net}, mini-batch {samples}, {math}, {device}");
        let name = self.prefix.clone() + name;
        Figure { name, caption, data, ..Figure::new(title, self.source(), panels) }
    }
}

fn of_sizes(batch_size_policy: BatchSizePolicy) -> PlanOptions {
    PlanOptions { batch_size_policy, ..PlanOptions::default() }
}

/// The colour of a batch-size policy, everywhere.
fn tone(policy: BatchSizePolicy) -> Tone {
    match policy {
        BatchSizePolicy::Undivided => Tone::Orange,
        BatchSizePolicy::PowerOfTwo => Tone::Sky,
        _ => Tone::Blue,
    }
}
