// Maximum and average pooling. Forward, a thread has an output, or a few of a column, or for large windows a warp has one;
// backward, a thread has a pixel, or a few of a column, and looks through the windows over them. So every element is
// written once, by one thread, in a fixed order.
//
// A launch has less than 2^30 elements; the host divides larger tensors by planes.

using u8 = unsigned char;

/// As `Planes` of cuda.rs. Rows are outputs' or strips of some of them forward, strips of pixels backward.
struct Planes {
    int planes, h, w, out_h, out_w;
    int window_h, window_w, stride_h, stride_w, pad_h, pad_w;
    Divisor columns, rows, window, vertical, horizontal;  // the last two by the strides
};

/// Of a winner's number: no pixel won.
constexpr u32 NONE = 0xffffffff;

/// The place of a thread or warp: element `column` of row `row` of `plane`, where rows and columns are as in `Planes`.
struct Place {
    int plane, row, column;
    bool exists;

    __device__ __forceinline__ Place(const Planes& g, u32 index) {
        u32 line = g.columns.divide(index);
        column = index - line * u32(g.columns.divisor);
        plane = g.rows.divide(line);
        row = line - plane * u32(g.rows.divisor);
        exists = plane < g.planes;
    }
};

template <class T>
struct BytesOf {
    using Byte = char;
};
template <class T>
struct BytesOf<const T> {
    using Byte = const char;
};

__device__ __forceinline__ u32 thread_index() { return blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ u32 warp_index() { return thread_index() / 32; }

/// Element `index` of what is less than 4 GiB large: an offset of 32 bits is cheaper than a pointer.
template <class T>
__device__ __forceinline__ T& at(T* base, u32 index) {
    using Byte = typename BytesOf<T>::Byte;
    return *reinterpret_cast<T*>(reinterpret_cast<Byte*>(base) + index * u32(sizeof(T)));
}

/// Whether `position` lies in an extent; negative ones do not.
__device__ __forceinline__ bool inside(int position, int extent) { return u32(position) < u32(extent); }

/// The largest pixel so far and the tap under it.
struct Best {
    float pixel = -__int_as_float(0x7f800000);  // negative infinity
    u32 tap = NONE;

    /// A NaN wins, and only another NaN beats it. Of equal pixels the first wins.
    __device__ __forceinline__ void take(float other, u32 other_tap) {
        bool wins = other > pixel || other != other;
        pixel = wins ? other : pixel;
        tap = wins ? other_tap : tap;
    }
};

/// As if the taps of both had been taken in ascending order.
__device__ __forceinline__ Best both(const Best& a, const Best& b) {
    bool a_nan = a.pixel != a.pixel, b_nan = b.pixel != b.pixel;
    bool b_wins = a_nan || b_nan ? b_nan && (!a_nan || b.tap > a.tap)
                                 : b.pixel > a.pixel || (b.pixel == a.pixel && b.tap < a.tap);
    return b_wins ? b : a;
}

/// `mask` may be null.
template <class Tap>
__device__ __forceinline__ void save(const Planes& g, int plane, int p, int q, const Best& best, float* y, Tap* mask) {
    int output = (plane * g.out_h + p) * g.out_w + q;
    at(y, output) = best.pixel;
    if (mask) at(mask, output) = Tap(best.tap);
}

// ---- Maximum, square windows known to the compiler ----------------------------------------------------------------------

/// Outputs that a thread has in forward_fixed, one below the other: with overlapping windows they share rows of pixels.
constexpr int OUTPUTS = 4;

/// Pixels outside the image are replaced by the nearest ones inside, which lie in the same window, and carry their taps: to
/// meet a pixel twice changes nothing.
template <int WINDOW, int STRIDE>
__device__ __forceinline__ void forward_fixed(const Planes& g, const float* __restrict__ x, float* __restrict__ y,
                                              u8* __restrict__ mask) {
    Place place(g, thread_index());
    if (!place.exists) return;
    constexpr int ROWS = (OUTPUTS - 1) * STRIDE + WINDOW;
    int top = place.row * (OUTPUTS * STRIDE) - g.pad_h, left = place.column * STRIDE - g.pad_w;
    int columns[WINDOW], rows[ROWS];
    float pixels[ROWS][WINDOW];
#pragma unroll
    for (int s = 0; s < WINDOW; s++) columns[s] = min(max(left + s, 0), g.w - 1);
    int plane = place.plane * (g.h * g.w);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        rows[r] = min(max(top + r, 0), g.h - 1);
        int row = plane + rows[r] * g.w;
#pragma unroll
        for (int s = 0; s < WINDOW; s++) pixels[r][s] = at(x, row + columns[s]);
    }
    Best row_best[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
        for (int s = 0; s < WINDOW; s++) row_best[r].take(pixels[r][s], columns[s] - left);
    }
#pragma unroll
    for (int out = 0; out < OUTPUTS; out++) {
        int p = place.row * OUTPUTS + out;
        Best best;
#pragma unroll
        for (int r = out * STRIDE; r < out * STRIDE + WINDOW; r++) {
            // A row of nothing but negative infinity has no winner, and its number does not count.
            best.take(row_best[r].pixel, row_best[r].tap + (rows[r] - top - out * STRIDE) * WINDOW);
        }
        if (p < g.out_h) save(g, place.plane, p, place.column, best, y, mask);
    }
}

