// Maximum and average pooling. Forward, a thread has an output; backward, a thread has a pixel, or for common maxima a few of a
// column, and looks through the windows over it. So every element is written once, by one thread, in a fixed order.
//
// A launch has less than 2^30 elements; the host divides larger tensors by planes. In NHWC a plane is a sample, whose columns
// are of all channels: neighbouring threads have neighbouring channels.

using u8 = unsigned char;

/// As `Planes` of cuda.rs. Rows and columns are outputs' forward, pixels' or strips of pixels' backward.
struct Planes {
    int planes, h, w, out_h, out_w;
    int window_h, window_w, stride_h, stride_w, pad_h, pad_w;
    Divisor columns, rows, vertical, horizontal;  // the last two by the strides
    Divisor channels;                             // that lie side by side: 1 in NCHW
};

/// The place of a thread: element `column` of row `row` of `plane`, where rows and columns are as in `Planes`, and its channel.
struct Place {
    int plane, row, column, channel = 0, channels = 1;
    bool exists;

    __device__ __forceinline__ explicit Place(const Planes& g) {
        u32 index = u32(grid_start()), line = g.columns.divide(index);
        column = index - line * u32(g.columns.divisor);
        plane = g.rows.divide(line);
        row = line - plane * u32(g.rows.divisor);
        exists = plane < g.planes;
        if constexpr (CHANNELS_LAST) {
            int pixel = g.channels.divide(column);
            channels = int(g.channels.divisor);
            channel = column - pixel * channels;
            column = pixel;
        }
    }

    /// The first element of this channel in this plane, of so many pixels.
    __device__ __forceinline__ int first(int pixels) const { return plane * (pixels * channels) + channel; }
    /// How far element number `pixel` of the plane lies from there.
    __device__ __forceinline__ int at(int pixel) const { return CHANNELS_LAST ? pixel * channels : pixel; }
};

/// Calls `body(tap, pixel)` for the pixels under the window of an output in row-major order.
template <class Body>
__device__ __forceinline__ void each_pixel(const Planes& g, const Place& out, const real* x, Body body) {
    int top = out.row * g.stride_h - g.pad_h, left = out.column * g.stride_w - g.pad_w;
    int r_end = min(g.window_h, g.h - top), s_end = min(g.window_w, g.w - left);
    x += out.first(g.h * g.w);
    for (int r = max(0, -top); r < r_end; r++) {
        for (int s = max(0, -left); s < s_end; s++) {
            body(r * g.window_w + s, x[out.at((top + r) * g.w + left + s)]);
        }
    }
}

/// A NaN wins, and only another NaN beats it. Of equal pixels the first wins. `mask` may be null.
template <class Tap>
__device__ __forceinline__ void max_forward(const Planes& g, const real* __restrict__ x, real* __restrict__ y,
                                            Tap* __restrict__ mask) {
    Place out(g);
    if (!out.exists) return;
    float best = -__int_as_float(0x7f800000);  // negative infinity
    u32 winner = 0xffffffff;  // no pixel won
    each_pixel(g, out, x, [&](int tap, float pixel) {
        bool wins = pixel > best || pixel != pixel;
        best = wins ? pixel : best;
        winner = wins ? tap : winner;
    });
    int output = out.first(g.out_h * g.out_w) + out.at(out.row * g.out_w + out.column);
    y[output] = best;
    if (mask) mask[output] = Tap(winner);
}

/// Pixels of window `index` along one axis, padding included.
__device__ __forceinline__ int extent(int index, int stride, int window, int image, int pad) {
    int start = index * stride;
    return min(start + window, image + 2 * pad) - start;
}

/// What the sum of window (p, q) is divided by.
__device__ __forceinline__ float size(const Planes& g, int p, int q) {
    int height = extent(p, g.stride_h, g.window_h, g.h, g.pad_h);
    return float(height * extent(q, g.stride_w, g.window_w, g.w, g.pad_w));
}

/// Adds up `share(p, q)` over the windows that see a pixel, and puts the sum there.
template <class Share>
__device__ __forceinline__ void gather(const Planes& g, const Place& pixel, real* dx, bool add, Share share) {
    int row = pixel.row + g.pad_h, column = pixel.column + g.pad_w;
    int p = row < g.window_h ? 0 : int(g.vertical.divide(row - g.window_h)) + 1;
    int p_end = min(int(g.vertical.divide(row)) + 1, g.out_h);
    int first_q = column < g.window_w ? 0 : int(g.horizontal.divide(column - g.window_w)) + 1;
    int q_end = min(int(g.horizontal.divide(column)) + 1, g.out_w);
    float sum = 0;
    for (; p < p_end; p++) {
        for (int q = first_q; q < q_end; q++) sum += share(p, q);
    }
    put(add, dx + pixel.first(g.h * g.w) + pixel.at(pixel.row * g.w + pixel.column), sum);
}

