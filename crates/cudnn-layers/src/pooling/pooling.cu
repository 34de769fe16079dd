// Maximum and average pooling. Forward, a thread has an output; backward, a thread has a pixel, or for common maxima a
// tile of them, and looks through the windows over it. So every element is written once, by one thread, in a fixed order.
//
// A plane has less than 2^30 elements. In NHWC it is a sample, whose columns are of all channels: neighbouring threads
// have neighbouring channels, or neighbouring packs of them.

/// As `Planes` of cuda.rs. Rows and columns are outputs' forward, pixels' or tiles of pixels' backward.
struct Planes {
    u64 planes;
    int h, w, out_h, out_w;
    int window_h, window_w, stride_h, stride_w, pad_h, pad_w;
    int relu;  // maxima are rectified
    int packs;  // a thread has a pack of channels
    Divisor columns, rows, vertical, horizontal;  // the last two by the strides
    Divisor channels;  // in NHWC, or packs of them
};

/// The place of a thread: `W` channels of element `column` of row `row` of `plane`, where rows and columns are as in
/// `Planes`.
template <int W>
struct Place {
    u64 plane;
    int row, column, channel = 0, channels = 1;
    bool exists;

    __device__ __forceinline__ explicit Place(const Planes& g) {
        u64 index = grid_start(), line = g.columns.divide(index);
        column = int(index - line * g.columns.divisor);
        plane = g.rows.divide(line);
        row = int(line - plane * g.rows.divisor);
        exists = plane < g.planes;
        if constexpr (CHANNELS_LAST) {
            int pixel = g.channels.divide(column), packs = int(g.channels.divisor);
            channels = packs * W;
            channel = (column - pixel * packs) * W;
            column = pixel;
        }
    }

    /// The first element of these channels in this plane, of so many pixels.
    __device__ __forceinline__ u64 first(int pixels) const { return plane * (pixels * channels) + channel; }
    /// How far element number `pixel` of the plane lies from there.
    __device__ __forceinline__ int at(int pixel) const { return CHANNELS_LAST ? pixel * channels : pixel; }
    /// The number of the first channel.
    __device__ __forceinline__ u64 number(const Planes& g) const {
        return CHANNELS_LAST ? channel : g.channels.remainder(plane);
    }
};

/// Calls `body(tap, pixel)` for the pixels under the window of an output in row-major order. The window is a square of
/// WINDOW x WINDOW, or else any.
template <int WINDOW = 0, int W, class Body>
__device__ __forceinline__ void each_pixel(const Planes& g, const Place<W>& out, const real* x, Body body) {
    int top = out.row * g.stride_h - g.pad_h, left = out.column * g.stride_w - g.pad_w;
    x += out.first(g.h * g.w);
    if constexpr (WINDOW > 0) {
        // Whether all windows lie inside: the same for all threads, so that none waits for others.
        bool inside = g.pad_h + g.pad_w == 0 && (g.out_h - 1) * g.stride_h + WINDOW <= g.h &&
                      (g.out_w - 1) * g.stride_w + WINDOW <= g.w;
        if (inside) return each_of_square<WINDOW, true, W>(x, top, left, g.h, g.w, out.at(1), body);
        return each_of_square<WINDOW, false, W>(x, top, left, g.h, g.w, out.at(1), body);
    }
    int r_end = min(g.window_h, g.h - top), s_end = min(g.window_w, g.w - left);
    for (int r = max(0, -top); r < r_end; r++) {
        for (int s = max(0, -left); s < s_end; s++) {
            body(r * g.window_w + s, load<W>(x + out.at((top + r) * g.w + left + s)));
        }
    }
}

