// Local response normalisation: a thread has an element and looks at the rows and columns around it. It sums a
// neighbourhood again for every element: differences of running sums would lose digits.

/// As `Constants` of cuda.rs. `forward_factor` is alpha / count and `backward_factor` 2 alpha beta / count.
struct Lrn {
    float constant, beta, forward_factor, backward_factor;
    int half_rows, half_columns;
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
