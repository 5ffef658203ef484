// Blocks of a sparse pattern times a dense matrix, by the tensor cores of compute capability 9.0.
//
// A block is WINDOW rows by 64 columns of the pattern, one bit for each place. A warpgroup's threads hold their part of a block
// as one word for each 64 rows, and widen bits to twos in registers, in the order in which the instruction wants its left
// operand; the right operand is 64 rows of the matrix, as they lie in memory, copied to shared memory by the copy engine.
//
//   word of thread t, for 16 columns k of the 64:   bit 4k + r + 16·odd   is row (t / 32)·16 + t % 32 / 4 + 8·(r % 2),
//                                                                         column 16k + t % 4 · 2 + odd + 8·(r / 2)
//
// Sums are f32, but the tensor cores cut them off rather than round them: where numbers come as two halves, all blocks are
// walked with the smaller ones first and then with the larger ones, so that what is cut off is small.
// COLS: columns that a thread block computes, a multiple of 16; HALVES: whether numbers come as halves, else as bf16; Y: how sums
// are stored.
// Constants: COLS=128 HALVES=0 Y=bf16
// Constants: COLS=112 HALVES=1 Y=float
// Constants: COLS=48 HALVES=1 Y=bf16
// Constants: COLS=16 HALVES=0 Y=float
#include "common.cuh"
#include "warpgroups.cuh"

#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000

static const u32 PANEL = ABI_PANEL, GROUPS = ABI_WGMMA_GROUPS, TALL = 2, STAGES = ABI_WGMMA_STAGES, PLANES = HALVES ? 2 : 1;
static_assert(GROUPS * TALL * 64 == WINDOW, "warpgroups share a window");
// Copies of 64 columns, 128 bytes wide, which is how far their swizzle goes.
static const u32 BOXES = (COLS + 63) / 64, BOX_BYTES = PANEL * 128, BIT_BYTES = WINDOW / 64 * 512;
static const u32 STAGE_BYTES = BOXES * BOX_BYTES + BIT_BYTES;

// What the driver makes of a matrix for the copy engine.
struct alignas(64) TensorMap {
    u64 words[16];
};

__device__ __forceinline__ void copy_box(u32 to, const TensorMap *map, u32 barrier, u32 column, u32 row) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(column), "r"(row)
                 : "memory");
}
__device__ __forceinline__ void copy_bytes(u32 to, const void *from, u32 bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
                 "r"(bytes), "r"(barrier)
                 : "memory");
}

#if HALVES
#define KINDS ".f32.f16.f16 {"
#else
#define KINDS ".f32.bf16.bf16 {"
#endif
#define MULTIPLY(cols, sums, registers, left, right_at)                                                                 \
    template <> __device__ __forceinline__ void multiply<cols>(float *d, const u32 *a, u64 right) {                     \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #cols "k16" KINDS registers "}, {" left "}, " right_at         \
                     ", 1, 1, 1, 1;"                                                                                    \
                     : sums                                                                                             \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right));                                         \
    }

// Adds to 64 rows of `cols` columns the product of 16 columns of a block with as many rows of the right operand.
template <int cols> __device__ __forceinline__ void multiply(float *d, const u32 *a, u64 right);
MULTIPLY(16, D8(0), R8, "%8, %9, %10, %11", "%12")
MULTIPLY(32, D16, R16, "%16, %17, %18, %19", "%20")
MULTIPLY(48, D24, R24, "%24, %25, %26, %27", "%28")
MULTIPLY(64, D32, R32, "%32, %33, %34, %35", "%36")
MULTIPLY(80, D40, R40, "%40, %41, %42, %43", "%44")
MULTIPLY(96, D48, R48, "%48, %49, %50, %51", "%52")
MULTIPLY(112, D56, R56, "%56, %57, %58, %59", "%60")
MULTIPLY(128, D64, R64, "%64, %65, %66, %67", "%68")

// Reads blocks into the ring, one thread's work.
__device__ __forceinline__ void fetch(const TensorMap *high, const TensorMap *low, const BlockSpan *spans, u32 n_spans,
                                      const u32 *columns, const u32 *bits, u32 stages, u32 full, u32 empty) {
    Ring<STAGES> ring;
    for (u32 i = blockIdx.x; i < n_spans; i += gridDim.x) {
        const BlockSpan span = spans[i];
        for (u32 plane = PLANES; plane-- > 0;) {
            for (u32 block = span.first; block < span.last; block++) {
                barrier_wait(empty + 8 * ring.stage, ring.parity ^ 1);
                const u32 to = stages + ring.stage * STAGE_BYTES, barrier = full + 8 * ring.stage;
                barrier_expect(barrier, STAGE_BYTES);
                const u32 row = columns[block];
                for (u32 box = 0; box < BOXES; box++)
                    copy_box(to + box * BOX_BYTES, plane ? low : high, barrier, blockIdx.y * COLS + box * 64, row);
                copy_bytes(to + BOXES * BOX_BYTES, bits + (u64)block * (BIT_BYTES / 4), BIT_BYTES, barrier);
                ring.advance();
            }
        }
    }
}

