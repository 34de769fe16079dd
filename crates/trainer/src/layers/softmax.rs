//! `Softmax`, `SoftmaxWithLoss`, and `Accuracy`.

use super::{Backward, Declaration, Declared, Forward, Layer, Need, axis_of};
use crate::error::BoxError;
use crate::spec::{AccuracyParams, SoftmaxParams, SoftmaxWithLossParams};
use cudnn_layers::softmax::{self, LossOptions};
use cudnn_layers::{AxisExtents, copy};
use tensor::{Device, TensorType};

/// y = exp(x) / Σ exp(x) along an axis. Backward needs y.
pub(super) type Softmax = Declared<SoftmaxParams, AxisExtents>;

impl Layer for Softmax {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        self.extents = classes(bottoms, self.params.axis)?;
        Ok(Declaration { needs_top: Need::Values, ..Declaration::one(bottoms[0].clone()) })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        softmax::forward(device, &self.extents, io.bottoms[0], io.tops.remove(0));
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        let dy = io.top_diff();
        if let Some(dx) = io.bottom_diffs.remove(0) {
            softmax::backward(device, &self.extents, io.tops[0], dy, dx);
        }
        Ok(())
    }
}

/// The logistic loss of class scores. Backward needs the labels and the saved probabilities, which a second top shows.
/// It has a weight for each top.
pub(super) type SoftmaxWithLoss = Declared<(SoftmaxWithLossParams, [f32; 2]), AxisExtents>;

impl SoftmaxWithLoss {
    fn options(&self) -> LossOptions {
        let (SoftmaxWithLossParams { ignore_label, normalization, label_smoothing, .. }, _) = self.params;
        LossOptions { normalization, ignore_label, smoothing: label_smoothing }
    }
}

impl Layer for SoftmaxWithLoss {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        let (params, weights) = &self.params;
        let extents = classes(bottoms, params.axis)?;
        if weights[1] != 0.0 {
            return Err("the probabilities are no loss: the second top's loss_weight must be 0".to_owned());
        }
        self.extents = extents;
        Ok(Declaration {
            tops: vec![TensorType::f32(&[]), TensorType::f32(bottoms[0].dims())],
            gradients: vec![true, false],
            read_bottoms: 2,
            saved: softmax::saved(&extents),
            loss_weights: weights.to_vec(),
            ..Declaration::default()
        })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        let (scores, labels) = (io.bottoms[0], io.bottoms[1]);
        let (loss, mut saved) = (io.tops.remove(0), io.saved);
        softmax::loss(device, &self.extents, &self.options(), scores, labels, saved.reborrow(), loss)?;
        if let Some(top) = io.tops.pop() {
            copy::copy(device, saved.take(top.format(), top.len()).as_view(), top.replaced());
        }
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        let (labels, (_, weights)) = (io.bottoms[1], &self.params);
        if let Some(dx) = io.bottom_diffs.remove(0) {
            softmax::loss_backward(device, &self.extents, &self.options(), weights[0], io.saved, labels, dx);
        }
        Ok(())
    }
}

/// The share of samples whose label is among the highest scores; and of those of each class.
pub(super) type Accuracy = Declared<AccuracyParams, AxisExtents>;

impl Layer for Accuracy {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        let extents = classes(bottoms, self.params.axis)?;
        if self.params.top_k > extents.axis {
            return Err(format!("top_k {} is more than the {} classes", self.params.top_k, extents.axis));
        }
        self.extents = extents;
        let tops = vec![TensorType::f32(&[]), TensorType::f32(&[extents.axis])];
        Ok(Declaration { tops, gradients: vec![false; 2], ..Declaration::default() })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        let (scores, labels) = (io.bottoms[0], io.bottoms[1]);
        let AccuracyParams { top_k, ignore_label, .. } = self.params;
        let (all, each) = (io.tops.remove(0), io.tops.pop());
        softmax::accuracy(device, &self.extents, top_k, ignore_label, scores, labels, all, each)?;
        Ok(())
    }
}

/// Scores seen from their classes. The labels, if there are any, are one for each score of a class.
fn classes(bottoms: &[TensorType], axis: i32) -> Result<AxisExtents, String> {
    let scores = &bottoms[0];
    let extents = AxisExtents::new(scores, axis_of(scores, axis)?);
    match (extents.per_index(), bottoms.get(1).map(TensorType::count)) {
        (expected, Some(found)) if expected != found => {
            Err(format!("scores of shape {scores} need {expected} labels, but the second bottom has {found}"))
        }
        _ => Ok(extents),
    }
}
