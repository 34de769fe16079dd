//! Where measurements come from, and how far they can be trusted.

use crate::number::percent;
use planner::{BatchSizePolicy, Coverage, DeviceHeader, EstimateError, Noise};
use serde::Serialize;
use std::fmt;

/// From this median difference of repeated measurements on, the machine counts as busy.
const NOISY: f64 = 0.05;

/// What was measured, what was known, and how far that can be trusted.
#[derive(Clone, Debug, Serialize)]
pub struct ProfilingReport {
    /// Pairs of kernel and micro-batch size that were measured.
    pub measured: usize,
    /// Such pairs that were known.
    pub known: usize,
    /// Time spent measuring.
    pub seconds: f64,
    /// Where known ones come from, if from a database.
    pub database: Option<String>,
    /// How many devices measured.
    pub devices: usize,
    /// The policy that said what to measure.
    pub policy: BatchSizePolicy,
    /// Under `adaptive`: what there is of the kernels that are planned, against what there could be.
    pub coverage: Option<Coverage>,
    /// What repeated measurements have shown.
    pub noise: Noise,
}

impl fmt::Display for ProfilingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { measured, known, seconds, devices, .. } = self;
        write!(f, "  profiling   {measured} (kernel, micro-batch) pairs measured in {seconds:.1} s")?;
        if *devices > 1 {
            write!(f, " on {devices} GPUs")?;
        }
        if let (Some(database), 1..) = (&self.database, *known) {
            write!(f, ", {known} known from {database}")?;
        }
        if let Some(coverage) = &self.coverage {
            let (Coverage { measured, all, .. }, share) = (coverage, percent(coverage.share()));
            write!(f, "\n              {measured} are {share} of the {all} there are")?;
            if let Some(gap) = coverage.gap().map(percent) {
                write!(f, "; all would make the plan {gap} faster at most")?;
            }
        }
        let Noise { repeated, median, largest } = self.noise;
        if repeated == 0 {
            return Ok(());
        }
        let busy = if median > NOISY { " (the machine is busy)" } else { "" };
        let (median, largest) = (percent(median), 100.0 * largest);
        let deciding =
            if repeated == 1 { "one that decides".to_owned() } else { format!("{repeated} that decide") };
        write!(f, "\n              remeasured the {deciding} the plan: ")?;
        write!(f, "median difference {median}, largest {largest:.0} %{busy}")
    }
}

/// Measurements that were recorded elsewhere: what is planned from them is a prediction, and says so.
#[derive(Clone, Debug, Serialize)]
pub struct Recorded {
    /// The cost table.
    pub file: String,
    /// Where and how it was measured.
    #[serde(flatten)]
    pub device: DeviceHeader,
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeviceHeader { name, library_version, date, .. } = &self.device;
        writeln!(f, "  PREDICTION  from {}: nothing was measured on this machine", self.file)?;
        write!(f, "  recorded    on {name}, {library_version}")?;
        if date.is_empty() { Ok(()) } else { write!(f, ", {date}") }
    }
}

/// What recorded measurements do not have, and what stands in its place.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct EstimateReport {
    /// Pairs of kernel and micro-batch size that were estimated.
    pub estimated: usize,
    /// How far estimates are off, if the recorded kernels tell.
    pub error: Option<EstimateError>,
}

impl fmt::Display for EstimateReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  ESTIMATE    {} pairs more are scaled from the nearest recorded shapes", self.estimated)?;
        let Some(EstimateError { time_median, time_nine_of_ten, workspace_median, .. }) = self.error else {
            return write!(f, ", of which there are too few to tell how well");
        };
        write!(
            f,
            "; recorded ones, estimated alike, are off by\n              {time_median:.2}x in time (one of ten by more \
             than {time_nine_of_ten:.1}x) and {workspace_median:.2}x in workspace"
        )
    }
}
