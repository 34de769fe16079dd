// The CUDA driver but for its modules, as far as it is called here. Device memory is memory of the processor with guard
// pages at both ends, and work is done when it is asked for.
#include "gpu.h"
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sys/mman.h>

int lost = 0;

namespace {

const std::map<int, std::pair<const char*, const char*>> ERRORS = {
    {INVALID_VALUE, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
    {OUT_OF_MEMORY, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
    {INVALID_IMAGE, {"CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"}},
    {INVALID_CONTEXT, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
    {INVALID_HANDLE, {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"}},
    {NOT_FOUND, {"CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
    {ILLEGAL_INSTRUCTION, {"CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"}},
    {NOT_WHILE_RECORDING, {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"}},
    {RECORDING_IS_BROKEN, {"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"}},
};

constexpr size_t GIB = size_t(1) << 30, PAGE = 4096, ALIGNMENT = 512;
const size_t TOTAL = 8 * GIB;

// Allocations of device memory and their bytes.
std::mutex memory_lock;
std::map<char*, size_t> allocations;
size_t used = 0;

thread_local int recordings_here = 0;
thread_local bool has_context = false;
thread_local Stream* replaying = nullptr;

size_t rounded(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

int copy(void* to, const void* from, size_t bytes, void* stream) {
    if (int error = refusal()) return error;
    check_range(to, bytes);
    check_range(from, bytes);
    return enqueue(stream, 0.005 + bytes / 5e7, [=] { memmove(to, from, bytes); });
}

// Whether a test wants a call to fail: the file that a variable names has its name.
bool is_refused(const char* call) {
    static const char* path = getenv("EMULATED_GPU_REFUSES");
    FILE* file = path ? fopen(path, "r") : nullptr;
    if (!file) return false;
    char name[64] = "";
    bool is_named = fscanf(file, "%63s", name) == 1 && strcmp(name, call) == 0;
    fclose(file);
    return is_named;
}

struct Event {
    double ms = -1;
    std::shared_ptr<Recording> recording;

    bool is_recorded_only() const { return recording && recording->is_open; }
};

}  // namespace

int refusal() { return lost ? lost : has_context ? OK : INVALID_CONTEXT; }

int refusal_of_waiting() { return lost ? lost : recordings_here > 0 ? NOT_WHILE_RECORDING : OK; }

// ---- Devices --------------------------------------------------------------------------------------------------------

EXPORT int cuInit(unsigned) { return OK; }

EXPORT int cuDriverGetVersion(int* version) {
    *version = 13000;
    return OK;
}

EXPORT int cuDeviceGetCount(int* count) {
    *count = 2;
    return OK;
}

EXPORT int cuDeviceGet(int* device, int ordinal) {
    *device = ordinal;
    return OK;
}

EXPORT int cuDeviceGetName(char* name, int bytes, int) {
    snprintf(name, bytes, "emulated GPU");
    return OK;
}

EXPORT int cuDeviceTotalMem_v2(size_t* bytes, int) {
    *bytes = TOTAL;
    return OK;
}

EXPORT int cuDeviceGetAttribute(int* value, int attribute, int) {
    // Multiprocessors and compute capability are an H200's, and so are the grids then.
    const std::map<int, int> values = {{13, 1980000}, {16, 132}, {36, 3201000}, {75, 9}};
    auto found = values.find(attribute);
    *value = found == values.end() ? 0 : found->second;
    return OK;
}

EXPORT int cuDevicePrimaryCtxRetain(void** context, int device) {
    *context = reinterpret_cast<void*>(uintptr_t(device + 1));
    return lost;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int) { return OK; }

EXPORT int cuCtxSetCurrent(void* context) {
    has_context = context != nullptr;
    return lost;
}

EXPORT int cuCtxGetCurrent(void** context) {
    *context = reinterpret_cast<void*>(uintptr_t(has_context));
    return OK;
}

EXPORT int cuCtxSynchronize() { return refusal_of_waiting(); }

EXPORT int cuGetErrorName(int error, const char** name) {
    auto found = ERRORS.find(error);
    *name = found == ERRORS.end() ? "CUDA_ERROR_UNKNOWN" : found->second.first;
    return OK;
}

EXPORT int cuGetErrorString(int error, const char** text) {
    auto found = ERRORS.find(error);
    *text = found == ERRORS.end() ? "unknown error" : found->second.second;
    return OK;
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

EXPORT int cuMemGetInfo_v2(size_t* free, size_t* total) {
    std::lock_guard<std::mutex> guard(memory_lock);
    *free = TOTAL - used;
    *total = TOTAL;
    return lost;
}

EXPORT int cuMemAlloc_v2(void** address, size_t bytes) {
    if (int error = refusal()) return error;
    if (int error = refusal_of_waiting()) return error;
    std::lock_guard<std::mutex> guard(memory_lock);
    if (bytes == 0) return INVALID_VALUE;
    if (bytes > TOTAL - used) return OUT_OF_MEMORY;
    // Behind it, but for what addresses are rounded up by, comes a page that nobody may touch.
    size_t whole = rounded(bytes, ALIGNMENT), pages = rounded(whole, PAGE);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* mapped = mmap(nullptr, pages + 2 * PAGE, PROT_NONE, flags, -1, 0);
    if (mapped == MAP_FAILED) return OUT_OF_MEMORY;
    char* first = static_cast<char*>(mapped) + PAGE;
    if (mprotect(first, pages, PROT_READ | PROT_WRITE) != 0) return OUT_OF_MEMORY;
    char* base = first + pages - whole;
    // What is read before it is written is no number.
    if (bytes < GIB / 8) memset(base, 0xff, bytes);
    allocations[base] = bytes;
    used += bytes;
    *address = base;
    return OK;
}

EXPORT int cuMemFree_v2(void* address) {
    if (int error = refusal()) return error;
    std::lock_guard<std::mutex> guard(memory_lock);
    auto found = allocations.find(static_cast<char*>(address));
    if (found == allocations.end()) {
        fprintf(stderr, "emulated GPU: memory is freed that was not allocated\n");
        abort();
    }
    size_t whole = rounded(found->second, ALIGNMENT), pages = rounded(whole, PAGE);
    munmap(found->first + whole - pages - PAGE, pages + 2 * PAGE);
    used -= found->second;
    allocations.erase(found);
    return OK;
}

EXPORT int cuMemHostAlloc(void** address, size_t bytes, unsigned) {
    if (int error = refusal()) return error;
    if (int error = refusal_of_waiting()) return error;
    if (bytes > TOTAL || is_refused("cuMemHostAlloc")) return OUT_OF_MEMORY;
    *address = aligned_alloc(ALIGNMENT, rounded(bytes, ALIGNMENT));
    if (!*address) return OUT_OF_MEMORY;
    memset(*address, 0, bytes);
    return OK;
}

EXPORT int cuMemFreeHost(void* address) {
    free(address);
    return lost;
}

void check_range(const void* from, size_t bytes) {
    std::lock_guard<std::mutex> guard(memory_lock);
    const char* first = static_cast<const char*>(from);
    auto next = allocations.upper_bound(const_cast<char*>(first));
    if (next == allocations.begin()) return;
    auto [base, len] = *--next;
    if (first < base + len && first + bytes > base + len) {
        fprintf(stderr, "emulated GPU: %zu bytes are used beyond an allocation\n", size_t(first + bytes - base - len));
        abort();
    }
}

EXPORT int cuMemcpyHtoDAsync_v2(void* to, const void* from, size_t bytes, void* stream) {
    return is_refused("cuMemcpyHtoDAsync_v2") ? INVALID_VALUE : copy(to, from, bytes, stream);
}

EXPORT int cuMemcpyDtoHAsync_v2(void* to, void* from, size_t bytes, void* stream) {
    return is_refused("cuMemcpyDtoHAsync_v2") ? INVALID_VALUE : copy(to, from, bytes, stream);
}

EXPORT int cuMemcpyDtoDAsync_v2(void* to, void* from, size_t bytes, void* stream) { return copy(to, from, bytes, stream); }

EXPORT int cuMemsetD8Async(void* to, unsigned char value, size_t bytes, void* stream) {
    if (int error = refusal()) return error;
    check_range(to, bytes);
    return enqueue(stream, 0.003 + bytes / 3e9, [=] { memset(to, value, bytes); });
}

// ---- Streams, events and recordings ---------------------------------------------------------------------------------

int enqueue(void* raw, double ms, std::function<void()> work) {
    Stream* stream = static_cast<Stream*>(raw);
    std::lock_guard<std::recursive_mutex> guard(stream->busy);
    // A stream that joined a recording leaves it when that ends.
    if (stream->recording && !stream->recording->is_open) stream->recording = nullptr;
    if (stream->recording) {
        stream->recording->work.push_back([=] {
            work();
            replaying->clock_ms += ms;
        });
    } else if (!lost) {
        work();
        stream->clock_ms += ms;
    }
    return lost;
}

EXPORT int cuStreamCreate(void** stream, unsigned) {
    if (int error = refusal()) return error;
    *stream = new Stream;
    return OK;
}

// Events and recordings may still look at it: streams are few, and are kept.
EXPORT int cuStreamDestroy_v2(void*) { return OK; }

EXPORT int cuStreamSynchronize(void* raw) {
    Stream* stream = static_cast<Stream*>(raw);
    std::lock_guard<std::recursive_mutex> guard(stream->busy);
    if (stream->recording && stream->recording->is_open) {
        stream->recording->is_broken = true;
        return NOT_WHILE_RECORDING;
    }
    return refusal_of_waiting();
}

EXPORT int cuStreamWaitEvent(void* raw, void* raw_event, unsigned) {
    Stream* stream = static_cast<Stream*>(raw);
    Event* event = static_cast<Event*>(raw_event);
    if (event->is_recorded_only()) {
        stream->recording = event->recording;
    } else if (event->ms > stream->clock_ms) {
        stream->clock_ms = event->ms;
    }
    return lost;
}

EXPORT int cuStreamBeginCapture_v2(void* raw, int) {
    Stream* stream = static_cast<Stream*>(raw);
    if (stream->recording && stream->recording->is_open) return INVALID_VALUE;
    stream->recording = std::make_shared<Recording>();
    recordings_here++;
    return lost;
}

EXPORT int cuStreamEndCapture(void* raw, void** graph) {
    Stream* stream = static_cast<Stream*>(raw);
    *graph = nullptr;
    if (!stream->recording) return INVALID_VALUE;
    auto recording = std::move(stream->recording);
    recording->is_open = false;
    recordings_here--;
    if (lost) return lost;
    if (recording->is_broken) return RECORDING_IS_BROKEN;
    *graph = new std::shared_ptr<Recording>(recording);
    return OK;
}

EXPORT int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
    *executable = new std::shared_ptr<Recording>(*static_cast<std::shared_ptr<Recording>*>(graph));
    return lost;
}

EXPORT int cuGraphLaunch(void* executable, void* stream) {
    auto recording = *static_cast<std::shared_ptr<Recording>*>(executable);
    return enqueue(stream, 0.005, [=] {
        replaying = static_cast<Stream*>(stream);
        for (auto& work : recording->work) {
            if (!lost) work();
        }
        replaying = nullptr;
    });
}

EXPORT int cuGraphDestroy(void* graph) {
    delete static_cast<std::shared_ptr<Recording>*>(graph);
    return OK;
}

EXPORT int cuGraphExecDestroy(void* executable) { return cuGraphDestroy(executable); }

EXPORT int cuEventCreate(void** event, unsigned) {
    if (int error = refusal()) return error;
    *event = new Event;
    return OK;
}

// As for streams.
EXPORT int cuEventDestroy_v2(void*) { return OK; }

EXPORT int cuEventRecord(void* raw, void* raw_stream) {
    Event* event = static_cast<Event*>(raw);
    Stream* stream = static_cast<Stream*>(raw_stream);
    event->recording = stream->recording;
    return enqueue(stream, 0, [=] { event->ms = (replaying ? replaying : stream)->clock_ms; });
}

EXPORT int cuEventSynchronize(void* event) {
    if (lost) return lost;
    return static_cast<Event*>(event)->is_recorded_only() ? NOT_WHILE_RECORDING : OK;
}

EXPORT int cuEventElapsedTime_v2(float* ms, void* from, void* to) {
    double start = static_cast<Event*>(from)->ms, end = static_cast<Event*>(to)->ms;
    if (start < 0 || end < 0) return INVALID_HANDLE;
    *ms = end - start;
    return lost;
}
