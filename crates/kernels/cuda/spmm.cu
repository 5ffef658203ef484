// Sparse products: a team of lanes for each row or segment of a hub. X, Y, W and B are the storage of the operand, the result,
// the weights and the bias.
//
// A team of TEAM lanes reads VEC elements of a row of the operand with each lane: GROUP lanes read a row, TEAM / GROUP rows are
// read at once. Of rows that are wider, other blocks read the next GROUP * VEC elements, or, where PANELS is 1, the same lanes do, one panel
// after the other, so that what lies side by side is read so: that pays where rows have few entries and are seldom read again. Long rows want a whole warp; short ones
// share it, so that few lanes idle at their ends. WEIGHTS tells what entries are multiplied by: 0 nothing, 1 a number each, 2 one for each
// head, whose number HEADS is where it is a power of two of which a row that is read at once has all, and 0 otherwise.
// STARTS is 1 where sums start from those of blocks, MASKS where the result is masked.
// Constants: X=float Y=float W=float B=float VEC=4 GROUP=32 TEAM=32 WEIGHTS=0 HEADS=0 STARTS=0 MASKS=0 PANELS=0
// Constants: X=float Y=float W=float B=float VEC=4 GROUP=32 TEAM=32 WEIGHTS=0 HEADS=0 STARTS=0 MASKS=0 PANELS=1
// Constants: X=bf16 Y=bf16 W=bf16 B=float VEC=8 GROUP=8 TEAM=32 WEIGHTS=1 HEADS=0 STARTS=0 MASKS=0 PANELS=0
// Constants: X=bf16 Y=float W=bf16 B=bf16 VEC=4 GROUP=32 TEAM=32 WEIGHTS=2 HEADS=0 STARTS=0 MASKS=1 PANELS=0
// Constants: X=bf16 Y=bf16 W=float B=float VEC=8 GROUP=8 TEAM=32 WEIGHTS=2 HEADS=8 STARTS=0 MASKS=0 PANELS=0
// Constants: X=float Y=float W=float B=float VEC=4 GROUP=16 TEAM=32 WEIGHTS=2 HEADS=8 STARTS=0 MASKS=0 PANELS=0
// Constants: X=bf16 Y=bf16 W=float B=float VEC=8 GROUP=16 TEAM=32 WEIGHTS=0 HEADS=0 STARTS=1 MASKS=0 PANELS=0
// Constants: X=float Y=float W=float B=float VEC=4 GROUP=8 TEAM=8 WEIGHTS=0 HEADS=0 STARTS=1 MASKS=1 PANELS=0
#include "common.cuh"

static const int TEAMS = 32 / TEAM, AT_ONCE = TEAM / GROUP;
static const int BYTES = VEC * (int)sizeof(X);
// Ids that a lane holds: of narrow rows more are read at once.
static const int IDS = WEIGHTS == 0 && GROUP < ABI_SPMM_IDS ? ABI_SPMM_IDS / GROUP : 1;
// Rows that are on their way while none has arrived: enough to hide how long that takes, few enough to fit registers, with the
// weights of heads, too. Measured.
static const int LOADS_MAX = WEIGHTS == 0 ? GROUP < 16 ? 8 : 6 : HEADS == 0 || sizeof(X) == 2 ? 4 : 2;
static const int LOADS = LOADS_MAX < GROUP * IDS ? LOADS_MAX : GROUP * IDS;

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

// The matrix that is multiplied.
struct Operand {
    const X *data;
    // From row to row.
    u64 row_bytes;

    // A column of a row. Bytes of a row are few: one instruction multiplies and adds.
    __device__ __forceinline__ const X *at(u32 row, u64 column) const {
        return reinterpret_cast<const X *>(reinterpret_cast<const char *>(data + column) + (u64)row * (u32)row_bytes);
    }
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

// What blocks have left in slots. A block multiplies zeros, too, and zero times what is not finite is no number; so in the
// place of a sum that is no finite number comes that of all entries of the row.
struct TilePartials {
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

// What happens to sums on their way out.
struct EpilogueArgs {
    const float *left;
    const B *bias;
    Y *out;
    // Columns that this product makes, of all that the result has: out and bias begin with the first of them, and the mask
    // knows which it is.
    u64 width, of;
    // Elements from row to row of the sums of segments.
    u64 pitch;
    int accumulate;
    // One of common.cuh's.
    u32 activation;
    Mask mask;

