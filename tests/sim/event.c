/* Events: points in time, and how streams join a capture. */
#define _GNU_SOURCE
#include "stream.h"

#include <stdlib.h>
#include <time.h>

enum { EVENT_FLAGS = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS };

static unsigned long long now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (unsigned long long)ts.tv_sec * 1000000000ull + (unsigned long long)ts.tv_nsec;
}

static struct sim_event *event_of(CUevent handle)
{
    return sim_handle_is(handle, SIM_EVENT) ? (struct sim_event *)handle : NULL;
}

static void destroy_resource(struct sim_resource *resource)
{
    sim_handle_drop(resource);
    free(resource);
}

static CUresult create(CUevent *out, unsigned flags)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!out || (flags & ~(unsigned)EVENT_FLAGS) ||
        ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_event *event = calloc(1, sizeof *event);
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->context = context;
    event->flags = flags;
    event->resource.destroy = destroy_resource;
    sim_resource_add(context, &event->resource);
    sim_handle_add(event, SIM_EVENT);
    *out = (CUevent)event;
    return CUDA_SUCCESS;
}

static CUresult destroy(CUevent handle)
{
    struct sim_event *event = event_of(handle);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_resource_remove(&event->resource);
    destroy_resource(&event->resource);
    return CUDA_SUCCESS;
}

static CUresult record(CUevent handle, CUstream stream_handle, unsigned flags)
{
    struct sim_context *context;
    struct sim_stream *stream;
    struct sim_event *event = event_of(handle);
    CUresult result = sim_stream_object(stream_handle, &context, &stream);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    if (result != CUDA_SUCCESS)
        return result;
    if (context != event->context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_work(stream_handle, NULL, NULL, 0);
    if (result != CUDA_SUCCESS)
        return result;
    event->capture_id = stream && stream->capture ? stream->capture->id : 0;
    event->stream = event->capture_id ? stream : NULL;
    event->work = stream ? stream->work : 0;
    event->ticket = sim_sparse_given();
    if (!event->capture_id) {
        event->recorded = true;
        event->when = now();
    }
    return CUDA_SUCCESS;
}

/* Whether a capture that the event was recorded in is still going on: such an event has no time. */
static CUresult not_captured(struct sim_event *event)
{
    struct sim_capture *capture = event->capture_id ? sim_capture_of(event->capture_id) : NULL;
    if (!capture)
        return CUDA_SUCCESS;
    capture->invalidated = true;
    return CUDA_ERROR_CAPTURED_EVENT;
}

static CUresult query(CUevent handle, bool synchronize)
{
    struct sim_event *event = event_of(handle);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = not_captured(event);
    if (result == CUDA_SUCCESS && synchronize) {
        result = sim_capture_unsafe();
        if (result == CUDA_SUCCESS)
            sim_pools_settle(event->context->card);
    }
    return result == CUDA_SUCCESS && !sim_sparse_is_done(event->ticket) ? CUDA_ERROR_NOT_READY : result;
}

static CUresult elapsed(float *milliseconds, CUevent start_handle, CUevent end_handle)
{
    struct sim_event *start = event_of(start_handle), *end = event_of(end_handle);
    if (!milliseconds)
        return CUDA_ERROR_INVALID_VALUE;
    if (!start || !end || !start->recorded || !end->recorded || ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_HANDLE;
    *milliseconds = (float)((double)(long long)(end->when - start->when) / 1e6);
    return CUDA_SUCCESS;
}

static CUresult wait_event(CUstream stream_handle, CUevent handle, unsigned flags)
{
    struct sim_context *context;
    struct sim_stream *stream;
    struct sim_event *event = event_of(handle);
    CUresult result = sim_stream_object(stream_handle, &context, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    if (flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_capture *capture = event->capture_id ? sim_capture_of(event->capture_id) : NULL;
    if (!capture)
        return stream && stream->capture && event->recorded ? sim_capture_isolated(stream) : CUDA_SUCCESS;
    if (!stream)
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (stream->capture && stream->capture != capture) {
        stream->capture->invalidated = capture->invalidated = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    sim_capture_join(stream, event, capture);
    return CUDA_SUCCESS;
}

SIM_EXPORT(cuEventCreate, (CUevent * out, unsigned flags), create(out, flags))
SIM_EXPORT(cuEventDestroy, (CUevent event), destroy(event))
SIM_EXPORT(cuEventDestroy_v2, (CUevent event), destroy(event))
SIM_EXPORT(cuEventQuery, (CUevent event), query(event, false))
SIM_EXPORT(cuEventSynchronize, (CUevent event), query(event, true))
SIM_EXPORT(cuEventElapsedTime, (float *ms, CUevent start, CUevent end), elapsed(ms, start, end))
SIM_EXPORT(cuEventElapsedTime_v2, (float *ms, CUevent start, CUevent end), elapsed(ms, start, end))
SIM_EXPORT(cuEventRecord, (CUevent event, CUstream stream), record(event, stream, 0))
SIM_EXPORT(cuEventRecord_ptsz, (CUevent event, CUstream stream), record(event, sim_ptsz(stream), 0))
SIM_EXPORT(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags), record(event, stream, flags))
SIM_EXPORT(cuEventRecordWithFlags_ptsz, (CUevent event, CUstream stream, unsigned flags),
           record(event, sim_ptsz(stream), flags))
SIM_EXPORT(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags), wait_event(stream, event, flags))
SIM_EXPORT(cuStreamWaitEvent_ptsz, (CUstream stream, CUevent event, unsigned flags),
           wait_event(sim_ptsz(stream), event, flags))
