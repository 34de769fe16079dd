//! Caffe's `time`: how long every layer takes, and what its kernels' plan had promised.

#[cfg(test)]
mod tests;

use crate::{
    error::NetError,
    net::{
        Layout, MemoryReport, Net,
        run::Iteration,
        schedule::{Pass, Step},
    },
    replay,
    solver::{initialize, update_parameters},
};
use cudnn_layers::{conv::ConvOp, sgd};
use planner::Plan;
use serde::Serialize;
use std::collections::HashMap;
use tensor::{Accumulate, Arena, Mark};

/// Average times of one layer, in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerTime {
    /// The layer's name.
    pub name: String,
    /// Its type.
    pub type_name: &'static str,
    /// Forward.
    pub forward_ms: f64,
    /// Backward; 0 where there is no backward pass.
    pub backward_ms: f64,
}

/// The measured time of one convolution kernel beside the plan's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelTime {
    /// The layer's name.
    pub layer: String,
    /// The operation.
    pub op: ConvOp,
    /// What the plan says, in milliseconds.
    pub planned_ms: f64,
    /// The median over the iterations, in milliseconds.
    pub measured_ms: f64,
}

/// Everything that `time` measures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimeReport {
    /// The loss of the pass before the measurement.
    pub initial_loss: f64,
    /// Timed iterations, forward and backward, in milliseconds each.
    pub iterations_ms: Vec<f64>,
    /// Layers in the order of the net.
    pub layers: Vec<LayerTime>,
    /// ReLUs fused into the previous layer; their time is counted there.
    pub fused_relus: usize,
    /// Kernels in the order of the plan.
    pub kernels: Vec<KernelTime>,
    /// Average forward pass in milliseconds.
    pub forward_ms: f64,
    /// Average backward pass in milliseconds.
    pub backward_ms: f64,
    /// Average update of all parameters in milliseconds, if the net trains any; not part of an iteration in Caffe's sense.
    pub update_ms: Option<f64>,
    /// Iterations with their update recorded once and replayed, in milliseconds each: on a GPU, without the
    /// host's time to launch each layer.
    pub replayed_ms: Vec<f64>,
    /// What the run took of a GPU's memory: the arena, and code that was loaded on the way.
    pub gpu_bytes: Option<u64>,
}

impl TimeReport {
    /// Average of a timed iteration in milliseconds.
    pub fn forward_backward_ms(&self) -> f64 {
        self.total_ms() / self.iterations_ms.len() as f64
    }

    /// All timed iterations in milliseconds.
    pub fn total_ms(&self) -> f64 {
        self.iterations_ms.iter().sum()
    }
}

/// A net ready to be timed, with the plan that is installed in it.
pub struct Timing {
    net: Net,
    plan: Plan,
    layout: Layout,
}

impl Timing {
    /// Lays out `net`, in which `plan` is installed. Nothing is allocated yet.
    pub fn new(net: Net, plan: Plan) -> Self {
        let layout = Layout::new(&[&net], true);
        Self { net, plan, layout }
    }

    /// The memory that the run will take.
    pub fn memory(&self) -> &MemoryReport {
        &self.layout.report
    }

    /// The installed plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The net.
    pub fn net(&self) -> &Net {
        &self.net
    }

    /// Allocates, runs one iteration unmeasured, then `iterations` with measurement, telling `observe` the time of each in
    /// milliseconds. Gives the net back, to be timed under another plan.
    ///
    /// # Errors
    /// What a layer reports of its data; a GPU that is out of memory or lost.
    pub fn run(
        mut self,
        iterations: usize,
        seed: u64,
        mut observe: impl FnMut(usize, f64) + Send,
    ) -> Result<(TimeReport, Net), NetError> {
        let device = self.net.device().clone();
        let before = device.bytes_in_use()?;
        let mut arena = Arena::on(&device, self.layout.len)?;
        self.net.enter_arena();
        initialize(&self.net, &self.layout.nets[0], &mut arena, seed)?;
        self.net.time_kernels(true);
        let mut report = device.run(|| self.measure(&mut arena, iterations, &mut observe))?;
        report.gpu_bytes =
            device.bytes_in_use()?.zip(before).map(|(after, before)| after.saturating_sub(before));
        Ok((report, self.net))
    }

    fn measure(
        &mut self,
        arena: &mut Arena,
        iterations: usize,
        observe: &mut dyn FnMut(usize, f64),
    ) -> Result<TimeReport, NetError> {
        self.iteration(arena, 0)?;
        let initial_loss = self.net.loss(&self.layout.nets[0], arena)?;
        let mut clock = Clock::new(self.net.graph().nodes.len());
        let mut before: Option<Marks> = None;
        for number in 1..=iterations as u64 {
            // A GPU is given the next iteration before the times of this one are waited for: it never stands still.
            let marks = self.iteration(arena, number)?;
            if let Some(before) = before.replace(marks) {
                observe(clock.iterations_ms.len(), clock.add(before)?);
            }
        }
        if let Some(last) = before {
            observe(clock.iterations_ms.len(), clock.add(last)?);
        }
        self.net.check()?;
        let replayed_ms = self.replay(arena, iterations)?;
        Ok(self.report(clock, initial_loss, replayed_ms))
    }

