//! What runs a convolution: the processor's algorithms or a library's.

use super::Result;
use planner::{Bytes, Measurement};
use std::fmt;
use tensor::{ConvGeometry, Out, View, ViewMut};

/// What there is to know of an algorithm that was made ready.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The name used in cost tables and plans, in cuDNN's spelling where cuDNN has the algorithm.
    pub name: String,
    /// The convolution of one micro-batch.
    pub geometry: ConvGeometry,
    /// The workspace that [`Convolver::run`] needs, exactly.
    pub workspace: Bytes,
    /// Bytes at its beginning that [`Convolver::prepare`] fills; none where micro-batches share nothing. How many they
    /// are and what lies where does not depend on the number of samples.
    pub prepared: Bytes,
    /// Typical largest error over the largest output, against exact arithmetic: the accuracy class.
    pub max_error: f32,
    /// Whether equal operands always give bit-equal results.
    pub deterministic: bool,
}

/// One algorithm, made ready for one operation on micro-batches of one size.
///
/// It keeps no state between calls: whatever it needs between its stages lies in the workspace.
pub trait Convolver: fmt::Debug + Send + Sync {
    /// What it is, and what it needs.
    fn facts(&self) -> &Facts;

    /// Derives from the filter what all micro-batches share, and keeps it at the beginning of the workspace, whose rest
    /// it may overwrite. Does nothing where [`Facts::prepared`] is none, as for
    /// [`ConvOp::BackwardFilter`](super::ConvOp::BackwardFilter).
    fn prepare(&self, _filter: View<'_>, _workspace: ViewMut<'_>) {}

    /// Does beforehand what would make the first run slower than others.
    ///
    /// # Errors
    /// The library refuses.
    fn load(&self) -> Result<()> {
        Ok(())
    }

    /// Computes `out` from the operands of the table in [`conv`](super), all of the micro-batch's lengths. The workspace
    /// begins with what [`Convolver::prepare`] made of the same filter, for this number of samples or another; it is
    /// left as it is, and the filter itself is then not read. The rest of the workspace holds anything, as does what
    /// `out` replaces. On a GPU the work is launched and not waited for.
    ///
    /// # Errors
    /// The library refuses.
    ///
    /// # Panics
    /// If an operand has another length, the workspace is too small, or one of them is in another device's memory.
    fn run(&self, operands: [View<'_>; 2], out: Out<'_>, workspace: ViewMut<'_>) -> Result<()>;

    /// The row of a cost table for a call of so many milliseconds, `shared_ms` of which [`Convolver::prepare`] takes.
    fn measurement(&self, time_ms: f64, shared_ms: f64) -> Measurement {
        let &Facts { ref name, geometry, workspace, max_error, deterministic, .. } = self.facts();
        let (algorithm, micro_batch) = (name.as_str().into(), geometry.n as u32);
        Measurement { algorithm, micro_batch, time_ms, shared_ms, workspace, max_error, deterministic }
    }
}
