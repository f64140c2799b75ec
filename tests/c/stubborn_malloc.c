/*
 * An allocator that asks the loader and the environment while it holds its lock, as real ones do while they start: whoever
 * allocates in the middle of a look-up waits for itself.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *next, *end;

static void *take(size_t bytes, size_t align) {
    pthread_mutex_lock(&lock);
    /* All of these are there. */
    if (!dlsym(RTLD_NEXT, "malloc") || !dlsym(RTLD_DEFAULT, "getenv") || !dlsym(RTLD_DEFAULT, "dlopen") ||
        !dlvsym(RTLD_DEFAULT, "dlsym", "GLIBC_2.34"))
        abort();
    getenv("STUBBORN");
    if (align < 16) align = 16;
    char *start = (char *)(((uintptr_t)next + 16 + align - 1) & ~(align - 1));
    if (!next || start + bytes > end) {
        size_t span = (bytes + align + (1 << 20)) & ~(size_t)4095;
        next = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        end = next + span;
        start = (char *)(((uintptr_t)next + 16 + align - 1) & ~(align - 1));
    }
    ((size_t *)start)[-1] = bytes;
    next = start + bytes;
    pthread_mutex_unlock(&lock);
    return start;
}

void *malloc(size_t bytes) { return take(bytes, 16); }
void free(void *memory) { (void)memory; }
void *calloc(size_t count, size_t bytes) { return take(count * bytes, 16); }
void *aligned_alloc(size_t align, size_t bytes) { return take(bytes, align); }
void *memalign(size_t align, size_t bytes);
void *memalign(size_t align, size_t bytes) { return take(bytes, align); }

int posix_memalign(void **memory, size_t align, size_t bytes) {
    *memory = take(bytes, align);
    return 0;
}

void *realloc(void *memory, size_t bytes) {
    void *fresh = take(bytes, 16);
    if (memory) {
        size_t old = ((size_t *)memory)[-1];
        memcpy(fresh, memory, old < bytes ? old : bytes);
    }
    return fresh;
}
