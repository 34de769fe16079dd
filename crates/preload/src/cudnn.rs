//! The real cuDNN, found in the process that has loaded it.

use crate::warning::warn;
use planner::ConvOp;
use std::{
    ffi::{CString, c_int, c_void},
    mem::{size_of, transmute_copy},
    sync::OnceLock,
};

/// One of cuDNN's handles or descriptors, a stream, or an address in a GPU's memory.
pub(crate) type Raw = *mut c_void;

/// What cuDNN's functions return, of which newer libraries may have values that we do not know.
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

/// The type of a function of cuDNN with these parameters.
macro_rules! function {
    ($($parameter:ty),*) => { unsafe extern "C" fn($($parameter),*) -> Status };
}

type Numbers = *mut c_int;
type Create = function!(*mut Raw);
type Destroy = function!(Raw);
type GetNumber = function!(Raw, Numbers);
type SetNumber = function!(Raw, c_int);
type GetTensor = function!(Raw, c_int, Numbers, Numbers, Numbers, Numbers);
type SetTensor = function!(Raw, c_int, c_int, *const c_int, *const c_int);
type GetConvolution = function!(Raw, c_int, Numbers, Numbers, Numbers, Numbers, Numbers, Numbers);
type SetConvolution = function!(Raw, c_int, *const c_int, *const c_int, *const c_int, c_int, c_int);
type Find = function!(Raw, Raw, Raw, Raw, Raw, c_int, Numbers, *mut AlgorithmPerformance);
type FindEx =
    function!(Raw, Raw, Raw, Raw, Raw, Raw, Raw, Raw, c_int, Numbers, *mut AlgorithmPerformance, Raw, usize);
type WorkspaceSize = function!(Raw, Raw, Raw, Raw, Raw, c_int, *mut usize);
type Convolve = function!(Raw, Raw, Raw, Raw, Raw, Raw, Raw, c_int, Raw, usize, Raw, Raw, Raw);
type ConvolveBiasActivation =
    function!(Raw, Raw, Raw, Raw, Raw, Raw, Raw, c_int, Raw, usize, Raw, Raw, Raw, Raw, Raw, Raw, Raw, Raw);

/// A table of functions: those that each operation has one of, and the others.
macro_rules! functions {
    (
        each { $($each:ident: $each_type:ty = $before:literal + $after:literal;)* }
        one { $($one:ident: $one_type:ty = $symbol:literal;)* }
    ) => {
        /// cuDNN's functions. Of those in arrays each operation has one, in the order of [`ConvOp::ALL`]; their signatures
        /// are alike, only what the operands are differs.
        #[derive(Clone, Copy)]
        pub(crate) struct Cudnn {
            $(pub(crate) $each: [$each_type; 3],)*
            $(pub(crate) $one: $one_type,)*
        }

        impl Cudnn {
            /// The functions of `library`, if it has all of them.
            fn load(library: Raw) -> Option<Self> {
                // SAFETY: these are the types of cuDNN's functions of these names, since version 8.
                unsafe {
                    Some(Self {
                        $($each: {
                            let of = |op: ConvOp| symbol(library, &format!("{}{op}{}", $before, $after));
                            let [forward, data, filter] = ConvOp::ALL.map(of);
                            [forward?, data?, filter?]
                        },)*
                        $($one: symbol(library, $symbol)?,)*
                    })
                }
            }
        }
    };
}

functions! {
    each {
        find: Find = "cudnnFindConvolution" + "Algorithm";
        find_ex: FindEx = "cudnnFindConvolution" + "AlgorithmEx";
        get: Find = "cudnnGetConvolution" + "Algorithm_v7";
        workspace_size: WorkspaceSize = "cudnnGetConvolution" + "WorkspaceSize";
        convolve: Convolve = "cudnnConvolution" + "";
    }
    one {
        convolve_bias_activation: ConvolveBiasActivation = "cudnnConvolutionBiasActivationForward";
        version: unsafe extern "C" fn() -> usize = "cudnnGetVersion";
        stream: function!(Raw, *mut Raw) = "cudnnGetStream";
        create_tensor: Create = "cudnnCreateTensorDescriptor";
        destroy_tensor: Destroy = "cudnnDestroyTensorDescriptor";
        get_tensor: GetTensor = "cudnnGetTensorNdDescriptor";
        set_tensor: SetTensor = "cudnnSetTensorNdDescriptor";
        get_filter: GetTensor = "cudnnGetFilterNdDescriptor";
        create_convolution: Create = "cudnnCreateConvolutionDescriptor";
        destroy_convolution: Destroy = "cudnnDestroyConvolutionDescriptor";
        get_convolution: GetConvolution = "cudnnGetConvolutionNdDescriptor";
        set_convolution: SetConvolution = "cudnnSetConvolutionNdDescriptor";
        get_groups: GetNumber = "cudnnGetConvolutionGroupCount";
        set_groups: SetNumber = "cudnnSetConvolutionGroupCount";
        get_math: GetNumber = "cudnnGetConvolutionMathType";
        set_math: SetNumber = "cudnnSetConvolutionMathType";
    }
}

impl Cudnn {
    /// The library, once it is there. Frameworks load it for themselves alone (`RTLD_LOCAL`), where `RTLD_NEXT` does not
    /// look, so first it is asked for by name; nothing is loaded that was not.
    pub(crate) fn get() -> Option<&'static Self> {
        static FOUND: OnceLock<Cudnn> = OnceLock::new();
        let find = || {
            let loaded = ["libcudnn.so.9", "libcudnn.so.8"].into_iter().map(loaded);
            let found =
                loaded.chain([libc::RTLD_NEXT]).filter(|library| !library.is_null()).find_map(Self::load);
            if found.is_none() {
                warn("no cuDNN is loaded in this process: its convolutions cannot run");
            }
            found.map(|found| FOUND.get_or_init(|| found))
        };
        FOUND.get().or_else(find)
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

/// The library of this name, if it is loaded.
pub(crate) fn loaded(name: &str) -> Raw {
    let name = CString::new(name).expect("a name without zeros");
    // SAFETY: the name ends in a zero.
    unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) }
}

/// A function of `library`.
///
/// # Safety
/// `T` is a pointer to a function, and the type of the one of this name.
pub(crate) unsafe fn symbol<T: Copy>(library: Raw, name: &str) -> Option<T> {
    const { assert!(size_of::<T>() == size_of::<Raw>()) };
    let name = CString::new(name).expect("a name without zeros");
    // SAFETY: the library is loaded and the name ends in a zero; a function's address is of the size of `T`, which the caller
    // says is its type.
    unsafe {
        let address = libc::dlsym(library, name.as_ptr());
        (!address.is_null()).then(|| transmute_copy(&address))
    }
}
