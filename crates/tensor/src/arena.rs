//! One allocation for everything a net touches.

use crate::{
    Device, View, ViewMut,
    cuda::{CudaError, DeviceArena},
};
use std::borrow::Cow;
use thiserror::Error;

/// Offsets in an arena are multiples of this many elements, 256 bytes: what a GPU's own allocations are aligned to, and
/// several cache lines.
pub const ALIGNMENT: usize = 64;

/// A run of elements of an arena: `offset` and `len` count `f32`s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// First element; a multiple of [`ALIGNMENT`] for planned buffers.
    pub offset: usize,
    /// Number of elements.
    pub len: usize,
}

impl Span {
    fn end(&self) -> usize {
        self.offset + self.len
    }

    /// Whether the two share an element.
    pub fn overlaps(&self, other: &Span) -> bool {
        self.len > 0 && other.len > 0 && self.offset < other.end() && other.offset < self.end()
    }
}

/// How a step uses a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only read.
    Read,
    /// Written, and possibly read.
    Write,
}

/// A buffer handed out for one step.
#[derive(Debug)]
pub enum Lease<'a> {
    /// For reading.
    Read(View<'a>),
    /// For writing.
    Write(ViewMut<'a>),
}

/// Why buffers could not be handed out together.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ArenaError {
    /// A buffer to be written shares elements with another one of the same step.
    #[error("elements {first:?} and {second:?} overlap in the arena, and one of them is to be written")]
    Overlap {
        /// One buffer.
        first: Span,
        /// The other.
        second: Span,
    },
    /// A buffer lies outside the arena.
    #[error("elements {span:?} lie outside an arena of {len} elements")]
    Outside {
        /// The buffer.
        span: Span,
        /// The arena's size.
        len: usize,
    },
}

/// Memory that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MemoryError {
    /// Of the host.
    #[error("the system does not give this process {bytes} bytes of memory")]
    Host {
        /// What was asked for.
        bytes: usize,
    },
    /// Of a GPU.
    #[error(transparent)]
    Device(#[from] CudaError),
}

/// `len` zeros in host memory, which takes room only where it is written to.
///
/// # Errors
/// [`MemoryError::Host`] for more than the system gives.
pub fn zeroed<T: bytemuck::Zeroable>(len: usize) -> Result<Vec<T>, MemoryError> {
    let refused = |()| MemoryError::Host { bytes: len.saturating_mul(size_of::<T>()) };
    bytemuck::allocation::try_zeroed_vec(len).map_err(refused)
}

#[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C, align(256))]
struct Block([f32; ALIGNMENT]);

/// One zeroed, aligned allocation in a device's memory. Buffers are [`Span`]s of it; a step leases all of its buffers at
/// once.
pub struct Arena(Memory);

enum Memory {
    Host(Vec<Block>),
    Device(DeviceArena),
}

impl Arena {
    /// Room for `len` elements in host memory, rounded up to a whole [`ALIGNMENT`].
    ///
    /// # Errors
    /// The system does not give that much.
    pub fn new(len: usize) -> Result<Self, MemoryError> {
        Ok(Self(Memory::Host(zeroed(len.div_ceil(ALIGNMENT))?)))
    }

