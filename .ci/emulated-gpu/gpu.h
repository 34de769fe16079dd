// What the emulated libraries share.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

enum Error {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_INSTRUCTION = 715,
    TOO_LARGE_AT_ONCE = 720,
    NOT_WHILE_RECORDING = 900,
    RECORDING_IS_BROKEN = 901,
    ISOLATED_RECORDING = 905,
    CAPTURED_EVENT = 907,
};

constexpr unsigned MULTIPROCESSORS = 132;

// The error that every call returns from now on; 0 if the GPU is not lost.
extern int lost;

// The context of this thread: the number of its device and 1, or 0.
extern thread_local int context;

// The first reason for which a call on this thread fails, whatever it asks for; 0 for none.
int refusal();

// The same for what must not be asked for while work is recorded.
int refusal_of_waiting();

// Has a stream do this work, which takes so long by its clock, or records it. 0, or the error if the GPU is lost.
int enqueue(void* stream, double ms, std::function<void()> work);

// Waits for all work of this thread's device.
void wait_for_all();

EXPORT int cuStreamSynchronize(void* stream);

// Ends the process unless these bytes, if they begin in device memory, are all of one allocation.
void check_range(const void* from, size_t bytes);

// Numbers of FP32 or BF16.
float read_number(const void* numbers, size_t at, bool is_bf16);
void write_number(void* numbers, size_t at, bool is_bf16, float value);
