//! Operands in any format, and what operations on a GPU make of them, against the processor's in single precision and
//! NCHW.

use crate::AxisExtents;
use crate::testing::{FAULTS, gpu, wide};
use std::sync::PoisonError;
use tensor::testing::{max_error, random};
use tensor::{
    ALIGNMENT, Arena, AxisOrder, Bf16, Device, Element, ElementType, Format, Span, TensorType, View, ViewMut,
};

/// Half a unit in the last place of 8 bits, and that once more where a result was rounded before: an inner product,
/// which may then have been a little larger, before its bias.
const BF16: f64 = 2.2 / 256.0;
/// Sums in another order, and functions of the two devices.
const F32: f64 = 2e-5;

/// What an operation reads or writes.
#[derive(Clone)]
pub(super) enum Operand {
    /// A blob of these extents, in the order of NCHW.
    Blob(Vec<usize>, Vec<f32>),
    /// Parameters, statistics, labels.
    Floats(Vec<f32>),
    /// What only the operation reads again.
    Bytes(usize),
}

pub(super) fn rounded(value: f32) -> f32 {
    Bf16::from_f32(value).into()
}

/// Numbers that are the same in BF16.
pub(super) fn blob(dims: &[usize], seed: u64) -> Operand {
    let values = random(dims.iter().product(), seed).into_iter().map(rounded);
    Operand::Blob(dims.to_vec(), values.collect())
}

pub(super) fn floats(len: usize, seed: u64) -> Operand {
    Operand::Floats(random(len, seed))
}

fn fill<T: Element>(arena: &mut Arena, span: Span, values: &[T]) {
    arena.fill(span, |to: &mut [T]| to.copy_from_slice(values)).unwrap();
}

impl Operand {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Blob(_, values) | Self::Floats(values) => values.len(),
            Self::Bytes(len) => *len,
        }
    }

    pub(super) fn tensor_format(&self, format: Format) -> Format {
        match self {
            Self::Blob(dims, _) => TensorType::new(dims, format).format(),
            Self::Floats(_) => Format::F32,
            Self::Bytes(_) => Format::U8,
        }
    }

    /// The place in memory of each element, by its number in NCHW.
    fn places(&self, layout: AxisOrder) -> Vec<usize> {
        let (Self::Blob(dims, _), AxisOrder::Nhwc) = (self, layout) else { return (0..self.len()).collect() };
        let (channels, pixels) = (dims[1], dims[2..].iter().product::<usize>());
        let place = |i: usize| {
            let (line, pixel) = (i / pixels, i % pixels);
            (line / channels * pixels + pixel) * channels + line % channels
        };
        (0..self.len()).map(place).collect()
    }

    pub(super) fn write(&self, arena: &mut Arena, span: Span) {
        let (Self::Blob(_, values) | Self::Floats(values)) = self else { return };
        let mut there = vec![0.0; values.len()];
        self.places(span.format.layout).iter().zip(values).for_each(|(&place, &value)| there[place] = value);
        if span.format.dtype == ElementType::Bf16 {
            let there: Vec<Bf16> = there.into_iter().map(Bf16::from_f32).collect();
            fill(arena, span, &there);
        } else {
            fill(arena, span, &there);
        }
    }

    pub(super) fn read(&self, arena: &Arena, span: Span) -> Vec<f32> {
        let there: Vec<f32> = match span.format.dtype {
            ElementType::Bf16 => {
                arena.read::<Bf16>(span).unwrap().iter().map(|&value| value.into()).collect()
            }
            ElementType::F32 => arena.read::<f32>(span).unwrap().into_owned(),
            ElementType::U8 => Vec::new(),
        };
        self.places(span.format.layout).iter().filter_map(|&place| there.get(place).copied()).collect()
    }
}

