"""Clears errors that Python leaves in OpenSSL's queue when a TLS connection breaks."""

from __future__ import annotations

import contextlib
import functools
import ssl
from typing import Any


def forget_failures() -> None:
    """Empty the calling thread's queue of OpenSSL errors. Call it when a method of an `ssl.SSLSocket` has raised OSError.

    From OpenSSL 3.4 on, a failed system call leaves an entry in the queue. Python (3.11.12, 3.12.10, 3.13.3 and newer) raises the error but
    does not remove the entry. The next `SSLSocket` of the thread that only needs to wait then fails with it: a broken pipe on an intact
    connection (CPython issue 148594). `SSLContext.set_ciphers` empties the queue when it finds no cipher of that name.
    """
    with contextlib.suppress(ssl.SSLError):
        _context().set_ciphers("NONE-HAS-THIS-NAME")


@functools.cache
def _context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class BlockingSocket(ssl.SSLSocket):
    """For `SSLContext.sslsocket_class`: a failure of one connection does not break others in the same thread."""

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except OSError:
            forget_failures()
            raise

    def recv_into(self, *arguments: Any, **options: Any) -> int:
        try:
            return super().recv_into(*arguments, **options)
        except OSError:
            forget_failures()
            raise

    def send(self, *arguments: Any, **options: Any) -> int:
        try:
            return super().send(*arguments, **options)
        except OSError:
            forget_failures()
            raise
