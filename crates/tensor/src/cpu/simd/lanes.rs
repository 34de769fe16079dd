//! What algorithms over sixteen lanes are written in.

/// The number of lanes.
pub const LANES: usize = 16;

/// Arithmetic on sixteen `f32` at once. The value itself is a witness that the instruction set is there.
///
/// # Safety
/// `V` consists of sixteen `f32` in the order of the lanes, and of nothing else.
pub unsafe trait Lanes: Copy + Send + Sync + 'static {
    /// Sixteen `f32`.
    type V: Copy + Send + Sync;
    /// The most vectors in a row of a register tile of products, so that the sums stay in registers: six rows of them, a
    /// row of the right operand and a broadcast.
    const TILE_VECTORS: usize;

    /// All lanes equal to `value`.
    fn splat(self, value: f32) -> Self::V;
    /// `a + b`.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b`.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once where the processor can.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `c - a * b`, rounded once where the processor can.
    fn neg_mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;

    /// Lanes from sixteen consecutive elements of any alignment.
    ///
    /// # Safety
    /// `from` must be valid for reading sixteen elements.
    #[inline(always)]
    unsafe fn load_ptr(self, from: *const f32) -> Self::V {
        // SAFETY: the caller promises sixteen readable elements, of which `V` consists.
        unsafe { from.cast::<Self::V>().read_unaligned() }
    }

    /// Stores to sixteen consecutive elements of any alignment.
    ///
    /// # Safety
    /// `to` must be valid for writing sixteen elements.
    #[inline(always)]
    unsafe fn store_ptr(self, to: *mut f32, v: Self::V) {
        // SAFETY: as above, writable.
        unsafe { to.cast::<Self::V>().write_unaligned(v) };
    }

    /// Lanes from an array.
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::V {
        // SAFETY: the array has sixteen elements.
        unsafe { self.load_ptr(from.as_ptr()) }
    }
    /// Lanes as an array.
    #[inline(always)]
    fn to_array(self, v: Self::V) -> [f32; LANES] {
        let mut lanes = [0.0; LANES];
        // SAFETY: as above.
        unsafe { self.store_ptr(lanes.as_mut_ptr(), v) };
        lanes
    }

    /// The first `count` lanes (at most sixteen) from consecutive elements of any alignment, the others zero.
    ///
    /// # Safety
    /// `from` must be valid for reading `count` elements.
    #[inline(always)]
    unsafe fn load_partial(self, from: *const f32, count: usize) -> Self::V {
        let mut lanes = [0.0; LANES];
        // SAFETY: the caller promises `count` readable elements; the array holds sixteen and `count` is cut to that.
        unsafe { std::ptr::copy_nonoverlapping(from, lanes.as_mut_ptr(), count.min(LANES)) };
        self.load(&lanes)
    }

    /// Stores the first `count` lanes (at most sixteen) to consecutive elements of any alignment.
    ///
    /// # Safety
    /// `to` must be valid for writing `count` elements.
    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, v: Self::V, count: usize) {
        let lanes = self.to_array(v);
        // SAFETY: the caller promises `count` writable elements; the array holds sixteen and `count` is cut to that.
        unsafe { std::ptr::copy_nonoverlapping(lanes.as_ptr(), to, count.min(LANES)) };
    }

    /// Prefetches the cache line at `from`, which need not be a valid address, where the processor can.
    #[inline(always)]
    fn prefetch(self, from: *const f32) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: SSE belongs to x86-64, and a prefetch of any address has no effect but on the cache.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(from.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = from;
    }

    /// The transpose of a 16 x 16 matrix: lane `j` of row `i` becomes lane `i` of row `j`.
    fn transpose(self, rows: [Self::V; LANES]) -> [Self::V; LANES];

    /// All lanes zero.
    #[inline(always)]
    fn zero(self) -> Self::V {
        self.splat(0.0)
    }
}

/// A computation of a `T`, generic over the lanes it runs on.
pub trait WithLanes<T = ()> {
    /// The computation; mark it `#[inline(always)]`, and everything hot that it calls.
    fn call<L: Lanes>(self, lanes: L) -> T;
}
