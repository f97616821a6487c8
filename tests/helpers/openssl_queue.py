"""The queue of OpenSSL errors of the calling thread, as the interpreter's own OpenSSL has it."""

from __future__ import annotations

import _ssl
import ctypes
import errno

ERR_LIB_SYS = 2
_LIBRARY = ctypes.CDLL(getattr(_ssl, "__file__", None))
_LIBRARY.ERR_peek_error.restype = ctypes.c_ulong
_LIBRARY.ERR_set_error.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_char_p]


def leave_behind() -> None:
    """Leave an error in the queue, as a failed system call of OpenSSL 3.4 or newer does."""
    _LIBRARY.ERR_new()
    _LIBRARY.ERR_set_error(ERR_LIB_SYS, errno.EPIPE, None)


def is_empty() -> bool:
    """Whether the next call would find nothing in it."""
    return _LIBRARY.ERR_peek_error() == 0


def broken_pipe(*_: object) -> int:
    """A method of an `ssl.SSLSocket` whose peer has gone."""
    leave_behind()
    raise BrokenPipeError(errno.EPIPE, "Broken pipe")
