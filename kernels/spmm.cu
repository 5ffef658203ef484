// Sparse products: a warp for each row or segment of a hub. X, Y, W and B are the storage of the operand, the result, the
// weights and the bias.
//
// A warp reads VEC elements of a row with each lane: GROUP lanes read a row, 32 / GROUP rows are read at once, and lanes hold
// TILES such vectors of wide rows. WEIGHTS tells what entries are multiplied by: 0 nothing, 1 a number each, 2 one for each
// head.
#include "common.cuh"

static const int AT_ONCE = 32 / GROUP;
// Rows that are on their way while none has arrived: enough to hide how long that takes, few enough to fit registers.
static const int LOADS = 8 / TILES < GROUP ? 8 / TILES : GROUP;
static const int BYTES = VEC * (int)sizeof(X);

// VEC elements as they come from memory.
struct Raw {
    u32 words[(BYTES + 3) / 4];
};

template <int bytes> __device__ __forceinline__ void read(const void *from, u32 *words);
template <> __device__ __forceinline__ void read<16>(const void *from, u32 *words) {
    uint4 raw = __ldg((const uint4 *)from);
    words[0] = raw.x, words[1] = raw.y, words[2] = raw.z, words[3] = raw.w;
}
template <> __device__ __forceinline__ void read<8>(const void *from, u32 *words) {
    uint2 raw = __ldg((const uint2 *)from);
    words[0] = raw.x, words[1] = raw.y;
}
template <> __device__ __forceinline__ void read<4>(const void *from, u32 *words) { words[0] = __ldg((const u32 *)from); }
template <> __device__ __forceinline__ void read<2>(const void *from, u32 *words) {
    words[0] = __ldg((const unsigned short *)from);
}

__device__ __forceinline__ float element(const Raw &raw, int i) {
    if (sizeof(X) == 4) return __uint_as_float(raw.words[i]);
    u32 word = raw.words[i / 2];
    return __uint_as_float(i % 2 ? word & 0xffff0000u : word << 16);
}

// What happens to sums on their way out.
struct Out {
    const float *left;
    const B *bias;
    Y *out;
    u64 width;
    int accumulate;
    // 0 identity, 1 rectifier, 2 exponential linear unit.
    int activation;
};

__device__ __forceinline__ float finished(const Out &to, u64 row, u64 column, float sum) {
    if (to.left) sum *= to.left[row];
    if (to.accumulate) sum += to_f32(to.out[row * to.width + column]);
    if (to.bias) sum += to_f32(to.bias[column]);
    // Not `fmaxf`, which would turn what is no number into zero and hide a diverging model.
    if (to.activation == 1) return sum < 0 ? 0 : sum;
    if (to.activation == 2) return sum < 0 ? expm1f(sum) : sum;
    return sum;
}

struct alignas(sizeof(Y) * VEC) Row {
    Y at[VEC];
};

__device__ __forceinline__ void store(const Out &to, const Piece &piece, u64 column, const float *sums, float *partial) {
    if (!piece.whole) {
        // Factors of rows and all that follows wait until the segments are added up.
#pragma unroll
        for (int i = 0; i < VEC; i++) partial[piece.segment * to.width + column + i] = sums[i];
        return;
    }
    Row row;
#pragma unroll
    for (int i = 0; i < VEC; i++) row.at[i] = from_f32<Y>(finished(to, piece.row, column + i, sums[i]));
    *(Row *)(to.out + piece.row * to.width + column) = row;
}

// What an entry is multiplied by, for all heads.
__device__ __forceinline__ float factor(const Pattern &a, u64 entry, u32 column, const float *values, const W *weights,
                                        const float *right) {
    float factor = right ? __ldg(right + column) : 1.0f;
    if (WEIGHTS == 1 && weights) factor *= to_f32(weights[a.position(entry)]);
    else if (WEIGHTS == 1 && values) factor *= values[entry];
    return factor;
}

