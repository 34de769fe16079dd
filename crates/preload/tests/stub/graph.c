// The operation graphs of libcudnn.so.9 without a GPU. A graph runs if it is one of the stub's convolutions, or a
// forward one with a pointwise operation that adds one to its result. There are three engines:
//
//     0    1 ms a sample                 no workspace, which all of them fill
//     1    0.5 ms a sample               3/8 of a MiB a sample            may use tensor cores
//     2    0.1 ms and 0.1 ms a sample    1 MiB a sample                   may use tensor cores, sums in any order
#include "stub.h"
#include <stdlib.h>
#include <string.h>

enum { SUCCESS, BAD_PARAM = 2000, NOT_SUPPORTED = 3000, INT64 = 3, DESCRIPTOR = 15, ENGINES = 3 };
enum { ENGINE = 2, CONFIG, HEURISTICS, PLAN, GRAPH = 15, PACK, TENSOR };
#define MIB ((size_t)1 << 20)

// Holds copies of the descriptors that it was given: they need not live as long.
typedef struct Node {
    int kind, is_final, attributes;
    struct { int name, type, count; long values[16]; } set[24];
} Node;

int stub_engines[ENGINES];

static size_t size_of(int type) {
    return type == 2 ? 1 : type == INT64 || type == 0 || type == 5 || type == 6 || type == DESCRIPTOR ? 8 : 4;
}

static Node *copy(const Node *node) {
    Node *made = memcpy(malloc(sizeof *made), node, sizeof *made);
    for (int i = 0; i < made->attributes; i++)
        for (int k = 0; made->set[i].type == DESCRIPTOR && k < made->set[i].count; k++)
            made->set[i].values[k] = (long)copy((Node *)made->set[i].values[k]);
    return made;
}
static void clear(Node *node) {
    for (int i = 0; i < node->attributes; i++)
        for (int k = 0; node->set[i].type == DESCRIPTOR && k < node->set[i].count; k++) {
            clear((Node *)node->set[i].values[k]);
            free((Node *)node->set[i].values[k]);
        }
    memset(node, 0xdd, sizeof *node);
}
static long *values(const Node *node, int name, int *count) {
    for (int i = 0; node && i < node->attributes; i++)
        if (node->set[i].name == name) return *count = node->set[i].count, (long *)node->set[i].values;
    return *count = 0, NULL;
}
static Node *part(const Node *node, int name, int which) {
    int count;
    long *parts = values(node, name, &count);
    return which < count ? (Node *)parts[which] : NULL;
}
static void put(Node *node, int name, int type, int count, const void *from) {
    int i = 0;
    while (i < node->attributes && node->set[i].name != name) i++;
    if (i == node->attributes) node->attributes++;
    node->set[i].name = name, node->set[i].type = type, node->set[i].count = count;
    memset(node->set[i].values, 0, sizeof node->set[i].values);
    if (type != DESCRIPTOR) {
        for (int k = 0; k < count; k++) memcpy(&node->set[i].values[k], (char *)from + k * size_of(type), size_of(type));
    } else {
        for (int k = 0; k < count; k++) node->set[i].values[k] = (long)copy(((Node **)from)[k]);
    }
}
static long number(const Node *node, int name) {
    int count;
    long *found = values(node, name, &count);
    return found ? *found : 0;
}

static Node *engine_of(const Node *plan) { return part(part(plan, 401, 0), 300, 0); }
static Node *operation_of(const Node *engine) { return part(part(engine, 1300, 0), 801, 0); }
// Names of the operands x, w and y, of the operations 10, 11 and 12.
static const int operands[3][3] = {{704, 703, 705}, {716, 715, 717}, {710, 709, 711}};

static size_t workspace(const Node *engine) {
    const Node *operation = operation_of(engine);
    int count;
    long *dims = values(part(operation, operands[operation->kind - 10][0], 0), 902, &count);
    static const size_t eighths[3] = {0, 3, 8};
    return dims[0] * MIB * eighths[number(engine, 1301)] / 8;
}

int cudnnBackendCreateDescriptor(int kind, Node **made) {
    *made = calloc(1, sizeof **made);
    return (*made)->kind = kind, SUCCESS;
}
int cudnnBackendDestroyDescriptor(Node *node) { return clear(node), free(node), SUCCESS; }
int cudnnBackendSetAttribute(Node *node, int name, int type, long count, const void *from) {
    if (node->is_final || count > 16) return BAD_PARAM;
    for (int k = 0; type == DESCRIPTOR && k < count; k++)
        if (!((Node **)from)[k]->is_final) return BAD_PARAM;
    return put(node, name, type, count, from), SUCCESS;
}
int cudnnBackendFinalize(Node *node) {
    if (node->kind == PLAN && !engine_of(node)) return BAD_PARAM;
    return node->is_final = 1, SUCCESS;
}

