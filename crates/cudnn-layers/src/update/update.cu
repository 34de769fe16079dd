// The update of all parameters in one launch, sums of squares, and what an iteration comes to.

/// `StepState` of mod.rs.
struct StepState {
    double loss, squares;
    float scale;
    u32 refused;
};

/// `StepRates` of mod.rs.
struct StepRates {
    float rate, correction, delta;
};

/// One parameter, as cuda.rs fills it. Its blocks are those from `first_block` on, one per tile.
struct Parameter {
    const float* dw;
    float *history, *w;
    bf16* copy;  // null for none
    u64 len;
    float lr_mult, decay;
    u32 first_block, squares;  // the first of its partial sums
};

/// Partial sums of one parameter at most.
constexpr u64 PARTS = THREADS;

struct Table {
    float momentum, momentum2;
    float eta;  // LARC, if not 0
    int clips;
    int sign_decays;  // L1
    int count;
    const double *dw_squares, *w_squares;  // of all parameters
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

/// The factors of one parameter's update.
struct Factors {
    float a, ac, m, m2, delta, scale, decay, shrink;
    bool sign_decays;

    __device__ __forceinline__ float gradient(float dw, float w) const {
        return scale * dw + decay * (sign_decays ? float(w > 0) - float(w < 0) : w);
    }
};

template <int HISTORIES, int W, class Formula>
__device__ __forceinline__ void update_tile(const Parameter& parameter, const Factors& factors, u64 start,
                                            Formula formula) {
    constexpr int STEPS = PER_THREAD / W;
    Pack<W> dw[STEPS], kept[HISTORIES][STEPS], w[STEPS];
    start += threadIdx.x * W;
    UNROLL for (int step = 0; step < STEPS; step++) {
        u64 i = start + step * THREADS * W;
        if (i + W > parameter.len) continue;
        dw[step] = load<W>(parameter.dw + i);
        w[step] = load<W>(parameter.w + i);
        UNROLL for (int h = 0; h < HISTORIES; h++) kept[h][step] = load<W>(parameter.history + h * parameter.len + i);
    }
    UNROLL for (int step = 0; step < STEPS; step++) {
        u64 i = start + step * THREADS * W;
        if (i + W > parameter.len) continue;
        UNROLL for (int lane = 0; lane < W; lane++) {
            float& weight = w[step].at[lane];
            float gradient = factors.gradient(dw[step].at[lane], weight);
            formula(factors, gradient, kept[0][step].at[lane], kept[HISTORIES - 1][step].at[lane], weight);
        }
        store<W>(parameter.w + i, w[step]);
        if (parameter.copy) {
            Pack<W, bf16> copy;
            UNROLL for (int lane = 0; lane < W; lane++) copy.at[lane] = w[step].at[lane];
            store<W>(parameter.copy + i, copy);
        }
        UNROLL for (int h = 0; h < HISTORIES; h++) store<W>(parameter.history + h * parameter.len + i, kept[h][step]);
    }
}

/// The factor of LARC; each block adds up the few partial sums by itself.
__device__ inline float trust(const Table& table, const Parameter& parameter, float rate, float scale) {
    u64 tiles = (parameter.len + TILE - 1) / TILE, count = tiles < PARTS ? tiles : PARTS;
    u32 part = parameter.squares + threadIdx.x;
    bool reads = threadIdx.x < count;
    double g = sqrt(block_sum(reads ? table.dw_squares[part] : 0.0)) * scale;
    __syncthreads();
    double w = sqrt(block_sum(reads ? table.w_squares[part] : 0.0));
    __shared__ float factor;
    if (threadIdx.x == 0) {
        double ratio = double(table.eta) * w / g;
        if (table.clips) ratio = ratio / rate < 1 ? ratio / rate : 1;
        factor = w == 0 || g == 0 ? 1 : float(ratio);
    }
    __syncthreads();
    return factor;
}

/// Nothing if `prepare` has refused it.
template <int HISTORIES, bool SHRINKS, class Formula>
__device__ __forceinline__ void update(const Table& table, const StepRates& rates, const StepState& state,
                                       Formula formula) {
    if (state.refused != 0) return;
    const Parameter& parameter = table.at[table.find(blockIdx.x)];
    float a = rates.rate * (table.eta != 0 ? trust(table, parameter, rates.rate, state.scale) : parameter.lr_mult);
    float shrink = SHRINKS ? 1 - a * parameter.decay : 1, decay = SHRINKS ? 0 : parameter.decay;
    Factors factors{a,           a * rates.correction, table.momentum, table.momentum2, rates.delta,
                    state.scale, decay,                shrink,         table.sign_decays != 0};
    u64 start = u64(blockIdx.x - parameter.first_block) * TILE;
    bool whole = start + TILE <= parameter.len;
    const float* last = parameter.history + (HISTORIES - 1) * parameter.len;
    if (whole && aligned({parameter.dw, parameter.history, last, parameter.w}) && aligned({parameter.copy})) {
        update_tile<HISTORIES, 4>(parameter, factors, start, formula);
    } else {
        update_tile<HISTORIES, 1>(parameter, factors, start, formula);
    }
}

/// An update by one of the formulas of mod.rs, which is that of one element: how many numbers are kept of it, `h` and
/// `k`, if there is a second one, and whether the decay shrinks the weight.
#define UPDATE(name, HISTORIES, SHRINKS, ...)                                                                          \
    extern "C" __global__ void name(const __grid_constant__ Table table, const StepRates* rates,                       \
                                    const StepState* state) {                                                          \
        auto step = [](const Factors& f, float g, float& h, float& k, float& w) { __VA_ARGS__; };                      \
        update<HISTORIES, SHRINKS>(table, *rates, *state, step);                                                       \
    }

UPDATE(update_sgd, 1, false, h = f.m * h + f.a * g; w -= h)
UPDATE(update_nesterov, 1, false, float before = h; h = f.m * before + f.a * g; w -= (1 + f.m) * h - f.m * before)
UPDATE(update_adagrad, 1, false, h += g * g; w -= f.a * g / (sqrtf(h) + f.delta))
UPDATE(update_rmsprop, 1, false, h = f.m2 * h + (1 - f.m2) * g * g; w -= f.a * g / (sqrtf(h) + f.delta))
UPDATE(update_adadelta, 2, false,
       h = f.m * h + (1 - f.m) * g * g;
       float u = g * sqrtf((k + f.delta) / (h + f.delta));
       k = f.m * k + (1 - f.m) * u * u;
       w -= f.a * u)

__device__ __forceinline__ void adam(const Factors& f, float g, float& h, float& k, float& w) {
    h = f.m * h + (1 - f.m) * g;
    k = f.m2 * k + (1 - f.m2) * g * g;
    w = f.shrink * w - f.ac * h / (sqrtf(k) + f.delta);
}
UPDATE(update_adam, 2, false, adam(f, g, h, k, w))
UPDATE(update_adamw, 2, true, adam(f, g, h, k, w))

/// The sum of squares of a tile after the other, one double per block.
extern "C" __global__ void squares(const float* x, double* partials, u64 len) {
    double total = 0;
    for (u64 start = u64(blockIdx.x) * TILE; start < len; start += u64(gridDim.x) * TILE) {
        float of_tile = 0;
        UNROLL for (u32 step = 0; step < PER_THREAD; step++) {
            u64 i = start + step * THREADS + threadIdx.x;
            float value = i < len ? x[i] : 0;
            of_tile += value * value;
        }
        total += of_tile;
    }
    total = block_sum(total);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

/// Adds up the sums that `squares` left, finds the gradients' factor, and decides whether there is an update; one
/// block.
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

/// One thread: no rank updates anything if one has met a label out of range.
extern "C" __global__ void offer_loss(StepState* state, const uint4* fault) {
    bool failed = *reinterpret_cast<const volatile u32*>(fault) != 0;
    state->squares = failed ? nan("") : state->loss;
    state->loss = nan("");
}
