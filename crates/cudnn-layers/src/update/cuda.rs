//! The update on the GPU: one launch for as many parameters as the kernel's arguments can name.

use super::{Loss, Method, ParamUpdate, Regularization, Rule};
use crate::cuda_launches::{THREADS, add, launch, sources, tile_count};
use bytemuck::{Pod, Zeroable};
use tensor::cuda::{Cuda, Grid};
use tensor::{Accumulate, Bf16, View, ViewMut};

sources!("update.cu");

/// `Parameter` of `update.cu`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Parameter {
    dw: u64,
    history: u64,
    w: u64,
    copy: u64,
    len: u64,
    lr_mult: f32,
    decay: f32,
    first_block: u32,
    squares: u32,
}

/// Parameters that are updated in one launch: more would not fit a kernel's arguments of 4 KiB.
const PARAMS_AT_ONCE: usize = 64;

/// `Table` of `update.cu`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Table {
    momentum: f32,
    momentum2: f32,
    eta: f32,
    clips: i32,
    sign_decays: i32,
    count: i32,
    dw_squares: u64,
    w_squares: u64,
    parameters: [Parameter; PARAMS_AT_ONCE],
}

const _: () = assert!(size_of::<Table>() <= 4096 - 16, "a kernel's arguments");

pub(super) fn update_all(
    cuda: &Cuda,
    rule: &Rule,
    rates: View<'_>,
    state: ViewMut<'_>,
    params: &mut [ParamUpdate<'_>],
    is_first: bool,
) {
    let (rates, state) = (rates.address::<u8>(), state.address::<u8>());
    params.sort_by_key(|param| param.w.is_empty());
    let filled = params.iter().take_while(|param| !param.w.is_empty()).count();
    let params = &params[..filled];
    // What lies in the scratch memory is used before other work is launched that takes it.
    cuda.scratch(|scratch| {
        let sums = Sums::launch(cuda, rule, &scratch, params);
        if is_first {
            prepare(cuda, rule, state, &sums);
        }
        for (params, at) in params.chunks(PARAMS_AT_ONCE).zip(sums.at.chunks(PARAMS_AT_ONCE)) {
            let (mut table, mut blocks, kernel) = (sums.table(rule), 0, kernel(rule.method));
            for ((to, param), &at) in table.parameters.iter_mut().zip(params).zip(at) {
                *to = parameter(param, blocks, at);
                blocks += tile_count(param.w.len());
                table.count += 1;
            }
            // SAFETY: each is `update(Table table, const StepRates* rates, const StepState* state)`. The table's
            // addresses are those of the views of `params`, whose history has a number of the weights' lengths that is
            // the method's, and no two writable views overlap; and of sums that the kernels above have filled. Every
            // block has a parameter.
            unsafe { launch!(cuda, 0, kernel, Grid::line(blocks, THREADS), [table, rates, state]) };
        }
    });
}

fn kernel(method: Method) -> &'static str {
    match method {
        Method::Sgd => "update_sgd",
        Method::Nesterov => "update_nesterov",
        Method::AdaGrad => "update_adagrad",
        Method::RmsProp => "update_rmsprop",
        Method::AdaDelta => "update_adadelta",
        Method::Adam => "update_adam",
        Method::AdamW => "update_adamw",
    }
}

fn parameter(param: &ParamUpdate<'_>, first_block: u32, squares: u32) -> Parameter {
    Parameter {
        dw: param.dw.address::<f32>(),
        history: param.history.address::<f32>(),
        w: param.w.address::<f32>(),
        copy: if param.copy.is_empty() { 0 } else { param.copy.address::<Bf16>() },
        len: param.w.len() as u64,
        lr_mult: param.lr_mult,
        decay: param.decay,
        first_block,
        squares,
    }
}

/// Partial sums of one run of elements: `PARTS` of `update.cu`.
const PARTS: u32 = THREADS;

