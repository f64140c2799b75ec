/* Two cards, 16 GiB and 24 GiB in that order: whose memory is whose. */
#include "sim_check.h"

#include <pthread.h>

static CUcontext context[2];

static size_t used_on(int device)
{
    CUcontext popped;
    OK(cuCtxPushCurrent_v2(context[device]));
    size_t bytes = used();
    OK(cuCtxPopCurrent_v2(&popped));
    HOLDS(popped == context[device]);
    return bytes;
}

static void *has_no_context(void *unused)
{
    CUcontext current = (CUcontext)1;
    (void)unused;
    OK(cuCtxGetCurrent(&current));
    HOLDS(current == NULL); /* the current context is the thread's */
    return NULL;
}

int main(void)
{
    OK(cuInit(0));
    for (int device = 0; device < 2; device++)
        OK(cuDevicePrimaryCtxRetain(&context[device], device));
    EXPECT(simgpu_card_total(0), 16 * GIB);
    EXPECT(simgpu_card_total(1), 24 * GIB);
    size_t base[2] = {used_on(0), used_on(1)};
    pthread_t thread;
    OK(cuCtxSetCurrent(context[1]));
    pthread_create(&thread, NULL, has_no_context, NULL);
    pthread_join(thread, NULL);

    CUdeviceptr on[2];
    int ordinal;
    OK(cuMemAlloc_v2(&on[1], 20 * GIB));
    EXPECT(used_on(0), base[0]);
    EXPECT(used_on(1) - base[1], 20 * GIB);
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, on[1] + GIB));
    EXPECT(ordinal, 1);
    OK(cuCtxSetCurrent(context[0]));
    EXPECT(cuMemAlloc_v2(&on[0], 20 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc_v2(&on[0], 4 * MIB));

    char out[6];
    OK(cuMemcpyHtoD_v2(on[0] + 7, "peers", 6));
    OK(cuMemcpyPeer(on[1] + GIB, context[1], on[0] + 7, context[0], 6));
    OK(cuMemcpyDtoH_v2(out, on[1] + GIB, 6));
    EXPECT(strcmp(out, "peers"), 0);
    EXPECT(cuMemcpyPeer(on[1], (CUcontext)out, on[0], context[0], 6), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxEnablePeerAccess(context[1], 0));
    EXPECT(cuCtxEnablePeerAccess(context[1], 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    OK(cuCtxDisablePeerAccess(context[1]));
    EXPECT(cuCtxDisablePeerAccess(context[1]), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);

    /* Freed whatever is current. */
    OK(cuMemFree_v2(on[1]));
    EXPECT(used_on(1), base[1]);

    /* Managed pages follow whoever touches them; a page is on one card at a time. */
    CUdeviceptr managed;
    OK(cuMemAllocManaged(&managed, 8 * MIB, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemsetD8_v2(managed, 1, 8 * MIB));
    EXPECT(used_on(0) - base[0], 12 * MIB);
    OK(cuMemPrefetchAsync(managed, 6 * MIB, 1, NULL));
    EXPECT(used_on(0) - base[0], 6 * MIB);
    EXPECT(used_on(1) - base[1], 6 * MIB);
    OK(cuMemFree_v2(managed));

    /* A pool lies on its own device, whichever stream asks. */
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}};
    CUmemoryPool pool;
    OK(cuMemPoolCreate(&pool, &props));
    OK(cuMemAllocFromPoolAsync(&on[1], 32 * MIB, pool, NULL));
    EXPECT(used_on(1) - base[1], 32 * MIB);
    OK(cuMemFreeAsync(on[1], NULL));
    OK(cuMemPoolTrimTo(pool, 0));
    EXPECT(used_on(1), base[1]);
    EXPECT(cuDeviceSetMemPool(0, pool), CUDA_ERROR_INVALID_VALUE);
    OK(cuDeviceSetMemPool(1, pool));
    OK(cuMemPoolDestroy(pool)); /* the device falls back to its default */
    OK(cuDeviceGetMemPool(&pool, 1));

    /* Physical memory of one device mapped for the other. */
    CUmemAllocationProp on_second = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}};
    CUmemAccessDesc for_first = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    OK(cuMemCreate(&handle, 2 * MIB, &on_second, 0));
    OK(cuMemAddressReserve(&at, 2 * MIB, 0, 0, 0));
    OK(cuMemMap(at, 2 * MIB, 0, handle, 0));
    OK(cuMemSetAccess(at, 2 * MIB, &for_first, 1));
    OK(cuMemsetD8_v2(at, 3, 2 * MIB));
    OK(cuCtxSetCurrent(context[1]));
    EXPECT(cuMemsetD8_v2(at, 3, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
    EXPECT(used_on(0) - base[0], 4 * MIB);
    EXPECT(used_on(1) - base[1], 2 * MIB);
    OK(cuMemUnmap(at, 2 * MIB));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(at, 2 * MIB));

    OK(cuDevicePrimaryCtxReset_v2(0));
    EXPECT(simgpu_card_used(0), 0);
    EXPECT(used_on(1), base[1]); /* the other device keeps what it has */
    EXPECT(simgpu_live_allocations(), 0);
    puts("each card has its own");
    return 0;
}
