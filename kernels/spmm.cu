// Sparse products: a team of lanes for each row or segment of a hub. X, Y, W and B are the storage of the operand, the result,
// the weights and the bias.
//
// A team of TEAM lanes reads VEC elements of a row of the operand with each lane: GROUP lanes read a row, TEAM / GROUP rows are
// read at once, and lanes hold TILES such vectors of wide rows. Long rows want a whole warp; short ones share it, so that few
// lanes idle at their ends. WEIGHTS tells what entries are multiplied by: 0 nothing, 1 a number each, 2 one for each head.
// STARTS is 1 where sums start from those of blocks. MARKS is 1 where columns are marked, and 2 where rows of columns with a
// mark are to stay in the cache rather than others: what is named often is read again soon.
// Constants: X=float Y=float W=float B=float VEC=4 GROUP=32 TILES=1 TEAM=32 WEIGHTS=0 STARTS=0 MARKS=0
// Constants: X=bf16 Y=bf16 W=bf16 B=float VEC=8 GROUP=8 TILES=1 TEAM=32 WEIGHTS=1 STARTS=0 MARKS=0
// Constants: X=bf16 Y=float W=bf16 B=bf16 VEC=4 GROUP=32 TILES=2 TEAM=32 WEIGHTS=2 STARTS=0 MARKS=0
// Constants: X=bf16 Y=bf16 W=float B=float VEC=8 GROUP=16 TILES=1 TEAM=32 WEIGHTS=0 STARTS=1 MARKS=2
// Constants: X=float Y=float W=float B=float VEC=4 GROUP=8 TILES=1 TEAM=8 WEIGHTS=0 STARTS=1 MARKS=1
#include "common.cuh"

static const int TEAMS = 32 / TEAM, AT_ONCE = TEAM / GROUP;
static const int BYTES = VEC * (int)sizeof(X);
// Ids that a lane holds: of narrow rows more are read at once.
static const int IDS = WEIGHTS == 0 && GROUP < 8 ? 8 / GROUP : 1;
// Rows that are on their way while none has arrived: enough to hide how long that takes, few enough to fit registers.
static const int LOADS = 8 / TILES < GROUP * IDS ? 8 / TILES : GROUP * IDS;

// Reads bytes, or zeros where nothing is wanted: a load that waits for no branch.
template <int bytes> __device__ __forceinline__ void read(bool wanted, const void *from, u32 *words);
template <> __device__ __forceinline__ void read<16>(bool wanted, const void *from, u32 *words) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\nmov.u32 %0, 0;\nmov.u32 %1, 0;\nmov.u32 %2, 0;\nmov.u32 %3, 0;\n"
                 "@p ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
                 : "=&r"(words[0]), "=&r"(words[1]), "=&r"(words[2]), "=&r"(words[3])
                 : "l"(from), "r"((int)wanted));
}
template <> __device__ __forceinline__ void read<8>(bool wanted, const void *from, u32 *words) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %3, 0;\nmov.u32 %0, 0;\nmov.u32 %1, 0;\n"
                 "@p ld.global.nc.v2.u32 {%0, %1}, [%2];\n}"
                 : "=&r"(words[0]), "=&r"(words[1])
                 : "l"(from), "r"((int)wanted));
}
template <> __device__ __forceinline__ void read<4>(bool wanted, const void *from, u32 *words) {
    words[0] = wanted ? __ldg((const u32 *)from) : 0;
}
template <> __device__ __forceinline__ void read<2>(bool wanted, const void *from, u32 *words) {
    words[0] = wanted ? __ldg((const unsigned short *)from) : 0;
}

