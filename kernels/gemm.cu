// What follows a dense product. X and Y are the storage of the bias and of the result.
// Elements: X, Y
#ifndef X
#define X float
#endif
#ifndef Y
#define Y float
#endif
#include "common.cuh"

// out = activation(product + (keep ? out : 0) + bias). Product and bias may be null: a product that has been added to out
// already, no bias.
extern "C" __global__ void epilogue(const float *product, const X *bias, Y *out, u64 n, u64 cols, u32 keep,
                                    u32 activation) {
    // Columns are counted along, because 64-bit remainders are slow.
    const u64 step = n_threads() % cols;
    u64 column = first_thread() % cols;
    for (u64 i = first_thread(); i < n; i += n_threads()) {
        float sum = product ? product[i] : 0.0f;
        if (keep) sum += to_f32(out[i]);
        if (bias) sum += to_f32(bias[column]);
        out[i] = from_f32<Y>(activated(activation, sum));
        column += step;
        if (column >= cols) column -= cols;
    }
}
