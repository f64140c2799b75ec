/* Stream capture: beginning, ending, and the calls that break it. */
#include "stream.h"

#include <stdlib.h>

static struct sim_capture *captures;

/* Its address tells threads apart, its value is the mode that the thread's own calls are judged by. */
static __thread CUstreamCaptureMode thread_mode;

static bool prohibited(const struct sim_capture *capture)
{
    bool own = capture->thread == &thread_mode;
    switch (thread_mode) {
    case CU_STREAM_CAPTURE_MODE_GLOBAL:
        return own ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    case CU_STREAM_CAPTURE_MODE_THREAD_LOCAL:
        return own && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    default:
        return false;
    }
}

CUresult sim_capture_unsafe(void)
{
    CUresult result = CUDA_SUCCESS;
    for (struct sim_capture *capture = captures; capture; capture = capture->next) {
        if (!prohibited(capture))
            continue;
        capture->invalidated = true;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return result;
}

/* Work on the legacy stream would depend on every blocking stream, the captured ones too. */
static CUresult legacy_use(struct sim_context *context)
{
    CUresult result = CUDA_SUCCESS;
    for (struct sim_capture *capture = captures; capture; capture = capture->next) {
        struct sim_stream *origin = capture->origin;
        if (origin->context != context || (origin->flags & CU_STREAM_NON_BLOCKING))
            continue;
        capture->invalidated = true;
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    return result;
}

CUresult sim_work(CUstream handle, CUresult (*run)(const void *), const void *args, size_t size)
{
    struct sim_context *context;
    struct sim_stream *stream;
    CUresult result = sim_stream_object(handle, &context, &stream);
    if (result == CUDA_SUCCESS && !stream)
        result = legacy_use(context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!stream || !stream->capture)
        return run ? run(args) : CUDA_SUCCESS;
    if (stream->capture->invalidated)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    stream->work++;
    stream->unjoined = stream != stream->capture->origin;
    return sim_graph_add(stream->capture->graph, run, args, size) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool sim_stream_capturing(CUstream handle)
{
    struct sim_context *context;
    struct sim_stream *stream;
    return sim_stream_object(handle, &context, &stream) == CUDA_SUCCESS && stream && stream->capture;
}

CUgraph sim_stream_graph(CUstream handle)
{
    struct sim_context *context;
    struct sim_stream *stream;
    bool captured = sim_stream_object(handle, &context, &stream) == CUDA_SUCCESS && stream && stream->capture;
    return captured ? (CUgraph)stream->capture->graph : NULL;
}

struct sim_capture *sim_capture_of(unsigned long long id)
{
    struct sim_capture *capture = captures;
    while (capture && capture->id != id)
        capture = capture->next;
    return capture;
}

CUresult sim_capture_isolated(struct sim_stream *stream)
{
    stream->capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

void sim_capture_join(struct sim_stream *stream, struct sim_event *event, struct sim_capture *capture)
{
    for (struct sim_stream *member = capture->origin; member; member = member->next_in_capture) {
        if (member == event->stream && member != stream && member->work == event->work)
            member->unjoined = false;
    }
    if (stream->capture == capture)
        return;
    stream->capture = capture;
    stream->unjoined = true;
    stream->next_in_capture = capture->origin->next_in_capture;
    capture->origin->next_in_capture = stream;
}

void sim_capture_forget(struct sim_capture *capture)
{
    for (struct sim_stream *stream = capture->origin, *next; stream; stream = next) {
        next = stream->next_in_capture;
        stream->capture = NULL;
        stream->next_in_capture = NULL;
        stream->unjoined = false;
    }
    for (struct sim_capture **at = &captures; *at; at = &(*at)->next) {
        if (*at != capture)
            continue;
        *at = capture->next;
        break;
    }
    free(capture);
}

void sim_capture_stream_gone(struct sim_stream *stream)
{
    struct sim_capture *capture = stream->capture;
    if (!capture)
        return;
    if (capture->origin == stream) {
        sim_graph_free(capture->graph);
        sim_capture_forget(capture);
        return;
    }
    for (struct sim_stream *before = capture->origin; before; before = before->next_in_capture) {
        if (before->next_in_capture == stream)
            before->next_in_capture = stream->next_in_capture;
    }
    capture->invalidated = true;
}

static CUresult begin(CUstream handle, CUstreamCaptureMode mode)
{
    static unsigned long long last_id;
    struct sim_context *context;
    struct sim_stream *stream;
    CUresult result = sim_stream_object(handle, &context, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (!stream)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct sim_capture *capture = calloc(1, sizeof *capture);
    struct sim_graph *graph = capture ? sim_graph_new() : NULL;
    if (!graph) {
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *capture = (struct sim_capture){
        .next = captures, .id = ++last_id, .mode = mode, .thread = &thread_mode, .origin = stream, .graph = graph};
    captures = capture;
    stream->capture = capture;
    return CUDA_SUCCESS;
}

static CUresult end(CUstream handle, CUgraph *graph)
{
    struct sim_context *context;
    struct sim_stream *stream;
    CUresult result = sim_stream_object(handle, &context, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    if (!stream || !stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct sim_capture *capture = stream->capture;
    if (capture->origin != stream) {
        capture->invalidated = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != &thread_mode)
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    bool unjoined = false;
    for (struct sim_stream *member = stream->next_in_capture; member; member = member->next_in_capture)
        unjoined = unjoined || member->unjoined;
    if (capture->invalidated || unjoined) {
        result = capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        sim_graph_free(capture->graph);
        *graph = NULL;
    } else {
        *graph = (CUgraph)capture->graph;
        sim_handle_add(capture->graph, SIM_GRAPH);
    }
    sim_capture_forget(capture);
    return result;
}

static CUresult info(CUstream handle, CUstreamCaptureStatus *status, unsigned long long *id, CUgraph *graph,
                     const CUgraphNode **dependencies, const void **edges, size_t *count)
{
    struct sim_context *context;
    struct sim_stream *stream;
    CUresult result = sim_stream_object(handle, &context, &stream);
    if (result == CUDA_SUCCESS && !stream)
        result = legacy_use(context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_capture *capture = stream ? stream->capture : NULL;
    *status = !capture                ? CU_STREAM_CAPTURE_STATUS_NONE
              : capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                     : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (!capture || capture->invalidated)
        return CUDA_SUCCESS;
    if (id)
        *id = capture->id;
    if (graph)
        *graph = (CUgraph)capture->graph;
    if (dependencies)
        *dependencies = NULL;
    if (edges)
        *edges = NULL;
    if (count)
        *count = 0;
    return CUDA_SUCCESS;
}

static CUresult exchange_mode(CUstreamCaptureMode *mode)
{
    if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

SIM_EXPORT(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode), exchange_mode(mode))

#define BOTH(name, suffix, parameters, call, call_ptsz)                                                               \
    SIM_EXPORT(name##suffix, parameters, call)                                                                        \
    SIM_EXPORT(name##suffix##_ptsz, parameters, call_ptsz)

BOTH(cuStreamBeginCapture, , (CUstream stream), begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
     begin(sim_ptsz(stream), CU_STREAM_CAPTURE_MODE_GLOBAL))
BOTH(cuStreamBeginCapture, _v2, (CUstream stream, CUstreamCaptureMode mode), begin(stream, mode),
     begin(sim_ptsz(stream), mode))
BOTH(cuStreamEndCapture, , (CUstream stream, CUgraph *graph), end(stream, graph), end(sim_ptsz(stream), graph))
BOTH(cuStreamIsCapturing, , (CUstream stream, CUstreamCaptureStatus *status),
     info(stream, status, NULL, NULL, NULL, NULL, NULL), info(sim_ptsz(stream), status, NULL, NULL, NULL, NULL, NULL))
BOTH(cuStreamGetCaptureInfo, , (CUstream stream, CUstreamCaptureStatus *status, unsigned long long *id),
     info(stream, status, id, NULL, NULL, NULL, NULL), info(sim_ptsz(stream), status, id, NULL, NULL, NULL, NULL))
BOTH(cuStreamGetCaptureInfo, _v2,
     (CUstream stream, CUstreamCaptureStatus *status, unsigned long long *id, CUgraph *graph,
      const CUgraphNode **dependencies, size_t *count),
     info(stream, status, id, graph, dependencies, NULL, count),
     info(sim_ptsz(stream), status, id, graph, dependencies, NULL, count))
BOTH(cuStreamGetCaptureInfo, _v3,
     (CUstream stream, CUstreamCaptureStatus *status, unsigned long long *id, CUgraph *graph,
      const CUgraphNode **dependencies, const void **edges, size_t *count),
     info(stream, status, id, graph, dependencies, edges, count),
     info(sim_ptsz(stream), status, id, graph, dependencies, edges, count))
