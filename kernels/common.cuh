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
    u32 bits = __float_as_uint(x);
    if (x != x) return bf16{(unsigned short)(bits >> 16 | 0x40)};
    return bf16{(unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
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
static const u64 SEGMENT = 1024;

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

// Segments come first, because they are the longest. False for a hub as a row: its segments stand for it.
__device__ __forceinline__ bool piece_at(const Pattern &a, u64 i, Piece &piece) {
    piece.whole = i >= a.n_segments;
    if (piece.whole) {
        piece.row = i - a.n_segments;
        piece.begin = a.indptr[piece.row];
        piece.end = a.indptr[piece.row + 1];
        return piece.end - piece.begin <= SEGMENT;
    }
    u32 hub = a.hub_owner[i];
    piece.segment = i;
    piece.row = a.hub_rows[hub];
    piece.begin = a.indptr[piece.row] + (i - a.hub_first[hub]) * SEGMENT;
    u64 end = a.indptr[piece.row + 1];
    piece.end = piece.begin + SEGMENT < end ? piece.begin + SEGMENT : end;
    return true;
}

// The first piece of work of a thread, and how far it is to the next: work is 64-bit, grids are not.
__device__ __forceinline__ u64 first_thread() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ u64 n_threads() { return (u64)gridDim.x * blockDim.x; }
