//! Parallel loops over numbered tasks.

use super::{Cpu, simd::LANES};
use rayon::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{marker::PhantomData, ops::Range};

/// What is done for an index, with a part of the memory. A reference, so that what shares tasks among threads is compiled
/// once: for each of them again, it would be a third of what there is to compile of the layers.
type Task<'a> = &'a (dyn Fn(usize, &mut [f32]) + Sync);

impl Cpu {
    /// Calls `task(index)` for every index below `tasks`. Threads take indices as they become free, so tasks may differ
    /// in length; which thread runs a task must not matter to its result.
    pub fn for_each(&self, tasks: usize, task: impl Fn(usize) + Sync) {
        self.for_each_scratch(tasks, &mut [], &|index, _| task(index));
    }

    /// As [`Cpu::for_each`], lending each thread its own equal piece of `scratch`, whole cache lines. A piece holds
    /// whatever the thread's last task left in it.
    pub fn for_each_scratch(&self, tasks: usize, mut scratch: &mut [f32], task: Task<'_>) {
        let piece = scratch.len() / self.threads() / LANES * LANES;
        let next = |_| scratch.split_off_mut(..piece).unwrap_or_default();
        let mut pieces: Vec<&mut [f32]> = (0..self.threads()).map(next).collect();
        let next = AtomicUsize::new(0);
        // Wherever they run, it is on threads of the pool: there denormals count as zeros.
        self.run(|| {
            pieces.par_iter_mut().take(tasks).with_max_len(1).for_each(|piece| {
                let indices = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
                indices.take_while(|&index| index < tasks).for_each(|index| task(index, piece));
            });
        });
    }

    /// Calls `task(index, chunk)` for every run of `chunk` elements of `elements` (the last may be shorter).
    pub fn for_each_chunk(&self, elements: &mut [f32], chunk: usize, task: Task<'_>) {
        // No elements may come in chunks of nothing.
        let chunks = elements.par_chunks_mut(chunk.max(1)).enumerate();
        self.run(|| chunks.for_each(|(index, chunk)| task(index, chunk)));
    }
}

/// A slice whose disjoint parts are written by several threads.
#[derive(Clone, Copy)]
pub struct SharedMut<'a, T = f32> {
    base: *mut T,
    len: usize,
    lifetime: PhantomData<&'a mut [T]>,
}

// SAFETY: the only way to the elements is `slice`, whose caller promises that parts in use at a time are disjoint.
unsafe impl<T: Send> Send for SharedMut<'_, T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Send> Sync for SharedMut<'_, T> {}

impl<'a, T> SharedMut<'a, T> {
    /// Shares `elements` among tasks until the borrow ends.
    pub fn new(elements: &'a mut [T]) -> Self {
        Self { base: elements.as_mut_ptr(), len: elements.len(), lifetime: PhantomData }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The first element, for parts that are no ranges. Whoever writes through it makes the promise of
    /// [`SharedMut::slice`].
    pub fn as_ptr(&self) -> *mut T {
        self.base
    }

    /// The elements `range`.
    ///
    /// # Safety
    /// While the result lives, no other live slice from this value (on any thread) may share an element with it.
    ///
    /// # Panics
    /// If the range lies outside the slice.
    #[inline] // called for single vectors inside SIMD regions
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn slice(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "{range:?} lies outside {} elements",
            self.len
        );
        // SAFETY: the range lies inside the borrowed slice; the caller promises that nothing else uses it meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(range.start), range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once_with_its_own_scratch() {
        for threads in [1, 2, 3] {
            let cpu = Cpu::new(threads);
            let (mut out, mut scratch) = (vec![0.0; 100], vec![0.0; threads * 32]);
            let shared = SharedMut::new(&mut out);
            cpu.for_each_scratch(100, &mut scratch, &|index, piece| {
                assert_eq!(piece.len(), 32);
                piece.fill(index as f32);
                // SAFETY: every task writes the one element of its own index.
                let one = unsafe { shared.slice(index..index + 1) };
                one[0] += piece.iter().sum::<f32>() / 32.0;
            });
            assert!(out.iter().enumerate().all(|(index, &value)| value == index as f32));
        }
    }

    #[test]
    fn chunks_are_numbered_and_the_last_may_be_short() {
        let mut elements = vec![0.0; 10];
        Cpu::new(2)
            .for_each_chunk(&mut elements, 4, &|index, chunk| chunk.fill((index * 10 + chunk.len()) as f32));
        assert_eq!(elements, [4.0, 4.0, 4.0, 4.0, 14.0, 14.0, 14.0, 14.0, 22.0, 22.0]);
    }

    #[test]
    fn empty_scratch_is_no_obstacle() {
        let cpu = Cpu::new(2);
        let count = AtomicUsize::new(0);
        cpu.for_each_scratch(5, &mut [], &|_, piece| {
            assert!(piece.is_empty());
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), 5);
    }
}
