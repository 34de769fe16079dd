//! What the actions of an iteration take: what a policy for memory decides with.

use super::{Planning, source::Source};
use crate::layers::{Absorbed, Need};
use crate::net::graph::{Graph, Node};
use crate::run::{LayerTimes, measure};
use crate::{error::Result, net::Net, spec::LayerKind};
use cudnn_layers::{AxisExtents, batch_norm::channel_grid};
use memory::policy::{Costs, PassCosts};
use memory::{Outline, OutlineNode};
use planner::{Bytes, Configuration, ConvOp, Cost, Curve, DesirableSet, Fronts, Kernel, Math, PlanOptions};
use std::{collections::HashMap, time::Instant};
use tensor::{Accumulate, ElementType};

/// What cannot be measured, to estimate with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Bytes a millisecond of the device's memory, by passes without kernels.
    pub memory: f64,
    /// Operations a millisecond of inner products.
    pub products: f64,
    /// Of copies to the host and back.
    pub copies: f64,
    /// Host memory that may be locked.
    pub host: Bytes,
}

impl Rates {
    /// Of an H200: elementwise passes, cuBLAS's products, PCIe 5, and three quarters of 128 GiB.
    pub const fn gpu(math: Math, dtype: ElementType) -> Self {
        let products = match (math, dtype) {
            (_, ElementType::Bf16) => 360e9,
            (Math::Tf32, _) => 180e9,
            (Math::Fp32, _) => 45e9,
        };
        Self { memory: 3.8e9, products, copies: 55e6, host: Bytes::mib(96 << 10) }
    }
    /// Of a processor's memory, in which copies stay, too.
    pub const CPU: Self =
        Self { memory: 1e7, products: 1e8, copies: 5e6, ..Self::gpu(Math::Fp32, ElementType::F32) };
}

/// The part of the measured rate that copies are planned with. An H200 copies 50 of 55 GB/s beside computation, but what a
/// plan leaves no time for is waited for: planned at 0.75, iterations take 1 to 2 % less than at 0.88
/// (benches/results/2026-11-27-nvidia-h100-copies).
const SUSTAINED: f64 = 0.75;

/// Workspace of kernels while the rest of their layer is measured, unless none of their algorithms does with that.
const WORKSPACE: Bytes = Bytes::mib(64);

impl Planning {
    /// Whether layers without kernels, and copies, can be measured.
    pub fn measures_layers(&self) -> bool {
        matches!(self.source, Source::Device(..)) && !self.records.offline
    }

    /// The costs of an iteration of `net`, which it gives back, whose `kernels` are known under `options`. What else
    /// layers do is measured on its device if it [can be](Self::measures_layers), and else estimated with `rates`.
    ///
    /// # Errors
    /// Kernels that were not measured; a device without memory for a single layer, or that fails.
    pub fn costs(
        &mut self,
        net: Net,
        kernels: &[Kernel],
        options: &PlanOptions,
        rates: Rates,
    ) -> Result<(Costs, Net)> {
        let (start, fronts) = (Instant::now(), Fronts::new(kernels, &self.table, options)?);
        let (times, net) = match self.measures_layers() {
            false => (estimated(&net, rates), net),
            true => {
                let least = |set: &DesirableSet| set.first().map_or(Bytes::ZERO, Configuration::workspace);
                let limits: Vec<Bytes> = fronts.iter().map(|(_, set)| least(set).max(WORKSPACE)).collect();
                measure(net, fronts.plan_within(&limits, options)?, &mut self.layers)?
            }
        };
        self.profiling += start.elapsed();
        Ok((costs(&net.outline(true), Some(&fronts), &times, rates.host), net))
    }
}

/// The costs of an iteration of a net of which nothing was measured: its kernels take neither time nor workspace.
pub fn estimated_costs(net: &Net, rates: Rates) -> Costs {
    let mut costs = costs(&net.outline(true), None, &estimated(net, rates), rates.host);
    let free = Curve::new([Cost { time_ms: 0.0, workspace: Bytes::ZERO }]);
    let convolutions = net.graph().nodes.iter().zip(&mut costs.nodes);
    for (_, passes) in convolutions.filter(|(node, _)| node.spec.kind.type_name() == "Convolution") {
        passes.iter_mut().for_each(|pass| pass.front = free.clone());
    }
    costs
}

