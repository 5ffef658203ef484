// Numbers for every entry of a pattern and every head: how threads share them out, and the softmax of a row.
#pragma once

static const int WARPS_MAX = ABI_LARGE_BLOCK / 32;

// How a warp shares out entries and heads: `n` heads from `first` on, `groups` lanes for each.
struct Heads {
    int n, groups, group, head;

    __device__ __forceinline__ Heads(u64 first, u64 heads) {
        const int lane = threadIdx.x % 32;
        const u64 left = heads - first;
        // Blocks of heads are equally wide but for the last, so that few lanes idle.
        n = left < 32 ? (int)left : 32;
        groups = 32 / n;
        group = lane / n;
        head = lane % n;
    }

    // Lanes that are left over have no part of the work, but take part in sums.
    __device__ __forceinline__ bool works() const { return group < groups; }
    __device__ __forceinline__ bool leads() const { return group == 0; }

    // The sum over the lanes of a head, in each of them.
    __device__ __forceinline__ float sum(float x) const {
        if ((n & (n - 1)) == 0) {
            for (int lanes = 16; lanes >= n; lanes >>= 1) x += __shfl_xor_sync(~0u, x, lanes);
            return x;
        }
        float total = __shfl_sync(~0u, x, head);
        for (int g = 1; g < groups; g++) total += __shfl_sync(~0u, x, head + g * n);
        return total;
    }

    __device__ __forceinline__ float max(float x) const {
        float most = __shfl_sync(~0u, x, head);
        for (int g = 1; g < groups; g++) most = fmaxf(most, __shfl_sync(~0u, x, head + g * n));
        return most;
    }
};

// The threads that share a row: a warp, or for hubs a block.
template <bool BLOCK> struct Team {
    float *shared;

    __device__ __forceinline__ static u64 warp() { return BLOCK ? threadIdx.x / 32 : 0; }
    __device__ __forceinline__ static u64 n_warps() { return BLOCK ? blockDim.x / 32 : 1; }

    __device__ __forceinline__ float sum(const Heads &heads, float x) const {
        x = heads.sum(x);
        if (!BLOCK) return x;
        spread(heads, x);
        float total = shared[heads.head];
        for (u64 w = 1; w < n_warps(); w++) total += shared[w * 32 + heads.head];
        __syncthreads();
        return total;
    }

    __device__ __forceinline__ float max(const Heads &heads, float x) const {
        x = heads.max(x);
        if (!BLOCK) return x;
        spread(heads, x);
        float most = shared[heads.head];
        for (u64 w = 1; w < n_warps(); w++) most = fmaxf(most, shared[w * 32 + heads.head]);
        __syncthreads();
        return most;
    }

    __device__ __forceinline__ void spread(const Heads &heads, float x) const {
        if (heads.leads()) shared[warp() * 32 + heads.head] = x;
        __syncthreads();
    }
};

// A row that a team works on.
struct Span {
    u64 row, begin, end;
};

// Calls `work(team, row)` for each row: a warp each if it is no hub.
template <class Work> __device__ __forceinline__ void for_rows(const Pattern &a, Work work) {
    for (u64 row = first_thread() / 32; row < a.n_rows; row += n_threads() / 32) {
        Span span{row, a.indptr[row], a.indptr[row + 1]};
        if (a.n_hubs == 0 || span.end - span.begin <= SEGMENT) work(Team<false>{nullptr}, span);
    }
}

// Likewise for each hub: a block each.
template <class Work> __device__ __forceinline__ void for_hubs(const Pattern &a, Work work) {
    __shared__ float shared[WARPS_MAX * 32];
    for (u64 hub = blockIdx.x; hub < a.n_hubs; hub += gridDim.x) {
        const u64 row = a.hub_rows[hub];
        work(Team<true>{shared}, Span{row, a.indptr[row], a.indptr[row + 1]});
    }
}

// Calls `work(heads, first head, first entry, step)` for blocks of at most 32 heads.
template <bool BLOCK, class Work> __device__ __forceinline__ void for_heads(u64 n_heads, u64 begin, Work work) {
    for (u64 first = 0; first < n_heads; first += 32) {
        Heads heads(first, n_heads);
        const u64 team_groups = heads.groups * Team<BLOCK>::n_warps();
        work(heads, first + heads.head, begin + Team<BLOCK>::warp() * heads.groups + heads.group, team_groups);
    }
}

// The softmax of the scores of a row's entries in place, each times `factor(entry, head)`; and `denominator(head, its
// logarithm)`, by one thread. `score(entry, head)` is asked first, and leaves the score where its share goes.
template <class S, bool BLOCK, class Score, class Factor, class Denominator>
__device__ __forceinline__ void softmax(const Team<BLOCK> &team, Span span, u64 n_heads, S *shares, Score score, Factor factor,
                                        Denominator denominator) {
    for_heads<BLOCK>(n_heads, span.begin, [&](const Heads &heads, u64 head, u64 first, u64 step) {
        const u64 end = heads.works() ? span.end : 0;
        float most = __int_as_float(0xff800000), sum = 0;
        for (u64 e = first; e < end; e += step) most = fmaxf(most, score(e, head));
        most = team.max(heads, most);
        for (u64 e = first; e < end; e += step) sum += expf(to_f32(shares[e * pitch_of(n_heads) + head]) - most);
        sum = team.sum(heads, sum);
        for (u64 e = first; e < end; e += step) {
            S *share = shares + e * pitch_of(n_heads) + head;
            *share = from_f32<S>(expf(to_f32(*share) - most) / sum * factor(e, head));
        }
        // Rows without entries have no denominator; zero stands for its logarithm.
        if (heads.leads() && team.warp() == 0) denominator(head, span.begin < span.end ? most + logf(sum) : 0);
    });
}
