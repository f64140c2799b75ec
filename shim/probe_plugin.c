/*
 * The plug-in that `cuquota doctor` opens in each way that plug-ins are opened: linked against the driver, it reaches
 * the allocating functions directly and by a look-up of its own. References are weak: an older driver lacks some.
 */
#include <dlfcn.h>
#include <stddef.h>

#define FUNCTIONS(X)                                                                                               \
    X(cuInit) X(cuMemGetInfo_v2) X(cuDevicePrimaryCtxRetain) X(cuCtxCreate_v2) X(cuCtxDestroy_v2)                  \
    X(cuMemAlloc_v2) X(cuMemAllocPitch_v2) X(cuMemAllocManaged) X(cuMemFree_v2) X(cuMemAllocAsync)                 \
    X(cuMemAllocFromPoolAsync) X(cuMemCreate) X(cuMemRelease) X(cuArrayCreate_v2) X(cuArray3DCreate_v2)            \
    X(cuArrayDestroy) X(cuMipmappedArrayCreate) X(cuMipmappedArrayDestroy) X(cuGetProcAddress)                     \
    X(cuGetProcAddress_v2)

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
