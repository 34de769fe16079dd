// Element-wise combinations.

extern "C" __global__ void scaled(float coefficient, const real* x, real* y, int add, u64 len) {
    map({x}, y, add, len, [=](const float (&in)[1], u64) { return coefficient * in[0]; });
}

/// As cuda.rs fills it; only `sum` knows `relu`.
struct Inputs {
    const real* at[64];  // behind the last one the first again
    float coefficients[64];
    u32 count;
    int relu;
};

/// Two summands, a residual network's case, are read in packs.
extern "C" __global__ void sum(const __grid_constant__ Inputs inputs, real* y, u64 len) {
    map({inputs.at[0], inputs.at[1]}, y, false, len, [&](const float (&in)[2], u64 i) {
        float total = inputs.coefficients[0] * in[0];
        if (inputs.count > 1) total += inputs.coefficients[1] * in[1];
        for (u32 j = 2; j < inputs.count; j++) total += inputs.coefficients[j] * inputs.at[j][i];
        return rectified(inputs.relu, total);
    });
}

/// `start` times the product of all inputs at `i` but that numbered `index`.
__device__ __forceinline__ float others(const Inputs& inputs, u32 index, float start, u64 i) {
    float product = start;
    for (u32 j = 0; j < inputs.count; j++) {
        if (j != index) product *= inputs.at[j][i];
    }
    return product;
}

extern "C" __global__ void product(const __grid_constant__ Inputs inputs, real* y, u64 len) {
    map({inputs.at[0]}, y, false, len, [&](const float (&in)[1], u64 i) { return others(inputs, 0, in[0], i); });
}

extern "C" __global__ void product_backward(const __grid_constant__ Inputs inputs, u32 index, const real* dy, real* dx,
                                            int add, u64 len) {
    map({dy}, dx, add, len, [&](const float (&in)[1], u64 i) { return others(inputs, index, in[0], i); });
}

struct Best {
    float value;
    u32 index;
};

/// The largest input at `i`, of which the first is given: of two equal first inputs the second wins.
__device__ __forceinline__ Best largest(const Inputs& inputs, float first, u64 i) {
    Best best = {first, 0};
    for (u32 j = 1; j < inputs.count; j++) {
        float x = inputs.at[j][i];
        if (j == 1 ? x >= best.value || x != x : x > best.value) best = {x, j};
    }
    return best;
}

extern "C" __global__ void maximum(const __grid_constant__ Inputs inputs, real* y, u64 len) {
    map({inputs.at[0]}, y, false, len, [&](const float (&in)[1], u64 i) { return largest(inputs, in[0], i).value; });
}

extern "C" __global__ void maximum_backward(const __grid_constant__ Inputs inputs, u32 index, const real* dy, real* dx,
                                            int add, u64 len) {
    map({inputs.at[0], dy}, dx, add, len, [&](const float (&in)[2], u64 i) {
        return largest(inputs, in[0], i).index == index ? in[1] : 0.0f;
    });
}
