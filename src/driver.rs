//! The real driver, as the library itself calls it.
//!
//! The functions come from the very copy of libcuda that the hooked call leads to, so that two copies in one
//! process are each asked about their own contexts. They are read from the copy's symbol table: nothing is
//! opened, and whoever interposes on these names is not disturbed by our questions.

use core::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::abi::*;
use crate::sys::object::{self, Object};

/// Copies of the driver's libraries that one process may have mapped at a time.
pub const MOST_DRIVERS: usize = 8;

/// Declares the functions: a field that holds each, and a method that calls it.
macro_rules! driver_functions {
    ($($(#[$doc:meta])* fn $method:ident = $($symbol:literal)|+ ($($arg:ident: $ty:ty),*);)*) => {
        /// One mapped copy of libcuda or libnvidia-ml. Lives for the whole process (and its children's).
        pub struct Driver {
            /// Where it is loaded; 0 while unused.
            base: AtomicUsize,
            $($method: AtomicPtr<c_void>,)*
        }

        impl Driver {
            const fn unused() -> Self {
                Driver { base: AtomicUsize::new(0), $($method: AtomicPtr::new(core::ptr::null_mut()),)* }
            }

            /// Looks the functions up in `object`. Two threads may do so at once: they store the same.
            fn learn(&self, object: &Object) {
                $(
                    let found = [$($symbol),+].into_iter().find_map(|name: &CStr| object.function(name));
                    let found = found.map_or(core::ptr::null_mut(), <*const c_void>::cast_mut);
                    self.$method.store(found, Ordering::Relaxed);
                )*
            }

            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// The driver's own code, or `CUDA_ERROR_NOT_FOUND` where this driver has no such function.
                ///
                /// # Safety
                /// As the driver's function of that name asks.
                pub unsafe fn $method(&self, $($arg: $ty),*) -> Result<(), Code> {
                    let function = self.$method.load(Ordering::Relaxed);
                    if function.is_null() {
                        return Err(cuda::NOT_FOUND);
                    }
                    // SAFETY: the driver exports the symbol with this signature.
                    let function: unsafe extern "C" fn($($ty),*) -> Code = unsafe { core::mem::transmute(function) };
                    // SAFETY: passed on from the caller.
                    match unsafe { function($($arg),*) } {
                        SUCCESS => Ok(()),
                        code => Err(code),
                    }
                }
            )*
        }
    };
}

driver_functions! {
    /// `cuCtxGetCurrent`: NULL where the thread has no context.
    fn ctx_get_current = c"cuCtxGetCurrent" (context: *mut CUcontext);
    /// `cuCtxGetDevice`: the current context's device.
    fn ctx_get_device = c"cuCtxGetDevice" (device: *mut CUdevice);
    /// `cuCtxPushCurrent`.
    fn ctx_push = c"cuCtxPushCurrent_v2" | c"cuCtxPushCurrent" (context: CUcontext);
    /// `cuCtxPopCurrent`.
    fn ctx_pop = c"cuCtxPopCurrent_v2" | c"cuCtxPopCurrent" (context: *mut CUcontext);
    /// `cuDevicePrimaryCtxGetState`: whether the device's primary context is up.
    fn primary_state = c"cuDevicePrimaryCtxGetState" (device: CUdevice, flags: *mut c_uint, active: *mut c_int);
    /// `cuDevicePrimaryCtxRetain`.
    fn primary_retain = c"cuDevicePrimaryCtxRetain" (context: *mut CUcontext, device: CUdevice);
    /// `cuDevicePrimaryCtxRelease`.
    fn primary_release = c"cuDevicePrimaryCtxRelease_v2" | c"cuDevicePrimaryCtxRelease" (device: CUdevice);
    /// `cuDeviceGetCount`: the devices visible to this process.
    fn device_count = c"cuDeviceGetCount" (count: *mut c_int);
    /// `cuDeviceGetUuid`; version 2 answers a MIG slice's own UUID.
    fn device_uuid = c"cuDeviceGetUuid_v2" | c"cuDeviceGetUuid" (uuid: *mut CUuuid, device: CUdevice);
    /// The first version of `cuDeviceGetUuid`: of the whole card, for a MIG slice too.
    fn device_uuid_v1 = c"cuDeviceGetUuid" (uuid: *mut CUuuid, device: CUdevice);
    /// `cuDeviceGetPCIBusId`.
    fn device_pci = c"cuDeviceGetPCIBusId" (text: *mut c_char, size: c_int, device: CUdevice);
    /// `cuDeviceTotalMem`: physical bytes.
    fn device_total = c"cuDeviceTotalMem_v2" (bytes: *mut usize, device: CUdevice);
    /// `cuDeviceGetAttribute`.
    fn device_attribute = c"cuDeviceGetAttribute" (value: *mut c_int, attribute: c_int, device: CUdevice);
    /// `cuMemAllocManaged`.
    fn mem_alloc_managed = c"cuMemAllocManaged" (address: *mut CUdeviceptr, bytes: usize, flags: c_uint);
    /// `cuMemAdvise`, as before 12.2.
    fn mem_advise = c"cuMemAdvise" (address: CUdeviceptr, bytes: usize, advice: c_int, device: CUdevice);
    /// `cuMemPrefetchAsync`, as before 12.2.
    fn mem_prefetch = c"cuMemPrefetchAsync" (address: CUdeviceptr, bytes: usize, to: CUdevice, stream: CUstream);
    /// `cuMemFree`.
    fn mem_free = c"cuMemFree_v2" (address: CUdeviceptr);
    /// `cuMemGetAddressRange`: of the allocation around an address.
    fn mem_address_range = c"cuMemGetAddressRange_v2" (start: *mut CUdeviceptr, bytes: *mut usize, address: CUdeviceptr);
    /// `cuIpcCloseMemHandle`.
    fn ipc_close = c"cuIpcCloseMemHandle" (address: CUdeviceptr);
    /// `cuMemGetAllocationPropertiesFromHandle`.
    fn mem_properties = c"cuMemGetAllocationPropertiesFromHandle" (properties: *mut CUmemAllocationProp, handle: CUmemGenericAllocationHandle);
    /// `cuMemRelease`.
    fn mem_release = c"cuMemRelease" (handle: CUmemGenericAllocationHandle);
    /// `cuMemAddressReserve`.
    fn address_reserve = c"cuMemAddressReserve" (start: *mut CUdeviceptr, bytes: usize, alignment: usize, wanted: CUdeviceptr, flags: c_ulonglong);
    /// `cuMemAddressFree`.
    fn address_free = c"cuMemAddressFree" (start: CUdeviceptr, bytes: usize);
    /// `cuMemMap`.
    fn mem_map = c"cuMemMap" (start: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: c_ulonglong);
    /// `cuMemUnmap`.
    fn mem_unmap = c"cuMemUnmap" (start: CUdeviceptr, bytes: usize);
    /// `cuStreamSynchronize`.
    fn stream_synchronize = c"cuStreamSynchronize" (stream: CUstream);
    /// `cuCtxSynchronize`.
    fn ctx_synchronize = c"cuCtxSynchronize" ();
    /// `cuThreadExchangeStreamCaptureMode`: the calling thread's mode, in and out.
    fn exchange_capture_mode = c"cuThreadExchangeStreamCaptureMode" (mode: *mut c_int);
    /// `cuMemGetInfo` of the current context's device: physical bytes.
    fn mem_info = c"cuMemGetInfo_v2" (free: *mut usize, total: *mut usize);
    /// `cuMemFreeAsync`.
    fn mem_free_async = c"cuMemFreeAsync" (address: CUdeviceptr, stream: CUstream);
    /// `cuPointerGetAttribute`.
    fn pointer_attribute = c"cuPointerGetAttribute" (value: *mut c_void, attribute: c_int, address: CUdeviceptr);
    /// `cuMemPoolGetAttribute`. Not allowed while a capture is open.
    fn pool_attribute = c"cuMemPoolGetAttribute" (pool: CUmemoryPool, attribute: c_int, value: *mut c_void);
    /// `cuMemPoolTrimTo`. Not allowed while a capture is open.
    fn pool_trim = c"cuMemPoolTrimTo" (pool: CUmemoryPool, keep: usize);
    /// `cuDeviceGetGraphMemAttribute`.
    fn graph_mem_attribute = c"cuDeviceGetGraphMemAttribute" (device: CUdevice, attribute: c_int, value: *mut c_void);
    /// `cuDeviceGraphMemTrim`.
    fn graph_mem_trim = c"cuDeviceGraphMemTrim" (device: CUdevice);
    /// `cuGraphGetNodes`: all of them into `nodes`, or their number where that is NULL.
    fn graph_nodes = c"cuGraphGetNodes" (graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
    /// `cuGraphGetEdges` of before versions of edges: the number where the lists are NULL.
    fn graph_edges = c"cuGraphGetEdges" (graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize);
    /// `cuGraphNodeGetType`.
    fn graph_node_type = c"cuGraphNodeGetType" (node: CUgraphNode, kind: *mut c_int);
    /// `cuGraphMemAllocNodeGetParams`.
    fn graph_alloc_params = c"cuGraphMemAllocNodeGetParams" (node: CUgraphNode, parameters: *mut CUDA_MEM_ALLOC_NODE_PARAMS);
    /// `cuGraphMemFreeNodeGetParams`.
    fn graph_free_params = c"cuGraphMemFreeNodeGetParams" (node: CUgraphNode, address: *mut CUdeviceptr);
    /// `cuGraphChildGraphNodeGetGraph`.
    fn graph_child = c"cuGraphChildGraphNodeGetGraph" (node: CUgraphNode, graph: *mut CUgraph);
    /// `cuDeviceGetMemPool`: the one that `cuMemAllocAsync` takes from.
    fn device_pool = c"cuDeviceGetMemPool" (pool: *mut CUmemoryPool, device: CUdevice);
    /// `cuModuleUnload`.
    fn module_unload = c"cuModuleUnload" (module: CUmodule);
    /// `cuLibraryUnload`.
    fn library_unload = c"cuLibraryUnload" (library: CUlibrary);
    /// `cuFuncGetModule`.
    fn function_module = c"cuFuncGetModule" (module: *mut CUmodule, function: CUfunction);
    /// `cuKernelGetLibrary`.
    fn kernel_library = c"cuKernelGetLibrary" (library: *mut CUlibrary, kernel: CUkernel);
    /// `cuStreamGetCtx`.
    fn stream_context = c"cuStreamGetCtx" (stream: CUstream, context: *mut CUcontext);
    /// `cuEventCreate`, in the current context.
    fn event_create = c"cuEventCreate" (event: *mut CUevent, flags: c_uint);
    /// `cuEventRecord`. Of the stream's context.
    fn event_record = c"cuEventRecord" (event: CUevent, stream: CUstream);
    /// `cuEventQuery`: `CUDA_ERROR_NOT_READY` before the stream has come to it. Not allowed while a capture is open.
    fn event_query = c"cuEventQuery" (event: CUevent);
    /// `cuEventDestroy`.
    fn event_destroy = c"cuEventDestroy_v2" (event: CUevent);
    /// `cuStreamIsCapturing`.
    fn stream_is_capturing = c"cuStreamIsCapturing" (stream: CUstream, status: *mut c_int);
    /// `nvmlDeviceGetUUID`.
    fn nvml_uuid = c"nvmlDeviceGetUUID" (device: nvmlDevice_t, text: *mut c_char, size: c_uint);
    /// `nvmlDeviceGetPciInfo`, whose version 2 has the same layout.
    fn nvml_pci = c"nvmlDeviceGetPciInfo_v3" | c"nvmlDeviceGetPciInfo_v2" (device: nvmlDevice_t, pci: *mut nvmlPciInfo_t);
    /// `nvmlDeviceGetHandleByPciBusId`.
    fn nvml_by_pci = c"nvmlDeviceGetHandleByPciBusId_v2" (bus_id: *const c_char, device: *mut nvmlDevice_t);
    /// `nvmlDeviceGetIndex`: the place in PCI bus order.
    fn nvml_index = c"nvmlDeviceGetIndex" (device: nvmlDevice_t, index: *mut c_uint);
}

static DRIVERS: [Driver; MOST_DRIVERS] = [const { Driver::unused() }; MOST_DRIVERS];

impl Driver {
    /// The copy of the driver that `address` lies in, if it lies in one, by its place among them.
    ///
    /// Allocates nothing; takes the loader's read lock.
    pub fn holding(address: *const c_void) -> Option<usize> {
        Self::around(address).flatten()
    }

    /// As [`Driver::holding`]; `Some(None)` where it lies in a copy for which there is no place left.
    pub fn around(address: *const c_void) -> Option<Option<usize>> {
        object::at(address, |object| is_driver(object).then(|| Self::register(object))).flatten()
    }

    /// Any mapped copy of the driver that has `function`, with the address of it there.
    pub fn with(function: &CStr) -> Option<(usize, *const c_void)> {
        object::visit(|object| match is_driver(object).then(|| object.function(function)).flatten() {
            Some(found) => match Self::register(object) {
                Some(index) => ControlFlow::Break((index, found)),
                None => ControlFlow::Continue(()),
            },
            None => ControlFlow::Continue(()),
        })
    }

    /// The copy in that place.
    pub fn get(index: usize) -> Option<&'static Driver> {
        DRIVERS.get(index)
    }

    /// This thread's current context; `None` where it has none, or the driver does not say.
    #[inline]
    pub fn current(&self) -> Option<CUcontext> {
        let mut context: CUcontext = core::ptr::null_mut();
        // SAFETY: the output is a live local of the type that the driver fills.
        unsafe { self.ctx_get_current(&mut context) }.ok()?;
        (!context.is_null()).then_some(context)
    }

    /// Does something with `context` current; `None`, and nothing done, where the driver refuses that.
    ///
    /// # Safety
    /// A context that the driver has handed out. One that was destroyed since is refused.
    pub unsafe fn within<T>(&self, context: CUcontext, what: impl FnOnce() -> T) -> Option<T> {
        // SAFETY: as promised to us.
        unsafe { self.ctx_push(context) }.ok()?;
        let done = what();
        let mut popped = core::ptr::null_mut();
        // SAFETY: the output is a live local of the type that the driver fills; it undoes the push above.
        let _ = unsafe { self.ctx_pop(&mut popped) };
        Some(done)
    }

    /// Does something that a capture of any thread would not bear otherwise, such as asking a pool: in the mode in which the
    /// driver lets this thread do it, after which the mode is what it was. NVIDIA's own libcu++ asks pools so (NVIDIA/cccl pull
    /// request 11360). `None`, and nothing done, where there is no such mode.
    pub fn relaxed<T>(&self, what: impl FnOnce() -> T) -> Option<T> {
        let mut mode = CAPTURE_MODE_RELAXED;
        // SAFETY: the mode is a live local, in and out.
        unsafe { self.exchange_capture_mode(&mut mode) }.ok()?;
        let done = what();
        // SAFETY: as above; the mode is the one that was found.
        let _ = unsafe { self.exchange_capture_mode(&mut mode) };
        Some(done)
    }

    fn register(object: &Object) -> Option<usize> {
        let base = object.base();
        let place = |wanted: usize| {
            DRIVERS.iter().position(|driver| {
                driver.base.compare_exchange(wanted, base, Ordering::AcqRel, Ordering::Acquire).is_ok()
            })
        };
        let known = DRIVERS.iter().position(|driver| driver.base.load(Ordering::Acquire) == base);
        let index = known.or_else(|| place(0)).or_else(|| {
            // A copy that was closed leaves its place to the next one.
            let gone = |driver: &&Driver| {
                let base = driver.base.load(Ordering::Acquire);
                object::at(base as *const c_void, |_| ()).is_none()
            };
            place(DRIVERS.iter().find(gone)?.base.load(Ordering::Acquire))
        })?;
        DRIVERS[index].learn(object);
        Some(index)
    }
}

/// Whether an object is one of the driver's libraries, by what it calls itself: it may have been opened from
/// anywhere and under any file name.
pub fn is_driver(object: &Object) -> bool {
    let name = match object.soname() {
        Some(soname) => soname.to_bytes(),
        None => object.path().to_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default(),
    };
    [b"libcuda.so".as_slice(), b"libnvidia-ml.so"].iter().any(|prefix| {
        name.strip_prefix(*prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
    })
}
