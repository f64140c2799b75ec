/* Contexts: what they cost, who has which current, and the end of everything in them. */
#include "mem.h"
#include "spec.h"

#include <stdlib.h>
#include <string.h>

/* A destroyed context stays, so that a stale handle is answered as the driver does, or until its handle is given anew. */
static struct sim_context *primaries[32]; /* by card */
static struct sim_context *destroyed;     /* those whose handles may be given anew, the last one first */

/* The stack of the calling thread. Initial-exec: glibc keeps room for a handful of bytes even when the library is
 * opened late, and asking for the current context costs no call. */
#define STACK_OF_THREAD static __thread __attribute__((tls_model("initial-exec")))
STACK_OF_THREAD struct sim_context **stack;
STACK_OF_THREAD size_t depth, room;

/* ---- lookup ---------------------------------------------------------------------------------- */

/* A context as it was made current: perhaps a green one. */
static struct sim_context *named(CUcontext handle)
{
    return sim_handle_is(handle, SIM_CONTEXT) ? (struct sim_context *)handle : NULL;
}

static struct sim_context *behind(struct sim_context *context)
{
    return context && context->base ? context->base : context;
}

static struct sim_context *top(void) { return depth ? stack[depth - 1] : NULL; }

struct sim_context *sim_context_of(CUcontext handle) { return behind(named(handle)); }

struct sim_context *sim_current_or_null(void) { return behind(top()); }

struct sim_context *sim_current_green(void) { return depth && top()->base ? top() : NULL; }