int cudnnBackendGetAttribute(Node *node, int name, int type, long most, long *count, void *to) {
    long one = 1, *found = count ? count : &one;
    if (!node->is_final) return BAD_PARAM;
    *found = 1;
    if (name == 202) {
        *found = ENGINES;
        for (long i = 0; i < most && i < ENGINES; i++) {
            Node engine = {ENGINE, 1, 0}, *config = ((Node **)to)[i], *made = &engine;
            put(&engine, 1300, DESCRIPTOR, 1, &(Node *){part(node, 201, 0)});
            put(&engine, 1301, INT64, 1, &i);
            put(config, 300, DESCRIPTOR, 1, &made);
            config->is_final = 1;
        }
    } else if (name == 300) {
        Node *engine = part(node, 300, 0), *filled = ((Node **)to)[0];
        if (most < 1 || filled->kind != ENGINE) return BAD_PARAM;
        Node *copied = copy(engine);
        *filled = *copied, free(copied);
    } else if (name == 1301) {
        *(long *)to = number(node, 1301);
    } else if (name == 1303) {
        int notes[3][2] = {{9}, {0}, {0, 4}};
        *found = number(node, 1301) == 2 ? 2 : 1;
        memcpy(to, notes[number(node, 1301)], (most < *found ? most : *found) * sizeof(int));
    } else if (name == 303 || name == 402) {
        *(long *)to = workspace(name == 303 ? part(node, 300, 0) : engine_of(node));
    } else {
        return NOT_SUPPORTED;
    }
    return SUCCESS;
}

static Tensor tensor(const Node *node) {
    Tensor t = {number(node, 901)};
    long *dims = values(node, 902, &t.rank), *strides = values(node, 903, &t.rank);
    for (int i = 0; i < t.rank; i++) t.dims[i] = dims[i], t.strides[i] = strides[i];
    return t;
}

static int execute(Node *plan, Node *pack) {
    if (!plan->is_final || !pack->is_final) return BAD_PARAM;
    Node *engine = engine_of(plan), *graph = part(engine, 1300, 0), *operation = operation_of(engine), *nodes[3];
    int count, kind = operation->kind - 10;
    long *ids = values(pack, 1000, &count), *found = values(pack, 1001, &count);
    void *addresses[3] = {0}, *scratch = (void *)number(pack, 1003);
    for (int i = 0; i < 3; i++) {
        nodes[i] = part(operation, operands[kind][i], 0);
        if (number(nodes[i], 907)) nodes[i] = part(part(graph, 801, 1), 753, 0);  // where the pointwise operation writes
        for (int k = 0; k < count; k++)
            if (ids[k] == number(nodes[i], 906)) addresses[i] = (void *)found[k];
        if (!addresses[i]) return BAD_PARAM;
    }
    Tensor x = tensor(nodes[0]), y = tensor(nodes[2]);
    size_t needed = workspace(engine);
    if (needed && !scratch) return BAD_PARAM;
    if (needed) memset(scratch, 0xab, needed);
    int index = number(engine, 1301);
    stub_clock_ms += index == 0 ? x.dims[0] : index == 1 ? 0.5 * x.dims[0] : 0.1 + 0.1 * x.dims[0];
    __atomic_add_fetch(&stub_engines[index], 1, __ATOMIC_SEQ_CST);
    int scalars[3] = {700, 712, 706}, beta = number(operation, scalars[kind] + 1) != 0;
    if (kind == 0) stub_map(1, &x, addresses[0], addresses[1], beta, &y, addresses[2], part(graph, 801, 1) != 0, &y, addresses[2]);
    if (kind == 1) stub_sum(1, &x, addresses[0], &y, addresses[2], beta, addresses[1]);
    if (kind == 2) stub_map(1, &y, addresses[2], addresses[1], beta, &x, addresses[0], 0, &x, addresses[0]);
    return SUCCESS;
}

int cudnnBackendExecute(void *handle, Node *plan, Node *pack) { return execute(plan, pack); }
int cudnnBackendPopulateCudaGraph(void *handle, Node *plan, Node *pack, void *graph) { return execute(plan, pack); }
