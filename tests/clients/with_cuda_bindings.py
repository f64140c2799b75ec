"""cuda-bindings, the driver interface: every result code is looked at."""

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


def main(total):
    ok(driver.cuInit(0))
    assert ok(driver.cuDriverGetVersion()) >= 12000
    assert ok(driver.cuDeviceGetCount()) == 1
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
