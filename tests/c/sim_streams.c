/* Streams, events, captures and the graphs made of them. */
#include "sim_check.h"

#include <pthread.h>

static int called;
static void count_call(void *data) { called += *(int *)data; }
static void on_stream(CUstream stream, CUresult status, void *data)
{
    CUcontext context;
    (void)stream;
    /* The lock of the driver is not held around the program's code. */
    called += status == CUDA_SUCCESS && cuCtxGetCurrent(&context) == CUDA_SUCCESS ? *(int *)data : 0;
}

static void streams_and_events(void)
{
    CUstream stream;
    CUevent start, end;
    float ms = -1;
    int one = 1;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&end, 0));
    EXPECT(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_INVALID_HANDLE);
    OK(cuEventRecord(start, stream));
    OK(cuLaunchHostFunc(stream, count_call, &one));
    OK(cuStreamAddCallback(stream, on_stream, &one, 0));
    EXPECT(called, 2);
    OK(cuEventRecord_ptsz(end, stream));
    OK(cuEventSynchronize(end));
    OK(cuEventQuery(end));
    OK(cuEventElapsedTime(&ms, start, end));
    HOLDS(ms >= 0 && ms < 10000);
    OK(cuStreamQuery(stream));
    OK(cuStreamWaitEvent(stream, end, 0));
    CUcontext context;
    OK(cuStreamGetCtx(stream, &context));
    OK(cuStreamDestroy_v2(stream));
    EXPECT(cuStreamDestroy_v2(stream), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
    OK(cuEventDestroy_v2(start));
    OK(cuEventDestroy_v2(end));
    EXPECT(cuEventDestroy_v2(end), CUDA_ERROR_INVALID_HANDLE);
}

static void captured_work_waits(void)
{
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr ptr;
    CUstreamCaptureStatus status;
    int one = 1, before = called;
    char out[4] = "abc";
    OK(cuMemAlloc_v2(&ptr, MIB));
    OK(cuMemsetD8_v2(ptr, 'x', MIB));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuStreamIsCapturing(stream, &status));
    EXPECT(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(cuMemsetD8Async(ptr, 'y', 2, stream));
    OK(cuMemcpyDtoHAsync_v2(out, ptr, 3, stream));
    OK(cuLaunchHostFunc(stream, count_call, &one));
    OK(cuMemGetInfo_v2(NULL, NULL)); /* safe at any time */
    EXPECT(out[0], 'a');
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    OK(cuGraphLaunch(exec, stream));
    EXPECT(memcmp(out, "yyx", 3), 0);
    OK(cuGraphLaunch(exec, stream));
    EXPECT(called, before + 2);
    OK(cuGraphExecDestroy(exec));
    EXPECT(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamDestroy_v2(stream));
    OK(cuMemFree_v2(ptr));
}

static CUresult allocate(void)
{
    CUdeviceptr ptr;
    CUresult result = cuMemAlloc_v2(&ptr, MIB);
    if (result == CUDA_SUCCESS)
        OK(cuMemFree_v2(ptr));
    return result;
}

static CUcontext shared;
static CUresult elsewhere;
static void *allocate_elsewhere(void *relaxed)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    OK(cuCtxSetCurrent(shared));
    if (relaxed)
        OK(cuThreadExchangeStreamCaptureMode(&mode));
    elsewhere = allocate();
    return NULL;
}

static CUresult from_another_thread(bool relaxed)
{
    pthread_t thread;
    pthread_create(&thread, NULL, allocate_elsewhere, relaxed ? &thread : NULL);
    pthread_join(thread, NULL);
    return elsewhere;
}

/* Begins a capture, runs `call`, and answers how the capture ends. */
#define ENDS(mode, call, wanted)                                                                                      \
    ({                                                                                                                \
        CUgraph graph_ = NULL;                                                                                        \
        OK(cuStreamBeginCapture_v2(stream, mode));                                                                    \
        EXPECT(call, wanted);                                                                                         \
        CUresult end_ = cuStreamEndCapture(stream, &graph_);                                                          \
        if (end_ == CUDA_SUCCESS)                                                                                     \
            OK(cuGraphDestroy(graph_));                                                                               \
        end_;                                                                                                         \
    })

