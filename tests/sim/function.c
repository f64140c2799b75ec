/* What can be asked of functions and kernels, and set on them. */
#include "module.h"

enum {
    ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
    ATTRIBUTE_NUM_REGS = 4,
    ATTRIBUTE_PTX_VERSION = 5,
    ATTRIBUTE_BINARY_VERSION = 6,
    ATTRIBUTE_MAX_DYNAMIC_SHARED_BYTES = 8,
    ATTRIBUTE_CARVEOUT = 9,
    ATTRIBUTE_END = 16,
};
_Static_assert((int)ATTRIBUTE_END == (int)FUNCTION_ATTRIBUTES, "attributes");

static CUresult get(int *value, int attribute, const void *handle)
{
    struct sim_function *function = sim_function_of(handle);
    if (!value || attribute < 0 || attribute >= ATTRIBUTE_END)
        return CUDA_ERROR_INVALID_VALUE;
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    switch (attribute) {
    case ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = 1024;
        break;
    case ATTRIBUTE_NUM_REGS:
        *value = 32;
        break;
    case ATTRIBUTE_PTX_VERSION:
    case ATTRIBUTE_BINARY_VERSION:
        *value = 80;
        break;
    case ATTRIBUTE_MAX_DYNAMIC_SHARED_BYTES:
        *value = function->attributes[attribute] ? function->attributes[attribute] : 49152;
        break;
    default:
        *value = function->attributes[attribute];
    }
    return CUDA_SUCCESS;
}

static CUresult set(const void *handle, int attribute, int value)
{
    struct sim_function *function = sim_function_of(handle);
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    /* What is below is a fact of the code and cannot be set. */
    if (attribute < ATTRIBUTE_MAX_DYNAMIC_SHARED_BYTES || attribute >= ATTRIBUTE_END)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == ATTRIBUTE_MAX_DYNAMIC_SHARED_BYTES && (value < 0 || value > 166912))
        return CUDA_ERROR_INVALID_VALUE;
    function->attributes[attribute] = value;
    return CUDA_SUCCESS;
}

static CUresult valid(const void *handle)
{
    return sim_function_of(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

#define UNUSED __attribute__((unused))
SIM_EXPORT(cuFuncGetAttribute, (int *value, int attribute, CUfunction function), get(value, attribute, function))
SIM_EXPORT(cuFuncSetAttribute, (CUfunction function, int attribute, int value), set(function, attribute, value))
SIM_EXPORT(cuKernelGetAttribute, (int *value, int attribute, CUkernel kernel, CUdevice device UNUSED),
           get(value, attribute, kernel))
SIM_EXPORT(cuKernelSetAttribute, (int attribute, int value, CUkernel kernel, CUdevice device UNUSED),
           set(kernel, attribute, value))
SIM_EXPORT(cuFuncSetCacheConfig, (CUfunction function, int config UNUSED), valid(function))
SIM_EXPORT(cuFuncSetSharedMemConfig, (CUfunction function, int config UNUSED), valid(function))
SIM_EXPORT(cuKernelSetCacheConfig, (CUkernel kernel, int config UNUSED, CUdevice device UNUSED), valid(kernel))

static CUresult load(const void *handle)
{
    struct sim_function *function = sim_function_of(handle);
    return function ? sim_function_load(function) : CUDA_ERROR_INVALID_HANDLE;
}

SIM_EXPORT(cuFuncLoad, (CUfunction function), load(function))
SIM_EXPORT(cuFuncSetBlockShape, (CUfunction function, int x UNUSED, int y UNUSED, int z UNUSED), valid(function))
SIM_EXPORT(cuFuncSetSharedSize, (CUfunction function, unsigned bytes UNUSED), valid(function))
SIM_EXPORT(cuParamSetSize, (CUfunction function, unsigned bytes UNUSED), valid(function))
SIM_EXPORT(cuParamSeti, (CUfunction function, int offset UNUSED, unsigned value UNUSED), valid(function))
SIM_EXPORT(cuParamSetf, (CUfunction function, int offset UNUSED, float value UNUSED), valid(function))
SIM_EXPORT(cuParamSetv, (CUfunction function, int offset UNUSED, void *value UNUSED, unsigned bytes UNUSED),
           valid(function))

static CUresult put(const void *handle, void **out, void *value)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_function_of(handle))
        return CUDA_ERROR_INVALID_HANDLE;
    *out = value;
    return CUDA_SUCCESS;
}

static void *module_of(const void *handle)
{
    struct sim_function *function = sim_function_of(handle);
    return function ? function->module : NULL;
}

static void *name_of(const void *handle)
{
    struct sim_function *function = sim_function_of(handle);
    return function ? function->name : NULL;
}

/* A kernel is a function of every context: its handle serves as one. */
static CUresult kernel_function(CUfunction *function, CUkernel kernel)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (!result)
        result = put(kernel, (void **)function, kernel);
    return result ? result : load(kernel);
}

SIM_EXPORT(cuKernelGetFunction, (CUfunction * function, CUkernel kernel), kernel_function(function, kernel))
SIM_EXPORT(cuKernelGetLibrary, (CUlibrary * library, CUkernel kernel), put(kernel, (void **)library, module_of(kernel)))
SIM_EXPORT(cuFuncGetModule, (CUmodule * module, CUfunction function),
           put(function, (void **)module, module_of(function)))
SIM_EXPORT(cuFuncGetName, (const char **name, CUfunction function), put(function, (void **)name, name_of(function)))
SIM_EXPORT(cuKernelGetName, (const char **name, CUkernel kernel), put(kernel, (void **)name, name_of(kernel)))

static CUresult is_loaded(int *state, const void *handle)
{
    enum { LOADED = 1 };
    if (!state)
        return CUDA_ERROR_INVALID_VALUE;
    *state = LOADED;
    return valid(handle);
}

SIM_EXPORT(cuFuncIsLoaded, (int *state, CUfunction function), is_loaded(state, function))
