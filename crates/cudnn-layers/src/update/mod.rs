//! The update of all parameters by a solver, in Caffe's order and with its names.
//!
//! ```text
//! scale = factor / mini_batches             (factor: what brings the L2 norm of all gradients down to `clip`)
//! g = scale * dw + decay * w                (L2; for L1 + decay * sign(w); AdamW: scale * dw)
//! a = rate * lr_mult                        (LARC: a factor of the parameter's own instead of lr_mult)
//!
//! SGD        h = momentum * h + a * g                                       w -= h
//! Nesterov   h' = momentum * h + a * g                                      w -= (1 + momentum) h' - momentum * h
//! AdaGrad    h += g^2                                                       w -= a g / (sqrt(h) + delta)
//! RMSProp    h = momentum2 * h + (1 - momentum2) g^2                        w -= a g / (sqrt(h) + delta)
//! AdaDelta   h = momentum * h + (1 - momentum) g^2
//!            u = g sqrt((k + delta) / (h + delta))                          w -= a u
//!            k = momentum * k + (1 - momentum) u^2
//! Adam       h = momentum * h + (1 - momentum) g
//!            k = momentum2 * k + (1 - momentum2) g^2                        w -= a c h / (sqrt(k) + delta)
//! AdamW      as Adam, with delta sqrt(1 - momentum2^t) for delta            w -= a * decay * w first
//! ```
//!
//! with the correction c = sqrt(1 - momentum2^t) / (1 - momentum^t) of iteration t, the first being 1. SGD's learning
//! rate is inside the history `h`, unlike in PyTorch, which matters when the rate changes. Adam is Caffe's, with delta
//! beside the uncorrected root; AdamW is that of Loshchilov and Hutter (2019) and PyTorch. LARC (You et al. 2017) is
//! that of NVIDIA's Caffe: the factor eta |w| / |scale * dw|, or under its policy "clip" that divided by the rate, at
//! most 1.
//!
//! Nothing here waits for a GPU. What changes from one iteration to the next is read from the device's memory, so that
//! the same update can be recorded once and replayed: the [`StepRates`], which the host sets ([`tensor::Setting`]), and
//! the [`StepState`] of the iteration. An iteration whose loss is not finite, or that met a label out of range, updates
//! nothing; nor does any after it, until the host, which learns of it later, has cleared the state.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use bytemuck::{Pod, Zeroable};
use tensor::{Accumulate, Device, Format, Space, Span, View, ViewMut};

/// The penalty whose gradient is added to the loss's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Regularization {
    /// Half the sum of squares.
    #[default]
    L2,
    /// The sum of absolute values.
    L1,
}

/// Whose formula an update follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Method {
    /// Stochastic gradient descent with momentum.
    #[default]
    Sgd,
    /// Nesterov's accelerated gradient.
    Nesterov,
    /// Duchi et al. 2011.
    AdaGrad,
    /// Tieleman and Hinton 2012.
    RmsProp,
    /// Zeiler 2012.
    AdaDelta,
    /// Kingma and Ba 2015.
    Adam,
    /// Loshchilov and Hutter 2019.
    AdamW,
}

impl Method {
    /// How many numbers it keeps of each weight.
    pub fn histories(self) -> usize {
        match self {
            Self::Sgd | Self::Nesterov | Self::AdaGrad | Self::RmsProp => 1,
            Self::AdaDelta | Self::Adam | Self::AdamW => 2,
        }
    }
}

/// A rate of each parameter's own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Larc {
    /// The trust in the ratio of norms.
    pub eta: f32,
    /// Whether the learning rate is the most that it may be, instead of a factor.
    pub clips: bool,
}

/// What the updates of all parameters in all iterations have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rule {
    /// The formula.
    pub method: Method,
    /// Momentum; Adam's beta1.
    pub momentum: f32,
    /// Adam's beta2, or RMSProp's decay.
    pub momentum2: f32,
    /// What keeps denominators above 0.
    pub delta: f32,
    /// What the decay acts on.
    pub regularization: Regularization,
    /// The most that the L2 norm of all accumulated gradients may be.
    pub clip: Option<f32>,
    /// The mini-batches over which gradients were added up: Caffe's `iter_size`.
    pub mini_batches: usize,
    /// Whether each parameter has a rate of its own.
    pub larc: Option<Larc>,
}

