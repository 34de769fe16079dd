//! What a convolution is, as its descriptors say.

use crate::cudnn::{AXES, Cudnn, Raw, SUCCESS, Status};
use planner::ConvOp;
use std::{array::from_fn, ffi::c_int, fmt, ptr::null_mut};

/// Bytes and names of the element types (`cudnnDataType_t`) that micro-batches are made of; others are passed through.
const DTYPES: [(c_int, usize, &str); 4] = [(0, 4, "FP32"), (1, 8, "FP64"), (2, 2, "FP16"), (9, 2, "BF16")];

/// Micro-batches begin at multiples of as many bytes as the widest loads of cuDNN's CUDA kernels have.
const ALIGNMENT: usize = 16;

/// An operand: how it lies in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Operand {
    dtype: c_int,
    /// The order of a filter's axes. Tensors have strides instead.
    format: Option<c_int>,
    rank: c_int,
    dims: [c_int; AXES],
    strides: [c_int; AXES],
}

impl Operand {
    fn tensor(cudnn: &Cudnn, descriptor: Raw) -> Option<Self> {
        let mut read = Self::default();
        let Self { dtype, rank, dims, strides, .. } = &mut read;
        // SAFETY: the descriptor is the caller's and set; both arrays have as many elements as are asked for.
        let status = unsafe {
            (cudnn.get_tensor)(
                descriptor,
                AXES as c_int,
                dtype,
                rank,
                dims.as_mut_ptr(),
                strides.as_mut_ptr(),
            )
        };
        (status == SUCCESS && read.strides[0] > 0).then_some(read)
    }

    fn filter(cudnn: &Cudnn, descriptor: Raw) -> Option<Self> {
        let (mut read, mut format) = (Self::default(), 0);
        let Self { dtype, rank, dims, .. } = &mut read;
        // SAFETY: as above.
        let status = unsafe {
            (cudnn.get_filter)(descriptor, AXES as c_int, dtype, &mut format, rank, dims.as_mut_ptr())
        };
        read.format = Some(format);
        (status == SUCCESS).then_some(read)
    }

    fn is_filter(&self) -> bool {
        self.format.is_some()
    }

    /// Whether its extents and strides can be counted with.
    fn is_regular(&self) -> bool {
        self.dims[..self.rank as usize].iter().all(|&extent| extent > 0)
            && self.strides.iter().all(|&stride| stride >= 0)
    }

    fn element_bytes(&self) -> Option<usize> {
        DTYPES.iter().find(|(dtype, ..)| *dtype == self.dtype).map(|&(_, bytes, _)| bytes)
    }

    /// Bytes from one sample to the next; none in a filter, which all samples share.
    fn sample_bytes(&self) -> usize {
        self.strides[0] as usize * self.element_bytes().unwrap_or(0)
    }

    /// Bytes from the first element to the end of the last.
    fn bytes(&self) -> usize {
        let axes = self.rank as usize;
        let extents = self.dims[..axes].iter().map(|&extent| extent as usize);
        let elements = match self.is_filter() {
            true => extents.product(),
            false => {
                1 + extents.zip(&self.strides).map(|(n, &stride)| (n - 1) * stride as usize).sum::<usize>()
            }
        };
        elements * self.element_bytes().unwrap_or(0)
    }
}

