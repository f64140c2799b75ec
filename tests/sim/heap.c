/* Plain device memory: whole blocks for what is large, 512-byte granules of a shared block for what is small. */
#include "mem.h"

#include <stdlib.h>
#include <string.h>

/* From this size on an allocation has blocks of its own. */
#define LARGE ((uint64_t)1 << 20)

unsigned long long sim_live;

unsigned long long sim_next_id(void)
{
    static unsigned long long last;
    return ++last;
}

bool sim_take_blocks(struct sim_card *card, size_t count, uint32_t *blocks)
{
    return sim_card_take(card, count, blocks) || (sim_pools_trim(card) && sim_card_take(card, count, blocks));
}

static bool heap_take(struct sim_heap *heap, size_t count, uint32_t *blocks)
{
    return heap->pool ? sim_pool_take(heap->pool, count, blocks) : sim_take_blocks(heap->card, count, blocks);
}

static void heap_give(struct sim_heap *heap, size_t count, const uint32_t *blocks)
{
    if (heap->pool)
        sim_pool_give(heap->pool, count, blocks);
    else
        sim_card_give(heap->card, count, blocks);
}

/* A region of whole blocks (or, `unbacked`, still without them) with addresses, in the heap and in the page table. */
static struct sim_region *region_new(struct sim_heap *heap, struct sim_context *context, enum sim_range range,
                                     enum sim_region_kind kind, uint64_t bytes, bool unbacked)
{
    uint64_t count = sim_blocks_of(bytes);
    if (count > sim_card_total(heap->card) >> SIM_BLOCK_SHIFT)
        return NULL;
    struct sim_region *region = calloc(1, sizeof *region);
    uint32_t *blocks = unbacked ? NULL : malloc(count * sizeof *blocks);
    struct sim_slab *slab = kind == SIM_REGION_SLAB ? calloc(1, sizeof *slab) : NULL;
    if (!region || (!blocks && !unbacked) || (kind == SIM_REGION_SLAB && !slab))
        goto no_memory;
    uint64_t base = sim_va_take(range, count << SIM_BLOCK_SHIFT, SIM_BLOCK);
    if (!base)
        goto no_memory;
    if (blocks && !heap_take(heap, count, blocks)) {
        sim_va_give(range, base, count << SIM_BLOCK_SHIFT);
        goto no_memory;
    }
    *region = (struct sim_region){.next = heap->regions,
                                  .kind = kind,
                                  .base = base,
                                  .bytes = bytes,
                                  .span = count << SIM_BLOCK_SHIFT,
                                  .range = range,
                                  .card = heap->card,
                                  .device = heap->device,
                                  .context = context,
                                  .heap = heap,
                                  .blocks = blocks,
                                  .count = count,
                                  .slab = slab};
    if (heap->regions)
        heap->regions->prev = region;
    heap->regions = region;
    sim_region_enter(region);
    return region;
no_memory:
    free(region);
    free(blocks);
    free(slab);
    return NULL;
}

static void region_free(struct sim_region *region)
{
    struct sim_heap *heap = region->heap;
    sim_region_remove(region);
    sim_va_give(region->range, region->base, region->span);
    if (region->shared) {
        sim_share_leave(region->card, &region->share);
        if (heap->pool)
            sim_pool_left(heap->pool, region->count);
    } else if (region->blocks)
        heap_give(heap, region->count, region->blocks);
    if (region->prev)
        region->prev->next = region->next;
    else
        heap->regions = region->next;
    if (region->next)
        region->next->prev = region->prev;
    if (heap->slab == region)
        heap->slab = NULL;
    if (region->kind == SIM_REGION_SLAB)
        free(region->slab);
    free(region->blocks);
    free(region);
}

/* ---- small allocations ------------------------------------------------------------------------- */

static bool bit(const uint64_t *bits, unsigned at) { return bits[at / 64] >> (at % 64) & 1; }

static void set_run(uint64_t *bits, unsigned at, unsigned count, bool value)
{
    for (unsigned i = at; i < at + count; i++) {
        if (value)
            bits[i / 64] |= (uint64_t)1 << (i % 64);
        else
            bits[i / 64] &= ~((uint64_t)1 << (i % 64));
    }
}

