/* Streams. Work is done by the time the call that gave it returns, so that there is never anything to wait for. */
#include "stream.h"

#include <stdlib.h>

static unsigned long long last_id = 2;

struct sim_stream *sim_thread_stream(void)
{
    static __thread struct sim_stream own;
    if (!own.id)
        own.id = 2;
    return &own;
}

CUresult sim_stream_object(CUstream handle, struct sim_context **context, struct sim_stream **stream)
{
    *stream = NULL;
    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        if (handle == CU_STREAM_PER_THREAD)
            *stream = sim_thread_stream();
        return sim_current(context);
    }
    if (!sim_handle_is(handle, SIM_STREAM))
        return CUDA_ERROR_INVALID_HANDLE;
    *stream = (struct sim_stream *)handle;
    *context = (*stream)->context;
    return (*stream)->green && !(*stream)->green->alive ? CUDA_ERROR_STREAM_DETACHED : CUDA_SUCCESS;
}

CUresult sim_stream_check(CUstream handle)
{
    struct sim_context *context;
    struct sim_stream *stream;
    return sim_stream_object(handle, &context, &stream);
}

CUresult sim_stream_context(CUstream handle, struct sim_context **context)
{
    struct sim_stream *stream;
    return sim_stream_object(handle, context, &stream);
}

static void destroy_resource(struct sim_resource *resource)
{
    struct sim_stream *stream = (struct sim_stream *)resource;
    sim_capture_stream_gone(stream);
    sim_handle_drop(stream);
    free(stream);
}

CUresult sim_stream_new(CUstream *out, struct sim_context *context, struct sim_context *green, unsigned flags,
                        int priority)
{
    if (!out || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stream->context = context;
    stream->green = green;
    stream->flags = flags;
    stream->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    stream->id = ++last_id;
    stream->resource.destroy = destroy_resource;
    sim_resource_add(context, &stream->resource);
    sim_handle_add(stream, SIM_STREAM);
    *out = (CUstream)stream;
    return CUDA_SUCCESS;
}

static CUresult create(CUstream *out, unsigned flags, int priority)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    return result == CUDA_SUCCESS ? sim_stream_new(out, context, sim_current_green(), flags, priority) : result;
}

static CUresult destroy(CUstream handle)
{
    if (!sim_handle_is(handle, SIM_STREAM))
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_stream *stream = (struct sim_stream *)handle;
    sim_resource_remove(&stream->resource);
    stream->resource.destroy(&stream->resource);
    return CUDA_SUCCESS;
}

