//! A GPU in use.

use super::{DeviceMemory, Pinned, Stream, get_or_make, module::Modules};
use crate::cuda::{CudaDeviceInfo, CudaDevices, CudaError, Grid, Result, Source};
use crate::{Format, ViewMut};
use cudarc::driver::{CudaContext, result, sys};
use std::any::{Any, TypeId};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{collections::HashMap, fmt};

/// Bytes of the scratch that every open device owns: what cuBLAS recommends for its workspace on the largest GPUs.
const SCRATCH_LEN: usize = 32 << 20;

/// Most arguments of a CUDA kernel here.
const MOST_ARGS: usize = 32;

/// A GPU in use: its context and the one stream that all work goes through. Clones share both.
///
/// Errors are sticky, as CUDA's own are, most of which show long after the call that caused them: enqueuing work
/// returns nothing, and the first failure is kept for [`Cuda::check`].
#[derive(Clone)]
pub struct Cuda {
    stream: Stream,
    shared: Arc<Shared>,
    /// Whether products may round their factors to TF32.
    pub tf32: bool,
    /// In which format nets keep their feature maps.
    pub format: Format,
}

/// Libraries first: they are to end before what they work on.
struct Shared {
    libraries: Mutex<HashMap<TypeId, Box<dyn Any + Send>>>,
    modules: Mutex<Modules>,
    scratch: Mutex<DeviceMemory>,
    /// Sixteen bytes that CUDA kernels can write.
    fault: Mutex<Pinned>,
    failure: Mutex<Option<CudaError>>,
    info: CudaDeviceInfo,
    versions: String,
}

/// A library's handle on one device.
pub trait Library: Send + Sized + 'static {
    /// Starts it, working in `stream`, whose context is bound.
    ///
    /// # Errors
    /// The library is missing, too old, or does not work with this device.
    fn new(stream: &Stream) -> Result<Self>;
}

impl Cuda {
    /// What the device is.
    pub fn info(&self) -> &CudaDeviceInfo {
        &self.shared.info
    }

    /// The newest CUDA that the driver supports, and the driver's version.
    pub fn versions(&self) -> &str {
        &self.shared.versions
    }

    /// The stream that all work goes through but copies that are launched elsewhere.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Another stream, for copies beside the work.
    pub fn new_stream(&self) -> Result<Stream> {
        Stream::new(self.stream.0.context())
    }

    /// Bytes of device memory that are free, and all that there are.
    pub fn memory(&self) -> Result<[u64; 2]> {
        let asking = CudaError::driver("asking for the GPU's free memory");
        let (free, total) = self.stream.0.context().mem_get_info().map_err(asking)?;
        Ok([free as u64, total as u64])
    }

    /// Keeps the failure of enqueued work, if it is the first.
    pub fn note(&self, result: Result<()>) {
        if let Err(error) = result {
            lock(&self.shared.failure).get_or_insert(error);
        }
    }

    /// Waits until all work enqueued so far is done.
    ///
    /// # Errors
    /// The first failure since the device was opened.
    pub fn check(&self) -> Result<()> {
        let waited = self.stream.synchronize();
        lock(&self.shared.failure).clone().map_or(waited, Err)
    }

