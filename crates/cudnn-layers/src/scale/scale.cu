// A factor, a bias, or both per channel.

/// Null for none.
struct FactorsAt {
    const float *gamma, *beta;
    int relu;
};

template <int W>
struct Factors {
    Pack<W> gamma, beta;
    bool relu;
    __device__ __forceinline__ Factors(const FactorsAt& from, u64 channel)
        : gamma(of_channels<W>(from.gamma, channel, 1)), beta(of_channels<W>(from.beta, channel)), relu(from.relu) {}
    __device__ __forceinline__ float operator()(int lane, const float (&in)[1]) const {
        return rectified(relu, gamma.at[lane] * in[0] + beta.at[lane]);
    }
};

/// `gamma` and `beta` may be null: none; `x` may be null: in place.
extern "C" __global__ void scale(Extents extents, const float* gamma, const float* beta, int relu, const real* x, real* y,
                                 int add) {
    map_channels<Factors>({x ? x : y}, y, add, extents, FactorsAt{gamma, beta, relu});
}

/// The same for every channel.
template <int W>
struct Terms {
    __device__ __forceinline__ Terms(const Extents&, u64) {}
    /// Of `x` and `dy`.
    __device__ __forceinline__ float operator()(int, const float (&in)[2], float (&sums)[2]) const {
        sums[0] += in[1] * in[0];
        sums[1] += in[1];
        return 0;
    }
    /// Of `dy` or, if a ReLU has left `y`, of `y` and `dy`: what it lets pass.
    template <int INPUTS>
    __device__ __forceinline__ float operator()(int, const float (&in)[INPUTS], float (&sums)[1]) const {
        float passed = INPUTS == 1 || in[0] > 0 ? in[INPUTS - 1] : 0;
        sums[0] += passed;
        return passed;
    }
};

/// `gamma` and `beta`, where the sums of a channel go, may be null.
extern "C" __global__ void __launch_bounds__(SUM_THREADS)
    scale_backward_affine(Extents extents, const real* x, const real* dy, float* gamma, float* beta, int add_gamma,
                          int add_beta, double* partials) {
    auto put_sums = [=](u64 channel, const double (&sums)[2], bool once) {
        if (once && gamma) put(add_gamma, gamma + channel, float(sums[0]));
        if (once && beta) put(add_beta, beta + channel, float(sums[1]));
    };
    sum_channels<Terms, 2>({x, dy}, nullptr, extents, partials, extents, put_sums);
}

/// `y` may be null; `passed`, where what it lets pass goes, too.
extern "C" __global__ void __launch_bounds__(SUM_THREADS)
    bias_backward(Extents extents, const real* y, const real* dy, real* passed, float* db, int add, double* partials) {
    auto put_sum = [=](u64 channel, const double (&sums)[1], bool once) {
        if (once) put(add, db + channel, float(sums[0]));
    };
    if (passed) {
        sum_channels<Terms, 1, true>({y, dy}, passed, extents, partials, extents, put_sum);
    } else if (y) {
        sum_channels<Terms, 1>({y, dy}, nullptr, extents, partials, extents, put_sum);
    } else {
        sum_channels<Terms, 1>({dy}, nullptr, extents, partials, extents, put_sum);
    }
}
