/* Address reservations, mappings into them, and who may access those. */
#include "vmm.h"

#include <stdlib.h>
#include <string.h>

struct reservation {
    uint64_t base, span;
    size_t mappings;
};

/* In the order of their addresses. */
static struct reservation *reservations;
static size_t count, capacity;

static bool aligned(uint64_t value) { return value && value % SIM_BLOCK == 0; }

/* The index of the reservation that reaches beyond `va`. */
static size_t search(uint64_t va)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (reservations[middle].base + reservations[middle].span <= va)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The reservation that holds all of a range, or NULL. */
static struct reservation *holder(uint64_t base, uint64_t span)
{
    size_t at = search(base);
    if (at == count || reservations[at].base > base || span > reservations[at].span - (base - reservations[at].base))
        return NULL;
    return &reservations[at];
}

static CUresult reserve(CUdeviceptr *out, size_t span, size_t align, CUdeviceptr wanted, unsigned long long flags)
{
    if (!out || !aligned(span) || flags || (align & (align - 1)))
        return CUDA_ERROR_INVALID_VALUE;
    if (count == capacity) {
        size_t grown = capacity ? capacity * 2 : 16;
        struct reservation *moved = realloc(reservations, grown * sizeof *moved);
        if (!moved)
            return CUDA_ERROR_OUT_OF_MEMORY;
        reservations = moved;
        capacity = grown;
    }
    uint64_t base = aligned(wanted) && !(align && wanted % align) && sim_va_take_at(SIM_RANGE_VMM, wanted, span)
                        ? wanted
                        : sim_va_take(SIM_RANGE_VMM, span, align);
    if (!base)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t at = search(base);
    memmove(&reservations[at + 1], &reservations[at], (count - at) * sizeof *reservations);
    reservations[at] = (struct reservation){base, span, 0};
    count++;
    *out = base;
    return CUDA_SUCCESS;
}

