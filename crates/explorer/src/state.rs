//! What the page has loaded, and what was made of it: tables with estimates, and the net that is looked at, which does
//! not depend on the limit that is dragged.

use crate::question::{Net, PlanQuestion, check};
use figures::{EstimateReport, study::Study};
use planner::{BatchSizePolicy, CostTable, EstimateError, Estimator, Math, profile};
use std::{collections::BTreeMap, error::Error, mem, sync::Arc};

/// Everything loaded.
#[derive(Default)]
pub(crate) struct State {
    /// Of every GPU.
    tables: BTreeMap<String, Table>,
    nets: BTreeMap<String, Net>,
    /// For the last question.
    prepared: Option<(Subject, Prepared)>,
}

/// Measurements, and what estimates the rest from them once that is asked for, with the error of that for each arithmetic.
#[derive(Default)]
struct Table {
    recorded: CostTable,
    estimator: Option<Estimator>,
    errors: BTreeMap<Math, Option<EstimateError>>,
}

/// What is planned: net, GPU, arithmetic, mini-batch, and the sizes that are to be measured or estimated.
type Subject = (String, String, Math, u32, BatchSizePolicy);

/// What a plan is made of: the net on the GPU, how many measurements are estimates, and how far these are off.
pub(crate) type Prepared = (Study, Option<EstimateReport>);

impl State {
    /// Takes over a table; of a GPU, more are added.
    pub(crate) fn add_table(&mut self, gpu: String, text: &str) -> Result<(), Box<dyn Error>> {
        let table = CostTable::from_json_lines(text)?;
        let recorded = CostTable::new(table.device.clone());
        let known = self.tables.entry(gpu).or_insert(Table { recorded, ..Table::default() });
        known.recorded.merge(table)?;
        *known = Table { recorded: mem::take(&mut known.recorded), ..Table::default() };
        self.prepared = None;
        Ok(())
    }

    /// Takes over a net, and says what its mini-batch is.
    pub(crate) fn add_net(&mut self, name: String, net: Net) -> Result<u32, Box<dyn Error>> {
        for kernel in &net.kernels {
            check(&kernel.id.shape, kernel.mini_batch).map_err(|error| format!("{kernel}: {error}"))?;
        }
        let mini_batch = net.mini_batch().ok_or("the net has no convolution")?;
        self.nets.insert(name, net);
        self.prepared = None;
        Ok(mini_batch)
    }

    /// Puts everything together, unless that is there.
    pub(crate) fn prepare(&mut self, question: &PlanQuestion) -> Result<&Prepared, Box<dyn Error>> {
        let PlanQuestion { net, gpu, math, mini_batch, options, .. } = question;
        let subject = (net.clone(), gpu.clone(), *math, *mini_batch, options.batch_size_policy);
        let known = self.prepared.take().filter(|(known, _)| *known == subject);
        let prepared = known.map_or_else(|| self.made(question), |(_, prepared)| Ok(prepared))?;
        Ok(&self.prepared.insert((subject, prepared)).1)
    }

    /// The net with its measurements, and with estimates of those that a plan needs and that were not recorded.
    fn made(&mut self, question: &PlanQuestion) -> Result<Prepared, Box<dyn Error>> {
        let PlanQuestion { net: name, gpu, math, mini_batch, options, .. } = question;
        let net = self.nets.get(name).ok_or_else(|| format!("there is no net {name}"))?;
        let Table { recorded, estimator, errors } =
            self.tables.get_mut(gpu).ok_or_else(|| format!("nothing was recorded on {gpu}"))?;
        let Net { kernels, outline } = net.clone().at(*mini_batch, *math);
        let (mut table, finest) = (recorded.of_kernels(&kernels), options.batch_size_policy);
        let (mut estimate, estimated) = (None, table.missing(&kernels, finest).len());
        if estimated > 0 {
            let estimator = estimator.get_or_insert_with(|| Estimator::new(recorded));
            profile(&mut table, &kernels, options, estimator, |_| ())?;
            let error = *errors.entry(*math).or_insert_with(|| estimator.error(&kernels[0].id));
            estimate = Some(EstimateReport { estimated, error });
        }
        let (title, table) = (name.clone(), Arc::new(table));
        let study = Study { title, kernels, table, finest, is_recorded: true, outline, ..Study::default() };
        Ok((study, estimate))
    }
}

impl Net {
    fn mini_batch(&self) -> Option<u32> {
        self.kernels.iter().map(|kernel| kernel.mini_batch).max()
    }

    /// The net with another mini-batch and arithmetic.
    fn at(mut self, mini_batch: u32, math: Math) -> Self {
        self.outline = self.outline.scaled(mini_batch, self.mini_batch().unwrap_or(1));
        for kernel in &mut self.kernels {
            (kernel.mini_batch, kernel.id.math) = (mini_batch, math);
        }
        self
    }
}