// Multiplies what the ring brings, a warpgroup's work on its rows of each window.
__device__ __forceinline__ void consume(const BlockSpan *spans, u32 n_spans, float one, Y *sums, u64 pitch, u32 stages,
                                        u32 full, u32 empty) {
    const u32 group = threadIdx.x / ABI_WARPGROUP, thread = threadIdx.x % ABI_WARPGROUP;
    // A matrix whose columns lie side by side, swizzled over 128 bytes: 1024 bytes to the next 8 rows.
    const u64 layout = (u64)1 << 62 | (u64)(1024 / 16) << 32 | (u64)(BOX_BYTES / 16) << 16;
    Ring<STAGES> ring;
    for (u32 i = blockIdx.x; i < n_spans; i += gridDim.x) {
        const BlockSpan span = spans[i];
        float sum[TALL][COLS / 2];
#pragma unroll
        for (u32 m = 0; m < TALL; m++)
#pragma unroll
            for (u32 j = 0; j < COLS / 2; j++) sum[m][j] = 0;
        for (u32 n = PLANES * (span.last - span.first); n > 0; n--) {
            barrier_wait(full + 8 * ring.stage, ring.parity);
            const u32 stage = stages + ring.stage * STAGE_BYTES;
            u32 left[TALL][16];
#pragma unroll
            for (u32 m = 0; m < TALL; m++) {
                const u32 at = stage + BOXES * BOX_BYTES + ((group * TALL + m) * 128 + thread) * 4;
                u32 word;
                asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(at));
#pragma unroll
                for (u32 q = 0; q < 16; q++) left[m][q] = twos(word, q);
            }
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                const u64 right = layout | ((stage + k * 2048) & 0x3ffff) >> 4;
#pragma unroll
                for (u32 m = 0; m < TALL; m++) multiply<COLS>(sum[m], left[m] + 4 * k, right);
            }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            // Every thread for itself: it has read its words.
            barrier_arrive(empty + 8 * ring.stage);
            ring.advance();
        }
        const u64 column = (u64)blockIdx.y * COLS + thread % 4 * 2;
#pragma unroll
        for (u32 m = 0; m < TALL; m++)
#pragma unroll
            for (u32 lower = 0; lower < 2; lower++) {
                const u64 row = (u64)span.slot * WINDOW + (group * TALL + m) * 64 + thread / 32 * 16 + thread % 32 / 4 + 8 * lower;
                Y *out = sums + row * pitch + column;
#pragma unroll
                for (u32 j = 0; j < COLS / 8; j++) {
                    const float pair[2] = {one * sum[m][4 * j + 2 * lower], one * sum[m][4 * j + 2 * lower + 1]};
                    if (column + 8 * j < pitch) store_vector<2>(pair, out + 8 * j);
                }
            }
    }
}

extern "C" __global__ void __launch_bounds__((ABI_WGMMA_GROUPS + 1) * ABI_WARPGROUP, 1)
    tiles(const __grid_constant__ TensorMap high, const __grid_constant__ TensorMap low, const BlockSpan *spans, u32 n_spans,
          const u32 *columns, const u32 *bits, const float *unscale, Y *sums, u64 pitch) {
    extern __shared__ unsigned char memory[];
    __shared__ alignas(8) u64 barriers[2 * STAGES];
    // Swizzled boxes begin at multiples of 1024 bytes.
    const u32 stages = (shared_address(memory) + 1023) & ~1023u;
    const u32 full = shared_address(barriers), empty = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        for (u32 stage = 0; stage < STAGES; stage++) {
            barrier_init(full + 8 * stage, 1);
            barrier_init(empty + 8 * stage, GROUPS * ABI_WARPGROUP);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x >= GROUPS * ABI_WARPGROUP) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == GROUPS * ABI_WARPGROUP) fetch(&high, &low, spans, n_spans, columns, bits, stages, full, empty);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        // Ones were twos, and halves may be multiplied by a power of two.
        consume(spans, n_spans, unscale ? 0.5f * *unscale : 0.5f, sums, pitch, stages, full, empty);
    }
}

#endif
