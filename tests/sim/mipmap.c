/* Mipmaps: arrays of halved sides that share their blocks. */
#include "array.h"

#include <stdlib.h>

static void destroy_mipmap(struct sim_resource *resource)
{
    struct sim_mipmap *mipmap = (struct sim_mipmap *)resource;
    sim_handle_drop(mipmap);
    for (unsigned i = 0; i < mipmap->levels; i++)
        sim_array_end(&mipmap->level[i]->resource);
    if (mipmap->blocks)
        sim_card_give(mipmap->context->card, mipmap->count, mipmap->blocks);
    free(mipmap->blocks);
    sim_sparse_free(mipmap->sparse);
    free(mipmap);
    sim_live--;
}

CUDA_ARRAY3D_DESCRIPTOR sim_level_shape(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned level)
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

static CUresult create(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels)
{
    struct sim_context *context;
    CUresult result = sim_array_ready(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!out || !shape || !sim_element_of(shape) || !levels)
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
                                    .shape = sim_level_shape(shape, i),
                                    .element = sim_element_of(shape),
                                    .offset = bytes,
                                    .level_of = mipmap};
        bytes += sim_lay_out(array);
    }
    if (made && sim_unbacked(shape))
        made = (mipmap->sparse = sim_sparse_new(shape, levels, true, bytes));
    else if (made)
        made = (mipmap->blocks = sim_array_take(context, bytes, &mipmap->count));
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

static CUresult destroy(CUmipmappedArray handle)
{
    struct sim_context *context;
    CUresult result = sim_array_ready(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_handle_is(handle, SIM_MIPMAP))
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_mipmap *mipmap = (struct sim_mipmap *)handle;
    sim_resource_remove(&mipmap->resource);
    destroy_mipmap(&mipmap->resource);
    return CUDA_SUCCESS;
}

static CUresult get_level(CUarray *out, CUmipmappedArray handle, unsigned level)
{
    if (!sim_handle_is(handle, SIM_MIPMAP))
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_mipmap *mipmap = (struct sim_mipmap *)handle;
    if (!out || level >= mipmap->levels)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUarray)mipmap->level[level];
    return CUDA_SUCCESS;
}

static CUresult requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, CUmipmappedArray handle, CUdevice device)
{
    if (!sim_handle_is(handle, SIM_MIPMAP))
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_mipmap *mipmap = (struct sim_mipmap *)handle;
    if (sim_device_card(device) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!out || !sim_unbacked(&mipmap->shape))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_array last = *mipmap->level[mipmap->levels - 1];
    *out = (CUDA_ARRAY_MEMORY_REQUIREMENTS){
        .size = sim_blocks_of(last.offset + sim_lay_out(&last)) << SIM_BLOCK_SHIFT, .alignment = SIM_BLOCK};
    return CUDA_SUCCESS;
}

SIM_EXPORT_ALLOC(cuMipmappedArrayCreate,
                 (CUmipmappedArray * out, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels),
                 create(out, shape, levels))
SIM_EXPORT(cuMipmappedArrayDestroy, (CUmipmappedArray mipmap), destroy(mipmap))
SIM_EXPORT(cuMipmappedArrayGetLevel, (CUarray * out, CUmipmappedArray mipmap, unsigned level),
           get_level(out, mipmap, level))
SIM_EXPORT(cuMipmappedArrayGetMemoryRequirements,
           (CUDA_ARRAY_MEMORY_REQUIREMENTS * out, CUmipmappedArray mipmap, CUdevice device),
           requirements(out, mipmap, device))
