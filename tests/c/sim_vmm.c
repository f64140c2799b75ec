/* Virtual memory management of the simulated driver: handles, mappings, access. */
#include "sim_check.h"

#include <unistd.h>

static const CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                              .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                              .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static const CUmemAccessDesc read_write = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static void lifetimes(size_t base)
{
    CUdeviceptr at, other;
    CUmemGenericAllocationHandle handle, again;
    OK(cuMemAddressReserve(&at, 64 * GIB, 0, 0, 0)); /* addresses cost nothing */
    OK(cuMemAddressReserve(&other, GIB, 1 * GIB, 0, 0));
    EXPECT(other % GIB, 0);
    EXPECT(used(), base);

    OK(cuMemCreate(&handle, GIB, &on_device, 0));
    EXPECT(used() - base, GIB);
    OK(cuMemMap(at, GIB, 0, handle, 0));
    OK(cuMemRelease(handle)); /* the mapping keeps it */
    EXPECT(used() - base, GIB);
    EXPECT(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemAddressFree(at, 64 * GIB), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(at, GIB));
    EXPECT(used(), base);

    OK(cuMemCreate(&handle, GIB, &on_device, 0));
    OK(cuMemMap(at, GIB, 0, handle, 0));
    OK(cuMemMap(other, GIB, 0, handle, 0));
    EXPECT(used() - base, GIB); /* twice mapped, once there */
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(other + 4096)));
    EXPECT(again, handle);
    OK(cuMemUnmap(at, GIB));
    OK(cuMemUnmap(other, GIB));
    OK(cuMemRelease(handle));
    EXPECT(used() - base, GIB); /* the retained reference */
    OK(cuMemRelease(again));
    EXPECT(used(), base);
    OK(cuMemAddressFree(at, 64 * GIB));
    OK(cuMemAddressFree(other, GIB));
    EXPECT(cuMemAddressFree(other, GIB), CUDA_ERROR_INVALID_VALUE);
}

static void access_is_checked(void)
{
    CUdeviceptr at;
    CUmemGenericAllocationHandle first, second;
    char out[8] = {0};
    unsigned long long flags = 9;
    OK(cuMemAddressReserve(&at, 8 * MIB, 0, 0, 0));
    OK(cuMemCreate(&first, 4 * MIB, &on_device, 0));
    OK(cuMemCreate(&second, 4 * MIB, &on_device, 0));
    OK(cuMemMap(at, 4 * MIB, 0, first, 0));
    EXPECT(cuMemMap(at + 2 * MIB, 4 * MIB, 0, second, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemMap(at + 8 * MIB, 4 * MIB, 0, second, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemMap(at + 4 * MIB, 8 * MIB, 0, second, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(at + 4 * MIB, 4 * MIB, 0, second, 0));
    EXPECT(cuMemcpyHtoD_v2(at, "x", 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemGetAccess(&flags, &read_write.location, at));
    EXPECT(flags, 0);
    OK(cuMemSetAccess(at, 8 * MIB, &read_write, 1));
    OK(cuMemGetAccess(&flags, &read_write.location, at + 6 * MIB));
    EXPECT(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    /* One copy may reach from a mapping into the next. */
    OK(cuMemcpyHtoD_v2(at + 4 * MIB - 4, "12345678", 8));
    OK(cuMemcpyDtoH_v2(out, at + 4 * MIB - 4, 8));
    EXPECT(memcmp(out, "12345678", 8), 0);
    EXPECT(cuMemcpyHtoD_v2(at + 8 * MIB - 4, "12345678", 8), CUDA_ERROR_INVALID_VALUE);
    CUmemAccessDesc read_only = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READ};
    OK(cuMemSetAccess(at + 4 * MIB, 2 * MIB, &read_only, 1));
    EXPECT(cuMemsetD8_v2(at, 1, 8 * MIB), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemcpyDtoH_v2(out, at + 4 * MIB, 4));
    EXPECT(memcmp(out, "5678", 4), 0);
    EXPECT(cuMemUnmap(at, 2 * MIB), CUDA_ERROR_INVALID_VALUE); /* half a mapping */
    OK(cuMemUnmap(at, 8 * MIB));
    OK(cuMemRelease(first));
    OK(cuMemRelease(second));
    OK(cuMemAddressFree(at, 8 * MIB));
}

static void what_is_refused(size_t base)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = on_device;
    size_t granularity = 0;
    CUdeviceptr at;
    OK(cuMemGetAllocationGranularity(&granularity, &on_device, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    EXPECT(granularity, 2 * MIB);
    EXPECT(cuMemCreate(&handle, MIB, &on_device, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemCreate(&handle, 0, &on_device, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemCreate(&handle, 64 * GIB, &on_device, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuMemCreate(&handle, GIB, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemRelease(0xdead), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemAddressReserve(&at, MIB, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemAddressReserve(&at, (size_t)1 << 62, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
    prop.location.id = 5;
    EXPECT(cuMemCreate(&handle, GIB, &prop, 0), CUDA_ERROR_INVALID_DEVICE);
    /* Host memory takes nothing from a card. */
    prop.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
    OK(cuMemCreate(&handle, GIB, &prop, 0));
    EXPECT(used(), base);
    OK(cuMemRelease(handle));
}

static void export_and_import(size_t base)
{
    CUmemGenericAllocationHandle handle, imported;
    CUmemAllocationProp prop = on_device, seen;
    int fd = -1;
    OK(cuMemCreate(&handle, 6 * MIB, &on_device, 0));
    OK(cuMemGetAllocationPropertiesFromHandle(&seen, handle));
    EXPECT(seen.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    EXPECT(used() - base, 6 * MIB);
    OK(cuMemRelease(handle));
    OK(cuMemRelease(imported));
    EXPECT(used() - base, 6 * MIB); /* the descriptor holds it */
    OK(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    EXPECT(used() - base, 6 * MIB);
    OK(cuMemRelease(imported));
    EXPECT(used(), base);
    EXPECT(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
           CUDA_ERROR_INVALID_VALUE);
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    OK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
    EXPECT(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
           CUDA_ERROR_INVALID_VALUE);
    OK(cuMemRelease(handle));
}

int main(void)
{
    start();
    size_t base = used();
    lifetimes(base);
    access_is_checked();
    what_is_refused(base);
    export_and_import(base);
    EXPECT(used(), base);
    EXPECT(simgpu_live_allocations(), 0);
    puts("physical memory outlives neither its handles nor its mappings");
    return 0;
}
