//! The one file that calls cuBLAS: products of matrices in single precision, or of BF16 added up in it.

use cudarc::cublas::result::{self, CublasError};
use cudarc::cublas::sys;
use std::ffi::{c_int, c_longlong, c_void};
use tensor::cuda::{Cuda, CudaError, Library, Stream};
use tensor::{Accumulate, ElementType, Format, Out, View, ViewMut};

/// For `map_err`: says which function failed. cuBLAS has had the same statuses since CUDA 11.4 at least, one enum of
/// cudarc's for all versions, so that none is outside of it, as a newer cuDNN's may be.
fn failed(function: &'static str) -> impl FnOnce(CublasError) -> CudaError {
    move |CublasError(status)| CudaError::new(function, format!("{status:?}"))
}

/// cuBLAS on one GPU, working in that GPU's stream.
pub(crate) struct Cublas {
    handle: sys::cublasHandle_t,
    stream: Stream,
}

// SAFETY: cuBLAS lets any thread use a handle, one at a time; there is one `Cublas` per handle, and it is not `Sync`.
unsafe impl Send for Cublas {}

/// A factor: `rows x columns` elements as the product sees it, stored in row-major order; and whether the transpose is
/// what is stored.
pub(crate) type Factor<'a> = (View<'a>, bool);

/// Launches `c (+)= a b`, where `a` is `m x k`, `b` is `k x n` and `c` is `m x n`, all in row-major order, and does not
/// wait for it. `c` may be several such matrices, one behind the other: a factor that is only one is a factor of all.
/// With `tf32`, single precision may be rounded to TF32. A failure is kept for [`Cuda::check`].
pub(crate) fn product(cuda: &Cuda, tf32: bool, [m, n, k]: [usize; 3], [a, b]: [Factor<'_>; 2], c: Out<'_>) {
    if c.to.is_empty() {
        return;
    }
    let lens = [a.0.len(), b.0.len(), c.to.len()];
    let count = lens[2] / (m * n);
    let fits = |len, one| [one, count * one].contains(&len);
    let all_fit = fits(lens[0], m * k) && fits(lens[1], k * n) && lens[2] == count * m * n;
    assert!(all_fit, "lengths {lens:?} in products of {m}, {n}, {k}");
    // The scratch stays ours until all of the product is launched: cuBLAS may need several kernels for it.
    let asked = cuda.with_library(|cublas: &mut Cublas| {
        cuda.scratch(|scratch| {
            cublas.prepare(tf32 && a.0.format().dtype == ElementType::F32, scratch)?;
            cublas.product([m, n, k], count, [a, b], c)
        })
    });
    cuda.note(asked);
}

impl Cublas {
    /// Sets what belongs to the device: the arithmetic, and its scratch as the workspace. With one stream and one
    /// workspace cuBLAS gives the same result every time.
    fn prepare(&mut self, tf32: bool, scratch: ViewMut<'_>) -> Result<(), CudaError> {
        let math = match tf32 {
            true => sys::cublasMath_t::CUBLAS_TF32_TENSOR_OP_MATH,
            false => sys::cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION,
        };
        // SAFETY: the handle is alive.
        unsafe { sys::cublasSetMathMode(self.handle, math) }.result().map_err(failed("cublasSetMathMode"))?;
        let (address, bytes) = (scratch.address::<u8>() as *mut c_void, scratch.len());
        // SAFETY: the handle is alive. `product` follows while the scratch is still lent, and is the only one to use
        // it; its work goes to the stream through which all else on this memory goes.
        let set = unsafe { sys::cublasSetWorkspace_v2(self.handle, address, bytes) };
        set.result().map_err(failed("cublasSetWorkspace_v2"))
    }

    fn product(
        &mut self,
        [m, n, k]: [usize; 3],
        count: usize,
        [(a, a_transposed), (b, b_transposed)]: [Factor<'_>; 2],
        Out { to: c, accumulate }: Out<'_>,
    ) -> Result<(), CudaError> {
        let (one, beta) = (1.0f32, if accumulate == Accumulate::Add { 1.0f32 } else { 0.0 });
        let [one, beta]: [*const c_void; 2] = [(&raw const one).cast(), (&raw const beta).cast()];
        // What is stored row by row, cuBLAS reads as the transpose column by column: it computes c^T = b^T a^T.
        let [of_a, of_b] = [a_transposed, b_transposed].map(|transposed| match transposed {
            true => sys::cublasOperation_t::CUBLAS_OP_T,
            false => sys::cublasOperation_t::CUBLAS_OP_N,
        });
        let (row_of_a, row_of_b) = (if a_transposed { m } else { k }, if b_transposed { k } else { n });
        // From one matrix to the next.
        let step = |len, one| if len == one { 0 } else { one as c_longlong };
        let steps = [step(a.len(), m * k), step(b.len(), k * n), (m * n) as c_longlong];
        let extent = |value: usize| {
            let too_large =
                |_| CudaError::new("a matrix product", format!("cuBLAS takes no extent of {value}"));
            c_int::try_from(value).map_err(too_large)
        };
        let [m, n, k] = [extent(m)?, extent(n)?, extent(k)?];
        let [row_of_a, row_of_b, count] = [extent(row_of_a)?, extent(row_of_b)?, extent(count)?];
        let [type_a, type_b, type_c] = [a.format(), b.format(), c.format()].map(data_type);
        let (from_a, from_b) = (a.numbers() as *const c_void, b.numbers() as *const c_void);
        let to = c.numbers() as *mut c_void;
        #[rustfmt::skip] // a matrix a line
        // SAFETY: the handle is alive; the scalars are read before the call returns. The matrices are device memory of
        // the lengths that the extents and steps say (the caller's assertion) and of the types that the views are
        // tagged with, `c` exclusively ours. The work goes to the stream through which all else on this memory goes.
        let launched = unsafe {
            result::gemm_strided_batched_ex(
                self.handle, of_b, of_a, n, m, k, one,
                from_b, type_b, row_of_b, steps[1],
                from_a, type_a, row_of_a, steps[0], beta,
                to, type_c, n, steps[2], count,
                sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        };
        launched.map_err(failed("cublasGemmStridedBatchedEx"))
    }
}

impl Library for Cublas {
    fn new(stream: &Stream) -> Result<Self, CudaError> {
        let handle = result::create_handle().map_err(failed("cublasCreate_v2"))?;
        let cublas = Self { handle, stream: stream.clone() };
        // SAFETY: the handle was just made; the stream lives as long as `cublas.stream`, and the handle is destroyed
        // before.
        unsafe { result::set_stream(handle, stream.raw().cast()) }.map_err(failed("cublasSetStream_v2"))?;
        Ok(cublas)
    }
}

impl Drop for Cublas {
    fn drop(&mut self) {
        if self.stream.bind().is_ok() {
            // SAFETY: the handle is ours, and is not used again. Should this fail, there is nothing left to be done.
            let _ = unsafe { result::destroy_handle(self.handle) };
        }
    }
}

fn data_type(format: Format) -> sys::cudaDataType_t {
    match format.dtype {
        ElementType::F32 => sys::cudaDataType_t::CUDA_R_32F,
        ElementType::Bf16 => sys::cudaDataType_t::CUDA_R_16BF,
        ElementType::U8 => panic!("no product is of bytes"),
    }
}
