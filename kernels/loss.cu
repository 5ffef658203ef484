// Losses with their gradients in one pass. X, Y and Z are the storage of logits, of gradients or the loss, and of targets.
// Every block leaves the sum of the losses of its rows; finish_loss adds them, so that the grid alone sets the order.
// Elements: X, Y, Z
#ifndef X
#define X float
#endif
#ifndef Y
#define Y float
#endif
#ifndef Z
#define Z float
#endif
#include "common.cuh"

// How often each row is named. Whole numbers add up to the same in any order.
extern "C" __global__ void count_rows(const u32 *rows, u64 n, u32 *counts) {
    for (u64 i = first_thread(); i < n; i += n_threads()) atomicAdd(&counts[rows[i]], 1u);
}

// Whether the class of any of the rows is no column.
extern "C" __global__ void find_bad_class(const u32 *rows, u64 n, const u32 *classes, u64 cols, u32 *found) {
    for (u64 i = first_thread(); i < n; i += n_threads()) {
        if (classes[rows[i]] >= cols) *found = 1;
    }
}

__device__ __forceinline__ void clear_row(Y *row, u64 cols) {
    for (u64 c = threadIdx.x % 32; c < cols; c += 32) row[c] = from_f32<Y>(0.0f);
}

// log Σ exp(z) - z[class] of every row, as often as it counts. grad may be null.
extern "C" __global__ void softmax_cross_entropy(const X *logits, const u32 *classes, const u32 *counts, u64 rows, u64 cols,
                                                 float weight, Y *grad, double *partials) {
    const u32 lane = threadIdx.x % 32;
    const u64 pitch = pitch_of(cols);
    double total = 0.0;
    for (u64 row = first_thread() / 32; row < rows; row += n_threads() / 32) {
        const u32 count = counts[row];
        if (count == 0) {
            if (grad) clear_row(grad + row * pitch, cols);
            continue;
        }
        const X *z = logits + row * pitch;
        float max = __int_as_float(0xff800000), sum = 0.0f;
        for (u64 c = lane; c < cols; c += 32) max = fmaxf(max, to_f32(z[c]));
        max = warp_max(max);
        for (u64 c = lane; c < cols; c += 32) sum += expf(to_f32(z[c]) - max);
        sum = warp_sum(sum);
        const u32 own = classes[row];
        if (lane == 0) total += (double)count * ((double)max - (double)to_f32(z[own]) + log((double)sum));
        if (!grad) continue;
        const float factor = (float)count * weight / sum;
        for (u64 c = lane; c < cols; c += 32) {
            const float share = expf(to_f32(z[c]) - max);
            grad[row * pitch + c] = from_f32<Y>(factor * (c == own ? share - sum : share));
        }
    }
    total = block_sum(total);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

// Σ max(z, 0) - z·t + log(1 + exp(-|z|)) of every row, as often as it counts. grad may be null.
extern "C" __global__ void sigmoid_cross_entropy(const X *logits, const Z *targets, const u32 *counts, u64 rows, u64 cols,
                                                 float weight, Y *grad, double *partials) {
    const u64 pitch = pitch_of(cols);
    double total = 0.0;
    for (u64 row = first_thread() / 32; row < rows; row += n_threads() / 32) {
        const u32 count = counts[row];
        if (count == 0) {
            if (grad) clear_row(grad + row * pitch, cols);
            continue;
        }
        const float factor = (float)count * weight;
        double sum = 0.0;
        for (u64 c = threadIdx.x % 32; c < cols; c += 32) {
            const float z = to_f32(logits[row * pitch + c]), target = to_f32(targets[row * pitch + c]);
            const float small = expf(-fabsf(z));
            // Not a maximum, which would turn what is no number into zero.
            sum += (double)((z < 0.0f ? 0.0f : z) - z * target + log1pf(small));
            const float sigmoid = (z < 0.0f ? small : 1.0f) / (1.0f + small);
            if (grad) grad[row * pitch + c] = from_f32<Y>(factor * (sigmoid - target));
        }
        total += (double)count * sum;
    }
    total = block_sum(total);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

// log(1 + exp(⟨u, n - p⟩)) of every triple, a warp for each: rows t, n_triples + t and 2·n_triples + t. grad may be null.
extern "C" __global__ void bpr_loss(const X *triples, u64 n_triples, u64 cols, float weight, Y *grad, double *partials) {
    const u32 lane = threadIdx.x % 32;
    const u64 pitch = pitch_of(cols), third = n_triples * pitch;
    double total = 0.0;
    for (u64 triple = first_thread() / 32; triple < n_triples; triple += n_threads() / 32) {
        const X *user = triples + triple * pitch, *met = user + third, *other = met + third;
        float ahead = 0.0f;
        for (u64 c = lane; c < cols; c += 32) ahead += to_f32(user[c]) * (to_f32(met[c]) - to_f32(other[c]));
        ahead = warp_sum(ahead);
        if (lane == 0) total += (double)((ahead > 0.0f ? 0.0f : -ahead) + log1pf(expf(-fabsf(ahead))));
        if (!grad) continue;
        // The derivative of log(1 + exp(-x)) is -sigmoid(-x).
        const float slope = -weight / (1.0f + expf(ahead));
        Y *user_grad = grad + triple * pitch, *met_grad = user_grad + third, *other_grad = met_grad + third;
        for (u64 c = lane; c < cols; c += 32) {
            const float u = to_f32(user[c]);
            user_grad[c] = from_f32<Y>(slope * (to_f32(met[c]) - to_f32(other[c])));
            met_grad[c] = from_f32<Y>(slope * u);
            other_grad[c] = from_f32<Y>(-slope * u);
        }
    }
    total = block_sum(total);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

// loss = weight · Σ partials, with one block.
extern "C" __global__ void finish_loss(const double *partials, u64 n, double weight, Y *loss) {
    double sum = 0.0;
    for (u64 i = threadIdx.x; i < n; i += blockDim.x) sum += partials[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *loss = from_f32<Y>((float)(weight * sum));
}
