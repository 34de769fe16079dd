// What the CUDA kernels of this crate share. NVRTC compiles this text in front of each of them; it has no standard
// headers.
//
// Nothing here uses a floating-point atomic: sums are trees and runs whose order follows from the geometry and the
// launch, so results are the same every time.

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

/// Threads of a block of an element-wise CUDA kernel, and the elements that the block takes.
constexpr u32 THREADS = 256;
constexpr u32 PER_THREAD = 8;
constexpr u32 TILE = THREADS * PER_THREAD;

/// Has the loop behind it unrolled.
#define UNROLL _Pragma("unroll")

// ---- Memory ---------------------------------------------------------------------------------------------------------

/// The upper half of a float, in memory; in registers it is one.
struct bf16 {
    u16 bits;

    /// Rounds to the nearest, of two equally near ones to the even; a NaN stays one.
    __device__ __forceinline__ bf16& operator=(float value) {
#if __CUDA_ARCH__ >= 800
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
        u32 all = __float_as_uint(value);
        bits = u16((value != value ? all | 0x400000 : all + 0x7fff + (all >> 16 & 1)) >> 16);
#endif
        return *this;
    }
    __device__ __forceinline__ operator float() const { return __uint_as_float(u32(bits) << 16); }
};

/// What blobs consist of; parameters, statistics, labels and losses are floats. Every source is compiled for both.
#ifdef BLOBS_OF_BF16
using real = bf16;
#else
using real = float;
#endif
constexpr bool OF_BF16 = sizeof(real) < sizeof(float);

/// Whether channels lie side by side.
#ifdef BLOBS_IN_NHWC
constexpr bool CHANNELS_LAST = true;
#else
constexpr bool CHANNELS_LAST = false;
#endif

/// `W` neighbouring elements, moved by one instruction.
template <int W, class T = float>
struct alignas(sizeof(T) * W) Pack {
    T at[W];
};

/// Elements of 16 bytes, the most that an instruction moves; of the larger of two types.
template <class A, class B = A>
constexpr int WIDTH = 16 / (sizeof(A) > sizeof(B) ? sizeof(A) : sizeof(B));

template <int W, class T>
__device__ __forceinline__ Pack<W, T> load(const T* from) {
    return *reinterpret_cast<const Pack<W, T>*>(from);
}

template <int W, class T>
__device__ __forceinline__ void store(T* to, const Pack<W, T>& pack) {
    *reinterpret_cast<Pack<W, T>*>(to) = pack;
}

/// Whether packs of `W` can be read from all addresses.
template <int W = 4, class T, int COUNT>
__device__ __forceinline__ bool aligned(const T* const (&addresses)[COUNT]) {
    bool all = true;
    for (int i = 0; i < COUNT; i++) all = all && reinterpret_cast<u64>(addresses[i]) % sizeof(Pack<W, T>) == 0;
    return all;
}

/// The packs at one place of all inputs.
template <int W, class T, int INPUTS>
__device__ __forceinline__ void load_all(Pack<W, T> (&in)[INPUTS], const T* const (&from)[INPUTS], u64 at) {
    UNROLL for (int input = 0; input < INPUTS; input++) in[input] = load<W>(from[input] + at);
}

/// Calls `body(lane, the inputs' elements)` for every element of a pack.
template <int W, class T, int INPUTS, class Body>
__device__ __forceinline__ void each_lane(const Pack<W, T> (&in)[INPUTS], Body body) {
    UNROLL for (int lane = 0; lane < W; lane++) {
        float x[INPUTS];
        UNROLL for (int input = 0; input < INPUTS; input++) x[input] = in[input].at[lane];
        body(lane, x);
    }
}

/// Overwrites or adds. The sum is rounded for itself, never fused with a product in `value`, as on the CPU.
template <class T>
__device__ __forceinline__ void put(bool add, T* to, float value) {
    *to = add ? __fadd_rn(*to, value) : value;
}

/// What a ReLU makes of `value`, if there is one: NaN and -0 stay.
__device__ __forceinline__ float rectified(bool relu, float value) { return relu && value < 0 ? 0 : value; }

/// The number of this thread in a grid of one dimension.
__device__ __forceinline__ u64 grid_start() { return u64(blockIdx.x) * blockDim.x + threadIdx.x; }

// ---- Reductions -----------------------------------------------------------------------------------------------------

/// The values of a warp, folded as a tree by the associative and commutative `op`; every lane gets the result.
template <class T, class Op>
__device__ __forceinline__ T warp_reduce(T value, Op op) {
    for (int distance = 16; distance > 0; distance /= 2) {
        value = op(value, __shfl_xor_sync(0xffffffff, value, distance));
    }
    return value;
}

