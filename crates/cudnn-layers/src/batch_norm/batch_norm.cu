// Batch normalisation, alone or with the sum and the ReLU behind it. Where a channel fits the caches, one block does it
// in one launch, which reads memory once; larger ones are summed by several blocks and then mapped. Where channels lie
// side by side, blocks wait for each other between the two, in one launch: most of what they read again is in cache.

/// Blocks that a multiprocessor is to have room for, where one does a whole channel.
constexpr u32 CHANNEL_BLOCKS = CHANNELS_LAST ? 1 : 2;

/// The lines `y = a (x - mean) + b` of some channels.
template <int W>
struct Lines {
    Pack<W> mean, a, b;
    /// Rounded in the same way wherever it stands: backward has to find the sign that forward saw.
    __device__ __forceinline__ float operator()(int lane, float x) const {
        return __fmaf_rn(__fsub_rn(x, mean.at[lane]), a.at[lane], b.at[lane]);
    }
};

/// Those of a maximum pooling behind all, if there is one: see the end of this file.
struct Windows {
    int h, w, out_h, out_w, pad_h, pad_w;
    Divisor rows, columns;  // of squares of pixels
    u64 count;  // of these, in all samples
    u8* winners;  // may be null

    /// The sample, row and column of square number `i`.
    __device__ __forceinline__ void find(u64 i, u64& sample, int& row, int& column) const {
        u64 line = columns.divide(i);
        sample = rows.divide(line);
        row = int(line - sample * rows.divisor);
        column = int(i - line * columns.divisor);
    }
};

/// One pass, as cuda.rs fills it. gamma, beta, dgamma and dbeta may be null; and `added`, which is added to the line's
/// values, `y_seen`, whose sign a ReLU goes by that follows that sum, and `passed`, where what it lets pass of dy goes.
struct Pass {
    Extents extents;
    const real* x;
    const float *gamma, *beta;
    float *mean, *inv_std;
    const real* added;
    real* y;
    float *running_mean, *running_variance, *running_factor;
    const real *dy, *y_seen;
    real *dx, *passed;
    float *dgamma, *dbeta;
    float* planes;  // b of all channels, then c
    Windows windows;
    float epsilon, fraction;
    int relu, by_batch, add, add_gamma, add_beta;

    __device__ double count() const { return double(extents.outer * extents.inner.divisor); }
    template <int W>
    __device__ __forceinline__ Lines<W> lines(u64 channel) const {
        Lines<W> lines{of_channels<W>(mean, channel), of_channels<W>(gamma, channel, 1), of_channels<W>(beta, channel)};
        Pack<W> inverse = of_channels<W>(inv_std, channel);
        for (int lane = 0; lane < W; lane++) lines.a.at[lane] = __fmul_rn(lines.a.at[lane], inverse.at[lane]);
        return lines;
    }
};

/// A forward pass in training.
struct Training : Pass {
    __device__ float channel_inv_std(float variance) const { return 1 / sqrtf(variance + epsilon); }

    /// Saves a channel's statistics and, once, folds them into the running ones. The variance is the biased one; not by
    /// fmax, which would make 0 of a NaN.
    __device__ void operator()(u64 channel, const double (&sums)[2], bool once) const {
        double distance = sums[0] / count(), square = sums[1] / count() - distance * distance;
        float of_mean = float(float(x[channel * extents.inner.divisor]) + distance);
        float variance = square < 0 ? 0 : float(square);
        mean[channel] = of_mean;
        inv_std[channel] = channel_inv_std(variance);
        if (!once) return;
        float unbiased = count() > 1 ? float(count() / (count() - 1)) : 1;
        running_mean[channel] = fraction * running_mean[channel] + of_mean;
        running_variance[channel] = fraction * running_variance[channel] + unbiased * variance;
        if (channel == 0) *running_factor = fraction * *running_factor + 1;
    }
};

/// What adds up the first moments of some channels about one of their values: sums of squares about it lose no digits
/// to a mean that is large against the deviation.
template <int W>
struct Moments {
    Pack<W, real> pivot;
    __device__ __forceinline__ Moments(const Training& training, u64 channel)
        : pivot(load<W>(training.x + channel * training.extents.inner.divisor)) {}
    __device__ __forceinline__ float operator()(int lane, const float (&in)[1], float (&sums)[2]) const {
        float distance = in[0] - float(pivot.at[lane]);
        sums[0] += distance;
        sums[1] += distance * distance;
        return 0;
    }
};

