// What a framework does with cuDNN's legacy API, and what must come of it. Each scenario is run in a process of its
// own.
#include "stub.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct { int algorithm, status; float time_ms; size_t memory; int determinism, math, reserved[3]; } Answer;

#define DECLARE(Op)                                                                                                         \
    int cudnnFindConvolution##Op##Algorithm(void *, void *, void *, void *, void *, int, int *, Answer *);                  \
    int cudnnGetConvolution##Op##Algorithm_v7(void *, void *, void *, void *, void *, int, int *, Answer *);                \
    int cudnnFindConvolution##Op##AlgorithmEx(void *, void *, void *, void *, void *, void *, void *, void *, int, int *,     \
                                              Answer *, void *, size_t);                                                    \
    int cudnnGetConvolution##Op##WorkspaceSize(void *, void *, void *, void *, void *, int, size_t *);                      \
    int cudnnConvolution##Op(void *, void *, void *, void *, void *, void *, void *, int, void *, size_t, void *, void *,   \
                             void *);
DECLARE(Forward)
DECLARE(BackwardData)
DECLARE(BackwardFilter)
int cudnnConvolutionBiasActivationForward(void *, void *, void *, void *, void *, void *, void *, int, void *, size_t, void *,
                                          void *, void *, void *, void *, void *, void *, void *);
int cudnnCreateTensorDescriptor(void **), cudnnCreateFilterDescriptor(void **), cudnnCreateConvolutionDescriptor(void **);
int cudnnSetTensorNdDescriptor(void *, int, int, const int *, const int *);
int cudnnSetFilterNdDescriptor(void *, int, int, int, const int *);
int cudnnSetConvolutionNdDescriptor(void *, int, const int *, const int *, const int *, int, int);
int cudnnSetConvolutionMathType(void *, int);

#define MIB ((size_t)1 << 20)
#define CHECK(what)                                                                                                         \
    do {                                                                                                                    \
        if (!(what)) fprintf(stderr, "line %d: %s\n", __LINE__, #what), exit(1);                                            \
    } while (0)

enum { FLOAT, DOUBLE, HALF, FIND_EX = 0, FIND, GET };

// A convolution of `n` samples with 3 channels of 2x2: operands in the order in which the functions take them.
typedef struct {
    int op, n, dtype;
    void *handle, *descriptors[3], *convolution, *operands[3];
    size_t elements;
} Conv;

static size_t size_of(const Conv *c) { return c->dtype == DOUBLE ? 8 : c->dtype == HALF ? 2 : 4; }
static double get(const Conv *c, int operand, size_t i) {
    return c->dtype == DOUBLE ? ((double *)c->operands[operand])[i] : ((float *)c->operands[operand])[i];
}
static void set(Conv *c, int operand, size_t i, double value) {
    if (c->dtype == DOUBLE) ((double *)c->operands[operand])[i] = value;
    else if (c->dtype == FLOAT) ((float *)c->operands[operand])[i] = value;
}
static int filter_of(int op) { return op == FORWARD ? 1 : op == BACKWARD_DATA ? 0 : 2; }

static void fill(Conv *c) {
    for (int operand = 0; operand < 3; operand++)
        for (size_t i = 0; i < (operand == filter_of(c->op) ? 1 : c->elements); i++)
            set(c, operand, i, (i * 7 + operand * 3) % 11 - 4.0);
}

static Conv make(int op, int n, int dtype, const int *strides) {
    Conv c = {.op = op, .n = n, .dtype = dtype, .elements = (size_t)n * strides[0]};
    int dims[4] = {n, 3, 2, 2}, filter[4] = {3, 3, 1, 1}, none[2] = {0, 0}, one[2] = {1, 1};
    for (int operand = 0; operand < 3; operand++) {
        c.operands[operand] = calloc(c.elements, 8);
        if (operand == filter_of(op)) {
            cudnnCreateFilterDescriptor(&c.descriptors[operand]);
            cudnnSetFilterNdDescriptor(c.descriptors[operand], dtype, 0, 4, filter);
        } else {
            cudnnCreateTensorDescriptor(&c.descriptors[operand]);
            cudnnSetTensorNdDescriptor(c.descriptors[operand], dtype, 4, dims, strides);
        }
    }
    cudnnCreateConvolutionDescriptor(&c.convolution);
    cudnnSetConvolutionNdDescriptor(c.convolution, 2, none, one, one, 1, FLOAT);
    cudnnSetConvolutionMathType(c.convolution, 3);
    fill(&c);
    return c;
}
static const int NCHW[4] = {12, 4, 2, 1}, NHWC[4] = {12, 1, 6, 3}, SPACED[4] = {16, 1, 6, 3}, ODD[4] = {13, 4, 2, 1};

// Asks with so much workspace; returns the first answer, and how many there are in `found`.
static Answer ask(Conv *c, int how, int most, size_t len, int *found) {
    Answer list[8] = {{0}};
    void *h = c->handle, **d = c->descriptors, **p = c->operands, *conv = c->convolution, *scratch = malloc(len);
#define ASK(Op)                                                                                                             \
    how == FIND  ? cudnnFindConvolution##Op##Algorithm(h, d[0], d[1], conv, d[2], most, found, list)                        \
    : how == GET ? cudnnGetConvolution##Op##Algorithm_v7(h, d[0], d[1], conv, d[2], most, found, list)                      \
                 : cudnnFindConvolution##Op##AlgorithmEx(h, d[0], p[0], d[1], p[1], conv, d[2], p[2], most, found, list,    \
                                                         scratch, len)
    int status = c->op == FORWARD ? ASK(Forward) : c->op == BACKWARD_DATA ? ASK(BackwardData) : ASK(BackwardFilter);
    CHECK(status == 0 && *found >= 1 && *found <= most);
    free(scratch);
    return list[0];
}

