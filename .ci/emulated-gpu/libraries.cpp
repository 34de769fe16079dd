// cuBLAS and NCCL, as far as they are called here.
#include "gpu.h"
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <map>

float read_number(const void* numbers, size_t at, bool is_bf16) {
    if (!is_bf16) return static_cast<const float*>(numbers)[at];
    uint32_t bits = uint32_t(static_cast<const uint16_t*>(numbers)[at]) << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

void write_number(void* numbers, size_t at, bool is_bf16, float value) {
    if (!is_bf16) {
        static_cast<float*>(numbers)[at] = value;
        return;
    }
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    // To the nearest, of two equally near ones to the even; a NaN stays one.
    bits = value != value ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1);
    static_cast<uint16_t*>(numbers)[at] = bits >> 16;
}

// ---- cuBLAS ---------------------------------------------------------------------------------------------------------

namespace {

const int BLAS_INVALID = 7, BLAS_FAILED = 14, BLAS_UNSUPPORTED = 15;

struct Blas {
    void* stream = nullptr;
};

// A matrix, column by column, as it is or transposed.
struct Matrix {
    void* numbers;
    bool is_bf16, is_transposed;
    int stride;

    size_t at(int row, int column) const {
        return is_transposed ? size_t(row) * stride + column : size_t(column) * stride + row;
    }
};

int product(void* handle, int m, int n, int k, float alpha, Matrix a, Matrix b, float beta, Matrix c) {
    if (a.stride < (a.is_transposed ? k : m) || b.stride < (b.is_transposed ? n : k) || c.stride < m) return BLAS_INVALID;
    auto work = [=] {
        for (int column = 0; column < n; column++) {
            for (int row = 0; row < m; row++) {
                double sum = 0;
                for (int i = 0; i < k; i++) {
                    double of_a = read_number(a.numbers, a.at(row, i), a.is_bf16);
                    sum += of_a * read_number(b.numbers, b.at(i, column), b.is_bf16);
                }
                float kept = beta == 0 ? 0 : beta * read_number(c.numbers, c.at(row, column), c.is_bf16);
                write_number(c.numbers, c.at(row, column), c.is_bf16, alpha * float(sum) + kept);
            }
        }
    };
    return enqueue(static_cast<Blas*>(handle)->stream, 0.005 + 2e-10 * m * n * k, work) ? BLAS_FAILED : 0;
}

}  // namespace

EXPORT int cublasCreate_v2(void** handle) {
    *handle = new Blas;
    return lost ? BLAS_FAILED : 0;
}

EXPORT int cublasDestroy_v2(void* handle) {
    delete static_cast<Blas*>(handle);
    return 0;
}

EXPORT int cublasSetStream_v2(void* handle, void* stream) {
    static_cast<Blas*>(handle)->stream = stream;
    return 0;
}

EXPORT int cublasSetMathMode(void*, int) { return 0; }
EXPORT int cublasSetWorkspace_v2(void*, void*, size_t) { return 0; }
EXPORT const char* cublasGetStatusName(int) { return "CUBLAS_STATUS_EXECUTION_FAILED"; }

EXPORT int cublasGemmStridedBatchedEx(void* handle, int of_a, int of_b, int m, int n, int k, const float* alpha, void* a,
                                      int type_a, int stride_a, long long step_a, void* b, int type_b, int stride_b,
                                      long long step_b, const float* beta, void* c, int type_c, int stride_c,
                                      long long step_c, int count, int, int) {
    const int F32 = 0, BF16 = 14;
    for (int type : {type_a, type_b, type_c}) {
        if (type != F32 && type != BF16) return BLAS_UNSUPPORTED;
    }
    if (type_a != type_b) return BLAS_UNSUPPORTED;
    auto matrix = [](void* first, long long step, int number, int type, int transposed, int stride) {
        char* numbers = static_cast<char*>(first) + step * number * (type == BF16 ? 2 : 4);
        return Matrix{numbers, type == BF16, transposed != 0, stride};
    };
    for (int number = 0; number < count; number++) {
        Matrix left = matrix(a, step_a, number, type_a, of_a, stride_a), right = matrix(b, step_b, number, type_b, of_b, stride_b);
        int failed = product(handle, m, n, k, *alpha, left, right, *beta, matrix(c, step_c, number, type_c, false, stride_c));
        if (failed) return failed;
    }
    return 0;
}

