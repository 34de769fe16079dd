// cuDNN's operation graphs of one convolution, as far as they are called here.
#include "convolution.h"
#include <cstring>
#include <map>
#include <memory>

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

// An engine with its notes: 0 are tensor cores, 3 are frequencies, 5 is Winograd; of its behaviour, 0 is that it is
// compiled when it is built. Those that transform are of one operation and never suggested: Fourier (f) and in tiles (t),
// Winograd in three steps (n).
struct Engine {
    int index;
    std::map<int, int64_t> knobs;
    std::vector<int64_t> numerical, behavior;
    size_t bytes_per_sample;
    double speed;
    bool is_for_bf16, is_fallback;
    char transform = 0;
    int operation = -1;
};

const Engine ENGINES[] = {
    {62, {{2, 5}, {27, 8}}, {0}, {}, 0, 60, true, false},
    {63, {{2, 1}}, {0}, {}, 4096, 80, true, false},
    {70, {}, {}, {0}, 0, 90, true, false},
    {57, {}, {5}, {}, 8192, 40, false, false},
    {50, {{1, 3}}, {}, {}, 300, 20, false, false},
    {1, {}, {}, {}, 0, 8, true, true},
    {3, {}, {3}, {}, 0, 40, false, false, 'f', FORWARD},
    {4, {}, {3}, {}, 0, 35, false, false, 't', FORWARD},
    {6, {}, {5}, {}, 0, 50, false, false, 'n', FORWARD},
    {4, {}, {3}, {}, 0, 40, false, false, 'f', BACKWARD_DATA},
    {5, {}, {3}, {}, 0, 35, false, false, 't', BACKWARD_DATA},
    {7, {}, {5}, {}, 0, 50, false, false, 'n', BACKWARD_DATA},
    {18, {}, {3}, {}, 0, 40, false, false, 'f', BACKWARD_FILTER},
    {17, {}, {5}, {}, 0, 50, false, false, 'n', BACKWARD_FILTER},
};

const Engine* engine(int64_t index, Operation operation) {
    for (auto& engine : ENGINES) {
        if (engine.index == index && (engine.operation < 0 || engine.operation == operation)) return &engine;
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

bool applies(const Engine& engine, const Graph& graph) {
    const Tensor &x = graph.convolution.x, &w = graph.convolution.w;
    const Geometry& g = graph.convolution.geometry;
    bool is_dense = g.stride[0] == 1 && g.stride[1] == 1 && g.dilation[0] == 1 && g.dilation[1] == 1;
    bool is_in_nchw = x.strides[3] == 1 && (x.dims[1] == 1 || x.strides[1] == x.dims[2] * x.dims[3]);
    switch (engine.transform) {
        case 0: return engine.is_for_bf16 || !x.is_bf16;
        case 'n': is_dense = is_dense && w.dims[2] == w.dims[3] && g.groups == 1 && (w.dims[2] == 3 || w.dims[2] == 5); break;
        case 't': is_dense = is_dense && w.dims[2] < 30;
    }
    return is_dense && is_in_nchw && !x.is_bf16 && w.dims[2] > 1;
}

size_t workspace_of(const Engine& engine, const Graph& graph) {
    const Tensor &x = graph.convolution.x, &w = graph.convolution.w, &y = graph.convolution.y;
    size_t samples = x.dims[0], planes = samples * (x.dims[1] + y.dims[1]) + w.dims[0] * w.dims[1];
    switch (engine.transform) {
        case 'f': return planes * (x.dims[2] + 8) * (x.dims[3] + 8) * 8;
        case 't': return planes * 32 * 32 * 4 + samples * 64;
        case 'n': return planes * ((x.dims[2] + 5) / 4 + 1) * ((x.dims[3] + 5) / 4 + 1) * 36 * 4;
        default: return engine.bytes_per_sample * samples;
    }
}

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
        if (engine.transform || engine.is_fallback != (heuristics.number(HEURISTICS_MODE, 0) == FALLBACK)) continue;
        if (!applies(engine, graph)) continue;
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

EXPORT int cudnnBackendDestroyDescriptor(void* descriptor) {
    delete &node_of(descriptor);
    return SUCCESS;
}

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
        if (!read(node->part(ENGINE_GRAPH), &graph)) return NOT_SUPPORTED;
        const Engine* known = engine(node->number(ENGINE_INDEX, -1), graph.convolution.operation);
        if (!known) return BAD_PARAMETER;
        if (!applies(*known, graph)) return NOT_SUPPORTED;
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
        int64_t bytes = workspace_of(*engine(of_index->number(ENGINE_INDEX, -1), graph.convolution.operation), graph);
        return give({bytes}, type, most, count, to);
    }
    if (node->kind == ENGINE && (name == NUMERICAL_NOTES || name == BEHAVIOR_NOTES)) {
        Graph graph;
        if (!read(node->part(ENGINE_GRAPH), &graph)) return BAD_PARAMETER;
        const Engine* known = engine(node->number(ENGINE_INDEX, -1), graph.convolution.operation);
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
    const Engine& known = *engine(of_index->number(ENGINE_INDEX, -1), graph.convolution.operation);
    void* workspace = reinterpret_cast<void*>(operands.number(PACK_WORKSPACE, 0));
    size_t bytes = workspace_of(known, graph);
    if (bytes > 0 && !workspace) return BAD_PARAMETER;
    return launch(handle, graph.convolution, {at[0], at[1], at[2], graph.alpha, graph.beta, workspace, bytes, known.speed});
}
