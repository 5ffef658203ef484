// Aggregations over the rows that each row of a pattern names, other than sums: maxima, and an LSTM step by step. X and Y
// are the storage of what is read and of what is written.
// Elements: X, Y
#include "common.cuh"
#include "elements.cuh"

// Element c of row i of out becomes the largest element c of the rows of x that row i names, and winners, which may be
// null, the first row that holds it. A warp for each row and 32 of its columns.
extern "C" __global__ void segment_max(const u64 *indptr, const u32 *indices, u64 rows, const X *x, u64 cols, Y *out,
                                       u32 *winners) {
    const u32 lane = threadIdx.x % 32;
    const u64 blocks = (cols + 31) / 32, pitch = pitch_of(cols);
    for (u64 piece = first_thread() / 32; piece < rows * blocks; piece += n_threads() / 32) {
        const u64 row = piece / blocks, column = piece % blocks * 32 + lane;
        const u64 begin = indptr[row], end = indptr[row + 1];
        // Lanes beyond the last column read along with it.
        const X *from = x + (column < cols ? column : cols - 1);
        float best = 0.0f;
        u32 winner = 0;
        for (u64 base = begin; base < end; base += 32) {
            const u32 mine = base + lane < end ? indices[base + lane] : 0;
            const int n = end - base < 32 ? (int)(end - base) : 32;
#pragma unroll 8
            for (int j = 0; j < n; j++) {
                const u32 named = __shfl_sync(~0u, mine, j);
                const float value = to_f32(from[named * pitch]);
                // What is no number wins and stays: a maximum that passed over it would hide a diverging model.
                const bool wins = (base == begin && j == 0) || (best == best && !(value <= best));
                best = wins ? value : best;
                winner = wins ? named : winner;
            }
        }
        if (column >= cols) continue;
        out[row * pitch + column] = from_f32<Y>(best);
        if (winners) winners[row * cols + column] = winner;
    }
}

// Row u of x_grad becomes the sum of the elements of grad that row u won; the pattern is the transpose's.
extern "C" __global__ void segment_max_backward(const u64 *indptr, const u32 *indices, u64 rows, const u32 *winners,
                                                const X *grad, u64 cols, Y *x_grad) {
    const u32 lane = threadIdx.x % 32;
    const u64 blocks = (cols + 31) / 32, pitch = pitch_of(cols);
    for (u64 piece = first_thread() / 32; piece < rows * blocks; piece += n_threads() / 32) {
        const u64 row = piece / blocks, column = piece % blocks * 32 + lane;
        const u64 end = indptr[row + 1], own = column < cols ? column : cols - 1;
        float sum = 0.0f;
        for (u64 base = indptr[row]; base < end; base += 32) {
            const u32 mine = base + lane < end ? indices[base + lane] : 0;
            const int n = end - base < 32 ? (int)(end - base) : 32;
#pragma unroll 8
            for (int j = 0; j < n; j++) {
                const u64 named = __shfl_sync(~0u, mine, j);
                const u32 winner = winners[named * cols + own];
                const float value = to_f32(grad[named * pitch + own]);
                sum += winner == row ? value : 0.0f;
            }
        }
        if (column < cols) x_grad[row * pitch + column] = from_f32<Y>(sum);
    }
}

// How sequences are drawn: Fisher-Yates from the last position down, by the draws below a key at (name of the row, 0).
struct Order {
    u32 key0, key1, first_name, drawn;
};

