/* Entry points of managed memory: allocation, prefetching, advice and what is known of a range. */
#include "managed.h"
#include "spec.h"
#include "stream.h"

#include <string.h>

static CUresult alloc(CUdeviceptr *ptr, size_t bytes, unsigned flags)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result == CUDA_SUCCESS)
        result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!ptr || !bytes || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    return sim_managed_alloc(context, ptr, bytes, flags);
}

/* The managed region that holds all of a range. */
static struct sim_region *region_of(CUdeviceptr ptr, size_t bytes)
{
    struct sim_region *region = sim_region_at(ptr);
    if (!region || region->kind != SIM_REGION_MANAGED || !bytes || ptr - region->base >= region->bytes ||
        bytes > region->bytes - (ptr - region->base))
        return NULL;
    return region;
}

/* The interface before 12.2 named places by device ordinals, with -1 for the host. */
static CUmemLocation place_of(CUdevice device)
{
    return device == CU_DEVICE_CPU ? (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0}
                                   : (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device};
}

static CUdevice device_of(CUmemLocation place)
{
    if (place.type == CU_MEM_LOCATION_TYPE_INVALID)
        return CU_DEVICE_INVALID;
    return place.type == CU_MEM_LOCATION_TYPE_DEVICE ? place.id : CU_DEVICE_CPU;
}

static CUresult place_check(CUmemLocation place)
{
    if (place.type == CU_MEM_LOCATION_TYPE_DEVICE)
        return sim_device_card(place.id) >= 0 && sim_spec()->managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    return place.type == CU_MEM_LOCATION_TYPE_HOST || place.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
                   place.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

/* ---- prefetching -------------------------------------------------------------------------------- */

struct prefetch {
    CUdeviceptr ptr;
    size_t bytes;
    CUmemLocation place;
};

static CUresult run_prefetch(const void *args)
{
    const struct prefetch *prefetch = args;
    struct sim_region *region = region_of(prefetch->ptr, prefetch->bytes);
    if (!region)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t offset = prefetch->ptr - region->base;
    if (prefetch->place.type == CU_MEM_LOCATION_TYPE_DEVICE)
        sim_managed_settle(region, offset, prefetch->bytes, sim_card((unsigned)sim_device_card(prefetch->place.id)));
    else
        sim_managed_evict(region, offset, prefetch->bytes);
    region->managed->prefetched = prefetch->place;
    return CUDA_SUCCESS;
}

static CUresult prefetch(CUdeviceptr ptr, size_t bytes, CUmemLocation place, unsigned flags, CUstream stream)
{
    struct prefetch prefetch = {ptr, bytes, place};
    CUresult result = sim_stream_check(stream);
    if (result == CUDA_SUCCESS)
        result = place_check(place);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags || !region_of(ptr, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return sim_work(stream, run_prefetch, &prefetch, sizeof prefetch);
}

/* ---- batches ------------------------------------------------------------------------------------- */

static CUresult run_discard(const void *args)
{
    const struct prefetch *range = args;
    struct sim_region *region = region_of(range->ptr, range->bytes);
    if (!region)
        return CUDA_ERROR_INVALID_VALUE;
    sim_managed_evict(region, range->ptr - region->base, range->bytes);
    return CUDA_SUCCESS;
}

/* Prefetches ranges, each to the last place whose first range is not behind it; without places discards alone. */
static CUresult batch(const CUdeviceptr *ptrs, const size_t *sizes, size_t count, bool discard,
                      const CUmemLocation *places, const size_t *firsts, size_t place_count, unsigned long long flags,
                      CUstream stream)
{
    CUresult result = sim_stream_check(stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_spec()->managed)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!ptrs || !sizes || !count || flags || (place_count && (!places || !firsts || firsts[0])) || place_count > count)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < place_count && result == CUDA_SUCCESS; i++) {
        bool in_order = firsts[i] < count && (!i || firsts[i] > firsts[i - 1]);
        result = in_order ? place_check(places[i]) : CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = region_of(ptrs[i], sizes[i]) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0, place = 0; i < count && result == CUDA_SUCCESS; i++) {
        place += place + 1 < place_count && firsts[place + 1] == i;
        struct prefetch range = {ptrs[i], sizes[i], place_count ? places[place] : (CUmemLocation){0}};
        if (discard)
            result = sim_work(stream, run_discard, &range, sizeof range);
        if (place_count && result == CUDA_SUCCESS)
            result = sim_work(stream, run_prefetch, &range, sizeof range);
    }
    return result;
}

/* ---- advice ---------------------------------------------------------------------------------------- */

static CUresult advise(CUdeviceptr ptr, size_t bytes, CUmem_advise advice, CUmemLocation place)
{
    struct sim_region *region = region_of(ptr, bytes);
    if (!region || advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_managed *managed = region->managed;
    if (advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice >= CU_MEM_ADVISE_SET_ACCESSED_BY) {
        CUresult result = place_check(place);
        if (result != CUDA_SUCCESS)
            return result;
    }
    int card = place.type == CU_MEM_LOCATION_TYPE_DEVICE ? sim_device_card(place.id) : -1;
    uint64_t accessor = (uint64_t)1 << (card < 0 ? 63 : card);
    switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        managed->read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
        break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        managed->preferred = place;
        break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        managed->preferred = (CUmemLocation){0};
        break;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        managed->accessed_by |= accessor;
        break;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        managed->accessed_by &= ~accessor;
        break;
    }
    return CUDA_SUCCESS;
}

