// What the CUDA kernels of this crate share. NVRTC compiles this text in front of each of them; it has no standard headers.
//
// Nothing here uses a floating-point atomic: sums are trees and runs whose order follows from the geometry and the launch,
// so results are the same every time.

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

/// Threads of a block of an element-wise CUDA kernel, and the elements that the block takes.
constexpr u32 THREADS = 256;
constexpr u32 PER_THREAD = 8;
constexpr u32 TILE = THREADS * PER_THREAD;

// ---- Memory ----------------------------------------------------------------------------------------------------------

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

/// Overwrites or adds. The sum is rounded for itself, never fused with a product in `value`, as on the CPU.
template <class T>
__device__ __forceinline__ void put(bool add, T* to, float value) {
    *to = add ? __fadd_rn(*to, value) : value;
}

/// What a ReLU makes of `value`, if there is one: NaN and -0 stay.
__device__ __forceinline__ float rectified(bool relu, float value) { return relu && value < 0 ? 0 : value; }

/// The first element and the step of a loop in which all threads of the grid together go through an array.
__device__ __forceinline__ u64 grid_start() { return u64(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ __forceinline__ u64 grid_step() { return u64(gridDim.x) * blockDim.x; }

// ---- Reductions ------------------------------------------------------------------------------------------------------

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

/// The values of a block, folded as a tree; every thread gets the result. All threads of the block must call, whose number
/// is a multiple of 32. `none` leaves a value as it is.
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

// ---- Element-wise operations -----------------------------------------------------------------------------------------
//
// To be launched with THREADS threads and one block per TILE elements. A thread reads all that it needs before it writes,
// so the output may be one of the inputs.

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
    Pack<W, From> in[INPUTS][STEPS];
    Pack<W, To> out[STEPS];
    start += threadIdx.x * W;
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        u64 i = start + step * THREADS * W;
#pragma unroll
        for (int input = 0; input < INPUTS; input++) in[input][step] = load<W>(from[input] + places.from(i));
        if (add) out[step] = load<W>(to + places.to(i));
    }
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        u64 i = start + step * THREADS * W;
        auto of_pack = op.pack(i);
#pragma unroll
        for (int lane = 0; lane < W; lane++) {
            float x[INPUTS];
#pragma unroll
            for (int input = 0; input < INPUTS; input++) x[input] = in[input][step].at[lane];
            float value = of_pack(x, lane);
            out[step].at[lane] = add ? __fadd_rn(out[step].at[lane], value) : value;
        }
        store<W>(to + places.to(i), out[step]);
    }
}

/// `to[i] (+)= op.pack(first)(the inputs' elements i, i - first)`: `op.pack` prepares the elements of a pack from `first` on, whose
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
            put(add, to + places.to(i), op.pack(i)(x, 0));
        }
    } else if (places.in_packs(W) && aligned<W>(from) && aligned<W>({to})) {
        map_tile<W>(from, to, add, start, op, places);
    } else {
        map_tile<1>(from, to, add, start, op, places);
    }
}

template <class Op>
struct EachElement {
    Op op;
    struct OfPack {
        const Op& op;
        u64 first;
        template <int INPUTS>
        __device__ __forceinline__ float operator()(const float (&x)[INPUTS], int lane) const {
            return op(x, first + lane);
        }
    };
    __device__ __forceinline__ OfPack pack(u64 first) const { return {op, first}; }
};

/// `to[i] (+)= op(the inputs' elements i, i)`, where `places` says where element i lies.
template <class From, int INPUTS, class To, class Op, class Places = Dense>
__device__ __forceinline__ void map(const From* const (&from)[INPUTS], To* to, bool add, u64 len, Op op,
                                    Places places = {}) {
    map_packs(from, to, add, len, blockIdx.x, EachElement<Op>{op}, places);
}

/// Elements of a blob's pack.
constexpr int PACK = WIDTH<real>;

/// Packs of each input that a thread reads before it computes, to hide the latency of memory.
template <int W>
constexpr int BATCH = W == 1 ? 8 : 4;

// ---- Blobs seen from an axis -----------------------------------------------------------------------------------------

/// A divisor that does not change during a launch. `multiplier` is 2^64 / divisor rounded up: the high half of its product
/// with the dividend is the quotient while dividend times divisor stays below 2^64. The host, which knows, makes it 0 where
/// that may not be so, and for the divisor 1.
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

template <class Of, class Op>
struct EachChannel {
    const Extents& extents;
    Of of;
    Op op;

    struct OfPack {
        const EachChannel& each;
        u64 pixel, channel;
        decltype(each.of(u64())) factors;

