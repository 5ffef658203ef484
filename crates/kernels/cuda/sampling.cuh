// What the kernels of mini-batches share: draws as docs/draws.md defines them, bits of nodes, sums over blocks in order.
#pragma once

// The draws of one hop, of walks, or of whatever else is numbered: crates/sampling/src/key.rs.
struct HopDraws {
    u32 key0, key1, batch, hop;

    // Block `block` of the stream of a node.
    __device__ __forceinline__ Words block(u32 node, u32 block) const {
        return philox((u64)hop << 32 | node, (u64)batch << 32 | block, key0, key1);
    }
};

// The high half of the product of 64 bits, low word first, and a bound.
__device__ __forceinline__ u64 bounded(u32 low, u32 high, u64 bound) {
    return __umul64hi((u64)high << 32 | low, bound);
}

// Draw `draw` of a node's stream, 64 bits of it, below a bound.
__device__ __forceinline__ u64 draw_below(const HopDraws &draws, u32 node, u32 draw, u64 bound) {
    const Words words = draws.block(node, draw / 2);
    return draw % 2 ? bounded(words.of[2], words.of[3], bound) : bounded(words.of[0], words.of[1], bound);
}

// Position `draw` below a bound where a word does not decide it: from a block that is used for nothing else. Seldom, so that it
// should take no registers from the rest.
__device__ __noinline__ u32 spare_position(HopDraws draws, u32 node, u32 draw, u32 bound) {
    const Words words = draws.block(node, 1u << 31 | draw);
    return (u32)bounded(words.of[0], words.of[1], bound);
}

// Position `draw` below a bound, of which `word` is the word.
__device__ __forceinline__ u32 position_below(const HopDraws &draws, u32 node, u32 draw, u32 word, u32 bound) {
    const u64 product = (u64)word * bound;
    const u32 low = (u32)product;
    // The remainder is below the bound, and takes a division.
    if (low < bound && low < (0u - bound) % bound) return spare_position(draws, node, draw, bound);
    return (u32)(product >> 32);
}

// Word `i` of a block, by selects, because registers have no addresses.
__device__ __forceinline__ u32 word_of(const Words &words, u32 i) {
    const u32 low = i & 1 ? words.of[1] : words.of[0], high = i & 1 ? words.of[3] : words.of[2];
    return i & 2 ? high : low;
}

