"""nvitop: devices, snapshots and processes of its library, and its one-shot screen."""

import os
import subprocess
import sys

from holder import Holder
from nvitop import CudaDevice, Device

GIB = 1 << 30


def main(total):
    holder = Holder(GIB)
    assert Device.count() >= 1
    card = Device(0)
    assert card.uuid() == holder.uuid
    assert card.memory_total() == total, f"total {card.memory_total()}, want {total}"
    assert card.memory_free() == holder.free, f"NVML says {card.memory_free()}, CUDA {holder.free}"
    assert card.memory_used() >= GIB
    processes = card.processes()
    assert processes[os.getpid()].gpu_memory() >= GIB, processes
    snapshot = card.as_snapshot()
    assert snapshot.memory_total == total and snapshot.name, snapshot
    assert CudaDevice(0).uuid() == holder.uuid

    screen = subprocess.run([sys.executable, "-m", "nvitop", "--once", "--ascii"], check=True, capture_output=True, text=True)
    assert f"/ {total // (1 << 20)}MiB" in screen.stdout or f"/ {total / GIB:.2f}GiB" in screen.stdout, screen.stdout
    holder.close()


main(int(sys.argv[1]))
