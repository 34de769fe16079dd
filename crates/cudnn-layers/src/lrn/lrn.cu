// Local response normalisation. Across five channels a thread has a run of channels of a pixel and reads all that is around
// them at once; elsewhere it has an element and looks at the rows and columns around it. A neighbourhood is summed again
// for every element: differences of running sums would lose digits.

/// As `Constants` of cuda.rs. `forward_factor` is alpha / count and `backward_factor` 2 alpha beta / count.
struct Lrn {
    Divisor runs;
    float constant, beta, forward_factor, backward_factor;
    int half_rows, half_columns;
};

/// Functions of a scale: `power`, its -beta th power, and `ratio`, that divided by the scale. The GPU's own logarithm is
/// within 2^-22 for scales up to 2, above within two units in the last place (CUDA's programming guide).
struct Powers {
    float power, ratio;

    __device__ __forceinline__ Powers(float beta, float scale)
        : power(exp2f(-beta * __log2f(scale))), ratio(__fdividef(power, scale)) {}
};

// ---- Across five channels -------------------------------------------------------------------------------------------

/// Channels on either side, and those of a run. Where channels lie side by side, a pack of them is one; elsewhere longer
/// runs read less twice, from cache, but keep fewer threads busy.
constexpr int SIDE = 2;
constexpr int RUN = CHANNELS_LAST ? PACK : 4;

/// The channels of a pixel that a thread has.
struct Run {
    u64 start, step;  // the first one's element, and how far it is to the next
    int first, channels;
    bool exists, packs;

    __device__ __forceinline__ Run(const Lrn& lrn, const Extents& e, bool packs)
        : step(e.inner.divisor), channels(int(e.axis.divisor)), packs(CHANNELS_LAST && packs) {
        u64 index = grid_start(), line = e.inner.divide(index), sample = lrn.runs.divide(line);
        first = int(line - sample * lrn.runs.divisor) * RUN;
        start = (sample * channels + first) * step + index - line * step;
        exists = sample < e.outer;
    }

    __device__ __forceinline__ bool has(int lane) const { return u32(first + lane) < u32(channels); }

    /// The elements of the run and of `side` channels around it; zeros where there is no channel.
    template <int N>
    __device__ __forceinline__ void read(const real* from, float (&to)[N]) const {
        constexpr int side = (N - RUN) / 2;
        from += start;
        if (packs) {
            UNROLL for (int base = -RUN; base <= RUN; base += RUN) {
                Pack<RUN, real> pack{};
                if (has(base)) pack = load<RUN>(from + base);
                UNROLL for (int lane = 0; lane < RUN; lane++) {
                    int at = base + lane + side;
                    if (at >= 0 && at < N) to[at] = pack.at[lane];
                }
            }
        } else {
            UNROLL for (int at = 0; at < N; at++) {
                to[at] = has(at - side) ? float(from[i64(at - side) * i64(step)]) : 0.0f;
            }
        }
    }

    /// Overwrites or adds.
    __device__ __forceinline__ void write(bool add, real* to, const float (&values)[RUN]) const {
        to += start;
        if (packs) {
            Pack<RUN, real> pack{};
            if (add) pack = load<RUN>(to);
            UNROLL for (int lane = 0; lane < RUN; lane++) put(add, &pack.at[lane], values[lane]);
            store(to, pack);
        } else {
            UNROLL for (int lane = 0; lane < RUN; lane++) {
                if (has(lane)) put(add, to + lane * step, values[lane]);
            }
        }
    }
};

/// The scale of `x[at + SIDE]`.
template <int N>
__device__ __forceinline__ float scale_of(const Lrn& lrn, const float (&x)[N], int at) {
    float sum = 0;
    UNROLL for (int i = at; i <= at + 2 * SIDE; i++) sum += x[i] * x[i];
    return lrn.constant + lrn.forward_factor * sum;
}

