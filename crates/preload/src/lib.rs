//! Micro-batching under other frameworks.
//!
//! Preloaded (`LD_PRELOAD=libmicrobatch_cudnn.so`), this library stands before the convolutions of cuDNN's legacy API,
//! and before the operation graphs that are one convolution.
//!
//! Find and Get answer with one *virtual algorithm* before cuDNN's own, wherever dividing the mini-batch is faster than
//! what cuDNN would do in the same workspace; its workspace is what the plan needs. When the caller runs it, the plan's
//! micro-batches are launched on the caller's handle and operands. An execution plan of a graph stays the caller's, but
//! where a plan of ours is faster than its engine, it says what workspace ours needs, and runs ours. Whatever else is
//! asked of cuDNN, and every algorithm of its own, is passed through untouched.
//!
//! ```text
//! lib (exported functions) ──► graph ──► takeover ──► bench ──► plan ──► signature ──► call ──► cudnn
//!                                            │          └─────► database ────┘
//!                                            └────► division ──► plan
//! ```
//!
//! Which functions, which variables and what is left alone: `docs/preload.md`. Elsewhere than on Unix it is empty.

#![cfg(unix)]

mod bench;
mod call;
mod cudnn;
mod database;
mod division;
mod driver;
mod graph;
mod plan;
mod report;
mod settings;
mod shared;
mod signature;
mod takeover;

use call::Call;
use cudnn::{NOT_SUPPORTED, Raw, SUCCESS, call};
use planner::ConvOp;
use std::{cell::OnceCell, ffi::c_int, slice};
use takeover::{VIRTUAL, taken_over};

/// The type of a parameter: an address, a handle or a descriptor where nothing else is said.
type Kind<T = Raw> = T;

