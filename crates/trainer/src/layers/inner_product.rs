//! `InnerProduct`: the fully connected layer.

use super::{Backward, Declaration, Declared, Forward, Layer, ParamDeclaration, axis_of};
use crate::{error::BoxError, spec::InnerProductParams};
use cudnn_layers::bias;
use cudnn_layers::inner_product::{self, InnerProduct};
use tensor::{Device, TensorType};

/// y = x wᵀ + b over everything from `axis` on, unless the layer behind adds b. Backward needs x.
pub(super) type InnerProductLayer = Declared<InnerProductParams, InnerProduct>;

impl Layer for InnerProductLayer {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        let (x, p) = (&bottoms[0], &self.params);
        let axis = axis_of(x, p.axis)?;
        let InnerProductParams { num_output: outputs, transpose, .. } = *p;
        let inputs = x.count_from(axis);
        self.extents = InnerProduct { n: x.count_before(axis), inputs, outputs, transpose };
        let filter = if transpose { [inputs, outputs] } else { [outputs, inputs] };
        let filter = ParamDeclaration::learned(x.with_dims(&filter), p.weight_filler);
        let bias = || ParamDeclaration::learned(TensorType::f32(&[outputs]), p.bias_filler);
        let top = [&x.dims()[..axis], &[outputs]].concat();
        Ok(Declaration {
            params: std::iter::once(filter).chain(p.bias_term.then(bias)).collect(),
            read_bottoms: 1,
            ..Declaration::one(x.with_dims(&top))
        })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        let (x, w, mut y) = (io.bottoms[0], io.params[0], io.tops.remove(0));
        inner_product::forward(device, &self.extents, x, w, y.reborrow());
        if let Some(&b) = io.params.get(1) {
            bias::forward_in_place(device, &self.extents.rows(), b, false, y);
        }
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        let (extents, dy) = (self.extents, io.top_diff());
        let mut param_diffs = io.param_diffs.into_iter();
        if let Some(dw) = param_diffs.next().flatten() {
            inner_product::backward_weights(device, &extents, io.bottoms[0], dy, dw);
        }
        if let Some(db) = param_diffs.next().flatten() {
            bias::backward(device, &extents.rows(), None, dy, db);
        }
        if let Some(dx) = io.bottom_diffs.remove(0) {
            inner_product::backward_data(device, &extents, dy, io.params[0], dx);
        }
        Ok(())
    }
}
