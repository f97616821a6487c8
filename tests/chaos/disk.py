"""A disk that fails on demand: disk_faults.c, compiled here, loaded into a broker with LD_PRELOAD."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("disk_faults.c")
HEALTHY = 0


def compiler() -> str | None:
    """A C compiler, if there is one."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


class FaultyDisk:
    """The disk of one node: what lies below `path`."""

    def __init__(self, library: Path, control: Path, path: Path) -> None:
        self._control = control
        control.write_bytes(struct.pack("i", HEALTHY))
        self.environment = {"LD_PRELOAD": str(library), "CHAOS_DISK_CONTROL": str(control), "CHAOS_DISK_PREFIX": str(path)}

    def fail(self, code: int) -> None:
        """From now on every write and flush fails with this errno."""
        with self._control.open("r+b") as file:
            file.write(struct.pack("i", code))

    def heal(self) -> None:
        """The disk works again."""
        self.fail(HEALTHY)


def build(directory: Path) -> Path:
    """Compile the library. Raises CalledProcessError."""
    found = compiler()
    assert found is not None
    library = directory / "disk_faults.so"
    subprocess.run([found, "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"], check=True, capture_output=True)
    return library
