/* Copies of rectangles and boxes between host memory, device memory and arrays. */
#include "array.h"
#include "stream.h"

#include <string.h>

/* One end of a copy: a corner in a box of rows. */
struct corner {
    CUmemorytype type;
    uint64_t base; /* not of an array */
    CUarray array;
    size_t x, y, z;      /* x in bytes */
    size_t pitch, height; /* from row to row, and in rows from slice to slice */
};

struct box {
    struct corner to, from;
    size_t width, height, depth; /* width in bytes */
};

static enum sim_side side_of(CUmemorytype type)
{
    return type == CU_MEMORYTYPE_HOST     ? SIM_SIDE_HOST
           : type == CU_MEMORYTYPE_DEVICE ? SIM_SIDE_DEVICE
                                          : SIM_SIDE_ANY;
}

static CUresult array_check(const struct corner *corner, const struct box *box)
{
    struct sim_array *array = sim_array_of(corner->array);
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    const CUDA_ARRAY3D_DESCRIPTOR *shape = &array->shape;
    size_t rows = shape->Height ? shape->Height : 1, slices = shape->Depth ? shape->Depth : 1;
    size_t row = shape->Width * array->element;
    if (!array->blocks || corner->x > row || box->width > row - corner->x || corner->y > rows ||
        box->height > rows - corner->y || corner->z > slices || box->depth > slices - corner->z)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static uint64_t row_address(const struct corner *corner, size_t y, size_t z)
{
    return corner->base + (((uint64_t)(corner->z + z) * corner->height + corner->y + y) * corner->pitch) + corner->x;
}

/* Resolves what the program left out and refuses what does not fit. */
static CUresult corner_check(struct corner *corner, const struct box *box, bool write)
{
    if (corner->type == CU_MEMORYTYPE_ARRAY)
        return array_check(corner, box);
    if (corner->type != CU_MEMORYTYPE_HOST && corner->type != CU_MEMORYTYPE_DEVICE &&
        corner->type != CU_MEMORYTYPE_UNIFIED)
        return CUDA_ERROR_INVALID_VALUE;
    bool rows = box->height > 1 || box->depth > 1 || corner->y || corner->z;
    if (!corner->pitch && !rows)
        corner->pitch = corner->x + box->width;
    if (!corner->height && box->depth <= 1 && !corner->z)
        corner->height = corner->y + box->height;
    if (corner->pitch < box->width || corner->x > corner->pitch - box->width || corner->height < box->height ||
        corner->y > corner->height - box->height)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t first = row_address(corner, 0, 0), last = row_address(corner, box->height - 1, box->depth - 1);
    if (last < first)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_range_check(first, last - first + box->width, side_of(corner->type), write);
}

static CUresult move_row(const struct box *box, size_t y, size_t z)
{
    const struct corner *to = &box->to, *from = &box->from;
    struct sim_extent extent[2];
    const struct corner *ends[2] = {to, from};
    if (to->type != CU_MEMORYTYPE_ARRAY && from->type != CU_MEMORYTYPE_ARRAY)
        return sim_move(row_address(to, y, z), side_of(to->type), row_address(from, y, z), side_of(from->type),
                        box->width);
    for (size_t done = 0, part; done < box->width; done += part) {
        part = box->width - done;
        for (int i = 0; i < 2; i++) {
            struct sim_array *array = ends[i]->type == CU_MEMORYTYPE_ARRAY ? sim_array_of(ends[i]->array) : NULL;
            CUresult result = CUDA_SUCCESS;
            if (array)
                extent[i] = (struct sim_extent){.card = array->card,
                                                .blocks = array->blocks,
                                                .offset = array->offset + (ends[i]->z + z) * array->slice +
                                                          (ends[i]->y + y) * array->row + ends[i]->x + done,
                                                .bytes = part};
            else if (ends[i]->type == CU_MEMORYTYPE_HOST)
                extent[i] = (struct sim_extent){.host = (char *)(uintptr_t)row_address(ends[i], y, z) + done,
                                                .bytes = part};
            else
                result = sim_extent_at(row_address(ends[i], y, z) + done, ends[i]->type == CU_MEMORYTYPE_UNIFIED,
                                       i == 0, &extent[i]);
            if (result != CUDA_SUCCESS)
                return result;
            part = extent[i].bytes < part ? (size_t)extent[i].bytes : part;
        }
        CUresult result = sim_extent_move(&extent[0], &extent[1], part);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

static CUresult run_box(const void *args)
{
    const struct box *box = args;
    /* A graph may run this later: arrays may be gone by then. */
    struct box checked = *box;
    CUresult result = corner_check(&checked.to, box, true);
    if (result == CUDA_SUCCESS)
        result = corner_check(&checked.from, box, false);
    for (size_t z = 0; z < box->depth; z++) {
        for (size_t y = 0; y < box->height && result == CUDA_SUCCESS; y++)
            result = move_row(&checked, y, z);
    }
    return result;
}

static CUresult enqueue(CUstream stream, struct box box)
{
    CUresult result = sim_stream_check(stream);
    if (result != CUDA_SUCCESS || !box.width || !box.height || !box.depth)
        return result;
    result = corner_check(&box.to, &box, true);
    if (result == CUDA_SUCCESS)
        result = corner_check(&box.from, &box, false);
    return result == CUDA_SUCCESS ? sim_work(stream, run_box, &box, sizeof box) : result;
}

static CUresult now(struct box box)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result == CUDA_SUCCESS)
        result = sim_capture_unsafe();
    return result == CUDA_SUCCESS ? enqueue(CU_STREAM_LEGACY, box) : result;
}

/* ---- the structures that describe a copy ------------------------------------------------------------ */

#define ADDRESS(c, side, type)                                                                                        \
    ((type) == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)(c)->side##Host : (uint64_t)(c)->side##Device)
#define CORNER_2D(c, side)                                                                                            \
    {.type = (c)->side##MemoryType,                                                                                   \
     .base = ADDRESS(c, side, (c)->side##MemoryType),                                                                 \
     .array = (c)->side##Array,                                                                                       \
     .x = (c)->side##XInBytes,                                                                                        \
     .y = (c)->side##Y,                                                                                               \
     .pitch = (c)->side##Pitch}
#define CORNER_3D(c, side)                                                                                            \
    {.type = (c)->side##MemoryType,                                                                                   \
     .base = ADDRESS(c, side, (c)->side##MemoryType),                                                                 \
     .array = (c)->side##Array,                                                                                       \
     .x = (c)->side##XInBytes,                                                                                        \
     .y = (c)->side##Y,                                                                                               \
     .z = (c)->side##Z,                                                                                               \
     .pitch = (c)->side##Pitch,                                                                                       \
     .height = (c)->side##Height}
#define BOX_2D(c) ((struct box){CORNER_2D(c, dst), CORNER_2D(c, src), (c)->WidthInBytes, (c)->Height, 1})
#define BOX_3D(c) ((struct box){CORNER_3D(c, dst), CORNER_3D(c, src), (c)->WidthInBytes, (c)->Height, (c)->Depth})

#define OR_NULL(c, call) ((c) ? (call) : CUDA_ERROR_INVALID_VALUE)
#define SYNC(name, parameters, call)                                                                                  \
    SIM_EXPORT(name, parameters, call)                                                                                \
    SIM_EXPORT(name##_ptds, parameters, call)
#define ASYNC(name, type, make)                                                                                       \
    SIM_EXPORT(name, (const type *c, CUstream stream), OR_NULL(c, enqueue(stream, make(c))))                          \
    SIM_EXPORT(name##_ptsz, (const type *c, CUstream stream), OR_NULL(c, enqueue(sim_ptsz(stream), make(c))))

SYNC(cuMemcpy2D_v2, (const CUDA_MEMCPY2D *c), OR_NULL(c, now(BOX_2D(c))))
SYNC(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *c), OR_NULL(c, now(BOX_2D(c))))
SYNC(cuMemcpy3D_v2, (const CUDA_MEMCPY3D *c), OR_NULL(c, now(BOX_3D(c))))
SYNC(cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER *c), OR_NULL(c, now(BOX_3D(c))))
ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, BOX_2D)
ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, BOX_3D)
ASYNC(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER, BOX_3D)
SIM_EXPORT(cuMemcpy2D, (const CUDA_MEMCPY2D_v1 *c), OR_NULL(c, now(BOX_2D(c))))
SIM_EXPORT(cuMemcpy2DUnaligned, (const CUDA_MEMCPY2D_v1 *c), OR_NULL(c, now(BOX_2D(c))))
SIM_EXPORT(cuMemcpy2DAsync, (const CUDA_MEMCPY2D_v1 *c, CUstream stream), OR_NULL(c, enqueue(stream, BOX_2D(c))))
SIM_EXPORT(cuMemcpy3D, (const CUDA_MEMCPY3D_v1 *c), OR_NULL(c, now(BOX_3D(c))))
SIM_EXPORT(cuMemcpy3DAsync, (const CUDA_MEMCPY3D_v1 *c, CUstream stream), OR_NULL(c, enqueue(stream, BOX_3D(c))))

/* ---- one row to, from, or between arrays --------------------------------------------------------------- */

#define OF_ARRAY(handle, offset) {.type = CU_MEMORYTYPE_ARRAY, .array = (handle), .x = (offset)}
#define OF_HOST(pointer) {.type = CU_MEMORYTYPE_HOST, .base = (uint64_t)(uintptr_t)(pointer)}
#define OF_DEVICE(pointer) {.type = CU_MEMORYTYPE_DEVICE, .base = (pointer)}
#define ROW(...) ((struct box){__VA_ARGS__, bytes, 1, 1})

SYNC(cuMemcpyAtoA_v2, (CUarray to, size_t to_at, CUarray from, size_t from_at, size_t bytes),
     now(ROW(OF_ARRAY(to, to_at), OF_ARRAY(from, from_at))))
SYNC(cuMemcpyAtoD_v2, (CUdeviceptr to, CUarray from, size_t at, size_t bytes),
     now(ROW(OF_DEVICE(to), OF_ARRAY(from, at))))
SYNC(cuMemcpyDtoA_v2, (CUarray to, size_t at, CUdeviceptr from, size_t bytes),
     now(ROW(OF_ARRAY(to, at), OF_DEVICE(from))))
SYNC(cuMemcpyAtoH_v2, (void *to, CUarray from, size_t at, size_t bytes), now(ROW(OF_HOST(to), OF_ARRAY(from, at))))
SYNC(cuMemcpyHtoA_v2, (CUarray to, size_t at, const void *from, size_t bytes),
     now(ROW(OF_ARRAY(to, at), OF_HOST(from))))
SIM_EXPORT(cuMemcpyAtoHAsync_v2, (void *to, CUarray from, size_t at, size_t bytes, CUstream stream),
           enqueue(stream, ROW(OF_HOST(to), OF_ARRAY(from, at))))
SIM_EXPORT(cuMemcpyAtoHAsync_v2_ptsz, (void *to, CUarray from, size_t at, size_t bytes, CUstream stream),
           enqueue(sim_ptsz(stream), ROW(OF_HOST(to), OF_ARRAY(from, at))))
SIM_EXPORT(cuMemcpyHtoAAsync_v2, (CUarray to, size_t at, const void *from, size_t bytes, CUstream stream),
           enqueue(stream, ROW(OF_ARRAY(to, at), OF_HOST(from))))
SIM_EXPORT(cuMemcpyHtoAAsync_v2_ptsz, (CUarray to, size_t at, const void *from, size_t bytes, CUstream stream),
           enqueue(sim_ptsz(stream), ROW(OF_ARRAY(to, at), OF_HOST(from))))
SIM_EXPORT(cuMemcpyAtoA, (CUarray to, unsigned to_at, CUarray from, unsigned from_at, unsigned bytes),
           now(ROW(OF_ARRAY(to, to_at), OF_ARRAY(from, from_at))))
SIM_EXPORT(cuMemcpyAtoD, (CUdeviceptr_v1 to, CUarray from, unsigned at, unsigned bytes),
           now(ROW(OF_DEVICE(to), OF_ARRAY(from, at))))
SIM_EXPORT(cuMemcpyDtoA, (CUarray to, unsigned at, CUdeviceptr_v1 from, unsigned bytes),
           now(ROW(OF_ARRAY(to, at), OF_DEVICE(from))))
SIM_EXPORT(cuMemcpyAtoH, (void *to, CUarray from, unsigned at, unsigned bytes),
           now(ROW(OF_HOST(to), OF_ARRAY(from, at))))
SIM_EXPORT(cuMemcpyHtoA, (CUarray to, unsigned at, const void *from, unsigned bytes),
           now(ROW(OF_ARRAY(to, at), OF_HOST(from))))
SIM_EXPORT(cuMemcpyAtoHAsync, (void *to, CUarray from, unsigned at, unsigned bytes, CUstream stream),
           enqueue(stream, ROW(OF_HOST(to), OF_ARRAY(from, at))))
SIM_EXPORT(cuMemcpyHtoAAsync, (CUarray to, unsigned at, const void *from, unsigned bytes, CUstream stream),
           enqueue(stream, ROW(OF_ARRAY(to, at), OF_HOST(from))))
