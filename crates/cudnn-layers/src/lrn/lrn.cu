// Local response normalisation: a thread has an element and looks at the rows and columns around it, or, across five
// channels that lie apart, it walks along some channels of a pixel. It sums a neighbourhood again for every element:
// differences of running sums would lose digits.

/// As `Constants` of cuda.rs. `forward_factor` is alpha / count and `backward_factor` 2 alpha beta / count.
struct Lrn {
    float constant, beta, forward_factor, backward_factor;
    int half_rows, half_columns;
    u32 segments;
};

/// Functions of a scale: `power`, its -beta th power, and `ratio`, that divided by the scale.
struct Powers {
    float power, ratio;

    __device__ __forceinline__ Powers(float beta, float scale) {
        if (beta == 0.75f) {
            // Every published net's: `1 / sqrt(scale) * sqrt(1 / sqrt(scale))`, to about four units in the last place.
            float inverse_root, root_of_it;
            asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse_root) : "f"(scale));
            asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root_of_it) : "f"(inverse_root));
            power = inverse_root * root_of_it;
            ratio = power * (inverse_root * inverse_root);
        } else {
            power = powf(scale, -beta);
            ratio = power / scale;
        }
    }
};

// ---- Across five channels -------------------------------------------------------------------------------------------

/// The channels [first, last) of one pixel, which a thread has.
struct Walk {
    u64 pixel, step;  // in channel 0, and between channels
    int first, last, channels;
    bool exists;

    /// The channels are cut into segments. Neighbouring blocks have those of the same pixels: they read some in common.
    __device__ __forceinline__ Walk(const Lrn& lrn, const Extents& e) {
        u32 segment = blockIdx.x % lrn.segments;
        u64 index = u64(blockIdx.x / lrn.segments) * blockDim.x + threadIdx.x, sample = e.inner.divide(index);
        step = e.inner.divisor;
        channels = int(e.axis.divisor);
        pixel = sample * channels * step + index - sample * step;
        first = int(u32(channels) * segment / lrn.segments);
        last = int(u32(channels) * (segment + 1) / lrn.segments);
        exists = sample < e.outer;
    }

    /// Calls `body(element, the terms of five channels around it)`; `load(element)` computes one, `none` is that of no
    /// channel.
    template <class Term, class Load, class Body>
    __device__ __forceinline__ void each(Term none, Load load, Body body) const {
        auto term = [&](int channel) { return u32(channel) < u32(channels) ? load(pixel + channel * step) : none; };
        Term near[5] = {none, term(first - 2), term(first - 1), term(first), term(first + 1)};
#pragma unroll 8
        for (int channel = first; channel < last; channel++) {
            for (int i = 0; i < 4; i++) near[i] = near[i + 1];
            near[4] = term(channel + 2);
            body(pixel + channel * step, near);
        }
    }
};

extern "C" __global__ void lrn_forward_5(Lrn lrn, Extents e, const real* __restrict__ x, real* __restrict__ y,
                                         float* __restrict__ scale) {
    Walk walk(lrn, e);
    if (!walk.exists) return;
    walk.each(0.0f, [&](u64 i) { return x[i]; }, [&](u64 i, const float (&near)[5]) {
        float sum = 0;
        for (float value : near) sum += value * value;
        float value = lrn.constant + lrn.forward_factor * sum;
        scale[i] = value;
        y[i] = near[2] * Powers(lrn.beta, value).power;
    });
}

/// dy * x * scale^(-beta - 1), what is summed; x; and dy * scale^-beta.
struct Term {
    float ratio, data, direct;
};

extern "C" __global__ void lrn_backward_5(Lrn lrn, Extents e, const real* __restrict__ x,
                                          const float* __restrict__ scale, const real* __restrict__ dy,
                                          real* __restrict__ dx, int add) {
    Walk walk(lrn, e);
    if (!walk.exists) return;
    auto load = [&](u64 i) {
        Powers powers(lrn.beta, scale[i]);
        return Term{dy[i] * x[i] * powers.ratio, x[i], dy[i] * powers.power};
    };
    walk.each(Term{0, 0, 0}, load, [&](u64 i, const Term (&near)[5]) {
        float sum = 0;
        for (const Term& term : near) sum += term.ratio;
        put(add, dx + i, near[2].direct - lrn.backward_factor * near[2].data * sum);
    });
}

// ---- Any neighbourhood ----------------------------------------------------------------------------------------------

/// The rows or columns around one of them.
__device__ __forceinline__ int2 around(int half, int at, u64 extent) {
    return make_int2(max(at - half, 0), min(at + half + 1, int(extent)));
}

/// The neighbourhood of a thread's element: rows and columns of a plane. Across channels, rows are channels.
struct Square {
    u64 at;
    bool exists;
    int2 rows, columns;
    u64 plane, w;

    __device__ __forceinline__ Square(const Lrn& lrn, const Extents& e) {
        at = grid_start();
        u64 line = e.inner.divide(at), number = e.axis.divide(line);
        exists = number < e.outer;
        w = e.inner.divisor;
        rows = around(lrn.half_rows, int(line - number * e.axis.divisor), e.axis.divisor);
        columns = around(lrn.half_columns, int(at - line * w), w);
        plane = number * e.axis.divisor * w;
    }

    template <class Term>
    __device__ __forceinline__ float sum(Term term) const {
        float total = 0;
        for (int row = rows.x; row < rows.y; row++) {
            float part = 0;
            for (int column = columns.x; column < columns.y; column++) part += term(plane + u64(row) * w + column);
            total += part;
        }
        return total;
    }
};

extern "C" __global__ void lrn_forward(Lrn lrn, Extents e, const real* __restrict__ x, real* __restrict__ y,
                                       float* __restrict__ scale) {
    Square square(lrn, e);
    if (!square.exists) return;
    float value = lrn.constant + lrn.forward_factor * square.sum([&](u64 i) { return x[i] * x[i]; });
    scale[square.at] = value;
    y[square.at] = x[square.at] * Powers(lrn.beta, value).power;
}

extern "C" __global__ void lrn_backward(Lrn lrn, Extents e, const real* __restrict__ x,
                                        const float* __restrict__ scale, const real* __restrict__ dy,
                                        real* __restrict__ dx, int add) {
    Square square(lrn, e);
    if (!square.exists) return;
    float sum = square.sum([&](u64 i) { return dy[i] * x[i] * Powers(lrn.beta, scale[i]).ratio; });
    u64 i = square.at;
    put(add, dx + i, dy[i] * Powers(lrn.beta, scale[i]).power - lrn.backward_factor * x[i] * sum);
}
