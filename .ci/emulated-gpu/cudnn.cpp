// cuDNN's convolutions, as far as they are called here: those of the legacy API and operation graphs of one convolution. All
// algorithms compute the definition, in double precision; what they want as workspace they overwrite. How fast they are by the
// clock of a stream is made up so that, as on a GPU, the fast ones want a workspace that grows with the mini-batch.
#include "gpu.h"
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>

namespace {

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

int launch(void* handle, const Convolution& convolution, const Call& call) {
    check_range(call.x, convolution.x.bytes());
    check_range(call.w, convolution.w.bytes());
    check_range(call.y, convolution.y.bytes());
    check_range(call.workspace, call.workspace_bytes);
    auto work = [=] {
        if (call.workspace_bytes > 0) memset(call.workspace, 0xff, call.workspace_bytes);
        convolution.compute(call.x, call.w, call.y, call.alpha, call.beta);
    };
    double ms = 0.004 + convolution.flop() / (1e9 * call.speed);
    return enqueue(static_cast<Handle*>(handle)->stream, ms, work) ? EXECUTION_FAILED : SUCCESS;
}

}  // namespace

EXPORT size_t cudnnGetVersion() { return 91400; }

EXPORT const char* cudnnGetErrorString(int status) {
    switch (status) {
        case SUCCESS: return "CUDNN_STATUS_SUCCESS";
        case BAD_PARAMETER: return "CUDNN_STATUS_BAD_PARAM";
        case NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
        default: return "CUDNN_STATUS_EXECUTION_FAILED";
    }
}

EXPORT void cudnnGetLastErrorString(char* text, size_t bytes) {
    if (bytes > 0) *text = 0;
}

EXPORT int cudnnCreate(void** handle) {
    *handle = new Handle;
    return lost ? EXECUTION_FAILED : SUCCESS;
}

EXPORT int cudnnDestroy(void* handle) {
    delete static_cast<Handle*>(handle);
    return SUCCESS;
}

EXPORT int cudnnSetStream(void* handle, void* stream) {
    static_cast<Handle*>(handle)->stream = stream;
    return SUCCESS;
}

// ---- The legacy API --------------------------------------------------------------------------------------------------

namespace {

template <class T>
int create(void** made) {
    *made = new T;
    return SUCCESS;
}

template <class T>
int destroy(void* made) {
    delete static_cast<T*>(made);
    return SUCCESS;
}

// FP32 and NCHW.
int set(void* raw, int format, int type, int a, int b, int c, int d) {
    Tensor* tensor = static_cast<Tensor*>(raw);
    if (format != 0 || type != 0 || a < 1 || b < 1 || c < 1 || d < 1) return BAD_PARAMETER;
    int64_t dims[4] = {a, b, c, d}, stride = 1;
    for (int axis = 3; axis >= 0; axis--) {
        tensor->dims[axis] = dims[axis];
        tensor->strides[axis] = stride;
        stride *= dims[axis];
    }
    return stride >> 31 ? NOT_SUPPORTED : SUCCESS;
}

struct Algorithm {
    bool applies;
    size_t bytes;
    double speed;
};

// An algorithm by its number in cuDNN's enum of the operation.
Algorithm algorithm(const Convolution& convolution, int number) {
    // Implicit (i) and with a table (p) or by matrices (g), direct (never applies), Fourier (f) and in tiles (t), Winograd (w)
    // and in three steps (n).
    const char* kinds[] = {"ipg-ftwn", "ipftwn", "ipfp-nt"};
    const char* of_operation = kinds[convolution.operation];
    char kind = number < 0 || number >= int(strlen(of_operation)) ? '-' : of_operation[number];
    const Tensor &x = convolution.x, &w = convolution.w, &y = convolution.y;
    const Geometry& g = convolution.geometry;
    bool is_dense = g.stride[0] == 1 && g.stride[1] == 1 && g.dilation[0] == 1 && g.dilation[1] == 1;
    bool is_square = w.dims[2] == w.dims[3] && g.groups == 1;
    size_t taps = w.dims[1] * w.dims[2] * w.dims[3], samples = x.dims[0];
    size_t planes = samples * (x.dims[1] + y.dims[1]) + w.dims[0] * w.dims[1];
    switch (kind) {
        case 'i': return {true, 0, 10};
        case 'p': return {true, taps * 8 + 2048, 15};
        case 'g': return {is_dense, y.dims[2] * y.dims[3] * taps * 4, 12};
        case 'f': return {is_dense && w.dims[2] > 1, planes * (x.dims[2] + 8) * (x.dims[3] + 8) * 8, 40};
        case 't': return {is_dense && w.dims[2] > 1 && w.dims[2] < 30, planes * 32 * 32 * 4 + samples * 64, 35};
        case 'w': return {is_dense && is_square && w.dims[2] == 3, size_t(w.count()) * 8, 30};
        case 'n': {
            size_t tiles = ((x.dims[2] + 5) / 4 + 1) * ((x.dims[3] + 5) / 4 + 1);
            return {is_dense && is_square && (w.dims[2] == 3 || w.dims[2] == 5), planes * tiles * 36 * 4, 50};
        }
        default: return {false, 0, 0};
    }
}

Convolution described(Operation operation, void* x, void* w, void* y, void* geometry) {
    return {operation, *static_cast<Tensor*>(x), *static_cast<Tensor*>(w), *static_cast<Tensor*>(y), *static_cast<Geometry*>(geometry)};
}

int workspace(const Convolution& convolution, int number, size_t* bytes) {
    if (!convolution.is_consistent()) return BAD_PARAMETER;
    Algorithm found = algorithm(convolution, number);
    *bytes = found.bytes;
    return found.applies ? SUCCESS : NOT_SUPPORTED;
}

int convolve(void* handle, const Convolution& convolution, int number, Call call) {
    Algorithm found = algorithm(convolution, number);
    if (!found.applies) return NOT_SUPPORTED;
    if (found.bytes > call.workspace_bytes || (found.bytes > 0 && !call.workspace)) return BAD_PARAMETER;
    call.workspace_bytes = found.bytes;
    call.speed = found.speed;
    return launch(handle, convolution, call);
}

}  // namespace

