//! `--verify`: does every kernel compute, as planned, what its plainest execution computes?

use crate::{Console, Error, args::RunArgs};
use cudnn_layers::conv::{profile::geometry, verify::distance};
use planner::Plan;
use tensor::{Device, testing::distance_tolerance};
use trainer::NetError;

/// Runs every kernel of `plan` as planned and undivided without workspace, if the user asked for it.
///
/// # Errors
/// [`Error::Verification`] for the first kernel whose results are further apart than its algorithms' accuracy explains.
pub(super) fn verify(
    run: &RunArgs,
    device: &Device,
    plan: &Plan,
    console: &mut Console,
) -> Result<(), Error> {
    if !run.verify {
        return Ok(());
    }
    let mut worst: Option<(f64, String)> = None;
    for planned in &plan.kernels {
        let (kernel, configuration) = (&planned.kernel, &planned.configuration);
        let name = format!("{} {}", kernel.name, kernel.id.op);
        let geometry = geometry(&kernel.id.shape, kernel.mini_batch);
        let found = distance(device, kernel.id.op, geometry, configuration)
            .map_err(|source| NetError::Run { layer: kernel.name.clone(), source: source.into() })?;
        let tolerance = distance_tolerance(configuration.max_error());
        // Written so that a NaN fails.
        if !matches!(found.partial_cmp(&tolerance), Some(order) if order.is_le()) {
            let configuration = configuration.to_string();
            return Err(Error::Verification { kernel: name, configuration, distance: found, tolerance });
        }
        if worst.as_ref().is_none_or(|(worst, _)| found > *worst) {
            worst = Some((found, name));
        }
    }
    match worst {
        Some((distance, name)) => console.text(format!(
            "  verified    {} kernels against undivided ones without workspace: relative L2 distance at most {distance:.1e} ({name})",
            plan.kernels.len()
        )),
        None => console.text("  verified    no kernels"),
    }
}
