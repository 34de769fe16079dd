//! Caffe's `time`: how long every layer takes, and what its kernels' plan had promised.

mod clock;
mod report;
#[cfg(test)]
mod tests;

use crate::run::{Execution, MiniBatch, NetRun, Update};
use crate::{error::Result, net::Net, net::graph::Node};
use clock::{Clock, Marks};
use cudnn_layers::update::Rule;
use planner::PlannedKernel;
use tensor::Device;

pub use report::{LayerTime, TimeReport};

/// Allocates `run`, a single net, runs one iteration unmeasured, then `iterations` with measurement, telling `observe` of
/// each; on a GPU as many more that are replayed, as in training. Gives the net back, to be timed under another plan.
///
/// # Errors
/// What a layer reports of its data; a GPU that is out of memory or lost.
pub fn time(
    run: NetRun,
    iterations: usize,
    seed: u64,
    mut observe: impl FnMut(),
) -> Result<(TimeReport, Net)> {
    let device = run.nets()[0].device().clone();
    let before = device.bytes_in_use()?;
    let mut running = run.start(seed)?;
    timed(&mut running, 0)?;
    let layer = |node: &Node| LayerTime {
        name: node.spec.name.clone(),
        type_name: node.spec.kind.type_name(),
        ..LayerTime::default()
    };
    let mut clock = Clock::default();
    clock.report.initial_loss = running.loss(0)?;
    clock.report.layers = running.nets()[0].graph().nodes.iter().map(layer).collect();
    let mut pending: Option<Marks> = None;
    for number in 1..=iterations as u64 {
        // A GPU is given the next iteration before the times of this one are waited for: it never stands still.
        let last = pending.replace(timed(&mut running, number)?);
        last.map_or(Ok(()), |last| clock.add(last))?;
        observe();
    }
    pending.map_or(Ok(()), |last| clock.add(last))?;
    running.nets()[0].check()?;
    let replayed_ms = replayed(&mut running, iterations)?;
    let gpu_bytes = device.bytes_in_use()?.zip(before).map(|(after, before)| after.saturating_sub(before));
    let report = TimeReport { replayed_ms, gpu_bytes, ..report(&running, clock) };
    let net = running.into_nets().pop().expect("one net is timed");
    Ok((report, net))
}

/// An iteration, with its update if it is of a training, at a learning rate of zero: all its work, and weights that stay.
pub(crate) fn iteration<'a>(net: &Net, number: u64) -> MiniBatch<'a> {
    let rule = Rule { method: net.method, momentum: 0.9, delta: 1e-8, mini_batches: 1, ..Rule::default() };
    let update = Update { rule, weight_decay: 5e-4, rates: rule.rates(0.0, 0) };
    MiniBatch { update: net.is_training().then_some(update), ..MiniBatch::new(number) }
}

/// Forward, backward and update, marked action by action.
fn timed(running: &mut Execution, number: u64) -> Result<Marks> {
    let device = running.device().clone();
    let mut actions = Vec::with_capacity(running.layout().nets[0].places.schedule.actions.len());
    let start = device.mark()?;
    let mut observer = |action| {
        actions.push((action, device.mark()?));
        Ok(())
    };
    running.iterate(0, MiniBatch { observer: Some(&mut observer), ..iteration(&running.nets[0], number) })?;
    let (copies, kernels) = (running.slab.take_marks(), running.nets[0].take_kernel_marks());
    Ok(Marks { start, actions, copies, kernels })
}

/// Iterations as a training runs them, in milliseconds each. None on a processor, which records nothing.
fn replayed(running: &mut Execution, iterations: usize) -> Result<Vec<f64>> {
    let device = running.device().clone();
    if matches!(device, Device::Cpu(_)) {
        return Ok(Vec::new());
    }
    // One to be done as it is and one to be recorded.
    (0..2).try_for_each(|number| running.iterate(0, iteration(&running.nets[0], number)))?;
    let mut marks = vec![device.mark()?];
    for number in 0..iterations as u64 {
        running.iterate(0, iteration(&running.nets[0], number))?;
        marks.push(device.mark()?);
    }
    running.nets()[0].check()?;
    marks.windows(2).map(|pair| Ok(pair[0].ms_until(&pair[1])?)).collect()
}

/// What the `clock` has seen of `running`: sums become means.
fn report(running: &Execution, Clock { kernels, mut report }: Clock) -> TimeReport {
    let count = report.iterations_ms.len().max(1) as f64;
    let forward_backward_ms = report.iterations_ms.iter().sum::<f64>() / count;
    let of_layers =
        report.layers.iter_mut().flat_map(|layer| [&mut layer.forward_ms, &mut layer.backward_ms]);
    let sums_ms = of_layers.chain([&mut report.forward_ms, &mut report.backward_ms]);
    sums_ms.chain(&mut report.update_ms).for_each(|sum_ms| *sum_ms /= count);
    let kernels_ms = running.plans()[0].kernels.iter().map(|PlannedKernel { kernel, .. }| {
        let node = report.layers.iter().position(|layer| layer.name == kernel.name);
        node.and_then(|node| median(kernels.get(&(node, kernel.id.op))?)).unwrap_or(0.0)
    });
    TimeReport { kernels_ms: kernels_ms.collect(), forward_backward_ms, ..report }
}

/// The median of times, of an even number the upper one, if there are any.
pub fn median(times: &[f64]) -> Option<f64> {
    let mut times = times.to_vec();
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}