/// A function with the name and the parameters of one of cuDNN's, which `real` calls, though only once.
macro_rules! export {
    ($(#[$about:meta])* $name:ident($($parameter:ident $(: $kind:ty)?),*) as $real:ident $body:block) => {
        $(#[$about])*
        ///
        /// # Safety
        /// As cuDNN's function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($parameter: Kind<$($kind)?>),*) -> c_int {
            // SAFETY: our caller's promises are those that cuDNN asks for, and all that is asked for here.
            unsafe {
                let status = OnceCell::new();
                let $real = || *status.get_or_init(|| call!(stringify!($name), ($($parameter),*)));
                // What cuDNN calls of itself is its own affair.
                taken_over(|| $body).unwrap_or_else($real)
            }
        }
    };
}

/// The five functions of each operation. `a` and `b` are its operands, `c` is its result, at `pa`, `pb` and `pc`.
macro_rules! operations {
    ($($op:ident: [$($ask:ident),*], $find_ex:ident, $workspace_size:ident, $convolve:ident;)*) => {$(
        $(export! {
            /// Answers with the algorithms that run: Find fastest first, measured on memory of the library's own, Get
            /// most promising first, by cuDNN's heuristics.
            $ask(h, a, b, conv, c, most: c_int, found: *mut c_int, list) as real {
                takeover::answer(&Call::new(ConvOp::$op, h, [a, b, c, conv]), (most, found, list.cast()), None, real)
            }
        })*

        export! {
            /// As Find, measured on memory of the caller, which also says how much workspace there is.
            $find_ex(
                h, a, pa, b, pb, conv, c, pc, most: c_int, found: *mut c_int, list, ws, len: usize
            ) as real {
                let (operands, workspace) = ([pa, pb, pc], (ws, len));
                let call = Call { operands, workspace, ..Call::new(ConvOp::$op, h, [a, b, c, conv]) };
                takeover::answer(&call, (most, found, list.cast()), Some(len), real)
            }
        }

        export! {
            /// Bytes of workspace that an algorithm needs.
            $workspace_size(h, a, b, conv, c, algorithm: c_int, bytes: *mut usize) as real {
                if algorithm != VIRTUAL || bytes.is_null() {
                    return real();
                }
                let needed = takeover::workspace_bytes(&Call::new(ConvOp::$op, h, [a, b, c, conv]));
                needed.inspect(|&needed| bytes.write(needed)).map_or(NOT_SUPPORTED, |_| SUCCESS)
            }
        }

        export! {
            /// Launches a convolution.
            $convolve(h, alpha, a, pa, b, pb, conv, algorithm: c_int, ws, len: usize, beta, c, pc) as real {
                if algorithm != VIRTUAL {
                    return real();
                }
                let (scalars, operands, workspace) = ([alpha, beta], [pa, pb, pc], (ws, len));
                let call = Call::new(ConvOp::$op, h, [a, b, c, conv]);
                takeover::run(&Call { scalars, operands, workspace, ..call })
            }
        }
    )*};
}

operations! {
    Forward:
        [cudnnFindConvolutionForwardAlgorithm, cudnnGetConvolutionForwardAlgorithm_v7],
        cudnnFindConvolutionForwardAlgorithmEx,
        cudnnGetConvolutionForwardWorkspaceSize,
        cudnnConvolutionForward;
    BackwardData:
        [cudnnFindConvolutionBackwardDataAlgorithm, cudnnGetConvolutionBackwardDataAlgorithm_v7],
        cudnnFindConvolutionBackwardDataAlgorithmEx,
        cudnnGetConvolutionBackwardDataWorkspaceSize,
        cudnnConvolutionBackwardData;
    BackwardFilter:
        [cudnnFindConvolutionBackwardFilterAlgorithm, cudnnGetConvolutionBackwardFilterAlgorithm_v7],
        cudnnFindConvolutionBackwardFilterAlgorithmEx,
        cudnnGetConvolutionBackwardFilterWorkspaceSize,
        cudnnConvolutionBackwardFilter;
}

export! {
    /// Launches a forward convolution with what follows it. Whoever asks for the virtual algorithm here has it from
    /// Find or Get, which do not say what for.
    cudnnConvolutionBiasActivationForward(
        h, alpha, a, pa, b, pb, conv, algorithm: c_int, ws, len: usize, beta, z, pz, bias, pbias, activation, c, pc
    ) as real {
        if algorithm != VIRTUAL {
            return real();
        }
        let (scalars, operands, workspace) = ([alpha, beta], [pa, pb, pc], (ws, len));
        let epilogue = Some([z, pz, bias, pbias, activation]);
        let call = Call::new(ConvOp::Forward, h, [a, b, c, conv]);
        takeover::run(&Call { scalars, operands, workspace, epilogue, ..call })
    }
}

export! {
    /// Destroys a descriptor of an operation graph, of what it consists of, or of what runs it.
    cudnnBackendDestroyDescriptor(descriptor) as real {
        // Before its address can be that of another one.
        graph::destroyed(descriptor);
        real()
    }
}

export! {
    /// Sets an attribute of a descriptor.
    cudnnBackendSetAttribute(descriptor, name: c_int, element: c_int, count: i64, values) as real {
        let status = real();
        if status == SUCCESS && !values.is_null() {
            graph::set(descriptor, name, element, count, values);
        }
        status
    }
}

export! {
    /// Checks what is set, and makes it final.
    cudnnBackendFinalize(descriptor) as real {
        let status = real();
        if status == SUCCESS {
            _ = graph::finalised(descriptor);
        }
        status
    }
}

export! {
    /// Reads an attribute of a descriptor.
    cudnnBackendGetAttribute(descriptor, name: c_int, element: c_int, most: i64, count: *mut i64, values) as real {
        let status = real();
        let filled = if count.is_null() { most } else { most.min(*count) };
        match name {
            _ if status != SUCCESS || values.is_null() || filled < 1 => {}
            graph::PLAN_WORKSPACE => {
                let ours = graph::replaced(descriptor);
                ours.into_iter().for_each(|ours| values.cast::<i64>().write(ours.workspace as i64));
            }
            graph::CONFIG_WORKSPACE => graph::set(descriptor, name, element, 1, values),
            graph::RESULTS => graph::suggested(descriptor, slice::from_raw_parts(values.cast(), filled as usize)),
            _ => {}
        }
        status
    }
}

export! {
    /// Runs a plan.
    cudnnBackendExecute(h, plan, pack) as real {
        graph::execute(h, plan, pack).unwrap_or_else(real)
    }
}
