//! What there is to choose from: the kernels of a plan, identical ones joined, with their admitted measurements.

use super::{dp::Sweep, error::PlanError, options::PlanOptions};
use crate::{
    model::{BatchSizePolicy, Bytes, Kernel, KernelId, Measurement},
    table::CostTable,
};
use std::collections::HashMap;

/// One distinct (kernel identity, mini-batch) and its measurements.
pub(crate) struct Candidates<'a> {
    /// The first kernel of its kind, which errors name.
    pub(crate) kernel: &'a Kernel,
    /// Measurements at the policy's sizes that the options admit.
    pub(crate) micros: Vec<&'a Measurement>,
}

/// The distinct kernels, and which of them each kernel is.
pub(crate) struct Problem<'a> {
    pub(crate) options: &'a PlanOptions,
    pub(crate) distinct: Vec<Candidates<'a>>,
    /// For every kernel, in order, its index in `distinct`.
    pub(crate) of_kernel: Vec<usize>,
}

impl<'a> Problem<'a> {
    pub(crate) fn new(
        kernels: &'a [Kernel],
        table: &'a CostTable,
        options: &'a PlanOptions,
    ) -> Result<Problem<'a>, PlanError> {
        let mut index: HashMap<(&KernelId, u32), usize> = HashMap::new();
        let mut problem =
            Problem { options, distinct: Vec::new(), of_kernel: Vec::with_capacity(kernels.len()) };
        for kernel in kernels {
            let known = index.get(&(&kernel.id, kernel.mini_batch)).copied();
            let position = known.unwrap_or(problem.distinct.len());
            if known.is_none() {
                problem.distinct.push(Candidates::collect(kernel, table, options)?);
                index.insert((&kernel.id, kernel.mini_batch), position);
            }
            problem.of_kernel.push(position);
        }
        Ok(problem)
    }
}

impl<'a> Candidates<'a> {
    fn collect(
        kernel: &'a Kernel,
        table: &'a CostTable,
        options: &PlanOptions,
    ) -> Result<Candidates<'a>, PlanError> {
        if kernel.mini_batch == 0 {
            return Err(PlanError::Refused(format!("{kernel} has an empty mini-batch")));
        }
        let policy = options.batch_size_policy;
        let measured = table.sizes(&kernel.id);
        let mut micros = Vec::new();
        for size in policy.sizes(kernel.mini_batch) {
            let group = measured.and_then(|sizes| sizes.get(&size));
            let group = group.ok_or_else(|| {
                let sizes = measured_sizes(measured.into_iter().flat_map(|sizes| sizes.keys().copied()).collect());
                PlanError::NotMeasured(format!(
                    "{kernel} was not measured at micro-batch {size}, which the {policy} policy needs for mini-batch {}; \
                     {sizes}",
                    kernel.mini_batch
                ))
            })?;
            micros.extend(&group.rows);
        }
        if policy == BatchSizePolicy::Adaptive {
            let within = measured.into_iter().flat_map(|sizes| sizes.range(1..=kernel.mini_batch));
            micros = within.flat_map(|(_, group)| &group.rows).collect();
        }
        micros.retain(|row| options.admits(row));
        Ok(Candidates { kernel, micros })
    }

    /// The dynamic programme of this kernel.
    pub(crate) fn sweep(&self) -> Sweep<'a> {
        Sweep::new(self.micros.iter().copied(), self.kernel.mini_batch)
    }

    /// What the kernel could get without micro-batching.
    pub(crate) fn undivided(&self) -> impl Iterator<Item = &'a Measurement> {
        self.micros.iter().copied().filter(|micro| micro.micro_batch == self.kernel.mini_batch)
    }

    /// The fastest undivided algorithm within `limit`; of equally fast ones the one with less workspace.
    pub(crate) fn undivided_within(&self, limit: Bytes) -> Option<&'a Measurement> {
        self.undivided().filter(|micro| micro.workspace <= limit).min_by(|a, b| {
            let by_time = a.time_ms.total_cmp(&b.time_ms);
            by_time.then(a.workspace.cmp(&b.workspace)).then(a.algorithm.cmp(&b.algorithm))
        })
    }

    /// Why nothing covers the mini-batch within `limit`.
    pub(crate) fn infeasible(&self, limit: Bytes, options: &PlanOptions) -> PlanError {
        let (kernel, policy) = (self.kernel, options.batch_size_policy);
        let Some(smallest) = self.least_workspace() else {
            let (mini_batch, restrictions) = (kernel.mini_batch, options.restrictions());
            return PlanError::NoAlgorithm(format!(
                "{kernel} has no algorithm that covers mini-batch {mini_batch} under the {policy} policy{restrictions}"
            ));
        };
        let (limit, least) = (limit.exact(), smallest.exact());
        let message = format!(
            "{kernel} has no algorithm within the workspace limit of {limit} under the {policy} policy: the smallest feasible \
             limit is {least}"
        );
        PlanError::Infeasible { smallest, message }
    }

    /// The smallest limit with a configuration.
    pub(crate) fn least_workspace(&self) -> Option<Bytes> {
        let mut sweep = self.sweep();
        while let Some(workspace) = sweep.next_workspace() {
            sweep.raise_limit(workspace);
            if sweep.time_ms().is_finite() {
                return Some(workspace);
            }
        }
        None
    }
}

/// What a cost table has of a kernel, as the end of a sentence.
fn measured_sizes(sizes: Vec<u32>) -> String {
    match &sizes[..] {
        [] => "the kernel was not measured at all".to_owned(),
        [first, second, third, .., last] if sizes.len() > 12 => {
            format!("{} sizes were measured: {first}, {second}, {third}, ..., {last}", sizes.len())
        }
        sizes => format!("measured were {}", sizes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    }
}
