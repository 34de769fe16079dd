//! Element-wise operations on the GPU.

use super::{Combination, MOST_INPUTS};
use crate::cuda_launches::{add, launch, of_type, sources, tiles};
use bytemuck::{Pod, Zeroable};
use tensor::{Out, View, ViewMut, cuda::Cuda};

sources!("eltwise.cu");

/// `Inputs` of `eltwise.cu`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Inputs {
    addresses: [u64; MOST_INPUTS],
    coefficients: [f32; MOST_INPUTS],
    count: u32,
    relu: i32,
}

impl Inputs {
    fn new(inputs: &[View<'_>], coefficients: &[f32], relu: bool) -> Self {
        let (addresses, count) = ([inputs[0].numbers(); MOST_INPUTS], inputs.len() as u32);
        let mut table = Self { addresses, coefficients: [0.0; MOST_INPUTS], count, relu: i32::from(relu) };
        table.addresses.iter_mut().zip(inputs).for_each(|(to, input)| *to = input.numbers());
        table.coefficients.iter_mut().zip(coefficients).for_each(|(to, &coefficient)| *to = coefficient);
        table
    }
}

pub(super) fn forward(cuda: &Cuda, how: &Combination, inputs: &[View<'_>], relu: bool, y: ViewMut<'_>) {
    let blobs: Vec<_> = inputs.iter().copied().chain([y.as_view()]).map(Some).collect();
    let (len, place) = (y.len(), of_type(&blobs));
    let (function, coefficients): (_, &[f32]) = match how {
        Combination::Sum(coefficients) => ("sum", coefficients),
        Combination::Product => ("product", &[]),
        Combination::Maximum => ("maximum", &[]),
    };
    let inputs = Inputs::new(inputs, coefficients, relu);
    // SAFETY: `function(Inputs inputs, real* y, u64 len)`; the contract has checked the lengths of inputs and output.
    unsafe { launch!(cuda, place, function, tiles(len), [inputs, y.numbers(), len]) };
}

pub(super) fn backward(
    cuda: &Cuda,
    how: &Combination,
    inputs: &[View<'_>],
    index: usize,
    dy: View<'_>,
    dx: Out<'_>,
) {
    let (len, add, place) = (dy.len(), add(dx.accumulate), of_type(&[Some(dy), Some(dx.to.as_view())]));
    let (gradient, to) = (dy.numbers(), dx.to.numbers());
    let function = match how {
        Combination::Sum(a) => {
            // SAFETY: `scaled(float coefficient, const real* x, real* y, int add, u64 len)`; the contract has checked
            // the lengths.
            return unsafe { launch!(cuda, place, "scaled", tiles(len), [a[index], gradient, to, add, len]) };
        }
        Combination::Product => "product_backward",
        Combination::Maximum => "maximum_backward",
    };
    let inputs = Inputs::new(inputs, &[], false);
    // SAFETY: `function(Inputs inputs, u32 index, const real* dy, real* dx, int add, u64 len)`; the contract has
    // checked the lengths.
    unsafe { launch!(cuda, place, function, tiles(len), [inputs, index as u32, gradient, to, add, len]) };
}