        template <int INPUTS>
        __device__ __forceinline__ float operator()(const float (&x)[INPUTS], int lane) {
            // Asked for in order: past the end of a plane comes the next channel's.
            if (lane > 0 && ++pixel == each.extents.inner.divisor) {
                pixel = 0;
                channel = channel + 1 == each.extents.axis.divisor ? 0 : channel + 1;
                factors = each.of(channel);
            }
            return each.op(factors, x);
        }
    };

    __device__ __forceinline__ OfPack pack(u64 first) const {
        u64 plane = extents.inner.divide(first);
        u64 channel = extents.axis.remainder(plane);
        return {*this, first - plane * extents.inner.divisor, channel, of(channel)};
    }
};

// ---- Channels side by side -------------------------------------------------------------------------------------------
//
// In NHWC a thread keeps a pack of channels and goes through rows of them; its neighbours have the neighbouring packs, and the
// other threads of the block other rows. To be launched with THREADS threads, a block per COLUMNS channels in x and, in y,
// the parts into which rows are cut. As in cuda_launches.rs.
constexpr u32 COLUMNS = 256;

/// `body(rows' first and step, first channel, whether it exists)` for each pack of `W` channels that a thread has, with the
/// number of threads that share a row.
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

/// The rows of a block's part, as (first, one past the last).
__device__ __forceinline__ ulonglong2 rows_of_part(const Extents& e) {
    return make_ulonglong2(e.outer * blockIdx.y / gridDim.y, e.outer * (blockIdx.y + 1) / gridDim.y);
}

template <int W, int INPUTS, class Of, class Op>
__device__ __forceinline__ void map_columns(const real* const (&from)[INPUTS], real* to, bool add, const Extents& e, Of of,
                                            Op op) {
    ulonglong2 rows = rows_of_part(e);
    each_column<W>(e, [&](u32 lanes, u64, u64 channel, bool exists) {
        decltype(of(channel)) factors[W];
        for (int lane = 0; lane < W; lane++) factors[lane] = of(channel + lane);
#pragma unroll 2
        for (u64 row = rows.x + threadIdx.x / lanes; exists && row < rows.y; row += THREADS / lanes) {
            u64 at = row * e.axis.divisor + channel;
            Pack<W, real> in[INPUTS], out;
            for (int input = 0; input < INPUTS; input++) in[input] = load<W>(from[input] + at);
            if (add) out = load<W>(to + at);
#pragma unroll
            for (int lane = 0; lane < W; lane++) {
                float x[INPUTS];
                for (int input = 0; input < INPUTS; input++) x[input] = in[input].at[lane];
                float value = op(factors[lane], x);
                out.at[lane] = add ? __fadd_rn(out.at[lane], value) : value;
            }
            store<W>(to + at, out);
        }
    });
}

/// Calls `body` with an array of `of` of `W` channels.
template <int W, class Of, class Body>
__device__ __forceinline__ void with_each(Of of, u64 c, Body body) {
    using One = decltype(of(c));
    if constexpr (W == 8) {
        One each[] = {of(c), of(c + 1), of(c + 2), of(c + 3), of(c + 4), of(c + 5), of(c + 6), of(c + 7)};
        body(each);
    } else if constexpr (W == 4) {
        One each[] = {of(c), of(c + 1), of(c + 2), of(c + 3)};
        body(each);
    } else {
        One each[] = {of(c)};
        body(each);
    }
}

