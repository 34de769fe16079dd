//! The normalisations with statistics: `BatchNorm`, and its other half, `Scale`.

use super::{Absorbed, Backward, Declaration, Forward, Gradient, Layer, ParamDeclaration};
use crate::{
    error::BoxError,
    spec::{BatchNormParams, Filler, Phase, ScaleParams},
};
use cudnn_layers::{
    AxisExtents,
    batch_norm::{self, Running, RunningMut, Statistics},
    scale::{self, Affine, AffineGradients},
};
use tensor::{Accumulate, Device, Space, TensorType, View, ViewMut};

/// `BatchNorm`: blobs 0 to 2 are Caffe's running mean, variance and factor; with NVIDIA's `scale_bias`, 3 and 4 are scale and
/// bias. Backward needs the bottom, and the mean and inverse standard deviation that forward saved.
pub(super) struct BatchNorm {
    params: BatchNormParams,
    statistics: Statistics,
    extents: Option<AxisExtents>,
    /// Whether a ReLU goes with both passes.
    relu: bool,
}

impl BatchNorm {
    pub(super) fn new(params: BatchNormParams, phase: Phase) -> Self {
        let running = params.use_global_stats.unwrap_or(phase == Phase::Test);
        let statistics = if running { Statistics::Running } else { Statistics::Batch };
        Self { params, statistics, extents: None, relu: false }
    }

    fn extents(&self) -> AxisExtents {
        self.extents.expect("a layer is declared before it is used")
    }
}

impl Layer for BatchNorm {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        let x = &bottoms[0];
        if x.rank() < 2 {
            return Err(format!("batch normalisation needs channels, which a blob of shape {x} lacks"));
        }
        let extents = AxisExtents::new(x, 1);
        if self.statistics == Statistics::Batch && extents.per_index() < 2 {
            return Err("one value per channel has no variance; use a larger mini-batch".to_owned());
        }
        self.extents = Some(extents);
        let channels = extents.axis;
        let blob =
            |len, filler, learned| ParamDeclaration { shape: TensorType::f32(&[len]), filler, learned };
        let state = |len| blob(len, Filler::Constant { value: 0.0 }, false);
        let mut params = vec![state(channels), state(channels), state(1)];
        if let Some(affine) = self.params.scale_bias {
            params.push(blob(channels, affine.scale_filler, true));
            params.push(blob(channels, affine.bias_filler, true));
        }
        Ok(Declaration {
            tops: vec![x.clone()],
            scratch: [Space::NONE, spare_gradients(&params)],
            params,
            gradients: vec![true],
            always_propagates: true,
            needs_bottom: true,
            saved: batch_norm::saved(&extents),
            ..Declaration::default()
        })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        let (extents, eps, x) = (self.extents(), self.params.eps, io.bottoms[0]);
        let affine = affine(&io.params);
        let (y, saved) = (io.tops.remove(0), io.saved);
        let mut state = io.state.into_iter();
        let mut blob = || state.next().expect("mean, variance and factor");
        let (mean, variance, factor) = (blob(), blob(), blob());
        match self.statistics {
            Statistics::Batch => {
                let moving_average_fraction = self.params.moving_average_fraction;
                let running = RunningMut { mean, variance, factor, moving_average_fraction };
                let running = Some(running).filter(|_| !io.repeat);
                batch_norm::forward_training(device, &extents, eps, x, affine, self.relu, y, saved, running);
            }
            Statistics::Running => {
                let running =
                    Running { mean: mean.as_view(), variance: variance.as_view(), factor: factor.as_view() };
                batch_norm::forward_inference(device, &extents, eps, x, affine, self.relu, running, y, saved);
            }
        }
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        let (extents, x, dy) = (self.extents(), io.bottoms[0], io.top_diff());
        let gradients = affine_gradients(device, &io.params, io.param_diffs, &mut io.scratch);
        let dx = io.bottom_diffs.remove(0).unwrap_or_else(|| Gradient {
            diff: io.scratch.take(x.format(), x.len()),
            accumulate: Accumulate::Replace,
        });
        batch_norm::backward(
            device,
            &extents,
            self.statistics,
            x,
            io.saved,
            affine(&io.params),
            self.relu,
            dy,
            dx.diff,
            dx.accumulate,
            gradients,
        );
        Ok(())
    }

    fn absorb_relu(&mut self) -> Absorbed {
        self.relu = true;
        Absorbed::Both
    }
}

