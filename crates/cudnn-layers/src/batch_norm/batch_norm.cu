// Batch normalisation. Where a channel fits the caches, one block does it in one launch, which reads memory once; larger
// ones are summed by several blocks and then mapped.

/// Threads of a block that does a whole channel.
constexpr u32 CHANNEL_THREADS = 512;

/// The line `y = a (x - mean) + b` of a channel.
struct Line {
    float mean, a, b;
    /// Rounded in the same way wherever it stands: backward has to find the sign that forward saw.
    __device__ float operator()(float x) const { return __fmaf_rn(__fsub_rn(x, mean), a, b); }
};

/// What the mini-batch's statistics add to a channel's gradient `dx = a dy + b (x - mean) + c`.
struct Plane {
    float b, c;
};

/// One pass, as cuda.rs fills it. gamma, beta, dgamma and dbeta may be null.
struct Pass {
    Extents extents;
    const real* x;
    const float *gamma, *beta;
    float *mean, *inv_std;
    real* y;
    float *running_mean, *running_variance, *running_factor;
    const real* dy;
    real* dx;
    float *dgamma, *dbeta;
    Plane* planes;
    float epsilon, fraction;
    int relu, by_batch, add, add_gamma, add_beta;

    __device__ double count() const { return double(extents.outer * extents.inner.divisor); }
    __device__ Line line(u64 channel, float mean, float inv_std) const {
        return {mean, gamma ? __fmul_rn(gamma[channel], inv_std) : inv_std, beta ? beta[channel] : 0};
    }
};

/// A forward pass in training.
struct Training : Pass {
    /// A value of the channel: sums of squares about it lose no digits to a mean that is large against the deviation.
    __device__ float pivot(u64 channel) const { return x[channel * extents.inner.divisor]; }
    __device__ auto terms(u64 channel) const {
        return [pivot = pivot(channel)](const float (&in)[1], float (&sums)[2]) {
            float distance = in[0] - pivot;
            sums[0] += distance;
            sums[1] += distance * distance;
        };
    }
    __device__ float channel_mean(u64 channel, const double (&sums)[2]) const {
        return float(pivot(channel) + sums[0] / count());
    }
    /// The biased variance. Not fmax, which would make 0 of a NaN.
    __device__ float channel_variance(const double (&sums)[2]) const {
        double distance = sums[0] / count(), variance = sums[1] / count() - distance * distance;
        return variance < 0 ? 0 : float(variance);
    }
    __device__ float channel_inv_std(float variance) const { return 1 / sqrtf(variance + epsilon); }

    /// Saves a channel's statistics and folds them into the running ones.
    __device__ void operator()(u64 channel, const double (&sums)[2]) const {
        save(channel, channel_mean(channel, sums), channel_variance(sums));
    }
    __device__ void save(u64 channel, float of_mean, float variance) const {
        mean[channel] = of_mean;
        inv_std[channel] = channel_inv_std(variance);
        float unbiased = count() > 1 ? float(count() / (count() - 1)) : 1;
        running_mean[channel] = fraction * running_mean[channel] + of_mean;
        running_variance[channel] = fraction * running_variance[channel] + unbiased * variance;
        if (channel == 0) *running_factor = fraction * *running_factor + 1;
    }
};

extern "C" __global__ void statistics(const __grid_constant__ Training training, double* partials) {
    sum_channels<2>({training.x}, training.extents, partials,
                    [&](u64 channel) { return training.terms(channel); }, training);
}

extern "C" __global__ void statistics_finish(const __grid_constant__ Training training, const double* partials,
                                             u32 parts) {
    finish_sums<2>(partials, parts, training.extents.axis.divisor, training);
}

extern "C" __global__ void normalise(const __grid_constant__ Training training) {
    map_channels({training.x}, training.y, false, training.extents,
                 [&](u64 channel) { return training.line(channel, training.mean[channel], training.inv_std[channel]); },
                 [&](const Line& line, const float (&in)[1]) { return rectified(training.relu, line(in[0])); });
}

