//! `PReLU`.

use super::{Backward, Declaration, Declared, Forward, Layer, ParamDeclaration};
use crate::{error::BoxError, spec::PReluParams};
use cudnn_layers::activation::{self, Activation};
use cudnn_layers::scale::{self, Affine, AffineGradients};
use cudnn_layers::{AxisExtents, copy};
use tensor::{Device, TensorType};

/// `PReLU`: y = max(x, 0) + a min(x, 0), as a ReLU and a scale of what it cuts off, which lies in the scratch.
pub(super) type PRelu = Declared<PReluParams, AxisExtents>;

impl Layer for PRelu {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        let x = &bottoms[0];
        if x.rank() < 2 {
            return Err(format!("slopes are for channels, which a blob of shape {x} lacks"));
        }
        let (extents, slopes): (_, &[usize]) = match self.params.channel_shared {
            true => (AxisExtents { outer: x.dim(0), axis: 1, inner: x.count_from(1) }, &[]),
            false => (AxisExtents::new(x, 1), &x.dims()[1..2]),
        };
        self.extents = extents;
        Ok(Declaration {
            params: vec![ParamDeclaration::learned(TensorType::f32(slopes), self.params.filler)],
            needs_bottom: true,
            scratch: [x.space(); 2],
            ..Declaration::one(x.clone())
        })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        let (x, mut y) = (io.bottoms[0], io.tops.remove(0));
        let mut below = io.scratch.take(x.format(), x.len());
        activation::forward(device, Activation::RELU, Some(x), y.reborrow());
        activation::forward(device, Activation::Below, Some(x), below.reborrow());
        let slopes = Affine { gamma: Some(io.params[0]), beta: None };
        scale::forward(device, &self.extents, slopes, false, None, below.reborrow());
        copy::copy(device, below.as_view(), y.added());
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        let (x, dy) = (io.bottoms[0], io.top_diff());
        let mut below = io.scratch.take(x.format(), x.len());
        if let Some(gamma) = io.param_diffs.remove(0) {
            activation::forward(device, Activation::Below, Some(x), below.reborrow());
            let gradients = AffineGradients { gamma: Some(gamma), beta: None };
            scale::backward_affine(device, &self.extents, below.as_view(), dy, gradients);
        }
        if let Some(mut dx) = io.bottom_diffs.remove(0) {
            activation::backward(device, Activation::RELU, x, Some(dy), dx.reborrow());
            activation::backward(device, Activation::Below, x, Some(dy), below.reborrow().replaced());
            scale::backward(device, &self.extents, io.params[0], below.as_view(), dx.to.added());
        }
        Ok(())
    }
}
