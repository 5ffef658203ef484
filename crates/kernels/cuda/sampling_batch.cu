// A batch of samples around its draws: seeds before, and local ids after. WORDS is how many words of the bitmaps a thread scans: 1
// where many nodes are new in a hop, 8 where few are among very many.
// Constants: WORDS=1
// Constants: WORDS=8
#include "common.cuh"
#include "sampling.cuh"

static const u32 THREADS = ABI_BLOCK;
// New nodes of a tile that go to memory in order of the threads.
static const u32 STAGED = 8192;

// Seeds are the first nodes. Bitmaps are empty before; what tiles tell each other is cleared for the whole batch.
extern "C" __global__ void begin_batch(Control control, const u32 *seeds, u32 *nodes, u32 *positions, u32 *marked, u32 *seen,
                                       u64 *tiles, u64 n_tiles) {
    const u64 n_seeds = control.n_nodes(0);
    for (u64 i = first_thread(); i < n_seeds; i += n_threads()) {
        const u32 node = seeds[i];
        nodes[i] = node;
        positions[node] = (u32)i;
        mark(marked, node);
        const u32 others = atomicOr(&seen[node / 32], bit_of(node));
        if (others & bit_of(node)) control.fail(SEED_TWICE);
    }
    for (u64 i = first_thread(); i < n_tiles; i += n_threads()) tiles[i] = 0;
}

// New nodes of a hop, ascending, follow those found before: `nodes` and `positions` are inverse to each other. Bitmaps are whole
// tiles of words, a block each.
extern "C" __global__ void __launch_bounds__(THREADS) settle(Control control, u64 hop, const u32 *marked, u32 *seen, u32 *nodes,
                                                             u32 *positions, u64 *tiles, u64 max_nodes) {
    __shared__ unsigned short staged[STAGED];
    __shared__ u32 sums[THREADS / 32];
    __shared__ u64 first_of_tile;
    typedef Vector<u32, WORDS> Bits;
    const u64 place = (u64)blockIdx.x * THREADS + threadIdx.x;
    const Bits now = reinterpret_cast<const Bits *>(marked)[place];
    Bits fresh = reinterpret_cast<const Bits *>(seen)[place];
    u32 n_fresh = 0;
#pragma unroll
    for (u32 w = 0; w < WORDS; w++) {
        fresh.of[w] = now.of[w] & ~fresh.of[w];
        n_fresh += __popc(fresh.of[w]);
    }
    // Whatever was seen is marked.
    if (n_fresh > 0) reinterpret_cast<Bits *>(seen)[place] = now;
    u32 n_of_tile;
    const u32 before = sum_before(n_fresh, sums, n_of_tile);
    if (threadIdx.x < 32) {
        if (threadIdx.x == 0) tell_own(tiles, blockIdx.x, n_of_tile);
        const u64 sum = sum_of_tiles_before(tiles, blockIdx.x, n_of_tile);
        if (threadIdx.x == 0) first_of_tile = control.n_nodes(hop) + sum;
    }
    // Nodes of a tile by their place in it, if they fit.
    const bool are_staged = n_of_tile <= STAGED;
    if (are_staged) {
        u32 at = before;
#pragma unroll
        for (u32 w = 0; w < WORDS; w++) {
            for (u32 bits = fresh.of[w]; bits != 0; bits &= bits - 1) {
                staged[at++] = (unsigned short)((threadIdx.x * WORDS + w) * 32 + (u32)__ffs((int)bits) - 1);
            }
        }
    }
    __syncthreads();
    const u64 first = first_of_tile, tile_node = (u64)blockIdx.x * THREADS * WORDS * 32;
    if (are_staged) {
        for (u32 i = threadIdx.x; i < n_of_tile; i += THREADS) {
            const u32 node = (u32)(tile_node + staged[i]);
            if (first + i >= max_nodes) break;
            nodes[first + i] = node;
            positions[node] = (u32)(first + i);
        }
    } else {
        u64 at = first + before;
#pragma unroll
        for (u32 w = 0; w < WORDS; w++) {
            for (u32 bits = fresh.of[w]; bits != 0; bits &= bits - 1, at++) {
                const u32 node = (u32)(tile_node + (threadIdx.x * WORDS + w) * 32 + (u32)__ffs((int)bits) - 1);
                if (at >= max_nodes) continue;
                nodes[at] = node;
                positions[node] = (u32)at;
            }
        }
    }
    if (blockIdx.x + 1 == gridDim.x && threadIdx.x == 0) {
        const u64 end = first + n_of_tile;
        if (end > max_nodes) control.fail(TOO_MANY_NODES);
        control.n_nodes(hop + 1) = end < max_nodes ? end : max_nodes;
    }
}

// Global ids of the edges of the first hops become local ones, and bitmaps empty: where bits are, or as a whole where that is
// less, or where not all nodes that have a bit are listed.
extern "C" __global__ void finish_batch(Control control, u64 n_local_hops, const u32 *sources, u32 *columns, const u32 *positions,
                                        u64 n_nodes, const u32 *nodes, u32 *marked, u32 *seen, u64 n_words) {
    const u64 n_edges = control.first_edge(n_local_hops), fours = n_edges / 4;
    // What a hop without room has left unwritten may be no node.
    const auto local = [=](u32 source) { return source < n_nodes ? positions[source] : source; };
    for (u64 i = first_thread(); i < fours; i += n_threads()) {
        Four<u32> four = reinterpret_cast<const Four<u32> *>(sources)[i];
#pragma unroll
        for (u32 k = 0; k < 4; k++) four.of[k] = local(four.of[k]);
        reinterpret_cast<Four<u32> *>(columns)[i] = four;
    }
    for (u64 i = 4 * fours + first_thread(); i < n_edges; i += n_threads()) columns[i] = local(sources[i]);
    // A node takes a sector of 32 bytes of each bitmap.
    const u64 n_found = control.n_nodes(n_local_hops);
    if (control.failed() || n_words <= 8 * n_found) {
        for (u64 i = first_thread(); i < n_words; i += n_threads()) marked[i] = seen[i] = 0;
    } else {
        for (u64 i = first_thread(); i < n_found; i += n_threads()) marked[nodes[i] / 32] = seen[nodes[i] / 32] = 0;
    }
}
