//! Functions of one element: `y = f(x)`.
//!
//! | function | forward | backward | which sees |
//! | --- | --- | --- | --- |
//! | ReLU | `x` where `x >= 0`, else `slope * x` | `dy` where it is `> 0`, else `slope * dy` | the sign of the top; of the bottom if `slope < 0` |
//! | ELU | `x` where `x > 0`, else `alpha (e^x - 1)` | `dy` where `y > 0`, else `(y + alpha) dy` | top |
//! | sigmoid | `1 / (1 + e^-x)` | `y (1 - y) dy` | top |
//! | tanh | `tanh x` | `(1 - y^2) dy` | top |
//! | power | `(shift + scale x)^power` | `power scale (shift + scale x)^(power - 1) dy` | bottom |
//! | below | `min(x, 0)` | `dy` where `x <= 0`, else 0 | bottom |
//!
//! What sees only its top backward may overwrite its input. A NaN passes through forward.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use tensor::{Device, Out, View, ViewMut};

/// The function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// Rectified linear units.
    Relu {
        /// The slope below 0.
        slope: f32,
    },
    /// Exponential linear units.
    Elu {
        /// What it falls to, negated; from 0.
        alpha: f32,
    },
    /// The logistic function.
    Sigmoid,
    /// The hyperbolic tangent.
    TanH,
    /// A power of a linear function.
    Power {
        /// The exponent.
        power: f32,
        /// The factor.
        scale: f32,
        /// The summand.
        shift: f32,
    },
    /// What is below 0: the other half of a ReLU.
    Below,
}

impl Activation {
    /// ReLU as it mostly is.
    pub const RELU: Self = Self::Relu { slope: 0.0 };

    /// Whether backward sees the bottom instead of the top.
    pub fn sees_bottom(self) -> bool {
        match self {
            Self::Relu { slope } => slope < 0.0,
            Self::Power { .. } | Self::Below => true,
            Self::Elu { .. } | Self::Sigmoid | Self::TanH => false,
        }
    }
}

/// `y = f(x)`; without an `x`, `y = f(y)`.
pub fn forward(device: &Device, f: Activation, x: Option<View<'_>>, y: ViewMut<'_>) {
    check(&[x], y.len());
    on_device!(device, forward(f, x, y));
}

/// `dx (+)= dy` through the `f` that has [`seen`](Activation::sees_bottom) or produced `seen`; without a `dy`, `dx`
/// holds it before and is overwritten.
pub fn backward(device: &Device, f: Activation, seen: View<'_>, dy: Option<View<'_>>, dx: Out<'_>) {
    check(&[Some(seen), dy], dx.to.len());
    on_device!(device, backward(f, seen, dy, dx));
}

fn check(inputs: &[Option<View<'_>>], len: usize) {
    let is_one = inputs.iter().flatten().all(|input| input.len() == len);
    assert!(is_one, "operands of an element-wise function have one length");
}
