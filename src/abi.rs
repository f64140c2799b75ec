//! The driver's binary interface, as far as a hook must read it: types, codes and layouts.
//!
//! Facts of the interface, from the public CUDA driver API and NVML references; layouts are asserted below.

#![allow(non_camel_case_types, missing_docs)]

use core::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

/// A `CUresult` or an `nvmlReturn_t`: both are C enums that fit an `int`, and 0 is success in both.
pub type Code = c_int;

pub const SUCCESS: Code = 0;

/// `CUresult` values that the library itself answers.
pub mod cuda {
    use super::Code;
    pub const INVALID_VALUE: Code = 1;
    pub const OUT_OF_MEMORY: Code = 2;
    pub const NOT_FOUND: Code = 500;
    pub const NOT_PERMITTED: Code = 800;
    pub const STREAM_CAPTURE_UNSUPPORTED: Code = 900;
    pub const UNKNOWN: Code = 999;
}

/// `nvmlReturn_t` values that the library itself answers.
pub mod nvml {
    use super::Code;
    pub const NO_PERMISSION: Code = 4;
    pub const FUNCTION_NOT_FOUND: Code = 13;
    pub const UNKNOWN: Code = 999;
}

/// A device ordinal, as `CUDA_VISIBLE_DEVICES` left it.
pub type CUdevice = c_int;
/// A device address.
pub type CUdeviceptr = c_ulonglong;
/// A device address of the 32-bit interface before CUDA 3.2.
pub type CUdeviceptr_v1 = c_uint;

/// Declares handles: pointers to something that only the driver looks into.
macro_rules! handles {
    ($($name:ident),*) => {$(
        #[doc = concat!("Opaque `", stringify!($name), "`; only ever compared and passed on.")]
        pub type $name = *mut c_void;
    )*};
}
handles!(CUcontext, CUstream, CUevent, CUmemoryPool, CUarray, CUmipmappedArray, nvmlDevice_t);
handles!(CUgraph, CUgraphNode, CUgraphExec, CUgreenCtx, CUexternalMemory);
handles!(CUmodule, CUlibrary, CUfunction, CUkernel);

/// A physical allocation of the virtual memory interface.
pub type CUmemGenericAllocationHandle = c_ulonglong;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CUuuid {
    pub bytes: [u8; 16],
}

/// `CUmemLocation`: where memory lies.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUmemLocation {
    pub kind: c_int,
    pub id: c_int,
}
/// `CU_MEM_ALLOCATION_TYPE_MANAGED`.
pub const ALLOCATION_MANAGED: c_int = 2;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
pub const LOCATION_DEVICE: c_int = 1;

/// `CUmemAllocationProp`, as `cuMemCreate` takes it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CUmemAllocationProp {
    pub kind: c_int,
    pub requested_handle_types: c_int,
    pub location: CUmemLocation,
    pub win32_handle_metadata: *mut c_void,
    pub alloc_flags: [u8; 8],
}

/// `CUipcMemHandle`; `CUmemFabricHandle` and `CUmemPoolPtrExportData` are as long.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CUipcMemHandle {
    pub bytes: [u8; 64],
}
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub const HANDLE_DESCRIPTOR: c_int = 1;
/// `CU_MEM_HANDLE_TYPE_FABRIC`.
pub const HANDLE_FABRIC: c_int = 8;

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
    pub kind: c_int,
    pub handle: [*mut c_void; 2],
    pub size: c_ulonglong,
    pub flags: c_uint,
    pub reserved: [c_uint; 16],
}

