// What reads the rows of two dense matrices at the entries of a pattern, for a power of two of heads; column k · heads + h
// belongs to head h. edges.cu and attention.cu have the same for other numbers of heads.
//
// GROUP lanes read a row of Y, VEC elements with each lane, so that a warp reads 32 / GROUP rows at once, LOADS times before
// it uses the first. X, Y, V and Z are the storage of what is read by rows and by columns, of the vector, and of what is
// written; types that a kernel does not name are left out.
// Constants: X=float Y=float V=float Z=float VEC=4 GROUP=32 HEADS=1
// Constants: X=float Y=float V=float Z=float VEC=4 GROUP=16 HEADS=8
// Constants: X=bf16 Y=bf16 V=float Z=float VEC=8 GROUP=16 HEADS=1
// Constants: X=bf16 Y=bf16 V=float Z=float VEC=8 GROUP=8 HEADS=8
// Constants: X=float Y=bf16 VEC=1 GROUP=1 HEADS=1
#include "common.cuh"
#include "elements.cuh"

// Heads that a lane has a part of; lanes from one to the next that has a part of the same; lanes that have a part of a head.
static const int OF_LANE = HEADS < VEC ? HEADS : VEC, APART = HEADS / OF_LANE, LANES = GROUP / APART;
// Rows that are on their way to a lane: few, because what they add up to has to fit registers, too, and many warps hide
// better how long that takes than many rows do. Measured, for dots and for gradients.
static const int LOADS = OF_LANE < 8 ? (GROUP < 4 ? GROUP : 4) : GROUP < 2 ? GROUP : 2;
static const int GRAD_LOADS = VEC < 8 ? (GROUP < 4 ? GROUP : 4) : GROUP < 2 ? GROUP : 2, GRAD_RESIDENT = VEC < 8 ? 3 : 4;
// Sums of a lane, and how many of them are left to it when lanes have added them up.
static const int SUMS = LOADS * OF_LANE, LEFT = SUMS < LANES ? 1 : SUMS / LANES;
// Lanes that are left with the same sum.
static const int SHARING = SUMS < LANES ? LANES / SUMS : 1;

// Adds up sums over lanes that are STRIDE, STRIDE / 2, ... APART apart. Each of two lanes keeps half of what both have while there is
// more than one, so that most are added up once.
template <int N, int STRIDE> __device__ __forceinline__ void fold(float *sums) {
    if constexpr (STRIDE >= APART && STRIDE > 0) {
        if constexpr (N == 1) {
            sums[0] += __shfl_xor_sync(~0u, sums[0], STRIDE);
        } else {
            const bool upper = threadIdx.x & STRIDE;
#pragma unroll
            for (int i = 0; i < N / 2; i++) {
                const float given = upper ? sums[i] : sums[i + N / 2], kept = upper ? sums[i + N / 2] : sums[i];
                sums[i] = kept + __shfl_xor_sync(~0u, given, STRIDE);
            }
        }
        fold<N == 1 ? 1 : N / 2, STRIDE / 2>(sums);
    }
}

// Elements of a row, zeros beyond its last column, where there may be anything.
template <class T> __device__ __forceinline__ Vector<T, VEC> elements(const T *row, u64 column, u64 width, bool wanted) {
    Vector<T, VEC> read = {};
    if (wanted && column < width) read = *reinterpret_cast<const Vector<T, VEC> *>(row + column);
    if (column + VEC > width) {
#pragma unroll
        for (int i = 0; i < VEC; i++) {
            if (column + i >= width) read.of[i] = {};
        }
    }
    return read;
}

