"""cuda-bindings, the driver interface: every result code is looked at."""

import ctypes
import sys

import numpy as np
from cuda.bindings import driver


def ok(answer):
    code, *values = answer
    assert code == driver.CUresult.CUDA_SUCCESS, f"{code!r}: {ok_text(code)}"
    return values[0] if len(values) == 1 else values


def ok_text(code):
    _, name = driver.cuGetErrorName(code)
    _, text = driver.cuGetErrorString(code)
    return f"{name.decode()} ({text.decode()})"


def refused(answer):
    assert answer[0] == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY, f"want out of memory, got {answer[0]!r}"


def pitched(bytes_there):
    """Rows of 1000 bytes, each at the pitch that the driver chose."""
    rows = bytes_there[: 1000 * 300].reshape(300, 1000)
    address, pitch = ok(driver.cuMemAllocPitch(1000, 300, 4))
    copy = driver.CUDA_MEMCPY2D()
    copy.srcMemoryType, copy.srcHost, copy.srcPitch = driver.CUmemorytype.CU_MEMORYTYPE_HOST, rows.ctypes.data, 1000
    copy.dstMemoryType, copy.dstDevice, copy.dstPitch = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE, address, pitch
    copy.WidthInBytes, copy.Height = 1000, 300
    ok(driver.cuMemcpy2D(copy))
    row = np.zeros(1000, dtype=np.uint8)
    ok(driver.cuMemcpyDtoH(row.ctypes.data, int(address) + 299 * pitch, 1000))
    assert np.array_equal(row, rows[299]), "other bytes in the last row"
    ok(driver.cuMemFree(address))


def managed():
    """Memory of both sides, which the driver says is managed."""
    flags = driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value
    address = ok(driver.cuMemAllocManaged(4 << 20, flags))
    ok(driver.cuMemsetD8(address, 9, 4 << 20))
    assert (np.ctypeslib.as_array((ctypes.c_uint8 * (4 << 20)).from_address(int(address))) == 9).all()
    is_managed = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED
    assert ok(driver.cuPointerGetAttribute(is_managed, address))
    ok(driver.cuMemFree(address))