/// As `sum_channels`: single precision over a few rows, double precision over these, over threads and over parts.
template <int W, int SUMS, int INPUTS, class Terms, class Finish>
__device__ __forceinline__ void sum_columns(const real* const (&from)[INPUTS], const Extents& e, double* partials,
                                            Terms terms, Finish finish) {
    constexpr int STEPS = BATCH<W>;
    __shared__ double of_warps[THREADS / 32][32 * W][SUMS];
    ulonglong2 rows = rows_of_part(e);
    each_column<W>(e, [&](u32 lanes, u64 base, u64 channel, bool exists) {
        double sums[W][SUMS] = {};
        with_each<W>(terms, channel, [&](decltype(terms(channel))(&each)[W]) {
            for (u64 row = rows.x + threadIdx.x / lanes; exists && row < rows.y;) {
                Pack<W, real> in[INPUTS][STEPS];
                bool there[STEPS];
#pragma unroll
                for (int step = 0; step < STEPS; step++, row += THREADS / lanes) {
                    there[step] = row < rows.y;
                    if (!there[step]) continue;
                    for (int input = 0; input < INPUTS; input++) {
                        in[input][step] = load<W>(from[input] + row * e.axis.divisor + channel);
                    }
                }
#pragma unroll
                for (int lane = 0; lane < W; lane++) {
                    float batch[SUMS] = {};
#pragma unroll
                    for (int step = 0; step < STEPS; step++) {
                        float x[INPUTS];
                        for (int input = 0; input < INPUTS; input++) x[input] = in[input][step].at[lane];
                        if (there[step]) each[lane](x, batch);
                    }
                    for (int sum = 0; sum < SUMS; sum++) sums[lane][sum] += batch[sum];
                }
            }
        });
        __syncthreads();  // the sums of the columns before have been read
        for (int lane = 0; lane < W; lane++) {
            for (int sum = 0; sum < SUMS; sum++) {
                double value = sums[lane][sum];
                for (u32 distance = 16; distance >= lanes; distance /= 2) {
                    value += __shfl_xor_sync(0xffffffff, value, distance);
                }
                u32 column = threadIdx.x % lanes * W + lane;
                if (threadIdx.x % 32 < lanes) of_warps[threadIdx.x / 32][column][sum] = value;
            }
        }
        __syncthreads();
        u64 own = base + threadIdx.x, part = blockIdx.y, parts = gridDim.y;
        u64 end = u64(blockIdx.x + 1) * COLUMNS;
        if (threadIdx.x >= lanes * W || own >= e.axis.divisor || own >= end) return;
        double all[SUMS] = {};
        for (int warp = 0; warp < THREADS / 32; warp++) {
            for (int sum = 0; sum < SUMS; sum++) all[sum] += of_warps[warp][threadIdx.x][sum];
        }
        if (parts == 1) return finish(own, all);
        for (int sum = 0; sum < SUMS; sum++) partials[(own * parts + part) * SUMS + sum] = all[sum];
    });
}

/// `to[i] (+)= op(of(channel of i), the inputs' elements i)`. The last elements come first: where a kernel that reads the
/// inputs from the beginning has just run, their ends are still in cache.
template <int INPUTS, class Of, class Op>
__device__ __forceinline__ void map_channels(const real* const (&from)[INPUTS], real* to, bool add,
                                             const Extents& extents, Of of, Op op) {
    if constexpr (CHANNELS_LAST) {
        if (extents.axis.divisor % PACK == 0 && aligned<PACK>(from) && aligned<PACK>({to})) {
            return map_columns<PACK>(from, to, add, extents, of, op);
        }
        return map_columns<1>(from, to, add, extents, of, op);
    }
    map_packs(from, to, add, extents.len(), gridDim.x - 1 - blockIdx.x, EachChannel<Of, Op>{extents, of, op});
}

// ---- One channel -----------------------------------------------------------------------------------------------------

/// A thread's way through some samples of one channel in packs of `W`, together with the other threads of its block.
/// Neighbouring threads read neighbouring packs of one plane; a block that is larger than a plane reads several at once.
/// The number of threads is a power of two.
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

/// `to[i] (+)= op(the inputs' elements i)` over this thread's elements.
template <int W, int INPUTS, class Op>
__device__ __forceinline__ void thread_map(ChannelWalk<W> walk, const real* const (&from)[INPUTS], real* to, bool add,
                                           Op op) {
    while (walk.more()) {
        constexpr int STEPS = BATCH<W> / 2;  // outputs need registers, too
        Pack<W, real> in[INPUTS][STEPS], out[STEPS];
        u64 at[STEPS];
        bool there[STEPS];
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            there[step] = walk.more();
            if (!there[step]) continue;
            at[step] = walk.at();
#pragma unroll
            for (int input = 0; input < INPUTS; input++) in[input][step] = load<W>(from[input] + at[step]);
            if (add) out[step] = load<W>(to + at[step]);
            walk.step();
        }
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            if (!there[step]) continue;
#pragma unroll
            for (int lane = 0; lane < W; lane++) {
                float x[INPUTS];
#pragma unroll
                for (int input = 0; input < INPUTS; input++) x[input] = in[input][step].at[lane];
                float value = op(x);
                out[step].at[lane] = add ? __fadd_rn(out[step].at[lane], value) : value;
            }
            store<W>(to + at[step], out[step]);
        }
    }
}

