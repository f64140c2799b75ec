/* Arrays and mipmaps: opaque layouts, rows padded to 64 bytes and heights to 8, in blocks of their own. */
#include "array.h"

#include <stdlib.h>
#include <string.h>

#define ROW_ALIGN 64u
#define HEIGHT_ALIGN 8u
#define LEVEL_MAX 32u

struct sim_mipmap {
    struct sim_resource resource;
    struct sim_context *context;
    CUDA_ARRAY3D_DESCRIPTOR shape;
    uint32_t *blocks;
    size_t count;
    unsigned levels;
    struct sim_array *level[LEVEL_MAX];
};

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

/* The bytes of an element; 0 for a shape that no device takes. */
static unsigned element_of(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    unsigned element = format_bytes(shape->Format) * shape->NumChannels;
    bool channels = shape->NumChannels == 1 || shape->NumChannels == 2 || shape->NumChannels == 4;
    bool layered = shape->Flags & CUDA_ARRAY3D_LAYERED, cube = shape->Flags & CUDA_ARRAY3D_CUBEMAP;
    size_t limit = shape->Depth && !layered && !cube ? 16384 : 131072;
    if (!element || !channels || !shape->Width || shape->Width > limit || shape->Height > limit || shape->Depth > 16384)
        return 0;
    if (!shape->Height && shape->Depth && !layered)
        return 0;
    if (cube && (shape->Width != shape->Height || !shape->Depth || shape->Depth % 6))
        return 0;
    return element;
}

static bool unbacked(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    return shape->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING);
}

/* Fills in how a shape is laid out; returns its bytes. */
static uint64_t lay_out(struct sim_array *array)
{
    const CUDA_ARRAY3D_DESCRIPTOR *shape = &array->shape;
    uint64_t rows = shape->Height ? (shape->Height + HEIGHT_ALIGN - 1) / HEIGHT_ALIGN * HEIGHT_ALIGN : 1;
    array->row = (shape->Width * array->element + ROW_ALIGN - 1) / ROW_ALIGN * ROW_ALIGN;
    array->slice = array->row * rows;
    return array->slice * (shape->Depth ? shape->Depth : 1);
}

static uint32_t *take(struct sim_context *context, uint64_t bytes, size_t *count)
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

static void destroy_array(struct sim_resource *resource)
{
    struct sim_array *array = (struct sim_array *)resource;
    sim_handle_drop(array);
    if (!array->level_of && array->blocks) {
        sim_card_give(array->card, array->count, array->blocks);
        free(array->blocks);
    }
    sim_live -= !array->level_of;
    free(array);
}

static CUresult ready(struct sim_context **context)
{
    CUresult result = sim_current(context);
    return result == CUDA_SUCCESS ? sim_capture_unsafe() : result;
}

static CUresult create(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    struct sim_context *context;
    CUresult result = ready(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!out || !shape || !element_of(shape))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_array *array = calloc(1, sizeof *array);
    if (!array)
        return CUDA_ERROR_OUT_OF_MEMORY;
    array->context = context;
    array->card = context->card;
    array->shape = *shape;
    array->element = element_of(shape);
    uint64_t bytes = lay_out(array);
    if (!unbacked(shape) && !(array->blocks = take(context, bytes, &array->count))) {
        free(array);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    array->resource.destroy = destroy_array;
    sim_resource_add(context, &array->resource);
    sim_handle_add(array, SIM_ARRAY);
    sim_live++;
    *out = (CUarray)array;
    return CUDA_SUCCESS;
}

static CUresult create_2d(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *flat)
{
    if (!flat)
        return create(out, NULL);
    CUDA_ARRAY3D_DESCRIPTOR shape = {flat->Width, flat->Height, 0, flat->Format, flat->NumChannels, 0};
    return create(out, &shape);
}

static CUresult create_2d_low(CUarray *out, const CUDA_ARRAY_DESCRIPTOR_v1 *flat)
{
    if (!flat)
        return create(out, NULL);
    CUDA_ARRAY3D_DESCRIPTOR shape = {flat->Width, flat->Height, 0, flat->Format, flat->NumChannels, 0};
    return create(out, &shape);
}

static CUresult create_low(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR_v1 *low)
{
    if (!low)
        return create(out, NULL);
    CUDA_ARRAY3D_DESCRIPTOR shape = {low->Width, low->Height, low->Depth, low->Format, low->NumChannels, low->Flags};
    return create(out, &shape);
}

static CUresult destroy(CUarray handle)
{
    struct sim_context *context;
    CUresult result = ready(&context);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_array *array = sim_array_of(handle);
    if (!array || array->level_of)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_resource_remove(&array->resource);
    destroy_array(&array->resource);
    return CUDA_SUCCESS;
}

static CUresult describe(CUDA_ARRAY3D_DESCRIPTOR *shape, CUarray handle)
{
    struct sim_array *array = sim_array_of(handle);
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!shape)
        return CUDA_ERROR_INVALID_VALUE;
    *shape = array->shape;
    return CUDA_SUCCESS;
}

