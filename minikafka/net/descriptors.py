"""File descriptors: as many as the system gives, and a part of them kept for files."""

from __future__ import annotations

import contextlib
import errno
import resource

#: Of all descriptors connections get this share; the rest is for segments, indexes and what the libraries open.
SHARE_OF_CONNECTIONS = 2
#: Shortages that pass: of descriptors in the process or the system, of memory, of buffers of the kernel.
SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})


def raise_limit() -> int:
    """Raise the soft limit to the hard one, as far as the system lets; how many descriptors there may be now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # macOS says "unlimited" and refuses it.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return descriptors_max()


def descriptors_max() -> int:
    """How many descriptors the process may have."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (1 << 31) - 1 if soft == resource.RLIM_INFINITY else soft


def connections_max() -> int:
    """How many connections leave enough descriptors for files."""
    return descriptors_max() // SHARE_OF_CONNECTIONS
