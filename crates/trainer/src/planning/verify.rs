//! Does every kernel compute, as planned, what it should?

use crate::error::{NetError, Result};
use crate::host::check_memory;
use cudnn_layers::conv::geometry;
use cudnn_layers::conv::verify::{distances, memory};
use planner::{Bytes, Plan, PlannedKernel};
use tensor::{Accumulate, Device, tolerance::distance_tolerance};

/// What verifying plans has shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Verified {
    /// Kernels of all plans.
    pub kernels: usize,
    /// Those of them that do what none before does.
    pub different: usize,
    /// The largest relative L2 distance from the definition, and the kernel that has it; none without kernels.
    pub worst: Option<(f64, String)>,
}

/// Runs every kernel of `plans` as planned, replacing its output and adding to it, and compares that with the
/// definition of a convolution in double precision. Tells `progress` how many are done, and of how many.
///
/// # Errors
/// [`NetError::Refused`] for the first kernel whose results are further from that than its algorithms' accuracy
/// explains; operands that are larger than the memory.
pub fn verify(device: &Device, plans: &[Plan], mut progress: impl FnMut(usize, usize)) -> Result<Verified> {
    let planned: Vec<&PlannedKernel> = plans.iter().flat_map(|plan| &plan.kernels).collect();
    let what = |one: &PlannedKernel| (one.kernel.id, one.kernel.mini_batch);
    let mut different: Vec<&PlannedKernel> = Vec::new();
    for &one in &planned {
        let same =
            |other: &&PlannedKernel| what(other) == what(one) && other.configuration == one.configuration;
        if !different.iter().any(same) {
            different.push(one);
        }
    }
    let mut worst: Option<(f64, String)> = None;
    for (done, planned) in different.iter().enumerate() {
        progress(done, different.len());
        let found = verify_kernel(device, planned)?;
        if worst.as_ref().is_none_or(|(worst, _)| found > *worst) {
            worst = Some((found, planned.kernel.to_string()));
        }
    }
    Ok(Verified { kernels: planned.len(), different: different.len(), worst })
}

/// The distance of one kernel from the definition.
fn verify_kernel(device: &Device, planned: &PlannedKernel) -> Result<f64> {
    let PlannedKernel { kernel, configuration, .. } = planned;
    let geometry = geometry(&kernel.id.shape, kernel.mini_batch);
    let arena = memory(kernel.id.op, &geometry, device.format(), configuration);
    check_memory(device, [arena, Bytes::ZERO], None)?;
    let found = distances(device, kernel.id.op, geometry, configuration)
        .map_err(|error| NetError::run(&kernel.name, error))?;
    let tolerance = distance_tolerance(configuration.max_error());
    for (accumulate, distance) in found {
        // Written so that a NaN fails.
        if !matches!(distance.partial_cmp(&tolerance), Some(order) if order.is_le()) {
            let how = match accumulate {
                Accumulate::Replace => "replacing",
                Accumulate::Add => "adding to",
            };
            return Err(NetError::Refused(format!(
                "{kernel} as {configuration}, {how} its output, is about {distance:.1e} away from the exact result \
                 (relative L2 distance), and {tolerance:.1e} is allowed"
            )));
        }
    }
    Ok(found.into_iter().fold(0.0, |worst, (_, distance)| distance.max(worst)))
}
