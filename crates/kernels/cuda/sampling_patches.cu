// Who is asked for what where every rank has the rows of a patch, a range of nodes: the frontier of a hop, or any list of nodes, by the
// rank that has them (DSP's shuffle: Cai et al., PPoPP 2023, section 5).
#include "common.cuh"
#include "sampling.cuh"

static const u32 THREADS = ABI_BLOCK;
// The most ranks: a thread of a block for each.
static const u32 MOST_RANKS = THREADS;

// What is asked of each rank. In which order depends on threads; it decides nothing, since every answer goes where its question came from.
struct RequestArguments {
    // Where the patch of each rank begins, and where the last one ends.
    const u32 *bounds;
    u64 n_ranks;
    // From where one rank's questions begin to where the next one's do.
    u64 stride;
    // How many nodes each rank is asked for; then how many edges these draw.
    u64 *counts;
    u32 *nodes;
    // Where each row's question is; null where nobody asks.
    u32 *slots;
    // For each question the row that it is of; null likewise.
    u32 *places;

    __device__ __forceinline__ u32 owner(u32 node) const {
        u32 first = 0, n = (u32)n_ranks;
        // The last patch that begins at the node or before: of empty ones that begin there, the one behind them.
        while (n > 1) {
            const u32 half = n / 2;
            if (bounds[first + half] <= node) first += half;
            n -= half;
        }
        return first;
    }
};

// A node that a row asks for, which draws so many edges; by all threads of a block, whether or not they have one.
__device__ __forceinline__ void ask(const RequestArguments &asking, bool asks, u64 row, u32 node, u32 n_edges) {
    __shared__ u32 n_of[MOST_RANKS];
    __shared__ u64 edges_of[MOST_RANKS], first_of[MOST_RANKS];
    n_of[threadIdx.x] = 0;
    edges_of[threadIdx.x] = 0;
    __syncthreads();
    u32 owner = 0, at = 0;
    if (asks) {
        owner = asking.owner(node);
        at = atomicAdd(&n_of[owner], 1u);
        if (n_edges > 0) atomicAdd(&edges_of[owner], (u64)n_edges);
    }
    __syncthreads();
    if (threadIdx.x < asking.n_ranks && n_of[threadIdx.x] > 0) {
        first_of[threadIdx.x] = atomicAdd(&asking.counts[threadIdx.x], (u64)n_of[threadIdx.x]);
        atomicAdd(&asking.counts[asking.n_ranks + threadIdx.x], edges_of[threadIdx.x]);
    }
    __syncthreads();
    if (!asks) return;
    const u64 slot = owner * asking.stride + first_of[owner] + at;
    asking.nodes[slot] = node;
    if (asking.slots) asking.slots[row] = (u32)slot;
    if (asking.places) asking.places[slot] = (u32)row;
}

// The rows of a hop that draw, a thread each, as many as there may be.
extern "C" __global__ void __launch_bounds__(THREADS) ask_of_hop(const u64 *indptr, Hop hop, RequestArguments asking) {
    const u64 row = hop.first_row() + first_thread();
    const bool asks = row < hop.end_row();
    const u32 node = asks ? hop.nodes[row] : 0;
    const u32 degree = asks ? (u32)(__ldg(&indptr[node + 1]) - __ldg(&indptr[node])) : 0;
    ask(asking, asks, row, node, asks ? hop.count(row, degree) : 0);
}

// A list of nodes, a thread each.
extern "C" __global__ void __launch_bounds__(THREADS) ask_of_list(const u32 *ids, u64 n, RequestArguments asking) {
    const u64 row = first_thread();
    ask(asking, row < n, row, row < n ? ids[row] : 0, 0);
}
