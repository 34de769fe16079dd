// ReLU: one pass. Inputs that are null are the output itself: the operation works in place.

/// What a slope makes of a value; slope 0 gets its own expression: `0 * -inf` would be NaN.
__device__ __forceinline__ float below(float slope, float value) { return slope == 0 ? 0 : slope * value; }

extern "C" __global__ void relu_forward(float slope, const real* x, real* y, u64 len) {
    map({x ? x : y}, y, false, len,
        [=](const float (&in)[1], u64) { return in[0] < 0 ? below(slope, in[0]) : in[0]; });
}

extern "C" __global__ void relu_backward(float slope, const real* y, const real* dy, real* dx, int add, u64 len) {
    map({y, dy ? dy : dx}, dx, add, len,
        [=](const float (&in)[2], u64) { return in[0] > 0 ? in[1] : below(slope, in[1]); });
}
