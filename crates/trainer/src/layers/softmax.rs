//! `Softmax`, `SoftmaxWithLoss` and `Accuracy`.

use super::{Backward, Declaration, Declared, Forward, Layer, Need, axis_of};
use crate::{
    error::BoxError,
    spec::{AccuracyParams, SoftmaxParams, SoftmaxWithLossParams},
};
use cudnn_layers::{
    AxisExtents,
    softmax::{self, LossOptions},
};
use tensor::{Device, TensorType};

/// y = exp(x) / Σ exp(x) along an axis. Backward needs y.
pub(super) type Softmax = Declared<SoftmaxParams, AxisExtents>;

impl Layer for Softmax {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        self.extents = classes(&bottoms[0], self.params.axis)?;
        Ok(Declaration { needs_top: Need::Values, ..Declaration::one(bottoms[0].clone()) })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        softmax::forward(device, &self.extents, io.bottoms[0], io.tops.remove(0));
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        let dy = io.top_diff();
        if let Some(dx) = io.bottom_diffs.remove(0) {
            softmax::backward(device, &self.extents, io.tops[0], dy, dx.diff, dx.accumulate);
        }
        Ok(())
    }
}

/// The logistic loss of class scores. Backward needs the labels, and the probabilities that forward saved.
pub(super) struct SoftmaxWithLoss {
    axis: i32,
    options: LossOptions,
    weight: f32,
    /// Of no element until the layer is declared.
    extents: AxisExtents,
}

impl SoftmaxWithLoss {
    pub(super) fn new(params: &SoftmaxWithLossParams, weight: f32) -> Self {
        let SoftmaxWithLossParams { axis, ignore_label, normalization } = *params;
        let options = LossOptions { normalization, ignore_label };
        Self { axis, options, weight, extents: AxisExtents::default() }
    }
}

impl Layer for SoftmaxWithLoss {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        let extents = classes(&bottoms[0], self.axis)?;
        check_labels(&extents, bottoms)?;
        self.extents = extents;
        Ok(Declaration {
            tops: vec![TensorType::f32(&[])],
            gradients: vec![true, false],
            needs_bottom: true,
            saved: softmax::saved(&extents),
            loss_weights: vec![self.weight],
            ..Declaration::default()
        })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        let (scores, labels) = (io.bottoms[0], io.bottoms[1]);
        softmax::loss(device, &self.extents, &self.options, scores, labels, io.saved, io.tops.remove(0))?;
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        let labels = io.bottoms[1];
        if let Some(dx) = io.bottom_diffs.remove(0) {
            let (dx, accumulate) = (dx.diff, dx.accumulate);
            softmax::loss_backward(
                device,
                &self.extents,
                &self.options,
                self.weight,
                io.saved,
                labels,
                dx,
                accumulate,
            )?;
        }
        Ok(())
    }
}

/// The share of samples whose label is among the highest scores.
pub(super) type Accuracy = Declared<AccuracyParams, AxisExtents>;

impl Layer for Accuracy {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        let extents = classes(&bottoms[0], self.params.axis)?;
        check_labels(&extents, bottoms)?;
        if self.params.top_k > extents.axis {
            return Err(format!("top_k {} is more than the {} classes", self.params.top_k, extents.axis));
        }
        self.extents = extents;
        Ok(Declaration { gradients: vec![false; 2], ..Declaration::one(TensorType::f32(&[])) })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        let (scores, labels) = (io.bottoms[0], io.bottoms[1]);
        let AccuracyParams { top_k, ignore_label, .. } = self.params;
        softmax::accuracy(device, &self.extents, top_k, ignore_label, scores, labels, io.tops.remove(0))?;
        Ok(())
    }
}

fn classes(scores: &TensorType, axis: i32) -> Result<AxisExtents, String> {
    Ok(AxisExtents::new(scores, axis_of(scores, axis)?))
}

fn check_labels(extents: &AxisExtents, bottoms: &[TensorType]) -> Result<(), String> {
    let (expected, found) = (extents.per_index(), bottoms[1].count());
    if expected == found {
        return Ok(());
    }
    Err(format!("scores of shape {} need {expected} labels, but the second bottom has {found}", bottoms[0]))
}
