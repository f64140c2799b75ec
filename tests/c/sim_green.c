/* Green contexts of the simulated driver: they retain the primary context, and all that is made in them is there. */
#include "sim_check.h"

static CUgreenCtx green(unsigned multiprocessors)
{
    CUdevResource all, share[1], rest;
    CUdevResourceDesc desc;
    CUgreenCtx made;
    unsigned count = 1;
    OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevSmResourceSplitByCount(share, &count, &all, &rest, 0, multiprocessors));
    EXPECT(share[0].sm.smCount + rest.sm.smCount, all.sm.smCount);
    OK(cuDevResourceGenerateDesc(&desc, share, 1));
    OK(cuGreenCtxCreate(&made, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    return made;
}

static int is_primary_up(void)
{
    unsigned flags;
    int active;
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    return active;
}

int main(void)
{
    CUcontext context, primary, current, seen;
    CUgreenCtx from;
    CUdeviceptr ptr;
    CUstream stream, other;
    CUevent event;
    CUdevice device;
    CUdevResource given;
    unsigned long long id, primary_id;
    OK(cuInit(0));
    size_t base = simgpu_card_used(0);
    CUgreenCtx one = green(8), two = green(16);
    EXPECT(simgpu_card_used(0) - base, 300 * MIB); /* one primary context for both */

    OK(cuCtxFromGreenCtx(&context, one));
    OK(cuCtxSetCurrent(context));
    OK(cuCtxGetCurrent(&current));
    HOLDS(current == context);
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    HOLDS(primary != context);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuCtxGetDevice(&device));
    EXPECT(device, 0);
    OK(cuGreenCtxGetId(one, &id));
    OK(cuCtxGetId(primary, &primary_id));
    HOLDS(id != primary_id);
    OK(cuCtxGetDevResource(context, &given, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT(given.sm.smCount, 8);
    OK(cuGreenCtxGetDevResource(two, &given, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT(given.sm.smCount, 16);
    EXPECT(cuCtxDestroy_v2(context), CUDA_ERROR_INVALID_CONTEXT);

    OK(cuMemAlloc_v2(&ptr, GIB));
    OK(cuMemsetD8_v2(ptr, 7, 100));
    OK(cuStreamCreate(&stream, 0));
    OK(cuStreamGetCtx(stream, &seen));
    HOLDS(seen == context);
    EXPECT(cuGreenCtxStreamCreate(&other, two, 0, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuGreenCtxStreamCreate(&other, two, CU_STREAM_NON_BLOCKING, 0));
    OK(cuStreamGetGreenCtx(other, &from));
    HOLDS(from == two);
    OK(cuStreamSynchronize(other));
    OK(cuEventCreate(&event, 0));
    OK(cuGreenCtxRecordEvent(one, event));
    OK(cuGreenCtxWaitEvent(two, event));

    /* The memory is the primary context's, and lives on in it; the stream does not. */
    OK(cuGreenCtxDestroy(one));
    EXPECT(cuGreenCtxDestroy(one), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT(cuMemGetInfo_v2(&base, &base), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_DETACHED);
    OK(cuStreamSynchronize(other));
    OK(cuCtxFromGreenCtx(&context, two));
    OK(cuCtxSetCurrent(context));
    EXPECT(used(), GIB + 300 * MIB);
    OK(cuMemFree_v2(ptr));
    OK(cuMemAlloc_v2(&ptr, GIB));
    EXPECT(is_primary_up(), 1);
    OK(cuGreenCtxDestroy(two));
    EXPECT(is_primary_up(), 0);
    EXPECT(simgpu_card_used(0), 0);
    EXPECT(simgpu_live_allocations(), 0);
    puts("green contexts are the primary context's");
    return 0;
}
