//! The way of values from the host into a device's memory.

use crate::cuda::{CudaError, Event, Pinned, Stream};
use crate::{ALIGNMENT, Arena, Device, Element, Format, MemoryError, Span, View, ViewMut};
use bytemuck::Pod;
use std::marker::PhantomData;

/// Buffers through which a device's memory is filled by the host: none for the processor, whose memory is written
/// itself; for a GPU two, page-locked, that take turns, so that the next values can be prepared while the last are
/// copied.
#[derive(Debug, Default)]
pub struct Staging {
    buffers: [Option<Pinned>; 2],
    turn: usize,
}

impl Staging {
    /// Has `fill` write the elements of `to`. A GPU's copy of them is launched, not waited for: `fill` waits at most
    /// for the copy before the last one.
    ///
    /// # Errors
    /// What `fill` returns, or a GPU is lost.
    ///
    /// # Panics
    /// If they are of another type, or a GPU's work is being recorded, in which the host has no part.
    pub fn fill<T: Element, R, E: From<CudaError>>(
        &mut self,
        device: &Device,
        mut to: ViewMut<'_>,
        fill: impl FnOnce(&mut [T]) -> Result<R, E>,
    ) -> Result<R, E> {
        let Device::Cuda(cuda) = device else { return fill(to.host()) };
        assert!(!cuda.is_recording(), "the host has no part in recorded work");
        self.fill_in(cuda.stream(), to, fill)
    }

    /// The same for a GPU, whose copy is launched in `stream`.
    fn fill_in<T: Element, R, E: From<CudaError>>(
        &mut self,
        stream: &Stream,
        to: ViewMut<'_>,
        fill: impl FnOnce(&mut [T]) -> Result<R, E>,
    ) -> Result<R, E> {
        self.turn ^= 1;
        let (place, len) = (&mut self.buffers[self.turn], to.byte_len());
        let fitting = place.take().filter(|buffer| buffer.len() == len);
        let buffer = place.insert(fitting.map_or_else(|| Pinned::new(stream, len), Ok)?);
        assert_eq!(to.format().dtype, T::FORMAT.dtype, "elements are filled in as what they are");
        let result = fill(buffer.elements()?)?;
        buffer.copy_to(to)?;
        Ok(result)
    }
}

/// Values that the host prepares, in any thread, while a device works: memory of their own, from which they are copied
/// in turn with the work to where it reads them. A GPU's lies on the GPU, and is filled from the host beside the work.
#[derive(Debug)]
pub struct Staged {
    memory: Arena,
    beside: Option<Beside>,
}

/// What fills it beside a GPU's work.
#[derive(Debug)]
struct Beside {
    way: Staging,
    work: Stream,
    copies: Stream,
    /// In `copies`: the values are there.
    arrived: Event,
    /// In `work`: they have been copied to where they are read.
    taken: Event,
}

impl Staged {
    /// Room for `len` bytes of values for `device`.
    pub fn new(device: &Device, len: usize) -> Result<Self, MemoryError> {
        let Device::Cuda(cuda) = device else {
            return Ok(Self { memory: Arena::new(len)?, beside: None });
        };
        let (work, copies) = (cuda.stream().clone(), cuda.new_stream()?);
        let memory = Arena::unset(&copies, len)?;
        let (arrived, taken) = (copies.event()?, work.event()?);
        Ok(Self { memory, beside: Some(Beside { way: Staging::default(), work, copies, arrived, taken }) })
    }

    /// Has `fill` write the first `len` elements. A GPU's copy of them is launched, behind that of the last ones to
    /// where they are read.
    ///
    /// # Errors
    /// What `fill` returns, or a GPU is lost.
    ///
    /// # Panics
    /// If there is no room for so many.
    pub fn fill<T: Element, R, E: From<CudaError>>(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [T]) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut to = self.memory.view_mut(Span::bytes(0, len * size_of::<T>()).tagged(T::FORMAT));
        let Some(Beside { way, copies, arrived, taken, .. }) = &mut self.beside else {
            return fill(to.host());
        };
        // Nothing is overwritten that is still read: `copy_to` had to be left before this could be called, so that
        // `taken` is recorded behind its last copy. Nor is it read before it is there: `copy_to` waits for `arrived`,
        // likewise.
        copies.wait(taken)?;
        let result = way.fill_in(copies, to, fill)?;
        arrived.record()?;
        Ok(result)
    }

    /// Copies the bytes from each of these offsets on to what stands beside it. A GPU's copies are launched in turn
    /// with its work, which waits on the device until the values have arrived.
    ///
    /// # Panics
    /// If there are fewer bytes.
    pub fn copy_to<'a>(
        &mut self,
        parts: impl IntoIterator<Item = (usize, ViewMut<'a>)>,
    ) -> Result<(), CudaError> {
        let Self { memory, beside } = self;
        let mut parts =
            parts.into_iter().map(|(offset, to)| (memory.view(Span::bytes(offset, to.byte_len())), to));
        let Some(Beside { work, arrived, taken, .. }) = beside else {
            parts.for_each(|(from, to)| to.tagged(Format::U8).into_host().copy_from_slice(from.host::<u8>()));
            return Ok(());
        };
        work.wait(arrived)?;
        parts.try_for_each(|(from, to)| work.copy(from, to))?;
        taken.record()
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Some(Beside { copies, taken, .. }) = &self.beside {
            // The memory is given back when all in its stream is done, and so the last copy from it, too. If the device
            // is lost, so is the memory.
            let _ = copies.wait(taken);
        }
    }
}

