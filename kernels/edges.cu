// Operations with a number for every entry of a sparse pattern and every head; column k · heads + h belongs to head h.
//
// X and Y are the storage of what is read by rows and by columns, V that of vectors, Z of what is written, L of
// logarithms. Types that a kernel does not name are left out.
// Elements: X, Y, V, Z, L
#include "common.cuh"

#ifndef X
#define X float
#endif
#ifndef Y
#define Y float
#endif
#ifndef V
#define V float
#endif
#ifndef Z
#define Z float
#endif
#ifndef L
#define L float
#endif

static const int WARPS_MAX = 32;

// How a warp shares out entries and heads: `n` heads from `first` on, `groups` lanes for each.
struct Heads {
    int n, groups, group, head;

    __device__ __forceinline__ Heads(u64 first, u64 heads) {
        const int lane = threadIdx.x % 32;
        const u64 left = heads - first;
        // Blocks of heads are equally wide but for the last, so that few lanes idle.
        n = left < 32 ? (int)left : 32;
        groups = 32 / n;
        group = lane / n;
        head = lane % n;
    }

    // Lanes that are left over have no part of the work, but take part in sums.
    __device__ __forceinline__ bool works() const { return group < groups; }
    __device__ __forceinline__ bool leads() const { return group == 0; }

    // The sum over the lanes of a head, in each of them.
    __device__ __forceinline__ float sum(float x) const {
        if ((n & (n - 1)) == 0) {
            for (int lanes = 16; lanes >= n; lanes >>= 1) x += __shfl_xor_sync(~0u, x, lanes);
            return x;
        }
        float total = __shfl_sync(~0u, x, head);
        for (int g = 1; g < groups; g++) total += __shfl_sync(~0u, x, head + g * n);
        return total;
    }

    __device__ __forceinline__ float max(float x) const {
        float most = __shfl_sync(~0u, x, head);
        for (int g = 1; g < groups; g++) most = fmaxf(most, __shfl_sync(~0u, x, head + g * n));
        return most;
    }
};

// The threads that share a row: a warp, or for hubs a block.
template <bool BLOCK> struct Team {
    float *shared;

    __device__ __forceinline__ static u64 warp() { return BLOCK ? threadIdx.x / 32 : 0; }
    __device__ __forceinline__ static u64 n_warps() { return BLOCK ? blockDim.x / 32 : 1; }

    __device__ __forceinline__ float sum(const Heads &heads, float x) const {
        x = heads.sum(x);
        if (!BLOCK) return x;
        spread(heads, x);
        float total = shared[heads.head];
        for (u64 w = 1; w < n_warps(); w++) total += shared[w * 32 + heads.head];
        __syncthreads();
        return total;
    }

    __device__ __forceinline__ float max(const Heads &heads, float x) const {
        x = heads.max(x);
        if (!BLOCK) return x;
        spread(heads, x);
        float most = shared[heads.head];
        for (u64 w = 1; w < n_warps(); w++) most = fmaxf(most, shared[w * 32 + heads.head]);
        __syncthreads();
        return most;
    }

    __device__ __forceinline__ void spread(const Heads &heads, float x) const {
        if (heads.leads()) shared[warp() * 32 + heads.head] = x;
        __syncthreads();
    }
};

// A row that a team works on.
struct Span {
    u64 row, begin, end;
};

// Calls `work(team, row)` for each row: a warp each if it is no hub.
template <class Work> __device__ __forceinline__ void for_rows(const Pattern &a, Work work) {
    for (u64 row = first_thread() / 32; row < a.n_rows; row += n_threads() / 32) {
        Span span{row, a.indptr[row], a.indptr[row + 1]};
        if (a.n_hubs == 0 || span.end - span.begin <= SEGMENT) work(Team<false>{nullptr}, span);
    }
}

