//! The normalisations: `BatchNorm`, with its other half, `Scale`, and `LRN`.

use super::{
    Absorbed, Backward, Declaration, Declared, Forward, Layer, Out, ParamDeclaration, Place, axis_of, images,
    pooling::windows,
};
use crate::error::BoxError;
use crate::spec::{BatchNormParams, Filler, Phase, PoolingParams, ScaleBias, ScaleParams};
use cudnn_layers::AxisExtents;
use cudnn_layers::batch_norm::{self, Added, RunningSums, Statistics};
use cudnn_layers::lrn::{self, Lrn};
use cudnn_layers::scale::{self, Affine, AffineGradients};
use tensor::{Device, PoolGeometry, Space, TensorType, View};

/// `BatchNorm`: blobs 0 to 2 are Caffe's running mean, variance and factor; with NVIDIA's `scale_bias`, 3 and 4 are
/// scale and bias. Backward needs the bottom, and the mean and inverse standard deviation that forward saved. A second
/// bottom, which is added to the result, and a pooling behind it come from other layers ([`join`](crate::net)).
pub(super) struct BatchNorm {
    params: BatchNormParams,
    statistics: Statistics,
    pooling: Option<PoolingParams>,
    /// Of no element until the layer is declared, and so is the pooling.
    extents: AxisExtents,
    pool: Option<PoolGeometry>,
}

impl BatchNorm {
    pub(super) fn new(params: &BatchNormParams, place: &Place<'_>) -> Self {
        let running = params.use_global_stats.unwrap_or(place.net.state.phase == Phase::Test);
        let statistics = if running { Statistics::Running } else { Statistics::Batch };
        let (params, pooling) = (params.clone(), place.layer.pool.clone());
        Self { params, statistics, pooling, extents: AxisExtents::default(), pool: None }
    }

    fn norm<'a>(&self, params: &[View<'a>], relu: bool) -> batch_norm::BatchNorm<'a> {
        let &Self { extents, statistics, pool, .. } = self;
        batch_norm::BatchNorm { extents, statistics, affine: affine(params), relu, pool }
    }
}

impl Layer for BatchNorm {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        let x = &bottoms[0];
        if x.rank() < 2 {
            return Err(format!("batch normalisation needs channels, which a blob of shape {x} lacks"));
        }
        if let Some(added) = bottoms.get(1).filter(|added| *added != x) {
            return Err(format!("a blob of shape {added} cannot be added to one of {x}"));
        }
        let mut extents = AxisExtents::new(x, 1);
        if self.statistics == Statistics::Batch && extents.per_index() < 2 {
            return Err("one value per channel has no variance; use a larger mini-batch".to_owned());
        }
        let mut top = x.clone();
        if let Some(pooling) = &self.pooling {
            let g = windows(pooling, x)?;
            top = x.with_dims(&[g.n, g.c, g.out_h(), g.out_w()]);
            // A single channel lies as in NHWC, too.
            extents = AxisExtents { outer: extents.per_index(), inner: 1, ..extents };
            self.pool = Some(g);
        }
        self.extents = extents;
        let channels = TensorType::f32(&[extents.axis]);
        let state = |shape| ParamDeclaration { shape, filler: Filler::constant(0.0), learned: false };
        let mut params = [channels.clone(), channels.clone(), TensorType::f32(&[1])].map(state).to_vec();
        if let Some(ScaleBias { scale_filler, bias_filler }) = self.params.scale_bias {
            let learned = |filler| ParamDeclaration::learned(channels.clone(), filler);
            params.extend([scale_filler, bias_filler].map(learned));
        }
        Ok(Declaration {
            params,
            always_propagates: true,
            gradients: vec![true; bottoms.len()],
            read_bottoms: 1,
            saved: batch_norm::saved(&extents, self.pool.as_ref()),
            repeats_from_saved: true,
            absorbs: if bottoms.len() > 1 { Absorbed::BothBySign } else { Absorbed::Both },
            ..Declaration::one(top)
        })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        let norm = self.norm(&io.params, io.rectify);
        let (x, added) = (io.bottoms[0], io.bottoms.get(1).copied());
        if io.repeat {
            batch_norm::repeat(device, &norm, x, added, io.tops.remove(0), io.saved.as_view());
            return Ok(());
        }
        let [mean, variance, factor] = io.state.try_into().expect("mean, variance and factor");
        let BatchNormParams { moving_average_fraction, eps, .. } = self.params;
        let running = RunningSums { mean, variance, factor, moving_average_fraction };
        batch_norm::forward(device, &norm, eps, x, added, io.tops.remove(0), io.saved, running);
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        let (x, dy) = (io.bottoms[0], io.top_diff());
        let gradients = affine_gradients(io.param_diffs);
        let unwanted = || io.scratch.take(x.format(), x.len()).replaced();
        let dx = io.bottom_diffs.remove(0).unwrap_or_else(unwanted);
        let (norm, y) = (self.norm(&io.params, io.rectify), io.tops.first().copied());
        let added = io.bottom_diffs.pop().map(|gradient| Added { y, gradient });
        batch_norm::backward(device, &norm, x, io.saved, dy, dx, gradients, added);
        Ok(())
    }
}

