// Blocks of a sparse pattern times a dense matrix, by the tensor cores of compute capability 8.0 and later: what tiles.cu
// does for 9.0 alone, with the instructions that all of them have.
//
// A block's bits are laid out for both: the words of a warp are the left operands of `mma.m16n8k16` for 16 rows, four of
// them side by side. Rows of the right operand are copied to shared memory asynchronously, `STAGES` panels in flight, and
// read from there transposed. A row there is an odd number of 16 bytes long, so that eight rows at the same column lie in
// eight different groups of banks.
//
// Sums are f32, cut off rather than rounded, as in tiles.cu: of halves, the smaller ones of all blocks come first.
// COLS: columns that a thread block computes, a multiple of 16; HALVES: whether numbers come as halves, else as bf16; Y: how sums
// are stored.
// Constants: COLS=128 HALVES=0 Y=bf16
// Constants: COLS=112 HALVES=1 Y=float
// Constants: COLS=64 HALVES=1 Y=bf16
// Constants: COLS=48 HALVES=0 Y=float
// Constants: COLS=16 HALVES=0 Y=bf16
#include "common.cuh"

static const u32 PANEL = ABI_PANEL, THREADS = ABI_BLOCK, STAGES = ABI_MMA_STAGES, PLANES = HALVES ? 2 : 1;
// Each warp multiplies TALL times 16 rows of a window.
static const u32 TALL = WINDOW / (THREADS / 32) / 16;
// Elements that are copied at once: 16 bytes.
static const u32 WIDE = 8;
static const u32 ROW_BYTES = 2 * COLS + 16, PANEL_BYTES = PANEL * ROW_BYTES, BIT_BYTES = WINDOW * PANEL / 8;
static const u32 STAGE_BYTES = PANEL_BYTES + BIT_BYTES;
static_assert(ROW_BYTES / 16 % 2 == 1, "eight rows begin in different groups of banks");

// The right operand: in bf16, or as larger and smaller halves.
struct Planes {
    const unsigned short *of[2];
    // Elements from row to row, rows, and columns of which copies of 16 bytes are whole.
    u64 pitch, rows, cols;
};

// Copies 16 bytes, or writes zeros where nothing is wanted; `from` is a valid address all the same.
__device__ __forceinline__ void copy_16(u32 to, const void *from, bool wanted) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(wanted ? 16 : 0) : "memory");
}

// All blocks of this thread block in the order in which they are multiplied, as the copies walk ahead of the products.
struct Walk {
    u32 i, plane, block, last;

    __device__ __forceinline__ void begin(const BlockSpan *spans, u32 n_spans, u32 span) {
        i = span;
        if (i < n_spans) block = spans[i].first, last = spans[i].last, plane = PLANES - 1;
    }
    __device__ __forceinline__ void advance(const BlockSpan *spans, u32 n_spans) {
        if (++block < last) return;
        if (plane > 0) block = spans[i].first, plane--;
        else begin(spans, n_spans, i + gridDim.x);
    }
};

// Starts the copies of a block's bits and of its rows of the right operand.
__device__ __forceinline__ void fetch(const Planes &x, const Walk &walk, const u32 *columns, const u32 *bits,
                                      u32 stage) {
    const u32 first_row = columns[walk.block];
    const unsigned short *from = walk.plane ? x.of[1] : x.of[0];
#pragma unroll 1
    for (u32 i = threadIdx.x; i < PANEL * (COLS / WIDE); i += THREADS) {
        const u32 row = i / (COLS / WIDE), column = i % (COLS / WIDE) * WIDE;
        const u64 x_row = first_row + row, x_column = (u64)blockIdx.y * COLS + column;
        const bool there = x_row < x.rows && x_column < x.cols;
        copy_16(stage + row * ROW_BYTES + column * 2, there ? from + x_row * x.pitch + x_column : from, there);
    }
    if (threadIdx.x < BIT_BYTES / 16) {
        const u32 *words = bits + (u64)walk.block * (BIT_BYTES / 4) + threadIdx.x * 4;
        copy_16(stage + PANEL_BYTES + threadIdx.x * 16, words, true);
    }
}

// The right operands of two products side by side: 16 rows of 16 columns, of which this lane names a row and a half.
__device__ __forceinline__ void read_right(u32 at, u32 *right) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(right[0]), "=r"(right[1]), "=r"(right[2]), "=r"(right[3])
                 : "r"(at)
                 : "memory");
}

