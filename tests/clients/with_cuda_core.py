"""cuda.core: its device, buffers from its memory resource, and its own exception when the card is full."""

import sys

import numpy as np
from cuda.bindings import driver
from cuda.core import (
    ContextOptions,
    Device,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    LegacyPinnedMemoryResource,
    SMResourceOptions,
)


def green(device):
    """A context of a share of the card is the primary context's, and costs no second one."""
    groups, _ = device.resources.sm.split(SMResourceOptions(count=8))
    _, free, _ = driver.cuMemGetInfo()
    context = device.create_context(ContextOptions(resources=[groups[0]]))
    assert context.is_green
    assert driver.cuMemGetInfo()[1] == free, "a green context counts as one more context"
    stream = context.create_stream()
    buffer = DeviceMemoryResource(device, DeviceMemoryResourceOptions()).allocate(64 << 20, stream=stream)
    assert driver.cuMemGetInfo()[1] == free - (64 << 20)
    buffer.close(stream)
    stream.sync()
    stream.close()
    context.close()


def main(total):
    device = Device(0)
    device.set_current()
    assert device.name.startswith("Simulated GPU") or "NVIDIA" in device.name, device.name
    assert device.properties.warp_size == 32
    _, free, seen = driver.cuMemGetInfo()
    assert seen == total, f"total {seen}, want {total}"

    stream = device.create_stream()
    size = 4_000_037
    there = np.random.default_rng(3).integers(0, 256, size, dtype=np.uint8)
    pinned = LegacyPinnedMemoryResource()
    source, target = pinned.allocate(size), pinned.allocate(size)
    np.from_dlpack(source)[:].view(np.uint8)[:] = there
    on_card = device.allocate(size, stream=stream)
    assert on_card.is_device_accessible
    on_card.copy_from(source, stream=stream)
    on_card.copy_to(target, stream=stream)
    stream.sync()
    assert np.array_equal(np.from_dlpack(target).view(np.uint8), there), "other bytes came back"
    on_card.close(stream)
    stream.sync()

    pool = DeviceMemoryResource(device, DeviceMemoryResourceOptions())
    buffer = pool.allocate(64 << 20, stream=stream)
    assert pool.attributes.used_mem_current == 64 << 20
    assert pool.attributes.reserved_mem_current >= 64 << 20
    try:
        pool.allocate(total, stream=stream)
    except Exception as error:
        assert "CUDA_ERROR_OUT_OF_MEMORY" in str(error), repr(error)
    else:
        raise AssertionError("a created pool was granted more than there is")
    buffer.close(stream)
    stream.sync()
    assert driver.cuMemGetInfo()[1] == free, "a pool without a threshold keeps nothing"
    green(device)

    try:
        device.allocate(total + (2 << 20), stream=stream)
    except Exception as error:
        assert "CUDA_ERROR_OUT_OF_MEMORY" in str(error), repr(error)
        assert type(error).__module__.startswith("cuda."), f"not an exception of cuda.core: {type(error)!r}"
    else:
        raise AssertionError("more than the whole card was granted")

    half = device.allocate(total // 2, stream=stream)
    _, less, _ = driver.cuMemGetInfo()
    assert less <= free - total // 2, "an allocation must show"
    half.close(stream)
    stream.sync()


main(int(sys.argv[1]))
