/*
 * The driver's functions as the harness calls them, reached by the route that HARNESS_ROUTE names. One list of
 * functions; every route fills the same table from it.
 */
#ifndef HARNESS_DRIVER_H
#define HARNESS_DRIVER_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_abi.h"

/* field, exported symbol, base name and version for cuGetProcAddress, parameters */
#define DRIVER_FUNCTIONS(X)                                                                                      \
    X(init, cuInit, "cuInit", 2000, (unsigned))                                                                  \
    X(device_get, cuDeviceGet, "cuDeviceGet", 2000, (CUdevice *, int))                                           \
    X(total_mem, cuDeviceTotalMem_v2, "cuDeviceTotalMem", 3020, (size_t *, CUdevice))                            \
    X(mem_info, cuMemGetInfo_v2, "cuMemGetInfo", 3020, (size_t *, size_t *))                                     \
    X(ctx_create, cuCtxCreate_v2, "cuCtxCreate", 3020, (CUcontext *, unsigned, CUdevice))                        \
    X(ctx_destroy, cuCtxDestroy_v2, "cuCtxDestroy", 4000, (CUcontext))                                           \
    X(ctx_attach, cuCtxAttach, "cuCtxAttach", 2000, (CUcontext *, unsigned))                                     \
    X(ctx_detach, cuCtxDetach, "cuCtxDetach", 2000, (CUcontext))                                                 \
    X(ctx_set, cuCtxSetCurrent, "cuCtxSetCurrent", 4000, (CUcontext))                                            \
    X(ctx_sync, cuCtxSynchronize, "cuCtxSynchronize", 2000, (void))                                              \
    X(primary_retain, cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, (CUcontext *, CUdevice))       \
    X(primary_release, cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, (CUdevice))             \
    X(primary_reset, cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, (CUdevice))                   \
    X(ctx_set_limit, cuCtxSetLimit, "cuCtxSetLimit", 3010, (CUlimit, size_t))                                    \
    X(alloc, cuMemAlloc_v2, "cuMemAlloc", 3020, (CUdeviceptr *, size_t))                                         \
    X(alloc_pitch, cuMemAllocPitch_v2, "cuMemAllocPitch", 3020,                                                  \
      (CUdeviceptr *, size_t *, size_t, size_t, unsigned))                                                       \
    X(alloc_managed, cuMemAllocManaged, "cuMemAllocManaged", 6000, (CUdeviceptr *, size_t, unsigned))            \
    X(free, cuMemFree_v2, "cuMemFree", 3020, (CUdeviceptr))                                                      \
    X(alloc_async, cuMemAllocAsync, "cuMemAllocAsync", 11020, (CUdeviceptr *, size_t, CUstream))                 \
    X(alloc_from_pool, cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020,                                \
      (CUdeviceptr *, size_t, CUmemoryPool, CUstream))                                                           \
    X(free_async, cuMemFreeAsync, "cuMemFreeAsync", 11020, (CUdeviceptr, CUstream))                              \
    X(pool_create, cuMemPoolCreate, "cuMemPoolCreate", 11020, (CUmemoryPool *, const CUmemPoolProps *))          \
    X(pool_destroy, cuMemPoolDestroy, "cuMemPoolDestroy", 11020, (CUmemoryPool))                                 \
    X(pool_default, cuDeviceGetDefaultMemPool, "cuDeviceGetDefaultMemPool", 11020, (CUmemoryPool *, CUdevice))   \
    X(pool_set, cuMemPoolSetAttribute, "cuMemPoolSetAttribute", 11020,                                           \
      (CUmemoryPool, CUmemPool_attribute, void *))                                                               \
    X(pool_get, cuMemPoolGetAttribute, "cuMemPoolGetAttribute", 11020,                                           \
      (CUmemoryPool, CUmemPool_attribute, void *))                                                               \
    X(pool_trim, cuMemPoolTrimTo, "cuMemPoolTrimTo", 11020, (CUmemoryPool, size_t))                              \
    X(stream_sync, cuStreamSynchronize, "cuStreamSynchronize", 2000, (CUstream))                                 \
    X(stream_create, cuStreamCreate, "cuStreamCreate", 2000, (CUstream *, unsigned))                             \
    X(stream_destroy, cuStreamDestroy_v2, "cuStreamDestroy", 4000, (CUstream))                                   \
    X(capture_begin, cuStreamBeginCapture_v2, "cuStreamBeginCapture", 10010, (CUstream, CUstreamCaptureMode))    \
    X(capture_end, cuStreamEndCapture, "cuStreamEndCapture", 10000, (CUstream, CUgraph *))                       \
    X(graph_create, cuGraphCreate, "cuGraphCreate", 10000, (CUgraph *, unsigned))                                \
    X(graph_destroy, cuGraphDestroy, "cuGraphDestroy", 10000, (CUgraph))                                         \
    X(graph_add_alloc, cuGraphAddMemAllocNode, "cuGraphAddMemAllocNode", 11040,                                  \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUDA_MEM_ALLOC_NODE_PARAMS *))                       \
    X(graph_add_free, cuGraphAddMemFreeNode, "cuGraphAddMemFreeNode", 11040,                                     \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUdeviceptr))                                        \
    X(graph_add_child, cuGraphAddChildGraphNode, "cuGraphAddChildGraphNode", 10000,                              \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraph))                                            \
    X(graph_add, cuGraphAddNode, "cuGraphAddNode", 12020,                                                        \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraphNodeParams *))                                \
    X(graph_instantiate, cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", 11040,                      \
      (CUgraphExec *, CUgraph, unsigned long long))                                                              \
    X(graph_launch, cuGraphLaunch, "cuGraphLaunch", 10000, (CUgraphExec, CUstream))                              \
    X(graph_exec_destroy, cuGraphExecDestroy, "cuGraphExecDestroy", 10000, (CUgraphExec))                        \
    X(graph_mem_trim, cuDeviceGraphMemTrim, "cuDeviceGraphMemTrim", 11040, (CUdevice))                           \
    X(create, cuMemCreate, "cuMemCreate", 10020,                                                                 \
      (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long))                 \
    X(release, cuMemRelease, "cuMemRelease", 10020, (CUmemGenericAllocationHandle))                              \
    X(retain, cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", 11000,                                 \
      (CUmemGenericAllocationHandle *, void *))                                                                  \
    X(map, cuMemMap, "cuMemMap", 10020,                                                                          \
      (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long))                           \
    X(unmap, cuMemUnmap, "cuMemUnmap", 10020, (CUdeviceptr, size_t))                                             \
    X(address_reserve, cuMemAddressReserve, "cuMemAddressReserve", 10020,                                        \
      (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))                                          \
    X(address_free, cuMemAddressFree, "cuMemAddressFree", 10020, (CUdeviceptr, size_t))                          \
    X(export_handle, cuMemExportToShareableHandle, "cuMemExportToShareableHandle", 10020,                        \
      (void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long))                     \
    X(import_handle, cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle", 10020,                    \
      (CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType))                                       \
    X(ipc_get, cuIpcGetMemHandle, "cuIpcGetMemHandle", 4010, (CUipcMemHandle *, CUdeviceptr))                    \
    X(ipc_open, cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle", 11000, (CUdeviceptr *, CUipcMemHandle, unsigned))   \
    X(ipc_close, cuIpcCloseMemHandle, "cuIpcCloseMemHandle", 4010, (CUdeviceptr))                                \
    X(pool_export, cuMemPoolExportToShareableHandle, "cuMemPoolExportToShareableHandle", 11020,                  \
      (void *, CUmemoryPool, CUmemAllocationHandleType, unsigned long long))                                     \
    X(pool_import, cuMemPoolImportFromShareableHandle, "cuMemPoolImportFromShareableHandle", 11020,              \
      (CUmemoryPool *, void *, CUmemAllocationHandleType, unsigned long long))                                   \
    X(pool_export_pointer, cuMemPoolExportPointer, "cuMemPoolExportPointer", 11020,                              \
      (CUmemPoolPtrExportData *, CUdeviceptr))                                                                   \
    X(pool_import_pointer, cuMemPoolImportPointer, "cuMemPoolImportPointer", 11020,                              \
      (CUdeviceptr *, CUmemoryPool, CUmemPoolPtrExportData *))                                                   \
    X(external_import, cuImportExternalMemory, "cuImportExternalMemory", 10000,                                  \
      (CUexternalMemory *, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *))                                            \
    X(external_destroy, cuDestroyExternalMemory, "cuDestroyExternalMemory", 10000, (CUexternalMemory))           \
    X(array_create, cuArrayCreate_v2, "cuArrayCreate", 3020, (CUarray *, const CUDA_ARRAY_DESCRIPTOR *))         \
    X(array_create_3d, cuArray3DCreate_v2, "cuArray3DCreate", 3020,                                              \
      (CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *))                                                              \
    X(array_destroy, cuArrayDestroy, "cuArrayDestroy", 2000, (CUarray))                                          \
    X(mipmap_create, cuMipmappedArrayCreate, "cuMipmappedArrayCreate", 5000,                                     \
      (CUmipmappedArray *, const CUDA_ARRAY3D_DESCRIPTOR *, unsigned))                                           \
    X(mipmap_destroy, cuMipmappedArrayDestroy, "cuMipmappedArrayDestroy", 5000, (CUmipmappedArray))              \
    X(map_array, cuMemMapArrayAsync, "cuMemMapArrayAsync", 11010, (CUarrayMapInfo *, unsigned, CUstream))        \
    X(multicast_create, cuMulticastCreate, "cuMulticastCreate", 12010,                                           \
      (CUmemGenericAllocationHandle *, const CUmulticastObjectProp *))                                           \
    X(multicast_add_device, cuMulticastAddDevice, "cuMulticastAddDevice", 12010,                                 \
      (CUmemGenericAllocationHandle, CUdevice))                                                                  \
    X(multicast_bind, cuMulticastBindMem, "cuMulticastBindMem", 12010,                                           \
      (CUmemGenericAllocationHandle, size_t, CUmemGenericAllocationHandle, size_t, size_t, unsigned long long))  \
    X(multicast_bind_v2, cuMulticastBindMem_v2, "cuMulticastBindMem", 13010,                                     \
      (CUmemGenericAllocationHandle, CUdevice, size_t, CUmemGenericAllocationHandle, size_t, size_t,             \
       unsigned long long))                                                                                      \
    X(multicast_bind_address, cuMulticastBindAddr, "cuMulticastBindAddr", 12010,                                 \
      (CUmemGenericAllocationHandle, size_t, CUdeviceptr, size_t, unsigned long long))                           \
    X(multicast_bind_address_v2, cuMulticastBindAddr_v2, "cuMulticastBindAddr", 13010,                           \
      (CUmemGenericAllocationHandle, CUdevice, size_t, CUdeviceptr, size_t, unsigned long long))                 \
    X(multicast_unbind, cuMulticastUnbind, "cuMulticastUnbind", 12010,                                           \
      (CUmemGenericAllocationHandle, CUdevice, size_t, size_t))                                                  \
    X(device_resource, cuDeviceGetDevResource, "cuDeviceGetDevResource", 12040,                                  \
      (CUdevice, CUdevResource *, CUdevResourceType))                                                            \
    X(resource_desc, cuDevResourceGenerateDesc, "cuDevResourceGenerateDesc", 12040,                              \
      (CUdevResourceDesc *, CUdevResource *, unsigned))                                                          \
    X(green_create, cuGreenCtxCreate, "cuGreenCtxCreate", 12040,                                                 \
      (CUgreenCtx *, CUdevResourceDesc, CUdevice, unsigned))                                                     \
    X(green_destroy, cuGreenCtxDestroy, "cuGreenCtxDestroy", 12040, (CUgreenCtx))                                \
    X(green_context, cuCtxFromGreenCtx, "cuCtxFromGreenCtx", 12040, (CUcontext *, CUgreenCtx))                   \
    X(green_stream, cuGreenCtxStreamCreate, "cuGreenCtxStreamCreate", 12050,                                     \
      (CUstream *, CUgreenCtx, unsigned, int))                                                                   \
    X(pointer_attribute, cuPointerGetAttribute, "cuPointerGetAttribute", 4000,                                   \
      (void *, CUpointer_attribute, CUdeviceptr))                                                                \
    X(pointer_attributes, cuPointerGetAttributes, "cuPointerGetAttributes", 7000,                                \
      (unsigned, CUpointer_attribute *, void **, CUdeviceptr))                                                   \
    X(module_load, cuModuleLoadData, "cuModuleLoadData", 2000, (CUmodule *, const void *))                       \
    X(module_load_file, cuModuleLoad, "cuModuleLoad", 2000, (CUmodule *, const char *))                          \
    X(module_unload, cuModuleUnload, "cuModuleUnload", 2000, (CUmodule))                                         \
    X(module_function, cuModuleGetFunction, "cuModuleGetFunction", 2000, (CUfunction *, CUmodule, const char *)) \
    X(library_load, cuLibraryLoadData, "cuLibraryLoadData", 12000,                                               \
      (CUlibrary *, const void *, int *, void **, unsigned, int *, void **, unsigned))                           \
    X(library_unload, cuLibraryUnload, "cuLibraryUnload", 12000, (CUlibrary))                                    \
    X(library_module, cuLibraryGetModule, "cuLibraryGetModule", 12000, (CUmodule *, CUlibrary))                  \
    X(library_kernel, cuLibraryGetKernel, "cuLibraryGetKernel", 12000, (CUkernel *, CUlibrary, const char *))    \
    X(kernel_function, cuKernelGetFunction, "cuKernelGetFunction", 12000, (CUfunction *, CUkernel))              \
    X(function_load, cuFuncLoad, "cuFuncLoad", 12040, (CUfunction))                                              \
    X(launch, cuLaunchKernel, "cuLaunchKernel", 4000,                                                            \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **,      \
       void **))                                                                                                 \
    X(copy_to_device, cuMemcpyHtoD_v2, "cuMemcpyHtoD", 3020, (CUdeviceptr, const void *, size_t))                \
    X(copy_to_host, cuMemcpyDtoH_v2, "cuMemcpyDtoH", 3020, (void *, CUdeviceptr, size_t))