static int run_with(Conv *c, int algorithm, void *scratch, size_t len, double alpha, double beta) {
    float alphaf = alpha, betaf = beta;
    void *a = c->dtype == DOUBLE ? (void *)&alpha : &alphaf, *b = c->dtype == DOUBLE ? (void *)&beta : &betaf;
    void *h = c->handle, **d = c->descriptors, **p = c->operands, *conv = c->convolution;
#define RUN(Op) cudnnConvolution##Op(h, a, d[0], p[0], d[1], p[1], conv, algorithm, scratch, len, b, d[2], p[2])
    return c->op == FORWARD ? RUN(Forward) : c->op == BACKWARD_DATA ? RUN(BackwardData) : RUN(BackwardFilter);
}

// Runs an algorithm on fresh operands and compares the result with the formula. Nothing is written beyond the
// workspace.
static void run_and_compare(Conv *c, int algorithm, size_t len, double alpha, double beta, const int *strides) {
    fill(c);
    unsigned char *scratch = malloc(len + 16);
    memset(scratch + len, 7, 16);
    double *before = malloc(c->elements * sizeof *before), sum = 0;
    int f = filter_of(c->op), in = c->op == BACKWARD_DATA;
    for (size_t i = 0; i < (f == 2 ? 1 : c->elements); i++) before[i] = get(c, 2, i);
    CHECK(run_with(c, algorithm, scratch, len, alpha, beta) == 0);
    for (int i = 0; i < 16; i++) CHECK(scratch[len + i] == 7);
    for (size_t i = 0; i < c->elements; i++) {
        size_t inside = 0;  // whether an element lies here, or the space between two samples
        for (size_t k = 0; k < 12; k++) inside |= i % strides[0] == k / 4 * strides[1] + k / 2 % 2 * strides[2] + k % 2 * strides[3];
        if (f == 2) sum += inside ? get(c, 0, i) * get(c, 1, i) : 0;
        else CHECK(get(c, 2, i) == (inside ? alpha * get(c, in, i) * get(c, f, 0) + beta * before[i] : before[i]));
    }
    if (f == 2) CHECK(get(c, 2, 0) == alpha * sum + beta * before[0]);
    free(scratch), free(before);
}

static const int TILING[3] = {5, 3, 6};