/// Of pixels that are equal, in FP32 with their bias, the first wins. `bias` may be null.
template <int WINDOW, int W, class Tap>
__device__ __forceinline__ void max_forward(const Planes& g, const real* __restrict__ x, const float* __restrict__ bias,
                                            real* __restrict__ y, Tap* __restrict__ mask) {
    Place<W> out(g);
    if (!out.exists) return;
    Maxima<W, Tap> maxima;
    Pack<W> biases = of_channels<W>(bias, out.number(g), -0.0f);  // adding -0 changes nothing
    auto biased = [&](int lane, float value) { return value + biases.at[lane]; };
    each_pixel<WINDOW>(g, out, x, [&](int tap, Pack<W, real> pixel) {
        if (!OF_BF16) UNROLL for (int lane = 0; lane < W; lane++) pixel.at[lane] = biased(lane, pixel.at[lane]);
        maxima.meet(tap, pixel);
    });
    u64 output = out.first(g.out_h * g.out_w) + out.at(out.row * g.out_w + out.column);
    maxima.write(g.relu, y + output, mask + output,
                 [&](int lane, float largest) { return OF_BF16 ? biased(lane, largest) : largest; });
}

/// What the sum of window (p, q) is divided by: its pixels, padding included.
__device__ __forceinline__ float size(const Planes& g, int p, int q) {
    int height = min(g.window_h, g.h + 2 * g.pad_h - p * g.stride_h);
    return float(height * min(g.window_w, g.w + 2 * g.pad_w - q * g.stride_w));
}

/// Puts `sums` to pixel (row, column) of the image, or adds them.
template <int W>
__device__ __forceinline__ void put_pixel(const Planes& g, const Place<W>& place, int row, int column, real* dx,
                                          bool add, const float (&sums)[W]) {
    dx += place.first(g.h * g.w) + place.at(row * g.w + column);
    Pack<W, real> pixel;
    if (add) pixel = load<W>(dx);
    for (int lane = 0; lane < W; lane++) put(add, &pixel.at[lane], sums[lane]);
    store<W>(dx, pixel);
}

/// Has `share(p, q, sums)` add to the sums of a pixel for the windows that see it, and puts these there.
template <int W, class Share>
__device__ __forceinline__ void gather(const Planes& g, const Place<W>& pixel, real* dx, bool add, Share share) {
    int row = pixel.row + g.pad_h, column = pixel.column + g.pad_w;
    int p = row < g.window_h ? 0 : int(g.vertical.divide(row - g.window_h)) + 1;
    int p_end = min(int(g.vertical.divide(row)) + 1, g.out_h);
    int first_q = column < g.window_w ? 0 : int(g.horizontal.divide(column - g.window_w)) + 1;
    int q_end = min(int(g.horizontal.divide(column)) + 1, g.out_w);
    float sums[W] = {};
    for (; p < p_end; p++) {
        for (int q = first_q; q < q_end; q++) share(p, q, sums);
    }
    put_pixel(g, pixel, pixel.row, pixel.column, dx, add, sums);
}

template <int W, class Tap>
__device__ __forceinline__ void max_backward(const Planes& g, const Tap* __restrict__ mask,
                                             const real* __restrict__ dy, real* __restrict__ dx, bool add) {
    Place<W> pixel(g);
    if (!pixel.exists) return;
    mask += pixel.first(g.out_h * g.out_w);
    dy += pixel.first(g.out_h * g.out_w);
    gather(g, pixel, dx, add, [&](int p, int q, float(&sums)[W]) {
        int r = pixel.row + g.pad_h - p * g.stride_h, s = pixel.column + g.pad_w - q * g.stride_w;
        int at = pixel.at(p * g.out_w + q);
        auto winners = load<W>(mask + at);
        auto gradients = load<W>(dy + at);
        for (int lane = 0; lane < W; lane++) {
            if (winners.at[lane] == u32(r * g.window_w + s)) sums[lane] += gradients.at[lane];
        }
    });
}

