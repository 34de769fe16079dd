//! How long each layer, the update and copies take: measured one at a time, which takes no memory of the whole net.

use super::{Execution, NetRun, slab::Slab};
use crate::net::{Net, RunLayout};
use crate::{error::Result, group::Group, net::graph::Node, time};
use memory::{Action, ArenaLayout, Buffer, Outline, Schedule};
use planner::{ConvOp, Kernel, Plan, PlannedKernel};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};
use tensor::{Bf16, Device, ElementType, Span};

/// What the layers of a net take, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LayerTimes {
    /// Of each node forward, backward and repeated; of a convolution what that takes beyond its kernels as they were
    /// measured: its bias, to add to another gradient, and to find less in cache.
    pub passes: Vec<[f64; 3]>,
    /// The update of all parameters.
    pub update_ms: f64,
    /// Bytes that a millisecond copies to the host and from it.
    pub copied: [f64; 2],
    /// What a copy takes beside its bytes.
    pub launch_ms: f64,
}

/// How often a GPU repeats what is timed between two marks, recorded as in a training: only the first waits for the host.
const REPEATS: usize = 6;
/// Most and fewest samples of each pass, and how long they may take beyond the fewest.
const SAMPLES: [usize; 2] = [5, 2];
const AT_MOST: Duration = Duration::from_millis(100);
/// Bytes of the copies that are timed: so many that launching one does not count, and so few that nothing else does.
const COPIES: [usize; 2] = [64 << 20, 256];

/// Measures the layers of `net` under `plan`, those not alike any that is `known` already; gives the net back. The device
/// needs memory for one layer's buffers and the parameters.
pub(crate) fn measure(
    mut net: Net,
    plan: Plan,
    known: &mut HashMap<String, [f64; 3]>,
) -> Result<(LayerTimes, Net)> {
    net.install(&plan, true)?;
    let outline = net.outline(true);
    let keys: Vec<Option<String>> = (0..outline.nodes.len()).map(|node| key(&net, node)).collect();
    let all = keys.iter().enumerate().filter_map(|(node, key)| Some((key.as_ref()?, node)));
    let new: BTreeMap<&String, usize> = all.filter(|(key, _)| !known.contains_key(*key)).collect();
    let layouts: Vec<RunLayout> =
        new.values().map(|&node| alone(&net, &outline, passes(&outline, node))).collect();
    let update = alone(&net, &outline, vec![Action::Update(0, outline.params.len())]);
    let largest = layouts.iter().chain([&update]).max_by_key(|layout| layout.bytes());
    let layout = largest.expect("the update's").clone();
    let (nets, plans, group) = (vec![net], vec![plan], Group::default());
    let mut running = NetRun { nets, plans, updates: true, schedules: None, layout, group }.start(1)?;
    running.begin(&time::iteration(&running.nets[0], 0))?;
    for ((key, node), layout) in new.into_iter().zip(layouts) {
        running.layout = layout;
        known.insert(key.clone(), running.time_passes(node)?);
    }
    running.layout = update;
    let update_ms = if outline.updates { running.time_action(0)? } else { 0.0 };
    let (copied, launch_ms) = running.copied()?;
    running.nets[0].check()?;
    let passes = keys.iter().map(|key| key.as_ref().map_or([0.0; 3], |key| known[key])).collect();
    let net = running.into_nets().pop().expect("one net is measured");
    Ok((LayerTimes { passes, update_ms, copied, launch_ms }, net))
}

/// Everything that the times of a node depend on; nothing for one that does nothing of its own.
fn key(net: &Net, node: usize) -> Option<String> {
    let Node { spec, bottoms, tops, used_params, in_place, backward, rectify, absorbed, propagates, .. } =
        &net.graph().nodes[node];
    let blob = |value: usize| &net.graph().values[value].shape;
    let shape = |&value: &usize| format!("{} {}", blob(value), blob(value).format());
    let shapes: Vec<String> = bottoms.iter().chain(tops).map(shape).collect();
    let (is_idle, params) = (bottoms.is_empty() || absorbed.is_backward(), used_params.len());
    (!is_idle).then(|| {
        format!(
            "{:?} {shapes:?} {params} {in_place} {backward} {rectify} {absorbed:?} {propagates:?}",
            spec.kind
        )
    })
}

fn passes(outline: &Outline, node: usize) -> Vec<Action> {
    let backward = outline.nodes[node].backward.then_some(Action::Backward(node));
    let repeat = outline.nodes[node].repeats_from_saved.then_some(Action::Recompute(node));
    std::iter::once(Action::Forward(node)).chain(backward).chain(repeat).collect()
}

fn alone(net: &Net, outline: &Outline, actions: Vec<Action>) -> RunLayout {
    let schedule = Schedule::alone(outline, actions);
    RunLayout::of(&[net], ArenaLayout::new(std::slice::from_ref(outline), vec![schedule]))
}

