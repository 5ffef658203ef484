// What every kernel uses: numbers in storage, sums of a warp, draws by counter. No headers, so that the run-time compiler
// needs none.
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;

// The upper half of an f32.
struct bf16 {
    unsigned short bits;
};

__device__ __forceinline__ float to_f32(float x) { return x; }
__device__ __forceinline__ float to_f32(bf16 x) { return __uint_as_float((u32)x.bits << 16); }

template <class T> __device__ __forceinline__ T from_f32(float x);
template <> __device__ __forceinline__ float from_f32<float>(float x) { return x; }
// To nearest, ties to even; what is no number stays none.
template <> __device__ __forceinline__ bf16 from_f32<bf16>(float x) {
    bf16 rounded;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded.bits) : "f"(x));
    return rounded;
}

// Two at once, the first in the lower half.
__device__ __forceinline__ u32 bf16_pair(float first, float second) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

// Half precision of IEEE 754: 11 significant bits, of numbers below 65520.
__device__ __forceinline__ unsigned short to_f16(float x) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
__device__ __forceinline__ float from_f16(unsigned short bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes >>= 1) x += __shfl_xor_sync(~0u, x, lanes);
    return x;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes >>= 1) x = fmaxf(x, __shfl_xor_sync(~0u, x, lanes));
    return x;
}

// A sparse pattern by rows. Rows of more than SEGMENT entries (hubs) are cut into segments, so that no warp works long after
// the others.
static const u64 SEGMENT = ABI_SEGMENT;

struct Pattern {
    const u64 *indptr;
    const u32 *indices;
    // Of a transpose: the place of each entry in the matrix that it is the transpose of.
    const u64 *positions;
    // The hubs in ascending order, the first segment of each and one more, the hub (by its number) of each segment.
    const u32 *hub_rows;
    const u64 *hub_first;
    const u32 *hub_owner;
    u64 n_rows;
    u64 n_hubs;
    u64 n_segments;

    __device__ __forceinline__ u64 n_pieces() const { return n_segments + n_rows; }
    __device__ __forceinline__ u64 position(u64 entry) const { return positions ? positions[entry] : entry; }
};

// A row, or a segment of a hub.
struct Piece {
    u64 row, begin, end, segment;
    bool whole;
};

// Segments come first, because they are the longest. False for a hub as a row: its segments stand for it. Of a pattern that was
// made on the device hubs are known only where rows are of all neighbors of seeds; else rows are whole however long.
__device__ __forceinline__ bool piece_at(const Pattern &a, u64 i, Piece &piece) {
    piece.whole = i >= a.n_segments;
    if (piece.whole) {
        piece.row = i - a.n_segments;
        piece.begin = a.indptr[piece.row];
        piece.end = a.indptr[piece.row + 1];
        return a.n_hubs == 0 || piece.end - piece.begin <= SEGMENT;
    }
    u32 hub = a.hub_owner[i];
    piece.segment = i;
    piece.row = a.hub_rows[hub];
    piece.begin = a.indptr[piece.row] + (i - a.hub_first[hub]) * SEGMENT;
    u64 end = a.indptr[piece.row + 1];
    piece.end = piece.begin + SEGMENT < end ? piece.begin + SEGMENT : end;
    return true;
}

// Blocks of a pattern that are dense enough are multiplied apart: see tiles.cu. Their sums stand in slots of WINDOW rows, stored
// like the result that they go into, the slots of a window side by side.
static const u32 WINDOW = ABI_WINDOW;

// Blocks first .. last of a window, whose sums go to a slot.
struct BlockSpan {
    u32 slot, first, last, padding;
};

// Two places of a block, `q` of 16 of a word, as two numbers of 16 bits each: two, where there is an entry, or zero. The
// exponent's top bit alone is 2, in bf16 as in f16.
__device__ __forceinline__ u32 twos(u32 word, u32 q) { return (q <= 14 ? word << (14 - q) : word >> 1) & 0x40004000u; }

__device__ __forceinline__ u32 shared_address(const void *of) { return (u32)__cvta_generic_to_shared(of); }

__device__ __forceinline__ bool is_finite(float x) { return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u; }

// Elements from row to row of a matrix of so many columns: rows begin where the widest loads may, but for the narrowest.
// What lies between the last column and the next row is anything. crates/kernels/src/matrix.rs says the same.
__device__ __forceinline__ u64 pitch_of(u64 cols) { return cols < ABI_WIDE ? cols : (cols + (ABI_WIDE - 1)) / ABI_WIDE * ABI_WIDE; }

// The first piece of work of a thread, and how far it is to the next: work is 64-bit, grids are not.
__device__ __forceinline__ u64 first_thread() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ u64 n_threads() { return (u64)gridDim.x * blockDim.x; }

