// Softmax along an axis, its loss, and the accuracy.
//
// A row is one prediction: the elements that share an outer and an inner index. Where there are no inner indices a
// block has a row, which lies together; else a thread has one, and its neighbours the neighbouring inner indices.

// ---- Softmax --------------------------------------------------------------------------------------------------------

__device__ __forceinline__ float minus_infinity() { return -__int_as_float(0x7f800000); }

/// Row number `index`.
struct Row {
    u64 first, step;
    bool exists;

    __device__ __forceinline__ explicit Row(const Extents& e, u64 index) {
        u64 outer = e.inner.divide(index);
        step = e.inner.divisor;
        first = outer * e.axis.divisor * step + index - outer * step;
        exists = outer < e.outer;
    }
};

/// The row of a block, whose threads take turns, or of a thread alone.
template <bool BLOCK>
struct Line {
    u64 start, end, step;

    __device__ __forceinline__ explicit Line(const Extents& e) {
        Row row(e, BLOCK ? blockIdx.x : grid_start());
        end = row.exists ? row.first + e.axis.divisor * row.step : 0;
        start = row.first + (BLOCK ? threadIdx.x : 0);
        step = BLOCK ? blockDim.x : row.step;
    }
    template <class Body>
    __device__ __forceinline__ void each(Body body) const {
        for (u64 i = start; i < end; i += step) body(i);
    }
    /// Of all threads that have the row.
    __device__ __forceinline__ float sum(float value) const { return BLOCK ? block_sum(value) : value; }
    __device__ __forceinline__ float largest(float value) const { return BLOCK ? block_max(value) : value; }
};

template <bool BLOCK, class To>
__device__ __forceinline__ void forward(const Extents& e, const real* __restrict__ x, To* __restrict__ y) {
    Line<BLOCK> line(e);
    float largest = minus_infinity(), sum = 0;
    line.each([&](u64 i) { largest = fmaxf(largest, x[i]); });
    largest = line.largest(largest);
    line.each([&](u64 i) { sum += expf(x[i] - largest); });
    sum = line.sum(sum);
    line.each([&](u64 i) { y[i] = expf(x[i] - largest) / sum; });
}

template <bool BLOCK>
__device__ __forceinline__ void backward(const Extents& e, const real* __restrict__ y, const real* __restrict__ dy,
                                         real* __restrict__ dx, bool add) {
    Line<BLOCK> line(e);
    float dot = 0;
    line.each([&](u64 i) { dot += y[i] * dy[i]; });
    dot = line.sum(dot);
    line.each([&](u64 i) { put(add, dx + i, y[i] * (dy[i] - dot)); });
}

// ---- Loss and accuracy ----------------------------------------------------------------------------------------------

constexpr u64 NO_ROW = ~0ull;

/// What the rows of a thread, or of all, come to.
struct Tally {
    double total;  // of the loss, or the number of right predictions
    u64 counted;   // rows whose label is not ignored
    u64 bad;       // the first row whose label is no class

    static __device__ __forceinline__ Tally none() { return {0, 0, NO_ROW}; }
};

enum Kind { CLASS, IGNORED, BAD };

/// `ignored` is NaN if no label is to be ignored.
__device__ __forceinline__ Kind kind(float label, float ignored, u64 classes) {
    if (label == ignored) return IGNORED;
    // Also false for NaN. Beyond 2^31 there is no class; below, the conversion is exact or shows that it is not.
    bool is_class = label >= 0 && label < 2147483648.0f && truncf(label) == label && u64(label) < classes;
    return is_class ? CLASS : BAD;
}

/// What a sum is divided by. `count` is 0 for the number of rows that are counted.
struct Normaliser {
    u64 count;

    __device__ __forceinline__ double operator()(const Tally& tally) const {
        u64 divisor = count != 0 ? count : tally.counted;
        return double(divisor > 0 ? divisor : 1);
    }
};

/// What the label's class, and what each other class, has of a label.
struct Shares {
    float own, other;
};

/// A 16-byte message to the host; the first one stays.
__device__ void report(uint4* fault, u64 row, float label, const Extents& e) {
    if (*reinterpret_cast<volatile u32*>(fault) != 0) return;
    *fault = make_uint4(1, u32(e.inner.divide(row)), __float_as_uint(label), u32(e.axis.divisor));
}

/// Adds up the tallies of all threads of the one block there is: `finish(tally)` by one thread, unless a label was no
/// class.
template <class Finish>
__device__ __forceinline__ void conclude(Tally tally, const Extents& e, const float* labels, uint4* fault, Finish finish) {
    tally.total = block_sum(tally.total);
    tally.counted = block_sum(tally.counted);
    tally.bad = block_reduce(tally.bad, NO_ROW, [](u64 left, u64 right) { return left < right ? left : right; });
    if (threadIdx.x != 0) return;
    if (tally.bad == NO_ROW) {
        finish(tally);
    } else {
        report(fault, tally.bad, labels[tally.bad], e);
    }
}

/// Tallies all rows, a thread at a time: `of_row(row, class, tally)` for those whose label is a class.
template <class OfRow, class Finish>
__device__ __forceinline__ void tally_rows(const Extents& e, float ignored, const float* labels, uint4* fault,
                                           OfRow of_row, Finish finish) {
    Tally tally = Tally::none();
    u64 rows = e.outer * e.inner.divisor;
    for (u64 row = threadIdx.x; row < rows; row += blockDim.x) {
        float label = labels[row];
        Kind is = kind(label, ignored, e.axis.divisor);
        if (is == BAD) tally.bad = row < tally.bad ? row : tally.bad;
        if (is != CLASS) continue;
        tally.counted++;
        of_row(row, u64(label), tally);
    }
    conclude(tally, e, labels, fault, finish);
}

