//! What a convolution is, as its descriptors say.

use crate::cudnn::{Owned, Raw, done};
use crate::{call::Call, driver::current_device};
use planner::{ConvOp, ConvShape, Dtype, KernelId, Layout, Math};
use std::{array::from_fn, ffi::c_int, fmt};

/// Bytes and names of the element types (`cudnnDataType_t`) that micro-batches are made of; others are passed through.
const DTYPES: [(c_int, usize, &str); 4] =
    [(FP32, 4, "FP32"), (1, 8, "FP64"), (2, 2, "FP16"), (BF16, 2, "BF16")];
const FP32: c_int = 0;
const BF16: c_int = 9;

/// The arithmetic that is usual for the element type (`CUDNN_DEFAULT_MATH`).
const DEFAULT: c_int = 0;
/// Arithmetic without tensor cores (`CUDNN_FMA_MATH`).
const FMA: c_int = 3;
/// Arithmetic of tensor cores, for 16-bit types (`CUDNN_TENSOR_OP_MATH`).
const TENSOR_CORES: c_int = 1;

/// Micro-batches begin at multiples of as many bytes as the widest loads of cuDNN's CUDA kernels have.
pub(crate) const ALIGNMENT: usize = 16;

/// An operand: how it lies in memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Operand {
    dtype: c_int,
    dims: Vec<c_int>,
    strides: Vec<c_int>,
    is_filter: bool,
}

impl Operand {
    /// What a descriptor of the caller says, if that can be counted with.
    fn read(descriptor: Raw, is_filter: bool) -> Option<Self> {
        /// `CUDNN_DIM_MAX`.
        const MOST: c_int = 8;
        let [mut dims, mut strides] = [[0; MOST as usize]; 2];
        let (mut dtype, mut rank, mut order): (c_int, c_int, c_int) = (0, 0, 0);
        let [kind, axes, format] = [&mut dtype, &mut rank, &mut order].map(|number| &raw mut *number);
        let (extents, steps) = (dims.as_mut_ptr(), strides.as_mut_ptr());
        // SAFETY: the descriptor is set; the arrays have as many elements as are asked for.
        let is_read = unsafe {
            if is_filter {
                done!("cudnnGetFilterNdDescriptor", (descriptor, MOST, kind, format, axes, extents))
            } else {
                done!("cudnnGetTensorNdDescriptor", (descriptor, MOST, kind, axes, extents, steps))
            }
        };
        if !is_read {
            return None;
        }
        let (dims, strides) = (&dims[..rank as usize], &strides[..rank as usize]);
        let strides = if is_filter { packed(dims, order) } else { strides.to_vec() };
        Self::new(dtype, dims.to_vec(), strides, is_filter)
    }

    /// A tensor or a filter that lies so, if that can be counted with.
    pub(crate) fn new(dtype: c_int, dims: Vec<c_int>, strides: Vec<c_int>, is_filter: bool) -> Option<Self> {
        let is_regular = matches!(dims.len(), 4 | 5)
            && dims.len() == strides.len()
            && dims.iter().all(|&extent| extent > 0)
            && strides.iter().all(|&stride| stride >= 0)
            && strides[0] > 0
            && DTYPES.iter().any(|known| known.0 == dtype);
        let lies = is_regular.then_some(Self { dtype, dims, strides, is_filter })?;
        (!is_filter || lies.is_packed(0) || lies.is_packed(1)).then_some(lies)
    }

    /// Axes beside samples and channels.
    pub(crate) fn axes(&self) -> usize {
        self.dims.len() - 2
    }

    fn dtype(&self) -> (usize, &'static str) {
        let known = DTYPES.iter().find(|known| known.0 == self.dtype);
        known.map_or((0, ""), |&(_, bytes, name)| (bytes, name))
    }

    fn is_packed(&self, order: c_int) -> bool {
        self.strides == packed(&self.dims, order)
    }

    /// Whether the elements follow each other in this order. Filters of one channel or one tap do so in both.
    fn lies(&self, order: c_int) -> bool {
        let [_, channels, taps @ ..] = &self.dims[..] else { return false };
        self.is_packed(order) || self.is_filter && (*channels == 1 || taps.iter().all(|&taps| taps == 1))
    }

