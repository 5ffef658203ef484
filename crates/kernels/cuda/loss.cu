// Losses with their gradients in one pass. X, Y and Z are the storage of logits, of gradients or the loss, and of targets.
// Every block leaves the sum of the losses of its rows; finish_loss adds them, so that the grid alone sets the order.
// LANES lanes share a row, so that short rows leave few idle. Of a softmax, a lane reads VEC logits at once, eight or one, and
// KEPT times; 0 of rows that do not fit registers, which are read again when they are needed again.
// Elements: X, Y, Z
#ifndef LANES
#define LANES 32
#endif
#ifndef VEC
#define VEC 8
#endif
#ifndef KEPT
#define KEPT 4
#endif
#include "common.cuh"
#include "elements.cuh"

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

// What the losses of rows are made of.
struct Losses {
    const X *logits;
    // Classes, or targets in Z.
    const void *wanted;
    // How often each row counts.
    const u32 *counts;
    // Null where it is not wanted.
    Y *grad;
    // A sum for each block.
    double *partials;
    u64 rows, cols;
    // What a row's gradient is multiplied by.
    float factor;
};

// Lanes that share a row.
struct Team {
    u32 lane, members;

    __device__ __forceinline__ Team() {
        lane = threadIdx.x % LANES;
        members = (LANES == 32 ? ~0u : (1u << LANES % 32) - 1) << threadIdx.x % 32 / LANES * LANES;
    }

    __device__ __forceinline__ float sum(float x) const {
#pragma unroll
        for (int lanes = LANES / 2; lanes > 0; lanes >>= 1) x += __shfl_xor_sync(members, x, lanes);
        return x;
    }

    __device__ __forceinline__ float max(float x) const {
#pragma unroll
        for (int lanes = LANES / 2; lanes > 0; lanes >>= 1) x = fmaxf(x, __shfl_xor_sync(members, x, lanes));
        return x;
    }
};

// Adds up row_loss(row, prepared) over the rows that count; the first lane's is that of the row. Gradients of others are zero.
// What prepare(row) asks for is on its way while the row before is worked on.
template <class Prepare, class Work>
__device__ __forceinline__ void each_row_that_counts(const Losses &of, const Team &team, Prepare prepare, Work row_loss) {
    const u32 pitch = (u32)pitch_of(of.cols);
    const u64 first = first_thread() / LANES, step = n_threads() / LANES;
    const auto count_of = [&](u64 row) { return row < of.rows ? of.counts[row] : 0; };
    double total = 0.0;
    u32 count = count_of(first), next = count_of(first + step);
    decltype(prepare(first)) prepared = {};
    if (count > 0) prepared = prepare(first);
    for (u64 row = first; row < of.rows; row += step) {
        const u32 after_next = count_of(row + 2 * step);
        decltype(prepare(first)) coming = {};
        if (next > 0) coming = prepare(row + step);
        if (count > 0) {
            const double loss = row_loss(row, count, prepared);
            if (team.lane == 0) total += (double)count * loss;
        } else if (of.grad) {
            const float zeros[VEC] = {};
#pragma unroll 1
            for (u32 c = team.lane * VEC; c < pitch; c += LANES * VEC) store_vector<VEC>(zeros, of.grad + row * pitch + c);
        }
        prepared = coming, count = next, next = after_next;
    }
    total = block_sum(total);
    if (threadIdx.x == 0) of.partials[blockIdx.x] = total;
}

// The class of a row, and the logits that a lane has of it: VEC side by side of every LANES * VEC.
struct Share {
    u32 own;
    const X *row;
#if KEPT
    Vector<X, VEC> kept[KEPT];
#endif
};

// The logits of a share as numbers.
struct Numbers {
    const X *row;
    u32 cols, lane;
#if KEPT
    float kept[KEPT][VEC];
#endif

    __device__ __forceinline__ Numbers(const Share &share, u32 cols, u32 lane) : row(share.row), cols(cols), lane(lane) {
#if KEPT
#pragma unroll
        for (u32 part = 0; part < KEPT; part++) take(share.kept[part], (part * LANES + lane) * VEC, kept[part]);
#endif
    }

    // Beyond the last column is nothing that weighs anything.
    __device__ __forceinline__ void take(const Vector<X, VEC> &part, u32 first, float *z) const {
        const int left = (int)cols - (int)first;
#pragma unroll
        for (int i = 0; i < VEC; i++) z[i] = i < left ? to_f32(part.of[i]) : __int_as_float(0xff800000);
    }

    // For each part in turn: use(first column, numbers). What it leaves there, the next use finds where numbers are kept.
    template <class Use> __device__ __forceinline__ void each(Use use) {
#if KEPT
#pragma unroll
        for (u32 part = 0; part < KEPT; part++) use((part * LANES + lane) * VEC, kept[part]);
#else
        for (u32 first = lane * VEC; first < pitch_of(cols); first += LANES * VEC) {
            float z[VEC];
            take(*reinterpret_cast<const Vector<X, VEC> *>(row + first), first, z);
            use(first, z);
        }
#endif
    }
};

