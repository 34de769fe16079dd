//! `Convert`: the same blob in another format, or images as blocks of pixels.

use super::{Backward, Declaration, Forward, Layer};
use crate::error::BoxError;
use cudnn_layers::{copy, space_to_depth};
use tensor::{ConvGeometry, Device, Format, TensorType};

/// y is x in this format, and dx is dy in that of x. Nets get it where a layer reads a blob in another format.
pub(crate) struct Convert {
    to: Format,
    /// What reads images [as blocks of pixels](space_to_depth), if it does; then there is no gradient.
    blocks: Option<ConvGeometry>,
    /// Empty until the layer is declared.
    dims: Vec<usize>,
}

impl Convert {
    pub(crate) fn new(to: Format, blocks: Option<ConvGeometry>) -> Self {
        Self { to, blocks, dims: Vec::new() }
    }
}

impl Layer for Convert {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        self.dims = bottoms[0].dims().to_vec();
        let Some(g) = self.blocks else { return Ok(Declaration::one(bottoms[0].in_format(self.to))) };
        let ConvGeometry { n, c, h, w, .. } = g.in_memory();
        let top = TensorType::new(&[n, c, h, w], self.to);
        Ok(Declaration { gradients: vec![false], ..Declaration::one(top) })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        let (x, y) = (io.bottoms[0], io.tops.remove(0));
        match &self.blocks {
            Some(g) => space_to_depth::images_to_blocks(device, g, x, y),
            None => copy::convert(device, &self.dims, x, y.replaced()),
        }
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        if let Some(dx) = io.bottom_diffs.remove(0) {
            copy::convert(device, &self.dims, io.top_diff(), dx);
        }
        Ok(())
    }
}
