//! Micro-batching under other frameworks.
//!
//! Preloaded (`LD_PRELOAD=libmicrobatch_cudnn.so`), this library stands before the convolutions of cuDNN's legacy API.
//! Find and Get answer with one *virtual algorithm* before cuDNN's own, wherever dividing the mini-batch is faster than what
//! cuDNN would do in the same workspace; its workspace is what the plan needs. When the caller runs it, the plan's
//! micro-batches are launched on the caller's handle and operands. Whatever else is asked of cuDNN, and every algorithm of
//! its own, is passed through untouched.
//!
//! ```text
//! lib (exported functions) ──► takeover ──► bench ──► plan ──► signature ──► call ──► cudnn
//! ```
//!
//! Which functions, which variables and what is left alone: `docs/preload.md`.

mod bench;
mod call;
mod cudnn;
mod driver;
mod plan;
mod report;
mod settings;
mod signature;
mod takeover;
mod warning;

use bench::Given;
use call::{Arguments, Call};
use cudnn::{NOT_SUPPORTED, Raw, SUCCESS, call};
use planner::ConvOp;
use std::ffi::c_int;
use takeover::VIRTUAL;

/// The type of a parameter: an address, a handle or a descriptor where nothing else is said.
macro_rules! kind {
    () => {
        Raw
    };
    ($kind:ty) => {
        $kind
    };
}

/// A function with the name and the parameters of one of cuDNN's, which `real` calls.
macro_rules! export {
    ($(#[$about:meta])* $name:ident($($parameter:ident $(: $kind:ty)?),*) as $real:ident $body:block) => {
        $(#[$about])*
        ///
        /// # Safety
        /// As cuDNN's function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($parameter: kind!($($kind)?)),*) -> c_int {
            // SAFETY: our caller's promises are those that cuDNN asks for, and all that is asked for here.
            unsafe {
                let $real = || call!(cudnn, stringify!($name), ($($parameter),*));
                $body
            }
        }
    };
}

/// The five functions of each operation. `a` and `b` are its operands and `c` its result, `pa`, `pb` and `pc` where they lie.
macro_rules! operations {
    ($($op:ident: $find:ident, $find_ex:ident, $get:ident, $workspace_size:ident, $convolve:ident;)*) => {$(
        export! {
            /// Answers with the algorithms that run, fastest first, measured on memory of the library's own.
            $find(h, a, b, conv, c, most: c_int, found: *mut c_int, list) as real {
                takeover::answer(&Call::new(ConvOp::$op, h, [a, b, c], conv), (most, found, list.cast()), None, real)
            }
        }

        export! {
            /// The same, measured on memory of the caller, which also says how much workspace there is.
            $find_ex(
                h, a, pa, b, pb, conv, c, pc, most: c_int, found: *mut c_int, list, ws, len: usize
            ) as real {
                let given = Some(Given { operands: [pa, pb, pc], workspace: (ws, len) });
                takeover::answer(&Call::new(ConvOp::$op, h, [a, b, c], conv), (most, found, list.cast()), given, real)
            }
        }

        export! {
            /// Answers with the algorithms that run, most promising first, by cuDNN's heuristics.
            $get(h, a, b, conv, c, most: c_int, found: *mut c_int, list) as real {
                takeover::answer(&Call::new(ConvOp::$op, h, [a, b, c], conv), (most, found, list.cast()), None, real)
            }
        }

        export! {
            /// Bytes of workspace that an algorithm needs.
            $workspace_size(h, a, b, conv, c, algorithm: c_int, bytes: *mut usize) as real {
                if algorithm != VIRTUAL || bytes.is_null() {
                    return real();
                }
                let needed = takeover::workspace_bytes(&Call::new(ConvOp::$op, h, [a, b, c], conv));
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
                let arguments = Arguments { scalars, operands, workspace, epilogue: None };
                takeover::run(&Call::new(ConvOp::$op, h, [a, b, c], conv), arguments)
            }
        }
    )*};
}

operations! {
    Forward:
        cudnnFindConvolutionForwardAlgorithm,
        cudnnFindConvolutionForwardAlgorithmEx,
        cudnnGetConvolutionForwardAlgorithm_v7,
        cudnnGetConvolutionForwardWorkspaceSize,
        cudnnConvolutionForward;
    BackwardData:
        cudnnFindConvolutionBackwardDataAlgorithm,
        cudnnFindConvolutionBackwardDataAlgorithmEx,
        cudnnGetConvolutionBackwardDataAlgorithm_v7,
        cudnnGetConvolutionBackwardDataWorkspaceSize,
        cudnnConvolutionBackwardData;
    BackwardFilter:
        cudnnFindConvolutionBackwardFilterAlgorithm,
        cudnnFindConvolutionBackwardFilterAlgorithmEx,
        cudnnGetConvolutionBackwardFilterAlgorithm_v7,
        cudnnGetConvolutionBackwardFilterWorkspaceSize,
        cudnnConvolutionBackwardFilter;
}

export! {
    /// Launches a forward convolution with what follows it. Whoever asks for the virtual algorithm here has it from Find or
    /// Get, which do not say what for.
    cudnnConvolutionBiasActivationForward(
        h, alpha, a, pa, b, pb, conv, algorithm: c_int, ws, len: usize, beta, z, pz, bias, pbias, activation, c, pc
    ) as real {
        if algorithm != VIRTUAL {
            return real();
        }
        let (scalars, operands, workspace) = ([alpha, beta], [pa, pb, pc], (ws, len));
        let arguments = Arguments { scalars, operands, workspace, epilogue: Some([z, pz, bias, pbias, activation]) };
        takeover::run(&Call::new(ConvOp::Forward, h, [a, b, c], conv), arguments)
    }
}
