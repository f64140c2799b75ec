/*
 * Sparse arrays: made without memory, into which the program maps tiles of 64 KiB of physical memory, and unmaps them. An
 * array with deferred mapping is one tile of its whole size. A tile keeps the physical memory that is mapped into it.
 */
#include "array.h"
#include "stream.h"
#include "vmm.h"

#include <stdlib.h>

#define TILE ((uint64_t)1 << 16)

struct extent {
    unsigned width, height, depth;
};

struct sim_sparse {
    CUDA_ARRAY3D_DESCRIPTOR shape;
    struct extent tile; /* in elements */
    bool deferred;
    unsigned levels, layers;
    unsigned tail_level; /* from here on levels have no tiles of their own, but share the layer's tail */
    uint64_t tail_bytes; /* of a layer */
    uint64_t bytes;      /* deferred: what all of it takes */
    size_t first[SIM_LEVELS + 1]; /* tile of each level in a layer, and of the tail */
    size_t in_layer;
    struct sim_physical **tiles; /* layer by layer; NULL where nothing is mapped */
};

static struct extent level_extent(const struct sim_sparse *sparse, unsigned level)
{
    CUDA_ARRAY3D_DESCRIPTOR at = sim_level_shape(&sparse->shape, level);
    unsigned depth = sparse->layers > 1 || !at.Depth ? 1 : (unsigned)at.Depth;
    return (struct extent){(unsigned)at.Width, at.Height ? (unsigned)at.Height : 1, depth};
}

static unsigned in_tiles(unsigned length, unsigned tile) { return (length + tile - 1) / tile; }

static size_t level_tiles(const struct sim_sparse *sparse, unsigned level)
{
    struct extent at = level_extent(sparse, level);
    return (size_t)in_tiles(at.width, sparse->tile.width) * in_tiles(at.height, sparse->tile.height) *
           in_tiles(at.depth, sparse->tile.depth);
}

/* The usual shapes of 64 KiB: sides are halved in turn as elements get larger. */
static struct extent tile_of(const CUDA_ARRAY3D_DESCRIPTOR *shape, bool layered)
{
    struct extent flat = {256, 256, 1}, deep = {64, 32, 32};
    bool is_deep = shape->Depth && !layered;
    unsigned turn = 0;
    for (unsigned element = sim_element_of(shape); element > 1; element /= 2, turn++) {
        if (is_deep)
            *(turn % 3 == 0 ? &deep.width : turn % 3 == 1 ? &deep.depth : &deep.height) /= 2;
        else
            *(turn % 2 == 0 ? &flat.height : &flat.width) /= 2;
    }
    return is_deep ? deep : flat;
}

struct sim_sparse *sim_sparse_new(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels, bool mipmap, uint64_t bytes)
{
    struct sim_sparse *sparse = calloc(1, sizeof *sparse);
    if (!sparse)
        return NULL;
    bool layered = shape->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
    sparse->shape = *shape;
    sparse->levels = levels;
    sparse->layers = layered && shape->Depth ? (unsigned)shape->Depth : 1;
    sparse->tile = tile_of(shape, layered);
    sparse->deferred = !(shape->Flags & CUDA_ARRAY3D_SPARSE);
    sparse->bytes = sim_blocks_of(bytes) << SIM_BLOCK_SHIFT;
    if (sparse->deferred) {
        sparse->in_layer = sparse->layers = 1;
    } else {
        unsigned level = 0;
        for (; level < levels; level++) {
            struct extent at = level_extent(sparse, level);
            if (mipmap && (at.width < sparse->tile.width || at.height < sparse->tile.height ||
                           at.depth < sparse->tile.depth))
                break;
            sparse->first[level] = sparse->in_layer;
            sparse->in_layer += level_tiles(sparse, level);
        }
        sparse->tail_level = level;
        uint64_t tail = 0;
        for (; level < levels; level++) {
            struct extent at = level_extent(sparse, level);
            tail += (uint64_t)at.width * at.height * at.depth * sim_element_of(shape);
        }
        sparse->first[sparse->tail_level] = sparse->in_layer;
        sparse->tail_bytes = (tail + TILE - 1) / TILE * TILE;
        sparse->in_layer += sparse->tail_bytes / TILE;
    }
    sparse->tiles = calloc(sparse->in_layer * sparse->layers, sizeof(struct sim_physical *));
    if (sparse->tiles)
        return sparse;
    free(sparse);
    return NULL;
}

