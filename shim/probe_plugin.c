/*
 * The plug-in that `cuquota doctor` opens in each way that plug-ins are opened: linked against the driver, it reaches
 * the allocating functions directly and by a look-up of its own. References are weak: an older driver lacks some.
 */
#include <dlfcn.h>
#include <stddef.h>

#define FUNCTIONS(X)                                                                                               \
    X(cuInit) X(cuGetProcAddress) X(cuGetProcAddress_v2) X(cuMemGetInfo_v2) X(cuDevicePrimaryCtxRetain)            \
    X(cuCtxCreate) X(cuCtxCreate_v2) X(cuCtxCreate_v3) X(cuCtxCreate_v4)                                           \
    X(cuMemAlloc) X(cuMemAlloc_v2) X(cuMemAllocPitch) X(cuMemAllocPitch_v2) X(cuMemAllocManaged) X(cuMemFree_v2)   \
    X(cuMemAllocAsync) X(cuMemAllocAsync_ptsz) X(cuMemAllocFromPoolAsync) X(cuMemAllocFromPoolAsync_ptsz)          \
    X(cuMemCreate) X(cuMemRelease) X(cuArrayCreate) X(cuArrayCreate_v2) X(cuArray3DCreate) X(cuArray3DCreate_v2)   \
    X(cuArrayDestroy) X(cuMipmappedArrayCreate) X(cuMipmappedArrayDestroy) X(cuGraphLaunch) X(cuGraphLaunch_ptsz) \
    X(cuCtxSetLimit) X(cuModuleLoad) X(cuModuleLoadData) X(cuModuleLoadDataEx) X(cuModuleUnload)

#define DECLARE(name) extern int name(void) __attribute__((weak));
FUNCTIONS(DECLARE)

struct function {
    const char *name;
    int (*address)(void);
};

#define PUBLIC __attribute__((visibility("default")))

/* What the loader bound this plug-in to. */
PUBLIC const struct function cuquota_probe_table[] = {
#define ROW(name) {#name, name},
    FUNCTIONS(ROW)
    {NULL, NULL},
};

/* What this plug-in finds. */
PUBLIC void *cuquota_probe_look_up(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    return driver ? dlsym(driver, name) : NULL;
}
