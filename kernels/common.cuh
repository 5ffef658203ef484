// What every kernel uses: numbers in storage, sums of a warp, draws by counter. No headers, so that the run-time compiler
// needs none.
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;

// The upper half of an f32.
struct bf16 {
    unsigned short bits;
};

__device__ __forceinline__ float to_f32(float x) { return x; }
__device__ __forceinline__ float to_f32(bf16 x) { return __uint_as_float((u32)x.bits << 16); }

template <class T> __device__ __forceinline__ T from_f32(float x);
template <> __device__ __forceinline__ float from_f32<float>(float x) { return x; }
// To nearest, ties to even; what is no number stays none.
template <> __device__ __forceinline__ bf16 from_f32<bf16>(float x) {
    u32 bits = __float_as_uint(x);
    if (x != x) return bf16{(unsigned short)(bits >> 16 | 0x40)};
    return bf16{(unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes >>= 1) x += __shfl_xor_sync(~0u, x, lanes);
    return x;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes >>= 1) x = fmaxf(x, __shfl_xor_sync(~0u, x, lanes));
    return x;
}

// The first piece of work of a thread, and how far it is to the next: work is 64-bit, grids are not.
__device__ __forceinline__ u64 first_thread() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ u64 n_threads() { return (u64)gridDim.x * blockDim.x; }
