// Copies of rows that lie apart. A dense copy has one row.

/// As `DeviceRows` of cuda.rs fills it: elements in all, distances between the source's and the destination's rows, and
/// the elements of a row.
struct Rows {
    u64 len, from_stride, to_stride;
    Divisor width;

    __device__ __forceinline__ u64 from(u64 i) const { return i + width.divide(i) * (from_stride - width.divisor); }
    __device__ __forceinline__ u64 to(u64 i) const { return i + width.divide(i) * (to_stride - width.divisor); }
    __device__ __forceinline__ bool in_packs() const {
        return width.divisor % 4 == 0 && from_stride % 4 == 0 && to_stride % 4 == 0;
    }
};

extern "C" __global__ void copy_rows(Rows rows, const float* x, float* y, int add) {
    map({x}, y, add, rows.len, [](const float (&in)[1], u64) { return in[0]; }, rows);
}