/// Pixels that a thread has in backward_fixed, one below the other. Strips begin at multiples of this in the padded image,
/// so that the windows over each of them are known to the compiler.
constexpr int PIXELS = 8;

template <int WINDOW, int STRIDE>
__device__ __forceinline__ void backward_fixed(const Planes& g, const u8* __restrict__ mask,
                                               const float* __restrict__ dy, float* __restrict__ dx, bool add) {
    static_assert(PIXELS % STRIDE == 0, "every strip begins at the first row of a window");
    Place place(g, thread_index());
    if (!place.exists) return;
    // Windows over a row, and those of them that begin above the strip.
    constexpr int WINDOWS = (WINDOW - 1) / STRIDE + 1, ABOVE = WINDOWS - 1;
    int top = place.row * (PIXELS / STRIDE), left = (place.column + g.pad_w) / STRIDE;
    int first = place.plane * (g.out_h * g.out_w);
    float sums[PIXELS] = {};
#pragma unroll
    for (int i = -ABOVE; i < PIXELS / STRIDE; i++) {
#pragma unroll
        for (int j = ABOVE; j >= 0; j--) {
            int p = top + i, q = left - j;
            bool real = inside(p, g.out_h) && inside(q, g.out_w);
            int output = real ? p * g.out_w + q : 0;
            // The tap over the strip's column in the first row of the window.
            int tap = (place.column + g.pad_w) % STRIDE + j * STRIDE;
            int winner = at(mask, first + output) - tap;
            if (!real || tap >= WINDOW) winner = -1;
            float gradient = at(dy, first + output);
#pragma unroll
            for (int r = 0; r < WINDOW; r++) {
                int pixel = i * STRIDE + r;
                if (pixel >= 0 && pixel < PIXELS && winner == r * WINDOW) sums[pixel] += gradient;
            }
        }
    }
    int first_row = place.row * PIXELS - g.pad_h;
#pragma unroll
    for (int pixel = 0; pixel < PIXELS; pixel++) {
        int row = first_row + pixel;
        if (inside(row, g.h)) put(add, &at(dx, (place.plane * g.h + row) * g.w + place.column), sums[pixel]);
    }
}

// ---- Any window ---------------------------------------------------------------------------------------------------------

/// Calls `body(tap, pixel)` for the pixels under the window of an output in row-major order.
template <class Body>
__device__ __forceinline__ void each_pixel(const Planes& g, const Place& out, const float* x, Body body) {
    int top = out.row * g.stride_h - g.pad_h, left = out.column * g.stride_w - g.pad_w;
    int r_end = min(g.window_h, g.h - top), s_end = min(g.window_w, g.w - left);
    x += out.plane * (g.h * g.w);
    for (int r = max(0, -top); r < r_end; r++) {
        for (int s = max(0, -left); s < s_end; s++) body(r * g.window_w + s, x[(top + r) * g.w + left + s]);
    }
}

/// The same with the taps dealt out to the lanes of a warp, each in ascending order.
template <class Body>
__device__ __forceinline__ void each_pixel_of_lane(const Planes& g, const Place& out, const float* x, Body body) {
    int top = out.row * g.stride_h - g.pad_h, left = out.column * g.stride_w - g.pad_w;
    x += out.plane * (g.h * g.w);
    for (int tap = threadIdx.x % 32; tap < g.window_h * g.window_w; tap += 32) {
        int r = int(g.window.divide(tap)), row = top + r, column = left + tap - r * g.window_w;
        if (inside(row, g.h) && inside(column, g.w)) body(tap, x[row * g.w + column]);
    }
}

template <class Tap>
__device__ __forceinline__ void max_forward(const Planes& g, const float* __restrict__ x, float* __restrict__ y,
                                            Tap* __restrict__ mask) {
    Place out(g, thread_index());
    if (!out.exists) return;
    Best best;
    each_pixel(g, out, x, [&](int tap, float pixel) { best.take(pixel, tap); });
    save(g, out.plane, out.row, out.column, best, y, mask);
}