static CUresult describe_2d(CUDA_ARRAY_DESCRIPTOR *flat, CUarray handle)
{
    CUDA_ARRAY3D_DESCRIPTOR shape;
    CUresult result = describe(&shape, handle);
    if (result != CUDA_SUCCESS || !flat)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    *flat = (CUDA_ARRAY_DESCRIPTOR){shape.Width, shape.Height, shape.Format, shape.NumChannels};
    return CUDA_SUCCESS;
}

static CUresult describe_2d_low(CUDA_ARRAY_DESCRIPTOR_v1 *flat, CUarray handle)
{
    CUDA_ARRAY3D_DESCRIPTOR shape;
    CUresult result = describe(&shape, handle);
    if (result != CUDA_SUCCESS || !flat)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    *flat = (CUDA_ARRAY_DESCRIPTOR_v1){(unsigned)shape.Width, (unsigned)shape.Height, shape.Format, shape.NumChannels};
    return CUDA_SUCCESS;
}

static CUresult describe_low(CUDA_ARRAY3D_DESCRIPTOR_v1 *low, CUarray handle)
{
    CUDA_ARRAY3D_DESCRIPTOR shape;
    CUresult result = describe(&shape, handle);
    if (result != CUDA_SUCCESS || !low)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    *low = (CUDA_ARRAY3D_DESCRIPTOR_v1){(unsigned)shape.Width, (unsigned)shape.Height, (unsigned)shape.Depth,
                                        shape.Format,          shape.NumChannels,      shape.Flags};
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
    if (!out || !unbacked(&array->shape))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_array copy = *array;
    *out = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = sim_blocks_of(lay_out(&copy)) << SIM_BLOCK_SHIFT,
                                            .alignment = SIM_BLOCK};
    return CUDA_SUCCESS;
}

/* ---- mipmaps --------------------------------------------------------------------------------------- */

static void destroy_mipmap(struct sim_resource *resource)
{
    struct sim_mipmap *mipmap = (struct sim_mipmap *)resource;
    sim_handle_drop(mipmap);
    for (unsigned i = 0; i < mipmap->levels; i++)
        destroy_array(&mipmap->level[i]->resource);
    if (mipmap->blocks)
        sim_card_give(mipmap->context->card, mipmap->count, mipmap->blocks);
    free(mipmap->blocks);
    free(mipmap);
    sim_live--;
}

/* The shape of a level: each side halved, never below one. Layers are not halved. */
static CUDA_ARRAY3D_DESCRIPTOR level_shape(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned level)
{
    CUDA_ARRAY3D_DESCRIPTOR at = *shape;
    bool layers = shape->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
    at.Width = shape->Width >> level ? shape->Width >> level : 1;
    if (shape->Height)
        at.Height = shape->Height >> level ? shape->Height >> level : 1;
    if (shape->Depth && !layers)
        at.Depth = shape->Depth >> level ? shape->Depth >> level : 1;
    return at;
}

static unsigned levels_of(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    bool layers = shape->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
    size_t side = shape->Width > shape->Height ? shape->Width : shape->Height;
    side = !layers && shape->Depth > side ? shape->Depth : side;
    unsigned levels = 0;
    for (; side; side >>= 1)
        levels++;
    return levels;
}

