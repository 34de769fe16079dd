//! What the page has loaded, and what was made of it: tables with estimates, and desirable sets, which do not depend on
//! the limit that is dragged.

use crate::question::{KernelEntry, NetReport, PlanQuestion, check};
use ::memory::{LayerMemory, Outline};
use figures::study::Study;
use planner::{
    BatchSizePolicy, Bytes, CostTable, EstimateError, Estimator, Fronts, Kernel, Math, PlanOptions,
    WorkspacePolicy, profile,
};
use std::{collections::BTreeMap, sync::Arc};

/// Everything loaded.
#[derive(Default)]
pub(crate) struct State {
    tables: BTreeMap<(String, Math), Table>,
    nets: BTreeMap<String, Net>,
    fronts: Option<(FrontsKey, [Fronts; 2])>,
}

/// Measurements, and what is estimated from them.
struct Table {
    recorded: CostTable,
    completed: Arc<CostTable>,
    estimator: Option<(Estimator, Option<EstimateError>)>,
}

/// A net as it was loaded.
struct Net {
    kernels: Vec<Kernel>,
    outline: Outline,
    layers: Vec<LayerMemory>,
}

/// What desirable sets depend on.
type FrontsKey = (String, String, Math, u32, BatchSizePolicy, Option<u32>);

/// What a plan is made of.
pub(crate) struct Prepared<'s> {
    pub(crate) study: Study,
    pub(crate) options: PlanOptions,
    /// Undivided, and under the policy asked for.
    pub(crate) fronts: &'s [Fronts; 2],
    /// How many measurements are estimates, and how far these are off.
    pub(crate) estimated: usize,
    pub(crate) error: Option<EstimateError>,
}

impl State {
    /// Takes over a table, and says what its largest micro-batch is; of a GPU and an arithmetic, more are added.
    pub(crate) fn add_table(&mut self, gpu: String, text: &str) -> Result<u32, String> {
        let table = CostTable::from_json_lines(text).map_err(|error| error.to_string())?;
        let largest = table.iter().map(|(_, size, _)| size).max().unwrap_or(1);
        for math in [Math::Fp32, Math::Tf32] {
            let mut of_math = CostTable::new(table.device.clone());
            for (&id, size, rows) in table.iter().filter(|(id, ..)| id.math == math) {
                of_math.insert(id, size, rows.to_vec()).map_err(|error| error.to_string())?;
            }
            if of_math.is_empty() {
                continue;
            }
            let new = || Table {
                recorded: CostTable::new(table.device.clone()),
                completed: Arc::default(),
                estimator: None,
            };
            let known = self.tables.entry((gpu.clone(), math)).or_insert_with(new);
            known.recorded.merge(of_math).map_err(|error| error.to_string())?;
            known.completed = Arc::new(known.recorded.clone());
            known.estimator = None;
        }
        self.fronts = None;
        Ok(largest)
    }

    /// Takes over a net, and says what its mini-batch is.
    pub(crate) fn add_net(&mut self, name: String, report: NetReport) -> Result<u32, String> {
        let kernels: Vec<Kernel> =
            report.plan.kernels.into_iter().map(|KernelEntry { kernel }| kernel).collect();
        for kernel in &kernels {
            check(&kernel.id.shape, kernel.mini_batch).map_err(|error| format!("{kernel}: {error}"))?;
        }
        let mini_batch =
            kernels.iter().map(|kernel| kernel.mini_batch).max().ok_or("the net has no convolution")?;
        let outline = report.outline.unwrap_or_default();
        self.nets.insert(name, Net { kernels, outline, layers: report.layer_memory });
        self.fronts = None;
        Ok(mini_batch)
    }

    /// Completes the table, computes desirable sets unless they are there, and puts everything together.
    pub(crate) fn prepare(&mut self, question: &PlanQuestion) -> Result<Prepared<'_>, String> {
        let PlanQuestion { net: name, gpu, math, mini_batch, policy, limit, max_error, .. } = question;
        let net = self.nets.get(name).ok_or_else(|| format!("there is no net {name}"))?;
        let key = (gpu.clone(), *math);
        let table =
            self.tables.get_mut(&key).ok_or_else(|| format!("nothing was recorded on {gpu} in {math}"))?;
        let study_of = net.at(*mini_batch, *math);
        let options = PlanOptions {
            batch_size_policy: *policy,
            workspace_policy: WorkspacePolicy::Wr,
            limit: *limit,
            max_error: *max_error,
            ..PlanOptions::default()
        };
        let undivided = PlanOptions { batch_size_policy: BatchSizePolicy::Undivided, ..options.clone() };
        let (estimated, error) = table.complete(&study_of.kernels, &options, *math)?;
        let bits = max_error.map(f32::to_bits);
        let key = (name.clone(), gpu.clone(), *math, *mini_batch, *policy, bits);
        if self.fronts.as_ref().is_none_or(|(known, _)| *known != key) {
            let fronts = |options: &PlanOptions| {
                Fronts::new(&study_of.kernels, &table.completed, options).map_err(|error| error.to_string())
            };
            self.fronts = Some((key, [fronts(&undivided)?, fronts(&options)?]));
        }
        let (_, fronts) = self.fronts.as_ref().expect("they were just computed");
        let Net { kernels, outline, layers } = study_of;
        let study = Study {
            title: name.clone(),
            kernels,
            table: Arc::clone(&table.completed),
            finest: *policy,
            is_recorded: true,
            outline,
            layers,
            ..Study::default()
        };
        Ok(Prepared { study, options, fronts, estimated, error })
    }
}

impl Table {
    /// Estimates what a plan needs and was not recorded; says how much of the plan's that is.
    fn complete(
        &mut self,
        kernels: &[Kernel],
        options: &PlanOptions,
        math: Math,
    ) -> Result<(usize, Option<EstimateError>), String> {
        let missing = self.recorded.missing(kernels, options.batch_size_policy).len();
        if missing == 0 {
            return Ok((0, None));
        }
        let recorded = &self.recorded;
        let (estimator, error) = self.estimator.get_or_insert_with(|| {
            let estimator = Estimator::new(recorded);
            let error = estimator.error(math);
            (estimator, error)
        });
        profile(Arc::make_mut(&mut self.completed), kernels, options, estimator, |_| ())
            .map_err(|error| error.to_string())?;
        Ok((missing, *error))
    }
}

impl Net {
    /// The net with another mini-batch and arithmetic. Blobs and what is kept for backward grow with the samples.
    fn at(&self, mini_batch: u32, math: Math) -> Net {
        let recorded = self.kernels.iter().map(|kernel| kernel.mini_batch).max().unwrap_or(1).max(1);
        let grown = |bytes: Bytes| {
            Bytes((u128::from(bytes.0) * u128::from(mini_batch) / u128::from(recorded)) as u64)
        };
        let mut net =
            Net { kernels: self.kernels.clone(), outline: self.outline.clone(), layers: self.layers.clone() };
        for kernel in &mut net.kernels {
            (kernel.mini_batch, kernel.id.math) = (mini_batch, math);
        }
        if mini_batch != recorded {
            net.outline.values.iter_mut().for_each(|value| value.bytes = grown(value.bytes));
            net.outline.nodes.iter_mut().for_each(|node| node.saved = grown(node.saved));
        }
        net
    }
}