    fn replay(&mut self, arena: &mut Arena, iterations: usize) -> Result<Vec<f64>, NetError> {
        let device = self.net.device().clone();
        self.net.time_kernels(false);
        replay::timed(&device, arena, iterations, |arena| {
            let layout = &self.layout.nets[0];
            let iteration = Iteration { number: 0, accumulate: Accumulate::Replace };
            self.net.forward(layout, arena, iteration, |_| Ok(()))?;
            self.net.backward(layout, arena, iteration, |_| Ok(()))?;
            self.update(arena);
            Ok(())
        })
    }

    /// Forward, backward and update.
    fn iteration(&mut self, arena: &mut Arena, number: u64) -> Result<Marks, NetError> {
        let layout = &self.layout.nets[0];
        let iteration = Iteration { number, accumulate: Accumulate::Replace };
        let device = self.net.device().clone();
        let mut steps = Vec::with_capacity(layout.schedule.steps.len());
        let mut observe = |step| {
            steps.push((step, device.mark()?));
            Ok(())
        };
        let start = device.mark()?;
        self.net.forward(layout, arena, iteration, &mut observe)?;
        let forward = device.mark()?;
        self.net.backward(layout, arena, iteration, &mut observe)?;
        let backward = device.mark()?;
        self.update(arena);
        let update = device.mark()?;
        Ok(Marks { start, forward, backward, update, steps, kernels: self.net.take_kernel_marks() })
    }

    /// The update of training at a learning rate of zero: all its work, and weights that stay what they are.
    fn update(&self, arena: &mut Arena) {
        let update = sgd::Update {
            rate: 0.0,
            momentum: 0.9,
            gradient_scale: 1.0,
            decay: 5e-4,
            regularization: sgd::Regularization::L2,
        };
        let params = &self.layout.nets[0].params;
        update_parameters(self.net.device(), arena, params.iter().map(|spans| (update, spans)));
    }

    fn report(&self, clock: Clock, initial_loss: f64, replayed_ms: Vec<f64>) -> TimeReport {
        let Clock { layers, kernels, iterations_ms, forward_ms, backward_ms, update_ms } = clock;
        let average = |total: f64| total / iterations_ms.len().max(1) as f64;
        let nodes = &self.net.graph().nodes;
        let layers = nodes.iter().zip(&layers).map(|(node, &[forward, backward])| LayerTime {
            name: node.name.clone(),
            type_name: node.type_name,
            forward_ms: average(forward),
            backward_ms: average(backward),
        });
        let kernels = self.plan.kernels.iter().map(|planned| {
            let (layer, op) = (&planned.kernel.name, planned.kernel.id.op);
            let node = nodes.iter().position(|node| node.name == *layer);
            let times = node.and_then(|node| kernels.get(&(node, op))).cloned().unwrap_or_default();
            let (planned_ms, measured_ms) = (planned.time_ms(), median(times));
            KernelTime { layer: layer.clone(), op, planned_ms, measured_ms }
        });
        TimeReport {
            initial_loss,
            layers: layers.collect(),
            fused_relus: self.net.fused_relus(),
            kernels: kernels.collect(),
            forward_ms: average(forward_ms),
            backward_ms: average(backward_ms),
            update_ms: self.net.is_training().then(|| average(update_ms)),
            replayed_ms,
            gpu_bytes: None,
            iterations_ms,
        }
    }
}

/// The points of one iteration, read once the device has reached them.
struct Marks {
    start: Mark,
    /// The ends of the steps, forward before backward.
    steps: Vec<(Step, Mark)>,
    forward: Mark,
    backward: Mark,
    update: Mark,
    kernels: Vec<(usize, ConvOp, [Mark; 2])>,
}

/// Times of all iterations, in milliseconds.
struct Clock {
    /// Sums of each layer, forward and backward.
    layers: Vec<[f64; 2]>,
    /// Each kernel's times, by node.
    kernels: HashMap<(usize, ConvOp), Vec<f64>>,
    iterations_ms: Vec<f64>,
    forward_ms: f64,
    backward_ms: f64,
    update_ms: f64,
}

impl Clock {
    fn new(layers: usize) -> Self {
        Self {
            layers: vec![[0.0; 2]; layers],
            kernels: HashMap::new(),
            iterations_ms: Vec::new(),
            forward_ms: 0.0,
            backward_ms: 0.0,
            update_ms: 0.0,
        }
    }

    /// Reads one iteration and returns its time without the update, as Caffe counts.
    fn add(&mut self, marks: Marks) -> Result<f64, NetError> {
        let Marks { start, steps, forward, backward, update, kernels } = marks;
        let (mut forward_from, mut backward_from) = (&start, &forward);
        for (step, end) in &steps {
            let (pass, from) = match step.pass {
                Pass::Forward => (0, &mut forward_from),
                Pass::Backward => (1, &mut backward_from),
            };
            self.layers[step.node][pass] += from.ms_until(end)?;
            *from = end;
        }
        for (node, op, [start, end]) in kernels {
            self.kernels.entry((node, op)).or_default().push(start.ms_until(&end)?);
        }
        self.forward_ms += start.ms_until(&forward)?;
        self.backward_ms += forward.ms_until(&backward)?;
        self.update_ms += backward.ms_until(&update)?;
        let both = start.ms_until(&backward)?;
        self.iterations_ms.push(both);
        Ok(both)
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}
