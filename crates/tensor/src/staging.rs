//! The way of data from the host into a device's memory.

use crate::{
    Device, ViewMut,
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
    pub fn fill<R, E: From<CudaError>>(
        &mut self,
        device: &Device,
        mut to: ViewMut<'_>,
        fill: impl FnOnce(&mut [f32]) -> Result<R, E>,
    ) -> Result<R, E> {
        let Device::Cuda(cuda) = device else { return fill(to.host()) };
        self.turn ^= 1;
        let buffer = &mut self.buffers[self.turn];
        if buffer.as_ref().is_none_or(|buffer| buffer.len() != to.len()) {
            *buffer = Some(Pinned::new(cuda, to.len())?);
        }
        let buffer = buffer.as_mut().expect("made above");
        let result = fill(buffer.elements()?)?;
        buffer.copy_to(to.device())?;
        Ok(result)
    }
}
