// Softmax along an axis, its loss, and the accuracy.
//
// A row is one prediction: the elements that share an outer and an inner index. Where there are no inner indices a
// block has a row, which lies together; else a thread has one, and its neighbours the neighbouring inner indices.

// ---- Softmax --------------------------------------------------------------------------------------------------------

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
    float largest = -__int_as_float(0x7f800000), sum = 0;  // negative infinity
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

    /// What the total is divided by: `count`, or, where that is 0, the rows that are counted.
    __device__ __forceinline__ double divisor(u64 count) const {
        u64 rows = count != 0 ? count : counted;
        return double(rows > 0 ? rows : 1);
    }
};

/// Also false for NaN. Beyond 2^31 there is no class.
__device__ __forceinline__ bool is_class(float label, u64 classes) {
    return label >= 0 && label < 2147483648.0f && u64(label) < classes;
}

/// What the label's class, and what each other class, has of a label.
struct Shares {
    float own, other;
};

/// A 16-byte message to the host; the first one stays.
__device__ void report(uint4* fault, u64 row, float label, const Extents& e) {
    if (*reinterpret_cast<volatile u32*>(fault) != 0) return;
    *fault = make_uint4(1, u32(e.inner.divide(row)), __float_as_uint(label), u32(e.axis.divisor));
}

/// Tallies all rows by one block, LANES threads at each: `of_row(row, class)` is what a row adds whose label is a class,
/// as the first of these threads has it. Then `finish(tally)` by one thread, unless a label was no class.
template <u32 LANES, class IsIgnored, class OfRow, class Finish>
__device__ __forceinline__ void tally_rows(const Extents& e, IsIgnored is_ignored, const float* labels, uint4* fault,
                                           OfRow of_row, Finish finish) {
    Tally tally{0, 0, NO_ROW};
    u64 rows = e.outer * e.inner.divisor;
    for (u64 row = threadIdx.x / LANES; row < rows; row += blockDim.x / LANES) {
        float label = truncf(labels[row]);
        if (is_ignored(label)) continue;
        if (!is_class(label, e.axis.divisor)) {
            tally.bad = row < tally.bad ? row : tally.bad;
            continue;
        }
        double adds = of_row(row, u64(label));
        if (threadIdx.x % LANES != 0) continue;
        tally.counted++;
        tally.total += adds;
    }
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

// ---- Entries --------------------------------------------------------------------------------------------------------

extern "C" {

/// A kernel that does this, by a block for each row or by a thread.
#define BY_ROW(name, parameters, function, ...)                                                                        \
    __global__ void name parameters {                                                                                  \
        if (e.inner.divisor == 1) function<true>(__VA_ARGS__);                                                         \
        else function<false>(__VA_ARGS__);                                                                             \
    }

BY_ROW(softmax_forward, (Extents e, const real* x, real* y), forward, e, x, y)
BY_ROW(softmax_probabilities, (Extents e, const real* x, float* p), forward, e, x, p)
BY_ROW(softmax_backward, (Extents e, const real* y, const real* dy, real* dx, int add), backward, e, y, dy, dx, add)

/// Leaves in `divisor` what the loss is divided by.
__global__ void __launch_bounds__(512) softmax_loss(Extents e, u64 normaliser, Shares shares, float ignored,
                                                    const float* p, const float* labels, float* to, float* divisor,
                                                    uint4* fault) {
    auto of_row = [&](u64 row, u64 label) {
        Row place(e, row);
        auto log_of = [&](u64 at) {
            float probability = p[place.first + at * place.step];
            // Not fmaxf, which would turn a NaN into a finite loss.
            return log(double(probability < 1.17549435e-38f ? 1.17549435e-38f : probability));
        };
        double loss = -double(shares.own - shares.other) * log_of(label);
        if (shares.other > 0) {
            double all = 0;
            for (u64 at = 0; at < e.axis.divisor; at++) all += log_of(at);
            loss -= double(shares.other) * all;
        }
        return loss;
    };
    auto is_ignored = [=](float label) { return label == ignored; };
    tally_rows<1>(e, is_ignored, labels, fault, of_row, [&](const Tally& tally) {
        *divisor = float(tally.divisor(normaliser));
        *to = float(tally.total / tally.divisor(normaliser));
    });
}

/// After `softmax_loss`.
__global__ void softmax_loss_backward(Extents e, Shares shares, float ignored, float weight, const float* p,
                                      const float* divisor, const float* labels, real* dx, int add) {
    float scale = weight / *divisor;
    map({p}, dx, add, e.len(), [&](const float(&x)[1], u64 i) {
        u64 line = e.inner.divide(i), outer = e.axis.divide(line);
        float label = truncf(labels[outer * e.inner.divisor + i - line * e.inner.divisor]);
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

/// A warp for each row, unlike the tallies above: of all rows in the first block, of those of one class in each other,
/// if there are any, whose accuracies go to `per_class`.
__global__ void __launch_bounds__(512) accuracy(Extents e, u64 top_k, float ignored, const real* __restrict__ scores,
                                                const float* __restrict__ labels, float* to, float* per_class,
                                                uint4* fault) {
    auto is_ignored = [=](float label) {
        return label == ignored || (blockIdx.x > 0 && label != float(blockIdx.x - 1));
    };
    auto of_row = [&](u64 row, u64 label) { return is_right(e, row, label, top_k, scores) ? 1.0 : 0.0; };
    tally_rows<32>(e, is_ignored, labels, fault, of_row, [&](const Tally& tally) {
        *(blockIdx.x == 0 ? to : per_class + blockIdx.x - 1) = float(tally.total / tally.divisor(0));
    });
}

}  // extern "C"
