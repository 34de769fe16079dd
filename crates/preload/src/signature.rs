//! What a convolution is, as its descriptors say.

use crate::{
    cudnn::{AXES, Cudnn, SUCCESS},
    library::Raw,
};
use planner::ConvOp;
use std::{array::from_fn, ffi::c_int, fmt, ptr::null_mut};

/// Bytes and names of the element types (`cudnnDataType_t`) that micro-batches are made of; others are passed through.
const DTYPES: [(c_int, usize, &str); 4] = [(0, 4, "FP32"), (1, 8, "FP64"), (2, 2, "FP16"), (9, 2, "BF16")];

/// Micro-batches begin at multiples of as many bytes as the widest loads of cuDNN's CUDA kernels have.
const ALIGNMENT: usize = 16;

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
    fn read(cudnn: &Cudnn, descriptor: Raw, is_filter: bool) -> Option<Self> {
        let mut read = Self { is_filter, ..Self::default() };
        let Self { dtype, rank, dims, strides, .. } = &mut read;
        let (dims, strides) = (dims.as_mut_ptr(), strides.as_mut_ptr());
        // SAFETY: the descriptor is set; the arrays have as many elements as are asked for.
        let status = unsafe {
            match is_filter {
                true => (cudnn.get_filter)(descriptor, AXES as c_int, dtype, strides, rank, dims),
                false => (cudnn.get_tensor)(descriptor, AXES as c_int, dtype, rank, dims, strides),
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

/// What a convolution descriptor says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Geometry {
    axes: c_int,
    pad: Numbers,
    stride: Numbers,
    dilation: Numbers,
    mode: c_int,
    compute: c_int,
    groups: c_int,
    math: c_int,
}

impl Geometry {
    fn read(cudnn: &Cudnn, descriptor: Raw, axes: c_int) -> Option<Self> {
        let mut read = Self::default();
        let Self { axes: found, pad, stride, dilation, mode, compute, groups, math } = &mut read;
        let [pad, stride, dilation] = [pad, stride, dilation].map(|array| array.as_mut_ptr());
        // SAFETY: the descriptor is set; the arrays have at least as many elements as are asked for.
        let done = unsafe {
            (cudnn.get_convolution)(descriptor, axes, found, pad, stride, dilation, mode, compute) == SUCCESS
                && (cudnn.get_groups)(descriptor, groups) == SUCCESS
                && (cudnn.get_math)(descriptor, math) == SUCCESS
        };
        (done && read.axes == axes).then_some(read)
    }
}

/// All that a convolution's speed, workspace and slices depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Signature {
    device: c_int,
    pub(crate) op: ConvOp,
    /// In the order in which cuDNN's function of the operation takes them.
    operands: [Operand; 3],
    geometry: Geometry,
}

impl Signature {
    /// What the caller's descriptors say; nothing if it is not a convolution of 2 or 3 axes, of at least two samples in a
    /// type that we know.
    pub(crate) fn read(
        cudnn: &Cudnn,
        device: c_int,
        op: ConvOp,
        descriptors: [Raw; 3],
        convolution: Raw,
    ) -> Option<Self> {
        let filter = match op {
            ConvOp::Forward => 1,
            ConvOp::BackwardData => 0,
            ConvOp::BackwardFilter => 2,
        };
        let read = |place| Operand::read(cudnn, descriptors[place], place == filter);
        let operands = [read(0)?, read(1)?, read(2)?];
        let [x, y, w] = [(filter + 1) % 3, (filter + 2) % 3, filter].map(|place| &operands[place]);
        let can_be_divided = x.dims[0] > 1 && x.dims[0] == y.dims[0] && x.rank == y.rank && x.rank == w.rank;
        let geometry = can_be_divided.then(|| Geometry::read(cudnn, convolution, x.rank - 2))??;
        Some(Self { device, op, operands, geometry })
    }

    pub(crate) fn mini_batch(&self) -> u32 {
        let tensor = self.operands.iter().find(|operand| !operand.is_filter);
        tensor.map_or(0, |tensor| tensor.dims[0] as u32)
    }

    /// The arithmetic that the caller allows (`cudnnMathType_t`).
    pub(crate) fn math(&self) -> c_int {
        self.geometry.math
    }

    /// Whether parts of the result are added up in a type too short for sums: the gradient of a 16-bit filter.
    pub(crate) fn adds_in_16_bits(&self) -> bool {
        self.op == ConvOp::BackwardFilter && self.operands[2].dtype().0 == 2
    }

    /// Whether this descriptor is that of a tensor as the result is.
    pub(crate) fn is_result(&self, cudnn: &Cudnn, descriptor: Raw) -> bool {
        Operand::read(cudnn, descriptor, false) == Some(self.operands[2])
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
    pub(crate) fn tensors(&self, cudnn: &'static Cudnn, samples: u32) -> Option<Tensors> {
        let mut tensors = Tensors { cudnn: Some(cudnn), raw: [null_mut(); 3] };
        for (Operand { dtype, rank, mut dims, strides, is_filter }, raw) in
            self.operands.into_iter().zip(&mut tensors.raw)
        {
            dims[0] = samples as c_int;
            // SAFETY: the address of a descriptor is written to, which then is set; the arrays have `rank` elements.
            let is_set = is_filter
                || unsafe {
                    (cudnn.create_tensor)(raw) == SUCCESS
                        && (cudnn.set_tensor)(*raw, dtype, rank, dims.as_ptr(), strides.as_ptr()) == SUCCESS
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
        let Geometry { axes, pad, stride, dilation, groups, .. } = &self.geometry;
        write!(f, "cuda:{} {} {a}, {b} -> {c} {}", self.device, self.op, self.operands[0].dtype().1)?;
        for (name, values, neutral) in [("pad", pad, 0), ("stride", stride, 1), ("dilation", dilation, 1)] {
            let values = &values[..*axes as usize];
            if values.iter().any(|&value| value != neutral) {
                write!(f, ", {name} {}", list(values))?;
            }
        }
        if *groups > 1 { write!(f, ", {groups} groups") } else { Ok(()) }
    }
}

/// Descriptors of a micro-batch's tensors, which die with the value; none for the filter.
pub(crate) struct Tensors {
    cudnn: Option<&'static Cudnn>,
    raw: [Raw; 3],
}

// SAFETY: descriptors are set once, in `Signature::tensors`, and only read from then on; they belong to no thread.
unsafe impl Send for Tensors {}
// SAFETY: as above.
unsafe impl Sync for Tensors {}

impl Tensors {
    /// Those of no micro-batch.
    pub(crate) const NONE: Self = Self { cudnn: None, raw: [null_mut(); 3] };

    /// Those of the micro-batch, or the caller's where there are none, for calls of cuDNN during the life of both.
    pub(crate) fn or(&self, descriptors: [Raw; 3]) -> [Raw; 3] {
        from_fn(|place| if self.raw[place].is_null() { descriptors[place] } else { self.raw[place] })
    }
}

impl Drop for Tensors {
    fn drop(&mut self) {
        for raw in self.raw.into_iter().filter(|raw| !raw.is_null()) {
            // SAFETY: created in `Signature::tensors` and not used again.
            self.cudnn.map(|cudnn| unsafe { (cudnn.destroy_tensor)(raw) });
        }
    }
}
