//! `Pooling`.

use super::{Absorbed, Backward, Declaration, Declared, Forward, Layer, images};
use crate::error::BoxError;
use crate::spec::{PoolingMethod, PoolingParams};
use cudnn_layers::{AxisExtents, bias, pooling};
use tensor::{Device, PoolGeometry, Space, TensorType};

/// The maximum or average of each window; to a maximum may come the bias of the layer before. Backward needs no blob:
/// the maximum saves its winners.
pub(super) type Pooling = Declared<PoolingParams, PoolGeometry>;

/// The windows over blobs like `x`.
pub(super) fn windows(params: &PoolingParams, x: &TensorType) -> Result<PoolGeometry, String> {
    params.geometry(images("pooling", x)?).validate().map_err(|error| error.to_string())
}

impl Layer for Pooling {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        let x = &bottoms[0];
        let g = windows(&self.params, x)?;
        self.extents = g;
        let (saved, absorbs) = match self.params.method {
            PoolingMethod::Max => (pooling::mask(&g), Absorbed::Both),
            PoolingMethod::Average => (Space::NONE, Absorbed::No),
        };
        Ok(Declaration { saved, absorbs, ..Declaration::one(x.with_dims(&[g.n, g.c, g.out_h(), g.out_w()])) })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        let (g, x, y) = (self.extents, io.bottoms[0], io.tops.remove(0));
        let behind = (io.params.first().copied(), io.rectify);
        match self.params.method {
            PoolingMethod::Max => pooling::forward_max(device, &g, x, behind, y, io.saved),
            PoolingMethod::Average => pooling::forward_average(device, &g, x, y),
        }
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        let (g, dy) = (self.extents, io.top_diff());
        if let Some(db) = io.param_diffs.pop().flatten() {
            // Every pooled gradient goes to one pixel at most: the sum over pixels is that over outputs.
            let y = TensorType::new(&[g.n, g.c, g.out_h(), g.out_w()], dy.format());
            bias::backward(device, &AxisExtents::new(&y, 1), io.tops.first().copied(), dy, db);
        }
        let Some(dx) = io.bottom_diffs.remove(0) else { return Ok(()) };
        match self.params.method {
            PoolingMethod::Max => pooling::backward_max(device, &g, io.saved, dy, dx),
            PoolingMethod::Average => pooling::backward_average(device, &g, dy, dx),
        }
        Ok(())
    }
}
