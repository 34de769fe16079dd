//! What stands for a GPU in a build without the feature `cuda`: types of which no value is ever made, so that nothing
//! here runs.

use super::{Absent, Arg, CudaDeviceInfo, CudaDevices, CudaError, Grid, Source};
use crate::{Address, Element, Format, View, ViewMut};

type Done = Result<(), CudaError>;

const NOT_BUILT: &str =
    "this build has no CUDA: its feature `cuda` is off, and NVIDIA GPUs are not looked for";

fn none() -> ! {
    unreachable!("a build without CUDA opens no GPU")
}

/// Says that this build has no CUDA.
///
/// # Errors
/// Always.
pub fn probe() -> Result<CudaDevices, Absent> {
    Err(Absent(NOT_BUILT.to_owned()))
}

impl CudaDevices {
    /// Says that this build has no CUDA.
    ///
    /// # Errors
    /// Always.
    pub fn open(&self, ordinal: usize) -> Result<Cuda, CudaError> {
        Err(CudaError::new(format!("opening GPU {ordinal}"), NOT_BUILT))
    }
}

/// `type { method(arguments) -> result; .. }`: types that are never made, as they are called in a build with CUDA.
macro_rules! never {
    ($($visible:vis $type:ident { $($name:ident($($argument:ty),*) $(-> $result:ty)?;)* })+) => {$(
        #[allow(missing_docs)]
        #[derive(Clone, Debug)]
        #[allow(dead_code)]
        $visible struct $type(());

        #[allow(missing_docs, dead_code)]
        impl $type {
            $($visible fn $name(&self $(, _: $argument)*) $(-> $result)? {
                none()
            })*
        }
    )+};
}

never! {
    pub Cuda {
        allows_tf32() -> bool;
        format() -> Format;
        info() -> &CudaDeviceInfo;
        versions() -> &str;
        stream() -> &Stream;
        new_stream() -> Result<Stream, CudaError>;
        multiprocessors() -> u32;
        memory() -> Result<[u64; 2], CudaError>;
        note(Done);
        check() -> Done;
        first_failure(Done) -> Done;
        take_buffer(usize) -> Result<Pinned, CudaError>;
        give_buffer(Pinned);
        own_bytes() -> u64;
        fault_address() -> u64;
        take_fault() -> Option<[u32; 4]>;
        is_recording() -> bool;
        break_down();
    }
    pub Stream {
        bind() -> Done;
        synchronize() -> Done;
        wait(&Event) -> Done;
        event() -> Result<Event, CudaError>;
        copy(View<'_>, ViewMut<'_>) -> Done;
        set(ViewMut<'_>, u8) -> Done;
    }
    pub Event {
        record() -> Done;
        wait() -> Done;
        elapsed_ms(&Event) -> Result<f64, CudaError>;
    }
    pub Pinned {
        len() -> usize;
        is_empty() -> bool;
        copy_to(ViewMut<'_>) -> Done;
    }
    pub CudaGraph {}
    pub Communicator {
        abort();
    }
    pub(crate) DeviceMemory {
        stream() -> &Stream;
        len() -> usize;
        address() -> Address;
    }
}

/// `type { signature } ..;`: what is called otherwise.
macro_rules! never_called {
    ($($type:ident $({ $($signature:tt)* })+;)+) => {$(
        #[allow(missing_docs, clippy::missing_safety_doc)]
        impl $type {
            $($($signature)* {
                none()
            })+
        }
    )+};
}

never_called! {
    Cuda
        { pub fn with_tf32(self, _: bool) -> Self }
        { pub fn with_format(self, _: Format) -> Self }
        { pub fn scratch<R>(&self, _: impl FnOnce(ViewMut<'_>) -> R) -> R }
        { pub unsafe fn launch(&self, _: &'static Source, _: &'static str, _: Grid, _: &[Arg<'_>]) }
        { pub fn record<E: From<CudaError>>(&self, _: impl FnOnce() -> Result<(), E>) -> Result<CudaGraph, E> };
    Stream
        { pub(crate) fn upload<T: Element>(&self, _: &[T], _: ViewMut<'_>) -> Done }
        { pub(crate) fn download<T: Element>(&self, _: View<'_>, _: &mut [T]) -> Done };
    Pinned
        { pub fn new(_: &Stream, _: usize) -> Result<Self, CudaError> }
        { pub fn copy_from(&mut self, _: View<'_>) -> Done }
        { pub fn elements<T: Element>(&mut self) -> Result<&mut [T], CudaError> }
        { pub unsafe fn upload_in(&self, _: &Stream, _: usize, _: ViewMut<'_>) -> Done }
        { pub unsafe fn download_in(&self, _: &Stream, _: View<'_>, _: usize) -> Done };
    Communicator
        { pub fn unique_id() -> Result<Vec<u8>, CudaError> }
        { pub fn new(_: &Cuda, _: &[u8], _: usize, _: usize) -> Result<Self, CudaError> }
        { pub unsafe fn sum(&self, _: &Stream, _: Option<View<'_>>, _: ViewMut<'_>) -> Done };
    CudaGraph
        { pub unsafe fn replay(&mut self) -> Done };
    DeviceMemory
        { pub(crate) fn new(_: &Stream, _: usize) -> Result<Self, CudaError> };
}