// Orders 0..n as crates/compute/src/sequence.rs does.
__device__ void shuffle(u32 *order, u64 n, u32 name, Order by) {
    for (u64 j = 0; j < n; j++) order[j] = (u32)j;
    Words words;
    u32 draws = 0;
    for (u64 i = n; i-- > 1;) {
        // A block of words holds two draws of 64 bits, low word first.
        if (draws % 2 == 0) words = philox(name, draws / 2, by.key0, by.key1);
        const u64 bits = draws % 2 == 0 ? (u64)words.of[1] << 32 | words.of[0] : (u64)words.of[3] << 32 | words.of[2];
        draws++;
        const u64 j = __umul64hi(bits, i + 1);
        const u32 kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

// Lays the sequences of n rows out step after step: what the p-th row reads at step t comes to offsets[t] + p. Rows come
// by falling degree, so that those that are still reading are the first. `order` has room for every entry of the pattern
// where orders are drawn. `places`, which may be null, receives for each entry where it comes to, counted from first.
extern "C" __global__ void lay_out(const u64 *indptr, const u32 *indices, const u32 *rows, u64 n, const u64 *offsets, Order by,
                                   u32 *order, u32 *sources, u64 *places, u64 first) {
    for (u64 p = first_thread(); p < n; p += n_threads()) {
        const u32 row = rows[p];
        const u64 begin = indptr[row], degree = indptr[row + 1] - begin;
        if (by.drawn) shuffle(order + begin, degree, by.first_name + row, by);
        for (u64 t = 0; t < degree; t++) {
            const u64 entry = begin + (by.drawn ? order[begin + t] : t), place = offsets[t] + p;
            sources[place] = indices[entry];
            if (places) places[entry] = first + place;
        }
    }
}

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// One step of n rows. `recurrent` is what states add to the gates and `memory_before` the memory before, both null at the
// first step. Gates are left in `gates`, which may be null or be `recurrent`; the states of the first `n_states` rows go to
// `states`.
extern "C" __global__ void lstm_step(const X *inputs, const u32 *sources, u64 n, u64 width, const float *recurrent,
                                     const float *memory_before, float *memory, float *gates, float *states, u64 n_states) {
    for (u64 i = first_thread(); i < n * width; i += n_threads()) {
        const u64 p = i / width, k = i % width, at = p * 4 * width + k;
        const X *input = inputs + sources[p] * pitch_of(4 * width) + k;
        float sums[4];
#pragma unroll
        for (int gate = 0; gate < 4; gate++) {
            sums[gate] = to_f32(input[gate * width]) + (recurrent ? recurrent[at + gate * width] : 0.0f);
        }
        const float in = sigmoid(sums[0]), forget = sigmoid(sums[1]), cell = tanhf(sums[2]), out = sigmoid(sums[3]);
        const float kept = (memory_before ? forget * memory_before[i] : 0.0f) + in * cell;
        memory[i] = kept;
        if (p < n_states) states[i] = out * tanhf(kept);
        if (!gates) continue;
        gates[at] = in;
        gates[at + width] = forget;
        gates[at + 2 * width] = cell;
        gates[at + 3 * width] = out;
    }
}

// Takes a step back: gates become the gradients of the sums behind them, and that of the memory becomes the one before.
extern "C" __global__ void lstm_step_backward(u64 n, u64 width, const float *memory_before, const float *memory, float *gates,
                                              const float *state_grads, float *memory_grads) {
    for (u64 i = first_thread(); i < n * width; i += n_threads()) {
        float *gate = gates + i / width * 4 * width + i % width;
        const float in = gate[0], forget = gate[width], cell = gate[2 * width], out = gate[3 * width];
        const float before = memory_before ? memory_before[i] : 0.0f, tanh = tanhf(memory[i]), grad = state_grads[i];
        const float d_memory = memory_grads[i] + grad * out * (1.0f - tanh * tanh);
        gate[0] = d_memory * cell * in * (1.0f - in);
        gate[width] = d_memory * before * forget * (1.0f - forget);
        gate[2 * width] = d_memory * in * (1.0f - cell * cell);
        gate[3 * width] = grad * tanh * out * (1.0f - out);
        memory_grads[i] = d_memory * forget;
    }
}

// Row rows[p] of out becomes row p of states.
extern "C" __global__ void place_states(const float *states, const u32 *rows, u64 n, u64 width, Y *out) {
    for (u64 i = first_thread(); i < n * width; i += n_threads()) {
        out[rows[i / width] * pitch_of(width) + i % width] = from_f32<Y>(states[i]);
    }
}

// Row p of taken becomes row rows[p] of grad.
extern "C" __global__ void take_rows(const X *grad, const u32 *rows, u64 n, u64 width, float *taken) {
    for (u64 i = first_thread(); i < n * width; i += n_threads()) {
        taken[i] = to_f32(grad[rows[i / width] * pitch_of(width) + i % width]);
    }
}

// Row u of sums grows by the rows of gates that belong to the entries of column u, those of them that lie at first and the
// n places from there, in the order of the transpose. A warp for each row and ABI_WARP_COLUMNS of its columns.
extern "C" __global__ void add_by_source(const u64 *indptr, const u64 *positions, u64 rows, const u64 *places, u64 first, u64 n,
                                         const float *gates, u64 cols, float *sums) {
    const u32 lane = threadIdx.x % 32;
    const u64 blocks = (cols + ABI_WARP_COLUMNS - 1) / ABI_WARP_COLUMNS;
    for (u64 piece = first_thread() / 32; piece < rows * blocks; piece += n_threads() / 32) {
        const u64 row = piece / blocks, column = piece % blocks * ABI_WARP_COLUMNS + lane, end = indptr[row + 1];
        float added[ABI_WARP_COLUMNS / 32] = {};
        for (u64 base = indptr[row]; base < end; base += 32) {
            // Places before `first` wrap around to numbers beyond n.
            const u64 mine = base + lane < end ? places[positions[base + lane]] - first : ~0ull;
            u32 here = __ballot_sync(~0u, mine < n);
            while (here) {
                const u64 place = __shfl_sync(~0u, mine, __ffs(here) - 1);
                here &= here - 1;
#pragma unroll
                for (int k = 0; k < ABI_WARP_COLUMNS / 32; k++) {
                    if (column + 32 * k < cols) added[k] += gates[place * cols + column + 32 * k];
                }
            }
        }
#pragma unroll
        for (int k = 0; k < ABI_WARP_COLUMNS / 32; k++) {
            if (column + 32 * k < cols) sums[row * pitch_of(cols) + column + 32 * k] += added[k];
        }
    }
}
