//! An iteration recorded once and replayed on a GPU: one call in the place of hundreds, each of which takes the host longer
//! than the GPU where layers are small.

use crate::error::NetError;
use tensor::{Arena, Device, Mark, cuda::Cuda};

/// Records `iterate`, which asks for one iteration in `arena` as it has run before, and times `iterations` replays of it:
/// milliseconds each. None on a processor, which has nothing to record.
///
/// # Errors
/// What `iterate` returns, such as data that has to be read anew, or a GPU that is lost.
pub(crate) fn timed(
    device: &Device,
    arena: &mut Arena,
    iterations: usize,
    iterate: impl FnOnce(&mut Arena) -> Result<(), NetError>,
) -> Result<Vec<f64>, NetError> {
    match device {
        Device::Cpu(_) => Ok(Vec::new()),
        Device::Cuda(cuda) => timed_on_gpu(cuda, device, arena, iterations, iterate),
    }
}

fn timed_on_gpu(
    cuda: &Cuda,
    device: &Device,
    arena: &mut Arena,
    iterations: usize,
    iterate: impl FnOnce(&mut Arena) -> Result<(), NetError>,
) -> Result<Vec<f64>, NetError> {
    let mut graph = cuda.record(|| iterate(arena))?;
    let mut replay = || {
        // SAFETY: the recorded work is that of a net in `arena`, which is borrowed until the device has been waited for
        // below; the CUDA kernels and the device's scratch live as long as `cuda`.
        unsafe { graph.replay() }
    };
    let mut marks: Vec<Mark> = Vec::with_capacity(iterations + 1);
    replay()?;
    for _ in 0..iterations {
        marks.push(device.mark()?);
        replay()?;
    }
    marks.push(device.mark()?);
    device.check()?;
    marks.windows(2).map(|pair| Ok(pair[0].ms_until(&pair[1])?)).collect()
}
