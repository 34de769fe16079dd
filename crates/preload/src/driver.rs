//! What measuring needs of the CUDA driver.

use crate::cudnn::{Raw, call, done};
use crate::shared::warn;
use planner::{Bytes, DeviceHeader};
use std::ffi::{CStr, c_int, c_void};
use std::{fs, iter::zip, ptr::null_mut};

/// The GPU that the calling thread has selected.
pub(crate) fn current_device() -> Option<c_int> {
    let mut device: c_int = 0;
    // SAFETY: a number is written to.
    (unsafe { call!(driver, "cuCtxGetDevice", (&mut device)) } == 0).then_some(device)
}

/// What identifies measurements of a GPU: its name and memory, cuDNN and the driver.
pub(crate) fn header(device: c_int) -> Option<DeviceHeader> {
    let (mut name, mut bytes, mut version) = ([0u8; 256], 0usize, [0 as c_int; 3]);
    // SAFETY: all of it is written to, a name of at most 255 letters and a zero.
    let is_read = unsafe {
        call!(driver, "cuDeviceGetName", (name.as_mut_ptr(), 256 as c_int, device)) == 0
            && call!(driver, "cuDeviceTotalMem_v2", (&mut bytes, device)) == 0
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
    unsafe { call!(driver, "cuStreamIsCapturing", (stream, &mut state)) != 0 || state != 0 }
}

/// The number of a stream, which no other stream of the process ever has.
pub(crate) fn stream_number(stream: Raw) -> Option<u64> {
    let mut number = 0u64;
    // SAFETY: a number is written to.
    (unsafe { call!(driver, "cuStreamGetId", (stream, &mut number)) } == 0).then_some(number)
}

/// Memory of the current GPU, ours while it lives.
pub(crate) struct Memory {
    pub(crate) address: Raw,
    pub(crate) len: usize,
}

impl Memory {
    /// `len` bytes, if there is room.
    pub(crate) fn new(len: usize) -> Option<Self> {
        let mut address = null_mut::<c_void>();
        // SAFETY: an address is written to.
        let allocated = len == 0 || unsafe { call!(driver, "cuMemAlloc_v2", (&mut address, len)) } == 0;
        allocated.then_some(Self { address, len })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: allocated in `new`. The driver waits for what still works on it.
            unsafe { call!(driver, "cuMemFree_v2", (self.address)) };
        }
    }
}

// SAFETY: memory of a GPU belongs to no thread.
unsafe impl Send for Memory {}

/// Does work that neither disturbs nor is forbidden by captures of streams in other threads.
pub(crate) fn relaxed<R>(work: impl FnOnce() -> R) -> R {
    // `CU_STREAM_CAPTURE_MODE_RELAXED`; afterwards this thread's mode from before.
    let mut mode: c_int = 2;
    // SAFETY: the mode is exchanged for the one before.
    let mut exchange = || unsafe { call!(driver, "cuThreadExchangeStreamCaptureMode", (&mut mode)) };
    exchange();
    let done = work();
    exchange();
    done
}

/// Two events of the current GPU, which time what is between them.
pub(crate) struct Clock {
    stream: Raw,
    events: [Raw; 2],
}

impl Clock {
    /// A clock for the work of `stream`, that of a handle that outlives it.
    pub(crate) fn new(stream: Raw) -> Option<Self> {
        let mut clock = Self { stream, events: [null_mut(); 2] };
        // SAFETY: events are written to.
        let create = |event| unsafe { call!(driver, "cuEventCreate", (event, 0u32)) == 0 };
        clock.events.iter_mut().all(create).then_some(clock)
    }

    /// Milliseconds that the GPU takes for what `launch` launches; nothing if that fails or the GPU does.
    pub(crate) fn time_ms(&self, launch: impl FnOnce() -> bool) -> Option<f64> {
        let (stream, [start, end], mut ms) = (self.stream, self.events, 0f32);
        // SAFETY: both events are ours, and the stream is alive.
        let timed = unsafe {
            call!(driver, "cuEventRecord", (start, stream)) == 0
                && launch()
                && call!(driver, "cuEventRecord", (end, stream)) == 0
                && call!(driver, "cuEventSynchronize", (end)) == 0
                && call!(driver, "cuEventElapsedTime", (&mut ms, start, end)) == 0
        };
        timed.then_some(f64::from(ms))
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        for event in self.events.into_iter().filter(|event| !event.is_null()) {
            // SAFETY: created in `new`, and not used again.
            unsafe { call!(driver, "cuEventDestroy_v2", (event)) };
        }
    }
}