/* The first free run of `count` granules from `from` on; SIM_GRANULES when there is none. */
static unsigned find_run(const struct sim_slab *slab, unsigned from, unsigned count)
{
    for (unsigned at = from; at + count <= SIM_GRANULES;) {
        if (at % 64 == 0 && slab->used[at / 64] == UINT64_MAX) {
            at += 64;
            continue;
        }
        unsigned run = 0;
        while (run < count && !bit(slab->used, at + run))
            run++;
        if (run == count)
            return at;
        at += run + 1;
    }
    return SIM_GRANULES;
}

static unsigned slab_place(struct sim_slab *slab, unsigned count)
{
    if (slab->in_use + count > SIM_GRANULES || (slab->too_big && count >= slab->too_big))
        return SIM_GRANULES;
    unsigned at = find_run(slab, slab->hint, count);
    if (at == SIM_GRANULES && slab->hint)
        at = find_run(slab, 0, count);
    if (at == SIM_GRANULES)
        slab->too_big = count;
    return at;
}

static CUresult slab_alloc(struct sim_heap *heap, struct sim_context *context, enum sim_range range, uint32_t bytes,
                           CUdeviceptr *ptr)
{
    unsigned count = (bytes + SIM_GRANULE - 1) / SIM_GRANULE, at = SIM_GRANULES;
    struct sim_region *region = heap->slab;
    if (region && region->context == context && region->range == range)
        at = slab_place(region->slab, count);
    for (region = at < SIM_GRANULES ? region : heap->regions; region && at == SIM_GRANULES;) {
        if (region->kind == SIM_REGION_SLAB && region->context == context && region->range == range)
            at = slab_place(region->slab, count);
        if (at == SIM_GRANULES)
            region = region->next;
    }
    if (!region) {
        region = region_new(heap, context, range, SIM_REGION_SLAB, SIM_BLOCK, false);
        at = 0;
    }
    if (!region)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_slab *slab = region->slab;
    set_run(slab->used, at, count, true);
    set_run(slab->start, at, 1, true);
    slab->sub[at].bytes = bytes;
    slab->sub[at].id = (uint32_t)sim_next_id();
    slab->in_use += count;
    slab->hint = at + count < SIM_GRANULES ? at + count : 0;
    heap->slab = region;
    heap->used += (uint64_t)count * SIM_GRANULE;
    *ptr = region->base + (uint64_t)at * SIM_GRANULE;
    return CUDA_SUCCESS;
}

static void slab_free(struct sim_region *region, unsigned at)
{
    struct sim_slab *slab = region->slab;
    unsigned count = (slab->sub[at].bytes + SIM_GRANULE - 1) / SIM_GRANULE;
    set_run(slab->used, at, count, false);
    set_run(slab->start, at, 1, false);
    slab->in_use -= count;
    slab->too_big = 0;
    slab->hint = at;
    region->heap->used -= (uint64_t)count * SIM_GRANULE;
    if (!slab->in_use)
        region_free(region);
}

/* The granule at which the allocation around `granule` starts; SIM_GRANULES when that one is free. */
static unsigned slab_start(const struct sim_slab *slab, unsigned granule)
{
    unsigned at = granule;
    if (!bit(slab->used, granule))
        return SIM_GRANULES;
    while (!bit(slab->start, at))
        at--;
    return at;
}

/* ---- both ------------------------------------------------------------------------------------------ */

CUresult sim_heap_allocate(struct sim_heap *heap, struct sim_context *context, enum sim_range range, uint64_t bytes,
                           CUdeviceptr *ptr)
{
    CUresult result = CUDA_SUCCESS;
    if (bytes < LARGE) {
        result = slab_alloc(heap, context, range, (uint32_t)bytes, ptr);
    } else {
        struct sim_region *region = region_new(heap, context, range, SIM_REGION_PLAIN, bytes, false);
        if (!region)
            return CUDA_ERROR_OUT_OF_MEMORY;
        region->id = sim_next_id();
        heap->used += region->span;
        *ptr = region->base;
    }
    if (result != CUDA_SUCCESS)
        return result;
    sim_live++;
    if (heap->pool)
        sim_pool_used_changed(heap->pool);
    return CUDA_SUCCESS;
}

