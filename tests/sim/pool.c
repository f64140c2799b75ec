/* What a pool holds: blocks in use, spare blocks, and when it lets go of them. */
#include "pool.h"

#include <stdlib.h>
#include <string.h>

static struct sim_pool *pools;
static struct sim_pool *defaults[32], *currents[32]; /* by card */

struct sim_pool *sim_pool_new(CUdevice device, const CUmemPoolProps *props)
{
    int card = sim_device_card(device);
    struct sim_pool *pool = card < 0 ? NULL : calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    pool->heap = (struct sim_heap){
        .card = sim_card((unsigned)card), .card_index = (unsigned)card, .device = device, .pool = pool};
    pool->props = *props;
    pool->reuse[0] = pool->reuse[1] = pool->reuse[2] = 1;
    pool->peers = (uint64_t)CU_MEM_ACCESS_FLAGS_PROT_READWRITE << (2 * card);
    pool->next = pools;
    pools = pool;
    sim_handle_add(pool, SIM_POOL);
    return pool;
}

struct sim_pool *sim_pool_default(CUdevice device)
{
    int card = sim_device_card(device);
    if (card < 0)
        return NULL;
    if (!defaults[card]) {
        CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
        if ((defaults[card] = sim_pool_new(device, &props)))
            defaults[card]->is_default = true;
    }
    return defaults[card];
}

struct sim_pool *sim_pool_current(CUdevice device)
{
    int card = sim_device_card(device);
    return card >= 0 && currents[card] ? currents[card] : sim_pool_default(device);
}

bool sim_pool_make_current(CUdevice device, struct sim_pool *pool)
{
    int card = sim_device_card(device);
    if (card < 0 || pool->heap.card_index != (unsigned)card)
        return false;
    currents[card] = pool;
    return true;
}

static void pool_free(struct sim_pool *pool)
{
    for (struct sim_pool **at = &pools; *at; at = &(*at)->next) {
        if (*at != pool)
            continue;
        *at = pool->next;
        break;
    }
    free(pool->spare);
    free(pool);
}

void sim_pool_destroy(struct sim_pool *pool)
{
    if (currents[pool->heap.card_index] == pool)
        currents[pool->heap.card_index] = NULL;
    sim_handle_drop(pool);
    pool->doomed = true;
    sim_pool_used_changed(pool);
}

void sim_pool_used_changed(struct sim_pool *pool)
{
    if (pool->heap.used > pool->used_high)
        pool->used_high = pool->heap.used;
    if (!pool->doomed)
        return;
    sim_pool_trim(pool, 0);
    if (!pool->heap.regions)
        pool_free(pool);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

bool sim_pool_take(struct sim_pool *pool, size_t count, uint32_t *blocks)
{
    size_t from_spare = pool->spares < count ? pool->spares : count, fresh = count - from_spare;
    uint64_t grown = sim_pool_reserved(pool) + ((uint64_t)fresh << SIM_BLOCK_SHIFT);
    if (pool->props.maxSize && fresh && grown > (sim_blocks_of(pool->props.maxSize) << SIM_BLOCK_SHIFT))
        return false;
    /* Room to take them all back later: giving back must not fail. */
    if (pool->held + fresh > pool->room) {
        size_t room = pool->held + fresh + 64;
        uint32_t *spare = realloc(pool->spare, room * sizeof *spare);
        if (!spare)
            return false;
        pool->spare = spare;
        pool->room = room;
    }
    /* The spares are put aside first: when the card is short, taking trims every pool, this one too. */
    pool->spares -= from_spare;
    memcpy(blocks, pool->spare + pool->spares, from_spare * sizeof *blocks);
    if (fresh && !sim_take_blocks(pool->heap.card, fresh, blocks + from_spare)) {
        memcpy(pool->spare + pool->spares, blocks, from_spare * sizeof *blocks);
        pool->spares += from_spare;
        return false;
    }
    pool->held += fresh;
    if (sim_pool_reserved(pool) > pool->reserved_high)
        pool->reserved_high = sim_pool_reserved(pool);
    return true;
}

void sim_pool_give(struct sim_pool *pool, size_t count, const uint32_t *blocks)
{
    memcpy(pool->spare + pool->spares, blocks, count * sizeof *blocks);
    pool->spares += count;
}

void sim_pool_left(struct sim_pool *pool, size_t count) { pool->held -= count; }

bool sim_pool_trim(struct sim_pool *pool, uint64_t keep)
{
    uint64_t kept = sim_blocks_of(keep);
    size_t surplus = pool->held > kept ? (size_t)(pool->held - kept) : 0;
    if (surplus > pool->spares)
        surplus = pool->spares;
    if (!surplus)
        return false;
    pool->spares -= surplus;
    pool->held -= surplus;
    sim_card_give(pool->heap.card, surplus, pool->spare + pool->spares);
    return true;
}

bool sim_pools_trim(struct sim_card *card)
{
    bool any = false;
    for (struct sim_pool *pool = pools; pool; pool = pool->next) {
        if (pool->heap.card == card)
            any = sim_pool_trim(pool, 0) || any;
    }
    return any;
}

void sim_pools_settle(struct sim_card *card)
{
    sim_sparse_catch_up();
    for (struct sim_pool *pool = pools; pool; pool = pool->next) {
        if (pool->heap.card == card)
            sim_pool_trim(pool, pool->threshold);
    }
}

void sim_pools_context_gone(struct sim_context *context)
{
    for (struct sim_pool *pool = pools, *next; pool; pool = next) {
        next = pool->next;
        if (pool->heap.card != context->card)
            continue;
        /* With its primary context the default pool of a device starts over. */
        if (context->primary && pool->is_default)
            pool->threshold = 0;
        sim_heap_clear(&pool->heap, context);
    }
    if (context->primary)
        sim_pools_trim(context->card);
    else
        sim_pools_settle(context->card);
}