/// `CUmemPoolProps`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CUmemPoolProps {
    pub kind: c_int,
    pub handle_types: c_int,
    pub location: CUmemLocation,
    pub win32_security_attributes: *mut c_void,
    pub max_size: usize,
    pub reserved: [u8; 56],
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CUDA_MEM_ALLOC_NODE_PARAMS {
    pub pool: CUmemPoolProps,
    pub access: *const c_void,
    pub access_count: usize,
    pub bytes: usize,
    pub address: CUdeviceptr,
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CUDA_GRAPH_INSTANTIATE_PARAMS {
    pub flags: c_ulonglong,
    pub upload_stream: CUstream,
    pub error_node: CUgraphNode,
    pub result: c_int,
}
/// `CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD`.
pub const INSTANTIATE_UPLOAD: c_ulonglong = 2;
/// `CUlimit`: bytes of stack of each thread.
pub const LIMIT_STACK_SIZE: c_int = 0;
/// `CUlimit`: bytes of the buffer of `printf`.
pub const LIMIT_PRINTF_FIFO_SIZE: c_int = 1;
/// `CUlimit`: bytes of the heap of `malloc` in kernels.
pub const LIMIT_MALLOC_HEAP_SIZE: c_int = 2;
/// `CUdevice_attribute`: `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
pub const ATTRIBUTE_MULTIPROCESSORS: c_int = 16;
/// `CUdevice_attribute`: `CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR`.
pub const ATTRIBUTE_THREADS_PER_MULTIPROCESSOR: c_int = 39;
/// `CU_EVENT_DISABLE_TIMING`.
pub const EVENT_DISABLE_TIMING: c_uint = 2;
/// `CU_STREAM_PER_THREAD`: the thread's own default stream; smaller numbers are the legacy one.
pub const PER_THREAD_STREAM: CUstream = 2 as CUstream;
/// `CUgraphNodeType`: `CU_GRAPH_NODE_TYPE_GRAPH`.
pub const NODE_GRAPH: c_int = 4;
/// `CUgraphNodeType`: `CU_GRAPH_NODE_TYPE_MEM_ALLOC`.
pub const NODE_MEM_ALLOC: c_int = 10;
/// `CUgraphNodeType`: `CU_GRAPH_NODE_TYPE_MEM_FREE`.
pub const NODE_MEM_FREE: c_int = 11;
/// `CUgraphMem_attribute`: `CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT`, a `cuuint64_t`.
pub const GRAPH_ATTRIBUTE_USED_CURRENT: c_int = 0;
/// `CUgraphMem_attribute`: `CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT`, a `cuuint64_t`.
pub const GRAPH_ATTRIBUTE_RESERVED_CURRENT: c_int = 2;

/// `CUDA_ARRAY_DESCRIPTOR` (version 2).
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CUDA_ARRAY_DESCRIPTOR {
    pub width: usize,
    pub height: usize,
    pub format: c_int,
    pub num_channels: c_uint,
}

/// `CUDA_ARRAY_DESCRIPTOR` before CUDA 3.2.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CUDA_ARRAY_DESCRIPTOR_v1 {
    pub width: c_uint,
    pub height: c_uint,
    pub format: c_int,
    pub num_channels: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR` (version 2).
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CUDA_ARRAY3D_DESCRIPTOR {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
    pub format: c_int,
    pub num_channels: c_uint,
    pub flags: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR` before CUDA 3.2.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CUDA_ARRAY3D_DESCRIPTOR_v1 {
    pub width: c_uint,
    pub height: c_uint,
    pub depth: c_uint,
    pub format: c_int,
    pub num_channels: c_uint,
    pub flags: c_uint,
}

/// `CUarrayMapInfo`: one operation of `cuMemMapArrayAsync`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CUarrayMapInfo {
    pub resource_kind: c_int,
    /// An array or a mipmapped array.
    pub resource: *mut c_void,
    pub subresource_kind: c_int,
    pub subresource: CUarraySubresource,
    pub operation: c_int,
    pub handle_kind: c_int,
    pub handle: CUmemGenericAllocationHandle,
    pub offset: c_ulonglong,
    pub device_mask: c_uint,
    pub flags: c_uint,
    pub reserved: [c_uint; 2],
}
/// What [`CUarrayMapInfo::subresource_kind`] tells apart.
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUarraySubresource {
    pub level: CUarraySparseLevel,
    pub tail: CUarrayMiptail,
}
/// Tiles of a level.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CUarraySparseLevel {
    pub level: c_uint,
    pub layer: c_uint,
    /// In x, y and z, in elements.
    pub offset: [c_uint; 3],
    pub extent: [c_uint; 3],
}
/// Bytes of the tail that small levels share.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CUarrayMiptail {
    pub layer: c_uint,
    pub offset: c_ulonglong,
    pub size: c_ulonglong,
}
/// `CUarraySparseSubresourceType`: `CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL`.
pub const SUBRESOURCE_MIPTAIL: c_int = 1;
/// `CUmemOperationType`: `CU_MEM_OPERATION_TYPE_MAP`.
pub const OPERATION_MAP: c_int = 1;

/// `nvmlMemory_t`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct nvmlMemory_t {
    pub total: c_ulonglong,
    pub free: c_ulonglong,
    pub used: c_ulonglong,
}

