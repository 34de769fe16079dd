//! Filters in the format of feature maps.

use crate::{
    conv::{ConvError, ConvOp, Convolver, operands::filter},
    copy::convert,
};
use planner::Bytes;
use std::sync::Arc;
use tensor::{Accumulate, ConvGeometry, Device, Format, Space, TensorType, View, ViewMut, cuda::Cuda};

/// A convolver whose operands are all of one format, with a filter in single precision: it is converted at the beginning of the
/// workspace, and so is its gradient, of which parts therefore add up in single precision.
#[derive(Debug)]
pub(super) struct FilterConverter {
    inner: Arc<dyn Convolver>,
    device: Device,
    op: ConvOp,
    format: Format,
    /// Bytes of the workspace that the converted filter, or its gradient, takes.
    converted: usize,
}

impl FilterConverter {
    pub(super) fn new(inner: Arc<dyn Convolver>, cuda: &Cuda, op: ConvOp, format: Format) -> Self {
        let blob = TensorType::new(&filter(inner.geometry()), format);
        let converted = Space::all_of([blob.space(), Space::aligned(0)]).bytes();
        Self { inner, device: Device::Cuda(cuda.clone()), op, format, converted }
    }
}

impl Convolver for FilterConverter {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn geometry(&self) -> &ConvGeometry {
        self.inner.geometry()
    }

    fn workspace(&self) -> Bytes {
        self.inner.workspace() + Bytes(self.converted as u64)
    }

    fn max_error(&self) -> f32 {
        self.inner.max_error()
    }

    fn is_deterministic(&self) -> bool {
        self.inner.is_deterministic()
    }

    fn load(&self) -> Result<(), ConvError> {
        self.inner.load()
    }

    fn run(
        &self,
        [a, b]: [View<'_>; 2],
        out: ViewMut<'_>,
        accumulate: Accumulate,
        mut workspace: ViewMut<'_>,
    ) -> Result<(), ConvError> {
        assert!(workspace.byte_len() as u64 >= self.workspace().0, "the workspace is smaller than planned");
        let g = self.geometry();
        let mut converted = workspace.take(Format::U8, self.converted).take(self.format, g.w_len());
        if self.op == ConvOp::BackwardFilter {
            self.inner.run([a, b], converted.reborrow(), Accumulate::Replace, workspace)?;
            convert(&self.device, &filter(g), converted.as_view(), out, accumulate);
            return Ok(());
        }
        convert(&self.device, &filter(g), b, converted.reborrow(), Accumulate::Replace);
        self.inner.run([a, converted.as_view()], out, accumulate, workspace)
    }
}
