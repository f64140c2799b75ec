/*
 * Pools between processes. What goes to the other process says only on which card the pool is: memory of it is then
 * handed over pointer by pointer (ipc.c), and stays until its last holder is gone.
 */
#define _GNU_SOURCE
#include "pool.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define POOL_MAGIC 0x6c6f6f705369676dull

struct pool_head {
    uint64_t magic;
    uint32_t card, padding;
};

bool sim_pool_is_exportable(const struct sim_pool *pool)
{
    return pool->props.handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && !pool->imported;
}

bool sim_pool_is_imported(CUmemoryPool handle)
{
    return sim_handle_is(handle, SIM_POOL) && ((struct sim_pool *)handle)->imported;
}

static CUresult export_pool(int *out, CUmemoryPool handle, CUmemAllocationHandleType type, unsigned long long flags)
{
    struct sim_pool *pool = (struct sim_pool *)handle;
    if (!out || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !sim_handle_is(handle, SIM_POOL) ||
        !sim_pool_is_exportable(pool))
        return CUDA_ERROR_INVALID_VALUE;
    struct pool_head head = {POOL_MAGIC, pool->heap.card_index, 0};
    /* Not by its function: that is not in the C library of old machines. */
    int fd = (int)syscall(SYS_memfd_create, "pool", 1u /* MFD_CLOEXEC */);
    if (fd < 0 || pwrite(fd, &head, sizeof head, 0) != (ssize_t)sizeof head) {
        if (fd >= 0)
            close(fd);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *out = fd;
    return CUDA_SUCCESS;
}

static CUresult import_pool(CUmemoryPool *out, int fd, CUmemAllocationHandleType type, unsigned long long flags)
{
    struct pool_head head;
    if (!out || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head || head.magic != POOL_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    CUdevice device = 0;
    while (device < sim_device_count() && sim_device_card(device) != (int)head.card)
        device++;
    if (device == sim_device_count())
        return CUDA_ERROR_INVALID_DEVICE;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    struct sim_pool *pool = sim_pool_new(device, &props);
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pool->imported = true;
    *out = (CUmemoryPool)pool;
    return CUDA_SUCCESS;
}

SIM_EXPORT(cuMemPoolExportToShareableHandle,
           (void *out, CUmemoryPool pool, CUmemAllocationHandleType type, unsigned long long flags),
           export_pool(out, pool, type, flags))
SIM_EXPORT(cuMemPoolImportFromShareableHandle,
           (CUmemoryPool * out, void *os_handle, CUmemAllocationHandleType type, unsigned long long flags),
           import_pool(out, (int)(intptr_t)os_handle, type, flags))
