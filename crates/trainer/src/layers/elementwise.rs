//! Layers that work element by element on one blob, in place if asked to: `ReLU` and `Dropout`.

use super::{Backward, Declaration, Forward, InPlace, Layer, Need, Place};
use crate::{
    error::BoxError,
    fill::stream,
    spec::{DropoutParams, Phase, ReluParams},
};
use cudnn_layers::{
    activation, copy,
    dropout::{self, Dropout},
};
use tensor::{Accumulate, Device, TensorType, View};

/// y = max(x, 0) + slope min(x, 0). Backward needs the sign of y only, so it runs in place.
pub(super) struct Relu(pub(super) ReluParams);

impl Layer for Relu {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        let slope = self.0.negative_slope;
        if slope < 0.0 || slope.is_nan() {
            return Err(format!("a negative_slope of {slope} is below 0, where the gradient is lost"));
        }
        Ok(Declaration {
            needs_top: Need::Sign,
            in_place: InPlace::KeepsSign,
            rectifies: slope == 0.0,
            ..Declaration::one(bottoms[0].clone())
        })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        activation::forward(device, self.0.negative_slope, io.bottoms.first().copied(), io.tops.remove(0));
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        let Some(dx) = io.bottom_diffs.remove(0) else { return Ok(()) };
        let dy = io.top_diffs.first().map(|_| io.top_diff());
        activation::backward(device, self.0.negative_slope, io.tops[0], dy, dx.diff, dx.accumulate);
        Ok(())
    }
}

/// Inverted dropout in TRAIN; nothing at all in TEST. The mask is drawn again backward, so no memory is needed.
pub(super) struct DropoutLayer {
    ratio: f32,
    seed: u64,
    identity: bool,
}

impl DropoutLayer {
    pub(super) fn new(params: &DropoutParams, place: &Place<'_>) -> Self {
        let seed = stream(&place.layer.name) ^ place.options.seed;
        Self { ratio: params.ratio, seed, identity: place.net.state.phase == Phase::Test }
    }

    fn mask<'a>(&self, iteration: View<'a>) -> Dropout<'a> {
        Dropout { ratio: self.ratio, seed: self.seed, iteration }
    }
}

impl Layer for DropoutLayer {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        // Where it zeroes the data it also stops the gradient.
        Ok(Declaration { in_place: InPlace::KeepsSign, ..Declaration::one(bottoms[0].clone()) })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        let (mask, y) = (self.mask(io.iteration), io.tops.remove(0));
        match (io.bottoms.first(), self.identity) {
            (Some(&x), true) => copy::copy(device, x, y, Accumulate::Replace),
            (None, true) => {}
            (x, false) => dropout::apply(device, &mask, x.copied(), y, Accumulate::Replace),
        }
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        let mask = self.mask(io.iteration);
        let Some(dx) = io.bottom_diffs.remove(0) else { return Ok(()) };
        match (io.top_diffs.is_empty(), self.identity) {
            (false, true) => copy::copy(device, io.top_diff(), dx.diff, dx.accumulate),
            (true, true) => {}
            (in_place, false) => {
                let dy = (!in_place).then(|| io.top_diff());
                dropout::apply(device, &mask, dy, dx.diff, dx.accumulate);
            }
        }
        Ok(())
    }
}