/* ---- what is known of a range ------------------------------------------------------------------------ */

static CUresult accessed_by(const struct sim_managed *managed, int *out, size_t size)
{
    size_t room = size / sizeof *out, found = 0;
    if (!room || size % sizeof *out)
        return CUDA_ERROR_INVALID_VALUE;
    for (CUdevice device = 0; device < sim_device_count() && found < room; device++) {
        if (managed->accessed_by >> sim_device_card(device) & 1)
            out[found++] = device;
    }
    if (found < room && managed->accessed_by >> 63)
        out[found++] = CU_DEVICE_CPU;
    while (found < room)
        out[found++] = CU_DEVICE_INVALID;
    return CUDA_SUCCESS;
}

static CUresult range_attribute(void *out, size_t size, CUmem_range_attribute attribute, CUdeviceptr ptr, size_t bytes)
{
    struct sim_region *region = region_of(ptr, bytes);
    if (!region || !out)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_managed *managed = region->managed;
    if (attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY)
        return accessed_by(managed, out, size);
    if (size != sizeof(int))
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        *(int *)out = managed->read_mostly;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        *(int *)out = device_of(managed->preferred);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        *(int *)out = device_of(managed->prefetched);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        *(int *)out = (int)managed->preferred.type;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        *(int *)out = managed->preferred.id;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        *(int *)out = (int)managed->prefetched.type;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        *(int *)out = managed->prefetched.id;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult range_attributes(void **out, const size_t *sizes, const CUmem_range_attribute *attributes,
                                 size_t count, CUdeviceptr ptr, size_t bytes)
{
    if (!out || !sizes || !attributes || !count)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        CUresult result = range_attribute(out[i], sizes[i], attributes[i], ptr, bytes);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

SIM_EXPORT_ALLOC(cuMemAllocManaged, (CUdeviceptr * ptr, size_t bytes, unsigned flags), alloc(ptr, bytes, flags))
SIM_EXPORT(cuMemPrefetchAsync, (CUdeviceptr ptr, size_t bytes, CUdevice device, CUstream stream),
           prefetch(ptr, bytes, place_of(device), 0, stream))
SIM_EXPORT(cuMemPrefetchAsync_ptsz, (CUdeviceptr ptr, size_t bytes, CUdevice device, CUstream stream),
           prefetch(ptr, bytes, place_of(device), 0, sim_ptsz(stream)))
SIM_EXPORT(cuMemPrefetchAsync_v2, (CUdeviceptr ptr, size_t bytes, CUmemLocation place, unsigned flags, CUstream stream),
           prefetch(ptr, bytes, place, flags, stream))
SIM_EXPORT(cuMemPrefetchAsync_v2_ptsz,
           (CUdeviceptr ptr, size_t bytes, CUmemLocation place, unsigned flags, CUstream stream),
           prefetch(ptr, bytes, place, flags, sim_ptsz(stream)))

#define RANGES CUdeviceptr *ptrs, size_t *sizes, size_t count
#define PLACES CUmemLocation *places, size_t *firsts, size_t place_count
#define BATCH(name, parameters, discard, ...)                                                                         \
    SIM_EXPORT(name, parameters, batch(ptrs, sizes, count, discard, __VA_ARGS__, flags, stream))                      \
    SIM_EXPORT(name##_ptsz, parameters, batch(ptrs, sizes, count, discard, __VA_ARGS__, flags, sim_ptsz(stream)))

/* No place at all is refused: it counts as more of them than there are ranges. */
BATCH(cuMemPrefetchBatchAsync, (RANGES, PLACES, unsigned long long flags, CUstream stream), false, places, firsts,
      place_count ? place_count : SIZE_MAX)
BATCH(cuMemDiscardAndPrefetchBatchAsync, (RANGES, PLACES, unsigned long long flags, CUstream stream), true, places,
      firsts, place_count ? place_count : SIZE_MAX)
BATCH(cuMemDiscardBatchAsync, (RANGES, unsigned long long flags, CUstream stream), true, NULL, NULL, 0)

SIM_EXPORT(cuMemAdvise, (CUdeviceptr ptr, size_t bytes, CUmem_advise advice, CUdevice device),
           advise(ptr, bytes, advice, place_of(device)))
SIM_EXPORT(cuMemAdvise_v2, (CUdeviceptr ptr, size_t bytes, CUmem_advise advice, CUmemLocation place),
           advise(ptr, bytes, advice, place))
SIM_EXPORT(cuMemRangeGetAttribute,
           (void *out, size_t size, CUmem_range_attribute attribute, CUdeviceptr ptr, size_t bytes),
           range_attribute(out, size, attribute, ptr, bytes))
SIM_EXPORT(cuMemRangeGetAttributes,
           (void **out, size_t *sizes, CUmem_range_attribute *attributes, size_t count, CUdeviceptr ptr, size_t bytes),
           range_attributes(out, sizes, attributes, count, ptr, bytes))