    __device__ __forceinline__ Y *at(u64 row, u64 column) const { return out + row * pitch_of(of) + column; }
};

// Takes n sums of a row through what happens on their way out.
template <int n> __device__ __forceinline__ void finish(const EpilogueArgs &to, u64 row, u64 column, float *sums) {
    float values[n];
    if (to.left) {
        const float left = to.left[row];
#pragma unroll
        for (int i = 0; i < n; i++) sums[i] *= left;
    }
    if (to.accumulate) {
        load_vector<n>(to.at(row, column), values);
#pragma unroll
        for (int i = 0; i < n; i++) sums[i] += values[i];
    }
    if (to.bias) {
        load_vector<n>(to.bias + column, values);
#pragma unroll
        for (int i = 0; i < n; i++) sums[i] += values[i];
    }
    if (to.activation != IDENTITY) {
#pragma unroll
        for (int i = 0; i < n; i++) sums[i] = activated(to.activation, sums[i]);
    }
#if MASKS
    const u32 bits = to.mask.bits<n>(row * to.of + column);
#pragma unroll
    for (int i = 0; i < n; i++) sums[i] *= to.mask.draws.factor(bits >> i & 1);
#endif
    store_vector<n>(sums, to.at(row, column));
}

// Vectors begin where they may: as many divide what lies from row to row.
__device__ __forceinline__ void store(const EpilogueArgs &to, const Piece &piece, u64 column, float *sums, float *partial) {
    // Factors of rows and all that follows wait until the segments are added up.
    if (piece.whole) finish<VEC>(to, piece.row, column, sums);
    else store_vector<VEC>(sums, partial + piece.segment * to.pitch + column);
}

// What an entry is multiplied by, for all heads.
__device__ __forceinline__ float factor(const Pattern &a, u64 entry, u32 column, const float *values, const W *weights,
                                        const float *right) {
    float factor = right ? __ldg(right + column) : 1.0f;
    if (WEIGHTS == 1 && weights) factor *= to_f32(weights[a.position(entry)]);
    else if (WEIGHTS == 1 && values) factor *= values[entry];
    return factor;
}

// A member's share of a team's next ids: TEAM side by side, IDS times. They are not read again soon.
__device__ __forceinline__ void read_ids(const u32 *from, u32 member, u32 left, u32 *ids) {
#pragma unroll
    for (int i = 0; i < IDS; i++) ids[i] = member + i * TEAM < left ? __ldcs(from + member + i * TEAM) : 0;
}

#if HEADS != 0
// Weights of an entry that a lane reads at once.
static const int OF_LANE = HEADS < VEC ? HEADS : VEC;
#endif

// Threads of a block, few of which wait for the longest of their rows, and blocks that share a processor: with fewer, more rows
// are on their way to each lane; with more, to all lanes together. Measured.
static const int BLOCK = ABI_SPMM_BLOCK, RESIDENT = 16;

extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
    spmm(Pattern a, const float *values, const W *weights, u64 heads, const float *right, Operand x, TilePartials start, EpilogueArgs to,
         float *partial) {
    const int member = threadIdx.x % TEAM, row_of_lane = member / GROUP;
    const u64 of_panel = GROUP * VEC, begin = first_thread() / 32 * TEAMS, step = n_threads() / 32 * TEAMS;
    u64 panel = PANELS ? 0 : blockIdx.y * of_panel;
    const auto advance = [&](u64 &p) {
        panel += PANELS ? of_panel : 0;
        if (PANELS && panel < to.width) return;
        if (PANELS) panel = 0;
        p += step;
    };
    // A warp stays together: its teams go on until the last one is done.
    for (u64 p = begin; p < a.n_pieces(); advance(p)) {
        const u64 first = panel + member % GROUP * VEC;
        // Lanes beyond the last column take part in what a warp does together.
        const bool has_columns = first < to.width;
#if WEIGHTS == 2 && HEADS == 0
        u32 head[VEC];
#pragma unroll
        for (int i = 0; i < VEC; i++) head[i] = (u32)((first + i) % heads);
#elif WEIGHTS == 2
        const u32 first_head = (u32)(first % HEADS);
#endif
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
        // The entries that are left, and their ids.
        u32 left = (u32)(piece.end - piece.begin);
        const u32 *ids = a.indices + piece.begin;
        u32 columns[IDS];
        read_ids(ids, member, left, columns);
        float sums[VEC] = {};
#if STARTS
        bool finite = true;
        if (mine && piece.whole && row_of_lane == 0 && has_columns) {
            for (; slot < last_slot; slot++) {
                float of_slot[VEC];
                load_vector<VEC>(start.of(slot, piece.row) + first, of_slot);
#pragma unroll
                for (int i = 0; i < VEC; i++) sums[i] += of_slot[i];
            }
#pragma unroll
            for (int i = 0; i < VEC; i++) finite &= is_finite(sums[i]) || first + i >= to.width;
        }
        const u32 members = (TEAM == 32 ? ~0u : (1u << TEAM % 32) - 1) << threadIdx.x % 32 / TEAM * TEAM;
        if (__ballot_sync(~0u, !finite) & members) {
            const u64 begin = start.indptr[piece.row];
            left = (u32)(start.indptr[piece.row + 1] - begin);
            ids = start.indices + begin;
            read_ids(ids, member, left, columns);
#pragma unroll
            for (int i = 0; i < VEC; i++) sums[i] = 0;
        }
#endif
        [[maybe_unused]] u64 base = piece.begin;
        while (__any_sync(~0u, left > 0)) {
            const int count = left < TEAM * IDS ? (int)left : TEAM * IDS;
#if WEIGHTS != 0
            const float factors = member < count ? factor(a, base + member, columns[0], values, weights, right) : 1.0f;
#endif
#if WEIGHTS == 2
            const u64 positions = member < count ? a.position(base + member) : 0;
#endif
            left -= (u32)count, ids += TEAM * IDS, base += TEAM * IDS;
            // Asked for now, needed after all rows of this round.
            u32 next[IDS];
            read_ids(ids, member, left, next);
#pragma unroll
            for (int j = 0; j < GROUP * IDS; j += LOADS) {
                if (j > 0 && !__any_sync(~0u, j * AT_ONCE < count)) break;
                Raw raw[LOADS];
#pragma unroll
                for (int u = 0; u < LOADS; u++) {
                    if (j + u == GROUP * IDS) break;
                    const int entry = (j + u) * AT_ONCE + row_of_lane;
                    // AT_ONCE entries are in the same of the ids that lanes hold.
                    const u32 column = __shfl_sync(~0u, columns[(j + u) * AT_ONCE / TEAM], entry % TEAM, TEAM);
                    // Rows that are not named may hold what is no number: zero times it would not be zero.
                    read<BYTES>(entry < count && has_columns, x.at(column, first), raw[u].words);
                }
#pragma unroll
                for (int u = 0; u < LOADS; u++) {
                    if (j + u == GROUP * IDS) break;
                    [[maybe_unused]] const int entry = (j + u) * AT_ONCE + row_of_lane;
#if WEIGHTS != 0
                    const float factor = __shfl_sync(~0u, factors, entry, TEAM);
#endif
#if WEIGHTS == 2
                    const W *of_entry = weights + __shfl_sync(~0u, positions, entry, TEAM) * pitch_of(heads);
#endif
#if HEADS != 0
                    float of_heads[OF_LANE];
                    // Of what is no entry those of the first one, which may be anything.
                    load_vector<OF_LANE>(of_entry + first_head, of_heads);
#endif
#pragma unroll
                    for (int i = 0; i < VEC; i++) {
#if WEIGHTS == 0
                        sums[i] += raw[u].element(i);
#elif WEIGHTS == 1
                        if (entry < count) sums[i] += factor * raw[u].element(i);
#elif HEADS == 0
                        if (entry < count && has_columns)
                            sums[i] += factor * to_f32(of_entry[head[i]]) * raw[u].element(i);
#else
                        if (entry < count) sums[i] += factor * of_heads[i % OF_LANE] * raw[u].element(i);
#endif
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < IDS; i++) columns[i] = next[i];
        }
#pragma unroll
        for (int i = 0; i < VEC; i++)
#pragma unroll
            for (int lanes = TEAM / 2; lanes >= GROUP; lanes >>= 1) sums[i] += __shfl_xor_sync(~0u, sums[i], lanes);
        if (mine && row_of_lane == 0 && has_columns) store(to, piece, first, sums, partial);
    }
}

// Adds up the segments of hubs, in their order.
extern "C" __global__ void spmm_hubs(Pattern a, Operand x, TilePartials start, EpilogueArgs to, const float *partial) {
    for (u64 i = first_thread(); i < a.n_hubs * to.width; i += n_threads()) {
        const u64 hub = i / to.width, column = i % to.width, row = a.hub_rows[hub];
        float sum = 0;
#if STARTS
        for (u32 slot = start.first_slot(row); slot < start.last_slot(row); slot++) sum += to_f32(start.of(slot, row)[column]);
        if (!is_finite(sum)) {
            sum = 0;
            for (u64 entry = start.indptr[row]; entry < start.indptr[row + 1]; entry++) {
                sum += to_f32(*x.at(start.indices[entry], column));
            }
            finish<1>(to, row, column, &sum);
            continue;
        }
#endif
        for (u64 segment = a.hub_first[hub]; segment < a.hub_first[hub + 1]; segment++)
            sum += partial[segment * to.pitch + column];
        finish<1>(to, row, column, &sum);
    }
}
