// A bias per channel and its gradient.

extern "C" __global__ void bias_forward(Extents extents, const float* b, int relu, float* y) {
    map_channels({y}, y, false, extents, [=](u64 channel) { return b[channel]; },
                 [=](float b, const float (&in)[1]) { return rectified(relu, in[0] + b); });
}

struct Finish {
    float* db;
    bool add;
    __device__ void operator()(u64 channel, const double (&sums)[1]) const { put(add, db + channel, float(sums[0])); }
};

extern "C" __global__ void bias_backward(Extents extents, const float* dy, float* db, int add, double* partials) {
    auto itself = [](u64) { return [](const float (&in)[1], float (&sums)[1]) { sums[0] += in[0]; }; };
    sum_channels<1>({dy}, extents, partials, itself, Finish{db, add != 0});
}

extern "C" __global__ void bias_backward_finish(const double* partials, u32 parts, u64 channels, float* db, int add) {
    finish_sums<1>(partials, parts, channels, Finish{db, add != 0});
}
