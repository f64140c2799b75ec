"""Holds memory on the first card through the driver interface while a monitor is asked what it sees."""

from cuda.bindings import driver


def ok(answer):
    assert answer[0] == driver.CUresult.CUDA_SUCCESS, repr(answer[0])
    return answer[1] if len(answer) > 1 else None


class Holder:
    """A context and one allocation of `size` bytes, until `close`."""

    def __init__(self, size):
        ok(driver.cuInit(0))
        self.device = ok(driver.cuDeviceGet(0))
        ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(self.device))))
        self.address = ok(driver.cuMemAlloc(size))
        uuid = ok(driver.cuDeviceGetUuid(self.device)).bytes.hex()
        self.uuid = f"GPU-{uuid[:8]}-{uuid[8:12]}-{uuid[12:16]}-{uuid[16:20]}-{uuid[20:]}"
        self.free = driver.cuMemGetInfo()[1]

    def close(self):
        ok(driver.cuMemFree(self.address))
        ok(driver.cuDevicePrimaryCtxRelease(self.device))
