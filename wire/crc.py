"""CRC-32C (Castagnoli, RFC 3720) over any buffer, without copying it."""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Protocol


class Checksum(Protocol):
    """Returns the checksum as an unsigned 32-bit number; `value` is the checksum of the preceding bytes."""

    def __call__(self, data: bytes | bytearray | memoryview, value: int = 0, /) -> int: ...


def _castagnoli() -> Checksum:
    """The function of the package crc32c, loaded from its extension module. The package itself also imports importlib.metadata, email and
    argparse, a twelfth of all that a broker imports."""
    package = find_spec("crc32c")
    spec = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations) if package is not None else None
    if spec is None or spec.loader is None:
        from crc32c import crc32c

        whole: Checksum = crc32c
        return whole
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    alone: Checksum = module.crc32c
    return alone


crc32c: Checksum = _castagnoli()
