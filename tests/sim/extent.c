/* Where the bytes behind an address are, and moving them. */
#include "mem.h"

#include <errno.h>
#include <string.h>

static CUresult result_of(int why)
{
    return !why ? CUDA_SUCCESS : why == EFAULT ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult sim_extent_at(uint64_t va, bool host_too, bool write, struct sim_extent *extent)
{
    struct sim_allocation found;
    *extent = (struct sim_extent){0};
    if (!sim_allocation_at(va, &found)) {
        if (!host_too || sim_va_is_device(va))
            return CUDA_ERROR_INVALID_VALUE;
        /* Pageable memory: the kernel knows how far it reaches, and says EFAULT. */
        extent->host = (char *)(uintptr_t)va;
        extent->bytes = UINT64_MAX;
        return CUDA_SUCCESS;
    }
    struct sim_region *region = found.region;
    extent->bytes = found.base + found.bytes - va;
    switch (region->kind) {
    case SIM_REGION_MAPPING:
        return sim_mapping_extent(region, va, write, extent) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case SIM_REGION_MANAGED:
    case SIM_REGION_HOST:
        extent->host = (char *)(uintptr_t)va;
        return CUDA_SUCCESS;
    default:
        extent->card = region->card;
        extent->blocks = region->blocks;
        extent->offset = va - region->base;
        return CUDA_SUCCESS;
    }
}

/* How many of `bytes` lie in the block that the extent begins in. */
static size_t in_block(const struct sim_extent *extent, uint64_t done, size_t bytes)
{
    uint64_t left = SIM_BLOCK - ((extent->offset + done) & (SIM_BLOCK - 1));
    return left < bytes ? (size_t)left : bytes;
}

static int transfer(const struct sim_extent *extent, uint64_t done, char *host, size_t bytes, bool write)
{
    for (size_t part; bytes; host += part, done += part, bytes -= part) {
        part = in_block(extent, done, bytes);
        uint64_t at = extent->offset + done;
        if (!extent->blocks)
            return EFAULT; /* memory of a graph that is not allocated now */
        uint32_t block = extent->blocks[at >> SIM_BLOCK_SHIFT];
        int why = write ? sim_card_write(extent->card, block, at & (SIM_BLOCK - 1), host, part)
                        : sim_card_read(extent->card, block, at & (SIM_BLOCK - 1), host, part);
        if (why)
            return why;
    }
    return 0;
}

CUresult sim_extent_move(const struct sim_extent *to, const struct sim_extent *from, size_t bytes)
{
    static char buffer[1 << 18]; /* the lock is held */
    if (to->host && from->host) {
        memmove(to->host, from->host, bytes);
        return CUDA_SUCCESS;
    }
    if (to->host)
        return result_of(transfer(from, 0, to->host, bytes, false));
    if (from->host)
        return result_of(transfer(to, 0, from->host, bytes, true));
    for (uint64_t done = 0; done < bytes;) {
        size_t part = bytes - done < sizeof buffer ? (size_t)(bytes - done) : sizeof buffer;
        int why = transfer(from, done, buffer, part, false);
        if (!why)
            why = transfer(to, done, buffer, part, true);
        if (why)
            return result_of(why);
        done += part;
    }
    return CUDA_SUCCESS;
}

CUresult sim_extent_fill(const struct sim_extent *extent, uint32_t value, unsigned width, size_t bytes)
{
    static char pattern[1 << 16]; /* the lock is held */
    size_t filled = bytes < sizeof pattern ? bytes : sizeof pattern;
    bool zero = !(width == 1 ? value & 0xff : width == 2 ? value & 0xffff : value);
    char *target = extent->host ? extent->host : pattern;
    size_t target_bytes = extent->host ? bytes : filled;
    for (size_t i = 0; i < target_bytes; i += width)
        memcpy(target + i, &value, width);
    if (!extent->host && !extent->blocks)
        return CUDA_ERROR_INVALID_VALUE;
    for (uint64_t done = 0; !extent->host && done < bytes;) {
        uint64_t at = extent->offset + done;
        size_t part = in_block(extent, done, bytes - (size_t)done);
        uint32_t block = extent->blocks[at >> SIM_BLOCK_SHIFT];
        int why;
        if (zero && part > filled / 2) {
            why = sim_card_zero(extent->card, block, at & (SIM_BLOCK - 1), part);
        } else {
            part = part < filled ? part : filled;
            why = sim_card_write(extent->card, block, at & (SIM_BLOCK - 1), pattern, part);
        }
        if (why)
            return result_of(why);
        done += part;
    }
    return CUDA_SUCCESS;
}

CUresult sim_range_check(uint64_t va, uint64_t bytes, enum sim_side side, bool write)
{
    if (side == SIM_SIDE_HOST)
        return !va || sim_va_is_device(va) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    while (bytes) {
        struct sim_extent extent;
        CUresult result = sim_extent_at(va, side == SIM_SIDE_ANY, write, &extent);
        if (result != CUDA_SUCCESS)
            return result;
        if (extent.bytes >= bytes)
            break;
        /* Only mappings may be walked from one into the next. */
        if (extent.host || !sim_region_at(va) || sim_region_at(va)->kind != SIM_REGION_MAPPING)
            return CUDA_ERROR_INVALID_VALUE;
        va += extent.bytes;
        bytes -= extent.bytes;
    }
    return va ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The extent of an address on one side of a copy, at most `bytes` long. */
static CUresult side_extent(uint64_t va, enum sim_side side, bool write, size_t bytes, struct sim_extent *extent)
{
    if (side == SIM_SIDE_HOST) {
        *extent = (struct sim_extent){.host = (char *)(uintptr_t)va, .bytes = UINT64_MAX};
        return CUDA_SUCCESS;
    }
    struct sim_region *region = sim_region_at(va);
    if (write && region && region->kind == SIM_REGION_MANAGED)
        sim_managed_touch(region, va - region->base, bytes, sim_current_or_null());
    return sim_extent_at(va, side == SIM_SIDE_ANY, write, extent);
}

CUresult sim_move(uint64_t to, enum sim_side to_side, uint64_t from, enum sim_side from_side, size_t bytes)
{
    while (bytes) {
        struct sim_extent target, source;
        size_t part = bytes;
        CUresult result = side_extent(to, to_side, true, bytes, &target);
        if (result == CUDA_SUCCESS)
            result = side_extent(from, from_side, false, bytes, &source);
        if (result != CUDA_SUCCESS)
            return result;
        part = target.bytes < part ? (size_t)target.bytes : part;
        part = source.bytes < part ? (size_t)source.bytes : part;
        result = sim_extent_move(&target, &source, part);
        if (result != CUDA_SUCCESS)
            return result;
        to += part, from += part, bytes -= part;
    }
    return CUDA_SUCCESS;
}

CUresult sim_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    CUresult result = sim_range_check(to, bytes, SIM_SIDE_ANY, true);
    if (result == CUDA_SUCCESS)
        result = sim_range_check(from, bytes, SIM_SIDE_ANY, false);
    return result == CUDA_SUCCESS ? sim_move(to, SIM_SIDE_ANY, from, SIM_SIDE_ANY, bytes) : result;
}

CUresult sim_fill(CUdeviceptr to, uint32_t value, unsigned width, size_t count)
{
    uint64_t bytes;
    if (__builtin_mul_overflow(count, (size_t)width, &bytes) || to % width)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_range_check(to, bytes, SIM_SIDE_DEVICE, true);
    while (bytes && result == CUDA_SUCCESS) {
        struct sim_extent extent;
        result = side_extent(to, SIM_SIDE_DEVICE, true, bytes, &extent);
        uint64_t part = extent.bytes < bytes ? extent.bytes : bytes;
        if (result == CUDA_SUCCESS)
            result = sim_extent_fill(&extent, value, width, part);
        to += part, bytes -= part;
    }
    return result;
}
