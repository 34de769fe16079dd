//! Element-wise combinations of several blobs of one shape: sum with coefficients, product, maximum.
//!
//! | operation | forward | backward, for the bottom `i` | backward needs |
//! | --- | --- | --- | --- |
//! | sum | `y = sum of a[j] x[j]` | `dx = a[i] dy` | nothing |
//! | product | `y = product of x[j]` | `dx = dy * product of the other x[j]` | all bottoms |
//! | maximum | `y = max of x[j]` | `dx = dy` where `i` won, else 0 | all bottoms |
//!
//! The product's gradient multiplies the other factors instead of dividing `y` by `x[i]`, which is Caffe's
//! `stable_prod_grad` and right for zeros. As in Caffe, of two equal first bottoms the second wins the maximum, and a
//! later one wins only by being larger.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use tensor::{Device, Out, View, ViewMut};

/// How many blobs can be combined: so many addresses are a GPU kernel's argument.
pub const MOST_INPUTS: usize = 64;

/// What the elements at one place are combined by.
#[derive(Clone, Debug, PartialEq)]
pub enum Combination {
    /// Their sum with these coefficients, one for each input.
    Sum(Vec<f32>),
    /// Their product.
    Product,
    /// The largest.
    Maximum,
}

/// `y =` the combination of `inputs`; with `relu`, rectified on the way.
///
/// # Panics
/// If there is no input, more than [`MOST_INPUTS`], not a coefficient for each, or a ReLU after something else than a sum.
pub fn forward(device: &Device, how: &Combination, inputs: &[View<'_>], relu: bool, y: ViewMut<'_>) {
    let count = inputs.len();
    assert!((1..=MOST_INPUTS).contains(&count), "an element-wise operation has 1 to {MOST_INPUTS} inputs");
    check(inputs, y.len());
    match how {
        Combination::Sum(a) => assert_eq!(count, a.len(), "one coefficient per input"),
        Combination::Product | Combination::Maximum => assert!(!relu, "a ReLU is fused with a sum only"),
    }
    on_device!(device, forward(how, inputs, relu, y));
}

/// `dx (+)=` the gradient with respect to the input numbered `index`. A sum's does not look at `inputs`.
///
/// # Panics
/// If there is no such input, or there are more than [`MOST_INPUTS`].
pub fn backward(
    device: &Device,
    how: &Combination,
    inputs: &[View<'_>],
    index: usize,
    dy: View<'_>,
    dx: Out<'_>,
) {
    check(&[dy], dx.to.len());
    check(inputs, dy.len());
    assert!(inputs.len() <= MOST_INPUTS, "an element-wise operation has at most {MOST_INPUTS} inputs");
    let count = if let Combination::Sum(coefficients) = how { coefficients.len() } else { inputs.len() };
    assert!(index < count, "input {index} of {count}");
    on_device!(device, backward(how, inputs, index, dy, dx));
}

fn check(inputs: &[View<'_>], len: usize) {
    assert!(inputs.iter().all(|input| input.len() == len), "inputs and output have one length");
}
