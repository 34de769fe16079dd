//! What `time` measures.

use serde::Serialize;

/// Average times of one layer, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
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

/// Everything that `time` measures.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TimeReport {
    /// The loss of the pass before the measurement.
    pub initial_loss: f64,
    /// Timed iterations, forward and backward, in milliseconds each.
    pub iterations_ms: Vec<f64>,
    /// Layers in the order of the net. What is fused counts with the layer before it.
    pub layers: Vec<LayerTime>,
    /// Of every kernel, in the order of the plan, the median over the iterations; a report has it beside the plan's time.
    #[serde(skip)]
    pub kernels_ms: Vec<f64>,
    /// Average forward pass in milliseconds.
    pub forward_ms: f64,
    /// Average backward pass in milliseconds.
    pub backward_ms: f64,
    /// Average of both together.
    pub forward_backward_ms: f64,
    /// Average update of all parameters in milliseconds, if any is trained; no part of an iteration in Caffe's sense.
    pub update_ms: Option<f64>,
    /// Iterations with update, recorded and replayed on a GPU, without the host's launches, in milliseconds each.
    pub replayed_ms: Vec<f64>,
    /// When each action of the last timed iteration began and ended, in ms; a pass begins where the one before it has ended.
    #[serde(skip)]
    pub spans_ms: Vec<[f64; 2]>,
    /// How long its copies to the host and back took, in milliseconds.
    pub copying_ms: [f64; 2],
    /// How long its computation waited for them on a GPU, in milliseconds.
    pub stall_ms: f64,
    /// What the run took of a GPU's memory: the arena, and code that was loaded on the way.
    pub gpu_bytes: Option<u64>,
}

impl TimeReport {
    /// Average of forward, backward and update together in milliseconds.
    pub fn iteration_ms(&self) -> f64 {
        self.forward_backward_ms + self.update_ms.unwrap_or(0.0)
    }
}
