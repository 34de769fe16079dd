// cuDNN's handles, and how a convolution is launched.
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
