// What the kernels of dense products share: tiles, what happens to sums, and the sum of parts. A source says first how many warps are
// side by side (ABREAST); constants are those of dense.cu.
#pragma once

static const int BM = ROWS, DEPTH = ABI_GEMM_DEPTH_BYTES / (int)sizeof(X), WARPS = ABI_BLOCK / 32;
// Those that have sums.
static const u32 THREADS = WARPS * 32;
// Elements that a copy to shared memory brings.
static const int VECTOR = 16 / (int)sizeof(X);
// Elements of the summed dimension that an instruction takes.
static const int STEP = 32 / (int)sizeof(X);
// Fragments of 16 rows and of 8 columns that a warp has.
static const int TALL = BM / (WARPS / ABREAST) / 16, WIDE = COLS / ABREAST / 8;
static_assert(TALL > 0 && WIDE % 2 == 0, "every warp has rows, and fragments of columns are read in pairs");
// Tiles as they lie in memory. Rows begin apart, so that the lanes of a fragment read from different banks.
static const int A_ROWS = TA ? DEPTH : BM, A_WIDTH = TA ? BM : DEPTH, A_PITCH = A_WIDTH + (TA ? 8 : VECTOR);
static const int A_BYTES = A_ROWS * A_PITCH * (int)sizeof(X);

// Copies 16 bytes, of which the first `wanted` are read and the others become zero. What is not wanted need not be there.
__device__ __forceinline__ void copy_vector(u32 to, const X *from, u32 wanted) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(wanted) : "memory");
}

// A matrix in memory: elements beyond its edges are zero.
struct Matrix {
    const X *data;
    u64 pitch, rows, cols;
};

// x as the sum of two numbers that tensor cores hold. What is no number or infinite leaves a small one that is no number.
__device__ __forceinline__ void split(float x, u32 &large, u32 &small) {
    large = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
    small = __float_as_uint(x - __uint_as_float(large));
}

typedef float Sums[TALL][WIDE][4];

// What happens to sums.
struct EpilogueArgs {
    Y *out;
    const B *bias;
    // Of the way back: what went through the activation.
    const V *through;
    // Elements from row to row of that.
    u64 through_pitch;
    // What each row is multiplied by as it is stored.
    const float *factors;
    // The sums of parts, row after row as in `out`, part after part; or of columns, row after row of blocks.
    float *partials;
    u64 rows, cols;
    // Of the way back: what a mask multiplied by that it kept.
    float alpha, kept;
    Mask mask;
};

template <class T> using Two = Vector<T, 2>;

// Writes what four lanes have of a row, two neighbors each of eight and of the next eight: in bf16 four neighbors each, so that
// the lanes fill sectors of 32 bytes, which memory would read first if they were filled in parts. `out` is the first of the 16, of
// which `left` are there; what follows the last may lie between rows.
__device__ __forceinline__ void store(float *out, int left, const float *first, const float *second) {
    const int lane = threadIdx.x % 4;
    if (2 * lane < left) store_vector<2>(first, out + 2 * lane);
    if (8 + 2 * lane < left) store_vector<2>(second, out + 8 + 2 * lane);
}
__device__ __forceinline__ void store(bf16 *out, int left, const float *first, const float *second) {
    const u32 lane = threadIdx.x % 4, from = threadIdx.x % 32 / 4 * 4 + 2 * lane % 4;
    const u32 low = bf16_pair(first[0], first[1]), high = bf16_pair(second[0], second[1]);
    const u32 of_first[2] = {__shfl_sync(~0u, low, from), __shfl_sync(~0u, low, from + 1)};
    const u32 of_second[2] = {__shfl_sync(~0u, high, from), __shfl_sync(~0u, high, from + 1)};
    const uint2 four = lane < 2 ? uint2{of_first[0], of_first[1]} : uint2{of_second[0], of_second[1]};
    if ((int)(4 * lane) < left) reinterpret_cast<uint2 *>(out)[lane] = four;
}

// What a lane has of a row of what went through the activation, where it has sums.
struct Through {
    Two<V> of[WIDE];
};
__device__ __forceinline__ void read_through(const EpilogueArgs &to, u64 row, u64 col, Through &through) {
    const int left = row < to.rows ? (int)to.cols - (int)col : 0;
    const Two<V> *from = reinterpret_cast<const Two<V> *>(to.through + row * to.through_pitch + col);
#pragma unroll
    for (int n = 0; n < WIDE; n++)
        if (8 * n < left) through.of[n] = from[4 * n];
}

