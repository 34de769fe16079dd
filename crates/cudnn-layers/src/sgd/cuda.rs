//! The update on the GPU: one launch for as many parameters as the kernel's arguments can name.

use super::{PARAMS_AT_ONCE, ParamUpdate, Regularization};
use crate::cuda_launches::{THREADS, grid, tiles};
use bytemuck::{Pod, Zeroable};
use tensor::{
    Arena, Span, View,
    cuda::{Arg, Cuda, CudaError, Source},
};

static SOURCE: Source =
    Source { name: "sgd.cu", text: concat!(include_str!("../common.cuh"), include_str!("sgd.cu")) };

/// `Parameter` of `sgd.cu`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Parameter {
    dw: u64,
    v: u64,
    w: u64,
    len: u64,
    rate: f32,
    momentum: f32,
    gradient_scale: f32,
    decay: f32,
    sign_decays: i32,
    first_block: u32,
}

/// `Table` of `sgd.cu`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Table {
    count: u64,
    parameters: [Parameter; PARAMS_AT_ONCE],
}

const _: () = assert!(size_of::<Table>() <= 4096, "a kernel's arguments");

pub(super) fn update_all(cuda: &Cuda, params: &mut [ParamUpdate<'_>]) {
    for params in params.chunks_mut(PARAMS_AT_ONCE) {
        let mut table: Table = Zeroable::zeroed();
        let mut blocks = 0;
        let filled = params.iter_mut().filter(|param| !param.w.is_empty());
        for (to, param) in table.parameters.iter_mut().zip(filled) {
            *to = parameter(param, blocks);
            blocks += tiles(param.w.len());
            table.count += 1;
        }
        let args = [Arg::Bytes(bytemuck::bytes_of(&table))];
        // SAFETY: `update(Table table)`, whose addresses are those of the views of `params`: gradient, history and weights
        // have one length each, and no two writable views overlap. Every block has a parameter.
        unsafe { cuda.launch(&SOURCE, "update", grid([blocks, 1], THREADS), &args) };
    }
}

fn parameter(param: &mut ParamUpdate<'_>, first_block: u32) -> Parameter {
    let update = &param.update;
    Parameter {
        dw: param.dw.address::<f32>(),
        v: param.v.address::<f32>(),
        w: param.w.address::<f32>(),
        len: param.w.len() as u64,
        rate: update.rate,
        momentum: update.momentum,
        gradient_scale: update.gradient_scale,
        decay: update.decay,
        sign_decays: i32::from(update.regularization == Regularization::L1),
        first_block,
    }
}

/// Partial sums of one run of elements.
const PARTS: u32 = THREADS;

/// The first failure of the GPU is kept by `cuda`; the sum is then not a number.
pub(super) fn sum_of_squares(cuda: &Cuda, runs: &[View<'_>]) -> f64 {
    let sum = try_sum_of_squares(cuda, runs);
    sum.unwrap_or_else(|error| {
        cuda.note(Err(error));
        f64::NAN
    })
}

fn try_sum_of_squares(cuda: &Cuda, runs: &[View<'_>]) -> Result<f64, CudaError> {
    let sum = Span::bytes(0, size_of::<f64>());
    let mut result = Arena::unset(cuda.stream(), sum.len)?;
    cuda.scratch(|mut scratch| {
        let doubles = |count: usize| (count * size_of::<f64>()) as u64;
        let start = scratch.address::<u8>();
        let mut count = 0;
        for run in runs {
            let room = doubles(count + PARTS as usize) <= scratch.len() as u64;
            assert!(room, "scratch memory for {} sums", runs.len());
            let blocks = tiles(run.len()).min(PARTS);
            let args = [(*run).into(), Arg::Address(start + doubles(count)), run.len().into()];
            // SAFETY: `squares(const float* x, double* partials, u64 len)` writes one double per block, for which the
            // scratch memory has room.
            unsafe { cuda.launch(&SOURCE, "squares", grid([blocks, 1], THREADS), &args) };
            count += blocks as usize;
        }
        let args = [Arg::Address(start), count.into(), Arg::Address(result.view_mut(sum).address::<u8>())];
        // SAFETY: `squares_finish(const double* partials, u64 count, double* sum)`; the kernels above have filled the
        // partial sums, and the result has room for a double at an aligned address.
        unsafe { cuda.launch(&SOURCE, "squares_finish", grid([1, 1], THREADS), &args) };
    });
    let bytes = result.read::<u8>(sum)?;
    Ok(f64::from_ne_bytes((*bytes).try_into().expect("as long as asked for")))
}