extern "C" __global__ void __launch_bounds__(256)
    spmm(Pattern a, const float *values, const W *weights, u64 heads, const float *right, const X *x, Out to, float *partial) {
    const int lane = threadIdx.x % 32, row_of_lane = lane / GROUP;
    const u64 first = ((u64)blockIdx.y * TILES * GROUP + lane % GROUP) * VEC, step = GROUP * VEC;
    const u64 width = to.width;
#if WEIGHTS == 2
    u32 head[TILES][VEC];
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int i = 0; i < VEC; i++) head[t][i] = (u32)((first + t * step + i) % heads);
#endif
    for (u64 p = first_thread() / 32; p < a.n_pieces(); p += n_threads() / 32) {
        Piece piece;
        if (!piece_at(a, p, piece)) continue;
        float sums[TILES][VEC] = {};
        u32 columns = piece.begin + lane < piece.end ? a.indices[piece.begin + lane] : 0;
        for (u64 base = piece.begin; base < piece.end; base += 32) {
            const int count = piece.end - base < 32 ? (int)(piece.end - base) : 32;
            [[maybe_unused]] float factors = 1.0f;
            if (WEIGHTS != 0 && lane < count) factors = factor(a, base + lane, columns, values, weights, right);
#if WEIGHTS == 2
            u64 positions = lane < count ? a.position(base + lane) : 0;
#endif
            // Asked for now, needed after all rows of this round.
            const u32 next = base + 32 + lane < piece.end ? a.indices[base + 32 + lane] : 0;
            for (int j = 0; j < GROUP && j * AT_ONCE < count; j += LOADS) {
                Raw raw[LOADS][TILES];
#pragma unroll
                for (int u = 0; u < LOADS; u++) {
                    const int entry = (j + u) * AT_ONCE + row_of_lane;
                    const u64 column = __shfl_sync(~0u, columns, entry);
#pragma unroll
                    for (int t = 0; t < TILES; t++) {
                        raw[u][t] = Raw{};
                        // Rows that are not named may hold what is no number: zero times it would not be zero.
                        if (entry < count && first + t * step < width)
                            read<BYTES>(x + column * width + first + t * step, raw[u][t].words);
                    }
                }
#pragma unroll
                for (int u = 0; u < LOADS; u++) {
                    [[maybe_unused]] const int entry = (j + u) * AT_ONCE + row_of_lane;
#if WEIGHTS != 0
                    const float factor = __shfl_sync(~0u, factors, entry);
#endif
#if WEIGHTS == 2
                    const W *of_entry = weights + __shfl_sync(~0u, positions, entry) * heads;
#endif
#pragma unroll
                    for (int t = 0; t < TILES; t++)
#pragma unroll
                        for (int i = 0; i < VEC; i++) {
#if WEIGHTS == 0
                            sums[t][i] += element(raw[u][t], i);
#elif WEIGHTS == 1
                            if (entry < count) sums[t][i] += factor * element(raw[u][t], i);
#else
                            if (entry < count && first + t * step < width)
                                sums[t][i] += factor * to_f32(of_entry[head[t][i]]) * element(raw[u][t], i);
#endif
                        }
                }
            }
            columns = next;
        }
#pragma unroll
        for (int t = 0; t < TILES; t++) {
#pragma unroll
            for (int i = 0; i < VEC; i++)
#pragma unroll
                for (int lanes = 16; lanes >= GROUP; lanes >>= 1)
                    sums[t][i] += __shfl_xor_sync(~0u, sums[t][i], lanes);
            if (row_of_lane == 0 && first + t * step < width) store(to, piece, first + t * step, sums[t], partial);
        }
    }
}

// Adds up the segments of hubs, in their order.
extern "C" __global__ void spmm_hubs(Pattern a, Out to, const float *partial) {
    for (u64 i = first_thread(); i < a.n_hubs * to.width; i += n_threads()) {
        const u64 hub = i / to.width, column = i % to.width, row = a.hub_rows[hub];
        float sum = 0;
        for (u64 segment = a.hub_first[hub]; segment < a.hub_first[hub + 1]; segment++)
            sum += partial[segment * to.width + column];
        to.out[row * to.width + column] = from_f32<Y>(finished(to, row, column, sum));
    }
}
