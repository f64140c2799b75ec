/* Memsets: linear and pitched, of 8, 16 and 32 bits. */
#include "mem.h"
#include "stream.h"

struct fill {
    CUdeviceptr to;
    size_t pitch; /* 0: linear */
    uint32_t value;
    unsigned width;
    size_t columns, rows;
};

static CUresult run_fill(const void *args)
{
    const struct fill *fill = args;
    CUresult result = CUDA_SUCCESS;
    for (size_t row = 0; row < fill->rows && result == CUDA_SUCCESS; row++)
        result = sim_fill(fill->to + row * fill->pitch, fill->value, fill->width, fill->columns);
    return result;
}

static CUresult enqueue(CUstream stream, const struct fill *fill)
{
    uint64_t row, before_last = 0, bytes;
    CUresult result = sim_stream_check(stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!fill->columns || !fill->rows)
        return CUDA_SUCCESS;
    if (fill->to % fill->width || fill->pitch % fill->width ||
        __builtin_mul_overflow(fill->columns, (size_t)fill->width, &row) || (fill->rows > 1 && fill->pitch < row) ||
        __builtin_mul_overflow(fill->pitch, fill->rows - 1, &before_last) ||
        __builtin_add_overflow(before_last, row, &bytes))
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_range_check(fill->to, bytes, SIM_SIDE_DEVICE, true);
    return result == CUDA_SUCCESS ? sim_work(stream, run_fill, fill, sizeof *fill) : result;
}

static CUresult now(const struct fill *fill)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result == CUDA_SUCCESS)
        result = sim_capture_unsafe();
    return result == CUDA_SUCCESS ? enqueue(CU_STREAM_LEGACY, fill) : result;
}

#define LINEAR(width) (&(struct fill){to, 0, value, width, count, 1})
#define PITCHED(width) (&(struct fill){to, pitch, value, width, columns, rows})

/* The ten names of a memset: each in the old and the new interface, at once and in a stream. */
#define MEMSETS(bits, type)                                                                                           \
    SIM_EXPORT(cuMemsetD##bits, (CUdeviceptr_v1 to, type value, unsigned count), now(LINEAR(bits / 8)))               \
    SIM_EXPORT(cuMemsetD##bits##_v2, (CUdeviceptr to, type value, size_t count), now(LINEAR(bits / 8)))               \
    SIM_EXPORT(cuMemsetD##bits##_v2_ptds, (CUdeviceptr to, type value, size_t count), now(LINEAR(bits / 8)))          \
    SIM_EXPORT(cuMemsetD##bits##Async, (CUdeviceptr to, type value, size_t count, CUstream stream),                   \
               enqueue(stream, LINEAR(bits / 8)))                                                                     \
    SIM_EXPORT(cuMemsetD##bits##Async_ptsz, (CUdeviceptr to, type value, size_t count, CUstream stream),              \
               enqueue(sim_ptsz(stream), LINEAR(bits / 8)))                                                           \
    SIM_EXPORT(cuMemsetD2D##bits,                                                                                     \
               (CUdeviceptr_v1 to, unsigned pitch, type value, unsigned columns, unsigned rows),                      \
               now(PITCHED(bits / 8)))                                                                                \
    SIM_EXPORT(cuMemsetD2D##bits##_v2, (CUdeviceptr to, size_t pitch, type value, size_t columns, size_t rows),       \
               now(PITCHED(bits / 8)))                                                                                \
    SIM_EXPORT(cuMemsetD2D##bits##_v2_ptds, (CUdeviceptr to, size_t pitch, type value, size_t columns, size_t rows),  \
               now(PITCHED(bits / 8)))                                                                                \
    SIM_EXPORT(cuMemsetD2D##bits##Async,                                                                              \
               (CUdeviceptr to, size_t pitch, type value, size_t columns, size_t rows, CUstream stream),              \
               enqueue(stream, PITCHED(bits / 8)))                                                                    \
    SIM_EXPORT(cuMemsetD2D##bits##Async_ptsz,                                                                         \
               (CUdeviceptr to, size_t pitch, type value, size_t columns, size_t rows, CUstream stream),              \
               enqueue(sim_ptsz(stream), PITCHED(bits / 8)))

MEMSETS(8, unsigned char)
MEMSETS(16, unsigned short)
MEMSETS(32, unsigned int)
