// Local response normalisation. A thread walks along the channels of one pixel, or looks at the square around it, and sums
// its neighbourhood again for every element: differences of running sums would lose digits.

using i64 = long long;

/// As `Constants` of cuda.rs. `forward_factor` is alpha / count and `backward_factor` 2 alpha beta / count.
struct Lrn {
    float constant, beta, forward_factor, backward_factor;
    int half_rows, half_columns;
    u32 segments;
};

/// Functions of a scale: `power`, its -beta th power, and `ratio`, that divided by the scale.
struct Powers {
    float power, ratio;
};

/// For beta = 0.75, every published net's: `1 / sqrt(scale) * sqrt(1 / sqrt(scale))`, to about four units in the last place.
struct ThreeQuarters {
    __device__ __forceinline__ Powers operator()(float scale) const {
        float inverse_root, root_of_it;
        asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse_root) : "f"(scale));
        asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root_of_it) : "f"(inverse_root));
        float power = inverse_root * root_of_it;
        return {power, power * (inverse_root * inverse_root)};
    }
};

/// For any beta.
struct AnyPower {
    float beta;
    __device__ __forceinline__ Powers operator()(float scale) const {
        if (beta == 0.75f) return ThreeQuarters()(scale);
        float power = powf(scale, -beta);
        return {power, power / scale};
    }
};

// ---- Across five channels, with beta = 0.75 -----------------------------------------------------------------------------

/// The channels [first, last) of one pixel, which a thread has.
struct Column {
    u64 at;  // the pixel in channel 0
    int first, last, channels;
    u64 pixels;
    bool exists;

    /// The channels are cut into segments. Neighbouring blocks have those of the same pixels: they read some in common.
    __device__ __forceinline__ Column(const Extents& e, u32 segments) {
        u32 segment = blockIdx.x % segments;
        u64 index = u64(blockIdx.x / segments) * blockDim.x + threadIdx.x, sample = e.inner.divide(index);
        pixels = e.inner.divisor;
        channels = int(e.axis.divisor);
        at = sample * channels * pixels + index - sample * pixels;
        first = int(u32(channels) * segment / segments);
        last = int(u32(channels) * (segment + 1) / segments);
        exists = sample < e.outer;
    }
    __device__ __forceinline__ bool has(int channel) const { return channel >= first && channel < last; }
    /// The pixel in `channel`, which may lie outside.
    __device__ __forceinline__ u64 of(int channel) const { return at + channel * i64(pixels); }
};

/// The last `SIZE` values of a sequence.
template <int SIZE>
struct Recent {
    float values[SIZE] = {};

    __device__ __forceinline__ void push(float value) {
#pragma unroll
        for (int i = 0; i + 1 < SIZE; i++) values[i] = values[i + 1];
        values[SIZE - 1] = value;
    }
};

/// Channels that a thread reads before it computes, to hide the latency of memory.
constexpr int FORWARD_BATCH = 8, BACKWARD_BATCH = 4;

/// For a neighbourhood known to the compiler. Pointers advance by a channel at a time: products would cost more.
template <int SIZE>
__device__ __forceinline__ void forward_fixed(const Lrn& lrn, const Column& column, const float* __restrict__ x,
                                              float* __restrict__ y, float* __restrict__ scale) {
    constexpr int HALF = SIZE / 2;
    int channel = max(column.first - HALF, 0), end = min(column.last + HALF, column.channels);
    x += column.of(channel);
    y += column.of(channel - HALF);
    scale += column.of(channel - HALF);
    Recent<SIZE> near;
    for (; channel < column.last + HALF; channel += FORWARD_BATCH) {
        float next[FORWARD_BATCH];
#pragma unroll
        for (int i = 0; i < FORWARD_BATCH; i++) {
            next[i] = channel + i < end ? *x : 0;
            x += column.pixels;
        }
#pragma unroll
        for (int i = 0; i < FORWARD_BATCH; i++) {
            near.push(next[i]);
            float sum = 0;
#pragma unroll
            for (int j = 0; j < SIZE; j++) sum += near.values[j] * near.values[j];
            float value = lrn.constant + lrn.forward_factor * sum;
            if (column.has(channel + i - HALF)) {
                *scale = value;
                *y = near.values[HALF] * ThreeQuarters()(value).power;
            }
            scale += column.pixels;
            y += column.pixels;
        }
    }
}

