// CUDA C++ on the processor: CUDA kernels are compiled behind this text, which runs them thread by thread.
//
// The threads of a block take turns, each on a stack of its own: one runs until it waits for its warp or its block,
// then the next. The order changes from turn to turn, so that what depends on it shows. Threads that wait for others
// that never come end the process with a sentence.
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sched.h>
#include <sys/mman.h>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
// A block belongs to a thread of the processor. Blocks follow each other, or have a thread each.
#define __shared__ static thread_local
// What is looked for with every step has its place in each thread from the start (see GLIBC_TUNABLES in `run`).
#define NEAR static thread_local __attribute__((tls_model("initial-exec")))

struct int2 {
    int x, y;
};
struct uint4 {
    unsigned x, y, z, w;
};
struct Dim3 {
    unsigned x, y, z;
};
NEAR Dim3 threadIdx, blockIdx, blockDim, gridDim;

static inline int2 make_int2(int x, int y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

using std::isfinite;
using std::isinf;
using std::isnan;

template <class To, class From>
static inline To with_bits_of(From from) {
    static_assert(sizeof(To) == sizeof(From), "the same bits are as many");
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}
static inline float __int_as_float(int bits) { return with_bits_of<float>(bits); }
static inline float __uint_as_float(unsigned bits) { return with_bits_of<float>(bits); }
static inline unsigned __float_as_uint(float value) { return with_bits_of<unsigned>(value); }

static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline float __fdividef(float a, float b) { return a / b; }
#define __log2f log2f
static inline int __clz(int value) { return value ? __builtin_clz(value) : 32; }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned __int128)a * b >> 64;
}
template <class T>
static inline T min(T a, T b) {
    return b < a ? b : a;
}
template <class T>
static inline T max(T a, T b) {
    return a < b ? b : a;
}

template <class T>
static inline T __ldcg(const T* from) {
    return *from;
}
static inline void __threadfence() {}
static inline unsigned atomicInc(unsigned* at, unsigned most) {
    unsigned before = *at;
    *at = before >= most ? 0 : before + 1;
    return before;
}
static inline unsigned atomicAdd(unsigned* at, unsigned value) { return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST); }
static inline void __nanosleep(unsigned) { sched_yield(); }

namespace emulated {

enum class State { Ready, AtWarp, AtBlock, Ended };

// A thread of a block.
struct Thread {
    void* stack = nullptr;
    void* top = nullptr;
    State state = State::Ended;
    // What it shows the others of its warp, in the last shuffle and in the one before: who is still there may look at
    // it.
    unsigned char shown[2][8];
    unsigned shuffles = 0;
};

constexpr size_t STACK_BYTES = 256 << 10;

struct Block {
    ~Block() {
        for (auto [stacks, bytes] : mapped) munmap(stacks, bytes);
    }
    // Has so many threads from now on, or more, each with a stack.
    void grow(unsigned count) {
        size_t before = threads.size();
        if (before >= count) return;
        size_t bytes = (count - before) * STACK_BYTES;
        void* stacks = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        madvise(stacks, bytes, MADV_NOHUGEPAGE);  // of each stack little is used
        mapped.emplace_back(stacks, bytes);
        threads.resize(count);
        for (size_t i = before; i < count; i++) threads[i].stack = static_cast<char*>(stacks) + (i - before) * STACK_BYTES;
    }
    std::vector<std::pair<void*, size_t>> mapped;
    std::vector<Thread> threads;
    unsigned now = 0;
    unsigned turns = 0;
    void* scheduler = nullptr;
    void (*body)(void*) = nullptr;
    void* kernel = nullptr;
    bool trapped = false;
};
static thread_local Block own_block;
NEAR Block* block;

// Keeps what a function may expect to keep, leaves this stack at `*from`, and goes on where `to` was left.
extern "C" void emulated_switch(void** from, void* to);
asm(R"(
.local emulated_switch
.type emulated_switch, @function
emulated_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
)");

static void wait(State state) {
    Thread& own = block->threads[block->now];
    own.state = state;
    emulated_switch(&own.top, block->scheduler);
}

// What every stack begins with: a thread that has ended may be another one next.
static void threads_of_stack() {
    for (;;) {
        block->body(block->kernel);
        wait(State::Ended);
    }
}

static void begin(Thread& thread) {
    if (thread.top && thread.state == State::Ended) {
        thread.state = State::Ready;
        return;
    }
    // As `emulated_switch` leaves a stack: six registers and where to go on, aligned as after a call.
    void** top = reinterpret_cast<void**>(static_cast<char*>(thread.stack) + STACK_BYTES - 32);
    *top = reinterpret_cast<void*>(&threads_of_stack);
    for (int i = 0; i < 6; i++) *--top = nullptr;
    thread.top = top;
    thread.state = State::Ready;
}

[[noreturn]] static void fail(const char* what) {
    fprintf(stderr, "emulated GPU: %s (block %u, %u of %u, %u with %u threads)\n", what, blockIdx.x, blockIdx.y, gridDim.x,
            gridDim.y, blockDim.x);
    abort();
}

// Lets the threads go on that have all arrived: those of warps, or else those of the block. Whether there are any to go
// on.
static bool release(unsigned count) {
    bool some = false, all_at_block = true, all_ended = true;
    for (unsigned first = 0; first < count; first += 32) {
        unsigned last = min(first + 32, count), at_warp = 0;
        for (unsigned i = first; i < last; i++) {
            State state = block->threads[i].state;
            at_warp += state == State::AtWarp;
            all_at_block = all_at_block && state != State::AtWarp;
            all_ended = all_ended && state == State::Ended;
        }
        if (at_warp == 0) continue;
        if (at_warp < last - first) fail("a shuffle has not all threads of its warp");
        some = true;
        for (unsigned i = first; i < last; i++) block->threads[i].state = State::Ready;
    }
    if (some || all_ended) return some;
    if (!all_at_block) fail("threads wait for each other");
    for (unsigned i = 0; i < count; i++) {
        if (block->threads[i].state == State::AtBlock) block->threads[i].state = State::Ready;
    }
    return true;
}

static void run_block(unsigned count) {
    block->grow(count);
    for (unsigned i = 0; i < count; i++) begin(block->threads[i]);
    do {
        bool backwards = block->turns++ % 2;
        for (unsigned k = 0; k < count; k++) {
            unsigned i = backwards ? count - 1 - k : k;
            if (block->threads[i].state != State::Ready) continue;
            block->now = i;
            threadIdx = {i, 0, 0};
            emulated_switch(&block->scheduler, block->threads[i].top);
            if (block->trapped) return;
        }
    } while (release(count));
}

// A kernel with its arguments.
struct Launch {
    virtual ~Launch() {}
    virtual void thread() = 0;
};

template <class... Parameters>
struct Bound : Launch {
    void (*kernel)(Parameters...);
    std::tuple<std::remove_const_t<Parameters>...> arguments;

