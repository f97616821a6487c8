"""What macOS lacks, and what it has in place of it, put over Linux: the nearest that can run where there is no Mac.

With this folder in PYTHONPATH every Python process does without what only Linux has (`sitecustomize.py`). The names are those of CPython's
documentation ("Availability") and of Darwin's manual pages.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import fcntl
import importlib
import io
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

OS_LACKS = ("fdatasync", "posix_fallocate", "posix_fadvise", "sched_getaffinity", "copy_file_range", "memfd_create", "eventfd", "splice")
SOCKET_LACKS = ("MSG_MORE", "TCP_KEEPIDLE", "TCP_USER_TIMEOUT", "TCP_CONGESTION", "TCP_QUICKACK", "SO_BUSY_POLL", "SO_PEERCRED")
#: <sys/fcntl.h> of Darwin.
F_FULLFSYNC = 51
#: What asks for the platform while it is imported, and needs the true answer then.
IMPORTED_FIRST = (
    "multiprocessing.reduction", "sysconfig", "urllib.request", "platform", "ctypes.util", "uuid", "psutil", "_pyrepl", "asyncio",
)  # fmt: skip
_PIECE_BYTES = 1 << 16


def sendfile(
    out_fd: int, in_fd: int, offset: int, count: int, headers: tuple[bytes, ...] = (), trailers: tuple[bytes, ...] = (), flags: int = 0
) -> int:
    """Darwin's: `offset` is a number, a `count` of 0 means up to the end of the file, and what a full socket has taken is the result; only
    where it has taken nothing is that an error (BlockingIOError)."""
    if not isinstance(offset, int) or offset < 0 or count < 0 or flags:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    sent, end = 0, offset + count if count else sys.maxsize
    for piece in (*headers, None, *trailers):
        try:
            if piece is not None:
                sent += os.write(out_fd, piece)
                continue
            while data := os.pread(in_fd, min(end - offset, _PIECE_BYTES), offset):
                written = os.write(out_fd, data)
                sent, offset = sent + written, offset + written
        except BlockingIOError:
            if sent:
                return sent
            raise
    return sent


def install() -> None:
    """Make this process as like one on macOS as it gets."""
    keep_alive = socket.TCP_KEEPIDLE
    for module, names in ((os, OS_LACKS), (socket, SOCKET_LACKS)):
        for name in names:
            with contextlib.suppress(AttributeError):
                delattr(module, name)
    if hasattr(os, "process_cpu_count"):  # since Python 3.13; where nothing tells a process's cores, it is this
        os.process_cpu_count = os.cpu_count
    os.sendfile = sendfile  # type: ignore[assignment]
    socket.TCP_KEEPALIVE = keep_alive  # type: ignore[attr-defined]
    fcntl.F_FULLFSYNC = F_FULLFSYNC  # type: ignore[attr-defined]
    fcntl.fcntl = _fcntl(fcntl.fcntl)  # type: ignore[assignment]
    builtins.open = io.open = _without_proc(io.open)  # type: ignore[assignment]
    os.path.exists = _no_proc(os.path.exists)
    sys.meta_path.insert(0, _Platform())


def _fcntl(original: Callable[..., Any]) -> Callable[..., Any]:
    def fcntl_of_darwin(fd: Any, command: int, *arguments: Any) -> Any:
        return os.fsync(fd) if command == F_FULLFSYNC else original(fd, command, *arguments)

    return fcntl_of_darwin


def _is_of_ours(depth: int = 2) -> bool:
    return str(sys._getframe(depth).f_globals.get("__name__", "")).startswith(("minikafka", "pyspark_minikafka"))


def _without_proc(original: Callable[..., Any]) -> Callable[..., Any]:
    def open_of_darwin(file: Any, *arguments: Any, **named: Any) -> Any:
        if isinstance(file, str) and file.startswith("/proc/") and _is_of_ours():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file)
        return original(file, *arguments, **named)

    return open_of_darwin


def _no_proc(original: Callable[..., bool]) -> Callable[..., bool]:
    def exists(path: Any) -> bool:
        return not (isinstance(path, str) and path.startswith("/proc/") and _is_of_ours()) and original(path)

    return exists


class _Platform:
    """`sys.platform` is darwin from the first import of minikafka on. The standard library needs the true one before that."""

    def find_spec(self, name: str, *_: Any) -> None:
        if name.partition(".")[0] == "minikafka" and sys.platform == "linux":
            for needed in IMPORTED_FIRST:
                with contextlib.suppress(ImportError):
                    importlib.import_module(needed)
            importlib.import_module("sysconfig").get_config_vars()
            sys.platform = "darwin"
