/*
 * Memory of another interface, such as Vulkan, which CUDA imports. That interface takes it from its own card, of which there is
 * none here: what is imported is a name and a size.
 */
#include "mem.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

struct external {
    int fd; /* ours since it was imported */
};

static CUresult import(CUexternalMemory *out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!out || !desc || !desc->size || desc->flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    if (desc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (fcntl(desc->handle.fd, F_GETFD) < 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct external *external = malloc(sizeof *external);
    if (!external)
        return CUDA_ERROR_OUT_OF_MEMORY;
    external->fd = desc->handle.fd;
    sim_handle_add(external, SIM_OTHER);
    *out = (CUexternalMemory)external;
    return CUDA_SUCCESS;
}

static CUresult destroy(CUexternalMemory memory)
{
    struct external *external = (struct external *)memory;
    if (!sim_handle_is(external, SIM_OTHER))
        return CUDA_ERROR_INVALID_VALUE;
    sim_handle_drop(external);
    close(external->fd);
    free(external);
    return CUDA_SUCCESS;
}

SIM_EXPORT(cuImportExternalMemory, (CUexternalMemory * out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc),
           import(out, desc))
SIM_EXPORT(cuDestroyExternalMemory, (CUexternalMemory memory), destroy(memory))
