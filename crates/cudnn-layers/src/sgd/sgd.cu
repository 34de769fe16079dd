// The update of all parameters in one launch, sums of squares, and what an iteration comes to.

/// `StepState` of mod.rs.
struct StepState {
    double loss, squares;
    float scale;
    u32 refused;
};

/// One parameter, as cuda.rs fills it. Its blocks are those from `first_block` on, one per tile.
struct Parameter {
    const float* dw;
    float *v, *w;
    u64 len;
    float lr_mult, decay;
    u64 first_block;
};

/// The factors of one parameter's update.
struct Step {
    float rate, momentum, scale, decay;
    bool sign_decays;  // L1

    __device__ __forceinline__ void operator()(float dw, float& v, float& w) const {
        float decayed = sign_decays ? float(w > 0) - float(w < 0) : w;
        v = momentum * v + rate * (scale * dw + decay * decayed);
        w -= v;
    }
};

struct Table {
    float momentum;
    int sign_decays;
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
__device__ __forceinline__ void update_tile(const Parameter& parameter, Step update, u64 start) {
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
        for (int lane = 0; lane < W; lane++) update(dw[step].at[lane], v[step].at[lane], w[step].at[lane]);
        store<W>(parameter.v + i, v[step]);
        store<W>(parameter.w + i, w[step]);
    }
}

/// Nothing if `prepare` has refused it.
extern "C" __global__ void update(const __grid_constant__ Table table, const float* rate, const StepState* state) {
    if (state->refused != 0) return;
    const Parameter& parameter = table.at[table.find(blockIdx.x)];
    Step step{*rate * parameter.lr_mult, table.momentum, state->scale, parameter.decay, table.sign_decays != 0};
    u64 start = u64(blockIdx.x - parameter.first_block) * TILE;
    bool whole = start + TILE <= parameter.len;
    if (whole && aligned({parameter.dw, parameter.v, parameter.w})) {
        update_tile<4>(parameter, step, start);
    } else {
        update_tile<1>(parameter, step, start);
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

/// Adds up the sums that `squares` left, finds the gradients' factor, and decides whether there is an update; one block.
extern "C" __global__ void prepare(const double* partials, u64 count, float clip, float mini_batches, StepState* state,
                                   const uint4* fault) {
    double total = 0;
    for (u64 i = threadIdx.x; i < count; i += THREADS) total += partials[i];
    total = block_sum(total);
    if (threadIdx.x != 0) return;
    double norm = sqrt(total);
    float factor = norm > double(clip) ? float(double(clip) / norm) : 1;
    state->squares = total;
    state->scale = factor / mini_batches;
    if (!isfinite(state->loss) || *reinterpret_cast<const volatile u32*>(fault) != 0) state->refused = 1;
}

/// One thread: a loss is one element, or few.
extern "C" __global__ void add_loss(const float* loss, u64 len, double weight, StepState* state, int add) {
    double sum = 0;
    for (u64 i = 0; i < len; i++) sum += loss[i];
    state->loss = __dadd_rn(add ? state->loss : 0, __dmul_rn(weight, sum));
}
