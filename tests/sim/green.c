/*
 * Green contexts: a share of a device's multiprocessors, to be named in the place of the device's primary context, which each
 * of them retains. Memory, streams and modules made in one are the primary context's, and outlive it. One takes nothing here.
 */
#include "stream.h"

#include <stdlib.h>
#include <string.h>

enum { MULTIPROCESSORS = 108, SMALLEST_SHARE = 4, ALIGNMENT = 2 };

struct desc {
    unsigned multiprocessors;
};

/* A context with a base. Its handle is that of the context which stands for it, too. Never freed: sim_context says why. */
struct green {
    struct sim_context context;
    unsigned multiprocessors;
};

static struct green *green_of(CUgreenCtx handle)
{
    return sim_handle_is(handle, SIM_CONTEXT) && ((struct sim_context *)handle)->base ? (struct green *)handle : NULL;
}

static CUresult describe(CUdevResource *out, CUdevResourceType type, unsigned multiprocessors)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    memset(out, 0, sizeof *out);
    out->type = type;
    out->sm.smCount = multiprocessors;
    out->sm.minSmPartitionSize = SMALLEST_SHARE;
    out->sm.smCoscheduledAlignment = ALIGNMENT;
    return CUDA_SUCCESS;
}

static CUresult of_device(CUdevice device, CUdevResource *out, CUdevResourceType type)
{
    return sim_device_card(device) < 0 ? CUDA_ERROR_INVALID_DEVICE : describe(out, type, MULTIPROCESSORS);
}

