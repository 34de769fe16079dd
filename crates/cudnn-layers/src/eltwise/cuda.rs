//! Element-wise operations on the GPU.

use super::Combination;
use crate::cuda_launches::{add, launch, source, tiles};
use bytemuck::{Pod, Zeroable};
use tensor::{Accumulate, View, ViewMut, cuda::Cuda};

source!("eltwise.cu");

/// Inputs that one launch takes.
const MOST: usize = 64;

/// `Inputs` of `eltwise.cu`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Inputs {
    addresses: [u64; MOST],
    coefficients: [f32; MOST],
    count: u32,
    relu: i32,
}

impl Inputs {
    fn new(inputs: &[View<'_>], coefficients: &[f32], relu: bool) -> Self {
        assert!(inputs.len() <= MOST, "{} inputs, and the GPU combines at most {MOST}", inputs.len());
        let mut table = Self { count: inputs.len() as u32, relu: i32::from(relu), ..Zeroable::zeroed() };
        table.addresses.iter_mut().zip(inputs).for_each(|(to, input)| *to = input.address::<f32>());
        table.coefficients.iter_mut().zip(coefficients).for_each(|(to, &coefficient)| *to = coefficient);
        table
    }
}

pub(super) fn forward(
    cuda: &Cuda,
    combination: Combination<'_>,
    inputs: &[View<'_>],
    relu: bool,
    mut y: ViewMut<'_>,
) {
    let len = y.len();
    let (function, coefficients): (_, &[f32]) = match combination {
        Combination::Sum(coefficients) => ("sum", coefficients),
        Combination::Product => ("product", &[]),
        Combination::Maximum => ("maximum", &[]),
    };
    if let (&[a, b], &[left, right]) = (inputs, coefficients) {
        let relu = i32::from(relu);
        // SAFETY: `sum_of_two(float left, float right, const float* a, const float* b, int relu, float* y, u64 len)`; the
        // contract has checked the lengths.
        return unsafe { launch!(cuda, "sum_of_two", tiles(len), [left, right, a, b, relu, &mut y, len]) };
    }
    let inputs = Inputs::new(inputs, coefficients, relu);
    // SAFETY: `function(Inputs inputs, float* y, u64 len)`; the contract has checked the lengths of inputs and output.
    unsafe { launch!(cuda, function, tiles(len), [&inputs, &mut y, len]) };
}

pub(super) fn backward(
    cuda: &Cuda,
    combination: Combination<'_>,
    inputs: &[View<'_>],
    index: usize,
    dy: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    let (len, add) = (dx.len(), add(accumulate));
    let function = match combination {
        Combination::Sum(a) => {
            // SAFETY: `scaled(float coefficient, const float* x, float* y, int add, u64 len)`; the contract has checked
            // the lengths.
            return unsafe { launch!(cuda, "scaled", tiles(len), [a[index], dy, &mut dx, add, len]) };
        }
        Combination::Product => "product_backward",
        Combination::Maximum => "maximum_backward",
    };
    let inputs = Inputs::new(inputs, &[], false);
    // SAFETY: `function(Inputs inputs, u32 index, const float* dy, float* dx, int add, u64 len)`; the contract has checked
    // the lengths.
    unsafe { launch!(cuda, function, tiles(len), [&inputs, index as u32, dy, &mut dx, add, len]) };
}
