// What filters of 1x1 need beside products of matrices: in NCHW and single precision.

/// As `Seen::new` of cuda.rs fills it: pixels that a filter sees, extents of a plane of them, strides, and extents of a
/// plane of all pixels.
struct Seen {
    u64 len;
    Divisor width, height;
    u64 down, right, rows, columns;
};

extern "C" __global__ void gather_seen(Seen s, const float* x, float* to) {
    u64 at = grid_start();
    if (at >= s.len) return;
    u64 line = s.width.divide(at), plane = s.height.divide(line);
    u64 row = (line - plane * s.height.divisor) * s.down, column = (at - line * s.width.divisor) * s.right;
    to[at] = x[(plane * s.rows + row) * s.columns + column];
}

/// A thread has the pixel that is seen and those to the right of it and below it up to the next ones.
extern "C" __global__ void scatter_seen(Seen s, const float* from, float* dx, int add) {
    u64 at = grid_start();
    if (at >= s.len) return;
    u64 line = s.width.divide(at), plane = s.height.divide(line);
    u64 row = (line - plane * s.height.divisor) * s.down, column = (at - line * s.width.divisor) * s.right;
    float* first = dx + (plane * s.rows + row) * s.columns + column;
    put(add, first, from[at]);
    if (add) return;
    for (u64 i = 0; i < s.down && row + i < s.rows; i++) {
        for (u64 j = i == 0; j < s.right && column + j < s.columns; j++) first[i * s.columns + j] = 0;
    }
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
