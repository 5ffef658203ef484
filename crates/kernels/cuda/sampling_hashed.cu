// Local ids by a hash table, for new nodes in the order in which edges first name them; sampling_batch.cu does the same by ranks in
// a set, for new nodes that ascend. Which edge comes first is a minimum, so that the table's own order, which is that of
// threads, decides nothing.
#include "common.cuh"
#include "sampling.cuh"

static const u32 THREADS = ABI_BLOCK;
static const u32 EMPTY = ~0u;

// A slot for each node of a batch, at most half of them taken: the node, the edge that names it first and its place. Between batches
// all words are ~0.
struct Table {
    u32 *keys, *firsts, *places;
    u64 mask;

    // The slot of a node, and whether nobody had put it there before.
    __device__ __forceinline__ u32 slot(u32 node, bool &is_new) const {
        u32 at = node * 0x9e3779b1u;
        at = (at ^ at >> 15) & (u32)mask;
        for (;; at = (at + 1) & (u32)mask) {
            u32 found = *(const volatile u32 *)&keys[at];
            if (found == EMPTY) found = atomicCAS(&keys[at], EMPTY, node);
            is_new = found == EMPTY;
            if (is_new || found == node) return at;
        }
    }
};

// Seeds are the first nodes, and have the first slots. What tiles tell each other is cleared for the whole batch.
extern "C" __global__ void begin_hashed(Control control, const u32 *seeds, u32 *nodes, Table table, u32 *slots, u64 *tiles, u64 n_tiles) {
    const u64 n_seeds = control.n_nodes(0);
    for (u64 i = first_thread(); i < n_seeds; i += n_threads()) {
        bool is_new;
        const u32 slot = table.slot(seeds[i], is_new);
        if (!is_new) control.fail(SEED_TWICE);
        nodes[i] = seeds[i];
        table.places[slot] = (u32)i;
        slots[i] = slot;
    }
    for (u64 i = first_thread(); i < n_tiles; i += n_threads()) tiles[i] = 0;
}

// A slot for each edge of a hop, and for each slot the first edge. Where a batch failed, edges may be unwritten, and no node: nothing
// follows them.
extern "C" __global__ void insert_sources(Control control, u64 hop, const u32 *sources, Table table, u32 *slots) {
    if (control.failed()) return;
    const u64 end = control.end_edge(hop);
    for (u64 edge = control.first_edge(hop) + first_thread(); edge < end; edge += n_threads()) {
        bool is_new;
        const u32 slot = table.slot(sources[edge], is_new);
        slots[edge] = slot;
        // Most edges come later than one that is there.
        if (*(const volatile u32 *)&table.firsts[slot] > (u32)edge) atomicMin(&table.firsts[slot], (u32)edge);
    }
}

// New nodes of a hop follow those found before, in the order of the edges that name them first. A tile of edges a block, as many as there
// may be.
extern "C" __global__ void __launch_bounds__(THREADS) list_first(Control control, u64 hop, const u32 *sources, Table table, const u32 *slots,
                                                                 u32 *nodes, u64 *tiles, u64 max_nodes) {
    __shared__ u32 sums[THREADS / 32];
    __shared__ u64 first_of_tile;
    // All threads see the same: the last block fails a batch after every other has told its sum.
    if (control.failed()) {
        if (blockIdx.x == 0 && threadIdx.x == 0) control.n_nodes(hop + 1) = control.n_nodes(hop);
        return;
    }
    const u64 begin = control.first_edge(hop), end = control.end_edge(hop);
    const u64 edge = begin + (u64)blockIdx.x * THREADS + threadIdx.x;
    if (blockIdx.x > 0 && edge - threadIdx.x >= end) return;
    const u32 slot = edge < end ? slots[edge] : 0;
    // What has a place was found before this hop.
    const bool is_new = edge < end && table.firsts[slot] == (u32)edge && table.places[slot] == EMPTY;
    u32 n_of_tile;
    const u32 before = sum_before(is_new ? 1u : 0u, sums, n_of_tile);
    if (threadIdx.x < 32) {
        if (threadIdx.x == 0) tell_own(tiles, blockIdx.x, n_of_tile);
        const u64 sum = sum_of_tiles_before(tiles, blockIdx.x, n_of_tile);
        if (threadIdx.x == 0) first_of_tile = control.n_nodes(hop) + sum;
    }
    __syncthreads();
    const u64 place = first_of_tile + before;
    if (is_new) {
        table.places[slot] = (u32)place;
        if (place < max_nodes) nodes[place] = sources[edge];
    }
    const bool is_last = edge - threadIdx.x + THREADS >= end;
    if (is_last && threadIdx.x == 0) {
        const u64 n_found = first_of_tile + n_of_tile;
        if (n_found > max_nodes) control.fail(TOO_MANY_NODES);
        control.n_nodes(hop + 1) = n_found < max_nodes ? n_found : max_nodes;
    }
}

// Global ids of the edges of the first hops become local ones, unless the batch failed.
extern "C" __global__ void number_edges(Control control, u64 n_local_hops, Table table, const u32 *slots, u32 *columns) {
    const u64 n_edges = control.failed() ? 0 : control.first_edge(n_local_hops);
    for (u64 i = first_thread(); i < n_edges; i += n_threads()) columns[i] = table.places[slots[i]];
}

// The table is empty again: each slot that seeds and edges have, or all where not every edge has one.
extern "C" __global__ void empty_table(Control control, u64 n_local_hops, Table table, const u32 *of_seeds, const u32 *of_edges) {
    const bool has_all = !control.failed();
    const u64 n_seeds = control.n_nodes(0), n = has_all ? n_seeds + control.first_edge(n_local_hops) : table.mask + 1;
    for (u64 i = first_thread(); i < n; i += n_threads()) {
        const u64 slot = !has_all ? i : i < n_seeds ? of_seeds[i] : of_edges[i - n_seeds];
        table.keys[slot] = table.firsts[slot] = table.places[slot] = EMPTY;
    }
}