/// A thread has a tile of pixels, as in cuda.rs.
template <int WINDOW, int STRIDE, int W>
__device__ __forceinline__ void max_backward_tile(const Planes& g, const u8* __restrict__ mask,
                                                  const real* __restrict__ dy, real* __restrict__ dx, bool add) {
    constexpr int ROWS = W == 1 ? 8 : 2, COLUMNS = W == 1 ? 1 : 2;
    Place<W> place(g);
    if (!place.exists) return;
    int top = place.row * ROWS, left = COLUMNS == 1 ? place.column + g.pad_w : place.column * COLUMNS;
    mask += place.first(g.out_h * g.out_w);
    dy += place.first(g.out_h * g.out_w);
    float sums[ROWS][COLUMNS][W] = {};
    add_won<WINDOW, STRIDE>(mask, dy, top, left, g.out_h, g.out_w, [&](int window) { return place.at(window); }, sums);
    UNROLL for (int pixel = 0; pixel < ROWS * COLUMNS; pixel++) {
        int row = top + pixel / COLUMNS - g.pad_h, column = left + pixel % COLUMNS - g.pad_w;
        if (u32(row) < u32(g.h) && u32(column) < u32(g.w)) {
            put_pixel(g, place, row, column, dx, add, sums[pixel / COLUMNS][pixel % COLUMNS]);
        }
    }
}

template <int W>
__device__ __forceinline__ void average_forward(const Planes& g, const real* __restrict__ x, real* __restrict__ y) {
    Place<W> out(g);
    if (!out.exists) return;
    float sums[W] = {};
    each_pixel(g, out, x, [&](int, const Pack<W, real>& pixel) {
        for (int lane = 0; lane < W; lane++) sums[lane] += pixel.at[lane];
    });
    Pack<W, real> means;
    for (int lane = 0; lane < W; lane++) means.at[lane] = sums[lane] / size(g, out.row, out.column);
    store<W>(y + out.first(g.out_h * g.out_w) + out.at(out.row * g.out_w + out.column), means);
}

template <int W>
__device__ __forceinline__ void average_backward(const Planes& g, const real* __restrict__ dy, real* __restrict__ dx,
                                                 bool add) {
    Place<W> pixel(g);
    if (!pixel.exists) return;
    dy += pixel.first(g.out_h * g.out_w);
    gather(g, pixel, dx, add, [&](int p, int q, float(&sums)[W]) {
        auto gradients = load<W>(dy + pixel.at(p * g.out_w + q));
        for (int lane = 0; lane < W; lane++) sums[lane] += gradients.at[lane] / size(g, p, q);
    });
}

/// A kernel that does this, with a pack of `W` channels or a single one.
#define POOLING(name, parameters, ...)                                                                                 \
    extern "C" __global__ void name parameters {                                                                       \
        if (CHANNELS_LAST && g.packs) {                                                                                \
            constexpr int W = CHANNELS_LAST ? PACK : 1;                                                                \
            __VA_ARGS__;                                                                                               \
        } else {                                                                                                       \
            constexpr int W = 1;                                                                                       \
            __VA_ARGS__;                                                                                               \
        }                                                                                                              \
    }
#define MAX_FORWARD(name, Tap, WINDOW)                                                                                 \
    POOLING(name, (Planes g, const real* x, const float* bias, real* y, Tap* mask),                                    \
            max_forward<WINDOW, W>(g, x, bias, y, mask))
#define MAX_BACKWARD(name, Tap, ...)                                                                                   \
    POOLING(name, (Planes g, const Tap* mask, const real* dy, real* dx, int add), __VA_ARGS__(g, mask, dy, dx, add))

MAX_FORWARD(max_pool_forward_2, u8, 2)
MAX_FORWARD(max_pool_forward_3, u8, 3)
MAX_FORWARD(max_pool_forward_u8, u8, 0)
/// For windows of 256 taps and more, whose numbers do not fit a byte.
MAX_FORWARD(max_pool_forward_u32, u32, 0)
MAX_BACKWARD(max_pool_backward_2_2, u8, max_backward_tile<2, 2, W>)
MAX_BACKWARD(max_pool_backward_3_2, u8, max_backward_tile<3, 2, W>)
MAX_BACKWARD(max_pool_backward_3_1, u8, max_backward_tile<3, 1, W>)
MAX_BACKWARD(max_pool_backward_u8, u8, max_backward<W>)
MAX_BACKWARD(max_pool_backward_u32, u32, max_backward<W>)
POOLING(average_pool_forward, (Planes g, const real* x, real* y), average_forward<W>(g, x, y))
POOLING(average_pool_backward, (Planes g, const real* dy, real* dx, int add), average_backward<W>(g, dy, dx, add))