template <int W>
struct Normalised {
    Lines<W> lines;
    bool relu;
    __device__ __forceinline__ Normalised(const Training& training, u64 channel)
        : lines(training.lines<W>(channel)), relu(training.relu) {}
    template <int INPUTS>
    __device__ __forceinline__ float operator()(int lane, const float (&in)[INPUTS]) const {
        float value = lines(lane, in[0]);
        return rectified(relu, INPUTS == 1 ? value : __fadd_rn(value, in[INPUTS - 1]));
    }
};

__device__ __forceinline__ void sum_moments(const Training& training, double* partials) {
    sum_channels<Moments, 2>({training.x}, nullptr, training.extents, partials, training, training);
}

extern "C" __global__ void __launch_bounds__(SUM_THREADS)
    statistics(const __grid_constant__ Training training, double* partials) {
    if constexpr (!CHANNELS_LAST) sum_moments(training, partials);
}

template <bool OWN = false>
__device__ __forceinline__ void map_normalised(const Training& training) {
    if (training.added) {
        map_channels<Normalised, OWN>({training.x, training.added}, training.y, false, training.extents, training);
    } else {
        map_channels<Normalised, OWN>({training.x}, training.y, false, training.extents, training);
    }
}

extern "C" __global__ void normalise(const __grid_constant__ Training training) { map_normalised(training); }

extern "C" __global__ void __launch_bounds__(SUM_THREADS, CHANNEL_BLOCKS)
    forward_by_channel(const __grid_constant__ Training training, double* partials) {
    sum_moments(training, partials);
    if constexpr (!CHANNELS_LAST) __syncthreads();  // the statistics are there
    map_normalised<!CHANNELS_LAST>(training);
}

/// Mean and inverse standard deviation that the running sums stand for; with a factor of 0 both sums count as 0.
extern "C" __global__ void running_statistics(const __grid_constant__ Training pass) {
    u64 channel = grid_start();
    if (channel >= pass.extents.axis.divisor) return;
    float factor = *pass.running_factor, scale = factor == 0 ? 0 : 1 / factor;
    pass.mean[channel] = scale * pass.running_mean[channel];
    pass.inv_std[channel] = pass.channel_inv_std(scale * pass.running_variance[channel]);
}

struct Backward : Pass {
    __device__ void operator()(u64 channel, const double (&sums)[2], bool once) const {
        double inverse = inv_std[channel], a = lines<1>(channel).a.at[0], per_element = a / count();
        planes[channel] = by_batch ? float(-per_element * sums[1] * inverse * inverse) : 0;
        planes[extents.axis.divisor + channel] = by_batch ? float(-per_element * sums[0]) : 0;
        if (once && dgamma) put(add_gamma, dgamma + channel, float(sums[1] * inverse));
        if (once && dbeta) put(add_beta, dbeta + channel, float(sums[0]));
    }
};

/// What arrives of the gradient `dy` of the output at `x`: all of it, or what a ReLU right behind the line lets pass,
/// or, if there is a third input, the output itself, by its sign.
template <int W>
struct Arriving {
    Lines<W> lines;
    bool relu;
    __device__ __forceinline__ Arriving(const Backward& backward, u64 channel)
        : lines(backward.lines<W>(channel)), relu(backward.relu && !backward.y_seen) {}
    template <int INPUTS>
    __device__ __forceinline__ float operator()(int lane, const float (&in)[INPUTS]) const {
        if (INPUTS == 3) return in[INPUTS - 1] > 0 ? in[1] : 0;
        return relu & !(lines(lane, in[0]) > 0) ? 0 : in[1];  // without a branch for each element
    }
    template <int INPUTS>
    __device__ __forceinline__ float operator()(int lane, const float (&in)[INPUTS], float (&sums)[2]) const {
        float dy = (*this)(lane, in);
        add(lane, in[0], dy, sums);
        return dy;
    }
    __device__ __forceinline__ void add(int lane, float x, float dy, float (&sums)[2]) const {
        sums[0] += dy;
        sums[1] += dy * (x - lines.mean.at[lane]);
    }
};

