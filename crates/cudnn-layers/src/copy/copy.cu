// Copies of rows that lie apart. A dense copy has one row.

/// Distances between the source's and the destination's rows, and the elements of a row.
struct Rows {
    u64 from_stride, to_stride;
    Divisor width;

    __device__ __forceinline__ u64 from(u64 i) const { return i + width.divide(i) * (from_stride - width.divisor); }
    __device__ __forceinline__ u64 to(u64 i) const { return i + width.divide(i) * (to_stride - width.divisor); }
    __device__ __forceinline__ bool in_packs(int width_of_pack) const {
        return width.divisor % width_of_pack == 0 && from_stride % width_of_pack == 0 && to_stride % width_of_pack == 0;
    }
};

extern "C" __global__ void copy_rows(u64 len, u64 from_stride, u64 to_stride, Divisor width, const real* x, real* y,
                                     int add) {
    map({x}, y, add, len, [](const float (&in)[1], u64) { return in[0]; }, Rows{from_stride, to_stride, width});
}

/// The source of a blob of samples of `columns x rows` elements is one of `rows x columns`.
struct Transposed {
    Divisor rows, columns;

    __device__ __forceinline__ u64 from(u64 i) const {
        u64 line = rows.divide(i), number = columns.divide(line);
        u64 row = i - line * rows.divisor, column = line - number * columns.divisor;
        return (number * rows.divisor + row) * columns.divisor + column;
    }
    __device__ __forceinline__ u64 to(u64 i) const { return i; }
    __device__ __forceinline__ bool in_packs(int) const { return columns.divisor == 1; }
};

#define TRANSPOSE(name, From, To)                                                                                      \
    extern "C" __global__ void name(u64 len, Divisor rows, Divisor columns, const From* x, To* y, int add) {           \
        map({x}, y, add, len, [](const float(&in)[1], u64) { return in[0]; }, Transposed{rows, columns});              \
    }

TRANSPOSE(transpose_blob, real, real)
TRANSPOSE(from_floats, float, real)
TRANSPOSE(to_floats, real, float)
