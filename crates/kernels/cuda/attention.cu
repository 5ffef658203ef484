// Attention: what is its own of it; the rest are sparse products and operations on entries.
//
// X, Y and V are the storage of what rows and columns of the pattern bring and of the vector, Z of what is written, L of
// logarithms. Types that a kernel does not name are left out.
// Elements: X, Y, V, Z, L
#include "common.cuh"
#include "heads.cuh"
#include "elements.cuh"

// How shares are dropped, and what rows and columns are called in the matrix that the pattern is a piece of. Eight heads of
// an entry share a draw.
struct EntryMask {
    Draws draws;
    const u32 *column_names;
    u32 first_row;

    __device__ __forceinline__ float factor(u64 row, u32 column, u64 head) const {
        if (draws.threshold == 0) return draws.scale;
        const u32 name = column_names ? column_names[column] : column;
        const Words words = draws.block(1 + head / 8, (u64)(first_row + (u32)row) << 32 | name);
        return draws.factor(draws.stays(words, (u32)(head % 8)));
    }
};

// What the scores of GAT are made of; those of GATv2 are there already, and `source` is null.
struct Scores {
    const X *destination;
    const Y *source;
    float slope;

    // What the leaky rectifier takes to a score.
    __device__ __forceinline__ float sum(u64 heads, u64 row, u32 column, u64 head) const {
        return to_f32(destination[row * pitch_of(heads) + head]) + to_f32(source[column * pitch_of(heads) + head]);
    }
    __device__ __forceinline__ float rectified(float sum) const { return leaky(slope, sum); }
};

// The shares of a row's entries, some of them dropped; GATv2's are made of its scores in place.
template <bool BLOCK>
__device__ __forceinline__ void shares_of_row(const Team<BLOCK> &team, Span span, const Pattern &a, u64 n_heads, Scores scores,
                                              EntryMask mask, float *shares, L *log_sums) {
    const auto score = [=](u64 entry, u64 head) {
        float *at = shares + entry * pitch_of(n_heads) + head;
        if (scores.source) *at = scores.rectified(scores.sum(n_heads, span.row, a.indices[entry], head));
        return *at;
    };
    const auto factor = [=](u64 entry, u64 head) { return mask.factor(span.row, a.indices[entry], head); };
    const auto denominator = [=](u64 head, float log_sum) {
        log_sums[span.row * pitch_of(n_heads) + head] = from_f32<L>(log_sum);
    };
    softmax(team, span, n_heads, shares, score, factor, denominator);
}

extern "C" __global__ void attention_shares(Pattern a, u64 n_heads, Scores scores, EntryMask mask, float *shares, L *log_sums) {
    for_rows(a, [&](const Team<false> &team, Span span) {
        shares_of_row(team, span, a, n_heads, scores, mask, shares, log_sums);
    });
}

extern "C" __global__ void __launch_bounds__(ABI_LARGE_BLOCK)
    attention_shares_hubs(Pattern a, u64 n_heads, Scores scores, EntryMask mask, float *shares, L *log_sums) {
    for_hubs(a, [&](const Team<true> &team, Span span) {
        shares_of_row(team, span, a, n_heads, scores, mask, shares, log_sums);
    });
}

// Takes the gradients of a row's shares, `grads`, back to those of its scores, and of GAT through the leaky rectifier to the
// sums that it takes, whose own sum is the gradient of the destination. `shares` become what they were after dropping; GATv2's
// scores are there before.
template <bool BLOCK>
__device__ __forceinline__ void grads_of_row(const Team<BLOCK> &team, Span span, const Pattern &a, u64 n_heads, Scores scores,
                                             EntryMask mask, const L *log_sums, float *shares, float *grads, Z *of_destination) {
    for_heads<BLOCK>(n_heads, span.begin, [&](const Heads &heads, u64 head, u64 first, u64 step) {
        const u64 end = heads.works() ? span.end : 0;
        const float log_sum = heads.works() ? to_f32(log_sums[span.row * pitch_of(n_heads) + head]) : 0;
        float mean = 0;
        for (u64 e = first; e < end; e += step) {
            const u64 at = e * pitch_of(n_heads) + head;
            const u32 column = a.indices[e];
            const float sum = scores.source ? scores.sum(n_heads, span.row, column, head) : shares[at];
            const float share = expf((scores.source ? scores.rectified(sum) : sum) - log_sum);
            mean += share * mask.factor(span.row, column, head) * grads[at];
            // Shares have no sign: theirs tells on which side of the rectifier the sum is.
            shares[at] = scores.source && !(sum > 0) ? -share : share;
        }
        mean = team.sum(heads, mean);
        float total = 0;
        for (u64 e = first; e < end; e += step) {
            const u64 at = e * pitch_of(n_heads) + head;
            const float signed_share = shares[at], share = fabsf(signed_share);
            const float factor = mask.factor(span.row, a.indices[e], head);
            const float of_score = share * (factor * grads[at] - mean);
            const float of_sum = __float_as_int(signed_share) < 0 ? scores.slope * of_score : of_score;
            grads[at] = of_sum;
            shares[at] = share * factor;
            total += of_sum;
        }
        if (!of_destination) return;
        total = team.sum(heads, total);
        if (heads.leads() && team.warp() == 0) of_destination[span.row * pitch_of(n_heads) + head] = from_f32<Z>(total);
    });
}

extern "C" __global__ void attention_grads(Pattern a, u64 n_heads, Scores scores, EntryMask mask, const L *log_sums,
                                           float *shares, float *grads, Z *of_destination) {
    for_rows(a, [&](const Team<false> &team, Span span) {
        grads_of_row(team, span, a, n_heads, scores, mask, log_sums, shares, grads, of_destination);
    });
}

extern "C" __global__ void __launch_bounds__(ABI_LARGE_BLOCK)
    attention_grads_hubs(Pattern a, u64 n_heads, Scores scores, EntryMask mask, const L *log_sums, float *shares, float *grads,
                         Z *of_destination) {
    for_hubs(a, [&](const Team<true> &team, Span span) {
        grads_of_row(team, span, a, n_heads, scores, mask, log_sums, shares, grads, of_destination);
    });
}

static const int TILES = ABI_WARP_COLUMNS / 32;

// Gradients of what the scores of GATv2 add up: out[r, c] = vector[c] · Σ grads[e, h] · leaky'(own[r, c] + other[j, c]) over
// the entries of rows; over those of a transpose it is the gradient of the sources. X is the storage of `own`, Y of `other`.
//
// `vector_sums`, where they are wanted, get a row for each warp with its part of the gradient of the vector.
extern "C" __global__ void __launch_bounds__(ABI_BLOCK)
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
                const float sum = here[t] + to_f32(there[t * 32]), of_sum = leaky_grad(slope, sum, of_entry[head[t]]);
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
