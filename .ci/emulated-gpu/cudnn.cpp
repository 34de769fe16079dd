// cuDNN's handles, and the convolutions of its legacy API, as far as they are called here.
#include "convolution.h"
#include <cstring>

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

// ---- The legacy API -------------------------------------------------------------------------------------------------

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
    // Implicit (i) and with a table (p) or by matrices (g), direct (never applies), Fourier (f) and in tiles (t),
    // Winograd (w) and in three steps (n).
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
    auto tensor = [](void* made) { return *static_cast<Tensor*>(made); };
    return {operation, tensor(x), tensor(w), tensor(y), *static_cast<Geometry*>(geometry)};
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