// ---- NCCL -----------------------------------------------------------------------------------------------------------

namespace {

const int NCCL_FAILED = 1;

// Threads that add up numbers together: each waits in its work until all have come.
struct Group {
    std::mutex lock;
    std::condition_variable changed;
    std::vector<std::vector<double>> numbers;
    size_t joined = 0, arrived = 0, left = 0;
    bool is_aborted = false;

    template <class Ready>
    bool wait(std::unique_lock<std::mutex>& guard, Ready ready) {
        changed.notify_all();
        changed.wait_for(guard, std::chrono::minutes(1), [&] { return is_aborted || ready(); });
        return !is_aborted && ready();
    }
};

struct Communicator {
    std::shared_ptr<Group> group;
    size_t rank;
};

struct UniqueId {
    char bytes[128];
};

template <class T>
void add_up(Group& group, size_t rank, const T* from, T* to, size_t count) {
    std::unique_lock<std::mutex> guard(group.lock);
    size_t ranks = group.numbers.size();
    // The sum before this one has been read by all.
    if (!group.wait(guard, [&] { return group.left == 0; })) return;
    group.numbers[rank].assign(from, from + count);
    group.arrived++;
    if (!group.wait(guard, [&] { return group.arrived >= ranks; })) return;
    for (size_t i = 0; i < count; i++) {
        double sum = 0;
        for (auto& numbers : group.numbers) sum += numbers[i];
        to[i] = T(sum);
    }
    if (++group.left == ranks) group.arrived = group.left = 0;
    group.changed.notify_all();
}

}  // namespace

EXPORT int ncclGetUniqueId(UniqueId* id) {
    static std::atomic<int> count{0};
    memset(id, 0, sizeof(*id));
    int number = ++count;
    memcpy(id, &number, sizeof(number));
    return 0;
}

EXPORT int ncclCommInitRankConfig(void** communicator, int ranks, UniqueId id, int rank, const void*) {
    static std::mutex lock;
    static std::map<int, std::shared_ptr<Group>> groups;
    int number;
    memcpy(&number, &id, sizeof(number));
    std::shared_ptr<Group> group;
    {
        std::lock_guard<std::mutex> guard(lock);
        auto& found = groups[number];
        if (!found) {
            found = std::make_shared<Group>();
            found->numbers.resize(ranks);
        }
        group = found;
    }
    std::unique_lock<std::mutex> guard(group->lock);
    group->joined++;
    if (!group->wait(guard, [&] { return group->joined >= size_t(ranks); })) return NCCL_FAILED;
    *communicator = new Communicator{group, size_t(rank)};
    return 0;
}

EXPORT int ncclAllReduce(void* from, void* to, size_t count, int type, int, void* raw, void* stream) {
    Communicator own = *static_cast<Communicator*>(raw);
    auto work = [=] {
        const int FLOAT = 7;
        if (type == FLOAT) {
            add_up(*own.group, own.rank, static_cast<float*>(from), static_cast<float*>(to), count);
        } else {
            add_up(*own.group, own.rank, static_cast<double*>(from), static_cast<double*>(to), count);
        }
    };
    return enqueue(stream, 0.02 + count / 1e8, work) ? NCCL_FAILED : 0;
}

EXPORT int ncclCommAbort(void* raw) {
    Communicator* own = static_cast<Communicator*>(raw);
    std::lock_guard<std::mutex> guard(own->group->lock);
    own->group->is_aborted = true;
    own->group->changed.notify_all();
    return 0;
}

// Whoever asks gets its memory elsewhere then.
EXPORT int ncclMemAlloc(void**, size_t) { return NCCL_FAILED; }
EXPORT int ncclMemFree(void*) { return NCCL_FAILED; }
EXPORT int ncclCommWindowRegister(void*, void*, size_t, void**, int) { return NCCL_FAILED; }
EXPORT int ncclCommDestroy(void*) { return 0; }
EXPORT const char* ncclGetErrorString(int) { return "unhandled system error"; }
