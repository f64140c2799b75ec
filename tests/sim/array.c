/* Arrays: opaque layouts, rows padded to 64 bytes and heights to 8, in blocks of their own. */
#include "array.h"

#include <stdlib.h>
#include <string.h>

#define ROW_ALIGN 64u
#define HEIGHT_ALIGN 8u

struct sim_array *sim_array_of(CUarray handle)
{
    return sim_handle_is(handle, SIM_ARRAY) ? (struct sim_array *)handle : NULL;
}

static unsigned format_bytes(CUarray_format format)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    }
    return 0;
}

unsigned sim_element_of(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    unsigned element = format_bytes(shape->Format) * shape->NumChannels;
    bool channels = shape->NumChannels == 1 || shape->NumChannels == 2 || shape->NumChannels == 4;
    bool layered = shape->Flags & CUDA_ARRAY3D_LAYERED, cube = shape->Flags & CUDA_ARRAY3D_CUBEMAP;
    size_t limit = shape->Depth && !layered && !cube ? 16384 : 131072;
    if (!element || !channels || !shape->Width || shape->Width > limit || shape->Height > limit || shape->Depth > 16384)
        return 0;
    if (!shape->Height && ((shape->Depth && !layered) || (shape->Flags & CUDA_ARRAY3D_SPARSE)))
        return 0;
    if (cube && (shape->Width != shape->Height || !shape->Depth || shape->Depth % 6))
        return 0;
    return element;
}

bool sim_unbacked(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    return shape->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING);
}

uint64_t sim_lay_out(struct sim_array *array)
{
    const CUDA_ARRAY3D_DESCRIPTOR *shape = &array->shape;
    uint64_t rows = shape->Height ? (shape->Height + HEIGHT_ALIGN - 1) / HEIGHT_ALIGN * HEIGHT_ALIGN : 1;
    array->row = (shape->Width * array->element + ROW_ALIGN - 1) / ROW_ALIGN * ROW_ALIGN;
    array->slice = array->row * rows;
    return array->slice * (shape->Depth ? shape->Depth : 1);
}

uint32_t *sim_array_take(struct sim_context *context, uint64_t bytes, size_t *count)
{
    *count = (size_t)sim_blocks_of(bytes);
    if (bytes > sim_card_total(context->card))
        return NULL;
    uint32_t *blocks = malloc(*count * sizeof *blocks);
    if (blocks && !sim_take_blocks(context->card, *count, blocks)) {
        free(blocks);
        return NULL;
    }
    return blocks;
}

/* ---- arrays ------------------------------------------------------------------------------------- */

void sim_array_end(struct sim_resource *resource)
{
    struct sim_array *array = (struct sim_array *)resource;
    sim_handle_drop(array);
    if (!array->level_of && array->blocks) {
        sim_card_give(array->card, array->count, array->blocks);
        free(array->blocks);
    }
    sim_sparse_free(array->sparse);
    sim_live -= !array->level_of;
    free(array);
}

CUresult sim_array_ready(struct sim_context **context)
{
    CUresult result = sim_current(context);
    return result == CUDA_SUCCESS ? sim_capture_unsafe() : result;
}

static CUresult create(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    struct sim_context *context;
    CUresult result = sim_array_ready(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!out || !shape || !sim_element_of(shape))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_array *array = calloc(1, sizeof *array);
    if (!array)
        return CUDA_ERROR_OUT_OF_MEMORY;
    array->context = context;
    array->card = context->card;
    array->shape = *shape;
    array->element = sim_element_of(shape);
    uint64_t bytes = sim_lay_out(array);
    if (sim_unbacked(shape) ? !(array->sparse = sim_sparse_new(shape, 1, false, bytes))
                            : !(array->blocks = sim_array_take(context, bytes, &array->count))) {
        free(array);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    array->resource.destroy = sim_array_end;
    sim_resource_add(context, &array->resource);
    sim_handle_add(array, SIM_ARRAY);
    sim_live++;
    *out = (CUarray)array;
    return CUDA_SUCCESS;
}

static CUresult destroy(CUarray handle)
{
    struct sim_context *context;
    CUresult result = sim_array_ready(&context);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_array *array = sim_array_of(handle);
    if (!array || array->level_of)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_resource_remove(&array->resource);
    sim_array_end(&array->resource);
    return CUDA_SUCCESS;
}

/* Only arrays whose memory the program maps itself have requirements to ask for. */
static CUresult requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, CUarray handle, CUdevice device)
{
    struct sim_array *array = sim_array_of(handle);
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    if (sim_device_card(device) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!out || !sim_unbacked(&array->shape))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_array copy = *array;
    *out = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = sim_blocks_of(sim_lay_out(&copy)) << SIM_BLOCK_SHIFT,
                                            .alignment = SIM_BLOCK};
    return CUDA_SUCCESS;
}

SIM_EXPORT(cuArrayDestroy, (CUarray array), destroy(array))
SIM_EXPORT(cuArrayGetMemoryRequirements, (CUDA_ARRAY_MEMORY_REQUIREMENTS * out, CUarray array, CUdevice device),
           requirements(out, array, device))

/* ---- descriptors: flat or of three dimensions, with wide or, before 3.2, narrow sizes ------------- */

#define FLAT(shape)                                                                                                   \
    .Width = (shape).Width, .Height = (shape).Height, .Format = (shape).Format, .NumChannels = (shape).NumChannels
#define FULL(shape) FLAT(shape), .Depth = (shape).Depth, .Flags = (shape).Flags

#define CREATE(name, type, fields)                                                                                    \
    SIM_EXPORT_ALLOC(name, (CUarray * out, const type *shape),                                                        \
                     create(out, shape ? &(CUDA_ARRAY3D_DESCRIPTOR){fields(*shape)} : NULL))

#define DESCRIBE(name, type, fields)                                                                                  \
    static CUresult describe_##name(type *out, CUarray handle)                                                        \
    {                                                                                                                 \
        struct sim_array *array = sim_array_of(handle);                                                               \
        if (!array)                                                                                                   \
            return CUDA_ERROR_INVALID_HANDLE;                                                                         \
        if (!out)                                                                                                     \
            return CUDA_ERROR_INVALID_VALUE;                                                                          \
        *out = (type){fields(array->shape)};                                                                          \
        return CUDA_SUCCESS;                                                                                          \
    }                                                                                                                 \
    SIM_EXPORT(name, (type * out, CUarray array), describe_##name(out, array))

CREATE(cuArrayCreate, CUDA_ARRAY_DESCRIPTOR_v1, FLAT)
CREATE(cuArrayCreate_v2, CUDA_ARRAY_DESCRIPTOR, FLAT)
CREATE(cuArray3DCreate, CUDA_ARRAY3D_DESCRIPTOR_v1, FULL)
CREATE(cuArray3DCreate_v2, CUDA_ARRAY3D_DESCRIPTOR, FULL)
DESCRIBE(cuArrayGetDescriptor, CUDA_ARRAY_DESCRIPTOR_v1, FLAT)
DESCRIBE(cuArrayGetDescriptor_v2, CUDA_ARRAY_DESCRIPTOR, FLAT)
DESCRIBE(cuArray3DGetDescriptor, CUDA_ARRAY3D_DESCRIPTOR_v1, FULL)
DESCRIBE(cuArray3DGetDescriptor_v2, CUDA_ARRAY3D_DESCRIPTOR, FULL)
