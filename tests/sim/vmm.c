/*
 * Virtual memory management: physical allocations, address reservations, and mappings of one into the
 * other. A physical allocation is gone when its last handle reference and its last mapping are.
 */
#include "vmm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- physical allocations ------------------------------------------------------------------------ */

static struct sim_physical *physicals;

static struct sim_physical *physical_of(CUmemGenericAllocationHandle handle)
{
    const void *pointer = (const void *)(uintptr_t)handle;
    return sim_handle_is(pointer, SIM_PHYSICAL) ? (struct sim_physical *)pointer : NULL;
}

static bool in_host(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_HOST || location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
           location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

static CUresult prop_check(const CUmemAllocationProp *prop)
{
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->requestedHandleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (in_host(&prop->location))
        return CUDA_SUCCESS;
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_device_card(prop->location.id) < 0 ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

/* Frees the allocation if nothing refers to it any more. */
static void physical_settle(struct sim_physical *physical)
{
    if (physical->references || physical->mappings)
        return;
    if (physical->host)
        munmap(physical->host, physical->bytes);
    else if (physical->multicast)
        sim_multicast_free(physical->multicast);
    else if (physical->shared)
        sim_share_leave(physical->card, &physical->share);
    else
        sim_card_give(physical->card, physical->count, physical->blocks);
    for (struct sim_physical **at = &physicals; *at; at = &(*at)->next) {
        if (*at != physical)
            continue;
        *at = physical->next;
        break;
    }
    free(physical->blocks);
    free(physical);
    sim_live--;
}

static void physical_reference(struct sim_physical *physical)
{
    if (!physical->references++)
        sim_handle_add(physical, SIM_PHYSICAL);
}

void sim_physical_enter(struct sim_physical *physical)
{
    physical->next = physicals;
    physicals = physical;
    physical_reference(physical);
    sim_live++;
}

static CUresult create(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *prop,
                       unsigned long long flags)
{
    CUresult result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!out || !bytes || bytes % SIM_BLOCK || flags)
        return CUDA_ERROR_INVALID_VALUE;
    result = prop_check(prop);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_physical *physical = calloc(1, sizeof *physical);
    if (!physical)
        return CUDA_ERROR_OUT_OF_MEMORY;
    physical->prop = *prop;
    physical->bytes = bytes;
    physical->count = bytes >> SIM_BLOCK_SHIFT;
    if (in_host(&prop->location)) {
        physical->host =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (physical->host == MAP_FAILED)
            goto no_memory;
    } else {
        physical->card = sim_card((unsigned)sim_device_card(prop->location.id));
        if (bytes > sim_card_total(physical->card) ||
            !(physical->blocks = malloc(physical->count * sizeof *physical->blocks)) ||
            !sim_take_blocks(physical->card, physical->count, physical->blocks))
            goto no_memory;
    }
    sim_physical_enter(physical);
    *out = (uintptr_t)physical;
    return CUDA_SUCCESS;
no_memory:
    free(physical->blocks);
    free(physical);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
    struct sim_physical *physical = physical_of(handle);
    if (!physical)
        return CUDA_ERROR_INVALID_VALUE;
    if (!--physical->references)
        sim_handle_drop(physical);
    physical_settle(physical);
    return CUDA_SUCCESS;
}

static CUresult retain(CUmemGenericAllocationHandle *out, void *address)
{
    struct sim_region *region = sim_region_at((uintptr_t)address);
    if (!out || !region || region->kind != SIM_REGION_MAPPING)
        return CUDA_ERROR_INVALID_VALUE;
    physical_reference(region->mapping->physical);
    *out = (uintptr_t)region->mapping->physical;
    return CUDA_SUCCESS;
}

static CUresult properties(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
    struct sim_physical *physical = physical_of(handle);
    if (!prop || !physical || physical->multicast)
        return CUDA_ERROR_INVALID_VALUE;
    *prop = physical->prop;
    return CUDA_SUCCESS;
}

static CUresult granularity(size_t *out, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)
{
    CUresult result = prop_check(prop);
    if (!out || (unsigned)option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *out = SIM_BLOCK;
    return result;
}

/* ---- sharing with other processes ------------------------------------------------------------------- */

static CUresult export_handle(void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                              unsigned long long flags)
{
    struct sim_physical *physical = physical_of(handle);
    if (!out || !physical || flags || type == CU_MEM_HANDLE_TYPE_NONE ||
        !(physical->prop.requestedHandleTypes & (unsigned)type))
        return CUDA_ERROR_INVALID_VALUE;
    if (physical->host || physical->multicast)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!physical->shared) {
        if (!sim_share_create(physical->card, physical->count, physical->blocks, &physical->share))
            return CUDA_ERROR_OPERATING_SYSTEM;
        physical->shared = true;
    }
    int fd = sim_share_export(physical->card, &physical->share);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *(int *)out = fd;
    return CUDA_SUCCESS;
}

static CUresult import_handle(CUmemGenericAllocationHandle *out, void *os_handle, CUmemAllocationHandleType type)
{
    unsigned card;
    struct sim_share share;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!sim_share_of_fd((int)(intptr_t)os_handle, &card, &share))
        return CUDA_ERROR_INVALID_VALUE;
    CUdevice device = 0;
    while (device < sim_device_count() && sim_device_card(device) != (int)card)
        device++;
    if (device == sim_device_count())
        return CUDA_ERROR_INVALID_DEVICE;
    for (struct sim_physical *physical = physicals; physical; physical = physical->next) {
        if (!physical->shared || physical->card != sim_card(card) || physical->share.id != share.id ||
            physical->share.generation != share.generation)
            continue;
        physical_reference(physical);
        *out = (uintptr_t)physical;
        return CUDA_SUCCESS;
    }
    struct sim_physical *physical = calloc(1, sizeof *physical);
    uint32_t *blocks = share.count ? malloc(share.count * sizeof *blocks) : NULL;
    if (!physical || !blocks || !sim_share_join(sim_card(card), &share, blocks)) {
        free(physical);
        free(blocks);
        return CUDA_ERROR_INVALID_VALUE;
    }
    *physical = (struct sim_physical){
        .prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                 .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}},
        .bytes = share.count << SIM_BLOCK_SHIFT,
        .card = sim_card(card),
        .blocks = blocks,
        .count = share.count,
        .shared = true,
        .share = share,
    };
    sim_physical_enter(physical);
    *out = (uintptr_t)physical;
    return CUDA_SUCCESS;
}

