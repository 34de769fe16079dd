// Blocks of pixels as channels, in NHWC: a block is `down` runs of `right` pixels that lie side by side in x.

/// As cuda.rs fills it: x and w of the convolution, its stride and padding, and the extents of x' and w'.
struct Depth {
    u32 c, h, w, k, r, s, down, right, top, left;
    u32 depth, deep_h, deep_w, deep_r, deep_s;
};

extern "C" __global__ void image_to_depth(Depth e, u64 len, const real* x, real* to) {
    u32 number = u32(grid_start()), packs = e.depth / PACK, run = e.right * e.c;
    if (u64(number) * PACK >= len) return;
    u32 block = number / packs, channel = (number - block * packs) * PACK;
    u32 line = block / e.deep_w, sample = line / e.deep_h;
    u32 i = channel / run, at = channel - i * run;
    // Padding above and to the left makes huge numbers.
    u32 row = (line - sample * e.deep_h) * e.down - e.top + i;
    u32 start = ((block - line * e.deep_w) * e.right - e.left) * e.c;
    Pack<PACK, real> pack;
#pragma unroll
    for (int lane = 0; lane < PACK; lane++) {
        u32 column = start + at;
        bool inside = i < e.down && row < e.h && column < e.w * e.c;
        pack.at[lane] = inside ? float(x[(u64(sample) * e.h + row) * e.w * e.c + column]) : 0.0f;
        if (++at == run) at = 0, i++, row++;
    }
    store<PACK>(to + u64(number) * PACK, pack);
}

extern "C" __global__ void filter_to_depth(Depth e, const float* w, real* to) {
    u32 at = u32(grid_start());
    if (at >= e.k * e.deep_r * e.deep_s * e.depth) return;
    u32 channel = at % e.depth, column = at / e.depth, row = column / e.deep_s, k = row / e.deep_r;
    u32 c = channel % e.c, j = channel / e.c % e.right, i = channel / e.c / e.right;
    u32 r = row % e.deep_r * e.down + i, s = column % e.deep_s * e.right + j;
    bool inside = i < e.down && r < e.r && s < e.s;
    to[at] = inside ? w[((k * e.c + c) * e.r + r) * e.s + s] : 0.0f;
}

extern "C" __global__ void gradient_from_depth(Depth e, const real* dw, float* to, int add) {
    u32 at = u32(grid_start());
    if (at >= e.k * e.c * e.r * e.s) return;
    u32 s = at % e.s, r = at / e.s % e.r, plane = at / e.s / e.r, c = plane % e.c, k = plane / e.c;
    u32 tap = (k * e.deep_r + r / e.down) * e.deep_s + s / e.right;
    u32 channel = (r % e.down * e.right + s % e.right) * e.c + c;
    put(add, to + at, dw[tap * e.depth + channel]);
}
