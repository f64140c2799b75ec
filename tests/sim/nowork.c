/*
 * work=none: the driver's work taken out, so that a benchmark sees what is added to it. Addresses come
 * from a last-in-first-out list of the calling thread; no lock, no file, no system call.
 */
#include "mem.h"
#include "spec.h"

#include <stdlib.h>

bool sim_no_work;

struct cache {
    CUdeviceptr *free;
    size_t count, room;
    CUdeviceptr next, end; /* addresses of this thread that were never handed out */
};

/* Initial-exec: a handful of bytes that glibc keeps room for even when the library is opened late. */
static __thread struct cache *thread_cache[2] __attribute__((tls_model("initial-exec")));

enum { SMALL, LARGE };

#define LARGE_FROM ((size_t)1 << 20)
#define SMALL_BASE 0x300000000000ull
#define LARGE_BASE 0x020000000000ull
#define CHUNK 1024u

static _Atomic(uint64_t) chunks[2];
static size_t card_bytes; /* of the first card, whichever is current */

static struct cache *cache_of(int size_class)
{
    struct cache *cache = thread_cache[size_class];
    if (__builtin_expect(!cache, 0))
        thread_cache[size_class] = cache = calloc(1, sizeof *cache);
    return cache;
}

/* Large ones lie 2 MiB apart and small ones 512 bytes, as in the real model. */
static CUdeviceptr fresh(struct cache *cache, int size_class)
{
    uint64_t step = size_class == LARGE ? SIM_BLOCK : 512;
    if (cache->next == cache->end) {
        uint64_t chunk = atomic_fetch_add_explicit(&chunks[size_class], 1, memory_order_relaxed);
        cache->next = (size_class == LARGE ? LARGE_BASE : SMALL_BASE) + chunk * CHUNK * step;
        cache->end = cache->next + CHUNK * step;
    }
    CUdeviceptr ptr = cache->next;
    cache->next += step;
    return ptr;
}

CUresult sim_nowork_alloc(CUdeviceptr *ptr, size_t bytes)
{
    int size_class = bytes >= LARGE_FROM ? LARGE : SMALL;
    struct cache *cache = cache_of(size_class);
    if (__builtin_expect(!ptr || !bytes, 0))
        return CUDA_ERROR_INVALID_VALUE;
    if (__builtin_expect(!cache, 0))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ptr = cache->count ? cache->free[--cache->count] : fresh(cache, size_class);
    return CUDA_SUCCESS;
}

static bool grow(struct cache *cache)
{
    size_t room = cache->room ? cache->room * 2 : CHUNK;
    CUdeviceptr *grown = realloc(cache->free, room * sizeof *grown);
    if (!grown)
        return false;
    cache->free = grown;
    cache->room = room;
    return true;
}

CUresult sim_nowork_free(CUdeviceptr ptr)
{
    struct cache *cache = cache_of(ptr < SMALL_BASE ? LARGE : SMALL);
    if (__builtin_expect(ptr < LARGE_BASE || !cache, 0))
        return ptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    if (__builtin_expect(cache->count == cache->room, 0) && !grow(cache))
        return CUDA_SUCCESS; /* the address is never handed out again: no harm */
    cache->free[cache->count++] = ptr;
    return CUDA_SUCCESS;
}

CUresult sim_nowork_info(size_t *free_bytes, size_t *total_bytes)
{
    if (free_bytes)
        *free_bytes = card_bytes;
    if (total_bytes)
        *total_bytes = card_bytes;
    return CUDA_SUCCESS;
}

CUresult sim_nowork_pool_handle(CUmemoryPool *pool, CUdeviceptr ptr)
{
    static struct { char any; } only;
    if (!pool || ptr < LARGE_BASE)
        return CUDA_ERROR_INVALID_VALUE;
    *pool = (CUmemoryPool)&only;
    return CUDA_SUCCESS;
}

CUresult sim_nowork_pool_bytes(CUmemPool_attribute attribute, uint64_t *bytes)
{
    if (!bytes || attribute < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD || attribute > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = 0;
    return CUDA_SUCCESS;
}

__attribute__((constructor)) static void learn(void)
{
    const struct sim_spec *spec = sim_spec();
    sim_no_work = spec && spec->no_work;
    card_bytes = spec ? spec->card_bytes[0] : 0;
}
