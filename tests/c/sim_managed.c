/* Managed and pinned memory of the simulated driver. */
#include "sim_check.h"

static void resident_by_touch(size_t base)
{
    CUdeviceptr ptr;
    unsigned managed = 0;
    OK(cuMemAllocManaged(&ptr, 3 * GIB, CU_MEM_ATTACH_GLOBAL));
    EXPECT(used(), base); /* nothing yet */
    OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr + 77));
    EXPECT(managed, 1);
    OK(cuMemsetD8_v2(ptr + GIB, 0x5a, 10 * MIB));
    EXPECT(used() - base, 10 * MIB);
    EXPECT(*((unsigned char *)(uintptr_t)ptr + GIB + 3), 0x5a); /* the host reads it as its own */
    OK(cuMemPrefetchAsync(ptr, 64 * MIB, 0, NULL));
    EXPECT(used() - base, 74 * MIB);
    OK(cuMemPrefetchAsync(ptr, 3 * GIB, CU_DEVICE_CPU, NULL));
    EXPECT(used(), base);
    OK(cuMemPrefetchAsync_v2(ptr, 2 * MIB, (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 0}, 0, NULL));
    EXPECT(used() - base, 2 * MIB);
    OK(cuMemFree_v2(ptr));
    EXPECT(used(), base);
}

static void gives_way(size_t base)
{
    CUdeviceptr ptr, plain;
    size_t have, all;
    OK(cuMemGetInfo_v2(&have, &all));
    OK(cuMemAllocManaged(&ptr, all + GIB, CU_MEM_ATTACH_HOST)); /* more than there is */
    *(char *)(uintptr_t)ptr = 42;
    OK(cuMemPrefetchAsync(ptr, all + GIB, 0, NULL));
    EXPECT(used(), all);
    OK(cuMemAlloc_v2(&plain, have)); /* takes all of it back */
    EXPECT(used(), all);
    EXPECT(*(char *)(uintptr_t)ptr, 42);
    OK(cuMemFree_v2(plain));
    EXPECT(used(), base); /* nobody moved the pages back */
    OK(cuMemsetD8_v2(ptr, 43, 4 * MIB));
    EXPECT(used() - base, 4 * MIB);
    OK(cuMemFree_v2(ptr));
    EXPECT(used(), base);
}

