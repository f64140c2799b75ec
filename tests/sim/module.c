/* Modules and libraries: any image is accepted, and whatever function is asked of it exists. Globals do not: without
 * reading the image there is no saying how large they are. */
#include "module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A module of a context, or a library, which belongs to none. */
struct sim_module {
    struct sim_resource resource; /* a module's place in its context; first, so that the two convert */
    struct sim_context *context;
    struct sim_function *functions;
};

static void destroy_module(struct sim_resource *resource)
{
    struct sim_module *module = (struct sim_module *)resource;
    while (module->functions) {
        struct sim_function *function = module->functions;
        module->functions = function->next;
        sim_handle_drop(function);
        free(function->name);
        free(function);
    }
    sim_handle_drop(module);
    free(module);
}

static CUresult new_module(struct sim_context *context, enum sim_kind kind, void **out)
{
    struct sim_module *module = calloc(1, sizeof *module);
    if (!module)
        return CUDA_ERROR_OUT_OF_MEMORY;
    module->resource.destroy = destroy_module;
    module->context = context;
    if (context)
        sim_resource_add(context, &module->resource);
    sim_handle_add(module, kind);
    *out = module;
    return CUDA_SUCCESS;
}

static CUresult load_module(CUmodule *out, const void *image)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result)
        return result;
    if (!out || !image)
        return CUDA_ERROR_INVALID_VALUE;
    return new_module(context, SIM_MODULE, (void **)out);
}

static bool readable(const char *path)
{
    FILE *file = fopen(path, "re");
    if (file)
        fclose(file);
    return file;
}

static CUresult load_file(CUmodule *out, const char *path)
{
    if (path && !readable(path))
        return CUDA_ERROR_FILE_NOT_FOUND;
    return load_module(out, path);
}

SIM_EXPORT(cuModuleLoad, (CUmodule * module, const char *path), load_file(module, path))
SIM_EXPORT(cuModuleLoadData, (CUmodule * module, const void *image), load_module(module, image))
SIM_EXPORT(cuModuleLoadDataEx,
           (CUmodule * module, const void *image, unsigned count __attribute__((unused)),
            int *options __attribute__((unused)), void **values __attribute__((unused))),
           load_module(module, image))
SIM_EXPORT(cuModuleLoadFatBinary, (CUmodule * module, const void *image), load_module(module, image))

static CUresult unload(const void *handle, enum sim_kind kind)
{
    if (!sim_handle_is(handle, kind))
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_module *module = (struct sim_module *)handle;
    if (module->context)
        sim_resource_remove(&module->resource);
    destroy_module(&module->resource);
    return CUDA_SUCCESS;
}

SIM_EXPORT(cuModuleUnload, (CUmodule module), unload(module, SIM_MODULE))
SIM_EXPORT(cuLibraryUnload, (CUlibrary library), unload(library, SIM_LIBRARY))

/* The function of that name, which the first question brings into being; one name is one handle. */
static CUresult find(const void *handle, enum sim_kind kind, enum sim_kind wanted, const char *name, void **out)
{
    if (!out || !name)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_handle_is(handle, kind))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!*name)
        return CUDA_ERROR_NOT_FOUND;
    struct sim_module *module = (struct sim_module *)handle;
    for (struct sim_function *function = module->functions; function; function = function->next)
        if (!strcmp(function->name, name)) {
            *out = function;
            return CUDA_SUCCESS;
        }
    struct sim_function *function = calloc(1, sizeof *function);
    char *copy = strdup(name);
    if (!function || !copy) {
        free(function);
        free(copy);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *function = (struct sim_function){.next = module->functions, .module = module, .name = copy};
    module->functions = function;
    sim_handle_add(function, wanted);
    *out = function;
    return CUDA_SUCCESS;
}

SIM_EXPORT(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name),
           find(module, SIM_MODULE, SIM_FUNCTION, name, (void **)function))
SIM_EXPORT(cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char *name),
           find(library, SIM_LIBRARY, SIM_KERNEL, name, (void **)kernel))

static CUresult no_such(const void *handle, enum sim_kind kind, bool asked, const char *name)
{
    if (!asked || !name)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_handle_is(handle, kind) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}

SIM_EXPORT(cuModuleGetGlobal, (unsigned *ptr, unsigned *bytes, CUmodule module, const char *name),
           no_such(module, SIM_MODULE, ptr || bytes, name))
