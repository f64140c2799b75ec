/* Modules: any image is accepted, and whatever function is asked of it exists. Its variables take memory of their context,
 * but cannot be asked for. */
#include "mem.h"
#include "module.h"
#include "spec.h"

#include <stdlib.h>
#include <string.h>

/* ---- what they take from the card ------------------------------------------------------------------------ */

static void (*while_loading)(void);

void simgpu_while_loading(void (*what)(void)) { while_loading = what; }

static bool take(struct sim_context *context, uint64_t bytes, struct sim_piece *piece)
{
    size_t count = sim_blocks_of(bytes);
    if (!context || !count || piece->count)
        return true;
    if (while_loading)
        while_loading();
    uint32_t *blocks = malloc(count * sizeof *blocks);
    if (!blocks || !sim_take_blocks(context->card, count, blocks)) {
        free(blocks);
        return false;
    }
    *piece = (struct sim_piece){blocks, count};
    return true;
}

static void give(struct sim_context *context, struct sim_piece *piece)
{
    if (piece->count)
        sim_card_give(context->card, piece->count, piece->blocks);
    free(piece->blocks);
    *piece = (struct sim_piece){0};
}

bool sim_modules_eager(void)
{
    const char *mode = getenv("CUDA_MODULE_LOADING");
    return mode && !strcmp(mode, "EAGER");
}

CUresult sim_module_load_code(struct sim_module *module)
{
    return take(module->context, sim_spec()->module_bytes, &module->code) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- modules --------------------------------------------------------------------------------------------- */

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
    while (module->modules)
        sim_module_end(module->modules);
    if (module->library) {
        struct sim_module **at = &module->library->modules;
        while (*at != module)
            at = &(*at)->next;
        *at = module->next;
    }
    give(module->context, &module->data);
    give(module->context, &module->code);
    sim_handle_drop(module);
    free(module);
}

void sim_module_end(struct sim_module *module)
{
    if (module->context)
        sim_resource_remove(&module->resource);
    destroy_module(&module->resource);
}

CUresult sim_module_new(struct sim_context *context, enum sim_kind kind, uint64_t globals, struct sim_module **out)
{
    struct sim_module *module = calloc(1, sizeof *module);
    if (!module)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *module = (struct sim_module){.resource.destroy = destroy_module, .context = context, .globals = globals};
    if (context)
        sim_resource_add(context, &module->resource);
    sim_handle_add(module, kind);
    if (!take(context, globals, &module->data) || (sim_modules_eager() && sim_module_load_code(module))) {
        sim_module_end(module);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
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
    return sim_module_new(context, SIM_MODULE, sim_image_globals(image), (struct sim_module **)out);
}

static CUresult load_file(CUmodule *out, const char *path)
{
    void *image = path ? sim_image_read(path) : NULL;
    CUresult result = path && !image ? CUDA_ERROR_FILE_NOT_FOUND : load_module(out, image);
    free(image);
    return result;
}

SIM_EXPORT_ALLOC(cuModuleLoad, (CUmodule * module, const char *path), load_file(module, path))
SIM_EXPORT_ALLOC(cuModuleLoadData, (CUmodule * module, const void *image), load_module(module, image))
SIM_EXPORT_ALLOC(cuModuleLoadDataEx,
                 (CUmodule * module, const void *image, unsigned count __attribute__((unused)),
                  int *options __attribute__((unused)), void **values __attribute__((unused))),
                 load_module(module, image))
SIM_EXPORT_ALLOC(cuModuleLoadFatBinary, (CUmodule * module, const void *image), load_module(module, image))

static CUresult unload(const void *handle)
{
    if (!sim_handle_is(handle, SIM_MODULE))
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_module *module = (struct sim_module *)handle;
    /* A library's module goes with the library. */
    if (module->library)
        return CUDA_ERROR_NOT_PERMITTED;
    sim_module_end(module);
    return CUDA_SUCCESS;
}

SIM_EXPORT(cuModuleUnload, (CUmodule module), unload(module))

/* ---- what is in them ------------------------------------------------------------------------------------- */

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

/* A function of a module has its code loaded when it is asked for. */
static CUresult get_function(CUfunction *out, CUmodule handle, const char *name)
{
    CUresult result = find(handle, SIM_MODULE, SIM_FUNCTION, name, (void **)out);
    return result ? result : sim_module_load_code((struct sim_module *)handle);
}

SIM_EXPORT_ALLOC(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name),
                 get_function(function, module, name))
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
    enum { EAGER = 1, LAZY = 2 };
    SIM_ENTER(cuModuleGetLoadingMode);
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = sim_modules_eager() ? EAGER : LAZY;
    return CUDA_SUCCESS;
}

struct sim_function *sim_function_of(const void *handle)
{
    bool known = sim_handle_is(handle, SIM_FUNCTION) || sim_handle_is(handle, SIM_KERNEL);
    return known ? (struct sim_function *)handle : NULL;
}
