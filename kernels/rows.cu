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

// Rows of so many bytes in any memory that the device can read, one after the other, or each where a list says; null there: nowhere.
struct PlacedRows {
    const char *first;
    // The address of each row; null where they follow each other.
    const u64 *rows;
    u64 row_bytes;

    __device__ __forceinline__ const char *row(u32 id) const {
        return rows ? reinterpret_cast<const char *>(__ldg(&rows[id])) : first + id * row_bytes;
    }
};

// Which rows are wanted, and where they go; null where they, or these, follow each other.
struct Names {
    const u32 *ids, *places;

    __device__ __forceinline__ u32 id(u32 i) const { return ids ? ids[i] : i; }
    __device__ __forceinline__ u32 place(u32 i) const { return places ? places[i] : i; }
};

// Units that a thread has under way.
static const int AT_ONCE = 4;

// Copies rows unit by unit, neighbouring units by neighbouring lanes. Rows of eight elements and more begin where 16 bytes may.
template <class Unit, class Index>
__device__ __forceinline__ void copy_units(const PlacedRows &rows, const Names &names, char *out, Index n_units, Index of_row) {
    const Index step = (Index)n_threads();
    for (Index first = (Index)first_thread(); first < n_units; first += AT_ONCE * step) {
        const Unit *from[AT_ONCE];
        Unit *to[AT_ONCE], units[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const Index i = first + k * step;
            from[k] = nullptr;
            if (i >= n_units) continue;
            const Index row = i / of_row, unit = i % of_row;
            const char *at = rows.row(names.id((u32)row));
            if (at) from[k] = reinterpret_cast<const Unit *>(at) + unit;
            to[k] = reinterpret_cast<Unit *>(out + names.place((u32)row) * rows.row_bytes) + unit;
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (from[k]) units[k] = *from[k];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (from[k]) *to[k] = units[k];
    }
}

template <class Unit> __device__ __forceinline__ void copy_rows(const PlacedRows &rows, const Names &names, char *out, u64 n) {
    const u64 of_row = rows.row_bytes / sizeof(Unit), n_units = n * of_row;
    // 32 bits divide sooner than 64; room is left for the last step.
    if (n_units < 1ull << 31) copy_units<Unit, u32>(rows, names, out, (u32)n_units, (u32)of_row);
    else copy_units<Unit, u64>(rows, names, out, n_units, of_row);
}

// Rows as they are, of any element. From the host few blocks bring them, which are as large as any.
extern "C" __global__ void __launch_bounds__(1024) copy_named(PlacedRows rows, Names names, char *out, u64 n) {
    if (rows.row_bytes % 16 == 0) copy_rows<uint4>(rows, names, out, n);
    else copy_rows<unsigned short>(rows, names, out, n);
}

// Which of `n` rows are nowhere, in whatever order: how many, which begins as zero, then their ids; and for whose sake.
extern "C" __global__ void list_absent(const u64 *rows, const u32 *ids, u32 n, u32 *absent, u32 *places) {
    const u32 lane = threadIdx.x % 32;
    // Whole warps, so that each adds once.
    for (u32 first = (u32)first_thread() / 32 * 32; first < n; first += (u32)n_threads()) {
        const u32 i = first + lane, id = i < n ? ids[i] : 0;
        const bool is_absent = i < n && __ldg(&rows[id]) == 0;
        const u32 others = __ballot_sync(~0u, is_absent);
        u32 at = lane == 0 && others ? atomicAdd(absent, (u32)__popc(others)) : 0;
        at = __shfl_sync(~0u, at, 0) + __popc(others & ((1u << lane) - 1));
        if (!is_absent) continue;
        absent[1 + at] = id;
        places[at] = i;
    }
}

// Codes of a code book, as crates/compress/src/topk/mod.rs has them: the positions that are kept of each group of 256 columns.
struct CodeBook {
    // A value for each byte of a code, and a row that is added; null where that is zero.
    const float *values, *background;
    u64 width;
    // Bytes of a whole group.
    u32 of_group;
};

// Rows of Y from codes: a warp decodes a row in shared memory, where each has room for one, and stores it side by side.
extern "C" __global__ void decode_rows(PlacedRows codes, CodeBook book, Names names, Y *out, u64 n) {
    extern __shared__ uint4 shared[];
    const u32 lane = threadIdx.x % 32;
    const u64 pitch = pitch_of(book.width), n_bytes = pitch * sizeof(Y);
    // Rows begin where 16 bytes may.
    Y *row = reinterpret_cast<Y *>(shared + (n_bytes + 15) / 16 * (threadIdx.x / 32));
    for (u64 r = first_thread() / 32; r < n; r += n_threads() / 32) {
        const unsigned char *code = reinterpret_cast<const unsigned char *>(codes.row(names.id((u32)r)));
        if (!code) continue;
        for (u64 c = lane; c < pitch; c += 32)
            row[c] = from_f32<Y>(book.background && c < book.width ? __ldg(book.background + c) : 0.0f);
        __syncwarp();
        for (u32 j = lane; j < codes.row_bytes; j += 32) {
            const u64 column = (u64)(j / book.of_group) * 256 + code[j];
            const float mean = book.background ? __ldg(book.background + column) : 0.0f;
            row[column] = from_f32<Y>(mean + __ldg(book.values + j));
        }
        __syncwarp();
        Y *result = out + names.place((u32)r) * pitch;
        char *to = reinterpret_cast<char *>(result);
        if (n_bytes % 16 == 0) {
            for (u64 u = lane; u < n_bytes / 16; u += 32)
                reinterpret_cast<uint4 *>(to)[u] = reinterpret_cast<const uint4 *>(row)[u];
        } else {
            for (u64 c = lane; c < pitch; c += 32) result[c] = row[c];
        }
        __syncwarp();
    }
}
