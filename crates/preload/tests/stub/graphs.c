// What a framework does with cuDNN's operation graphs, and what must come of it. Each scenario is run in a process of
// its own.
#include "stub.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cudnnBackendCreateDescriptor(int, void **), cudnnBackendDestroyDescriptor(void *), cudnnBackendFinalize(void *);
int cudnnBackendSetAttribute(void *, int, int, long, const void *);
int cudnnBackendGetAttribute(void *, int, int, long, long *, void *);
int cudnnBackendExecute(void *, void *, void *), cudnnBackendPopulateCudaGraph(void *, void *, void *, void *);

#define MIB ((size_t)1 << 20)
#define CHECK(what)                                                                                                         \
    do {                                                                                                                    \
        if (!(what)) fprintf(stderr, "line %d: %s\n", __LINE__, #what), exit(1);                                            \
    } while (0)

enum { FLOAT, DOUBLE };
enum { TYPE_DATA = 1, TYPE_BOOLEAN, TYPE_INT64, TYPE_FLOAT, TYPE_DOUBLE, TYPE_POINTER, TYPE_MODE, TYPE_PART = 15 };
static const long NCHW[4] = {12, 4, 2, 1}, NHWC[4] = {12, 1, 6, 3}, SPACED[4] = {16, 1, 6, 3};
static const int TILING[3] = {5, 3, 6};
static int handle;

static void *make(int kind) {
    void *made;
    CHECK(cudnnBackendCreateDescriptor(kind, &made) == 0);
    return made;
}
static void set(void *node, int name, int type, long count, const void *values) {
    CHECK(cudnnBackendSetAttribute(node, name, type, count, values) == 0);
}
static void *final(void *node) {
    CHECK(cudnnBackendFinalize(node) == 0);
    return node;
}
static long get(void *node, int name) {
    long value = -1, count = 0;
    CHECK(cudnnBackendGetAttribute(node, name, TYPE_INT64, 1, name == 402 ? NULL : &count, &value) == 0);
    return value;
}

// How a graph differs from a plain convolution.
// Fused: followed by another operation, which reads what the convolution writes nowhere (1) or also writes (2).
typedef struct { int fused, dynamic; double beta; long alignment; } Oddity;
static const Oddity PLAIN = {0, 0, 0, 32};

static void *tensor(int dtype, long id, const long *dims, const long *strides, Oddity odd, int is_virtual) {
    void *made = make(17);
    char yes = 1;
    set(made, 901, TYPE_DATA, 1, &dtype), set(made, 902, TYPE_INT64, 4, dims), set(made, 903, TYPE_INT64, 4, strides);
    set(made, 906, TYPE_INT64, 1, &id), set(made, 900, TYPE_INT64, 1, &odd.alignment);
    if (is_virtual) set(made, 907, TYPE_BOOLEAN, 1, &yes);
    return final(made);
}

// Operation 0 is forward, 1 backward filter and 2 backward data, as cuDNN's descriptors count.
static void *graph_of(int operation, long n, int dtype, const long *strides, Oddity odd) {
    static const int x_at[3] = {704, 716, 710}, w_at[3] = {703, 715, 709}, y_at[3] = {705, 717, 711};
    static const int scale[3] = {700, 712, 706};
    long samples[4] = {n, 3, 2, 2}, filter[4] = {3, 3, 1, 1}, pixel = strides == NCHW ? 1 : 3;
    long packed[4] = {3, 1, pixel, pixel};
    long none[2] = {0, 0}, one[2] = {1, 1}, axes = 2;
    int mode = 1, sums = FLOAT;
    double alpha = 1;
    float alphaf = 1, betaf = odd.beta;
    void *conv = make(1), *made = make(10 + operation), *graph = make(15), *h = &handle, *second = NULL;
    set(conv, 106, TYPE_INT64, 1, &axes), set(conv, 100, TYPE_DATA, 1, &sums), set(conv, 101, TYPE_MODE, 1, &mode);
    set(conv, 105, TYPE_INT64, 2, none), set(conv, 104, TYPE_INT64, 2, none);
    set(conv, 103, TYPE_INT64, 2, one), set(conv, 102, TYPE_INT64, 2, one);
    void *parts[4] = {tensor(dtype, 'x', samples, strides, odd, 0), tensor(dtype, 'w', filter, packed, odd, 0),
                      tensor(dtype, odd.fused == 1 ? 'v' : 'y', samples, strides, odd, odd.fused == 1), final(conv)};
    int names[4] = {x_at[operation], w_at[operation], y_at[operation], scale[operation] + 2};
    for (int i = 0; i < 4; i++) set(made, names[i], TYPE_PART, 1, &parts[i]);
    int type = dtype == DOUBLE ? TYPE_DOUBLE : TYPE_FLOAT;
    set(made, scale[operation], type, 1, dtype == DOUBLE ? (void *)&alpha : &alphaf);
    set(made, scale[operation] + 1, type, 1, dtype == DOUBLE ? (void *)&odd.beta : &betaf);
    if (odd.fused) {
        void *y = tensor(dtype, 'y', samples, strides, odd, 0);
        second = make(13), set(second, 751, TYPE_PART, 1, &parts[2]), set(second, 753, TYPE_PART, 1, &y), final(second);
        cudnnBackendDestroyDescriptor(y);
    }
    void *all[2] = {final(made), second};
    char yes = 1;
    set(graph, 800, 0, 1, &h), set(graph, 801, TYPE_PART, 1 + (second != 0), all);
    if (odd.dynamic) set(graph, 803, TYPE_BOOLEAN, 1, &yes);
    for (int i = 0; i < 4; i++) cudnnBackendDestroyDescriptor(parts[i]);
    cudnnBackendDestroyDescriptor(made);
    if (second) cudnnBackendDestroyDescriptor(second);
    return final(graph);
}

// Plans of all engines, as a framework finds them. What they were made of is gone then.
static void plans_of(void *graph, int asks_config, void *plans[3]) {
    void *heuristics = make(4), *configs[8];
    int mode = 0;
    long count = -1;
    set(heuristics, 201, TYPE_PART, 1, &graph), set(heuristics, 200, 8, 1, &mode), final(heuristics);
    CHECK(cudnnBackendGetAttribute(heuristics, 202, TYPE_PART, 0, &count, NULL) == 0 && count == 3);
    for (int i = 0; i < 8; i++) configs[i] = make(3);
    CHECK(cudnnBackendGetAttribute(heuristics, 202, TYPE_PART, 8, &count, configs) == 0 && count == 3);
    cudnnBackendDestroyDescriptor(heuristics), cudnnBackendDestroyDescriptor(graph);
    for (int i = 0; i < 3; i++) {
        if (asks_config) get(configs[i], 303);
        plans[i] = make(5);
        set(plans[i], 401, TYPE_PART, 1, &configs[i]), final(plans[i]);
    }
    for (int i = 0; i < 8; i++) cudnnBackendDestroyDescriptor(configs[i]);
}

typedef struct { double *x, *w, *y; long elements; } Operands;  // of floats or doubles

static double at(int dtype, void *values, long i) { return dtype == DOUBLE ? ((double *)values)[i] : ((float *)values)[i]; }
static void put(int dtype, void *values, long i, double value) {
    if (dtype == DOUBLE) ((double *)values)[i] = value;
    else ((float *)values)[i] = value;
}

static void *pack_of(Operands o, void *scratch) {
    void *pack = make(16), *addresses[3] = {o.x, o.y, o.w};
    long ids[3] = {'x', 'y', 'w'};
    set(pack, 1001, TYPE_POINTER, 3, addresses), set(pack, 1000, TYPE_INT64, 3, ids);
    set(pack, 1003, TYPE_POINTER, 1, &scratch);
    return final(pack);
}

// Runs a plan on fresh operands in the workspace that it asks for, and compares the result with the formula.
static void run_and_compare(void *plan, int operation, long n, int dtype, const long *strides, double beta, double more) {
    Operands o = {calloc(n * 16, 8), calloc(n * 16, 8), calloc(n * 16, 8), n * strides[0]};
    for (long i = 0; i < o.elements; i++)
        put(dtype, o.x, i, (i * 7) % 11 - 4.0), put(dtype, o.y, i, (i * 5 + 3) % 7 - 2.0), put(dtype, o.w, i, i == 0 ? 3 : 0);
    void *out = operation == 0 ? o.y : operation == 1 ? o.w : o.x, *before = memcpy(malloc(n * 128), out, n * 128);
    long len = get(plan, 402);
    unsigned char *scratch = malloc(len + 16);
    memset(scratch + len, 7, 16);
    void *pack = pack_of(o, len ? scratch : NULL);
    CHECK(cudnnBackendExecute(&handle, plan, pack) == 0);
    cudnnBackendDestroyDescriptor(pack);
    for (int i = 0; i < 16; i++) CHECK(scratch[len + i] == 7);
    double sum = 0;
    for (long i = 0; i < o.elements; i++) {
        int inside = 0;
        for (long k = 0; k < 12; k++)
            inside |= i % strides[0] == k / 4 * strides[1] + k / 2 % 2 * strides[2] + k % 2 * strides[3];
        double was = at(dtype, before, i), in = at(dtype, operation == 0 ? o.x : o.y, i);
        if (operation == 1) sum += inside ? at(dtype, o.x, i) * in : 0;
        else CHECK(at(dtype, out, i) == (inside ? in * 3 + beta * was + more : was));
    }
    if (operation == 1) CHECK(at(dtype, o.w, 0) == sum + beta * 3);
    free(o.x), free(o.w), free(o.y), free(before), free(scratch);
}

static const int LEGACY[3] = {FORWARD, BACKWARD_FILTER, BACKWARD_DATA};
// How often the stub's FFT_TILING ran so many samples of an operation.
static int pieces(int operation, int samples) { return stub_calls[LEGACY[operation]][TILING[LEGACY[operation]]][samples]; }
static int engine_calls(void) { return stub_engines[0] + stub_engines[1] + stub_engines[2]; }

// What the engines want, in eighths of a MiB for each sample.
static const long EIGHTHS[3] = {0, 3, 8};

// 16 samples under 4 MiB: 4x4 FFT_TILING takes 2 ms, the engines 16, 8 and 1.7 ms, the last two of them in 6 and 16
// MiB, so that they stay. Under 7 MiB the second one does not, which is then given what it wants itself.
static void divided(int operation, int dtype, const long *strides, int asks_config, int limit) {
    void *plans[3];
    plans_of(graph_of(operation, 16, dtype, strides, PLAIN), asks_config, plans);
    for (int i = 0; i < 3; i++) {
        // Whoever was told what an engine's configuration wants may give no more.
        int is_ours = i == 0 ? !asks_config : i == 1 && limit == 7;
        int waits = stub_waits, events = stub_events, engines = engine_calls();
        int fours = pieces(operation, 4), all = stub_all_calls();
        CHECK(get(plans[i], 402) == (i == 0 ? 4 * is_ours : 2 * EIGHTHS[i]) * MIB);
        run_and_compare(plans[i], operation, 16, dtype, strides, 0, 0);
        CHECK(stub_waits == waits && stub_events == events);
        CHECK(pieces(operation, 4) == fours + 4 * is_ours && stub_all_calls() == all + 4 * is_ours);
        CHECK(engine_calls() == engines + !is_ours);
        // The first engine has no tensor cores, which FP32 then must not have either.
        if (is_ours) CHECK(stub_math == (i == 0 && dtype == FLOAT ? 3 : 0));
        // What else cuDNN does with a plan, it does with its own, for which the workspace is enough.
        void *scratch = malloc(get(plans[i], 402));
        void *pack = pack_of((Operands){calloc(64, 64), calloc(64, 64), calloc(64, 64), 0}, scratch);
        CHECK(cudnnBackendPopulateCudaGraph(&handle, plans[i], pack, NULL) == 0 && engine_calls() == engines + 1 + !is_ours);
        cudnnBackendDestroyDescriptor(pack), free(scratch);
    }
    for (int i = 0; i < 3; i++) cudnnBackendDestroyDescriptor(plans[i]);
}

// Without a limit, the third engine is as fast as anything, and the others have at least what they want themselves.
static void worth(void) {
    void *plans[3];
    plans_of(graph_of(0, 16, FLOAT, NCHW, PLAIN), 0, plans);
    int own = stub_engines[2], whole = pieces(0, 16);
    for (int i = 0; i < 3; i++) {
        CHECK(get(plans[i], 402) == 16 * MIB);
        run_and_compare(plans[i], 0, 16, FLOAT, NCHW, 0, 0);
    }
    CHECK(stub_engines[2] == own + 1 && pieces(0, 16) == whole + 2);
    // Asked a second time nothing is measured but the engines, and beside them what stands in their place.
    int others = stub_all_calls() - pieces(0, 16);
    plans_of(graph_of(0, 16, FLOAT, NCHW, PLAIN), 0, plans);
    CHECK(stub_all_calls() - pieces(0, 16) == others);
}

// 4x4 FFT_TILING, the fastest under 7 MiB, was measured with 2 ms and takes 10 today; the engines take 16, 8 and 1.7.
static void slower(void) {
    void *plans[3];
    plans_of(graph_of(0, 16, FLOAT, NCHW, PLAIN), 0, plans);
    CHECK(stub_all_calls() > 0 && stub_all_calls() == pieces(0, 4));
    for (int i = 0; i < 3; i++) {
        int own = stub_engines[i], fours = pieces(0, 4), is_ours = i == 0;
        run_and_compare(plans[i], 0, 16, FLOAT, NCHW, 0, 0);
        CHECK(stub_engines[i] == own + !is_ours && pieces(0, 4) == fours + 4 * is_ours);
    }
}

// What is not one plain convolution of aligned operands.
static void foreign(void) {
    Oddity all[6] = {{1, 0, 0, 32}, {2, 0, 0, 32}, {0, 1, 0, 32}, {0, 0, 1, 32}, {0, 0, 0, 8}, {0, 0, 0, 32}};
    for (int i = 0; i < 6; i++) {
        void *plans[3];
        int samples = i == 5 ? 1 : 16;
        plans_of(graph_of(0, samples, FLOAT, NHWC, all[i]), 0, plans);
        CHECK(engine_calls() == 3 * i);
        for (int k = 0; k < 3; k++) {
            CHECK(get(plans[k], 402) == EIGHTHS[k] * samples * MIB / 8);
            run_and_compare(plans[k], 0, samples, FLOAT, NHWC, all[i].beta, all[i].fused > 0);
            cudnnBackendDestroyDescriptor(plans[k]);
        }
    }
    CHECK(stub_all_calls() == 0 && stub_allocations == 0 && stub_events == 0);
}

static void capture(void) {
    void *known[3], *plans[3], *others[3];
    plans_of(graph_of(2, 16, FLOAT, NCHW, PLAIN), 0, known);
    // Algorithm 0 of a gradient adds in any order, and the caller may want the same result every time.
    CHECK(stub_calls[BACKWARD_DATA][0][16] == 0 && pieces(2, 16) == 0 && pieces(2, 4) > 0);
    stub_capturing = 1;
    int allocations = stub_allocations, events = stub_events, waits = stub_waits, fours = pieces(2, 4), own = stub_engines[0];
    run_and_compare(known[0], 2, 16, FLOAT, NCHW, 0, 0);
    CHECK(pieces(2, 4) == fours + 4);
    // Nothing can be measured now, the engines neither.
    plans_of(graph_of(2, 16, FLOAT, NCHW, PLAIN), 0, plans), plans_of(graph_of(2, 32, FLOAT, NCHW, PLAIN), 0, others);
    CHECK(get(plans[0], 402) == 0 && get(others[2], 402) == 32 * MIB);
    run_and_compare(plans[0], 2, 16, FLOAT, NCHW, 0, 0);
    CHECK(stub_engines[0] == own + 1);
    CHECK(stub_allocations == allocations && stub_events == events && stub_waits == waits);
}

// Under a total of 8 MiB ours take the places of the first two engines, one after the other, in memory of their own.
static void total(void) {
    void *plans[3];
    plans_of(graph_of(0, 16, FLOAT, NCHW, PLAIN), 1, plans);
    for (int i = 0; i < 3; i++) CHECK(get(plans[i], 402) == 2 * EIGHTHS[i] * MIB);
    int eights = pieces(0, 8), fours = pieces(0, 4), own = stub_engines[1];
    run_and_compare(plans[0], 0, 16, FLOAT, NCHW, 0, 0);
    CHECK(pieces(0, 8) == eights + 2 && pieces(0, 4) == fours);
    run_and_compare(plans[1], 0, 16, FLOAT, NCHW, 0, 0), run_and_compare(plans[0], 0, 16, FLOAT, NCHW, 0, 0);
    CHECK(pieces(0, 8) == eights + 2 && pieces(0, 4) == fours + 8 && stub_bytes < 8 * MIB + 4096);
    // Without a segment ours does with the engine's 6 MiB; where that has none, the engine is as good as anything.
    stub_capturing = 1;
    run_and_compare(plans[1], 0, 16, FLOAT, NCHW, 0, 0);
    CHECK(stub_engines[1] == own && pieces(0, 4) == fours + 12);
    run_and_compare(plans[0], 0, 16, FLOAT, NCHW, 0, 0);
    CHECK(pieces(0, 4) == fours + 12);
    // In double precision ours could stand for both, of which the first takes twice as long: so it stays.
    stub_capturing = 0;
    plans_of(graph_of(0, 16, DOUBLE, NCHW, PLAIN), 1, plans);
    int slow = stub_engines[0], fast = stub_engines[1];
    run_and_compare(plans[0], 0, 16, DOUBLE, NCHW, 0, 0), run_and_compare(plans[1], 0, 16, DOUBLE, NCHW, 0, 0);
    CHECK(stub_engines[0] == slow + 1 && stub_engines[1] == fast);
}

// A caller that gives no workspace, or names no operands.
static void careless(void) {
    void *plans[3];
    plans_of(graph_of(0, 16, FLOAT, NCHW, PLAIN), 0, plans);
    Operands o = {calloc(16, 128), calloc(16, 128), calloc(16, 128), 0};
    void *pack = pack_of(o, NULL), *empty = final(make(16));
    int slow = stub_calls[FORWARD][0][16];
    CHECK(cudnnBackendExecute(&handle, plans[0], pack) == 0 && stub_calls[FORWARD][0][16] == slow + 1);
    CHECK(cudnnBackendExecute(&handle, plans[0], empty) == 2000);
}

static void *in_thread(void *nothing) {
    for (int i = 0; i < 20; i++) {
        void *plans[3];
        plans_of(graph_of(1, 16, FLOAT, NHWC, PLAIN), 0, plans);
        for (int k = 0; k < 3; k++) {
            run_and_compare(plans[k], 1, 16, FLOAT, NHWC, 0, 0);
            cudnnBackendDestroyDescriptor(plans[k]);
        }
    }
    return 0;
}
static void threads(void) {
    pthread_t all[8];
    for (int i = 0; i < 8; i++) pthread_create(&all[i], 0, in_thread, 0);
    for (int i = 0; i < 8; i++) pthread_join(all[i], 0);
}

// Everything as if nobody stood before cuDNN.
static void untouched(void) {
    for (int operation = 0; operation < 3; operation++) {
        void *plans[3];
        plans_of(graph_of(operation, 16, FLOAT, NCHW, PLAIN), 0, plans);
        CHECK(engine_calls() == 3 * operation);
        for (int i = 0; i < 3; i++) {
            CHECK(get(plans[i], 402) == 2 * EIGHTHS[i] * MIB);
            run_and_compare(plans[i], operation, 16, FLOAT, NCHW, 0, 0);
        }
    }
    CHECK(stub_all_calls() == 0);
}

int run(const char *scenario) {
    const long *strides[3] = {NCHW, NHWC, SPACED};
    if (!strcmp(scenario, "divided"))
        for (int i = 0; i < 36; i++) divided(i % 3, i / 3 % 2, strides[i / 6 % 3], i / 18, 4);
    if (!strcmp(scenario, "room")) divided(0, FLOAT, NCHW, 0, 7), divided(0, FLOAT, NCHW, 1, 7);
    if (!strcmp(scenario, "worth")) worth();
    if (!strcmp(scenario, "slower")) slower();
    if (!strcmp(scenario, "foreign")) foreign();
    if (!strcmp(scenario, "capture")) capture();
    if (!strcmp(scenario, "total")) total();
    if (!strcmp(scenario, "careless")) careless();
    if (!strcmp(scenario, "threads")) threads();
    if (!strcmp(scenario, "untouched")) untouched();
    return printf("%s done\n", scenario), 0;
}