// Likewise for each hub: a block each.
template <class Work> __device__ __forceinline__ void for_hubs(const Pattern &a, Work work) {
    __shared__ float shared[WARPS_MAX * 32];
    for (u64 hub = blockIdx.x; hub < a.n_hubs; hub += gridDim.x) {
        const u64 row = a.hub_rows[hub];
        work(Team<true>{shared}, Span{row, a.indptr[row], a.indptr[row + 1]});
    }
}

// Calls `work(heads, first head, first entry, step)` for blocks of at most 32 heads.
template <bool BLOCK, class Work> __device__ __forceinline__ void for_heads(u64 n_heads, u64 begin, Work work) {
    for (u64 first = 0; first < n_heads; first += 32) {
        Heads heads(first, n_heads);
        const u64 team_groups = heads.groups * Team<BLOCK>::n_warps();
        work(heads, first + heads.head, begin + Team<BLOCK>::warp() * heads.groups + heads.group, team_groups);
    }
}

// The softmax of the entries of a row, in place, and the logarithm of its denominator where it is wanted.
template <class S, bool BLOCK>
__device__ __forceinline__ void softmax(const Team<BLOCK> &team, Span span, u64 n_heads, S *scores, L *log_sums) {
    for_heads<BLOCK>(n_heads, span.begin, [&](const Heads &heads, u64 head, u64 first, u64 step) {
        const u64 end = heads.works() ? span.end : 0;
        float most = __int_as_float(0xff800000), sum = 0;
        for (u64 e = first; e < end; e += step) most = fmaxf(most, to_f32(scores[e * pitch_of(n_heads) + head]));
        most = team.max(heads, most);
        for (u64 e = first; e < end; e += step) sum += expf(to_f32(scores[e * pitch_of(n_heads) + head]) - most);
        sum = team.sum(heads, sum);
        for (u64 e = first; e < end; e += step) {
            S *score = scores + e * pitch_of(n_heads) + head;
            *score = from_f32<S>(expf(to_f32(*score) - most) / sum);
        }
        // Rows without entries have no denominator; zero stands for its logarithm.
        if (log_sums && heads.leads() && team.warp() == 0)
            log_sums[span.row * pitch_of(n_heads) + head] = from_f32<L>(span.begin < span.end ? most + logf(sum) : 0);
    });
}

extern "C" __global__ void segment_softmax(Pattern a, u64 n_heads, Z *scores, L *log_sums) {
    for_rows(a, [&](const Team<false> &team, Span span) { softmax(team, span, n_heads, scores, log_sums); });
}

extern "C" __global__ void __launch_bounds__(1024) segment_softmax_hubs(Pattern a, u64 n_heads, Z *scores, L *log_sums) {
    for_hubs(a, [&](const Team<true> &team, Span span) { softmax(team, span, n_heads, scores, log_sums); });
}

template <bool BLOCK>
__device__ __forceinline__ void softmax_backward(const Team<BLOCK> &team, Span span, u64 n_heads, const X *shares, Z *grad) {
    for_heads<BLOCK>(n_heads, span.begin, [&](const Heads &heads, u64 head, u64 first, u64 step) {
        const u64 end = heads.works() ? span.end : 0;
        float mean = 0;
        for (u64 e = first; e < end; e += step) mean += to_f32(shares[e * pitch_of(n_heads) + head]) * to_f32(grad[e * pitch_of(n_heads) + head]);
        mean = team.sum(heads, mean);
        for (u64 e = first; e < end; e += step) {
            Z *g = grad + e * pitch_of(n_heads) + head;
            *g = from_f32<Z>(to_f32(shares[e * pitch_of(n_heads) + head]) * (to_f32(*g) - mean));
        }
    });
}

extern "C" __global__ void segment_softmax_backward(Pattern a, u64 n_heads, const X *shares, Z *grad) {
    for_rows(a, [&](const Team<false> &team, Span span) { softmax_backward(team, span, n_heads, shares, grad); });
}

