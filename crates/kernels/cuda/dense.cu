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
// go to `partials`. BACK: whether the result goes back through an activation, and its columns are summed. FACTORS: whether each row
// is multiplied by a factor of its own as it is stored.
// Constants: X=float Y=float B=float V=float ROWS=128 COLS=128 TA=0 TB=0 SPLIT=0 PAIR=0 BACK=0 ACTIVATION=1 ACCUMULATE=0 HELD=0 MASKS=1 FACTORS=0
// Constants: X=float Y=float B=float V=float ROWS=128 COLS=48 TA=0 TB=1 SPLIT=0 PAIR=0 BACK=1 ACTIVATION=2 ACCUMULATE=0 HELD=4 MASKS=0 FACTORS=1
// Constants: X=float Y=float B=float V=float ROWS=64 COLS=64 TA=1 TB=0 SPLIT=1 PAIR=0 BACK=0 ACTIVATION=0 ACCUMULATE=1 HELD=0 MASKS=0 FACTORS=0
// Constants: X=bf16 Y=bf16 B=float V=bf16 ROWS=128 COLS=64 TA=0 TB=0 SPLIT=0 PAIR=0 BACK=0 ACTIVATION=1 ACCUMULATE=0 HELD=2 MASKS=1 FACTORS=0
// Constants: X=bf16 Y=bf16 B=float V=float ROWS=128 COLS=128 TA=0 TB=0 SPLIT=0 PAIR=1 BACK=0 ACTIVATION=1 ACCUMULATE=0 HELD=0 MASKS=0 FACTORS=0
// Constants: X=float Y=float B=float V=float ROWS=128 COLS=48 TA=0 TB=0 SPLIT=0 PAIR=1 BACK=0 ACTIVATION=1 ACCUMULATE=1 HELD=4 MASKS=1 FACTORS=0
// Constants: X=bf16 Y=bf16 B=float V=bf16 ROWS=128 COLS=128 TA=0 TB=1 SPLIT=0 PAIR=0 BACK=1 ACTIVATION=2 ACCUMULATE=0 HELD=2 MASKS=0 FACTORS=0
// Constants: X=bf16 Y=bf16 B=float V=bf16 ROWS=128 COLS=128 TA=0 TB=1 SPLIT=0 PAIR=0 BACK=1 ACTIVATION=1 ACCUMULATE=0 HELD=2 MASKS=0 FACTORS=1
// Constants: X=bf16 Y=float B=float V=float ROWS=128 COLS=48 TA=1 TB=0 SPLIT=1 PAIR=0 BACK=0 ACTIVATION=0 ACCUMULATE=1 HELD=0 MASKS=0 FACTORS=0
// Warps side by side.
static const int ABREAST = COLS % 32 == 0 ? 2 : 1;
#include "common.cuh"
#include "dense.cuh"

static const int STAGES = ABI_GEMM_STAGES;
// What went through an activation is asked for before a tile's last stage is multiplied, and needed after it, where registers suffice.
static const bool EARLY = BACK && sizeof(V) == 2;
// Fragments of columns that are multiplied in turns.
static const int BATCH = WIDE % 4 == 0 ? 4 : WIDE % 3 == 0 ? 3 : 2;
static const int B_ROWS = TB ? COLS : DEPTH, B_WIDTH = TB ? DEPTH : COLS, B_PITCH = B_WIDTH + (TB ? VECTOR : 8);
static const int B_BYTES = B_ROWS * B_PITCH * (int)sizeof(X), STAGE_BYTES = A_BYTES + (HELD > 0 ? 0 : B_BYTES);

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

extern "C" __global__ void __launch_bounds__(ABI_BLOCK, COLS > 64 || (TA && ROWS > 64 && sizeof(X) == 4) ? 1 : 2)
    product(const __grid_constant__ Term first_term, const __grid_constant__ Term second_term, u64 part, const __grid_constant__ EpilogueArgs to) {
    extern __shared__ unsigned char memory[];
    const u32 stages = shared_address(memory);
    const Work work(first_term, second_term, part, to);
    const int warp = threadIdx.x / 32, warp_row = warp / ABREAST, row = warp_row * TALL * 16, col = warp % ABREAST * WIDE * 8;
    const auto copy_b = [&](u32 to_b, u64 depth) {
        const u64 at = work.right.depth(depth), first_col = work.first_col;
        copy_tile<B_ROWS, B_WIDTH, B_PITCH>(to_b, work.right.matrix(depth), TB ? first_col : at, TB ? at : first_col);
    };
    // They arrive with the first stage.
    const u32 held = stages + STAGES * STAGE_BYTES;
    for (int tile = 0; tile < HELD; tile++) copy_b(held + tile * B_BYTES, tile * DEPTH);
    Cursor loaded(work);
    const auto load = [&](int stage) {
        if (!loaded.is_done(work)) {
            const u32 to_a = stages + stage * STAGE_BYTES, to_b = to_a + A_BYTES;
            const u64 first_row = loaded.tile * BM, at = work.left.depth(loaded.depth);
            copy_tile<A_ROWS, A_WIDTH, A_PITCH>(to_a, work.left.matrix(loaded.depth), TA ? at : first_row, TA ? first_row : at);
            if (HELD == 0) copy_b(to_b, loaded.depth);
            loaded.advance(work);
        }
        // Also where nothing was loaded: stages are counted.
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    for (int stage = 0; stage < STAGES - 1; stage++) load(stage);
    Sums sums = {};
    const u64 across = work.first_col + col + threadIdx.x % 4 * 2;
    Columns bias, column_sums = {};
    read_bias(to, across, bias);
    int stage = 0;
    for (Cursor at(work); !at.is_done(work);) {
        const u64 first = at.tile * BM + row + threadIdx.x % 32 / 4;
        Through through[TALL][2];
        if (EARLY && at.depth + DEPTH >= work.end) {
#pragma unroll
            for (int m = 0; m < TALL; m++)
#pragma unroll
                for (int lower = 0; lower < 2; lower++) read_through(to, first + 16 * m + 8 * lower, across, through[m][lower]);
        }
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        // The stage that was multiplied last, by all warps.
        load(stage == 0 ? STAGES - 1 : stage - 1);
        const u32 at_a = stages + stage * STAGE_BYTES;
        const u32 at_b = HELD > 0 ? held + (u32)(at.depth / DEPTH) * B_BYTES : at_a + A_BYTES;
        multiply_stage(X(), at_a, at_b, row, col, sums);
        stage = stage == STAGES - 1 ? 0 : stage + 1;
        const u64 tile = at.tile;
        at.advance(work);
        if (at.tile == tile) continue;
        finish_tile(to, first, across, sums, bias, EARLY ? through : nullptr, column_sums);
    }
    if (BACK && to.partials) {
        __shared__ WarpColumns of_warps;
        clear_column_sums(of_warps, warp_row, col);
        add_column_sums(of_warps, warp_row, col, column_sums);
        leave_column_sums(to, of_warps, work.first_col);
    }
}
