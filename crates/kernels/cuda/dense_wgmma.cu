// The products of dense.cu in f32 by the warpgroups of compute capability 9.0, for wide results: twice as fast there. Names and
// constants are the same.
//
// Two warpgroups multiply, 64 rows of a tile each, and two others bring pieces of DEPTH of the summed dimension to a ring of stages. A's
// rows are copied as they are; those who multiply read them as fragments and split them. B's columns go through registers: they
// are split there, once for both warpgroups, and stored as the instruction reads its right operand, by columns, because it takes
// numbers of 32 bits in no other order. So all that is done for loads runs beside the products, and shared memory, which tensor cores
// read half of the time, is written once more only for B.
//
//   column n of a stage's B: 32 numbers in 128 bytes, chunks of four exchanged: chunk q is at q ^ (n % 8)
// Constants: X=float Y=float B=float V=float ROWS=128 COLS=128 TA=0 TB=0 SPLIT=0 PAIR=1 BACK=0 ACTIVATION=1 ACCUMULATE=0 HELD=0 MASKS=1 FACTORS=0
// Constants: X=float Y=float B=float V=float ROWS=128 COLS=128 TA=0 TB=1 SPLIT=0 PAIR=0 BACK=1 ACTIVATION=2 ACCUMULATE=0 HELD=0 MASKS=0 FACTORS=1
// Constants: X=float Y=float B=float V=float ROWS=128 COLS=128 TA=0 TB=0 SPLIT=0 PAIR=0 BACK=0 ACTIVATION=0 ACCUMULATE=0 HELD=0 MASKS=0 FACTORS=1
// Constants: X=float Y=bf16 B=float V=float ROWS=128 COLS=128 TA=0 TB=0 SPLIT=0 PAIR=0 BACK=0 ACTIVATION=0 ACCUMULATE=1 HELD=0 MASKS=0 FACTORS=0
// Constants: X=float Y=float B=float V=float ROWS=128 COLS=128 TA=1 TB=0 SPLIT=1 PAIR=0 BACK=0 ACTIVATION=0 ACCUMULATE=1 HELD=0 MASKS=0 FACTORS=0
#include "common.cuh"

#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000

static const int ABREAST = 1;
#include "dense.cuh"
#include "warpgroups.cuh"

static_assert(COLS == 128 && ROWS == 128 && sizeof(X) == 4, "what the instruction takes, and a warpgroup for each half of the rows");
static const u32 STAGES = ABI_GEMM_WARPGROUP_STAGES, WARPGROUP = ABI_WARPGROUP;
// Registers of a thread that copies A, that brings B, and that multiplies: together what a multiprocessor has.
static const int OF_COPIES = 32, OF_SPLITS = 80, OF_SUMS = 200;
static_assert((OF_COPIES + OF_SPLITS + 2 * OF_SUMS) * WARPGROUP <= 65536, "registers of a multiprocessor");
static const int KSTEPS = DEPTH / STEP, B_BYTES = COLS * DEPTH * 4;
// B's large numbers, its small ones, and A's rows, where swizzled rows may begin.
static const int STAGE_BYTES = (2 * B_BYTES + A_BYTES + 1023) / 1024 * 1024;

// d = a·b, or d += a·b, of 64 × 128 numbers, for eight of the summed dimension.
__device__ __forceinline__ void multiply(float *d, const u32 *a, u64 b, int keeps) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {" R64 "}, {%64, %65, %66, %67}, %68, p, 1, 1;\n}"
                 : D64
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keeps));
}

// Rows of 128 bytes, swizzled over as many: 1024 bytes to the next eight.
__device__ __forceinline__ u64 descriptor(u32 at) {
    return (u64)1 << 62 | (u64)(1024 / 16) << 32 | (u64)1 << 16 | (at & 0x3ffff) >> 4;
}

// Copies a tile of A whose first element is at (row, col), by a warpgroup.
__device__ __forceinline__ void copy_a(const Matrix &from, u64 row, u64 col, u32 to) {
    constexpr u32 across = A_WIDTH / VECTOR, at_once = WARPGROUP / across;
    const u32 thread = threadIdx.x % WARPGROUP;
    const u64 r = row + thread / across, c = col + thread % across * VECTOR;
    const int wanted = c < from.cols ? (from.cols - c < VECTOR ? (int)(from.cols - c) : VECTOR) * 4 : 0;
    const int rows_left = r < from.rows ? (from.rows - r < A_ROWS ? (int)(from.rows - r) : A_ROWS) : 0;
    const float *source = from.data + r * from.pitch + c;
    const u64 step = at_once * from.pitch;
    to += (thread / across * A_PITCH + thread % across * VECTOR) * 4;
#pragma unroll
    for (int i = 0; i < A_ROWS; i += at_once, source += step) copy_vector(to + i * A_PITCH * 4, source, i < rows_left ? wanted : 0);
}

