/* Memory handles between processes, as cuIpc and exported pools give them: the blocks are shared, each process counts as a holder. */
#include "mem.h"

#include <stdlib.h>
#include <string.h>

#define IPC_MAGIC 0x6370496d6953ull

/* Without a gap, so that the same memory has the same bytes each time. */
struct ipc_memory {
    uint64_t magic;
    uint32_t card, unused;
    struct sim_share share;
    uint64_t offset, bytes; /* of the allocation in the shared blocks */
};
_Static_assert(sizeof(struct ipc_memory) <= sizeof(CUipcMemHandle), "a handle holds what names the memory");
_Static_assert(sizeof(CUmemPoolPtrExportData) == sizeof(CUipcMemHandle), "and so does what names memory of a pool");

static struct sim_region *imports;

/* What this process exported itself: those handles are refused here, as the driver does. */
static struct {
    uint32_t *generation; /* by object id */
    size_t count;
} exported[32];

static bool remember(unsigned card, const struct sim_share *share)
{
    if (share->id >= exported[card].count) {
        size_t count = share->id + 64;
        uint32_t *grown = realloc(exported[card].generation, count * sizeof *grown);
        if (!grown)
            return false;
        memset(grown + exported[card].count, 0, (count - exported[card].count) * sizeof *grown);
        exported[card].generation = grown;
        exported[card].count = count;
    }
    exported[card].generation[share->id] = share->generation;
    return true;
}

static bool own(unsigned card, const struct sim_share *share)
{
    return share->id < exported[card].count && exported[card].generation[share->id] == share->generation;
}

static bool may_be_shared(const struct sim_region *region, bool of_pool)
{
    if ((region->kind != SIM_REGION_PLAIN && region->kind != SIM_REGION_SLAB) || region->of_graph)
        return false;
    return of_pool ? region->heap->pool && sim_pool_is_exportable(region->heap->pool) : !region->heap->pool;
}

static CUresult get_handle(void *out, CUdeviceptr ptr, bool of_pool)
{
    struct sim_context *context;
    struct sim_allocation found;
    CUresult result = sim_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!out || !sim_allocation_at(ptr, &found))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_region *region = found.region;
    if (!may_be_shared(region, of_pool))
        return CUDA_ERROR_INVALID_VALUE;
    if (!region->shared) {
        if (!sim_share_create(region->card, region->count, region->blocks, &region->share))
            return CUDA_ERROR_OPERATING_SYSTEM;
        region->shared = true;
    }
    if (!remember(sim_card_index(region->card), &region->share))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct ipc_memory memory = {.magic = IPC_MAGIC,
                                .card = sim_card_index(region->card),
                                .share = region->share,
                                .offset = found.base - region->base,
                                .bytes = found.bytes};
    memset(out, 0, sizeof(CUipcMemHandle));
    memcpy(out, &memory, sizeof memory);
    return CUDA_SUCCESS;
}

static CUdevice device_of_card(unsigned card)
{
    for (CUdevice device = 0; device < sim_device_count(); device++) {
        if (sim_device_card(device) == (int)card)
            return device;
    }
    return CU_DEVICE_INVALID;
}

static struct sim_region *import(struct sim_context *context, const struct ipc_memory *memory, bool of_pool)
{
    CUdevice device = device_of_card(memory->card);
    struct sim_card *card = sim_card(memory->card);
    struct sim_region *region = calloc(1, sizeof *region);
    uint32_t *blocks = memory->share.count ? malloc(memory->share.count * sizeof *blocks) : NULL;
    uint64_t span = memory->share.count << SIM_BLOCK_SHIFT;
    uint64_t base = region && blocks && device >= 0 ? sim_va_take(SIM_RANGE_CARD + memory->card, span, SIM_BLOCK) : 0;
    if (!base || !sim_share_join(card, &memory->share, blocks)) {
        if (base)
            sim_va_give(SIM_RANGE_CARD + memory->card, base, span);
        free(region);
        free(blocks);
        return NULL;
    }
    *region = (struct sim_region){.next = imports,
                                  .kind = SIM_REGION_IMPORT,
                                  .base = base,
                                  .bytes = span,
                                  .span = span,
                                  .range = SIM_RANGE_CARD + memory->card,
                                  .card = card,
                                  .device = device,
                                  .context = context,
                                  .blocks = blocks,
                                  .count = memory->share.count,
                                  .id = sim_next_id(),
                                  .shared = true,
                                  .of_pool = of_pool,
                                  .share = memory->share};
    if (imports)
        imports->prev = region;
    imports = region;
    sim_region_enter(region);
    return region;
}

