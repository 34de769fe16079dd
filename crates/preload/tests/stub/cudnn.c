// libcudnn.so.9 without a GPU. Its convolutions have one weight and as many channels out as in:
//
//     y = alpha x w + beta y,    dx = alpha dy w + beta dx,    dw = alpha sum(x dy) + beta dw
//
// so that every operand that is wrong, left out, or taken twice shows in the result. There are two algorithms:
//
//     0            1 ms a sample                 no workspace
//     FFT_TILING   0.1 ms and 0.1 ms a sample    1 MiB a sample, which it fills
//
// `STUB_PACE` times as many milliseconds, if it is set.
#include "stub.h"
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, BAD_PARAM = 2000, NOT_SUPPORTED = 3000, FLOAT = 0, DOUBLE = 1 };
#define MIB ((size_t)1 << 20)

typedef struct { int dtype, format, rank, dims[8]; } Filter;
typedef struct { int axes, pad[8], stride[8], dilation[8], mode, compute, groups, math; } Convolution;
typedef struct { int algorithm, status; float time_ms; size_t memory; int determinism, math, reserved[3]; } Answer;

static const int tiling[3] = {5, 3, 6};
int stub_calls[3][16][65], stub_math;
char *stub_scratch;

int stub_all_calls(void) {
    int all = 0;
    for (int i = 0; i < 3 * 16 * 65; i++) all += (&stub_calls[0][0][0])[i];
    return all;
}

int cudnnGetProperty(int part, int *value) { return *value = part == 0 ? 9 : part == 1 ? 19 : 2, SUCCESS; }
int cudnnGetStream(void *handle, void **stream) { return *stream = handle, SUCCESS; }

#define DESCRIPTOR(name, type)                                                                                              \
    int cudnnCreate##name##Descriptor(type **made) { return *made = calloc(1, sizeof **made), SUCCESS; }                       \
    int cudnnDestroy##name##Descriptor(type *made) { return free(made), SUCCESS; }
DESCRIPTOR(Tensor, Tensor)
DESCRIPTOR(Filter, Filter)
DESCRIPTOR(Convolution, Convolution)

int cudnnSetTensorNdDescriptor(Tensor *t, int dtype, int rank, const int *dims, const int *strides) {
    t->dtype = dtype, t->rank = rank;
    memcpy(t->dims, dims, rank * sizeof *dims), memcpy(t->strides, strides, rank * sizeof *dims);
    return SUCCESS;
}
int cudnnGetTensorNdDescriptor(const Tensor *t, int most, int *dtype, int *rank, int *dims, int *strides) {
    if (!t || most < t->rank) return BAD_PARAM;
    *dtype = t->dtype, *rank = t->rank;
    memcpy(dims, t->dims, t->rank * sizeof *dims), memcpy(strides, t->strides, t->rank * sizeof *dims);
    return SUCCESS;
}
int cudnnSetFilterNdDescriptor(Filter *f, int dtype, int format, int rank, const int *dims) {
    f->dtype = dtype, f->format = format, f->rank = rank;
    memcpy(f->dims, dims, rank * sizeof *dims);
    return SUCCESS;
}
int cudnnGetFilterNdDescriptor(const Filter *f, int most, int *dtype, int *format, int *rank, int *dims) {
    if (!f || most < f->rank) return BAD_PARAM;
    *dtype = f->dtype, *format = f->format, *rank = f->rank;
    memcpy(dims, f->dims, f->rank * sizeof *dims);
    return SUCCESS;
}
int cudnnSetConvolutionNdDescriptor(Convolution *c, int axes, const int *pad, const int *stride, const int *dilation,
                                    int mode, int compute) {
    c->axes = axes, c->mode = mode, c->compute = compute, c->groups = 1;
    memcpy(c->pad, pad, axes * 4), memcpy(c->stride, stride, axes * 4), memcpy(c->dilation, dilation, axes * 4);
    return SUCCESS;
}
int cudnnGetConvolutionNdDescriptor(const Convolution *c, int most, int *axes, int *pad, int *stride, int *dilation,
                                    int *mode, int *compute) {
    if (!c || most < c->axes) return BAD_PARAM;
    *axes = c->axes, *mode = c->mode, *compute = c->compute;
    memcpy(pad, c->pad, c->axes * 4), memcpy(stride, c->stride, c->axes * 4), memcpy(dilation, c->dilation, c->axes * 4);
    return SUCCESS;
}
int cudnnSetConvolutionGroupCount(Convolution *c, int groups) { return c->groups = groups, SUCCESS; }
int cudnnGetConvolutionGroupCount(Convolution *c, int *groups) { return *groups = c->groups, SUCCESS; }
int cudnnSetConvolutionMathType(Convolution *c, int math) { return c->math = math, SUCCESS; }
int cudnnGetConvolutionMathType(Convolution *c, int *math) { return *math = c->math, SUCCESS; }

