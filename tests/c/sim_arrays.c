/* Arrays and mipmaps of the simulated driver. */
#include "sim_check.h"

static void sizes(size_t base)
{
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR flat = {1000, 1001, CU_AD_FORMAT_FLOAT, 1};
    OK(cuArrayCreate_v2(&array, &flat));
    EXPECT(used() - base, 4 * MIB); /* 4032 x 1008 */
    CUDA_ARRAY_DESCRIPTOR seen;
    OK(cuArrayGetDescriptor_v2(&seen, array));
    EXPECT(seen.Height, 1001);
    OK(cuArrayDestroy(array));
    EXPECT(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
    CUDA_ARRAY3D_DESCRIPTOR box = {64, 64, 64, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0};
    OK(cuArray3DCreate_v2(&array, &box));
    EXPECT(used() - base, 2 * MIB);
    OK(cuArrayDestroy(array));
    flat.NumChannels = 3;
    EXPECT(cuArrayCreate_v2(&array, &flat), CUDA_ERROR_INVALID_VALUE);
    CUDA_ARRAY_DESCRIPTOR huge = {131072, 131072, CU_AD_FORMAT_FLOAT, 4};
    EXPECT(cuArrayCreate_v2(&array, &huge), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuArrayCreate_v2(&array, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT(used(), base);
}

static void mipmaps(size_t base)
{
    CUmipmappedArray mipmap;
    CUarray level;
    CUDA_ARRAY3D_DESCRIPTOR shape = {1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, 0}, seen;
    OK(cuMipmappedArrayCreate(&mipmap, &shape, 3));
    EXPECT(used() - base, 6 * MIB); /* 4 + 1 + 1/4 MiB */
    OK(cuMipmappedArrayGetLevel(&level, mipmap, 2));
    OK(cuArray3DGetDescriptor_v2(&seen, level));
    EXPECT(seen.Width, 256);
    EXPECT(cuArrayDestroy(level), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(cuMipmappedArrayGetLevel(&level, mipmap, 3), CUDA_ERROR_INVALID_VALUE);
    OK(cuMipmappedArrayDestroy(mipmap));
    EXPECT(used(), base);
    EXPECT(cuArray3DGetDescriptor_v2(&seen, level), CUDA_ERROR_INVALID_HANDLE);
}

static void bytes_move(void)
{
    enum { WIDTH = 1000, HEIGHT = 600 };
    static unsigned in[HEIGHT][WIDTH], out[HEIGHT][WIDTH];
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR flat = {WIDTH, HEIGHT, CU_AD_FORMAT_UNSIGNED_INT32, 1};
    for (unsigned i = 0; i < WIDTH * HEIGHT; i++)
        in[i / WIDTH][i % WIDTH] = i * 2654435761u;
    OK(cuArrayCreate_v2(&array, &flat));
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = in,
                          .srcPitch = WIDTH * 4,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = array,
                          .WidthInBytes = WIDTH * 4,
                          .Height = HEIGHT};
    OK(cuMemcpy2D_v2(&copy));
    CUDA_MEMCPY3D back = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                          .srcArray = array,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = out,
                          .dstPitch = WIDTH * 4,
                          .dstHeight = HEIGHT,
                          .WidthInBytes = WIDTH * 4,
                          .Height = HEIGHT,
                          .Depth = 1};
    OK(cuMemcpy3D_v2(&back));
    EXPECT(memcmp(in, out, sizeof in), 0);
    OK(cuMemcpyAtoH_v2(out, array, 8, 12));
    EXPECT(out[0][0], in[0][2]);
    back.srcXInBytes = 4;
    EXPECT(cuMemcpy3D_v2(&back), CUDA_ERROR_INVALID_VALUE);
    OK(cuArrayDestroy(array));
    copy.dstArray = array;
    EXPECT(cuMemcpy2D_v2(&copy), CUDA_ERROR_INVALID_HANDLE);
}

int main(void)
{
    start();
    size_t base = used();
    sizes(base);
    mipmaps(base);
    bytes_move();
    EXPECT(used(), base);
    EXPECT(simgpu_live_allocations(), 0);
    puts("arrays are padded and filled");
    return 0;
}
