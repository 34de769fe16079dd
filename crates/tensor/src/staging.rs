//! The way of values from the host into a device's memory.

use crate::{
    ALIGNMENT, Arena, Device, Element, Format, MemoryError, Span, View, ViewMut,
    cuda::{CudaError, Pinned},
};
use bytemuck::Pod;
use std::marker::PhantomData;

/// Host memory from which a device's is filled, by any thread: page-locked for a GPU.
#[derive(Debug)]
pub enum HostBuffer {
    /// For the processor.
    Plain(Arena),
    /// For a GPU, which copies by itself.
    Pinned(Pinned),
}

impl HostBuffer {
    /// `len` bytes, all 0, for `device` or, by default, the processor.
    ///
    /// # Errors
    /// The system does not give, or lock, that much memory.
    pub fn new(device: Option<&Device>, len: usize) -> Result<Self, MemoryError> {
        Ok(match device {
            Some(Device::Cuda(cuda)) => Self::Pinned(Pinned::new(cuda.stream(), len)?),
            _ => Self::Plain(Arena::new(len)?),
        })
    }

    /// The first `len` elements, to be written, once the last copy of them is done.
    ///
    /// # Errors
    /// Work on the device failed.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn elements<T: Element>(&mut self, len: usize) -> Result<&mut [T], CudaError> {
        Ok(match self {
            Self::Plain(memory) => {
                let format = Format { dtype: T::DTYPE, ..Format::default() };
                memory.view_mut(Span { offset: 0, len: len * size_of::<T>(), format }).into_host()
            }
            Self::Pinned(memory) => &mut memory.elements()?[..len],
        })
    }

    /// Copies the first bytes to `to`; a GPU's copy is launched, not waited for.
    ///
    /// # Errors
    /// The device is lost.
    ///
    /// # Panics
    /// If `to` is longer.
    pub fn copy_to(&mut self, to: ViewMut<'_>) -> Result<(), CudaError> {
        match self {
            Self::Plain(memory) => {
                let from = memory.view(Span::bytes(0, to.byte_len()));
                to.tagged(Format::U8).into_host::<u8>().copy_from_slice(from.host());
                Ok(())
            }
            Self::Pinned(memory) => memory.copy_to(to),
        }
    }
}

/// Buffers through which a device's memory is filled by the host: none for the processor, whose memory is written itself;
/// for a GPU two, page-locked, that take turns, so that the next values can be prepared while the last are copied.
#[derive(Debug, Default)]
pub struct Staging {
    buffers: [Option<Pinned>; 2],
    turn: usize,
}

impl Staging {
    /// Has `fill` write the elements of `to`. A GPU's copy of them is launched, not waited for: `fill` waits at most for the
    /// copy before the last one.
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
        self.turn ^= 1;
        let buffer = &mut self.buffers[self.turn];
        if buffer.as_ref().is_none_or(|buffer| buffer.len() != to.byte_len()) {
            *buffer = Some(Pinned::new(cuda.stream(), to.byte_len())?);
        }
        let buffer = buffer.as_mut().expect("made above");
        assert_eq!(to.format().dtype, T::DTYPE, "elements are filled in as what they are");
        let result = fill(buffer.elements()?)?;
        buffer.copy_to(to)?;
        Ok(result)
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
    ///
    /// # Errors
    /// The device is out of memory.
    pub fn new(device: &Device) -> Result<Self, MemoryError> {
        let memory = Arena::on(device, ALIGNMENT)?;
        Ok(Self { device: device.clone(), memory, way: Staging::default(), value: PhantomData })
    }

    /// Sets it for all work launched from now on, and for none before.
    ///
    /// # Errors
    /// A GPU is lost.
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
    use crate::cuda::probe;

    /// More settings in a row than there are buffers.
    fn work_sees_the_setting_of_its_time(device: &Device) {
        let mut setting = Setting::<u64>::new(device).unwrap();
        let read = |setting: &Setting<u64>| device.read_later(setting.view()).unwrap();
        let mut seen = vec![read(&setting)];
        for number in 1..8u64 {
            setting.set(number << 32 | 7).unwrap();
            seen.push(read(&setting));
        }
        for (number, seen) in (0..).zip(seen) {
            let expected = if number == 0 { 0 } else { number << 32 | 7 };
            assert_eq!(seen.get::<u8>().unwrap(), u64::to_ne_bytes(expected));
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
        let span = Setting::<u64>::SPAN;
        let mut arena = Arena::on(&device, span.len).unwrap();
        let copy = |arena: &mut Arena, setting: &Setting<u64>| {
            cuda.stream().copy(setting.view(), arena.view_mut(span))
        };
        let mut graph = cuda.record(|| copy(&mut arena, &setting)).unwrap();
        let mut seen = Vec::new();
        for number in 1..8u64 {
            setting.set(number).unwrap();
            // SAFETY: setting and arena live on, and nobody else uses them.
            unsafe { graph.replay() }.unwrap();
            seen.push(device.read_later(arena.view(span)).unwrap());
        }
        for (number, seen) in (1..).zip(seen) {
            assert_eq!(seen.get::<u8>().unwrap(), u64::to_ne_bytes(number));
        }
    }
}