    /// Bytes from the first element to the end of the last.
    fn bytes(&self) -> usize {
        let axes = self.dims.iter().zip(&self.strides);
        let last: usize = axes.map(|(&extent, &stride)| (extent - 1) as usize * stride as usize).sum();
        (1 + last) * self.dtype().0
    }
}

/// Strides of elements in a row, channels before the rows (0) or behind the columns (1), as cuDNN counts orders.
fn packed(dims: &[c_int], order: c_int) -> Vec<c_int> {
    let (mut strides, mut next) = (vec![0; dims.len()], 1 as c_int);
    let mut axes = Vec::from_iter(0..dims.len());
    axes[1..].rotate_left(order as usize);
    for axis in axes.into_iter().rev() {
        strides[axis] = next;
        next = next.saturating_mul(dims[axis]);
    }
    strides
}

/// The places of x, w and y, or their gradients, among the operands of cuDNN's function.
pub(crate) fn places(op: ConvOp) -> [usize; 3] {
    match op {
        ConvOp::Forward => [0, 1, 2],
        ConvOp::BackwardData => [2, 0, 1],
        ConvOp::BackwardFilter => [0, 2, 1],
    }
}

/// All that a convolution's speed, workspace and slices depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Signature {
    pub(crate) device: c_int,
    pub(crate) op: ConvOp,
    /// In the order in which cuDNN's function of the operation takes them.
    operands: [Operand; 3],
    /// Padding, strides and dilations.
    geometry: [Vec<c_int>; 3],
    groups: c_int,
    /// The arithmetic that the caller allows (`cudnnMathType_t`).
    pub(crate) math: c_int,
    /// Convolution or cross-correlation, and the type of sums.
    modes: [c_int; 2],
    /// Whether only algorithms will do whose results are always the same.
    pub(crate) is_deterministic: bool,
}

impl Signature {
    /// What the caller's descriptors say, if that is one that we divide, on the GPU that its thread has selected.
    pub(crate) fn read(call: &Call) -> Option<Self> {
        let (device, [_, filter, _]) = (current_device()?, places(call.op));
        let read = |place| Operand::read(call.descriptors[place], place == filter);
        let operands = [read(0)?, read(1)?, read(2)?];
        let axes = operands[0].axes();
        let (mut geometry, mut modes, mut groups, mut math) = (from_fn(|_| vec![0; axes]), [0; 2], 0, 0);
        let ([pad, stride, dilation], [mode, sums]) =
            (geometry.each_mut().map(|list| list.as_mut_ptr()), modes.each_mut());
        let ([.., conv], axes, mut found) = (call.descriptors, axes as c_int, 0);
        // SAFETY: the descriptor is set; the arrays have at least as many elements as are asked for.
        let is_read = unsafe {
            done!(
                "cudnnGetConvolutionNdDescriptor",
                (conv, axes, &mut found, pad, stride, dilation, mode, sums)
            ) && done!("cudnnGetConvolutionGroupCount", (conv, &mut groups))
                && done!("cudnnGetConvolutionMathType", (conv, &mut math))
        };
        let (op, is_deterministic) = (call.op, false);
        let made = Self { device, op, operands, geometry, groups, math, modes, is_deterministic };
        made.checked().filter(|_| is_read && found == axes)
    }

    /// What an operation graph says of a convolution, of one that is to have the same result every time. Whoever chose
    /// an engine with tensor cores allows them; of other engines that is not known.
    pub(crate) fn of_graph(
        device: c_int,
        op: ConvOp,
        operands: [Operand; 3],
        geometry: [Vec<c_int>; 3],
        (modes, has_tensor_cores): ([c_int; 2], bool),
    ) -> Option<Self> {
        let [x, w, _] = places(op).map(|place| &operands[place]);
        let math = match (x.dtype().0, has_tensor_cores) {
            (4, false) => FMA,
            (2, _) => TENSOR_CORES,
            _ => DEFAULT,
        };
        let groups = x.dims[1] / w.dims[1];
        Self { device, op, operands, geometry, groups, math, modes, is_deterministic: true }.checked()
    }

    /// This, if it is a convolution of 2 or 3 axes, of at least two samples in a type that we know.
    fn checked(self) -> Option<Self> {
        let [x, w, y] = self.xwy();
        let are_alike = x.dims[0] == y.dims[0] && x.axes() == y.axes() && x.axes() == w.axes();
        (are_alike && x.dims[0] > 1).then_some(self)
    }

