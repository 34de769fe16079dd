// Blocks of pixels as channels.

/// As `image_to_depth` of cuda.rs fills it: elements of x', its extents, rows, columns and channels of a block, rows
/// and columns of x, and of padding.
struct Blocks {
    u64 len;
    Divisor depth, width, height, down, channels, line;
    u64 right, rows, columns, top, left;
};

#ifdef BLOBS_IN_NHWC
/// A thread has a pack of x', in which a block is `down` runs of `line` neighbouring elements of x.
extern "C" __global__ void image_to_depth(Blocks b, const real* x, real* to) {
    u64 first = grid_start() * PACK;
    if (first >= b.len) return;
    u64 block = b.depth.divide(first), line = b.width.divide(block), sample = b.height.divide(line);
    u64 channel = first - block * b.depth.divisor, i = b.line.divide(channel);
    u32 e = u32(channel - i * b.line.divisor), lines = u32(b.line.divisor);
    u64 column = (block - line * b.width.divisor) * b.line.divisor, row_len = b.columns * b.channels.divisor;
    // Of x; padding above and to the left makes huge numbers.
    u64 h = (line - sample * b.height.divisor) * b.down.divisor + i - b.top;
    u64 left = column - b.left * b.channels.divisor;
    const real* row = x + (sample * b.rows + h) * row_len + left;
    Pack<PACK, real> pack;
#pragma unroll
    for (int lane = 0; lane < PACK; lane++) {
        bool inside = i < b.down.divisor && h < b.rows && left + e < row_len;
        pack.at[lane] = inside ? float(row[e]) : 0.0f;
        if (++e == lines) {
            e = 0;
            i++;
            h++;
            row += row_len;
        }
    }
    store<PACK>(to + first, pack);
}
#else
/// A thread has `right` neighbouring elements of x, which go to planes of their own.
extern "C" __global__ void image_to_depth(Blocks b, const real* x, real* to) {
    u64 at = grid_start();
    if (at * b.right >= b.len) return;
    u64 line = b.width.divide(at), plane = b.height.divide(line), run = b.channels.divide(plane);
    u64 sample = b.down.divide(run), i = run - sample * b.down.divisor, c = plane - run * b.channels.divisor;
    // Of x; padding above and to the left makes huge numbers.
    u64 h = (line - plane * b.height.divisor) * b.down.divisor + i - b.top;
    u64 w = (at - line * b.width.divisor) * b.right - b.left;
    const real* row = x + ((sample * b.channels.divisor + c) * b.rows + h) * b.columns;
    u64 pixels = b.height.divisor * b.width.divisor;
    to += (run * b.line.divisor + c) * pixels + at - plane * pixels;
    for (u64 j = 0; j < b.right; j++, w++, to += b.channels.divisor * pixels) {
        *to = h < b.rows && w < b.columns ? float(row[w]) : 0.0f;
    }
}
#endif

/// As `Taps::new` of cuda.rs fills it: the extents (K, C, R, S) of the filter and (K, R', S', D) of w', and the
/// strides.
struct Taps {
    u32 k, c, r, s;
    u32 deep_k, deep_r, deep_s, depth;
    u32 down, right;
};

/// Where filter `k` of so many channels, rows and columns has an element.
__device__ __forceinline__ u32 place(u32 channels, u32 rows, u32 columns, u32 k, u32 c, u32 r, u32 s) {
    return CHANNELS_LAST ? ((k * rows + r) * columns + s) * channels + c : ((k * channels + c) * rows + r) * columns + s;
}

extern "C" __global__ void filter_to_depth(Taps t, const real* w, real* to) {
    u32 at = u32(grid_start());
    if (at >= t.deep_k * t.deep_r * t.deep_s * t.depth) return;
    u32 channel = at % t.depth, column = at / t.depth, row = column / t.deep_s, k = row / t.deep_r;
    u32 c = channel % t.c, j = channel / t.c % t.right, i = channel / t.c / t.right;
    row %= t.deep_r;
    column %= t.deep_s;
    u32 r = row * t.down + i, s = column * t.right + j;
    bool inside = i < t.down && r < t.r && s < t.s;
    to[place(t.depth, t.deep_r, t.deep_s, k, channel, row, column)] =
        inside ? float(w[place(t.c, t.r, t.s, k, c, r, s)]) : 0.0f;
}

extern "C" __global__ void gradient_from_depth(Taps t, const real* dw, float* to, int add) {
    u32 at = u32(grid_start());
    if (at >= t.k * t.c * t.r * t.s) return;
    u32 c = at % t.c, column = at / t.c, s = column % t.s, r = column / t.s % t.r, k = column / t.s / t.r;
    u32 channel = (r % t.down * t.right + s % t.right) * t.c + c;
    put(add, to + place(t.c, t.r, t.s, k, c, r, s),
        dw[place(t.depth, t.deep_r, t.deep_s, k, channel, r / t.down, s / t.right)]);
}