EXPORT int cudnnCreateTensorDescriptor(void** made) { return create<Tensor>(made); }
EXPORT int cudnnDestroyTensorDescriptor(void* made) { return destroy<Tensor>(made); }
EXPORT int cudnnCreateFilterDescriptor(void** made) { return create<Tensor>(made); }
EXPORT int cudnnDestroyFilterDescriptor(void* made) { return destroy<Tensor>(made); }
EXPORT int cudnnCreateConvolutionDescriptor(void** made) { return create<Geometry>(made); }
EXPORT int cudnnDestroyConvolutionDescriptor(void* made) { return destroy<Geometry>(made); }

EXPORT int cudnnSetTensor4dDescriptor(void* made, int format, int type, int n, int c, int h, int w) {
    return set(made, format, type, n, c, h, w);
}

EXPORT int cudnnSetFilter4dDescriptor(void* made, int type, int format, int k, int c, int r, int s) {
    return set(made, format, type, k, c, r, s);
}

EXPORT int cudnnSetConvolution2dDescriptor(void* made, int pad_h, int pad_w, int stride_h, int stride_w, int dilation_h,
                                           int dilation_w, int mode, int type) {
    const int CROSS_CORRELATION = 1;
    if (mode != CROSS_CORRELATION || type != 0) return BAD_PARAMETER;
    *static_cast<Geometry*>(made) = {{pad_h, pad_w}, {stride_h, stride_w}, {dilation_h, dilation_w}, 1};
    return SUCCESS;
}

EXPORT int cudnnSetConvolutionGroupCount(void* made, int groups) {
    static_cast<Geometry*>(made)->groups = groups;
    return SUCCESS;
}

EXPORT int cudnnSetConvolutionMathType(void*, int) { return SUCCESS; }

EXPORT int cudnnGetConvolutionForwardWorkspaceSize(void*, void* x, void* w, void* g, void* y, int number, size_t* bytes) {
    return workspace(described(FORWARD, x, w, y, g), number, bytes);
}

EXPORT int cudnnGetConvolutionBackwardDataWorkspaceSize(void*, void* w, void* y, void* g, void* x, int number, size_t* bytes) {
    return workspace(described(BACKWARD_DATA, x, w, y, g), number, bytes);
}

EXPORT int cudnnGetConvolutionBackwardFilterWorkspaceSize(void*, void* x, void* y, void* g, void* w, int number, size_t* bytes) {
    return workspace(described(BACKWARD_FILTER, x, w, y, g), number, bytes);
}

EXPORT int cudnnConvolutionForward(void* handle, float* alpha, void* x, void* at_x, void* w, void* at_w, void* g, int number,
                                   void* scratch, size_t bytes, float* beta, void* y, void* at_y) {
    Call call{at_x, at_w, at_y, *alpha, *beta, scratch, bytes, 0};
    return convolve(handle, described(FORWARD, x, w, y, g), number, call);
}