template <class T>
__device__ __forceinline__ T warp_sum(T value) {
    return warp_reduce(value, [](T left, T right) { return left + right; });
}

/// The values of a block, folded as a tree; every thread gets the result. All threads of the block must call, whose
/// number is a multiple of 32. `none` leaves a value as it is.
template <class T, class Op>
__device__ T block_reduce(T value, T none, Op op) {
    __shared__ T warps[32];
    value = warp_reduce(value, op);
    __syncthreads();  // an earlier call's values have been read
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x % 32 < blockDim.x / 32 ? warps[threadIdx.x % 32] : none;
    return warp_reduce(value, op);
}

template <class T>
__device__ T block_sum(T value) {
    return block_reduce(value, T(0), [](T left, T right) { return left + right; });
}

__device__ inline float block_max(float value) {
    return block_reduce(value, -__int_as_float(0x7f800000), [](float left, float right) { return fmaxf(left, right); });
}

// ---- Element-wise operations ----------------------------------------------------------------------------------------
//
// To be launched with THREADS threads and one block per TILE elements. A thread reads all that it needs before it
// writes, so the output may be one of the inputs.

/// Where elements lie in the inputs and in the output of an operation on dense blobs.
struct Dense {
    __device__ __forceinline__ u64 from(u64 i) const { return i; }
    __device__ __forceinline__ u64 to(u64 i) const { return i; }
    /// Whether so many neighbouring elements stay neighbours.
    __device__ __forceinline__ bool in_packs(int) const { return true; }
};

/// One whole tile of `map_packs`, in packs of `W`.
template <int W, class From, int INPUTS, class To, class Op, class Places>
__device__ __forceinline__ void map_tile(const From* const (&from)[INPUTS], To* to, bool add, u64 start, Op op,
                                         Places places) {
    constexpr int STEPS = PER_THREAD / W;
    Pack<W, From> in[STEPS][INPUTS];
    Pack<W, To> out[STEPS];
    start += threadIdx.x * W;
    UNROLL for (int step = 0; step < STEPS; step++) {
        u64 i = start + step * THREADS * W;
        load_all(in[step], from, places.from(i));
        if (add) out[step] = load<W>(to + places.to(i));
    }
    UNROLL for (int step = 0; step < STEPS; step++) {
        u64 i = start + step * THREADS * W;
        auto of_pack = op(i);
        each_lane(in[step], [&](int lane, const float (&x)[INPUTS]) { put(add, &out[step].at[lane], of_pack(x, lane)); });
        store<W>(to + places.to(i), out[step]);
    }
}

/// `to[i] (+)= op(first)(the inputs' elements i, i - first)`: `op` prepares the elements of a pack from `first` on, whose
/// results are then computed in their order.
template <class From, int INPUTS, class To, class Op, class Places = Dense>
__device__ __forceinline__ void map_packs(const From* const (&from)[INPUTS], To* to, bool add, u64 len, u64 tile,
                                          Op op, Places places = {}) {
    constexpr int W = WIDTH<From, To>;
    u64 start = tile * TILE;
    if (start + TILE > len) {
        for (u64 i = start + threadIdx.x; i < len; i += THREADS) {
            float x[INPUTS];
            for (int input = 0; input < INPUTS; input++) x[input] = from[input][places.from(i)];
            put(add, to + places.to(i), op(i)(x, 0));
        }
    } else if (places.in_packs(W) && aligned<W>(from) && aligned<W>({to})) {
        map_tile<W>(from, to, add, start, op, places);
    } else {
        map_tile<1>(from, to, add, start, op, places);
    }
}

/// `to[i] (+)= op(the inputs' elements i, i)`, where `places` says where element i lies.
template <class From, int INPUTS, class To, class Op, class Places = Dense>
__device__ __forceinline__ void map(const From* const (&from)[INPUTS], To* to, bool add, u64 len, Op op,
                                    Places places = {}) {
    // Inlined before loops are unrolled: a sum of two blobs would else be eight copies of a loop over further ones.
    auto of_pack = [op](u64 first) __attribute__((always_inline)) {
        return [&op, first](const float (&x)[INPUTS], int lane) __attribute__((always_inline)) {
            return op(x, first + lane);
        };
    };
    map_packs(from, to, add, len, blockIdx.x, of_pack, places);
}

/// Elements of a blob's pack.
constexpr int PACK = WIDTH<real>;

/// Packs of each input that a thread reads before it computes, to hide the latency of memory.
template <int W>
constexpr int BATCH = W == 1 ? 8 : 4;

// ---- Blobs seen from an axis ----------------------------------------------------------------------------------------

/// A divisor that does not change during a launch. `multiplier` is 2^64 / divisor rounded up: the high half of its
/// product with the dividend is the quotient while dividend times divisor stays below 2^64. The host, which knows,
/// makes it 0 where that may not be so, and for the divisor 1.
struct Divisor {
    u64 divisor, multiplier;

