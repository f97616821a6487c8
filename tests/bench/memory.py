"""Memory of this machine, before a measure that fills page cache."""

from __future__ import annotations

import mmap

MAP_POPULATE = 0x8000


def warm_memory(size_bytes: int = 2 << 30) -> None:
    """Touch and free memory, so that the page cache's first touch of memory that the host took back is not what is measured."""
    with mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_POPULATE):
        pass