// 16 samples in 4 MiB: cuDNN has 16 ms, and 4x4 FFT_TILING takes 2 ms.
static void divided(int op, int dtype, const int *strides) {
    Conv c = make(op, 16, dtype, strides);
    int found;
    Answer first = ask(&c, FIND_EX, 8, 4 * MIB, &found);
    CHECK(first.algorithm > 100 && first.status == 0 && first.memory == 4 * MIB && first.math == 3 && found == 2);
    CHECK(first.time_ms > 1.99 && first.time_ms < 2.01 && first.determinism == 1);
    size_t bytes = 0;
    void **d = c.descriptors;
#define SIZE(Op) cudnnGetConvolution##Op##WorkspaceSize(c.handle, d[0], d[1], c.convolution, d[2], first.algorithm, &bytes)
    CHECK((op == FORWARD ? SIZE(Forward) : op == BACKWARD_DATA ? SIZE(BackwardData) : SIZE(BackwardFilter)) == 0);
    CHECK(bytes == 4 * MIB);
    double scalars[3][2] = {{1, 0}, {2, 0.5}, {-0.5, 1}};
    for (int i = 0; i < 3; i++) {
        int fours = stub_calls[op][TILING[op]][4], all = stub_all_calls(), waits = stub_waits, events = stub_events;
        run_and_compare(&c, first.algorithm, bytes, scalars[i][0], scalars[i][1], strides);
        CHECK(stub_calls[op][TILING[op]][4] == fours + 4 && stub_all_calls() == all + 4);
        CHECK(stub_waits == waits && stub_events == events);
    }
    // Less workspace than promised: 2 MiB do for 8x2, half a MiB for cuDNN's slow algorithm only, which the plan knows
    // too.
    int twos = stub_calls[op][TILING[op]][2], slow = stub_calls[op][0][16];
    run_and_compare(&c, first.algorithm, 2 * MIB, 1, 0, strides);
    CHECK(stub_calls[op][TILING[op]][2] == twos + 8);
    run_and_compare(&c, first.algorithm, MIB / 2, 1, 0, strides);
    CHECK(stub_calls[op][0][16] == slow + 1);
}

static void foreign(void) {
    Conv c = make(FORWARD, 16, FLOAT, NCHW);
    int found, all = stub_all_calls();
    run_and_compare(&c, 0, 0, 2, 0.5, NCHW);
    CHECK(stub_calls[FORWARD][0][16] == 1 && stub_all_calls() == all + 1);
    CHECK(run_with(&c, 7, 0, 0, 1, 0) == 3000 && run_with(&c, 99, 0, 0, 1, 0) == 2000);
    size_t bytes = 0;
    void **d = c.descriptors;
    CHECK(cudnnGetConvolutionForwardWorkspaceSize(0, d[0], d[1], c.convolution, d[2], 5, &bytes) == 0 && bytes == 16 * MIB);
    Answer answer;
    CHECK(cudnnGetConvolutionForwardAlgorithm_v7(0, 0, d[1], c.convolution, d[2], 1, &found, &answer) == 2000);
    CHECK(cudnnGetConvolutionForwardAlgorithm_v7(0, d[0], d[1], c.convolution, d[2], 0, &found, &answer) == 2000);
    // What nobody asked Find or Get about runs as cuDNN does by default. The stub has no algorithm 1.
    int virtual = ask(&c, FIND_EX, 8, 4 * MIB, &found).algorithm;
    Conv other = make(FORWARD, 8, FLOAT, NCHW);
    d = other.descriptors;
    CHECK(cudnnGetConvolutionForwardWorkspaceSize(0, d[0], d[1], other.convolution, d[2], virtual, &bytes) == 0);
    CHECK(bytes == 0);
    int slow = stub_calls[FORWARD][0][8];
    run_and_compare(&other, virtual, 0, 2, 0.5, NCHW);
    CHECK(stub_calls[FORWARD][0][8] == slow + 1);
}

static void worth(void) {
    Conv c = make(FORWARD, 16, FLOAT, NCHW);
    int found;
    // With room for FFT_TILING on all samples there is nothing to gain.
    CHECK(ask(&c, FIND_EX, 8, 16 * MIB, &found).algorithm == 5 && found == 2);
    CHECK(ask(&c, GET, 8, 0, &found).algorithm == 5 && found == 2);
    // With less there is, and it is known from the measurements before. A list of one answer has room for one.
    int calls = stub_all_calls();
    CHECK(ask(&c, FIND_EX, 1, 8 * MIB, &found).memory == 8 * MIB && found == 1);
    CHECK(stub_all_calls() == calls + 1);
}

// Ends twice: in a process that was forked off, and in this one.
static void forked(void) {
    Conv c = make(FORWARD, 16, FLOAT, NCHW);
    int found, status = -1;
    ask(&c, GET, 8, 0, &found);
    if (fork() == 0) exit(0);
    CHECK(wait(&status) > 0 && status == 0);
}