// The sum over a block of at most 1024 threads, in thread 0: a tree whose shape is that of the block.
template <class T> __device__ __forceinline__ T block_sum(T x) {
    __shared__ T of_warps[32];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes >>= 1) x += __shfl_xor_sync(~0u, x, lanes);
    if (lane == 0) of_warps[warp] = x;
    __syncthreads();
    x = lane < (blockDim.x + 31) / 32 ? of_warps[lane] : T(0);
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes >>= 1) x += __shfl_xor_sync(~0u, x, lanes);
    return x;
}

// n neighbors, a power of two, which travel as one, or as many as the widest loads and stores take.
template <class T, int n> struct alignas(n * sizeof(T) < 16 ? n * sizeof(T) : 16) Vector {
    T of[n];
};
template <class T> using Four = Vector<T, 4>;

template <int n, class From> __device__ __forceinline__ void load_vector(const From *from, float *values) {
    const Vector<From, n> loaded = *reinterpret_cast<const Vector<From, n> *>(from);
#pragma unroll
    for (int i = 0; i < n; i++) values[i] = to_f32(loaded.of[i]);
}
template <int n> __device__ __forceinline__ void store_vector(const float *values, float *to) {
    Vector<float, n> stored;
#pragma unroll
    for (int i = 0; i < n; i++) stored.of[i] = values[i];
    *reinterpret_cast<Vector<float, n> *>(to) = stored;
}
template <int n> __device__ __forceinline__ void store_vector(const float *values, bf16 *to) {
    if constexpr (n == 1) {
        *to = from_f32<bf16>(*values);
    } else {
        Vector<u32, n / 2> stored;
#pragma unroll
        for (int i = 0; i < n; i += 2) stored.of[i / 2] = bf16_pair(values[i], values[i + 1]);
        *reinterpret_cast<Vector<u32, n / 2> *>(to) = stored;
    }
}

// Type parameters are spelt out, because single letters may be what a source is compiled with.
// out[i] = f(x[i], i). Matrices begin where fours may; what is left at the end goes one by one.
template <class From, class To, class F> __device__ __forceinline__ void map(const From *x, To *out, u64 n, F f) {
    const u64 fours = n / 4;
    for (u64 i = first_thread(); i < fours; i += n_threads()) {
        const Four<From> from = reinterpret_cast<const Four<From> *>(x)[i];
        Four<To> to;
#pragma unroll
        for (int k = 0; k < 4; k++) to.of[k] = from_f32<To>(f(to_f32(from.of[k]), 4 * i + k));
        reinterpret_cast<Four<To> *>(out)[i] = to;
    }
    for (u64 i = 4 * fours + first_thread(); i < n; i += n_threads()) out[i] = from_f32<To>(f(to_f32(x[i]), i));
}

// out[i] = f(x[i], out[i]), likewise.
template <class From, class To, class F> __device__ __forceinline__ void combine(const From *x, To *out, u64 n, F f) {
    const u64 fours = n / 4;
    for (u64 i = first_thread(); i < fours; i += n_threads()) {
        const Four<From> from = reinterpret_cast<const Four<From> *>(x)[i];
        Four<To> to = reinterpret_cast<Four<To> *>(out)[i];
#pragma unroll
        for (int k = 0; k < 4; k++) to.of[k] = from_f32<To>(f(to_f32(from.of[k]), to_f32(to.of[k])));
        reinterpret_cast<Four<To> *>(out)[i] = to;
    }
    for (u64 i = 4 * fours + first_thread(); i < n; i += n_threads()) {
        out[i] = from_f32<To>(f(to_f32(x[i]), to_f32(out[i])));
    }
}

// Where blocks lie on a matrix: threadIdx.x and blockIdx.x run over columns, one column for a thread; threadIdx.y and
// blockIdx.y over rows, with strides.
__device__ __forceinline__ u64 my_column() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ u64 first_row() { return (u64)blockIdx.y * blockDim.y + threadIdx.y; }
__device__ __forceinline__ u64 n_rows_at_once() { return (u64)gridDim.y * blockDim.y; }

// Every row of this thread in turn: use(row, load(row)). Some are loaded before the first is used, because stores between
// loads would keep these from travelling together.
template <class Load, class Use> __device__ __forceinline__ void each_row(u64 rows, Load load, Use use) {
    const u64 stride = n_rows_at_once();
    for (u64 row = first_row(); row < rows; row += ABI_ROWS_OF_THREAD * stride) {
        decltype(load(row)) loaded[ABI_ROWS_OF_THREAD];
#pragma unroll
        for (int k = 0; k < ABI_ROWS_OF_THREAD; k++) {
            if (row + k * stride < rows) loaded[k] = load(row + k * stride);
        }
#pragma unroll
        for (int k = 0; k < ABI_ROWS_OF_THREAD; k++) {
            if (row + k * stride < rows) use(row + k * stride, loaded[k]);
        }
    }
}

struct Pair {
    float a, b;
};

