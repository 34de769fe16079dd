//! One allocation for everything a net touches.

use crate::cuda::{CudaError, DeviceMemory, Stream};
use crate::{ALIGNMENT, Address, Device, Element, Format, Span, TaggedBytes, View, ViewMut};
use std::{borrow::Cow, fmt};
use thiserror::Error;

/// Why buffers could not be handed out together, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ArenaError(String);

/// Memory that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MemoryError {
    /// Of the host.
    #[error("the system does not give this process {bytes} bytes of memory")]
    Host {
        /// The bytes.
        bytes: usize,
    },
    /// Of a GPU.
    #[error(transparent)]
    Device(#[from] CudaError),
}

#[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C, align(256))]
struct Block([u8; ALIGNMENT]);

/// One aligned allocation in a device's memory. Buffers are [`Span`]s of it; a step leases all of its buffers at once.
pub struct Arena(Memory);

enum Memory {
    Host(Vec<Block>),
    Device(DeviceMemory),
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arena({} bytes)", self.len())
    }
}

/// What [`Arena::lease_all`] hands out: for reading, and for writing.
pub type Leases<'a> = (Vec<View<'a>>, Vec<ViewMut<'a>>);

impl Arena {
    /// `len` bytes of host memory, rounded up to a multiple of [`ALIGNMENT`], all 0. They take room only where they are
    /// written to.
    pub fn new(len: usize) -> Result<Self, MemoryError> {
        let blocks = len.div_ceil(ALIGNMENT);
        let refused = |()| MemoryError::Host { bytes: blocks.saturating_mul(ALIGNMENT) };
        Ok(Self(Memory::Host(bytemuck::allocation::try_zeroed_vec(blocks).map_err(refused)?)))
    }

    /// The same in the memory of `device`.
    pub fn on(device: &Device, len: usize) -> Result<Self, MemoryError> {
        Self::among(1, device, len)
    }

    /// The same in the memory of a rank's `device`; GPUs of the other ranks can read it, where there is a way.
    pub fn among(ranks: usize, device: &Device, len: usize) -> Result<Self, MemoryError> {
        let Device::Cuda(cuda) = device else { return Self::new(len) };
        let mut arena = Self(Memory::Device(DeviceMemory::new(cuda.stream(), len, ranks)?));
        arena.set(arena.all(), 0)?;
        Ok(arena)
    }

