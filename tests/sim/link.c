/* The just-in-time linker: takes any input and hands back an image, which is all that loading one asks for. */
#include "sim.h"

#include <stdlib.h>

struct CUlinkState_st {
    unsigned inputs;
    char image[64];
};
typedef struct CUlinkState_st *CUlinkState;

static CUresult create(CUlinkState *out)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result)
        return result;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    CUlinkState state = calloc(1, sizeof *state);
    if (!state)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_handle_add(state, SIM_OTHER);
    *out = state;
    return CUDA_SUCCESS;
}

static CUresult add(CUlinkState state, const void *input)
{
    if (!sim_handle_is(state, SIM_OTHER))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!input)
        return CUDA_ERROR_INVALID_VALUE;
    state->inputs++;
    return CUDA_SUCCESS;
}

static CUresult complete(CUlinkState state, void **image, size_t *bytes)
{
    if (!sim_handle_is(state, SIM_OTHER))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!state->inputs || !image)
        return CUDA_ERROR_INVALID_VALUE;
    *image = state->image;
    if (bytes)
        *bytes = sizeof state->image;
    return CUDA_SUCCESS;
}

static CUresult destroy(CUlinkState state)
{
    if (!sim_handle_is(state, SIM_OTHER))
        return CUDA_ERROR_INVALID_HANDLE;
    sim_handle_drop(state);
    free(state);
    return CUDA_SUCCESS;
}

#define UNUSED __attribute__((unused))
#define OPTIONS unsigned count UNUSED, int *options UNUSED, void **values UNUSED
#define DATA int type UNUSED, void *data, size_t bytes UNUSED, const char *name UNUSED
SIM_EXPORT(cuLinkCreate, (OPTIONS, CUlinkState *state), create(state))
SIM_EXPORT(cuLinkCreate_v2, (OPTIONS, CUlinkState *state), create(state))
SIM_EXPORT(cuLinkAddData, (CUlinkState state, DATA, OPTIONS), add(state, data))
SIM_EXPORT(cuLinkAddData_v2, (CUlinkState state, DATA, OPTIONS), add(state, data))
SIM_EXPORT(cuLinkAddFile, (CUlinkState state, int type UNUSED, const char *path, OPTIONS), add(state, path))
SIM_EXPORT(cuLinkAddFile_v2, (CUlinkState state, int type UNUSED, const char *path, OPTIONS), add(state, path))
SIM_EXPORT(cuLinkComplete, (CUlinkState state, void **image, size_t *bytes), complete(state, image, bytes))
SIM_EXPORT(cuLinkDestroy, (CUlinkState state), destroy(state))
