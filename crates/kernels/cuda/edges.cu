// Operations with a number for every entry of a sparse pattern and every head; column k · heads + h belongs to head h.
//
// X and Y are the storage of what is read by rows and by columns, V that of vectors, Z of what is written. Types that a
// kernel does not name are left out.
// Elements: X, Y, V, Z
#include "common.cuh"
#include "heads.cuh"
#include "elements.cuh"

// The softmax of the entries of a row, in place.
template <bool BLOCK> __device__ __forceinline__ void softmax_in_place(const Team<BLOCK> &team, Span span, u64 n_heads, Z *scores) {
    const auto score = [=](u64 entry, u64 head) { return to_f32(scores[entry * pitch_of(n_heads) + head]); };
    softmax(team, span, n_heads, scores, score, [](u64, u64) { return 1.0f; }, [](u64, float) {});
}

extern "C" __global__ void segment_softmax(Pattern a, u64 n_heads, Z *scores) {
    for_rows(a, [&](const Team<false> &team, Span span) { softmax_in_place(team, span, n_heads, scores); });
}

extern "C" __global__ void __launch_bounds__(ABI_LARGE_BLOCK) segment_softmax_hubs(Pattern a, u64 n_heads, Z *scores) {
    for_hubs(a, [&](const Team<true> &team, Span span) { softmax_in_place(team, span, n_heads, scores); });
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

extern "C" __global__ void __launch_bounds__(ABI_LARGE_BLOCK) segment_softmax_backward_hubs(Pattern a, u64 n_heads, const X *shares, Z *grad) {
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

extern "C" __global__ void __launch_bounds__(ABI_LARGE_BLOCK) segment_sums_hubs(Pattern a, u64 n_heads, const float *entries, Z *out) {
    for_hubs(a, [&](const Team<true> &team, Span span) { sums(team, span, a, n_heads, entries, out); });
}

// Σ_k term(x[row, c], y[col, c], c) for the entries of rows, four at a time, because one alone would wait for its loads. edges_wide.cu
// is quicker, for a power of two of heads.
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
        return to_f32(vector[c]) * leaky(slope, x + y);
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
    __shared__ float shared[ABI_BLOCK];
    const u64 pitch = pitch_of(width), grad_pitch = pitch_of(n_heads);
    const u64 tile = width < ABI_BLOCK ? width : ABI_BLOCK, lanes = ABI_BLOCK / tile, lane = threadIdx.x / tile;
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

// Sums of the columns of a matrix of partial sums, in a fixed order: a large block for 32 columns.
extern "C" __global__ void __launch_bounds__(ABI_LARGE_BLOCK) column_totals(const float *partial, u64 n_rows, u64 width, Z *out) {
    __shared__ double shared[ABI_LARGE_BLOCK];
    const u64 c = (u64)blockIdx.x * 32 + threadIdx.x % 32;
    double sum = 0;
    if (c < width)
        for (u64 r = threadIdx.x / 32; r < n_rows; r += ABI_LARGE_BLOCK / 32) sum += partial[r * pitch_of(width) + c];
    shared[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x >= 32 || c >= width) return;
    for (int l = 1; l < ABI_LARGE_BLOCK / 32; l++) sum += shared[l * 32 + threadIdx.x];
    out[c] = from_f32<Z>((float)sum);
}
