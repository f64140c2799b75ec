/* Libraries: code that belongs to no context. Each context that uses one gets a module of it. */
#include "module.h"

#include <stdlib.h>

/* A library's module in a context, made at the first need. */
static CUresult module_in(struct sim_module *library, struct sim_context *context, struct sim_module **out)
{
    for (*out = library->modules; *out; *out = (*out)->next)
        if ((*out)->context == context)
            return CUDA_SUCCESS;
    CUresult result = sim_module_new(context, SIM_MODULE, library->globals, out);
    if (result)
        return result;
    (*out)->library = library;
    (*out)->next = library->modules;
    library->modules = *out;
    return CUDA_SUCCESS;
}

static CUresult load(CUlibrary *out, const void *image)
{
    struct sim_module *library = NULL, *module;
    if (!out || !image)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_module_new(NULL, SIM_LIBRARY, sim_image_globals(image), &library);
    struct sim_context *context;
    if (!result && sim_modules_eager() && !sim_current(&context))
        result = module_in(library, context, &module);
    if (!result)
        *out = (CUlibrary)library;
    else if (library)
        sim_module_end(library);
    return result;
}

static CUresult load_file(CUlibrary *out, const char *path)
{
    void *image = path ? sim_image_read(path) : NULL;
    CUresult result = path && !image ? CUDA_ERROR_FILE_NOT_FOUND : load(out, image);
    free(image);
    return result;
}

#define LIBRARY_OPTIONS                                                                                               \
    int *jit_options __attribute__((unused)), void **jit_values __attribute__((unused)),                              \
        unsigned jit_count __attribute__((unused)), int *options __attribute__((unused)),                             \
        void **values __attribute__((unused)), unsigned count __attribute__((unused))
SIM_EXPORT_ALLOC(cuLibraryLoadData, (CUlibrary * library, const void *code, LIBRARY_OPTIONS), load(library, code))
SIM_EXPORT_ALLOC(cuLibraryLoadFromFile, (CUlibrary * library, const char *path, LIBRARY_OPTIONS),
                 load_file(library, path))

static CUresult get_module(CUmodule *out, CUlibrary library)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result)
        return result;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_handle_is(library, SIM_LIBRARY))
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_module *module;
    result = module_in((struct sim_module *)library, context, &module);
    if (!result)
        *out = (CUmodule)module;
    return result;
}

SIM_EXPORT_ALLOC(cuLibraryGetModule, (CUmodule * module, CUlibrary library), get_module(module, library))

/* Nothing can be asked for by name, but to look has the variables loaded. */
static CUresult get_global(const CUdeviceptr *ptr, const size_t *bytes, CUlibrary library, const char *name)
{
    CUmodule module;
    if ((!ptr && !bytes) || !name)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = get_module(&module, library);
    return result ? result : CUDA_ERROR_NOT_FOUND;
}

SIM_EXPORT_ALLOC(cuLibraryGetGlobal, (CUdeviceptr * ptr, size_t *bytes, CUlibrary library, const char *name),
                 get_global(ptr, bytes, library, name))

static CUresult unload(CUlibrary library)
{
    if (!sim_handle_is(library, SIM_LIBRARY))
        return CUDA_ERROR_INVALID_HANDLE;
    sim_module_end((struct sim_module *)library);
    return CUDA_SUCCESS;
}

SIM_EXPORT(cuLibraryUnload, (CUlibrary library), unload(library))

CUresult sim_function_load(struct sim_function *function)
{
    struct sim_module *module = function->module;
    struct sim_context *context;
    CUresult result = module->context ? CUDA_SUCCESS : sim_current(&context);
    if (!result && !module->context)
        result = module_in(module, context, &module);
    return result ? result : sim_module_load_code(module);
}
