/*
 * What the parts of the simulated driver promise each other. Every part is one file; the names here
 * are hidden in the library. Unless said otherwise, a function here wants sim_lock held.
 */
#ifndef SIM_H
#define SIM_H

#include "card.h"
#include "cuda_abi.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_API __attribute__((visibility("default")))

/* ---- inject.c: what every entry point does first ----------------------------------------- */

/* One per implemented entry point, collected by the linker in the section "sim_entries". */
struct sim_entry {
    const char *name;
    _Atomic(unsigned long) calls;
    _Atomic(int) fail_count; /* the next so many calls fail ... */
    _Atomic(int) fail_code;  /* ... with this */
};

enum sim_state {
    SIM_UNINITIALISED,
    SIM_READY,
    SIM_DEINITIALISED, /* the process is exiting */
    SIM_FORKED,        /* a child of a process that had initialised: nothing works, cuInit included */
};

/* Counts the call and answers an injected failure, or that the driver is not up. */
CUresult sim_enter(struct sim_entry *entry);
/* The same for the few entry points that work before cuInit. */
CUresult sim_enter_always(struct sim_entry *entry);

/* Before and after a call, without the lock: now and then sleeps as the spec's jitter says, so that whoever makes calls one
 * after another without a lock meets others in between. */
void sim_jitter_now(void);
extern unsigned sim_jitter_us; /* 0 for none, as before cuInit */
static inline void sim_jitter(void)
{
    if (sim_jitter_us)
        sim_jitter_now();
}
static inline void sim_jitter_scope_(int *unused)
{
    (void)unused;
    sim_jitter();
}

#define SIM_ENTRY_(entry_name)                                                                                        \
    static struct sim_entry sim_entry_ __attribute__((section("sim_entries"), aligned(8))) = {.name = entry_name}