    __device__ __forceinline__ u64 divide(u64 dividend) const {
        if (multiplier != 0) return __umul64hi(dividend, multiplier);
        return divisor == 1 ? dividend : dividend / divisor;
    }
    __device__ __forceinline__ u64 remainder(u64 dividend) const { return dividend - divide(dividend) * divisor; }
};

/// A blob of `outer x axis x inner` elements: samples, channels and pixels. As cuda_launches.rs fills it.
struct Extents {
    u64 outer;
    Divisor axis, inner;

    __device__ __forceinline__ u64 len() const { return outer * axis.divisor * inner.divisor; }
};

/// Whether all these blobs can be moved in packs of what lies side by side: of channels, or of one plane's elements.
template <int COUNT>
__device__ __forceinline__ bool in_packs(const Extents& e, const real* const (&from)[COUNT], const real* to) {
    u64 beside = CHANNELS_LAST ? e.axis.divisor : e.inner.divisor;
    return beside % PACK == 0 && aligned<PACK>(from) && aligned<PACK>({to});
}

/// The numbers of `W` channels from `channel` on; `none` for each if there are no `numbers`.
template <int W>
__device__ __forceinline__ Pack<W> of_channels(const float* numbers, u64 channel, float none = 0) {
    Pack<W> all;
    if (!numbers) {
        for (int lane = 0; lane < W; lane++) all.at[lane] = none;
    } else if (W % 4 == 0 && aligned<4>({numbers + channel})) {
        for (int i = 0; i < W; i += 4) {
            Pack<4> four = load<4>(numbers + channel + i);
            for (int lane = 0; lane < 4 && i + lane < W; lane++) all.at[i + lane] = four.at[lane];
        }
    } else {
        for (int lane = 0; lane < W; lane++) all.at[lane] = numbers[channel + lane];
    }
    return all;
}

/// The last of the blocks that have one channel to get here: it sees what the others wrote before. All threads of all
/// blocks have to call it, once.
__device__ inline bool is_last_part() {
    // Zero when a launch begins, and again when it ends.
    static __device__ u32 arrived[4096];
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(arrived + blockIdx.x, gridDim.y - 1) == gridDim.y - 1;
    __syncthreads();
    __threadfence();
    return last;
}

/// Waits for all blocks that have the same COLUMNS channels, and sees what they wrote before. All threads of all blocks
/// have to call it, in a launch that runs all blocks at once.
__device__ inline void wait_for_parts() {
    // All blocks together add 2^31: the highest bit changes when the last one does.
    static __device__ u32 arrived[4096];
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        u32 before = atomicAdd(arrived + blockIdx.x, blockIdx.y == 0 ? (1u << 31) - (gridDim.y - 1) : 1);
        while ((*const_cast<volatile u32*>(arrived + blockIdx.x) ^ before) >> 31 == 0) __nanosleep(20);
        __threadfence();
    }
    __syncthreads();
}

/// The largest value of a window so far, for each of some channels, and the number of the pixel that it comes from. A NaN
/// wins, and only another NaN beats it. Of pixels that are equal the first wins.
template <int W, class Tap>
struct Maxima {
    Pack<W, real> best;
    Pack<W, Tap> winner;

    __device__ __forceinline__ Maxima() {
        for (int lane = 0; lane < W; lane++) {
            best.at[lane] = -__int_as_float(0x7f800000);  // negative infinity
            winner.at[lane] = Tap(0xffffffff);  // no pixel won
        }
    }
    __device__ __forceinline__ void meet(u32 tap, const Pack<W, real>& pixel) {
#if __CUDA_ARCH__ >= 900
        // Two channels an instruction: one by one, arithmetic takes longer than memory. Here a NaN's place is the last pixel.
        if constexpr (OF_BF16 && W % 4 == 0 && sizeof(Tap) == 1) {
            u32 *largest = reinterpret_cast<u32*>(best.at), *winners = reinterpret_cast<u32*>(winner.at), wins[W / 2];
            UNROLL for (int i = 0; i < W / 2; i++) {
                u32 pair = reinterpret_cast<const u32*>(pixel.at)[i];
                asm("set.gtu.u32.bf16x2 %0, %1, %2;" : "=r"(wins[i]) : "r"(pair), "r"(largest[i]));
                asm("max.NaN.bf16x2 %0, %1, %0;" : "+r"(largest[i]) : "r"(pair));
            }
            UNROLL for (int i = 0; i < W / 4; i++) {
                u32 won = __byte_perm(wins[2 * i], wins[2 * i + 1], 0x6420);  // a byte of each half
                winners[i] = (winners[i] & ~won) | (tap * 0x01010101 & won);
            }
        } else
#endif
        UNROLL for (int lane = 0; lane < W; lane++) {
            float value = pixel.at[lane];
            if (!(value > best.at[lane] || value != value)) continue;
            best.at[lane] = value;
            winner.at[lane] = Tap(tap);
        }
    }
    /// Writes `of(lane, the largest)`, with a ReLU behind it, and the winners' numbers if they are asked for. Where a ReLU
    /// makes 0 of an output, it would stop the gradient: then no pixel has won.
    template <class Of>
    __device__ __forceinline__ void write(bool relu, real* y, Tap* winners, Of of) {
        Pack<W, real> maxima;
        UNROLL for (int lane = 0; lane < W; lane++) {
            float value = of(lane, best.at[lane]);
            maxima.at[lane] = rectified(relu, value);
            if (relu && !(value > 0)) winner.at[lane] = Tap(0xffffffff);
        }
        store<W>(y, maxima);
        if (winners) store<W>(winners, winner);
    }
};

