/* A driver, a compiler and a cuBLAS that say what the test wants: as much of them as opening a device and allocating takes.
   FAKE_DRIVER   the CUDA version of the driver, 13000 by default
   FAKE_INIT     the driver's answer to being started, 0 by default
   FAKE_GPUS    how many GPUs there are, 1 by default
   FAKE_MAJOR    their compute capability, 9 by default
   FAKE_FREE     their free bytes, 1 MB by default
   FAKE_ALLOC    the answer to allocations, 2 (out of memory) by default; 0 is memory of the host
   FAKE_PINNED   the answer to being asked for pinned memory, 2 by default */
#include <stdlib.h>
#include <string.h>

static long asked(const char *name, long otherwise) {
    const char *value = getenv(name);
    return value ? atol(value) : otherwise;
}

int cuDriverGetVersion(int *version) { *version = (int)asked("FAKE_DRIVER", 13000); return 0; }
int cuInit(unsigned flags) { (void)flags; return (int)asked("FAKE_INIT", 0); }
int cuDeviceGetCount(int *count) { *count = (int)asked("FAKE_GPUS", 1); return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceCanAccessPeer(int *can, int reader, int owner) { (void)reader, (void)owner; *can = 0; return 0; }
int cuDeviceGetName(char *name, int length, int device) { (void)device; strncpy(name, "Fake GPU", length); return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = malloc(1); return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return 0; }
int cuCtxSetCurrent(void *context) { (void)context; return 0; }
int cuCtxGetCurrent(void **context) { *context = 0; return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuStreamCreate(void **stream, unsigned flags) { (void)flags; *stream = malloc(1); return 0; }
int cuStreamDestroy_v2(void *stream) { free(stream); return 0; }
int cuStreamSynchronize(void *stream) { (void)stream; return 0; }
int cuMemAllocAsync(unsigned long long *at, size_t bytes, void *stream) {
    (void)stream;
    int answer = (int)asked("FAKE_ALLOC", 2);
    if (answer == 0) *at = (unsigned long long)calloc(1, bytes);
    return answer;
}
int cuMemFreeAsync(unsigned long long at, void *stream) { (void)stream; free((void *)at); return 0; }
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes, void *stream) {
    (void)stream;
    memcpy((void *)to, from, bytes);
    return 0;
}
int cuMemsetD8Async(unsigned long long at, unsigned char value, size_t bytes, void *stream) {
    (void)stream;
    memset((void *)at, value, bytes);
    return 0;
}
int cuEventCreate(void **event, unsigned flags) { (void)flags; *event = malloc(1); return 0; }
int cuEventDestroy_v2(void *event) { free(event); return 0; }
int cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags) {
    (void)at, (void)bytes, (void)flags;
    return (int)asked("FAKE_PINNED", 2);
}
int cuDeviceGetDefaultMemPool(void **pool, int device) { (void)device; *pool = 0; return 0; }
int cuMemPoolSetAttribute(void *pool, int attribute, void *value) { (void)pool, (void)attribute, (void)value; return 0; }
int cuMemPoolGetAttribute(void *pool, int attribute, unsigned long long *value) {
    (void)pool, (void)attribute;
    *value = 0;
    return 0;
}
int cuMemGetInfo_v2(size_t *free_bytes, size_t *all) {
    *free_bytes = (size_t)asked("FAKE_FREE", 1000000);
    *all = (size_t)1 << 36;
    return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == 75 ? (int)asked("FAKE_MAJOR", 9) : attribute == 76 ? 0 : 1;
    return 0;
}

int nvrtcVersion(int *major, int *minor) { *major = 13; *minor = 0; return 0; }

int cublasCreate_v2(void **handle) { *handle = malloc(1); return 0; }
int cublasSetStream_v2(void *handle, void *stream) { (void)handle, (void)stream; return 0; }
int cublasSetMathMode(void *handle, int mode) { (void)handle, (void)mode; return 0; }
/* As after a failure of the GPU: nothing succeeds any more. */
int cublasDestroy_v2(void *handle) { free(handle); return asked("FAKE_ALLOC", 2) == 2 ? 0 : 14; }