// log Σ exp(z) - z[class] of every row, as often as it counts.
extern "C" __global__ void __launch_bounds__(ABI_BLOCK) softmax_cross_entropy(const __grid_constant__ Losses of) {
    const Team team;
    const u32 cols = (u32)of.cols, pitch = (u32)pitch_of(of.cols);
    const auto prepare = [&](u64 row) {
        Share share = {static_cast<const u32 *>(of.wanted)[row], of.logits + row * pitch};
#if KEPT
#pragma unroll
        for (u32 part = 0; part < KEPT; part++) {
            const u32 first = (part * LANES + team.lane) * VEC;
            if (first < pitch) share.kept[part] = *reinterpret_cast<const Vector<X, VEC> *>(share.row + first);
        }
#endif
        return share;
    };
    each_row_that_counts(of, team, prepare, [&](u64 row, u32 count, const Share &share) {
        Numbers numbers(share, cols, team.lane);
        float max = __int_as_float(0xff800000), sum = 0.0f, of_own = 0.0f;
        numbers.each([&](u32 first, const float *z) {
            const u32 place = share.own - first;
#pragma unroll
            for (u32 i = 0; i < VEC; i++) {
                max = fmaxf(max, z[i]);
                if (i == place) of_own = z[i];
            }
        });
        max = team.max(max);
        numbers.each([&](u32, float *z) {
#pragma unroll
            for (int i = 0; i < VEC; i++) {
                z[i] = expf(z[i] - max);
                sum += z[i];
            }
        });
        sum = team.sum(sum);
        // All other lanes add nothing.
        of_own = team.sum(of_own);
        if (of.grad) {
            const float weight = (float)count * of.factor, share_of_one = weight / sum;
            // Up to the next row, because memory reads first what is written in parts; zeros there.
            numbers.each([&](u32 first, const float *z) {
                const u32 place = share.own - first;
                float grad[VEC];
#pragma unroll
                for (u32 i = 0; i < VEC; i++) {
                    const float e = KEPT ? z[i] : expf(z[i] - max);
                    grad[i] = i == place ? share_of_one * e - weight : share_of_one * e;
                }
                if (first < pitch) store_vector<VEC>(grad, of.grad + row * pitch + first);
            });
        }
        // The sum is one or more: its logarithm is exact enough in f32, and a fraction of the work.
        return (double)(max - of_own) + (double)logf(sum);
    });
}

// Σ max(z, 0) - z·t + log(1 + exp(-|z|)) of every row, as often as it counts.
extern "C" __global__ void sigmoid_cross_entropy(const __grid_constant__ Losses of) {
    const Team team;
    struct Nothing {};
    each_row_that_counts(of, team, [](u64) { return Nothing{}; }, [&](u64 row, u32 count, Nothing) {
        const u64 start = row * pitch_of(of.cols);
        const float factor = (float)count * of.factor;
        float sum = 0.0f;
        for (u64 c = team.lane; c < of.cols; c += LANES) {
            const float z = to_f32(of.logits[start + c]), target = to_f32(static_cast<const Z *>(of.wanted)[start + c]);
            const float small = expf(-fabsf(z));
            // Not a maximum, which would turn what is no number into zero.
            sum += (z < 0.0f ? 0.0f : z) - z * target + log1pf(small);
            const float sigmoid = (z < 0.0f ? small : 1.0f) / (1.0f + small);
            if (of.grad) of.grad[start + c] = from_f32<Y>(factor * (sigmoid - target));
        }
        return (double)team.sum(sum);
    });
}

// log(1 + exp(⟨u, n - p⟩)) of every triple: rows t, rows + t and 2·rows + t of the logits. Every triple counts once.
extern "C" __global__ void bpr_loss(const __grid_constant__ Losses of) {
    const Team team;
    const u64 pitch = pitch_of(of.cols), third = of.rows * pitch;
    double total = 0.0;
    for (u64 triple = first_thread() / LANES; triple < of.rows; triple += n_threads() / LANES) {
        const X *user = of.logits + triple * pitch, *met = user + third, *other = met + third;
        float ahead = 0.0f;
        for (u64 c = team.lane; c < of.cols; c += LANES) ahead += to_f32(user[c]) * (to_f32(met[c]) - to_f32(other[c]));
        ahead = team.sum(ahead);
        if (team.lane == 0) total += (double)((ahead > 0.0f ? 0.0f : -ahead) + log1pf(expf(-fabsf(ahead))));
        if (!of.grad) continue;
        // The derivative of log(1 + exp(-x)) is -sigmoid(-x).
        const float slope = -of.factor / (1.0f + expf(ahead));
        Y *user_grad = of.grad + triple * pitch, *met_grad = user_grad + third, *other_grad = met_grad + third;
        for (u64 c = team.lane; c < of.cols; c += LANES) {
            const float u = to_f32(user[c]);
            user_grad[c] = from_f32<Y>(slope * (to_f32(met[c]) - to_f32(other[c])));
            met_grad[c] = from_f32<Y>(slope * u);
            other_grad[c] = from_f32<Y>(-slope * u);
        }
    }
    total = block_sum(total);
    if (threadIdx.x == 0) of.partials[blockIdx.x] = total;
}

// loss = weight · Σ partials, with one block.
extern "C" __global__ void finish_loss(const double *partials, u64 n, double weight, Y *loss) {
    double sum = 0.0;
    for (u64 i = threadIdx.x; i < n; i += blockDim.x) sum += partials[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *loss = from_f32<Y>((float)(weight * sum));
}
