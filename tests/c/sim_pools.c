/* Stream-ordered pools of the simulated driver: what they hold, and when they let go. */
#include "sim_check.h"

static uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute which)
{
    uint64_t value;
    OK(cuMemPoolGetAttribute(pool, which, &value));
    return value;
}

static void threshold(CUmemoryPool pool, uint64_t bytes)
{
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes));
}

#define RESERVED(pool) attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
#define USED(pool) attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)

static void default_pool(size_t base)
{
    CUmemoryPool pool, current;
    CUdeviceptr ptr, small;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuDeviceGetMemPool(&current, 0));
    HOLDS(pool == current);
    EXPECT(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAllocAsync(&ptr, 10 * MIB, NULL));
    OK(cuMemAllocAsync(&small, 100, CU_STREAM_PER_THREAD));
    EXPECT(used() - base, 12 * MIB);
    EXPECT(RESERVED(pool), 12 * MIB);
    EXPECT(USED(pool), 10 * MIB + 512);
    OK(cuMemFreeAsync(ptr, NULL));
    EXPECT(RESERVED(pool), 12 * MIB); /* until somebody synchronises */
    EXPECT(USED(pool), 512);
    OK(cuStreamSynchronize(NULL));
    EXPECT(RESERVED(pool), 2 * MIB);
    OK(cuMemFree_v2(small)); /* which synchronises by itself */
    EXPECT(RESERVED(pool), 0);
    EXPECT(used(), base);
    EXPECT(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 12 * MIB);
    uint64_t zero = 0;
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
    EXPECT(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 0);
}

static void thresholds_keep(size_t base)
{
    CUmemoryPool pool;
    CUdeviceptr ptr;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    threshold(pool, UINT64_MAX);
    for (int round = 0; round < 1000; round++) {
        OK(cuMemAllocAsync(&ptr, 512 * MIB, NULL));
        OK(cuMemFreeAsync(ptr, NULL));
        OK(cuStreamSynchronize(NULL));
        EXPECT(RESERVED(pool), 512 * MIB); /* never grows with the rounds */
    }
    OK(cuMemAllocAsync(&ptr, 256 * MIB, NULL));
    OK(cuMemPoolTrimTo(pool, 0)); /* what is used stays */
    EXPECT(used() - base, 256 * MIB);
    OK(cuMemFreeAsync(ptr, NULL));
    threshold(pool, 64 * MIB);
    OK(cuCtxSynchronize());
    EXPECT(used() - base, 64 * MIB);
    OK(cuMemPoolTrimTo(pool, 0));
    EXPECT(used(), base);
    threshold(pool, 0);
}

static void created_pools(size_t base)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                            .maxSize = 64 * MIB};
    CUmemoryPool pool, refused;
    CUdeviceptr ptr, other;
    OK(cuMemPoolCreate(&pool, &props));
    EXPECT(used(), base);
    OK(cuMemAllocFromPoolAsync(&ptr, 60 * MIB, pool, CU_STREAM_LEGACY));
    EXPECT(cuMemAllocFromPoolAsync(&other, 6 * MIB, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAllocFromPoolAsync(&other, 4 * MIB, pool, NULL));
    CUmemoryPool owner;
    OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, other + 5));
    HOLDS(owner == pool);
    OK(cuMemFree_v2(ptr));
    OK(cuMemPoolDestroy(pool)); /* lives on with its last allocation */
    EXPECT(cuMemAllocFromPoolAsync(&ptr, MIB, pool, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT(used() - base, 4 * MIB);
    OK(cuMemFreeAsync(other, NULL));
    EXPECT(used(), base);
    props.location.id = 7;
    EXPECT(cuMemPoolCreate(&refused, &props), CUDA_ERROR_INVALID_DEVICE);
    EXPECT(cuMemAllocAsync(&ptr, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemAllocAsync(&ptr, 1, (CUstream)&props), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(cuMemFreeAsync(0x1234, NULL), CUDA_ERROR_INVALID_VALUE);
}

static void unused_memory_gives_way(size_t base)
{
    CUmemoryPool pool;
    CUdeviceptr ptr;
    size_t have, all;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    threshold(pool, UINT64_MAX);
    OK(cuMemAllocAsync(&ptr, GIB, NULL));
    OK(cuMemFreeAsync(ptr, NULL));
    OK(cuMemGetInfo_v2(&have, &all));
    OK(cuMemAlloc_v2(&ptr, have + GIB / 2)); /* more than is free, less than would be */
    EXPECT(RESERVED(pool), 0);
    OK(cuMemFree_v2(ptr));
    EXPECT(used(), base);
    threshold(pool, 0);
}

static void bytes_move(void)
{
    CUdeviceptr ptr;
    char out[16];
    OK(cuMemAllocAsync(&ptr, 3 * MIB, NULL));
    OK(cuMemcpyHtoDAsync_v2(ptr + 2 * MIB - 8, "across the block", 16, NULL));
    OK(cuMemcpyDtoHAsync_v2(out, ptr + 2 * MIB - 8, 16, NULL));
    EXPECT(memcmp(out, "across the block", 16), 0);
    OK(cuMemFreeAsync(ptr, NULL));
    OK(cuMemAlloc_v2(&ptr, MIB)); /* plain memory may be freed in stream order, too */
    OK(cuMemFreeAsync(ptr, NULL));
    EXPECT(cuMemFree_v2(ptr), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAllocManaged(&ptr, MIB, CU_MEM_ATTACH_GLOBAL));
    EXPECT(cuMemFreeAsync(ptr, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(ptr));
    OK(cuCtxSynchronize());
}

static void end_with_their_context(void)
{
    CUdeviceptr ptr;
    CUmemoryPool pool;
    OK(cuMemAllocAsync(&ptr, GIB, NULL));
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    threshold(pool, UINT64_MAX);
    OK(cuMemAllocAsync(&ptr, 100, NULL));
    OK(cuDevicePrimaryCtxReset_v2(0));
    EXPECT(simgpu_card_used(0), 0);
    EXPECT(simgpu_live_allocations(), 0);
    EXPECT(attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0);
}

int main(void)
{
    start();
    size_t base = used();
    default_pool(base);
    thresholds_keep(base);
    created_pools(base);
    unused_memory_gives_way(base);
    bytes_move();
    EXPECT(used(), base);
    EXPECT(simgpu_live_allocations(), 0);
    end_with_their_context();
    puts("pools hold what they say");
    return 0;
}
