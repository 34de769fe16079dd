//! The update of all parameters by stochastic gradient descent with momentum, in Caffe's order.
//!
//! ```text
//! scale = factor / mini_batches                  (factor: what brings the L2 norm of all gradients down to `clip`)
//! g = scale * dw + decay * w                     (L2; for L1 + decay * sign(w))
//! v = momentum * v + rate * lr_mult * g
//! w = w - v
//! ```
//!
//! The learning rate is inside the history `v`, unlike in PyTorch, which matters when the rate changes.
//!
//! Nothing here waits for a GPU. What changes from one iteration to the next is read from the device's memory, so that the
//! same update can be recorded once and replayed: the rate, which the host sets ([`tensor::Setting`]), and the [`StepState`]
//! of the iteration. An iteration whose loss is not finite, or that met a label out of range, updates nothing; nor does any
//! after it, until the host, which learns of it later, has cleared the state.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use bytemuck::{Pod, Zeroable};
use tensor::{Accumulate, Device, Format, Space, View, ViewMut};

/// The penalty whose gradient is added to the loss's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Regularization {
    /// Half the sum of squares.
    #[default]
    L2,
    /// The sum of absolute values.
    L1,
}

/// What the updates of all parameters in all iterations have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// Momentum.
    pub momentum: f32,
    /// What the decay acts on.
    pub regularization: Regularization,
    /// The most that the L2 norm of all accumulated gradients may be.
    pub clip: Option<f32>,
    /// The mini-batches over which gradients were added up: Caffe's `iter_size`.
    pub mini_batches: usize,
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
    /// The history.
    pub v: ViewMut<'a>,
    /// The weights.
    pub w: ViewMut<'a>,
}

/// What a device knows of the iteration it is at, in its own memory: [`StepState::SPACE`], zeros at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct StepState {
    /// The sum of the losses of its mini-batches so far.
    pub loss: f64,
    /// The sum of squares of all accumulated gradients at the last update, if its rule clips: summed in a fixed order, in
    /// double precision above runs of a few thousand elements.
    pub squares: f64,
    /// What the last update multiplied gradients by.
    pub scale: f32,
    /// Not 0 once an update was refused.
    pub refused: u32,
}

impl StepState {
    /// The memory that it takes.
    pub const SPACE: Space = Space::of::<Self>(1);

    /// As it was read from the device's memory.
    ///
    /// # Panics
    /// If there are fewer or more bytes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        bytemuck::pod_read_unaligned(bytes)
    }
}

/// A part of the objective: the loss of a layer, and its weight.
pub type Loss<'a> = (View<'a>, f64);

/// `loss (+)= sum over losses of weight * sum of elements`, in double precision and in this order.
pub fn add_losses(device: &Device, losses: &[Loss<'_>], mut state: ViewMut<'_>, accumulate: Accumulate) {
    if losses.is_empty() && accumulate == Accumulate::Replace {
        return device.zero(state.take(Format::U8, size_of::<f64>()));
    }
    match device {
        Device::Cpu(_) => cpu::add_losses(losses, on_host(&mut state), accumulate),
        Device::Cuda(cuda) => cuda::add_losses(cuda, losses, state, accumulate),
    }
}

/// Updates the weights `w` and the history `v` of all `params` from their accumulated gradients `dw`, unless the loss is not
/// finite, a label was out of range ([`device_fault`](crate::softmax::labels::device_fault)), or an update was refused
/// before. `rate` is the learning rate, the bytes of one `f32`.
///
/// # Panics
/// If lengths differ within a parameter.
pub fn update_all(
    device: &Device,
    rule: &Rule,
    rate: View<'_>,
    mut state: ViewMut<'_>,
    params: &mut [ParamUpdate<'_>],
) {
    for ParamUpdate { dw, v, w, .. } in params.iter() {
        assert_eq!((dw.len(), v.len()), (w.len(), w.len()), "gradient, history and weights have one length");
    }
    match device {
        Device::Cpu(cpu) => {
            let rate = bytemuck::pod_read_unaligned(rate.host::<u8>());
            cpu::update_all(cpu, rule, rate, on_host(&mut state), params);
        }
        Device::Cuda(cuda) => cuda::update_all(cuda, rule, rate, state, params),
    }
}

fn on_host<'a>(state: &'a mut ViewMut<'_>) -> &'a mut StepState {
    bytemuck::from_bytes_mut(state.host::<u8>())
}
