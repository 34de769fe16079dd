//! What this crate's tests share: bodies that run on every device, and gradients by finite differences.

use std::sync::{OnceLock, RwLock};
use tensor::testing::{assert_close, random};
use tensor::{ALIGNMENT, Arena, Cpu, Device, Format, Out, Span, View, ViewMut};

/// Rounding of a handful of operations per element.
pub(crate) const FEW_ROUNDINGS: f64 = 2e-6;

/// Where a test body runs. It hands its inputs over, which may lie in device memory, and gets the result in host
/// memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TestDevice {
    /// The host, with one, two and three threads.
    Cpu,
    /// The first GPU, twice.
    Cuda {
        /// Whether operands begin at addresses that are no multiples of more than an element's size.
        misaligned: bool,
    },
}

/// Generates, for every test body, a test on the CPU and two on a GPU, ignored by default: with
/// aligned and with misaligned operands.
macro_rules! on_every_device {
    ($($(#[$attribute:meta])* fn $name:ident($on:ident: &TestDevice) $body:block)+) => {$(
        $(#[$attribute])*
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            fn body($on: &$crate::testing::TestDevice) $body

            #[test]
            fn cpu() {
                body(&$crate::testing::TestDevice::Cpu);
            }

            #[test]
            #[ignore = "needs an NVIDIA GPU"]
            fn cuda() {
                body(&$crate::testing::TestDevice::Cuda { misaligned: false });
            }

            #[test]
            #[ignore = "needs an NVIDIA GPU"]
            fn cuda_misaligned() {
                body(&$crate::testing::TestDevice::Cuda { misaligned: true });
            }
        }
    )+};
}
pub(crate) use on_every_device;

/// The GPU of all tests of this process: opening one takes longer than most of them.
pub(crate) fn gpu() -> Device {
    static GPU: OnceLock<Device> = OnceLock::new();
    let open = || Device::Cuda(tensor::cuda::probe().unwrap().open(0).unwrap());
    GPU.get_or_init(open).clone()
}

/// A GPU has one place for faults: tests that report one have it alone, those that must see none share it.
pub(crate) static FAULTS: RwLock<()> = RwLock::new(());

impl TestDevice {
    /// A device for each of the runs whose results have to be the same.
    pub(crate) fn devices(&self) -> Vec<Device> {
        match self {
            Self::Cpu => [1, 2, 3].map(|threads| Device::Cpu(Cpu::new(threads))).into(),
            Self::Cuda { .. } => vec![gpu(); 2],
        }
    }

    /// The result of `op`, whose output of `len` elements holds NaNs before. It must be the same in every run.
    pub(crate) fn run<const N: usize>(
        &self,
        inputs: [&[f32]; N],
        len: usize,
        op: impl Fn(&Device, [View<'_>; N], ViewMut<'_>),
    ) -> Vec<f32> {
        self.run_in_place(inputs, &vec![f32::NAN; len], op)
    }

    /// As [`TestDevice::run`] where the output holds `start` before.
    pub(crate) fn run_in_place<const N: usize>(
        &self,
        inputs: [&[f32]; N],
        start: &[f32],
        op: impl Fn(&Device, [View<'_>; N], ViewMut<'_>),
    ) -> Vec<f32> {
        self.run_on_slices(&inputs, start, |device, inputs, out| {
            op(device, std::array::from_fn(|input| inputs[input]), out);
        })
    }

    /// As [`TestDevice::run_in_place`] for any number of inputs.
    pub(crate) fn run_on_slices(
        &self,
        inputs: &[&[f32]],
        start: &[f32],
        op: impl Fn(&Device, &[View<'_>], ViewMut<'_>),
    ) -> Vec<f32> {
        let shift = usize::from(matches!(self, Self::Cuda { misaligned: true }));
        let results: Vec<_> =
            self.devices().iter().map(|device| run_once(device, shift, inputs, start, &op)).collect();
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        for (index, other) in results.iter().enumerate().skip(1) {
            assert!(bits(other) == bits(&results[0]), "run {} differs from the first", index + 1);
        }
        results.into_iter().next().expect("several runs")
    }

    /// As [`TestDevice::run`] for an operation that replaces or adds; checks that adding adds to what was there.
    pub(crate) fn run_accumulating<const N: usize>(
        &self,
        inputs: [&[f32]; N],
        len: usize,
        op: impl Fn(&Device, [View<'_>; N], Out<'_>),
    ) -> Vec<f32> {
        self.run_accumulating_on_slices(&inputs, len, |device, inputs, out| {
            op(device, std::array::from_fn(|input| inputs[input]), out);
        })
    }

    /// As [`TestDevice::run_accumulating`] for any number of inputs.
    pub(crate) fn run_accumulating_on_slices(
        &self,
        inputs: &[&[f32]],
        len: usize,
        op: impl Fn(&Device, &[View<'_>], Out<'_>),
    ) -> Vec<f32> {
        let replaced = self.run_on_slices(inputs, &vec![f32::NAN; len], |device, inputs, out| {
            op(device, inputs, out.replaced());
        });
        let start = random(len, 99);
        let added = self.run_on_slices(inputs, &start, |device, inputs, out| {
            op(device, inputs, out.added());
        });
        let sum: Vec<f64> = start.iter().zip(&replaced).map(|(&a, &b)| f64::from(a) + f64::from(b)).collect();
        assert_close(&added, &sum, FEW_ROUNDINGS, "added to what was there");
        replaced
    }
}

/// What `op` makes of `start`. Operands lie apart in one arena; what lies between them has to stay as it was.
fn run_once(
    device: &Device,
    shift: usize,
    inputs: &[&[f32]],
    start: &[f32],
    op: impl Fn(&Device, &[View<'_>], ViewMut<'_>),
) -> Vec<f32> {
    // A guard between two operands, and other distances from an aligned address for each.
    const GUARD: usize = 4;
    let mut end = 0;
    let operands: Vec<(Span, &[f32])> = (1..)
        .zip(inputs.iter().copied().chain([start]))
        .map(|(number, values)| {
            let offset = end + shift * (1 + number % 3);
            end = (offset + values.len() + GUARD).next_multiple_of(ALIGNMENT / size_of::<f32>());
            (floats(offset, values.len()), values)
        })
        .collect();
    let mut before = vec![f32::NAN; end];
    for (span, values) in &operands {
        before[elements(span)].copy_from_slice(values);
    }
    let all = floats(0, end);
    let mut arena = Arena::on(device, all.len).unwrap();
    arena.fill(all, |values: &mut [f32]| values.copy_from_slice(&before)).unwrap();
    let (&(out_span, _), input_spans) = operands.split_last().expect("an output");
    let input_spans: Vec<Span> = input_spans.iter().map(|&(span, _)| span).collect();
    let (views, mut out) = arena.lease_all(&input_spans, &[out_span]).unwrap();
    op(device, &views, out.remove(0));
    device.check().unwrap();
    let after = arena.read::<f32>(all).unwrap();
    for (i, (after, before)) in after.iter().zip(&before).enumerate() {
        let in_output = elements(&out_span).contains(&i);
        assert!(
            in_output || after.to_bits() == before.to_bits(),
            "element {i} was written, {out_span:?} may be"
        );
    }
    after[elements(&out_span)].to_vec()
}

/// The place of `len` elements from element `offset` on.
fn floats(offset: usize, len: usize) -> Span {
    Span { offset: offset * size_of::<f32>(), len: len * size_of::<f32>(), format: Format::F32 }
}

/// The elements of an arena of floats that lie there.
fn elements(span: &Span) -> std::ops::Range<usize> {
    span.offset / size_of::<f32>()..span.end() / size_of::<f32>()
}

/// `x` through a ReLU of its own.
pub(crate) fn rectified(x: &[f32]) -> Vec<f32> {
    let mut y = x.to_vec();
    crate::activation::forward(
        &Device::cpu(),
        crate::activation::Activation::RELU,
        None,
        ViewMut::of(&mut y),
    );
    y
}

/// That the elements are the same, -0 and NaN (of any payload) included.
pub(crate) fn assert_same_bits(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "elements");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let same = found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
        assert!(same, "element {i} is {found:?}, not {expected:?}");
    }
}

/// In double precision.
pub(crate) fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

/// The gradient with respect to `x` of `sum of dy * forward(x)`, by central differences in double precision.
pub(crate) fn numeric_gradient(x: &[f32], dy: &[f32], forward: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    const STEP: f64 = 1e-5;
    let mut x = wide(x);
    let value = |x: &[f64]| -> f64 { forward(x).iter().zip(dy).map(|(y, &dy)| y * f64::from(dy)).sum() };
    (0..x.len())
        .map(|i| {
            let centre = x[i];
            x[i] = centre + STEP;
            let above = value(&x);
            x[i] = centre - STEP;
            let below = value(&x);
            x[i] = centre;
            (above - below) / (2.0 * STEP)
        })
        .collect()
}
