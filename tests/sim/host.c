/* Pinned host memory: allocated or registered, known by address. */
#define _GNU_SOURCE
#include "mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* In the order of their addresses. */
static struct sim_region **regions;
static size_t count, capacity;

/* The index of the first region that ends beyond `va`. */
static size_t search(uint64_t va)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (regions[middle]->base + regions[middle]->bytes <= va)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct sim_region *sim_host_region_at(uint64_t va)
{
    size_t at = search(va);
    return at < count && regions[at]->base <= va ? regions[at] : NULL;
}

static CUresult enter(struct sim_context *context, void *memory, size_t bytes, unsigned flags, bool registered)
{
    struct sim_region *region = calloc(1, sizeof *region);
    if (count == capacity) {
        size_t grown = capacity ? capacity * 2 : 16;
        struct sim_region **moved = realloc(regions, grown * sizeof *moved);
        if (moved)
            regions = moved, capacity = grown;
    }
    if (!region || count == capacity) {
        free(region);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *region = (struct sim_region){.kind = SIM_REGION_HOST,
                                  .base = (uintptr_t)memory,
                                  .bytes = bytes,
                                  .card = context->card,
                                  .device = context->device,
                                  .context = context,
                                  .id = sim_next_id(),
                                  .host = {memory, flags, registered}};
    size_t at = search(region->base);
    memmove(&regions[at + 1], &regions[at], (count - at) * sizeof *regions);
    regions[at] = region;
    count++;
    return CUDA_SUCCESS;
}

static size_t mapped_bytes(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

static void leave(size_t at)
{
    struct sim_region *region = regions[at];
    if (!region->host.registered)
        munmap(region->host.memory, mapped_bytes(region->bytes));
    count--;
    memmove(&regions[at], &regions[at + 1], (count - at) * sizeof *regions);
    free(region);
}

void sim_host_context_gone(struct sim_context *context)
{
    for (size_t at = count; at-- > 0;) {
        if (regions[at]->context == context)
            leave(at);
    }
}

static CUresult ready(struct sim_context **context)
{
    CUresult result = sim_current(context);
    return result == CUDA_SUCCESS ? sim_capture_unsafe() : result;
}

static CUresult alloc(void **out, size_t bytes, unsigned flags)
{
    struct sim_context *context;
    CUresult result = ready(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!out || !bytes || flags > 7)
        return CUDA_ERROR_INVALID_VALUE;
    if (mapped_bytes(bytes) < bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    void *memory = mmap(NULL, mapped_bytes(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = enter(context, memory, bytes, flags | CU_MEMHOSTALLOC_DEVICEMAP, false);
    if (result == CUDA_SUCCESS)
        *out = memory;
    else
        munmap(memory, mapped_bytes(bytes));
    return result;
}

static CUresult alloc_low(void **out, unsigned bytes) { return alloc(out, bytes, 0); }

/* Under any current context, or none: the memory knows its own. */
static CUresult release(void *memory, bool registered, CUresult otherwise)
{
    CUresult result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    size_t at = search((uintptr_t)memory);
    if (at == count || regions[at]->base != (uintptr_t)memory || regions[at]->host.registered != registered)
        return otherwise;
    leave(at);
    return CUDA_SUCCESS;
}

static CUresult register_memory(void *memory, size_t bytes, unsigned flags)
{
    struct sim_context *context;
    CUresult result = ready(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!memory || !bytes || flags > 15 || (uintptr_t)memory + bytes < bytes)
        return CUDA_ERROR_INVALID_VALUE;
    size_t at = search((uintptr_t)memory);
    if (at < count && regions[at]->base < (uintptr_t)memory + bytes)
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    return enter(context, memory, bytes, flags, true);
}

static CUresult device_pointer(CUdeviceptr *out, void *memory, unsigned flags)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!out || flags || !sim_host_region_at((uintptr_t)memory))
        return CUDA_ERROR_INVALID_VALUE;
    *out = (uintptr_t)memory;
    return CUDA_SUCCESS;
}

/* No host address fits into 32 bits here. */
static CUresult device_pointer_low(CUdeviceptr_v1 *out, void *memory, unsigned flags)
{
    CUdeviceptr wide;
    CUresult result = device_pointer(&wide, memory, flags);
    if (result != CUDA_SUCCESS)
        return result;
    if (!out || wide > UINT32_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUdeviceptr_v1)wide;
    return CUDA_SUCCESS;
}

static CUresult get_flags(unsigned *flags, void *memory)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_region *region = sim_host_region_at((uintptr_t)memory);
    if (!flags || !region || region->host.registered)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = region->host.flags;
    return CUDA_SUCCESS;
}

SIM_EXPORT_ALLOC(cuMemAllocHost_v2, (void **out, size_t bytes), alloc(out, bytes, 0))
SIM_EXPORT_ALLOC(cuMemAllocHost, (void **out, unsigned bytes), alloc_low(out, bytes))
SIM_EXPORT_ALLOC(cuMemHostAlloc, (void **out, size_t bytes, unsigned flags), alloc(out, bytes, flags))
SIM_EXPORT(cuMemFreeHost, (void *memory), release(memory, false, CUDA_ERROR_INVALID_VALUE))
SIM_EXPORT(cuMemHostRegister, (void *memory, size_t bytes, unsigned flags), register_memory(memory, bytes, flags))
SIM_EXPORT(cuMemHostRegister_v2, (void *memory, size_t bytes, unsigned flags), register_memory(memory, bytes, flags))
SIM_EXPORT(cuMemHostUnregister, (void *memory), release(memory, true, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED))
SIM_EXPORT(cuMemHostGetDevicePointer, (CUdeviceptr_v1 * out, void *memory, unsigned flags),
           device_pointer_low(out, memory, flags))
SIM_EXPORT(cuMemHostGetDevicePointer_v2, (CUdeviceptr * out, void *memory, unsigned flags),
           device_pointer(out, memory, flags))
SIM_EXPORT(cuMemHostGetFlags, (unsigned *flags, void *memory), get_flags(flags, memory))
