//! An allocator that counts, for the test programs that install it by having this module.

use std::alloc::{GlobalAlloc, Layout, System};
use std::{sync::atomic::AtomicUsize, sync::atomic::Ordering::SeqCst};

/// Bytes in use now, the most that there were since [`measured`] began, and the largest allocation since.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static LARGEST: AtomicUsize = AtomicUsize::new(0);

/// What was allocated, by all threads together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// The most bytes in use at once, beyond those in use before.
    pub(crate) peak: usize,
    /// Bytes of the largest allocation.
    pub(crate) largest: usize,
}

/// Does `work`; says what it allocated. Only one at a time may be measured, as the counts are those of the process.
pub(crate) fn measured<R>(work: impl FnOnce() -> R) -> (R, Usage) {
    let before = LIVE.load(SeqCst);
    PEAK.store(before, SeqCst);
    LARGEST.store(0, SeqCst);
    let result = work();
    let peak = PEAK.load(SeqCst).saturating_sub(before);
    (result, Usage { peak, largest: LARGEST.load(SeqCst) })
}

/// No machine has more than this here, so that tests see memory refused on any machine.
const MOST: usize = 1 << 30;

struct Counting;

/// Asks for `bytes` in the place of `old` ones, and counts what was had.
fn counted(bytes: usize, old: usize, allocate: impl FnOnce() -> *mut u8) -> *mut u8 {
    if bytes > MOST {
        return std::ptr::null_mut();
    }
    let pointer = allocate();
    if !pointer.is_null() {
        LARGEST.fetch_max(bytes, SeqCst);
        PEAK.fetch_max(LIVE.fetch_add(bytes, SeqCst) + bytes - old, SeqCst);
        LIVE.fetch_sub(old, SeqCst);
    }
    pointer
}

// SAFETY: every call goes unchanged to the system's allocator, which keeps the trait's promises, or returns null, which
// says that there is no memory; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`, which is that of the system's.
        counted(layout.size(), 0, || unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        counted(layout.size(), 0, || unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: `pointer` came from the system's allocator, through this one, with this layout.
        counted(size, layout.size(), || unsafe { System.realloc(pointer, layout, size) })
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), SeqCst);
        // SAFETY: as in `realloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
