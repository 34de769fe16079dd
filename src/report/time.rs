//! What `time` measured: Caffe's lines in Caffe's words, then what they leave out.

use super::{
    KernelReport, LayerMemory, MemoryEstimate, PlanReport, layer_table,
    number::{deviation, six_digits},
};
use planner::{Bytes, Plan};
use serde::Serialize;
use trainer::time::TimeReport;

/// One net timed under one plan.
#[derive(Clone, Debug, Serialize)]
pub struct TimeRun {
    /// The memory of the run, as told before it.
    pub memory: MemoryEstimate,
    /// The plan.
    pub plan: PlanReport,
    /// The loss of the pass before the measurement.
    pub initial_loss: f64,
    /// Forward and backward of each timed iteration.
    pub iterations_ms: Vec<f64>,
    /// Each layer's average times.
    pub layers: Vec<LayerTiming>,
    /// ReLUs that run inside the layer before them, in whose times theirs are.
    pub fused_relus: usize,
    /// Average forward pass.
    pub forward_ms: f64,
    /// Average backward pass.
    pub backward_ms: f64,
    /// Average of forward and backward together.
    pub forward_backward_ms: f64,
    /// All timed iterations.
    pub total_ms: f64,
    /// Average update of all parameters, which Caffe's `time` leaves out; `null` where nothing is trained.
    pub update_ms: Option<f64>,
    /// Forward, backward and update, if there is one, of each iteration recorded once and replayed; empty where nothing can be recorded.
    pub replayed_ms: Vec<f64>,
    /// Samples in the time of forward, backward and update.
    pub images_per_s: f64,
    /// All convolution kernels as planned.
    pub kernels_planned_ms: f64,
    /// All convolution kernels as measured in the net.
    pub kernels_measured_ms: f64,
    /// What each layer brings into the arena.
    pub layer_memory: Vec<LayerMemory>,
    /// What the run took of a GPU's memory.
    pub gpu_bytes: Option<u64>,
    /// The most that was ever resident, if the system says.
    pub peak_resident_bytes: Option<u64>,
}

/// Average times of a layer.
#[derive(Clone, Debug, Serialize)]
pub struct LayerTiming {
    /// The layer.
    pub name: String,
    /// Its type.
    pub type_name: &'static str,
    /// Forward.
    pub forward_ms: f64,
    /// Backward.
    pub backward_ms: f64,
}

impl TimeRun {
    /// Puts together what was known before the run and what it measured.
    pub fn new(
        (memory, plan, layer_memory): (MemoryEstimate, &Plan, Vec<LayerMemory>),
        measured: TimeReport,
        mini_batch: usize,
    ) -> Self {
        let plan = PlanReport::new(plan, &measured.kernels);
        let iteration_ms = measured.forward_backward_ms() + measured.update_ms.unwrap_or(0.0);
        let layers = measured.layers.iter().map(|layer| LayerTiming {
            name: layer.name.clone(),
            type_name: layer.type_name,
            forward_ms: layer.forward_ms,
            backward_ms: layer.backward_ms,
        });
        Self {
            initial_loss: measured.initial_loss,
            layers: layers.collect(),
            fused_relus: measured.fused_relus,
            forward_ms: measured.forward_ms,
            backward_ms: measured.backward_ms,
            forward_backward_ms: measured.forward_backward_ms(),
            total_ms: measured.total_ms(),
            update_ms: measured.update_ms,
            replayed_ms: measured.replayed_ms,
            images_per_s: mini_batch as f64 / iteration_ms * 1e3,
            kernels_planned_ms: plan.time_ms,
            kernels_measured_ms: plan.kernels.iter().filter_map(|kernel| kernel.measured_ms).sum(),
            iterations_ms: measured.iterations_ms,
            gpu_bytes: measured.gpu_bytes,
            peak_resident_bytes: crate::process::peak_resident().map(|bytes| bytes.0),
            memory,
            plan,
            layer_memory,
        }
    }

    /// Forward, backward and update.
    pub fn iteration_ms(&self) -> f64 {
        self.forward_backward_ms + self.update_ms.unwrap_or(0.0)
    }

