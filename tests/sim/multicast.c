/*
 * Multicast objects: a team of devices, on each of which physical memory is bound at offsets. Bound memory is kept; the
 * object itself takes none. It is a physical allocation without blocks (vmm.c), so it lives until its last handle reference
 * and its last mapping are gone, and its bindings with it.
 */
#include "vmm.h"

#include <stdlib.h>

struct binding {
    struct binding *next;
    CUdevice device;
    uint64_t offset, bytes;
    struct sim_physical *physical;
};

struct sim_multicast {
    CUmulticastObjectProp prop;
    uint64_t team; /* bit a device */
    unsigned added;
    struct binding *bindings;
};

static struct sim_physical *multicast_of(CUmemGenericAllocationHandle handle)
{
    struct sim_physical *object = sim_physical_of(handle);
    return object && object->multicast ? object : NULL;
}

static bool good(const CUmulticastObjectProp *prop)
{
    return prop && prop->numDevices && prop->numDevices <= 64 && prop->size && !prop->flags &&
           !(prop->handleTypes & ~(unsigned long long)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

static CUresult create(CUmemGenericAllocationHandle *out, const CUmulticastObjectProp *prop)
{
    if (!out || !good(prop) || prop->size % SIM_BLOCK)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_physical *object = calloc(1, sizeof *object);
    struct sim_multicast *multicast = calloc(1, sizeof *multicast);
    if (!object || !multicast) {
        free(object);
        free(multicast);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    multicast->prop = *prop;
    *object = (struct sim_physical){
        .bytes = prop->size, .count = prop->size >> SIM_BLOCK_SHIFT, .multicast = multicast};
    sim_physical_enter(object);
    *out = (uintptr_t)object;
    return CUDA_SUCCESS;
}

static CUresult granularity(size_t *out, const CUmulticastObjectProp *prop, CUmulticastGranularity_flags option)
{
    if (!out || !good(prop) || (unsigned)option > CU_MULTICAST_GRANULARITY_RECOMMENDED)
        return CUDA_ERROR_INVALID_VALUE;
    *out = SIM_BLOCK;
    return CUDA_SUCCESS;
}

static CUresult add_device(CUmemGenericAllocationHandle handle, CUdevice device)
{
    struct sim_physical *object = multicast_of(handle);
    if (!object)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device_card(device) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    struct sim_multicast *multicast = object->multicast;
    if (multicast->team >> device & 1 || multicast->added == multicast->prop.numDevices)
        return CUDA_ERROR_INVALID_VALUE;
    multicast->team |= (uint64_t)1 << device;
    multicast->added++;
    return CUDA_SUCCESS;
}

bool sim_multicast_complete(const struct sim_multicast *multicast)
{
    return multicast->added == multicast->prop.numDevices;
}

/* Binding before the team is complete waits for another process to complete it; here it is refused, as nobody else can. */
static CUresult bind(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, struct sim_physical *memory,
                     size_t memory_offset, size_t bytes, unsigned long long flags)
{
    struct sim_physical *object = multicast_of(handle);
    if (!object || !memory || !memory->card || flags || !bytes || (offset | memory_offset | bytes) % SIM_BLOCK ||
        offset > object->bytes || bytes > object->bytes - offset || memory_offset > memory->bytes ||
        bytes > memory->bytes - memory_offset)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_multicast *multicast = object->multicast;
    if (sim_device_card(device) < 0 || !(multicast->team >> device & 1))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!sim_multicast_complete(multicast))
        return CUDA_ERROR_ILLEGAL_STATE;
    for (struct binding *other = multicast->bindings; other; other = other->next) {
        if (other->device == device && offset < other->offset + other->bytes && other->offset < offset + bytes)
            return CUDA_ERROR_INVALID_VALUE;
    }
    struct binding *binding = malloc(sizeof *binding);
    if (!binding)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *binding = (struct binding){multicast->bindings, device, offset, bytes, memory};
    multicast->bindings = binding;
    sim_physical_map(memory);
    return CUDA_SUCCESS;
}

static CUdevice device_of(const struct sim_physical *memory) { return memory ? memory->prop.location.id : 0; }

static CUresult bind_memory(CUmemGenericAllocationHandle handle, size_t offset, CUmemGenericAllocationHandle memory,
                            size_t memory_offset, size_t bytes, unsigned long long flags)
{
    struct sim_physical *physical = sim_physical_of(memory);
    return bind(handle, device_of(physical), offset, physical, memory_offset, bytes, flags);
}

/* The memory mapped at an address, and where in it that lies. Memory of pools cannot be bound here. */
static struct sim_physical *mapped_at(CUdeviceptr at, size_t *offset)
{
    struct sim_region *region = sim_region_at(at);
    if (!region || region->kind != SIM_REGION_MAPPING)
        return NULL;
    *offset = (size_t)(at - region->base);
    return region->mapping->physical;
}

static CUresult bind_address(CUmemGenericAllocationHandle handle, const CUdevice *device, size_t offset, CUdeviceptr at,
                             size_t bytes, unsigned long long flags)
{
    size_t memory_offset = 0;
    struct sim_physical *physical = mapped_at(at, &memory_offset);
    return bind(handle, device ? *device : device_of(physical), offset, physical, memory_offset, bytes, flags);
}

static CUresult unbind(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, size_t bytes)
{
    struct sim_physical *object = multicast_of(handle);
    if (!object)
        return CUDA_ERROR_INVALID_VALUE;
    for (struct binding **at = &object->multicast->bindings; *at; at = &(*at)->next) {
        struct binding *binding = *at;
        if (binding->device != device || binding->offset != offset || binding->bytes != bytes)
            continue;
        *at = binding->next;
        sim_physical_unmap(binding->physical);
        free(binding);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

void sim_multicast_free(struct sim_multicast *multicast)
{
    for (struct binding *binding = multicast->bindings, *next; binding; binding = next) {
        next = binding->next;
        sim_physical_unmap(binding->physical);
        free(binding);
    }
    free(multicast);
}

SIM_EXPORT(cuMulticastCreate, (CUmemGenericAllocationHandle * out, const CUmulticastObjectProp *prop),
           create(out, prop))
SIM_EXPORT(cuMulticastGetGranularity,
           (size_t *out, const CUmulticastObjectProp *prop, CUmulticastGranularity_flags option),
           granularity(out, prop, option))
SIM_EXPORT(cuMulticastAddDevice, (CUmemGenericAllocationHandle multicast, CUdevice device),
           add_device(multicast, device))
SIM_EXPORT(cuMulticastBindMem,
           (CUmemGenericAllocationHandle multicast, size_t offset, CUmemGenericAllocationHandle memory,
            size_t memory_offset, size_t size, unsigned long long flags),
           bind_memory(multicast, offset, memory, memory_offset, size, flags))
SIM_EXPORT(cuMulticastBindMem_v2,
           (CUmemGenericAllocationHandle multicast, CUdevice device, size_t offset, CUmemGenericAllocationHandle memory,
            size_t memory_offset, size_t size, unsigned long long flags),
           bind(multicast, device, offset, sim_physical_of(memory), memory_offset, size, flags))
SIM_EXPORT(cuMulticastBindAddr,
           (CUmemGenericAllocationHandle multicast, size_t offset, CUdeviceptr memory, size_t size,
            unsigned long long flags),
           bind_address(multicast, NULL, offset, memory, size, flags))
SIM_EXPORT(cuMulticastBindAddr_v2,
           (CUmemGenericAllocationHandle multicast, CUdevice device, size_t offset, CUdeviceptr memory, size_t size,
            unsigned long long flags),
           bind_address(multicast, &device, offset, memory, size, flags))
SIM_EXPORT(cuMulticastUnbind,
           (CUmemGenericAllocationHandle multicast, CUdevice device, size_t offset, size_t size),
           unbind(multicast, device, offset, size))
