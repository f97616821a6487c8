"""Imports without garbage collections."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collections() -> Iterator[None]:
    """No garbage collections within. Modules and classes live as long as the process, and to collect while thousands of them are made
    takes a sixth of the time of their import."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