/* The first statement of an entry point: `SIM_ENTER(cuMemFree_v2);` */
#define SIM_ENTER(name) SIM_ENTER_WITH_(name, sim_enter)
/* ... of one that works before cuInit and after teardown. */
#define SIM_ENTER_ALWAYS(name) SIM_ENTER_WITH_(name, sim_enter_always)
#define SIM_ENTER_WITH_(name, gate)                                                                                   \
    SIM_ENTRY_(#name);                                                                                                \
    sim_jitter();                                                                                                     \
    int sim_leaves_ __attribute__((cleanup(sim_jitter_scope_), unused)) = 0;                                          \
    do {                                                                                                              \
        CUresult sim_gate_ = gate(&sim_entry_);                                                                       \
        if (sim_gate_ != CUDA_SUCCESS)                                                                                \
            return sim_gate_;                                                                                         \
    } while (0)

/* An entry point that takes the lock around a function of this library:
 * SIM_EXPORT(cuMemFree_v2, (CUdeviceptr ptr), mem_free(ptr)) */
#define SIM_EXPORT(name, parameters, call)                                                                            \
    SIM_API CUresult name parameters;                                                                                 \
    SIM_API CUresult name parameters                                                                                  \
    {                                                                                                                 \
        SIM_ENTER(name);                                                                                              \
        SIM_LOCKED();                                                                                                 \
        return call;                                                                                                  \
    }

/* The same for calls that allocate: the spec's random delay comes first. */
#define SIM_EXPORT_ALLOC(name, parameters, call)                                                                      \
    SIM_API CUresult name parameters;                                                                                 \
    SIM_API CUresult name parameters                                                                                  \
    {                                                                                                                 \
        SIM_ENTER(name);                                                                                              \
        sim_delay();                                                                                                  \
        SIM_LOCKED();                                                                                                 \
        return call;                                                                                                  \
    }

enum sim_state sim_state(void);
/* cuInit calls this once the machine is known to be good: opens the cards, arms teardown at exit. Called without the
 * lock, as often as cuInit is. Answers NOT_INITIALIZED in a child of a process that had initialised. */
CUresult sim_start(void);

/* The one lock of the model. */
void sim_lock(void);
void sim_unlock(void);
static inline void sim_unlock_scope_(int *unused)
{
    (void)unused;
    sim_unlock();
}
/* Holds the lock until the end of the scope. */
#define SIM_LOCKED()                                                                                                  \
    sim_lock();                                                                                                       \
    int sim_locked_ __attribute__((cleanup(sim_unlock_scope_), unused)) = 0

/* Sleeps for a random part of the spec's delay. Called without the lock. */
void sim_delay(void);

/* ---- device.c (of the other half): which devices the process sees -------------------------- */

int sim_device_count(void);
/* The card behind a device ordinal, or -1 for an ordinal that does not exist. */
int sim_device_card(CUdevice device);

/* ---- handles.c: which handles are alive ---------------------------------------------------- */

enum sim_kind {
    SIM_NO_HANDLE = 0,
    SIM_CONTEXT,
    SIM_STREAM,
    SIM_EVENT,
    SIM_ARRAY,
    SIM_MIPMAP,
    SIM_POOL,
    SIM_PHYSICAL, /* cuMemCreate */
    SIM_MODULE,
    SIM_FUNCTION,
    SIM_LIBRARY,
    SIM_KERNEL,
    SIM_GRAPH,
    SIM_GRAPH_EXEC,
    SIM_GRAPH_NODE,
    SIM_RESOURCE_DESC,
    SIM_OTHER, /* anything that a part wants to tell from garbage */
};

void sim_handle_add(const void *handle, enum sim_kind kind);
bool sim_handle_is(const void *handle, enum sim_kind kind);
void sim_handle_drop(const void *handle);

/* ---- context.c ----------------------------------------------------------------------------- */

/* Something that dies with its context: modules, streams, arrays. Embed it first in the object. */
struct sim_resource {
    struct sim_resource *next, *prev;
    void (*destroy)(struct sim_resource *); /* frees the object; called with the lock */
};

struct sim_heap;
struct sim_context {
    struct sim_context *base; /* of a green context: the primary context in which everything is; of others NULL */
    CUdevice device;
    unsigned card_index;
    struct sim_card *card;
    bool primary;
    bool alive; /* false once destroyed; the struct stays, so that stale handles are told apart */
    unsigned retained;
    unsigned flags;
    unsigned api_version;
    unsigned long long id;
    size_t cost_blocks;
    uint32_t *cost; /* the blocks that the context itself takes */
    struct sim_heap *heap;
    struct sim_resource resources; /* list head */
    size_t limits[CU_LIMIT_COUNT];
    uint32_t *limit_blocks[3]; /* what limits beyond their defaults take: stack, printf buffer, heap */
    size_t limit_counts[3];
    int cache_config, shared_config;
    uint64_t peers; /* cards that cuCtxEnablePeerAccess opened */
    struct sim_context *next; /* of a destroyed one */
};

/* The calling thread's current context, or the error that a call needing one answers (201, 709). */
CUresult sim_current(struct sim_context **context);
/* The same without judging: NULL when there is none, possibly a dead one. */
struct sim_context *sim_current_or_null(void);
/* The green context that is current, or NULL. */
struct sim_context *sim_current_green(void);
/* `handle` as a context (NULL: not one), dead or alive; a green one as the primary context it is in. */
struct sim_context *sim_context_of(CUcontext handle);
void sim_resource_add(struct sim_context *context, struct sim_resource *resource);
void sim_resource_remove(struct sim_resource *resource);
/* The primary context of a device if it is alive. */
struct sim_context *sim_primary(CUdevice device);
CUresult sim_primary_retain(CUcontext *out, CUdevice device);
CUresult sim_primary_release(CUdevice device);

/* ---- heap.c: addresses and what lies there --------------------------------------------------- */

/* Allocates device memory of a context as cuMemAlloc does (module globals use it too). */
CUresult sim_heap_alloc(struct sim_context *context, uint64_t bytes, CUdeviceptr *ptr);
/* Frees it again; INVALID_VALUE when nothing starts at `ptr`. */
CUresult sim_heap_free(CUdeviceptr ptr);

/* ---- copy.c ------------------------------------------------------------------------------------ */

/* Moves bytes between any two addresses of the unified space, host or device. */
CUresult sim_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes);
/* Writes `count` elements of `width` (1, 2, 4) bytes at a device address. */
CUresult sim_fill(CUdeviceptr to, uint32_t value, unsigned width, size_t count);

/* ---- stream.c ---------------------------------------------------------------------------------- */

/* Whether `stream` is one: 0, 1, 2 or a live handle; else INVALID_HANDLE. Needs a current context for 0-2. */
CUresult sim_stream_check(CUstream stream);
/* The context a stream belongs to. */
CUresult sim_stream_context(CUstream stream, struct sim_context **context);
/* Work given to a stream: done at once, or recorded (with a copy of `args`) when the stream is being captured. `run`
 * may be NULL for work without effect, such as kernels. Checks the stream; wants the lock, as `run` does. */
CUresult sim_work(CUstream stream, CUresult (*run)(const void *args), const void *args, size_t size);
/* Whether work given to this stream is being captured rather than done. */
bool sim_stream_capturing(CUstream stream);
/* What a call that is unsafe during capture does first: answers 900 after invalidating the captures it breaks. */
CUresult sim_capture_unsafe(void);

#endif