/// Scale and bias, as far as the layer has them.
fn affine<'a>(params: &[View<'a>]) -> Affine<'a> {
    Affine { gamma: params.first().copied(), beta: params.get(1).copied() }
}

/// The gradients of scale and bias, as far as they are wanted.
fn affine_gradients(diffs: Vec<Option<Out<'_>>>) -> AffineGradients<'_> {
    let mut diffs = diffs.into_iter();
    AffineGradients { gamma: diffs.next().flatten(), beta: diffs.next().flatten() }
}

/// `Scale`: y = gamma x + beta over the axes from `axis` on, with gamma a parameter or the second bottom. In place it
/// is out of place here: backward needs the bottom.
pub(super) type Scale = Declared<ScaleParams, AxisExtents>;

impl Layer for Scale {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        let (x, p) = (&bottoms[0], &self.params);
        let axis = axis_of(x, p.axis)?;
        let end = match bottoms.get(1) {
            Some(gamma) => axis + gamma.rank(),
            None if p.num_axes < 0 => x.rank(),
            None => axis + p.num_axes as usize,
        };
        if end > x.rank() {
            return Err(format!("{} axes from axis {axis} on are more than {x} has", end - axis));
        }
        let scale = TensorType::f32(&x.dims()[axis..end]);
        if let Some(gamma) = bottoms.get(1).filter(|gamma| **gamma != scale) {
            return Err(format!("the scale of shape {gamma} does not fit {x} from axis {axis} on"));
        }
        self.extents = match scale.rank() {
            1 => AxisExtents::new(x, axis),
            _ => AxisExtents { outer: x.count_before(axis), axis: scale.count(), inner: x.count_from(end) },
        };
        let blob = |filler| ParamDeclaration::learned(scale.clone(), filler);
        let gamma = bottoms.get(1).is_none().then(|| blob(p.filler));
        let bias = p.bias_term.then(|| blob(p.bias_filler));
        Ok(Declaration {
            gradients: vec![true; bottoms.len()],
            params: gamma.into_iter().chain(bias).collect(),
            read_bottoms: bottoms.len(),
            absorbs: Absorbed::Forward,
            ..Declaration::one(x.clone())
        })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        let (x, y) = (io.bottoms[0], io.tops.remove(0));
        let affine = affine(&[&io.bottoms[1..], &io.params].concat());
        scale::forward(device, &self.extents, affine, io.rectify, Some(x), y);
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        let (x, dy) = (io.bottoms[0], io.top_diff());
        let dx = io.bottom_diffs.remove(0);
        io.bottom_diffs.append(&mut io.param_diffs);
        if io.bottom_diffs.iter().any(Option::is_some) {
            scale::backward_affine(device, &self.extents, x, dy, affine_gradients(io.bottom_diffs));
        }
        if let Some(dx) = dx {
            let gamma = io.bottoms.get(1).unwrap_or_else(|| &io.params[0]);
            scale::backward(device, &self.extents, *gamma, dy, dx);
        }
        Ok(())
    }
}

/// `LRN`: y = x scale^-β. Backward needs x.
pub(super) type LrnLayer = Declared<Lrn, [usize; 4]>;

impl Layer for LrnLayer {
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String> {
        let x = &bottoms[0];
        self.extents = images("LRN", x)?;
        if self.params.size > lrn::MAX_SIZE {
            return Err(format!("a local_size of {} is above {}", self.params.size, lrn::MAX_SIZE));
        }
        let scratch = [Space::NONE, lrn::scratch(&self.params, x.count())];
        Ok(Declaration { read_bottoms: 1, scratch, ..Declaration::one(x.clone()) })
    }

    fn forward(&mut self, device: &Device, mut io: Forward<'_>) -> Result<(), BoxError> {
        lrn::forward(device, &self.params, self.extents, io.bottoms[0], io.tops.remove(0));
        Ok(())
    }

    fn backward(&mut self, device: &Device, mut io: Backward<'_>) -> Result<(), BoxError> {
        let operands = [io.bottoms[0], io.top_diff()];
        if let Some(dx) = io.bottom_diffs.remove(0) {
            lrn::backward(device, &self.params, self.extents, operands, dx, io.scratch);
        }
        Ok(())
    }
}