    template <size_t... I>
    Bound(void (*kernel)(Parameters...), void** at, std::index_sequence<I...>)
        : kernel(kernel), arguments(*static_cast<std::remove_const_t<Parameters>*>(at[I])...) {}
    void thread() override { std::apply(kernel, arguments); }
};

template <class... Parameters>
static Launch* bind(void (*kernel)(Parameters...), void** arguments) {
    return new Bound<Parameters...>(kernel, arguments, std::index_sequence_for<Parameters...>());
}

}  // namespace emulated

static inline void __syncthreads() { emulated::wait(emulated::State::AtBlock); }

template <class T>
static inline T __shfl_xor_sync(unsigned, T value, int distance) {
    using namespace emulated;
    static_assert(sizeof(T) <= sizeof(Thread::shown[0]), "a shuffle moves one number");
    unsigned own = block->now, place = block->threads[own].shuffles++ % 2;
    memcpy(block->threads[own].shown[place], &value, sizeof(T));
    wait(State::AtWarp);
    memcpy(&value, block->threads[(own & ~31u) | ((own ^ distance) & 31u)].shown[place], sizeof(T));
    return value;
}

static inline void emulated_trap() {
    emulated::block->trapped = true;
    emulated::wait(emulated::State::AtBlock);
}

// What the driver looks for, besides `emulated_bind_NAME` for each kernel, which `compile` adds.
extern "C" void emulated_free(void* launch) { delete static_cast<emulated::Launch*>(launch); }

// Runs a kernel, all blocks at once if this is wanted; whether it has trapped.
extern "C" int emulated_run(void* launch, const unsigned* blocks, unsigned threads, bool at_once) {
    auto run = [=](unsigned x, unsigned y, unsigned z) {
        emulated::block = &emulated::own_block;
        emulated::block->body = [](void* launch) { static_cast<emulated::Launch*>(launch)->thread(); };
        emulated::block->kernel = launch;
        gridDim = {blocks[0], blocks[1], blocks[2]};
        blockDim = {threads, 1, 1};
        blockIdx = {x, y, z};
        emulated::run_block(threads);
        return emulated::block->trapped;
    };
    std::vector<std::thread> running;
    for (unsigned z = 0; z < blocks[2]; z++) {
        for (unsigned y = 0; y < blocks[1]; y++) {
            for (unsigned x = 0; x < blocks[0]; x++) {
                if (at_once) running.emplace_back(run, x, y, z);
                else if (run(x, y, z)) return 1;
            }
        }
    }
    for (std::thread& block : running) block.join();
    return 0;
}
