"""nvidia-ml-py: identity, both memory structures, and the process that holds memory."""

import os
import sys

import pynvml as nvml
from holder import Holder

GIB = 1 << 30


def main(total):
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetCount() >= 1
    assert nvml.nvmlSystemGetDriverVersion().count(".") >= 1
    assert nvml.nvmlSystemGetCudaDriverVersion() >= 12000
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    before = nvml.nvmlDeviceGetMemoryInfo(card)
    assert before.total == total, f"total {before.total}, want {total}"
    assert before.total == before.free + before.used, "version 1 adds up"

    holder = Holder(GIB)
    assert nvml.nvmlDeviceGetUUID(card) == holder.uuid, "CUDA and NVML name the same card"
    during = nvml.nvmlDeviceGetMemoryInfo(card)
    assert during.total == total and during.used >= before.used + GIB, "the allocation must show"
    assert during.free == holder.free, f"NVML says {during.free}, CUDA {holder.free}"
    second = nvml.nvmlDeviceGetMemoryInfo(card, version=nvml.nvmlMemory_v2)
    assert (second.total, second.free) == (during.total, during.free), "both versions agree"
    assert second.total == second.free + second.used + second.reserved, "version 2 adds up"

    mine = [p for p in nvml.nvmlDeviceGetComputeRunningProcesses(card) if p.pid == os.getpid()]
    assert len(mine) == 1 and mine[0].usedGpuMemory >= GIB, mine
    assert "python" in os.path.basename(nvml.nvmlSystemGetProcessName(os.getpid()))
    assert nvml.nvmlDeviceGetGraphicsRunningProcesses(card) == []

    pci = nvml.nvmlDeviceGetPciInfo(card)
    by_bus = nvml.nvmlDeviceGetHandleByPciBusId(pci.busId)
    by_uuid = nvml.nvmlDeviceGetHandleByUUID(holder.uuid)
    assert nvml.nvmlDeviceGetIndex(by_bus) == nvml.nvmlDeviceGetIndex(by_uuid) == 0
    assert nvml.nvmlDeviceGetName(card)
    assert 0 <= nvml.nvmlDeviceGetUtilizationRates(card).gpu <= 100
    assert 0 < nvml.nvmlDeviceGetTemperature(card, nvml.NVML_TEMPERATURE_GPU) < 120
    assert nvml.nvmlDeviceGetPowerUsage(card) <= nvml.nvmlDeviceGetEnforcedPowerLimit(card)

    holder.close()
    after = nvml.nvmlDeviceGetMemoryInfo(card)
    assert after.used == before.used, "and gone when it is freed"
    try:
        nvml.nvmlDeviceGetHandleByIndex(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError_InvalidArgument:
        pass
    else:
        raise AssertionError("there is no such card")
    nvml.nvmlShutdown()
    try:
        nvml.nvmlDeviceGetCount()
    except nvml.NVMLError_Uninitialized:
        pass
    else:
        raise AssertionError("NVML answers after its shutdown")


main(int(sys.argv[1]))
