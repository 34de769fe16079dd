// Dropout: the mask is a hash of seed, iteration and the element's number, the same on every device.

/// Chris Wellons' `lowbias32`, as in cpu.rs.
__device__ __forceinline__ u32 mix(u32 value) {
    value = (value ^ (value >> 16)) * 0x7feb352d;
    value = (value ^ (value >> 15)) * 0x846ca68b;
    return value ^ (value >> 16);
}

/// As in mod.rs.
__device__ __forceinline__ u64 mix64(u64 value) {
    value += 0x9e3779b97f4a7c15;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return value ^ (value >> 31);
}

/// `seed` is mixed already. `x` may be null: in place. No tile straddles a multiple of 2^32, so a block has one pair of
/// keys.
extern "C" __global__ void dropout(u64 seed, const u64* iteration, u32 threshold, float scale, const real* x, real* y,
                                   int add, u64 len) {
    u64 keys = mix64(mix64(seed ^ *iteration) ^ (u64(blockIdx.x) * TILE >> 32));
    map({x ? x : y}, y, add, len, [=](const float (&in)[1], u64 i) {
        u32 hash = mix(mix(u32(i) ^ u32(keys)) ^ u32(keys >> 32));
        return in[0] * (hash >= threshold ? scale : 0.0f);
    });
}