// Σ_k term(x[row, c], y[column, c], vector[c]) for the entries of rows, times factors. Of rows that are wider than GROUP · VEC
// the same lanes read one part after the other.
template <bool HAS_VECTOR, class Term>
__device__ __forceinline__ void entry_dots(const Pattern &a, u64 width, const float *left, const float *right, const X *x,
                                           const Y *y, const V *vector, Z *out, Term term) {
    const u32 lane = threadIdx.x % 32, group = lane / GROUP, member = lane % GROUP, part = member / APART;
    const u64 pitch = pitch_of(width);
    for (u64 p = first_thread() / 32; p < a.n_pieces(); p += n_threads() / 32) {
        Piece piece;
        if (!piece_at(a, p, piece)) continue;
        const X *of_row = x + piece.row * pitch;
        const float row_factor = left ? left[piece.row] : 1.0f;
        for (u64 begin = piece.begin; begin < piece.end; begin += 32) {
            const u32 count = piece.end - begin < 32 ? (u32)(piece.end - begin) : 32;
            const u32 column = lane < count ? a.indices[begin + lane] : 0;
            const float factor = right ? row_factor * right[column] : row_factor;
            for (u32 first = 0; first < count; first += 32 / GROUP * LOADS) {
                const u32 own = first + group * LOADS;
                float sums[SUMS] = {};
                for (u64 panel = 0; panel < width; panel += GROUP * VEC) {
                    const u64 c = panel + member * VEC;
                    Vector<Y, VEC> there[LOADS];
#pragma unroll
                    for (int u = 0; u < LOADS; u++) {
                        const u64 of_entry = __shfl_sync(~0u, column, own + u);
                        there[u] = elements(y + of_entry * pitch, c, width, own + u < count);
                    }
                    const Vector<X, VEC> here = elements(of_row, c, width, true);
                    Vector<V, VEC> weights = {};
                    if (HAS_VECTOR) weights = elements(vector, c, width, true);
#pragma unroll
                    for (int u = 0; u < LOADS; u++)
#pragma unroll
                        for (int i = 0; i < VEC; i++)
                            sums[u * OF_LANE + i % OF_LANE] +=
                                term(to_f32(here.of[i]), to_f32(there[u].of[i]), to_f32(weights.of[i]));
                }
                fold<SUMS, GROUP / 2>(sums);
#pragma unroll
                for (int i = 0; i < LEFT; i++) {
                    const u32 sum = part * SUMS / LANES + i, entry = own + sum / OF_LANE;
                    const u32 head = member % APART * OF_LANE + sum % OF_LANE;
                    const float of_entry = __shfl_sync(~0u, factor, entry);
                    if (part % SHARING == 0 && entry < count) out[(begin + entry) * pitch_of(HEADS) + head] = from_f32<Z>(of_entry * sums[i]);
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(ABI_BLOCK, 4)
    sddmm(Pattern a, u64 heads, u64 depth, const float *left, const float *right, const X *x, const Y *y, Z *out) {
    entry_dots<false>(a, heads * depth, left, right, x, y, (const V *)nullptr, out, [](float x, float y, float) { return x * y; });
}

// Scores of GATv2.
extern "C" __global__ void __launch_bounds__(ABI_BLOCK, 4)
    dynamic_scores(Pattern a, u64 heads, u64 depth, float slope, const X *destination, const Y *source, const V *vector, Z *out) {
    const auto term = [=](float x, float y, float weight) { return weight * leaky(slope, x + y); };
    entry_dots<true>(a, heads * depth, nullptr, nullptr, destination, source, vector, out, term);
}

// Gradients of what the scores of GATv2 add up, as attention.cu defines them: blockIdx.y is the part of rows that a block works
// on.
extern "C" __global__ void __launch_bounds__(ABI_BLOCK, GRAD_RESIDENT)
    dynamic_grads(Pattern a, u64 heads, u64 width, float slope, const float *grads, const X *own, const Y *other,
                  const V *vector, Z *out, float *partial, float *vector_sums) {
    const u32 lane = threadIdx.x % 32, group = lane / GROUP, member = lane % GROUP;
    const u64 c = (u64)blockIdx.y * GROUP * VEC + member * VEC, pitch = pitch_of(width);
    const u32 first_head = (u32)(c % HEADS);
    float vector_parts[VEC] = {};
    for (u64 p = first_thread() / 32; p < a.n_pieces(); p += n_threads() / 32) {
        Piece piece;
        if (!piece_at(a, p, piece)) continue;
        const Vector<X, VEC> here = elements(own + piece.row * pitch, c, width, true);
        float sums[VEC] = {};
        for (u64 begin = piece.begin; begin < piece.end; begin += 32) {
            const u32 count = piece.end - begin < 32 ? (u32)(piece.end - begin) : 32;
            const u32 column = lane < count ? a.indices[begin + lane] : 0;
            const u64 position = lane < count ? a.position(begin + lane) : 0;
            for (u32 first = 0; first < count; first += 32 / GROUP * GRAD_LOADS) {
                Vector<Y, VEC> there[GRAD_LOADS];
                float of_heads[GRAD_LOADS][OF_LANE];
#pragma unroll
                for (int u = 0; u < GRAD_LOADS; u++) {
                    const u32 entry = first + group * GRAD_LOADS + u;
                    const u64 row = __shfl_sync(~0u, column, entry), at = __shfl_sync(~0u, position, entry);
                    there[u] = elements(other + row * pitch, c, width, entry < count);
                    load_vector<OF_LANE>(grads + at * pitch_of(HEADS) + first_head, of_heads[u]);
                }
#pragma unroll
                for (int u = 0; u < GRAD_LOADS; u++) {
                    // Of entries beyond the last there is the first gradient, which may be anything.
                    const bool is_entry = first + group * GRAD_LOADS + u < count;
#pragma unroll
                    for (int i = 0; i < VEC; i++) {
                        const float sum = to_f32(here.of[i]) + to_f32(there[u].of[i]);
                        const float of_sum = leaky_grad(slope, sum, is_entry ? of_heads[u][i % OF_LANE] : 0);
                        sums[i] += of_sum;
                        vector_parts[i] += of_sum * sum;
                    }
                }
            }
        }
        const Vector<V, VEC> weights = elements(vector, c, width, true);
#pragma unroll
        for (int i = 0; i < VEC; i++) {
#pragma unroll
            for (int lanes = 16; lanes >= GROUP; lanes >>= 1) sums[i] += __shfl_xor_sync(~0u, sums[i], lanes);
            if (piece.whole) sums[i] *= to_f32(weights.of[i]);
        }
        if (group > 0 || c >= width) continue;
        if (piece.whole) store_vector<VEC>(sums, out + piece.row * pitch + c);
        else store_vector<VEC>(sums, partial + piece.segment * pitch + c);
    }
    if (!vector_sums) return;
#pragma unroll
    for (int i = 0; i < VEC; i++)
#pragma unroll
        for (int lanes = 16; lanes >= GROUP; lanes >>= 1) vector_parts[i] += __shfl_xor_sync(~0u, vector_parts[i], lanes);
    if (group == 0 && c < width) store_vector<VEC>(vector_parts, vector_sums + first_thread() / 32 * pitch + c);
}
