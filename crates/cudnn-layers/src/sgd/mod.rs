//! The update of one parameter by stochastic gradient descent with momentum, in Caffe's order.
//!
//! ```text
//! g = gradient_scale * dw + decay * w            (L2; for L1 + decay * sign(w))
//! v = momentum * v + rate * g
//! w = w - v
//! ```
//!
//! The learning rate is inside the history `v`, unlike in PyTorch, which matters when the rate changes.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use tensor::{Device, View, ViewMut};

/// The penalty whose gradient is added to the loss's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Regularization {
    /// Half the sum of squares.
    #[default]
    L2,
    /// The sum of absolute values.
    L1,
}

/// The factors of one parameter's update: global values times the parameter's multipliers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// Learning rate (`lr * lr_mult`).
    pub rate: f32,
    /// Momentum.
    pub momentum: f32,
    /// What the accumulated gradient is multiplied by: the clipping factor divided by `iter_size`.
    pub gradient_scale: f32,
    /// Weight decay (`weight_decay * decay_mult`).
    pub decay: f32,
    /// What the decay acts on.
    pub regularization: Regularization,
}

/// One parameter to be updated: its factors, and operands of one length.
#[derive(Debug)]
pub struct ParamUpdate<'a> {
    /// The factors.
    pub update: Update,
    /// The accumulated gradient.
    pub dw: View<'a>,
    /// The history.
    pub v: ViewMut<'a>,
    /// The weights.
    pub w: ViewMut<'a>,
}

/// Updates the weights `w` and the history `v` from the accumulated gradient `dw`, in one pass.
///
/// # Panics
/// If lengths differ.
pub fn update(device: &Device, update: &Update, dw: View<'_>, v: ViewMut<'_>, w: ViewMut<'_>) {
    update_all(device, &mut [ParamUpdate { update: *update, dw, v, w }]);
}

/// Parameters that a GPU updates in one launch: more would not fit a kernel's arguments of 4 KiB.
pub const PARAMS_AT_ONCE: usize = 64;

/// [`update`] for every one of `params`, on a GPU [`PARAMS_AT_ONCE`] in one launch.
///
/// # Panics
/// If lengths differ within a parameter.
pub fn update_all(device: &Device, params: &mut [ParamUpdate<'_>]) {
    for ParamUpdate { dw, v, w, .. } in params.iter() {
        assert_eq!((dw.len(), v.len()), (w.len(), w.len()), "gradient, history and weights have one length");
    }
    match device {
        Device::Cpu(cpu) => {
            for ParamUpdate { update, dw, v, w } in params {
                cpu::update(cpu, update, dw.host(), v.host(), w.host());
            }
        }
        Device::Cuda(cuda) => cuda::update_all(cuda, params),
    }
}

/// The sum of squares, for clipping by the global L2 norm: summed in a fixed order, in double precision above runs of a
/// few thousand elements. It waits for a GPU; if that fails, the sum is NaN and the device keeps the error.
pub fn sum_of_squares(device: &Device, elements: View<'_>) -> f64 {
    sum_of_squares_all(device, &[elements])
}

/// [`sum_of_squares`] of several runs of elements, such as the gradients of a net, waiting once.
pub fn sum_of_squares_all(device: &Device, runs: &[View<'_>]) -> f64 {
    match device {
        Device::Cpu(cpu) => runs.iter().map(|run| cpu::sum_of_squares(cpu, run.host())).sum(),
        Device::Cuda(cuda) => cuda::sum_of_squares(cuda, runs),
    }
}
