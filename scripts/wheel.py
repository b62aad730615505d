"""Makes a wheel that carries the binary: wheel.py BINARY VERSION FOLDER. Prints the file's name."""

import base64
import hashlib
import sys
import zipfile
from pathlib import Path

binary, version, folder = sys.argv[1:]
# A static binary runs on any Linux of this processor; the tags name the oldest ones that pip knows.
tag = "py3-none-manylinux2014_x86_64.musllinux_1_1_x86_64"
name = f"piton_cli-{version}-{tag}.whl"
info = f"piton_cli-{version}.dist-info"
files = {
    f"piton_cli-{version}.data/scripts/piton": Path(binary).read_bytes(),
    f"{info}/METADATA": (
        f"Metadata-Version: 2.1\nName: piton-cli\nVersion: {version}\n"
        "Summary: Durable, resumable sessions for AI agents\nLicense: MIT OR Apache-2.0\n"
    ).encode(),
    f"{info}/WHEEL": (
        "Wheel-Version: 1.0\nGenerator: piton\nRoot-Is-Purelib: false\n"
        "Tag: py3-none-manylinux2014_x86_64\nTag: py3-none-musllinux_1_1_x86_64\n"
    ).encode(),
}
record = ""
with zipfile.ZipFile(Path(folder) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
    for path, data in files.items():
        entry = zipfile.ZipInfo(path)
        entry.external_attr = (0o100755 if path.endswith("/piton") else 0o100644) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        wheel.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(data)}\n"
    wheel.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
print(name)
