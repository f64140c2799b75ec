/* Linear copies and memsets, in all their variants. */
#include "mem.h"
#include "stream.h"

struct copy {
    uint64_t to, from;
    enum sim_side to_side, from_side;
    size_t bytes;
};

static CUresult run_copy(const void *args)
{
    const struct copy *copy = args;
    return sim_move(copy->to, copy->to_side, copy->from, copy->from_side, copy->bytes);
}

static CUresult enqueue(CUstream stream, const struct copy *copy)
{
    CUresult result = sim_stream_check(stream);
    if (result == CUDA_SUCCESS)
        result = sim_range_check(copy->to, copy->bytes, copy->to_side, true);
    if (result == CUDA_SUCCESS)
        result = sim_range_check(copy->from, copy->bytes, copy->from_side, false);
    return result == CUDA_SUCCESS ? sim_work(stream, run_copy, copy, sizeof *copy) : result;
}

/* Without a stream of its own a copy is ordered with the legacy one, and the host waits for it. */
static CUresult now(const struct copy *copy)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result == CUDA_SUCCESS)
        result = sim_capture_unsafe();
    return result == CUDA_SUCCESS ? enqueue(CU_STREAM_LEGACY, copy) : result;
}

#define COPY(to_side, to, from_side, from, bytes)                                                                     \
    (&(struct copy){(uint64_t)(uintptr_t)(to), (uint64_t)(uintptr_t)(from), SIM_SIDE_##to_side, SIM_SIDE_##from_side, \
                    bytes})

/* A synchronous copy and its per-thread twin, which differ in nothing here. */
#define SYNC(name, parameters, copy)                                                                                  \
    SIM_EXPORT(name, parameters, now(copy))                                                                           \
    SIM_EXPORT(name##_ptds, parameters, now(copy))
#define ASYNC(name, parameters, copy)                                                                                 \
    SIM_EXPORT(name, parameters, enqueue(stream, copy))                                                               \
    SIM_EXPORT(name##_ptsz, parameters, enqueue(sim_ptsz(stream), copy))

SYNC(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t bytes), COPY(ANY, to, ANY, from, bytes))
ASYNC(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
      COPY(ANY, to, ANY, from, bytes))

SYNC(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes), COPY(DEVICE, to, HOST, from, bytes))
SYNC(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes), COPY(HOST, to, DEVICE, from, bytes))
SYNC(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes), COPY(DEVICE, to, DEVICE, from, bytes))
ASYNC(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream),
      COPY(DEVICE, to, HOST, from, bytes))
ASYNC(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream),
      COPY(HOST, to, DEVICE, from, bytes))
ASYNC(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
      COPY(DEVICE, to, DEVICE, from, bytes))

SIM_EXPORT(cuMemcpyHtoD, (CUdeviceptr_v1 to, const void *from, unsigned bytes),
           now(COPY(DEVICE, to, HOST, from, bytes)))
SIM_EXPORT(cuMemcpyDtoH, (void *to, CUdeviceptr_v1 from, unsigned bytes), now(COPY(HOST, to, DEVICE, from, bytes)))
SIM_EXPORT(cuMemcpyDtoD, (CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned bytes),
           now(COPY(DEVICE, to, DEVICE, from, bytes)))
SIM_EXPORT(cuMemcpyHtoDAsync, (CUdeviceptr_v1 to, const void *from, unsigned bytes, CUstream stream),
           enqueue(stream, COPY(DEVICE, to, HOST, from, bytes)))
SIM_EXPORT(cuMemcpyDtoHAsync, (void *to, CUdeviceptr_v1 from, unsigned bytes, CUstream stream),
           enqueue(stream, COPY(HOST, to, DEVICE, from, bytes)))
SIM_EXPORT(cuMemcpyDtoDAsync, (CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned bytes, CUstream stream),
           enqueue(stream, COPY(DEVICE, to, DEVICE, from, bytes)))

/* ---- between contexts: the addresses say it all, but the contexts have to exist -------------------------- */

static CUresult peers(CUcontext to, CUcontext from)
{
    struct sim_context *target = sim_context_of(to), *source = sim_context_of(from);
    return target && source && target->alive && source->alive ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult now_peer(CUcontext to, CUcontext from, const struct copy *copy)
{
    CUresult result = peers(to, from);
    return result == CUDA_SUCCESS ? now(copy) : result;
}

static CUresult enqueue_peer(CUcontext to, CUcontext from, CUstream stream, const struct copy *copy)
{
    CUresult result = peers(to, from);
    return result == CUDA_SUCCESS ? enqueue(stream, copy) : result;
}

#define PEER (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes)
#define PEER_ASYNC                                                                                                    \
    (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes, CUstream stream)

SIM_EXPORT(cuMemcpyPeer, PEER, now_peer(to_context, from_context, COPY(DEVICE, to, DEVICE, from, bytes)))
SIM_EXPORT(cuMemcpyPeer_ptds, PEER, now_peer(to_context, from_context, COPY(DEVICE, to, DEVICE, from, bytes)))
SIM_EXPORT(cuMemcpyPeerAsync, PEER_ASYNC,
           enqueue_peer(to_context, from_context, stream, COPY(DEVICE, to, DEVICE, from, bytes)))
SIM_EXPORT(cuMemcpyPeerAsync_ptsz, PEER_ASYNC,
           enqueue_peer(to_context, from_context, sim_ptsz(stream), COPY(DEVICE, to, DEVICE, from, bytes)))
