/*
 * What a program may do with a large allocation. Each part prints lines that are the same whatever backs the memory, save
 * those that begin with "resident" (what the card holds for this process, in MiB, since the context was up).
 *
 *   lazy PART [SIZE-IN-MIB]
 */
#define _GNU_SOURCE
#include "cuda_abi.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *library;
static CUcontext context;
static unsigned long long base_bytes;
static size_t size = (size_t)512 << 20;

/* Calls a function of the driver by its exported name. */
#define CU(name, types) ((CUresult(*) types)function(#name))

static void *function(const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "no %s\n", name);
        exit(3);
    }
    return found;
}

static void say(const char *what, CUresult code) { printf("%s %d\n", what, code); }

static void resident(const char *when) {
    unsigned long long (*bytes)(int) = dlsym(library, "simgpu_process_bytes");
    if (bytes) printf("resident %s %llu\n", when, (bytes(0) - base_bytes) >> 20);
}

static CUresult alloc(CUdeviceptr *address, size_t bytes) {
    return CU(cuMemAlloc_v2, (CUdeviceptr *, size_t))(address, bytes);
}

static CUresult release(CUdeviceptr address) { return CU(cuMemFree_v2, (CUdeviceptr))(address); }

static CUresult set8(CUdeviceptr address, unsigned char value, size_t bytes) {
    return CU(cuMemsetD8_v2, (CUdeviceptr, unsigned char, size_t))(address, value, bytes);
}

static long long used(void) {
    size_t free_bytes = 0, total = 0;
    CU(cuMemGetInfo_v2, (size_t *, size_t *))(&free_bytes, &total);
    return (long long)(total - free_bytes);
}

static CUdeviceptr start(void) {
    CUdeviceptr address = 0;
    say("alloc", alloc(&address, size));
    resident("after alloc");
    return address;
}

/* What depends on where things lie is told relative to what is known. */
static void say_attribute(int attribute, CUresult code, unsigned long long value, CUdeviceptr address) {
    if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT) value = value == (unsigned long long)(uintptr_t)context;
    if (attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID || attribute == CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID) value = !!value;
    if (value - address < size) value = value - address + 7000000;
    printf("attribute %d: %d %llu\n", attribute, code, code ? 0 : value);
}