static void limits(const char *mebibytes) {
    Conv c = make(BACKWARD_FILTER, 16, FLOAT, NCHW);
    int found, how[3] = {GET, FIND, FIND_EX};
    for (int i = 0; i < 2 + (getenv("CUDNN_CONV_WSCAP_DBG") != 0); i++)
        CHECK(ask(&c, how[i], 8, 0, &found).memory == atoi(mebibytes) * MIB);
    CHECK(stub_allocations > 0);
}

static void capture(void) {
    Conv c = make(FORWARD, 16, FLOAT, NCHW), other = make(FORWARD, 32, FLOAT, NCHW);
    int found;
    stub_capturing = 1;
    CHECK(ask(&c, GET, 8, 0, &found).algorithm == 5);
    CHECK(stub_allocations == 0 && stub_events == 0 && stub_waits == 0 && stub_all_calls() == 0);
    stub_capturing = 0;
    Answer first = ask(&c, GET, 8, 0, &found);
    CHECK(first.memory == 4 * MIB);
    stub_capturing = 1;
    int allocations = stub_allocations, events = stub_events, waits = stub_waits;
    CHECK(ask(&c, GET, 8, 0, &found).algorithm == first.algorithm);
    run_and_compare(&c, first.algorithm, first.memory, 2, 0.5, NCHW);
    CHECK(ask(&other, GET, 8, 0, &found).algorithm == 5);
    CHECK(stub_allocations == allocations && stub_events == events && stub_waits == waits);
}

// 16 samples in so many MiB. Whether the process measures them itself, or finds them known, or all but a size.
static void database(int op, const int *strides, int mebibytes, int measured, int piece) {
    Conv c = make(op, 16, FLOAT, strides);
    int found, before = stub_all_calls(), allocations = stub_allocations, events = stub_events;
    Answer first = ask(&c, GET, 8, 0, &found);
    CHECK(first.algorithm == 0x6d62 && first.memory == mebibytes * MIB);
    if (measured == 0) CHECK(stub_all_calls() == before && stub_allocations == allocations && stub_events == events);
    if (measured == 1) CHECK(stub_calls[op][0][16] > 0 && stub_calls[op][TILING[op]][mebibytes] > 0);
    if (measured == 2) CHECK(stub_calls[op][TILING[op]][mebibytes] == stub_all_calls() - before && stub_all_calls() > before);
    int pieces = stub_calls[op][TILING[op]][piece];
    run_and_compare(&c, first.algorithm, first.memory, 2, 0.5, strides);
    CHECK(stub_calls[op][TILING[op]][piece] == pieces + 16 / piece);
}

static void *in_thread(void *nothing) {
    Conv c = make(BACKWARD_DATA, 16, FLOAT, NHWC);
    int found;
    for (int i = 0; i < 20; i++) {
        Answer first = ask(&c, FIND_EX, 8, 4 * MIB, &found);
        CHECK(first.memory == 4 * MIB);
        run_and_compare(&c, first.algorithm, first.memory, 1, i % 2, NHWC);
    }
    return 0;
}
static void threads(void) {
    pthread_t all[8];
    for (int i = 0; i < 8; i++) pthread_create(&all[i], 0, in_thread, 0);
    for (int i = 0; i < 8; i++) pthread_join(all[i], 0);
    CHECK(stub_events == 2);  // a clock for one measuring, however many wait for it
    stub_device = 1;
    in_thread(0);
    CHECK(stub_events == 4);  // another GPU is measured too
}

static void unaligned(void) {
    Conv c = make(FORWARD, 16, FLOAT, ODD);
    int found;
    // Samples are 52 bytes apart, so that slices of 1 and 2 do not begin at multiples of 16 bytes.
    CHECK(ask(&c, FIND_EX, 8, 3 * MIB, &found).algorithm == 0);
    CHECK(stub_calls[FORWARD][5][1] == 0 && stub_calls[FORWARD][5][2] == 0 && stub_calls[FORWARD][0][4] > 0);
    Answer first = ask(&c, FIND_EX, 8, 4 * MIB, &found);
    CHECK(first.memory == 4 * MIB);
    run_and_compare(&c, first.algorithm, first.memory, 2, 0.5, ODD);
}

