// Devices and memory of the CUDA driver, as far as it is called here. Device memory is memory of the processor
// with guard pages at both ends.
#include "gpu.h"
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sys/mman.h>

namespace {

const std::map<int, std::pair<const char*, const char*>> ERRORS = {
    {INVALID_VALUE, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
    {OUT_OF_MEMORY, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
    {INVALID_IMAGE, {"CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"}},
    {INVALID_CONTEXT, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
    {INVALID_HANDLE, {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"}},
    {NOT_FOUND, {"CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
    {NOT_READY, {"CUDA_ERROR_NOT_READY", "device not ready"}},
    {ILLEGAL_INSTRUCTION, {"CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"}},
    {NOT_WHILE_RECORDING, {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"}},
    {CAPTURED_EVENT, {"CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream"}},
    {ISOLATED_RECORDING, {"CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream"}},
    {RECORDING_IS_BROKEN, {"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"}},
};

constexpr size_t GIB = size_t(1) << 30, PAGE = 4096, ALIGNMENT = 512;
const size_t TOTAL = 8 * GIB;

// Allocations of device memory, and of page-locked memory, and their bytes.
std::mutex memory_lock;
std::map<char*, size_t> allocations, locked;
size_t used = 0;

size_t rounded(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Whether this is memory that devices reach by themselves.
bool is_known(const void* at) {
    std::lock_guard<std::mutex> guard(memory_lock);
    char* address = static_cast<char*>(const_cast<void*>(at));
    auto holds = [=](const std::map<char*, size_t>& memory) {
        auto next = memory.upper_bound(address);
        return next != memory.begin() && (--next, address < next->first + next->second);
    };
    return holds(allocations) || holds(locked);
}

int copy(void* to, const void* from, size_t bytes, void* stream) {
    if (int error = refusal()) return error;
    check_range(to, bytes);
    check_range(from, bytes);
    if (int error = enqueue(stream, 0.005 + bytes / 5e7, [=] { memmove(to, from, bytes); })) return error;
    // Other memory of the host is free again when the call returns.
    return is_known(to) && is_known(from) ? OK : cuStreamSynchronize(stream);
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

}  // namespace

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
    const std::map<int, int> values = {{13, 1980000}, {16, MULTIPROCESSORS}, {36, 3201000}, {75, 9}};
    auto found = values.find(attribute);
    *value = found == values.end() ? 0 : found->second;
    return OK;
}

EXPORT int cuDevicePrimaryCtxRetain(void** of_device, int device) {
    *of_device = reinterpret_cast<void*>(uintptr_t(device + 1));
    return lost;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int) { return OK; }

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
    wait_for_all();
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
    std::lock_guard<std::mutex> guard(memory_lock);
    locked[static_cast<char*>(*address)] = bytes;
    return OK;
}

EXPORT int cuMemFreeHost(void* address) {
    wait_for_all();
    std::lock_guard<std::mutex> guard(memory_lock);
    locked.erase(static_cast<char*>(address));
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
