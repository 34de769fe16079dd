//! What stands for a GPU in a build without the feature `cuda`: types of which no value is ever made, so that nothing
//! here runs.

use super::{Absent, CudaDeviceInfo, CudaDevices, CudaError, Grid, Result, Source};
use crate::{Address, Element, Format, View, ViewMut};

const NOT_BUILT: &str =
    "this build has no CUDA: its feature `cuda` is off, and NVIDIA GPUs are not looked for";

fn none() -> ! {
    unreachable!("a build without CUDA opens no GPU")
}

/// Says that this build has no CUDA.
pub fn probe() -> Result<CudaDevices, Absent> {
    Err(Absent(NOT_BUILT.to_owned()))
}

impl CudaDevices {
    /// Says that this build has no CUDA.
    pub fn open(&self, ordinal: usize) -> Result<Cuda> {
        Err(CudaError::new(format!("opening GPU {ordinal}"), NOT_BUILT))
    }
}

/// `visibility type [fields] { signature } ..;`: types that are never made, with what is used of them in a build with
/// CUDA.
macro_rules! never {
    ($($visible:vis $type:ident $([$($fields:tt)*])? $({ $($signature:tt)* })*;)+) => {$(
        #[allow(missing_docs, dead_code)]
        #[derive(Clone, Debug)]
        $visible struct $type {
            $($($fields)*,)?
            never: std::convert::Infallible,
        }

        #[allow(missing_docs, clippy::missing_safety_doc, dead_code)]
        impl $type {
            $($($signature)* {
                none()
            })*
        }
    )+};
}

never! {
    pub Cuda [pub tf32: bool, pub format: Format]
        { pub fn info(&self) -> &CudaDeviceInfo }
        { pub fn stream(&self) -> &Stream }
        { pub fn new_stream(&self) -> Result<Stream> }
        { pub fn memory(&self) -> Result<[u64; 2]> }
        { pub fn note(&self, _: Result<()>) }
        { pub fn check(&self) -> Result<()> }
        { pub fn scratch<R>(&self, _: impl FnOnce(ViewMut<'_>) -> R) -> R }
        { pub fn own_bytes(&self) -> u64 }
        { pub fn fault_address(&self) -> u64 }
        { pub fn take_fault(&self) -> Option<[u32; 4]> }
        { pub fn is_recording(&self) -> bool }
        { pub unsafe fn launch(&self, _: &'static Source, _: &'static str, _: Grid, _: &[&[u8]]) }
        { pub fn record<E: From<CudaError>>(&self, _: impl FnOnce() -> Result<(), E>) -> Result<CudaGraph, E> };
    pub Stream
        { pub fn synchronize(&self) -> Result<()> }
        { pub fn wait(&self, _: &Event) -> Result<()> }
        { pub fn event(&self) -> Result<Event> }
        { pub fn copy(&self, _: View<'_>, _: ViewMut<'_>) -> Result<()> }
        { pub fn set(&self, _: ViewMut<'_>, _: u8) -> Result<()> }
        { pub fn upload<T: Element>(&self, _: &[T], _: ViewMut<'_>) -> Result<()> }
        { pub fn download<T: Element>(&self, _: View<'_>, _: &mut [T]) -> Result<()> };
    pub Event
        { pub fn record(&self) -> Result<()> }
        { pub fn wait(&self) -> Result<()> }
        { pub fn elapsed_ms(&self, _: &Event) -> Result<f64> };
    pub Pinned
        { pub fn new(_: &Stream, _: usize) -> Result<Self> }
        { pub fn len(&self) -> usize }
        { pub fn elements<T: Element>(&mut self) -> Result<&mut [T]> }
        { pub fn copy_to(&mut self, _: ViewMut<'_>) -> Result<()> }
        { pub unsafe fn upload_in(&self, _: &Stream, _: usize, _: ViewMut<'_>) -> Result<()> }
        { pub unsafe fn download_in(&self, _: &Stream, _: View<'_>, _: usize) -> Result<()> };
    pub Communicator
        { pub fn unique_id() -> Result<Vec<u8>> }
        { pub unsafe fn new(_: &Stream, _: &[u8], _: (usize, usize), _: View<'_>, _: u8) -> Result<Self> }
        { pub unsafe fn sum(&self, _: &Stream, _: Option<View<'_>>, _: ViewMut<'_>) -> Result<()> }
        { pub fn abort(&self) };
    pub CudaGraph
        { pub unsafe fn replay(&mut self) -> Result<()> };
    pub(crate) DeviceMemory [pub(crate) stream: Stream]
        { pub(crate) fn new(_: &Stream, _: usize, _: usize) -> Result<Self> }
        { pub(crate) fn len(&self) -> usize }
        { pub(crate) fn address(&self) -> Address };
}
