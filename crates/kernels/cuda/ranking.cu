// The largest elements of rows. X is their storage.
// Elements: X
#include "common.cuh"
#include "elements.cuh"

// The column of the largest element of a row, the first of equals, by a warp. Comparisons start at the first element, so that one
// that is no number stays, and later ones are passed over.
__device__ __forceinline__ u32 largest_column(const X *row, u64 cols) {
    float best = to_f32(row[0]);
    u32 column = 0;
    for (u64 c = threadIdx.x % 32; c < cols; c += 32) {
        const float value = to_f32(row[c]);
        if (value > best) best = value, column = (u32)c;
    }
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes >>= 1) {
        const float value = __shfl_xor_sync(~0u, best, lanes);
        const u32 other = __shfl_xor_sync(~0u, column, lanes);
        if (value > best || (value == best && other < column)) best = value, column = other;
    }
    return column;
}

// Of each row.
extern "C" __global__ void argmax_rows(const X *x, u64 rows, u64 cols, u32 *found) {
    for (u64 row = first_thread() / 32; row < rows; row += n_threads() / 32) {
        const u32 column = largest_column(x + row * pitch_of(cols), cols);
        if (threadIdx.x % 32 == 0) found[row] = column;
    }
}

// How many of `n` rows have it at their class. Whole numbers add up to the same in any order.
extern "C" __global__ void count_correct(const X *x, u64 cols, const u32 *classes, const u32 *rows, u64 n, u64 *n_correct) {
    u64 found = 0;
    for (u64 i = first_thread() / 32; i < n; i += n_threads() / 32) {
        const u64 row = rows[i];
        found += largest_column(x + row * pitch_of(cols), cols) == classes[row];
    }
    if (threadIdx.x % 32 == 0 && found > 0) atomicAdd(n_correct, found);
}

// A number for each element that orders as elements do: zeros of both signs are equal; 0 for what is never named, which
// is what is no number and -∞. Keys are as far apart as the elements.
extern "C" __global__ void rank_keys(const X *x, u32 *keys, u64 n) {
    for (u64 i = first_thread(); i < n; i += n_threads()) {
        const float value = to_f32(x[i]);
        const u32 bits = __float_as_uint(value == 0.0f ? 0.0f : value);
        const u32 key = bits >> 31 ? ~bits : bits | 0x80000000u;
        keys[i] = value > __int_as_float(0xff800000) ? key : 0;
    }
}

// Clears the keys of the columns that each row excludes. Row 0 of keys is row `first` of the excluded.
extern "C" __global__ void exclude_keys(const u64 *indptr, const u32 *indices, u64 first, u64 rows, u64 cols, u32 *keys) {
    const u64 pitch = pitch_of(cols);
    for (u64 row = first_thread() / 32; row < rows; row += n_threads() / 32) {
        const u64 end = indptr[first + row + 1];
        for (u64 e = indptr[first + row] + threadIdx.x % 32; e < end; e += 32) keys[row * pitch + indices[e]] = 0;
    }
}

// What a block knows of its row: elements whose key begins with `prefix` are `remaining` too few or just enough.
struct Threshold {
    u32 prefix;
    u64 remaining;
    bool found;
};

// The k-th largest key of a row, and how many elements with just this key are among the k largest; not found where fewer
// than k may be named. Keys are narrowed down by eight bits at a time, for each value of which a block has a thread.
__device__ Threshold threshold_of(const u32 *keys, u64 cols, u64 k) {
    static_assert(ABI_BLOCK == 256, "a thread for each value of eight bits");
    __shared__ u32 histogram[ABI_BLOCK];
    __shared__ Threshold shared;
    Threshold at = {0, k, true};
    for (int shift = 24; shift >= 0 && at.found; shift -= 8) {
        const u32 known = shift == 24 ? 0 : ~0u << (shift + 8);
        histogram[threadIdx.x] = 0;
        __syncthreads();
        for (u64 c = threadIdx.x; c < cols; c += ABI_BLOCK) {
            const u32 key = keys[c];
            if (key != 0 && (key & known) == at.prefix) atomicAdd(&histogram[key >> shift & 255], 1u);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int bin = 255;
            u64 remaining = at.remaining;
            while (bin >= 0 && histogram[bin] < remaining) remaining -= histogram[bin--];
            shared = Threshold{at.prefix | (u32)(bin < 0 ? 0 : bin) << shift, remaining, bin >= 0};
        }
        __syncthreads();
        at = shared;
    }
    return at;
}

// The columns of the k largest keys of each row in order, and ~0 where there are fewer; a block for each
// row. `best` has room for k numbers a row: keys above columns, so that they order as the result does.
extern "C" __global__ void top_k(const u32 *all_keys, u64 cols, u64 k, u64 *all_best, u32 *all_found) {
    __shared__ u32 n_above;
    __shared__ u32 ties_of[ABI_BLOCK / 32];
    const u32 *keys = all_keys + blockIdx.x * pitch_of(cols);
    u64 *best = all_best + blockIdx.x * k;
    u32 *found = all_found + blockIdx.x * k;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Threshold at = threshold_of(keys, cols, k);
    const u32 limit = at.found ? at.prefix : 0;
    const u64 n_ties = at.found ? at.remaining : 0;
    if (threadIdx.x == 0) n_above = 0;
    __syncthreads();
    // Larger keys are sorted below, whatever their order here; of equals the first columns are taken, in order.
    u64 before = 0;
    for (u64 base = 0; base < cols; base += ABI_BLOCK) {
        const u64 c = base + threadIdx.x;
        const u32 key = c < cols ? keys[c] : 0;
        const u64 entry = (u64)key << 32 | (u32)~(u32)c;
        if (key > limit) best[atomicAdd(&n_above, 1u)] = entry;
        if (before >= n_ties) continue;
        const bool ties = key == limit && c < cols;
        const u32 ballot = __ballot_sync(~0u, ties);
        if (lane == 0) ties_of[warp] = __popc(ballot);
        __syncthreads();
        u64 place = before + __popc(ballot & ((1u << lane) - 1));
        for (u32 w = 0; w < ABI_BLOCK / 32; w++) {
            if (w < warp) place += ties_of[w];
            before += ties_of[w];
        }
        if (ties && place < n_ties) best[k - n_ties + place] = entry;
        __syncthreads();
    }
    __syncthreads();
    const u64 n = at.found ? k : n_above;
    for (u64 i = threadIdx.x; i < k; i += ABI_BLOCK) {
        if (i >= n) {
            found[i] = ~0u;
            continue;
        }
        u64 rank = 0;
        for (u64 j = 0; j < n; j++) rank += best[j] > best[i];
        found[rank] = ~(u32)best[i];
    }
}
