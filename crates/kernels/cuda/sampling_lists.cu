// A sampled batch for other libraries: as one list of edges, and as operands of layers. crates/kernels/src/sampling/sampled.rs
// says what they hold. INDEX is the type of ids in lists. LANES of a warp make a row.
// Constants: INDEX=int LANES=8
// Constants: INDEX=u64 LANES=8
// Constants: INDEX=u64 LANES=32
#include "common.cuh"

// A batch whose nodes drew once, and where its list goes.
struct EdgeList {
    const u32 *nodes, *columns;
    // Offsets of the rows of nodes that drew.
    const u64 *indptr;
    // Places of edges in the graph, and the names there; null where edges have none.
    const u64 *edge_ids, *names;
    u64 n_rows, n_nodes;
    // Places in `nodes`.
    INDEX *sources, *destinations;
    INDEX *ids;
    // Null where they are not wanted.
    u64 *edges;
};

extern "C" __global__ void list_edges(EdgeList list) {
    const u32 lane = threadIdx.x % LANES;
    for (u64 row = first_thread() / LANES; row < list.n_rows; row += n_threads() / LANES) {
        const u64 end = list.indptr[row + 1];
        for (u64 edge = list.indptr[row] + lane; edge < end; edge += LANES) {
            list.sources[edge] = list.columns[edge];
            list.destinations[edge] = (INDEX)row;
            if (!list.edges) continue;
            const u64 place = list.edge_ids[edge];
            list.edges[edge] = list.names ? list.names[place] : place;
        }
    }
    for (u64 at = first_thread(); at < list.n_nodes; at += n_threads()) list.ids[at] = list.nodes[at];
}

// A block, and the matrix that is made of it.
struct BlockOperand {
    const u32 *nodes, *columns;
    // Offsets of rows, from that of the first on.
    const u64 *indptr;
    // Offsets of the rows of the graph; null where sampled rows do not estimate whole ones.
    const u64 *graph;
    u64 n_rows, n_columns;
    // Whether rows get an entry of their own.
    u32 has_loops;
    // Whether rows and columns are divided by roots of degrees, or rows by numbers of entries.
    u32 is_symmetric;
    u64 *out_indptr;
    u32 *out_indices;
    // Null where entries are ones.
    float *values;
    // Factors of rows and of columns; null where they are ones.
    float *left, *right;
};

extern "C" __global__ void rows_of_block(BlockOperand block) {
    if (block.n_rows == 0 && first_thread() == 0) block.out_indptr[0] = 0;
    const u64 first = block.n_rows == 0 ? 0 : block.indptr[0];
    const u32 lane = threadIdx.x % LANES;
    for (u64 row = first_thread() / LANES; row < block.n_rows; row += n_threads() / LANES) {
        const u64 begin = block.indptr[row], end = block.indptr[row + 1];
        // Rows before this one have a loop each.
        const u64 to = begin - first + (block.has_loops ? row : 0);
        float each = 1.0f;
        if (block.values) {
            const u32 node = block.nodes[row];
            each = (float)(block.graph[node + 1] - block.graph[node]) / (float)(end - begin);
        }
        for (u64 edge = begin + lane; edge < end; edge += LANES) {
            block.out_indices[to + (edge - begin)] = block.columns[edge];
            if (block.values) block.values[to + (edge - begin)] = each;
        }
        if (lane != 0) continue;
        const u64 after = to + (end - begin);
        block.out_indptr[row] = to;
        if (row + 1 == block.n_rows) block.out_indptr[row + 1] = after + (block.has_loops ? 1 : 0);
        if (!block.has_loops) continue;
        block.out_indices[after] = (u32)row;
        if (block.values) block.values[after] = 1.0f;
    }
}

// Rounded once, as on the host.
extern "C" __global__ void factors_of_block(BlockOperand block) {
    for (u64 at = first_thread(); at < block.n_columns; at += n_threads()) {
        const bool is_row = at < block.n_rows;
        u64 degree = is_row ? block.indptr[at + 1] - block.indptr[at] : 0;
        if (!block.is_symmetric) {
            if (is_row) block.left[at] = degree == 0 ? 0.0f : (float)(1.0 / (double)degree);
            continue;
        }
        if (block.graph) degree = block.graph[block.nodes[at] + 1] - block.graph[block.nodes[at]];
        degree += block.has_loops ? 1 : 0;
        const float factor = degree == 0 ? 0.0f : (float)(1.0 / sqrt((double)degree));
        block.right[at] = factor;
        if (is_row) block.left[at] = factor;
    }
}