// Which of what four lanes have of a row stay, by the lanes' first element of it: bit k of the words is that of element k from
// there on. Each lane draws a quarter of the blocks.
static const int KEPT_WORDS = (8 * WIDE + 31) / 32;
__device__ __forceinline__ void draw(const Mask &mask, u64 element, bool in_eights, u32 *kept) {
    // Where rows do not begin with a block, there may be a piece of one more.
    constexpr bool more = 8 * WIDE + 7 > 32 * KEPT_WORDS;
    element += mask.first;
    u32 words[KEPT_WORDS + 1] = {};
#pragma unroll
    for (int w = 0; w < KEPT_WORDS + more; w++) {
        if (w == KEPT_WORDS && in_eights) break;
        u32 word = mask.eight(element / 8 + 4 * w + threadIdx.x % 4) << threadIdx.x % 4 * 8;
        word |= __shfl_xor_sync(~0u, word, 1);
        words[w] = word | __shfl_xor_sync(~0u, word, 2);
    }
#pragma unroll
    for (int w = 0; w < KEPT_WORDS; w++) kept[w] = __funnelshift_r(words[w], words[w + 1], (u32)(element % 8));
}

// What a lane has of columns, two neighbors of every eight.
typedef float Columns[WIDE][2];

// What a lane has of a row, two neighbors of every eight from `col` on; nothing where there is no such row. Everything that is
// read is asked for before any of it is needed.
__device__ __forceinline__ void finish(const EpilogueArgs &to, u64 row, u64 col, const Columns &sums, const Columns &bias,
                                       [[maybe_unused]] const Through &through, Columns &column_sums) {
    const u64 pitch = pitch_of(to.cols), at = row * pitch + col;
    // Lanes beyond the last column take part, because their neighbors may be within.
    const int left = row < to.rows ? (int)to.cols - (int)col : -COLS;
    if (SPLIT) {
        Two<float> *partials = reinterpret_cast<Two<float> *>(to.partials + blockIdx.z * to.rows * pitch + at);
#pragma unroll
        for (int n = 0; n < WIDE; n++)
            if (8 * n < left) partials[4 * n] = {sums[n][0], sums[n][1]};
        return;
    }
    Two<Y> *out = reinterpret_cast<Two<Y> *>(to.out + at);
    Two<Y> before[WIDE] = {};
#pragma unroll
    for (int n = 0; n < WIDE; n++)
        if (ACCUMULATE && 8 * n < left) before[n] = out[4 * n];
    const float factor = FACTORS && row < to.rows ? to.factors[row] : 1.0f;
    const int lane_offset = threadIdx.x % 4 * 2;
    [[maybe_unused]] u32 kept[KEPT_WORDS];
#if MASKS
    draw(to.mask, row * to.cols + col - lane_offset, to.cols % 8 == 0, kept);
#endif
    float made[WIDE][2];
#pragma unroll
    for (int n = 0; n < WIDE; n++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float sum = to.alpha * sums[n][i] + (ACCUMULATE ? to_f32(before[n].of[i]) : 0.0f);
            made[n][i] = BACK ? sum * activation_slope(ACTIVATION, to.kept, to_f32(through.of[n].of[i]))
                              : activated(ACTIVATION, sum + bias[n][i]);
#if MASKS
            made[n][i] *= to.mask.draws.factor(kept[n / 4] >> (8 * (n % 4) + lane_offset + i) & 1);
#endif
            // Of what is stored, or would be without factors.
            if (BACK && 8 * n < left) column_sums[n][i] += to_f32(from_f32<Y>(made[n][i]));
            if (FACTORS) made[n][i] *= factor;
        }
    }
#pragma unroll
    for (int n = 0; n < WIDE; n += 2) store(to.out + at - lane_offset + 8 * n, left + lane_offset - 8 * n, made[n], made[n + 1]);
}

// The bias of a lane's columns from `across` on.
__device__ __forceinline__ void read_bias(const EpilogueArgs &to, u64 across, Columns &bias) {
#pragma unroll
    for (int n = 0; n < WIDE; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) bias[n][i] = to.bias && across + 8 * n + i < to.cols ? to_f32(to.bias[across + 8 * n + i]) : 0.0f;
}

// What a lane has of a tile whose sums are complete; they become zero. What went through an activation is read now, unless `early` has
// it.
__device__ __forceinline__ void finish_tile(const EpilogueArgs &to, u64 first, u64 across, Sums &sums, const Columns &bias,
                                            const Through (*early)[2], Columns &column_sums) {
#pragma unroll
    for (int m = 0; m < TALL; m++)
#pragma unroll
        for (int lower = 0; lower < 2; lower++) {
            const u64 row = first + 16 * m + 8 * lower;
            Through now;
            if (BACK && !early) read_through(to, row, across, now);
            Columns of_row;
#pragma unroll
            for (int n = 0; n < WIDE; n++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    of_row[n][i] = sums[m][n][2 * lower + i];
                    sums[m][n][2 * lower + i] = 0.0f;
                }
            finish(to, row, across, of_row, bias, early ? early[m][lower] : now, column_sums);
        }
}

// Operands of a product, and the numbers that it sums for an element.
struct Term {
    const X *a;
    u64 a_pitch;
    const X *b;
    u64 b_pitch, depth;

    __device__ __forceinline__ Matrix left(u64 rows) const { return {a, a_pitch, TA ? depth : rows, TA ? rows : depth}; }
    __device__ __forceinline__ Matrix right(u64 cols) const { return {b, b_pitch, TB ? cols : depth, TB ? depth : cols}; }
};