static double scalar(int dtype, const void *at) { return dtype == DOUBLE ? *(const double *)at : *(const float *)at; }
static double load(int dtype, const void *at, size_t i) {
    return dtype == DOUBLE ? ((const double *)at)[i] : ((const float *)at)[i];
}
static void store(int dtype, void *at, size_t i, double value) {
    if (dtype == DOUBLE) ((double *)at)[i] = value;
    else ((float *)at)[i] = value;
}

static size_t elements(const Tensor *t) {
    size_t all = 1;
    for (int axis = 0; axis < t->rank; axis++) all *= t->dims[axis];
    return all;
}
static size_t place(const Tensor *t, size_t i) {
    size_t at = 0;
    for (int axis = t->rank - 1; axis >= 0; i /= t->dims[axis--]) at += i % t->dims[axis] * t->strides[axis];
    return at;
}

static int workspace(int op, const Tensor *t, int algorithm, size_t *bytes) {
    *bytes = algorithm == tiling[op] ? t->dims[0] * MIB : 0;
    return algorithm == 0 || algorithm == tiling[op] ? SUCCESS : NOT_SUPPORTED;
}

// Accounts for a call: what it takes, and its workspace.
static int launch(int op, const Tensor *t, const Convolution *c, int algorithm, void *scratch, size_t len) {
    size_t needed;
    if (algorithm < 0 || algorithm >= 8) return BAD_PARAM;
    int status = workspace(op, t, algorithm, &needed);
    if (status || needed > len) return status ? status : BAD_PARAM;
    if (needed) memset(scratch, 0xab, needed);
    stub_math = c->math, stub_scratch = scratch;
    double pace = getenv("STUB_PACE") ? atof(getenv("STUB_PACE")) : 1;
    stub_clock_ms += pace * (algorithm == 0 ? t->dims[0] : 0.1 + 0.1 * t->dims[0]);
    __atomic_add_fetch(&stub_calls[op][algorithm][t->dims[0]], 1, __ATOMIC_SEQ_CST);
    return SUCCESS;
}

void stub_map(double alpha, const Tensor *ti, const void *in, const void *w, double beta, const Tensor *tz, const void *z,
              double bias, const Tensor *to, void *out) {
    int d = ti->dtype;
    for (size_t i = 0; i < elements(ti) && (d == FLOAT || d == DOUBLE); i++) {
        double before = beta == 0 ? 0 : beta * load(d, z, place(tz, i));
        store(d, out, place(to, i), alpha * load(d, in, place(ti, i)) * load(d, w, 0) + before + bias);
    }
}

void stub_sum(double alpha, const Tensor *tx, const void *x, const Tensor *ty, const void *dy, double beta, void *dw) {
    int d = tx->dtype;
    if (d != FLOAT && d != DOUBLE) return;
    double sum = 0;
    for (size_t i = 0; i < elements(tx); i++) sum += load(d, x, place(tx, i)) * load(d, dy, place(ty, i));
    store(d, dw, 0, alpha * sum + (beta == 0 ? 0 : beta * load(d, dw, 0)));
}

static int map(int op, const void *alpha, const Tensor *ti, const void *in, const void *w, const Convolution *c,
               int algorithm, void *scratch, size_t len, const void *beta, const Tensor *tz, const void *z,
               const void *bias, const Tensor *to, void *out) {
    int status = launch(op, ti, c, algorithm, scratch, len), d = ti->dtype;
    if (status) return status;
    stub_map(scalar(d, alpha), ti, in, w, scalar(d, beta), tz, z, bias ? load(d, bias, 0) : 0, to, out);
    return SUCCESS;
}