/// What a convolution descriptor says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Geometry {
    axes: c_int,
    pad: [c_int; AXES],
    stride: [c_int; AXES],
    dilation: [c_int; AXES],
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
        // SAFETY: the descriptor is the caller's and set; the arrays have at least as many elements as are asked for.
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
        let filter = filter_place(op);
        let read = |place| match place == filter {
            true => Operand::filter(cudnn, descriptors[place]),
            false => Operand::tensor(cudnn, descriptors[place]),
        };
        let operands = [read(0)?, read(1)?, read(2)?];
        let rank = operands[filter].rank;
        let mut tensors = operands.iter().filter(|operand| !operand.is_filter());
        let mini_batch = tensors.clone().next()?.dims[0];
        let is_known = matches!(rank, 4 | 5)
            && mini_batch > 1
            && tensors.all(|tensor| tensor.dims[0] == mini_batch)
            && operands.iter().all(|operand| operand.rank == rank && operand.is_regular())
            && operands.iter().all(|operand| operand.element_bytes().is_some());
        let geometry = is_known.then(|| Geometry::read(cudnn, convolution, rank - 2))??;
        Some(Self { device, op, operands, geometry })
    }

    pub(crate) fn mini_batch(&self) -> u32 {
        let tensor = self.operands.iter().find(|operand| !operand.is_filter());
        tensor.map_or(0, |tensor| tensor.dims[0] as u32)
    }

    /// The arithmetic that the caller allows.
    pub(crate) fn math(&self) -> c_int {
        self.geometry.math
    }

    /// Whether parts of the result are added up in a type too short for sums: the gradient of a 16-bit filter.
    pub(crate) fn adds_in_16_bits(&self) -> bool {
        self.op == ConvOp::BackwardFilter && self.operands[2].element_bytes() == Some(2)
    }

    /// Whether this descriptor is that of a tensor as the result is.
    pub(crate) fn is_output(&self, cudnn: &Cudnn, descriptor: Raw) -> bool {
        Operand::tensor(cudnn, descriptor) == Some(self.operands[2])
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
        match self.operands[0].element_bytes() {
            Some(8) => from_fn(|place| (&raw const DOUBLE[place]).cast_mut().cast()),
            _ => from_fn(|place| (&raw const FLOAT[place]).cast_mut().cast()),
        }
    }

    /// Descriptors of a micro-batch, in the caller's strides; none for the filter.
    pub(crate) fn tensors(&self, cudnn: &'static Cudnn, samples: u32) -> Option<[Option<Descriptor>; 3]> {
        let make = |operand: &Operand| {
            let Operand { dtype, rank, mut dims, strides, .. } = *operand;
            dims[0] = samples as c_int;
            // SAFETY: the descriptor was just made, and the arrays have `rank` elements.
            Descriptor::new(cudnn.create_tensor, cudnn.destroy_tensor, |raw| unsafe {
                (cudnn.set_tensor)(raw, dtype, rank, dims.as_ptr(), strides.as_ptr()) == SUCCESS
            })
        };
        let made = self.operands.each_ref().map(|operand| (!operand.is_filter()).then(|| make(operand)));
        let [a, b, c] = made.map(|descriptor| descriptor.map_or(Some(None), |made| made.map(Some)));
        Some([a?, b?, c?])
    }

    /// The caller's convolution descriptor with this arithmetic.
    pub(crate) fn convolution(&self, cudnn: &'static Cudnn, math: c_int) -> Option<Descriptor> {
        let Geometry { axes, pad, stride, dilation, mode, compute, groups, .. } = self.geometry;
        let [pad, stride, dilation] = [&pad, &stride, &dilation].map(|array| array.as_ptr());
        // SAFETY: the descriptor was just made, and the arrays have `axes` elements.
        Descriptor::new(cudnn.create_convolution, cudnn.destroy_convolution, |raw| unsafe {
            (cudnn.set_convolution)(raw, axes, pad, stride, dilation, mode, compute) == SUCCESS
                && (cudnn.set_groups)(raw, groups) == SUCCESS
                && (cudnn.set_math)(raw, math) == SUCCESS
        })
    }
}

/// Which of the operands is the filter, in the order of cuDNN's function.
fn filter_place(op: ConvOp) -> usize {
    match op {
        ConvOp::Forward => 1,
        ConvOp::BackwardData => 0,
        ConvOp::BackwardFilter => 2,
    }
}

impl fmt::Display for Signature {
    /// As in `cuda:0 Forward 256x64x27x27, 192x64x5x5 -> 256x192x27x27 FP32, pad 2x2`: the operands in cuDNN's order.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |values: &[c_int]| values.iter().map(c_int::to_string).collect::<Vec<_>>().join("x");
        let [a, b, c] = self.operands.each_ref().map(|operand| list(&operand.dims[..operand.rank as usize]));
        let Geometry { pad, stride, dilation, groups, .. } = &self.geometry;
        let dtype =
            DTYPES.iter().find(|(dtype, ..)| *dtype == self.operands[0].dtype).map_or("", |known| known.2);
        write!(f, "cuda:{} {} {a}, {b} -> {c} {dtype}", self.device, self.op)?;
        for (name, values, neutral) in [("pad", pad, 0), ("stride", stride, 1), ("dilation", dilation, 1)] {
            let values = &values[..self.geometry.axes as usize];
            if values.iter().any(|&value| value != neutral) {
                write!(f, ", {name} {}", list(values))?;
            }
        }
        if *groups > 1 { write!(f, ", {groups} groups") } else { Ok(()) }
    }
}

/// A descriptor of our own, which dies with the value.
#[derive(Debug)]
pub(crate) struct Descriptor {
    raw: Raw,
    destroy: unsafe extern "C" fn(Raw) -> Status,
}

// SAFETY: a descriptor is set once, in `new`, and only read from then on; it belongs to no thread and no handle.
unsafe impl Send for Descriptor {}
// SAFETY: as above.
unsafe impl Sync for Descriptor {}

impl Descriptor {
    fn new(
        create: unsafe extern "C" fn(*mut Raw) -> Status,
        destroy: unsafe extern "C" fn(Raw) -> Status,
        set: impl FnOnce(Raw) -> bool,
    ) -> Option<Self> {
        let mut raw = null_mut();
        // SAFETY: the address of a descriptor is written to.
        let created = unsafe { create(&mut raw) } == SUCCESS;
        let descriptor = created.then(|| Self { raw, destroy })?;
        set(raw).then_some(descriptor)
    }

    /// For calls of cuDNN during the life of `self`.
    pub(crate) fn raw(&self) -> Raw {
        self.raw
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: made in `new`; `raw` is used only while `self` lives. Should this fail, there is nothing left to be done.
        unsafe { (self.destroy)(self.raw) };
    }
}
