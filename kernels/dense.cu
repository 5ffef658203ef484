// Dense products on tensor cores where one side is long and the others are short: rows of nodes times weights, and sums over
// nodes. out = mask ⊙ activation(alpha · op(A)·op(B) + out + bias), where `out` counts if ACCUMULATE is 1, ACTIVATION is one of
// common.cuh's, and there is a mask if MASKS is 1. If PAIR is 1 the sum of two products stands for op(A)·op(B): the second one's summed
// dimension follows the first one's, from the next stage on.
//
// A block computes tiles of ROWS rows and COLS columns. Pieces of DEPTH of the summed dimension travel through a ring of stages in
// shared memory, from tile to tile without a pause; fragments are read from there for `mma`. X is the storage of operands, Y of the
// result, B of the bias, V of what went through an activation on the way forward.
//
// In f32, every number is the sum of two with 11 significant bits, which tensor cores multiply (TF32): large times small, small
// times large, large times large. What is left out is 2^-22 of a product. Tensor cores cut off what a sum cannot hold, so that
// the sums of a piece, which are small, are added to those of the pieces before with rounding.
//
// HELD: tiles of B that stay in shared memory from beginning to end, all of its columns' tiles; 0 where they travel with those of A.
// TA, TB: whether A and B are read transposed. SPLIT: whether the summed dimension is cut into parts, each a block's, whose sums
// go to `partials`. BACK: whether the result goes back through an activation, and its columns are summed.
// Constants: X=float Y=float B=float V=float ROWS=128 COLS=128 TA=0 TB=0 SPLIT=0 PAIR=0 BACK=0 ACTIVATION=1 ACCUMULATE=0 HELD=0 MASKS=1
// Constants: X=float Y=float B=float V=float ROWS=128 COLS=48 TA=0 TB=1 SPLIT=0 PAIR=0 BACK=1 ACTIVATION=2 ACCUMULATE=0 HELD=4 MASKS=0
// Constants: X=float Y=float B=float V=float ROWS=64 COLS=64 TA=1 TB=0 SPLIT=1 PAIR=0 BACK=0 ACTIVATION=0 ACCUMULATE=1 HELD=0 MASKS=0
// Constants: X=bf16 Y=bf16 B=float V=bf16 ROWS=128 COLS=64 TA=0 TB=0 SPLIT=0 PAIR=0 BACK=0 ACTIVATION=1 ACCUMULATE=0 HELD=2 MASKS=1
// Constants: X=bf16 Y=bf16 B=float V=float ROWS=128 COLS=128 TA=0 TB=0 SPLIT=0 PAIR=1 BACK=0 ACTIVATION=1 ACCUMULATE=0 HELD=0 MASKS=0
// Constants: X=float Y=float B=float V=float ROWS=128 COLS=48 TA=0 TB=0 SPLIT=0 PAIR=1 BACK=0 ACTIVATION=1 ACCUMULATE=1 HELD=4 MASKS=1
// Constants: X=bf16 Y=bf16 B=float V=bf16 ROWS=128 COLS=128 TA=0 TB=1 SPLIT=0 PAIR=0 BACK=1 ACTIVATION=2 ACCUMULATE=0 HELD=2 MASKS=0
// Constants: X=bf16 Y=float B=float V=float ROWS=128 COLS=48 TA=1 TB=0 SPLIT=1 PAIR=0 BACK=0 ACTIVATION=0 ACCUMULATE=1 HELD=0 MASKS=0
#include "common.cuh"