    /// Lends the device's own scratch of 32 MiB to one piece of work. All work goes through one stream, so it is free
    /// again for the next; its contents are unset.
    pub fn scratch<R>(&self, work: impl FnOnce(ViewMut<'_>) -> R) -> R {
        work(lock(&self.shared.scratch).view_mut())
    }

    /// Bytes of device memory that every open device takes besides its arenas and the driver's context.
    pub fn own_bytes(&self) -> u64 {
        lock(&self.shared.scratch).len() as u64
    }

    /// Uses a library, which is started at first use and ends with the device, on whose context it works. Several threads
    /// take turns; `work` cannot use another library meanwhile.
    ///
    /// # Errors
    /// The library could not be started, or what `work` returns.
    pub fn with_library<T: Library, R>(&self, work: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        self.stream.bind()?;
        let mut libraries = lock(&self.shared.libraries);
        let library = get_or_make(&mut libraries, TypeId::of::<T>(), || {
            T::new(&self.stream).map(|library| Box::new(library) as Box<dyn Any + Send>)
        })?;
        work(library.downcast_mut().expect("entered under its own type"))
    }

    /// The device address of sixteen bytes that a CUDA kernel can write, in one piece (a `uint4` whose first word is
    /// not 0), to say that its data is out of range.
    pub fn fault_address(&self) -> sys::CUdeviceptr {
        lock(&self.shared.fault).device_address()
    }

    /// What a CUDA kernel wrote there, and clears it. To be asked after [`Cuda::check`].
    pub fn take_fault(&self) -> Option<[u32; 4]> {
        let mut cell = lock(&self.shared.fault);
        // If the device is lost, that is what `check` says.
        let bytes: &mut [u8] = cell.elements().ok()?;
        let fault: [u32; 4] = bytemuck::pod_read_unaligned(bytes);
        bytes.fill(0);
        (fault[0] != 0).then_some(fault)
    }

    /// Whether work is being recorded and not done ([`Cuda::record`]).
    pub fn is_recording(&self) -> bool {
        let status = self.stream.0.capture_status();
        status.is_ok_and(|status| status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Launches the CUDA kernel `function` of `source`, and does not wait for it. A failure is kept for
    /// [`Cuda::check`].
    ///
    /// # Safety
    /// `args` are the bytes of the CUDA kernel's parameters, in order and type, and aligned as the type is. On a grid as
    /// given it touches no memory but that of the views whose addresses are among them (and of [`Cuda::fault_address`]),
    /// writes only where a view is writable, and never reads what another thread of its grid writes without
    /// synchronisation.
    ///
    /// # Panics
    /// If there are more than 32 arguments.
    pub unsafe fn launch(&self, source: &'static Source, function: &'static str, grid: Grid, args: &[&[u8]]) {
        let mut values = [std::ptr::null_mut(); MOST_ARGS];
        let values = &mut values[..args.len()];
        values.iter_mut().zip(args).for_each(|(value, arg)| *value = arg.as_ptr().cast_mut().cast());
        let Grid { blocks: [x, y, z], threads, at_once } = grid;
        if [x, y, z, threads].contains(&0) {
            return;
        }
        let launched = self.stream.bind().and_then(|()| {
            let function = lock(&self.shared.modules).function(self.stream(), source, function)?;
            let (blocks, threads) = ((x, y, z), (threads, 1, 1));
            let launch = if at_once { result::launch_cooperative_kernel } else { result::launch_kernel };
            // SAFETY: the function is loaded as long as `self` lives; `values` point to live values, of the CUDA
            // kernel's parameter types by the caller's promise, which also covers what it does.
            unsafe { launch(function, blocks, threads, 0, self.stream().raw(), values) }
                .map_err(CudaError::driver(format!("launching a CUDA kernel of {}", source.name)))
        });
        self.note(launched);
    }
}

impl CudaDevices {
    /// Opens the device `ordinal`.
    ///
    /// # Errors
    /// There is no such device, or the driver cannot open it (it may be out of memory, or taken by another process).
    pub fn open(&self, ordinal: usize) -> Result<Cuda> {
        let info = self.devices.get(ordinal).ok_or_else(|| {
            CudaError::new(format!("opening GPU {ordinal}"), format!("there are {}", self.devices.len()))
        })?;
        let what = format!("opening GPU {ordinal} ({})", info.name);
        let context = CudaContext::new(ordinal).map_err(CudaError::driver(what))?;
        // SAFETY: tracking is of cudarc's own memory, of which there is none here. With it, the first stream waits for
        // the whole GPU, which fails, and ends the recording, while another thread records.
        unsafe { context.disable_event_tracking() };
        let stream = Stream::new(&context)?;
        let shared = Shared {
            libraries: Mutex::default(),
            modules: Mutex::default(),
            scratch: Mutex::new(DeviceMemory::new(&stream, SCRATCH_LEN, 1)?),
            fault: Mutex::new(Pinned::new(&stream, size_of::<[u32; 4]>())?),
            failure: Mutex::default(),
            info: info.clone(),
            versions: self.versions.clone(),
        };
        Ok(Cuda { stream, shared: Arc::new(shared), tf32: false, format: Format::F32 })
    }
}

/// A panic elsewhere leaves nothing behind that could not be used.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cuda({}: {})", self.info().ordinal, self.info().name)
    }
}