/// A value in a device's memory that the host sets between one iteration and the next: a learning rate, an iteration's
/// number. Recorded work reads it from there, so that each replay sees its own.
#[derive(Debug)]
pub struct Setting<T> {
    device: Device,
    memory: Arena,
    way: Staging,
    value: PhantomData<T>,
}

impl<T: Pod> Setting<T> {
    const SPAN: Span = Span { offset: 0, len: size_of::<T>(), format: Format::U8 };

    /// All its bytes are 0 at first.
    pub fn new(device: &Device) -> Result<Self, MemoryError> {
        let memory = Arena::on(device, ALIGNMENT)?;
        Ok(Self { device: device.clone(), memory, way: Staging::default(), value: PhantomData })
    }

    /// Sets it for all work launched from now on, and for none before.
    ///
    /// # Panics
    /// If a GPU's work is being recorded.
    pub fn set(&mut self, value: T) -> Result<(), CudaError> {
        self.way.fill(&self.device, self.memory.view_mut(Self::SPAN), |bytes| {
            bytes.copy_from_slice(bytemuck::bytes_of(&value));
            Ok(())
        })
    }

    /// Where operations find it: bytes at an address that suits any type.
    pub fn view(&self) -> View<'_> {
        self.memory.view(Self::SPAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cursor, cuda::probe};
    use std::{sync::mpsc, thread};

    /// Copies bytes in turn with the device's work.
    fn keep(device: &Device, from: View<'_>, to: ViewMut<'_>) {
        let (from, mut to) = (from.tagged(Format::U8), to.tagged(Format::U8));
        match device {
            Device::Cpu(_) => to.host::<u8>().copy_from_slice(from.host()),
            Device::Cuda(cuda) => cuda.stream().copy(from, to).unwrap(),
        }
    }

    /// More settings in a row than there are buffers.
    fn work_sees_the_setting_of_its_time(device: &Device) {
        let mut setting = Setting::<u64>::new(device).unwrap();
        let mut cursor = Cursor::default();
        let seen = [(); 8].map(|()| cursor.take(Format::U8, size_of::<u64>()));
        let mut arena = Arena::on(device, cursor.end()).unwrap();
        keep(device, setting.view(), arena.view_mut(seen[0]));
        for (number, &seen) in (1u64..).zip(&seen[1..]) {
            setting.set(number << 32 | 7).unwrap();
            keep(device, setting.view(), arena.view_mut(seen));
        }
        for (number, seen) in (0..).zip(seen) {
            let expected = if number == 0 { 0 } else { number << 32 | 7 };
            assert_eq!(arena.read::<u8>(seen).unwrap()[..], u64::to_ne_bytes(expected));
        }
    }