static void batches(size_t base)
{
    CUdeviceptr ptrs[3];
    size_t sizes[3] = {4 * MIB, 6 * MIB, 8 * MIB}, firsts[2] = {0, 2};
    CUmemLocation places[2] = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, {CU_MEM_LOCATION_TYPE_HOST, 0}};
    for (int i = 0; i < 3; i++) {
        OK(cuMemAllocManaged(&ptrs[i], sizes[i], CU_MEM_ATTACH_GLOBAL));
        OK(cuMemPrefetchAsync(ptrs[i], sizes[i], i ? CU_DEVICE_CPU : 0, NULL));
    }
    EXPECT(used() - base, 4 * MIB);
    OK(cuMemPrefetchBatchAsync(ptrs, sizes, 3, places, firsts, 2, 0, NULL)); /* the last goes to the host */
    EXPECT(used() - base, 10 * MIB);
    OK(cuMemDiscardBatchAsync(ptrs, sizes, 1, 0, NULL));
    EXPECT(used() - base, 6 * MIB);
    OK(cuMemDiscardAndPrefetchBatchAsync(ptrs, sizes, 3, places, firsts, 1, 0, NULL));
    EXPECT(used() - base, 18 * MIB);
    EXPECT(cuMemPrefetchBatchAsync(ptrs, sizes, 3, places, firsts, 0, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemPrefetchBatchAsync(ptrs, sizes, 2, places, firsts, 2, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemDiscardBatchAsync(NULL, sizes, 1, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; i < 3; i++)
        OK(cuMemFree_v2(ptrs[i]));
    EXPECT(cuMemDiscardBatchAsync(ptrs, sizes, 1, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT(used(), base);
}

static void advice_is_remembered(void)
{
    CUdeviceptr ptr;
    int value[3];
    OK(cuMemAllocManaged(&ptr, 8 * MIB, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemRangeGetAttribute(value, 4, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, ptr, 8 * MIB));
    EXPECT(value[0], CU_DEVICE_INVALID);
    OK(cuMemAdvise(ptr, 8 * MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 0));
    OK(cuMemAdvise(ptr, 8 * MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, CU_DEVICE_CPU));
    OK(cuMemAdvise(ptr, 8 * MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
    int preferred, mostly;
    void *out[] = {&preferred, &mostly};
    size_t sizes[] = {4, 4};
    CUmem_range_attribute which[] = {CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY};
    OK(cuMemRangeGetAttributes(out, sizes, which, 2, ptr, MIB));
    EXPECT(preferred, 0);
    EXPECT(mostly, 1);
    OK(cuMemRangeGetAttribute(value, 12, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, ptr, MIB));
    EXPECT(value[0], CU_DEVICE_CPU);
    EXPECT(value[1], CU_DEVICE_INVALID);
    EXPECT(cuMemAdvise(ptr, 9 * MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemPrefetchAsync(ptr, MIB, 8, NULL), CUDA_ERROR_INVALID_DEVICE);
    EXPECT(cuMemAllocManaged(&ptr, MIB, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemAllocManaged(&ptr, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(ptr));
}

static void pinned(size_t base)
{
    void *memory;
    CUdeviceptr ptr;
    unsigned type = 0;
    OK(cuMemHostAlloc(&memory, 100000, CU_MEMHOSTALLOC_PORTABLE));
    EXPECT(used(), base);
    memset(memory, 7, 100000);
    OK(cuMemHostGetDevicePointer_v2(&ptr, memory, 0));
    OK(cuMemsetD8_v2(ptr + 10, 8, 10));
    EXPECT(((char *)memory)[10], 8);
    EXPECT(((char *)memory)[20], 7);
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr + 99999));
    EXPECT(type, CU_MEMORYTYPE_HOST);
    OK(cuMemFreeHost(memory));
    EXPECT(cuMemFreeHost(memory), CUDA_ERROR_INVALID_VALUE);
    static char own[4096];
    OK(cuMemHostRegister_v2(own, sizeof own, 0));
    EXPECT(cuMemHostRegister_v2(own + 10, 10, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    OK(cuMemHostUnregister(own));
    EXPECT(cuMemHostUnregister(own), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

static void attributes_of_nothing(void)
{
    unsigned managed = 5;
    CUcontext context = (CUcontext)1;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_CONTEXT};
    void *out[] = {&managed, &context};
    EXPECT(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, 0x1234), CUDA_ERROR_INVALID_VALUE);
    EXPECT(managed, 5);
    OK(cuPointerGetAttributes(2, which, out, 0x1234));
    EXPECT(managed, 0);
    HOLDS(context == NULL);
}

/* A device without concurrent access: all of it is on the card from the start, and stays there. */
static void resident_from_the_start(size_t base)
{
    CUdeviceptr ptr, other;
    OK(cuMemAllocManaged(&ptr, 3 * GIB - 1, CU_MEM_ATTACH_GLOBAL));
    EXPECT(used() - base, 3 * GIB);
    EXPECT(cuMemAllocManaged(&other, 14 * GIB, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuMemAlloc_v2(&other, 13 * GIB), CUDA_ERROR_OUT_OF_MEMORY); /* it does not give way */
    EXPECT(cuMemPrefetchAsync(ptr, GIB, 0, NULL), CUDA_ERROR_INVALID_DEVICE);
    OK(cuMemsetD8_v2(ptr, 9, MIB));
    EXPECT(*(char *)(uintptr_t)ptr, 9);
    OK(cuMemFree_v2(ptr));
    EXPECT(used(), base);
}

int main(int argc, char **argv)
{
    start();
    size_t base = used();
    if (argc > 1 && !strcmp(argv[1], "no-concurrent-access")) {
        resident_from_the_start(base);
        return 0;
    }
    resident_by_touch(base);
    gives_way(base);
    advice_is_remembered();
    batches(base);
    pinned(base);
    attributes_of_nothing();
    EXPECT(used(), base);
    EXPECT(simgpu_live_allocations(), 0);
    puts("managed memory is where it was touched");
    return 0;
}
