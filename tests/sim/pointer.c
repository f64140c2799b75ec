/* What a pointer answers about itself. */
#include "managed.h"
#include "pool.h"
#include "vmm.h"

#include <string.h>

static bool in_pool(const struct sim_region *region) { return region->heap && region->heap->pool; }

static int handle_types(const struct sim_region *region)
{
    if (region->kind == SIM_REGION_MAPPING)
        return (int)region->mapping->physical->prop.requestedHandleTypes;
    return in_pool(region) ? (int)region->heap->pool->props.handleTypes : 0;
}

static bool legacy_ipc(const struct sim_region *region)
{
    return (region->kind == SIM_REGION_PLAIN || region->kind == SIM_REGION_SLAB) && !in_pool(region);
}

static CUresult attribute_of(const struct sim_allocation *found, CUpointer_attribute attribute, CUdeviceptr ptr,
                             void *out)
{
    const struct sim_region *region = found->region;
    bool host = region->kind == SIM_REGION_HOST, managed = region->kind == SIM_REGION_MANAGED;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)out = in_pool(region) ? NULL : (CUcontext)region->context;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)out = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)out = ptr;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!host && !managed)
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)out = (void *)(uintptr_t)ptr;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return CUDA_ERROR_NOT_SUPPORTED;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(int *)out = region->sync_memops;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)out = found->id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)out = managed;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)out = region->device;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned *)out = legacy_ipc(region);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)out = found->base;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)out = found->bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned *)out = 1;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)out = (unsigned)handle_types(region);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(unsigned *)out = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(unsigned *)out = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)out = in_pool(region) ? (CUmemoryPool)region->heap->pool : NULL;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        *(unsigned *)out = 0;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static size_t size_of(CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return 16;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return 8;
    default:
        return 4;
    }
}

static bool known(CUpointer_attribute attribute)
{
    return attribute >= CU_POINTER_ATTRIBUTE_CONTEXT && attribute <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE;
}

static CUresult get(void *out, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    struct sim_allocation found;
    if (!out || !known(attribute) || !sim_allocation_at(ptr, &found))
        return CUDA_ERROR_INVALID_VALUE;
    return attribute_of(&found, attribute, ptr, out);
}

/* Unlike the single query this one answers a pointer that nobody knows: with nothing, and success. */
static CUresult get_many(unsigned count, const CUpointer_attribute *attributes, void **out, CUdeviceptr ptr)
{
    struct sim_allocation found;
    if (!count || !attributes || !out)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        if (!known(attributes[i]) || !out[i])
            return CUDA_ERROR_INVALID_VALUE;
    }
    bool exists = sim_allocation_at(ptr, &found);
    for (unsigned i = 0; i < count; i++) {
        if (exists && attribute_of(&found, attributes[i], ptr, out[i]) == CUDA_SUCCESS)
            continue;
        memset(out[i], 0, size_of(attributes[i]));
        if (!exists && attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            *(int *)out[i] = CU_DEVICE_INVALID;
    }
    return CUDA_SUCCESS;
}

static CUresult set(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    struct sim_allocation found;
    if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !sim_allocation_at(ptr, &found))
        return CUDA_ERROR_INVALID_VALUE;
    found.region->sync_memops = *(const int *)value != 0;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuPointerGetAttribute(void *out, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    if (sim_no_work && attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE)
        return sim_nowork_pool_handle(out, ptr);
    SIM_ENTER(cuPointerGetAttribute);
    SIM_LOCKED();
    return get(out, attribute, ptr);
}
SIM_EXPORT(cuPointerGetAttributes,
           (unsigned count, CUpointer_attribute *attributes, void **out, CUdeviceptr ptr),
           get_many(count, attributes, out, ptr))
SIM_EXPORT(cuPointerSetAttribute, (const void *value, CUpointer_attribute attribute, CUdeviceptr ptr),
           set(value, attribute, ptr))