extern "C" __global__ void __launch_bounds__(1024) segment_softmax_backward_hubs(Pattern a, u64 n_heads, const X *shares, Z *grad) {
    for_hubs(a, [&](const Team<true> &team, Span span) { softmax_backward(team, span, n_heads, shares, grad); });
}

// The sums of the numbers of the entries of a row, head by head.
template <bool BLOCK>
__device__ __forceinline__ void sums(const Team<BLOCK> &team, Span span, const Pattern &a, u64 n_heads, const float *entries,
                                     Z *out) {
    for_heads<BLOCK>(n_heads, span.begin, [&](const Heads &heads, u64 head, u64 first, u64 step) {
        const u64 end = heads.works() ? span.end : 0;
        float sum = 0;
        for (u64 e = first; e < end; e += step) sum += entries[a.position(e) * pitch_of(n_heads) + head];
        sum = team.sum(heads, sum);
        if (heads.leads() && team.warp() == 0) out[span.row * pitch_of(n_heads) + head] = from_f32<Z>(sum);
    });
}

extern "C" __global__ void segment_sums(Pattern a, u64 n_heads, const float *entries, Z *out) {
    for_rows(a, [&](const Team<false> &team, Span span) { sums(team, span, a, n_heads, entries, out); });
}

extern "C" __global__ void __launch_bounds__(1024) segment_sums_hubs(Pattern a, u64 n_heads, const float *entries, Z *out) {
    for_hubs(a, [&](const Team<true> &team, Span span) { sums(team, span, a, n_heads, entries, out); });
}

// Σ_k term(x[row, c], y[col, c], c) for the entries of rows, four at a time, because one alone would wait for its loads.
template <class Term>
__device__ __forceinline__ void entry_dots(const Pattern &a, u64 n_heads, u64 depth, const float *left, const float *right,
                                           const X *x, const Y *y, Z *out, Term term) {
    const u64 pitch = pitch_of(n_heads * depth);
    for (u64 p = first_thread() / 32; p < a.n_pieces(); p += n_threads() / 32) {
        Piece piece;
        if (!piece_at(a, p, piece)) continue;
        const float row_scale = left ? left[piece.row] : 1.0f;
        x += piece.row * pitch;
        for (u64 first_head = 0; first_head < n_heads; first_head += 32) {
            Heads heads(first_head, n_heads);
            const u64 head = first_head + heads.head;
            for (u64 e = piece.begin; e < piece.end; e += 4) {
                const Y *rows[4];
                u32 columns[4];
                float dots[4] = {};
#pragma unroll
                for (int u = 0; u < 4; u++) {
                    // Past the end the last entry is read again, and nothing is written.
                    columns[u] = a.indices[e + u < piece.end ? e + u : piece.end - 1];
                    rows[u] = y + columns[u] * pitch;
                }
                for (u64 k = heads.works() ? heads.group : depth; k < depth; k += heads.groups) {
                    const u64 c = k * n_heads + head;
                    const float of_row = to_f32(x[c]);
#pragma unroll
                    for (int u = 0; u < 4; u++) dots[u] += term(of_row, to_f32(rows[u][c]), c);
                }
#pragma unroll
                for (int u = 0; u < 4; u++) {
                    const float dot = heads.sum(dots[u]);
                    if (!heads.leads() || e + u >= piece.end) continue;
                    const float scale = right ? row_scale * right[columns[u]] : row_scale;
                    out[(e + u) * pitch_of(n_heads) + head] = from_f32<Z>(scale * dot);
                }
            }
        }
        x -= piece.row * pitch;
    }
}

extern "C" __global__ void sddmm(Pattern a, u64 n_heads, u64 depth, const float *left, const float *right, const X *x,
                                 const Y *y, Z *out) {
    entry_dots(a, n_heads, depth, left, right, x, y, out, [](float x, float y, u64) { return x * y; });
}

