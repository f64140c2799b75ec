/*
 * Managed memory: its bytes live in host memory of the process, and what a card gives is the room for
 * pages that are resident there. Resident pages are loans of the card: whoever needs the room takes
 * it, and the page is then in host memory again, where its bytes have been all along.
 */
#define _GNU_SOURCE
#include "managed.h"
#include "spec.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct sim_region *sim_managed_regions;

/* Which page a block of a card was borrowed for: a block that was taken away and borrowed again is another's. */
static struct sim_page **borrowers[32];

static struct sim_page **borrower_of(struct sim_card *card, uint32_t block)
{
    struct sim_page ***of_card = &borrowers[sim_card_index(card)];
    if (!*of_card)
        *of_card = calloc(sim_card_total(card) >> SIM_BLOCK_SHIFT, sizeof **of_card);
    return *of_card ? &(*of_card)[block] : NULL;
}

static bool resident(struct sim_page *page)
{
    return page->card && *borrower_of(page->card, page->block) == page && sim_card_borrowed(page->card, page->block);
}

static void evict(struct sim_page *page)
{
    if (resident(page)) {
        *borrower_of(page->card, page->block) = NULL;
        sim_card_give(page->card, 1, &page->block);
    }
    page->card = NULL;
}

static bool settle(struct sim_page *page, struct sim_card *card)
{
    if (resident(page) && page->card == card)
        return true;
    evict(page);
    uint32_t block;
    if (!borrower_of(card, 0) || !sim_card_borrow(card, 1, &block))
        return false;
    *borrower_of(card, block) = page;
    *page = (struct sim_page){card, block};
    return true;
}

/* The pages of a part of a region: [first, last). */
static void pages_of(struct sim_region *region, uint64_t offset, uint64_t bytes, size_t *first, size_t *last)
{
    uint64_t end = bytes > region->bytes - offset ? region->bytes : offset + bytes;
    *first = (size_t)(offset >> SIM_BLOCK_SHIFT);
    *last = (size_t)sim_blocks_of(end);
}

void sim_managed_settle(struct sim_region *region, uint64_t offset, uint64_t bytes, struct sim_card *card)
{
    size_t at, last;
    pages_of(region, offset, bytes, &at, &last);
    while (!region->managed->owned && at < last && settle(&region->managed->pages[at], card))
        at++;
}

void sim_managed_evict(struct sim_region *region, uint64_t offset, uint64_t bytes)
{
    size_t at, last;
    pages_of(region, offset, bytes, &at, &last);
    for (; !region->managed->owned && at < last; at++)
        evict(&region->managed->pages[at]);
}

void sim_managed_touch(struct sim_region *region, uint64_t offset, uint64_t bytes, struct sim_context *context)
{
    const CUmemLocation *preferred = &region->managed->preferred;
    struct sim_card *card = context && context->alive ? context->card : region->card;
    if (preferred->type == CU_MEM_LOCATION_TYPE_DEVICE && sim_device_card(preferred->id) >= 0)
        card = sim_card((unsigned)sim_device_card(preferred->id));
    sim_managed_settle(region, offset, bytes, card);
}

/* Host memory that begins at a block boundary, as the page table of addresses wants it. */
static char *map_aligned(uint64_t span)
{
    if (span + SIM_BLOCK < span)
        return NULL;
    char *mapped = mmap(NULL, span + SIM_BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED)
        return NULL;
    char *base = (char *)(((uintptr_t)mapped + SIM_BLOCK - 1) & ~(uintptr_t)(SIM_BLOCK - 1));
    if (base > mapped)
        munmap(mapped, (size_t)(base - mapped));
    if (base < mapped + SIM_BLOCK)
        munmap(base + span, (size_t)(mapped + SIM_BLOCK - base));
    return base;
}

/* Without concurrent access the whole allocation is on the card from the start. */
static bool take_whole(struct sim_region *region)
{
    region->blocks = region->count <= sim_card_total(region->card) >> SIM_BLOCK_SHIFT
                         ? malloc(region->count * sizeof *region->blocks)
                         : NULL;
    if (region->blocks && sim_take_blocks(region->card, region->count, region->blocks))
        return true;
    free(region->blocks);
    return false;
}

CUresult sim_managed_alloc(struct sim_context *context, CUdeviceptr *ptr, size_t bytes, unsigned flags)
{
    uint64_t count = sim_blocks_of(bytes), span = count << SIM_BLOCK_SHIFT;
    struct sim_region *region = calloc(1, sizeof *region);
    struct sim_managed *managed = calloc(1, sizeof *managed);
    struct sim_page *pages = span ? calloc(count, sizeof *pages) : NULL;
    char *base = region && managed && pages ? map_aligned(span) : NULL;
    if (!base)
        goto no_memory;
    *managed = (struct sim_managed){
        .pages = pages, .count = count, .attach = flags, .owned = !sim_spec()->managed};
    *region = (struct sim_region){.next = sim_managed_regions,
                                  .kind = SIM_REGION_MANAGED,
                                  .base = (uintptr_t)base,
                                  .bytes = bytes,
                                  .span = span,
                                  .card = context->card,
                                  .device = context->device,
                                  .context = context,
                                  .count = count,
                                  .id = sim_next_id(),
                                  .managed = managed};
    if (managed->owned && !take_whole(region)) {
        munmap(base, span);
        goto no_memory;
    }
    if (sim_managed_regions)
        sim_managed_regions->prev = region;
    sim_managed_regions = region;
    sim_region_enter(region);
    sim_live++;
    *ptr = region->base;
    return CUDA_SUCCESS;
no_memory:
    free(pages);
    free(managed);
    free(region);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_managed_free(struct sim_region *region, uint64_t ptr)
{
    if (ptr != region->base)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < region->managed->count; i++)
        evict(&region->managed->pages[i]);
    if (region->managed->owned)
        sim_card_give(region->card, region->count, region->blocks);
    sim_region_remove(region);
    munmap((void *)(uintptr_t)region->base, region->span);
    if (region->prev)
        region->prev->next = region->next;
    else
        sim_managed_regions = region->next;
    if (region->next)
        region->next->prev = region->prev;
    free(region->managed->pages);
    free(region->managed);
    free(region->blocks);
    free(region);
    sim_live--;
    return CUDA_SUCCESS;
}

void sim_managed_context_gone(struct sim_context *context)
{
    for (struct sim_region *region = sim_managed_regions, *next; region; region = next) {
        next = region->next;
        if (region->context == context)
            (void)sim_managed_free(region, region->base);
    }
}
