"""A framed connection under TLS: the same frames over a non-blocking `ssl.SSLSocket`.

All differences from plain text are in this class, so that the plain path has no branches for TLS: the handshake; reading until OpenSSL has
no decrypted bytes left, which the event loop cannot see; and file regions, which are read and encrypted piece by piece.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from time import monotonic
from typing import Any

from minikafka.addresses import host_port
from minikafka.net.connection import SocketConnection
from minikafka.net.flush_queue import FlushQueue
from minikafka.net.network import AuthenticationFailed, ConnectionLimits
from minikafka.net.tls_settings import HANDSHAKE_TIMEOUT_MS, ClientTls
from minikafka.openssl import forget_failures

#: After this many TLS records of 16 KiB the loop serves other connections first.
RECORDS_PER_WAKE_UP = 32
CHUNK_BYTES = 64 * 1024
_HANDSHAKE_RECORD = 0x16
_BLOCKED = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError, InterruptedError)

#: OpenSSL's reason for a failure -> an explanation for operators; {ours} and {theirs} are "client" and "server".
_REASONS = {
    "WRONG_VERSION_NUMBER": "the {theirs} does not speak TLS on this port, or no version that both sides support",
    "UNSUPPORTED_PROTOCOL": "the {theirs} offers no version of ssl.enabled.protocols",
    "NO_SHARED_CIPHER": "the {theirs} offers no cipher suite that the {ours} supports",
    "NO_PROTOCOLS_AVAILABLE": "ssl.enabled.protocols contains no version that this OpenSSL allows",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client showed no certificate (ssl.client.auth=required)",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the server requires a client certificate (ssl.keystore.location)",
    "TLSV1_ALERT_UNKNOWN_CA": "the {theirs} does not trust the {ours}'s certificate (its ssl.truststore.location)",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the {theirs} does not accept the {ours}'s certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the {theirs} does not accept the {ours}'s certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the {theirs} says that the {ours}'s certificate has expired",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the {theirs} ended the handshake; does it require a certificate (ssl.client.auth=required)?",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the {theirs} supports no version of ssl.enabled.protocols",
    "TLSV1_ALERT_INTERNAL_ERROR": "the {theirs} reports an internal error",
}


class TlsConnection(SocketConnection):
    """See `minikafka.net.network.Connection`. Call `handshake` first, then `start`; after that it behaves as a plain connection."""

    __slots__ = ("_handshake_timer", "_on_handshake", "_server_side", "_watches_writes")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        flush_queue: FlushQueue,
        limits: ConnectionLimits,
        context: ssl.SSLContext,
        server_hostname: str | None = None,
    ) -> None:
        """Takes ownership of `sock`, which is connected. `server_hostname` None = this is the server side."""
        sock.setblocking(False)
        self._server_side = server_hostname is None
        wrapped = context.wrap_socket(sock, server_side=self._server_side, do_handshake_on_connect=False, server_hostname=server_hostname)
        self._handshake_timer: asyncio.TimerHandle | None = None
        self._on_handshake: Callable[[str], None] | None = None
        self._watches_writes = False
        super().__init__(loop, wrapped, flush_queue, limits)

    def peer_certificate(self) -> bytes | None:
        """The peer's verified certificate (DER), or None if it has shown none."""
        return self._socket.getpeercert(binary_form=True)  # type: ignore[attr-defined, no-any-return]

    # -- handshake -------------------------------------------------------------------------------------------------

    def handshake(self, timeout_ms: int, on_done: Callable[[str], None]) -> None:
        """Begin the handshake. On success `on_done("")` is called; on failure the connection is closed and `on_done(reason)` is called.

        A peer that connects and closes without sending a byte (a port probe) gives the reason "closed by the peer".
        """
        self._on_handshake = on_done
        self._handshake_timer = self._loop.call_later(timeout_ms / 1000, self._handshake_ended, "the TLS handshake took too long")
        self._loop.add_reader(self.fd, self._first_bytes if self._server_side else self._continue_handshake)
        if not self._server_side:
            self._continue_handshake()

    def _first_bytes(self) -> None:
        """Peek at the first bytes to recognize plain text before OpenSSL reads them."""
        try:
            first = socket.socket.recv(self._socket, 8, socket.MSG_PEEK)
        except _BLOCKED:
            return
        except OSError as error:
            self._handshake_ended(str(error))
            return
        if not first:
            self._handshake_ended("closed by the peer")
        elif first[0] != _HANDSHAKE_RECORD:
            self._handshake_ended(_not_tls(first))
        else:
            self._loop.add_reader(self.fd, self._continue_handshake)
            self._continue_handshake()

    def _continue_handshake(self) -> None:
        try:
            self._socket.do_handshake()  # type: ignore[attr-defined]
        except ssl.SSLWantWriteError:
            if not self._watches_writes:
                self._watches_writes = True
                self._loop.add_writer(self.fd, self._continue_handshake)
        except _BLOCKED:
            self._stop_watching_writes()
        except (OSError, ValueError) as error:
            self._handshake_ended(self._explain(error))
        else:
            self._handshake_ended("")

    def _stop_watching_writes(self) -> None:
        if self._watches_writes:
            self._watches_writes = False
            self._loop.remove_writer(self.fd)

    def _handshake_ended(self, reason: str) -> None:
        on_done, self._on_handshake = self._on_handshake, None
        if on_done is None:
            return
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
        self._stop_watching_writes()
        self._loop.remove_reader(self.fd)
        self.last_active_s = self._loop.time()
        if reason:
            # Closing with unread bytes would send a reset, which may overtake the alert that tells the peer why.
            with contextlib.suppress(OSError):
                socket.socket.recv(self._socket, CHUNK_BYTES)
            self.close(reason)
        on_done(reason)

    def _explain(self, error: Exception) -> str:
        ours, theirs = ("server", "client") if self._server_side else ("client", "server")
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"the {theirs}'s certificate is not accepted: {error.verify_message}"
        if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionError):
            return f"the {theirs} closed the connection during the TLS handshake"
        if isinstance(error, ssl.SSLError):
            explanation = _REASONS.get(error.reason or "")
            text = (error.reason or str(error)).lower().replace("_", " ")
            return "the TLS handshake failed: " + (f"{explanation.format(ours=ours, theirs=theirs)} ({text})" if explanation else text)
        return f"the TLS handshake failed: {error}"

    # -- receiving -------------------------------------------------------------------------------------------------

    def start(self, handler: Any) -> None:
        """Begin to read, also the bytes that OpenSSL decrypted together with the end of the handshake."""
        super().start(handler)
        self._loop.call_soon(self._read_on)

    def _readable(self) -> None:
        sock = self._socket
        queue = self._flush_queue
        now_s = self._turn_s = monotonic()
        if self._must_wait(now_s):
            return
        queue.depth += 1
        try:
            for _ in range(RECORDS_PER_WAKE_UP):
                try:
                    count = sock.recv_into(self._view[self._end :])
                except _BLOCKED:
                    return
                except (OSError, ValueError) as error:
                    self.close(self._explain(error) if isinstance(error, ssl.SSLError) else str(error))
                    return
                if not count:
                    self.close("closed by the peer")
                    return
                self.received_bytes += count
                self.last_active_s = self._loop.time()
                self._end += count
                self._parse()
                if self.closed or self.paused:
                    return
            self._loop.call_soon(self._read_on)
        finally:
            queue.depth -= 1
            queue.flush()

    def _read_on(self) -> None:
        """Continue with bytes that OpenSSL may have already decrypted."""
        if not self.closed and not self.paused:
            self._readable()

    def _parse_rest(self) -> None:
        super()._parse_rest()
        self._read_on()

    # -- sending ---------------------------------------------------------------------------------------------------

    def _write(self) -> bool:
        out = self._out
        try:
            while out:
                if not isinstance(out[0], (bytes, memoryview, bytearray)):
                    self._read_region(out[0])
                elif len(out) > 1 and len(out[0]) < CHUNK_BYTES:
                    self._join_head()
                piece = out[0]
                # OpenSSL requires that a retried write begins with the same bytes. It does: the head of the queue only grows at its end.
                sent = self._socket.send(piece)
                self.sent_bytes += sent
                self._out_bytes -= sent
                if sent == len(piece):
                    out.popleft()
                else:
                    out[0] = memoryview(piece)[sent:]
        except _BLOCKED:
            return False
        return True

    def _join_head(self) -> None:
        """Join the small byte strings at the head of the queue, because every send makes at least one TLS record."""
        out, size = self._out, 0
        run: list[bytes | memoryview | bytearray] = []
        while out and isinstance(out[0], (bytes, memoryview, bytearray)) and (not run or size + len(out[0]) <= CHUNK_BYTES):
            size += len(out[0])
            run.append(out.popleft())
        out.appendleft(run[0] if len(run) == 1 else b"".join(run))

    def _read_region(self, region: Any) -> None:
        """Read the next piece of a file region and queue it before the rest of the region."""
        offset = self._region_sent
        data = region.pread(min(CHUNK_BYTES, region.size - offset), offset) if region.size > offset else b""
        self._region_sent += len(data)
        self._region_bytes -= len(data)
        if self._region_sent >= region.size:
            self._region_sent = 0
            self._regions -= 1
            self._out[0] = data
            region.release()
        elif not data:
            raise ConnectionError("a file region ended early")
        else:
            self._out.appendleft(data)

    # -- end -------------------------------------------------------------------------------------------------------

    def close(self, reason: str = "") -> None:
        """Close the connection and drop everything queued. Sends close_notify if that is possible without waiting."""
        if self.closed:
            return
        if self._on_handshake is not None:
            self._handshake_ended(reason or "closed")
            return
        with contextlib.suppress(OSError, ValueError):
            self._socket.unwrap()  # type: ignore[attr-defined]
        forget_failures()
        super().close(reason)


