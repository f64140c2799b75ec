/* A plug-in as Python extension modules are: linked against the driver, opened with local scope. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "cuda_abi.h"

extern CUresult cuInit(unsigned), cuMemAlloc_v2(CUdeviceptr *, size_t);
extern CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice), cuCtxSetCurrent(CUcontext);

void run(void) {
    CUcontext context;
    CUdeviceptr address;
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    printf("direct %d\n", cuMemAlloc_v2(&address, 5ull << 30));
    CUresult (*alloc)(CUdeviceptr *, size_t) = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    printf("own dlsym %d\n", alloc ? (int)alloc(&address, 5ull << 30) : -1);
    printf("within the budget %d\n", cuMemAlloc_v2(&address, 1ull << 30));
}
