"""File descriptors: raises the limit as far as the system allows, and reserves a share for files."""

from __future__ import annotations

import contextlib
import errno
import resource

#: Connections may use one in this many descriptors; the rest is for segments, indexes and what libraries open.
SHARE_OF_CONNECTIONS = 2
#: Errors of temporary shortages: of descriptors in the process or the system, of memory, of kernel buffers.
SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})


def raise_limit() -> int:
    """Raise the soft limit to the hard one, as far as the system allows. Returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # macOS reports "unlimited" but refuses to set it.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return descriptors_max()


def descriptors_max() -> int:
    """How many descriptors the process may have open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (1 << 31) - 1 if soft == resource.RLIM_INFINITY else soft


def connections_max() -> int:
    """How many connections there may be, so that enough descriptors remain for files."""
    return descriptors_max() // SHARE_OF_CONNECTIONS