static void sixteen_bits(void) {
    Conv filter = make(BACKWARD_FILTER, 16, HALF, NCHW), forward = make(FORWARD, 16, HALF, NCHW);
    int found;
    // Sums in 16 bits are not made of parts.
    CHECK(ask(&filter, FIND_EX, 8, 4 * MIB, &found).algorithm == 0 && stub_calls[BACKWARD_FILTER][6][4] == 0);
    CHECK(ask(&forward, FIND_EX, 8, 4 * MIB, &found).memory == 4 * MIB);
}

static void fused(void) {
    Conv c = make(FORWARD, 16, FLOAT, NHWC), spaced = make(FORWARD, 16, FLOAT, SPACED);
    int found;
    Answer first = ask(&c, FIND_EX, 8, 4 * MIB, &found);
    float alpha = 2, beta = 0.5, bias = 3;
    void **d = c.descriptors, **p = c.operands, *scratch = malloc(4 * MIB);
    for (int other = 0; other < 2; other++) {
        fill(&c);
        int fours = stub_calls[FORWARD][5][4], whole = stub_calls[FORWARD][0][16];
        // A z that lies otherwise than y does is not divided.
        void *z = other ? spaced.descriptors[2] : d[2], *pz = other ? spaced.operands[2] : p[2];
        float *before = malloc(192 * 4);
        for (int i = 0; i < 192; i++) before[i] = other ? ((float *)pz)[i / 12 * 16 + i % 12] : ((float *)pz)[i];
        CHECK(cudnnConvolutionBiasActivationForward(0, &alpha, d[0], p[0], d[1], p[1], c.convolution, first.algorithm, scratch,
                                                    4 * MIB, &beta, z, pz, 0, &bias, 0, d[2], p[2]) == 0);
        CHECK(stub_calls[FORWARD][5][4] == fours + (other ? 0 : 4) && stub_calls[FORWARD][0][16] == whole + other);
        for (int i = 0; i < 192; i++) CHECK(get(&c, 2, i) == 2 * get(&c, 0, i) * get(&c, 1, 0) + 0.5 * before[i] + 3);
    }
}

// Runs what Find or Get answers with no workspace of ours; returns where the last micro-batch has its workspace.
static char *run_divided(Conv *c, int piece) {
    int before = stub_calls[c->op][TILING[c->op]][piece], all = stub_all_calls();
    run_and_compare(c, 0x6d62, 0, 2, 0.5, NCHW);
    CHECK(stub_calls[c->op][TILING[c->op]][piece] == before + c->n / piece && stub_all_calls() == all + c->n / piece);
    return stub_scratch;
}

// Three convolutions under a total of 8 MiB, each asked about just before it runs for the first time, as PyTorch does.
static void total(void) {
    Conv all[4];
    int samples[4] = {16, 8, 32, 16}, pieces[4][4] = {{8}, {4, 4}, {2, 2, 4}, {2, 2, 2, 2}}, found;
    char *places[4];
    for (int i = 0; i < 4; i++) {
        all[i] = i < 3 ? make(i, samples[i], FLOAT, NCHW) : all[0];
        // The last one is the first once more, in another stream.
        if (i == 3) all[i].handle = &all;
        Answer first = ask(&all[i], i ? FIND : FIND_EX, 8, 64 * MIB, &found);
        CHECK(first.algorithm == 0x6d62 && first.memory == 0);
        for (int k = i; k >= 0; k--) places[k] = run_divided(&all[k], pieces[i][k]);
    }
    // Nobody writes into what another one has, and together they have no more than the total.
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++) CHECK(labs(places[i] - places[k]) >= (long)(2 * MIB));
    CHECK(stub_bytes >= 8 * MIB && stub_bytes < 8 * MIB + 4096);
    size_t bytes = 1;
    void **d = all[0].descriptors;
    CHECK(cudnnGetConvolutionForwardWorkspaceSize(0, d[0], d[1], all[0].convolution, d[2], 0x6d62, &bytes) == 0 && bytes == 0);
    // What is captured may run beside all of them, whenever it is replayed.
    int slow = stub_calls[FORWARD][0][16], allocations = stub_allocations;
    stub_capturing = 1;
    run_and_compare(&all[0], 0x6d62, 0, 2, 0.5, NCHW);
    CHECK(stub_calls[FORWARD][0][16] == slow + 1);
    stub_capturing = 0;
    for (int i = 0; i < 4; i++) CHECK(run_divided(&all[i], 2) == places[i]);
    CHECK(stub_allocations == allocations);
}

