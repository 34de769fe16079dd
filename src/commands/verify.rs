//! `--verify`: does every kernel compute, as planned, what it should?

use crate::{Console, Error, progress};
use cudnn_layers::conv::{
    geometry,
    verify::{distances, memory},
};
use planner::{Bytes, Plan, PlannedKernel};
use tensor::{Accumulate, Device, tolerance::distance_tolerance};
use trainer::{NetError, host::check_memory};

/// Runs every kernel of `plans` as planned, replacing its output and adding to it, and compares that with the definition of a
/// convolution in double precision.
///
/// # Errors
/// [`Error::Refused`] for the first kernel whose results are further from that than its algorithms' accuracy explains;
/// operands that are larger than the memory.
pub(super) fn verify(device: &Device, plans: &[Plan], console: &mut Console) -> Result<(), Error> {
    let mut worst: Option<(f64, String)> = None;
    let different = different(plans);
    let bar = progress::bar(different.len() as u64, "verifying");
    for planned in &different {
        let found = verify_kernel(device, planned)?;
        if worst.as_ref().is_none_or(|(worst, _)| found > *worst) {
            worst = Some((found, format!("{} {}", planned.kernel.name, planned.kernel.id.op)));
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let (all, different) = (plans.iter().map(|plan| plan.kernels.len()).sum::<usize>(), different.len());
    match worst {
        Some((distance, name)) => console.text(format!(
            "  verified    {all} kernels, {different} of them different, replacing and adding, against exact sums over their \
             outputs: relative L2 distance about {distance:.1e} at most ({name})"
        )),
        None => console.text("  verified    no kernels"),
    }
}

/// The kernels of `plans` without those that do what one before them does.
fn different(plans: &[Plan]) -> Vec<&PlannedKernel> {
    let what = |planned: &PlannedKernel| (planned.kernel.id, planned.kernel.mini_batch);
    let mut different: Vec<&PlannedKernel> = Vec::new();
    for planned in plans.iter().flat_map(|plan| &plan.kernels) {
        let same = |other: &&PlannedKernel| {
            what(other) == what(planned) && other.configuration == planned.configuration
        };
        if !different.iter().any(same) {
            different.push(planned);
        }
    }
    different
}

/// The distance of one kernel from the definition.
fn verify_kernel(device: &Device, planned: &PlannedKernel) -> Result<f64, Error> {
    let PlannedKernel { kernel, configuration, .. } = planned;
    let geometry = geometry(&kernel.id.shape, kernel.mini_batch);
    let arena = memory(kernel.id.op, &geometry, configuration);
    check_memory(device, [arena, Bytes::ZERO], None)?;
    let found = distances(device, kernel.id.op, geometry, configuration)
        .map_err(|source| NetError::Run { layer: kernel.name.clone(), source: source.into() })?;
    let tolerance = distance_tolerance(configuration.max_error());
    for (accumulate, distance) in found {
        // Written so that a NaN fails.
        if !matches!(distance.partial_cmp(&tolerance), Some(order) if order.is_le()) {
            let how = match accumulate {
                Accumulate::Replace => "replacing",
                Accumulate::Add => "adding to",
            };
            return Err(Error::Refused(format!(
                "{kernel} as {configuration}, {how} its output, is about {distance:.1e} away from the exact result \
                 (relative L2 distance), and {tolerance:.1e} is allowed"
            )));
        }
    }
    Ok(found.into_iter().fold(0.0, |worst, (_, distance)| distance.max(worst)))
}
