// Dropout: the mask is a hash of the element's number, the same on every device.

/// Chris Wellons' `lowbias32`, as in cpu.rs.
__device__ __forceinline__ u32 mix(u32 value) {
    value = (value ^ (value >> 16)) * 0x7feb352d;
    value = (value ^ (value >> 15)) * 0x846ca68b;
    return value ^ (value >> 16);
}

/// At most 2^32 elements, whose keys the host draws. `x` may be null: in place.
extern "C" __global__ void dropout(u32 first_key, u32 second_key, u32 threshold, float scale, const float* x, float* y,
                                   int add, u64 len) {
    map({x ? x : y}, y, add, len, [=](const float (&in)[1], u64 i) {
        u32 hash = mix(mix(u32(i) ^ first_key) ^ second_key);
        return in[0] * (hash >= threshold ? scale : 0.0f);
    });
}