    /// What Caffe's `time` prints.
    pub fn caffe_lines(&self) -> String {
        let mut lines = vec![
            "Performing Forward".to_owned(),
            format!("Initial loss: {}", six_digits(self.initial_loss)),
            "Performing Backward".to_owned(),
            "*** Benchmark begins ***".to_owned(),
            format!("Testing for {} iterations.", self.iterations_ms.len()),
        ];
        for (index, &time_ms) in self.iterations_ms.iter().enumerate() {
            lines.push(format!(
                "Iteration: {} forward-backward time: {} ms.",
                index + 1,
                six_digits(time_ms)
            ));
        }
        lines.push("Average time per layer: ".to_owned());
        let width = self.layers.iter().map(|layer| layer.name.len()).max().unwrap_or(0).max(10);
        for LayerTiming { name, forward_ms, backward_ms, .. } in &self.layers {
            lines.push(format!("{name:>width$}\tforward: {} ms.", six_digits(*forward_ms)));
            lines.push(format!("{name:>width$}\tbackward: {} ms.", six_digits(*backward_ms)));
        }
        lines.push(format!("Average Forward pass: {} ms.", six_digits(self.forward_ms)));
        lines.push(format!("Average Backward pass: {} ms.", six_digits(self.backward_ms)));
        lines.push(format!("Average Forward-Backward: {} ms.", six_digits(self.forward_backward_ms)));
        lines.push(format!("Total Time: {} ms.", six_digits(self.total_ms)));
        lines.push("*** Benchmark ends ***".to_owned());
        lines.join("\n")
    }

    /// What Caffe does not tell: kernels, memory by layer, the plan's promise and the speed.
    pub fn our_tables(&self) -> String {
        let memory = format!(
            "Memory by layer, before buffers share their places:\n{}",
            layer_table(&self.layer_memory)
        );
        format!("{}\n\n{memory}\n\n{}", self.plan, self.summary())
    }

    fn summary(&self) -> String {
        let layers_ms: f64 = self.layers.iter().map(|layer| layer.forward_ms + layer.backward_ms).sum();
        let (planned, measured) = (self.kernels_planned_ms, self.kernels_measured_ms);
        let mut lines = vec!["Summary:".to_owned()];
        if planned > 0.0 {
            let share = measured / self.forward_backward_ms * 100.0;
            lines.push(format!(
                "  convolution kernels  planned {planned:.1} ms, measured {measured:.1} ms ({}), {share:.0} % of forward-backward",
                deviation(measured, planned)
            ));
        }
        let worst = self.worst_prediction();
        if let Some((kernel, measured_ms)) = worst {
            let deviation = deviation(measured_ms, kernel.planned_ms);
            lines.push(format!("  furthest from plan   {}: {deviation}", kernel.name()));
        }
        lines.push(format!(
            "  layers add up to     {layers_ms:.1} ms ({} to the average forward-backward)",
            deviation(layers_ms, self.forward_backward_ms)
        ));
        lines.extend(match self.fused_relus {
            0 => None,
            1 => Some("  fused                1 ReLU runs inside the layer before it".to_owned()),
            count => Some(format!("  fused                {count} ReLUs run inside the layer before them")),
        });
        let with_update = self.update_ms.map_or("", |_| " with the update");
        lines.extend(self.update_ms.map(|update_ms| format!("  update               {update_ms:.1} ms")));
        lines.push(format!(
            "  whole iteration      {:.1} ms{with_update}: {:.1} images/s",
            self.iteration_ms(),
            self.images_per_s
        ));
        if let Some(replayed_ms) = median(&self.replayed_ms) {
            let images_per_s = self.images_per_s * self.iteration_ms() / replayed_ms;
            lines.push(format!(
                "  recorded, replayed   {replayed_ms:.2} ms{with_update}: {images_per_s:.1} images/s"
            ));
        }
        if let Some(taken) = self.gpu_bytes {
            let difference = deviation(taken as f64, self.memory.arena_bytes as f64);
            lines.push(format!("  GPU memory taken     {} ({difference} to the arena)", Bytes(taken)));
        }
        let peak = self.memory.compare(self.peak_resident_bytes);
        lines.extend(peak.map(|peak| format!("  peak resident        {peak}")));
        lines.join("\n")
    }

    /// The kernel whose measured time differs most from its planned one, among those that matter: a hundredth of all.
    fn worst_prediction(&self) -> Option<(&KernelReport, f64)> {
        let matters = |kernel: &&KernelReport| kernel.planned_ms > 0.01 * self.kernels_planned_ms;
        let measured =
            self.plan.kernels.iter().filter(matters).filter_map(|kernel| Some((kernel, kernel.measured_ms?)));
        let distance =
            |&(kernel, measured_ms): &(&KernelReport, f64)| (measured_ms / kernel.planned_ms).ln().abs();
        measured.max_by(|a, b| distance(a).total_cmp(&distance(b)))
    }
}

fn median(times: &[f64]) -> Option<f64> {
    let mut times = times.to_vec();
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}
