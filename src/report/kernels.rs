//! What each convolution kernel got, and why.

use super::{
    number::{deviation, ms, times_or_dash},
    table::{Align, Table},
};
use planner::{Bytes, ConvOp, Explanation, PlannedKernel};
use serde::Serialize;
use trainer::time::KernelTime;

/// One kernel of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct KernelReport {
    /// The layer.
    pub layer: String,
    /// The operation.
    pub op: ConvOp,
    /// The chosen configuration, as in `4x60 FFT_TILING + 16 IMPLICIT_GEMM`.
    pub configuration: String,
    /// Micro-batches, or calls.
    pub calls: usize,
    /// Its workspace.
    pub workspace_bytes: u64,
    /// Its time as planned: the sum of what was measured of its parts.
    pub planned_ms: f64,
    /// Its time in the net, the median over the iterations, if it has run.
    pub measured_ms: Option<f64>,
    /// The algorithm it would run undivided, if one fits.
    pub undivided: Option<String>,
    /// That one's time.
    pub undivided_ms: Option<f64>,
    /// How many times faster than undivided the plan is.
    pub gain: Option<f64>,
    /// The accuracy class: typical largest error over the largest output.
    pub max_error: f32,
    /// Whether it always gives bit-equal results.
    pub deterministic: bool,
    /// Whether nothing measured is faster, however large the workspace.
    pub fastest: bool,
    /// Why it did not get something faster.
    pub explanation: String,
}

impl KernelReport {
    /// Describes `planned`, with its time among those `measured`.
    pub fn new(planned: &PlannedKernel, measured: &[KernelTime]) -> Self {
        let (layer, op) = (&planned.kernel.name, planned.kernel.id.op);
        let measured = measured.iter().find(|time| time.op == op && time.layer == *layer);
        Self {
            layer: layer.clone(),
            op,
            configuration: planned.configuration.to_string(),
            calls: planned.configuration.len(),
            workspace_bytes: planned.workspace.0,
            planned_ms: planned.time_ms(),
            measured_ms: measured.map(|time| time.measured_ms),
            undivided: planned.undivided.as_ref().map(|micro| micro.algorithm.to_string()),
            undivided_ms: planned.undivided.as_ref().map(|micro| micro.time_ms),
            gain: planned.gain(),
            max_error: planned.configuration.max_error(),
            deterministic: planned.configuration.deterministic(),
            fastest: matches!(planned.explanation, Explanation::FastestMeasured),
            explanation: planned.explanation.to_string(),
        }
    }

    /// Layer and operation.
    pub fn name(&self) -> String {
        format!("{} {}", self.layer, self.op)
    }
}

/// All kernels, one a line; with measured times if they have run.
pub(crate) fn kernel_table(kernels: &[KernelReport]) -> Table {
    let ran = kernels.iter().any(|kernel| kernel.measured_ms.is_some());
    let mut columns =
        vec![("kernel", Align::Left), ("configuration", Align::Left), ("plan ms", Align::Right)];
    if ran {
        columns.extend([("run ms", Align::Right), ("deviation", Align::Right)]);
    }
    let rest = ["workspace", "undivided ms", "gain", "max rel. error"];
    columns.extend(rest.map(|name| (name, Align::Right)));
    let mut table = Table::new(columns);
    for kernel in kernels {
        let mut row = vec![kernel.name(), kernel.configuration.clone(), ms(kernel.planned_ms)];
        if ran {
            let measured = kernel.measured_ms.unwrap_or(f64::NAN);
            row.extend([ms(measured), deviation(measured, kernel.planned_ms)]);
        }
        row.extend([
            Bytes(kernel.workspace_bytes).to_string(),
            kernel.undivided_ms.map_or_else(|| "-".to_owned(), ms),
            times_or_dash(kernel.gain),
            format!("{:.0e}", kernel.max_error),
        ]);
        table.row(row);
    }
    table
}

/// Why kernels did not get something faster, one a line; those that have the fastest are only counted.
pub(crate) fn explanations(kernels: &[KernelReport]) -> String {
    let mut lines: Vec<String> = Vec::new();
    let width = kernels.iter().filter(|kernel| !kernel.fastest).map(|kernel| kernel.name().len()).max();
    for kernel in kernels.iter().filter(|kernel| !kernel.fastest) {
        lines.push(format!(
            "  {:<width$}  {}",
            kernel.name(),
            kernel.explanation,
            width = width.unwrap_or(0)
        ));
    }
    let fastest = kernels.iter().filter(|kernel| kernel.fastest).count();
    lines.insert(0, "Why nothing faster:".to_owned());
    if fastest > 0 {
        lines.push(format!("  {fastest} of {} kernels: the fastest measured was chosen", kernels.len()));
    }
    lines.join("\n")
}

/// What the names in the table mean that do not say it: cuDNN has numbers only for some of its algorithms.
pub(crate) fn legend(kernels: &[KernelReport]) -> Option<String> {
    let meanings = [
        ("ALGO_0", "implicit GEMM, added up atomically (not bit-equal every time)"),
        ("ALGO_1", "implicit GEMM"),
        ("ALGO_3", "ALGO_0 with precomputed indices"),
    ];
    let texts = || kernels.iter().flat_map(|kernel| [&kernel.configuration, &kernel.explanation]);
    let used = meanings.iter().filter(|(name, _)| texts().any(|text| text.contains(name)));
    let lines: Vec<String> = used.map(|(name, meaning)| format!("{name}: {meaning}")).collect();
    (!lines.is_empty()).then(|| format!("  cuDNN's {}", lines.join("; ")))
}
