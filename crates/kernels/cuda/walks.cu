// Random walks, a thread each: crates/sampling/src/walk.rs.
#include "common.cuh"
#include "sampling.cuh"

// How far walks go, and where. Chances are those of draws below 2^32.
struct Walks {
    HopDraws draws;
    const u32 *starts;
    // A bit for each node that ends walks; null where none does.
    const u32 *ends;
    // Step after step: the node of each walk, and how many nodes a walk has.
    u32 *nodes;
    u32 *n_nodes;
    double stop, restart;
    // Chances of node2vec to keep a neighbor: where the walk came from, a neighbor of that, any other.
    double back, near, far;
    u64 n_walks;
    u32 length;
    u32 second_order;
};

// The draws of a walk in order.
struct Stream {
    HopDraws draws;
    Words words;
    u32 walk, n_drawn;

    __device__ __forceinline__ u64 below(u64 bound) {
        if (n_drawn % 2 == 0) words = draws.block(walk, n_drawn / 2);
        return n_drawn++ % 2 ? bounded(words.of[2], words.of[3], bound) : bounded(words.of[0], words.of[1], bound);
    }
    // Whether what has a chance happens. Without a chance nothing is drawn.
    __device__ __forceinline__ bool happens(double chance) { return chance > 0.0 && (double)below(1ull << 32) < chance; }
};

// Where walks end that can go nowhere.
static const u32 NOWHERE = ~0u;

// A neighbor, as likely as its weight says.
__device__ __forceinline__ u32 first_order(const Topology &graph, const Bias &bias, u32 node, Stream &stream) {
    const u64 start = __ldg(&graph.indptr[node]);
    const u32 degree = (u32)(__ldg(&graph.indptr[node + 1]) - start);
    const u64 total = bias.running ? bias.total(start, degree) : degree;
    if (total == 0) return NOWHERE;
    const u64 place = stream.below(total);
    return __ldg(graph.neighbors(node, start) + (bias.running ? find_place(bias.running + start, degree, place) : place));
}

__device__ __forceinline__ bool is_neighbor(const Topology &graph, u32 of, u32 node) {
    const u64 start = __ldg(&graph.indptr[of]), degree = __ldg(&graph.indptr[of + 1]) - start;
    const u32 *neighbors = graph.neighbors(of, start);
    u64 low = 0, high = degree;
    while (low < high) {
        const u64 middle = (low + high) / 2;
        if (__ldg(&neighbors[middle]) < node) low = middle + 1;
        else high = middle;
    }
    return low < degree && __ldg(&neighbors[low]) == node;
}

// Whether a step to `next` is taken by a walk that was at `before` a step ago.
__device__ __forceinline__ bool accepts(const Topology &graph, const Walks &walks, u32 before, u32 next, Stream &stream) {
    const double drawn = (double)stream.below(1ull << 32);
    if (next == before) return drawn < walks.back;
    // What any other neighbor is accepted with needs no search.
    if (drawn < (walks.near < walks.far ? walks.near : walks.far)) return true;
    return drawn < (is_neighbor(graph, before, next) ? walks.near : walks.far);
}

extern "C" __global__ void walk(Topology graph, Bias bias, Walks walks) {
    for (u64 i = first_thread(); i < walks.n_walks; i += n_threads()) {
        Stream stream = {walks.draws, Words{}, (u32)i, 0};
        const u32 start = walks.starts[i];
        // Where the walk was a step ago, if that counts.
        u32 before = NOWHERE, node = start, n = 1;
        walks.nodes[i] = start;
        for (; n <= walks.length; n++) {
            if (walks.ends && walks.ends[node / 32] & bit_of(node)) break;
            if (stream.happens(walks.stop)) break;
            if (stream.happens(walks.restart)) {
                before = NOWHERE;
                node = start;
            } else {
                u32 next;
                do {
                    next = first_order(graph, bias, node, stream);
                } while (next != NOWHERE && walks.second_order && before != NOWHERE &&
                         !accepts(graph, walks, before, next, stream));
                if (next == NOWHERE) break;
                before = node;
                node = next;
            }
            walks.nodes[n * walks.n_walks + i] = node;
        }
        walks.n_nodes[i] = n;
    }
}