SIM_EXPORT(cuModuleGetGlobal_v2, (CUdeviceptr * ptr, size_t *bytes, CUmodule module, const char *name),
           no_such(module, SIM_MODULE, ptr || bytes, name))
SIM_EXPORT(cuModuleGetTexRef, (void **texture, CUmodule module, const char *name),
           no_such(module, SIM_MODULE, texture, name))
SIM_EXPORT(cuModuleGetSurfRef, (void **surface, CUmodule module, const char *name),
           no_such(module, SIM_MODULE, surface, name))
SIM_EXPORT(cuLibraryGetGlobal, (CUdeviceptr * ptr, size_t *bytes, CUlibrary library, const char *name),
           no_such(library, SIM_LIBRARY, ptr || bytes, name))
SIM_EXPORT(cuLibraryGetManaged, (CUdeviceptr * ptr, size_t *bytes, CUlibrary library, const char *name),
           no_such(library, SIM_LIBRARY, ptr || bytes, name))
SIM_EXPORT(cuLibraryGetUnifiedFunction, (void **function, CUlibrary library, const char *name),
           no_such(library, SIM_LIBRARY, function, name))

static unsigned count(const struct sim_module *module)
{
    unsigned n = 0;
    for (const struct sim_function *function = module->functions; function; function = function->next)
        n++;
    return n;
}

static CUresult get_count(const void *handle, enum sim_kind kind, unsigned *out)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_handle_is(handle, kind))
        return CUDA_ERROR_INVALID_HANDLE;
    *out = count(handle);
    return CUDA_SUCCESS;
}

static CUresult enumerate(const void *handle, enum sim_kind kind, void **out, unsigned max)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_handle_is(handle, kind))
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_function *function = ((const struct sim_module *)handle)->functions;
    for (unsigned at = 0; at < max && function; at++, function = function->next)
        out[at] = function;
    return CUDA_SUCCESS;
}

SIM_EXPORT(cuModuleGetFunctionCount, (unsigned *count, CUmodule module), get_count(module, SIM_MODULE, count))
SIM_EXPORT(cuLibraryGetKernelCount, (unsigned *count, CUlibrary library), get_count(library, SIM_LIBRARY, count))
SIM_EXPORT(cuModuleEnumerateFunctions, (CUfunction * functions, unsigned max, CUmodule module),
           enumerate(module, SIM_MODULE, (void **)functions, max))
SIM_EXPORT(cuLibraryEnumerateKernels, (CUkernel * kernels, unsigned max, CUlibrary library),
           enumerate(library, SIM_LIBRARY, (void **)kernels, max))

SIM_API CUresult cuModuleGetLoadingMode(int *mode)
{
    enum { LAZY = 2 };
    SIM_ENTER(cuModuleGetLoadingMode);
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = LAZY;
    return CUDA_SUCCESS;
}

static CUresult load_library(CUlibrary *out, const void *image)
{
    return out && image ? new_module(NULL, SIM_LIBRARY, (void **)out) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult load_library_file(CUlibrary *out, const char *path)
{
    return path && !readable(path) ? CUDA_ERROR_FILE_NOT_FOUND : load_library(out, path);
}

#define LIBRARY_OPTIONS                                                                                               \
    int *jit_options __attribute__((unused)), void **jit_values __attribute__((unused)),                              \
        unsigned jit_count __attribute__((unused)), int *options __attribute__((unused)),                             \
        void **values __attribute__((unused)), unsigned count __attribute__((unused))
SIM_EXPORT(cuLibraryLoadData, (CUlibrary * library, const void *code, LIBRARY_OPTIONS), load_library(library, code))
SIM_EXPORT(cuLibraryLoadFromFile, (CUlibrary * library, const char *path, LIBRARY_OPTIONS),
           load_library_file(library, path))

/* A library's module in the current context: a module of its own that knows every name as well. */
static CUresult library_module(CUmodule *out, const void *library)
{
    if (!sim_handle_is(library, SIM_LIBRARY))
        return CUDA_ERROR_INVALID_HANDLE;
    return load_module(out, library);
}

SIM_EXPORT(cuLibraryGetModule, (CUmodule * module, CUlibrary library), library_module(module, library))

struct sim_function *sim_function_of(const void *handle)
{
    bool known = sim_handle_is(handle, SIM_FUNCTION) || sim_handle_is(handle, SIM_KERNEL);
    return known ? (struct sim_function *)handle : NULL;
}