template <class Tap>
__device__ __forceinline__ void max_forward_wide(const Planes& g, const float* __restrict__ x, float* __restrict__ y,
                                                 Tap* __restrict__ mask) {
    Place out(g, warp_index());
    if (!out.exists) return;
    Best best;
    each_pixel_of_lane(g, out, x, [&](int tap, float pixel) { best.take(pixel, tap); });
    for (int distance = 16; distance > 0; distance /= 2) {
        Best other;
        other.pixel = __shfl_xor_sync(0xffffffff, best.pixel, distance);
        other.tap = __shfl_xor_sync(0xffffffff, best.tap, distance);
        best = both(best, other);
    }
    if (threadIdx.x % 32 == 0) save(g, out.plane, out.row, out.column, best, y, mask);
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
__device__ __forceinline__ void gather(const Planes& g, const Place& pixel, float* dx, bool add, Share share) {
    int row = pixel.row + g.pad_h, column = pixel.column + g.pad_w;
    int p = row < g.window_h ? 0 : int(g.vertical.divide(row - g.window_h)) + 1;
    int p_end = min(int(g.vertical.divide(row)) + 1, g.out_h);
    int first_q = column < g.window_w ? 0 : int(g.horizontal.divide(column - g.window_w)) + 1;
    int q_end = min(int(g.horizontal.divide(column)) + 1, g.out_w);
    float sum = 0;
    for (; p < p_end; p++) {
        for (int q = first_q; q < q_end; q++) sum += share(p, q);
    }
    put(add, dx + (pixel.plane * g.h + pixel.row) * g.w + pixel.column, sum);
}

template <class Tap>
__device__ __forceinline__ void max_backward(const Planes& g, const Tap* __restrict__ mask,
                                             const float* __restrict__ dy, float* __restrict__ dx, bool add) {
    Place pixel(g, thread_index());
    if (!pixel.exists) return;
    mask += pixel.plane * (g.out_h * g.out_w);
    dy += pixel.plane * (g.out_h * g.out_w);
    gather(g, pixel, dx, add, [&](int p, int q) {
        int r = pixel.row + g.pad_h - p * g.stride_h, s = pixel.column + g.pad_w - q * g.stride_w;
        int at = p * g.out_w + q;
        return mask[at] == u32(r * g.window_w + s) ? dy[at] : 0;
    });
}

// ---- Entries ------------------------------------------------------------------------------------------------------------

extern "C" {

__global__ void max_pool_forward_2_2(Planes g, const float* x, float* y, u8* mask) { forward_fixed<2, 2>(g, x, y, mask); }

__global__ void max_pool_forward_3_2(Planes g, const float* x, float* y, u8* mask) { forward_fixed<3, 2>(g, x, y, mask); }

__global__ void max_pool_forward_any(Planes g, const float* x, float* y, u8* mask) { max_forward(g, x, y, mask); }

/// For large windows: a warp has an output.
__global__ void max_pool_forward_wide_u8(Planes g, const float* x, float* y, u8* mask) { max_forward_wide(g, x, y, mask); }

/// For windows of 256 taps and more, whose numbers do not fit a byte.
__global__ void max_pool_forward_wide_u32(Planes g, const float* x, float* y, u32* mask) { max_forward_wide(g, x, y, mask); }

__global__ void max_pool_backward_2_2(Planes g, const u8* mask, const float* dy, float* dx, int add) {
    backward_fixed<2, 2>(g, mask, dy, dx, add);
}

__global__ void max_pool_backward_3_2(Planes g, const u8* mask, const float* dy, float* dx, int add) {
    backward_fixed<3, 2>(g, mask, dy, dx, add);
}

__global__ void max_pool_backward_any_u8(Planes g, const u8* mask, const float* dy, float* dx, int add) {
    max_backward(g, mask, dy, dx, add);
}

__global__ void max_pool_backward_any_u32(Planes g, const u32* mask, const float* dy, float* dx, int add) {
    max_backward(g, mask, dy, dx, add);
}

__global__ void average_pool_forward_any(Planes g, const float* __restrict__ x, float* __restrict__ y) {
    Place out(g, thread_index());
    if (!out.exists) return;
    float sum = 0;
    each_pixel(g, out, x, [&](int, float pixel) { sum += pixel; });
    y[(out.plane * g.out_h + out.row) * g.out_w + out.column] = sum / size(g, out.row, out.column);
}

/// For large windows: a warp has an output.
__global__ void average_pool_forward_wide(Planes g, const float* __restrict__ x, float* __restrict__ y) {
    Place out(g, warp_index());
    if (!out.exists) return;
    float sum = 0;
    each_pixel_of_lane(g, out, x, [&](int, float pixel) { sum += pixel; });
    sum = warp_sum(sum);
    if (threadIdx.x % 32 != 0) return;
    y[(out.plane * g.out_h + out.row) * g.out_w + out.column] = sum / size(g, out.row, out.column);
}

__global__ void average_pool_backward(Planes g, const float* __restrict__ dy, float* __restrict__ dx, int add) {
    Place pixel(g, thread_index());
    if (!pixel.exists) return;
    dy += pixel.plane * (g.out_h * g.out_w);
    gather(g, pixel, dx, add, [&](int p, int q) { return dy[p * g.out_w + q] / size(g, p, q); });
}

}  // extern "C"
