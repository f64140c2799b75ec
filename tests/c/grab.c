/*
 * Allocation patterns of frameworks: how each takes memory for tensors of 64 MiB, with and without its own switch for it.
 *
 *   grab PATTERN TENSORS
 *
 * Makes the tensors, writes to each 2 MiB of them, says "ready" (or "failed CODE"), and then does what the lines of its
 * standard input say: "check" reads everything back, "touch" writes it again, "info" asks for memory info, "held" says what
 * the card holds for this process in MiB, without asking the driver anything. Ends with its input.
 */
#define _GNU_SOURCE
#include "open_driver.h"

#include <stdint.h>
#include <string.h>

#define MIB ((size_t)1 << 20)
#define TENSOR (64 * MIB)
#define BLOCK (2 * MIB)
#define MOST 4096

static void *library;
static CUdeviceptr tensors[MOST];
static size_t wanted, made;

#define CU(name, types) ((CUresult(*) types)function_of(library, #name))

static CUresult alloc(CUdeviceptr *address, size_t bytes) {
    return CU(cuMemAlloc_v2, (CUdeviceptr *, size_t))(address, bytes);
}

static size_t memory(int of_total) {
    size_t left = 0, total = 0;
    CU(cuMemGetInfo_v2, (size_t *, size_t *))(&left, &total);
    return of_total ? total : left;
}

static int switched(const char *variable, const char *value) {
    const char *is = getenv(variable);
    return is && !strcmp(is, value);
}

/* Cuts tensors from a region as long as it lasts. */
static void cut(CUdeviceptr region, size_t bytes) {
    for (size_t at = 0; at + TENSOR <= bytes && made < wanted; at += TENSOR) tensors[made++] = region + at;
}

/* One request for nearly everything; with the switch, regions of twice the size each. */
static CUresult tensorflow(void) {
    CUdeviceptr region;
    CUresult code = 0;
    if (!switched("TF_FORCE_GPU_ALLOW_GROWTH", "true")) {
        size_t bytes = (memory(0) - 1800 * MIB) & ~(size_t)255;
        if (!(code = alloc(&region, bytes))) cut(region, bytes);
        return code;
    }
    for (size_t bytes = TENSOR; !code && made < wanted; bytes *= 2)
        if (!(code = alloc(&region, bytes))) cut(region, bytes);
    return code;
}

/* The fraction of the card that per_process_gpu_memory_fraction = 0.9 means. */
static CUresult fraction(void) {
    CUdeviceptr region;
    size_t bytes = memory(1) / 10 * 9 & ~(size_t)255;
    CUresult code = alloc(&region, bytes);
    if (!code) cut(region, bytes);
    return code;
}

static CUresult pooled(void) {
    CUresult code = 0;
    while (!code && made < wanted)
        if (!(code = CU(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream))(&tensors[made], TENSOR, NULL))) made++;
    return code;
}

/* Physical memory at a reserved address; the handle is given up once it is mapped. */
static CUresult mapped(CUdeviceptr at, size_t bytes) {
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUresult code = CU(cuMemCreate, (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                                     unsigned long long))(&handle, bytes, &properties, 0);
    if (code) return code;
    code = CU(cuMemMap, (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long))(at, bytes, 0, handle, 0);
    CU(cuMemRelease, (CUmemGenericAllocationHandle))(handle);
    return code ? code : CU(cuMemSetAccess, (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t))(at, bytes, &access, 1);
}

static CUresult reserve(CUdeviceptr *address, size_t bytes) {
    return CU(cuMemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))(address, bytes, 0, 0, 0);
}

static CUresult jax_platform(void) {
    CUresult code = 0;
    while (!code && made < wanted) {
        CUdeviceptr at;
        if (!(code = reserve(&at, TENSOR)) && !(code = mapped(at, TENSOR))) tensors[made++] = at;
    }
    return code;
}

static CUresult jax(void) {
    if (switched("XLA_PYTHON_CLIENT_PREALLOCATE", "false")) return jax_platform();
    size_t bytes = memory(1) / 4 * 3 / BLOCK * BLOCK;
    CUdeviceptr region;
    CUresult code = reserve(&region, bytes);
    if (!code) code = mapped(region, bytes);
    if (!code) cut(region, bytes);
    return code;
}