static void forget(struct sim_region *region)
{
    bool elsewhere = false;
    for (struct sim_region *other = imports; other; other = other->next)
        elsewhere = elsewhere || (other != region && other->card == region->card && other->share.id == region->share.id);
    /* Several contexts of a process may have it open: the process is one holder. */
    if (!elsewhere)
        sim_share_leave(region->card, &region->share);
    sim_region_remove(region);
    sim_va_give(region->range, region->base, region->span);
    if (region->prev)
        region->prev->next = region->next;
    else
        imports = region->next;
    if (region->next)
        region->next->prev = region->prev;
    free(region->blocks);
    free(region);
}

static CUresult open_handle(CUdeviceptr *out, const void *handle, unsigned flags, bool of_pool)
{
    struct sim_context *context;
    struct ipc_memory memory;
    CUresult result = sim_current(&context);
    if (result == CUDA_SUCCESS)
        result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    memcpy(&memory, handle, sizeof memory);
    if (!out || (flags & ~(unsigned)CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) || memory.magic != IPC_MAGIC ||
        memory.card >= 32 || device_of_card(memory.card) < 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (own(memory.card, &memory.share))
        return CUDA_ERROR_INVALID_CONTEXT;
    struct sim_region *region = imports;
    while (region && (region->context != context || region->card != sim_card(memory.card) ||
                      region->share.id != memory.share.id || region->share.generation != memory.share.generation ||
                      region->of_pool != of_pool))
        region = region->next;
    if (!region && !(region = import(context, &memory, of_pool)))
        return CUDA_ERROR_MAP_FAILED;
    region->opened++;
    *out = region->base + memory.offset;
    return CUDA_SUCCESS;
}

static CUresult close_handle(CUdeviceptr ptr)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result == CUDA_SUCCESS)
        result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_region *region = sim_region_at(ptr);
    if (!region || region->kind != SIM_REGION_IMPORT || region->of_pool)
        return CUDA_ERROR_INVALID_VALUE;
    if (!--region->opened)
        forget(region);
    return CUDA_SUCCESS;
}

bool sim_import_release(struct sim_region *region, uint64_t ptr)
{
    if (!region->of_pool || ptr - region->base >= region->span)
        return false;
    if (!--region->opened)
        forget(region);
    return true;
}

void sim_imports_context_gone(struct sim_context *context)
{
    for (struct sim_region *region = imports, *next; region; region = next) {
        next = region->next;
        if (region->context == context)
            forget(region);
    }
}

SIM_EXPORT(cuIpcGetMemHandle, (CUipcMemHandle * out, CUdeviceptr ptr), get_handle(out, ptr, false))
SIM_EXPORT(cuIpcOpenMemHandle, (CUdeviceptr * out, CUipcMemHandle handle, unsigned flags),
           open_handle(out, &handle, flags, false))
SIM_EXPORT(cuIpcOpenMemHandle_v2, (CUdeviceptr * out, CUipcMemHandle handle, unsigned flags),
           open_handle(out, &handle, flags, false))
SIM_EXPORT(cuIpcCloseMemHandle, (CUdeviceptr ptr), close_handle(ptr))
SIM_EXPORT(cuMemPoolExportPointer, (CUmemPoolPtrExportData * out, CUdeviceptr ptr), get_handle(out, ptr, true))
SIM_EXPORT(cuMemPoolImportPointer, (CUdeviceptr * out, CUmemoryPool pool, CUmemPoolPtrExportData *data),
           sim_pool_is_imported(pool) && data ? open_handle(out, data, 0, true) : CUDA_ERROR_INVALID_VALUE)
