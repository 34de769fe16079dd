// A convolution, as operation graphs describe it. All algorithms compute the definition, in double
// precision; what they want as workspace they overwrite. How fast they are by the clock of a stream is made up so that,
// as on a GPU, the fast ones want a workspace that grows with the mini-batch.
#pragma once
#include "gpu.h"
#include <algorithm>
#include <cstdint>

enum Status { SUCCESS = 0, BAD_PARAMETER = 2000, NOT_SUPPORTED = 3000, EXECUTION_FAILED = 5000 };

struct Tensor {
    bool is_bf16 = false;
    int64_t dims[4] = {}, strides[4] = {};

    int64_t count() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
    size_t bytes() const { return count() * (is_bf16 ? 2 : 4); }

    // `body(place in NCHW, place in memory)` for each element.
    template <class Body>
    void each(Body body) const {
        size_t place = 0;
        for (int64_t a = 0; a < dims[0]; a++) {
            for (int64_t b = 0; b < dims[1]; b++) {
                for (int64_t c = 0; c < dims[2]; c++) {
                    size_t row = a * strides[0] + b * strides[1] + c * strides[2];
                    for (int64_t d = 0; d < dims[3]; d++) body(place++, row + d * strides[3]);
                }
            }
        }
    }

    std::vector<double> read(const void* from) const {
        std::vector<double> values(count());
        each([&](size_t place, size_t at) { values[place] = read_number(from, at, is_bf16); });
        return values;
    }
};

struct Geometry {
    int64_t pad[2] = {}, stride[2] = {1, 1}, dilation[2] = {1, 1};
    int64_t groups = 1;
};

enum Operation { FORWARD, BACKWARD_DATA, BACKWARD_FILTER };

struct Convolution {
    Operation operation = FORWARD;
    Tensor x, w, y;
    Geometry geometry;

    bool is_consistent() const {
        bool good = x.dims[0] == y.dims[0] && x.dims[1] == w.dims[1] * geometry.groups && y.dims[1] == w.dims[0];
        good = good && w.dims[0] % geometry.groups == 0;
        for (int i = 0; i < 2; i++) {
            int64_t reach = geometry.dilation[i] * (w.dims[2 + i] - 1) + 1;
            int64_t outputs = (x.dims[2 + i] + 2 * geometry.pad[i] - reach) / geometry.stride[i] + 1;
            good = good && y.dims[2 + i] == outputs;
        }
        return good;
    }

    const Tensor& result() const { return operation == FORWARD ? y : operation == BACKWARD_DATA ? x : w; }
    double flop() const { return 2.0 * y.count() * w.dims[1] * w.dims[2] * w.dims[3]; }

    // The outputs [first, end) along an axis whose input for this tap exists.
    void outputs(int axis, int64_t tap, int64_t* first, int64_t* end) const {
        int64_t stride = geometry.stride[axis], offset = tap * geometry.dilation[axis] - geometry.pad[axis];
        *first = offset < 0 ? (-offset + stride - 1) / stride : 0;
        int64_t last = x.dims[2 + axis] - 1 - offset;
        *end = last < 0 ? 0 : std::min(y.dims[2 + axis], last / stride + 1);
    }

    void compute(void* at_x, void* at_w, void* at_y, float alpha, float beta) const {
        std::vector<double> of_x, of_w, of_y, sums(result().count());
        if (operation != BACKWARD_DATA) of_x = x.read(at_x);
        if (operation != BACKWARD_FILTER) of_w = w.read(at_w);
        if (operation != FORWARD) of_y = y.read(at_y);
        int64_t per_group = y.dims[1] / geometry.groups;
        for (int64_t n = 0; n < x.dims[0]; n++) {
            for (int64_t k = 0; k < y.dims[1]; k++) {
                for (int64_t c = 0; c < w.dims[1]; c++) {
                    int64_t channel = k / per_group * w.dims[1] + c;
                    size_t plane_x = (n * x.dims[1] + channel) * x.dims[2] * x.dims[3];
                    size_t plane_y = (n * y.dims[1] + k) * y.dims[2] * y.dims[3];
                    size_t taps = (k * w.dims[1] + c) * w.dims[2] * w.dims[3];
                    planes(of_x.data() + plane_x, of_w.data() + taps, of_y.data() + plane_y,
                           sums.data() + (operation == FORWARD ? plane_y : operation == BACKWARD_DATA ? plane_x : taps));
                }
            }
        }
        const Tensor& to = result();
        void* out = operation == FORWARD ? at_y : operation == BACKWARD_DATA ? at_x : at_w;
        to.each([&](size_t place, size_t at) {
            float value = alpha * float(sums[place]);
            float kept = beta == 0 ? 0 : beta * read_number(out, at, to.is_bf16);
            write_number(out, at, to.is_bf16, value + kept);
        });
    }

    // One channel of a sample and one of its results.
    void planes(const double* from_x, const double* from_w, const double* from_y, double* to) const {
        for (int64_t r = 0; r < w.dims[2]; r++) {
            for (int64_t s = 0; s < w.dims[3]; s++) {
                int64_t tap = r * w.dims[3] + s, row, row_end, first, end;
                outputs(0, r, &row, &row_end);
                outputs(1, s, &first, &end);
                for (; row < row_end; row++) {
                    int64_t in_row = row * geometry.stride[0] + r * geometry.dilation[0] - geometry.pad[0];
                    int64_t in = in_row * x.dims[3] + s * geometry.dilation[1] - geometry.pad[1], out = row * y.dims[3];
                    int64_t step = geometry.stride[1];
                    if (operation == FORWARD) {
                        for (int64_t i = first; i < end; i++) to[out + i] += from_w[tap] * from_x[in + i * step];
                    } else if (operation == BACKWARD_DATA) {
                        for (int64_t i = first; i < end; i++) to[in + i * step] += from_w[tap] * from_y[out + i];
                    } else {
                        for (int64_t i = first; i < end; i++) to[tap] += from_x[in + i * step] * from_y[out + i];
                    }
                }
            }
        }
    }
};

struct Handle {
    void* stream = nullptr;
};

struct Call {
    void *x, *w, *y;
    float alpha, beta;
    void* workspace;
    size_t workspace_bytes;
    // GFLOP per millisecond.
    double speed;
};

// Launches it in the stream of a handle; cuDNN's status.
int launch(void* handle, const Convolution& convolution, const Call& call);
