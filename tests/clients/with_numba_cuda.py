"""numba-cuda: memory info, a copy there and back, and its own exception when the card is full."""

import sys

import numpy as np
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError

OUT_OF_MEMORY = 2


def main(total):
    context = cuda.current_context()
    info = context.get_memory_info()
    assert info.total == total, f"total {info.total}, want {total}"
    assert 0 < info.free < total, f"free {info.free} of {total}"

    there = np.random.default_rng(7).integers(0, 256, 5_000_011, dtype=np.uint8)
    on_card = cuda.to_device(there)
    assert context.get_memory_info().free < info.free, "an allocation must show"
    back = on_card.copy_to_host()
    assert np.array_equal(there, back), "other bytes came back"

    zeros = cuda.device_array(1 << 20, dtype=np.uint8)
    zeros.copy_to_device(np.zeros(1 << 20, dtype=np.uint8))
    assert not zeros.copy_to_host().any()

    pinned = cuda.pinned_array(4096, dtype=np.uint8)
    pinned[:] = 3
    assert cuda.to_device(pinned).copy_to_host().sum() == 3 * 4096

    managed = cuda.managed_array(1 << 20, dtype=np.uint8)
    managed[:] = 5
    assert managed.sum() == 5 << 20
    mapped = cuda.mapped_array(1000, dtype=np.uint8)
    mapped[:] = 7
    assert mapped.sum() == 7000

    stream = cuda.stream()
    start, end = cuda.event(), cuda.event()
    start.record(stream)
    with stream.auto_synchronize():
        numbers = cuda.to_device(np.arange(100_000), stream=stream)
        again = numbers.copy_to_host(stream=stream)
    end.record(stream)
    end.synchronize()
    assert again[99_999] == 99_999 and cuda.event_elapsed_time(start, end) >= 0
    assert (numbers[10:20].copy_to_host() == np.arange(10, 20)).all()

    try:
        cuda.device_array(total + (1 << 20), dtype=np.uint8)
    except CudaAPIError as error:
        assert error.code == OUT_OF_MEMORY, error
    else:
        raise AssertionError("more than the whole card was granted")

    free = context.get_memory_info().free
    large = cuda.device_array(free // 2, dtype=np.uint8)
    assert context.get_memory_info().free <= free - free // 2, "a large allocation must show"
    del large
    context.deallocations.clear()
    assert context.get_memory_info().free == free, "and be back when it is gone"

    # Resets the device, with frees still pending and no context current.
    cuda.to_device(there)
    cuda.close()


main(int(sys.argv[1]))
