//! What runs a convolution: the processor's algorithms or a library's.

use super::ConvError;
use planner::{Bytes, Measurement};
use std::fmt;
use tensor::{Accumulate, ConvGeometry, View, ViewMut};

/// One algorithm, made ready for one operation on micro-batches of one size.
///
/// It keeps no state between calls: whatever it needs between its stages lies in the workspace.
pub trait Convolver: fmt::Debug + Send + Sync {
    /// The name used in cost tables and plans, in cuDNN's spelling where cuDNN has the algorithm.
    fn name(&self) -> &str;

    /// The micro-batch.
    fn geometry(&self) -> &ConvGeometry;

    /// The workspace that [`Convolver::run`] needs, exactly.
    fn workspace(&self) -> Bytes;

    /// Typical largest error over the largest output, against exact arithmetic: the accuracy class.
    fn max_error(&self) -> f32;

    /// Whether equal operands always give bit-equal results.
    fn is_deterministic(&self) -> bool {
        true
    }

    /// Bytes at the beginning of the workspace that [`Convolver::prepare`] fills; none where micro-batches share nothing.
    /// How many they are and what lies where does not depend on the number of samples.
    fn prepared(&self) -> Bytes {
        Bytes(0)
    }

    /// Derives from the filter what all micro-batches share, and keeps it at the beginning of the workspace, whose rest it
    /// may overwrite. Does nothing where [`Convolver::prepared`] is none, as for [`ConvOp::BackwardFilter`](super::ConvOp::BackwardFilter).
    fn prepare(&self, _filter: View<'_>, _workspace: ViewMut<'_>) {}

    /// Does beforehand what would make the first run slower than others.
    ///
    /// # Errors
    /// The library refuses.
    fn load(&self) -> Result<(), ConvError> {
        Ok(())
    }

    /// Computes `out` from the operands of the table in [`super`], all of the micro-batch's lengths. The workspace begins
    /// with what [`Convolver::prepare`] made of the same filter, for this number of samples or another; it is left as it
    /// is, and the filter itself is then not read. The rest of the workspace holds anything, as does `out` under
    /// [`Accumulate::Replace`]. On a GPU the work is launched and not waited for.
    ///
    /// # Errors
    /// The library refuses.
    ///
    /// # Panics
    /// If an operand has another length, the workspace is too small, or one of them is in another device's memory.
    fn run(
        &self,
        operands: [View<'_>; 2],
        out: ViewMut<'_>,
        accumulate: Accumulate,
        workspace: ViewMut<'_>,
    ) -> Result<(), ConvError>;

    /// The row of a cost table for a call of so many milliseconds, `shared_ms` of which [`Convolver::prepare`] takes.
    fn measurement(&self, time_ms: f64, shared_ms: f64) -> Measurement {
        Measurement {
            algorithm: self.name().into(),
            micro_batch: self.geometry().n as u32,
            time_ms,
            shared_ms,
            workspace: self.workspace(),
            max_error: self.max_error(),
            deterministic: self.is_deterministic(),
        }
    }
}
