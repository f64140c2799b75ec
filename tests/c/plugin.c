/* A plug-in as Python extension modules are: linked against the driver, opened with local scope. It asks for more than
 * there is by each way that it has, and by a library of its own that it opens. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "cuda_abi.h"

extern CUresult cuInit(unsigned), cuMemAlloc_v2(CUdeviceptr *, size_t);
extern CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice), cuCtxSetCurrent(CUcontext);

void run(void);
void run(void) {
    CUcontext context;
    CUdeviceptr address;
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    printf("direct %d\n", cuMemAlloc_v2(&address, 5ull << 30));
    CUresult (*alloc)(CUdeviceptr *, size_t) = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    printf("own dlsym %d\n", alloc ? (int)alloc(&address, 5ull << 30) : -1);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    alloc = driver ? dlsym(driver, "cuMemAlloc_v2") : NULL;
    printf("opened %d\n", alloc ? (int)alloc(&address, 5ull << 30) : -1);
    CUresult (*get)(const char *, void **, int, unsigned long long) = 
        dlsym(RTLD_DEFAULT, "cuGetProcAddress");
    alloc = NULL;
    if (get) get("cuMemAlloc", (void **)&alloc, 11030, 0);
    printf("by the driver's own look-up %d\n", alloc ? (int)alloc(&address, 5ull << 30) : -1);
    printf("within the budget %d\n", cuMemAlloc_v2(&address, 1ull << 30));
    /* Its own copy of the C library may not see the program's end. */
    fflush(stdout);
}

/* Where the driver loads it as a tool (CUDA_INJECTION64_PATH). */
int InitializeInjection(void);
int InitializeInjection(void) {
    run();
    return 1;
}
