/* many_drivers PATH...: from the last of many copies of the driver, more than the budget. Prints what its functions answer. */
#define _GNU_SOURCE
#include "open_driver.h"

int main(int argc, char **argv) {
    void *library = NULL;
    for (int i = 1; i < argc; i++) {
        library = open_library(argv[i]);
        CUresult (*init)(unsigned) = function_of(library, "cuInit");
        if (i < argc - 1) init(0);
        function_of(library, "cuDevicePrimaryCtxRetain");
        function_of(library, "cuMemAlloc_v2");
    }
    CUresult (*init)(unsigned) = function_of(library, "cuInit");
    CUresult (*retain)(CUcontext *, CUdevice) = function_of(library, "cuDevicePrimaryCtxRetain");
    CUresult (*set)(CUcontext) = function_of(library, "cuCtxSetCurrent");
    CUresult (*alloc)(CUdeviceptr *, size_t) = function_of(library, "cuMemAlloc_v2");
    CUcontext context = NULL;
    CUdeviceptr address;
    CUresult begun = init(0), retained = retain(&context, 0), is_set = set(context);
    printf("init %d, retain %d, set %d, 5 GiB %d\n", begun, retained, is_set, alloc(&address, 5ull << 30));
    return 0;
}
