// A factor, and optionally a bias, per channel.

struct Affine {
    float gamma, beta;
};

/// `beta` may be null: none; `x` may be null: in place.
extern "C" __global__ void scale_forward(Extents extents, const float* gamma, const float* beta, int relu,
                                         const float* x, float* y) {
    map_channels({x ? x : y}, y, false, extents,
                 [=](u64 channel) { return Affine{gamma[channel], beta ? beta[channel] : 0}; },
                 [=](const Affine& affine, const float (&in)[1]) {
                     return rectified(relu, affine.gamma * in[0] + affine.beta);
                 });
}

extern "C" __global__ void scale_backward(Extents extents, const float* gamma, const float* dy, float* dx, int add) {
    map_channels({dy}, dx, add, extents, [=](u64 channel) { return gamma[channel]; },
                 [](float gamma, const float (&in)[1]) { return gamma * in[0]; });
}

/// `dbeta` may be null.
struct Finish {
    float *dgamma, *dbeta;
    bool add;
    __device__ void operator()(u64 channel, const double (&sums)[2]) const {
        put(add, dgamma + channel, float(sums[0]));
        if (dbeta) put(add, dbeta + channel, float(sums[1]));
    }
};

extern "C" __global__ void scale_backward_affine(Extents extents, const float* x, const float* dy, float* dgamma,
                                                 float* dbeta, int add, double* partials) {
    auto terms = [](u64) {
        return [](const float (&in)[2], float (&sums)[2]) {
            sums[0] += in[1] * in[0];
            sums[1] += in[1];
        };
    };
    sum_channels<2>({x, dy}, extents, partials, terms, Finish{dgamma, dbeta, add != 0});
}

extern "C" __global__ void scale_backward_affine_finish(const double* partials, u32 parts, u64 channels, float* dgamma,
                                                        float* dbeta, int add) {
    finish_sums<2>(partials, parts, channels, Finish{dgamma, dbeta, add != 0});
}
