//! Layers that work element by element on one blob: `ReLU` and its like, `PReLU`, `Dropout`.

use super::{
    Backward, Copies, CopyLayer, Declaration, Declared, Forward, Layer, Need, ParamDeclaration, Place,
};
use crate::error::BoxError;
use crate::spec::{DropoutParams, PReluParams, Phase};
use cudnn_layers::activation::{self, Activation};
use cudnn_layers::dropout::{self, Dropout};
use cudnn_layers::scale::{self, Affine, AffineGradients};
use cudnn_layers::{AxisExtents, bias, copy};
use files::fnv1a;
use tensor::{Device, TensorType, View};

/// y = f(x). In place where backward sees the top only; a ReLU's needs no more than the sign, and there adds the bias of
/// the layer before if that is left to it.
pub(super) type Elementwise = Declared<Activation, AxisExtents>;

impl Layer for Elementwise {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        let x = &bottoms[0];
        if x.rank() > 1 {
            self.extents = AxisExtents::new(x, 1);
        }
        let sees_bottom = self.params.sees_bottom();
        let (needs_top, in_place) = match self.params {
            _ if sees_bottom => (Need::Nothing, None),
            Activation::Relu { .. } => (Need::Sign, Some(Need::Sign)),
            _ => (Need::Values, Some(Need::Nothing)),
        };
        let read_bottoms = usize::from(sees_bottom);
        Ok(Declaration { read_bottoms, needs_top, in_place, ..Declaration::one(x.clone()) })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        let y = io.tops.remove(0);
        match io.params.first() {
            Some(&b) => bias::forward_in_place(device, &self.extents, b, true, y),
            None => activation::forward(device, self.params, io.bottoms.first().copied(), y),
        }
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        let Some(dx) = io.bottom_diffs.remove(0) else { return Ok(()) };
        let dy = io.top_diffs.first().map(|_| io.top_diff());
        let seen = if self.params.sees_bottom() { io.bottoms[0] } else { io.tops[0] };
        match io.param_diffs.pop().flatten() {
            Some(db) => bias::backward_in_place(device, &self.extents, seen, dx.to, db),
            None => activation::backward(device, self.params, seen, dy, dx),
        }
        Ok(())
    }
}

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
            read_bottoms: 1,
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

/// Inverted dropout. The mask is drawn again backward, so no memory is needed.
pub(super) struct DropoutLayer {
    ratio: f32,
    seed: u64,
}

impl DropoutLayer {
    /// Its layer in TRAIN; in TEST one that does nothing at all.
    pub(super) fn in_phase(params: &DropoutParams, place: &Place<'_>) -> Box<dyn Layer> {
        let seed = fnv1a(place.layer.name.bytes()) ^ place.options.seed;
        match place.net.state.phase {
            Phase::Train => Self { ratio: params.ratio, seed }.into(),
            Phase::Test => CopyLayer::new(&Copies::Unchanged).into(),
        }
    }

    fn mask<'a>(&self, iteration: View<'a>) -> Dropout<'a> {
        Dropout { ratio: self.ratio, seed: self.seed, iteration }
    }
}

impl Layer for DropoutLayer {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        // Where it zeroes the data it also stops the gradient.
        Ok(Declaration { in_place: Some(Need::Sign), ..Declaration::one(bottoms[0].clone()) })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        let (mask, y) = (self.mask(io.iteration), io.tops.remove(0));
        dropout::apply(device, &mask, io.bottoms.first().copied(), y.replaced());
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        let Some(dx) = io.bottom_diffs.remove(0) else { return Ok(()) };
        let dy = io.top_diffs.first().map(|_| io.top_diff());
        dropout::apply(device, &self.mask(io.iteration), dy, dx);
        Ok(())
    }
}
