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
    pub fn new(len: usize) -> Self {
        Self(Memory::Host(bytemuck::zeroed_vec(len.div_ceil(ALIGNMENT))))
    }

    /// Room for `len` elements in the memory of `device`, likewise.
    ///
    /// # Errors
    /// A GPU has not that much memory left.
    pub fn on(device: &Device, len: usize) -> Result<Self, CudaError> {
        match device {
            Device::Cpu(_) => Ok(Self::new(len)),
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
    for (index, &(span, access)) in requests.iter().enumerate() {
        if span.offset.checked_add(span.len).is_none_or(|end| end > len) {
            return Err(ArenaError::Outside { span, len });
        }
        for &(other, other_access) in &requests[..index] {
            if (access == Access::Write || other_access == Access::Write) && span.overlaps(&other) {
                return Err(ArenaError::Overlap { first: other, second: span });
            }
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
        let mut arena = Arena::new(74);
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
    fn refuses_a_written_overlap_and_a_span_outside() {
        let mut arena = Arena::new(64);
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
}