static const int BM = ROWS, DEPTH = 128 / (int)sizeof(X), STAGES = 3, WARPS = 8;
static const u32 THREADS = WARPS * 32;
// Elements that a copy to shared memory brings.
static const int VECTOR = 16 / (int)sizeof(X);
// Elements of the summed dimension that an instruction takes.
static const int STEP = 32 / (int)sizeof(X);
// Warps side by side, and fragments of 16 rows and of 8 columns that a warp has.
static const int ABREAST = COLS % 32 == 0 ? 2 : 1;
static const int TALL = BM / (WARPS / ABREAST) / 16, WIDE = COLS / ABREAST / 8;
// Fragments of columns that are multiplied in turns.
static const int BATCH = WIDE % 4 == 0 ? 4 : WIDE % 3 == 0 ? 3 : 2;
static_assert(TALL > 0 && WIDE % 2 == 0, "every warp has rows, and fragments of columns are read in pairs");
// Tiles as they lie in memory. Rows begin apart, so that the lanes of a fragment read from different banks.
static const int A_ROWS = TA ? DEPTH : BM, A_WIDTH = TA ? BM : DEPTH, A_PITCH = A_WIDTH + (TA ? 8 : VECTOR);
static const int B_ROWS = TB ? COLS : DEPTH, B_WIDTH = TB ? DEPTH : COLS, B_PITCH = B_WIDTH + (TB ? VECTOR : 8);
static const int A_BYTES = A_ROWS * A_PITCH * (int)sizeof(X), B_BYTES = B_ROWS * B_PITCH * (int)sizeof(X);
static const int STAGE_BYTES = A_BYTES + (HELD > 0 ? 0 : B_BYTES);

// Copies 16 bytes, of which the first `wanted` are read and the others become zero. What is not wanted need not be there.
__device__ __forceinline__ void copy_vector(u32 to, const X *from, u32 wanted) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(wanted) : "memory");
}

// A matrix in memory: elements beyond its edges are zero.
struct Matrix {
    const X *data;
    u64 pitch, rows, cols;
};

// Copies a tile whose first element is at (row, col).
template <int rows, int width, int pitch>
__device__ __forceinline__ void copy_tile(u32 to, const Matrix &from, u64 row, u64 col) {
    constexpr u32 across = width / VECTOR;
    const X *corner = from.data + row * from.pitch + col;
    const int rows_left = row + rows <= from.rows ? rows : row < from.rows ? (int)(from.rows - row) : 0;
    const int cols_left = col + width <= from.cols ? width : col < from.cols ? (int)(from.cols - col) : 0;
    const auto bytes = [&](int c) {
        const int left = cols_left - c;
        return (u32)(left >= VECTOR ? 16 : left > 0 ? left * (int)sizeof(X) : 0);
    };
    if constexpr (THREADS % across == 0 && rows % (THREADS / across) == 0) {
        // A thread keeps to its columns.
        constexpr u32 at_once = THREADS / across;
        const u32 r = threadIdx.x / across, c = threadIdx.x % across * VECTOR, wanted = bytes((int)c);
        const X *source = corner + r * from.pitch + c;
        const u64 step = at_once * from.pitch;
        to += (r * pitch + c) * (u32)sizeof(X);
#pragma unroll
        for (u32 i = 0; i < rows; i += at_once, source += step)
            copy_vector(to + i * pitch * (u32)sizeof(X), source, (int)(r + i) < rows_left ? wanted : 0);
    } else {
#pragma unroll
        for (u32 i = threadIdx.x; i < rows * across; i += THREADS) {
            const u32 r = i / across, c = i % across * VECTOR;
            const u32 wanted = (int)r < rows_left ? bytes((int)c) : 0;
            copy_vector(to + (r * pitch + c) * (u32)sizeof(X), corner + r * from.pitch + c, wanted);
        }
    }
}

__device__ __forceinline__ void load_fragments(u32 at, u32 *words) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(at)
                 : "memory");
}
__device__ __forceinline__ void load_fragments_transposed(u32 at, u32 *words) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(at)
                 : "memory");
}
__device__ __forceinline__ float load_shared(u32 at) {
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(at) : "memory");
    return x;
}

