//! What the actions of an iteration take: what a policy for memory decides with.

use super::{Planning, source::Source};
use crate::{
    error::NetError,
    net::Net,
    run::{LayerTimes, measure},
};
use memory::{
    Outline, OutlineNode,
    policy::{Costs, PassCosts},
};
use planner::{Bytes, Configuration, ConvOp, Cost, Fronts, Kernel, PlanOptions};
use std::{collections::HashMap, time::Instant};

/// What cannot be measured, to estimate with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Bytes a millisecond of the device's memory, by passes without kernels.
    pub memory: f64,
    /// Of copies to the host and back.
    pub copies: f64,
    /// Host memory that may be locked.
    pub host: Bytes,
}

impl Rates {
    /// Of an H200: elementwise passes, PCIe 5, and three quarters of 128 GiB.
    pub const GPU: Self = Self { memory: 3.8e9, copies: 55e6, host: Bytes::mib(96 << 10) };
    /// Of a processor's memory, in which copies stay, too.
    pub const CPU: Self = Self { memory: 1e7, copies: 5e6, ..Self::GPU };
}

/// The part of the measured rate that copies are planned with: on an H200, 50 of 55 GB/s were seen beside computation.
const SUSTAINED: f64 = 0.88;

/// Workspace that kernels have while the rest of their layer is measured, unless none of their algorithms does with
/// that.
const WORKSPACE: Bytes = Bytes::mib(64);

impl Planning {
    /// Whether layers without kernels, and copies, can be measured.
    pub fn measures_layers(&self) -> bool {
        matches!(self.source, Source::Device(..)) && !self.records.offline
    }

    /// The costs of an iteration of `net`, whose `kernels` are known under `options`. Layers without kernels are
    /// measured on its device if they [can be](Self::measures_layers), and else estimated with `rates`. Gives the net
    /// back.
    ///
    /// # Errors
    /// Kernels that were not measured; a device without memory for a single layer, or that fails.
    pub fn costs(
        &mut self,
        net: Net,
        kernels: &[Kernel],
        options: &PlanOptions,
        rates: Rates,
    ) -> Result<(Costs, Net), NetError> {
        let (start, fronts) = (Instant::now(), Fronts::new(kernels, &self.table, options)?);
        let (times, net) = match self.measures_layers() {
            false => (estimated(&net.outline(true), rates), net),
            true => {
                let least = fronts.iter().map(|(_, set)| set.iter().next().map(Configuration::workspace));
                let limits: Vec<Bytes> =
                    least.map(|least| least.unwrap_or_default().max(WORKSPACE)).collect();
                measure(net, fronts.plan_within(&limits, options)?, &mut self.layers)?
            }
        };
        self.profiling += start.elapsed();
        Ok((costs(&net.outline(true), Some(&fronts), &times, rates.host), net))
    }
}

/// The costs of an iteration of a net of which nothing was measured: its kernels take nothing, neither time nor
/// workspace.
pub fn estimated_costs(net: &Net, rates: Rates) -> Costs {
    let outline = net.outline(true);
    let mut costs = costs(&outline, None, &estimated(&outline, rates), rates.host);
    let convolutions = net.graph().nodes.iter().zip(&mut costs.nodes);
    for (_, passes) in convolutions.filter(|(node, _)| node.type_name == "Convolution") {
        passes.iter_mut().for_each(|pass| pass.front = vec![Cost { time_ms: 0.0, workspace: Bytes::ZERO }]);
    }
    costs
}

/// The fronts of kernels, if they are known, beside what the rest of each pass takes.
fn costs(outline: &Outline, fronts: Option<&Fronts>, times: &LayerTimes, host: Bytes) -> Costs {
    let mut of_node: HashMap<&str, [Vec<Vec<Cost>>; 2]> = HashMap::new();
    for (kernel, set) in fronts.into_iter().flat_map(Fronts::iter) {
        let pass = usize::from(kernel.id.op != ConvOp::Forward);
        let points = set.iter().map(Configuration::cost).collect();
        of_node.entry(&kernel.name).or_default()[pass].push(points);
    }
    let node = |(node, rest_ms): (&OutlineNode, &[f64; 3])| {
        let fronts = of_node.remove(node.name.as_str()).unwrap_or_default();
        [0, 1].map(|pass| PassCosts::of_kernels(rest_ms[pass], &fronts[pass]))
    };
    // Copies that run one after the other beside computation do not keep up the best rate, and what waits for the end
    // of one waits for all delays before it.
    let bytes_per_ms = times.copied.map(|rate| rate * SUSTAINED);
    Costs {
        nodes: outline.nodes.iter().zip(&times.passes).map(node).collect(),
        again_ms: times.passes.iter().map(|pass_ms| pass_ms[2]).collect(),
        update_ms: times.update_ms,
        bytes_per_ms,
        launch_ms: times.launch_ms,
        host,
    }
}

/// Passes that take as long as reading and writing their operands.
fn estimated(outline: &Outline, rates: Rates) -> LayerTimes {
    let bytes = |values: &[usize]| values.iter().map(|&value| outline.values[value].bytes.0).sum::<u64>();
    let ms = |bytes: u64| bytes as f64 / rates.memory;
    let passes = outline.nodes.iter().map(|node| {
        let (bottoms, tops) = (bytes(&node.bottoms), bytes(&node.tops));
        let seen = bytes(node.bottoms_read()) + tops * u64::from(node.needs_top);
        // Data come from the host before everything else.
        let once = bottoms + tops;
        let moved = if node.bottoms.is_empty() { [0; 3] } else { [once, once + seen, once] };
        moved.map(ms)
    });
    let trained = outline.params.iter().filter(|param| param.trained).map(|param| param.bytes.0);
    // Weights and history are read and written, gradients are read.
    let update_ms = ms(5 * trained.sum::<u64>());
    LayerTimes { passes: passes.collect(), update_ms, copied: [rates.copies; 2], launch_ms: 0.0 }
}
