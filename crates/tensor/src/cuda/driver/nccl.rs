//! Sums over several GPUs by NCCL, whose library is loaded when there are several.

use super::Stream;
use crate::{ElementType, View, ViewMut, cuda::CudaError, cuda::Result};
use cudarc::driver::sys::{CUdeviceptr, CUstream};
use libloading::Library;
use std::ffi::{CStr, c_char, c_int};
use std::ptr::null_mut;
use std::sync::{Mutex, OnceLock, PoisonError};

/// NCCL's communicator, of which nothing is known.
pub(super) type Raw = *mut std::ffi::c_void;

/// NCCL's unique id.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct UniqueId([u8; 128]);

/// `ncclFloat32`, `ncclFloat64`, `ncclSum` and `NCCL_WIN_COLL_SYMMETRIC`, the same in all versions of NCCL 2.
const FLOAT: c_int = 7;
const DOUBLE: c_int = 8;
const SUM: c_int = 0;
const SYMMETRIC: c_int = 1;

/// The beginning of `ncclConfig_t`: its size, a magic number, NCCL's version, and whether calls block, blocks in a
/// cluster, and how many blocks add up, at least and at most. The rest is as NCCL or its variables have it.
#[repr(C)]
pub(super) struct Config(usize, u32, u32, [c_int; 4]);

const UNSET: c_int = c_int::MIN;

/// `name: type` of functions of the library.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) -> $result:ty;)+) => {
        #[allow(non_snake_case)]
        pub(super) struct Nccl {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)+
        }

        impl Nccl {
            fn of(library: &'static Library) -> Result<Self, libloading::Error> {
                // SAFETY: these are the declarations of `nccl.h`, and the library is never closed.
                unsafe { Ok(Self { $($name: *library.get(concat!(stringify!($name), "\0").as_bytes())?,)+ }) }
            }
        }
    };
}

functions! {
    ncclGetUniqueId: fn(*mut UniqueId) -> c_int;
    ncclCommInitRankConfig: fn(*mut Raw, c_int, UniqueId, c_int, &Config) -> c_int;
    ncclMemAlloc: fn(*mut CUdeviceptr, usize) -> c_int;
    ncclMemFree: fn(CUdeviceptr) -> c_int;
    ncclCommWindowRegister: fn(Raw, CUdeviceptr, usize, *mut Raw, c_int) -> c_int;
    ncclAllReduce: fn(u64, u64, usize, c_int, c_int, Raw, CUstream) -> c_int;
    ncclCommDestroy: fn(Raw) -> c_int;
    ncclCommAbort: fn(Raw) -> c_int;
    ncclGetErrorString: fn(c_int) -> *const c_char;
}

impl Nccl {
    pub(super) fn load() -> Result<&'static Self> {
        static NCCL: OnceLock<Result<Nccl>> = OnceLock::new();
        let open = || -> Result<Self, libloading::Error> {
            // SAFETY: NCCL's initialisers have no requirements of their loader. The first is the name of what pip
            // installs.
            let library = unsafe { Library::new("libnccl.so.2").or_else(|_| Library::new("libnccl.so")) }?;
            Self::of(Box::leak(Box::new(library)))
        };
        let absent = |error: libloading::Error| {
            let reason = format!("several GPUs need 2.27 or later on the path of libraries ({error})");
            CudaError::new("loading NCCL, libnccl.so.2,", reason)
        };
        NCCL.get_or_init(|| open().map_err(absent)).as_ref().map_err(Clone::clone)
    }

    fn check(&self, what: &str, status: c_int) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: NCCL returns a constant text for any status.
        let reason = unsafe { CStr::from_ptr((self.ncclGetErrorString)(status)) };
        Err(CudaError::new(what, format!("{} (NCCL_DEBUG=WARN tells more)", reason.to_string_lossy())))
    }
}

/// One GPU among those that add up numbers together.
pub struct Communicator {
    nccl: &'static Nccl,
    /// Nothing once it was aborted.
    raw: Mutex<Option<Raw>>,
}

// SAFETY: NCCL takes calls from any thread, one after the other, which the mutex sees to.
unsafe impl Send for Communicator {}
// SAFETY: as above.
unsafe impl Sync for Communicator {}