struct driver {
#define FIELD(field, symbol, base, version, parameters) CUresult(*field) parameters;
    DRIVER_FUNCTIONS(FIELD)
#undef FIELD
};

typedef CUresult (*get_proc_address_fn)(const char *, void **, int, unsigned long long);
typedef CUresult (*get_proc_address_v2_fn)(const char *, void **, int, unsigned long long, int *);

static void *driver_library(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "harness: %s\n", dlerror());
        exit(3);
    }
    return library;
}

#ifdef HARNESS_LINKED
#define PROTOTYPE(field, symbol, base, version, parameters) extern CUresult symbol parameters;
DRIVER_FUNCTIONS(PROTOTYPE)
#undef PROTOTYPE
#endif

/* The table, filled by one route. A function that the route does not find stays NULL. */
static struct driver reach_driver(const char *route) {
    struct driver driver = {0};
#ifdef HARNESS_LINKED
    if (!strcmp(route, "link")) {
#define LINKED(field, symbol, base, version, parameters) driver.field = symbol;
        DRIVER_FUNCTIONS(LINKED)
#undef LINKED
        return driver;
    }
#endif
#define BY_SYMBOL(look_up)                                                                                       \
    DRIVER_FUNCTIONS(look_up)                                                                                    \
    return driver;
    if (!strcmp(route, "dlsym")) {
        void *library = driver_library();
#define DLSYM(field, symbol, base, version, parameters) driver.field = dlsym(library, #symbol);
        BY_SYMBOL(DLSYM)
    }
    if (!strcmp(route, "default") || !strcmp(route, "next")) {
        void *scope = strcmp(route, "next") ? RTLD_DEFAULT : RTLD_NEXT;
        dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
#define SCOPE(field, symbol, base, version, parameters) driver.field = dlsym(scope, #symbol);
        BY_SYMBOL(SCOPE)
    }
    if (!strcmp(route, "dlsym-of-dlsym")) {
        void *libc = dlopen("libc.so.6", RTLD_NOW);
        void *library = driver_library();
        void *(*look_up)(void *, const char *) = dlsym(libc, "dlsym");
#define FOUND(field, symbol, base, version, parameters) driver.field = look_up(library, #symbol);
        BY_SYMBOL(FOUND)
    }
    if (!strcmp(route, "procaddr")) {
        get_proc_address_fn get = dlsym(driver_library(), "cuGetProcAddress");
#define PROCADDR(field, symbol, base, version, parameters) get(base, (void **)&driver.field, version, 0);
        BY_SYMBOL(PROCADDR)
    }
    if (!strcmp(route, "procaddr_v2") || !strcmp(route, "procaddr-of-procaddr")) {
        get_proc_address_v2_fn get = dlsym(driver_library(), "cuGetProcAddress_v2");
        int status;
        if (!strcmp(route, "procaddr-of-procaddr")) get("cuGetProcAddress", (void **)&get, 12000, 0, &status);
#define PROCADDR_V2(field, symbol, base, version, parameters) get(base, (void **)&driver.field, version, 0, NULL);
        BY_SYMBOL(PROCADDR_V2)
    }
    fprintf(stderr, "harness: unknown route %s\n", route);
    exit(3);
}

#endif