    fn xwy(&self) -> [&Operand; 3] {
        places(self.op).map(|place| &self.operands[place])
    }

    pub(crate) fn mini_batch(&self) -> u32 {
        self.xwy()[0].dims[0] as u32
    }

    /// Whether micro-batches of so many samples will do: they begin where cuDNN's CUDA kernels can load them, and are not
    /// added up in a type too short for sums, as the gradient of a 16-bit filter would be.
    pub(crate) fn can_have(&self, samples: u32) -> bool {
        let is_short = self.op == ConvOp::BackwardFilter && self.operands[2].dtype().0 == 2;
        let is_aligned = self.offsets(samples).iter().all(|offset| offset % ALIGNMENT == 0);
        samples == self.mini_batch() || is_aligned && !is_short
    }

    /// Where a slice that begins at this sample begins in each operand, in bytes; all samples share a filter.
    pub(crate) fn offsets(&self, sample: u32) -> [usize; 3] {
        let samples = |one: &Operand| if one.is_filter { 0 } else { sample as usize };
        self.operands.each_ref().map(|one| samples(one) * one.strides[0] as usize * one.dtype().0)
    }

    pub(crate) fn bytes(&self) -> [usize; 3] {
        self.operands.each_ref().map(Operand::bytes)
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

    /// The convolution as the planner names it, if it can: two axes, packed operands in FP32 or BF16 that all lie alike.
    pub(crate) fn kernel(&self) -> Option<KernelId> {
        let [x, w, y] = self.xwy();
        let dtype = match [x.dtype, w.dtype, y.dtype] {
            [FP32, FP32, FP32] => Dtype::F32,
            [BF16, BF16, BF16] => Dtype::Bf16,
            _ => return None,
        };
        let math = match self.math {
            FMA => Math::Fp32,
            DEFAULT => Math::Tf32,
            TENSOR_CORES if dtype == Dtype::Bf16 => Math::Tf32,
            _ => return None,
        };
        let lie = |order: c_int| self.operands.iter().all(|operand| operand.lies(order));
        let layout = if lie(0) { Layout::Nchw } else { Some(Layout::Nhwc).filter(|_| lie(1))? };
        let (&[_, c, h, width], &[k, _, r, s]) = (&x.dims[..], &w.dims[..]) else { return None };
        let [c, h, width, k, r, s] = [c, h, width, k, r, s].map(|extent| extent as u32);
        let [pad, stride, dilation] = self.geometry.each_ref().map(|axes| [axes[0] as u32, axes[1] as u32]);
        let (w, groups) = (width, self.groups as u32);
        let shape = ConvShape { c, h, w, k, r, s, pad, stride, dilation, groups, pack: 0 };
        // Cross-correlation, with sums in FP32.
        (self.modes == [1, FP32]).then_some(KernelId { op: self.op, shape, dtype, math, layout })
    }

    /// Descriptors of `samples` samples, in the caller's strides: of the operands, and of the convolution.
    pub(crate) fn descriptors(&self, samples: u32) -> Option<[Owned; 4]> {
        let of_operand = |operand: &Operand| {
            let Operand { dtype, mut dims, strides, is_filter } = operand.clone();
            let (rank, order) = (dims.len() as c_int, c_int::from(!operand.is_packed(0)));
            if is_filter {
                // SAFETY: the descriptor was just made; the array has `rank` elements.
                return Owned::descriptor("Filter", |raw| unsafe {
                    done!("cudnnSetFilterNdDescriptor", (raw, dtype, order, rank, dims.as_ptr()))
                });
            }
            dims[0] = samples as c_int;
            // SAFETY: as above.
            Owned::descriptor("Tensor", |raw| unsafe {
                done!("cudnnSetTensorNdDescriptor", (raw, dtype, rank, dims.as_ptr(), strides.as_ptr()))
            })
        };
        let [pad, stride, dilation] = self.geometry.each_ref().map(|numbers| numbers.as_ptr());
        let (axes, [mode, sums]) = (self.operands[0].axes() as c_int, self.modes);
        // SAFETY: as above, with `axes` elements.
        let convolution = Owned::descriptor("Convolution", |conv| unsafe {
            done!("cudnnSetConvolutionNdDescriptor", (conv, axes, pad, stride, dilation, mode, sums))
                && done!("cudnnSetConvolutionGroupCount", (conv, self.groups))
                && done!("cudnnSetConvolutionMathType", (conv, self.math))
        });
        let [a, b, c] = self.operands.each_ref().map(of_operand);
        Some([a?, b?, c?, convolution?])
    }
}

/// Whether an algorithm of any operation sums in the same order every time: these two add atomically.
pub(crate) fn is_deterministic(algorithm: &str) -> bool {
    !matches!(algorithm, "ALGO_0" | "ALGO_3")
}

impl fmt::Display for Signature {
    /// As in `cuda:0 Forward 256x64x27x27, 192x64x5x5 -> 256x192x27x27 FP32, pad 2x2`: the operands in cuDNN's order.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |values: &[c_int]| values.iter().map(c_int::to_string).collect::<Vec<_>>().join("x");
        let [a, b, c] = self.operands.each_ref().map(|operand| list(&operand.dims));
        let [pad, stride, dilation] = &self.geometry;
        // cuDNN may round FP32 to TF32 unless that is forbidden.
        let may_round = self.operands[0].dtype == FP32 && self.math != FMA;
        let dtype = if may_round { "TF32" } else { self.operands[0].dtype().1 };
        write!(f, "cuda:{} {} {a}, {b} -> {c} {dtype}", self.device, self.op)?;
        for (name, values, neutral) in [("pad", pad, 0), ("stride", stride, 1), ("dilation", dilation, 1)] {
            if values.iter().any(|&value| value != neutral) {
                write!(f, ", {name} {}", list(values))?;
            }
        }
        if self.groups > 1 { write!(f, ", {} groups", self.groups) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2 samples of 4 channels of 6x5, and 8 filters of 3x1 in 2 groups.
    fn forward(dtype: c_int, nhwc: bool, has_tensor_cores: bool) -> Option<Signature> {
        let operand = |[n, c, h, w]: [c_int; 4], is_filter| {
            let strides = if nhwc { [h * w * c, 1, w * c, c] } else { [c * h * w, h * w, w, 1] };
            Operand::new(dtype, vec![n, c, h, w], strides.to_vec(), is_filter)
        };
        let operands =
            [operand([2, 4, 6, 5], false)?, operand([8, 2, 3, 1], true)?, operand([2, 8, 6, 3], false)?];
        let geometry = [vec![1, 0], vec![1, 2], vec![1, 1]];
        Signature::of_graph(0, ConvOp::Forward, operands, geometry, ([1, 0], has_tensor_cores))
    }

    #[test]
    fn the_planner_has_a_name_for_packed_convolutions_in_fp32_and_bf16() {
        let shape = ConvShape {
            c: 4,
            h: 6,
            w: 5,
            k: 8,
            r: 3,
            s: 1,
            pad: [1, 0],
            stride: [1, 2],
            groups: 2,
            ..ConvShape::default()
        };
        for (number, nhwc, has_tensor_cores, dtype, math, layout) in [
            (0, false, false, Dtype::F32, Math::Fp32, Layout::Nchw),
            (0, false, true, Dtype::F32, Math::Tf32, Layout::Nchw),
            (0, true, false, Dtype::F32, Math::Fp32, Layout::Nhwc),
            (9, true, true, Dtype::Bf16, Math::Tf32, Layout::Nhwc),
        ] {
            let kernel = forward(number, nhwc, has_tensor_cores).unwrap().kernel().unwrap();
            assert_eq!(kernel, KernelId { op: ConvOp::Forward, shape, dtype, math, layout });
        }
        let usual = forward(0, false, false).unwrap();
        assert_eq!(forward(2, false, false).unwrap().kernel(), None, "FP16");
        assert_eq!(
            Signature { modes: [0, 0], ..usual.clone() }.kernel(),
            None,
            "a convolution of mathematics"
        );
        let mut spaced = usual.clone();
        spaced.operands[0].strides[0] += 1;
        assert_eq!(spaced.kernel(), None, "samples apart");
        spaced.operands[0] = forward(0, true, false).unwrap().operands[0].clone();
        assert_eq!(spaced.kernel(), None, "operands that lie differently");
    }
}