static void set(struct sim_physical **tile, struct sim_physical *physical)
{
    struct sim_physical *before = *tile;
    *tile = physical;
    if (physical)
        sim_physical_map(physical);
    if (before)
        sim_physical_unmap(before);
}

void sim_sparse_free(struct sim_sparse *sparse)
{
    if (!sparse)
        return;
    sim_sparse_catch_up();
    for (size_t i = 0; i < sparse->in_layer * sparse->layers; i++)
        set(&sparse->tiles[i], NULL);
    free(sparse->tiles);
    free(sparse);
}

static CUresult properties(CUDA_ARRAY_SPARSE_PROPERTIES *out, const struct sim_sparse *sparse, bool tail)
{
    if (!out || !sparse || sparse->deferred)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUDA_ARRAY_SPARSE_PROPERTIES){
        .tileExtent = {sparse->tile.width, sparse->tile.height, sparse->tile.depth},
        .miptailFirstLevel = tail ? sparse->tail_level : 0,
        .miptailSize = sparse->tail_bytes,
    };
    return CUDA_SUCCESS;
}

static CUresult array_properties(CUDA_ARRAY_SPARSE_PROPERTIES *out, CUarray handle)
{
    struct sim_array *array = sim_array_of(handle);
    return array ? properties(out, array->sparse, false) : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult mipmap_properties(CUDA_ARRAY_SPARSE_PROPERTIES *out, CUmipmappedArray handle)
{
    return sim_handle_is(handle, SIM_MIPMAP) ? properties(out, ((struct sim_mipmap *)handle)->sparse, true)
                                             : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- mapping ------------------------------------------------------------------------------------ */

static struct sim_sparse *sparse_of(const CUarrayMapInfo *info, struct sim_context **context)
{
    if (info->resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY && sim_handle_is(info->resource.mipmap, SIM_MIPMAP)) {
        struct sim_mipmap *mipmap = (struct sim_mipmap *)info->resource.mipmap;
        *context = mipmap->context;
        return mipmap->sparse;
    }
    struct sim_array *array =
        info->resourceType == CU_RESOURCE_TYPE_ARRAY ? sim_array_of(info->resource.array) : NULL;
    *context = array ? array->context : NULL;
    return array ? array->sparse : NULL;
}

/* A range of a side, in tiles: it begins at one, and ends at one or at the end of the side. */
static bool side(unsigned offset, unsigned extent, unsigned length, unsigned tile, unsigned *first, unsigned *count)
{
    if (!extent || offset > length || extent > length - offset || offset % tile ||
        ((offset + extent) % tile && offset + extent != length))
        return false;
    *first = offset / tile;
    *count = in_tiles(extent, tile);
    return true;
}

/* Maps `physical` into (NULL: unmaps) the tiles of one operation, or with `later` looks only whether it could; false when it
 * names none. `room` is what may be mapped. */
static bool put(struct sim_sparse *sparse, const CUarrayMapInfo *info, struct sim_physical *physical, uint64_t room,
                bool later)
{
    unsigned layer = info->subresource.sparseLevel.layer;
    if (info->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL) {
        uint64_t offset = info->subresource.miptail.offset, size = info->subresource.miptail.size;
        layer = info->subresource.miptail.layer;
        if (sparse->deferred || layer >= sparse->layers || !size || offset % TILE || size % TILE ||
            offset > sparse->tail_bytes || size > sparse->tail_bytes - offset || size > room)
            return false;
        struct sim_physical **tail = &sparse->tiles[layer * sparse->in_layer + sparse->first[sparse->tail_level]];
        for (uint64_t at = offset / TILE; !later && at < (offset + size) / TILE; at++)
            set(&tail[at], physical);
        return true;
    }
    unsigned level = info->subresource.sparseLevel.level, x, y, z, width, height, depth;
    if (info->subresourceType != CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL || layer >= sparse->layers ||
        level >= (sparse->deferred ? 1 : sparse->tail_level))
        return false;
    struct extent all = level_extent(sparse, level), tile = sparse->deferred ? all : sparse->tile;
    if (!side(info->subresource.sparseLevel.offsetX, info->subresource.sparseLevel.extentWidth, all.width, tile.width,
              &x, &width) ||
        !side(info->subresource.sparseLevel.offsetY, info->subresource.sparseLevel.extentHeight, all.height,
              tile.height, &y, &height) ||
        !side(info->subresource.sparseLevel.offsetZ, info->subresource.sparseLevel.extentDepth, all.depth, tile.depth,
              &z, &depth))
        return false;
    if ((sparse->deferred ? sparse->bytes : (uint64_t)width * height * depth * TILE) > room)
        return false;
    size_t across = in_tiles(all.width, tile.width), down = in_tiles(all.height, tile.height);
    struct sim_physical **first = &sparse->tiles[layer * sparse->in_layer + sparse->first[level]];
    for (unsigned k = z; !later && k < z + depth; k++) {
        for (unsigned j = y; j < y + height; j++) {
            for (unsigned i = x; i < x + width; i++)
                set(&first[(k * down + j) * across + i], physical);
        }
    }
    return true;
}

static struct sim_physical *mapped_by(const CUarrayMapInfo *info)
{
    return info->memOperationType == CU_MEM_OPERATION_TYPE_MAP ? sim_physical_of(info->memHandle.memHandle) : NULL;
}

static bool operate(const CUarrayMapInfo *info, const struct sim_context *stream_context, bool later)
{
    struct sim_context *context;
    struct sim_sparse *sparse = sparse_of(info, &context);
    if (!sparse || context->card != stream_context->card || info->flags || info->reserved[0] || info->reserved[1] ||
        info->memHandleType != CU_MEM_HANDLE_TYPE_GENERIC || info->deviceBitMask != 1u << context->device)
        return false;
    if (info->memOperationType == CU_MEM_OPERATION_TYPE_UNMAP)
        return !info->memHandle.memHandle && put(sparse, info, NULL, UINT64_MAX, later);
    struct sim_physical *physical = mapped_by(info);
    if (!physical || physical->card != context->card || info->offset % TILE || info->offset >= physical->bytes)
        return false;
    return put(sparse, info, physical, physical->bytes - info->offset, later);
}

/* ---- in stream order ------------------------------------------------------------------------------ */

/* Operations that streams have been given and have not come to. Only where the back door says so: else there are none. */
static struct waiting {
    struct waiting *next;
    CUarrayMapInfo info;
    struct sim_physical *physical; /* kept from now on */
} *first, **last = &first;
static bool held;
static unsigned long long given, done;

static bool enqueue(const CUarrayMapInfo *info)
{
    struct waiting *waiting = calloc(1, sizeof *waiting);
    if (!waiting)
        return false;
    waiting->info = *info;
    waiting->physical = mapped_by(info);
    if (waiting->physical)
        sim_physical_map(waiting->physical);
    *last = waiting;
    last = &waiting->next;
    given++;
    return true;
}

unsigned long long sim_sparse_given(void) { return given; }

bool sim_sparse_is_done(unsigned long long ticket) { return done >= ticket; }

void sim_sparse_catch_up(void)
{
    while (first) {
        struct waiting *waiting = first;
        struct sim_context *context;
        struct sim_sparse *sparse = sparse_of(&waiting->info, &context);
        first = waiting->next;
        last = first ? last : &first;
        done++;
        if (sparse)
            put(sparse, &waiting->info, waiting->physical, UINT64_MAX, false);
        if (waiting->physical)
            sim_physical_unmap(waiting->physical);
        free(waiting);
    }
}

void simgpu_hold_arrays(int hold)
{
    SIM_LOCKED();
    held = hold;
    if (!hold)
        sim_sparse_catch_up();
}

/* The operations are done in turn; what precedes one that cannot be done stays done. */
static CUresult map_array(const CUarrayMapInfo *list, unsigned count, CUstream stream)
{
    struct sim_context *context;
    CUresult result = sim_stream_context(stream, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!list || !count)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_stream_capturing(stream))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    for (unsigned i = 0; i < count; i++) {
        if (!operate(&list[i], context, held))
            return CUDA_ERROR_INVALID_VALUE;
        if (held && !enqueue(&list[i]))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

SIM_EXPORT(cuArrayGetSparseProperties, (CUDA_ARRAY_SPARSE_PROPERTIES * out, CUarray array),
           array_properties(out, array))
SIM_EXPORT(cuMipmappedArrayGetSparseProperties, (CUDA_ARRAY_SPARSE_PROPERTIES * out, CUmipmappedArray mipmap),
           mipmap_properties(out, mipmap))
SIM_EXPORT(cuMemMapArrayAsync, (CUarrayMapInfo * list, unsigned count, CUstream stream),
           map_array(list, count, stream))
SIM_EXPORT(cuMemMapArrayAsync_ptsz, (CUarrayMapInfo * list, unsigned count, CUstream stream),
           map_array(list, count, sim_ptsz(stream)))