    #[test]
    fn work_of_the_processor_sees_the_setting_of_its_time() {
        work_sees_the_setting_of_its_time(&Device::cpu());
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn cuda_work_sees_the_setting_of_its_time() {
        work_sees_the_setting_of_its_time(&Device::Cuda(probe().unwrap().open(0).unwrap()));
    }

    /// A replay reads what was set before it, not what was there when the work was recorded.
    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn cuda_replays_see_the_setting_of_their_time() {
        let cuda = probe().unwrap().open(0).unwrap();
        let device = Device::Cuda(cuda.clone());
        let mut setting = Setting::<u64>::new(&device).unwrap();
        let mut cursor = Cursor::default();
        let [span, kept @ ..] = [(); 8].map(|()| cursor.take(Format::U8, size_of::<u64>()));
        let mut arena = Arena::on(&device, cursor.end()).unwrap();
        let copy = |arena: &mut Arena, setting: &Setting<u64>| {
            cuda.stream().copy(setting.view(), arena.view_mut(span))
        };
        let mut graph = cuda.record(|| copy(&mut arena, &setting)).unwrap();
        for (number, kept) in (1..).zip(kept) {
            setting.set(number).unwrap();
            // SAFETY: setting and arena live on, and nobody else uses them.
            unsafe { graph.replay() }.unwrap();
            let ([seen], [kept]) = arena.lease([span], [kept]).unwrap();
            keep(&device, seen, kept);
        }
        for (number, kept) in (1..).zip(kept) {
            assert_eq!(arena.read::<u8>(kept).unwrap()[..], u64::to_ne_bytes(number));
        }
    }

    /// More values than there are buffers, from another thread, which prepares the next ones while the device still has
    /// much to do before it takes the last; the same in replays.
    fn work_takes_what_was_staged_in_order(device: &Device) {
        const LEN: usize = 1 << 16;
        let mut cursor = Cursor::default();
        let spans = [Format::F32; 3].map(|format| cursor.take(format, LEN));
        let kept = [[Format::F32; 2]; 12].map(|parts| parts.map(|format| cursor.take(format, LEN)));
        let mut arena = Arena::on(device, cursor.end()).unwrap();
        let (filled, full) = mpsc::sync_channel::<Staged>(1);
        let (empty, empties) = mpsc::sync_channel::<Staged>(1);
        empty.send(Staged::new(device, 2 * LEN * size_of::<f32>()).unwrap()).unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut number = 0.0;
                while let Ok(mut staged) = empties.recv() {
                    let fill = |values: &mut [f32]| -> Result<(), CudaError> {
                        values[..LEN].fill(number);
                        values[LEN..].fill(-number);
                        Ok(())
                    };
                    staged.fill(2 * LEN, fill).unwrap();
                    number += 1.0;
                    if filled.send(staged).is_err() {
                        return;
                    }
                }
            });
            for kept in kept {
                let mut staged = full.recv().unwrap();
                let busy = if matches!(device, Device::Cuda(_)) { 200 } else { 1 };
                (0..busy).for_each(|_| device.zero(arena.view_mut(spans[2])));
                let ([], [data, labels]) = arena.lease([], [spans[0], spans[1]]).unwrap();
                staged.copy_to([(0, data), (LEN * size_of::<f32>(), labels)]).unwrap();
                empty.send(staged).unwrap();
                for (from, to) in spans.into_iter().zip(kept) {
                    let ([from], [to]) = arena.lease([from], [to]).unwrap();
                    keep(device, from, to);
                }
            }
            drop((empty, full));
        });
        for (number, parts) in (0..).zip(kept) {
            let [data, labels] = parts.map(|part| arena.read::<f32>(part).unwrap());
            assert!(data.iter().all(|&value| value == number as f32), "mini-batch {number} has {}", data[0]);
            assert!(labels.iter().all(|&value| value == -number as f32), "{number} has {}", labels[0]);
        }
    }

    #[test]
    fn work_of_the_processor_takes_what_was_staged_in_order() {
        work_takes_what_was_staged_in_order(&Device::cpu());
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn cuda_work_takes_what_was_staged_in_order() {
        work_takes_what_was_staged_in_order(&Device::Cuda(probe().unwrap().open(0).unwrap()));
    }

    /// Values are staged while work is recorded, which knows nothing of it.
    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn cuda_values_are_staged_while_work_is_recorded() {
        let cuda = probe().unwrap().open(0).unwrap();
        let device = Device::Cuda(cuda.clone());
        let mut cursor = Cursor::default();
        let spans = [Format::F32; 2].map(|format| cursor.take(format, 1000));
        let mut arena = Arena::on(&device, cursor.end()).unwrap();
        let mut staged = Staged::new(&device, 4000).unwrap();
        let fill = |staged: &mut Staged, number: f32| {
            let fill = |values: &mut [f32]| -> Result<(), CudaError> {
                values.fill(number);
                Ok(())
            };
            staged.fill(1000, fill).unwrap();
        };
        fill(&mut staged, 0.0);
        staged.copy_to([(0, arena.view_mut(spans[0]))]).unwrap();
        let mut graph = cuda.record(|| {
            thread::scope(|scope| scope.spawn(|| fill(&mut staged, 1.0)).join().unwrap());
            let ([from], [to]) = arena.lease([spans[0]], [spans[1]]).unwrap();
            cuda.stream().copy(from, to)
        });
        for number in 1..4 {
            staged.copy_to([(0, arena.view_mut(spans[0]))]).unwrap();
            // SAFETY: the arena lives on, and nobody else uses it.
            unsafe { graph.as_mut().unwrap().replay() }.unwrap();
            fill(&mut staged, (number + 1) as f32);
            assert!(arena.read::<f32>(spans[1]).unwrap().iter().all(|&value| value == number as f32));
        }
    }
}