/// What `op` leaves in `writes`, with operands `shift` elements behind aligned addresses.
fn run(
    (device, format, shift): (&Device, Format, usize),
    [reads, writes]: [&[Operand]; 2],
    op: &impl Fn(&Device, Format, &[View<'_>], &mut [ViewMut<'_>]),
) -> Vec<Vec<f32>> {
    let mut end = 0;
    let mut place = |operand: &Operand| {
        let format = operand.tensor_format(format);
        let size = format.dtype.bytes();
        let shift = if format == Format::U8 { 0 } else { shift * size };
        let span = Span { offset: end + shift, len: operand.len() * size, format };
        end = (span.end() + 1).next_multiple_of(ALIGNMENT);
        span
    };
    let [read_spans, write_spans] = [reads, writes].map(|all| all.iter().map(&mut place).collect::<Vec<_>>());
    let mut arena = Arena::on(device, end).unwrap();
    arena.set(arena.all(), 0xff).unwrap();
    for (operand, &span) in reads.iter().chain(writes).zip(read_spans.iter().chain(&write_spans)) {
        operand.write(&mut arena, span);
    }
    let (views, mut outs) = arena.lease_all(&read_spans, &write_spans).unwrap();
    op(device, format, &views, &mut outs);
    device.check().unwrap();
    for span in &write_spans {
        assert_eq!(
            arena.read::<u8>(Span::bytes(span.end(), 1)).unwrap()[..],
            [0xff],
            "written behind the end"
        );
    }
    writes.iter().zip(write_spans).map(|(operand, span)| operand.read(&arena, span)).collect()
}

/// Compares `op` on the GPU in each of `layouts`, in both types, with the processor.
pub(super) fn check_in(
    layouts: &[AxisOrder],
    what: &str,
    operands: [&[Operand]; 2],
    op: impl Fn(&Device, Format, &[View<'_>], &mut [ViewMut<'_>]),
) {
    let _shared = FAULTS.read().unwrap_or_else(PoisonError::into_inner);
    let expected = run((&Device::cpu(), Format::F32, 0), operands, &op);
    for format in
        [Format::F32, Format::BF16].iter().flat_map(|f| layouts.iter().map(|&order| f.in_order(order)))
    {
        for shift in [0, 1] {
            let found = run((&gpu(), format, shift), operands, &op);
            for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let of_blobs = operands[1][number].tensor_format(format).dtype == ElementType::Bf16;
                let (error, tolerance) =
                    (max_error(found, &wide(expected)), if of_blobs { BF16 } else { F32 });
                assert!(
                    error <= tolerance,
                    "{what}, {format}, shifted by {shift}: output {number} is off by {error:.1e}"
                );
            }
        }
    }
}

pub(super) const BOTH: [AxisOrder; 2] = [AxisOrder::Nchw, AxisOrder::Nhwc];

pub(super) fn check(
    what: &str,
    operands: [&[Operand]; 2],
    op: impl Fn(&Device, Format, &[View<'_>], &mut [ViewMut<'_>]),
) {
    check_in(&BOTH, what, operands, op);
}

/// A blob seen from its channels.
pub(super) fn channels(dims: &[usize], format: Format) -> AxisExtents {
    AxisExtents::new(&TensorType::new(dims, format), 1)
}

/// Channels that are and are not multiples of packs, planes that are and are not, large and small ones.
pub(super) const SHAPES: [[usize; 4]; 7] = [
    [2, 8, 4, 4],
    [3, 5, 7, 3],
    [2, 64, 28, 28],
    [4, 16, 1, 1],
    [3, 1, 9, 9],
    [7, 24, 33, 33],
    [5, 300, 6, 6],
];

#[test]
fn elements_have_their_places_in_nhwc() {
    let operand = Operand::Blob(vec![2, 3, 1, 2], (0..12).map(|i| i as f32).collect());
    let span = Span { offset: 0, len: 48, format: Format::F32.in_order(AxisOrder::Nhwc) };
    let mut arena = Arena::on(&Device::cpu(), 48).unwrap();
    operand.write(&mut arena, span);
    let there = [0.0, 2.0, 4.0, 1.0, 3.0, 5.0, 6.0, 8.0, 10.0, 7.0, 9.0, 11.0];
    assert_eq!(arena.read::<f32>(span).unwrap()[..], there);
    assert_eq!(operand.read(&arena, span), (0..12).map(|i| i as f32).collect::<Vec<_>>());
}
