//! The memory of a run and of its layers, told before anything is allocated.

use crate::{number::bytes, table::Table};
use memory::{LayerMemory, MemoryReport};
use planner::Bytes;
use serde::Serialize;
use std::fmt;

/// What a run will take, part by part, and what is taken already.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryEstimate {
    /// The arena's parts, and what lies outside of it.
    #[serde(flatten)]
    pub report: MemoryReport,
    /// What this process held before the arena, if the system says.
    pub resident: Option<Bytes>,
    /// The most that should ever be resident, if the system says what already is, and the arena is in host memory.
    pub expected_peak: Option<Bytes>,
    /// The same without what was resident only while kernels were measured.
    pub run_peak: Option<Bytes>,
    /// Where the arena is a GPU's: how its memory stands.
    pub gpu: Option<GpuMemory>,
    #[serde(skip)]
    replicas: u64,
}

/// A GPU's memory just before the arena is allocated.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct GpuMemory {
    /// What is free.
    pub free: Bytes,
    /// What this process took for scratch that libraries share; the driver's own context comes on top.
    pub scratch: Bytes,
}

impl MemoryEstimate {
    /// The estimate for `report`, of each of so many `replicas` in this process, made just before the arena is allocated,
    /// in which so much was resident before the nets were built (`at_start`), is now (`resident`) and ever was (`peak`).
    pub fn new(
        report: &MemoryReport,
        replicas: u64,
        [at_start, resident, peak]: [Option<Bytes>; 3],
        gpu: Option<GpuMemory>,
    ) -> Self {
        // Data sets are read when a net is built, the mini-batches prepared ahead come with the first iteration. What
        // was resident before the nets plus all host memory counts both, what is resident now only the former, but
        // with code and tables that were not there before: the larger of the two is right.
        let [host, arena] = [report.host, report.arena].map(|bytes| Bytes(bytes.0 * replicas));
        let outside = resident.max(at_start.map(|bytes| bytes + host));
        // Of host memory nothing is foretold beside a GPU: its driver's part grows with code that is loaded later.
        let run_peak = outside.filter(|_| gpu.is_none()).map(|outside| outside + arena);
        let expected_peak = run_peak.max(peak.filter(|_| run_peak.is_some()));
        Self { report: report.clone(), resident, expected_peak, run_peak, gpu, replicas }
    }

    /// The same for a run that first restores parameters and history from files, which then lie beside the arena.
    #[must_use]
    pub fn restoring(mut self) -> Self {
        let MemoryReport { parameters, history, arena, .. } = self.report;
        // The arena was zeroed: all of it is resident.
        let resident = self.resident.filter(|_| self.run_peak.is_some());
        let peak = resident.map(|held| held + Bytes((arena + parameters + history).0 * self.replicas));
        self.expected_peak = self.expected_peak.max(peak);
        self.run_peak = self.run_peak.max(peak);
        self
    }

    /// The most that was resident, beside what was expected; nothing where the system does not say.
    pub fn compare(&self, peak: Option<Bytes>) -> Option<String> {
        let (peak, expected) = (peak?, self.expected_peak?);
        // In bytes: of a small net's memory, code that is loaded on the way is a large part.
        let (sign, difference) =
            (if peak < expected { '-' } else { '+' }, Bytes(peak.0.abs_diff(expected.0)));
        Some(format!("{peak} ({sign}{difference} to the expected {expected})"))
    }
}

impl fmt::Display for MemoryEstimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (place, report) = (if self.gpu.is_some() { " on the GPU" } else { "" }, &self.report);
        let largest = report.nets.iter().max_by_key(|net| net.transient).copied().unwrap_or_default();
        let freed = largest.gradients > Bytes::ZERO;
        let transient = if freed { "blobs, gradients and workspace" } else { "blobs and workspace" };
        let parts = [
            ("parameters", report.parameters),
            ("gradients", report.gradients),
            ("history", report.history),
            ("inputs", report.constants),
            ("next mini-batches", report.staged),
            (transient, largest.transient),
        ];
        let parts = parts.iter().filter(|(_, bytes)| *bytes > Bytes::ZERO);
        let parts: Vec<String> = parts.map(|(name, bytes)| format!("{name} {bytes}")).collect();
        write!(f, "  memory      arena{place} {} = {}", report.arena, parts.join(" + "))?;
        let unshared = largest.data + largest.diff + largest.saved + largest.scratch + largest.gradients;
        if unshared > largest.transient {
            write!(f, "\n              ({transient} would be {unshared} if none shared its place)")?;
        }
        if let Some(GpuMemory { free, scratch }) = self.gpu {
            write!(f, "\n              the GPU has {free} free; ")?;
            write!(f, "scratch of libraries {scratch} is already taken")?;
        }
        write!(f, "\n              host buffers {}", self.report.host)?;
        let (Some(resident), Some(run), Some(peak)) = (self.resident, self.run_peak, self.expected_peak)
        else {
            return Ok(());
        };
        write!(f, ", already resident {resident}, expected peak {run}")?;
        if peak > run { write!(f, " ({peak} was taken before)") } else { Ok(()) }
    }
}

/// The memory of all layers below a sentence on it, one a line, and the sums.
pub fn layer_table(layers: &[LayerMemory]) -> String {
    let mut table = Table::new(["layer", "type", "top", ">data", ">diff", ">workspace", ">weights"]);
    let mut row = |words: [&str; 3], sizes: [Bytes; 4]| {
        table.row(words.map(str::to_owned).into_iter().chain(sizes.map(bytes)));
    };
    for LayerMemory { name, type_name, shape, data, diff, workspace, weights } in layers {
        row([name, type_name, shape], [*data, *diff, *workspace, *weights]);
    }
    let sum = |of: fn(&LayerMemory) -> Bytes| layers.iter().map(of).sum::<Bytes>();
    let workspace = layers.iter().map(|layer| layer.workspace).max().unwrap_or_default();
    let sums = [sum(|layer| layer.data), sum(|layer| layer.diff), workspace, sum(|layer| layer.weights)];
    row(["sum", "(of workspace: largest)", ""], sums);
    format!("Memory by layer, before buffers share their places:\n{table}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_restored_lie_beside_the_whole_arena() {
        let [parameters, history, arena, held] = [40, 45, 150, 14].map(Bytes);
        let report = MemoryReport { parameters, history, arena, ..MemoryReport::default() };
        let peak = |replicas, gpu| {
            MemoryEstimate::new(&report, replicas, [None, Some(held), None], gpu).restoring().expected_peak
        };
        assert_eq!(peak(1, None), Some(Bytes(14 + 150 + 85)));
        assert_eq!(peak(2, None), Some(Bytes(14 + 2 * (150 + 85))));
        let gpu = GpuMemory { free: Bytes(1), scratch: Bytes(0) };
        assert_eq!(peak(1, Some(gpu)), None, "the arena is the GPU's");
    }
}