/// With what the mini-batch's statistics add to a channel's gradient `dx = a dy + b (x - mean) + c`.
template <int W>
struct Gradient {
    Arriving<W> arriving;
    Pack<W> b, c;
    __device__ __forceinline__ Gradient(const Backward& backward, u64 channel)
        : arriving(backward, channel),
          b(of_channels<W>(backward.planes, channel)),
          c(of_channels<W>(backward.planes + backward.extents.axis.divisor, channel)) {}
    template <int INPUTS>
    __device__ __forceinline__ float operator()(int lane, const float (&in)[INPUTS]) const {
        return of(lane, in[0], arriving(lane, in));
    }
    __device__ __forceinline__ float of(int lane, float x, float dy) const {
        float deviation = x - arriving.lines.mean.at[lane];
        return arriving.lines.a.at[lane] * dy + (b.at[lane] * deviation + c.at[lane]);
    }
};

__device__ __forceinline__ void sum_gradients(const Backward& backward, double* partials) {
    const Extents& e = backward.extents;
    const real *x = backward.x, *dy = backward.dy, *y = backward.y_seen;
    if (backward.passed) {
        sum_channels<Arriving, 2, true>({x, dy, y}, backward.passed, e, partials, backward, backward);
    } else if (y) {
        sum_channels<Arriving, 2>({x, dy, y}, nullptr, e, partials, backward, backward);
    } else {
        sum_channels<Arriving, 2>({x, dy}, nullptr, e, partials, backward, backward);
    }
}

extern "C" __global__ void __launch_bounds__(SUM_THREADS)
    backward_sums(const __grid_constant__ Backward backward, double* partials) {
    if constexpr (!CHANNELS_LAST) sum_gradients(backward, partials);
}

/// What has passed the ReLU need not be found again.
template <bool OWN = false>
__device__ __forceinline__ void map_gradients(const Backward& backward) {
    const real *x = backward.x, *dy = backward.passed ? backward.passed : backward.dy;
    if (backward.y_seen && !backward.passed) {
        map_channels<Gradient, OWN>({x, dy, backward.y_seen}, backward.dx, backward.add, backward.extents, backward);
    } else {
        map_channels<Gradient, OWN>({x, dy}, backward.dx, backward.add, backward.extents, backward);
    }
}

extern "C" __global__ void backward_map(const __grid_constant__ Backward backward) {
    if constexpr (!CHANNELS_LAST) map_gradients(backward);
}

extern "C" __global__ void __launch_bounds__(SUM_THREADS, CHANNEL_BLOCKS)
    backward_by_channel(const __grid_constant__ Backward backward, double* partials) {
    sum_gradients(backward, partials);
    if constexpr (!CHANNELS_LAST) __syncthreads();  // what the map needs is there
    map_gradients<!CHANNELS_LAST>(backward);
}

// ---- With a maximum pooling behind all ------------------------------------------------------------------------------
//
// It has windows of 3 x 3 pixels, 2 apart, over channels side by side. Pixels are in squares of 2 x 2, in whose corner a
// window begins, if there is one. What is normalised lies nowhere, nor does its gradient: forward, a thread keeps the
// largest pixel of a window; backward, it finds the gradients of a square, over which four windows lie.

/// A line that falls has its maximum where x is smallest.
template <int W>
__device__ __forceinline__ void pool_columns(const Training& training) {
    const Extents& e = training.extents;
    const Windows& windows = training.windows;
    each_row<W>(e, windows.count, [&](u64 channel, i64) {
        Lines<W> lines = training.lines<W>(channel);
        float sign[W];
        for (int lane = 0; lane < W; lane++) sign[lane] = lines.a.at[lane] < 0 ? -1 : 1;
        return [=, &training, &windows, &e](u64 i) {
            u64 sample;
            int row, column;
            windows.find(i, sample, row, column);
            if (row >= windows.out_h || column >= windows.out_w) return;
            const real* image = training.x + sample * (windows.h * windows.w) * e.axis.divisor + channel;
            int top = 2 * row - windows.pad_h, left = 2 * column - windows.pad_w;
            Maxima<W, u8> maxima;
            auto meet = [&](int tap, Pack<W, real> x) {
                UNROLL for (int lane = 0; lane < W; lane++) x.at[lane] = sign[lane] * x.at[lane];
                maxima.meet(tap, x);
            };
            each_of_square<3, false, W>(image, top, left, windows.h, windows.w, e.axis.divisor, meet);
            u64 window = (sample * windows.out_h + row) * windows.out_w + column, at = window * e.axis.divisor + channel;
            maxima.write(training.relu, training.y + at, windows.winners ? windows.winners + at : nullptr,
                         [&](int lane, float largest) { return lines(lane, sign[lane] * largest); });
        };
    });
}