// One side of a product, or of two that are added: where the first one's summed dimension ends, with its last stage, the second one's begins.
struct Side {
    Matrix first, second;
    u64 end;

    __device__ __forceinline__ bool is_second(u64 depth) const { return PAIR && depth >= end; }
    __device__ __forceinline__ u64 depth(u64 depth) const { return is_second(depth) ? depth - end : depth; }
    // Field by field: a choice between structs would lie in memory.
    __device__ __forceinline__ Matrix matrix(u64 depth) const {
        const bool other = is_second(depth);
        return {other ? second.data : first.data, other ? second.pitch : first.pitch, other ? second.rows : first.rows,
                other ? second.cols : first.cols};
    }
};

// What a block computes: tiles of rows in turn along y, columns along x, parts of `part` numbers of the summed dimension along z, a
// multiple of DEPTH. Blocks that read the same rows are neighbors.
struct Work {
    Side left, right;
    u64 n_tiles, first_col, begin, end;

    __device__ __forceinline__ Work(const Term &first, const Term &second, u64 part, const EpilogueArgs &to) {
        const u64 end_of_first = (first.depth + DEPTH - 1) / DEPTH * DEPTH;
        const u64 depth = PAIR ? end_of_first + second.depth : first.depth;
        left = {first.left(to.rows), second.left(to.rows), end_of_first};
        right = {first.right(to.cols), second.right(to.cols), end_of_first};
        n_tiles = (to.rows + BM - 1) / BM;
        first_col = (u64)blockIdx.x * COLS;
        begin = SPLIT ? blockIdx.z * part : 0;
        end = SPLIT && begin + part < depth ? begin + part : depth;
    }
};

// Where a block is in its tiles and in the summed dimension.
struct Cursor {
    u64 tile, depth;

    __device__ __forceinline__ explicit Cursor(const Work &work) : tile(blockIdx.y), depth(work.begin) {}
    __device__ __forceinline__ bool is_done(const Work &work) const { return tile >= work.n_tiles; }
    __device__ __forceinline__ void advance(const Work &work) {
        depth += DEPTH;
        if (depth < work.end) return;
        depth = work.begin;
        tile += gridDim.y;
    }
};

// Sums of columns by the warps that have rows, of a block's tiles.
typedef float WarpColumns[WARPS / ABREAST][COLS];

// Those of a warp that has added nothing; by the lanes that will.
__device__ __forceinline__ void clear_column_sums(WarpColumns &of_warps, int warp_row, int col) {
    for (int n = 0; n < WIDE && threadIdx.x % 32 < 4; n++)
        for (int i = 0; i < 2; i++) of_warps[warp_row][col + 8 * n + threadIdx.x % 4 * 2 + i] = 0.0f;
}

// Adds what lanes have of their rows to the sums of their warp.
__device__ __forceinline__ void add_column_sums(WarpColumns &of_warps, int warp_row, int col, const Columns &sums) {
#pragma unroll
    for (int n = 0; n < WIDE; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float sum = sums[n][i];
#pragma unroll
            for (int lanes = 16; lanes >= 4; lanes >>= 1) sum += __shfl_xor_sync(~0u, sum, lanes);
            if (threadIdx.x % 32 < 4) of_warps[warp_row][col + 8 * n + threadIdx.x % 4 * 2 + i] += sum;
        }
}

// Leaves those of the block in its row of partials.
__device__ __forceinline__ void leave_column_sums(const EpilogueArgs &to, const WarpColumns &of_warps, u64 first_col) {
    // Of these threads alone.
    asm volatile("bar.sync 1, %0;" ::"n"(WARPS * 32) : "memory");
    for (int c = threadIdx.x; c < COLS; c += WARPS * 32) {
        float sum = 0.0f;
        for (int w = 0; w < WARPS / ABREAST; w++) sum += of_warps[w][c];
        if (first_col + c < to.cols) to.partials[blockIdx.y * to.cols + first_col + c] = sum;
    }
}

// out = alpha · the sum of parts + out, if that counts. Thread y of a block adds up its share of the parts, and thread 0 the shares,
// each in order.
extern "C" __global__ void __launch_bounds__(ABI_BLOCK) add_parts(u64 n_parts, const __grid_constant__ EpilogueArgs to) {
    __shared__ double of_threads[WARPS][32];
    const u64 n = to.rows * pitch_of(to.cols), i = (u64)blockIdx.x * 32 + threadIdx.x;
    double sum = 0.0;
    if (i < n) {
#pragma unroll 8
        for (u64 part = threadIdx.y; part < n_parts; part += WARPS) sum += (double)to.partials[part * n + i];
    }
    of_threads[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || i >= n) return;
#pragma unroll
    for (int share = 1; share < WARPS; share++) sum += of_threads[share][threadIdx.x];
    const float before = ACCUMULATE ? to_f32(to.out[i]) : 0.0f;
    to.out[i] = from_f32<Y>(to.alpha * (float)sum + before);
}