EXPORT int cudnnConvolutionBackwardData(void* handle, float* alpha, void* w, void* at_w, void* y, void* at_y, void* g, int number,
                                        void* scratch, size_t bytes, float* beta, void* x, void* at_x) {
    Call call{at_x, at_w, at_y, *alpha, *beta, scratch, bytes, 0};
    return convolve(handle, described(BACKWARD_DATA, x, w, y, g), number, call);
}

EXPORT int cudnnConvolutionBackwardFilter(void* handle, float* alpha, void* x, void* at_x, void* y, void* at_y, void* g,
                                          int number, void* scratch, size_t bytes, float* beta, void* w, void* at_w) {
    Call call{at_x, at_w, at_y, *alpha, *beta, scratch, bytes, 0};
    return convolve(handle, described(BACKWARD_FILTER, x, w, y, g), number, call);
}

// ---- Operation graphs ------------------------------------------------------------------------------------------------

namespace {

// cuDNN's numbers of descriptors, of types of attributes, and of attributes.
enum { ENGINE = 2, CONFIG = 3, HEURISTICS = 4, CHOICE = 7, OF_FORWARD = 10, OF_FILTER = 11, OF_DATA = 12, GRAPH = 15 };
enum { HANDLE_TYPE = 0, BOOLEAN_TYPE = 2, INT64_TYPE = 3, DOUBLE_TYPE = 5, POINTER_TYPE = 6, PART_TYPE = 15, CHAR_TYPE = 24 };
enum { BF16 = 9, FALLBACK = 2 };
enum {
    DILATIONS = 102,
    STRIDES = 103,
    PADDINGS = 105,
    HEURISTICS_MODE = 200,
    HEURISTICS_GRAPH = 201,
    RESULTS = 202,
    CONFIG_ENGINE = 300,
    CONFIG_CHOICES = 302,
    CONFIG_WORKSPACE = 303,
    PLAN_CONFIG = 401,
    CHOICE_TYPE = 600,
    CHOICE_VALUE = 601,
    OPERATIONS = 801,
    TENSOR_ALIGNMENT = 900,
    TENSOR_TYPE = 901,
    TENSOR_DIMS = 902,
    TENSOR_STRIDES = 903,
    TENSOR_ID = 906,
    PACK_IDS = 1000,
    PACK_ADDRESSES = 1001,
    PACK_WORKSPACE = 1003,
    ENGINE_GRAPH = 1300,
    ENGINE_INDEX = 1301,
    NUMERICAL_NOTES = 1303,
    BEHAVIOR_NOTES = 1305,
};

// A descriptor, which lives as long as anything is made of it.
struct Node {
    int kind = 0;
    bool is_finished = false;
    std::map<int, std::vector<int64_t>> numbers;
    std::map<int, std::vector<std::shared_ptr<Node>>> parts;

    int64_t number(int name, int64_t none) const {
        auto found = numbers.find(name);
        return found == numbers.end() || found->second.empty() ? none : found->second[0];
    }

