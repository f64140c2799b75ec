/* What a context answers about itself, its limits, and peer access. */
#include "mem.h"

#include <stdlib.h>

/* `handle`, or the current context for NULL. */
static CUresult context_or_current(CUcontext handle, struct sim_context **context)
{
    if (!handle)
        return sim_current(context);
    *context = sim_context_of(handle);
    if (!*context)
        return CUDA_ERROR_INVALID_CONTEXT;
    return (*context)->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static CUresult get_device(CUdevice *device, CUcontext handle)
{
    struct sim_context *context;
    CUresult result = context_or_current(handle, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = context->device;
    return CUDA_SUCCESS;
}

static CUresult synchronize(CUcontext handle)
{
    struct sim_context *context;
    CUresult result = context_or_current(handle, &context);
    if (result == CUDA_SUCCESS)
        result = sim_capture_unsafe();
    if (result == CUDA_SUCCESS)
        sim_pools_settle(context->card);
    return result;
}

static CUresult get_api_version(CUcontext handle, unsigned *version)
{
    struct sim_context *context;
    CUresult result = context_or_current(handle, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = context->api_version;
    return CUDA_SUCCESS;
}

static CUresult get_flags(unsigned *flags)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = context->flags;
    return CUDA_SUCCESS;
}

static CUresult set_flags(unsigned flags)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    context->flags = flags;
    return CUDA_SUCCESS;
}

static CUresult get_id(CUcontext handle, unsigned long long *id)
{
    struct sim_context *context;
    CUresult result = context_or_current(handle, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    *id = context->id;
    return CUDA_SUCCESS;
}

static CUresult get_limit(size_t *value, CUlimit limit)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if ((unsigned)limit >= CU_LIMIT_COUNT)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = context->limits[limit];
    return CUDA_SUCCESS;
}

/* Stacks for all threads that fit on the card at once, the printf buffer, the heap: beyond the defaults they take memory
 * when they are set. */
static CUresult back_limit(struct sim_context *context, CUlimit limit, size_t value)
{
    static const size_t defaults[3] = {1024, 1 << 20, 8 << 20}, times[3] = {108 * 2048, 1, 1};
    size_t extra = value > defaults[limit] ? value - defaults[limit] : 0;
    if (extra > SIZE_MAX / times[limit] / 2)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t count = sim_blocks_of(extra * times[limit]), now = context->limit_counts[limit];
    if (count > now) {
        if (count > sim_card_total(context->card) >> SIM_BLOCK_SHIFT)
            return CUDA_ERROR_OUT_OF_MEMORY;
        uint32_t *grown = realloc(context->limit_blocks[limit], count * sizeof *grown);
        if (!grown)
            return CUDA_ERROR_OUT_OF_MEMORY;
        context->limit_blocks[limit] = grown;
        if (!sim_take_blocks(context->card, count - now, grown + now))
            return CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        sim_card_give(context->card, now - count, context->limit_blocks[limit] + count);
    }
    context->limit_counts[limit] = count;
    return CUDA_SUCCESS;
}

static CUresult set_limit(CUlimit limit, size_t value)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if ((unsigned)limit >= CU_LIMIT_COUNT)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    if (limit <= CU_LIMIT_MALLOC_HEAP_SIZE)
        result = back_limit(context, limit, value);
    if (result == CUDA_SUCCESS)
        context->limits[limit] = value;
    return result;
}

enum config { CACHE, SHARED };

static CUresult get_config(enum config which, int *value)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    *value = which == CACHE ? context->cache_config : context->shared_config;
    return CUDA_SUCCESS;
}

static CUresult set_config(enum config which, int value)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (value < 0 || value > 3)
        return CUDA_ERROR_INVALID_VALUE;
    *(which == CACHE ? &context->cache_config : &context->shared_config) = value;
    return CUDA_SUCCESS;
}

static CUresult priority_range(int *least, int *greatest)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

static CUresult needs_current(void)
{
    struct sim_context *context;
    return sim_current(&context);
}

static CUresult enable_peer(CUcontext handle, unsigned flags)
{
    struct sim_context *context, *peer = sim_context_of(handle);
    CUresult result = sim_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!peer || !peer->alive || peer == context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (peer->card_index == context->card_index)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (context->peers >> peer->card_index & 1)
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    context->peers |= (uint64_t)1 << peer->card_index;
    return CUDA_SUCCESS;
}

static CUresult disable_peer(CUcontext handle)
{
    struct sim_context *context, *peer = sim_context_of(handle);
    CUresult result = sim_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!peer)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!(context->peers >> peer->card_index & 1))
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    context->peers &= ~((uint64_t)1 << peer->card_index);
    return CUDA_SUCCESS;
}

SIM_EXPORT(cuCtxGetDevice, (CUdevice * device), get_device(device, NULL))
SIM_EXPORT(cuCtxGetDevice_v2, (CUdevice * device, CUcontext context), get_device(device, context))
SIM_EXPORT(cuCtxSynchronize, (void), synchronize(NULL))
SIM_EXPORT(cuCtxSynchronize_v2, (CUcontext context), synchronize(context))
SIM_EXPORT(cuCtxGetApiVersion, (CUcontext context, unsigned *version), get_api_version(context, version))
SIM_EXPORT(cuCtxGetFlags, (unsigned *flags), get_flags(flags))
SIM_EXPORT(cuCtxSetFlags, (unsigned flags), set_flags(flags))
SIM_EXPORT(cuCtxGetId, (CUcontext context, unsigned long long *id), get_id(context, id))
SIM_EXPORT(cuCtxGetLimit, (size_t * value, CUlimit limit), get_limit(value, limit))
SIM_EXPORT(cuCtxSetLimit, (CUlimit limit, size_t value), set_limit(limit, value))
SIM_EXPORT(cuCtxGetCacheConfig, (int *value), get_config(CACHE, value))
SIM_EXPORT(cuCtxSetCacheConfig, (int value), set_config(CACHE, value))
SIM_EXPORT(cuCtxGetSharedMemConfig, (int *value), get_config(SHARED, value))
SIM_EXPORT(cuCtxSetSharedMemConfig, (int value), set_config(SHARED, value))
SIM_EXPORT(cuCtxGetStreamPriorityRange, (int *least, int *greatest), priority_range(least, greatest))
SIM_EXPORT(cuCtxResetPersistingL2Cache, (void), needs_current())
SIM_EXPORT(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags), enable_peer(peer, flags))
SIM_EXPORT(cuCtxDisablePeerAccess, (CUcontext peer), disable_peer(peer))