extern "C" __global__ void __launch_bounds__(SUM_THREADS)
    forward_pooled(const __grid_constant__ Training training, double* partials) {
    if constexpr (CHANNELS_LAST) {
        if (training.running_mean) sum_moments(training, partials);  // or else the statistics are there
        const real* winners = reinterpret_cast<const real*>(training.windows.winners);
        if (in_packs(training.extents, {training.x, winners}, training.y)) return pool_columns<PACK>(training);
        pool_columns<1>(training);
    }
}

/// A square of pixels, row by row, and what arrives of the gradient at each. Where there is no pixel, that is nothing, and
/// another one is read: branches between loads would make each wait for the one before.
template <int W>
struct Square {
    bool there[4];
    u64 at[4];
    Pack<W, real> x[4];
    float dy[2][2][W] = {};

    __device__ __forceinline__ Square(const Backward& backward, u64 i, u64 channel) {
        const Windows& windows = backward.windows;
        u64 axis = backward.extents.axis.divisor, sample;
        int row, column;
        windows.find(i, sample, row, column);
        u64 image = sample * (windows.h * windows.w);
        UNROLL for (int k = 0; k < 4; k++) {
            int r = 2 * row - windows.pad_h + k / 2, s = 2 * column - windows.pad_w + k % 2;
            there[k] = u32(r) < u32(windows.h) && u32(s) < u32(windows.w);
            at[k] = (image + (there[k] ? r * windows.w + s : 0)) * axis + channel;
            x[k] = load<W>(backward.x + at[k]);
        }
        u64 first = sample * (windows.out_h * windows.out_w) * axis + channel;
        const u8* winners = windows.winners + first;
        add_won<3, 2>(winners, backward.dy + first, 2 * row, 2 * column, windows.out_h, windows.out_w,
                      [=](int window) { return window * axis; }, dy);
    }
};

template <int W>
__device__ __forceinline__ void spread_columns(const Backward& backward, double* partials) {
    auto sum_rows = [&](u32 lanes, u64 channel, double (&sums)[W][2]) {
        Arriving<W> arriving(backward, channel);
        auto [i, step] = RowWalk<u64>(lanes);
        for (; i < backward.windows.count; i += step) {
            Square<W> square(backward, i, channel);
            UNROLL for (int lane = 0; lane < W; lane++) {
                float batch[2] = {};
                UNROLL for (int k = 0; k < 4; k++) {
                    arriving.add(lane, square.x[k].at[lane], square.dy[k / 2][k % 2][lane], batch);
                }
                for (int sum = 0; sum < 2; sum++) sums[lane][sum] += batch[sum];
            }
        }
    };
    sum_columns<W, 2>(backward.extents, partials, sum_rows, backward);
    each_row<W>(backward.extents, backward.windows.count, [&](u64 channel, i64) {
        return [=, &backward, gradient = Gradient<W>(backward, channel)](u64 i) {
            Square<W> square(backward, i, channel);
            UNROLL for (int k = 0; k < 4; k++) {
                if (!square.there[k]) continue;
                Pack<W, real> dx;
                if (backward.add) dx = load<W>(backward.dx + square.at[k]);
                for (int lane = 0; lane < W; lane++) {
                    float value = gradient.of(lane, square.x[k].at[lane], square.dy[k / 2][k % 2][lane]);
                    put(backward.add, &dx.at[lane], value);
                }
                store<W>(backward.dx + square.at[k], dx);
            }
        };
    });
}

extern "C" __global__ void __launch_bounds__(SUM_THREADS)
    backward_pooled(const __grid_constant__ Backward backward, double* partials) {
    if constexpr (CHANNELS_LAST) {
        const real *x = backward.x, *winners = reinterpret_cast<const real*>(backward.windows.winners);
        if (in_packs(backward.extents, {x, backward.dy, winners}, backward.dx)) {
            return spread_columns<PACK>(backward, partials);
        }
        spread_columns<1>(backward, partials);
    }
}