// The first of n running sums that exceeds a place.
__device__ __forceinline__ u64 find_place(const u64 *running, u64 n, u64 place) {
    u64 first = 0;
    while (n > 0) {
        const u64 half = n / 2;
        if (running[first + half] <= place) {
            first += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return first;
}

// A set of nodes, a bit each.
__device__ __forceinline__ u32 bit_of(u32 node) { return 1u << node % 32; }
// A plain atomic is faster than looking first.
__device__ __forceinline__ void mark(u32 *set, u32 node) { atomicOr(&set[node / 32], bit_of(node)); }

// The sum over the threads of a block before this one, and the sum over all. Every thread of the block takes part; `sums` has
// a place for each warp.
template <class T> __device__ __forceinline__ T sum_before(T x, T *sums, T &total) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    T upto = x;
#pragma unroll
    for (u32 lanes = 1; lanes < 32; lanes *= 2) {
        const T other = __shfl_up_sync(~0u, upto, lanes);
        if (lane >= lanes) upto += other;
    }
    if (lane == 31) sums[warp] = upto;
    __syncthreads();
    T before = upto - x;
    total = 0;
    for (u32 w = 0; w < blockDim.x / 32; w++) {
        if (w < warp) before += sums[w];
        total += sums[w];
    }
    __syncthreads();
    return before;
}

// Sums over tiles before each, in one pass (decoupled look-back: Merrill and Garland, NVIDIA NVR-2016-002). A tile tells its own
// sum, later the sum up to and with it; who comes after adds up what is told. The word of a tile begins as zero and says both
// what it is and how much, so that nothing else has to be in order. A tile is a block, and blocks start in order.
static const u64 TOLD_OWN = 1ull << 62, TOLD_ALL = 2ull << 62, TOLD = 3ull << 62;

__device__ __forceinline__ u64 told(const u64 *tiles, u32 tile) { return *(const volatile u64 *)&tiles[tile]; }
__device__ __forceinline__ void tell(u64 *tiles, u32 tile, u64 word) { *(volatile u64 *)&tiles[tile] = word; }

// Tells a tile's own sum, by one thread.
__device__ __forceinline__ void tell_own(u64 *tiles, u32 tile, u64 own) {
    tell(tiles, tile, (tile == 0 ? TOLD_ALL : TOLD_OWN) | own);
}

// The sum over the tiles before one that has told its own, by a warp; tells what comes after it.
__device__ __forceinline__ u64 sum_of_tiles_before(u64 *tiles, u32 tile, u64 own) {
    if (tile == 0) return 0;
    const u32 lane = threadIdx.x % 32;
    u64 sum = 0;
    // Lane i looks at the i-th tile before `end`; before the first there is a sum of nothing.
    for (long long end = tile;; end -= 32) {
        const long long at = end - 1 - (long long)lane;
        u64 word;
        do {
            word = at >= 0 ? told(tiles, (u32)at) : TOLD_ALL;
        } while (__any_sync(~0u, (word & TOLD) == 0));
        const u32 all = __ballot_sync(~0u, (word & TOLD) == TOLD_ALL);
        // Up to the nearest that tells all, or every one.
        const u32 last = all ? (u32)__ffs((int)all) - 1 : 31;
        u64 counted = lane <= last ? word & ~TOLD : 0;
#pragma unroll
        for (int lanes = 16; lanes > 0; lanes >>= 1) counted += __shfl_xor_sync(~0u, counted, lanes);
        sum += counted;
        if (all) break;
    }
    if (lane == 0) tell(tiles, tile, TOLD_ALL | (sum + own));
    return sum;
}

// Rows of a graph: the neighbors of each node, one row after the other, or each where a list says. They may lie in any memory that the
// device can read.
struct Topology {
    const u64 *indptr;
    const u32 *indices;
    // The address of each row; null where they follow each other.
    const u64 *rows;

    // The neighbors of a node whose edges begin at `start`.
    __device__ __forceinline__ const u32 *neighbors(u32 node, u64 start) const {
        return rows ? reinterpret_cast<const u32 *>(__ldg(&rows[node])) : indices + start;
    }
};

// Weights of edges as running sums of integers along each row, and how many neighbors of a node have one that is not zero:
// crates/sampling/src/bias.rs.
struct Bias {
    const u64 *running;
    const u32 *n_positive;

    // The sum of the weights of a row before a position of it.
    __device__ __forceinline__ u64 before(u64 start, u32 position) const {
        return position == 0 ? 0 : running[start + position - 1];
    }
    __device__ __forceinline__ u64 weight(u64 start, u32 position) const {
        return running[start + position] - before(start, position);
    }
    __device__ __forceinline__ u64 total(u64 start, u32 degree) const { return before(start, degree); }
};

// What is wrong with a batch, as bits.
static const u64 TOO_MANY_EDGES = ABI_TOO_MANY_EDGES, TOO_MANY_NODES = ABI_TOO_MANY_NODES, SEED_TWICE = ABI_SEED_TWICE;

// The words that a batch is steered by, all on the device: crates/kernels/src/sampling/control.rs writes them. Numbers never
// exceed what there is room for.
struct Control {
    u64 *words;
    u64 n_hops;

    __device__ __forceinline__ void fail(u64 why) const { atomicOr(&words[0], why); }
    __device__ __forceinline__ bool failed() const { return words[0] != 0; }
    // Nodes that the hops before this one, and the seeds, have named.
    __device__ __forceinline__ u64 &n_nodes(u64 hop) const { return words[1 + hop]; }
    // Where the edges of a hop begin among those of all, and end.
    __device__ __forceinline__ u64 first_edge(u64 hop) const { return words[2 + n_hops + hop]; }
    __device__ __forceinline__ u64 &end_edge(u64 hop) const { return words[3 + n_hops + hop]; }
    __device__ __forceinline__ HopDraws draws(u64 hop) const {
        const u64 key = words[3 + 2 * n_hops];
        return HopDraws{(u32)key, (u32)(key >> 32), (u32)words[4 + 2 * n_hops], (u32)hop};
    }
};

// A row that draws.
struct Row {
    u64 start;
    const u32 *neighbors;
    u32 node, degree, count;
};

// One hop: which rows draw, and where their edges go.
struct Hop {
    Control control;
    // All nodes found so far; those that draw are rows of the block.
    const u32 *nodes;
    // Offsets of the block's rows into the edges of all hops.
    u64 *indptr;
    u32 *sources;
    // The place of each edge in the graph; null where nobody asks.
    u64 *edge_ids;
    // Where sources are marked; null where they keep their global ids.
    u32 *marked;
    // What tiles of rows tell each other.
    u64 *tiles;
    // How many draws each row makes; null where all make `fan_out`.
    const u32 *shares;
    u64 max_edges;
    u32 hop;
    // ALL where it takes all neighbors.
    u32 fan_out;
    u32 replace;
    // Only nodes that the hop before has found draw; others keep what they have.
    u32 once;

    __device__ __forceinline__ u64 first_row() const { return once && hop > 0 ? control.n_nodes(hop - 1) : 0; }
    __device__ __forceinline__ u64 end_row() const { return control.n_nodes(hop); }

    // How many edges a row gets of so many neighbors to choose from.
    __device__ __forceinline__ u32 count(u64 row, u32 n_choices) const {
        const u32 most = shares ? shares[row - first_row()] : fan_out;
        if (replace && fan_out != ALL) return n_choices > 0 ? most : 0;
        return most < n_choices ? most : n_choices;
    }

    // Stores the neighbor at a position of a row as edge `at` of the batch.
    __device__ __forceinline__ void keep(const Row &row, u64 at, u32 position) const {
        const u32 source = __ldg(&row.neighbors[position]);
        sources[at] = source;
        if (edge_ids) edge_ids[at] = row.start + position;
        if (marked) mark(marked, source);
    }

    static const u32 ALL = ~0u;
};

__device__ __forceinline__ Row row_at(const Topology &graph, const Hop &hop, u64 row, const Bias *bias) {
    if (row >= hop.end_row()) return Row{0, nullptr, 0, 0, 0};
    const u32 node = hop.nodes[row];
    const u64 start = __ldg(&graph.indptr[node]);
    const u32 degree = (u32)(__ldg(&graph.indptr[node + 1]) - start);
    return Row{start, graph.neighbors(node, start), node, degree, hop.count(row, bias ? bias->n_positive[node] : degree)};
}

// Writes the offset of a row whose edges begin at `first`, and what follows from it where it is the last: by the thread of the
// row. Where there are no rows, row 0 of tile 0 stands for the end.
__device__ __forceinline__ void tell_offset(const Hop &hop, u64 row, u64 first, u32 count) {
    const u64 end_row = hop.end_row();
    if (row < end_row || row == hop.first_row()) hop.indptr[row] = first;
    const bool is_last = row + 1 == end_row, is_none = row == end_row && row == hop.first_row();
    if (!is_last && !is_none) return;
    const u64 end = first + count;
    if (is_last) hop.indptr[end_row] = end;
    if (end > hop.max_edges) hop.control.fail(TOO_MANY_EDGES);
    hop.control.end_edge(hop.hop) = end < hop.max_edges ? end : hop.max_edges;
}