/// `nvmlMemory_v2_t`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct nvmlMemory_v2_t {
    pub version: c_uint,
    pub total: c_ulonglong,
    pub reserved: c_ulonglong,
    pub free: c_ulonglong,
    pub used: c_ulonglong,
}

/// `nvmlPciInfo_t`, versions 2 and 3.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct nvmlPciInfo_t {
    pub bus_id_legacy: [c_char; 16],
    pub domain: c_uint,
    pub bus: c_uint,
    pub device: c_uint,
    pub pci_device_id: c_uint,
    pub pci_subsystem_id: c_uint,
    pub bus_id: [c_char; 32],
}

/// `CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS`.
pub const DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS: c_int = 89;
/// `CU_MEM_ATTACH_GLOBAL`.
pub const ATTACH_GLOBAL: c_uint = 1;
/// `CU_MEM_ADVISE_SET_PREFERRED_LOCATION`.
pub const ADVISE_SET_PREFERRED_LOCATION: c_int = 3;
/// `CU_MEM_ADVISE_SET_ACCESSED_BY`.
pub const ADVISE_SET_ACCESSED_BY: c_int = 5;
/// `CU_DEVICE_CPU`: the host, where the interface names it by a device.
pub const DEVICE_CPU: CUdevice = -1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
pub const CAPTURE_MODE_RELAXED: c_int = 2;
/// `CUpointer_attribute`: `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`, an `unsigned`.
pub const POINTER_ATTRIBUTE_MEMORY_TYPE: c_int = 2;
/// `CU_MEMORYTYPE_DEVICE`.
pub const MEMORY_TYPE_DEVICE: c_uint = 2;
/// `CUpointer_attribute`: `CU_POINTER_ATTRIBUTE_HOST_POINTER`.
pub const POINTER_ATTRIBUTE_HOST_POINTER: c_int = 4;
/// `CUpointer_attribute`: `CU_POINTER_ATTRIBUTE_BUFFER_ID`, an `unsigned long long`.
pub const POINTER_ATTRIBUTE_BUFFER_ID: c_int = 7;
/// `CUpointer_attribute`: `CU_POINTER_ATTRIBUTE_IS_MANAGED`.
pub const POINTER_ATTRIBUTE_IS_MANAGED: c_int = 8;
/// `CUpointer_attribute`: `CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE`.
pub const POINTER_ATTRIBUTE_MEMPOOL_HANDLE: c_int = 17;
/// `CUpointer_attribute`: `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`, an `int`.
pub const POINTER_ATTRIBUTE_DEVICE_ORDINAL: c_int = 9;
/// `CUmemPool_attribute`: `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`, a `cuuint64_t`.
pub const POOL_ATTRIBUTE_RESERVED_CURRENT: c_int = 5;
/// `CUmemPool_attribute`: `CU_MEMPOOL_ATTR_USED_MEM_CURRENT`, a `cuuint64_t`.
pub const POOL_ATTRIBUTE_USED_CURRENT: c_int = 7;
/// `CUstreamCaptureStatus`: `CU_STREAM_CAPTURE_STATUS_NONE`.
pub const CAPTURE_STATUS_NONE: c_int = 0;

/// `NVML_DEVICE_UUID_V2_BUFFER_SIZE`, and room to spare.
pub const UUID_TEXT: usize = 96;

const _: () = {
    assert!(size_of::<CUuuid>() == 16);
    assert!(size_of::<CUipcMemHandle>() == 64);
    assert!(size_of::<CUDA_EXTERNAL_MEMORY_HANDLE_DESC>() == 104);
    assert!(core::mem::offset_of!(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size) == 24);
    assert!(size_of::<CUmemAllocationProp>() == 32);
    assert!(size_of::<CUmemPoolProps>() == 88);
    assert!(size_of::<CUDA_MEM_ALLOC_NODE_PARAMS>() == 120);
    assert!(size_of::<CUDA_GRAPH_INSTANTIATE_PARAMS>() == 32);
    assert!(size_of::<CUDA_ARRAY_DESCRIPTOR>() == 24);
    assert!(size_of::<CUDA_ARRAY3D_DESCRIPTOR>() == 40);
    assert!(size_of::<CUarrayMapInfo>() == 96);
    assert!(size_of::<nvmlPciInfo_t>() == 68);
    assert!(size_of::<nvmlMemory_t>() == 24);
    assert!(size_of::<nvmlMemory_v2_t>() == 40);
};
