// Copies of rows that lie apart. A dense copy has one row.

/// As `Rows` of cuda.rs fills it: elements in all, distances between the source's and the destination's rows, and
/// the elements of a row.
struct Rows {
    u64 len, from_stride, to_stride;
    Divisor width;

    __device__ __forceinline__ u64 from(u64 i) const { return i + width.divide(i) * (from_stride - width.divisor); }
    __device__ __forceinline__ u64 to(u64 i) const { return i + width.divide(i) * (to_stride - width.divisor); }
    __device__ __forceinline__ bool in_packs(int width_of_pack) const {
        return width.divisor % width_of_pack == 0 && from_stride % width_of_pack == 0 && to_stride % width_of_pack == 0;
    }
};

extern "C" __global__ void copy_rows(Rows rows, const real* x, real* y, int add) {
    map({x}, y, add, rows.len, [](const float (&in)[1], u64) { return in[0]; }, rows);
}

/// The source of a blob of `outer x columns x rows` elements is one of `outer x rows x columns`.
struct Transposed {
    u64 outer;
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
    extern "C" __global__ void name(Transposed places, const From* x, To* y, int add) {                                \
        u64 len = places.outer * places.rows.divisor * places.columns.divisor;                                         \
        map({x}, y, add, len, [](const float(&in)[1], u64) { return in[0]; }, places);                                 \
    }

TRANSPOSE(transpose_blob, real, real)
TRANSPOSE(from_floats, float, real)
TRANSPOSE(to_floats, real, float)
