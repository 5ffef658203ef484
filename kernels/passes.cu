// Passes over whole matrices. X and Y are the storage of what is read and of what is written.
// Elements: X, Y
#include "common.cuh"

extern "C" __global__ void convert(const X *x, Y *out, u64 n) {
    for (u64 i = first_thread(); i < n; i += n_threads()) out[i] = from_f32<Y>(to_f32(x[i]));
}

extern "C" __global__ void scale(const X *x, Y *out, u64 n, float factor) {
    for (u64 i = first_thread(); i < n; i += n_threads()) out[i] = from_f32<Y>(factor * to_f32(x[i]));
}

extern "C" __global__ void add_scaled(const X *x, Y *out, u64 n, float factor) {
    for (u64 i = first_thread(); i < n; i += n_threads()) out[i] = from_f32<Y>(to_f32(out[i]) + factor * to_f32(x[i]));
}