// Convolutions in streams of their own, each of which divides the total while others run. To measure takes memory
// beside the total, so all are measured before the first one runs.
static pthread_barrier_t measured;
static void *in_stream(void *stream) {
    Conv c = make(FORWARD, 8 << (size_t)stream % 3, FLOAT, NCHW);
    int found;
    c.handle = stream;
    CHECK(ask(&c, GET, 8, 0, &found).memory == 0);
    pthread_barrier_wait(&measured);
    for (int i = 0; i < 50; i++) run_and_compare(&c, 0x6d62, 0, 2, 0.5, NCHW);
    CHECK(stub_bytes < 8 * MIB + 4096);
    return 0;
}
static void streams(void) {
    pthread_t all[8];
    CHECK(pthread_barrier_init(&measured, 0, 8) == 0);
    for (size_t i = 0; i < 8; i++) pthread_create(&all[i], 0, in_stream, (void *)(i + 1));
    for (int i = 0; i < 8; i++) pthread_join(all[i], 0);
}

// Where the GPU has room for what one needs, but not for two.
static void crowded(void) {
    Conv first = make(FORWARD, 16, FLOAT, NCHW), second = make(BACKWARD_FILTER, 16, FLOAT, NCHW);
    int found;
    ask(&first, GET, 8, 0, &found), run_divided(&first, 4);
    ask(&second, GET, 8, 0, &found);
    run_and_compare(&second, 0x6d62, 0, 2, 0.5, NCHW), run_and_compare(&first, 0x6d62, 0, 2, 0.5, NCHW);
    CHECK(stub_calls[FORWARD][0][16] > 0 && stub_calls[BACKWARD_FILTER][0][16] > 0 && stub_bytes == 0);
}

// Everything as if nobody stood before cuDNN.
static void untouched(void) {
    for (int op = 0; op < 3; op++) {
        Conv c = make(op, 16, FLOAT, NCHW);
        int found;
        CHECK(ask(&c, GET, 8, 0, &found).algorithm == TILING[op] && found == 2);
        CHECK(ask(&c, FIND, 8, 0, &found).algorithm == TILING[op] && found == 2);
        CHECK(run_with(&c, 0x6d62, 0, 0, 1, 0) != 0 || stub_calls[op][0][16] == 1);
        run_and_compare(&c, 0, 0, 2, 0.5, NCHW);
    }
}

int run(const char *scenario) {
    const int *strides[3] = {NCHW, NHWC, SPACED};
    for (int op = 0; op < 3; op++)
        if (!strcmp(scenario, "divided"))
            for (int i = 0; i < 6; i++) divided(op, i / 3 ? DOUBLE : FLOAT, strides[i % 3]);
    for (int op = 0; op < 3; op++) {
        if (!strcmp(scenario, "measured")) database(op, NCHW, 4, 1, 4);
        if (!strcmp(scenario, "known")) database(op, NCHW, 4, 0, 4);
        if (!strcmp(scenario, "known below")) database(op, NCHW, 8, 2, 8);
    }
    if (!strcmp(scenario, "known channels last")) database(FORWARD, NHWC, 4, 0, 4);
    if (!strcmp(scenario, "measured channels last")) database(FORWARD, NHWC, 4, 1, 4);
    if (!strcmp(scenario, "foreign")) foreign();
    if (!strcmp(scenario, "worth")) worth();
    if (!strncmp(scenario, "limits", 6)) limits(scenario + 6);
    if (!strcmp(scenario, "total")) total();
    if (!strcmp(scenario, "streams")) streams();
    if (!strcmp(scenario, "crowded")) crowded();
    if (!strcmp(scenario, "forked")) forked();
    if (!strcmp(scenario, "capture")) capture();
    if (!strcmp(scenario, "threads")) threads();
    if (!strcmp(scenario, "unaligned")) unaligned();
    if (!strcmp(scenario, "sixteen_bits")) sixteen_bits();
    if (!strcmp(scenario, "fused")) fused();
    if (!strcmp(scenario, "untouched")) untouched();
    return printf("%s done\n", scenario), 0;
}