/* Waiting for a stream, or asking whether there is anything to wait for. */
static CUresult synchronize(CUstream handle, bool settle)
{
    struct sim_context *context;
    struct sim_stream *stream;
    CUresult result = sim_stream_object(handle, &context, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (stream && stream->capture) {
        bool before = stream->capture->invalidated;
        stream->capture->invalidated = true;
        return before ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (settle) {
        result = sim_capture_unsafe();
        if (result == CUDA_SUCCESS)
            sim_pools_settle(context->card);
    }
    return result == CUDA_SUCCESS && !sim_sparse_is_done(sim_sparse_given()) ? CUDA_ERROR_NOT_READY : result;
}

/* The green context of a stream: that of the thread for the streams that have none of their own. */
static struct sim_context *green_of(const struct sim_stream *stream)
{
    return stream && stream->context ? stream->green : sim_current_green();
}

enum property { FLAGS, PRIORITY, ID, DEVICE, CONTEXT };

static CUresult get(CUstream handle, enum property property, void *out)
{
    struct sim_context *context;
    struct sim_stream *stream;
    CUresult result = sim_stream_object(handle, &context, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    switch (property) {
    case FLAGS:
        *(unsigned *)out = stream ? stream->flags : 0;
        break;
    case PRIORITY:
        *(int *)out = stream ? stream->priority : 0;
        break;
    case ID:
        *(unsigned long long *)out = stream ? stream->id : 1;
        break;
    case DEVICE:
        *(CUdevice *)out = context->device;
        break;
    case CONTEXT:
        *(CUcontext *)out = (CUcontext)(green_of(stream) ? green_of(stream) : context);
        break;
    }
    return CUDA_SUCCESS;
}

/* A green context and the context that stands for it have one handle. */
static CUresult get_green(CUstream handle, CUgreenCtx *green)
{
    struct sim_context *context;
    struct sim_stream *stream;
    CUresult result = sim_stream_object(handle, &context, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!green)
        return CUDA_ERROR_INVALID_VALUE;
    *green = (CUgreenCtx)green_of(stream);
    return CUDA_SUCCESS;
}

static CUresult get_context_v2(CUstream handle, CUcontext *out, CUgreenCtx *green)
{
    struct sim_context *context;
    struct sim_stream *stream;
    CUresult result = sim_stream_object(handle, &context, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUcontext)context;
    return green ? get_green(handle, green) : CUDA_SUCCESS;
}

/* ---- functions of the host in stream order --------------------------------------------------------- */

struct host_call {
    CUhostFn function;
    CUstreamCallback callback;
    CUstream stream;
    void *data;
};

/* The program's function may call what it likes: the lock is let go around it. */
static CUresult call_host(const void *args)
{
    struct host_call call = *(const struct host_call *)args;
    sim_unlock();
    if (call.function)
        call.function(call.data);
    else
        call.callback(call.stream, CUDA_SUCCESS, call.data);
    sim_lock();
    return CUDA_SUCCESS;
}

static CUresult launch_host(CUstream stream, CUhostFn function, void *data)
{
    struct host_call call = {.function = function, .stream = stream, .data = data};
    return function ? sim_work(stream, call_host, &call, sizeof call) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult add_callback(CUstream stream, CUstreamCallback callback, void *data, unsigned flags)
{
    struct host_call call = {.callback = callback, .stream = stream, .data = data};
    if (!callback || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_stream_capturing(stream))
        return synchronize(stream, false);
    return sim_work(stream, call_host, &call, sizeof call);
}

static CUresult attach(CUstream stream, CUdeviceptr ptr, size_t bytes, unsigned flags)
{
    struct sim_allocation allocation;
    CUresult result = sim_stream_check(stream);
    if (result != CUDA_SUCCESS)
        return result;
    if ((flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE) ||
        !sim_allocation_at(ptr, &allocation) || allocation.region->kind != SIM_REGION_MANAGED ||
        (bytes && (ptr != allocation.base || bytes != allocation.bytes)))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static CUresult copy_attributes(CUstream to, CUstream from)
{
    CUresult result = sim_stream_check(to);
    return result == CUDA_SUCCESS ? sim_stream_check(from) : result;
}

SIM_EXPORT(cuStreamCreate, (CUstream * out, unsigned flags), create(out, flags, 0))
SIM_EXPORT(cuStreamCreateWithPriority, (CUstream * out, unsigned flags, int priority), create(out, flags, priority))
SIM_EXPORT(cuStreamDestroy, (CUstream stream), destroy(stream))
SIM_EXPORT(cuStreamDestroy_v2, (CUstream stream), destroy(stream))

#define BOTH(name, parameters, call, call_ptsz)                                                                       \
    SIM_EXPORT(name, parameters, call)                                                                                \
    SIM_EXPORT(name##_ptsz, parameters, call_ptsz)

BOTH(cuStreamQuery, (CUstream stream), synchronize(stream, false), synchronize(sim_ptsz(stream), false))
BOTH(cuStreamSynchronize, (CUstream stream), synchronize(stream, true), synchronize(sim_ptsz(stream), true))
BOTH(cuStreamGetFlags, (CUstream stream, unsigned *out), get(stream, FLAGS, out), get(sim_ptsz(stream), FLAGS, out))
BOTH(cuStreamGetPriority, (CUstream stream, int *out), get(stream, PRIORITY, out),
     get(sim_ptsz(stream), PRIORITY, out))
BOTH(cuStreamGetId, (CUstream stream, unsigned long long *out), get(stream, ID, out), get(sim_ptsz(stream), ID, out))
BOTH(cuStreamGetDevice, (CUstream stream, CUdevice *out), get(stream, DEVICE, out), get(sim_ptsz(stream), DEVICE, out))
BOTH(cuStreamGetCtx, (CUstream stream, CUcontext *out), get(stream, CONTEXT, out), get(sim_ptsz(stream), CONTEXT, out))
BOTH(cuStreamGetCtx_v2, (CUstream stream, CUcontext *out, CUgreenCtx *green), get_context_v2(stream, out, green),
     get_context_v2(sim_ptsz(stream), out, green))
SIM_EXPORT(cuStreamGetGreenCtx, (CUstream stream, CUgreenCtx *green), get_green(stream, green))
BOTH(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data), launch_host(stream, function, data),
     launch_host(sim_ptsz(stream), function, data))
BOTH(cuStreamAddCallback, (CUstream stream, CUstreamCallback callback, void *data, unsigned flags),
     add_callback(stream, callback, data, flags), add_callback(sim_ptsz(stream), callback, data, flags))
BOTH(cuStreamAttachMemAsync, (CUstream stream, CUdeviceptr ptr, size_t bytes, unsigned flags),
     attach(stream, ptr, bytes, flags), attach(sim_ptsz(stream), ptr, bytes, flags))
BOTH(cuStreamCopyAttributes, (CUstream to, CUstream from), copy_attributes(to, from),
     copy_attributes(sim_ptsz(to), sim_ptsz(from)))
