//! The few functions of the CUDA driver that measuring needs.

use crate::library::{Raw, function, functions, loaded, symbol};
use std::{
    ffi::{c_int, c_uint},
    ptr::null_mut,
    sync::OnceLock,
};

functions! {
    /// The driver's functions.
    Driver {
        device: function!(*mut c_int) = "cuCtxGetDevice";
        is_capturing: function!(Raw, *mut c_int) = "cuStreamIsCapturing";
        exchange_capture_mode: function!(*mut c_int) = "cuThreadExchangeStreamCaptureMode";
        allocate: function!(*mut Raw, usize) = "cuMemAlloc_v2";
        free: function!(Raw) = "cuMemFree_v2";
        create_event: function!(*mut Raw, c_uint) = "cuEventCreate";
        destroy_event: function!(Raw) = "cuEventDestroy_v2";
        record: function!(Raw, Raw) = "cuEventRecord";
        synchronize: function!(Raw) = "cuEventSynchronize";
        elapsed_ms: function!(*mut f32, Raw, Raw) = "cuEventElapsedTime";
    }
}

impl Driver {
    /// The driver, which whoever uses cuDNN on a GPU has loaded.
    pub(crate) fn get() -> Option<&'static Self> {
        static FOUND: OnceLock<Option<Driver>> = OnceLock::new();
        FOUND.get_or_init(|| Self::load(loaded("libcuda.so.1"))).as_ref()
    }

    /// The GPU that the calling thread has selected.
    pub(crate) fn current_device(&self) -> Option<c_int> {
        let mut device = 0;
        // SAFETY: a number is written to.
        (unsafe { (self.device)(&mut device) } == 0).then_some(device)
    }

    /// Whether work in `stream` is recorded instead of done. An error says so too: the legacy default stream must not be
    /// used while another one is captured.
    pub(crate) fn is_recording(&self, stream: Raw) -> bool {
        let mut state = 0;
        // SAFETY: the stream is that of a living handle; a number is written to.
        unsafe { (self.is_capturing)(stream, &mut state) != 0 || state != 0 }
    }
}

/// Memory of the current GPU, ours while it lives.
pub(crate) struct Memory<'d> {
    driver: &'d Driver,
    pub(crate) address: Raw,
    pub(crate) len: usize,
}

impl<'d> Memory<'d> {
    /// `len` bytes, if there is room.
    pub(crate) fn new(driver: &'d Driver, len: usize) -> Option<Self> {
        let mut address = null_mut();
        // SAFETY: an address is written to.
        let allocated = len == 0 || unsafe { (driver.allocate)(&mut address, len) } == 0;
        allocated.then_some(Self { driver, address, len })
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: allocated in `new`. The driver waits for what still works on it.
            unsafe { (self.driver.free)(self.address) };
        }
    }
}

/// Two events of the current GPU, which time what is between them. While they live, what this thread does neither disturbs nor
/// is forbidden by captures of other streams.
pub(crate) struct Clock<'d> {
    driver: &'d Driver,
    stream: Raw,
    events: [Raw; 2],
    /// This thread's mode of capturing from before.
    mode: c_int,
}

impl<'d> Clock<'d> {
    /// A clock for the work of `stream`.
    pub(crate) fn new(driver: &'d Driver, stream: Raw) -> Option<Self> {
        /// `CU_STREAM_CAPTURE_MODE_RELAXED`.
        const RELAXED: c_int = 2;
        let mut clock = Self { driver, stream, events: [null_mut(); 2], mode: RELAXED };
        // SAFETY: the mode is exchanged for the one before, and events are written to.
        let created = unsafe {
            (driver.exchange_capture_mode)(&mut clock.mode);
            clock.events.iter_mut().all(|event| (driver.create_event)(event, 0) == 0)
        };
        created.then_some(clock)
    }

    /// Milliseconds that the GPU takes for what `launch` launches; nothing if that fails or the GPU does.
    pub(crate) fn time_ms(&self, launch: impl FnOnce() -> bool) -> Option<f64> {
        let Self { driver, stream, events: [start, end], .. } = *self;
        let mut ms = 0.0;
        // SAFETY: both events are ours, and the stream is that of a living handle.
        let timed = unsafe {
            (driver.record)(start, stream) == 0
                && launch()
                && (driver.record)(end, stream) == 0
                && (driver.synchronize)(end) == 0
                && (driver.elapsed_ms)(&mut ms, start, end) == 0
        };
        timed.then_some(f64::from(ms))
    }
}

impl Drop for Clock<'_> {
    fn drop(&mut self) {
        // SAFETY: the events were created in `new`, the mode is the one from before, and none is used again.
        unsafe {
            self.events.iter().filter(|event| !event.is_null()).for_each(|&event| {
                (self.driver.destroy_event)(event);
            });
            (self.driver.exchange_capture_mode)(&mut self.mode);
        }
    }
}