def virtual(device, bytes_there, total):
    """Reserved addresses, and physical memory that stays until its handle and its mapping are gone."""
    prop = driver.CUmemAllocationProp()
    prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type, prop.location.id = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, int(device)
    minimum = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    granularity = ok(driver.cuMemGetAllocationGranularity(prop, minimum))
    size = 4 * granularity
    before = ok(driver.cuMemGetInfo())[0]
    address = ok(driver.cuMemAddressReserve(4 * total, 0, 0, 0))
    assert ok(driver.cuMemGetInfo())[0] == before, "addresses cost no memory"
    handle = ok(driver.cuMemCreate(size, prop, 0))
    ok(driver.cuMemMap(address, size, 0, handle, 0))
    ok(driver.cuMemRelease(handle))
    access = driver.CUmemAccessDesc()
    access.location = prop.location
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ok(driver.cuMemSetAccess(address, size, [access], 1))
    assert ok(driver.cuMemGetInfo())[0] == before - size, "the mapping keeps the memory"
    back = np.zeros_like(bytes_there)
    ok(driver.cuMemcpyHtoD(address, bytes_there.ctypes.data, bytes_there.nbytes))
    ok(driver.cuMemcpyDtoH(back.ctypes.data, address, back.nbytes))
    assert np.array_equal(bytes_there, back), "other bytes came back from the mapping"
    ok(driver.cuMemUnmap(address, size))
    assert ok(driver.cuMemGetInfo())[0] == before, "and is its last holder"
    ok(driver.cuMemAddressFree(address, 4 * total))
    refused(driver.cuMemCreate((total // granularity + 1) * granularity, prop, 0))


def on_card(device):
    prop = driver.CUmemAllocationProp()
    prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type, prop.location.id = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, int(device)
    return prop


def has(attribute, device):
    return ok(driver.cuDeviceGetAttribute(getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{attribute}"), device))


def sparse(device):
    """A mipmapped array with no memory but what is mapped into it, which stays without its handle."""
    if not has("SPARSE_CUDA_ARRAY_SUPPORTED", device):
        return
    shape = driver.CUDA_ARRAY3D_DESCRIPTOR()
    shape.Width, shape.Height, shape.NumChannels = 4096, 4096, 1
    shape.Format, shape.Flags = driver.CUarray_format.CU_AD_FORMAT_FLOAT, driver.CUDA_ARRAY3D_SPARSE
    before = ok(driver.cuMemGetInfo())[0]
    array = ok(driver.cuMipmappedArrayCreate(shape, 13))
    assert ok(driver.cuMemGetInfo())[0] == before, "a sparse array takes no memory"
    properties = ok(driver.cuMipmappedArrayGetSparseProperties(array))
    tile = properties.tileExtent
    assert tile.width * tile.height * 4 == 64 << 10 and properties.miptailFirstLevel > 0
    handle = ok(driver.cuMemCreate(32 << 20, on_card(device), 0))
    info = driver.CUarrayMapInfo()
    info.resourceType, info.resource.mipmap = driver.CUresourcetype.CU_RESOURCE_TYPE_MIPMAPPED_ARRAY, array
    info.subresourceType = driver.CUarraySparseSubresourceType.CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL
    level = info.subresource.sparseLevel
    level.level, level.offsetX, level.extentWidth, level.extentHeight, level.extentDepth = 1, tile.width, tile.width, tile.height, 1
    info.memOperationType = driver.CUmemOperationType.CU_MEM_OPERATION_TYPE_MAP
    info.memHandleType = driver.CUmemHandleType.CU_MEM_HANDLE_TYPE_GENERIC
    info.memHandle.memHandle, info.deviceBitMask = handle, 1 << int(device)
    ok(driver.cuMemMapArrayAsync([info], 1, 0))
    ok(driver.cuMemRelease(handle))
    assert ok(driver.cuMemGetInfo())[0] == before - (32 << 20), "the tile keeps the memory"
    info.memOperationType = driver.CUmemOperationType.CU_MEM_OPERATION_TYPE_UNMAP
    info.memHandle.memHandle = 0
    ok(driver.cuMemMapArrayAsync([info], 1, 0))
    ok(driver.cuStreamSynchronize(0))
    assert ok(driver.cuMemGetInfo())[0] == before, "and is its last holder"
    ok(driver.cuMipmappedArrayDestroy(array))


def multicast(device):
    """Memory that is bound to a multicast object stays without its handle."""
    if not has("MULTICAST_SUPPORTED", device):
        return
    properties = driver.CUmulticastObjectProp()
    properties.numDevices, properties.size = 1, 64 << 20
    before = ok(driver.cuMemGetInfo())[0]
    team = ok(driver.cuMulticastCreate(properties))
    ok(driver.cuMulticastAddDevice(team, device))
    handle = ok(driver.cuMemCreate(32 << 20, on_card(device), 0))
    ok(driver.cuMulticastBindMem(team, 32 << 20, handle, 0, 32 << 20, 0))
    ok(driver.cuMemRelease(handle))
    assert ok(driver.cuMemGetInfo())[0] == before - (32 << 20), "the binding keeps the memory"
    ok(driver.cuMulticastUnbind(team, device, 32 << 20, 32 << 20))
    assert ok(driver.cuMemGetInfo())[0] == before, "and is its last holder"
    ok(driver.cuMemRelease(team))


def green(device):
    """A green context in the place of the primary context, in which its memory stays."""
    everything = ok(driver.cuDeviceGetDevResource(device, driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM))
    (share,), count, rest = ok(driver.cuDevSmResourceSplitByCount(1, everything, 0, 8))
    assert count == 1 and share.sm.smCount + rest.sm.smCount == everything.sm.smCount
    desc = ok(driver.cuDevResourceGenerateDesc([share], 1))
    primary = ok(driver.cuCtxGetCurrent())
    before = ok(driver.cuMemGetInfo())[0]
    context = ok(driver.cuGreenCtxCreate(desc, device, driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM))
    ok(driver.cuCtxSetCurrent(ok(driver.cuCtxFromGreenCtx(context))))
    assert ok(driver.cuMemGetInfo())[0] == before, "the primary context is there already"
    stream = ok(driver.cuGreenCtxStreamCreate(context, driver.CUstream_flags.CU_STREAM_NON_BLOCKING, 0))
    assert int(ok(driver.cuStreamGetGreenCtx(stream))) == int(context)
    address = ok(driver.cuMemAlloc(64 << 20))
    assert ok(driver.cuMemGetInfo())[0] == before - (64 << 20)
    ok(driver.cuStreamDestroy(stream))
    ok(driver.cuCtxSetCurrent(primary))
    ok(driver.cuGreenCtxDestroy(context))
    assert ok(driver.cuMemGetInfo())[0] == before - (64 << 20), "the memory is the primary context's"
    ok(driver.cuMemFree(address))
    assert ok(driver.cuMemGetInfo())[0] == before


def main(total):
    ok(driver.cuInit(0))
    assert ok(driver.cuDriverGetVersion()) >= 12000
    assert ok(driver.cuDeviceGetCount()) >= 1
    device = ok(driver.cuDeviceGet(0))
    assert ok(driver.cuDeviceTotalMem(device)) == total
    context = ok(driver.cuDevicePrimaryCtxRetain(device))
    ok(driver.cuCtxSetCurrent(context))
    free, seen = ok(driver.cuMemGetInfo())
    assert seen == total, f"total {seen}, want {total}"

    there = np.random.default_rng(11).integers(0, 256, 3_000_017, dtype=np.uint8)
    back = np.zeros_like(there)
    address = ok(driver.cuMemAlloc(there.nbytes))
    ok(driver.cuMemcpyHtoD(address, there.ctypes.data, there.nbytes))
    ok(driver.cuMemcpyDtoH(back.ctypes.data, address, back.nbytes))
    assert np.array_equal(there, back), "other bytes came back"
    ok(driver.cuMemsetD8(address, 0x5A, 4096))
    ok(driver.cuMemcpyDtoH(back.ctypes.data, address, 4096))
    assert (back[:4096] == 0x5A).all()
    ok(driver.cuMemFree(address))
    assert ok(driver.cuMemGetInfo())[0] == free, "freed memory must be back"

    pitched(there)
    managed()
    virtual(device, there, total)
    sparse(device)
    multicast(device)
    green(device)

    stream = ok(driver.cuStreamCreate(0))
    address = ok(driver.cuMemAllocAsync(there.nbytes, stream))
    ok(driver.cuMemcpyHtoDAsync(address, there.ctypes.data, there.nbytes, stream))
    ok(driver.cuMemcpyDtoHAsync(back.ctypes.data, address, back.nbytes, stream))
    ok(driver.cuStreamSynchronize(stream))
    assert np.array_equal(there, back), "other bytes came back from the pool"
    ok(driver.cuMemFreeAsync(address, stream))
    ok(driver.cuStreamSynchronize(stream))
    refused(driver.cuMemAllocAsync(total + (2 << 20), stream))
    ok(driver.cuStreamDestroy(stream))

    refused(driver.cuMemAlloc(total + (2 << 20)))
    refused(driver.cuMemAlloc(total - (2 << 20)))  # the context itself takes more than that
    half = ok(driver.cuMemAlloc(total // 2))
    refused(driver.cuMemAlloc(total // 2))
    ok(driver.cuMemFree(half))
    ok(driver.cuDevicePrimaryCtxRelease(device))


main(int(sys.argv[1]))