/// What changes from one iteration's update to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct StepRates {
    /// The learning rate.
    pub rate: f32,
    /// What it is corrected by.
    pub correction: f32,
    /// The formula's delta.
    pub delta: f32,
}

impl Rule {
    /// Those of iteration `iteration`, the first being 0, at this learning rate.
    pub fn rates(&self, rate: f32, iteration: u64) -> StepRates {
        let plain = StepRates { rate, correction: 1.0, delta: self.delta };
        if !matches!(self.method, Method::Adam | Method::AdamW) {
            return plain;
        }
        let left = |momentum: f32| 1.0 - f64::from(momentum).powf((iteration + 1) as f64);
        let root = left(self.momentum2).sqrt();
        let delta = f64::from(self.delta) * if self.method == Method::AdamW { root } else { 1.0 };
        StepRates { correction: (root / left(self.momentum)) as f32, delta: delta as f32, ..plain }
    }
}

/// One parameter to be updated, by operands of one length.
#[derive(Debug)]
pub struct ParamUpdate<'a> {
    /// What the learning rate is multiplied by.
    pub lr_mult: f32,
    /// Weight decay (`weight_decay * decay_mult`).
    pub decay: f32,
    /// The accumulated gradient.
    pub dw: View<'a>,
    /// What the method keeps, one after the other.
    pub history: ViewMut<'a>,
    /// The weights.
    pub w: ViewMut<'a>,
    /// The weights once more in BF16, or nothing.
    pub copy: ViewMut<'a>,
}

/// What a device knows of the iteration it is at, in its own memory: [`StepState::SPACE`], zeros at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct StepState {
    /// The sum of the losses of its mini-batches so far.
    pub loss: f64,
    /// The sum of squares of all accumulated gradients at the last update, if its rule clips: summed in a fixed order,
    /// in double precision above runs of a few thousand elements.
    pub squares: f64,
    /// What the last update multiplied gradients by.
    pub scale: f32,
    /// Not 0 once an update was refused.
    pub refused: u32,
}

impl StepState {
    /// The memory that it takes.
    pub const SPACE: Space = Space::of::<Self>(1);
    /// Where its loss lies in that, and where [`offer_loss`] leaves a rank's part of it.
    pub const LOSS: Span = Span { offset: 0, len: size_of::<f64>(), format: Format::U8 };
    #[allow(missing_docs)]
    pub const OFFERED: Span = Span { offset: size_of::<f64>(), ..Self::LOSS };
}

/// A part of the objective: the loss of a layer, and its weight.
pub type Loss<'a> = (View<'a>, f64);

/// `loss (+)= sum over losses of weight * sum of elements`, in double precision and in this order.
pub fn add_losses(device: &Device, losses: &[Loss<'_>], mut state: ViewMut<'_>, accumulate: Accumulate) {
    if losses.is_empty() && accumulate == Accumulate::Replace {
        return device.zero(state.take(Format::U8, size_of::<f64>()));
    }
    on_device!(device, add_losses(losses, state, accumulate));
}

/// Takes the loss away, to be added to those of other ranks: it is at [`StepState::OFFERED`] then, or no number there
/// if a label was out of range. No number is in its place until the sum comes, so that nothing is updated before.
pub fn offer_loss(device: &Device, state: ViewMut<'_>) {
    on_device!(device, offer_loss(state));
}

/// Updates the weights, their copies and the history of all `params` from their accumulated gradients `dw`, unless the
/// loss is not finite, a label was out of range ([`device_fault`](crate::softmax::labels::device_fault)), or an update
/// was refused before: the first update of an iteration finds that out for all, and, if its rule clips, is the only one.
/// `rates` are the bytes of [`StepRates`].
pub fn update_all(
    device: &Device,
    rule: &Rule,
    rates: View<'_>,
    state: ViewMut<'_>,
    params: &mut [ParamUpdate<'_>],
    is_first: bool,
) {
    for ParamUpdate { dw, history, w, copy, .. } in params.iter() {
        let kept = rule.method.histories() * w.len();
        assert_eq!((dw.len(), history.len()), (w.len(), kept), "lengths of gradient and history");
        assert!([0, w.len()].contains(&copy.len()), "a copy of {} of {} weights", copy.len(), w.len());
    }
    on_device!(device, update_all(rule, rates, state, params, is_first));
}
