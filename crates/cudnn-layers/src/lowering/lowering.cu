// Images as matrices that a filter can be multiplied with, in NCHW and single precision.

/// As `lowering` of cuda.rs fills it: extents of image, filter and y, padding, strides, dilation.
struct Lowering {
    int h, w, r, s, out_h, out_w, top, left, down, right, below, beside;
};

/// The plane of an element, and where it lies there.
__device__ __forceinline__ u64 place(u64 at, Divisor height, Divisor width, int& row, int& column) {
    u64 line = width.divide(at), plane = height.divide(line);
    row = int(line - plane * height.divisor);
    column = int(at - line * width.divisor);
    return plane;
}

/// Of every channel a row for each tap of the filter: what that tap sees, for all pixels of y.
extern "C" __global__ void im2col(u64 len, Divisor height, Divisor width, Lowering l, const float* x, float* to) {
    u64 at = grid_start();
    if (at >= len) return;
    int row, column;
    u64 plane = place(at, height, width, row, column), pixels = u64(l.out_h) * l.out_w;
    const float* image = x + plane * l.h * l.w;
    float* tap = to + plane * l.r * l.s * pixels + at - plane * pixels;
    for (int i = 0; i < l.r; i++) {
        int h = row * l.down - l.top + i * l.below;
        for (int j = 0; j < l.s; j++) {
            int w = column * l.right - l.left + j * l.beside;
            *tap = 0 <= h && h < l.h && 0 <= w && w < l.w ? image[u64(h) * l.w + w] : 0.0f;
            tap += pixels;
        }
    }
}

/// The other way: a pixel of the image gets the sum of what all taps saw there.
extern "C" __global__ void col2im(u64 len, Divisor height, Divisor width, Lowering l, const float* from,
                                  float* dx, int add) {
    u64 at = grid_start();
    if (at >= len) return;
    int row, column;
    u64 plane = place(at, height, width, row, column), pixels = u64(l.out_h) * l.out_w;
    const float* taps = from + plane * l.r * l.s * pixels;
    float sum = 0;
    for (int i = 0; i < l.r; i++) {
        int h = row + l.top - i * l.below;
        if (h < 0 || h % l.down || h / l.down >= l.out_h) continue;
        for (int j = 0; j < l.s; j++) {
            int w = column + l.left - j * l.beside;
            if (w < 0 || w % l.right || w / l.right >= l.out_w) continue;
            sum += taps[u64(i * l.s + j) * pixels + u64(h / l.down) * l.out_w + w / l.right];
        }
    }
    put(add, dx + at, sum);
}

/// `to[i] (+)= sum of from[term][i]`.
extern "C" __global__ void sum_terms(u64 len, u64 terms, const float* from, float* to, int add) {
    u64 at = grid_start();
    if (at >= len) return;
    float sum = 0;
#pragma unroll 8
    for (u64 term = 0; term < terms; term++) sum += from[term * len + at];
    put(add, to + at, sum);
}