// d += a·b, of 16 × 8 numbers.
__device__ __forceinline__ void multiply_bf16(float *d, const u32 *a, const u32 *b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void multiply_tf32(float *d, const u32 *a, const u32 *b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// x as the sum of two numbers that tensor cores hold. What is no number or infinite leaves a small one that is no number.
__device__ __forceinline__ void split(float x, u32 &large, u32 &small) {
    large = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
    small = __float_as_uint(x - __uint_as_float(large));
}

typedef float Sums[TALL][WIDE][4];

// Adds the product of a stage to the sums of a warp, whose first row and column in the tile are given; for operands in f32.
__device__ __forceinline__ void multiply_stage(float, u32 a, u32 b, int row, int col, Sums &sums) {
    const int group = threadIdx.x % 32 / 4, lane = threadIdx.x % 4;
    float piece[TALL][WIDE][4] = {};
#pragma unroll
    for (int k = 0; k < DEPTH; k += STEP) {
        u32 large[TALL][4], small[TALL][4];
#pragma unroll
        for (int m = 0; m < TALL; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int r = row + 16 * m + group + i % 2 * 8, d = k + lane + i / 2 * 4;
                split(load_shared(a + (u32)(TA ? d * A_PITCH + r : r * A_PITCH + d) * 4), large[m][i], small[m][i]);
            }
#pragma unroll
        for (int first = 0; first < WIDE; first += BATCH) {
            u32 large_b[BATCH][2], small_b[BATCH][2];
#pragma unroll
            for (int n = 0; n < BATCH; n++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int c = col + 8 * (first + n) + group, d = k + lane + i * 4;
                    split(load_shared(b + (u32)(TB ? c * B_PITCH + d : d * B_PITCH + c) * 4), large_b[n][i], small_b[n][i]);
                }
            // Products that add to the same sums stand apart, because each waits for the one before.
#pragma unroll
            for (int term = 0; term < 3; term++)
#pragma unroll
                for (int n = 0; n < BATCH; n++)
#pragma unroll
                    for (int m = 0; m < TALL; m++)
                        multiply_tf32(piece[m][first + n], term == 0 ? small[m] : large[m],
                                      term == 1 ? small_b[n] : large_b[n]);
        }
    }
#pragma unroll
    for (int m = 0; m < TALL; m++)
#pragma unroll
        for (int n = 0; n < WIDE; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) sums[m][n][i] += piece[m][n][i];
}

// The same for operands in bf16.
__device__ __forceinline__ void multiply_stage(bf16, u32 a, u32 b, int row, int col, Sums &sums) {
    // The 8 × 8 numbers that a lane's address belongs to, of four, and its row there.
    const int matrix = threadIdx.x % 32 / 8, of_matrix = threadIdx.x % 8;
#pragma unroll
    for (int k = 0; k < DEPTH; k += STEP) {
        u32 left[TALL][4];
#pragma unroll
        for (int m = 0; m < TALL; m++) {
            const int r = row + 16 * m + matrix % 2 * 8, d = k + matrix / 2 * 8;
            if (TA) load_fragments_transposed(a + (u32)((d + of_matrix) * A_PITCH + r) * 2, left[m]);
            else load_fragments(a + (u32)((r + of_matrix) * A_PITCH + d) * 2, left[m]);
        }
#pragma unroll
        for (int n = 0; n < WIDE; n += 2) {
            u32 right[4];
            const int c = col + 8 * n + matrix / 2 * 8, d = k + matrix % 2 * 8;
            if (TB) load_fragments(b + (u32)((c + of_matrix) * B_PITCH + d) * 2, right);
            else load_fragments_transposed(b + (u32)((d + of_matrix) * B_PITCH + c) * 2, right);
#pragma unroll
            for (int m = 0; m < TALL; m++) {
                multiply_bf16(sums[m][n], left[m], right);
                multiply_bf16(sums[m][n + 1], left[m], right + 2);
            }
        }
    }
}

// What happens to sums; ops/dense.rs has the same.
struct Out {
    Y *out;
    const B *bias;
    // Of the way back: what went through the activation.
    const V *through;
    // The sums of parts, row after row as in `out`, part after part; or of columns, row after row of blocks.
    float *partials;
    u64 rows, cols;
    // Of the way back: what a mask multiplied by that it kept.
    float alpha, kept;
    Mask mask;
};

template <class T> using Two = Vector<T, 2>;

// Writes what four lanes have of a row, two neighbours each of eight and of the next eight: in bf16 four neighbours each, so that
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

// What a lane has of what went through the activation, where it has sums.
typedef Two<V> Through[TALL][2][WIDE];

// Asked for before a tile's last stage is multiplied, and needed after it, where registers suffice.
static const bool EARLY = BACK && sizeof(V) == 2;
__device__ __forceinline__ void read_through(const Out &to, u64 first, u64 col, Through &through) {
    const int left = (int)to.cols - (int)col;
#pragma unroll
    for (int m = 0; m < TALL; m++)
#pragma unroll
        for (int lower = 0; lower < 2; lower++) {
            const u64 row = first + 16 * m + 8 * lower;
            const Two<V> *from = reinterpret_cast<const Two<V> *>(to.through + row * pitch_of(to.cols) + col);
#pragma unroll
            for (int n = 0; n < WIDE; n++)
                if (row < to.rows && 8 * n < left) through[m][lower][n] = from[4 * n];
        }
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

// What a lane has of a row, two neighbours of every eight from `col` on; nothing where there is no such row. Everything that is
// read is asked for before any of it is needed.
__device__ __forceinline__ void finish(const Out &to, u64 row, u64 col, const float (&sums)[WIDE][2], const float (&bias)[WIDE][2],
                                       [[maybe_unused]] const Two<V> (&through)[WIDE], float (&column_sums)[WIDE][2]) {
    const u64 pitch = pitch_of(to.cols), at = row * pitch + col;
    // Lanes beyond the last column take part, because their neighbours may be within.
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
            made[n][i] = BACK ? sum * activation_slope(ACTIVATION, to.kept, to_f32(through[n].of[i]))
                              : activated(ACTIVATION, sum + bias[n][i]);
#if MASKS
            made[n][i] *= to.mask.draws.factor(kept[n / 4] >> (8 * (n % 4) + lane_offset + i) & 1);
#endif
            // Of what is stored.
            if (BACK && 8 * n < left) column_sums[n][i] += to_f32(from_f32<Y>(made[n][i]));
        }
    }
#pragma unroll
    for (int n = 0; n < WIDE; n += 2) store(to.out + at - lane_offset + 8 * n, left + lane_offset - 8 * n, made[n], made[n + 1]);
}

// Where a block is in its tiles and in the summed dimension.
struct Cursor {
    u64 tile, depth;

    __device__ __forceinline__ void advance(u64 begin, u64 end) {
        depth += DEPTH;
        if (depth < end) return;
        depth = begin;
        tile += gridDim.x;
    }
};

// Adds the sums of columns that lanes have of their rows, and leaves those of the block in its row of partials.
__device__ __forceinline__ void leave_column_sums(const Out &to, int warp_row, int col, u64 first_col, float (*sums)[2]) {
    __shared__ float of_warps[WARPS / ABREAST][COLS];
#pragma unroll
    for (int n = 0; n < WIDE; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float sum = sums[n][i];
#pragma unroll
            for (int lanes = 16; lanes >= 4; lanes >>= 1) sum += __shfl_xor_sync(~0u, sum, lanes);
            if (threadIdx.x % 32 < 4) of_warps[warp_row][col + 8 * n + threadIdx.x % 4 * 2 + i] = sum;
        }
    __syncthreads();
    for (int c = threadIdx.x; c < COLS; c += WARPS * 32) {
        float sum = 0.0f;
        for (int w = 0; w < WARPS / ABREAST; w++) sum += of_warps[w][c];
        if (first_col + c < to.cols) to.partials[blockIdx.x * to.cols + first_col + c] = sum;
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

// Blocks along x take tiles of rows in turn, along y columns, along z parts of `part` numbers of the summed dimension, a multiple
// of DEPTH.
extern "C" __global__ void __launch_bounds__(256, COLS > 64 || (TA && ROWS > 64 && sizeof(X) == 4) ? 1 : 2)
    product(const __grid_constant__ Term first_term, const __grid_constant__ Term second_term, u64 part, const __grid_constant__ Out to) {
    extern __shared__ unsigned char memory[];
    const u32 stages = shared_address(memory);
    const Matrix left = first_term.left(to.rows), right = first_term.right(to.cols);
    const Matrix second_left = second_term.left(to.rows), second_right = second_term.right(to.cols);
    // Where the second product begins.
    const u64 second = (first_term.depth + DEPTH - 1) / DEPTH * DEPTH, depth = PAIR ? second + second_term.depth : first_term.depth;
    const u64 n_tiles = (to.rows + BM - 1) / BM, first_col = (u64)blockIdx.y * COLS;
    const u64 begin = SPLIT ? blockIdx.z * part : 0, end = SPLIT && begin + part < depth ? begin + part : depth;
    const int warp = threadIdx.x / 32, warp_row = warp / ABREAST, row = warp_row * TALL * 16, col = warp % ABREAST * WIDE * 8;
    const auto copy_b = [&](u32 to_b, u64 d) {
        const bool is_second = PAIR && d >= second;
        const u64 at = is_second ? d - second : d;
        copy_tile<B_ROWS, B_WIDTH, B_PITCH>(to_b, is_second ? second_right : right, TB ? first_col : at, TB ? at : first_col);
    };
    // They arrive with the first stage.
    const u32 held = stages + STAGES * STAGE_BYTES;
    for (int tile = 0; tile < HELD; tile++) copy_b(held + tile * B_BYTES, tile * DEPTH);
    Cursor loaded = {blockIdx.x, begin};
    const auto load = [&](int stage) {
        if (loaded.tile < n_tiles) {
            const u32 to_a = stages + stage * STAGE_BYTES, to_b = to_a + A_BYTES;
            const u64 first_row = loaded.tile * BM;
            const bool is_second = PAIR && loaded.depth >= second;
            const u64 at = is_second ? loaded.depth - second : loaded.depth;
            copy_tile<A_ROWS, A_WIDTH, A_PITCH>(to_a, is_second ? second_left : left, TA ? at : first_row, TA ? first_row : at);
            if (HELD == 0) copy_b(to_b, loaded.depth);
            loaded.advance(begin, end);
        }
        // Also where nothing was loaded: stages are counted.
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    for (int stage = 0; stage < STAGES - 1; stage++) load(stage);
    Sums sums = {};
    const u64 across = first_col + col + threadIdx.x % 4 * 2;
    float bias[WIDE][2] = {}, column_sums[WIDE][2] = {};
#pragma unroll
    for (int n = 0; n < WIDE; n++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            if (to.bias && across + 8 * n + i < to.cols) bias[n][i] = to_f32(to.bias[across + 8 * n + i]);
    int stage = 0;
    for (Cursor at = {blockIdx.x, begin}; at.tile < n_tiles;) {
        const u64 first = at.tile * BM + row + threadIdx.x % 32 / 4;
        Through through;
        if (EARLY && at.depth + DEPTH >= end) read_through(to, first, across, through);
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        // The stage that was multiplied last, by all warps.
        load(stage == 0 ? STAGES - 1 : stage - 1);
        const u32 at_a = stages + stage * STAGE_BYTES;
        const u32 at_b = HELD > 0 ? held + (u32)(at.depth / DEPTH) * B_BYTES : at_a + A_BYTES;
        multiply_stage(X(), at_a, at_b, row, col, sums);
        stage = stage == STAGES - 1 ? 0 : stage + 1;
        const u64 tile = at.tile;
        at.advance(begin, end);
        if (at.tile == tile) continue;
        if (BACK && !EARLY) read_through(to, first, across, through);
#pragma unroll
        for (int m = 0; m < TALL; m++)
#pragma unroll
            for (int lower = 0; lower < 2; lower++) {
                float of_row[WIDE][2];
#pragma unroll
                for (int n = 0; n < WIDE; n++)
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        of_row[n][i] = sums[m][n][2 * lower + i];
                        sums[m][n][2 * lower + i] = 0.0f;
                    }
                finish(to, first + 16 * m + 8 * lower, across, of_row, bias, through[m][lower], column_sums);
            }
    }
    if (BACK && to.partials) leave_column_sums(to, warp_row, col, first_col, column_sums);
}

// out = alpha · the sum of parts + out, if that counts. Thread y of a block adds up its share of the parts, and thread 0 the shares,
// each in order.
extern "C" __global__ void __launch_bounds__(256) add_parts(u64 n_parts, const __grid_constant__ Out to) {
    __shared__ double of_threads[8][32];
    const u64 n = to.rows * pitch_of(to.cols), i = (u64)blockIdx.x * 32 + threadIdx.x;
    double sum = 0.0;
    if (i < n) {
#pragma unroll 8
        for (u64 part = threadIdx.y; part < n_parts; part += 8) sum += (double)to.partials[part * n + i];
    }
    of_threads[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || i >= n) return;
#pragma unroll
    for (int share = 1; share < 8; share++) sum += of_threads[share][threadIdx.x];
    const float before = ACCUMULATE ? to_f32(to.out[i]) : 0.0f;
    to.out[i] = from_f32<Y>(to.alpha * (float)sum + before);
}
