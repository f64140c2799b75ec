"""gpustat: its query, and the command itself as a person or a script runs it."""

import json
import os
import subprocess
import sys

import gpustat
from holder import Holder

MIB = 1 << 20


def main(total):
    holder = Holder(1 << 30)
    card = gpustat.new_query().gpus[0]
    assert card.memory_total == total // MIB, f"total {card.memory_total} MiB, want {total // MIB}"
    assert card.memory_used >= 1024, f"used {card.memory_used} MiB"
    assert abs(card.memory_total - holder.free // MIB - card.memory_used) <= 1, "CUDA and NVML agree"
    mine = [p for p in card.processes if p["pid"] == os.getpid()]
    assert len(mine) == 1 and mine[0]["gpu_memory_usage"] >= 1024, card.processes
    assert card.uuid == holder.uuid

    command = [sys.executable, "-m", "gpustat"]
    report = json.loads(subprocess.run([*command, "--json"], check=True, capture_output=True, text=True).stdout)
    assert report["gpus"][0]["memory.total"] == total // MIB, report
    table = subprocess.run([*command, "--no-color", "-cpu"], check=True, capture_output=True, text=True).stdout
    assert f"/ {total // MIB:5d} MB" in table, table
    holder.close()


main(int(sys.argv[1]))
