/* Plain memory and contexts of the simulated driver: what is refused, what it takes, where the bytes go. */
#include "sim_check.h"

/* 16 GiB card, contexts of 300 MiB */
#define CARD (16 * GIB)
#define CONTEXT (300 * MIB)

static void before_init(void)
{
    CUdeviceptr ptr = 17;
    size_t have = 7;
    EXPECT(cuMemAlloc_v2(&ptr, 1), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(ptr, 17);
    EXPECT(cuMemGetInfo_v2(&have, NULL), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(simgpu_call_count("cuMemAlloc_v2"), 1);
}

static void without_context(void)
{
    CUdeviceptr ptr;
    size_t have = 7;
    EXPECT(cuMemAlloc_v2(&ptr, 1), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT(cuMemGetInfo_v2(&have, NULL), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT(have, 7);
    EXPECT(cuCtxPopCurrent_v2(NULL), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT(cuDevicePrimaryCtxRetain((CUcontext *)&ptr, 9), CUDA_ERROR_INVALID_DEVICE);
    EXPECT(simgpu_card_used(0), 0);
}

static void info_takes_null(void)
{
    size_t have = 0, all = 0;
    OK(cuMemGetInfo_v2(NULL, NULL));
    OK(cuMemGetInfo_v2(&have, NULL));
    OK(cuMemGetInfo_v2(NULL, &all));
    EXPECT(all, CARD);
    EXPECT(have, CARD - CONTEXT);
    unsigned low = 0;
    OK(cuMemGetInfo(&low, NULL));
    EXPECT(low, UINT32_MAX);
}

static void sizes_are_blocks(void)
{
    CUdeviceptr ptr, other;
    EXPECT(cuMemAlloc_v2(&ptr, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemAlloc_v2(NULL, 16), CUDA_ERROR_INVALID_VALUE);
    const size_t too_much[] = {CARD, CARD - CONTEXT + 1, (size_t)1 << 63, SIZE_MAX - 4095, SIZE_MAX};
    for (int i = 0; i < 5; i++) {
        ptr = 0x11;
        EXPECT(cuMemAlloc_v2(&ptr, too_much[i]), CUDA_ERROR_OUT_OF_MEMORY);
        EXPECT(ptr, 0x11);
    }
    EXPECT(used(), CONTEXT);
    OK(cuMemAlloc_v2(&ptr, CARD - CONTEXT)); /* exactly what is free */
    EXPECT(used(), CARD);
    EXPECT(ptr % (2 * MIB), 0);
    EXPECT(cuMemAlloc_v2(&other, 1), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(simgpu_process_bytes(0), CARD);
    OK(cuMemFree_v2(ptr));
    EXPECT(cuMemFree_v2(ptr), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemFree_v2(12345), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(0));
    EXPECT(used(), CONTEXT);
    OK(cuMemAlloc_v2(&ptr, MIB));
    EXPECT(used(), CONTEXT + 2 * MIB);
    EXPECT(cuMemFree_v2(ptr + 512), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(ptr));
}

static void small_ones_share_blocks(void)
{
    enum { COUNT = 10000 };
    static CUdeviceptr ptr[COUNT];
    for (int i = 0; i < COUNT; i++) {
        OK(cuMemAlloc_v2(&ptr[i], 1));
        EXPECT(ptr[i] % 512, 0);
    }
    EXPECT(used() - CONTEXT, 3 * 2 * MIB); /* 4096 granules a block */
    EXPECT(simgpu_live_allocations(), COUNT);
    for (int i = 0; i < COUNT; i += 2)
        OK(cuMemFree_v2(ptr[i]));
    for (int i = 0; i < COUNT; i += 2)
        OK(cuMemAlloc_v2(&ptr[i], 512));
    EXPECT(used() - CONTEXT, 3 * 2 * MIB); /* the holes are found again */
    CUdeviceptr base;
    size_t bytes;
    OK(cuMemGetAddressRange_v2(&base, &bytes, ptr[4] + 100));
    EXPECT(base, ptr[4]);
    EXPECT(bytes, 512);
    EXPECT(cuMemGetAddressRange_v2(&base, &bytes, ptr[3] + 100), CUDA_ERROR_NOT_FOUND);
    for (int i = 0; i < COUNT; i++)
        OK(cuMemFree_v2(ptr[i]));
    EXPECT(used(), CONTEXT);
    EXPECT(simgpu_live_allocations(), 0);
}

static void pitch_rounds_rows(void)
{
    CUdeviceptr ptr;
    size_t pitch;
    OK(cuMemAllocPitch_v2(&ptr, &pitch, 1000, 10000, 4));
    EXPECT(pitch, 1024);
    EXPECT(used() - CONTEXT, 10 * MIB);
    OK(cuMemFree_v2(ptr));
    EXPECT(cuMemAllocPitch_v2(&ptr, &pitch, 1000, 10, 3), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemAllocPitch_v2(&ptr, &pitch, 1 << 30, SIZE_MAX / 2, 4), CUDA_ERROR_OUT_OF_MEMORY);
}

static void old_interface(void)
{
    CUdeviceptr_v1 ptr;
    unsigned base_bytes;
    char text[8];
    OK(cuMemAlloc(&ptr, 3 << 20));
    EXPECT(used() - CONTEXT, 4 * MIB);
    OK(cuMemcpyHtoD(ptr + 5, "old api", 8));
    OK(cuMemcpyDtoH(text, ptr + 5, 8));
    EXPECT(strcmp(text, "old api"), 0);
    OK(cuMemGetAddressRange(NULL, &base_bytes, ptr + 9));
    EXPECT(base_bytes, 3 << 20);
    OK(cuMemFree(ptr));
    EXPECT(used(), CONTEXT);
}

static void bytes_move(void)
{
    enum { SIZE = 5 << 20 };
    unsigned char *in = malloc(SIZE), *out = malloc(SIZE);
    CUdeviceptr a, b, small;
    for (int i = 0; i < SIZE; i++)
        in[i] = (unsigned char)(i * 7 + i / 4099);
    OK(cuMemAlloc_v2(&a, SIZE));
    OK(cuMemAlloc_v2(&b, SIZE));
    OK(cuMemAlloc_v2(&small, 1000));
    OK(cuMemcpyHtoD_v2(a, in, SIZE));
    OK(cuMemcpyDtoD_v2(b + 1, a, SIZE - 1)); /* across blocks, unaligned */
    OK(cuMemcpyDtoH_v2(out, b + 1, SIZE - 1));
    EXPECT(memcmp(in, out, SIZE - 1), 0);
    OK(cuMemcpy(small, a + 77, 1000));
    OK(cuMemcpy((CUdeviceptr)(uintptr_t)out, small, 1000));
    EXPECT(memcmp(in + 77, out, 1000), 0);
    EXPECT(cuMemcpyHtoD_v2(a, in, SIZE + 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemcpyHtoD_v2(a + SIZE, in, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemcpyHtoD_v2(a - 1, in, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemcpyDtoH_v2(out, small, 1001), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemcpyDtoH_v2(NULL, a, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemcpyDtoH_v2((void *)16, a, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemcpyHtoD_v2(a, in, 0));

    OK(cuMemsetD8_v2(b, 0xab, SIZE));
    OK(cuMemsetD32_v2(b + 4, 0x01020304, 1));
    OK(cuMemsetD16_v2(b + 2 * MIB - 2, 0x1122, 2));
    OK(cuMemsetD2D8_v2(b + 100, 64, 0xcd, 8, 3));
    OK(cuMemsetD8_v2(b + 3 * MIB, 0, MIB));
    OK(cuMemcpyDtoH_v2(out, b, SIZE));
    EXPECT(out[3], 0xab);
    EXPECT(out[4], 4);
    EXPECT(out[7], 1);
    EXPECT(out[2 * MIB], 0x22);
    EXPECT(out[2 * MIB + 1], 0x11);
    EXPECT(out[100 + 128 + 7], 0xcd);
    EXPECT(out[100 + 128 + 8], 0xab);
    EXPECT(out[3 * MIB], 0);
    EXPECT(out[4 * MIB - 1], 0);
    EXPECT(out[4 * MIB], 0xab);
    EXPECT(cuMemsetD32_v2(b + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemsetD8_v2(b, 0, SIZE + 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemsetD32_v2(b, 0, SIZE_MAX / 2), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(a));
    OK(cuMemFree_v2(b));
    /* Nobody reads what another wrote before. */
    OK(cuMemAlloc_v2(&a, 2 * SIZE));
    OK(cuMemcpyDtoH_v2(out, a, SIZE));
    for (int i = 0; i < SIZE; i++)
        EXPECT(out[i], 0);
    OK(cuMemFree_v2(a));
    OK(cuMemFree_v2(small));
    free(in);
    free(out);
}

static void rectangles(void)
{
    CUdeviceptr ptr;
    size_t pitch;
    char in[6][10], out[6][10];
    for (int i = 0; i < 60; i++)
        in[i / 10][i % 10] = (char)i;
    memset(out, 0, sizeof out);
    OK(cuMemAllocPitch_v2(&ptr, &pitch, 10, 6, 4));
    CUDA_MEMCPY2D to = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = in,
                        .srcPitch = 10,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = ptr,
                        .dstPitch = pitch,
                        .WidthInBytes = 10,
                        .Height = 6};
    OK(cuMemcpy2D_v2(&to));
    CUDA_MEMCPY2D from = {.srcXInBytes = 2,
                          .srcY = 1,
                          .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = ptr,
                          .srcPitch = pitch,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = out,
                          .dstPitch = 10,
                          .WidthInBytes = 3,
                          .Height = 2};
    OK(cuMemcpy2D_v2(&from));
    EXPECT(out[0][0], 12);
    EXPECT(out[1][2], 24);
    EXPECT(out[1][3], 0);
    from.srcY = 5; /* one row beyond */
    EXPECT(cuMemcpy2D_v2(&from), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemcpy2D_v2(NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(ptr));
}

static void contexts(CUcontext primary)
{
    CUcontext made, again, current;
    CUdeviceptr ptr;
    unsigned flags;
    int active;
    OK(cuDevicePrimaryCtxRetain(&again, 0));
    HOLDS(again == primary);
    EXPECT(used(), CONTEXT); /* once a process */
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuCtxCreate_v2(&made, 0, 0));
    EXPECT(used(), 2 * CONTEXT);
    OK(cuCtxGetCurrent(&current));
    HOLDS(current == made);
    OK(cuMemAlloc_v2(&ptr, GIB));
    OK(cuCtxDestroy_v2(made)); /* with all that is in it */
    OK(cuCtxGetCurrent(&current));
    HOLDS(current == primary);
    EXPECT(used(), CONTEXT);
    EXPECT(cuMemFree_v2(ptr), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuCtxDestroy_v2(made), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT(cuCtxDestroy_v2(primary), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT(cuCtxSetCurrent(made), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT(cuCtxSetCurrent((CUcontext)&made), CUDA_ERROR_INVALID_CONTEXT);

    OK(cuMemAlloc_v2(&ptr, GIB));
    OK(cuDevicePrimaryCtxReset_v2(0));
    EXPECT(simgpu_card_used(0), 0);
    EXPECT(simgpu_live_allocations(), 0);
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    EXPECT(active, 0);
    EXPECT(cuMemAlloc_v2(&ptr, GIB), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cuDevicePrimaryCtxRetain(&again, 0)); /* revived under its old handle */
    HOLDS(again == primary);
    OK(cuMemAlloc_v2(&ptr, GIB));
    EXPECT(used(), CONTEXT + GIB);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    EXPECT(simgpu_card_used(0), CONTEXT + GIB);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    EXPECT(simgpu_card_used(0), 0);
}

static void failures_on_demand(void)
{
    CUcontext context;
    OK(simgpu_fail_next("cuDevicePrimaryCtxRetain", CUDA_ERROR_OUT_OF_MEMORY, 2));
    EXPECT(cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(simgpu_card_used(0), 0);
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    EXPECT(simgpu_fail_next("cuNoSuchThing", 2, 1), -1);
}

static void at_exit(void)
{
    CUdeviceptr ptr;
    if (cuMemAlloc_v2(&ptr, 1) != CUDA_ERROR_DEINITIALIZED)
        _Exit(1);
}

int main(void)
{
    before_init();
    atexit(at_exit); /* runs after the driver's own teardown */
    OK(cuInit(0));
    without_context();
    CUcontext primary = start();
    info_takes_null();
    sizes_are_blocks();
    small_ones_share_blocks();
    pitch_rounds_rows();
    old_interface();
    bytes_move();
    rectangles();
    contexts(primary);
    failures_on_demand();
    puts("memory is as the driver's");
    return 0;
}
