// Functions of one element: one pass. Inputs that are null are the output itself: the operation works in place.

/// The numbers of a function, in the order of cuda.rs.
struct Numbers {
    float a, b, c;
};

/// What a slope makes of a value; slope 0 gets its own expression: `0 * -inf` would be NaN.
__device__ __forceinline__ float below(float slope, float value) { return slope == 0 ? 0 : slope * value; }

/// A function by two expressions: of `x`, and of `dy` and what backward sees, `s`.
#define ACTIVATION(name, value, gradient)                                                                              \
    extern "C" __global__ void name##_forward(Numbers n, const real* from, real* y, u64 len) {                       \
        map({from ? from : y}, y, false, len, [=](const float(&in)[1], u64) {                                          \
            float x = in[0];                                                                                           \
            return float(value);                                                                                       \
        });                                                                                                            \
    }                                                                                                                  \
    extern "C" __global__ void name##_backward(Numbers n, const real* seen, const real* from, real* dx, int add,    \
                                               u64 len) {                                                              \
        map({seen, from ? from : dx}, dx, add, len, [=](const float(&in)[2], u64) {                                    \
            float s = in[0], dy = in[1];                                                                               \
            return float(gradient);                                                                                    \
        });                                                                                                            \
    }

ACTIVATION(relu, x < 0 ? below(n.a, x) : x, s > 0 ? dy : below(n.a, dy))
ACTIVATION(elu, x > 0 ? x : n.a * expm1f(x), s > 0 ? dy : (s + n.a) * dy)
ACTIVATION(sigmoid, 0.5f * tanhf(0.5f * x) + 0.5f, s * (1 - s) * dy)
ACTIVATION(tanh, tanhf(x), (1 - s * s) * dy)
ACTIVATION(power, powf(n.c + n.b * x, n.a), n.a == 0 || n.b == 0 ? 0 : n.a * n.b * powf(n.c + n.b * s, n.a - 1) * dy)
ACTIVATION(below, x > 0 ? 0 : x, s > 0 ? 0 : dy)
