//! What `time` measured: Caffe's lines in Caffe's words, then what they leave out.

use figures::{
    Comparison, MemoryEstimate, PlanReport, Ratio, ScheduleReport, deviation, layer_table, six_digits,
};
use memory::LayerMemory;
use planner::Bytes;
use serde::Serialize;
use trainer::time::{TimeReport, median};

/// Kernels that take less than this part of what was planned were measured on a busy machine, as it seems: in a net, where
/// their operands are in no cache, they are rather slower.
const SLOWER_BEFORE: f64 = 0.85;

/// One net timed under one plan.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TimeRun {
    /// The memory of the run, as told before it.
    pub(crate) memory: MemoryEstimate,
    pub(crate) plan: PlanReport,
    /// Under a policy for memory, what becomes of feature maps.
    pub(crate) schedule: Option<ScheduleReport>,
    #[serde(flatten)]
    pub(crate) measured: TimeReport,
    /// Samples in the time of forward, backward and update.
    pub(crate) images_per_s: f64,
    /// All convolution kernels as measured in the net.
    pub(crate) kernels_measured_ms: f64,
    /// What each layer brings into the arena.
    pub(crate) layer_memory: Vec<LayerMemory>,
    /// The most that was ever resident, if the system says.
    pub(crate) peak_resident: Option<Bytes>,
}

impl TimeRun {
    /// What Caffe's `time` prints.
    pub(crate) fn caffe_lines(&self) -> String {
        let TimeReport { initial_loss, iterations_ms, layers, forward_ms, backward_ms, .. } = &self.measured;
        let line = |what: &str, ms: f64| format!("{what}: {} ms.", six_digits(ms));
        let mut lines = vec![
            "Performing Forward".to_owned(),
            format!("Initial loss: {}", six_digits(*initial_loss)),
            "Performing Backward".to_owned(),
            "*** Benchmark begins ***".to_owned(),
            format!("Testing for {} iterations.", iterations_ms.len()),
        ];
        let iterations = iterations_ms.iter().zip(1..);
        lines.extend(iterations.map(|(&ms, n)| line(&format!("Iteration: {n} forward-backward time"), ms)));
        lines.push("Average time per layer: ".to_owned());
        let width = layers.iter().map(|layer| layer.name.len()).max().unwrap_or(0).max(10);
        for layer in layers {
            for (pass, ms) in [("forward", layer.forward_ms), ("backward", layer.backward_ms)] {
                lines.push(line(&format!("{:>width$}\t{pass}", layer.name), ms));
            }
        }
        lines.extend([
            line("Average Forward pass", *forward_ms),
            line("Average Backward pass", *backward_ms),
            line("Average Forward-Backward", self.measured.forward_backward_ms),
            line("Total Time", iterations_ms.iter().sum()),
            "*** Benchmark ends ***".to_owned(),
        ]);
        lines.join("\n")
    }

    /// What Caffe does not tell: kernels, memory by layer, the plan's promise and the speed.
    pub(crate) fn our_tables(&self) -> String {
        let TimeReport { layers, update_ms, replayed_ms, copying_ms, stall_ms, gpu_bytes, .. } =
            &self.measured;
        let layers_ms: f64 = layers.iter().map(|layer| layer.forward_ms + layer.backward_ms).sum();
        let (planned, measured, both_ms) =
            (self.plan.time_ms, self.kernels_measured_ms, self.measured.forward_backward_ms);
        let mut lines = Vec::new();
        macro_rules! line {
            ($name:literal, $($text:tt)*) => { lines.push(format!("  {:<20} {}", $name, format!($($text)*))) };
        }
        if planned > 0.0 {
            let (deviation, share) = (deviation(measured, planned), measured / both_ms * 100.0);
            line!(
                "convolution kernels",
                "planned {planned:.1} ms, measured {measured:.1} ms ({deviation}), {share:.0} % of forward-backward"
            );
            if measured < SLOWER_BEFORE * planned {
                line!("", "slower when measured: if the machine was busy, --no-database measures again");
            }
        }
        let difference = deviation(layers_ms, both_ms);
        line!("layers add up to", "{layers_ms:.1} ms ({difference} to the average forward-backward)");
        let with_update = update_ms.map_or("", |_| " with the update");
        update_ms.iter().for_each(|update_ms| line!("update", "{update_ms:.1} ms"));
        let (iteration_ms, images_per_s) = (self.measured.iteration_ms(), self.images_per_s);
        line!("whole iteration", "{iteration_ms:.1} ms{with_update}: {images_per_s:.1} images/s");
        if let Some(ScheduleReport { planned_ms, copying_ms: planned, stall_ms: planned_stall, .. }) =
            &self.schedule
        {
            let measured_ms = median(replayed_ms).unwrap_or(iteration_ms);
            let deviation = deviation(measured_ms, *planned_ms);
            line!(
                "under its policy",
                "planned {planned_ms:.1} ms, measured {measured_ms:.1} ms ({deviation})"
            );
            let [[out, back], [planned_out, planned_back]] = [copying_ms, planned];
            line!(
                "copies",
                "{out:.1} ms to the host, {back:.1} ms back (planned {planned_out:.1} and {planned_back:.1} ms); \
                 computation waits {stall_ms:.1} ms (planned {planned_stall:.1})"
            );
        }
        if let Some(replayed_ms) = median(replayed_ms) {
            let images_per_s = images_per_s * iteration_ms / replayed_ms;
            line!("recorded, replayed", "{replayed_ms:.2} ms{with_update}: {images_per_s:.1} images/s");
        }
        if let Some(taken) = *gpu_bytes {
            let difference = deviation(taken as f64, self.memory.report.arena.0 as f64);
            line!("GPU memory taken", "{} ({difference} to the arena)", Bytes(taken));
        }
        let peak = self.memory.compare(self.peak_resident);
        peak.iter().for_each(|peak| line!("peak resident", "{peak}"));
        let (plan, memory) = (&self.plan, layer_table(&self.layer_memory));
        format!("{plan}\n\n{memory}\n\nSummary:\n{}", lines.join("\n"))
    }

    /// This run, undivided, beside one under the `chosen` policy.
    pub(crate) fn compare(&self, chosen: &Self) -> Comparison {
        let total = |name, of: fn(&Self) -> f64| Ratio::new(name, [self, chosen].map(of));
        let mut totals = vec![
            total("convolution kernels", |run| run.kernels_measured_ms),
            total("forward", |run| run.measured.forward_ms),
            total("backward", |run| run.measured.backward_ms),
            total("forward-backward", |run| run.measured.forward_backward_ms),
            total("update", |run| run.measured.update_ms.unwrap_or(0.0)),
            total("whole iteration", |run| run.measured.iteration_ms()),
        ];
        totals.retain(|ratio| ratio.name != "update" || chosen.measured.update_ms.is_some());
        Comparison::new([&self.plan, &chosen.plan], totals)
    }
}