void sim_physical_map(struct sim_physical *physical) { physical->mappings++; }

void sim_physical_unmap(struct sim_physical *physical)
{
    physical->mappings--;
    physical_settle(physical);
}

struct sim_physical *sim_physical_of(CUmemGenericAllocationHandle handle) { return physical_of(handle); }

SIM_EXPORT_ALLOC(cuMemCreate,
                 (CUmemGenericAllocationHandle * out, size_t bytes, const CUmemAllocationProp *prop,
                  unsigned long long flags),
                 create(out, bytes, prop, flags))
SIM_EXPORT(cuMemRelease, (CUmemGenericAllocationHandle handle), release(handle))
SIM_EXPORT(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * out, void *address), retain(out, address))
SIM_EXPORT(cuMemGetAllocationPropertiesFromHandle, (CUmemAllocationProp * prop, CUmemGenericAllocationHandle handle),
           properties(prop, handle))
SIM_EXPORT(cuMemGetAllocationGranularity,
           (size_t *out, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option),
           granularity(out, prop, option))
SIM_EXPORT(cuMemExportToShareableHandle,
           (void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags),
           export_handle(out, handle, type, flags))
SIM_EXPORT(cuMemImportFromShareableHandle,
           (CUmemGenericAllocationHandle * out, void *os_handle, CUmemAllocationHandleType type),
           import_handle(out, os_handle, type))