    /// The same in the memory of `stream`'s GPU, with the contents that it had before.
    pub fn unset(stream: &Stream, len: usize) -> Result<Self, CudaError> {
        DeviceMemory::new(stream, len, 1).map(|memory| Self(Memory::Device(memory)))
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Memory::Host(blocks) => size_of_val(blocks.as_slice()),
            Memory::Device(memory) => memory.len(),
        }
    }

    /// All of its bytes.
    pub fn all(&self) -> Span {
        Span::bytes(0, self.len())
    }

    /// One buffer for reading.
    ///
    /// # Panics
    /// If the span lies outside the arena.
    pub fn view(&self, span: Span) -> View<'_> {
        check(&[span], &[], self.len()).expect("a span of the arena");
        let base = match &self.0 {
            Memory::Host(blocks) => Address::Host(blocks.as_ptr().cast_mut().cast()),
            Memory::Device(memory) => memory.address(),
        };
        // SAFETY: the span lies inside the allocation, which is borrowed.
        unsafe { part(base, span) }
    }

    /// One buffer for writing.
    ///
    /// # Panics
    /// If the span lies outside the arena.
    pub fn view_mut(&mut self, span: Span) -> ViewMut<'_> {
        let ([], [view]) = self.lease([], [span]).expect("a span of the arena");
        view
    }

    /// Several buffers at once, to read and to write. A buffer to be written may overlap no other one.
    ///
    /// # Errors
    /// [`ArenaError`] for an overlap with a written buffer or a buffer outside the arena.
    pub fn lease<const R: usize, const W: usize>(
        &mut self,
        reads: [Span; R],
        writes: [Span; W],
    ) -> Result<([View<'_>; R], [ViewMut<'_>; W]), ArenaError> {
        let (reads, writes) = self.lease_all(&reads, &writes)?;
        let of_all = "a view of every span";
        Ok((reads.try_into().expect(of_all), writes.try_into().expect(of_all)))
    }

    /// As [`Arena::lease`] for any number of buffers.
    pub fn lease_all(&mut self, reads: &[Span], writes: &[Span]) -> Result<Leases<'_>, ArenaError> {
        check(reads, writes, self.len())?;
        let base = match &mut self.0 {
            Memory::Host(blocks) => Address::Host(blocks.as_mut_ptr().cast()),
            Memory::Device(memory) => memory.address(),
        };
        // SAFETY: `check` found what `part` demands.
        let reads = reads.iter().map(|&span| unsafe { part(base, span) });
        // SAFETY: as above.
        Ok((reads.collect(), writes.iter().map(|&span| unsafe { part(base, span) }).collect()))
    }

    /// The elements of `span` after all work enqueued so far: those of a GPU copied to the host.
    ///
    /// # Panics
    /// If the span lies outside the arena, or its elements are of another type.
    pub fn read<T: Element>(&self, span: Span) -> Result<Cow<'_, [T]>, CudaError> {
        let view = self.view(span);
        match &self.0 {
            Memory::Host(_) => Ok(Cow::Borrowed(view.host())),
            Memory::Device(memory) => {
                let mut values = vec![T::zeroed(); view.len()];
                memory.stream.download(view, &mut values)?;
                Ok(Cow::Owned(values))
            }
        }
    }

    /// Has `fill` write the elements of `span`: in place, or, for a GPU, on the host, to be copied there.
    ///
    /// # Panics
    /// As [`Arena::read`].
    pub fn fill<T: Element>(&mut self, span: Span, fill: impl FnOnce(&mut [T])) -> Result<(), CudaError> {
        let Memory::Device(memory) = &self.0 else {
            fill(self.view_mut(span).host());
            return Ok(());
        };
        let stream = memory.stream.clone();
        let mut values = vec![T::zeroed(); self.view(span).len()];
        fill(&mut values);
        stream.upload(&values, self.view_mut(span))
    }

    /// Fills `span` with the values of `pattern`, over and over.
    ///
    /// # Panics
    /// As [`Arena::read`], or if there are no values.
    pub fn repeat<T: Element>(&mut self, span: Span, pattern: &[T]) -> Result<(), CudaError> {
        assert!(!pattern.is_empty(), "no values to repeat");
        let Memory::Device(memory) = &self.0 else {
            let values = self.view_mut(span).into_host::<T>();
            values.chunks_mut(pattern.len()).for_each(|to| to.copy_from_slice(&pattern[..to.len()]));
            return Ok(());
        };
        let (stream, len) = (memory.stream.clone(), self.view(span).len());
        let mut filled = pattern.len().min(len);
        stream.upload(&pattern[..filled], self.view_mut(span.slice(0..filled)))?;
        while filled < len {
            // What is there already is copied behind itself: the pattern doubles with every copy.
            let more = filled.min(len - filled);
            let spans = [span.slice(0..more), span.slice(filled..filled + more)];
            let ([from], [to]) = self.lease([spans[0]], [spans[1]]).expect("one behind the other");
            stream.copy(from, to)?;
            filled += more;
        }
        Ok(())
    }

    /// Sets every byte of `span`: with 0 numbers are 0, with 0xff they are NaN, which must not be read.
    ///
    /// # Panics
    /// If the span lies outside the arena.
    pub fn set(&mut self, span: Span, byte: u8) -> Result<(), CudaError> {
        let Memory::Device(memory) = &self.0 else {
            self.view_mut(span.tagged(Format::U8)).host::<u8>().fill(byte);
            return Ok(());
        };
        memory.stream.clone().set(self.view_mut(span), byte)
    }
}

/// What [`Arena::lease`] promises, for an arena of `len` bytes.
fn check(reads: &[Span], writes: &[Span], len: usize) -> Result<(), ArenaError> {
    let is_outside = |span: &&Span| span.offset.checked_add(span.len).is_none_or(|end| end > len);
    if let Some(span) = reads.iter().chain(writes).find(is_outside) {
        return Err(ArenaError(format!("{span:?} lies outside an arena of {len} bytes")));
    }
    let mut written: Vec<&Span> = writes.iter().filter(|span| span.len > 0).collect();
    written.sort_unstable_by_key(|span| span.offset);
    // Written spans that lie apart also end in this order: if any overlaps one that is read, the last to begin before
    // its end does.
    let last_before = |end: usize| written.partition_point(|span| span.offset < end).checked_sub(1);
    let reads = reads.iter().filter_map(|read| Some([written[last_before(read.end())?], read]));
    let mut pairs = written.windows(2).map(|pair| [pair[0], pair[1]]).chain(reads);
    let Some(mut pair) = pairs.find(|[one, other]| one.overlaps(other)) else { return Ok(()) };
    pair.sort_by_key(|span| span.offset);
    let [one, other] = pair;
    let reason = format!("{one:?} and {other:?} overlap in the arena, and one of them is to be written");
    Err(ArenaError(reason))
}

