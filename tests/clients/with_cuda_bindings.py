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