int cudnnConvolutionForward(void *h, const void *alpha, Tensor *tx, void *x, Filter *fw, void *w, Convolution *c,
                            int algorithm, void *scratch, size_t len, const void *beta, Tensor *ty, void *y) {
    return map(FORWARD, alpha, tx, x, w, c, algorithm, scratch, len, beta, ty, y, 0, ty, y);
}
int cudnnConvolutionBackwardData(void *h, const void *alpha, Filter *fw, void *w, Tensor *ty, void *dy, Convolution *c,
                                 int algorithm, void *scratch, size_t len, const void *beta, Tensor *tx, void *dx) {
    return map(BACKWARD_DATA, alpha, ty, dy, w, c, algorithm, scratch, len, beta, tx, dx, 0, tx, dx);
}
int cudnnConvolutionBiasActivationForward(void *h, const void *alpha, Tensor *tx, void *x, Filter *fw, void *w,
                                          Convolution *c, int algorithm, void *scratch, size_t len, const void *beta,
                                          Tensor *tz, void *z, Tensor *tb, void *bias, void *activation, Tensor *ty, void *y) {
    return map(FORWARD, alpha, tx, x, w, c, algorithm, scratch, len, beta, tz, z, bias, ty, y);
}
int cudnnConvolutionBackwardFilter(void *h, const void *alpha, Tensor *tx, void *x, Tensor *ty, void *dy, Convolution *c,
                                   int algorithm, void *scratch, size_t len, const void *beta, Filter *fw, void *dw) {
    int status = launch(BACKWARD_FILTER, tx, c, algorithm, scratch, len), d = tx->dtype;
    if (status) return status;
    stub_sum(scalar(d, alpha), tx, x, ty, dy, scalar(d, beta), dw);
    return SUCCESS;
}

// Heuristics like FFT_TILING best; measurements show what is best in `len` bytes.
static int answer(int op, const Tensor *t, Convolution *c, size_t len, int is_measured, int most, int *found, Answer *list) {
    if (!t || !list || most < 1) return BAD_PARAM;
    *found = 0;
    for (int which = 0; which < 2 && *found < most; which++) {
        int algorithm = which == 0 ? tiling[op] : 0;
        float ms = algorithm == 0 ? t->dims[0] : 0.1 + 0.1 * t->dims[0];
        int math = getenv("STUB_MATH") ? atoi(getenv("STUB_MATH")) : c->math;
        Answer made = {algorithm, SUCCESS, is_measured ? ms : -1, 0, 1, math, {0}};
        workspace(op, t, algorithm, &made.memory);
        if (made.memory <= len) list[(*found)++] = made;
    }
    return SUCCESS;
}

// The real library runs its convolutions by their exported names, which a preloaded library stands before.
#define ANSWERS(op, Op, A, B, C, SAMPLES)  \
    int cudnnGetConvolution##Op##WorkspaceSize(void *h, A *a, B *b, Convolution *conv, C *c, int algorithm, size_t *bytes) {      \
        return workspace(op, (Tensor *)SAMPLES, algorithm, bytes);                                                       \
    }                                                                                                                       \
    int cudnnGetConvolution##Op##Algorithm_v7(void *h, A *a, B *b, Convolution *conv, C *c, int most, int *found,           \
                                              Answer *list) {                                                               \
        return answer(op, (Tensor *)SAMPLES, conv, (size_t)-1, 0, most, found, list);                                    \
    }                                                                                                                       \
    int cudnnFindConvolution##Op##AlgorithmEx(void *h, A *a, void *pa, B *b, void *pb, Convolution *conv, C *c, void *pc,   \
                                              int most, int *found, Answer *list, void *scratch, size_t len) {              \
        double one = 1, zero = 0;                                                                                           \
        float onef = 1, zerof = 0;                                                                                          \
        int is_double = ((Tensor *)SAMPLES)->dtype == DOUBLE;                                                            \
        cudnnConvolution##Op(h, is_double ? (void *)&one : &onef, a, pa, b, pb, conv, 0, scratch, len,                      \
                             is_double ? (void *)&zero : &zerof, c, pc);                                                    \
        cudnnGetConvolution##Op##Algorithm_v7(h, a, b, conv, c, most, found, list);                                         \
        return answer(op, (Tensor *)SAMPLES, conv, len, 1, most, found, list);                                           \
    }                                                                                                                       \
    int cudnnFindConvolution##Op##Algorithm(void *h, A *a, B *b, Convolution *conv, C *c, int most, int *found,             \
                                            Answer *list) {                                                                 \
        return answer(op, (Tensor *)SAMPLES, conv, (size_t)-1, 1, most, found, list);                                    \
    }

ANSWERS(FORWARD, Forward, Tensor, Filter, Tensor, a)
ANSWERS(BACKWARD_DATA, BackwardData, Filter, Tensor, Tensor, b)
ANSWERS(BACKWARD_FILTER, BackwardFilter, Tensor, Tensor, Filter, a)