#if HALVES
#define KINDS ".f32.f16.f16.f32"
#else
#define KINDS ".f32.bf16.bf16.f32"
#endif
// Adds to 16 rows of 8 columns the product of 16 columns of a block with as many rows of the right operand.
__device__ __forceinline__ void multiply(float *d, const u32 *left, const u32 *right) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col" KINDS
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}

// Adds the product of a block with its panel to a warp's sums.
__device__ __forceinline__ void multiply_block(float (&sum)[TALL][COLS / 8][4], u32 stage) {
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 words[TALL];
#pragma unroll
    for (u32 m = 0; m < TALL; m++) {
        const u32 at = stage + PANEL_BYTES + ((warp * TALL + m) * 32 + lane) * 4;
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(words[m]) : "r"(at) : "memory");
    }
#pragma unroll 2
    for (u32 k = 0; k < PANEL / 16; k++) {
        u32 left[TALL][4];
#pragma unroll
        for (u32 m = 0; m < TALL; m++)
#pragma unroll
            for (u32 r = 0; r < 4; r++) left[m][r] = twos(words[m] >> 4 * k, r);
        const u32 rows = stage + (16 * k + lane % 16) * ROW_BYTES + lane / 16 * 16;
#pragma unroll
        for (u32 j = 0; j < COLS / 16; j++) {
            u32 right[4];
            read_right(rows + j * 32, right);
#pragma unroll
            for (u32 m = 0; m < TALL; m++) {
                multiply(sum[m][2 * j], left[m], right);
                multiply(sum[m][2 * j + 1], left[m], right + 2);
            }
        }
    }
}

// Writes a warp's sums to its rows of a slot.
__device__ __forceinline__ void store(const float (&sum)[TALL][COLS / 8][4], float one, u32 slot, Y *sums,
                                      u64 pitch) {
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const u64 column = (u64)blockIdx.y * COLS + lane % 4 * 2;
#pragma unroll
    for (u32 m = 0; m < TALL; m++)
#pragma unroll
        for (u32 lower = 0; lower < 2; lower++) {
            const u64 row = (u64)slot * WINDOW + (warp * TALL + m) * 16 + lane / 4 + 8 * lower;
            Y *out = sums + row * pitch + column;
#pragma unroll
            for (u32 j = 0; j < COLS / 8; j++) {
                const float pair[2] = {one * sum[m][j][2 * lower], one * sum[m][j][2 * lower + 1]};
                if (column + 8 * j < pitch) store_vector<2>(pair, out + 8 * j);
            }
        }
}

extern "C" __global__ void __launch_bounds__(THREADS, COLS <= ABI_MMA_NARROW ? 2 : 1)
    tiles_mma(Planes x, const BlockSpan *spans, u32 n_spans, const u32 *columns, const u32 *bits, const float *unscale,
              Y *sums, u64 pitch) {
    extern __shared__ __align__(16) unsigned char memory[];
    const u32 stages = shared_address(memory);
    // Ones were twos, and halves may be multiplied by a power of two.
    const float one = unscale ? 0.5f * *unscale : 0.5f;
    Walk ahead = {};
    u32 to = 0;
    // A group of copies for each stage, empty ones at the end, so that waiting for all but some is waiting for the oldest.
    const auto start_copies = [&]() {
        if (ahead.i < n_spans) {
            fetch(x, ahead, columns, bits, stages + to * STAGE_BYTES);
            ahead.advance(spans, n_spans);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        to = to + 1 == STAGES ? 0 : to + 1;
    };
    ahead.begin(spans, n_spans, blockIdx.x);
    for (u32 stage = 0; stage < STAGES - 1; stage++) start_copies();
    u32 stage = 0;
    for (u32 i = blockIdx.x; i < n_spans; i += gridDim.x) {
        float sum[TALL][COLS / 8][4] = {};
        for (u32 n = PLANES * (spans[i].last - spans[i].first); n > 0; n--) {
            asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
            // What all threads have copied is there, and all have read the stage that is written next.
            __syncthreads();
            start_copies();
            multiply_block(sum, stages + stage * STAGE_BYTES);
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }
        store(sum, one, spans[i].slot, sums, pitch);
    }
}
