// Passes over whole matrices. X and Y are the storage of what is read and of what is written.
// Elements: X, Y
#include "common.cuh"

extern "C" __global__ void convert(const X *x, Y *out, u64 n) {
    map(x, out, n, [](float x, u64) { return x; });
}

extern "C" __global__ void scale(const X *x, Y *out, u64 n, float factor) {
    map(x, out, n, [=](float x, u64) { return factor * x; });
}

// Rows times a factor each, for as many columns as the result has, from x on; rows of x lie x_pitch apart.
extern "C" __global__ void scale_rows(const X *x, u64 x_pitch, const float *factors, Y *out, u64 rows, u64 cols) {
    const u64 column = my_column();
    if (column >= cols) return;
    each_row(
        rows, [=](u64 row) { return to_f32(x[row * x_pitch + column]) * factors[row]; },
        [=](u64 row, float value) { out[row * cols + column] = from_f32<Y>(value); });
}

// The same with four columns for each thread: cols and x_pitch are quarters of what lies from row to row.
extern "C" __global__ void scale_rows_of_fours(const Four<X> *x, u64 x_pitch, const float *factors, Four<Y> *out, u64 rows,
                                               u64 cols) {
    struct Scaled {
        Four<X> x;
        float factor;
    };
    const u64 column = my_column();
    if (column >= cols) return;
    const auto load = [=](u64 row) { return Scaled{x[row * x_pitch + column], factors[row]}; };
    each_row(rows, load, [=](u64 row, Scaled loaded) {
        Four<Y> scaled;
#pragma unroll
        for (int k = 0; k < 4; k++) scaled.of[k] = from_f32<Y>(loaded.factor * to_f32(loaded.x.of[k]));
        out[row * cols + column] = scaled;
    });
}

extern "C" __global__ void add_scaled(const X *x, Y *out, u64 n, float factor) {
    combine(x, out, n, [=](float x, float out) { return out + factor * x; });
}

extern "C" __global__ void activation_backward(const X *y, Y *grad, u64 n, u32 activation, float kept) {
    combine(y, grad, n, [=](float y, float grad) { return grad * activation_slope(activation, kept, y); });
}

// The same, and the sums of what it leaves, as it is stored.
extern "C" __global__ void activation_backward_sums(const X *y, Y *grad, u64 rows, u64 cols, u32 activation, float kept,
                                                    float *partials) {
    const u64 column = my_column(), pitch = pitch_of(cols);
    const auto load = [=](u64 row) { return Pair{to_f32(y[row * pitch + column]), to_f32(grad[row * pitch + column])}; };
    column_partials<1>(rows, cols, partials, load, [=](u64 row, Pair loaded, float *sums) {
        const Y left = from_f32<Y>(loaded.b * activation_slope(activation, kept, loaded.a));
        grad[row * pitch + column] = left;
        sums[0] += to_f32(left);
    });
}

extern "C" __global__ void column_sums(const X *x, u64 rows, u64 cols, float *partials) {
    const u64 column = my_column(), pitch = pitch_of(cols);
    const auto load = [=](u64 row) { return to_f32(x[row * pitch + column]); };
    column_partials<1>(rows, cols, partials, load, [](u64, float value, float *sums) { sums[0] += value; });
}

// The same with four columns for each thread: cols is a quarter of the pitch, and sum k is that of column 4c + k.
extern "C" __global__ void column_sums_of_fours(const Four<X> *x, u64 rows, u64 cols, float *partials) {
    const u64 column = my_column();
    const auto load = [=](u64 row) { return x[row * cols + column]; };
    column_partials<4>(rows, cols, partials, load, [](u64, Four<X> loaded, float *sums) {
#pragma unroll
        for (int k = 0; k < 4; k++) sums[k] += to_f32(loaded.of[k]);
    });
}

// Likewise.
extern "C" __global__ void activation_backward_sums_of_fours(const Four<X> *y, Four<Y> *grad, u64 rows, u64 cols,
                                                             u32 activation, float kept, float *partials) {
    struct Both {
        Four<X> y;
        Four<Y> grad;
    };
    const u64 column = my_column();
    const auto load = [=](u64 row) { return Both{y[row * cols + column], grad[row * cols + column]}; };
    column_partials<4>(rows, cols, partials, load, [=](u64 row, Both loaded, float *sums) {
        Four<Y> left;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float slope = activation_slope(activation, kept, to_f32(loaded.y.of[k]));
            left.of[k] = from_f32<Y>(to_f32(loaded.grad.of[k]) * slope);
            sums[k] += to_f32(left.of[k]);
        }
        grad[row * cols + column] = left;
    });
}

// Adds the parts that column_partials left of sum blockIdx.y: blocks of as many columns as pieces. Results of several sums lie
// side by side.
extern "C" __global__ void finish_columns(const float *partials, u64 pieces, u64 cols, Y *out) {
    __shared__ double of_threads[ABI_FINISH][ABI_FINISH + 1];
    partials += blockIdx.y * pieces * cols;
    out += blockIdx.y;
    const u64 column = my_column();
    double sum = 0.0;
    if (column < cols) {
        for (u64 piece = threadIdx.y; piece < pieces; piece += ABI_FINISH) sum += (double)partials[piece * cols + column];
    }
    of_threads[threadIdx.y][threadIdx.x] = sum;
    for (u32 half = ABI_FINISH / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half) of_threads[threadIdx.y][threadIdx.x] += of_threads[threadIdx.y + half][threadIdx.x];
    }
    if (threadIdx.y == 0 && column < cols) out[column * gridDim.y] = from_f32<Y>((float)of_threads[0][threadIdx.x]);
}