// How long the cache keeps what is read.
__device__ __forceinline__ u64 keep_long() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
__device__ __forceinline__ u64 keep_briefly() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// The same as `read`, with a policy; narrow loads do without.
template <int bytes> __device__ __forceinline__ void read_by(u64, bool wanted, const void *from, u32 *words) {
    read<bytes>(wanted, from, words);
}
template <> __device__ __forceinline__ void read_by<16>(u64 policy, bool wanted, const void *from, u32 *words) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\nmov.u32 %0, 0;\nmov.u32 %1, 0;\nmov.u32 %2, 0;\nmov.u32 %3, 0;\n"
                 "@p ld.global.nc.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %6;\n}"
                 : "=&r"(words[0]), "=&r"(words[1]), "=&r"(words[2]), "=&r"(words[3])
                 : "l"(from), "r"((int)wanted), "l"(policy));
}
template <> __device__ __forceinline__ void read_by<8>(u64 policy, bool wanted, const void *from, u32 *words) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %3, 0;\nmov.u32 %0, 0;\nmov.u32 %1, 0;\n"
                 "@p ld.global.nc.L2::cache_hint.v2.u32 {%0, %1}, [%2], %4;\n}"
                 : "=&r"(words[0]), "=&r"(words[1])
                 : "l"(from), "r"((int)wanted), "l"(policy));
}

// The matrix that is multiplied.
struct Operand {
    const X *data;
    // Elements from row to row.
    u64 pitch;
};

// VEC elements as they come from memory.
struct Raw {
    u32 words[(BYTES + 3) / 4];

    __device__ __forceinline__ float element(int i) const {
        if (sizeof(X) == 4) return __uint_as_float(words[i]);
        const u32 word = words[i / 2];
        return __uint_as_float(i % 2 ? word & 0xffff0000u : word << 16);
    }
};

struct alignas(sizeof(Y) * VEC < 16 ? sizeof(Y) * VEC : 16) Row {
    Y at[VEC];
};

// What blocks have left in slots. A block multiplies zeros, too, and zero times what is not finite is no number; so in the
// place of a sum that is no finite number comes that of all entries of the row.
struct Start {
    // Of each window the first slot, and one more.
    const u32 *slots;
    const Y *sums;
    // Elements from row to row of the slots.
    u64 pitch;
    // All entries, those of blocks among them.
    const u64 *indptr;
    const u32 *indices;

    __device__ __forceinline__ u32 first_slot(u64 row) const { return slots[row / WINDOW]; }
    __device__ __forceinline__ u32 last_slot(u64 row) const { return slots[row / WINDOW + 1]; }
    __device__ __forceinline__ const Y *of(u32 slot, u64 row) const {
        return sums + ((u64)slot * WINDOW + row % WINDOW) * pitch;
    }
};

// Adds what a lane holds of a row of a slot, from column `first` on.
__device__ __forceinline__ void add_start(const Start &start, u32 slot, u64 row, u64 first, u64 width,
                                          float (&sums)[TILES][VEC]) {
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        const u64 column = first + t * GROUP * VEC;
        if (column >= width) continue;
        const Row of_slot = *reinterpret_cast<const Row *>(start.of(slot, row) + column);
#pragma unroll
        for (int i = 0; i < VEC; i++) sums[t][i] += to_f32(of_slot.at[i]);
    }
}

// What happens to sums on their way out.
struct Out {
    const float *left;
    const B *bias;
    Y *out;
    u64 width;
    // Elements from row to row of the sums of segments.
    u64 pitch;
    int accumulate;
    // 0 identity, 1 rectifier, 2 exponential linear unit.
    int activation;

    __device__ __forceinline__ Y *at(u64 row, u64 column) const { return out + row * pitch_of(width) + column; }
};

__device__ __forceinline__ float finished(const Out &to, u64 row, u64 column, float sum) {
    if (to.left) sum *= to.left[row];
    if (to.accumulate) sum += to_f32(*to.at(row, column));
    if (to.bias) sum += to_f32(to.bias[column]);
    // Not `fmaxf`, which would turn what is no number into zero and hide a diverging model.
    if (to.activation == 1) return sum < 0 ? 0 : sum;
    if (to.activation == 2) return sum < 0 ? expm1f(sum) : sum;
    return sum;
}

__device__ __forceinline__ void store(const Out &to, const Piece &piece, u64 column, const float *sums,
                                      float *partial) {
    if (!piece.whole) {
        // Factors of rows and all that follows wait until the segments are added up.
#pragma unroll
        for (int i = 0; i < VEC; i++) partial[piece.segment * to.pitch + column + i] = sums[i];
        return;
    }
    Y *out = to.at(piece.row, column);
    if (pitch_of(to.width) % VEC == 0) {
        Row row;
#pragma unroll
        for (int i = 0; i < VEC; i++) row.at[i] = from_f32<Y>(finished(to, piece.row, column + i, sums[i]));
        *(Row *)out = row;
        return;
    }
#pragma unroll
    for (int i = 0; i < VEC; i++) {
        if (column + i < to.width) out[i] = from_f32<Y>(finished(to, piece.row, column + i, sums[i]));
    }
}

