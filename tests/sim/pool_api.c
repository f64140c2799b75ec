/* The entry points of stream-ordered allocation. */
#include "pool.h"
#include "spec.h"
#include "stream.h"

static struct sim_pool *pool_of(CUmemoryPool handle)
{
    return sim_handle_is(handle, SIM_POOL) ? (struct sim_pool *)handle : NULL;
}

/* ---- allocating ------------------------------------------------------------------------------- */

static CUresult alloc(CUdeviceptr *ptr, size_t bytes, struct sim_pool *pool, CUstream stream)
{
    struct sim_context *context;
    CUresult result = sim_stream_context(stream, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!pool)
        pool = sim_pool_current(context->device);
    if (!ptr || !bytes || !pool || pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_stream_capturing(stream))
        return sim_graph_alloc(ptr, bytes, pool->heap.device, stream, context);
    result = sim_work(stream, NULL, NULL, 0);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_heap_allocate(&pool->heap, context, SIM_RANGE_CARD + pool->heap.card_index, bytes, ptr);
}

static CUresult alloc_from(CUdeviceptr *ptr, size_t bytes, CUmemoryPool handle, CUstream stream)
{
    struct sim_pool *pool = pool_of(handle);
    return pool ? alloc(ptr, bytes, pool, stream) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult release(CUdeviceptr ptr, CUstream stream)
{
    struct sim_context *context;
    struct sim_allocation found;
    CUresult result = sim_stream_context(stream, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_allocation_at(ptr, &found) || found.base != ptr || (!found.region->heap && !found.region->of_pool))
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_stream_capturing(stream))
        return sim_graph_release(ptr, stream);
    result = sim_work(stream, NULL, NULL, 0);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_heap_release(ptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

#define ALLOCATE(name, parameters, nowork, call)                                                                      \
    SIM_API CUresult name parameters;                                                                                 \
    SIM_API CUresult name parameters                                                                                  \
    {                                                                                                                 \
        if (sim_no_work)                                                                                              \
            return nowork;                                                                                            \
        SIM_ENTER(name);                                                                                              \
        sim_delay();                                                                                                  \
        SIM_LOCKED();                                                                                                 \
        return call;                                                                                                  \
    }

ALLOCATE(cuMemAllocAsync, (CUdeviceptr * ptr, size_t bytes, CUstream stream), sim_nowork_alloc(ptr, bytes),
         alloc(ptr, bytes, NULL, stream))
ALLOCATE(cuMemAllocAsync_ptsz, (CUdeviceptr * ptr, size_t bytes, CUstream stream), sim_nowork_alloc(ptr, bytes),
         alloc(ptr, bytes, NULL, sim_ptsz(stream)))
ALLOCATE(cuMemAllocFromPoolAsync, (CUdeviceptr * ptr, size_t bytes, CUmemoryPool pool, CUstream stream),
         sim_nowork_alloc(ptr, bytes), alloc_from(ptr, bytes, pool, stream))
ALLOCATE(cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr * ptr, size_t bytes, CUmemoryPool pool, CUstream stream),
         sim_nowork_alloc(ptr, bytes), alloc_from(ptr, bytes, pool, sim_ptsz(stream)))
ALLOCATE(cuMemFreeAsync, (CUdeviceptr ptr, CUstream stream), sim_nowork_free(ptr), release(ptr, stream))
ALLOCATE(cuMemFreeAsync_ptsz, (CUdeviceptr ptr, CUstream stream), sim_nowork_free(ptr),
         release(ptr, sim_ptsz(stream)))

/* ---- pools --------------------------------------------------------------------------------------- */

/* A pool of managed memory, which is on the card from the start here: the one that is preferred, or the first. */
static CUresult create_managed(CUmemoryPool *out, const CUmemPoolProps *props)
{
    if (!sim_spec()->managed)
        return CUDA_ERROR_NOT_SUPPORTED;
    bool placed = props->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (props->handleTypes || props->maxSize || (!placed && props->location.type != CU_MEM_LOCATION_TYPE_INVALID))
        return CUDA_ERROR_INVALID_VALUE;
    CUdevice device = placed ? props->location.id : 0;
    if (sim_device_card(device) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    struct sim_pool *pool = sim_pool_new(device, props);
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = (CUmemoryPool)pool;
    return CUDA_SUCCESS;
}

static CUresult create(CUmemoryPool *out, const CUmemPoolProps *props)
{
    if (!out || !props)
        return CUDA_ERROR_INVALID_VALUE;
    if (props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED)
        return create_managed(out, props);
    if (props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    /* As MEMPOOL_SUPPORTED_HANDLE_TYPES says. */
    if (props->handleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return props->location.type > CU_MEM_LOCATION_TYPE_DEVICE &&
                       props->location.type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT
                   ? CUDA_ERROR_NOT_SUPPORTED
                   : CUDA_ERROR_INVALID_VALUE;
    if (sim_device_card(props->location.id) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    struct sim_pool *pool = sim_pool_new(props->location.id, props);
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = (CUmemoryPool)pool;
    return CUDA_SUCCESS;
}

static CUresult destroy(CUmemoryPool handle)
{
    struct sim_pool *pool = pool_of(handle);
    if (!pool || pool->is_default)
        return CUDA_ERROR_INVALID_VALUE;
    sim_pool_destroy(pool);
    return CUDA_SUCCESS;
}

static CUresult trim(CUmemoryPool handle, size_t keep)
{
    struct sim_pool *pool = pool_of(handle);
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_capture_unsafe();
    if (result == CUDA_SUCCESS)
        sim_pool_trim(pool, keep);
    return result;
}

static CUresult get_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
    struct sim_pool *pool = pool_of(handle);
    CUresult result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!pool || !value)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *(int *)value = pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *(uint64_t *)value = pool->threshold;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *(uint64_t *)value = sim_pool_reserved(pool);
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *(uint64_t *)value = pool->reserved_high;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *(uint64_t *)value = pool->heap.used;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *(uint64_t *)value = pool->used_high;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_ALLOCATION_TYPE:
        *(int *)value = (int)pool->props.allocType;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES:
        *(int *)value = (int)pool->props.handleTypes;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_LOCATION_ID:
        *(int *)value = pool->props.location.id;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_LOCATION_TYPE:
        *(int *)value = (int)pool->props.location.type;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_MAX_POOL_SIZE:
        *(uint64_t *)value = pool->props.maxSize;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED:
        *(int *)value = 0;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult set_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, const void *value)
{
    struct sim_pool *pool = pool_of(handle);
    CUresult result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!pool || !value)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = *(const int *)value != 0;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->threshold = *(const uint64_t *)value;
        return CUDA_SUCCESS;
    /* A high-water mark can only be set back. */
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        if (*(const uint64_t *)value)
            return CUDA_ERROR_INVALID_VALUE;
        pool->reserved_high = sim_pool_reserved(pool);
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (*(const uint64_t *)value)
            return CUDA_ERROR_INVALID_VALUE;
        pool->used_high = pool->heap.used;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult set_access(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count)
{
    struct sim_pool *pool = pool_of(handle);
    if (!pool || (count && !map))
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t peers = pool->peers;
    for (size_t i = 0; i < count; i++) {
        if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || (unsigned)map[i].flags > 3 || map[i].flags == 2)
            return CUDA_ERROR_INVALID_VALUE;
        int card = sim_device_card(map[i].location.id);
        if (card < 0)
            return CUDA_ERROR_INVALID_DEVICE;
        /* The pool's own device always has access. */
        if ((unsigned)card == pool->heap.card_index && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            return CUDA_ERROR_INVALID_VALUE;
        peers = (peers & ~((uint64_t)3 << (2 * card))) | (uint64_t)map[i].flags << (2 * card);
    }
    pool->peers = peers;
    return CUDA_SUCCESS;
}

static CUresult get_access(CUmemAccess_flags *flags, CUmemoryPool handle, const CUmemLocation *location)
{
    struct sim_pool *pool = pool_of(handle);
    if (!pool || !flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    int card = sim_device_card(location->id);
    if (card < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    *flags = (CUmemAccess_flags)(pool->peers >> (2 * card) & 3);
    return CUDA_SUCCESS;
}

static CUresult get_pool(CUmemoryPool *out, CUdevice device, struct sim_pool *(*which)(CUdevice))
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_pool *pool = which(device);
    if (!pool)
        return CUDA_ERROR_INVALID_DEVICE;
    *out = (CUmemoryPool)pool;
    return CUDA_SUCCESS;
}

static CUresult set_pool(CUdevice device, CUmemoryPool handle)
{
    struct sim_pool *pool = pool_of(handle);
    if (sim_device_card(device) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    return pool && sim_pool_make_current(device, pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The same asked by location: only pinned memory on a device has pools here. */
static CUresult located(const CUmemLocation *location, CUmemAllocationType type, CUdevice *device)
{
    if (!location || location->type == CU_MEM_LOCATION_TYPE_INVALID || type == CU_MEM_ALLOCATION_TYPE_INVALID)
        return CUDA_ERROR_INVALID_VALUE;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_NOT_SUPPORTED;
    *device = location->id;
    return CUDA_SUCCESS;
}

static CUresult get_pool_at(CUmemoryPool *out, const CUmemLocation *location, CUmemAllocationType type,
                            struct sim_pool *(*which)(CUdevice))
{
    CUdevice device = 0;
    CUresult result = located(location, type, &device);
    return result == CUDA_SUCCESS ? get_pool(out, device, which) : result;
}

static CUresult set_pool_at(const CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    CUdevice device = 0;
    CUresult result = located(location, type, &device);
    return result == CUDA_SUCCESS ? set_pool(device, pool) : result;
}

SIM_EXPORT(cuMemPoolCreate, (CUmemoryPool * out, const CUmemPoolProps *props), create(out, props))
SIM_EXPORT(cuMemPoolDestroy, (CUmemoryPool pool), destroy(pool))
SIM_EXPORT(cuMemPoolTrimTo, (CUmemoryPool pool, size_t keep), trim(pool, keep))
SIM_API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    if (sim_no_work)
        return sim_nowork_pool_bytes(attribute, value);
    SIM_ENTER(cuMemPoolGetAttribute);
    SIM_LOCKED();
    return get_attribute(pool, attribute, value);
}
SIM_EXPORT(cuMemPoolSetAttribute, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value),
           set_attribute(pool, attribute, value))
SIM_EXPORT(cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc *map, size_t count),
           set_access(pool, map, count))
SIM_EXPORT(cuMemPoolGetAccess, (CUmemAccess_flags * flags, CUmemoryPool pool, CUmemLocation *location),
           get_access(flags, pool, location))
SIM_EXPORT(cuDeviceGetDefaultMemPool, (CUmemoryPool * out, CUdevice device), get_pool(out, device, sim_pool_default))
SIM_EXPORT(cuDeviceGetMemPool, (CUmemoryPool * out, CUdevice device), get_pool(out, device, sim_pool_current))
SIM_EXPORT(cuDeviceSetMemPool, (CUdevice device, CUmemoryPool pool), set_pool(device, pool))
SIM_EXPORT(cuMemGetDefaultMemPool, (CUmemoryPool * out, CUmemLocation *location, CUmemAllocationType type),
           get_pool_at(out, location, type, sim_pool_default))
SIM_EXPORT(cuMemGetMemPool, (CUmemoryPool * out, CUmemLocation *location, CUmemAllocationType type),
           get_pool_at(out, location, type, sim_pool_current))
SIM_EXPORT(cuMemSetMemPool, (CUmemLocation * location, CUmemAllocationType type, CUmemoryPool pool),
           set_pool_at(location, type, pool))
