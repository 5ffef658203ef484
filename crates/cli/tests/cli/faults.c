/* Operations on files, or allocations, of which one fails: a library to be loaded before the C library.
   FAULT_KIND   `error`: the operation fails, as on a full or failing disk; `kill`: SIGKILL in its place;
                `memory`: an allocation fails, and only allocations are counted
   FAULT_AT     the number of the operation that fails, from 1; with 0, none does
   FAULT_COUNT  the file that gets the number of operations when the process ends

   Counted are: creating, writing, cutting, flushing and renaming regular files and folders. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { NONE, ERROR, KILL, MEMORY };

static enum kind kind = NONE;
static long at = 0;
static atomic_long files = 0, allocations = 0;

static enum kind kind_of(const char *name) {
    if (name == NULL) return NONE;
    if (strcmp(name, "error") == 0) return ERROR;
    if (strcmp(name, "kill") == 0) return KILL;
    return strcmp(name, "memory") == 0 ? MEMORY : NONE;
}

__attribute__((constructor)) static void begin(void) {
    const char *number = getenv("FAULT_AT");
    at = number ? atol(number) : 0;
    kind = kind_of(getenv("FAULT_KIND"));
}

__attribute__((destructor)) static void end(void) {
    const char *path = getenv("FAULT_COUNT");
    long count = kind == MEMORY ? atomic_load(&allocations) : atomic_load(&files);
    kind = NONE;
    FILE *out = path ? fopen(path, "w") : NULL;
    if (out == NULL) return;
    fprintf(out, "%ld\n", count);
    fclose(out);
}

/* Whether this operation on a file is to fail with `error`. */
static int file_fails(int error) {
    if (kind != ERROR && kind != KILL) return 0;
    if (atomic_fetch_add(&files, 1) + 1 != at) return 0;
    if (kind == KILL) kill(getpid(), SIGKILL);
    errno = error;
    return 1;
}

static int is_counted(int file) {
    struct stat status;
    return fstat(file, &status) == 0 && (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode));
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int file, const void *bytes, size_t n) {
    return is_counted(file) && file_fails(ENOSPC) ? -1 : NEXT(write)(file, bytes, n);
}

ssize_t writev(int file, const struct iovec *parts, int n) {
    return is_counted(file) && file_fails(ENOSPC) ? -1 : NEXT(writev)(file, parts, n);
}

ssize_t pwrite64(int file, const void *bytes, size_t n, off64_t offset) {
    return file_fails(ENOSPC) ? -1 : NEXT(pwrite64)(file, bytes, n, offset);
}

int ftruncate64(int file, off64_t length) { return file_fails(ENOSPC) ? -1 : NEXT(ftruncate64)(file, length); }
int fsync(int file) { return file_fails(EIO) ? -1 : NEXT(fsync)(file); }
int fdatasync(int file) { return file_fails(EIO) ? -1 : NEXT(fdatasync)(file); }
int rename(const char *from, const char *to) { return file_fails(EIO) ? -1 : NEXT(rename)(from, to); }
int mkdir(const char *path, mode_t mode) { return file_fails(ENOSPC) ? -1 : NEXT(mkdir)(path, mode); }

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return flags & O_CREAT && file_fails(ENOSPC) ? -1 : NEXT(open64)(path, flags, mode);
}

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static int memory_fails(void) {
    if (kind != MEMORY || atomic_fetch_add(&allocations, 1) + 1 != at) return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t bytes) { return memory_fails() ? NULL : __libc_malloc(bytes); }
void *calloc(size_t n, size_t bytes) { return memory_fails() ? NULL : __libc_calloc(n, bytes); }
void *realloc(void *old, size_t bytes) { return memory_fails() ? NULL : __libc_realloc(old, bytes); }

int posix_memalign(void **out, size_t alignment, size_t bytes) {
    if (memory_fails()) return ENOMEM;
    *out = __libc_memalign(alignment, bytes);
    return *out == NULL ? ENOMEM : 0;
}