/// The partial sums of squares of all gradients, and for LARC of all weights behind them.
struct Sums {
    start: u64,
    count: usize,
    /// The number of the first of each parameter.
    at: Vec<u32>,
}

impl Sums {
    /// Adds up what `rule` needs.
    fn launch(cuda: &Cuda, rule: &Rule, scratch: &ViewMut<'_>, params: &[ParamUpdate<'_>]) -> Self {
        let start = scratch.address::<u8>();
        if rule.clip.is_none() && rule.larc.is_none() {
            return Self { start, count: 0, at: vec![0; params.len()] };
        }
        let bytes = |count: usize| (count * size_of::<f64>()) as u64;
        let blocks = |param: &ParamUpdate<'_>| tile_count(param.w.len()).min(PARTS);
        let count = params.iter().map(|param| blocks(param) as usize).sum();
        assert!(bytes(2 * count) <= scratch.len() as u64, "scratch memory for {} sums", params.len());
        let (mut first, mut at) = (0, Vec::new());
        for param in params {
            let (grid, len) = (Grid::line(blocks(param), THREADS), param.w.len());
            let [to, behind] = [0, count].map(|after| start + bytes(first as usize + after));
            // SAFETY: `squares(const float* x, double* partials, u64 len)` writes one double per block, for which the
            // scratch memory has room.
            unsafe { launch!(cuda, 0, "squares", grid, [param.dw.address::<f32>(), to, len]) };
            if rule.larc.is_some() {
                // SAFETY: as above.
                unsafe { launch!(cuda, 0, "squares", grid, [param.w.address::<f32>(), behind, len]) };
            }
            at.push(first);
            first += blocks(param);
        }
        Self { start, count, at }
    }

    /// The table of no parameters.
    fn table(&self, rule: &Rule) -> Table {
        let &Rule { momentum, momentum2, regularization, larc, .. } = rule;
        Table {
            momentum,
            momentum2,
            eta: larc.map_or(0.0, |larc| larc.eta),
            clips: i32::from(larc.is_some_and(|larc| larc.clips)),
            sign_decays: i32::from(regularization == Regularization::L1),
            dw_squares: self.start,
            w_squares: self.start + (self.count * size_of::<f64>()) as u64,
            ..Table::zeroed()
        }
    }
}

/// Leaves the gradients' scale in `state`, and whether there is an update.
fn prepare(cuda: &Cuda, rule: &Rule, state: u64, sums: &Sums) {
    let (clip, mini_batches) = (rule.clip.unwrap_or(f32::INFINITY), rule.mini_batches as f32);
    let count = if rule.clip.is_some() { sums.count } else { 0 };
    let (start, fault, grid) = (sums.start, cuda.fault_address(), Grid::line(1, THREADS));
    // SAFETY: `prepare(const double* partials, u64 count, float clip, float mini_batches, StepState* state, const
    // uint4* fault)`; the kernels of `Sums::launch` have filled the partial sums.
    unsafe { launch!(cuda, 0, "prepare", grid, [start, count, clip, mini_batches, state, fault]) };
}

pub(super) fn offer_loss(cuda: &Cuda, state: ViewMut<'_>) {
    let (state, fault) = (state.address::<u8>(), cuda.fault_address());
    // SAFETY: `offer_loss(StepState* state, const uint4* fault)`.
    unsafe { launch!(cuda, 0, "offer_loss", Grid::line(1, 1), [state, fault]) };
}

pub(super) fn add_losses(cuda: &Cuda, losses: &[Loss<'_>], state: ViewMut<'_>, mut how: Accumulate) {
    let (state, grid) = (state.address::<u8>(), Grid::line(1, 1));
    for &(loss, weight) in losses {
        // SAFETY: `add_loss(const float* loss, u64 len, double weight, StepState* state, int add)`, and `loss` has
        // `len`.
        unsafe {
            launch!(cuda, 0, "add_loss", grid, [loss.address::<f32>(), loss.len(), weight, state, add(how)])
        };
        how = Accumulate::Add;
    }
}
