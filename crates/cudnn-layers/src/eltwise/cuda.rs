//! Element-wise operations on the GPU.

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
    fn new(inputs: &[View<'_>], coefficients: &[f32]) -> Self {
        assert!(inputs.len() <= MOST, "{} inputs, and the GPU combines at most {MOST}", inputs.len());
        let mut table = Self { count: inputs.len() as u32, ..Zeroable::zeroed() };
        table.addresses.iter_mut().zip(inputs).for_each(|(to, input)| *to = input.address::<f32>());
        table.coefficients.iter_mut().zip(coefficients).for_each(|(to, &coefficient)| *to = coefficient);
        table
    }

    fn arg(&self) -> Arg<'_> {
        Arg::Bytes(bytemuck::bytes_of(self))
    }
}

pub(super) fn sum(cuda: &Cuda, inputs: &[View<'_>], coefficients: &[f32], relu: bool, mut y: ViewMut<'_>) {
    let (len, relu) = (y.len(), i32::from(relu));
    if let (&[a, b], &[left, right]) = (inputs, coefficients) {
        let args = [left.into(), right.into(), a.into(), b.into(), relu.into(), (&mut y).into(), len.into()];
        // SAFETY: `sum_of_two(float left, float right, const float* a, const float* b, int relu, float* y, u64 len)`; the
        // contract has checked the lengths.
        return unsafe { launch_tiles(cuda, &SOURCE, "sum_of_two", len, &args) };
    }
    combine(cuda, "sum", &Inputs { relu, ..Inputs::new(inputs, coefficients) }, y);
}

pub(super) fn backward_sum(
    cuda: &Cuda,
    coefficient: f32,
    dy: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    let len = dx.len();
    let args = [coefficient.into(), dy.into(), (&mut dx).into(), add(accumulate).into(), len.into()];
    // SAFETY: `scaled(float coefficient, const float* x, float* y, int add, u64 len)`; the contract has checked the
    // lengths.
    unsafe { launch_tiles(cuda, &SOURCE, "scaled", len, &args) };
}

pub(super) fn product(cuda: &Cuda, inputs: &[View<'_>], y: ViewMut<'_>) {
    combine(cuda, "product", &Inputs::new(inputs, &[]), y);
}

pub(super) fn maximum(cuda: &Cuda, inputs: &[View<'_>], y: ViewMut<'_>) {
    combine(cuda, "maximum", &Inputs::new(inputs, &[]), y);
}

fn combine(cuda: &Cuda, function: &'static str, inputs: &Inputs, mut y: ViewMut<'_>) {
    let len = y.len();
    let args = [inputs.arg(), (&mut y).into(), len.into()];
    // SAFETY: `function(Inputs inputs, float* y, u64 len)` for each of its three callers; the contract has checked the
    // lengths of inputs and output.
    unsafe { launch_tiles(cuda, &SOURCE, function, len, &args) };
}

pub(super) fn backward_product(
    cuda: &Cuda,
    inputs: &[View<'_>],
    index: usize,
    dy: View<'_>,
    dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    distribute(cuda, "product_backward", &Inputs::new(inputs, &[]), index, dy, dx, accumulate);
}

pub(super) fn backward_maximum(
    cuda: &Cuda,
    inputs: &[View<'_>],
    index: usize,
    dy: View<'_>,
    dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    distribute(cuda, "maximum_backward", &Inputs::new(inputs, &[]), index, dy, dx, accumulate);
}

fn distribute(
    cuda: &Cuda,
    function: &'static str,
    inputs: &Inputs,
    index: usize,
    dy: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    let len = dx.len();
    let index = Arg::U32(index as u32);
    let args = [inputs.arg(), index, dy.into(), (&mut dx).into(), add(accumulate).into(), len.into()];
    // SAFETY: `function(Inputs inputs, u32 index, const float* dy, float* dx, int add, u64 len)` for both callers; the
    // contract has checked the lengths.
    unsafe { launch_tiles(cuda, &SOURCE, function, len, &args) };
}
