//! The way of data from the host into a device's memory.

use crate::{
    Device, Element, ViewMut,
    cuda::{CudaError, Pinned},
};

/// Buffers through which a device's memory is filled by the host: none for the processor, whose memory is written itself;
/// for a GPU two, page-locked, that take turns, so that the next mini-batch can be prepared while this one is copied.
#[derive(Debug, Default)]
pub struct Staging {
    buffers: [Option<Pinned>; 2],
    turn: usize,
}

impl Staging {
    /// Has `fill` write the elements of `to`. A GPU's copy of them is asked for, not waited for.
    ///
    /// # Errors
    /// What `fill` returns, or a GPU is lost.
    ///
    /// # Panics
    /// If they are of another type.
    pub fn fill<T: Element, R, E: From<CudaError>>(
        &mut self,
        device: &Device,
        mut to: ViewMut<'_>,
        fill: impl FnOnce(&mut [T]) -> Result<R, E>,
    ) -> Result<R, E> {
        let Device::Cuda(cuda) = device else { return fill(to.host()) };
        self.turn ^= 1;
        let buffer = &mut self.buffers[self.turn];
        if buffer.as_ref().is_none_or(|buffer| buffer.len() != to.byte_len()) {
            *buffer = Some(Pinned::new(cuda, to.byte_len())?);
        }
        let buffer = buffer.as_mut().expect("made above");
        assert_eq!(to.format().dtype, T::DTYPE, "elements are filled in as what they are");
        let result = fill(buffer.elements()?)?;
        buffer.copy_to(to)?;
        Ok(result)
    }

    /// Asks for a copy of what was filled in last, in the place of [`Staging::fill`] while a GPU's work is recorded
    /// ([`Device::is_recording`]): the host has no part in recorded work.
    ///
    /// # Errors
    /// A GPU is lost.
    ///
    /// # Panics
    /// If nothing was filled in before, or `to` is of another length.
    pub fn repeat(&mut self, to: ViewMut<'_>) -> Result<(), CudaError> {
        let buffer = self.buffers[self.turn].as_mut();
        buffer.expect("work has run before it is recorded").copy_again(to)
    }
}