    /// Room for `len` elements in the memory of `device`, likewise.
    ///
    /// # Errors
    /// The system or the GPU has not that much memory left.
    pub fn on(device: &Device, len: usize) -> Result<Self, MemoryError> {
        match device {
            Device::Cpu(_) => Self::new(len),
            Device::Cuda(cuda) => {
                let mut arena = DeviceArena::new(cuda.stream(), len.next_multiple_of(ALIGNMENT))?;
                arena.zero()?;
                Ok(Self(Memory::Device(arena)))
            }
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match &self.0 {
            Memory::Host(blocks) => blocks.len() * ALIGNMENT,
            Memory::Device(arena) => arena.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One buffer for reading.
    ///
    /// # Panics
    /// If the span lies outside the arena.
    pub fn view(&self, span: Span) -> View<'_> {
        match &self.0 {
            Memory::Host(blocks) => View::from(&elements(blocks)[span.offset..span.end()]),
            Memory::Device(arena) => View::from(arena.view(span)),
        }
    }

    /// One buffer for writing.
    ///
    /// # Panics
    /// If the span lies outside the arena.
    pub fn view_mut(&mut self, span: Span) -> ViewMut<'_> {
        match &mut self.0 {
            Memory::Host(blocks) => ViewMut::from(&mut elements_mut(blocks)[span.offset..span.end()]),
            Memory::Device(arena) => ViewMut::from(arena.view_mut(span)),
        }
    }

    /// The elements of `span` after all work asked for so far: those of a GPU copied to the host.
    ///
    /// # Errors
    /// Work of a GPU failed, or the copy does.
    ///
    /// # Panics
    /// If the span lies outside the arena.
    pub fn read(&self, span: Span) -> Result<Cow<'_, [f32]>, CudaError> {
        match &self.0 {
            Memory::Host(_) => Ok(Cow::Borrowed(self.view(span).host())),
            Memory::Device(arena) => arena.download(span).map(Cow::Owned),
        }
    }

    /// Has `fill` write the elements of `span`: in place, or, for a GPU, on the host, to be copied there.
    ///
    /// # Errors
    /// What `fill` returns, or a GPU is lost.
    ///
    /// # Panics
    /// If the span lies outside the arena.
    pub fn fill<R, E: From<CudaError>>(
        &mut self,
        span: Span,
        fill: impl FnOnce(&mut [f32]) -> Result<R, E>,
    ) -> Result<R, E> {
        let Memory::Device(arena) = &mut self.0 else { return fill(self.view_mut(span).host()) };
        let mut values = vec![0.0; span.len];
        let result = fill(&mut values)?;
        arena.upload(span, &values)?;
        Ok(result)
    }

    /// Several buffers at once, in the order of `requests`. A written buffer may overlap no other one.
    ///
    /// # Errors
    /// [`ArenaError`] for an overlap with a written buffer or a buffer outside the arena.
    pub fn lease(&mut self, requests: &[(Span, Access)]) -> Result<Vec<Lease<'_>>, ArenaError> {
        let blocks = match &mut self.0 {
            Memory::Host(blocks) => blocks,
            Memory::Device(arena) => return arena.lease(requests),
        };
        check(requests, blocks.len() * ALIGNMENT)?;
        let base = elements_mut(blocks).as_mut_ptr();
        let lease = |&(span, access): &(Span, Access)| match access {
            // SAFETY: `check` found the span inside the allocation and free of overlap with every written span; the
            // result borrows the arena mutably, so nothing else reaches these elements while it lives.
            Access::Read => Lease::Read(View::from(unsafe {
                std::slice::from_raw_parts(base.add(span.offset).cast_const(), span.len)
            })),
            // SAFETY: as above, and `check` found that no other request shares an element with this one.
            Access::Write => Lease::Write(ViewMut::from(unsafe {
                std::slice::from_raw_parts_mut(base.add(span.offset), span.len)
            })),
        };
        Ok(requests.iter().map(lease).collect())
    }
}

fn elements(blocks: &[Block]) -> &[f32] {
    bytemuck::cast_slice(blocks)
}

fn elements_mut(blocks: &mut [Block]) -> &mut [f32] {
    bytemuck::cast_slice_mut(blocks)
}