static CUresult create_mipmap(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels)
{
    struct sim_context *context;
    CUresult result = ready(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!out || !shape || !element_of(shape) || !levels)
        return CUDA_ERROR_INVALID_VALUE;
    if (levels > levels_of(shape))
        levels = levels_of(shape);
    struct sim_mipmap *mipmap = calloc(1, sizeof *mipmap);
    uint64_t bytes = 0;
    bool made = mipmap;
    for (unsigned i = 0; made && i < levels; i++) {
        struct sim_array *array = mipmap->level[i] = calloc(1, sizeof *array);
        if (!(made = array))
            break;
        mipmap->levels++;
        *array = (struct sim_array){.context = context,
                                    .card = context->card,
                                    .shape = level_shape(shape, i),
                                    .element = element_of(shape),
                                    .offset = bytes,
                                    .level_of = mipmap};
        bytes += lay_out(array);
    }
    if (made && !unbacked(shape))
        made = (mipmap->blocks = take(context, bytes, &mipmap->count));
    if (!made) {
        for (unsigned i = 0; mipmap && i < mipmap->levels; i++)
            free(mipmap->level[i]);
        free(mipmap);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (unsigned i = 0; i < levels; i++) {
        mipmap->level[i]->blocks = mipmap->blocks;
        mipmap->level[i]->count = mipmap->count;
        sim_handle_add(mipmap->level[i], SIM_ARRAY);
    }
    mipmap->context = context;
    mipmap->shape = *shape;
    mipmap->resource.destroy = destroy_mipmap;
    sim_resource_add(context, &mipmap->resource);
    sim_handle_add(mipmap, SIM_MIPMAP);
    sim_live++;
    *out = (CUmipmappedArray)mipmap;
    return CUDA_SUCCESS;
}

static CUresult mipmap_destroy(CUmipmappedArray handle)
{
    struct sim_context *context;
    CUresult result = ready(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_handle_is(handle, SIM_MIPMAP))
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_mipmap *mipmap = (struct sim_mipmap *)handle;
    sim_resource_remove(&mipmap->resource);
    destroy_mipmap(&mipmap->resource);
    return CUDA_SUCCESS;
}

static CUresult mipmap_level(CUarray *out, CUmipmappedArray handle, unsigned level)
{
    if (!sim_handle_is(handle, SIM_MIPMAP))
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_mipmap *mipmap = (struct sim_mipmap *)handle;
    if (!out || level >= mipmap->levels)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUarray)mipmap->level[level];
    return CUDA_SUCCESS;
}

static CUresult mipmap_requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, CUmipmappedArray handle, CUdevice device)
{
    if (!sim_handle_is(handle, SIM_MIPMAP))
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_mipmap *mipmap = (struct sim_mipmap *)handle;
    if (sim_device_card(device) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!out || !unbacked(&mipmap->shape))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_array last = *mipmap->level[mipmap->levels - 1];
    *out = (CUDA_ARRAY_MEMORY_REQUIREMENTS){
        .size = sim_blocks_of(last.offset + lay_out(&last)) << SIM_BLOCK_SHIFT, .alignment = SIM_BLOCK};
    return CUDA_SUCCESS;
}

SIM_EXPORT_ALLOC(cuArrayCreate_v2, (CUarray * out, const CUDA_ARRAY_DESCRIPTOR *shape), create_2d(out, shape))
SIM_EXPORT_ALLOC(cuArrayCreate, (CUarray * out, const CUDA_ARRAY_DESCRIPTOR_v1 *shape), create_2d_low(out, shape))
SIM_EXPORT_ALLOC(cuArray3DCreate_v2, (CUarray * out, const CUDA_ARRAY3D_DESCRIPTOR *shape), create(out, shape))
SIM_EXPORT_ALLOC(cuArray3DCreate, (CUarray * out, const CUDA_ARRAY3D_DESCRIPTOR_v1 *shape), create_low(out, shape))
SIM_EXPORT(cuArrayDestroy, (CUarray array), destroy(array))
SIM_EXPORT(cuArrayGetDescriptor_v2, (CUDA_ARRAY_DESCRIPTOR * out, CUarray array), describe_2d(out, array))
SIM_EXPORT(cuArrayGetDescriptor, (CUDA_ARRAY_DESCRIPTOR_v1 * out, CUarray array), describe_2d_low(out, array))
SIM_EXPORT(cuArray3DGetDescriptor_v2, (CUDA_ARRAY3D_DESCRIPTOR * out, CUarray array), describe(out, array))
SIM_EXPORT(cuArray3DGetDescriptor, (CUDA_ARRAY3D_DESCRIPTOR_v1 * out, CUarray array), describe_low(out, array))
SIM_EXPORT(cuArrayGetMemoryRequirements, (CUDA_ARRAY_MEMORY_REQUIREMENTS * out, CUarray array, CUdevice device),
           requirements(out, array, device))
SIM_EXPORT_ALLOC(cuMipmappedArrayCreate,
                 (CUmipmappedArray * out, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels),
                 create_mipmap(out, shape, levels))
SIM_EXPORT(cuMipmappedArrayDestroy, (CUmipmappedArray mipmap), mipmap_destroy(mipmap))
SIM_EXPORT(cuMipmappedArrayGetLevel, (CUarray * out, CUmipmappedArray mipmap, unsigned level),
           mipmap_level(out, mipmap, level))
SIM_EXPORT(cuMipmappedArrayGetMemoryRequirements,
           (CUDA_ARRAY_MEMORY_REQUIREMENTS * out, CUmipmappedArray mipmap, CUdevice device),
           mipmap_requirements(out, mipmap, device))
