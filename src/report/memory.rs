//! The memory of a run, told before it is allocated.

use crate::process;
use memory::MemoryReport;
use planner::Bytes;
use serde::Serialize;
use std::fmt;
use tensor::Device;

/// What a run will take, part by part.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryEstimate {
    /// Parameters and persistent state.
    pub parameters_bytes: u64,
    /// Their gradients.
    pub gradients_bytes: u64,
    /// The solver's history.
    pub history_bytes: u64,
    /// Inputs that are filled once.
    pub constants_bytes: u64,
    /// Under WD, the kernels' own segments of workspace.
    pub segments_bytes: u64,
    /// Blobs, their gradients, saved state, scratch and shared workspace, with lifetimes used: the largest of the nets.
    pub transient_bytes: u64,
    /// The same if nothing shared its place.
    pub transient_unshared_bytes: u64,
    /// The one allocation for all of the above.
    pub arena_bytes: u64,
    /// Data sets and mini-batches prepared ahead, outside the arena.
    pub host_bytes: u64,
    /// What this process held before the arena, if the system says.
    pub resident_bytes: Option<u64>,
    /// The most that should ever be resident, if the system says what already is, and the arena is in host memory.
    pub expected_peak_bytes: Option<u64>,
    /// The same without what was resident only while kernels were measured.
    pub run_peak_bytes: Option<u64>,
    /// Where the arena is a GPU's: how its memory stands.
    pub gpu: Option<GpuMemory>,
}

/// A GPU's memory just before the arena is allocated.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct GpuMemory {
    /// What is free.
    pub free_bytes: u64,
    /// What this process took for scratch that libraries share; the driver's own context comes on top.
    pub scratch_bytes: u64,
}

impl GpuMemory {
    /// Nothing on a processor, or if the GPU does not answer.
    fn of(device: &Device) -> Option<Self> {
        let Device::Cuda(cuda) = device else { return None };
        let [free_bytes, _] = cuda.memory().ok()?;
        Some(Self { free_bytes, scratch_bytes: cuda.own_bytes() })
    }
}

impl MemoryEstimate {
    /// The estimate for `report`, made just before the arena is allocated. `at_start` was resident before the nets were
    /// built.
    pub fn new(report: &MemoryReport, at_start: Option<Bytes>, device: &Device) -> Self {
        process::release_freed();
        let resident = process::resident();
        // Data sets are read when a net is built, the mini-batches prepared ahead come with the first iteration. What
        // was resident before the nets plus all host memory counts both, what is resident now only the former, but
        // with code and tables that were not there before: the larger of the two is right.
        let outside = resident.max(at_start.map(|bytes| bytes + report.host));
        let gpu = GpuMemory::of(device);
        // Of host memory nothing is foretold beside a GPU: its driver's part grows with the code that is loaded on the way.
        let outside = outside.filter(|_| gpu.is_none());
        let run_peak = outside.map(|outside| outside + report.arena);
        let peak = run_peak.max(process::peak_resident().filter(|_| run_peak.is_some()));
        let largest = report.nets.iter().max_by_key(|net| net.transient);
        Self {
            parameters_bytes: report.parameters.0,
            gradients_bytes: report.gradients.0,
            history_bytes: report.history.0,
            constants_bytes: report.constants.0,
            segments_bytes: report.segments.0,
            transient_bytes: largest.map_or(0, |net| net.transient.0),
            transient_unshared_bytes: largest
                .map_or(0, |net| (net.data + net.diff + net.saved + net.scratch).0),
            arena_bytes: report.arena.0,
            host_bytes: report.host.0,
            resident_bytes: resident.map(|bytes| bytes.0),
            expected_peak_bytes: peak.map(|bytes| bytes.0),
            run_peak_bytes: run_peak.map(|bytes| bytes.0),
            gpu,
        }
    }

    /// The same for a run that first restores parameters and history from files: while it does, both are there twice,
    /// and the rest of the arena is not in use yet.
    #[must_use]
    pub fn restoring(mut self) -> Self {
        let restored = 2 * (self.parameters_bytes + self.history_bytes);
        let peak = self.resident_bytes.map(|resident| resident + restored);
        self.expected_peak_bytes = self.expected_peak_bytes.max(peak);
        self.run_peak_bytes = self.run_peak_bytes.max(peak);
        self
    }

    /// The most that was resident, beside what was expected; nothing where the system does not say.
    pub(crate) fn compare(&self, peak_bytes: Option<u64>) -> Option<String> {
        let (peak, expected) = (peak_bytes?, self.expected_peak_bytes?);
        // In bytes: of a small net's memory, code that is loaded on the way is a large part.
        let (sign, difference) =
            if peak < expected { ('-', expected - peak) } else { ('+', peak - expected) };
        Some(format!("{} ({sign}{} to the expected {})", Bytes(peak), Bytes(difference), Bytes(expected)))
    }
}

impl fmt::Display for MemoryEstimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.gpu.is_some() { " on the GPU" } else { "" };
        write!(f, "  memory      arena{place} {} = ", Bytes(self.arena_bytes))?;
        let parts = [
            ("parameters", self.parameters_bytes),
            ("gradients", self.gradients_bytes),
            ("history", self.history_bytes),
            ("inputs", self.constants_bytes),
            ("WD segments", self.segments_bytes),
            ("blobs and workspace", self.transient_bytes),
        ];
        let parts: Vec<String> = (parts.iter().filter(|(_, bytes)| *bytes > 0))
            .map(|(name, bytes)| format!("{name} {}", Bytes(*bytes)))
            .collect();
        let (unshared, host) = (Bytes(self.transient_unshared_bytes), Bytes(self.host_bytes));
        write!(f, "{}", parts.join(" + "))?;
        write!(f, "\n              (blobs and workspace would be {unshared} if none shared its place)")?;
        if let Some(GpuMemory { free_bytes, scratch_bytes }) = self.gpu {
            let (free, scratch) = (Bytes(free_bytes), Bytes(scratch_bytes));
            write!(
                f,
                "\n              the GPU has {free} free; scratch of libraries {scratch} is already taken"
            )?;
        }
        write!(f, "\n              host buffers {host}")?;
        let (Some(resident), Some(run), Some(peak)) =
            (self.resident_bytes, self.run_peak_bytes, self.expected_peak_bytes)
        else {
            return Ok(());
        };
        write!(f, ", already resident {}, expected peak {}", Bytes(resident), Bytes(run))?;
        if peak > run { write!(f, " (measuring took {} before)", Bytes(peak)) } else { Ok(()) }
    }
}
