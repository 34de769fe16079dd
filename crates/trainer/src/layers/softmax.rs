//! `Softmax`, `SoftmaxWithLoss` and `Accuracy`.

use super::{Backward, Declaration, Forward, Layer, Need};
use crate::{
    error::BoxError,
    spec::{AccuracyParams, Normalization, SoftmaxParams, SoftmaxWithLossParams},
};
use cudnn_layers::{
    AxisExtents,
    softmax::{self, LossOptions},
};
use tensor::{Device, TensorType};

/// y = exp(x) / Σ exp(x) along an axis. Backward needs y.
pub(super) struct Softmax {
    axis: i32,
    /// Of no element until the layer is declared.
    extents: AxisExtents,
}

impl Softmax {
    pub(super) fn new(params: SoftmaxParams) -> Self {
        Self { axis: params.axis, extents: AxisExtents::default() }
    }
}

impl Layer for Softmax {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        self.extents = classes(&bottoms[0], self.axis)?;
        Ok(Declaration {
            tops: vec![bottoms[0].clone()],
            gradients: vec![true],
            needs_top: Need::Values,
            ..Declaration::default()
        })
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
    pub(super) fn new(params: SoftmaxWithLossParams, weight: f32) -> Self {
        let normalization = match params.normalization {
            Normalization::Full => softmax::Normalization::Full,
            Normalization::Valid => softmax::Normalization::Valid,
            Normalization::BatchSize => softmax::Normalization::BatchSize,
            Normalization::None => softmax::Normalization::None,
        };
        let options = LossOptions { normalization, ignore_label: params.ignore_label };
        Self { axis: params.axis, options, weight, extents: AxisExtents::default() }
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
pub(super) struct Accuracy {
    params: AccuracyParams,
    /// Of no element until the layer is declared.
    extents: AxisExtents,
}

impl Accuracy {
    pub(super) fn new(params: AccuracyParams) -> Self {
        Self { params, extents: AxisExtents::default() }
    }
}

impl Layer for Accuracy {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        let extents = classes(&bottoms[0], self.params.axis)?;
        check_labels(&extents, bottoms)?;
        if self.params.top_k > extents.axis {
            return Err(format!("top_k {} is more than the {} classes", self.params.top_k, extents.axis));
        }
        self.extents = extents;
        Ok(Declaration {
            tops: vec![TensorType::f32(&[])],
            gradients: vec![false; 2],
            ..Declaration::default()
        })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        let (scores, labels) = (io.bottoms[0], io.bottoms[1]);
        let AccuracyParams { top_k, ignore_label, .. } = self.params;
        softmax::accuracy(device, &self.extents, top_k, ignore_label, scores, labels, io.tops.remove(0))?;
        Ok(())
    }
}

fn classes(scores: &TensorType, axis: i32) -> Result<AxisExtents, String> {
    let axis = scores.axis(i64::from(axis)).ok_or_else(|| format!("there is no axis {axis} in {scores}"))?;
    Ok(AxisExtents::new(scores, axis))
}

fn check_labels(extents: &AxisExtents, bottoms: &[TensorType]) -> Result<(), String> {
    let (expected, found) = (extents.per_index(), bottoms[1].count());
    if expected == found {
        return Ok(());
    }
    Err(format!("scores of shape {} need {expected} labels, but the second bottom has {found}", bottoms[0]))
}