static CUresult of_green(CUgreenCtx handle, CUdevResource *out, CUdevResourceType type)
{
    struct green *green = green_of(handle);
    if (!green)
        return CUDA_ERROR_INVALID_CONTEXT;
    return green->context.alive ? describe(out, type, green->multiprocessors) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static CUresult of_context(CUcontext handle, CUdevResource *out, CUdevResourceType type)
{
    if (green_of((CUgreenCtx)handle))
        return of_green((CUgreenCtx)handle, out, type);
    return sim_context_of(handle) ? describe(out, type, MULTIPROCESSORS) : CUDA_ERROR_INVALID_CONTEXT;
}

static bool is_share(const CUdevResource *resource)
{
    return resource && resource->type == CU_DEV_RESOURCE_TYPE_SM && resource->sm.smCount;
}

static CUresult split(CUdevResource *out, unsigned *count, const CUdevResource *input, CUdevResource *rest,
                      unsigned least)
{
    if (!count || !is_share(input) || least > input->sm.smCount)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned share = least < SMALLEST_SHARE ? SMALLEST_SHARE : (least + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    unsigned most = input->sm.smCount / share, made = out && *count < most ? *count : most;
    if (!made)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    unsigned left = input->sm.smCount - made * share;
    for (unsigned i = 0; out && i < made; i++)
        describe(&out[i], CU_DEV_RESOURCE_TYPE_SM, share);
    if (out && rest)
        describe(rest, CU_DEV_RESOURCE_TYPE_SM, left);
    if (out && rest && !left)
        rest->type = CU_DEV_RESOURCE_TYPE_INVALID;
    *count = made;
    return CUDA_SUCCESS;
}

static CUresult generate(CUdevResourceDesc *out, const CUdevResource *resources, unsigned count)
{
    if (!out || !resources || !count)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned multiprocessors = 0;
    for (unsigned i = 0; i < count; i++) {
        if (!is_share(&resources[i]))
            return CUDA_ERROR_INVALID_RESOURCE_TYPE;
        multiprocessors += resources[i].sm.smCount;
    }
    struct desc *desc = malloc(sizeof *desc); /* the interface has no end for it */
    if (!desc)
        return CUDA_ERROR_OUT_OF_MEMORY;
    desc->multiprocessors = multiprocessors;
    sim_handle_add(desc, SIM_RESOURCE_DESC);
    *out = (CUdevResourceDesc)desc;
    return CUDA_SUCCESS;
}

static CUresult create(CUgreenCtx *out, CUdevResourceDesc desc, CUdevice device, unsigned flags)
{
    CUcontext primary;
    if (!out || !sim_handle_is(desc, SIM_RESOURCE_DESC) || (flags & ~(unsigned)CU_GREEN_CTX_DEFAULT_STREAM))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_primary_retain(&primary, device);
    if (result != CUDA_SUCCESS)
        return result;
    struct green *green = calloc(1, sizeof *green);
    if (!green) {
        sim_primary_release(device);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    static unsigned long long last_id = 1ull << 32;
    green->context = (struct sim_context){
        .base = sim_context_of(primary), .device = device, .alive = true, .id = ++last_id};
    green->multiprocessors = ((const struct desc *)desc)->multiprocessors;
    sim_handle_add(green, SIM_CONTEXT);
    *out = (CUgreenCtx)green;
    return CUDA_SUCCESS;
}

static CUresult destroy(CUgreenCtx handle)
{
    struct green *green = green_of(handle);
    if (!green)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!green->context.alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    green->context.alive = false;
    return sim_primary_release(green->context.device);
}

static CUresult usable(CUgreenCtx handle, struct green **green)
{
    *green = green_of(handle);
    if (!*green)
        return CUDA_ERROR_INVALID_CONTEXT;
    return (*green)->context.alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static CUresult stand_in(CUcontext *out, CUgreenCtx handle)
{
    struct green *green;
    CUresult result = usable(handle, &green);
    if (result == CUDA_SUCCESS && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *out = (CUcontext)green;
    return result;
}

static CUresult get_id(CUgreenCtx handle, unsigned long long *id)
{
    struct green *green;
    CUresult result = usable(handle, &green);
    if (result == CUDA_SUCCESS && !id)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *id = green->context.id;
    return result;
}

static CUresult create_stream(CUstream *out, CUgreenCtx handle, unsigned flags, int priority)
{
    struct green *green;
    CUresult result = usable(handle, &green);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    if (!green->context.base->alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return sim_stream_new(out, green->context.base, &green->context, flags, priority);
}

/* All work is done when its call returns. */
static CUresult event(CUgreenCtx handle, CUevent event)
{
    struct green *green;
    CUresult result = usable(handle, &green);
    return result == CUDA_SUCCESS && !sim_handle_is(event, SIM_EVENT) ? CUDA_ERROR_INVALID_HANDLE : result;
}

SIM_EXPORT(cuDeviceGetDevResource, (CUdevice device, CUdevResource *out, CUdevResourceType type),
           of_device(device, out, type))
SIM_EXPORT(cuCtxGetDevResource, (CUcontext context, CUdevResource *out, CUdevResourceType type),
           of_context(context, out, type))
SIM_EXPORT(cuGreenCtxGetDevResource, (CUgreenCtx green, CUdevResource *out, CUdevResourceType type),
           of_green(green, out, type))
SIM_API CUresult cuDevSmResourceSplitByCount(CUdevResource *out, unsigned *count, const CUdevResource *input,
                                             CUdevResource *rest, unsigned flags, unsigned least)
{
    SIM_ENTER(cuDevSmResourceSplitByCount);
    return flags > 3 ? CUDA_ERROR_INVALID_VALUE : split(out, count, input, rest, least);
}
SIM_EXPORT(cuDevResourceGenerateDesc, (CUdevResourceDesc * out, CUdevResource *resources, unsigned count),
           generate(out, resources, count))
SIM_EXPORT_ALLOC(cuGreenCtxCreate, (CUgreenCtx * out, CUdevResourceDesc desc, CUdevice device, unsigned flags),
                 create(out, desc, device, flags))
SIM_EXPORT(cuGreenCtxDestroy, (CUgreenCtx green), destroy(green))
SIM_EXPORT(cuCtxFromGreenCtx, (CUcontext * out, CUgreenCtx green), stand_in(out, green))
SIM_EXPORT(cuGreenCtxGetId, (CUgreenCtx green, unsigned long long *id), get_id(green, id))
SIM_EXPORT(cuGreenCtxStreamCreate, (CUstream * out, CUgreenCtx green, unsigned flags, int priority),
           create_stream(out, green, flags, priority))
SIM_EXPORT(cuGreenCtxRecordEvent, (CUgreenCtx green, CUevent at), event(green, at))
SIM_EXPORT(cuGreenCtxWaitEvent, (CUgreenCtx green, CUevent at), event(green, at))
