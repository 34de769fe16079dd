//! What a convolution is, as its descriptors say.

use crate::{
    call::Call,
    cudnn::{Raw, SUCCESS, call},
};
use planner::ConvOp;
use std::{array::from_fn, ffi::c_int, fmt, ptr::null_mut};

/// Bytes and names of the element types (`cudnnDataType_t`) that micro-batches are made of; others are passed through.
const DTYPES: [(c_int, usize, &str); 4] = [(0, 4, "FP32"), (1, 8, "FP64"), (2, 2, "FP16"), (9, 2, "BF16")];

/// Micro-batches begin at multiples of as many bytes as the widest loads of cuDNN's CUDA kernels have.
const ALIGNMENT: usize = 16;

/// Most axes of a tensor (`CUDNN_DIM_MAX`).
const AXES: usize = 8;
type Numbers = [c_int; AXES];

/// An operand: how it lies in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Operand {
    dtype: c_int,
    rank: c_int,
    dims: Numbers,
    /// Of a filter none but the order of its axes, as cuDNN counts it.
    strides: Numbers,
    is_filter: bool,
}

impl Operand {
    /// What a descriptor of the caller says, if that can be counted with.
    fn read(descriptor: Raw, is_filter: bool) -> Option<Self> {
        let mut read = Self { is_filter, ..Self::default() };
        let (dtype, rank, most): (*mut c_int, *mut c_int, _) =
            (&mut read.dtype, &mut read.rank, AXES as c_int);
        let (dims, strides) = (read.dims.as_mut_ptr(), read.strides.as_mut_ptr());
        // SAFETY: the descriptor is set; the arrays have as many elements as are asked for.
        let status = unsafe {
            match is_filter {
                true => {
                    call!(cudnn, "cudnnGetFilterNdDescriptor", (descriptor, most, dtype, strides, rank, dims))
                }
                false => {
                    call!(cudnn, "cudnnGetTensorNdDescriptor", (descriptor, most, dtype, rank, dims, strides))
                }
            }
        };
        let is_regular = || {
            matches!(read.rank, 4 | 5)
                && read.dims().iter().all(|&extent| extent > 0)
                && read.strides.iter().all(|&stride| stride >= 0)
                && (is_filter || read.strides[0] > 0)
                && DTYPES.iter().any(|known| known.0 == read.dtype)
        };
        (status == SUCCESS && is_regular()).then_some(read)
    }

    fn dims(&self) -> &[c_int] {
        &self.dims[..self.rank as usize]
    }

    fn dtype(&self) -> (usize, &'static str) {
        let known = DTYPES.iter().find(|known| known.0 == self.dtype);
        known.map_or((0, ""), |&(_, bytes, name)| (bytes, name))
    }

    /// Bytes from one sample to the next; none in a filter, which all samples share.
    fn sample_bytes(&self) -> usize {
        if self.is_filter { 0 } else { self.strides[0] as usize * self.dtype().0 }
    }

    /// Bytes from the first element to the end of the last.
    fn bytes(&self) -> usize {
        let extents = self.dims().iter().map(|&extent| extent as usize);
        let elements = match self.is_filter {
            true => extents.product(),
            false => {
                1 + extents.zip(self.strides).map(|(n, stride)| (n - 1) * stride as usize).sum::<usize>()
            }
        };
        elements * self.dtype().0
    }
}

/// All that a convolution's speed, workspace and slices depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Signature {
    device: c_int,
    pub(crate) op: ConvOp,
    /// In the order in which cuDNN's function of the operation takes them.
    operands: [Operand; 3],
    /// Padding, strides and dilations.
    geometry: [Numbers; 3],
    groups: c_int,
    /// The arithmetic that the caller allows (`cudnnMathType_t`).
    pub(crate) math: c_int,
    /// Convolution or cross-correlation, and the type of sums.
    modes: [c_int; 2],
}

impl Signature {
    /// What the caller's descriptors say; nothing if it is not a convolution of 2 or 3 axes, of at least two samples in a
    /// type that we know.
    pub(crate) fn read(device: c_int, call: &Call) -> Option<Self> {
        let filter = match call.op {
            ConvOp::Forward => 1,
            ConvOp::BackwardData => 0,
            ConvOp::BackwardFilter => 2,
        };
        let read = |place| Operand::read(call.descriptors[place], place == filter);
        let operands = [read(0)?, read(1)?, read(2)?];
        let [x, y, w] = [(filter + 1) % 3, (filter + 2) % 3, filter].map(|place| &operands[place]);
        let can_be_divided = x.dims[0] > 1 && x.dims[0] == y.dims[0] && x.rank == y.rank && x.rank == w.rank;
        let (mut geometry, mut modes, mut groups, mut math) = ([Numbers::default(); 3], [0; 2], 0, 0);
        let ([pad, stride, dilation], [mode, sums]) =
            (geometry.each_mut().map(|at| at.as_mut_ptr()), modes.each_mut());
        let (conv, axes, mut found) = (call.convolution, x.rank - 2, 0);
        // SAFETY: the descriptor is set; the arrays have at least as many elements as are asked for.
        let is_read = can_be_divided
            && unsafe {
                call!(
                    cudnn,
                    "cudnnGetConvolutionNdDescriptor",
                    (conv, axes, &mut found, pad, stride, dilation, mode, sums)
                ) == SUCCESS
                    && call!(cudnn, "cudnnGetConvolutionGroupCount", (conv, &mut groups)) == SUCCESS
                    && call!(cudnn, "cudnnGetConvolutionMathType", (conv, &mut math)) == SUCCESS
            };
        (is_read && found == axes).then_some(Self {
            device,
            op: call.op,
            operands,
            geometry,
            groups,
            math,
            modes,
        })
    }