async def connect_tls(
    loop: asyncio.AbstractEventLoop,
    sock: socket.socket,
    flush_queue: FlushQueue,
    limits: ConnectionLimits,
    tls: ClientTls,
    address: tuple[str, int],
) -> TlsConnection:
    """A connection after its handshake. Raises AuthenticationFailed if either side rejects the other, else ConnectionError."""
    connection = TlsConnection(loop, sock, flush_queue, limits, tls.context, address[0])
    done: asyncio.Future[str] = loop.create_future()
    connection.handshake(HANDSHAKE_TIMEOUT_MS, lambda reason: None if done.done() else done.set_result(reason))
    try:
        reason = await done
    except BaseException:
        connection.close("given up")
        raise
    if not reason:
        return connection
    where = host_port(address[0], address[1])
    if "closed the connection" in reason or "too long" in reason:
        raise ConnectionError(f"{where}: {reason}; does it speak TLS (security.protocol)?")
    raise AuthenticationFailed(f"{where}: {reason}")


def _not_tls(first: bytes) -> str:
    if first[:4] in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE"):
        return "not TLS: this looks like HTTP; is a browser or a health check pointed at a Kafka listener?"
    if first[:2] == b"\0\0":
        return "not TLS: this looks like a Kafka client that speaks plain text; the listener needs TLS (security.protocol of the client?)"
    return "not TLS: the listener needs TLS"
