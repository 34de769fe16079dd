//! Loops that the CPU's code of all operations shares, cut by index: no result depends on the number of threads.

use crate::AxisExtents;
use std::ops::Range;
use tensor::cpu::{Lanes, SharedMut, WithLanes, dispatch};
use tensor::{Accumulate, Cpu, Out};

/// Elements per task. Smaller blobs stay on the calling thread: to wake another costs as much as some thousands.
pub(crate) const TASK_LEN: usize = 1 << 15;

/// `inlined!(function(arguments), |..| body)`: calls one of these functions with bodies that are compiled into it.
macro_rules! inlined {
    ($function:ident($($argument:expr),*), $(|$($parameter:pat_param),*| $body:expr),+ $(,)?) => {
        $function($($argument,)* $(#[inline(always)] |$($parameter),*| $body),+)
    };
}

pub(crate) use inlined;

/// Runs `body` compiled for the widest instruction set of this processor. Plain loops inside are vectorised by the
/// compiler; `body` and what it calls must be `#[inline(always)]` for that.
#[inline(always)]
pub(crate) fn vectorised<R>(body: impl FnOnce() -> R) -> R {
    struct Plain<F>(F);
    impl<R, F: FnOnce() -> R> WithLanes<R> for Plain<F> {
        #[inline(always)]
        fn call<L: Lanes>(self, _: L) -> R {
            (self.0)()
        }
    }
    dispatch(Plain(body))
}

/// Cuts `items` items into tasks of `run` items and calls `body(range of items, their part of every output)` for each,
/// vectorised. Every output holds the same number of elements for each item, or none at all.
pub(crate) fn for_each_run<const OUTPUTS: usize>(
    cpu: &Cpu,
    items: usize,
    run: usize,
    outputs: [&mut [f32]; OUTPUTS],
    body: impl Fn(Range<usize>, [&mut [f32]; OUTPUTS]) + Sync,
) {
    let outputs = (outputs, &mut [] as &mut [u8]);
    inlined!(for_each_run_with(cpu, items, run, outputs), |range, outputs, _| body(range, outputs));
}

/// The same with one more output, of another type.
pub(crate) fn for_each_run_with<const OUTPUTS: usize, T: Send>(
    cpu: &Cpu,
    items: usize,
    run: usize,
    (outputs, other): ([&mut [f32]; OUTPUTS], &mut [T]),
    body: impl Fn(Range<usize>, [&mut [f32]; OUTPUTS], &mut [T]) + Sync,
) {
    let size = |len: usize| {
        assert!(len.is_multiple_of(items.max(1)), "{len} elements for {items} items");
        len / items.max(1)
    };
    let (sizes, other_size) = (outputs.each_ref().map(|output| size(output.len())), size(other.len()));
    let (shared, other) = (outputs.map(SharedMut::new), SharedMut::new(other));
    cpu.for_each(items.div_ceil(run), |task| {
        let range = task * run..((task + 1) * run).min(items);
        let parts = std::array::from_fn(|output| {
            let (shared, size) = (shared[output], sizes[output]);
            // SAFETY: every task takes the elements of its own items only, and ranges of tasks do not overlap.
            unsafe { shared.slice(range.start * size..range.end * size) }
        });
        // SAFETY: as above.
        let part = unsafe { other.slice(range.start * other_size..range.end * other_size) };
        vectorised(
            #[inline(always)]
            || body(range, parts, part),
        );
    });
}

/// Items per task where each costs `work` elements.
pub(crate) fn items_per_task(work: usize) -> usize {
    (TASK_LEN / work.max(1)).max(1)
}

/// Overwrites or adds.
#[inline(always)]
pub(crate) fn put(accumulate: Accumulate, to: &mut f32, value: f32) {
    match accumulate {
        Accumulate::Replace => *to = value,
        Accumulate::Add => *to += value,
    }
}

/// What a ReLU makes of `value`, if there is one: NaN and -0 stay, as in [`crate::activation`].
#[inline(always)]
pub(crate) fn rectified(relu: bool, value: f32) -> f32 {
    if relu && value < 0.0 { 0.0 } else { value }
}

/// A gradient's elements, none if it is not wanted, and how they are written.
pub(crate) fn elements(gradient: Option<Out<'_>>) -> (Accumulate, &mut [f32]) {
    gradient.map_or((Accumulate::Replace, &mut []), |gradient| (gradient.accumulate, gradient.to.into_host()))
}

/// As [`put`], if there is an element.
#[inline(always)]
pub(crate) fn put_if_any(accumulate: Accumulate, to: Option<&mut f32>, value: f32) {
    to.into_iter().for_each(|to| put(accumulate, to, value));
}

/// Calls `body(channel, a plane, the plane of `blob`)` for every plane of an `outer x axis x inner` blob, vectorised.
pub(crate) fn for_each_plane(
    cpu: &Cpu,
    extents: &AxisExtents,
    blob: &mut [f32],
    body: impl Fn(usize, Range<usize>, &mut [f32]) + Sync,
) {
    let &AxisExtents { outer, axis, inner } = extents;
    inlined!(for_each_run(cpu, outer * axis, items_per_task(inner), [blob]), |planes, [blob]| {
        for (plane, elements) in planes.zip(blob.chunks_exact_mut(inner.max(1))) {
            body(plane % axis, plane * inner..(plane + 1) * inner, elements);
        }
    });
}

/// Rows of one width, a fixed distance apart, of a blob that several tasks write.
pub(crate) struct RowsMut<'a> {
    blob: SharedMut<'a>,
    start: usize,
    stride: usize,
    width: usize,
}

impl RowsMut<'_> {
    /// Row number `index`.
    #[inline(always)]
    pub(crate) fn row(&mut self, index: usize) -> &mut [f32] {
        let start = self.start + index * self.stride;
        // SAFETY: only the two functions below make these, without a common element; the mutable borrow of `self` keeps
        // a second row of this one from being alive.
        unsafe { self.blob.slice(start..start + self.width) }
    }
}