CUresult sim_current(struct sim_context **context)
{
    *context = sim_current_or_null();
    if (!*context)
        return CUDA_ERROR_INVALID_CONTEXT;
    return top()->alive && (*context)->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

struct sim_context *sim_primary(CUdevice device)
{
    int card = sim_device_card(device);
    struct sim_context *context = card < 0 ? NULL : primaries[card];
    return context && context->alive ? context : NULL;
}

static bool push(struct sim_context *context)
{
    if (depth == room) {
        size_t grown = room ? room * 2 : 8;
        struct sim_context **moved = realloc(stack, grown * sizeof *moved);
        if (!moved)
            return false;
        stack = moved;
        room = grown;
    }
    stack[depth++] = context;
    return true;
}

/* ---- resources -------------------------------------------------------------------------------- */

void sim_resource_add(struct sim_context *context, struct sim_resource *resource)
{
    resource->prev = &context->resources;
    resource->next = context->resources.next;
    resource->next->prev = resource;
    context->resources.next = resource;
}

void sim_resource_remove(struct sim_resource *resource)
{
    resource->prev->next = resource->next;
    resource->next->prev = resource->prev;
    resource->next = resource->prev = resource;
}

/* ---- birth and death ---------------------------------------------------------------------------- */

static CUresult bring_to_life(struct sim_context *context)
{
    size_t blocks = sim_blocks_of(sim_spec()->context_bytes);
    uint32_t *cost = malloc((blocks + 1) * sizeof *cost);
    struct sim_heap *heap = calloc(1, sizeof *heap);
    if (!cost || !heap || (blocks && !sim_take_blocks(context->card, blocks, cost))) {
        free(cost);
        free(heap);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    static unsigned long long last_id;
    *heap = (struct sim_heap){
        .card = context->card, .card_index = context->card_index, .device = context->device, .context = context};
    context->heap = heap;
    context->cost = cost;
    context->cost_blocks = blocks;
    context->id = ++last_id;
    context->resources.next = context->resources.prev = &context->resources;
    context->limits[CU_LIMIT_STACK_SIZE] = 1024;
    context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
    context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
    context->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    context->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    context->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
    context->limits[CU_LIMIT_PERSISTING_L2_CACHE_SIZE] = 0;
    context->cache_config = context->shared_config = 0;
    context->peers = 0;
    context->alive = true;
    return CUDA_SUCCESS;
}

static struct sim_context *context_new(CUdevice device, bool primary)
{
    int index = sim_device_card(device);
    bool anew = !primary && destroyed;
    struct sim_context *context = index < 0 ? NULL : anew ? destroyed : calloc(1, sizeof *context);
    if (!context)
        return NULL;
    if (anew)
        destroyed = context->next;
    else
        sim_handle_add(context, SIM_CONTEXT);
    *context = (struct sim_context){.device = device};
    context->card_index = (unsigned)index;
    context->card = sim_card((unsigned)index);
    context->primary = primary;
    context->api_version = 3020;
    return context;
}

static void end_life(struct sim_context *context)
{
    if (!context->alive)
        return;
    while (context->resources.next != &context->resources) {
        struct sim_resource *resource = context->resources.next;
        sim_resource_remove(resource);
        resource->destroy(resource);
    }
    sim_imports_context_gone(context);
    sim_managed_context_gone(context);
    sim_host_context_gone(context);
    sim_pools_context_gone(context);
    sim_heap_clear(context->heap, NULL);
    sim_card_give(context->card, context->cost_blocks, context->cost);
    for (int i = 0; i < 3; i++) {
        sim_card_give(context->card, context->limit_counts[i], context->limit_blocks[i]);
        free(context->limit_blocks[i]);
        context->limit_blocks[i] = NULL;
        context->limit_counts[i] = 0;
    }
    free(context->cost);
    free(context->heap);
    context->cost = NULL;
    context->heap = NULL;
    context->alive = false;
}

/* What a dead context's handle is from now on. */
static void lay_aside(struct sim_context *context)
{
    if (!sim_spec()->handles_anew)
        return;
    context->next = destroyed;
    destroyed = context;
}

static CUresult create(CUcontext *out, unsigned flags, CUdevice device, unsigned api_version)
{
    CUresult unsafe = sim_capture_unsafe();
    if (unsafe != CUDA_SUCCESS)
        return unsafe;
    if (!out || (flags & ~(unsigned)CU_CTX_FLAGS_MASK))
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device_card(device) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    struct sim_context *context = context_new(device, false);
    CUresult result = context ? bring_to_life(context) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS && !push(context)) {
        end_life(context);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        if (context)
            lay_aside(context);
        return result;
    }
    context->flags = flags | CU_CTX_MAP_HOST;
    context->api_version = api_version;
    context->retained = 1;
    *out = (CUcontext)context;
    return CUDA_SUCCESS;
}

static CUresult destroy(CUcontext handle)
{
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_context *context = named(handle);
    if (!context || context->base || context->primary || !context->alive)
        return CUDA_ERROR_INVALID_CONTEXT;
    end_life(context);
    if (sim_current_or_null() == context)
        depth--;
    lay_aside(context);
    return CUDA_SUCCESS;
}

SIM_EXPORT(cuCtxCreate, (CUcontext *out, unsigned flags, CUdevice device), create(out, flags, device, 3010))
SIM_EXPORT(cuCtxCreate_v2, (CUcontext *out, unsigned flags, CUdevice device), create(out, flags, device, 3020))

SIM_API CUresult cuCtxCreate_v3(CUcontext *out, void *affinity, int affinities, unsigned flags, CUdevice device)
{
    SIM_ENTER(cuCtxCreate_v3);
    SIM_LOCKED();
    if (affinities < 0 || (affinities && !affinity))
        return CUDA_ERROR_INVALID_VALUE;
    /* Affinity to part of the multiprocessors needs MPS. */
    return affinities ? CUDA_ERROR_NOT_SUPPORTED : create(out, flags, device, 3020);
}

struct create_params {
    void *affinity;
    int affinities;
    void *cig;
};

SIM_API CUresult cuCtxCreate_v4(CUcontext *out, struct create_params *params, unsigned flags, CUdevice device)
{
    SIM_ENTER(cuCtxCreate_v4);
    SIM_LOCKED();
    if (params && (params->affinities || params->cig))
        return CUDA_ERROR_NOT_SUPPORTED;
    return create(out, flags, device, 3020);
}

SIM_EXPORT(cuCtxDestroy, (CUcontext context), destroy(context))
SIM_EXPORT(cuCtxDestroy_v2, (CUcontext context), destroy(context))

/* ---- the primary contexts --------------------------------------------------------------------------- */

CUresult sim_primary_retain(CUcontext *out, CUdevice device)
{
    int card = sim_device_card(device);
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (card < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!primaries[card] && !(primaries[card] = context_new(device, true)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_context *context = primaries[card];
    if (!context->alive) {
        CUresult result = sim_capture_unsafe();
        if (result == CUDA_SUCCESS)
            result = bring_to_life(context);
        if (result != CUDA_SUCCESS)
            return result;
    }
    context->retained++;
    *out = (CUcontext)context;
    return CUDA_SUCCESS;
}

CUresult sim_primary_release(CUdevice device)
{
    int card = sim_device_card(device);
    if (card < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    struct sim_context *context = primaries[card];
    if (!context || !context->retained)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!--context->retained)
        end_life(context);
    return CUDA_SUCCESS;
}

/* Ends what is in the context; whoever retained it still has to release it. The next retain revives it. */
static CUresult reset(CUdevice device)
{
    int card = sim_device_card(device);
    if (card < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    if (primaries[card])
        end_life(primaries[card]);
    return CUDA_SUCCESS;
}

static CUresult set_flags(CUdevice device, unsigned flags)
{
    int card = sim_device_card(device);
    if (card < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    if (flags & ~(unsigned)CU_CTX_FLAGS_MASK || (flags & CU_CTX_SCHED_MASK) > 4)
        return CUDA_ERROR_INVALID_VALUE;
    if (!primaries[card] && !(primaries[card] = context_new(device, true)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    primaries[card]->flags = flags;
    return CUDA_SUCCESS;
}

static CUresult get_state(CUdevice device, unsigned *flags, int *active)
{
    int card = sim_device_card(device);
    if (card < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = primaries[card] ? primaries[card]->flags : 0;
    *active = primaries[card] && primaries[card]->alive;
    return CUDA_SUCCESS;
}

SIM_EXPORT(cuDevicePrimaryCtxRetain, (CUcontext *out, CUdevice device), sim_primary_retain(out, device))
SIM_EXPORT(cuDevicePrimaryCtxRelease, (CUdevice device), sim_primary_release(device))
SIM_EXPORT(cuDevicePrimaryCtxRelease_v2, (CUdevice device), sim_primary_release(device))
SIM_EXPORT(cuDevicePrimaryCtxReset, (CUdevice device), reset(device))
SIM_EXPORT(cuDevicePrimaryCtxReset_v2, (CUdevice device), reset(device))
SIM_EXPORT(cuDevicePrimaryCtxSetFlags, (CUdevice device, unsigned flags), set_flags(device, flags))
SIM_EXPORT(cuDevicePrimaryCtxSetFlags_v2, (CUdevice device, unsigned flags), set_flags(device, flags))
SIM_EXPORT(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned *flags, int *active),
           get_state(device, flags, active))

/* ---- the thread's stack -------------------------------------------------------------------------------- */

/* A primary context can be made current while it is reset: its calls answer CONTEXT_IS_DESTROYED until the next
 * retain revives it under the same handle. Any other that is gone cannot. */
static CUresult usable(const struct sim_context *context)
{
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    return (context->base ? context->alive && context->base->alive : context->alive) || context->primary ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static CUresult set_current(CUcontext handle)
{
    struct sim_context *context = named(handle);
    if (!handle) {
        depth -= depth > 0;
        return CUDA_SUCCESS;
    }
    CUresult result = usable(context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!depth)
        return push(context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    stack[depth - 1] = context;
    return CUDA_SUCCESS;
}

static CUresult push_current(CUcontext handle)
{
    struct sim_context *context = named(handle);
    CUresult result = usable(context);
    if (result != CUDA_SUCCESS)
        return result;
    return push(context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult pop_current(CUcontext *out)
{
    if (!depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    struct sim_context *context = stack[--depth];
    if (out)
        *out = (CUcontext)context;
    return CUDA_SUCCESS;
}

static CUresult get_current(CUcontext *out)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUcontext)top();
    return CUDA_SUCCESS;
}

SIM_EXPORT(cuCtxSetCurrent, (CUcontext context), set_current(context))
SIM_EXPORT(cuCtxPushCurrent, (CUcontext context), push_current(context))
SIM_EXPORT(cuCtxPushCurrent_v2, (CUcontext context), push_current(context))
SIM_EXPORT(cuCtxPopCurrent, (CUcontext * out), pop_current(out))
SIM_EXPORT(cuCtxPopCurrent_v2, (CUcontext * out), pop_current(out))
SIM_API CUresult cuCtxGetCurrent(CUcontext *out)
{
    if (sim_no_work)
        return get_current(out);
    SIM_ENTER(cuCtxGetCurrent);
    SIM_LOCKED();
    return get_current(out);
}

/* The reference count of the interface before 4.0: attaching to the current context, detaching from it. */
SIM_API CUresult cuCtxAttach(CUcontext *out, unsigned flags)
{
    SIM_ENTER(cuCtxAttach);
    SIM_LOCKED();
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (!out || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    context->retained++;
    *out = (CUcontext)context;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxDetach(CUcontext handle)
{
    SIM_ENTER(cuCtxDetach);
    SIM_LOCKED();
    struct sim_context *context = named(handle);
    if (!context || !context->alive || context->primary || context->base || top() != context)
        return CUDA_ERROR_INVALID_CONTEXT;
    return --context->retained ? CUDA_SUCCESS : destroy(handle);
}