impl Execution {
    /// The times of the passes of `node`, whose schedule has nothing else.
    fn time_passes(&mut self, node: usize) -> Result<[f64; 3]> {
        self.put_values(node)?;
        let mut times = [None; 3];
        for at in 0..=self.layout.nets[0].end() {
            let pass_ms = self.time_action(at)?;
            let pass = match self.layout.nets[0].places.schedule.actions[at] {
                Action::Forward(_) => 0,
                Action::Backward(_) => 1,
                _ => 2,
            };
            let name = &self.nets[0].graph().nodes[node].spec.name;
            let is_of_it = |kernel: &Kernel| {
                kernel.name == *name && usize::from(kernel.id.op != ConvOp::Forward) == pass
            };
            let kernels = self.plans[0].kernels.iter().filter(|planned| is_of_it(&planned.kernel));
            times[pass] = Some((pass_ms - kernels.map(PlannedKernel::time_ms).sum::<f64>()).max(0.0));
        }
        let [forward_ms, backward_ms, repeat_ms] = times;
        // Most layers repeat all that they have done.
        Ok([forward_ms, backward_ms, repeat_ms.or(forward_ms)].map(Option::unwrap_or_default))
    }

    /// Milliseconds of an action.
    fn time_action(&mut self, at: usize) -> Result<f64> {
        let device = self.device.clone();
        let (warm_ups, repeats) = if matches!(device, Device::Cpu(_)) { (1, 1) } else { (2, REPEATS) };
        let parts = vec![at..at + 1; repeats];
        let act = |running: &mut Self| {
            let mut batch = time::iteration(&running.nets[0], 0);
            device.run(|| running.replay(0, &parts, &mut batch))
        };
        // What is loaded on the way is loaded now, and a GPU records.
        self.recordings.clear();
        (0..warm_ups).try_for_each(|_| act(self))?;
        let (start, mut samples) = (Instant::now(), Vec::new());
        let [most, fewest] = SAMPLES;
        while samples.len() < fewest || samples.len() < most && start.elapsed() < AT_MOST {
            let from = device.mark()?;
            act(self)?;
            samples.push(from.ms_until(&device.mark()?)? / repeats as f64);
        }
        // Others may interrupt a processor: the least disturbed counts.
        Ok(samples.into_iter().min_by(f64::total_cmp).expect("there are some"))
    }

    /// Gives `node` something to work on: random values, and zeros where it wants labels.
    fn put_values(&mut self, node: usize) -> Result<()> {
        let (layout, net) = (&self.layout.nets[0], &self.nets[0]);
        let (node, pattern) = (&net.graph().nodes[node], tensor::rng::random(1 << 16, 1));
        let bottoms = node.bottoms.iter().zip(&node.declaration.gradients);
        let bottoms =
            bottoms.map(|(&bottom, &is_differentiable)| (layout.data(bottom, 0), is_differentiable));
        let tops = node.tops.iter().map(|&top| (layout.diff(top, layout.end()), true));
        let in_bf16: Vec<Bf16> = pattern.iter().map(|&value| Bf16::from_f32(value)).collect();
        for (span, is_random) in bottoms.chain(tops).filter(|(span, _)| span.len > 0) {
            match is_random {
                true if span.format.dtype == ElementType::Bf16 => self.arena.repeat(span, &in_bf16)?,
                true => self.arena.repeat(span, &pattern)?,
                false => self.arena.set(span, 0)?,
            }
        }
        Ok(())
    }

    /// Bytes that a millisecond copies to the host and from it, and what a copy takes beside that.
    fn copied(&mut self) -> Result<([f64; 2], f64)> {
        let [large, small] = COPIES.map(|len| len.min(self.arena.len()));
        let mut slab = Slab::new(&self.device, large)?;
        let mut ms = |action: fn(Buffer) -> Action, len: usize| -> Result<f64> {
            let (span, mut least_ms) = (Span::bytes(0, len), f64::INFINITY);
            for _ in 0..3 {
                let from = self.device.mark()?;
                slab.fork()?;
                slab.copy(&mut self.arena, action(Buffer::Data(0)), (span, span))?;
                slab.join()?;
                least_ms = least_ms.min(from.ms_until(&self.device.mark()?)?);
            }
            Ok(least_ms.max(1e-6))
        };
        let launch_ms = ms(Action::Offload, small)?;
        let (out_ms, back_ms) = (ms(Action::Offload, large)?, ms(Action::Prefetch, large)?);
        Ok(([out_ms, back_ms].map(|ms| (large as f64 / (ms - launch_ms).max(1e-6)).max(1.0)), launch_ms))
    }
}
