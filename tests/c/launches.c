/* Loads modules and libraries and launches what is in them; prints each answer. */
#include "open_driver.h"

#define LINE(what, code) printf("%s %d\n", what, code)

int main(void)
{
    void *cuda = open_library("libcuda.so.1");
    int (*init)(unsigned) = function_of(cuda, "cuInit");
    int (*retain)(CUcontext *, CUdevice) = function_of(cuda, "cuDevicePrimaryCtxRetain");
    int (*release)(CUdevice) = function_of(cuda, "cuDevicePrimaryCtxRelease_v2");
    int (*set_current)(CUcontext) = function_of(cuda, "cuCtxSetCurrent");
    int (*load)(CUmodule *, const void *) = function_of(cuda, "cuModuleLoadData");
    int (*load_file)(CUmodule *, const char *) = function_of(cuda, "cuModuleLoad");
    int (*unload)(CUmodule) = function_of(cuda, "cuModuleUnload");
    int (*get)(CUfunction *, CUmodule, const char *) = function_of(cuda, "cuModuleGetFunction");
    int (*global)(CUdeviceptr *, size_t *, CUmodule, const char *) = function_of(cuda, "cuModuleGetGlobal_v2");
    int (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **,
                  void **) = function_of(cuda, "cuLaunchKernel");
    int (*occupancy)(int *, CUfunction, int, size_t) =
        function_of(cuda, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
    int (*load_library)(CUlibrary *, const void *, int *, void **, unsigned, int *, void **, unsigned) =
        function_of(cuda, "cuLibraryLoadData");
    int (*kernel_of)(CUkernel *, CUlibrary, const char *) = function_of(cuda, "cuLibraryGetKernel");
    int (*unload_library)(CUlibrary) = function_of(cuda, "cuLibraryUnload");
    CUcontext context = NULL;
    CUmodule module = NULL;
    CUfunction function = NULL, again = NULL;
    CUlibrary library = NULL;
    CUkernel kernel = NULL;
    CUdeviceptr ptr;
    size_t bytes;
    int blocks = -1;

    init(0);
    LINE("load without a context", load(&module, "image"));
    LINE("launch without a context", launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    retain(&context, 0);
    set_current(context);
    LINE("load", load(&module, "image"));
    LINE("load nothing", load(&module, NULL));
    LINE("load a missing file", load_file(&module, "/nonexistent/image"));
    LINE("function", get(&function, module, "kernel"));
    get(&again, module, "kernel");
    LINE("one name is one handle", function == again);
    LINE("function of no module", get(&again, (CUmodule)context, "kernel"));
    LINE("function without a name", get(&again, module, ""));
    LINE("global", global(&ptr, &bytes, module, "variable"));
    LINE("launch", launch(function, 4, 1, 1, 256, 1, 1, 0, NULL, NULL, NULL));
    LINE("launch an empty grid", launch(function, 0, 1, 1, 256, 1, 1, 0, NULL, NULL, NULL));
    LINE("launch too large a block", launch(function, 1, 1, 1, 1024, 2, 1, 0, NULL, NULL, NULL));
    LINE("launch no function", launch((CUfunction)module, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    LINE("launch on no stream", launch(function, 1, 1, 1, 1, 1, 1, 0, (CUstream)module, NULL, NULL));
    LINE("occupancy", occupancy(&blocks, function, 256, 0) ? -1 : blocks);
    LINE("library", load_library(&library, "image", NULL, NULL, 0, NULL, NULL, 0));
    LINE("kernel", kernel_of(&kernel, library, "kernel"));
    LINE("launch a kernel", launch((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    LINE("unload the library", unload_library(library));
    LINE("launch a kernel that is gone", launch((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    release(0);
    LINE("unload a module that went with its context", unload(module));
    return 0;
}
