/*
 * A program that does one thing many times and says how long it took. It is run twice, with and without the preload
 * library, and asked in turn; which of the two it is, it does not know.
 *
 * Reads commands line by line and answers each with one line (`pointers`: many, then "end"):
 *   live N BYTES    keep N allocations of BYTES, no more and no less
 *   pairs N BYTES   N times allocate and free at once: nanoseconds for all
 *   swaps N BYTES   N times free one of the live allocations at random, and allocate another: the same
 *   pooled N BYTES  N times allocate from the device's pool and free: the same
 *   info N          N times cuMemGetInfo: the same
 *   dlsym N NAME    N times look up NAME in the C library, and in libcuda where it begins with "cu": the same
 *   pointers        for every name on standard input up to "end": where it leads, as FILE+OFFSET; "@NAME" asks
 *                   cuGetProcAddress, any other dlsym
 *   rss             resident bytes
 *   active MS       from now on allocate and free something every MS milliseconds, until the input ends
 */
#define _GNU_SOURCE
#include "open_driver.h"

#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static CUresult (*mem_alloc)(CUdeviceptr *, size_t);
static CUresult (*mem_free)(CUdeviceptr);
static CUresult (*mem_alloc_async)(CUdeviceptr *, size_t, CUstream);
static CUresult (*mem_free_async)(CUdeviceptr, CUstream);
static CUresult (*mem_info)(size_t *, size_t *);
static void *driver, *libc, *nvml;

static CUdeviceptr *live;
static size_t live_count;

static void check(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "%s answered %d\n", what, (int)result);
        exit(1);
    }
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void start(void)
{
    driver = open_library("libcuda.so.1");
    nvml = open_library("libnvidia-ml.so.1");
    libc = open_library("libc.so.6");
    CUresult (*init)(unsigned) = function_of(driver, "cuInit");
    CUresult (*retain)(CUcontext *, CUdevice) = function_of(driver, "cuDevicePrimaryCtxRetain");
    CUresult (*set_current)(CUcontext) = function_of(driver, "cuCtxSetCurrent");
    mem_alloc = function_of(driver, "cuMemAlloc_v2");
    mem_free = function_of(driver, "cuMemFree_v2");
    mem_alloc_async = function_of(driver, "cuMemAllocAsync");
    mem_free_async = function_of(driver, "cuMemFreeAsync");
    mem_info = function_of(driver, "cuMemGetInfo_v2");
    CUcontext context;
    check(init(0), "cuInit");
    check(retain(&context, 0), "cuDevicePrimaryCtxRetain");
    check(set_current(context), "cuCtxSetCurrent");
}

static void keep(size_t count, size_t bytes)
{
    while (live_count > count)
        check(mem_free(live[--live_count]), "cuMemFree_v2");
    CUdeviceptr *grown = realloc(live, (count + 1) * sizeof *live);
    if (!grown)
        exit(1);
    live = grown;
    while (live_count < count)
        check(mem_alloc(&live[live_count++], bytes), "cuMemAlloc_v2");
}

static void pairs(size_t count, size_t bytes)
{
    CUdeviceptr address;
    for (size_t i = 0; i < count; i++) {
        check(mem_alloc(&address, bytes), "cuMemAlloc_v2");
        check(mem_free(address), "cuMemFree_v2");
    }
}

static void pooled(size_t count, size_t bytes)
{
    CUdeviceptr address;
    for (size_t i = 0; i < count; i++) {
        check(mem_alloc_async(&address, bytes, NULL), "cuMemAllocAsync");
        check(mem_free_async(address, NULL), "cuMemFreeAsync");
    }
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Which one comes next depends on the address that came last, so that the processor cannot look for it ahead of time:
 * it could on the bare driver, and not across a real one. */
static void swaps(size_t count, size_t bytes)
{
    static uint64_t random = 88172645463325252u;
    for (size_t i = 0; i < count && live_count; i++) {
        CUdeviceptr *one = &live[next_random(&random) % live_count];
        check(mem_free(*one), "cuMemFree_v2");
        check(mem_alloc(one, bytes), "cuMemAlloc_v2");
        random += *one & 255; /* always 0 */
    }
}

static void infos(size_t count)
{
    size_t free_bytes, total_bytes;
    for (size_t i = 0; i < count; i++)
        check(mem_info(&free_bytes, &total_bytes), "cuMemGetInfo_v2");
}

static void look_ups(size_t count, const char *name)
{
    void *library = strncmp(name, "cu", 2) ? libc : driver;
    for (size_t i = 0; i < count; i++) {
        if (!dlsym(library, name))
            exit(1);
    }
}

static void *look_up(const char *name)
{
    static CUresult (*get)(const char *, void **, int, unsigned long long, int *);
    void *found = NULL;
    if (*name != '@')
        return dlsym(strncmp(name, "nvml", 4) ? driver : nvml, name);
    if (!get)
        get = function_of(driver, "cuGetProcAddress_v2");
    get(name + 1, &found, 13000, 0, NULL);
    return found;
}

static void locate(const char *name)
{
    Dl_info info;
    void *found = look_up(name);
    if (!found || !dladdr(found, &info)) {
        printf("%s nowhere\n", name);
        return;
    }
    const char *file = strrchr(info.dli_fname, '/');
    printf("%s %s+%#tx\n", name, file ? file + 1 : info.dli_fname, (char *)found - (char *)info.dli_fbase);
}

static void pointers(void)
{
    char name[256];
    while (scanf("%255s", name) == 1 && strcmp(name, "end"))
        locate(name);
    puts("end");
}

static unsigned long long resident(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*u %llu", &pages) != 1)
        exit(1);
    fclose(file);
    return pages * (unsigned long long)sysconf(_SC_PAGESIZE);
}

static void active(int milliseconds)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    while (!poll(&input, 1, milliseconds))
        pairs(1, 512);
}

#define TIMED(work)                                                                                                   \
    do {                                                                                                              \
        uint64_t since = now();                                                                                       \
        work;                                                                                                         \
        printf("%llu\n", (unsigned long long)(now() - since));                                                        \
    } while (0)

int main(void)
{
    char line[256], name[64];
    size_t count, bytes;
    int every;
    start();
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "live %zu %zu", &count, &bytes) == 2) {
            keep(count, bytes);
            puts("done");
        } else if (sscanf(line, "pairs %zu %zu", &count, &bytes) == 2) {
            pairs(count / 8, bytes); /* the other program has had the caches */
            TIMED(pairs(count, bytes));
        } else if (sscanf(line, "swaps %zu %zu", &count, &bytes) == 2) {
            swaps(count / 8, bytes);
            TIMED(swaps(count, bytes));
        } else if (sscanf(line, "pooled %zu %zu", &count, &bytes) == 2) {
            pooled(count / 8, bytes);
            TIMED(pooled(count, bytes));
        } else if (sscanf(line, "info %zu", &count) == 1) {
            infos(count / 8);
            TIMED(infos(count));
        } else if (sscanf(line, "dlsym %zu %63s", &count, name) == 2) {
            look_ups(count / 8, name);
            TIMED(look_ups(count, name));
        } else if (!strcmp(line, "pointers\n")) {
            pointers();
        } else if (!strcmp(line, "rss\n")) {
            printf("%llu\n", resident());
        } else if (sscanf(line, "active %d", &every) == 1) {
            puts("done");
            fflush(stdout);
            active(every);
        } else if (line[0] != '\n') {
            fprintf(stderr, "what is %s", line);
            return 1;
        }
        fflush(stdout);
    }
    return 0;
}
