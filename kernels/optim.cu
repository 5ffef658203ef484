// Steps of optimisers: one pass over parameters, gradient and state, all of them f32.
#include "common.cuh"

// rate is lr / (1 - beta1^step), root_correction 1 / sqrt(1 - beta2^step); coupled is decay that goes through the gradient,
// kept is what AdamW's decay leaves of a weight.
extern "C" __global__ void adam(const float *grad, float *first, float *second, float *param, u64 n, float beta1,
                                float beta2, float rate, float root_correction, float eps, float coupled, float kept) {
    for (u64 i = first_thread(); i < n; i += n_threads()) {
        const float weight = param[i], g = grad[i] + coupled * weight;
        const float m = beta1 * first[i] + (1.0f - beta1) * g;
        const float v = beta2 * second[i] + (1.0f - beta2) * g * g;
        first[i] = m;
        second[i] = v;
        param[i] = kept * weight - rate * m / (sqrtf(v) * root_correction + eps);
    }
}

extern "C" __global__ void sgd(const float *grad, float *velocity, float *param, u64 n, float lr, float momentum,
                               float weight_decay) {
    for (u64 i = first_thread(); i < n; i += n_threads()) {
        const float weight = param[i], v = momentum * velocity[i] + grad[i] + weight_decay * weight;
        velocity[i] = v;
        param[i] = weight - lr * v;
    }
}