// What a thread has of a stage's B: fours of the summed dimension.
struct Fours {
    float x[DEPTH * COLS / WARPGROUP / 4][4];
    // Columns of them that are there, where they were read as vectors.
    int n_wanted;
};
static const int FOURS = DEPTH * COLS / WARPGROUP / 4;

// Asks for them; nobody waits here. A thread has a column, or, where columns lie side by side in memory, an eighth of eight of them.
__device__ __forceinline__ void ask_b(const Matrix &from, u64 col, u64 depth, Fours &fours) {
    const u32 thread = threadIdx.x % WARPGROUP;
    if (TB) {
        const u64 d = depth + thread % 8 * 4, r = col + thread / 8;
        fours.n_wanted = d < from.cols ? (from.cols - d < 4 ? (int)(from.cols - d) : 4) : 0;
        const int rows_left = fours.n_wanted > 0 && r < from.rows ? (from.rows - r < COLS ? (int)(from.rows - r) : COLS) : 0;
        const float *source = from.data + r * from.pitch + d;
        const u64 step = WARPGROUP / 8 * from.pitch;
#pragma unroll
        for (int j = 0; j < FOURS; j++, source += step) {
            float4 four = {};
            if (j * (int)(WARPGROUP / 8) < rows_left) four = __ldg(reinterpret_cast<const float4 *>(source));
            fours.x[j][0] = four.x, fours.x[j][1] = four.y, fours.x[j][2] = four.z, fours.x[j][3] = four.w;
        }
    } else {
        const u64 c = col + thread;
        const int rows_left = c < from.cols && depth < from.rows ? (from.rows - depth < DEPTH ? (int)(from.rows - depth) : DEPTH) : 0;
        const float *source = from.data + depth * from.pitch + c;
        if (rows_left == DEPTH) {
            // Nothing to decide for each.
#pragma unroll
            for (int d = 0; d < DEPTH; d++, source += from.pitch) fours.x[d / 4][d % 4] = __ldg(source);
        } else {
#pragma unroll
            for (int d = 0; d < DEPTH; d++, source += from.pitch) fours.x[d / 4][d % 4] = d < rows_left ? __ldg(source) : 0.0f;
        }
    }
}

