//! The host's memory for what is offloaded, and the copies to and from it.

use crate::error::Result;
use memory::{Action, StreamKind};
use std::collections::HashMap;
use tensor::cuda::{Cuda, CudaError, Event, Pinned, Stream};
use tensor::{Arena, Device, Mark, Span};

/// Where offloaded buffers lie.
pub(crate) enum Slab {
    /// Beside a processor, where they are copied at once, or nothing is offloaded.
    Host(Arena),
    /// Beside a GPU that computes meanwhile.
    Pinned(Box<Copies>),
}

/// Page-locked memory with a stream for each direction. Streams wait for each other on the device: between a fork and a
/// join, so that all of it can be recorded, for the actions that a schedule names.
pub(crate) struct Copies {
    cuda: Cuda,
    /// Out and in.
    streams: [Stream; 2],
    /// The ends of those actions that others wait for, by net and number.
    ends: HashMap<(usize, usize), Event>,
    forked: Event,
    joined: [Event; 2],
    memory: Pinned,
    /// What [`Slab::take_marks`] takes.
    marks: HashMap<usize, Vec<Mark>>,
}

impl Slab {
    pub(super) fn new(device: &Device, len: usize) -> Result<Self> {
        Ok(match device {
            Device::Cuda(cuda) if len > 0 => Self::Pinned(Box::new(Copies::new(cuda, len)?)),
            _ => Self::Host(Arena::new(len)?),
        })
    }

    /// The copy streams begin after all work launched so far.
    pub(super) fn fork(&mut self) -> Result<(), CudaError> {
        let Self::Pinned(copies) = self else { return Ok(()) };
        copies.forked.record()?;
        copies.streams.iter().try_for_each(|stream| stream.wait(&copies.forked))
    }

    /// Work launched from now on begins after all copies.
    pub(super) fn join(&mut self) -> Result<(), CudaError> {
        let Self::Pinned(copies) = self else { return Ok(()) };
        copies.joined.iter().try_for_each(|end| {
            end.record()?;
            copies.cuda.stream().wait(end)
        })
    }

    /// Has the stream of action number `at` of a net wait for the ends of `others`, by net and number.
    pub(super) fn wait(
        &mut self,
        (at, action): (usize, Action),
        others: impl Iterator<Item = (usize, usize)>,
        timed: bool,
    ) -> Result<(), CudaError> {
        let Self::Pinned(copies) = self else { return Ok(()) };
        let mut waits = false;
        for other in others {
            waits = true;
            copies.stream(action).wait(&copies.ends[&other])?;
        }
        copies.mark(at, action, timed && (waits || action.stream() != StreamKind::Compute))
    }

    /// Notes the end of `action`, which others wait for.
    pub(super) fn note(&mut self, key: (usize, usize), action: Action, timed: bool) -> Result<(), CudaError> {
        let Self::Pinned(copies) = self else { return Ok(()) };
        if !copies.ends.contains_key(&key) {
            let end = copies.stream(action).event()?;
            copies.ends.insert(key, end);
        }
        copies.ends[&key].record()?;
        copies.mark(key.1, action, timed && action.stream() != StreamKind::Compute)
    }

    /// Of what was timed since this was last asked: of copies, by number, their beginnings and ends, of computation that
    /// waited when it went on. Nothing beside a processor, whose copies are done when they are launched.
    pub(crate) fn take_marks(&mut self) -> HashMap<usize, Vec<Mark>> {
        match self {
            Self::Pinned(copies) => std::mem::take(&mut copies.marks),
            Self::Host(_) => HashMap::new(),
        }
    }

    /// Launches the copy that `action` is, between `there` in the arena and `here`.
    pub(super) fn copy(
        &mut self,
        arena: &mut Arena,
        action: Action,
        (there, here): (Span, Span),
    ) -> Result<(), CudaError> {
        let is_out = matches!(action, Action::Offload(_));
        match self {
            Self::Host(slab) => {
                let (from, to) = if is_out {
                    (arena.view(there), slab.view_mut(here))
                } else {
                    (slab.view(here), arena.view_mut(there))
                };
                to.into_host::<u8>().copy_from_slice(from.host::<u8>());
                Ok(())
            }
            Self::Pinned(copies) => {
                let (stream, memory) = (copies.stream(action), &copies.memory);
                // SAFETY: by the waits of the schedule, which both streams keep, nothing else uses these bytes of arena
                // and slab before the copy is done; the slab waits for the device before it is dropped.
                unsafe {
                    match is_out {
                        true => memory.download_in(stream, arena.view(there), here.offset),
                        false => memory.upload_in(stream, here.offset, arena.view_mut(there)),
                    }
                }
            }
        }
    }
}

impl Copies {
    fn new(cuda: &Cuda, len: usize) -> Result<Self, CudaError> {
        let streams = [cuda.new_stream()?, cuda.new_stream()?];
        let joined = [streams[0].event()?, streams[1].event()?];
        let (forked, memory) = (cuda.stream().event()?, Pinned::new(cuda.stream(), len)?);
        let (ends, marks) = (HashMap::new(), HashMap::new());
        Ok(Self { cuda: cuda.clone(), streams, ends, forked, joined, memory, marks })
    }

    /// Notes this point of the stream of action number `at`, if it is `wanted`.
    fn mark(&mut self, at: usize, action: Action, wanted: bool) -> Result<(), CudaError> {
        if wanted {
            let event = self.stream(action).event()?;
            event.record()?;
            self.marks.entry(at).or_default().push(Mark::Cuda(event));
        }
        Ok(())
    }

    fn stream(&self, action: Action) -> &Stream {
        match action.stream() {
            StreamKind::Compute => self.cuda.stream(),
            StreamKind::CopyOut => &self.streams[0],
            StreamKind::CopyIn => &self.streams[1],
        }
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        // What is copied to and from must live until then; a GPU that is lost copies no more.
        let _ = self.cuda.stream().synchronize();
        self.streams.iter().for_each(|stream| drop(stream.synchronize()));
    }
}