/// Calls `body(tap, pixel)` for the pixels under a square window that begins at `top` and `left` of an image of h x w
/// pixels, which lie so far apart. Where there is no pixel, if not all are INSIDE, another one is read: branches between
/// loads would make each wait for the one before.
template <int WINDOW, bool INSIDE, int W, class Body>
__device__ __forceinline__ void each_of_square(const real* image, int top, int left, int h, int w, u64 apart,
                                               Body body) {
    constexpr int TAPS = WINDOW * WINDOW;
    Pack<W, real> pixels[TAPS];
    bool there[TAPS];
    UNROLL for (int tap = 0; tap < TAPS; tap++) {
        int r = top + tap / WINDOW, s = left + tap % WINDOW;
        there[tap] = INSIDE || u32(r) < u32(h) && u32(s) < u32(w);
        pixels[tap] = load<W>(image + (there[tap] ? r * w + s : 0) * apart);
    }
    UNROLL for (int tap = 0; tap < TAPS; tap++) {
        if (there[tap]) body(tap, pixels[tap]);
    }
}

/// Adds to the sums of a tile's pixels the `dy` of those windows of a maximum pooling that they have won. The tile begins
/// at `top` and `left` of the padded image, both multiples of the stride, so that the compiler knows which windows lie
/// over which pixels; only a single column may lie anywhere. `at(window of the plane)` is where its elements lie.
template <int WINDOW, int STRIDE, int W, int ROWS, int COLUMNS, class At>
__device__ __forceinline__ void add_won(const u8* mask, const real* dy, int top, int left, int out_h, int out_w, At at,
                                        float (&sums)[ROWS][COLUMNS][W]) {
    static_assert(ROWS % STRIDE == 0 && (COLUMNS == 1 || COLUMNS % STRIDE == 0), "tiles begin where windows do");
    // Windows over a pixel along an axis, but for the nearest; as many begin before the tile.
    constexpr int MORE = (WINDOW - 1) / STRIDE;
    int past = COLUMNS == 1 ? left % STRIDE : 0;  // columns from where the nearest window begins
    UNROLL for (int i = -MORE; i < ROWS / STRIDE; i++) {
        UNROLL for (int j = -MORE; j * STRIDE < COLUMNS; j++) {
            int p = top / STRIDE + i, q = left / STRIDE + j;
            bool exists = u32(p) < u32(out_h) && u32(q) < u32(out_w);
            auto output = at(exists ? p * out_w + q : 0);
            auto winners = load<W>(mask + output);
            auto gradients = load<W>(dy + output);
            // No pixel won where there is no window.
            UNROLL for (int lane = 0; lane < W; lane++) winners.at[lane] = exists ? winners.at[lane] : 0xff;
            UNROLL for (int pixel = 0; pixel < ROWS * COLUMNS; pixel++) {
                int row = pixel / COLUMNS, column = pixel % COLUMNS;
                int r = row - i * STRIDE, s = column + past - j * STRIDE;
                if (r < 0 || r >= WINDOW || COLUMNS > 1 && (s < 0 || s >= WINDOW)) continue;
                int tap = s < WINDOW ? r * WINDOW + s : -1;
                UNROLL for (int lane = 0; lane < W; lane++) {
                    if (winners.at[lane] == tap) sums[row][column][lane] += gradients.at[lane];
                }
            }
        }
    }
}

// ---- Channels side by side ------------------------------------------------------------------------------------------
//
// In NHWC a thread keeps a pack of channels and goes through rows of them; its neighbours have the neighbouring packs,
// and the other threads of the block other rows. To be launched with a block per COLUMNS channels in x and, in y, so
// many blocks that take turns at these rows. As in cuda_launches.rs.
constexpr u32 COLUMNS = 64;
/// Threads of a block that sums.
constexpr u32 SUM_THREADS = 512;