static CUresult jax_cuda_async(void) {
    if (!switched("XLA_PYTHON_CLIENT_PREALLOCATE", "false")) {
        CUmemoryPool pool;
        uint64_t threshold = memory(1) / 4 * 3;
        CUdeviceptr all;
        CUresult code = CU(cuDeviceGetDefaultMemPool, (CUmemoryPool *, CUdevice))(&pool, 0);
        if (!code) code = CU(cuMemPoolSetAttribute, (CUmemoryPool, CUmemPool_attribute, void *))(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
        if (!code) code = CU(cuMemAllocFromPoolAsync, (CUdeviceptr *, size_t, CUmemoryPool, CUstream))(&all, threshold, pool, NULL);
        if (!code) code = CU(cuMemFreeAsync, (CUdeviceptr, CUstream))(all, NULL);
        if (code) return code;
    }
    return pooled();
}

static CUresult torch(void) {
    CUresult code = 0;
    while (!code && made < wanted)
        if (!(code = alloc(&tensors[made], TENSOR))) made++;
    return code;
}

/* Addresses for more than the card, filled from the start in pieces of 20 MiB. */
static CUresult torch_expandable(void) {
    CUdeviceptr segment;
    size_t filled = 0, bytes = memory(1) / BLOCK * BLOCK / 8 * 9 / BLOCK * BLOCK;
    CUresult code = reserve(&segment, bytes);
    while (!code && filled < wanted * TENSOR) {
        code = mapped(segment + filled, 20 * MIB);
        filled += 20 * MIB;
    }
    if (!code) cut(segment, filled);
    return code;
}

static const struct { const char *name; CUresult (*run)(void); } patterns[] = {
    {"tensorflow", tensorflow},       {"tensorflow-fraction", fraction}, {"tensorflow-cuda-malloc-async", pooled},
    {"jax", jax},                     {"jax-platform", jax_platform},    {"jax-cuda-async", jax_cuda_async},
    {"torch", torch},                 {"torch-expandable", torch_expandable}, {"torch-cuda-malloc-async", pooled}};

static unsigned char content(size_t tensor, size_t block) { return (unsigned char)(tensor * 31 + block * 7 + 1); }

static CUresult touch(void) {
    CUresult code = 0;
    for (size_t i = 0; i < made; i++)
        for (size_t block = 0; block < TENSOR / BLOCK && !code; block++)
            code = CU(cuMemsetD8_v2, (CUdeviceptr, unsigned char, size_t))(tensors[i] + block * BLOCK, content(i, block), 4096);
    return code;
}

static const char *check(void) {
    for (size_t i = 0; i < made; i++)
        for (size_t block = 0; block < TENSOR / BLOCK; block++) {
            unsigned char byte = 0;
            if (CU(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t))(&byte, tensors[i] + block * BLOCK + 4095, 1)) return "error";
            if (byte != content(i, block)) return "different";
        }
    return "same";
}

int main(int argc, char **argv) {
    CUcontext context;
    char line[64];
    library = open_library("libcuda.so.1");
    wanted = argc > 2 ? (size_t)atoi(argv[2]) : 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 3 || wanted > MOST || CU(cuInit, (unsigned))(0) ||
        CU(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))(&context, 0) || CU(cuCtxSetCurrent, (CUcontext))(context))
        return 3;
    CUresult code = CUDA_ERROR_NOT_FOUND;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (!strcmp(argv[1], patterns[i].name)) code = patterns[i].run();
    if (!code) code = touch();
    if (code || made < wanted) return printf("failed %d\n", code), 1;
    printf("ready\n");
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!strcmp(line, "check")) printf("%s\n", check());
        else if (!strcmp(line, "touch")) printf("%d\n", touch());
        else if (!strcmp(line, "info")) printf("%zu\n", memory(0));
        else if (!strcmp(line, "held")) {
            unsigned long long (*bytes)(int) = dlsym(library, "simgpu_process_bytes");
            printf("%llu\n", bytes ? bytes(0) >> 20 : 0);
        } else return 3;
    }
    return 0;
}
