/* reopen TIMES: opens the driver, uses it, lets go of everything and closes it, again and again. */
#include "open_driver.h"

int main(int argc, char **argv)
{
    int wrong = 0;
    for (int i = argc > 1 ? atoi(argv[1]) : 1; i > 0; i--) {
        void *library = open_library("libcuda.so.1");
        CUresult (*init)(unsigned) = function_of(library, "cuInit");
        CUresult (*retain)(CUcontext *, CUdevice) = function_of(library, "cuDevicePrimaryCtxRetain");
        CUresult (*release)(CUdevice) = function_of(library, "cuDevicePrimaryCtxRelease_v2");
        CUresult (*set)(CUcontext) = function_of(library, "cuCtxSetCurrent");
        CUresult (*alloc)(CUdeviceptr *, size_t) = function_of(library, "cuMemAlloc_v2");
        CUresult (*give_back)(CUdeviceptr) = function_of(library, "cuMemFree_v2");
        CUcontext context;
        CUdeviceptr address;
        wrong += init(0) || retain(&context, 0) || set(context);
        wrong += alloc(&address, 5ull << 30) != CUDA_ERROR_OUT_OF_MEMORY;
        wrong += alloc(&address, 3ull << 30) || give_back(address);
        wrong += release(0) != CUDA_SUCCESS;
        dlclose(library);
    }
    printf("wrong %d\n", wrong);
    return 0;
}
