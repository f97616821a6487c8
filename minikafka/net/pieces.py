"""Small helpers of connections: pieces of responses, texts about bad frames, socket options."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any

#: TCP_USER_TIMEOUT: how long bytes may stay unacknowledged before the kernel ends a connection that this side opened.
USER_TIMEOUT_MS = 20_000
KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_PROBES = 10, 5, 2
#: A peer slower than this many bytes a second counts as stuck in its request or in reading its responses.
SPEED_MIN = 1024


def memory_of(pieces: Any) -> int:
    """The bytes of a response that are in memory; file regions do not count."""
    return sum(len(piece) for piece in pieces if isinstance(piece, (bytes, memoryview, bytearray)))


def is_slow(since: tuple[float, int] | None, count: int, now_s: float, timeout_s: float) -> bool:
    """Whether a peer has been slower than SPEED_MIN for `timeout_s`. `since`: when it began, and how many bytes had passed by then."""
    return since is not None and now_s - since[0] > timeout_s and count - since[1] < SPEED_MIN * (now_s - since[0])


def release(pieces: Any) -> None:
    """Release the file regions among the pieces."""
    for piece in pieces:
        release_region = getattr(piece, "release", None)
        if release_region is not None and not isinstance(piece, memoryview):
            release_region()


def send_region(fd: int, region: Any, start: int, size: int) -> int:
    """Send up to `size` bytes of a file region, from `start` within it, to a socket. Returns how many were sent. Raises OSError."""
    try:
        sent = os.sendfile(fd, region.fileno(), region.position + start, size)
        if sent == 0:
            raise OSError(errno.EIO, "the file is shorter than before")
    except OSError as error:
        if error.errno == errno.EIO:
            # The disk failed, not the peer.
            region.failed(error)
        raise
    return sent


def bad_size(size: int, start: bytes) -> str:
    """Why a frame size is refused, with the likely cause."""
    text = start[:4]
    if text in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE"):
        return f"a frame of {size} bytes: this looks like HTTP; is a browser or a health check pointed at a Kafka listener?"
    if start[:2] == b"\x16\x03":
        return f"a frame of {size} bytes: this looks like TLS; the listener speaks plaintext (security.protocol of the client?)"
    return f"a frame of {size} bytes is refused (socket.request.max.bytes)"


def closed_by_peer(unread: bytes) -> str:
    """Why a connection ended, with the likely cause; `unread` begins the last frame, which is incomplete."""
    return "the peer speaks HTTP, not Kafka's protocol" if unread == b"HTTP/" else "closed by the peer"


def set_congestion_control(sock: socket.socket, algorithm: str) -> None:
    """Set the TCP congestion control if the kernel allows it; BBR paces even on loopback and slows bulk senders."""
    option = getattr(socket, "TCP_CONGESTION", None)
    if algorithm and option is not None:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, option, algorithm.encode())
        except OSError:
            return


def notice_dead_peers(sock: socket.socket) -> None:
    """Let the kernel end a connection that this side opened if its peer or the path to it is silently dead: unacknowledged bytes end it
    after `USER_TIMEOUT_MS`, and an idle connection is probed. By default TCP retries for a quarter of an hour."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    values = {
        "TCP_KEEPIDLE": KEEPALIVE_IDLE_S,
        "TCP_KEEPALIVE": KEEPALIVE_IDLE_S,  # The same, on macOS.
        "TCP_KEEPINTVL": KEEPALIVE_INTERVAL_S,
        "TCP_KEEPCNT": KEEPALIVE_PROBES,
        "TCP_USER_TIMEOUT": USER_TIMEOUT_MS,
    }
    for name, value in values.items():
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
