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

// What marks addresses on the host, in lists that tell them from those on GPUs.
static const u64 ON_HOST = 1ull << ABI_ON_HOST_BIT;

// Rows of so many bytes in any memory that the device can read, one after the other, or each where a list says; null there: nowhere.
struct RowSource {
    const char *first;
    // The address of each row; null where they follow each other.
    const u64 *rows;
    u64 row_bytes;
    // Whether those that are marked are nowhere.
    u64 only_on_gpus;

    __device__ __forceinline__ const char *row(u32 id) const {
        if (!rows) return first + id * row_bytes;
        const u64 address = __ldg(&rows[id]);
        return only_on_gpus && (address & ON_HOST) ? nullptr : reinterpret_cast<const char *>(address & ~ON_HOST);
    }
};

// Which rows are wanted, and where they go; null where they, or these, follow each other. If only the device knows how many they are, it has
// counted them.
struct GatherIndex {
    const u32 *ids, *places, *counted;

    __device__ __forceinline__ u32 id(u32 i) const { return ids ? ids[i] : i; }
    __device__ __forceinline__ u32 place(u32 i) const { return places ? places[i] : i; }
    __device__ __forceinline__ u64 count(u64 n) const { return counted ? *counted : n; }
};

// Units that a thread has under way.
static const int AT_ONCE = ABI_UNITS_OF_THREAD;

