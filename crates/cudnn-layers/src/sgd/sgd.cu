// The update of all parameters in one launch, and sums of squares.

/// One parameter, as cuda.rs fills it. Its blocks are those from `first_block` on, one per tile.
struct Parameter {
    const float* dw;
    float *v, *w;
    u64 len;
    float rate, momentum, gradient_scale, decay;
    int sign_decays;  // L1
    u32 first_block;

    __device__ __forceinline__ void step(float dw, float& v, float& w) const {
        float sign = float(w > 0) - float(w < 0);
        float gradient = gradient_scale * dw + decay * (sign_decays ? sign : w);
        v = momentum * v + rate * gradient;
        w -= v;
    }
};

struct Table {
    u64 count;
    Parameter at[64];

    /// The parameter that a block works on.
    __device__ __forceinline__ u32 find(u32 block) const {
        u32 low = 0, high = u32(count);
        while (high - low > 1) {
            u32 middle = (low + high) / 2;
            if (at[middle].first_block <= block) low = middle;
            else high = middle;
        }
        return low;
    }
};

template <int W>
__device__ __forceinline__ void update_tile(const Parameter& parameter, u64 start) {
    constexpr int STEPS = PER_THREAD / W;
    Pack<W> dw[STEPS], v[STEPS], w[STEPS];
    start += threadIdx.x * W;
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        u64 i = start + step * THREADS * W;
        if (i + W > parameter.len) continue;
        dw[step] = load<W>(parameter.dw + i);
        v[step] = load<W>(parameter.v + i);
        w[step] = load<W>(parameter.w + i);
    }
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        u64 i = start + step * THREADS * W;
        if (i + W > parameter.len) continue;
#pragma unroll
        for (int lane = 0; lane < W; lane++) parameter.step(dw[step].at[lane], v[step].at[lane], w[step].at[lane]);
        store<W>(parameter.v + i, v[step]);
        store<W>(parameter.w + i, w[step]);
    }
}

extern "C" __global__ void update(const __grid_constant__ Table table) {
    const Parameter& parameter = table.at[table.find(blockIdx.x)];
    u64 start = u64(blockIdx.x - parameter.first_block) * TILE;
    bool whole = start + TILE <= parameter.len;
    if (whole && aligned({parameter.dw, parameter.v, parameter.w})) {
        update_tile<4>(parameter, start);
    } else {
        update_tile<1>(parameter, start);
    }
}

/// The sum of squares of a tile after the other, one double per block.
extern "C" __global__ void squares(const float* x, double* partials, u64 len) {
    double total = 0;
    for (u64 start = u64(blockIdx.x) * TILE; start < len; start += u64(gridDim.x) * TILE) {
        float of_tile = 0;
#pragma unroll
        for (u32 step = 0; step < PER_THREAD; step++) {
            u64 i = start + step * THREADS + threadIdx.x;
            float value = i < len ? x[i] : 0;
            of_tile += value * value;
        }
        total += of_tile;
    }
    total = block_sum(total);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

/// Adds up partial sums; one block.
extern "C" __global__ void squares_finish(const double* partials, u64 count, double* sum) {
    double total = 0;
    for (u64 i = threadIdx.x; i < count; i += THREADS) total += partials[i];
    total = block_sum(total);
    if (threadIdx.x == 0) *sum = total;
}
