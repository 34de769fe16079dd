// Local response normalisation. A thread walks along the channels of one pixel, or looks at the square around it, and sums
// its neighbourhood anew for every element: differences of running sums would lose digits.

using i64 = long long;

/// As `Constants` of cuda.rs. Within a channel `constant` is 1; `forward_factor` is alpha / count and `backward_factor`
/// 2 alpha beta / count.
struct Lrn {
    float constant, beta, forward_factor, backward_factor;
    int size;
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

// ---- Across channels ----------------------------------------------------------------------------------------------------

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

/// Channels around `channel`.
__device__ __forceinline__ int2 around(const Lrn& lrn, int channel, int channels) {
    return make_int2(max(channel - lrn.size / 2, 0), min(channel + lrn.size / 2 + 1, channels));
}

// ---- Within a channel ---------------------------------------------------------------------------------------------------

/// Calls `body(element)` for the elements of the square around a thread's pixel.
struct Square {
    u64 at;
    bool exists;
    int2 rows, columns;
    u64 plane;
    int w;

    __device__ __forceinline__ Square(const Lrn& lrn, u64 planes, const Divisor& height, const Divisor& width) {
        at = grid_start();
        u64 line = width.divide(at), number = height.divide(line);
        exists = number < planes;
        w = int(width.divisor);
        rows = around(lrn, int(line - number * height.divisor), int(height.divisor));
        columns = around(lrn, int(at - line * width.divisor), w);
        plane = number * height.divisor * width.divisor;
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

__global__ void lrn_across_forward_5(Lrn lrn, Extents e, u32 segments, const float* x, float* y, float* scale) {
    Column column(e, segments);
    if (column.exists) forward_fixed<5>(lrn, column, x, y, scale);
}

__global__ void lrn_across_backward_5(Lrn lrn, Extents e, u32 segments, const float* x, const float* scale, const float* dy,
                                  float* dx, int add) {
    Column column(e, segments);
    if (column.exists) backward_fixed<5>(lrn, column, x, scale, dy, dx, add);
}

__global__ void lrn_across_forward(Lrn lrn, Extents e, u32 segments, const float* __restrict__ x, float* __restrict__ y,
                               float* __restrict__ scale) {
    Column column(e, segments);
    if (!column.exists) return;
    AnyPower powers{lrn.beta};
    for (int channel = column.first; channel < column.last; channel++) {
        int2 near = around(lrn, channel, column.channels);
        float sum = 0;
        for (int other = near.x; other < near.y; other++) sum += x[column.of(other)] * x[column.of(other)];
        float value = lrn.constant + lrn.forward_factor * sum;
        scale[column.of(channel)] = value;
        y[column.of(channel)] = x[column.of(channel)] * powers(value).power;
    }
}

__global__ void lrn_across_backward(Lrn lrn, Extents e, u32 segments, const float* __restrict__ x,
                                const float* __restrict__ scale, const float* __restrict__ dy, float* __restrict__ dx,
                                int add) {
    Column column(e, segments);
    if (!column.exists) return;
    AnyPower powers{lrn.beta};
    for (int channel = column.first; channel < column.last; channel++) {
        int2 near = around(lrn, channel, column.channels);
        float sum = 0;
        for (int other = near.x; other < near.y; other++) {
            u64 at = column.of(other);
            sum += dy[at] * x[at] * powers(scale[at]).ratio;
        }
        u64 at = column.of(channel);
        put(add, dx + at, dy[at] * powers(scale[at]).power - lrn.backward_factor * x[at] * sum);
    }
}

__global__ void lrn_within_forward(Lrn lrn, u64 planes, Divisor height, Divisor width, const float* __restrict__ x,
                               float* __restrict__ y, float* __restrict__ scale) {
    Square square(lrn, planes, height, width);
    if (!square.exists) return;
    float value = lrn.constant + lrn.forward_factor * square.sum([&](u64 i) { return x[i] * x[i]; });
    scale[square.at] = value;
    y[square.at] = x[square.at] * AnyPower{lrn.beta}(value).power;
}

__global__ void lrn_within_backward(Lrn lrn, u64 planes, Divisor height, Divisor width, const float* __restrict__ x,
                                const float* __restrict__ scale, const float* __restrict__ dy, float* __restrict__ dx,
                                int add) {
    Square square(lrn, planes, height, width);
    if (!square.exists) return;
    AnyPower powers{lrn.beta};
    float sum = square.sum([&](u64 i) { return dy[i] * x[i] * powers(scale[i]).ratio; });
    u64 i = square.at;
    put(add, dx + i, dy[i] * powers(scale[i]).power - lrn.backward_factor * x[i] * sum);
}

}  // extern "C"