static void attributes(void) {
    CUdeviceptr address = start();
    for (int step = 0; step < 2; step++) {
        CUdeviceptr at = address + (step ? 123456789 : 0);
        CUpointer_attribute all[32];
        unsigned long long values[32] = {0};
        void *out[32];
        unsigned count = 0;
        for (int i = 1; i <= 22; i++) {
            unsigned long long value = 0;
            CUresult code = CU(cuPointerGetAttribute, (void *, CUpointer_attribute, CUdeviceptr))(&value, i, at);
            say_attribute(i, code, value, address);
            if (code && i != CU_POINTER_ATTRIBUTE_HOST_POINTER) continue;
            all[count] = i, out[count] = &values[count];
            count++;
        }
        say("many", CU(cuPointerGetAttributes, (unsigned, CUpointer_attribute *, void **, CUdeviceptr))(count, all, out, at));
        for (unsigned i = 0; i < count; i++) say_attribute(all[i], 0, values[i], address);
        CUdeviceptr from = 0;
        size_t bytes = 0;
        say("range", CU(cuMemGetAddressRange_v2, (CUdeviceptr *, size_t *, CUdeviceptr))(&from, &bytes, at));
        printf("range %llu %zu\n", from - address, bytes);
    }
    say("no output", CU(cuPointerGetAttribute, (void *, CUpointer_attribute, CUdeviceptr))(NULL, 2, address));
    say("none asked", CU(cuPointerGetAttributes, (unsigned, void *, void *, CUdeviceptr))(0, NULL, NULL, address));
    say("sync", CU(cuPointerSetAttribute, (const void *, CUpointer_attribute, CUdeviceptr))(&(int){1}, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
    say("free", release(address));
    say("gone", CU(cuPointerGetAttribute, (void *, CUpointer_attribute, CUdeviceptr))(&(int){0}, 2, address));
}

/* What is only for managed memory. */
static void managed_only(void) {
    CUdeviceptr address = start();
    CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    int value;
    void *values = &value;
    size_t bytes = sizeof value;
    CUmem_range_attribute which = CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
    say("prefetch", CU(cuMemPrefetchAsync, (CUdeviceptr, size_t, CUdevice, CUstream))(address, size, 0, NULL));
    say("prefetch_ptsz", CU(cuMemPrefetchAsync_ptsz, (CUdeviceptr, size_t, CUdevice, CUstream))(address, size, 0, NULL));
    say("prefetch_v2", CU(cuMemPrefetchAsync_v2, (CUdeviceptr, size_t, CUmemLocation, unsigned, CUstream))(address, size, device, 0, NULL));
    size_t first = 0, whole = size;
    say("prefetch batch", CU(cuMemPrefetchBatchAsync, (CUdeviceptr *, size_t *, size_t, CUmemLocation *, size_t *, size_t, unsigned long long, CUstream))(&address, &whole, 1, &device, &first, 1, 0, NULL));
    say("discard batch", CU(cuMemDiscardBatchAsync_ptsz, (CUdeviceptr *, size_t *, size_t, unsigned long long, CUstream))(&address, &whole, 1, 0, NULL));
    say("discard and prefetch batch", CU(cuMemDiscardAndPrefetchBatchAsync, (CUdeviceptr *, size_t *, size_t, CUmemLocation *, size_t *, size_t, unsigned long long, CUstream))(&address, &whole, 1, &device, &first, 1, 0, NULL));
    say("batch of none", CU(cuMemPrefetchBatchAsync, (CUdeviceptr *, size_t *, size_t, CUmemLocation *, size_t *, size_t, unsigned long long, CUstream))(NULL, NULL, 1, &device, &first, 1, 0, NULL));
    say("advise", CU(cuMemAdvise, (CUdeviceptr, size_t, CUmem_advise, CUdevice))(address, size, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
    say("advise_v2", CU(cuMemAdvise_v2, (CUdeviceptr, size_t, CUmem_advise, CUmemLocation))(address, size, CU_MEM_ADVISE_SET_READ_MOSTLY, device));
    say("range", CU(cuMemRangeGetAttribute, (void *, size_t, CUmem_range_attribute, CUdeviceptr, size_t))(&value, sizeof value, which, address, size));
    say("ranges", CU(cuMemRangeGetAttributes, (void **, size_t *, CUmem_range_attribute *, size_t, CUdeviceptr, size_t))(&values, &bytes, &which, 1, address, size));
    CUdeviceptr managed;
    say("own managed", CU(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned))(&managed, size, CU_MEM_ATTACH_GLOBAL));
    unsigned one = 0;
    say("own managed is", CU(cuPointerGetAttribute, (void *, CUpointer_attribute, CUdeviceptr))(&one, CU_POINTER_ATTRIBUTE_IS_MANAGED, managed));
    printf("own managed is %u\n", one);
    say("own managed prefetch", CU(cuMemPrefetchAsync, (CUdeviceptr, size_t, CUdevice, CUstream))(managed, size, 0, NULL));
    say("own managed batch", CU(cuMemPrefetchBatchAsync_ptsz, (CUdeviceptr *, size_t *, size_t, CUmemLocation *, size_t *, size_t, unsigned long long, CUstream))(&managed, &whole, 1, &device, &first, 1, 0, NULL));
    CUdeviceptr both[] = {managed, address};
    size_t sizes[] = {size, size};
    say("a batch of both", CU(cuMemDiscardBatchAsync, (CUdeviceptr *, size_t *, size_t, unsigned long long, CUstream))(both, sizes, 2, 0, NULL));
    say("own managed discard", CU(cuMemDiscardBatchAsync, (CUdeviceptr *, size_t *, size_t, unsigned long long, CUstream))(&managed, &whole, 1, 0, NULL));
    say("free managed", release(managed));
    say("free", release(address));
    resident("after free");
}

static void frees(void) {
    long long before = used();
    CUdeviceptr address = start(), second;
    CUstream stream;
    printf("used %lld\n", used() - before);
    say("inside", release(address + 4096));
    say("free", release(address));
    say("again", release(address));
    printf("used %lld\n", used() - before);
    say("stream", CU(cuStreamCreate, (CUstream *, unsigned))(&stream, 0));
    const struct { const char *name; CUstream stream; } streams[] = {
        {"created", stream}, {"default", NULL}, {"legacy", (CUstream)1}, {"per-thread", (CUstream)2}};
    for (int i = 0; i < 4; i++) {
        say("alloc", alloc(&second, size));
        say("inside", CU(cuMemFreeAsync, (CUdeviceptr, CUstream))(second + 4096, streams[i].stream));
        printf("on %s ", streams[i].name);
        say("free_async", CU(cuMemFreeAsync, (CUdeviceptr, CUstream))(second, streams[i].stream));
        say("again", CU(cuMemFreeAsync, (CUdeviceptr, CUstream))(second, streams[i].stream));
        printf("used %lld\n", used() - before);
    }
    say("alloc", alloc(&second, size));
    say("bad stream", CU(cuMemFreeAsync, (CUdeviceptr, CUstream))(second, (CUstream)0x1234560));
    printf("used %lld\n", used() - before);
    say("free_async_ptsz", CU(cuMemFreeAsync_ptsz, (CUdeviceptr, CUstream))(second, NULL));
    printf("used %lld\n", used() - before);
    resident("after all");
}

/* A free on one stream while another is being captured must not end the capture. */
static void frees_beside_capture(void) {
    CUdeviceptr address = start(), within;
    CUstream captured, other;
    CUgraph graph;
    CU(cuStreamCreate, (CUstream *, unsigned))(&captured, 1);
    CU(cuStreamCreate, (CUstream *, unsigned))(&other, 1);
    say("begin", CU(cuStreamBeginCapture_v2, (CUstream, CUstreamCaptureMode))(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
    say("free_async", CU(cuMemFreeAsync, (CUdeviceptr, CUstream))(address, other));
    say("end", CU(cuStreamEndCapture, (CUstream, CUgraph *))(captured, &graph));
    say("begin", CU(cuStreamBeginCapture_v2, (CUstream, CUstreamCaptureMode))(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    say("alloc", alloc(&within, size));
    resident("after alloc in capture");
    say("end", CU(cuStreamEndCapture, (CUstream, CUgraph *))(captured, &graph));
    say("free", release(within));
}

/* Work that was captured with such memory in it. */
static void graphs(void) {
    CUdeviceptr address = start();
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    unsigned char back = 0;
    CU(cuStreamCreate, (CUstream *, unsigned))(&stream, 1);
    say("begin", CU(cuStreamBeginCapture_v2, (CUstream, CUstreamCaptureMode))(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    say("set", CU(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))(address, 77, size, stream));
    say("end", CU(cuStreamEndCapture, (CUstream, CUgraph *))(stream, &graph));
    say("instantiate", CU(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long))(&exec, graph, 0));
    resident("before launch");
    say("launch", CU(cuGraphLaunch, (CUgraphExec, CUstream))(exec, stream));
    say("wait", CU(cuStreamSynchronize, (CUstream))(stream));
    say("read", CU(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t))(&back, address + size - 1, 1));
    printf("read %d\n", back);
    resident("after launch");
    say("free", release(address));
}

static void copies(void) {
    CUdeviceptr address = start(), other;
    unsigned char to[8192], from[8192];
    for (size_t i = 0; i < sizeof to; i++) to[i] = (unsigned char)(i * 7 + 3);
    say("alloc", alloc(&other, size));
    say("write", CU(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t))(address + 100, to, sizeof to));
    resident("after one write");
    say("between", CU(cuMemcpyDtoD_v2, (CUdeviceptr, CUdeviceptr, size_t))(other + size - sizeof to, address + 100, sizeof to));
    memset(from, 0, sizeof from);
    say("read", CU(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t))(from, other + size - sizeof to, sizeof from));
    printf("same %d\n", !memcmp(to, from, sizeof to));
    memset(from, 0, sizeof from);
    say("unified", CU(cuMemcpy, (CUdeviceptr, CUdeviceptr, size_t))((CUdeviceptr)(uintptr_t)from, address + 100, sizeof from));
    printf("same %d\n", !memcmp(to, from, sizeof to));
    say("async", CU(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream))(other, address + 100, sizeof to, NULL));
    say("peer", CU(cuMemcpyPeer, (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t))(other, context, address + 100, context, sizeof to));
    CUDA_MEMCPY2D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = address + 100, .srcPitch = 128,
                         .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = from, .dstPitch = 64, .WidthInBytes = 64, .Height = 64};
    say("box", CU(cuMemcpy2D_v2, (const CUDA_MEMCPY2D *))(&box));
    printf("same %d\n", !memcmp(to + 128, from + 64, 64));
    say("set8", set8(address, 1, 4096));
    say("set32", CU(cuMemsetD32_v2, (CUdeviceptr, unsigned, size_t))(address, 0x01020304, 1024));
    say("set2d", CU(cuMemsetD2D8_v2, (CUdeviceptr, size_t, unsigned char, size_t, size_t))(address, 512, 9, 100, 4));
    say("beyond", CU(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t))(address + size - 10, to, 11));
    say("beyond", set8(address + 1, 0, size));
    resident("after some writes");
    say("all of it", set8(address, 5, size));
    resident("after all of it");
    say("free", release(address));
    say("free", release(other));
    resident("after free");
}

static void pitched(void) {
    CUdeviceptr address = 0;
    size_t pitch = 0;
    CUresult (*alloc_pitch)(CUdeviceptr *, size_t *, size_t, size_t, unsigned) = function("cuMemAllocPitch_v2");
    say("pitch", alloc_pitch(&address, &pitch, 100001, size / 100001, 4));
    printf("pitch %zu\n", pitch);
    resident("after alloc");
    CUdeviceptr from;
    size_t bytes;
    say("range", CU(cuMemGetAddressRange_v2, (CUdeviceptr *, size_t *, CUdeviceptr))(&from, &bytes, address + pitch));
    printf("range %llu %zu\n", from - address, bytes);
    say("last", set8(address + pitch * (size / 100001) - 1, 5, 1));
    say("free", release(address));
    address = 77, pitch = 77;
    say("bad element", alloc_pitch(&address, &pitch, 100001, size / 100001, 3));
    printf("untouched %llu %zu\n", address, pitch);
}

static void ipc(void) {
    CUdeviceptr address = start(), second;
    CUipcMemHandle handle;
    memset(&handle, 0, sizeof handle);
    CUresult code = CU(cuIpcGetMemHandle, (CUipcMemHandle *, CUdeviceptr))(&handle, address);
    printf("export %d\n", code);
    say("alloc", alloc(&second, size));
    resident("after the next alloc");
    say("export", CU(cuIpcGetMemHandle, (CUipcMemHandle *, CUdeviceptr))(&handle, second));
    say("free", release(second));
    say("free", release(address));
}

static void contexts(void) {
    long long before = used();
    CUcontext other;
    CUdeviceptr address;
    say("create", CU(cuCtxCreate_v2, (CUcontext *, unsigned, CUdevice))(&other, 0, 0));
    say("alloc", alloc(&address, size));
    say("touch", set8(address, 1, 8 << 20));
    say("destroy", CU(cuCtxDestroy_v2, (CUcontext))(other));
    printf("used %lld\n", used() - before);
    say("gone", release(address));
    resident("after all");
}

static void peers(void) {
    CUdeviceptr address = start();
    CUcontext second;
    unsigned char back = 0;
    say("touch", set8(address, 42, 4096));
    say("second", CU(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))(&second, 1));
    CU(cuCtxSetCurrent, (CUcontext))(second);
    int can = 0;
    say("can", CU(cuDeviceCanAccessPeer, (int *, CUdevice, CUdevice))(&can, 1, 0));
    printf("can %d\n", can);
    say("enable", CU(cuCtxEnablePeerAccess, (CUcontext, unsigned))(context, 0));
    CUdeviceptr there;
    say("alloc there", alloc(&there, size));
    say("copy", CU(cuMemcpyPeer, (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t))(there, second, address, context, 4096));
    say("read", CU(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t))(&back, there, 1));
    printf("read %d\n", back);
    int ordinal = -1;
    say("ordinal", CU(cuPointerGetAttribute, (void *, CUpointer_attribute, CUdeviceptr))(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, there));
    printf("ordinal %d\n", ordinal);
    resident("on the first card");
    say("free", release(address));
    say("free", release(there));
}

int main(int argc, char **argv) {
    static const struct { const char *name; void (*run)(void); } parts[] = {
        {"attributes", attributes}, {"managed-only", managed_only}, {"frees", frees},
        {"frees-beside-capture", frees_beside_capture}, {"graphs", graphs}, {"copies", copies}, {"pitched", pitched},
        {"ipc", ipc}, {"contexts", contexts}, {"peers", peers}};
    setvbuf(stdout, NULL, _IOLBF, 0);
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (argc < 2 || !library) return 3;
    if (argc > 2) size = strtoull(argv[2], NULL, 0) << 20;
    if (CU(cuInit, (unsigned))(0) || CU(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))(&context, 0) ||
        CU(cuCtxSetCurrent, (CUcontext))(context))
        return 3;
    unsigned long long (*bytes)(int) = dlsym(library, "simgpu_process_bytes");
    base_bytes = bytes ? bytes(0) : 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strcmp(argv[1], parts[i].name)) return parts[i].run(), 0;
    return 3;
}