static CUresult unreserve(CUdeviceptr base, size_t span)
{
    struct reservation *reservation = holder(base, span);
    if (!reservation || reservation->base != base || reservation->span != span || reservation->mappings)
        return CUDA_ERROR_INVALID_VALUE;
    sim_va_give(SIM_RANGE_VMM, base, span);
    size_t at = (size_t)(reservation - reservations);
    count--;
    memmove(reservation, reservation + 1, (count - at) * sizeof *reservations);
    return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr base, size_t span, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags)
{
    struct sim_physical *physical = sim_physical_of(handle);
    if (!physical || flags || offset || !aligned(base) || !aligned(span) || span > physical->bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (physical->multicast && !sim_multicast_complete(physical->multicast))
        return CUDA_ERROR_ILLEGAL_STATE;
    struct reservation *reservation = holder(base, span);
    if (!reservation)
        return CUDA_ERROR_INVALID_VALUE;
    for (uint64_t at = 0; at < span; at += SIM_BLOCK) {
        if (sim_region_at(base + at))
            return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_region *region = calloc(1, sizeof *region);
    struct sim_mapping *mapping = calloc(1, sizeof *mapping);
    uint64_t *access = calloc(span >> SIM_BLOCK_SHIFT, sizeof *access);
    if (!region || !mapping || !access) {
        free(region);
        free(mapping);
        free(access);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *mapping = (struct sim_mapping){physical, access};
    *region = (struct sim_region){.kind = SIM_REGION_MAPPING,
                                  .base = base,
                                  .bytes = span,
                                  .span = span,
                                  .range = SIM_RANGE_VMM,
                                  .card = physical->card,
                                  .device = physical->host ? CU_DEVICE_INVALID : physical->prop.location.id,
                                  .count = span >> SIM_BLOCK_SHIFT,
                                  .id = sim_next_id(),
                                  .mapping = mapping};
    reservation->mappings++;
    sim_physical_map(physical);
    sim_region_enter(region);
    return CUDA_SUCCESS;
}

/* Whether a range is made of whole mappings (`whole`) or at least covered by mappings. */
static bool mapped(uint64_t base, uint64_t span, bool whole)
{
    for (uint64_t at = base; at < base + span;) {
        struct sim_region *region = sim_region_at(at);
        if (!region || region->kind != SIM_REGION_MAPPING)
            return false;
        if (whole && (region->base != at || region->span > base + span - at))
            return false;
        at = region->base + region->span;
    }
    return true;
}

static CUresult unmap(CUdeviceptr base, size_t span)
{
    struct reservation *reservation = aligned(base) && aligned(span) ? holder(base, span) : NULL;
    if (!reservation || !mapped(base, span, true))
        return CUDA_ERROR_INVALID_VALUE;
    for (uint64_t at = base; at < base + span;) {
        struct sim_region *region = sim_region_at(at);
        at += region->span;
        sim_region_remove(region);
        reservation->mappings--;
        sim_physical_unmap(region->mapping->physical);
        free(region->mapping->access);
        free(region->mapping);
        free(region);
    }
    return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr base, size_t span, const CUmemAccessDesc *descriptions, size_t described)
{
    if (!aligned(base) || !aligned(span) || !descriptions || !described || !holder(base, span) ||
        !mapped(base, span, false))
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t keep = UINT64_MAX, add = 0;
    for (size_t i = 0; i < described; i++) {
        const CUmemAccessDesc *wanted = &descriptions[i];
        if ((unsigned)wanted->flags > 3 || wanted->flags == 2)
            return CUDA_ERROR_INVALID_VALUE;
        if (wanted->location.type == CU_MEM_LOCATION_TYPE_HOST ||
            wanted->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
            continue;
        if (wanted->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
            return CUDA_ERROR_INVALID_VALUE;
        int card = sim_device_card(wanted->location.id);
        if (card < 0)
            return CUDA_ERROR_INVALID_DEVICE;
        keep &= ~((uint64_t)3 << (2 * card));
        add = (add & ~((uint64_t)3 << (2 * card))) | (uint64_t)wanted->flags << (2 * card);
    }
    for (uint64_t at = base; at < base + span; at += SIM_BLOCK) {
        struct sim_region *region = sim_region_at(at);
        uint64_t *access = &region->mapping->access[(at - region->base) >> SIM_BLOCK_SHIFT];
        *access = (*access & keep) | add;
    }
    return CUDA_SUCCESS;
}

static CUresult get_access(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
    struct sim_region *region = sim_region_at(ptr);
    if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE || !region ||
        region->kind != SIM_REGION_MAPPING)
        return CUDA_ERROR_INVALID_VALUE;
    int card = sim_device_card(location->id);
    if (card < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    *flags = region->mapping->access[(ptr - region->base) >> SIM_BLOCK_SHIFT] >> (2 * card) & 3;
    return CUDA_SUCCESS;
}

bool sim_mapping_extent(struct sim_region *region, uint64_t va, bool write, struct sim_extent *extent)
{
    struct sim_context *context = sim_current_or_null();
    const struct sim_physical *physical = region->mapping->physical;
    unsigned card = context ? context->card_index : 0;
    uint64_t wanted = write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
    uint64_t offset = va - region->base, end = offset & ~(SIM_BLOCK - 1);
    while (end < region->span && (region->mapping->access[end >> SIM_BLOCK_SHIFT] >> (2 * card) & wanted) == wanted)
        end += SIM_BLOCK;
    if (end <= offset || physical->multicast)
        return false;
    *extent = (struct sim_extent){.host = physical->host ? physical->host + offset : NULL,
                                  .card = physical->card,
                                  .blocks = physical->blocks,
                                  .offset = offset,
                                  .bytes = end - offset};
    return true;
}

SIM_EXPORT(cuMemAddressReserve,
           (CUdeviceptr * out, size_t span, size_t align, CUdeviceptr wanted, unsigned long long flags),
           reserve(out, span, align, wanted, flags))
SIM_EXPORT(cuMemAddressFree, (CUdeviceptr base, size_t span), unreserve(base, span))
SIM_EXPORT(cuMemMap,
           (CUdeviceptr base, size_t span, size_t offset, CUmemGenericAllocationHandle handle,
            unsigned long long flags),
           map(base, span, offset, handle, flags))
SIM_EXPORT(cuMemUnmap, (CUdeviceptr base, size_t span), unmap(base, span))
SIM_EXPORT(cuMemSetAccess, (CUdeviceptr base, size_t span, const CUmemAccessDesc *descriptions, size_t described),
           set_access(base, span, descriptions, described))
SIM_EXPORT(cuMemGetAccess, (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr),
           get_access(flags, location, ptr))
