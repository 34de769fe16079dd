//! An iteration recorded once and replayed on a GPU: one call in the place of hundreds, each of which takes the host longer
//! than the GPU where layers are small.

use crate::error::NetError;
use tensor::{Device, Mark};

/// Records `iterate`, which launches the device's part of an iteration as it has run before, and times `iterations` replays of
/// it with the host's part, `upload`: milliseconds each. None on a processor, which has nothing to record.
///
/// # Errors
/// What the two return, or a GPU that is lost.
pub(crate) fn timed<W>(
    device: &Device,
    iterations: usize,
    work: &mut W,
    iterate: impl FnOnce(&mut W) -> Result<(), NetError>,
    mut upload: impl FnMut(&mut W) -> Result<(), NetError>,
) -> Result<Vec<f64>, NetError> {
    let Device::Cuda(cuda) = device else { return Ok(Vec::new()) };
    let mut graph = cuda.record(|| iterate(work))?;
    let mut replay = || -> Result<(), NetError> {
        upload(work)?;
        // SAFETY: the recorded work is that of a net in an arena, both borrowed as `work` until the device has been waited
        // for below; the CUDA kernels and the device's scratch live as long as `cuda`.
        Ok(unsafe { graph.replay() }?)
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