    const Node* part(int name) const {
        auto found = parts.find(name);
        return found == parts.end() || found->second.empty() ? nullptr : found->second[0].get();
    }
};

using Reference = std::shared_ptr<Node>;

Reference& node_of(void* descriptor) { return *static_cast<Reference*>(descriptor); }

// An engine with its notes: 0 are tensor cores, 5 is Winograd; of its behaviour, 0 is that it is compiled when it is built.
struct Engine {
    int index;
    std::map<int, int64_t> knobs;
    std::vector<int64_t> numerical, behavior;
    size_t bytes_per_sample;
    double speed;
    bool is_for_bf16, is_fallback;
};

const Engine ENGINES[] = {
    {62, {{2, 5}, {27, 8}}, {0}, {}, 0, 60, true, false},
    {63, {{2, 1}}, {0}, {}, 4096, 80, true, false},
    {7, {}, {}, {0}, 0, 90, true, false},
    {17, {}, {5}, {}, 8192, 40, false, false},
    {5, {{1, 3}}, {}, {}, 300, 20, false, false},
    {1, {}, {}, {}, 0, 8, true, true},
};

const Engine* engine(int64_t index) {
    for (auto& engine : ENGINES) {
        if (engine.index == index) return &engine;
    }
    return nullptr;
}

struct Graph {
    Convolution convolution;
    float alpha, beta;
    int64_t ids[3], alignments[3];
};

float as_float(int64_t bits) {
    uint32_t half = uint32_t(bits);
    float value;
    memcpy(&value, &half, sizeof(value));
    return value;
}

// The convolution that a graph consists of; whether there is one.
bool read(const Node* graph, Graph* to) {
    const Node* operation = graph ? graph->part(OPERATIONS) : nullptr;
    if (!operation || operation->kind < OF_FORWARD || operation->kind > OF_DATA) return false;
    // The attributes that say alpha, x, w and y; beta and the geometry follow alpha.
    static const std::map<int, std::vector<int>> names = {
        {OF_FORWARD, {FORWARD, 700, 704, 703, 705}},
        {OF_DATA, {BACKWARD_DATA, 706, 710, 709, 711}},
        {OF_FILTER, {BACKWARD_FILTER, 712, 716, 715, 717}},
    };
    const std::vector<int>& name = names.at(operation->kind);
    Convolution& convolution = to->convolution;
    convolution.operation = Operation(name[0]);
    to->alpha = as_float(operation->number(name[1], 0));
    to->beta = as_float(operation->number(name[1] + 1, 0));
    const Node* geometry = operation->part(name[1] + 2);
    Tensor* tensors[3] = {&convolution.x, &convolution.w, &convolution.y};
    for (int i = 0; i < 3; i++) {
        const Node* operand = operation->part(name[2 + i]);
        if (!geometry || !operand) return false;
        tensors[i]->is_bf16 = operand->number(TENSOR_TYPE, 0) == BF16;
        for (int axis = 0; axis < 4; axis++) {
            tensors[i]->dims[axis] = operand->numbers.at(TENSOR_DIMS).at(axis);
            tensors[i]->strides[axis] = operand->numbers.at(TENSOR_STRIDES).at(axis);
        }
        to->ids[i] = operand->number(TENSOR_ID, 0);
        to->alignments[i] = operand->number(TENSOR_ALIGNMENT, 1);
    }
    for (int axis = 0; axis < 2; axis++) {
        convolution.geometry.pad[axis] = geometry->numbers.at(PADDINGS).at(axis);
        convolution.geometry.stride[axis] = geometry->numbers.at(STRIDES).at(axis);
        convolution.geometry.dilation[axis] = geometry->numbers.at(DILATIONS).at(axis);
    }
    convolution.geometry.groups = convolution.x.dims[1] / convolution.w.dims[1];
    return convolution.is_consistent();
}

bool applies(const Engine& engine, const Graph& graph) { return engine.is_for_bf16 || !graph.convolution.x.is_bf16; }

size_t workspace_of(const Engine& engine, const Graph& graph) { return engine.bytes_per_sample * graph.convolution.x.dims[0]; }

Reference finished(int kind) {
    Reference made(new Node);
    made->kind = kind;
    made->is_finished = true;
    return made;
}

// Fills descriptors with the engines that are suggested for a graph, and says how many there are.
int suggest(const Node& heuristics, int64_t most, int64_t* count, void** to) {
    Graph graph;
    if (!read(heuristics.part(HEURISTICS_GRAPH), &graph)) return NOT_SUPPORTED;
    *count = 0;
    for (auto& engine : ENGINES) {
        if (engine.is_fallback != (heuristics.number(HEURISTICS_MODE, 0) == FALLBACK) || !applies(engine, graph)) continue;
        if (to && *count < most) {
            Reference of_index = finished(ENGINE), config = finished(CONFIG);
            of_index->numbers[ENGINE_INDEX] = {engine.index};
            of_index->parts[ENGINE_GRAPH] = heuristics.parts.at(HEURISTICS_GRAPH);
            config->parts[CONFIG_ENGINE] = {of_index};
            for (auto [knob, value] : engine.knobs) {
                Reference choice = finished(CHOICE);
                choice->numbers = {{CHOICE_TYPE, {knob}}, {CHOICE_VALUE, {value}}};
                config->parts[CONFIG_CHOICES].push_back(choice);
            }
            *node_of(to[*count]) = *config;
        }
        ++*count;
    }
    return SUCCESS;
}

size_t bytes_of(int type) {
    switch (type) {
        case HANDLE_TYPE: case INT64_TYPE: case DOUBLE_TYPE: case POINTER_TYPE: case PART_TYPE: return 8;
        case BOOLEAN_TYPE: case CHAR_TYPE: return 1;
        default: return 4;
    }
}

int give(const std::vector<int64_t>& values, int type, int64_t most, int64_t* count, void* to) {
    *count = values.size();
    for (int64_t i = 0; to && i < most && i < *count; i++) memcpy(static_cast<char*>(to) + i * bytes_of(type), &values[i], bytes_of(type));
    return SUCCESS;
}

}  // namespace

