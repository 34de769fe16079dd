//! The real cuDNN, found in the process that has loaded it.

use crate::{
    library::{Raw, function, functions, loaded, symbol},
    warning::warn,
};
use std::{ffi::c_int, sync::OnceLock};

/// What cuDNN's functions return.
pub(crate) type Status = c_int;

pub(crate) const SUCCESS: Status = 0;
pub(crate) const NOT_INITIALIZED: Status = 1001;
pub(crate) const NOT_SUPPORTED: Status = 3000;

/// cuDNN 9.0: the oldest that we divide convolutions for.
const OLDEST: usize = 90_000;

/// Most axes of a tensor (`CUDNN_DIM_MAX`).
pub(crate) const AXES: usize = 8;

/// One answer of Find or Get: `cudnnConvolutionFwdAlgoPerf_t`, and the same for the other operations.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AlgorithmPerformance {
    /// The algorithm's number in its operation's enum.
    pub algorithm: c_int,
    /// Whether it runs.
    pub status: c_int,
    /// Milliseconds, or -1 if it was not measured.
    pub time_ms: f32,
    /// Bytes of workspace.
    pub memory: usize,
    /// 1 if equal operands give bit-equal results.
    pub determinism: c_int,
    /// The arithmetic that all of this holds for (`cudnnMathType_t`).
    pub math: c_int,
    /// Unused by cuDNN.
    pub reserved: [c_int; 3],
}

type Int = *mut c_int;
type List = *mut AlgorithmPerformance;
type Find = function!(Raw, Raw, Raw, Raw, Raw, c_int, Int, List);
type FindEx = function!(Raw, Raw, Raw, Raw, Raw, Raw, Raw, Raw, c_int, Int, List, Raw, usize);
type Convolve = function!(Raw, Raw, Raw, Raw, Raw, Raw, Raw, c_int, Raw, usize, Raw, Raw, Raw);
type ConvolveBiasActivation =
    function!(Raw, Raw, Raw, Raw, Raw, Raw, Raw, c_int, Raw, usize, Raw, Raw, Raw, Raw, Raw, Raw, Raw, Raw);

functions! {
    /// cuDNN's functions. Those of the three operations have signatures alike; only what the operands are differs.
    Cudnn {
        convolve_bias_activation: ConvolveBiasActivation = "cudnnConvolutionBiasActivationForward";
        version: unsafe extern "C" fn() -> usize = "cudnnGetVersion";
        stream: function!(Raw, *mut Raw) = "cudnnGetStream";
        create_tensor: function!(*mut Raw) = "cudnnCreateTensorDescriptor";
        destroy_tensor: function!(Raw) = "cudnnDestroyTensorDescriptor";
        set_tensor: function!(Raw, c_int, c_int, *const c_int, *const c_int) = "cudnnSetTensorNdDescriptor";
        get_tensor: function!(Raw, c_int, Int, Int, Int, Int) = "cudnnGetTensorNdDescriptor";
        get_filter: function!(Raw, c_int, Int, Int, Int, Int) = "cudnnGetFilterNdDescriptor";
        get_convolution: function!(Raw, c_int, Int, Int, Int, Int, Int, Int) = "cudnnGetConvolutionNdDescriptor";
        get_groups: function!(Raw, Int) = "cudnnGetConvolutionGroupCount";
        get_math: function!(Raw, Int) = "cudnnGetConvolutionMathType";
        [find]: Find = "cudnnFindConvolution{}Algorithm";
        [find_ex]: FindEx = "cudnnFindConvolution{}AlgorithmEx";
        [get]: Find = "cudnnGetConvolution{}Algorithm_v7";
        [workspace_size]: function!(Raw, Raw, Raw, Raw, Raw, c_int, *mut usize) = "cudnnGetConvolution{}WorkspaceSize";
        [convolve]: Convolve = "cudnnConvolution{}";
    }
}

impl Cudnn {
    /// The library, once it is there. Frameworks load it for themselves alone (`RTLD_LOCAL`), where `RTLD_NEXT` does not
    /// look, so first it is asked for by name; nothing is loaded that was not.
    pub(crate) fn get() -> Option<&'static Self> {
        static FOUND: OnceLock<Cudnn> = OnceLock::new();
        FOUND.get().or_else(|| {
            let named = ["libcudnn.so.9", "libcudnn.so.8"].into_iter().map(loaded);
            let found = named.chain([libc::RTLD_NEXT]).find_map(Self::load);
            if found.is_none() {
                warn("no cuDNN is loaded in this process: its convolutions cannot run");
            }
            found.map(|found| FOUND.get_or_init(|| found))
        })
    }

    /// Whether it is new enough to be used beyond passing calls through.
    pub(crate) fn is_recent(&self) -> bool {
        // SAFETY: the function only returns a number.
        let version = unsafe { (self.version)() };
        if version < OLDEST {
            warn(&format!(
                "this cuDNN counts itself as {version}, and 9.0 is needed: all calls are passed through"
            ));
        }
        version >= OLDEST
    }
}