// Copies rows unit by unit, neighboring units by neighboring lanes. Rows of eight elements and more begin where 16 bytes may.
template <class Unit, class Index>
__device__ __forceinline__ void copy_units(const RowSource &rows, const GatherIndex &names, char *out, Index n_units, Index of_row) {
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

template <class Unit> __device__ __forceinline__ void copy_rows(const RowSource &rows, const GatherIndex &names, char *out, u64 n) {
    const u64 of_row = rows.row_bytes / sizeof(Unit), n_units = n * of_row;
    // 32 bits divide sooner than 64; room is left for the last step.
    if (n_units < 1ull << 31) copy_units<Unit, u32>(rows, names, out, (u32)n_units, (u32)of_row);
    else copy_units<Unit, u64>(rows, names, out, n_units, of_row);
}

// Rows as they are, of any element. From the host few blocks bring them, which are as large as any.
extern "C" __global__ void __launch_bounds__(ABI_LARGE_BLOCK) copy_named(RowSource rows, GatherIndex names, char *out, u64 most) {
    const u64 n = names.count(most);
    if (rows.row_bytes % 16 == 0) copy_rows<uint4>(rows, names, out, n);
    else if (rows.row_bytes % 2 == 0) copy_rows<unsigned short>(rows, names, out, n);
    // Codes of an odd number of columns or kept values.
    else copy_rows<unsigned char>(rows, names, out, n);
}

// Where another batch has its rows, which lie one after the other: their places for each row, counted from one; zero: nowhere. Without
// places there is no such batch.
struct RowsBefore {
    const u32 *places;
    const char *first;
    u64 row_bytes;
};

// Notes the places of the rows of a batch, or forgets them.
extern "C" __global__ void note_places(const u32 *ids, u32 n, u32 is_noted, u32 *places) {
    for (u32 i = (u32)first_thread(); i < n; i += (u32)n_threads()) places[ids[i]] = is_noted ? i + 1 : 0;
}

// Which of `n` rows a batch has to get from the host, in whatever order: how many, which begins as zero, then their ids; and for whose sake.
// Not those that `rows`, if there are any, says are on a GPU; nor those that the batch before has, whose addresses are kept there; null for
// all others.
extern "C" __global__ void list_far(const u64 *rows, RowsBefore before, const u32 *ids, u32 n, u32 *far, u32 *places, u64 *kept) {
    const u32 lane = threadIdx.x % 32;
    // Whole warps, so that each adds once.
    for (u32 first = (u32)first_thread() / 32 * 32; first < n; first += (u32)n_threads()) {
        const u32 i = first + lane, id = i < n ? ids[i] : 0;
        const u64 address = rows && i < n ? __ldg(&rows[id]) : 0;
        const bool is_on_gpu = address && !(address & ON_HOST);
        const u32 place = before.places && i < n && !is_on_gpu ? before.places[id] : 0;
        if (kept && i < n) kept[i] = place ? (u64)(before.first + (place - 1) * before.row_bytes) : 0;
        const bool is_far = i < n && !is_on_gpu && !place;
        const u32 others = __ballot_sync(~0u, is_far);
        u32 at = lane == 0 && others ? atomicAdd(far, (u32)__popc(others)) : 0;
        at = __shfl_sync(~0u, at, 0) + __popc(others & ((1u << lane) - 1));
        if (!is_far) continue;
        far[1 + at] = id;
        places[at] = i;
    }
}

// Codes of a code book, as crates/compress/src/topk/mod.rs has them: the positions that are kept of each group of ABI_CODE_GROUP columns.
struct CodeBook {
    // A value for each byte of a code, and a row that is added; null where that is zero.
    const float *values, *background;
    u64 width;
    // Bytes of a whole group.
    u32 of_group;
};

// Rows of Y from codes: a warp decodes a row in shared memory, where each has room for one, and stores it side by side.
extern "C" __global__ void decode_rows(RowSource codes, CodeBook book, GatherIndex names, Y *out, u64 most) {
    extern __shared__ uint4 shared[];
    const u32 lane = threadIdx.x % 32;
    const u64 n = names.count(most), pitch = pitch_of(book.width), n_bytes = pitch * sizeof(Y);
    // Rows begin where 16 bytes may.
    Y *row = reinterpret_cast<Y *>(shared + (n_bytes + 15) / 16 * (threadIdx.x / 32));
    for (u64 r = first_thread() / 32; r < n; r += n_threads() / 32) {
        const unsigned char *code = reinterpret_cast<const unsigned char *>(codes.row(names.id((u32)r)));
        if (!code) continue;
        for (u64 c = lane; c < pitch; c += 32)
            row[c] = from_f32<Y>(book.background && c < book.width ? __ldg(book.background + c) : 0.0f);
        __syncwarp();
        for (u32 j = lane; j < codes.row_bytes; j += 32) {
            const u64 column = (u64)(j / book.of_group) * ABI_CODE_GROUP + code[j];
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

// Codes that a lane has under way.
static const int CODES_AT_ONCE = 8;

// Weighted sums of rows that are codes, without the rows: a warp adds up a row of a pattern in shared memory, where each has room for one.
// A byte of a code stands for one value, which its lane keeps, and those of a code for columns that are all unlike: lanes never meet, and each
// column has its entries added in order. Long rows are not cut; those that are sampled are short.
extern "C" __global__ void sum_codes(RowSource codes, CodeBook book, const u32 *ids, Pattern a, const float *values, const float *left,
                                     const float *right, Y *out) {
    extern __shared__ uint4 shared[];
    const u32 lane = threadIdx.x % 32;
    const u64 pitch = pitch_of(book.width);
    float *sums = reinterpret_cast<float *>(shared + (pitch + 3) / 4 * (threadIdx.x / 32));
    // As rows would be stored before they are added up.
    const auto stored = [](float x) { return to_f32(from_f32<Y>(x)); };
    for (u64 c = lane; c < pitch; c += 32) sums[c] = 0;
    __syncwarp();
    for (u64 row = first_thread() / 32; row < a.n_rows; row += n_threads() / 32) {
        const u64 begin = a.indptr[row], end = a.indptr[row + 1];
        float weight = 0;
        for (u32 first = 0; first < codes.row_bytes; first += 32) {
            const u32 j = first + lane;
            const bool has_byte = j < codes.row_bytes;
            const u64 group = (u64)(j / book.of_group) * ABI_CODE_GROUP;
            const float value = has_byte ? __ldg(book.values + j) : 0.0f;
            for (u64 at = begin; at < end; at += 32) {
                const int count = end - at < 32 ? (int)(end - at) : 32;
                const bool has_entry = (int)lane < count;
                const u32 column = has_entry ? a.indices[at + lane] : 0;
                float factor = has_entry ? 1.0f : 0.0f;
                if (has_entry && right) factor *= __ldg(right + column);
                if (has_entry && values) factor *= values[at + lane];
                if (first == 0) weight += factor;
                const u64 code = has_entry ? (u64)codes.row(ids ? ids[column] : column) : 0;
                for (int e = 0; e < count; e += CODES_AT_ONCE) {
                    u32 bytes[CODES_AT_ONCE];
#pragma unroll
                    for (int k = 0; k < CODES_AT_ONCE; k++) {
                        const u64 from = __shfl_sync(~0u, code, e + k);
                        const bool is_read = has_byte && e + k < count;
                        bytes[k] = is_read ? __ldg(reinterpret_cast<const unsigned char *>(from) + j) : 0;
                    }
#pragma unroll
                    for (int k = 0; k < CODES_AT_ONCE; k++) {
                        const float of_entry = __shfl_sync(~0u, factor, e + k);
                        if (has_byte && e + k < count) {
                            const float mean = book.background ? __ldg(book.background + group + bytes[k]) : 0.0f;
                            sums[group + bytes[k]] += of_entry * (stored(mean + value) - stored(mean));
                        }
                        // The next code may name the same column by another byte.
                        __syncwarp();
                    }
                }
            }
        }
#pragma unroll
        for (int lanes = 16; lanes > 0; lanes >>= 1) weight += __shfl_xor_sync(~0u, weight, lanes);
        const float of_row = left ? left[row] : 1.0f;
        const auto taken = [&](u64 c) {
            const float mean = book.background && c < book.width ? stored(__ldg(book.background + c)) : 0.0f;
            const float sum = of_row * (sums[c] + weight * mean);
            sums[c] = 0;
            return sum;
        };
        if (pitch % 8 == 0) {
            for (u64 c = 8 * lane; c < pitch; c += 8 * 32) {
                float of_lane[8];
#pragma unroll
                for (int i = 0; i < 8; i++) of_lane[i] = taken(c + i);
                store_vector<8>(of_lane, out + row * pitch + c);
            }
        } else {
            for (u64 c = lane; c < pitch; c += 32) out[row * pitch + c] = from_f32<Y>(taken(c));
        }
        __syncwarp();
    }
}
