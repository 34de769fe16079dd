// What the stub of the driver and that of cuDNN share with the program that is tested with them.
#pragma once
#include <stddef.h>

enum { FORWARD, BACKWARD_DATA, BACKWARD_FILTER };

// Of the driver. Its clock stands still but for the convolutions, which advance it by what they are made to take.
extern double stub_clock_ms;
extern int stub_capturing, stub_device;
// Calls that allocate, create events, or wait.
extern int stub_allocations, stub_events, stub_waits;
// Bytes of memory that are allocated now.
extern size_t stub_bytes;

// Of cuDNN: how often convolutions of so many samples (at most 64) ran with an algorithm.
extern int stub_calls[3][16][65];
int stub_all_calls(void);
// The arithmetic of the last one (`cudnnMathType_t`).
extern int stub_math;
// Its workspace.
extern char *stub_scratch;

// Of its operation graphs: how often an engine ran them.
extern int stub_engines[3];

typedef struct { int dtype, rank, dims[8], strides[8]; } Tensor;
// out = alpha in w + beta z + bias, or, of a gradient of the filter, the sum of products. Takes no time.
void stub_map(double alpha, const Tensor *ti, const void *in, const void *w, double beta, const Tensor *tz, const void *z,
              double bias, const Tensor *to, void *out);
void stub_sum(double alpha, const Tensor *tx, const void *x, const Tensor *ty, const void *dy, double beta, void *dw);
