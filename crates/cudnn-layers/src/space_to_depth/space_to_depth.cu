// Blocks of pixels as channels, in NHWC: a block is `down` runs of `line` neighbouring elements of x.

/// As `image_to_depth` of cuda.rs fills it: elements of x', its extents, elements of a block's line, rows and elements
/// of a row of x, rows of a block, and rows and elements of padding.
struct Blocks {
    u64 len;
    Divisor depth, width, height, line;
    u64 rows, row_len, down, top, left;
};

extern "C" __global__ void image_to_depth(Blocks b, const real* x, real* to) {
    u64 first = grid_start() * PACK;
    if (first >= b.len) return;
    u64 block = b.depth.divide(first), line = b.width.divide(block), sample = b.height.divide(line);
    u64 channel = first - block * b.depth.divisor, i = b.line.divide(channel);
    u32 e = u32(channel - i * b.line.divisor), lines = u32(b.line.divisor);
    u64 column = (block - line * b.width.divisor) * b.line.divisor;
    // Of x; padding above and to the left makes huge numbers.
    u64 h = (line - sample * b.height.divisor) * b.down + i - b.top;
    u64 left = column - b.left;
    const real* row = x + (sample * b.rows + h) * b.row_len + left;
    Pack<PACK, real> pack;
#pragma unroll
    for (int lane = 0; lane < PACK; lane++) {
        bool inside = i < b.down && h < b.rows && left + e < b.row_len;
        pack.at[lane] = inside ? float(row[e]) : 0.0f;
        if (++e == lines) {
            e = 0;
            i++;
            h++;
            row += b.row_len;
        }
    }
    store<PACK>(to + first, pack);
}

/// As `Taps::new` of cuda.rs fills it: the extents (K, C, R, S) of the filter and (K, R', S', D) of w', and the
/// strides.
struct Taps {
    u32 k, c, r, s;
    u32 deep_k, deep_r, deep_s, depth;
    u32 down, right;
};

extern "C" __global__ void filter_to_depth(Taps t, const real* w, real* to) {
    u32 at = u32(grid_start());
    if (at >= t.deep_k * t.deep_r * t.deep_s * t.depth) return;
    u32 channel = at % t.depth, column = at / t.depth, row = column / t.deep_s, k = row / t.deep_r;
    u32 c = channel % t.c, j = channel / t.c % t.right, i = channel / t.c / t.right;
    u32 r = row % t.deep_r * t.down + i, s = column % t.deep_s * t.right + j;
    bool inside = i < t.down && r < t.r && s < t.s;
    to[at] = inside ? float(w[((k * t.r + r) * t.s + s) * t.c + c]) : 0.0f;
}

extern "C" __global__ void gradient_from_depth(Taps t, const real* dw, float* to, int add) {
    u32 at = u32(grid_start());
    if (at >= t.k * t.c * t.r * t.s) return;
    u32 c = at % t.c, column = at / t.c, s = column % t.s, r = column / t.s % t.r, k = column / t.s / t.r;
    u32 tap = (k * t.deep_r + r / t.down) * t.deep_s + s / t.right;
    u32 channel = (r % t.down * t.right + s % t.right) * t.c + c;
    put(add, to + at, dw[tap * t.depth + channel]);
}
