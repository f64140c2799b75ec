/* Plain and pitched device memory, memory info, address ranges. */
#define _GNU_SOURCE
#include "mem.h"
#include "spec.h"

#include <dlfcn.h>

/* The longest row that cuMemAllocPitch takes, and what rows are rounded to. */
#define PITCH_MAX 0x7fffffffu
#define PITCH_ALIGN 512u

/* With a current context, outside capture: what most calls here need. */
static CUresult ready(struct sim_context **context)
{
    CUresult result = sim_current(context);
    return result == CUDA_SUCCESS ? sim_capture_unsafe() : result;
}

static CUresult alloc(CUdeviceptr *ptr, size_t bytes)
{
    struct sim_context *context;
    CUresult result = ready(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!ptr || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_heap_alloc(context, bytes, ptr);
}

static CUresult alloc_low(CUdeviceptr_v1 *ptr, unsigned bytes)
{
    struct sim_context *context;
    CUdeviceptr wide;
    CUresult result = ready(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!ptr || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_heap_allocate(context->heap, context, SIM_RANGE_LOW, bytes, &wide);
    if (result == CUDA_SUCCESS)
        *ptr = (CUdeviceptr_v1)wide;
    return result;
}

/* The row that is asked for, rounded; 0 when the arguments are refused. */
static uint64_t pitch_of(size_t width, size_t height, unsigned element)
{
    if (!width || !height || (element != 4 && element != 8 && element != 16) || width > PITCH_MAX - PITCH_ALIGN)
        return 0;
    return (width + PITCH_ALIGN - 1) / PITCH_ALIGN * PITCH_ALIGN;
}

static CUresult alloc_pitch(CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height, unsigned element)
{
    struct sim_context *context;
    CUresult result = ready(&context);
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t row = pitch_of(width, height, element), bytes;
    if (!ptr || !pitch || !row)
        return CUDA_ERROR_INVALID_VALUE;
    if (__builtin_mul_overflow(row, height, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = sim_heap_alloc(context, bytes, ptr);
    if (result == CUDA_SUCCESS)
        *pitch = row;
    return result;
}

static CUresult alloc_pitch_low(CUdeviceptr_v1 *ptr, unsigned *pitch, unsigned width, unsigned height,
                                unsigned element)
{
    uint64_t row = pitch_of(width, height, element);
    if (!ptr || !pitch || !row)
        return CUDA_ERROR_INVALID_VALUE;
    if (row * height > UINT32_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = alloc_low(ptr, (unsigned)(row * height));
    if (result == CUDA_SUCCESS)
        *pitch = (unsigned)row;
    return result;
}

/* Whose context it is follows from the address: any may be current, or none. */
static CUresult release(CUdeviceptr ptr)
{
    CUresult result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!ptr)
        return CUDA_SUCCESS;
    struct sim_region *region = sim_region_at(ptr);
    struct sim_card *pool_card = region && region->heap && region->heap->pool ? region->card : NULL;
    if (region && region->kind == SIM_REGION_MANAGED)
        return sim_managed_free(region, ptr);
    if (!sim_heap_release(ptr))
        return CUDA_ERROR_INVALID_VALUE;
    /* Freeing this way synchronises, and what synchronises lets the pools settle. */
    if (pool_card)
        sim_pools_settle(pool_card);
    return CUDA_SUCCESS;
}

static CUresult info(size_t *free_bytes, size_t *total_bytes)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (free_bytes)
        *free_bytes = sim_card_free(context->card);
    if (total_bytes)
        *total_bytes = sim_card_total(context->card);
    return CUDA_SUCCESS;
}

static unsigned saturated(uint64_t bytes) { return bytes > UINT32_MAX ? UINT32_MAX : (unsigned)bytes; }

static CUresult info_low(unsigned *free_bytes, unsigned *total_bytes)
{
    size_t have, all;
    CUresult result = info(&have, &all);
    if (result != CUDA_SUCCESS)
        return result;
    if (free_bytes)
        *free_bytes = saturated(have);
    if (total_bytes)
        *total_bytes = saturated(all);
    return CUDA_SUCCESS;
}

static CUresult address_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr ptr)
{
    struct sim_context *context;
    struct sim_allocation allocation;
    CUresult result = sim_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_allocation_at(ptr, &allocation))
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = allocation.base;
    if (bytes)
        *bytes = allocation.bytes;
    return CUDA_SUCCESS;
}

static CUresult address_range_low(CUdeviceptr_v1 *base, unsigned *bytes, CUdeviceptr_v1 ptr)
{
    CUdeviceptr wide;
    size_t all;
    CUresult result = address_range(&wide, &all, ptr);
    if (result != CUDA_SUCCESS)
        return result;
    if (base)
        *base = (CUdeviceptr_v1)wide;
    if (bytes)
        *bytes = saturated(all);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes)
{
    if (sim_no_work)
        return sim_nowork_alloc(ptr, bytes);
    SIM_ENTER(cuMemAlloc_v2);
    sim_delay();
    SIM_LOCKED();
    return alloc(ptr, bytes);
}

SIM_API CUresult cuMemFree_v2(CUdeviceptr ptr)
{
    if (sim_no_work)
        return sim_nowork_free(ptr);
    SIM_ENTER(cuMemFree_v2);
    SIM_LOCKED();
    return release(ptr);
}

SIM_API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    if (sim_no_work)
        return sim_nowork_info(free_bytes, total_bytes);
    SIM_ENTER(cuMemGetInfo_v2);
    SIM_LOCKED();
    return info(free_bytes, total_bytes);
}

SIM_EXPORT_ALLOC(cuMemAlloc, (CUdeviceptr_v1 * ptr, unsigned bytes), alloc_low(ptr, bytes))
/* With calls=exports it gets its memory by the exported cuMemAlloc_v2, as whoever is first in the global scope has it. */
SIM_API CUresult cuMemAllocPitch_v2(CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height, unsigned element)
{
    SIM_ENTER(cuMemAllocPitch_v2);
    sim_delay();
    CUresult (*exported)(CUdeviceptr *, size_t) =
        sim_spec()->through_exports ? (CUresult(*)(CUdeviceptr *, size_t))dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") : NULL;
    uint64_t row = pitch_of(width, height, element), bytes;
    if (exported && ptr && pitch && row && !__builtin_mul_overflow(row, height, &bytes)) {
        CUresult result = exported(ptr, bytes);
        if (result == CUDA_SUCCESS)
            *pitch = row;
        return result;
    }
    SIM_LOCKED();
    return alloc_pitch(ptr, pitch, width, height, element);
}

SIM_EXPORT_ALLOC(cuMemAllocPitch,
                 (CUdeviceptr_v1 * ptr, unsigned *pitch, unsigned width, unsigned height, unsigned element),
                 alloc_pitch_low(ptr, pitch, width, height, element))
SIM_EXPORT(cuMemFree, (CUdeviceptr_v1 ptr), release(ptr))
SIM_EXPORT(cuMemGetInfo, (unsigned *free_bytes, unsigned *total_bytes), info_low(free_bytes, total_bytes))
SIM_EXPORT(cuMemGetAddressRange_v2, (CUdeviceptr * base, size_t *bytes, CUdeviceptr ptr),
           address_range(base, bytes, ptr))
SIM_EXPORT(cuMemGetAddressRange, (CUdeviceptr_v1 * base, unsigned *bytes, CUdeviceptr_v1 ptr),
           address_range_low(base, bytes, ptr))