// Sums N terms over the rows of each column: add(row, load(row), sums) adds those of a row. Block y leaves its part of sum
// k at partials[(k * gridDim.y + y) * cols + column]; finish_columns in passes.cu adds the parts. Blocks have ABI_BLOCK threads
// and a power of two of rows; a thread beyond the last column takes part with nothing.
template <int N, class Load, class Add>
__device__ __forceinline__ void column_partials(u64 rows, u64 cols, float *partials, Load load, Add add) {
    __shared__ float of_threads[N][ABI_BLOCK];
    const u64 column = my_column();
    float sums[N] = {};
    if (column < cols) {
        // The type by name: the run-time compiler takes generic lambdas for functions of the host.
        each_row(rows, load, [&](u64 row, decltype(load(0)) loaded) { add(row, loaded, sums); });
    }
    const u32 me = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
    for (int k = 0; k < N; k++) of_threads[k][me] = sums[k];
    for (u32 half = blockDim.y / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half) {
#pragma unroll
            for (int k = 0; k < N; k++) of_threads[k][me] += of_threads[k][me + half * blockDim.x];
        }
    }
    if (threadIdx.y == 0 && column < cols) {
#pragma unroll
        for (int k = 0; k < N; k++) partials[((u64)k * gridDim.y + blockIdx.y) * cols + column] = of_threads[k][me];
    }
}

enum : u32 { IDENTITY = ABI_IDENTITY, RELU = ABI_RELU, ELU = ABI_ELU };

// Comparisons, not maxima, so that what is no number stays none.
__device__ __forceinline__ float activated(u32 activation, float x) {
    if (activation == IDENTITY || !(x < 0.0f)) return x;
    return activation == RELU ? 0.0f : expm1f(x);
}

// The derivative where the result is y, and a mask, which follows RELU alone, multiplied by `kept` what it kept.
__device__ __forceinline__ float activation_slope(u32 activation, float kept, float y) {
    if (activation == RELU) return y > 0.0f ? kept : 0.0f;
    return activation == IDENTITY || y > 0.0f ? 1.0f : y + 1.0f;
}

// The leaky rectifier of attention; and its derivative at x, times `grad`.
__device__ __forceinline__ float leaky(float slope, float x) { return x > 0 ? x : slope * x; }
__device__ __forceinline__ float leaky_grad(float slope, float x, float grad) { return x > 0 ? grad : slope * grad; }

// Philox 4x32-10 (Salmon et al., SC 2011), as crates/random/src/philox.rs.
struct Words {
    u32 of[4];
};

__device__ __forceinline__ Words philox(u64 high, u64 low, u32 key0, u32 key1) {
    u32 c0 = (u32)low, c1 = (u32)(low >> 32), c2 = (u32)high, c3 = (u32)(high >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const u32 high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
        const u32 high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ key0;
        c1 = low1;
        c2 = high0 ^ c3 ^ key1;
        c3 = low0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return Words{{c0, c1, c2, c3}};
}

// Draws of what a mask drops, as crates/compute/src/dropout.rs defines them.
struct Draws {
    // Where the key of a step is that is repeated without the host; null where it is given.
    const u32 *stored_key;
    u32 key0, key1;
    // Halves of words below this drop what they belong to.
    u32 threshold;
    // The factor of what stays.
    float scale;

    __device__ __forceinline__ Words block(u64 high, u64 low) const {
        return philox(high, low, stored_key ? stored_key[0] : key0, stored_key ? stored_key[1] : key1);
    }
    // Of half `half` of eight of a block's words, low halves first.
    __device__ __forceinline__ bool stays(const Words &words, u32 half) const {
        // Selects, because registers have no addresses.
        const u32 low = half & 2 ? words.of[1] : words.of[0], high = half & 2 ? words.of[3] : words.of[2];
        return ((half & 4 ? high : low) >> 16 * (half & 1) & 0xffff) >= threshold;
    }
    __device__ __forceinline__ float factor(bool stays) const { return stays ? scale : 0.0f; }
};

// The mask of a matrix that may be a piece of a larger one.
struct Mask {
    Draws draws;
    // The number that its first element has in the whole.
    u64 first;

    // Which of eight neighbors stay, from element 8 · block of the whole on: a bit for each.
    __device__ __forceinline__ u32 eight(u64 block) const {
        const Words words = draws.block(0, block);
        u32 bits = 0;
#pragma unroll
        for (u32 i = 0; i < 8; i++) bits |= (u32)draws.stays(words, i) << i;
        return bits;
    }
    // Which of n <= 8 neighbors stay, from this element of the matrix on.
    template <int n> __device__ __forceinline__ u32 bits(u64 element) const {
        element += first;
        const u32 before = (u32)(element % 8);
        u32 bits = eight(element / 8) >> before;
        if (before + n > 8) bits |= eight(element / 8 + 1) << (8 - before);
        return bits;
    }
};
