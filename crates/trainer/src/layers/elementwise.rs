//! Layers that work element by element on one blob, in place if asked to: `ReLU` and `Dropout`.

use super::{Absorbed, Backward, Declaration, Forward, InPlace, Layer, Need};
use crate::{
    error::BoxError,
    spec::{Phase, ReluParams},
};
use cudnn_layers::{
    activation, copy,
    dropout::{self, Dropout},
};
use tensor::{Accumulate, Device, TensorType, View};

/// y = max(x, 0) + slope min(x, 0). Backward needs the sign of y only, so it runs in place.
pub struct Relu {
    slope: f32,
    absorbed: Absorbed,
}

impl Relu {
    pub(super) fn new(params: ReluParams) -> Self {
        Self { slope: params.negative_slope, absorbed: Absorbed::No }
    }

    /// Takes note of what the layer before does in this one's place.
    pub(crate) fn absorbed(&mut self, by_the_layer_before: Absorbed) {
        self.absorbed = by_the_layer_before;
    }
}

impl Layer for Relu {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        if self.slope < 0.0 || self.slope.is_nan() {
            return Err(format!("a negative_slope of {} is below 0, where the gradient is lost", self.slope));
        }
        Ok(Declaration {
            tops: bottoms.to_vec(),
            gradients: vec![true],
            needs_top: Need::Sign,
            in_place: InPlace::KeepsSign,
            ..Declaration::default()
        })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        if self.absorbed != Absorbed::No {
            return Ok(());
        }
        let y = io.tops.remove(0);
        match io.bottoms.first() {
            Some(&x) => activation::forward(device, self.slope, x, y),
            None => activation::forward_in_place(device, self.slope, y),
        }
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        if self.absorbed == Absorbed::Both {
            return Ok(());
        }
        let Some(dx) = io.bottom_diffs.remove(0) else { return Ok(()) };
        match io.top_diffs.first() {
            Some(_) => {
                activation::backward(device, self.slope, io.tops[0], io.top_diff(), dx.diff, dx.accumulate)
            }
            None => activation::backward_in_place(device, self.slope, io.tops[0], dx.diff),
        }
        Ok(())
    }

    fn as_relu(&mut self) -> Option<&mut Relu> {
        (self.slope == 0.0).then_some(self)
    }
}

/// Inverted dropout in TRAIN; nothing at all in TEST. The mask is drawn again backward, so no memory is needed.
pub(super) struct DropoutLayer {
    ratio: f32,
    seed: u64,
    identity: bool,
}

impl DropoutLayer {
    pub(super) fn new(ratio: f32, seed: u64, phase: Phase) -> Self {
        Self { ratio, seed, identity: phase == Phase::Test }
    }

    fn mask<'a>(&self, iteration: View<'a>) -> Dropout<'a> {
        Dropout { ratio: self.ratio, seed: self.seed, iteration }
    }
}

impl Layer for DropoutLayer {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        Ok(Declaration {
            tops: bottoms.to_vec(),
            gradients: vec![true],
            // Where it zeroes the data it also stops the gradient.
            in_place: InPlace::KeepsSign,
            ..Declaration::default()
        })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        let (mask, y) = (self.mask(io.iteration), io.tops.remove(0));
        match (io.bottoms.first(), self.identity) {
            (Some(&x), true) => copy::copy(device, x, y, Accumulate::Replace),
            (Some(&x), false) => dropout::forward(device, &mask, x, y),
            (None, true) => {}
            (None, false) => dropout::forward_in_place(device, &mask, y),
        }
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        let mask = self.mask(io.iteration);
        let Some(dx) = io.bottom_diffs.remove(0) else { return Ok(()) };
        match (io.top_diffs.is_empty(), self.identity) {
            (false, true) => copy::copy(device, io.top_diff(), dx.diff, dx.accumulate),
            (false, false) => dropout::backward(device, &mask, io.top_diff(), dx.diff, dx.accumulate),
            (true, true) => {}
            (true, false) => dropout::backward_in_place(device, &mask, dx.diff),
        }
        Ok(())
    }
}