extern "C" __global__ void lrn_forward_5(Lrn lrn, Extents e, const real* __restrict__ from, real* __restrict__ to) {
    Run run(lrn, e, in_packs(e, {from}, to));
    if (!run.exists) return;
    float x[RUN + 2 * SIDE], y[RUN];
    run.read(from, x);
    UNROLL for (int lane = 0; lane < RUN; lane++) {
        y[lane] = x[lane + SIDE] * Powers(lrn.beta, scale_of(lrn, x, lane)).power;
    }
    run.write(false, to, y);
}

extern "C" __global__ void lrn_backward_5(Lrn lrn, Extents e, const real* __restrict__ from,
                                          const real* __restrict__ gradient, real* __restrict__ to, int add) {
    Run run(lrn, e, in_packs(e, {from, gradient}, to));
    if (!run.exists) return;
    float x[RUN + 4 * SIDE], dy[RUN + 2 * SIDE], ratios[RUN + 2 * SIDE], dx[RUN];
    run.read(from, x);
    run.read(gradient, dy);
    UNROLL for (int at = 0; at < RUN + 2 * SIDE; at++) {
        Powers powers(lrn.beta, scale_of(lrn, x, at));
        ratios[at] = run.has(at - SIDE) ? dy[at] * x[at + SIDE] * powers.ratio : 0.0f;
        dy[at] *= powers.power;
    }
    UNROLL for (int lane = 0; lane < RUN; lane++) {
        float sum = 0;
        UNROLL for (int i = lane; i <= lane + 2 * SIDE; i++) sum += ratios[i];
        dx[lane] = dy[lane + SIDE] - lrn.backward_factor * x[lane + 2 * SIDE] * sum;
    }
    run.write(add, to, dx);
}

// ---- Any neighbourhood ----------------------------------------------------------------------------------------------

/// The rows or columns around one of them.
__device__ __forceinline__ int2 around(int half, int at, u64 extent) {
    return make_int2(max(at - half, 0), min(at + half + 1, int(extent)));
}

/// The neighbourhood of a thread's element: rows and columns of a plane. Across channels, rows are channels.
struct Square {
    u64 at;
    bool exists;
    int2 rows, columns;
    u64 plane, w;

    __device__ __forceinline__ Square(const Lrn& lrn, const Extents& e) {
        at = grid_start();
        u64 line = e.inner.divide(at), number = e.axis.divide(line);
        exists = number < e.outer;
        w = e.inner.divisor;
        rows = around(lrn.half_rows, int(line - number * e.axis.divisor), e.axis.divisor);
        columns = around(lrn.half_columns, int(at - line * w), w);
        plane = number * e.axis.divisor * w;
    }

    template <class Term>
    __device__ __forceinline__ float sum(Term term) const {
        float total = 0;
        for (int row = rows.x; row < rows.y; row++) {
            float part = 0;
            for (int column = columns.x; column < columns.y; column++) part += term(plane + u64(row) * w + column);
            total += part;
        }
        return total;
    }
};

__device__ __forceinline__ float scale_of(const Lrn& lrn, const Square& square, const real* x) {
    return lrn.constant + lrn.forward_factor * square.sum([&](u64 i) { return x[i] * x[i]; });
}

extern "C" __global__ void lrn_forward(Lrn lrn, Extents e, const real* __restrict__ x, real* __restrict__ y) {
    Square square(lrn, e);
    if (square.exists) y[square.at] = x[square.at] * Powers(lrn.beta, scale_of(lrn, square, x)).power;
}

extern "C" __global__ void lrn_scale(Lrn lrn, Extents e, const real* __restrict__ x, float* __restrict__ scale) {
    Square square(lrn, e);
    if (square.exists) scale[square.at] = scale_of(lrn, square, x);
}

extern "C" __global__ void lrn_backward(Lrn lrn, Extents e, const real* __restrict__ x,
                                        const float* __restrict__ scale, const real* __restrict__ dy,
                                        real* __restrict__ dx, int add) {
    Square square(lrn, e);
    if (!square.exists) return;
    float sum = square.sum([&](u64 i) { return dy[i] * x[i] * Powers(lrn.beta, scale[i]).ratio; });
    u64 i = square.at;
    put(add, dx + i, dy[i] * Powers(lrn.beta, scale[i]).power - lrn.backward_factor * x[i] * sum);
}