/// What [`Arena::lease`] promises, for an arena of `len` elements on any device.
pub(crate) fn check(requests: &[(Span, Access)], len: usize) -> Result<(), ArenaError> {
    let is_outside = |span: &Span| span.offset.checked_add(span.len).is_none_or(|end| end > len);
    if let Some(&(span, _)) = requests.iter().find(|(span, _)| is_outside(span)) {
        return Err(ArenaError::Outside { span, len });
    }
    let mut sorted: Vec<_> = requests.iter().filter(|(span, _)| span.len > 0).collect();
    sorted.sort_unstable_by_key(|(span, _)| span.offset);
    // By rising offset, what a span can overlap is the one of furthest end before it, or, if it is only read, the written
    // one of furthest end.
    let [mut furthest, mut furthest_written] = [Span::default(); 2];
    for &&(span, access) in &sorted {
        let other = if access == Access::Write { furthest } else { furthest_written };
        if other.overlaps(&span) {
            return Err(ArenaError::Overlap { first: other, second: span });
        }
        if access == Access::Write {
            furthest_written = span; // as it overlaps none before it, it ends behind them all
        }
        if span.end() > furthest.end() {
            furthest = span;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Span = Span { offset: 0, len: 16 };
    const B: Span = Span { offset: 64, len: 10 };

    #[test]
    fn hands_out_disjoint_buffers_together() {
        let mut arena = Arena::new(74).unwrap();
        let leases = arena.lease(&[(A, Access::Read), (B, Access::Write), (A, Access::Read)]).unwrap();
        let [Lease::Read(a), Lease::Write(mut b), Lease::Read(_)] =
            <[Lease<'_>; 3]>::try_from(leases).unwrap()
        else {
            panic!("leases come in the order of the requests")
        };
        b.host().fill(a.host()[0] + 2.0);
        assert_eq!(arena.view(B).host(), [2.0; 10]);
        assert_eq!(arena.view(A).host(), [0.0; 16]);
        assert_eq!(arena.view(A).host().as_ptr().align_offset(256), 0);
    }

    #[test]
    fn memory_that_cannot_be_had_is_an_error() {
        for len in [1 << 50, usize::MAX] {
            let error = Arena::new(len).map(|arena| arena.len()).unwrap_err();
            assert!(error.to_string().starts_with("the system does not give this process"), "{error}");
        }
    }

    #[test]
    fn refuses_a_written_overlap_and_a_span_outside() {
        let mut arena = Arena::new(64).unwrap();
        let inner = Span { offset: 8, len: 4 };
        for (first, second) in [(Access::Read, Access::Write), (Access::Write, Access::Read)] {
            let error = arena.lease(&[(A, first), (inner, second)]).unwrap_err();
            assert_eq!(error, ArenaError::Overlap { first: A, second: inner });
        }
        let outside = Span { offset: 62, len: 3 };
        assert_eq!(
            arena.lease(&[(outside, Access::Read)]).unwrap_err(),
            ArenaError::Outside { span: outside, len: 64 }
        );
        assert!(arena.lease(&[(Span { offset: 4, len: 0 }, Access::Write), (A, Access::Write)]).is_ok());
    }

    /// Against the definition, pair by pair.
    #[test]
    fn overlaps_are_found_whatever_the_order() {
        use rand::RngExt;
        let mut rng = crate::rng::stream(3, 0);
        let mut refused = 0;
        for _ in 0..2000 {
            let requests: Vec<(Span, Access)> = (0..rng.random_range(1..8))
                .map(|_| {
                    let span = Span { offset: rng.random_range(0..60), len: rng.random_range(0..12) };
                    (span, if rng.random_range(0..3) == 0 { Access::Write } else { Access::Read })
                })
                .collect();
            let clash = |i: usize, j: usize| {
                let ((a, how_a), (b, how_b)) = (requests[i], requests[j]);
                a.overlaps(&b) && (how_a == Access::Write || how_b == Access::Write)
            };
            let overlap = (0..requests.len()).any(|i| (0..i).any(|j| clash(i, j)));
            assert_eq!(check(&requests, 80).is_err(), overlap, "{requests:?}");
            refused += usize::from(overlap);
        }
        assert!((500..1900).contains(&refused), "{refused} of 2000");
    }

    #[test]
    fn twenty_thousand_buffers_are_checked_at_once() {
        let requests: Vec<_> =
            (0..20_000).map(|i| (Span { offset: i * 64, len: 64 }, Access::Write)).collect();
        let start = std::time::Instant::now();
        (0..50).for_each(|_| check(&requests, 20_000 * 64).unwrap());
        assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
    }
}
