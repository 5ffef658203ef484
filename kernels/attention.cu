// Attention: what is its own of it; the rest are sparse products and operations on entries.
//
// X, Y and V are the storage of what rows and columns of the pattern bring and of the vector, Z of what is written. Types that
// a kernel does not name are left out.
// Elements: X, Y, V, Z
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

// How shares are dropped, and what rows and columns are called in the matrix that the pattern is a piece of.
struct EntryMask {
    Draws draws;
    const u32 *column_names;
    u32 first_row;
};

// Calls `work(entry, row, column, part)` for `parts` parts of each entry, neighbours by neighbouring lanes.
template <class Work> __device__ __forceinline__ void for_entries(const Pattern &a, u64 parts, Work work) {
    for (u64 p = first_thread() / 32; p < a.n_pieces(); p += n_threads() / 32) {
        Piece piece;
        if (!piece_at(a, p, piece)) continue;
        // Few entries, even of hubs of mini-batches: 32 bits hold their parts, and divide sooner than 64.
        const u32 n = (u32)(piece.end - piece.begin) * (u32)parts;
        for (u32 i = threadIdx.x % 32; i < n; i += 32) {
            const u64 entry = piece.begin + i / (u32)parts;
            work(entry, piece.row, (u64)a.indices[entry], (u64)(i % (u32)parts));
        }
    }
}

// Scores of GAT.
extern "C" __global__ void static_scores(Pattern a, u64 heads, float slope, const X *destination, const Y *source,
                                         float *scores) {
    for_entries(a, heads, [&](u64 entry, u64 row, u64 column, u64 h) {
        const float sum = to_f32(destination[row * pitch_of(heads) + h]) + to_f32(source[column * pitch_of(heads) + h]);
        scores[entry * pitch_of(heads) + h] = sum > 0 ? sum : slope * sum;
    });
}

// Takes gradients of scores of GAT back through the leaky rectifier.
extern "C" __global__ void static_slopes(Pattern a, u64 heads, float slope, const X *destination, const Y *source,
                                         float *grads) {
    for_entries(a, heads, [&](u64 entry, u64 row, u64 column, u64 h) {
        const float sum = to_f32(destination[row * pitch_of(heads) + h]) + to_f32(source[column * pitch_of(heads) + h]);
        if (!(sum > 0)) grads[entry * pitch_of(heads) + h] *= slope;
    });
}

// Masks the numbers of entries in place and, where they are wanted, shares into `masked`. Eight heads of an entry share a
// draw.
extern "C" __global__ void mask_entries(Pattern a, u64 heads, EntryMask mask, float *entries, const float *shares,
                                        float *masked) {
    for_entries(a, (heads + 7) / 8, [&](u64 entry, u64 row, u64 column, u64 block) {
        const u32 name = mask.column_names ? mask.column_names[column] : (u32)column;
        const Words words = mask.draws.block(1 + block, (u64)(mask.first_row + (u32)row) << 32 | name);
#pragma unroll
        for (int half = 0; half < 8; half++) {
            const u64 h = block * 8 + half;
            if (h >= heads) break;
            const float factor = mask.draws.factor(mask.draws.stays(words, half));
            entries[entry * pitch_of(heads) + h] *= factor;
            if (masked) masked[entry * pitch_of(heads) + h] = shares[entry * pitch_of(heads) + h] * factor;
        }
    });
}

static const int TILES = 4;

// Gradients of what the scores of GATv2 add up: out[r, c] = vector[c] · Σ grads[e, h] · leaky'(own[r, c] + other[j, c]) over
// the entries of rows; over those of a transpose it is the gradient of the sources. X is the storage of `own`, Y of `other`.
//
// `vector_sums`, where they are wanted, get a row for each warp with its part of the gradient of the vector.
extern "C" __global__ void __launch_bounds__(256)
    dynamic_grads(Pattern a, u64 heads, u64 width, float slope, const float *grads, const X *own, const Y *other,
                  const V *vector, Z *out, float *partial, float *vector_sums) {
    const u64 first = (u64)blockIdx.y * TILES * 32 + threadIdx.x % 32, pitch = pitch_of(width);
    float vector_parts[TILES] = {};
    u32 head[TILES];
#pragma unroll
    for (int t = 0; t < TILES; t++) head[t] = (u32)((first + t * 32) % heads);
    for (u64 p = first_thread() / 32; p < a.n_pieces(); p += n_threads() / 32) {
        Piece piece;
        if (!piece_at(a, p, piece)) continue;
        float here[TILES], sums[TILES] = {};
#pragma unroll
        for (int t = 0; t < TILES; t++) here[t] = first + t * 32 < width ? to_f32(own[piece.row * pitch + first + t * 32]) : 0;
#pragma unroll 4
        for (u64 e = piece.begin; e < piece.end; e++) {
            const Y *there = other + a.indices[e] * pitch + first;
            const float *of_entry = grads + a.position(e) * pitch_of(heads);
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                if (first + t * 32 >= width) continue;
                const float sum = here[t] + to_f32(there[t * 32]), grad = of_entry[head[t]];
                const float of_sum = sum > 0 ? grad : slope * grad;
                sums[t] += of_sum;
                vector_parts[t] += of_sum * sum;
            }
        }
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            const u64 c = first + t * 32;
            if (c >= width) continue;
            if (piece.whole) out[piece.row * pitch + c] = from_f32<Z>(to_f32(vector[c]) * sums[t]);
            else partial[piece.segment * pitch + c] = sums[t];
        }
    }
    if (!vector_sums) return;
#pragma unroll
    for (int t = 0; t < TILES; t++)
        if (first + t * 32 < width) vector_sums[first_thread() / 32 * pitch + first + t * 32] = vector_parts[t];
}

// Adds up the segments of hubs, in their order.
extern "C" __global__ void dynamic_grads_hubs(Pattern a, u64 width, const V *vector, const float *partial, Z *out) {
    const u64 pitch = pitch_of(width);
    for (u64 i = first_thread(); i < a.n_hubs * width; i += n_threads()) {
        const u64 hub = i / width, c = i % width;
        float sum = 0;
        for (u64 segment = a.hub_first[hub]; segment < a.hub_first[hub + 1]; segment++) sum += partial[segment * pitch + c];
        out[a.hub_rows[hub] * pitch + c] = from_f32<Z>(to_f32(vector[c]) * sum);
    }
}