static void unsafe_calls_break_captures(void)
{
    CUstream stream;
    CUmemoryPool pool;
    uint64_t value;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT(ENDS(CU_STREAM_CAPTURE_MODE_GLOBAL, allocate(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
           CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT(ENDS(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, allocate(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
           CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT(ENDS(CU_STREAM_CAPTURE_MODE_RELAXED, allocate(), CUDA_SUCCESS), CUDA_SUCCESS);
    EXPECT(ENDS(CU_STREAM_CAPTURE_MODE_GLOBAL, from_another_thread(false), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
           CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT(ENDS(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, from_another_thread(false), CUDA_SUCCESS), CUDA_SUCCESS);
    EXPECT(ENDS(CU_STREAM_CAPTURE_MODE_GLOBAL, from_another_thread(true), CUDA_SUCCESS), CUDA_SUCCESS);
    EXPECT(ENDS(CU_STREAM_CAPTURE_MODE_GLOBAL,
                cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value),
                CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
           CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT(ENDS(CU_STREAM_CAPTURE_MODE_RELAXED, cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
           CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(allocate()); /* nothing sticks */
    EXPECT(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CUgraph graph;
    EXPECT(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
    OK(cuStreamDestroy_v2(stream));
}

static void captures_fork_and_join(void)
{
    CUstream origin, side;
    CUevent fork_event, join_event;
    CUgraph graph = NULL;
    CUstreamCaptureStatus status;
    CUdeviceptr ptr;
    OK(cuMemAlloc_v2(&ptr, MIB));
    OK(cuStreamCreate(&origin, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&fork_event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&join_event, CU_EVENT_DISABLE_TIMING));
    for (int joined = 1; joined >= 0; joined--) {
        OK(cuStreamBeginCapture_v2(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
        OK(cuEventRecord(fork_event, origin));
        OK(cuStreamWaitEvent(side, fork_event, 0));
        OK(cuMemsetD8Async(ptr, 1, 100, side));
        OK(cuStreamIsCapturing(side, &status));
        EXPECT(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
        OK(cuEventRecord(join_event, side));
        if (joined)
            OK(cuStreamWaitEvent(origin, join_event, 0));
        EXPECT(cuStreamEndCapture(origin, &graph), joined ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
        OK(cuStreamIsCapturing(side, &status));
        EXPECT(status, CU_STREAM_CAPTURE_STATUS_NONE);
        if (joined)
            OK(cuGraphDestroy(graph));
    }
    OK(cuEventDestroy_v2(fork_event));
    OK(cuEventDestroy_v2(join_event));
    OK(cuStreamDestroy_v2(side));
    OK(cuStreamDestroy_v2(origin));
    OK(cuMemFree_v2(ptr));
}

static void memory_of_graphs(size_t base)
{
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr ptr;
    char out = 0;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(&ptr, 64 * MIB, stream));
    OK(cuMemsetD8Async(ptr, 'g', 64 * MIB, stream));
    OK(cuMemcpyDtoHAsync_v2(&out, ptr + 63 * MIB, 1, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    EXPECT(used(), base);
    OK(cuGraphLaunch(exec, stream));
    EXPECT(out, 'g');
    EXPECT(used() - base, 64 * MIB);
    EXPECT(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE); /* still allocated */
    OK(cuMemFreeAsync(ptr, stream));
    OK(cuGraphLaunch(exec, stream));
    OK(cuMemFree_v2(ptr));
    EXPECT(used() - base, 64 * MIB); /* kept for the next launch */
    OK(cuDeviceGraphMemTrim(0));
    EXPECT(used(), base);
    OK(cuGraphLaunch(exec, stream));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree_v2(ptr)); /* outlived its graph */
    OK(cuDeviceGraphMemTrim(0));
    EXPECT(used(), base);

    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(&ptr, 64 * MIB, stream));
    OK(cuMemFreeAsync(ptr, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 8; i++)
        OK(cuGraphLaunch(exec, stream));
    EXPECT(used() - base, 64 * MIB);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuDeviceGraphMemTrim(0));
    EXPECT(used(), base);
    OK(cuStreamDestroy_v2(stream));
}

int main(void)
{
    shared = start();
    size_t base = used();
    streams_and_events();
    captured_work_waits();
    unsafe_calls_break_captures();
    captures_fork_and_join();
    memory_of_graphs(base);
    EXPECT(used(), base);
    EXPECT(simgpu_live_allocations(), 0);
    puts("streams keep their order and captures break as they should");
    return 0;
}