/// Adds up `terms(the inputs' elements, sums)` over this thread's elements: in single precision over a batch, in double
/// precision over batches.
template <int W, int INPUTS, int SUMS, class Terms>
__device__ __forceinline__ void thread_sums(ChannelWalk<W> walk, const real* const (&from)[INPUTS],
                                            double (&sums)[SUMS], Terms terms) {
    constexpr int STEPS = BATCH<W>;
    while (walk.more()) {
        Pack<W, real> in[INPUTS][STEPS];
        bool there[STEPS];
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            there[step] = walk.more();
            if (there[step]) {
#pragma unroll
                for (int input = 0; input < INPUTS; input++) in[input][step] = load<W>(from[input] + walk.at());
                walk.step();
            }
        }
        float batch[SUMS] = {};
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
#pragma unroll
            for (int lane = 0; lane < W; lane++) {
                float x[INPUTS];
#pragma unroll
                for (int input = 0; input < INPUTS; input++) x[input] = in[input][step].at[lane];
                if (there[step]) terms(x, batch);
            }
        }
        for (int sum = 0; sum < SUMS; sum++) sums[sum] += batch[sum];
    }
}

/// Whether the planes of all these blobs can be read in packs.
template <int COUNT>
__device__ __forceinline__ bool planes_aligned(const Extents& e, const real* const (&blobs)[COUNT]) {
    return e.inner.divisor % PACK == 0 && aligned<PACK>(blobs);
}

/// `to[i] (+)= op(the inputs' elements i)` over all elements of a channel, by one block.
template <int INPUTS, class Op>
__device__ __forceinline__ void channel_map(const real* const (&from)[INPUTS], real* to, bool add, const Extents& e,
                                            u64 channel, Op op) {
    if (planes_aligned(e, from) && aligned<PACK>({to})) {
        thread_map(ChannelWalk<PACK>(e, channel, 0, e.outer), from, to, add, op);
    } else {
        thread_map(ChannelWalk<1>(e, channel, 0, e.outer), from, to, add, op);
    }
}

/// The sums over the samples [first, last) of a channel, which every thread of the block gets.
template <int INPUTS, int SUMS, class Terms>
__device__ void channel_sums(const real* const (&from)[INPUTS], const Extents& e, u64 channel, u64 first, u64 last,
                             double (&sums)[SUMS], Terms terms) {
    for (int sum = 0; sum < SUMS; sum++) sums[sum] = 0;
    if (planes_aligned(e, from)) {
        thread_sums(ChannelWalk<PACK>(e, channel, first, last), from, sums, terms);
    } else {
        thread_sums(ChannelWalk<1>(e, channel, first, last), from, sums, terms);
    }
    for (int sum = 0; sum < SUMS; sum++) sums[sum] = block_sum(sums[sum]);
}

/// Sums per channel: `finish(channel, sums)` is called by one thread for each. To be launched with THREADS threads, a block
/// per channel in x and, in y, the parts into which samples are cut. Where there
/// are several, this leaves SUMS doubles per channel and part in `partials`, and `finish_sums` has to follow.
/// `terms(channel)` gives the function to be added up.
template <int SUMS, int INPUTS, class Terms, class Finish>
__device__ __forceinline__ void sum_channels(const real* const (&from)[INPUTS], const Extents& e, double* partials,
                                             Terms terms, Finish finish) {
    if constexpr (CHANNELS_LAST) {
        if (e.axis.divisor % PACK == 0 && aligned<PACK>(from)) {
            return sum_columns<PACK, SUMS>(from, e, partials, terms, finish);
        }
        return sum_columns<1, SUMS>(from, e, partials, terms, finish);
    }
    u64 part = blockIdx.y, parts = gridDim.y;
    u64 first = e.outer * part / parts, last = e.outer * (part + 1) / parts;
    double sums[SUMS];
    u64 channel = blockIdx.x;
    channel_sums(from, e, channel, first, last, sums, terms(channel));
    if (threadIdx.x != 0) return;
    if (parts == 1) return finish(channel, sums);
    for (int sum = 0; sum < SUMS; sum++) partials[(channel * parts + part) * SUMS + sum] = sums[sum];
}

/// Adds up what `sum_channels` left: one warp per channel.
template <int SUMS, class Finish>
__device__ __forceinline__ void finish_sums(const double* partials, u32 parts, u64 channels, Finish finish) {
    u64 channel = grid_start() / 32;
    if (channel >= channels) return;
    double sums[SUMS] = {};
    for (u32 part = threadIdx.x % 32; part < parts; part += 32) {
        for (int sum = 0; sum < SUMS; sum++) sums[sum] += partials[(channel * parts + part) * SUMS + sum];
    }
    for (int sum = 0; sum < SUMS; sum++) sums[sum] = warp_sum(sums[sum]);
    if (threadIdx.x % 32 == 0) finish(channel, sums);
}
