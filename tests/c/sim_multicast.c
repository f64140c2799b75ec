/* Multicast objects of the simulated driver: they take no memory, and keep what is bound to them. Two cards. */
#include "sim_check.h"

static CUmemGenericAllocationHandle memory(CUdevice device, size_t bytes)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    OK(cuMemCreate(&handle, bytes, &prop, 0));
    return handle;
}

int main(void)
{
    start();
    size_t base = used(), far = simgpu_card_used(1), granularity = 0;
    CUmulticastObjectProp prop = {.numDevices = 2, .size = 64 * MIB};
    CUmemGenericAllocationHandle team, near_memory = memory(0, 32 * MIB), far_memory = memory(1, 64 * MIB), again;
    CUdeviceptr at, window;

    OK(cuMulticastGetGranularity(&granularity, &prop, CU_MULTICAST_GRANULARITY_MINIMUM));
    EXPECT(granularity, 2 * MIB);
    prop.size = 64 * MIB + 1;
    EXPECT(cuMulticastCreate(&team, &prop), CUDA_ERROR_INVALID_VALUE);
    prop.size = 64 * MIB;
    OK(cuMulticastCreate(&team, &prop));
    EXPECT(used() - base, 32 * MIB);
    OK(cuMulticastAddDevice(team, 0));
    EXPECT(cuMulticastAddDevice(team, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMulticastBindMem(team, 0, near_memory, 0, 32 * MIB, 0), CUDA_ERROR_ILLEGAL_STATE);
    OK(cuMulticastAddDevice(team, 1));

    OK(cuMulticastBindMem(team, 0, near_memory, 0, 32 * MIB, 0));
    EXPECT(cuMulticastBindMem(team, 16 * MIB, near_memory, 0, 16 * MIB, 0), CUDA_ERROR_INVALID_VALUE); /* overlaps */
    EXPECT(cuMulticastBindMem(team, 32 * MIB, near_memory, 16 * MIB, 32 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMulticastBindMem_v2(team, 1, 0, far_memory, 32 * MIB, 32 * MIB, 0));
    OK(cuMemAddressReserve(&at, 64 * MIB, 0, 0, 0));
    OK(cuMemMap(at, 64 * MIB, 0, far_memory, 0));
    OK(cuMulticastBindAddr_v2(team, 1, 32 * MIB, at + 32 * MIB, 32 * MIB, 0));
    EXPECT(cuMulticastBindAddr(team, 32 * MIB, at + 64 * MIB, 32 * MIB, 0), CUDA_ERROR_INVALID_VALUE); /* nothing there */
    OK(cuMemUnmap(at, 64 * MIB));
    OK(cuMemRelease(near_memory));
    OK(cuMemRelease(far_memory));
    EXPECT(used() - base, 32 * MIB);
    EXPECT(simgpu_card_used(1) - far, 64 * MIB);

    EXPECT(cuMulticastUnbind(team, 0, 0, 16 * MIB), CUDA_ERROR_INVALID_VALUE); /* not as it was bound */
    OK(cuMulticastUnbind(team, 0, 0, 32 * MIB));
    EXPECT(used(), base);
    OK(cuMulticastUnbind(team, 1, 32 * MIB, 32 * MIB));
    EXPECT(simgpu_card_used(1) - far, 64 * MIB); /* the other binding */

    /* The object itself lives while it is mapped. */
    OK(cuMemAddressReserve(&window, 64 * MIB, 0, 0, 0));
    OK(cuMemMap(window, 64 * MIB, 0, team, 0));
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)window));
    EXPECT(again, team);
    OK(cuMemRelease(team));
    OK(cuMemRelease(again));
    EXPECT(simgpu_card_used(1) - far, 64 * MIB);
    OK(cuMemUnmap(window, 64 * MIB));
    EXPECT(simgpu_card_used(1), far);
    OK(cuMemAddressFree(window, 64 * MIB));
    OK(cuMemAddressFree(at, 64 * MIB));
    EXPECT(used(), base);
    EXPECT(simgpu_live_allocations(), 0);
    puts("multicast objects keep what is bound");
    return 0;
}
