// Normalisation along rows and columns. X is the storage of the matrix that is normalised, Y of the result, or of the
// gradient. What a column or a row has one or two of is f32.
// Elements: X, Y
#include "common.cuh"

// A warp for each row. Its mean comes first, so that squares are of what is off the mean.
extern "C" __global__ void normalize_rows(const X *x, const float *gain, const float *bias, u64 rows, u64 cols, float eps,
                                          Y *out, float *moments) {
    const u32 lane = threadIdx.x % 32;
    const u64 pitch = pitch_of(cols);
    for (u64 row = first_thread() / 32; row < rows; row += n_threads() / 32) {
        const X *from = x + row * pitch;
        float sum = 0.0f, squares = 0.0f;
        for (u64 c = lane; c < cols; c += 32) sum += to_f32(from[c]);
        const float mean = warp_sum(sum) / (float)cols;
        for (u64 c = lane; c < cols; c += 32) {
            const float off = to_f32(from[c]) - mean;
            squares += off * off;
        }
        const float rstd = 1.0f / sqrtf(warp_sum(squares) / (float)cols + eps);
        if (lane == 0) {
            moments[2 * row] = mean;
            moments[2 * row + 1] = rstd;
        }
        for (u64 c = lane; c < cols; c += 32) {
            out[row * pitch + c] = from_f32<Y>((to_f32(from[c]) - mean) * rstd * gain[c] + bias[c]);
        }
    }
}

// The sums behind the gradients of gain and bias, in this order.
extern "C" __global__ void normalize_rows_sums(const X *x, const Y *grad, const float *moments, u64 rows, u64 cols,
                                               float *partials) {
    const u64 column = my_column(), pitch = pitch_of(cols);
    const auto load = [=](u64 row) {
        const float hat = (to_f32(x[row * pitch + column]) - moments[2 * row]) * moments[2 * row + 1];
        return Pair{hat, to_f32(grad[row * pitch + column])};
    };
    column_partials<2>(rows, cols, partials, load, [](u64, Pair loaded, float *sums) {
        sums[0] += loaded.b * loaded.a;
        sums[1] += loaded.b;
    });
}

// A warp for each row.
extern "C" __global__ void normalize_rows_backward(const X *x, const float *gain, const float *moments, u64 rows, u64 cols,
                                                   Y *grad) {
    const u32 lane = threadIdx.x % 32;
    const u64 pitch = pitch_of(cols);
    for (u64 row = first_thread() / 32; row < rows; row += n_threads() / 32) {
        const float mean = moments[2 * row], rstd = moments[2 * row + 1];
        const X *from = x + row * pitch;
        Y *to = grad + row * pitch;
        float shift = 0.0f, slope = 0.0f;
        for (u64 c = lane; c < cols; c += 32) {
            const float scaled = to_f32(to[c]) * gain[c];
            shift += scaled;
            slope += scaled * ((to_f32(from[c]) - mean) * rstd);
        }
        shift = warp_sum(shift) / (float)cols;
        slope = warp_sum(slope) / (float)cols;
        for (u64 c = lane; c < cols; c += 32) {
            const float hat = (to_f32(from[c]) - mean) * rstd;
            to[c] = from_f32<Y>(rstd * (to_f32(to[c]) * gain[c] - shift - hat * slope));
        }
    }
}

extern "C" __global__ void column_squares(const X *x, const float *means, u64 rows, u64 cols, float *partials) {
    const u64 column = my_column(), pitch = pitch_of(cols);
    const float mean = column < cols ? means[column] : 0.0f;
    const auto load = [=](u64 row) { return to_f32(x[row * pitch + column]) - mean; };
    column_partials<1>(rows, cols, partials, load, [](u64, float off, float *sums) { sums[0] += off * off; });
}

extern "C" __global__ void normalize_columns(const X *x, const float *means, const float *variances, float eps,
                                             const float *gain, const float *bias, u64 rows, u64 cols, Y *out) {
    const u64 column = my_column(), pitch = pitch_of(cols);
    if (column >= cols) return;
    const float mean = means[column], rstd = 1.0f / sqrtf(variances[column] + eps);
    const float slope = gain[column], shift = bias[column];
    each_row(
        rows, [=](u64 row) { return to_f32(x[row * pitch + column]); },
        [=](u64 row, float value) { out[row * pitch + column] = from_f32<Y>((value - mean) * rstd * slope + shift); });
}

extern "C" __global__ void normalized_products(const X *x, const float *means, const float *variances, float eps,
                                               const Y *grad, u64 rows, u64 cols, float *partials) {
    const u64 column = my_column(), pitch = pitch_of(cols);
    const float mean = column < cols ? means[column] : 0.0f;
    const float rstd = column < cols ? 1.0f / sqrtf(variances[column] + eps) : 0.0f;
    const auto load = [=](u64 row) { return Pair{to_f32(x[row * pitch + column]), to_f32(grad[row * pitch + column])}; };
    column_partials<1>(rows, cols, partials, load,
                       [=](u64, Pair loaded, float *sums) { sums[0] += loaded.b * ((loaded.a - mean) * rstd); });
}

// shift and slope are the means of grad and of grad times the normalised x.
extern "C" __global__ void normalize_columns_backward(const X *x, const float *means, const float *variances, float eps,
                                                      const float *gain, const float *shift, const float *slope, u64 rows,
                                                      u64 cols, Y *grad) {
    const u64 column = my_column(), pitch = pitch_of(cols);
    if (column >= cols) return;
    const float mean = means[column], rstd = 1.0f / sqrtf(variances[column] + eps);
    const float factor = gain[column] * rstd, down = shift[column], across = slope[column];
    each_row(
        rows, [=](u64 row) { return Pair{to_f32(x[row * pitch + column]), to_f32(grad[row * pitch + column])}; },
        [=](u64 row, Pair loaded) {
            const float hat = (loaded.a - mean) * rstd;
            grad[row * pitch + column] = from_f32<Y>(factor * (loaded.b - down - hat * across));
        });
}
