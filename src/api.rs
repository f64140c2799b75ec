//! THE table: every driver entry point that the library stands in front of, once.
//!
//! A row names the exported symbol, the base name and the version under which `cuGetProcAddress` answers it,
//! whether it is the `plain` or the `per_thread` default-stream variant, its signature, the function in
//! `entry` that serves it, and in words what it does to memory. Exports (in `build.rs`), the
//! resolver, the hooks, `docs/coverage.md` and the tests are expansions of this macro; to add a hook, add a row.
//!
//! Versions are written as the driver writes them, 12080 for 12.8; NVML has no versions and carries 0.

/// Calls `$expand!` with all rows of the table.
#[macro_export]
macro_rules! hooked_functions {
    ($expand:ident) => {
        $expand! {
            cuInit = "cuInit" @ 2000 plain fn(flags: c_uint) via context::init: "the first call: refused where the quota is";
            cuGetProcAddress = "cuGetProcAddress" @ 11030 plain fn(symbol: *const c_char, pfn: *mut *mut c_void, version: c_int, flags: u64) via resolver::get_proc_address: "hands out entry points";
            cuGetProcAddress_v2 = "cuGetProcAddress" @ 12000 plain fn(symbol: *const c_char, pfn: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int) via resolver::get_proc_address_v2: "hands out entry points";

            cuMemGetInfo = "cuMemGetInfo" @ 2000 plain fn(free: *mut c_uint, total: *mut c_uint) via info::mem_get_info_v1: "reports the budget";
            cuMemGetInfo_v2 = "cuMemGetInfo" @ 3020 plain fn(free: *mut usize, total: *mut usize) via info::mem_get_info: "reports the budget";
            cuDeviceTotalMem = "cuDeviceTotalMem" @ 2000 plain fn(bytes: *mut c_uint, device: CUdevice) via info::device_total_mem_v1: "reports the budget";
            cuDeviceTotalMem_v2 = "cuDeviceTotalMem" @ 3020 plain fn(bytes: *mut usize, device: CUdevice) via info::device_total_mem: "reports the budget";

            cuMemAlloc = "cuMemAlloc" @ 2000 plain fn(address: *mut CUdeviceptr_v1, bytes: c_uint) via memory::alloc_v1: "takes device memory";
            cuMemAlloc_v2 = "cuMemAlloc" @ 3020 plain fn(address: *mut CUdeviceptr, bytes: usize) via memory::alloc: "takes device memory";
            cuMemAllocPitch = "cuMemAllocPitch" @ 2000 plain fn(address: *mut CUdeviceptr_v1, pitch: *mut c_uint, width: c_uint, height: c_uint, element: c_uint) via memory::alloc_pitch_v1: "takes device memory, rows padded";
            cuMemAllocPitch_v2 = "cuMemAllocPitch" @ 3020 plain fn(address: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: c_uint) via memory::alloc_pitch: "takes device memory, rows padded";
            cuMemAllocManaged = "cuMemAllocManaged" @ 6000 plain fn(address: *mut CUdeviceptr, bytes: usize, flags: c_uint) via memory::alloc_managed: "takes managed memory, charged in full";
            cuMemFree = "cuMemFree" @ 2000 plain fn(address: CUdeviceptr_v1) via memory::free_v1: "gives memory back";
            cuMemFree_v2 = "cuMemFree" @ 3020 plain fn(address: CUdeviceptr) via memory::free: "gives memory back";

            cuPointerGetAttribute = "cuPointerGetAttribute" @ 4000 plain fn(value: *mut c_void, attribute: c_int, address: CUdeviceptr) via lazy::pointer_attribute: "tells lazy memory as plain";
            cuPointerGetAttributes = "cuPointerGetAttributes" @ 7000 plain fn(count: c_uint, attributes: *mut c_int, values: *mut *mut c_void, address: CUdeviceptr) via lazy::pointer_attributes: "tells lazy memory as plain";
            cuMemPrefetchAsync = "cuMemPrefetchAsync" @ 8000 plain fn(address: CUdeviceptr, bytes: usize, device: CUdevice, stream: CUstream) via lazy::prefetch: "answers for lazy memory as for plain";
            cuMemPrefetchAsync_ptsz = "cuMemPrefetchAsync" @ 8000 per_thread fn(address: CUdeviceptr, bytes: usize, device: CUdevice, stream: CUstream) via lazy::prefetch: "answers for lazy memory as for plain";
            cuMemPrefetchAsync_v2 = "cuMemPrefetchAsync" @ 12020 plain fn(address: CUdeviceptr, bytes: usize, location: CUmemLocation, flags: c_uint, stream: CUstream) via lazy::prefetch_v2: "answers for lazy memory as for plain";
            cuMemPrefetchAsync_v2_ptsz = "cuMemPrefetchAsync" @ 12020 per_thread fn(address: CUdeviceptr, bytes: usize, location: CUmemLocation, flags: c_uint, stream: CUstream) via lazy::prefetch_v2: "answers for lazy memory as for plain";
            cuMemPrefetchBatchAsync = "cuMemPrefetchBatchAsync" @ 13000 plain fn(addresses: *mut CUdeviceptr, sizes: *mut usize, count: usize, places: *mut CUmemLocation, firsts: *mut usize, place_count: usize, flags: u64, stream: CUstream) via lazy_batch::prefetch: "answers for lazy memory as for plain";
            cuMemPrefetchBatchAsync_ptsz = "cuMemPrefetchBatchAsync" @ 13000 per_thread fn(addresses: *mut CUdeviceptr, sizes: *mut usize, count: usize, places: *mut CUmemLocation, firsts: *mut usize, place_count: usize, flags: u64, stream: CUstream) via lazy_batch::prefetch: "answers for lazy memory as for plain";
            cuMemDiscardAndPrefetchBatchAsync = "cuMemDiscardAndPrefetchBatchAsync" @ 13000 plain fn(addresses: *mut CUdeviceptr, sizes: *mut usize, count: usize, places: *mut CUmemLocation, firsts: *mut usize, place_count: usize, flags: u64, stream: CUstream) via lazy_batch::prefetch: "answers for lazy memory as for plain";
            cuMemDiscardAndPrefetchBatchAsync_ptsz = "cuMemDiscardAndPrefetchBatchAsync" @ 13000 per_thread fn(addresses: *mut CUdeviceptr, sizes: *mut usize, count: usize, places: *mut CUmemLocation, firsts: *mut usize, place_count: usize, flags: u64, stream: CUstream) via lazy_batch::prefetch: "answers for lazy memory as for plain";
            cuMemDiscardBatchAsync = "cuMemDiscardBatchAsync" @ 13000 plain fn(addresses: *mut CUdeviceptr, sizes: *mut usize, count: usize, flags: u64, stream: CUstream) via lazy_batch::discard: "answers for lazy memory as for plain";
            cuMemDiscardBatchAsync_ptsz = "cuMemDiscardBatchAsync" @ 13000 per_thread fn(addresses: *mut CUdeviceptr, sizes: *mut usize, count: usize, flags: u64, stream: CUstream) via lazy_batch::discard: "answers for lazy memory as for plain";
            cuMemAdvise = "cuMemAdvise" @ 8000 plain fn(address: CUdeviceptr, bytes: usize, advice: c_int, device: CUdevice) via lazy::advise: "answers for lazy memory as for plain";
            cuMemAdvise_v2 = "cuMemAdvise" @ 12020 plain fn(address: CUdeviceptr, bytes: usize, advice: c_int, location: CUmemLocation) via lazy::advise_v2: "answers for lazy memory as for plain";
            cuMemRangeGetAttribute = "cuMemRangeGetAttribute" @ 8000 plain fn(value: *mut c_void, size: usize, attribute: c_int, address: CUdeviceptr, bytes: usize) via lazy::range_attribute: "answers for lazy memory as for plain";
            cuMemRangeGetAttributes = "cuMemRangeGetAttributes" @ 8000 plain fn(values: *mut *mut c_void, sizes: *mut usize, attributes: *mut c_int, count: usize, address: CUdeviceptr, bytes: usize) via lazy::range_attributes: "answers for lazy memory as for plain";
            cuStreamAttachMemAsync = "cuStreamAttachMemAsync" @ 6000 plain fn(stream: CUstream, address: CUdeviceptr, bytes: usize, flags: c_uint) via lazy::attach: "answers for lazy memory as for plain";
            cuStreamAttachMemAsync_ptsz = "cuStreamAttachMemAsync" @ 7000 per_thread fn(stream: CUstream, address: CUdeviceptr, bytes: usize, flags: c_uint) via lazy::attach: "answers for lazy memory as for plain";
            cuIpcGetMemHandle = "cuIpcGetMemHandle" @ 4010 plain fn(handle: *mut c_void, address: CUdeviceptr) via lazy::ipc_handle: "shares memory with another process, which lazy memory does not allow";

            cuMemAllocAsync = "cuMemAllocAsync" @ 11020 plain fn(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) via pool::alloc_async: "takes memory of the device's pool";
            cuMemAllocAsync_ptsz = "cuMemAllocAsync" @ 11020 per_thread fn(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) via pool::alloc_async_ptsz: "takes memory of the device's pool";
            cuMemAllocFromPoolAsync = "cuMemAllocFromPoolAsync" @ 11020 plain fn(address: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream) via pool::alloc_from_pool_async: "takes memory of a pool";
            cuMemAllocFromPoolAsync_ptsz = "cuMemAllocFromPoolAsync" @ 11020 per_thread fn(address: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream) via pool::alloc_from_pool_async_ptsz: "takes memory of a pool";
            cuMemFreeAsync = "cuMemFreeAsync" @ 11020 plain fn(address: CUdeviceptr, stream: CUstream) via pool::free_async: "gives memory back to its pool";
            cuMemFreeAsync_ptsz = "cuMemFreeAsync" @ 11020 per_thread fn(address: CUdeviceptr, stream: CUstream) via pool::free_async_ptsz: "gives memory back to its pool";
            cuMemPoolCreate = "cuMemPoolCreate" @ 11020 plain fn(pool: *mut CUmemoryPool, properties: *const CUmemPoolProps) via pool::create: "makes a pool, whose place is known from then on";
            cuMemPoolTrimTo = "cuMemPoolTrimTo" @ 11020 plain fn(pool: CUmemoryPool, keep: usize) via pool::trim_to: "gives a pool's unused memory back";
            cuMemPoolDestroy = "cuMemPoolDestroy" @ 11020 plain fn(pool: CUmemoryPool) via pool::destroy: "gives a pool's memory back";

            cuStreamSynchronize = "cuStreamSynchronize" @ 2000 plain fn(stream: CUstream) via pool::synchronized: "gives back what pools hold above their thresholds";
            cuStreamSynchronize_ptsz = "cuStreamSynchronize" @ 7000 per_thread fn(stream: CUstream) via pool::synchronized: "gives back what pools hold above their thresholds";
            cuEventSynchronize = "cuEventSynchronize" @ 2000 plain fn(event: CUevent) via pool::synchronized: "gives back what pools hold above their thresholds";
            cuCtxSynchronize = "cuCtxSynchronize" @ 2000 plain fn() via pool::context_synchronized: "gives back what pools hold above their thresholds";
            cuCtxSynchronize_v2 = "cuCtxSynchronize" @ 13000 plain fn(context: CUcontext) via pool::synchronized: "gives back what pools hold above their thresholds";

            cuStreamBeginCapture = "cuStreamBeginCapture" @ 10000 plain fn(stream: CUstream) via capture::begin_v1: "opens a capture, in which some queries are not allowed";
            cuStreamBeginCapture_ptsz = "cuStreamBeginCapture" @ 10000 per_thread fn(stream: CUstream) via capture::begin_v1_ptsz: "opens a capture, in which some queries are not allowed";
            cuStreamBeginCapture_v2 = "cuStreamBeginCapture" @ 10010 plain fn(stream: CUstream, mode: c_int) via capture::begin: "opens a capture, in which some queries are not allowed";
            cuStreamBeginCapture_v2_ptsz = "cuStreamBeginCapture" @ 10010 per_thread fn(stream: CUstream, mode: c_int) via capture::begin_ptsz: "opens a capture, in which some queries are not allowed";
            cuStreamBeginCaptureToGraph = "cuStreamBeginCaptureToGraph" @ 12030 plain fn(stream: CUstream, graph: CUgraph, dependencies: *const c_void, edges: *const c_void, count: usize, mode: c_int) via capture::begin_to_graph: "opens a capture, in which some queries are not allowed";
            cuStreamBeginCaptureToGraph_ptsz = "cuStreamBeginCaptureToGraph" @ 12030 per_thread fn(stream: CUstream, graph: CUgraph, dependencies: *const c_void, edges: *const c_void, count: usize, mode: c_int) via capture::begin_to_graph_ptsz: "opens a capture, in which some queries are not allowed";
            cuStreamEndCapture = "cuStreamEndCapture" @ 10000 plain fn(stream: CUstream, graph: *mut CUgraph) via capture::end: "closes a capture";
            cuStreamEndCapture_ptsz = "cuStreamEndCapture" @ 10000 per_thread fn(stream: CUstream, graph: *mut CUgraph) via capture::end_ptsz: "closes a capture";
            cuStreamDestroy = "cuStreamDestroy" @ 2000 plain fn(stream: CUstream) via capture::destroy: "closes a capture that was begun on the stream";
            cuStreamDestroy_v2 = "cuStreamDestroy" @ 4000 plain fn(stream: CUstream) via capture::destroy: "closes a capture that was begun on the stream";

            cuGraphInstantiate = "cuGraphInstantiate" @ 10000 plain fn(exec: *mut CUgraphExec, graph: CUgraph, error: *mut CUgraphNode, log: *mut c_char, size: usize) via graph::instantiate: "makes a graph ready: how much memory it takes is known from then on";
            cuGraphInstantiate_v2 = "cuGraphInstantiate" @ 11000 plain fn(exec: *mut CUgraphExec, graph: CUgraph, error: *mut CUgraphNode, log: *mut c_char, size: usize) via graph::instantiate: "makes a graph ready: how much memory it takes is known from then on";
            cuGraphInstantiateWithFlags = "cuGraphInstantiateWithFlags" @ 11040 plain fn(exec: *mut CUgraphExec, graph: CUgraph, flags: u64) via graph::instantiate_with_flags: "makes a graph ready: how much memory it takes is known from then on";
            cuGraphInstantiateWithParams = "cuGraphInstantiateWithParams" @ 12000 plain fn(exec: *mut CUgraphExec, graph: CUgraph, parameters: *mut CUDA_GRAPH_INSTANTIATE_PARAMS) via graph::instantiate_with_params: "makes a graph ready and may upload it, which takes its memory";
            cuGraphInstantiateWithParams_ptsz = "cuGraphInstantiateWithParams" @ 12000 per_thread fn(exec: *mut CUgraphExec, graph: CUgraph, parameters: *mut CUDA_GRAPH_INSTANTIATE_PARAMS) via graph::instantiate_with_params: "makes a graph ready and may upload it, which takes its memory";
            cuGraphLaunch = "cuGraphLaunch" @ 10000 plain fn(exec: CUgraphExec, stream: CUstream) via graph::launch: "takes the memory of a graph's allocation nodes";
            cuGraphLaunch_ptsz = "cuGraphLaunch" @ 10000 per_thread fn(exec: CUgraphExec, stream: CUstream) via graph::launch_ptsz: "takes the memory of a graph's allocation nodes";
            cuGraphUpload = "cuGraphUpload" @ 11010 plain fn(exec: CUgraphExec, stream: CUstream) via graph::upload: "takes the memory of a graph's allocation nodes";
            cuGraphUpload_ptsz = "cuGraphUpload" @ 11010 per_thread fn(exec: CUgraphExec, stream: CUstream) via graph::upload_ptsz: "takes the memory of a graph's allocation nodes";
            cuGraphExecDestroy = "cuGraphExecDestroy" @ 10000 plain fn(exec: CUgraphExec) via graph::destroy_exec: "forgets a graph that was made ready";
            cuDeviceGraphMemTrim = "cuDeviceGraphMemTrim" @ 11040 plain fn(device: CUdevice) via graph::trim: "gives the unused memory of graphs back";

            cuMemCreate = "cuMemCreate" @ 10020 plain fn(handle: *mut CUmemGenericAllocationHandle, bytes: usize, properties: *const CUmemAllocationProp, flags: u64) via vmm::create: "takes physical memory";
            cuMemRelease = "cuMemRelease" @ 10020 plain fn(handle: CUmemGenericAllocationHandle) via vmm::release: "drops a reference to physical memory";
            cuMemMap = "cuMemMap" @ 10020 plain fn(address: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64) via vmm::map: "keeps physical memory by mapping it";
            cuMemUnmap = "cuMemUnmap" @ 10020 plain fn(address: CUdeviceptr, bytes: usize) via vmm::unmap: "drops the mappings of a range";
            cuMemRetainAllocationHandle = "cuMemRetainAllocationHandle" @ 11000 plain fn(handle: *mut CUmemGenericAllocationHandle, address: *mut c_void) via vmm::retain: "keeps physical memory by one more reference";
            cuMemExportToShareableHandle = "cuMemExportToShareableHandle" @ 10020 plain fn(out: *mut c_void, handle: CUmemGenericAllocationHandle, kind: c_int, flags: c_ulonglong) via share_physical::export_handle: "lets other processes hold physical memory, too";
            cuMemImportFromShareableHandle = "cuMemImportFromShareableHandle" @ 10020 plain fn(handle: *mut CUmemGenericAllocationHandle, os_handle: *mut c_void, kind: c_int) via share_physical::import_handle: "holds another's physical memory, which is charged until its last holder is gone";
            cuIpcOpenMemHandle = "cuIpcOpenMemHandle" @ 4010 plain fn(address: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) via share::open_mem_handle: "holds another's memory, which is charged until its last holder is gone";
            cuIpcOpenMemHandle_v2 = "cuIpcOpenMemHandle" @ 11000 plain fn(address: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) via share::open_mem_handle: "holds another's memory, which is charged until its last holder is gone";
            cuIpcCloseMemHandle = "cuIpcCloseMemHandle" @ 4010 plain fn(address: CUdeviceptr) via share::close_mem_handle: "holds another's memory no more";
            cuMemPoolExportPointer = "cuMemPoolExportPointer" @ 11020 plain fn(token: *mut c_void, address: CUdeviceptr) via share::export_pointer: "lets other processes hold memory of a pool, too";
            cuMemPoolImportPointer = "cuMemPoolImportPointer" @ 11020 plain fn(address: *mut CUdeviceptr, pool: CUmemoryPool, token: *mut c_void) via share::import_pointer: "holds memory of another's pool, which is charged until its last holder is gone";
            cuImportExternalMemory = "cuImportExternalMemory" @ 10000 plain fn(memory: *mut CUexternalMemory, description: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC) via external::import_external: "holds memory of another interface, charged in full";
            cuDestroyExternalMemory = "cuDestroyExternalMemory" @ 10000 plain fn(memory: CUexternalMemory) via external::destroy_external: "holds memory of another interface no more";
            cuMemMapArrayAsync = "cuMemMapArrayAsync" @ 11010 plain fn(list: *mut CUarrayMapInfo, count: c_uint, stream: CUstream) via bound::map_array: "keeps physical memory by mapping it into sparse arrays";
            cuMemMapArrayAsync_ptsz = "cuMemMapArrayAsync" @ 11010 per_thread fn(list: *mut CUarrayMapInfo, count: c_uint, stream: CUstream) via bound::map_array_ptsz: "keeps physical memory by mapping it into sparse arrays";
            cuMulticastCreate = "cuMulticastCreate" @ 12010 plain fn(handle: *mut CUmemGenericAllocationHandle, properties: *const c_void) via bound::multicast_create: "makes an object that keeps the memory bound to it; what it takes itself is not known and not charged";
            cuMulticastBindMem = "cuMulticastBindMem" @ 12010 plain fn(object: CUmemGenericAllocationHandle, offset: usize, memory: CUmemGenericAllocationHandle, memory_offset: usize, bytes: usize, flags: u64) via bound::bind_memory: "keeps physical memory by binding it to a multicast object";
            cuMulticastBindMem_v2 = "cuMulticastBindMem" @ 13010 plain fn(object: CUmemGenericAllocationHandle, device: CUdevice, offset: usize, memory: CUmemGenericAllocationHandle, memory_offset: usize, bytes: usize, flags: u64) via bound::bind_memory_v2: "keeps physical memory by binding it to a multicast object";
            cuMulticastBindAddr = "cuMulticastBindAddr" @ 12010 plain fn(object: CUmemGenericAllocationHandle, offset: usize, address: CUdeviceptr, bytes: usize, flags: u64) via bound::bind_address: "keeps physical memory by binding it to a multicast object; memory of a pool stays charged to the pool";
            cuMulticastBindAddr_v2 = "cuMulticastBindAddr" @ 13010 plain fn(object: CUmemGenericAllocationHandle, device: CUdevice, offset: usize, address: CUdeviceptr, bytes: usize, flags: u64) via bound::bind_address_v2: "keeps physical memory by binding it to a multicast object; memory of a pool stays charged to the pool";
            cuMulticastUnbind = "cuMulticastUnbind" @ 12010 plain fn(object: CUmemGenericAllocationHandle, device: CUdevice, offset: usize, bytes: usize) via bound::unbind: "drops bindings to a multicast object";

            cuArrayCreate = "cuArrayCreate" @ 2000 plain fn(array: *mut CUarray, descriptor: *const CUDA_ARRAY_DESCRIPTOR_v1) via array::create_v1: "takes device memory in an opaque layout";
            cuArrayCreate_v2 = "cuArrayCreate" @ 3020 plain fn(array: *mut CUarray, descriptor: *const CUDA_ARRAY_DESCRIPTOR) via array::create: "takes device memory in an opaque layout";
            cuArray3DCreate = "cuArray3DCreate" @ 2000 plain fn(array: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR_v1) via array::create_3d_v1: "takes device memory in an opaque layout";
            cuArray3DCreate_v2 = "cuArray3DCreate" @ 3020 plain fn(array: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR) via array::create_3d: "takes device memory in an opaque layout";
            cuArrayDestroy = "cuArrayDestroy" @ 2000 plain fn(array: CUarray) via array::destroy: "gives an array's memory back";
            cuMipmappedArrayCreate = "cuMipmappedArrayCreate" @ 5000 plain fn(array: *mut CUmipmappedArray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint) via array::create_mipmapped: "takes device memory for all levels";
            cuMipmappedArrayDestroy = "cuMipmappedArrayDestroy" @ 5000 plain fn(array: CUmipmappedArray) via array::destroy_mipmapped: "gives all levels back";

            cuCtxCreate = "cuCtxCreate" @ 2000 plain fn(context: *mut CUcontext, flags: c_uint, device: CUdevice) via context::create: "takes what a context takes";
            cuCtxCreate_v2 = "cuCtxCreate" @ 3020 plain fn(context: *mut CUcontext, flags: c_uint, device: CUdevice) via context::create: "takes what a context takes";
            cuCtxCreate_v3 = "cuCtxCreate" @ 11040 plain fn(context: *mut CUcontext, affinity: *const c_void, count: c_int, flags: c_uint, device: CUdevice) via context::create_v3: "takes what a context takes";
            cuCtxCreate_v4 = "cuCtxCreate" @ 12050 plain fn(context: *mut CUcontext, parameters: *const c_void, flags: c_uint, device: CUdevice) via context::create_v4: "takes what a context takes";
            cuCtxDestroy = "cuCtxDestroy" @ 2000 plain fn(context: CUcontext) via context::destroy: "gives back a context and all in it";
            cuCtxDestroy_v2 = "cuCtxDestroy" @ 4000 plain fn(context: CUcontext) via context::destroy: "gives back a context and all in it";
            cuCtxDetach = "cuCtxDetach" @ 2000 plain fn(context: CUcontext) via context::detach: "gives back a context and all in it, the last time";
            cuCtxSetLimit = "cuCtxSetLimit" @ 3010 plain fn(limit: c_int, value: usize) via context::set_limit: "takes memory for stacks, the printf buffer and the heap of kernels";
            cuDevicePrimaryCtxRetain = "cuDevicePrimaryCtxRetain" @ 7000 plain fn(context: *mut CUcontext, device: CUdevice) via context::retain_primary: "takes what a context takes, the first time";
            cuDevicePrimaryCtxRelease = "cuDevicePrimaryCtxRelease" @ 7000 plain fn(device: CUdevice) via context::release_primary: "gives back the primary context, the last time";
            cuDevicePrimaryCtxRelease_v2 = "cuDevicePrimaryCtxRelease" @ 11000 plain fn(device: CUdevice) via context::release_primary: "gives back the primary context, the last time";
            cuDevicePrimaryCtxReset = "cuDevicePrimaryCtxReset" @ 7000 plain fn(device: CUdevice) via context::release_primary: "gives back the primary context and all in it";
            cuDevicePrimaryCtxReset_v2 = "cuDevicePrimaryCtxReset" @ 11000 plain fn(device: CUdevice) via context::release_primary: "gives back the primary context and all in it";
            cuGreenCtxCreate = "cuGreenCtxCreate" @ 12040 plain fn(green: *mut CUgreenCtx, descriptor: *mut c_void, device: CUdevice, flags: c_uint) via green::create: "keeps the primary context, and makes it the first time; what it takes itself is not known and not charged";
            cuGreenCtxDestroy = "cuGreenCtxDestroy" @ 12040 plain fn(green: CUgreenCtx) via green::destroy: "gives back the primary context, the last time";
            cuCtxFromGreenCtx = "cuCtxFromGreenCtx" @ 12040 plain fn(context: *mut CUcontext, green: CUgreenCtx) via green::stand_in: "names the primary context by another handle";

            cuModuleLoad = "cuModuleLoad" @ 2000 plain fn(module: *mut CUmodule, path: *const c_char) via module::load: "takes memory for code and its variables";
            cuModuleLoadData = "cuModuleLoadData" @ 2000 plain fn(module: *mut CUmodule, image: *const c_void) via module::load: "takes memory for code and its variables";
            cuModuleLoadDataEx = "cuModuleLoadDataEx" @ 2010 plain fn(module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut c_int, values: *mut *mut c_void) via module::load_ex: "takes memory for code and its variables";
            cuModuleLoadFatBinary = "cuModuleLoadFatBinary" @ 2000 plain fn(module: *mut CUmodule, image: *const c_void) via module::load: "takes memory for code and its variables";
            cuModuleGetFunction = "cuModuleGetFunction" @ 2000 plain fn(function: *mut CUfunction, module: CUmodule, name: *const c_char) via module::get_function: "has code loaded, which is charged whatever the limit";
            cuModuleUnload = "cuModuleUnload" @ 2000 plain fn(module: CUmodule) via module::unload: "gives the memory of code back";
            cuLibraryLoadData = "cuLibraryLoadData" @ 12000 plain fn(library: *mut CUlibrary, code: *const c_void, jit_options: *mut c_int, jit_values: *mut *mut c_void, jit_count: c_uint, options: *mut c_int, values: *mut *mut c_void, count: c_uint) via module::load_library: "has code loaded, where that is not put off; what does not fit is unloaded again";
            cuLibraryLoadFromFile = "cuLibraryLoadFromFile" @ 12000 plain fn(library: *mut CUlibrary, path: *const c_char, jit_options: *mut c_int, jit_values: *mut *mut c_void, jit_count: c_uint, options: *mut c_int, values: *mut *mut c_void, count: c_uint) via module::load_library: "has code loaded, where that is not put off; what does not fit is unloaded again";
            cuLibraryGetModule = "cuLibraryGetModule" @ 12000 plain fn(module: *mut CUmodule, library: CUlibrary) via module::get_module: "has code loaded, which is charged whatever the limit";
            cuLibraryGetGlobal = "cuLibraryGetGlobal" @ 12000 plain fn(address: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char) via module::get_global: "has code loaded, which is charged whatever the limit";
            cuLibraryUnload = "cuLibraryUnload" @ 12000 plain fn(library: CUlibrary) via module::unload: "gives the memory of code back";
            cuKernelGetFunction = "cuKernelGetFunction" @ 12000 plain fn(function: *mut CUfunction, kernel: CUkernel) via module::kernel_function: "has code loaded, which is charged whatever the limit";
            cuFuncLoad = "cuFuncLoad" @ 12040 plain fn(function: CUfunction) via module::load_function: "has code loaded, which is charged whatever the limit";

            nvmlDeviceGetMemoryInfo = "" @ 0 plain fn(device: nvmlDevice_t, memory: *mut nvmlMemory_t) via nvml::memory_info: "reports the budget";
            nvmlDeviceGetMemoryInfo_v2 = "" @ 0 plain fn(device: nvmlDevice_t, memory: *mut nvmlMemory_v2_t) via nvml::memory_info_v2: "reports the budget";
        }
    };
}