// Scores of GATv2.
extern "C" __global__ void dynamic_scores(Pattern a, u64 n_heads, u64 depth, float slope, const X *destination,
                                          const Y *source, const V *vector, Z *out) {
    entry_dots(a, n_heads, depth, nullptr, nullptr, destination, source, out, [=](float x, float y, u64 c) {
        const float sum = x + y;
        return to_f32(vector[c]) * (sum > 0 ? sum : slope * sum);
    });
}

extern "C" __global__ void head_dots(const X *x, u64 n_rows, u64 n_heads, u64 depth, const V *vector, Z *out) {
    for (u64 row = first_thread() / 32; row < n_rows; row += n_threads() / 32) {
        const X *of_row = x + row * pitch_of(n_heads * depth);
        for (u64 first_head = 0; first_head < n_heads; first_head += 32) {
            Heads heads(first_head, n_heads);
            const u64 head = first_head + heads.head;
            float dot = 0;
            for (u64 k = heads.works() ? heads.group : depth; k < depth; k += heads.groups)
                dot += to_f32(of_row[k * n_heads + head]) * to_f32(vector[k * n_heads + head]);
            dot = heads.sum(dot);
            if (heads.leads()) out[row * pitch_of(n_heads) + head] = from_f32<Z>(dot);
        }
    }
}

// The gradient of the rows of `head_dots`: X is the storage of that of its result.
extern "C" __global__ void head_dots_rows(const X *grad, u64 n_rows, u64 n_heads, u64 width, const V *vector, Z *x_grad) {
    for (u64 row = first_thread() / 32; row < n_rows; row += n_threads() / 32)
        for (u64 c = threadIdx.x % 32; c < width; c += 32) {
            Z *g = x_grad + row * pitch_of(width) + c;
            *g = from_f32<Z>(to_f32(*g) + to_f32(grad[row * pitch_of(n_heads) + c % n_heads]) * to_f32(vector[c]));
        }
}

// For each block of rows, Σ grad[r, h]·x[r, c]: the gradient of the vector of `head_dots`, to be added up by column_totals.
extern "C" __global__ void head_dots_vector(const X *grad, const Y *x, u64 n_rows, u64 n_heads, u64 width, u64 rows_of_block,
                                            float *partial) {
    __shared__ float shared[256];
    const u64 pitch = pitch_of(width), grad_pitch = pitch_of(n_heads);
    const u64 tile = width < 256 ? width : 256, lanes = 256 / tile, lane = threadIdx.x / tile;
    const u64 begin = blockIdx.x * rows_of_block, end = begin + rows_of_block < n_rows ? begin + rows_of_block : n_rows;
    for (u64 first = 0; first < width; first += tile) {
        const u64 c = first + threadIdx.x % tile;
        float sum = 0;
        if (lane < lanes && c < width)
            for (u64 r = begin + lane; r < end; r += lanes)
                sum += to_f32(grad[r * grad_pitch + c % n_heads]) * to_f32(x[r * pitch + c]);
        shared[threadIdx.x] = sum;
        __syncthreads();
        if (lane == 0 && c < width) {
            for (u64 l = 1; l < lanes; l++) sum += shared[l * tile + threadIdx.x];
            partial[blockIdx.x * pitch + c] = sum;
        }
        __syncthreads();
    }
}

// Sums of the columns of a matrix of partial sums, in a fixed order: 1024 threads for 32 columns.
extern "C" __global__ void __launch_bounds__(1024) column_totals(const float *partial, u64 n_rows, u64 width, Z *out) {
    __shared__ double shared[1024];
    const u64 c = (u64)blockIdx.x * 32 + threadIdx.x % 32;
    double sum = 0;
    if (c < width)
        for (u64 r = threadIdx.x / 32; r < n_rows; r += 32) sum += partial[r * pitch_of(width) + c];
    shared[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x >= 32 || c >= width) return;
    for (int l = 1; l < 32; l++) sum += shared[l * 32 + threadIdx.x];
    out[c] = from_f32<Z>((float)sum);
}
