//! Caffe's `time`: how long every layer takes, and what its kernels' plan had promised.

use crate::{
    error::NetError,
    net::{
        Layout, MemoryReport, Net,
        run::Iteration,
        schedule::{Pass, Step},
    },
    solver::initialize,
};
use cudnn_layers::{conv::ConvOp, sgd};
use planner::Plan;
use std::time::{Duration, Instant};
use tensor::{Accumulate, Arena};

/// Average times of one layer, in milliseconds.
#[derive(Clone, Debug, PartialEq)]
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
#[derive(Clone, Debug, PartialEq)]
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
#[derive(Clone, Debug, PartialEq)]
pub struct TimeReport {
    /// The loss of the pass before the measurement.
    pub initial_loss: f64,
    /// Timed iterations, forward and backward, in milliseconds each.
    pub iterations_ms: Vec<f64>,
    /// Layers in the order of the net.
    pub layers: Vec<LayerTime>,
    /// Kernels in the order of the plan.
    pub kernels: Vec<KernelTime>,
    /// Average forward pass in milliseconds.
    pub forward_ms: f64,
    /// Average backward pass in milliseconds.
    pub backward_ms: f64,
    /// Average update of all parameters in milliseconds; not part of an iteration in Caffe's sense.
    pub update_ms: f64,
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
    /// What a layer reports of its data.
    pub fn run(
        mut self,
        iterations: usize,
        seed: u64,
        mut observe: impl FnMut(usize, f64) + Send,
    ) -> Result<(TimeReport, Net), NetError> {
        let device = self.net.device().clone();
        let mut arena = Arena::new(self.layout.len);
        self.net.enter_arena();
        initialize(&self.net, &self.layout.nets[0], &mut arena, seed);
        let report = device.run(|| self.measure(&mut arena, iterations, &mut observe))?;
        Ok((report, self.net))
    }

    fn measure(
        &mut self,
        arena: &mut Arena,
        iterations: usize,
        observe: &mut dyn FnMut(usize, f64),
    ) -> Result<TimeReport, NetError> {
        let mut clock = Clock::new(self.net.graph().nodes.len());
        self.iteration(arena, 0, &mut Clock::new(self.net.graph().nodes.len()))?;
        let initial_loss = self.net.loss(&self.layout.nets[0], arena);
        self.net.take_kernel_times();
        let mut iterations_ms = Vec::with_capacity(iterations);
        let mut kernels: Vec<Vec<Duration>> = vec![Vec::with_capacity(iterations); self.plan.kernels.len()];
        for index in 0..iterations {
            let time = self.iteration(arena, 1 + index as u64, &mut clock)?;
            iterations_ms.push(ms(time));
            observe(index, ms(time));
            let times = self.net.take_kernel_times();
            for (kernel, samples) in self.plan.kernels.iter().zip(&mut kernels) {
                let this = times
                    .iter()
                    .find(|(name, op, _)| (name, *op) == (&kernel.kernel.name, kernel.kernel.id.op));
                samples.extend(this.map(|&(_, _, time)| time));
            }
        }
        Ok(self.report(clock, initial_loss, iterations_ms, kernels))
    }

    /// Forward and backward, timed together, then the update, timed apart.
    fn iteration(&mut self, arena: &mut Arena, number: u64, clock: &mut Clock) -> Result<Duration, NetError> {
        let (layout, iteration) =
            (&self.layout.nets[0], Iteration { number, accumulate: Accumulate::Replace });
        let start = Instant::now();
        self.net.forward(layout, arena, iteration, |step, time| clock.add(step, time))?;
        let forward = start.elapsed();
        self.net.backward(layout, arena, iteration, |step, time| clock.add(step, time))?;
        let both = start.elapsed();
        self.update(arena);
        clock.forward += forward;
        clock.backward += both - forward;
        clock.update += start.elapsed() - both;
        Ok(both)
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
        for spans in &self.layout.nets[0].params {
            if let (Some(diff), Some(history)) = (spans.diff, spans.history) {
                crate::solver::update_parameter(
                    self.net.device(),
                    &update,
                    arena,
                    [diff, history, spans.data],
                );
            }
        }
    }

    fn report(
        &self,
        clock: Clock,
        initial_loss: f64,
        iterations_ms: Vec<f64>,
        kernels: Vec<Vec<Duration>>,
    ) -> TimeReport {
        // The clock has one iteration per timed one: the warm-up had a clock of its own.
        let average = |total: Duration| ms(total) / iterations_ms.len().max(1) as f64;
        let nodes = self.net.graph().nodes.iter().zip(&clock.layers);
        let layers = nodes.map(|(node, &[forward, backward])| LayerTime {
            name: node.name.clone(),
            type_name: node.type_name,
            forward_ms: average(forward),
            backward_ms: average(backward),
        });
        let kernels = self.plan.kernels.iter().zip(kernels).map(|(planned, times)| KernelTime {
            layer: planned.kernel.name.clone(),
            op: planned.kernel.id.op,
            planned_ms: planned.time_ms(),
            measured_ms: median_ms(times),
        });
        TimeReport {
            initial_loss,
            layers: layers.collect(),
            kernels: kernels.collect(),
            forward_ms: average(clock.forward),
            backward_ms: average(clock.backward),
            update_ms: average(clock.update),
            iterations_ms,
        }
    }
}

/// Sums over the timed iterations.
struct Clock {
    layers: Vec<[Duration; 2]>,
    forward: Duration,
    backward: Duration,
    update: Duration,
}

impl Clock {
    fn new(layers: usize) -> Self {
        let zero = Duration::ZERO;
        Self { layers: vec![[zero; 2]; layers], forward: zero, backward: zero, update: zero }
    }

    fn add(&mut self, step: Step, time: Duration) {
        self.layers[step.node][match step.pass {
            Pass::Forward => 0,
            Pass::Backward => 1,
        }] += time;
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn median_ms(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().map_or(0.0, ms)
}