template <int SIZE>
__device__ __forceinline__ void backward_fixed(const Lrn& lrn, const Column& column, const float* __restrict__ x,
                                               const float* __restrict__ scale, const float* __restrict__ dy,
                                               float* __restrict__ dx, bool add) {
    constexpr int HALF = SIZE / 2;
    int channel = max(column.first - HALF, 0), end = min(column.last + HALF, column.channels);
    x += column.of(channel);
    scale += column.of(channel);
    dy += column.of(channel);
    dx += column.of(channel - HALF);
    // dy * x * scale^(-beta - 1); x; dy * scale^-beta
    Recent<SIZE> ratios;
    Recent<HALF + 1> data, direct;
    for (; channel < column.last + HALF; channel += BACKWARD_BATCH) {
        // Past the last channel all is as if the data were zero.
        float xs[BACKWARD_BATCH], scales[BACKWARD_BATCH], dys[BACKWARD_BATCH];
#pragma unroll
        for (int i = 0; i < BACKWARD_BATCH; i++) {
            bool there = channel + i < end;
            xs[i] = there ? *x : 0;
            scales[i] = there ? *scale : 1;
            dys[i] = there ? *dy : 0;
            x += column.pixels;
            scale += column.pixels;
            dy += column.pixels;
        }
#pragma unroll
        for (int i = 0; i < BACKWARD_BATCH; i++) {
            Powers powers = ThreeQuarters()(scales[i]);
            data.push(xs[i]);
            direct.push(dys[i] * powers.power);
            ratios.push(dys[i] * xs[i] * powers.ratio);
            float sum = 0;
#pragma unroll
            for (int j = 0; j < SIZE; j++) sum += ratios.values[j];
            if (column.has(channel + i - HALF)) {
                put(add, dx, direct.values[0] - lrn.backward_factor * data.values[0] * sum);
            }
            dx += column.pixels;
        }
    }
}

// ---- Any neighbourhood --------------------------------------------------------------------------------------------------

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

// ---- Entries ------------------------------------------------------------------------------------------------------------

extern "C" {

__global__ void lrn_forward_5(Lrn lrn, Extents e, const float* x, float* y, float* scale) {
    Column column(e, lrn.segments);
    if (column.exists) forward_fixed<5>(lrn, column, x, y, scale);
}

__global__ void lrn_backward_5(Lrn lrn, Extents e, const float* x, const float* scale, const float* dy, float* dx, int add) {
    Column column(e, lrn.segments);
    if (column.exists) backward_fixed<5>(lrn, column, x, scale, dy, dx, add);
}

__global__ void lrn_forward(Lrn lrn, Extents e, const float* __restrict__ x, float* __restrict__ y,
                            float* __restrict__ scale) {
    Square square(lrn, e);
    if (!square.exists) return;
    float value = lrn.constant + lrn.forward_factor * square.sum([&](u64 i) { return x[i] * x[i]; });
    scale[square.at] = value;
    y[square.at] = x[square.at] * AnyPower{lrn.beta}(value).power;
}

__global__ void lrn_backward(Lrn lrn, Extents e, const float* __restrict__ x, const float* __restrict__ scale,
                             const float* __restrict__ dy, float* __restrict__ dx, int add) {
    Square square(lrn, e);
    if (!square.exists) return;
    AnyPower powers{lrn.beta};
    float sum = square.sum([&](u64 i) { return dy[i] * x[i] * powers(scale[i]).ratio; });
    u64 i = square.at;
    put(add, dx + i, dy[i] * powers(scale[i]).power - lrn.backward_factor * x[i] * sum);
}

}  // extern "C"
