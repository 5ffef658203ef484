// What follows a dense product. X and Y are the storage of the bias and of the result.
// Elements: X, Y
#include "common.cuh"
#include "elements.cuh"

// out = activation(product + (keep ? out : 0) + bias). Product and bias may be null: a product that has been added to out
// already, no bias.
extern "C" __global__ void epilogue(const float *product, const X *bias, Y *out, u64 n, u64 cols, u32 keep,
                                    u32 activation) {
    if (cols % 4 == 0) {
        const u64 fours = cols / 4, step = n_threads() % fours;
        u64 four = first_thread() % fours;
        for (u64 i = first_thread(); i < n / 4; i += n_threads()) {
            const Four<float> sums = product ? reinterpret_cast<const Four<float> *>(product)[i] : Four<float>{};
            Four<Y> result = keep ? reinterpret_cast<const Four<Y> *>(out)[i] : Four<Y>{};
#pragma unroll
            for (int k = 0; k < 4; k++) {
                float sum = sums.of[k];
                if (keep) sum += to_f32(result.of[k]);
                if (bias) sum += to_f32(bias[4 * four + k]);
                result.of[k] = from_f32<Y>(activated(activation, sum));
            }
            reinterpret_cast<Four<Y> *>(out)[i] = result;
            four += step;
            if (four >= fours) four -= fours;
        }
        return;
    }
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