extern "C" __global__ void __launch_bounds__(CHANNEL_THREADS, 2)
    forward_by_channel(const __grid_constant__ Training training) {
    const Extents& extents = training.extents;
    u64 channel = blockIdx.x;
    double sums[2];
    channel_sums({training.x}, extents, channel, 0, extents.outer, sums, training.terms(channel));
    float mean = training.channel_mean(channel, sums), variance = training.channel_variance(sums);
    if (threadIdx.x == 0) training.save(channel, mean, variance);
    Line line = training.line(channel, mean, training.channel_inv_std(variance));
    bool relu = training.relu;
    channel_map({training.x}, training.y, false, extents, channel,
                [=](const float (&in)[1]) { return rectified(relu, line(in[0])); });
}

/// Mean and inverse standard deviation that the running sums stand for; with a factor of 0 both sums count as 0.
extern "C" __global__ void running_statistics(const __grid_constant__ Training pass) {
    u64 channel = grid_start();
    if (channel >= pass.extents.axis.divisor) return;
    float factor = *pass.running_factor, scale = factor == 0 ? 0 : 1 / factor;
    pass.mean[channel] = scale * pass.running_mean[channel];
    pass.inv_std[channel] = pass.channel_inv_std(scale * pass.running_variance[channel]);
}

/// What arrives of the gradient `dy` of the output at `x`: all of it, or what a ReLU behind the line lets pass.
struct Arriving {
    Line line;
    bool relu;
    __device__ float operator()(float x, float dy) const { return relu && !(line(x) > 0) ? 0 : dy; }
};

struct Gradient {
    Arriving arriving;
    Plane plane;
    __device__ float operator()(float x, float dy) const {
        const Line& line = arriving.line;
        return line.a * arriving(x, dy) + (plane.b * (x - line.mean) + plane.c);
    }
};

struct Backward : Pass {
    __device__ auto terms(u64 channel) const {
        return [arriving = arriving(channel)](const float (&in)[2], float (&sums)[2]) {
            float dy = arriving(in[0], in[1]);
            sums[0] += dy;
            sums[1] += dy * (in[0] - arriving.line.mean);
        };
    }
    __device__ Arriving arriving(u64 channel) const {
        return {line(channel, mean[channel], inv_std[channel]), relu != 0};
    }
    __device__ Plane plane(u64 channel, const double (&sums)[2]) const {
        if (!by_batch) return {0, 0};
        double inverse = inv_std[channel], a = arriving(channel).line.a;
        double per_element = a / count();
        return {float(-per_element * sums[1] * inverse * inverse), float(-per_element * sums[0])};
    }
    __device__ Gradient gradient(u64 channel, const Plane& plane) const {
        return {arriving(channel), plane};
    }
    __device__ void save_gradients(u64 channel, const double (&sums)[2]) const {
        if (dgamma) put(add_gamma, dgamma + channel, float(sums[1] * inv_std[channel]));
        if (dbeta) put(add_beta, dbeta + channel, float(sums[0]));
    }
    __device__ void operator()(u64 channel, const double (&sums)[2]) const {
        save_gradients(channel, sums);
        planes[channel] = plane(channel, sums);
    }
};

extern "C" __global__ void backward_sums(const __grid_constant__ Backward backward, double* partials) {
    sum_channels<2>({backward.x, backward.dy}, backward.extents, partials,
                    [&](u64 channel) { return backward.terms(channel); }, backward);
}

extern "C" __global__ void backward_sums_finish(const __grid_constant__ Backward backward, const double* partials,
                                                u32 parts) {
    finish_sums<2>(partials, parts, backward.extents.axis.divisor, backward);
}

extern "C" __global__ void backward_map(const __grid_constant__ Backward backward) {
    map_channels({backward.x, backward.dy}, backward.dx, backward.add, backward.extents,
                 [&](u64 channel) { return backward.gradient(channel, backward.planes[channel]); },
                 [](const Gradient& gradient, const float (&in)[2]) { return gradient(in[0], in[1]); });
}

extern "C" __global__ void __launch_bounds__(CHANNEL_THREADS, 2)
    backward_by_channel(const __grid_constant__ Backward backward) {
    const Extents& extents = backward.extents;
    u64 channel = blockIdx.x;
    double sums[2];
    channel_sums({backward.x, backward.dy}, extents, channel, 0, extents.outer, sums, backward.terms(channel));
    if (threadIdx.x == 0) backward.save_gradients(channel, sums);
    Gradient gradient = backward.gradient(channel, backward.plane(channel, sums));
    channel_map({backward.x, backward.dy}, backward.dx, backward.add, extents, channel,
                [=](const float (&in)[2]) { return gradient(in[0], in[1]); });
}
