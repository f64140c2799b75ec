/* Another tool of the kind that is preloaded: hooks cuMemAlloc_v2 and dlsym, and calls on to whoever is next. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#ifdef __aarch64__
#define BASE "GLIBC_2.17"
#else
#define BASE "GLIBC_2.2.5"
#endif

typedef int alloc_fn(unsigned long long *, size_t);
typedef void *dlsym_fn(void *, const char *);

static alloc_fn *real_alloc;
static unsigned seen;

int cuMemAlloc_v2(unsigned long long *address, size_t bytes);
int cuMemAlloc_v2(unsigned long long *address, size_t bytes)
{
    seen++;
    if (!real_alloc)
        real_alloc = (alloc_fn *)dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    return real_alloc ? real_alloc(address, bytes) : 500;
}

void *dlsym(void *handle, const char *name)
{
    static dlsym_fn *real;
    if (!real)
        real = (dlsym_fn *)dlvsym(RTLD_NEXT, "dlsym", BASE);
    if (handle == RTLD_NEXT || strcmp(name, "cuMemAlloc_v2"))
        return real(handle, name);
    void *found = real(handle, name);
    if (!found)
        return NULL;
    real_alloc = (alloc_fn *)found;
    return (void *)cuMemAlloc_v2;
}

__attribute__((destructor)) static void report(void)
{
    fprintf(stderr, "interposer: %u allocations\n", seen);
}