// Eight neighbors of a row for each thread: rows begin with some, and what lies behind the last column is anything. Where rows
// do not begin with a Philox block, two have what they want.
extern "C" __global__ void dropout(const X *x, Y *out, u64 rows, u64 cols, Mask mask) {
    const u64 pitch = pitch_of(cols), column = 8 * my_column();
    if (column >= cols) return;
    const auto load = [=](u64 row) { return *reinterpret_cast<const Vector<X, 8> *>(x + row * pitch + column); };
    each_row(rows, load, [=](u64 row, Vector<X, 8> loaded) {
        const u32 bits = mask.bits<8>(row * cols + column);
        float values[8];
#pragma unroll
        for (u32 i = 0; i < 8; i++) values[i] = to_f32(loaded.of[i]) * mask.draws.factor(bits >> i & 1);
        store_vector<8>(values, out + row * pitch + column);
    });
}

// The same of rows of less than eight, between which nothing lies: the eight elements that share a Philox block.
extern "C" __global__ void dropout_of_narrow(const X *x, Y *out, u64 n, Mask mask) {
    const u64 before = mask.first % 8, blocks = (before + n + 7) / 8;
    for (u64 block = first_thread(); block < blocks; block += n_threads()) {
        const u32 bits = mask.eight(mask.first / 8 + block);
        // Elements before the first wrap around to numbers beyond n.
        const u64 start = 8 * block - before;
#pragma unroll
        for (u32 i = 0; i < 8; i++)
            if (start + i < n) out[start + i] = from_f32<Y>(to_f32(x[start + i]) * mask.draws.factor(bits >> i & 1));
    }
}

extern "C" __global__ void activate_all(Y *x, u64 n, u32 activation) {
    map(x, x, n, [=](float x, u64) { return activated(activation, x); });
}

extern "C" __global__ void activate(const X *bias, Y *x, u64 rows, u64 cols, u32 activation) {
    const u64 column = my_column(), pitch = pitch_of(cols);
    if (column >= cols) return;
    const float shift = to_f32(bias[column]);
    each_row(
        rows, [=](u64 row) { return to_f32(x[row * pitch + column]); },
        [=](u64 row, float value) { x[row * pitch + column] = from_f32<Y>(activated(activation, value + shift)); });
}

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// The sigmoid in the Gaussian error linear unit x * share.
__device__ __forceinline__ float gelu_share(float x) {
    return sigmoid(2.0f * (float)ABI_GELU_SCALE * x * (1.0f + (float)ABI_GELU_CUBE * x * x));
}

// An element-wise function: ABI_GELU, or else ABI_SIGMOID.
extern "C" __global__ void apply(const X *x, Y *out, u64 rows, u64 cols, u32 function) {
    const u64 column = my_column(), pitch = pitch_of(cols);
    if (column >= cols) return;
    each_row(
        rows, [=](u64 row) { return to_f32(x[row * pitch + column]); },
        [=](u64 row, float value) {
            out[row * pitch + column] = from_f32<Y>(function == ABI_GELU ? value * gelu_share(value) : sigmoid(value));
        });
}

extern "C" __global__ void apply_backward(const X *x, Y *grad, u64 rows, u64 cols, u32 function) {
    const u64 column = my_column(), pitch = pitch_of(cols);
    if (column >= cols) return;
    each_row(
        rows, [=](u64 row) { return to_f32(x[row * pitch + column]); },
        [=](u64 row, float value) {
            const float share = function == ABI_GELU ? gelu_share(value) : sigmoid(value);
            float slope = share * (1.0f - share);
            if (function == ABI_GELU) {
                slope = share + value * slope * 2.0f * (float)ABI_GELU_SCALE * (1.0f + 3.0f * (float)ABI_GELU_CUBE * value * value);
            }
            const u64 at = row * pitch + column;
            grad[at] = from_f32<Y>(slope * to_f32(grad[at]));
        });
}

// A block of rows by cols elements, which begins at x_start in x and at out_start in out.
extern "C" __global__ void copy_block(const X *x, u64 x_pitch, u64 x_start, Y *out, u64 out_pitch, u64 out_start, u64 rows,
                                      u64 cols) {
    const u64 column = my_column();
    if (column >= cols) return;
    each_row(
        rows, [=](u64 row) { return to_f32(x[x_start + row * x_pitch + column]); },
        [=](u64 row, float value) { out[out_start + row * out_pitch + column] = from_f32<Y>(value); });
}

// The sums of squares of blocks.
extern "C" __global__ void squares(const X *x, u64 rows, u64 cols, double *partials) {
    const u64 pitch = pitch_of(cols), n = rows * pitch;
    double sum = 0.0;
#pragma unroll 4
    for (u64 i = first_thread(); i < n; i += n_threads()) {
        const double value = pitch == cols || i % pitch < cols ? (double)to_f32(x[i]) : 0.0;
        sum += value * value;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// loss += factor times the sum of partials, on one block.
extern "C" __global__ void add_squares(const double *partials, u64 n, double factor, Y *loss) {
    double sum = 0.0;
    for (u64 i = threadIdx.x; i < n; i += blockDim.x) sum += partials[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) loss[0] = from_f32<Y>((float)((double)to_f32(loss[0]) + factor * sum));
}
