// What the stub of the driver and that of cuDNN share with the program that is tested with them.
#pragma once
#include <stddef.h>

enum { FORWARD, BACKWARD_DATA, BACKWARD_FILTER };

// Of the driver. Its clock stands still but for the convolutions, which advance it by what they are made to take.
extern double stub_clock_ms;
extern int stub_capturing, stub_device;
// Calls that allocate, create events, or wait.
extern int stub_allocations, stub_events, stub_waits;

// Of cuDNN: how often convolutions of so many samples (at most 64) ran with an algorithm.
extern int stub_calls[3][16][65];
int stub_all_calls(void);
