// Dot products of rows with a vector, and their gradients, for 1, 2, 4 or 8 heads and widths that are a multiple of eight;
// edges.cu has the others. Column k · heads + h belongs to head h. Eight columns are loaded at once.
//
// X and Y are the storage of what is read by rows, V that of the vector, Z of what is written; types that a kernel does not
// name are left out.
// Constants: X=float Y=float V=float Z=float HEADS=1
// Constants: X=bf16 Y=bf16 V=float Z=bf16 HEADS=4
// Constants: X=float Y=bf16 V=float Z=float HEADS=8
#include "common.cuh"
#include "elements.cuh"

static const int VEC = 8;
static const u32 THREADS = ABI_BLOCK;

extern "C" __global__ void head_dots(const X *x, u64 n_rows, u64 n_heads, u64 depth, const V *vector, Z *out) {
    const u64 width = HEADS * depth, lane = threadIdx.x % 32;
    for (u64 row = first_thread() / 32; row < n_rows; row += n_threads() / 32) {
        float dots[HEADS] = {};
        for (u64 c = lane * VEC; c < width; c += 32 * VEC) {
            float of_row[VEC], of_vector[VEC];
            load_vector<VEC>(x + row * width + c, of_row);
            load_vector<VEC>(vector + c, of_vector);
#pragma unroll
            for (int k = 0; k < VEC; k++) dots[k % HEADS] += of_row[k] * of_vector[k];
        }
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            for (int lanes = 16; lanes > 0; lanes >>= 1) dots[h] += __shfl_xor_sync(~0u, dots[h], lanes);
            if (lane == h) out[row * pitch_of(HEADS) + h] = from_f32<Z>(dots[h]);
        }
    }
}

// Adds the gradient of the rows: X is the storage of that of the dot products.
extern "C" __global__ void head_dots_rows(const X *grad, u64 n_rows, u64 n_heads, u64 width, const V *vector, Z *x_grad) {
    for (u64 row = first_thread() / 32; row < n_rows; row += n_threads() / 32) {
        float of_heads[HEADS];
#pragma unroll
        for (int h = 0; h < HEADS; h++) of_heads[h] = to_f32(grad[row * pitch_of(HEADS) + h]);
        for (u64 c = threadIdx.x % 32 * VEC; c < width; c += 32 * VEC) {
            float sums[VEC], of_vector[VEC];
            load_vector<VEC>(x_grad + row * width + c, sums);
            load_vector<VEC>(vector + c, of_vector);
#pragma unroll
            for (int k = 0; k < VEC; k++) sums[k] += of_heads[k % HEADS] * of_vector[k];
            store_vector<VEC>(sums, x_grad + row * width + c);
        }
    }
}

// For each block of rows, Σ grad[r, h]·x[r, c]: the gradient of the vector, to be added up by column_totals.
extern "C" __global__ void __launch_bounds__(THREADS) head_dots_vector(const X *grad, const Y *x, u64 n_rows, u64 n_heads, u64 width,
                                                                       u64 rows_of_block, float *partial) {
    __shared__ float shared[THREADS][VEC];
    const u64 groups = width / VEC, tile = groups < THREADS ? groups : THREADS, lanes = THREADS / tile, lane = threadIdx.x / tile;
    const u64 begin = blockIdx.x * rows_of_block, end = begin + rows_of_block < n_rows ? begin + rows_of_block : n_rows;
    for (u64 first = 0; first < groups; first += tile) {
        const u64 group = first + threadIdx.x % tile;
        const bool works = group < groups;
        float sums[VEC] = {};
        if (lane < lanes && works) {
#pragma unroll 4
            for (u64 row = begin + lane; row < end; row += lanes) {
                float of_row[VEC];
                load_vector<VEC>(x + row * width + group * VEC, of_row);
#pragma unroll
                for (int k = 0; k < VEC; k++) sums[k] += to_f32(grad[row * pitch_of(HEADS) + k % HEADS]) * of_row[k];
            }
        }
#pragma unroll
        for (int k = 0; k < VEC; k++) shared[threadIdx.x][k] = sums[k];
        __syncthreads();
        if (lane == 0 && works) {
            for (u64 l = 1; l < lanes; l++) {
#pragma unroll
                for (int k = 0; k < VEC; k++) sums[k] += shared[l * tile + threadIdx.x][k];
            }
            store_vector<VEC>(sums, partial + blockIdx.x * width + group * VEC);
        }
        __syncthreads();
    }
}