/// `body(the number of threads that share a row, first channel of these, own first channel, whether it exists)` for
/// each pack of `W` channels that a thread has.
template <int W, class Body>
__device__ __forceinline__ void each_column(const Extents& e, Body body) {
    u64 axis = e.axis.divisor, begin = u64(blockIdx.x) * COLUMNS, end = begin + COLUMNS < axis ? begin + COLUMNS : axis;
    u32 packs = (u32(axis < COLUMNS ? axis : COLUMNS) + W - 1) / W;
    u32 lanes = packs > 16 ? 32 : 1u << (32 - __clz(packs - 1));
    for (u64 base = begin; base < end; base += lanes * W) {
        u64 channel = base + threadIdx.x % lanes * W;
        body(lanes, base, channel < end ? channel : 0, channel < end);
    }
}

/// The rows of a thread, if so many threads share one: the first, and how far it is from one to the next.
template <class T>
struct RowWalk {
    T first, step;
    __device__ __forceinline__ explicit RowWalk(u32 lanes)
        : first(T(blockDim.x / lanes) * blockIdx.y + threadIdx.x / lanes), step(T(blockDim.x / lanes) * gridDim.y) {}
};

/// Calls `of(channel, distance)(row)` for a thread's packs of `W` channels and every `steps`th of its rows, of so many in
/// all, which lie so far apart. Its last row comes first: where it has just gone through them from the first on, the last
/// ones are still in cache.
template <int W, class Of>
__device__ __forceinline__ void each_row(const Extents& e, i64 rows, Of of, i64 steps = 1) {
    each_column<W>(e, [&](u32 lanes, u64, u64 channel, bool exists) {
        auto [first, step] = RowWalk<i64>(lanes);
        if (!exists || first >= rows) return;
        auto body = of(channel, step);
        for (i64 row = first + (rows - 1 - first) / step * step; row >= 0; row -= steps * step) body(row);
    });
}

template <template <int> class Op, int W, int INPUTS, class Pass>
__device__ __forceinline__ void map_columns(const real* const (&from)[INPUTS], real* to, bool add, const Extents& e,
                                            const Pass& pass) {
    constexpr int STEPS = INPUTS == 1 ? 4 : 3;
    each_row<W>(e, i64(e.outer), [&](u64 channel, i64 step_rows) {
        return [=, &e, op = Op<W>(pass, channel)](i64 row) {
            Pack<W, real> in[STEPS][INPUTS], out[STEPS];
            UNROLL for (int step = 0; step < STEPS; step++) {
                u64 at = (row - step * step_rows) * e.axis.divisor + channel;
                if (row < step * step_rows) continue;
                load_all(in[step], from, at);
                if (add) out[step] = load<W>(to + at);
            }
            UNROLL for (int step = 0; step < STEPS; step++) {
                u64 at = (row - step * step_rows) * e.axis.divisor + channel;
                if (row < step * step_rows) continue;
                each_lane(in[step], [&](int lane, const float (&x)[INPUTS]) { put(add, &out[step].at[lane], op(lane, x)); });
                store<W>(to + at, out[step]);
            }
        };
    }, STEPS);
}

/// Adds up `STEPS` rows from `row` on, or, if not all are THERE, those of them that exist: single precision over these,
/// double precision over calls.
template <bool THERE, int STEPS, int W, int SUMS, bool WRITES, int INPUTS, class Terms>
__device__ __forceinline__ void sum_batch(const real* const (&from)[INPUTS], real* to, const Extents& e, u64 row,
                                          u64 step_rows, u64 channel, Terms terms, double (&sums)[W][SUMS]) {
    Pack<W, real> in[STEPS][INPUTS], out[STEPS];
    auto there = [&](int step) { return THERE || row + step * step_rows < e.outer; };
    UNROLL for (int step = 0; step < STEPS; step++) {
        u64 at = (row + step * step_rows) * e.axis.divisor + channel;
        if (there(step)) load_all(in[step], from, at);
    }
    UNROLL for (int lane = 0; lane < W; lane++) {
        float batch[SUMS] = {};
        UNROLL for (int step = 0; step < STEPS; step++) {
            if (!there(step)) continue;
            float x[INPUTS];
            UNROLL for (int input = 0; input < INPUTS; input++) x[input] = in[step][input].at[lane];
            out[step].at[lane] = terms(lane, x, batch);
        }
        for (int sum = 0; sum < SUMS; sum++) sums[lane][sum] += batch[sum];
    }
    UNROLL for (int step = 0; step < STEPS && WRITES; step++) {
        if (there(step)) store<W>(to + (row + step * step_rows) * e.axis.divisor + channel, out[step]);
    }
}