/* ---- allocations of graphs ----------------------------------------------------------------------- */

struct sim_region *sim_region_unbacked(struct sim_heap *heap, struct sim_context *context, uint64_t bytes)
{
    struct sim_region *region =
        region_new(heap, context, SIM_RANGE_CARD + heap->card_index, SIM_REGION_PLAIN, bytes, true);
    if (region) {
        region->of_graph = true;
        region->id = sim_next_id();
    }
    return region;
}

bool sim_region_back(struct sim_region *region)
{
    uint32_t *blocks = malloc(region->count * sizeof *blocks);
    if (!blocks || !heap_take(region->heap, region->count, blocks)) {
        free(blocks);
        return false;
    }
    region->blocks = blocks;
    region->heap->used += region->span;
    sim_live++;
    sim_pool_used_changed(region->heap->pool);
    return true;
}

static void region_unback(struct sim_region *region)
{
    heap_give(region->heap, region->count, region->blocks);
    free(region->blocks);
    region->blocks = NULL;
}

/* What the graph left allocated stays so until the program frees it, as any allocation. */
void sim_region_abandon(struct sim_region *region)
{
    if (region->blocks)
        region->of_graph = false;
    else
        region_free(region);
}

bool sim_heap_release(uint64_t ptr)
{
    struct sim_region *region = sim_region_at(ptr);
    if (!region)
        return false;
    if (region->kind == SIM_REGION_IMPORT)
        return sim_import_release(region, ptr);
    struct sim_pool *pool = region->heap ? region->heap->pool : NULL;
    if (region->kind == SIM_REGION_PLAIN && region->base == ptr && region->blocks) {
        region->heap->used -= region->span;
        if (region->of_graph)
            region_unback(region);
        else
            region_free(region);
    } else if (region->kind == SIM_REGION_SLAB) {
        unsigned granule = (unsigned)((ptr - region->base) / SIM_GRANULE);
        if (ptr % SIM_GRANULE || !bit(region->slab->start, granule))
            return false;
        slab_free(region, granule);
    } else {
        return false;
    }
    sim_live--;
    if (pool)
        sim_pool_used_changed(pool);
    return true;
}

void sim_heap_clear(struct sim_heap *heap, struct sim_context *context)
{
    for (struct sim_region *region = heap->regions, *next; region; region = next) {
        next = region->next;
        if (context && region->context != context)
            continue;
        if (region->of_graph) {
            /* The address goes with its graph, the memory now. */
            if (region->blocks)
                (void)sim_heap_release(region->base);
            continue;
        }
        if (region->kind == SIM_REGION_PLAIN) {
            sim_live--;
            heap->used -= region->span;
        } else {
            for (unsigned i = 0; i < SIM_GRANULES / 64; i++)
                sim_live -= (unsigned)__builtin_popcountll(region->slab->start[i]);
            heap->used -= (uint64_t)region->slab->in_use * SIM_GRANULE;
        }
        region_free(region);
    }
    if (heap->pool)
        sim_pool_used_changed(heap->pool);
}

bool sim_allocation_at(uint64_t va, struct sim_allocation *allocation)
{
    struct sim_region *region = sim_region_at(va);
    if (!region)
        return false;
    *allocation = (struct sim_allocation){region, region->base, region->bytes, region->id};
    if (region->kind == SIM_REGION_SLAB) {
        unsigned at = slab_start(region->slab, (unsigned)((va - region->base) / SIM_GRANULE));
        if (at == SIM_GRANULES)
            return false;
        allocation->base = region->base + (uint64_t)at * SIM_GRANULE;
        allocation->bytes = region->slab->sub[at].bytes;
        allocation->id = region->slab->sub[at].id;
    }
    return va - allocation->base < allocation->bytes;
}

CUresult sim_heap_alloc(struct sim_context *context, uint64_t bytes, CUdeviceptr *ptr)
{
    return sim_heap_allocate(context->heap, context, SIM_RANGE_CARD + context->card_index, bytes, ptr);
}

CUresult sim_heap_free(CUdeviceptr ptr) { return sim_heap_release(ptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }
