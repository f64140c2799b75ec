/* Sparse arrays of the simulated driver: what is mapped into them keeps physical memory, and is all they take. */
#include "sim_check.h"

static const CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                              .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

static CUmemGenericAllocationHandle memory(size_t bytes)
{
    CUmemGenericAllocationHandle handle;
    OK(cuMemCreate(&handle, bytes, &on_device, 0));
    return handle;
}

/* One operation on a box of a level. A handle of 0 unmaps. */
static CUarrayMapInfo level_of(CUmipmappedArray mipmap, unsigned level, unsigned x, unsigned y, unsigned width,
                               unsigned height, CUmemGenericAllocationHandle handle, size_t offset)
{
    CUarrayMapInfo info = {.resourceType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY,
                           .resource.mipmap = mipmap,
                           .subresource.sparseLevel = {level, 0, x, y, 0, width, height, 1},
                           .memOperationType = handle ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP,
                           .memHandle.memHandle = handle,
                           .offset = offset,
                           .deviceBitMask = 1};
    return info;
}

static CUarrayMapInfo box_of(CUarray array, unsigned layer, unsigned x, unsigned y, unsigned z, unsigned width,
                             unsigned height, unsigned depth, CUmemGenericAllocationHandle handle)
{
    CUarrayMapInfo info = {.resource.array = array,
                           .subresource.sparseLevel = {0, layer, x, y, z, width, height, depth},
                           .memOperationType = handle ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP,
                           .memHandle.memHandle = handle,
                           .deviceBitMask = 1};
    return info;
}

static CUarray sparse_array(size_t width, size_t height, size_t depth, unsigned flags)
{
    CUarray array;
    CUDA_ARRAY3D_DESCRIPTOR shape = {width, height, depth, CU_AD_FORMAT_FLOAT, 1, flags};
    OK(cuArray3DCreate_v2(&array, &shape));
    return array;
}

