"""Packs the command and the library as a Python wheel: `pip install` puts them into bin/ and lib/cuquota/.

Usage: wheel.py VERSION MACHINE DIRECTORY OUTPUT    (DIRECTORY holds cuquota and libcuquota.so)
"""

import base64
import hashlib
import os
import sys
import time
import zipfile

version, machine, directory, output = sys.argv[1:]
name = f"cuquota-{version}"
tags = [f"py3-none-manylinux_2_17_{machine}", f"py3-none-manylinux2014_{machine}"]
readme = open("README.md", encoding="utf-8").read()
metadata = f"""Metadata-Version: 2.1
Name: cuquota
Version: {version}
Summary: ulimit for GPU memory: holds a container to a budget, on unmodified images and frameworks
License: Apache-2.0
Requires-Python: >=3.7
Description-Content-Type: text/markdown

{readme}"""
wheel = "Wheel-Version: 1.0\nGenerator: cuquota\nRoot-Is-Purelib: false\n" + "".join(f"Tag: {t}\n" for t in tags)


def binary(file):
    with open(os.path.join(directory, file), "rb") as source:
        return source.read()


files = {
    f"{name}.data/scripts/cuquota": (binary("cuquota"), 0o755),
    f"{name}.data/data/lib/cuquota/libcuquota.so": (binary("libcuquota.so"), 0o644),
    f"{name}.dist-info/METADATA": (metadata.encode(), 0o644),
    f"{name}.dist-info/WHEEL": (wheel.encode(), 0o644),
    f"{name}.dist-info/LICENSE": (open("LICENSE", "rb").read(), 0o644),
}
record = f"{name}.dist-info/RECORD"
lines = []
for path, (content, _) in files.items():
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    lines.append(f"{path},sha256={digest},{len(content)}\n")
files[record] = ("".join([*lines, f"{record},,\n"]).encode(), 0o644)

# A zip file cannot be older than 1980.
date = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800))[:6]
path = os.path.join(output, f"{name}-py3-none-manylinux_2_17_{machine}.manylinux2014_{machine}.whl")
with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
    for file, (content, mode) in files.items():
        info = zipfile.ZipInfo(file, date)
        info.external_attr = (0o100000 | mode) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(info, content)