// Stores them split.
__device__ __forceinline__ void store_b(const Fours &fours, unsigned char *to) {
    const u32 thread = threadIdx.x % WARPGROUP;
#pragma unroll
    for (int j = 0; j < FOURS; j++) {
        const u32 q = TB ? thread % 8 : j, n = TB ? thread / 8 + j * (WARPGROUP / 8) : thread;
        u32 large[4], small[4];
#pragma unroll
        for (int i = 0; i < 4; i++) split(TB && i >= fours.n_wanted ? 0.0f : fours.x[j][i], large[i], small[i]);
        unsigned char *at = to + n * 128 + (q ^ n % 8) * 16;
        *reinterpret_cast<uint4 *>(at) = uint4{large[0], large[1], large[2], large[3]};
        *reinterpret_cast<uint4 *>(at + B_BYTES) = uint4{small[0], small[1], small[2], small[3]};
    }
    // Tensor cores read what was stored.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// What a lane multiplies of a stage's A.
typedef float Fragments[KSTEPS][4];
__device__ __forceinline__ void read_a(const float *a, int row, Fragments &x) {
    const int group = threadIdx.x % 32 / 4, lane = threadIdx.x % 4;
#pragma unroll
    for (int k = 0; k < KSTEPS; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int r = row + group + i % 2 * 8, d = k * STEP + lane + i / 2 * 4;
            x[k][i] = a[TA ? d * A_PITCH + r : r * A_PITCH + d];
        }
}

// The ring, in shared memory from a multiple of 1024 bytes on.
struct Stages {
    unsigned char *memory;
    u32 full, empty;

    __device__ __forceinline__ unsigned char *b(u32 stage) const { return memory + stage * STAGE_BYTES; }
    __device__ __forceinline__ unsigned char *a(u32 stage) const { return b(stage) + 2 * B_BYTES; }
};

// A warpgroup's work: all stages of A.
__device__ __forceinline__ void bring_a(const Work &work, const Stages &stages) {
    Ring<STAGES> ring;
    for (Cursor at(work); !at.is_done(work); at.advance(work), ring.advance()) {
        barrier_wait(stages.empty + 8 * ring.stage, ring.parity ^ 1);
        const u64 row = at.tile * BM, depth = work.left.depth(at.depth);
        copy_a(work.left.matrix(at.depth), TA ? depth : row, TA ? row : depth, shared_address(stages.a(ring.stage)));
        // Arrives when the thread's copies have.
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(stages.full + 8 * ring.stage) : "memory");
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
}

// The same of B: a stage is asked for when the one before was stored.
__device__ __forceinline__ void bring_b(const Work &work, const Stages &stages) {
    Ring<STAGES> ring;
    Cursor at(work);
    Fours fours;
    const auto ask = [&] {
        if (!at.is_done(work)) ask_b(work.right.matrix(at.depth), work.first_col, work.right.depth(at.depth), fours);
    };
    for (ask(); !at.is_done(work); ring.advance()) {
        barrier_wait(stages.empty + 8 * ring.stage, ring.parity ^ 1);
        store_b(fours, stages.b(ring.stage));
        barrier_arrive(stages.full + 8 * ring.stage);
        at.advance(work);
        ask();
    }
}

// The work of those who multiply.
__device__ __forceinline__ void sum_up(const Work &work, const Stages &stages, const EpilogueArgs &to) {
    Ring<STAGES> ring;
    Cursor at(work);
    if (at.is_done(work)) return;
    const int warp = threadIdx.x / 32, row = 16 * warp;
    const u64 across = work.first_col + threadIdx.x % 4 * 2;
    __shared__ WarpColumns of_warps;
    if (BACK) clear_column_sums(of_warps, warp, 0);
    Sums sums = {};
    Fragments x;
    const auto read = [&] {
        barrier_wait(stages.full + 8 * ring.stage, ring.parity);
        read_a(reinterpret_cast<const float *>(stages.a(ring.stage)), row, x);
    };
    read();
    while (true) {
        u32 large[KSTEPS][4], small[KSTEPS][4];
#pragma unroll
        for (int k = 0; k < KSTEPS; k++)
#pragma unroll
            for (int i = 0; i < 4; i++) split(x[k][i], large[k][i], small[k][i]);
        float piece[4 * WIDE];
        const u32 b = shared_address(stages.b(ring.stage)), emptied = stages.empty + 8 * ring.stage;
        const u64 large_b = descriptor(b), small_b = descriptor(b + B_BYTES);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < KSTEPS; k++) {
            multiply(piece, small[k], large_b + 2 * k, k > 0);
            multiply(piece, large[k], small_b + 2 * k, 1);
            multiply(piece, large[k], large_b + 2 * k, 1);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        const u64 tile = at.tile, first = tile * BM + row + threadIdx.x % 32 / 4;
        ring.advance();
        at.advance(work);
        const bool is_complete = at.tile != tile;
        if (!is_complete) read();
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        // Nobody may read sums before.
#pragma unroll
        for (int i = 0; i < 4 * WIDE; i++) asm volatile("" : "+f"(piece[i])::"memory");
        // Each thread arrives, after it has read its part of A. racecheck cannot follow one that arrives for its warp.
        barrier_arrive(emptied);
#pragma unroll
        for (int n = 0; n < WIDE; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) sums[0][n][i] += piece[4 * n + i];
        if (!is_complete) continue;
        // Registers are few before, and many now.
        Columns bias, column_sums = {};
        read_bias(to, across, bias);
        finish_tile(to, first, across, sums, bias, nullptr, column_sums);
        if (BACK) add_column_sums(of_warps, warp, 0, column_sums);
        if (at.is_done(work)) break;
        read();
    }
    if (BACK && to.partials) leave_column_sums(to, of_warps, work.first_col);
}

extern "C" __global__ void __launch_bounds__(4 * WARPGROUP, 1)
    product(const __grid_constant__ Term first_term, const __grid_constant__ Term second_term, u64 part, const __grid_constant__ EpilogueArgs to) {
    extern __shared__ unsigned char memory[];
    __shared__ alignas(8) u64 barriers[2 * STAGES];
    const u32 first = shared_address(memory), full = shared_address(barriers);
    const Stages stages = {memory + ((first + 1023) / 1024 * 1024 - first), full, full + 8 * STAGES};
    if (threadIdx.x == 0) {
        for (u32 stage = 0; stage < STAGES; stage++) {
            barrier_init(stages.full + 8 * stage, 2 * WARPGROUP);
            barrier_init(stages.empty + 8 * stage, WARPS * 32);
        }
    }
    __syncthreads();
    const Work work(first_term, second_term, part, to);
    if (threadIdx.x >= 3 * WARPGROUP) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(OF_COPIES));
        bring_a(work, stages);
    } else if (threadIdx.x >= 2 * WARPGROUP) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(OF_SPLITS));
        bring_b(work, stages);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(OF_SUMS));
        sum_up(work, stages, to);
    }
}

#endif