/// The fronts of kernels, if they are known, beside what the rest of each pass takes.
fn costs(outline: &Outline, fronts: Option<&Fronts>, times: &LayerTimes, host: Bytes) -> Costs {
    let mut of_node: HashMap<&str, [Vec<Curve>; 2]> = HashMap::new();
    for (kernel, set) in fronts.into_iter().flat_map(Fronts::iter) {
        let pass = usize::from(kernel.id.op != ConvOp::Forward);
        of_node.entry(&kernel.name).or_default()[pass].push(set.curve());
    }
    let node = |(node, rest_ms): (&OutlineNode, &[f64; 3])| {
        let fronts = of_node.remove(node.name.as_str()).unwrap_or_default();
        [0, 1].map(|pass| PassCosts { fixed_ms: rest_ms[pass], front: Curve::sum(&fronts[pass]) })
    };
    let bytes_per_ms = times.copied.map(|rate| rate * SUSTAINED);
    let nodes = outline.nodes.iter().zip(&times.passes).map(node).collect();
    let again_ms = times.passes.iter().map(|pass_ms| pass_ms[2]).collect();
    Costs { nodes, again_ms, update_ms: times.update_ms, bytes_per_ms, launch_ms: times.launch_ms, host }
}

/// Passes that take as long as what they read and write, and products as long as they compute.
fn estimated(net: &Net, rates: Rates) -> LayerTimes {
    let ms = |bytes: u64| bytes as f64 / rates.memory;
    let passes = net.graph().nodes.iter().zip(net.work()).map(|(node, work)| {
        let rate = if work.kind == "InnerProduct" { rates.products } else { f64::INFINITY };
        let moved = moved(net.graph(), node);
        [0, 1, 2].map(|pass| ms(moved[pass]).max(work.flops[pass % 2] / rate))
    });
    let params = net.outline(true).params;
    // Weights and history are read and written, gradients are read.
    let update = params.iter().filter(|param| param.trained);
    let update = update.map(|param| 3 * param.bytes.0 + 2 * param.history.0 + param.copy.0).sum();
    LayerTimes { passes: passes.collect(), update_ms: ms(update), copied: [rates.copies; 2], launch_ms: 0.0 }
}

/// Bytes that a node's passes, forward, backward and repeated, read and write on a GPU, but for convolution kernels.
fn moved(graph: &Graph, node: &Node) -> [u64; 3] {
    let shape = |&value: &usize| &graph.values[value].shape;
    let blob = |value: &usize| shape(value).space().bytes() as u64;
    let all = |values: &[usize]| values.iter().map(blob).sum::<u64>();
    let (bottoms, declared) = (&node.bottoms[..], &node.declaration);
    let (x, y, saved) = (all(bottoms), all(&node.tops), declared.saved.bytes() as u64);
    let top = if declared.needs_top == Need::Nothing { 0 } else { y };
    let seen = all(&bottoms[..declared.read_bottoms]) + top + saved;
    // What adds to another gradient reads that, too.
    let writes = |how: &Accumulate| 1 + u64::from(*how == Accumulate::Add);
    let wanted = || bottoms.iter().zip(&node.propagates).filter_map(|(one, how)| Some((one, how.as_ref()?)));
    let dx: u64 = wanted().map(|(bottom, how)| blob(bottom) * writes(how)).sum();
    let weights = node.params.first().map_or(0, |&param| graph.params[param].space().bytes() as u64);
    let bias = y * u64::from(node.used_params.len() > 1);
    let [forward, backward] = match node.spec.kind {
        // Data come from the host before everything else; in place, a blob has its new shape already.
        _ if bottoms.is_empty() => [0; 2],
        LayerKind::Flatten(_) | LayerKind::Reshape(_) if node.in_place => [0; 2],
        LayerKind::Convolution(_) => [2 * bias, bias],
        LayerKind::InnerProduct(_) => [x + weights + y + 2 * bias, seen + 2 * (weights + y) + bias + dx],
        // Channels are summed before they are mapped: what no cache holds is read twice.
        LayerKind::BatchNorm(_) if channel_grid(&AxisExtents::new(shape(&bottoms[0]), 1)).is_none() => {
            [blob(&bottoms[0]) + x + y, blob(&bottoms[0]) + seen + 2 * y + dx]
        }
        // Gradients of factors, of each summand and of each copy are passes of their own.
        LayerKind::Scale(_) => [x + y, seen + 2 * y + dx],
        LayerKind::Eltwise(_) => [x + y, seen + wanted().count() as u64 * y + dx],
        LayerKind::Pooling(_) => [x + y + saved, seen + y + dx + y * node.used_params.len() as u64],
        LayerKind::Split => [2 * y, 3 * y + dx - 2 * x],
        LayerKind::PReLU(_) => [9 * y, 12 * y + dx],
        _ => [x + y + saved, seen + y + dx],
    };
    let again = if declared.repeats_from_saved { x + y } else { forward };
    // What the layer before has absorbed is done on its way.
    let [ahead, back] = [node.absorbed != Absorbed::No, node.absorbed.is_backward()].map(|is| u64::from(!is));
    [forward * ahead, backward * back, again * ahead]
}