// ---- Entries --------------------------------------------------------------------------------------------------------

extern "C" {

__global__ void softmax_forward(Extents e, const real* x, real* y) {
    if (e.inner.divisor == 1) forward<true>(e, x, y);
    else forward<false>(e, x, y);
}

__global__ void softmax_probabilities(Extents e, const real* x, float* p) {
    if (e.inner.divisor == 1) forward<true>(e, x, p);
    else forward<false>(e, x, p);
}

__global__ void softmax_backward(Extents e, const real* y, const real* dy, real* dx, int add) {
    if (e.inner.divisor == 1) backward<true>(e, y, dy, dx, add);
    else backward<false>(e, y, dy, dx, add);
}

__global__ void __launch_bounds__(512) softmax_loss(Extents e, Normaliser normaliser, Shares shares, float ignored,
                                                    const float* p, const float* labels, float* to, uint4* fault) {
    auto of_row = [&](u64 row, u64 label, Tally& tally) {
        Row place(e, row);
        auto log_of = [&](u64 at) {
            float probability = p[place.first + at * place.step];
            // Not fmaxf, which would turn a NaN into a finite loss.
            return log(double(probability < 1.17549435e-38f ? 1.17549435e-38f : probability));
        };
        if (shares.other > 0) {
            double all = 0;
            for (u64 at = 0; at < e.axis.divisor; at++) all += log_of(at);
            tally.total -= double(shares.other) * all;
        }
        tally.total -= double(shares.own - shares.other) * log_of(label);
    };
    tally_rows(e, ignored, labels, fault, of_row,
               [&](const Tally& tally) { *to = float(tally.total / normaliser(tally)); });
}

/// Leaves the factor of all gradients and 1 in `factor`, where it leaves 0 instead of the 1 if a label is no class.
__global__ void __launch_bounds__(512) softmax_loss_factor(Extents e, Normaliser normaliser, float weight, float ignored,
                                                           const float* labels, float* factor, uint4* fault) {
    if (threadIdx.x == 0) factor[1] = 0;
    tally_rows(e, ignored, labels, fault, [](u64, u64, Tally&) {}, [&](const Tally& tally) {
        factor[0] = float(double(weight) / normaliser(tally));
        factor[1] = 1;
    });
}

/// After `softmax_loss_factor`.
__global__ void softmax_loss_backward(Extents e, Shares shares, float ignored, const float* factor, const float* p,
                                      const float* labels, real* dx, int add) {
    if (factor[1] == 0) return;
    float scale = factor[0];
    map({p}, dx, add, e.len(), [&](const float(&x)[1], u64 i) {
        u64 line = e.inner.divide(i), outer = e.axis.divide(line);
        float label = labels[outer * e.inner.divisor + i - line * e.inner.divisor];
        float wanted = label == float(line - outer * e.axis.divisor) ? shares.own : shares.other;
        return label == ignored ? 0 : (x[0] - wanted) * scale;
    });
}

/// Whether class `wanted_class` is among the `top_k` highest scores of a row: of the classes that rank before it, each
/// lane of the warp counts its own.
__device__ __forceinline__ bool is_right(const Extents& e, u64 row, u64 wanted_class, u64 top_k, const real* scores) {
    Row place(e, row);
    float wanted = scores[place.first + wanted_class * place.step];
    u32 before = 0;
    for (u64 other = threadIdx.x % 32; other < e.axis.divisor; other += 32) {
        float score = scores[place.first + other * place.step];
        before += score > wanted || (score == wanted && other > wanted_class) || score != score;
    }
    return warp_sum(before) < top_k && wanted == wanted;
}

/// A warp for each row, unlike the tallies above.
__global__ void __launch_bounds__(512) accuracy(Extents e, u64 top_k, float ignored, const real* __restrict__ scores,
                                                const float* __restrict__ labels, float* to, uint4* fault) {
    Tally tally = Tally::none();
    u64 rows = e.outer * e.inner.divisor;
    u32 lane = threadIdx.x % 32;
    for (u64 row = threadIdx.x / 32; row < rows; row += blockDim.x / 32) {
        float label = labels[row];
        Kind is = kind(label, ignored, e.axis.divisor);
        if (is == BAD && row < tally.bad) tally.bad = row;
        if (is != CLASS) continue;
        bool right = is_right(e, row, u64(label), top_k, scores);
        if (lane != 0) continue;
        tally.counted++;
        tally.total += right ? 1 : 0;
    }
    conclude(tally, e, labels, fault, [&](const Tally& all) { *to = float(all.total / Normaliser{0}(all)); });
}

/// The same for the rows of one class, that of the block.
__global__ void accuracy_per_class(Extents e, u64 top_k, float ignored, const real* __restrict__ scores,
                                   const float* __restrict__ labels, float* to) {
    double right = 0, counted = 0;
    u64 rows = e.outer * e.inner.divisor;
    float wanted = float(blockIdx.x);
    for (u64 row = threadIdx.x / 32; row < rows; row += blockDim.x / 32) {
        if (labels[row] != wanted || wanted == ignored) continue;
        bool is = is_right(e, row, blockIdx.x, top_k, scores);
        if (threadIdx.x % 32 != 0) continue;
        counted++;
        right += is ? 1 : 0;
    }
    counted = block_sum(counted);
    right = block_sum(right);
    if (threadIdx.x == 0) to[blockIdx.x] = float(right / (counted > 0 ? counted : 1));
}

}  // extern "C"
