//! What measuring needs of the CUDA driver.

use crate::cudnn::{Owned, Raw, done};
use crate::shared::warn;
use planner::{Bytes, DeviceHeader};
use std::ffi::{CStr, c_int};
use std::{fs, iter::zip};

/// The GPU that the calling thread has selected.
pub(crate) fn current_device() -> Option<c_int> {
    let mut device: c_int = 0;
    // SAFETY: a number is written to.
    unsafe { done!("cuCtxGetDevice", (&mut device)) }.then_some(device)
}

/// What identifies measurements of a GPU: its name and memory, cuDNN and the driver.
pub(crate) fn header(device: c_int) -> Option<DeviceHeader> {
    let (mut name, mut bytes, mut version) = ([0u8; 256], 0usize, [0 as c_int; 3]);
    // SAFETY: all of it is written to, a name of at most 255 letters and a zero.
    let is_read = unsafe {
        done!("cuDeviceGetName", (name.as_mut_ptr(), 256 as c_int, device))
            && done!("cuDeviceTotalMem_v2", (&mut bytes, device))
            // Its major version (0), minor version and patch level.
            && zip(0 as c_int.., &mut version).all(|(part, number)| done!("cudnnGetProperty", (part, number)))
    };
    if !is_read {
        warn("measurements are not kept: the driver or cuDNN does not say what it is");
        return None;
    }
    let name = CStr::from_bytes_until_nul(&name).map(CStr::to_string_lossy).unwrap_or_default();
    let [major, minor, patch] = version;
    // `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  ...`
    let text = fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let driver = text.lines().next().unwrap_or("a driver of unknown version");
    Some(DeviceHeader {
        name: format!("{name} with {}", Bytes(bytes as u64)),
        library_version: format!("cuDNN {major}.{minor}.{patch} by its legacy API, {driver}"),
        command: "libmicrobatch_cudnn.so".to_owned(),
        ..DeviceHeader::default()
    })
}

/// Whether work in `stream`, that of a living handle, is recorded instead of done. An error says so too: the legacy
/// default stream must not be used while another one is captured.
pub(crate) fn is_recording(stream: Raw) -> bool {
    let mut state: c_int = 0;
    // SAFETY: a number is written to.
    unsafe { !done!("cuStreamIsCapturing", (stream, &mut state)) || state != 0 }
}

/// The number of a stream, which no other stream of the process ever has.
pub(crate) fn stream_number(stream: Raw) -> Option<u64> {
    let mut number = 0u64;
    // SAFETY: a number is written to.
    unsafe { done!("cuStreamGetId", (stream, &mut number)) }.then_some(number)
}

/// `len` bytes of memory of the current GPU, if there is room. To free it waits for what still works on it.
pub(crate) fn memory(len: usize) -> Option<Owned> {
    // SAFETY: an address is written to; no bytes have none.
    unsafe { Owned::new("cuMemFree_v2", |address| len == 0 || done!("cuMemAlloc_v2", (address, len))) }
}

/// Does work that neither disturbs nor is forbidden by captures of streams in other threads.
pub(crate) fn relaxed<R>(work: impl FnOnce() -> R) -> R {
    // `CU_STREAM_CAPTURE_MODE_RELAXED`; afterwards this thread's mode from before.
    let mut mode: c_int = 2;
    // SAFETY: the mode is exchanged for the one before.
    let mut exchange = || unsafe { done!("cuThreadExchangeStreamCaptureMode", (&mut mode)) };
    exchange();
    let done = work();
    exchange();
    done
}

/// Two events of the current GPU, which time what is between them.
pub(crate) struct Clock {
    stream: Raw,
    events: [Owned; 2],
}

impl Clock {
    /// A clock for the work of `stream`, that of a handle that outlives it.
    pub(crate) fn new(stream: Raw) -> Option<Self> {
        // SAFETY: an event is written to.
        let event =
            || unsafe { Owned::new("cuEventDestroy_v2", |event| done!("cuEventCreate", (event, 0u32))) };
        Some(Self { stream, events: [event()?, event()?] })
    }

    /// Milliseconds that the GPU takes for what `launch` launches; nothing if that fails or the GPU does.
    pub(crate) fn time_ms(&self, launch: impl FnOnce() -> bool) -> Option<f64> {
        let (stream, [start, end], mut ms) =
            (self.stream, self.events.each_ref().map(|event| event.raw), 0f32);
        // SAFETY: both events are ours, and the stream is alive.
        let timed = unsafe {
            done!("cuEventRecord", (start, stream))
                && launch()
                && done!("cuEventRecord", (end, stream))
                && done!("cuEventSynchronize", (end))
                && done!("cuEventElapsedTime", (&mut ms, start, end))
        };
        timed.then_some(f64::from(ms))
    }
}
