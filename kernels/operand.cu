// The dense operand of a sparse product, as its kernels want it: rows multiplied by their factors and padded, so that each
// begins where wide loads may. X is the storage of what is read; OUT of what is written: float, bf16 or halves.
// Elements: X
// Constants: OUT=float
// Constants: OUT=bf16
// Constants: OUT=halves
#include "common.cuh"

// Elements that a thread writes.
static const u64 WIDE = 8;

// A row for each thread.y, a vector of its columns for each thread.x.
template <class Use> __device__ __forceinline__ void each_vector(u64 rows, u64 pitch, Use use) {
    for (u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y; row < rows; row += (u64)gridDim.x * blockDim.y)
        for (u64 vector = threadIdx.x; vector < pitch / WIDE; vector += blockDim.x) use(row, vector * WIDE);
}

__device__ __forceinline__ void load(const X *x, const float *right, u64 row, u64 column, u64 cols, float *values) {
    const float factor = right ? right[row] : 1.0f;
    const X *from = x + row * cols + column;
    if (cols % WIDE == 0) {
        const Four<X> first = reinterpret_cast<const Four<X> *>(from)[0], second = reinterpret_cast<const Four<X> *>(from)[1];
#pragma unroll
        for (int i = 0; i < 4; i++) values[i] = factor * to_f32(first.of[i]), values[4 + i] = factor * to_f32(second.of[i]);
        return;
    }
#pragma unroll
    for (u64 i = 0; i < WIDE; i++) values[i] = column + i < cols ? factor * to_f32(from[i]) : 0.0f;
}

// The largest finite size of any element, as the bits of an f32; zero before.
extern "C" __global__ void __launch_bounds__(256) largest(const X *x, const float *right, u64 rows, u64 cols, u64 pitch,
                                                          u32 *found) {
    u32 most = 0;
    each_vector(rows, pitch, [&](u64 row, u64 column) {
        float values[WIDE];
        load(x, right, row, column, cols, values);
#pragma unroll
        for (u64 i = 0; i < WIDE; i++) {
            const u32 size = __float_as_uint(values[i]) & 0x7fffffffu;
            most = size < 0x7f800000u && size > most ? size : most;
        }
    });
    most = __reduce_max_sync(~0u, most);
    // Whole numbers: the order in which they come does not matter.
    if ((threadIdx.y * blockDim.x + threadIdx.x) % 32 == 0) atomicMax(found, most);
}

// The power of two that takes the largest size to below 2^15, as an exponent.
__device__ __forceinline__ int exponent_for(u32 size) {
    const int exponent = 14 - ((int)(size >> 23) - 127);
    return exponent > 126 ? 126 : exponent;
}
__device__ __forceinline__ float power_of_two(int exponent) { return __uint_as_float((u32)(exponent + 127) << 23); }

struct alignas(16) Halves {
    unsigned short of[WIDE];
};

__device__ __forceinline__ void store(const float *values, float, float *out, u64) {
    reinterpret_cast<float4 *>(out)[0] = {values[0], values[1], values[2], values[3]};
    reinterpret_cast<float4 *>(out)[1] = {values[4], values[5], values[6], values[7]};
}
__device__ __forceinline__ void store(const float *values, float, bf16 *out, u64) {
    Halves rounded;
#pragma unroll
    for (u64 i = 0; i < WIDE; i++) rounded.of[i] = from_f32<bf16>(values[i]).bits;
    *reinterpret_cast<Halves *>(out) = rounded;
}
__device__ __forceinline__ void store(const float *values, float scale, halves *out, u64 low) {
    Halves larger, smaller;
#pragma unroll
    for (u64 i = 0; i < WIDE; i++) {
        const float scaled = scale * values[i];
        larger.of[i] = to_f16(scaled);
        // What is not finite stays what it is: the difference would be no number.
        smaller.of[i] = is_finite(scaled) ? to_f16(scaled - from_f16(larger.of[i])) : 0;
    }
    *reinterpret_cast<Halves *>(out) = larger;
    *reinterpret_cast<Halves *>(out + low) = smaller;
}

// Writes rows of `pitch` elements, or of twice as many halves. Of halves, `found` is what `largest` found, and `unscale`
// becomes what undoes the power of two that they are multiplied by.
extern "C" __global__ void __launch_bounds__(256) operand(const X *x, const float *right, u64 rows, u64 cols, u64 pitch,
                                                          OUT *out, u64 stride, const u32 *found, float *unscale) {
    float scale = 1.0f;
    if (found) {
        const int exponent = exponent_for(*found);
        scale = power_of_two(exponent);
        if (blockIdx.x == 0 && threadIdx.x == 0 && threadIdx.y == 0) *unscale = power_of_two(-exponent);
    }
    each_vector(rows, pitch, [=](u64 row, u64 column) {
        float values[WIDE];
        load(x, right, row, column, cols, values);
        store(values, scale, out + row * stride + column, pitch);
    });
}
