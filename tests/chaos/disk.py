"""A disk that fails or is slow on demand: disk_faults.c, compiled here, loaded into a broker with LD_PRELOAD."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("disk_faults.c")
HEALTHY = 0
#: `struct control`: errno, delay in ms, delayed calls of other threads and of the main thread, and the names of the latter.
CONTROL = struct.Struct("4i4080s")


def compiler() -> str | None:
    """A C compiler, if there is one."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


class FaultyDisk:
    """The disk of one node: what lies below `path`."""

    def __init__(self, library: Path, control: Path, path: Path) -> None:
        self._control = control
        control.write_bytes(bytes(CONTROL.size))
        self.environment = {"LD_PRELOAD": str(library), "CHAOS_DISK_CONTROL": str(control), "CHAOS_DISK_PREFIX": str(path)}

    def fail(self, code: int) -> None:
        """From now on every write and flush fails with this errno."""
        self._set(code, 0)

    def slow(self, delay_ms: int) -> None:
        """From now on every call that may wait for a disk takes this long, and nothing is in the page cache."""
        self._set(HEALTHY, delay_ms)

    def heal(self) -> None:
        """The disk works again."""
        self._set(HEALTHY, 0)

    def _set(self, code: int, delay_ms: int) -> None:
        with self._control.open("r+b") as file:
            file.write(struct.pack("2i", code, delay_ms))

    @property
    def delayed(self) -> int:
        """How many calls of other threads than the main one waited for the slow disk, in all."""
        return int(CONTROL.unpack(self._control.read_bytes())[2])

    @property
    def delayed_on_loop(self) -> list[str]:
        """The calls of the main thread, which runs the event loop, that waited: name and path below `path`, in their order."""
        _, _, _, count, named = CONTROL.unpack(self._control.read_bytes())
        calls = named.rstrip(b"\0").decode(errors="replace").splitlines()
        return calls + ["..."] * (count - len(calls))


def build(directory: Path) -> Path:
    """Compile the library. Raises CalledProcessError."""
    found = compiler()
    assert found is not None
    library = directory / "disk_faults.so"
    subprocess.run([found, "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"], check=True, capture_output=True)
    return library
