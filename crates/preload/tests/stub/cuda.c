// libcuda.so.1 without a GPU: memory is the host's, and time is what convolutions say that they take.
#include "stub.h"
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

double stub_clock_ms;
int stub_capturing, stub_device, stub_allocations, stub_events, stub_waits;
size_t stub_bytes;

int cuCtxGetDevice(int *device) { return *device = stub_device, 0; }
int cuDeviceGetName(char *name, int len, int device) { return strncpy(name, "Stub GPU", len), 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = (size_t)80 << 30, 0; }
int cuStreamGetId(void *stream, size_t *number) { return *number = (size_t)stream, 0; }
int cuStreamIsCapturing(void *stream, int *state) { return *state = stub_capturing, 0; }

// While another thread captures, only one in this mode may allocate and free: else the capture is lost.
enum { RELAXED = 2 };
static _Thread_local int mode;
int cuThreadExchangeStreamCaptureMode(int *exchanged) {
    int before = mode;
    mode = *exchanged;
    *exchanged = before;
    return 0;
}

// What is freed is gone at once, so that whoever still writes there ends the process.
__attribute__((constructor)) static void map_all(void) { mallopt(M_MMAP_THRESHOLD, 1 << 16); }

int cuMemAlloc_v2(void **address, size_t bytes) {
    const char *most = getenv("STUB_MEMORY");
    __atomic_add_fetch(&stub_allocations, 1, __ATOMIC_SEQ_CST);
    if (stub_capturing || mode != RELAXED || (most && bytes > strtoull(most, 0, 10))) return 2;
    if (!(*address = calloc(bytes, 1))) return 2;
    return __atomic_add_fetch(&stub_bytes, malloc_usable_size(*address), __ATOMIC_SEQ_CST), 0;
}
int cuMemFree_v2(void *address) {
    if (mode != RELAXED) abort();
    __atomic_sub_fetch(&stub_bytes, malloc_usable_size(address), __ATOMIC_SEQ_CST);
    return free(address), 0;
}

int cuEventCreate(double **event, unsigned flags) {
    __atomic_add_fetch(&stub_events, 1, __ATOMIC_SEQ_CST);
    return (*event = malloc(sizeof **event)) ? 0 : 2;
}
int cuEventDestroy_v2(double *event) { return free(event), 0; }
int cuEventRecord(double *event, void *stream) { return *event = stub_clock_ms, 0; }
int cuEventSynchronize(double *event) { return __atomic_add_fetch(&stub_waits, 1, __ATOMIC_SEQ_CST), 0; }
int cuEventElapsedTime(float *ms, double *start, double *end) { return *ms = *end - *start, 0; }
