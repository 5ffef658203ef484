// What kernels for the tensor cores of compute capability 9.0 share: barriers in shared memory, rings of stages, and lists of registers
// for `wgmma`.
#pragma once

__device__ __forceinline__ void barrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
    u32 done;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!done);
}

// The stage of a ring that is next, and how often the ring went round.
template <u32 stages> struct Ring {
    u32 stage = 0, parity = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == stages) stage = 0, parity ^= 1;
    }
};

// So many sums of a thread, as operands of an instruction, and their names in it.
#define D8(i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define D16 D8(0), D8(8)
#define D24 D16, D8(16)
#define D32 D24, D8(24)
#define D40 D32, D8(32)
#define D48 D40, D8(40)
#define D56 D48, D8(48)
#define D64 D56, D8(56)
#define R8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define R16 R8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define R24 R16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define R32 R24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define R40 R32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define R48 R40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define R56 R48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define R64 R56 ", %56, %57, %58, %59, %60, %61, %62, %63"