EXPORT int cudnnBackendCreateDescriptor(int kind, void** made) {
    Reference* reference = new Reference(new Node);
    (*reference)->kind = kind;
    *made = reference;
    return SUCCESS;
}

EXPORT int cudnnBackendDestroyDescriptor(void* descriptor) { return destroy<Reference>(descriptor); }

EXPORT int cudnnBackendSetAttribute(void* descriptor, int name, int type, int64_t count, const void* values) {
    Reference node = node_of(descriptor);
    if (node->is_finished) return BAD_PARAMETER;
    if (type == PART_TYPE) {
        auto& parts = node->parts[name];
        parts.clear();
        for (int64_t i = 0; i < count; i++) {
            parts.push_back(node_of(static_cast<void* const*>(values)[i]));
            if (!parts.back()->is_finished) return BAD_PARAMETER;
        }
        return SUCCESS;
    }
    auto& numbers = node->numbers[name];
    numbers.assign(count, 0);
    for (int64_t i = 0; i < count; i++) memcpy(&numbers[i], static_cast<const char*>(values) + i * bytes_of(type), bytes_of(type));
    return SUCCESS;
}

EXPORT int cudnnBackendFinalize(void* descriptor) {
    Reference node = node_of(descriptor);
    Graph graph;
    if (node->kind == GRAPH && !read(node.get(), &graph)) return NOT_SUPPORTED;
    if (node->kind == ENGINE) {
        const Engine* known = engine(node->number(ENGINE_INDEX, -1));
        if (!known) return BAD_PARAMETER;
        if (!read(node->part(ENGINE_GRAPH), &graph) || !applies(*known, graph)) return NOT_SUPPORTED;
    }
    node->is_finished = true;
    return SUCCESS;
}

EXPORT int cudnnBackendGetAttribute(void* descriptor, int name, int type, int64_t most, int64_t* count, void* to) {
    Reference node = node_of(descriptor);
    if (!node->is_finished) return BAD_PARAMETER;
    if (node->kind == HEURISTICS && name == RESULTS) return suggest(*node, most, count, static_cast<void**>(to));
    if (type == PART_TYPE) {
        auto& parts = node->parts[name];
        *count = parts.size();
        for (int64_t i = 0; to && i < most && i < *count; i++) *node_of(static_cast<void**>(to)[i]) = *parts[i];
        return SUCCESS;
    }
    if (node->kind == CONFIG && name == CONFIG_WORKSPACE) {
        const Node* of_index = node->part(CONFIG_ENGINE);
        Graph graph;
        if (!of_index || !read(of_index->part(ENGINE_GRAPH), &graph)) return BAD_PARAMETER;
        int64_t bytes = workspace_of(*engine(of_index->number(ENGINE_INDEX, -1)), graph);
        return give({bytes}, type, most, count, to);
    }
    if (node->kind == ENGINE && (name == NUMERICAL_NOTES || name == BEHAVIOR_NOTES)) {
        const Engine* known = engine(node->number(ENGINE_INDEX, -1));
        return give(name == NUMERICAL_NOTES ? known->numerical : known->behavior, type, most, count, to);
    }
    return give(node->numbers[name], type, most, count, to);
}

EXPORT int cudnnBackendExecute(void* handle, void* plan, void* pack) {
    const Node *config = node_of(plan)->part(PLAN_CONFIG), *of_index = config ? config->part(CONFIG_ENGINE) : nullptr;
    const Node& operands = *node_of(pack);
    Graph graph;
    if (!of_index || !operands.is_finished || !read(of_index->part(ENGINE_GRAPH), &graph)) return BAD_PARAMETER;
    const auto &ids = operands.numbers.at(PACK_IDS), &addresses = operands.numbers.at(PACK_ADDRESSES);
    void* at[3] = {};
    for (int i = 0; i < 3; i++) {
        for (size_t place = 0; place < ids.size() && place < addresses.size(); place++) {
            if (ids[place] == graph.ids[i]) at[i] = reinterpret_cast<void*>(addresses[place]);
        }
        if (!at[i] || reinterpret_cast<uintptr_t>(at[i]) % graph.alignments[i] != 0) return BAD_PARAMETER;
    }
    const Engine& known = *engine(of_index->number(ENGINE_INDEX, -1));
    void* workspace = reinterpret_cast<void*>(operands.number(PACK_WORKSPACE, 0));
    size_t bytes = workspace_of(known, graph);
    if (bytes > 0 && !workspace) return BAD_PARAMETER;
    return launch(handle, graph.convolution, {at[0], at[1], at[2], graph.alpha, graph.beta, workspace, bytes, known.speed});
}