impl Communicator {
    /// What all of one group are to be opened with.
    ///
    /// # Errors
    /// NCCL is not installed, or finds no network.
    pub fn unique_id() -> Result<Vec<u8>> {
        let (nccl, mut id) = (Nccl::load()?, UniqueId([0; 128]));
        // SAFETY: NCCL writes so many bytes.
        nccl.check("starting NCCL", unsafe { (nccl.ncclGetUniqueId)(&mut id) })?;
        Ok(id.0.to_vec())
    }

    /// Number `rank` of so many, on `stream`'s GPU; returns once all of them have been opened. What is added up lies in
    /// `memory`, at the same place on all ranks, and at least so many `blocks` of a GPU do so. If the memory is of
    /// [`Arena::among`](crate::Arena::among), GPUs that can read each other's do so, without copies between.
    ///
    /// # Errors
    /// NCCL is not installed, or the GPUs do not reach each other.
    ///
    /// # Safety
    /// `memory` outlives the communicator.
    pub unsafe fn new(
        stream: &Stream,
        id: &[u8],
        (rank, ranks): (usize, usize),
        memory: View<'_>,
        blocks: u8,
    ) -> Result<Self> {
        let (nccl, mut raw) = (Nccl::load()?, null_mut());
        let id =
            id.try_into().map_err(|_| CudaError::new("connecting GPUs by NCCL", "the id is none of NCCL"))?;
        stream.bind()?;
        let (rank, ranks, mut window) = (rank as c_int, ranks as c_int, null_mut());
        let numbers = [UNSET, UNSET, blocks.into(), 64];
        let config = Config(size_of::<Config>(), 0xcafe_beef, 22_700, numbers);
        // SAFETY: the context is bound; NCCL writes one pointer.
        let status = unsafe { (nccl.ncclCommInitRankConfig)(&mut raw, ranks, UniqueId(id), rank, &config) };
        nccl.check("connecting GPUs by NCCL", status)?;
        let (address, len) = (memory.untyped_address(), memory.byte_len());
        // SAFETY: likewise; the memory is so long, and the caller's promise. Sums do without it, too.
        let _ = unsafe { (nccl.ncclCommWindowRegister)(raw, address, len, &mut window, SYMMETRIC) };
        Ok(Self { nccl, raw: Mutex::new(Some(raw)) })
    }

    /// Launches in `stream` that each element of `to` becomes the sum of those of `from`, or else its own, over all
    /// GPUs: numbers of FP32, or bytes that are numbers of double precision. It may be recorded.
    ///
    /// # Errors
    /// It was aborted, or a GPU is lost.
    ///
    /// # Safety
    /// Until the sum is done nobody else uses `to` or writes `from`, which is as long; other streams know by an event
    /// of `stream`.
    pub unsafe fn sum(&self, stream: &Stream, from: Option<View<'_>>, to: ViewMut<'_>) -> Result<()> {
        stream.bind()?;
        let (address, count, of) = match to.format().dtype {
            ElementType::F32 => (to.address::<f32>(), to.len(), FLOAT),
            _ => (to.address::<u8>(), to.byte_len() / size_of::<f64>(), DOUBLE),
        };
        let from = from.map_or(address, |from| from.untyped_address());
        let raw = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        let raw = raw.ok_or_else(|| CudaError::new("adding up gradients", "another rank has failed"))?;
        // SAFETY: the communicator is open as long as the lock is held; the caller promises the rest.
        let status = unsafe { (self.nccl.ncclAllReduce)(from, address, count, of, SUM, raw, stream.raw()) };
        self.nccl.check("adding up gradients by NCCL", status)
    }

    /// Ends all sums that are under way, from any thread: they leave anything. Waits until what was recorded is
    /// dropped.
    pub fn abort(&self) {
        let raw = self.raw.lock().unwrap_or_else(PoisonError::into_inner).take();
        // SAFETY: it is open, and closed only here or when it is dropped. Nothing is left to be done if that fails.
        let _ = raw.map(|raw| unsafe { (self.nccl.ncclCommAbort)(raw) });
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        let raw = self.raw.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // SAFETY: as above, and nobody else has it any more.
        let _ = raw.map(|raw| unsafe { (self.nccl.ncclCommDestroy)(raw) });
    }
}
