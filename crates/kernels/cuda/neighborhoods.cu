// Rows of the normalised adjacency that the draws of a hop stand for: crates/compute/src/neighbors.rs says what they hold.
// LANES of a warp make a row.
// Constants: LANES=8
// Constants: LANES=32
#include "common.cuh"

// A hop of a batch, and where its rows go.
struct Drawn {
    // The nodes of the batch; the first are those of rows.
    const u32 *nodes;
    // Offsets of rows, from that of the first on.
    const u64 *indptr;
    // Columns of edges: places in `nodes`, or nodes of the graph if they are global.
    const u32 *columns;
    // Places of edges in the graph; null where edges weigh nothing.
    const u64 *edge_ids;
    u64 n_rows;
    u32 are_global;
    // Whether rows get an entry of their own.
    u32 has_loops;
    u64 *out_indptr;
    u32 *out_indices;
    // Of rows, where all entries of a row are alike; else of entries. The other is null.
    float *factors, *values;
};

// What makes entries of edges; null where there is none.
struct Weighing {
    // Offsets of the rows of the graph.
    const u64 *graph;
    const float *left, *right, *stored, *loops;
};

__device__ __forceinline__ float factor_of(const float *factors, u32 node) { return factors ? __ldg(factors + node) : 1.0f; }

extern "C" __global__ void rows_of_draws(Drawn drawn, Weighing weighing) {
    if (drawn.n_rows == 0 && first_thread() == 0) drawn.out_indptr[0] = 0;
    const u64 first = drawn.n_rows == 0 ? 0 : drawn.indptr[0];
    const u32 lane = threadIdx.x % LANES;
    for (u64 row = first_thread() / LANES; row < drawn.n_rows; row += n_threads() / LANES) {
        const u32 node = drawn.nodes[row];
        const u64 begin = drawn.indptr[row], end = drawn.indptr[row + 1];
        // Rows before this one have a loop each.
        const u64 to = begin - first + (drawn.has_loops ? row : 0);
        const float degree = (float)(weighing.graph[node + 1] - weighing.graph[node]);
        const float each = degree / (float)(end - begin), left = factor_of(weighing.left, node);
        for (u64 edge = begin + lane; edge < end; edge += LANES) {
            const u32 column = drawn.columns[edge];
            const u64 at = to + (edge - begin);
            drawn.out_indices[at] = column;
            if (!drawn.values) continue;
            const u32 source = drawn.are_global ? column : drawn.nodes[column];
            const float stored = weighing.stored ? weighing.stored[drawn.edge_ids[edge]] : 1.0f;
            // In the order of the host: the same bits.
            drawn.values[at] = left * stored * factor_of(weighing.right, source) * each;
        }
        if (lane != 0) continue;
        const u64 after = to + (end - begin);
        drawn.out_indptr[row] = to;
        if (row + 1 == drawn.n_rows) drawn.out_indptr[row + 1] = after + (drawn.has_loops ? 1 : 0);
        if (drawn.factors) drawn.factors[row] = end > begin ? left * each : 0.0f;
        if (!drawn.has_loops) continue;
        drawn.out_indices[after] = drawn.are_global ? node : (u32)row;
        drawn.values[after] = left * factor_of(weighing.loops, node) * factor_of(weighing.right, node);
    }
}
