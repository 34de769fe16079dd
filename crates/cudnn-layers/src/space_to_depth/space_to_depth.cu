// Blocks of pixels as channels.

/// As `Blocks::new` of cuda.rs fills it: elements of x', its columns and rows, rows and columns of a block, channels of
/// x, those of x', rows and columns of x, and of padding.
struct Blocks {
    u64 len;
    Divisor width, height, down, right, channels;
    u64 depth, rows, columns, top, left;
};

/// Most channels of x, and most rows of a block. As in mod.rs.
constexpr u32 FEW = 4;

/// A block has a row of x', or as much of it as it has threads for columns of x, which lie side by side there.
extern "C" __global__ void images_to_blocks(Blocks b, const float* x, real* to) {
    constexpr u32 W = WIDTH<real>, AT_ONCE = 2;  // rows of x
    __shared__ Pack<W, real> line[THREADS * (FEW * FEW + 8) / W];
    u32 depth = u32(b.depth), right = u32(b.right.divisor), down = u32(b.down.divisor);
    u32 channels = u32(b.channels.divisor), rows = u32(b.rows), columns = u32(b.columns);
    u32 width = u32(b.width.divisor), height = u32(b.height.divisor), sample = blockIdx.x / height;
    u32 first = blockIdx.y * (THREADS / right), count = min(THREADS / right, width - first);
    u32 pixel = threadIdx.x / right, j = threadIdx.x % right;
    if (pixel < count) {
        // Of x; padding above and to the left makes huge numbers.
        u32 h = (blockIdx.x - sample * height) * down - u32(b.top), w = first * right + threadIdx.x - u32(b.left);
        x += u64(sample) * channels * rows * columns;
        real* at = line[0].at + pixel * depth;
        for (u32 i = 0; i < down; i += AT_ONCE) {
            float in[AT_ONCE][FEW];
            UNROLL for (u32 row = 0; row < AT_ONCE; row++) {
                UNROLL for (u32 c = 0; c < FEW; c++) {
                    u32 own = h + i + row;
                    bool inside = i + row < down && own < rows && w < columns && c < channels;
                    in[row][c] = inside ? x[(u64(c) * rows + own) * columns + w] : 0;
                }
            }
            UNROLL for (u32 row = 0; row < AT_ONCE; row++) {
                UNROLL for (u32 c = 0; c < FEW; c++) {
                    if (i + row < down && c < channels) at[((i + row) * right + j) * channels + c] = in[row][c];
                }
            }
        }
        for (u32 c = down * right * channels + j; c < depth; c += right) at[c] = 0.0f;
    }
    __syncthreads();
    to += (u64(blockIdx.x) * width + first) * depth;
    for (u32 i = threadIdx.x; i < count * depth / W; i += THREADS) store<W>(to + i * W, line[i]);
}

/// A thread has `right` neighbouring elements of x, which go to planes of their own.
extern "C" __global__ void image_to_depth(Blocks b, const real* x, real* to) {
    u64 at = grid_start();
    if (at * b.right.divisor >= b.len) return;
    u64 line = b.width.divide(at), plane = b.height.divide(line), run = b.channels.divide(plane);
    u64 sample = b.down.divide(run), i = run - sample * b.down.divisor, c = plane - run * b.channels.divisor;
    // Of x; padding above and to the left makes huge numbers.
    u64 h = (line - plane * b.height.divisor) * b.down.divisor + i - b.top;
    u64 w = (at - line * b.width.divisor) * b.right.divisor - b.left;
    const real* row = x + ((sample * b.channels.divisor + c) * b.rows + h) * b.columns;
    u64 pixels = b.height.divisor * b.width.divisor;
    to += (run * b.right.divisor * b.channels.divisor + c) * pixels + at - plane * pixels;
    for (u64 j = 0; j < b.right.divisor; j++, w++, to += b.channels.divisor * pixels) {
        *to = h < b.rows && w < b.columns ? float(row[w]) : 0.0f;
    }
}

/// As `taps` of cuda.rs fills it: the extents (K, C, R, S) of the filter and (K, R', S', D) of w', and the strides.
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
