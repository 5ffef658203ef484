// The dense operand of a sparse product, as its kernels want it: rows multiplied by their factors; and for tensor cores, numbers
// as sums of two in half precision, which hold 22 of their bits: the larger ones of a row, then the smaller ones, all times a power
// of two. X is the storage of what is read and of rows; HALVES is 1 where halves are wanted.
// Constants: X=float HALVES=0
// Constants: X=float HALVES=1
// Constants: X=bf16 HALVES=0
#include "common.cuh"

// The largest finite size of some elements, as the bits of an f32; zero before. Of many elements, one of every SAMPLED runs of 128
// is looked at: see `exponent_for`.
static const u64 SAMPLED = ABI_SAMPLED, RUN = 32, MANY = 1 << 22;

extern "C" __global__ void __launch_bounds__(ABI_BLOCK) largest(const X *x, u64 rows, u64 cols, u32 *found) {
    const u64 pitch = pitch_of(cols), n = rows * pitch;
    u32 most = 0;
    const auto see = [&](u64 i, float value) {
        if (pitch != cols && i % pitch >= cols) return;
        const u32 size = __float_as_uint(value) & 0x7fffffffu;
        most = size < 0x7f800000u && size > most ? size : most;
    };
    const u64 step = n < MANY ? 1 : SAMPLED;
    for (u64 i = first_thread();; i += n_threads()) {
        const u64 at = i / RUN * RUN * step + i % RUN;
        if (at >= n / 4) break;
        const Four<X> four = reinterpret_cast<const Four<X> *>(x)[at];
#pragma unroll
        for (int k = 0; k < 4; k++) see(4 * at + k, to_f32(four.of[k]));
    }
    for (u64 i = n / 4 * 4 + first_thread(); i < n; i += n_threads()) see(i, to_f32(x[i]));
    most = __reduce_max_sync(~0u, most);
    // Whole numbers: the order in which they come does not matter.
    if (threadIdx.x % 32 == 0) atomicMax(found, most);
}

// The power of two that takes sizes of at most this to below 2^10, as an exponent. Half precision ends at 2^16, so that an
// element may be 2^6 times larger than all that were looked at. One that is larger still makes sums infinite, and their rows
// are gathered whole. Smaller numbers lose bits only below 2^-24, which is 2^-34 of the largest.
__device__ __forceinline__ int exponent_for(float most) {
    const int exponent = 9 - ((int)(__float_as_uint(most) >> 23) - 127);
    return exponent > 126 ? 126 : exponent < -126 ? -126 : exponent;
}
__device__ __forceinline__ float power_of_two(int exponent) { return __uint_as_float((u32)(exponent + 127) << 23); }

// Elements that a thread writes.
static const int WIDE = ABI_WIDE;

__device__ __forceinline__ void store_halves(const float *values, float scale, unsigned short *out, u64 low) {
    Vector<unsigned short, WIDE> larger, smaller;
#pragma unroll
    for (int i = 0; i < WIDE; i++) {
        const float scaled = scale * values[i];
        larger.of[i] = to_f16(scaled);
        // What is not finite stays what it is: the difference would be no number.
        smaller.of[i] = is_finite(scaled) ? to_f16(scaled - from_f16(larger.of[i])) : 0;
    }
    *reinterpret_cast<Vector<unsigned short, WIDE> *>(out) = larger;
    *reinterpret_cast<Vector<unsigned short, WIDE> *>(out + low) = smaller;
}

// A part of a row as it is read, and the row's factor.
struct Part {
    Vector<X, WIDE> x;
    float factor;
};

// Writes rows `out_pitch` apart, halves of as many numbers, or both; what is not wanted is null. What lies between the last column
// and the next row may be anything. For halves, `found` is what `largest` found and `most_right` the largest factor; `unscale`
// becomes what undoes the power of two.
extern "C" __global__ void __launch_bounds__(ABI_BLOCK) operand(const X *x, const float *right, u64 rows, u64 cols, X *out,
                                                          u64 out_pitch, unsigned short *halves, const u32 *found, float most_right,
                                                          float *unscale) {
    const u64 pitch = pitch_of(cols), column = my_column() * WIDE;
#if HALVES
    const int exponent = exponent_for(__uint_as_float(*found) * most_right);
    const float scale = power_of_two(exponent);
    if (column == 0 && first_row() == 0) *unscale = power_of_two(-exponent);
#endif
    if (column >= (out ? out_pitch : pitch)) return;
    const auto load = [=](u64 row) {
        Part part = {};
        if (column >= pitch) return part;
        part.x = *reinterpret_cast<const Vector<X, WIDE> *>(x + row * pitch + column);
        part.factor = right ? right[row] : 1.0f;
        return part;
    };
    each_row(rows, load, [&](u64 row, const Part &part) {
        float values[WIDE];
#pragma unroll
        for (int i = 0; i < WIDE; i++) values[i] = part.factor * to_f32(part.x.of[i]);
        if (out) store_vector<WIDE>(values, out + row * out_pitch + column);
#if HALVES
        if (column < pitch) store_halves(values, scale, halves + 2 * row * pitch + column, pitch);
#endif
    });
}
