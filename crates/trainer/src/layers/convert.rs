//! `Convert`: the same blob in another format.

use super::{Backward, Declaration, Forward, Layer};
use crate::error::BoxError;
use cudnn_layers::copy;
use tensor::{Device, Format, TensorType};

/// y is x in this format, and dx is dy in that of x. Nets get it where a layer reads a blob in another format.
pub(crate) struct Convert {
    to: Format,
    /// Empty until the layer is declared.
    dims: Vec<usize>,
}

impl Convert {
    pub(crate) fn new(to: Format) -> Self {
        Self { to, dims: Vec::new() }
    }
}

impl Layer for Convert {
    fn reads(&self, _: usize, shape: &TensorType, _: Format) -> Format {
        shape.format()
    }

    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        self.dims = bottoms[0].dims().to_vec();
        Ok(Declaration::one(bottoms[0].in_format(self.to)))
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        copy::convert(device, &self.dims, io.bottoms[0], io.tops.remove(0).replaced());
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        if let Some(dx) = io.bottom_diffs.remove(0) {
            copy::convert(device, &self.dims, io.top_diff(), dx);
        }
        Ok(())
    }
}
