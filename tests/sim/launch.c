/* Launches are accepted and not run: there is no processor behind the card. Occupancy is what one would compute. */
#include "module.h"

#define UNUSED __attribute__((unused))

enum { THREADS_PER_BLOCK = 1024, THREADS_PER_PROCESSOR = 2048, BLOCKS_PER_PROCESSOR = 32, PROCESSORS = 108 };

struct dimensions {
    unsigned x, y, z;
};

static CUresult launch(const void *handle, struct dimensions grid, struct dimensions block, CUstream stream)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result)
        return result;
    if (!sim_function_of(handle))
        return CUDA_ERROR_INVALID_HANDLE;
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    if (!grid.x || !grid.y || !grid.z || !threads || block.x > 1024 || block.y > 1024 || block.z > 64 ||
        threads > THREADS_PER_BLOCK)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_stream_check(stream);
    return result ? result : sim_function_load(sim_function_of(handle));
}

#define LAUNCH_PARAMETERS                                                                                             \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,      \
     unsigned block_z, unsigned shared UNUSED, CUstream stream, void **parameters UNUSED, void **extra UNUSED)
#define COOPERATIVE_PARAMETERS                                                                                        \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,      \
     unsigned block_z, unsigned shared UNUSED, CUstream stream, void **parameters UNUSED)
#define LAUNCH(stream)                                                                                                \
    launch(function, (struct dimensions){grid_x, grid_y, grid_z}, (struct dimensions){block_x, block_y, block_z},     \
           stream)

/* The per-thread variants take 0 for the calling thread's own stream. */
static CUstream per_thread(CUstream stream)
{
    return stream ? stream : CU_STREAM_PER_THREAD;
}

SIM_EXPORT(cuLaunchKernel, LAUNCH_PARAMETERS, LAUNCH(stream))
SIM_EXPORT(cuLaunchKernel_ptsz, LAUNCH_PARAMETERS, LAUNCH(per_thread(stream)))
SIM_EXPORT(cuLaunchCooperativeKernel, COOPERATIVE_PARAMETERS, LAUNCH(stream))
SIM_EXPORT(cuLaunchCooperativeKernel_ptsz, COOPERATIVE_PARAMETERS, LAUNCH(per_thread(stream)))

struct launch_config {
    struct dimensions grid, block;
    unsigned shared;
    CUstream stream;
    void *attributes;
    unsigned attribute_count;
};
_Static_assert(sizeof(struct launch_config) == 56, "layout of a launch configuration");

static CUresult launch_ex(const struct launch_config *config, const void *function, bool own_stream)
{
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    CUstream stream = own_stream ? per_thread(config->stream) : config->stream;
    return launch(function, config->grid, config->block, stream);
}

SIM_EXPORT(cuLaunchKernelEx,
           (const struct launch_config *config, CUfunction function, void **parameters UNUSED, void **extra UNUSED),
           launch_ex(config, function, false))
SIM_EXPORT(cuLaunchKernelEx_ptsz,
           (const struct launch_config *config, CUfunction function, void **parameters UNUSED, void **extra UNUSED),
           launch_ex(config, function, true))

static CUresult launch_grid(CUfunction function, int width, int height, CUstream stream)
{
    struct dimensions grid = {width > 0 ? (unsigned)width : 0, height > 0 ? (unsigned)height : 0, 1};
    return launch(function, grid, (struct dimensions){1, 1, 1}, stream);
}

SIM_EXPORT(cuLaunch, (CUfunction function), launch_grid(function, 1, 1, NULL))
SIM_EXPORT(cuLaunchGrid, (CUfunction function, int width, int height), launch_grid(function, width, height, NULL))
SIM_EXPORT(cuLaunchGridAsync, (CUfunction function, int width, int height, CUstream stream),
           launch_grid(function, width, height, stream))

static CUresult active_blocks(int *blocks, const void *function, int block_size)
{
    if (!blocks || block_size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_function_of(function))
        return CUDA_ERROR_INVALID_HANDLE;
    int fit = block_size > THREADS_PER_BLOCK ? 0 : THREADS_PER_PROCESSOR / block_size;
    *blocks = fit < BLOCKS_PER_PROCESSOR ? fit : BLOCKS_PER_PROCESSOR;
    return CUDA_SUCCESS;
}

SIM_EXPORT(cuOccupancyMaxActiveBlocksPerMultiprocessor,
           (int *blocks, CUfunction function, int block_size, size_t shared UNUSED),
           active_blocks(blocks, function, block_size))
SIM_EXPORT(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
           (int *blocks, CUfunction function, int block_size, size_t shared UNUSED, unsigned flags UNUSED),
           active_blocks(blocks, function, block_size))

static CUresult potential_block(int *min_grid, int *block, const void *function, int limit)
{
    if (!min_grid || !block)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_function_of(function))
        return CUDA_ERROR_INVALID_HANDLE;
    *block = limit > 0 && limit < THREADS_PER_BLOCK ? limit : THREADS_PER_BLOCK;
    int fit = 0;
    CUresult result = active_blocks(&fit, function, *block);
    *min_grid = fit * PROCESSORS;
    return result;
}

SIM_EXPORT(cuOccupancyMaxPotentialBlockSize,
           (int *min_grid, int *block, CUfunction function, void *shared_of UNUSED, size_t shared UNUSED, int limit),
           potential_block(min_grid, block, function, limit))
SIM_EXPORT(cuOccupancyMaxPotentialBlockSizeWithFlags,
           (int *min_grid, int *block, CUfunction function, void *shared_of UNUSED, size_t shared UNUSED, int limit,
            unsigned flags UNUSED),
           potential_block(min_grid, block, function, limit))

static CUresult available_shared(size_t *bytes, const void *function, int blocks, int block_size)
{
    if (!bytes || blocks <= 0 || block_size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_function_of(function))
        return CUDA_ERROR_INVALID_HANDLE;
    size_t share = 167936 / (size_t)blocks, reserved = 1024;
    *bytes = share > reserved ? share - reserved : 0;
    if (*bytes > 49152)
        *bytes = 49152;
    return CUDA_SUCCESS;
}

SIM_EXPORT(cuOccupancyAvailableDynamicSMemPerBlock, (size_t * bytes, CUfunction function, int blocks, int block_size),
           available_shared(bytes, function, blocks, block_size))

/* Profilers may be told to start and stop; there is nothing to profile. */
SIM_EXPORT(cuProfilerStart, (void), CUDA_SUCCESS)
SIM_EXPORT(cuProfilerStop, (void), CUDA_SUCCESS)