// What an entry is multiplied by, for all heads.
__device__ __forceinline__ float factor(const Pattern &a, u64 entry, u32 column, const float *values, const W *weights,
                                        const float *right) {
    float factor = right ? __ldg(right + column) : 1.0f;
    if (WEIGHTS == 1 && weights) factor *= to_f32(weights[a.position(entry)]);
    else if (WEIGHTS == 1 && values) factor *= values[entry];
    return factor;
}

// A team's next ids: TEAM side by side, IDS times. They are not read again soon.
__device__ __forceinline__ void read_ids(const u32 *indices, u64 from, u64 end, u32 *ids) {
#pragma unroll
    for (int i = 0; i < IDS; i++) ids[i] = from + i * TEAM < end ? __ldcs(indices + from + i * TEAM) : 0;
}

extern "C" __global__ void __launch_bounds__(256, TILES == 1 && WEIGHTS == 0 ? 4 : 2) spmm(Pattern a, const float *values, const W *weights, u64 heads,
                                                       const float *right, Operand x, Start start, Out to, float *partial,
                                                       [[maybe_unused]] u32 mark) {
#if MARKS == 2
    const u64 often = keep_long(), seldom = keep_briefly();
#endif
    const int member = threadIdx.x % TEAM, row_of_lane = member / GROUP;
    const u64 first = ((u64)blockIdx.y * TILES * GROUP + member % GROUP) * VEC, step = GROUP * VEC;
    const u64 width = to.width;
#if WEIGHTS == 2
    u32 head[TILES][VEC];
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int i = 0; i < VEC; i++) head[t][i] = (u32)((first + t * step + i) % heads);
#endif
    // A warp stays together: its teams go on until the last one is done.
    for (u64 p = first_thread() / 32 * TEAMS; p < a.n_pieces(); p += n_threads() / 32 * TEAMS) {
        const u64 own = p + threadIdx.x % 32 / TEAM;
#if STARTS
        // Of a row, which follow all segments: asked for with its entries.
        const bool row_is_known = own >= a.n_segments && own < a.n_pieces();
        u32 slot = row_is_known ? start.first_slot(own - a.n_segments) : 0;
        const u32 last_slot = row_is_known ? start.last_slot(own - a.n_segments) : 0;
#endif
        Piece piece;
        const bool mine = own < a.n_pieces() && piece_at(a, own, piece);
        if (!mine) piece.begin = piece.end = 0;
        const u32 *indices = a.indices;
        u32 columns[IDS];
        read_ids(indices, piece.begin + member, piece.end, columns);
        float sums[TILES][VEC] = {};
#if STARTS
        bool finite = true;
        if (mine && piece.whole && row_of_lane == 0) {
            for (; slot < last_slot; slot++) add_start(start, slot, piece.row, first, width, sums);
#pragma unroll
            for (int t = 0; t < TILES; t++)
#pragma unroll
                for (int i = 0; i < VEC; i++) finite &= is_finite(sums[t][i]) || first + t * step + i >= width;
        }
        const u32 members = (TEAM == 32 ? ~0u : (1u << TEAM % 32) - 1) << threadIdx.x % 32 / TEAM * TEAM;
        if (__ballot_sync(~0u, !finite) & members) {
            indices = start.indices, piece.begin = start.indptr[piece.row], piece.end = start.indptr[piece.row + 1];
            read_ids(indices, piece.begin + member, piece.end, columns);
#pragma unroll
            for (int t = 0; t < TILES; t++)
#pragma unroll
                for (int i = 0; i < VEC; i++) sums[t][i] = 0;
        }
#endif
        u64 base = piece.begin;
        while (__any_sync(~0u, base < piece.end)) {
            const u64 left = base < piece.end ? piece.end - base : 0;
            const int count = left < TEAM * IDS ? (int)left : TEAM * IDS;
            [[maybe_unused]] float factors = 1.0f;
            if (WEIGHTS != 0 && member < count) factors = factor(a, base + member, columns[0], values, weights, right);
#if WEIGHTS == 2
            u64 positions = member < count ? a.position(base + member) : 0;
#endif
            // Asked for now, needed after all rows of this round.
            u32 next[IDS];
            read_ids(indices, base + TEAM * IDS + member, piece.end, next);
#pragma unroll
            for (int j = 0; j < GROUP * IDS; j += LOADS) {
                if (j > 0 && !__any_sync(~0u, j * AT_ONCE < count)) break;
                Raw raw[LOADS][TILES];
#pragma unroll
                for (int u = 0; u < LOADS; u++) {
                    const int entry = (j + u) * AT_ONCE + row_of_lane;
                    // AT_ONCE entries are in the same of the ids that lanes hold.
                    const u32 name = __shfl_sync(~0u, columns[(j + u) * AT_ONCE / TEAM], entry % TEAM, TEAM);
                    const u64 column = MARKS ? name & UNMARKED : name;
#pragma unroll
                    for (int t = 0; t < TILES; t++) {
                        // Rows that are not named may hold what is no number: zero times it would not be zero.
                        const bool wanted = entry < count && first + t * step < width;
                        const X *from = x.data + column * x.pitch + first + t * step;
#if MARKS == 2
                        read_by<BYTES>(name >> MARK_SHIFT >= mark ? often : seldom, wanted, from, raw[u][t].words);
#else
                        read<BYTES>(wanted, from, raw[u][t].words);
#endif
                    }
                }
#pragma unroll
                for (int u = 0; u < LOADS; u++) {
                    [[maybe_unused]] const int entry = (j + u) * AT_ONCE + row_of_lane;
#if WEIGHTS != 0
                    const float factor = __shfl_sync(~0u, factors, entry, TEAM);
#endif
#if WEIGHTS == 2
                    const W *of_entry = weights + __shfl_sync(~0u, positions, entry, TEAM) * pitch_of(heads);
#endif
#pragma unroll
                    for (int t = 0; t < TILES; t++)
#pragma unroll
                        for (int i = 0; i < VEC; i++) {
#if WEIGHTS == 0
                            sums[t][i] += raw[u][t].element(i);
#elif WEIGHTS == 1
                            if (entry < count) sums[t][i] += factor * raw[u][t].element(i);
#else
                            if (entry < count && first + t * step < width)
                                sums[t][i] += factor * to_f32(of_entry[head[t][i]]) * raw[u][t].element(i);
#endif
                        }
                }
            }
#pragma unroll
            for (int i = 0; i < IDS; i++) columns[i] = next[i];
            base += TEAM * IDS;
        }
#pragma unroll
        for (int t = 0; t < TILES; t++) {
#pragma unroll
            for (int i = 0; i < VEC; i++)
#pragma unroll
                for (int lanes = TEAM / 2; lanes >= GROUP; lanes >>= 1)
                    sums[t][i] += __shfl_xor_sync(~0u, sums[t][i], lanes);
            if (mine && row_of_lane == 0 && first + t * step < width)
                store(to, piece, first + t * step, sums[t], partial);
        }
    }
}

// Adds up the segments of hubs, in their order.
extern "C" __global__ void spmm_hubs(Pattern a, Operand x, Start start, Out to, const float *partial) {
    for (u64 i = first_thread(); i < a.n_hubs * to.width; i += n_threads()) {
        const u64 hub = i / to.width, column = i % to.width, row = a.hub_rows[hub];
        float sum = 0;
#if STARTS
        for (u32 slot = start.first_slot(row); slot < start.last_slot(row); slot++) sum += to_f32(start.of(slot, row)[column]);
        if (!is_finite(sum)) {
            sum = 0;
            for (u64 entry = start.indptr[row]; entry < start.indptr[row + 1]; entry++) {
                sum += to_f32(x.data[start.indices[entry] * x.pitch + column]);
            }
            *to.at(row, column) = from_f32<Y>(finished(to, row, column, sum));
            continue;
        }
#endif
        for (u64 segment = a.hub_first[hub]; segment < a.hub_first[hub + 1]; segment++)
            sum += partial[segment * to.pitch + column];
        *to.at(row, column) = from_f32<Y>(finished(to, row, column, sum));
    }
}
