//! Element-wise operations on the GPU.

use super::Combination;
use crate::cuda_launches::{add, launch_tiles};
use bytemuck::{Pod, Zeroable};
use tensor::{
    Accumulate, View, ViewMut,
    cuda::{Arg, Cuda, Source},
};

static SOURCE: Source =
    Source { name: "eltwise.cu", text: concat!(include_str!("../common.cuh"), include_str!("eltwise.cu")) };

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
        let relu = i32::from(relu).into();
        let args = [left.into(), right.into(), a.into(), b.into(), relu, (&mut y).into(), len.into()];
        // SAFETY: `sum_of_two(float left, float right, const float* a, const float* b, int relu, float* y, u64 len)`; the
        // contract has checked the lengths.
        return unsafe { launch_tiles(cuda, &SOURCE, "sum_of_two", len, &args) };
    }
    let inputs = Inputs::new(inputs, coefficients, relu);
    let args = [Arg::of(&inputs), (&mut y).into(), len.into()];
    // SAFETY: `function(Inputs inputs, float* y, u64 len)`; the contract has checked the lengths of inputs and output.
    unsafe { launch_tiles(cuda, &SOURCE, function, len, &args) };
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
    let (len, add) = (dx.len(), add(accumulate).into());
    let function = match combination {
        Combination::Sum(a) => {
            let args = [a[index].into(), dy.into(), (&mut dx).into(), add, len.into()];
            // SAFETY: `scaled(float coefficient, const float* x, float* y, int add, u64 len)`; the contract has checked
            // the lengths.
            return unsafe { launch_tiles(cuda, &SOURCE, "scaled", len, &args) };
        }
        Combination::Product => "product_backward",
        Combination::Maximum => "maximum_backward",
    };
    let inputs = Inputs::new(inputs, &[], false);
    let args = [Arg::of(&inputs), Arg::U32(index as u32), dy.into(), (&mut dx).into(), add, len.into()];
    // SAFETY: `function(Inputs inputs, u32 index, const float* dy, float* dx, int add, u64 len)`; the contract has checked
    // the lengths.
    unsafe { launch_tiles(cuda, &SOURCE, function, len, &args) };
}
