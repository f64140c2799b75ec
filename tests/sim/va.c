/* Device addresses: which are taken, and the table from an address to what lies there. */
#define _GNU_SOURCE
#include "mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct extent {
    uint64_t base, span;
};

/* The free addresses of a range, in order, never two that touch. */
static struct space {
    uint64_t base, span;
    struct extent *extents;
    size_t count, capacity;
} spaces[SIM_RANGES];

#define CARD_BASE 0x020000000000ull
#define CARD_SPAN 0x010000000000ull
#define LOW_BASE 0x80000000ull
#define LOW_SPAN 0x70000000ull
#define VMM_BASE 0x300000000000ull
#define VMM_SPAN 0x200000000000ull

static void insert(struct space *space, size_t at, struct extent extent)
{
    if (space->count == space->capacity) {
        size_t capacity = space->capacity ? space->capacity * 2 : 16;
        struct extent *grown = realloc(space->extents, capacity * sizeof *grown);
        if (!grown)
            abort();
        space->extents = grown;
        space->capacity = capacity;
    }
    memmove(&space->extents[at + 1], &space->extents[at], (space->count - at) * sizeof extent);
    space->extents[at] = extent;
    space->count++;
}

static void erase(struct space *space, size_t at)
{
    space->count--;
    memmove(&space->extents[at], &space->extents[at + 1], (space->count - at) * sizeof *space->extents);
}

/* Several copies of the driver in one process hand out different addresses, as those of one machine do: each claims a
 * place by reserving the page that no device address ever is in. */
#define COPIES 4
static uint64_t place_among_copies(void)
{
    static uint64_t place = COPIES;
    for (uint64_t i = 0; place == COPIES && i < COPIES; i++) {
        void *claim = (void *)(uintptr_t)(CARD_BASE - (i + 1) * 4096);
        void *got = mmap(claim, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (got == claim)
            place = i;
        else if (got != MAP_FAILED)
            munmap(got, 4096); /* a kernel that does not know the flag */
    }
    return place % COPIES;
}

static struct space *space_of(enum sim_range range)
{
    struct space *space = &spaces[range];
    if (space->span)
        return space;
    uint64_t copy = place_among_copies();
    if (range == SIM_RANGE_LOW)
        space->base = LOW_BASE, space->span = LOW_SPAN;
    else if (range == SIM_RANGE_VMM)
        space->span = VMM_SPAN / COPIES, space->base = VMM_BASE + copy * space->span;
    else
        space->span = CARD_SPAN / COPIES, space->base = CARD_BASE + (uint64_t)range * CARD_SPAN + copy * space->span;
    insert(space, 0, (struct extent){space->base, space->span});
    return space;
}

/* Cuts [base, base + span) out of the extent at index `at`, which holds it. */
static void cut(struct space *space, size_t at, uint64_t base, uint64_t span)
{
    struct extent *extent = &space->extents[at];
    uint64_t before = base - extent->base, after = extent->base + extent->span - (base + span);
    if (before && after) {
        extent->span = before;
        insert(space, at + 1, (struct extent){base + span, after});
    } else if (before) {
        extent->span = before;
    } else if (after) {
        extent->base = base + span;
        extent->span = after;
    } else {
        erase(space, at);
    }
}

uint64_t sim_va_take(enum sim_range range, uint64_t span, uint64_t align)
{
    struct space *space = space_of(range);
    if (align < SIM_BLOCK)
        align = SIM_BLOCK;
    for (size_t at = 0; at < space->count; at++) {
        struct extent extent = space->extents[at];
        uint64_t base = (extent.base + align - 1) & ~(align - 1);
        if (base < extent.base || base - extent.base >= extent.span || extent.span - (base - extent.base) < span)
            continue;
        cut(space, at, base, span);
        return base;
    }
    return 0;
}

/* The index of the first extent that ends beyond `base`. */
static size_t search(const struct space *space, uint64_t base)
{
    size_t low = 0, high = space->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (space->extents[middle].base + space->extents[middle].span <= base)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool sim_va_take_at(enum sim_range range, uint64_t base, uint64_t span)
{
    struct space *space = space_of(range);
    size_t at = search(space, base);
    if (at == space->count || space->extents[at].base > base || (base & (SIM_BLOCK - 1)) ||
        space->extents[at].span - (base - space->extents[at].base) < span)
        return false;
    cut(space, at, base, span);
    return true;
}

void sim_va_give(enum sim_range range, uint64_t base, uint64_t span)
{
    struct space *space = space_of(range);
    size_t at = search(space, base);
    bool joins_after = at < space->count && space->extents[at].base == base + span;
    bool joins_before = at > 0 && space->extents[at - 1].base + space->extents[at - 1].span == base;
    if (joins_before && joins_after) {
        space->extents[at - 1].span += span + space->extents[at].span;
        erase(space, at);
    } else if (joins_before) {
        space->extents[at - 1].span += span;
    } else if (joins_after) {
        space->extents[at].base = base;
        space->extents[at].span += span;
    } else {
        insert(space, at, (struct extent){base, span});
    }
}

bool sim_va_is_device(uint64_t va)
{
    return (va >= CARD_BASE && va < CARD_BASE + SIM_RANGE_LOW * CARD_SPAN) || (va >= VMM_BASE && va < VMM_BASE + VMM_SPAN);
}

/* ---- the page table: 47 bits of address, 21 within a page, 13 a level ------------------------------ */

#define LEVEL 8192u

static struct sim_region **table[LEVEL];

static struct sim_region **page_of(uint64_t va, bool make)
{
    uint64_t page = va >> SIM_BLOCK_SHIFT;
    if (page >= (uint64_t)LEVEL * LEVEL)
        return NULL;
    struct sim_region ***leaf = &table[page / LEVEL];
    if (!*leaf && make && !(*leaf = calloc(LEVEL, sizeof **leaf)))
        abort();
    return *leaf ? &(*leaf)[page % LEVEL] : NULL;
}

void sim_region_enter(struct sim_region *region)
{
    for (uint64_t at = 0; at < region->span; at += SIM_BLOCK)
        *page_of(region->base + at, true) = region;
}

void sim_region_remove(struct sim_region *region)
{
    for (uint64_t at = 0; at < region->span; at += SIM_BLOCK)
        *page_of(region->base + at, true) = NULL;
}

struct sim_region *sim_region_at(uint64_t va)
{
    struct sim_region **page = page_of(va, false);
    return page && *page ? *page : sim_host_region_at(va);
}