/// Calls `body(channel, its planes of `blob` by samples, its element of every one of `outputs`)` for every channel of
/// an `outer x axis x inner` blob, vectorised; neighbouring channels share a task while they are small. The blob and
/// outputs may be empty.
pub(crate) fn for_each_channel<const OUTPUTS: usize>(
    cpu: &Cpu,
    extents: &AxisExtents,
    blob: &mut [f32],
    outputs: [&mut [f32]; OUTPUTS],
    body: impl Fn(usize, RowsMut<'_>, [Option<&mut f32>; OUTPUTS]) + Sync,
) {
    let (blob, run) = (SharedMut::new(blob), items_per_task(extents.per_index()));
    inlined!(for_each_run(cpu, extents.axis, run, outputs), |channels, mut outputs| {
        for (index, channel) in channels.enumerate() {
            let (start, stride) = (channel * extents.inner, extents.axis * extents.inner);
            let planes = RowsMut { blob, start, stride, width: extents.inner };
            let outputs = outputs.each_mut().map(|output| output.get_mut(index));
            body(channel, planes, outputs);
        }
    });
}

/// Calls `body(outer index, columns, the block by rows)` for every block of at most `width` columns of an
/// `outer x axis x inner` blob, vectorised; `run` neighbouring blocks share a task.
pub(crate) fn for_each_column_block(
    cpu: &Cpu,
    extents: &AxisExtents,
    (width, run): (usize, usize),
    blob: &mut [f32],
    body: impl Fn(usize, Range<usize>, RowsMut<'_>) + Sync,
) {
    let inner = extents.inner;
    assert_eq!(blob.len(), extents.len(), "the blob's length");
    let (blob, per_outer) = (SharedMut::new(blob), inner.div_ceil(width));
    inlined!(for_each_run(cpu, extents.outer * per_outer, run, []), |blocks, []| {
        for block in blocks {
            let (outer, first) = (block / per_outer, block % per_outer * width);
            let columns = first..(first + width).min(inner);
            let start = outer * extents.axis * inner + first;
            let rows = RowsMut { blob, start, stride: inner, width: columns.len() };
            body(outer, columns, rows);
        }
    });
}