/// Sums of each warp, or later of each slice of parts, per column.
using ColumnSums = double[SUM_THREADS / 32][2][COLUMNS];
__device__ inline ColumnSums& column_sums() {
    __shared__ ColumnSums rows;
    return rows;
}

/// The total of this thread's column over the first `COUNT` rows.
template <int COUNT, int SUMS>
__device__ __forceinline__ void fold_column(const ColumnSums& rows, double (&total)[SUMS]) {
    UNROLL for (int row = 0; row < COUNT; row++) {
        for (int sum = 0; sum < SUMS; sum++) total[sum] += rows[row][sum][threadIdx.x % COLUMNS];
    }
}

/// Writes the sums of a lane's `N` columns, over those lanes of its warp whose numbers differ by multiples of `lanes`. Two
/// lanes each add up one half of the columns, as long as there are halves, and then both the last one.
template <int N, int SUMS>
__device__ __forceinline__ void fold_lanes(double (&sums)[N][SUMS], u32 lanes, double (&row)[2][COLUMNS]) {
    u32 column = threadIdx.x % lanes * N;
    UNROLL for (u32 distance = 16; distance > 0; distance /= 2) {
        if (distance < lanes) continue;
        u32 half = N * distance / 32;
        bool upper = half > 0 && threadIdx.x & distance;
        column += upper ? half : 0;
        UNROLL for (u32 i = 0; i < (N + 1) / 2; i++) {
            if (i > 0 && i >= half) continue;
            UNROLL for (int sum = 0; sum < SUMS; sum++) {
                double low = sums[i][sum], high = sums[half + i][sum];
                sums[i][sum] = (upper ? high : low) + __shfl_xor_sync(0xffffffff, upper ? low : high, distance);
            }
        }
    }
    UNROLL for (u32 i = 0; i < N; i++) {
        if (32 * i >= N * lanes) continue;
        UNROLL for (int sum = 0; sum < SUMS; sum++) row[sum][column + i] = sums[i][sum];
    }
}

/// As `sum_channels`, where `sum_rows(threads that share a row, channel, sums)` adds up a thread's rows. What any block has
/// written before it calls `finish`, and what this block writes then, can be read by all threads afterwards.
template <int W, int SUMS, class SumRows, class Finish>
__device__ __forceinline__ void sum_columns(const Extents& e, double* partials, SumRows sum_rows, Finish finish) {
    ColumnSums& rows = column_sums();
    u64 axis = e.axis.divisor;
    each_column<W>(e, [&](u32 lanes, u64 base, u64 channel, bool exists) {
        double sums[W][SUMS] = {}, all[SUMS] = {};
        if (exists) sum_rows(lanes, channel, sums);
        __syncthreads();  // what was there has been read
        fold_lanes(sums, lanes, rows[threadIdx.x / 32]);
        __syncthreads();
        u64 own = base + threadIdx.x;
        if (threadIdx.x >= lanes * W || own >= axis) return;
        fold_column<SUM_THREADS / 32>(rows, all);
        if (gridDim.y == 1) return finish(own, all, true);
        for (int sum = 0; sum < SUMS; sum++) partials[(blockIdx.y * SUMS + sum) * axis + own] = all[sum];
    });
    if (gridDim.y == 1) return __syncthreads();
    wait_for_parts();
    constexpr u32 SLICES = SUM_THREADS / COLUMNS, AT_ONCE = 8;
    u64 own = u64(blockIdx.x) * COLUMNS + threadIdx.x % COLUMNS;
    u32 slice = threadIdx.x / COLUMNS;
    double sums[SUMS] = {}, all[SUMS] = {};
    for (u32 first = slice; own < axis && first < gridDim.y; first += AT_ONCE * SLICES) {
        double read[AT_ONCE][SUMS];
        UNROLL for (int i = 0; i < AT_ONCE; i++) {
            u32 part = first + i * SLICES;
            for (int sum = 0; sum < SUMS; sum++) {
                read[i][sum] = part < gridDim.y ? __ldcg(partials + (part * SUMS + sum) * axis + own) : 0;
            }
        }
        UNROLL for (int i = 0; i < AT_ONCE; i++) {
            for (int sum = 0; sum < SUMS; sum++) sums[sum] += read[i][sum];
        }
    }
    for (int sum = 0; sum < SUMS; sum++) rows[slice][sum][threadIdx.x % COLUMNS] = sums[sum];
    __syncthreads();
    if (slice == 0 && own < axis) {
        fold_column<SLICES>(rows, all);
        finish(own, all, blockIdx.y == 0);
    }
    __syncthreads();
}

