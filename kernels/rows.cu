// Rows by their ids. X and Y are the storage of what is read and of what is written.
// Elements: X, Y
#include "common.cuh"

extern "C" __global__ void gather_rows(const X *x, const u32 *ids, Y *out, u64 rows, u64 cols) {
    const u64 column = my_column(), pitch = pitch_of(cols);
    if (column >= cols) return;
    each_row(
        rows, [=](u64 row) { return to_f32(x[ids[row] * pitch + column]); },
        [=](u64 row, float value) { out[row * pitch + column] = from_f32<Y>(value); });
}

// A row of threads for each row of out that is named: group g of `positions`, from starts[g] to starts[g + 1], lists the
// rows of x that go there, in order.
extern "C" __global__ void scatter_add_rows(const X *x, const u32 *ids, const u64 *starts, const u64 *positions, Y *out,
                                            u64 groups, u64 cols) {
    const u64 column = my_column(), pitch = pitch_of(cols);
    if (column >= cols) return;
    for (u64 group = first_row(); group < groups; group += n_rows_at_once()) {
        const u64 start = starts[group], end = starts[group + 1];
        Y *to = out + ids[positions[start]] * pitch + column;
        float sum = to_f32(*to);
#pragma unroll 4
        for (u64 at = start; at < end; at++) sum += to_f32(x[positions[at] * pitch + column]);
        *to = from_f32<Y>(sum);
    }
}
