// Steps of optimisers: one pass over parameters, gradients and state, all of them f32. The parameters of a model go
// together, because many are small.
#include "common.cuh"

// A parameter. Blocks take PIECE of its elements each, those of all parameters one after the
// other, up to block `end`.
struct Update {
    float *param;
    const float *grad;
    // Adam's first moment, or the velocity.
    float *first;
    // Null without a second moment.
    float *second;
    u64 n;
    u32 end;
    // Decay that goes through the gradient, and AdamW's.
    float coupled, decoupled;
};

// As many as a launch may carry. The last one's `end` is the number of blocks.
struct Updates {
    Update of[ABI_UPDATES_MAX];
};

static const u64 PIECE = 4 * ABI_BLOCK;

__device__ __forceinline__ Four<float> four(const float *x, u64 i) {
    return *reinterpret_cast<const Four<float> *>(x + i);
}
__device__ __forceinline__ void put(float *x, u64 i, const Four<float> &four) {
    *reinterpret_cast<Four<float> *>(x + i) = four;
}

// step(update, grad, first, second, param) changes what it is given for every element. Blocks have PIECE / 4 threads.
template <bool has_second, class Step> __device__ __forceinline__ void each_element(const Updates &updates, Step step) {
    u32 k = 0;
    while (blockIdx.x >= updates.of[k].end) k++;
    const Update &update = updates.of[k];
    const u64 i = (blockIdx.x - (k ? updates.of[k - 1].end : 0)) * PIECE + 4 * threadIdx.x;
    if (i + 4 <= update.n) {
        const Four<float> grad = four(update.grad, i);
        Four<float> first = four(update.first, i), second = {}, param = four(update.param, i);
        if (has_second) second = four(update.second, i);
#pragma unroll
        for (int j = 0; j < 4; j++) step(update, grad.of[j], first.of[j], second.of[j], param.of[j]);
        put(update.first, i, first);
        if (has_second) put(update.second, i, second);
        put(update.param, i, param);
        return;
    }
    for (u64 j = i; j < update.n; j++) {
        float none = 0.0f;
        step(update, update.grad[j], update.first[j], has_second ? update.second[j] : none, update.param[j]);
    }
}

// What changes from step to step: the learning rate; rate is lr / (1 - beta1^step), root_correction 1 / sqrt(1 - beta2^step).
// A step that is repeated without the host finds them stored.
struct Rates {
    float lr, rate, root_correction;
};

extern "C" __global__ void adam(const __grid_constant__ Updates updates, float beta1, float beta2, float eps, Rates given,
                                const Rates *stored) {
    const Rates rates = stored ? *stored : given;
    const float lr = rates.lr, rate = rates.rate, root_correction = rates.root_correction;
    const auto step = [=](const Update &update, float grad, float &first, float &second, float &param) {
        const float g = grad + update.coupled * param;
        first = beta1 * first + (1.0f - beta1) * g;
        second = beta2 * second + (1.0f - beta2) * g * g;
        // Rounded after each operation, as the host would.
        const float kept = __fsub_rn(1.0f, __fmul_rn(lr, update.decoupled));
        param = kept * param - rate * first / (sqrtf(second) * root_correction + eps);
    };
    each_element<true>(updates, step);
}

extern "C" __global__ void sgd(const __grid_constant__ Updates updates, float momentum, float given, const Rates *stored) {
    const float lr = stored ? stored->lr : given;
    const auto step = [=](const Update &update, float grad, float &velocity, float &, float &param) {
        velocity = momentum * velocity + grad + update.coupled * param;
        param -= lr * velocity;
    };
    each_element<false>(updates, step);
}