static void mipmaps(size_t base)
{
    CUmipmappedArray mipmap;
    CUarray first;
    CUDA_ARRAY_SPARSE_PROPERTIES tiles;
    CUDA_ARRAY3D_DESCRIPTOR shape = {1000, 700, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE};
    OK(cuMipmappedArrayCreate(&mipmap, &shape, 10));
    EXPECT(used(), base);
    OK(cuMipmappedArrayGetSparseProperties(&tiles, mipmap));
    EXPECT(tiles.tileExtent.width * tiles.tileExtent.height * tiles.tileExtent.depth * 4, 64 * KIB);
    EXPECT(tiles.tileExtent.width, 128);
    EXPECT(tiles.miptailFirstLevel, 3); /* 125 x 87 */
    EXPECT(tiles.miptailSize, 64 * KIB);

    CUmemGenericAllocationHandle one = memory(2 * MIB), two = memory(2 * MIB);
    CUarrayMapInfo list[] = {
        level_of(mipmap, 0, 0, 0, 128, 128, one, 0),
        level_of(mipmap, 0, 896, 640, 104, 60, one, 64 * KIB), /* the corner, cut off by the edges */
        level_of(mipmap, 2, 0, 0, 250, 175, two, 0),
        level_of(mipmap, 0, 0, 0, 0, 0, two, 512 * KIB),
    };
    list[3].subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
    list[3].subresource.miptail.layer = 0;
    list[3].subresource.miptail.offset = 0;
    list[3].subresource.miptail.size = 64 * KIB;
    OK(cuMemMapArrayAsync(list, 4, NULL));
    OK(cuMemRelease(one));
    OK(cuMemRelease(two));
    EXPECT(used() - base, 4 * MIB);
    EXPECT(cuMemMapArrayAsync(list, 1, NULL), CUDA_ERROR_INVALID_VALUE); /* the handle is gone */

    CUarrayMapInfo off = level_of(mipmap, 2, 0, 0, 250, 175, 0, 0);
    OK(cuMemMapArrayAsync(&off, 1, NULL));
    EXPECT(used() - base, 4 * MIB); /* the tail is still there */
    list[3].memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
    EXPECT(cuMemMapArrayAsync(&list[3], 1, NULL), CUDA_ERROR_INVALID_VALUE); /* with a handle */
    list[3].memHandle.memHandle = 0;
    OK(cuMemMapArrayAsync(&list[3], 1, NULL));
    EXPECT(used() - base, 2 * MIB);

    /* Mapping over what is mapped replaces it. */
    one = memory(2 * MIB);
    list[0] = level_of(mipmap, 0, 0, 0, 1000, 700, one, 0); /* 48 tiles are more than 2 MiB */
    EXPECT(cuMemMapArrayAsync(list, 1, NULL), CUDA_ERROR_INVALID_VALUE);
    list[0] = level_of(mipmap, 0, 0, 0, 128, 128, one, 0);
    list[1] = level_of(mipmap, 0, 896, 640, 104, 60, one, 64 * KIB);
    OK(cuMemMapArrayAsync(list, 2, NULL));
    EXPECT(used() - base, 2 * MIB);

    OK(cuMipmappedArrayGetLevel(&first, mipmap, 0));
    CUarrayMapInfo wrong = box_of(first, 0, 0, 0, 0, 128, 128, 1, one);
    EXPECT(cuMemMapArrayAsync(&wrong, 1, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemRelease(one));
    EXPECT(used() - base, 2 * MIB);
    OK(cuMipmappedArrayDestroy(mipmap)); /* unmaps */
    EXPECT(used(), base);
}

static void arrays(size_t base)
{
    CUmemGenericAllocationHandle one = memory(2 * MIB);
    CUDA_ARRAY_SPARSE_PROPERTIES tiles;
    CUarray deep = sparse_array(128, 128, 64, CUDA_ARRAY3D_SPARSE);
    OK(cuArrayGetSparseProperties(&tiles, deep));
    EXPECT(tiles.tileExtent.width * tiles.tileExtent.height * tiles.tileExtent.depth * 4, 64 * KIB);
    CUarrayMapInfo info = box_of(deep, 0, 32, 32, 16, 64, 32, 32, one);
    OK(cuMemMapArrayAsync(&info, 1, NULL));
    info = box_of(deep, 0, 33, 32, 16, 64, 32, 32, one);
    EXPECT(cuMemMapArrayAsync(&info, 1, NULL), CUDA_ERROR_INVALID_VALUE); /* not at a tile */

    CUarray layered = sparse_array(256, 256, 3, CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_LAYERED);
    CUarrayMapInfo layer[] = {box_of(layered, 2, 0, 0, 0, 256, 256, 1, one),
                              box_of(layered, 3, 0, 0, 0, 256, 256, 1, one)};
    EXPECT(cuMemMapArrayAsync(layer, 2, NULL), CUDA_ERROR_INVALID_VALUE); /* the first is done, the second is not there */
    OK(cuMemRelease(one));
    OK(cuArrayDestroy(deep));
    EXPECT(used() - base, 2 * MIB);
    CUarrayMapInfo off = box_of(layered, 2, 0, 0, 0, 256, 256, 1, 0);
    OK(cuMemMapArrayAsync(&off, 1, CU_STREAM_PER_THREAD));
    EXPECT(used(), base);
    OK(cuArrayDestroy(layered));
}

static void deferred(size_t base)
{
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
    CUDA_ARRAY_SPARSE_PROPERTIES tiles;
    CUarray array = sparse_array(1000, 1000, 0, CUDA_ARRAY3D_DEFERRED_MAPPING);
    EXPECT(cuArrayGetSparseProperties(&tiles, array), CUDA_ERROR_INVALID_VALUE);
    OK(cuArrayGetMemoryRequirements(&needs, array, 0));
    EXPECT(needs.size, 4 * MIB);
    CUmemGenericAllocationHandle small = memory(2 * MIB), all = memory(4 * MIB);
    CUarrayMapInfo info = box_of(array, 0, 0, 0, 0, 1000, 1000, 1, small);
    EXPECT(cuMemMapArrayAsync(&info, 1, NULL), CUDA_ERROR_INVALID_VALUE);
    info.memHandle.memHandle = all;
    OK(cuMemMapArrayAsync(&info, 1, NULL));
    OK(cuMemRelease(small));
    OK(cuMemRelease(all));
    EXPECT(used() - base, 4 * MIB);
    OK(cuArrayDestroy(array));
    EXPECT(used(), base);
}

static void in_stream_order(size_t base)
{
    CUevent event;
    CUmemGenericAllocationHandle one = memory(2 * MIB);
    CUarray array = sparse_array(128, 128, 0, CUDA_ARRAY3D_SPARSE);
    CUarrayMapInfo on = box_of(array, 0, 0, 0, 0, 128, 128, 1, one), off = box_of(array, 0, 0, 0, 0, 128, 128, 1, 0);
    OK(cuEventCreate(&event, 0));
    simgpu_hold_arrays(1);
    OK(cuMemMapArrayAsync(&on, 1, NULL));
    OK(cuMemRelease(one));
    OK(cuEventRecord(event, NULL));
    EXPECT(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    EXPECT(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    OK(cuEventSynchronize(event));
    OK(cuEventQuery(event));
    EXPECT(used() - base, 2 * MIB);
    OK(cuMemMapArrayAsync(&off, 1, NULL));
    OK(cuEventQuery(event)); /* of what was before it */
    EXPECT(used() - base, 2 * MIB);
    OK(cuStreamSynchronize(NULL));
    EXPECT(used(), base);
    simgpu_hold_arrays(0);
    OK(cuArrayDestroy(array));
    OK(cuEventDestroy_v2(event));
}

static void context_goes(CUcontext primary)
{
    CUcontext context;
    CUmemGenericAllocationHandle one = memory(2 * MIB);
    size_t base = used();
    OK(cuCtxCreate_v2(&context, 0, 0));
    CUarray array = sparse_array(128, 128, 0, CUDA_ARRAY3D_SPARSE);
    CUarrayMapInfo info = box_of(array, 0, 0, 0, 0, 128, 128, 1, one);
    OK(cuMemMapArrayAsync(&info, 1, NULL));
    OK(cuMemRelease(one));
    OK(cuCtxDestroy_v2(context));
    OK(cuCtxSetCurrent(primary));
    EXPECT(used(), base - 2 * MIB);
}

int main(void)
{
    CUcontext primary = start();
    size_t base = used();
    mipmaps(base);
    arrays(base);
    deferred(base);
    in_stream_order(base);
    context_goes(primary);
    EXPECT(used(), base);
    EXPECT(simgpu_live_allocations(), 0);
    puts("tiles keep what is mapped into them");
    return 0;
}