/// As `sum_channels`, in packs of `W` channels.
template <template <int> class Terms, int W, int SUMS, bool WRITES, int INPUTS, class Pass, class Finish>
__device__ __forceinline__ void sum_rows(const real* const (&from)[INPUTS], real* to, const Extents& e, double* partials,
                                         const Pass& pass, Finish finish) {
    auto of_thread = [&](u32 lanes, u64 channel, double (&sums)[W][SUMS]) {
        constexpr int STEPS = 8 / INPUTS;
        Terms<W> terms(pass, channel);
        auto [row, step_rows] = RowWalk<u64>(lanes);
        for (; row + (STEPS - 1) * step_rows < e.outer; row += STEPS * step_rows) {
            sum_batch<true, STEPS, W, SUMS, WRITES>(from, to, e, row, step_rows, channel, terms, sums);
        }
        // One after the other, the last rows wait for memory as often as all before them. Packs of 8 leave no registers to
        // have them together: in BF16 that was slower.
        if constexpr (W <= 4) {
            sum_batch<false, STEPS, W, SUMS, WRITES>(from, to, e, row, step_rows, channel, terms, sums);
        } else {
            for (; row < e.outer; row += step_rows) {
                sum_batch<true, 1, W, SUMS, WRITES>(from, to, e, row, step_rows, channel, terms, sums);
            }
        }
    };
    sum_columns<W, SUMS>(e, partials, of_thread, finish);
}

// ---- One channel ----------------------------------------------------------------------------------------------------

/// A thread's way through some samples of one channel in packs of `W`, together with the other threads of its block.
/// Neighbouring threads read neighbouring packs of one plane; a block that is larger than a plane reads several at
/// once. The number of threads is a power of two.
template <int W>
struct ChannelWalk {
    u64 sample, last, plane;  // the plane's first element
    u32 pack, lane, lanes, packs, samples;
    u64 sample_step;

    __device__ ChannelWalk(const Extents& e, u64 channel, u64 first, u64 last) : last(last) {
        packs = u32(e.inner.divisor / W);
        lanes = packs > blockDim.x / 2 ? blockDim.x : 1u << (32 - __clz(packs - 1));
        samples = blockDim.x / lanes;
        pack = lane = threadIdx.x & (lanes - 1);
        sample = lane < packs ? first + threadIdx.x / lanes : last;
        plane = (sample * e.axis.divisor + channel) * e.inner.divisor;
        sample_step = samples * e.axis.divisor * e.inner.divisor;
    }
    __device__ __forceinline__ bool more() const { return sample < last; }
    __device__ __forceinline__ u64 at() const { return plane + u64(pack) * W; }
    __device__ __forceinline__ void step() {
        pack += lanes;
        if (pack >= packs) {
            pack = lane;
            sample += samples;
            plane += sample_step;
        }
    }
};

/// Adds up `terms(0, the inputs' elements, sums)` over this thread's elements, in single precision over a batch of `STEPS`
/// packs, in double precision over batches, and writes or adds what it returns if that is wanted.
template <int W, int STEPS, bool WRITES, int INPUTS, int SUMS, class Terms>
__device__ __forceinline__ void thread_sums(ChannelWalk<W> walk, const real* const (&from)[INPUTS], real* to, bool add,
                                            double (&sums)[SUMS], Terms terms) {
    while (walk.more()) {
        Pack<W, real> in[STEPS][INPUTS], out[STEPS];
        u64 at[STEPS];
        bool there[STEPS];
        UNROLL for (int step = 0; step < STEPS; step++) {
            there[step] = walk.more();
            if (!there[step]) continue;
            at[step] = walk.at();
            load_all(in[step], from, at[step]);
            if (WRITES && add) out[step] = load<W>(to + at[step]);
            walk.step();
        }
        float batch[SUMS] = {};
        UNROLL for (int step = 0; step < STEPS; step++) {
            if (!there[step]) continue;
            // A pack of its own: in BF16 registers would be spilled.
            Pack<W, real> result = WRITES && add ? out[step] : Pack<W, real>{};
            each_lane(in[step], [&](int lane, const float (&x)[INPUTS]) { put(add, &result.at[lane], terms(0, x, batch)); });
            if (WRITES) store<W>(to + at[step], result);
        }
        for (int sum = 0; sum < SUMS; sum++) sums[sum] += batch[sum];
    }
}

/// The same over the samples [first, last) of a channel, by a block. `FEWER` is what batches are divided by: all they hold
/// is in registers.
template <int FEWER, bool WRITES, int INPUTS, int SUMS, class Terms>
__device__ __forceinline__ void part_sums(const real* const (&from)[INPUTS], real* to, bool add, const Extents& e,
                                          u64 channel, u64 first, u64 last, double (&sums)[SUMS], Terms terms) {
    if (in_packs(e, from, WRITES ? to : nullptr)) {
        ChannelWalk<PACK> walk(e, channel, first, last);
        thread_sums<PACK, BATCH<PACK> / FEWER, WRITES>(walk, from, to, add, sums, terms);
    } else {
        thread_sums<1, BATCH<1> / FEWER, WRITES>(ChannelWalk<1>(e, channel, first, last), from, to, add, sums, terms);
    }
}

