//! The update on the GPU: one launch for as many parameters as the kernel's arguments can name.

use super::{Loss, ParamUpdate, Regularization, Rule};
use crate::cuda_launches::{THREADS, add, launch, source, tile_count};
use bytemuck::{Pod, Zeroable};
use tensor::{
    Accumulate, View, ViewMut,
    cuda::{Arg, Cuda, Grid},
};

source!("sgd.cu");

/// `Parameter` of `sgd.cu`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Parameter {
    dw: u64,
    v: u64,
    w: u64,
    len: u64,
    lr_mult: f32,
    decay: f32,
    first_block: u64,
}

/// Parameters that are updated in one launch: more would not fit a kernel's arguments of 4 KiB.
const PARAMS_AT_ONCE: usize = 64;

/// `Table` of `sgd.cu`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Table {
    momentum: f32,
    sign_decays: i32,
    count: u64,
    parameters: [Parameter; PARAMS_AT_ONCE],
}

const _: () = assert!(size_of::<Table>() <= 4096 - 16, "a kernel's arguments");

pub(super) fn update_all(
    cuda: &Cuda,
    rule: &Rule,
    rate: View<'_>,
    mut state: ViewMut<'_>,
    params: &mut [ParamUpdate<'_>],
) {
    let (rate, state) = (Arg::Address(rate.address::<u8>()), Arg::Address(state.address::<u8>()));
    prepare(cuda, rule, state, params);
    for params in params.chunks_mut(PARAMS_AT_ONCE) {
        let sign_decays = i32::from(rule.regularization == Regularization::L1);
        let mut table = Table { momentum: rule.momentum, sign_decays, ..Table::zeroed() };
        let mut blocks = 0;
        let filled = params.iter_mut().filter(|param| !param.w.is_empty());
        for (to, param) in table.parameters.iter_mut().zip(filled) {
            *to = parameter(param, blocks);
            blocks += tile_count(param.w.len());
            table.count += 1;
        }
        // SAFETY: `update(Table table, const float* rate, const StepState* state)`. The table's addresses are those of the
        // views of `params`: gradient, history and weights have one length each, and no two writable views overlap. Every
        // block has a parameter.
        unsafe { launch!(cuda, "update", Grid::line(blocks, THREADS), [&table, rate, state]) };
    }
}

fn parameter(param: &mut ParamUpdate<'_>, first_block: u32) -> Parameter {
    Parameter {
        dw: param.dw.address::<f32>(),
        v: param.v.address::<f32>(),
        w: param.w.address::<f32>(),
        len: param.w.len() as u64,
        lr_mult: param.lr_mult,
        decay: param.decay,
        first_block: first_block.into(),
    }
}

/// Partial sums of one run of elements.
const PARTS: u32 = THREADS;

/// Leaves the gradients' scale in `state`, and whether there is an update.
fn prepare(cuda: &Cuda, rule: &Rule, state: Arg<'_>, params: &[ParamUpdate<'_>]) {
    let clipped = if rule.clip.is_some() { params } else { &[] };
    cuda.scratch(|mut scratch| {
        let doubles = |count: usize| (count * size_of::<f64>()) as u64;
        let start = scratch.address::<u8>();
        let mut count = 0;
        for ParamUpdate { dw, .. } in clipped {
            let room = doubles(count + PARTS as usize) <= scratch.len() as u64;
            assert!(room, "scratch memory for {} sums", params.len());
            let blocks = tile_count(dw.len()).min(PARTS);
            let to = Arg::Address(start + doubles(count));
            // SAFETY: `squares(const float* x, double* partials, u64 len)` writes one double per block, for which the
            // scratch memory has room.
            unsafe { launch!(cuda, "squares", Grid::line(blocks, THREADS), [*dw, to, dw.len()]) };
            count += blocks as usize;
        }
        let (clip, mini_batches) = (rule.clip.unwrap_or(f32::INFINITY), rule.mini_batches as f32);
        let [start, fault] = [start, cuda.fault_address()].map(Arg::Address);
        // SAFETY: `prepare(const double* partials, u64 count, float clip, float mini_batches, StepState* state, const
        // uint4* fault)`; the kernels above have filled the partial sums.
        unsafe {
            launch!(cuda, "prepare", Grid::line(1, THREADS), [start, count, clip, mini_batches, state, fault])
        };
    });
}

pub(super) fn add_losses(
    cuda: &Cuda,
    losses: &[Loss<'_>],
    mut state: ViewMut<'_>,
    mut accumulate: Accumulate,
) {
    let state = Arg::Address(state.address::<u8>());
    for &(loss, weight) in losses {
        let add = add(accumulate);
        // SAFETY: `add_loss(const float* loss, u64 len, double weight, StepState* state, int add)`, and `loss` has `len`.
        unsafe { launch!(cuda, "add_loss", Grid::line(1, 1), [loss, loss.len(), &weight, state, add]) };
        accumulate = Accumulate::Add;
    }
}