    pub(crate) fn mini_batch(&self) -> u32 {
        let tensor = self.operands.iter().find(|operand| !operand.is_filter);
        tensor.map_or(0, |tensor| tensor.dims[0] as u32)
    }

    /// Whether parts of the result are added up in a type too short for sums: the gradient of a 16-bit filter.
    pub(crate) fn adds_in_16_bits(&self) -> bool {
        self.op == ConvOp::BackwardFilter && self.operands[2].dtype().0 == 2
    }

    /// Whether this descriptor is that of a tensor as the result is.
    pub(crate) fn is_result(&self, descriptor: Raw) -> bool {
        Operand::read(descriptor, false) == Some(self.operands[2])
    }

    /// Whether slices of so many samples begin where cuDNN's CUDA kernels can load them.
    pub(crate) fn is_aligned(&self, samples: u32) -> bool {
        self.offsets(samples).iter().all(|offset| offset % ALIGNMENT == 0)
    }

    /// Where a slice that begins at this sample begins in each operand, in bytes.
    pub(crate) fn offsets(&self, sample: u32) -> [usize; 3] {
        self.operands.map(|operand| sample as usize * operand.sample_bytes())
    }

    /// Bytes of each operand.
    pub(crate) fn bytes(&self) -> [usize; 3] {
        self.operands.map(|operand| operand.bytes())
    }

    /// One and zero, as alpha and beta of this convolution: double for double precision, float for all others.
    pub(crate) fn scalars(&self) -> [Raw; 2] {
        static FLOAT: [f32; 2] = [1.0, 0.0];
        static DOUBLE: [f64; 2] = [1.0, 0.0];
        match self.operands[0].dtype().0 {
            8 => from_fn(|place| (&raw const DOUBLE[place]).cast_mut().cast()),
            _ => from_fn(|place| (&raw const FLOAT[place]).cast_mut().cast()),
        }
    }

    /// Descriptors of `samples` samples, in the caller's strides.
    pub(crate) fn tensors(&self, samples: u32) -> Option<Tensors> {
        let mut tensors = Tensors([null_mut(); 3]);
        for (operand, raw) in
            self.operands.iter().zip(&mut tensors.0).filter(|(operand, _)| !operand.is_filter)
        {
            let Operand { dtype, rank, mut dims, strides, .. } = *operand;
            dims[0] = samples as c_int;
            let (dims, strides) = (dims.as_ptr(), strides.as_ptr());
            // SAFETY: the address of a descriptor is written to, which then is set; the arrays have `rank` elements.
            let is_set = unsafe {
                call!(cudnn, "cudnnCreateTensorDescriptor", (&raw mut *raw)) == SUCCESS
                    && call!(cudnn, "cudnnSetTensorNdDescriptor", (*raw, dtype, rank, dims, strides))
                        == SUCCESS
            };
            is_set.then_some(())?;
        }
        Some(tensors)
    }
}

impl fmt::Display for Signature {
    /// As in `cuda:0 Forward 256x64x27x27, 192x64x5x5 -> 256x192x27x27 FP32, pad 2x2`: the operands in cuDNN's order.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |values: &[c_int]| values.iter().map(c_int::to_string).collect::<Vec<_>>().join("x");
        let [a, b, c] = self.operands.each_ref().map(|operand| list(operand.dims()));
        let [pad, stride, dilation] = &self.geometry;
        let axes = self.operands[0].rank as usize - 2;
        write!(f, "cuda:{} {} {a}, {b} -> {c} {}", self.device, self.op, self.operands[0].dtype().1)?;
        for (name, values, neutral) in [("pad", pad, 0), ("stride", stride, 1), ("dilation", dilation, 1)] {
            let values = &values[..axes];
            if values.iter().any(|&value| value != neutral) {
                write!(f, ", {name} {}", list(values))?;
            }
        }
        if self.groups > 1 { write!(f, ", {} groups", self.groups) } else { Ok(()) }
    }
}

/// Descriptors of a micro-batch's tensors, which die with the value; null for the filter.
pub(crate) struct Tensors([Raw; 3]);

// SAFETY: descriptors are set once, in `Signature::tensors`, and only read from then on; they belong to no thread.
unsafe impl Send for Tensors {}
// SAFETY: as above.
unsafe impl Sync for Tensors {}

impl Tensors {
    /// These, and for the filter the caller's, for calls of cuDNN during the life of both.
    pub(crate) fn or(&self, descriptors: [Raw; 3]) -> [Raw; 3] {
        from_fn(|place| if self.0[place].is_null() { descriptors[place] } else { self.0[place] })
    }
}

impl Drop for Tensors {
    fn drop(&mut self) {
        for raw in self.0.into_iter().filter(|raw| !raw.is_null()) {
            // SAFETY: created in `Signature::tensors` and not used again.
            unsafe { call!(cudnn, "cudnnDestroyTensorDescriptor", (raw)) };
        }
    }
}
