// A factor, a bias, or both per channel.

struct Affine {
    float gamma, beta;
};

/// `gamma` and `beta` may be null: none; `x` may be null: in place.
extern "C" __global__ void scale_forward(Extents extents, const float* gamma, const float* beta, int relu,
                                         const real* x, real* y) {
    map_channels({x ? x : y}, y, false, extents,
                 [=](u64 channel) { return Affine{gamma ? gamma[channel] : 1, beta ? beta[channel] : 0}; },
                 [=](const Affine& affine, const float (&in)[1]) {
                     return rectified(relu, affine.gamma * in[0] + affine.beta);
                 });
}

extern "C" __global__ void scale_backward(Extents extents, const float* gamma, const real* dy, real* dx, int add) {
    map_channels({dy}, dx, add, extents, [=](u64 channel) { return gamma[channel]; },
                 [](float gamma, const float (&in)[1]) { return gamma * in[0]; });
}

/// Where the sums of a channel go: as cuda.rs fills it. Either may be null.
struct Gradients {
    float *gamma, *beta;
    int add_gamma, add_beta;
    __device__ void operator()(u64 channel, const double (&sums)[2]) const {
        if (gamma) put(add_gamma, gamma + channel, float(sums[0]));
        if (beta) put(add_beta, beta + channel, float(sums[1]));
    }
};

extern "C" __global__ void scale_backward_affine(Extents extents, const real* x, const real* dy, Gradients gradients,
                                                 double* partials) {
    auto terms = [](u64) {
        return [](const float (&in)[2], float (&sums)[2]) {
            sums[0] += in[1] * in[0];
            sums[1] += in[1];
        };
    };
    sum_channels<2>({x, dy}, extents, partials, terms, gradients);
}

/// Without a factor, and so without `x`.
extern "C" __global__ void bias_backward(Extents extents, const real*, const real* dy, Gradients gradients,
                                         double* partials) {
    auto terms = [](u64) { return [](const float (&in)[1], float (&sums)[2]) { sums[1] += in[0]; }; };
    sum_channels<2>({dy}, extents, partials, terms, gradients);
}

extern "C" __global__ void scale_backward_finish(Extents extents, const real*, const real*, Gradients gradients,
                                                 const double* partials, u32 parts) {
    finish_sums<2>(partials, parts, extents.axis.divisor, gradients);
}