template <class Tap>
__device__ __forceinline__ void max_backward(const Planes& g, const Tap* __restrict__ mask,
                                             const real* __restrict__ dy, real* __restrict__ dx, bool add) {
    Place pixel(g);
    if (!pixel.exists) return;
    mask += pixel.first(g.out_h * g.out_w);
    dy += pixel.first(g.out_h * g.out_w);
    gather(g, pixel, dx, add, [&](int p, int q) {
        int r = pixel.row + g.pad_h - p * g.stride_h, s = pixel.column + g.pad_w - q * g.stride_w;
        int at = pixel.at(p * g.out_w + q);
        return mask[at] == u32(r * g.window_w + s) ? dy[at] : 0.0f;  // a whole 0 would make a bf16 whole, too
    });
}

/// Pixels that a thread has in `max_backward_strip`, one below the other. Strips begin at multiples of this in the padded image,
/// so that the windows over each of them are known to the compiler.
constexpr int PIXELS = 8;

template <int WINDOW, int STRIDE>
__device__ __forceinline__ void max_backward_strip(const Planes& g, const u8* __restrict__ mask,
                                                   const real* __restrict__ dy, real* __restrict__ dx, bool add) {
    static_assert(PIXELS % STRIDE == 0, "every strip begins at the first row of a window");
    Place place(g);
    if (!place.exists) return;
    // Windows over a pixel along an axis, but for the nearest; as many begin above the strip.
    constexpr int MORE = (WINDOW - 1) / STRIDE;
    int column = place.column + g.pad_w, top = place.row * (PIXELS / STRIDE);
    mask += place.first(g.out_h * g.out_w);
    dy += place.first(g.out_h * g.out_w);
    float sums[PIXELS] = {};
#pragma unroll
    for (int i = -MORE; i < PIXELS / STRIDE; i++) {
#pragma unroll
        for (int j = MORE; j >= 0; j--) {
            int p = top + i, q = column / STRIDE - j;
            // The tap over the strip's column in the first row of the window.
            int tap = column % STRIDE + j * STRIDE;
            bool exists = u32(p) < u32(g.out_h) && u32(q) < u32(g.out_w) && tap < WINDOW;
            int output = exists ? place.at(p * g.out_w + q) : 0;
            int winner = exists ? mask[output] - tap : -1;
            float gradient = dy[output];
#pragma unroll
            for (int r = 0; r < WINDOW; r++) {
                int pixel = i * STRIDE + r;
                if (pixel >= 0 && pixel < PIXELS && winner == r * WINDOW) sums[pixel] += gradient;
            }
        }
    }
#pragma unroll
    for (int pixel = 0; pixel < PIXELS; pixel++) {
        int row = place.row * PIXELS + pixel - g.pad_h;
        if (u32(row) < u32(g.h)) {
            put(add, dx + place.first(g.h * g.w) + place.at(row * g.w + place.column), sums[pixel]);
        }
    }
}

extern "C" {

__global__ void max_pool_forward_u8(Planes g, const real* x, real* y, u8* mask) { max_forward(g, x, y, mask); }

/// For windows of 256 taps and more, whose numbers do not fit a byte.
__global__ void max_pool_forward_u32(Planes g, const real* x, real* y, u32* mask) { max_forward(g, x, y, mask); }

__global__ void max_pool_backward_2_2(Planes g, const u8* mask, const real* dy, real* dx, int add) {
    max_backward_strip<2, 2>(g, mask, dy, dx, add);
}

__global__ void max_pool_backward_3_2(Planes g, const u8* mask, const real* dy, real* dx, int add) {
    max_backward_strip<3, 2>(g, mask, dy, dx, add);
}

__global__ void max_pool_backward_3_1(Planes g, const u8* mask, const real* dy, real* dx, int add) {
    max_backward_strip<3, 1>(g, mask, dy, dx, add);
}

__global__ void max_pool_backward_u8(Planes g, const u8* mask, const real* dy, real* dx, int add) {
    max_backward(g, mask, dy, dx, add);
}

__global__ void max_pool_backward_u32(Planes g, const u32* mask, const real* dy, real* dx, int add) {
    max_backward(g, mask, dy, dx, add);
}

__global__ void average_pool_forward(Planes g, const real* __restrict__ x, real* __restrict__ y) {
    Place out(g);
    if (!out.exists) return;
    float sum = 0;
    each_pixel(g, out, x, [&](int, float pixel) { sum += pixel; });
    y[out.first(g.out_h * g.out_w) + out.at(out.row * g.out_w + out.column)] = sum / size(g, out.row, out.column);
}

__global__ void average_pool_backward(Planes g, const real* __restrict__ dy, real* __restrict__ dx, int add) {
    Place pixel(g);
    if (!pixel.exists) return;
    dy += pixel.first(g.out_h * g.out_w);
    gather(g, pixel, dx, add, [&](int p, int q) { return dy[pixel.at(p * g.out_w + q)] / size(g, p, q); });
}

}  // extern "C"