/// `to[i] (+)= Op<W>(pass, channel)(lane, the inputs' elements i)`, where an `Op` has the factors of `W` channels from one
/// on. A block has one channel if it is its OWN. The last elements come first: where the inputs have just been read from
/// the beginning, their ends are still in cache.
template <template <int> class Op, bool OWN = false, int INPUTS, class Pass>
__device__ __forceinline__ void map_channels(const real* const (&from)[INPUTS], real* to, bool add,
                                             const Extents& extents, const Pass& pass) {
    if constexpr (CHANNELS_LAST) {
        if (in_packs(extents, from, to)) return map_columns<Op, PACK>(from, to, add, extents, pass);
        return map_columns<Op, 1>(from, to, add, extents, pass);
    }
    if constexpr (OWN) {
        constexpr int FEWER = INPUTS > 2 ? 4 : 2;  // outputs need registers, too
        double none[1] = {};
        Op<1> op(pass, blockIdx.x);
        auto of = [&](int lane, const float (&x)[INPUTS], float (&)[1]) { return op(lane, x); };
        return part_sums<FEWER, true>(from, to, add, extents, blockIdx.x, 0, extents.outer, none, of);
    }
    auto of_pack = [&](u64 first) {
        u64 plane = extents.inner.divide(first), channel = extents.axis.remainder(plane);
        u64 pixel = first - plane * extents.inner.divisor;
        return [&, pixel, channel, op = Op<1>(pass, channel)](const float (&x)[INPUTS], int lane) mutable {
            // Asked for in order: past the end of a plane comes the next channel's.
            if (lane > 0 && ++pixel == extents.inner.divisor) {
                pixel = 0;
                channel = channel + 1 == extents.axis.divisor ? 0 : channel + 1;
                op = Op<1>(pass, channel);
            }
            return op(0, x);
        };
    };
    map_packs(from, to, add, extents.len(), gridDim.x - 1 - blockIdx.x, of_pack);
}

/// Sums per channel: `finish(channel, sums, once)` is called by one thread for each, or, where channels lie side by
/// side, by one of each block that has it, with `once` in one of them. `Terms<W>(pass, channel)(lane, inputs' elements,
/// sums)` adds those of an element of `W` channels, and returns what goes to `to` if this WRITES. To be
/// launched with a block per channel in x and, in y, the parts into which samples are cut, or, where channels lie side
/// by side, with SUM_THREADS threads as above, all blocks at once. Where there are several parts, each leaves SUMS
/// doubles per channel in `partials`, and the last block to end, or then each, adds them up, in their order.
template <template <int> class Terms, int SUMS, bool WRITES = false, int INPUTS, class Pass, class Finish>
__device__ __forceinline__ void sum_channels(const real* const (&from)[INPUTS], real* to, const Extents& e,
                                             double* partials, const Pass& pass, Finish finish) {
    if constexpr (CHANNELS_LAST) {
        bool packs = in_packs(e, from, WRITES ? to : nullptr);
        if (packs) return sum_rows<Terms, PACK, SUMS, WRITES>(from, to, e, partials, pass, finish);
        return sum_rows<Terms, 1, SUMS, WRITES>(from, to, e, partials, pass, finish);
    }
    u64 part = blockIdx.y, parts = gridDim.y, channel = blockIdx.x;
    u64 first = e.outer * part / parts, last = e.outer * (part + 1) / parts;
    double sums[SUMS] = {};
    constexpr int FEWER = INPUTS > 2 ? 2 : 1;
    part_sums<FEWER, WRITES>(from, to, false, e, channel, first, last, sums, Terms<1>(pass, channel));
    for (int sum = 0; sum < SUMS; sum++) sums[sum] = block_sum(sums[sum]);
    if (parts > 1) {
        double* of_channel = partials + channel * parts * SUMS;
        for (int sum = 0; sum < SUMS && threadIdx.x == 0; sum++) of_channel[part * SUMS + sum] = sums[sum];
        if (!is_last_part() || threadIdx.x >= 32) return;
        for (int sum = 0; sum < SUMS; sum++) {
            double total = 0;
            for (u32 i = threadIdx.x; i < parts; i += 32) total += __ldcg(of_channel + i * SUMS + sum);
            sums[sum] = warp_sum(total);
        }
    }
    if (threadIdx.x == 0) finish(channel, sums, true);
}
