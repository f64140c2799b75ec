/* Streams, events and captures among their own files: stream.c, capture.c, event.c, graph.c. */
#ifndef SIM_STREAM_H
#define SIM_STREAM_H

#include "mem.h"

struct sim_graph;

/* A capture in progress: one origin stream and those that joined it through events. */
struct sim_capture {
    struct sim_capture *next;
    unsigned long long id;
    CUstreamCaptureMode mode;
    const void *thread; /* identifies the thread that began it */
    bool invalidated;
    struct sim_stream *origin;
    struct sim_graph *graph;
};

struct sim_stream {
    struct sim_resource resource; /* of its context; unused in a per-thread stream */
    struct sim_context *context;  /* NULL in a per-thread stream: whichever is current */
    struct sim_context *green;    /* the green context it was made in, or NULL */
    unsigned flags;
    int priority;
    unsigned long long id;
    struct sim_capture *capture;
    unsigned long long work; /* counts what it was given */
    bool unjoined;           /* captured work that the origin does not depend on yet */
    struct sim_stream *next_in_capture;
};

struct sim_event {
    struct sim_resource resource;
    struct sim_context *context;
    unsigned flags;
    bool recorded;
    unsigned long long when; /* ns */
    unsigned long long ticket; /* of what streams had been given then */
    unsigned long long capture_id; /* of the capture it was recorded in; 0: none */
    struct sim_stream *stream; /* captured: where, and after how much work */
    unsigned long long work;
};

/* The per-thread stream of the calling thread (CU_STREAM_PER_THREAD). */
struct sim_stream *sim_thread_stream(void);
/* The object behind a handle; NULL for the legacy stream. INVALID_HANDLE for garbage. */
CUresult sim_stream_object(CUstream handle, struct sim_context **context, struct sim_stream **stream);
/* Makes a stream in a context, or in a green context that stands for it. */
CUresult sim_stream_new(CUstream *out, struct sim_context *context, struct sim_context *green, unsigned flags,
                        int priority);
/* Forgets a capture in every stream and event that takes part in it. */
void sim_capture_forget(struct sim_capture *capture);
/* A stream or event dies: what it means for captures. */
void sim_capture_stream_gone(struct sim_stream *stream);
/* The capture of that id, if it goes on. */
struct sim_capture *sim_capture_of(unsigned long long id);
/* Makes `stream` part of a capture through an event recorded in it. */
void sim_capture_join(struct sim_stream *stream, struct sim_event *event, struct sim_capture *capture);
/* A captured stream was told to wait for what lies outside its capture. */
CUresult sim_capture_isolated(struct sim_stream *stream);

/* Null streams of the per-thread variants mean the thread's own. */
static inline CUstream sim_ptsz(CUstream stream) { return stream ? stream : CU_STREAM_PER_THREAD; }

/* ---- graph.c ---- */
struct sim_graph *sim_graph_new(void);
bool sim_graph_add(struct sim_graph *graph, CUresult (*run)(const void *), const void *args, size_t size);
void sim_graph_free(struct sim_graph *graph);
/* Addresses of memory that a graph allocates belong to it. */
bool sim_graph_own(struct sim_graph *graph, struct sim_region *region);

/* The graph that a captured stream records into, or NULL. */
CUgraph sim_stream_graph(CUstream stream);

/* ---- graph_memory.c ---- */
/* Stream-ordered allocation and free in a stream that is being captured. */
CUresult sim_graph_alloc(CUdeviceptr *ptr, size_t bytes, CUdevice device, CUstream stream,
                         struct sim_context *context);
CUresult sim_graph_release(CUdeviceptr ptr, CUstream stream);

#endif
