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

// Rows that lie in memory of the host, each of so many bytes, and what of them is on the device, too.
struct FarRows {
    const char *far;
    // The place of each row among those that are near, or FAR; null where none is near.
    const u32 *places;
    const char *near;
    u64 row_bytes;

    static const u32 FAR = ~0u;

    __device__ __forceinline__ const char *row(u32 id) const {
        const u32 place = places ? __ldg(places + id) : FAR;
        return place == FAR ? far + id * row_bytes : near + place * row_bytes;
    }
};

// Copies rows unit by unit, neighbouring units by neighbouring lanes. Rows of eight elements and more begin where 16 bytes may.
template <class Unit> __device__ __forceinline__ void copy_far(const FarRows &rows, const u32 *ids, char *out, u64 n) {
    const u64 units = rows.row_bytes / sizeof(Unit);
    for (u64 i = first_thread(); i < n * units; i += n_threads()) {
        const u64 row = i / units, unit = i % units;
        const Unit *from = reinterpret_cast<const Unit *>(rows.row(ids[row]));
        reinterpret_cast<Unit *>(out + row * rows.row_bytes)[unit] = from[unit];
    }
}

extern "C" __global__ void gather_far(FarRows rows, const u32 *ids, char *out, u64 n) {
    if (rows.row_bytes % 16 == 0) copy_far<uint4>(rows, ids, out, n);
    else copy_far<unsigned short>(rows, ids, out, n);
}