/// # Safety
/// The span lies inside the allocation at `base`, which is borrowed as long as `B` lives, mutably if anything is
/// written; a span to be written overlaps no other one.
unsafe fn part<B>(base: Address, span: Span) -> TaggedBytes<B> {
    // SAFETY: the caller's promise.
    unsafe { TaggedBytes::from_raw(base.offset(span.offset), span.len, span.format) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cursor, cuda::probe};

    const A: Span = Span { offset: 0, len: 64, format: Format::F32 };
    const B: Span = Span { offset: 256, len: 40, format: Format::F32 };

    #[test]
    fn hands_out_disjoint_buffers_together() {
        let mut arena = Arena::new(296).unwrap();
        let ([a, _], [mut b]) = arena.lease([A, A], [B]).unwrap();
        b.host::<f32>().fill(a.host::<f32>()[0] + 2.0);
        assert_eq!(arena.view(B).host::<f32>(), [2.0; 10]);
        assert_eq!(arena.view(A).host::<f32>(), [0.0; 16]);
        assert_eq!(arena.view(A).host::<f32>().as_ptr().align_offset(ALIGNMENT), 0);
        let (reads, writes) = arena.lease_all(&[A], &[B]).unwrap();
        assert_eq!((reads[0].len(), writes[0].len()), (16, 10));
    }

    #[test]
    fn memory_that_cannot_be_had_is_an_error() {
        for len in [1 << 52, usize::MAX] {
            let error = Arena::new(len).map(|arena| arena.len()).unwrap_err();
            assert!(error.to_string().starts_with("the system does not give this process"), "{error}");
        }
    }

    #[test]
    fn refuses_a_written_overlap_and_a_span_outside() {
        let mut arena = Arena::new(256).unwrap();
        let inner = Span { offset: 32, len: 16, ..A };
        for (reads, writes) in [(&[A][..], &[inner][..]), (&[inner], &[A]), (&[], &[A, inner])] {
            let error = arena.lease_all(reads, writes).unwrap_err();
            let overlap =
                format!("{A:?} and {inner:?} overlap in the arena, and one of them is to be written");
            assert_eq!(error.to_string(), overlap);
        }
        let outside = Span::bytes(250, 7);
        let error = arena.lease([outside], []).unwrap_err();
        assert_eq!(error.to_string(), format!("{outside:?} lies outside an arena of 256 bytes"));
        assert!(arena.lease([], [Span::bytes(4, 0), A]).is_ok());
        assert!(arena.lease([A, inner], []).is_ok());
    }

    /// Against the definition, pair by pair.
    #[test]
    fn overlaps_are_found_whatever_the_order() {
        use rand::RngExt;
        let mut rng = crate::rng::stream(3, 0);
        let mut refused = 0;
        for _ in 0..2000 {
            let mut draw = |most: usize| -> Vec<Span> {
                let count = rng.random_range(0..most);
                (0..count).map(|_| Span::bytes(rng.random_range(0..60), rng.random_range(0..12))).collect()
            };
            let (reads, writes) = (draw(6), draw(4));
            let clash = |i: usize| reads.iter().chain(&writes[..i]).any(|other| other.overlaps(&writes[i]));
            let overlap = (0..writes.len()).any(clash);
            assert_eq!(check(&reads, &writes, 80).is_err(), overlap, "{reads:?} {writes:?}");
            refused += usize::from(overlap);
        }
        assert!((500..1900).contains(&refused), "{refused} of 2000");
    }

    #[test]
    fn twenty_thousand_buffers_are_checked_at_once() {
        let writes: Vec<_> = (0..20_000).map(|i| Span::bytes(i * 64, 64)).collect();
        let start = std::time::Instant::now();
        (0..50).for_each(|_| check(&[], &writes, 20_000 * 64).unwrap());
        assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
    }

    /// What the memory of every device does.
    fn memory_holds_what_was_put_there(mut arena: Arena) {
        let mut cursor = Cursor::default();
        let [a, b] = [60, 100].map(|len| cursor.take(Format::F32, len));
        assert_eq!((b.offset, cursor.end(), arena.len()), (256, 768, 768));
        arena.set(arena.all(), 0xff).unwrap();
        arena.repeat(b, &[1.0f32, 2.0, 3.0]).unwrap();
        arena.fill(a.slice(2..4), |values: &mut [f32]| values.copy_from_slice(&[7.0, 8.0])).unwrap();
        let values = arena.read::<f32>(a).unwrap();
        assert_eq!(values[2..4], [7.0, 8.0]);
        assert!(values[..2].iter().chain(&values[4..]).all(|value| value.is_nan()));
        let values = arena.read::<f32>(b).unwrap();
        assert!(values.iter().enumerate().all(|(i, &value)| value == [1.0, 2.0, 3.0][i % 3]));
    }

    #[test]
    fn memory_of_the_host_holds_what_was_put_there() {
        memory_holds_what_was_put_there(Arena::new(700).unwrap());
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn cuda_memory_holds_what_was_put_there() {
        let cuda = probe().unwrap().open(0).unwrap();
        memory_holds_what_was_put_there(Arena::unset(cuda.stream(), 700).unwrap());
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn cuda_too_much_memory_is_an_error_and_the_device_lives_on() {
        let cuda = probe().unwrap().open(0).unwrap();
        let Err(error) = Arena::unset(cuda.stream(), 1 << 52) else { panic!("4 PiB") };
        assert!(error.to_string().contains("OUT_OF_MEMORY"), "{error}");
        assert!(Arena::unset(cuda.stream(), 16).is_ok());
    }
}
