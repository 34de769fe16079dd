// Copies, dense and between a dense block and a block of columns.

extern "C" __global__ void copy(const float* x, float* y, int add, u64 len) {
    map({x}, y, add, len, [](const float (&in)[1], u64) { return in[0]; });
}

extern "C" __global__ void fill(float value, float* y, u64 len) {
    u64 start = u64(blockIdx.x) * TILE + threadIdx.x;
    for (u32 step = 0; step < PER_THREAD; step++) {
        u64 i = start + step * THREADS;
        if (i < len) y[i] = value;
    }
}

/// Where a dense block lies in a matrix: `width` columns from `offset` on of rows of `stride`.
struct Columns {
    u64 rows, stride, offset;
    Divisor width;

    __device__ __forceinline__ u64 len() const { return rows * width.divisor; }
    __device__ __forceinline__ u64 in_matrix(u64 in_block) const {
        u64 row = width.divide(in_block);
        return in_block + row * (stride - width.divisor) + offset;
    }
    __device__ __forceinline__ bool aligned() const { return width.divisor % 4 == 0 && stride % 4 == 0 && offset % 4 == 0; }
};

/// One tile of the block, in packs of `W`: `places(index in the block)` are those to read from and to write to.
template <int W, class Places>
__device__ __forceinline__ void transfer_tile(const float* from, float* to, bool add, u64 len, Places places) {
    constexpr int STEPS = PER_THREAD / W;
    u64 start = u64(blockIdx.x) * TILE + threadIdx.x * W;
    Pack<W> in[STEPS], out[STEPS];
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        u64 i = start + step * THREADS * W;
        if (i >= len) continue;
        in[step] = load<W>(from + places(i).from);
        if (add) out[step] = load<W>(to + places(i).to);
    }
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        u64 i = start + step * THREADS * W;
        if (i >= len) continue;
#pragma unroll
        for (int lane = 0; lane < W; lane++) {
            if (add) in[step].at[lane] += out[step].at[lane];
        }
        store<W>(to + places(i).to, in[step]);
    }
}

template <class Places>
__device__ __forceinline__ void transfer(const Columns& columns, const float* from, float* to, bool add, Places places) {
    if (columns.aligned() && aligned(from) && aligned(to)) {
        transfer_tile<4>(from, to, add, columns.len(), places);
    } else {
        transfer_tile<1>(from, to, add, columns.len(), places);
    }
}

struct Places {
    u64 from, to;
};

extern "C" __global__ void into_columns(Columns columns, const float* x, float* y) {
    transfer(columns, x, y, false, [=](u64 i) { return Places{i, columns.in_matrix(i)}; });
}

extern "C" __global__ void from_columns(Columns columns, const float* dy, float* dx, int add) {
    transfer(columns, dy, dx, add, [=](u64 i) { return Places{columns.in_matrix(i), i}; });
}
