/* dependent_host PLUGIN: what a dependency of the plug-in finds by RTLD_DEFAULT, and what that grants. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "open_driver.h"

int main(int argc, char **argv) {
    void *plugin = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
    void *(*ask)(const char *) = plugin ? dlsym(plugin, "plugin_asks") : NULL;
    if (!ask) return fprintf(stderr, "%s\n", dlerror()), 3;
    CUresult (*init)(unsigned) = ask("cuInit");
    CUresult (*retain)(CUcontext *, CUdevice) = ask("cuDevicePrimaryCtxRetain");
    CUresult (*set)(CUcontext) = ask("cuCtxSetCurrent");
    CUresult (*alloc)(CUdeviceptr *, size_t) = ask("cuMemAlloc_v2");
    CUcontext context;
    CUdeviceptr address;
    if (!init || !retain || !set || !alloc || init(0) || retain(&context, 0) || set(context)) return 4;
    CUresult first = alloc(&address, 5ull << 30);
    printf("none of the name %d, 5 GiB %d, 1 GiB %d\n", !ask("cuNoSuchFunction"), first, alloc(&address, 1ull << 30));
    return 0;
}