/// Scale and bias, if the layer has them.
fn affine<'a>(params: &[View<'a>]) -> Option<Affine<'a>> {
    params.first().map(|&gamma| Affine { gamma, beta: params.get(1).copied() })
}

/// Scratch for the gradients of scale and bias that nobody wants.
fn spare_gradients(params: &[ParamDeclaration]) -> Space {
    Space::all_of(params.iter().filter(|param| param.learned).map(|param| param.shape.space()))
}

/// The gradients of scale and bias. One that nobody wants goes to scratch; `None` if the layer has neither. The operation
/// replaces both or adds to both: where only one adds (its parameter is shared), the other begins with zeros.
fn affine_gradients<'a>(
    device: &Device,
    params: &[View<'_>],
    diffs: Vec<Option<Gradient<'a>>>,
    scratch: &mut ViewMut<'a>,
) -> Option<AffineGradients<'a>> {
    diffs.iter().flatten().next()?;
    let adds = diffs.iter().flatten().any(|gradient| gradient.accumulate == Accumulate::Add);
    let mut gradients = params.iter().zip(diffs).map(|(param, diff)| {
        let spare = scratch.take(param.format(), param.len());
        let mut gradient = diff.unwrap_or(Gradient { diff: spare, accumulate: Accumulate::Replace });
        if adds && gradient.accumulate == Accumulate::Replace {
            device.zero(gradient.diff.reborrow());
        }
        gradient.diff
    });
    let accumulate = if adds { Accumulate::Add } else { Accumulate::Replace };
    Some(AffineGradients { dgamma: gradients.next()?, dbeta: gradients.next(), accumulate })
}

/// `Scale`: y = gamma x + beta over the axes from `axis` on. In place it is out of place here: backward needs the bottom.
pub(super) struct Scale {
    params: ScaleParams,
    extents: Option<AxisExtents>,
    /// Whether a ReLU goes with forward.
    relu: bool,
}

impl Scale {
    pub(super) fn new(params: ScaleParams) -> Self {
        Self { params, extents: None, relu: false }
    }
}

impl Layer for Scale {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        let (x, p) = (&bottoms[0], &self.params);
        let axis = x.axis(i64::from(p.axis)).ok_or_else(|| format!("there is no axis {} in {x}", p.axis))?;
        let end = if p.num_axes < 0 { x.rank() } else { axis + p.num_axes as usize };
        if end > x.rank() {
            return Err(format!("{} axes from axis {axis} on are more than {x} has", p.num_axes));
        }
        let scale = x.with_dims(&x.dims()[axis..end]);
        let (outer, inner) = (x.count_before(axis), x.count_from(end));
        self.extents = Some(AxisExtents { outer, axis: scale.count(), inner });
        let blob = |filler| ParamDeclaration { shape: scale.clone(), filler, learned: true };
        let bias = p.bias_term.then(|| blob(p.bias_filler));
        let params: Vec<_> = std::iter::once(blob(p.filler)).chain(bias).collect();
        Ok(Declaration {
            tops: vec![x.clone()],
            scratch: [Space::NONE, spare_gradients(&params)],
            params,
            gradients: vec![true],
            needs_bottom: true,
            ..Declaration::default()
        })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        let extents = self.extents.expect("a layer is declared before it is used");
        let affine = Affine { gamma: io.params[0], beta: io.params.get(1).copied() };
        scale::forward(device, &extents, affine, self.relu, io.bottoms[0], io.tops.remove(0));
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        let extents = self.extents.expect("a layer is declared before it is used");
        let (x, dy) = (io.bottoms[0], io.top_diff());
        let gradients = affine_gradients(device, &io.params, io.param_diffs, &mut io.scratch);
        if let Some(gradients) = gradients {
            scale::backward_affine(device, &extents, x, dy, gradients);
        }
        if let Some(dx) = io.bottom_diffs.remove(0) {
            scale::backward(device, &extents, io.params[0], dy, dx.diff, dx.accumulate);
        }
        Ok(())
    }

    fn absorb_relu(&mut self) -> Absorbed {
        self.relu = true;
        Absorbed::Forward
    }
}
