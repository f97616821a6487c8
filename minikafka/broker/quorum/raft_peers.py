"""Connections to the other replicas of the quorum, one per address, opened on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minikafka.addresses import host_port
from minikafka.broker.environment import Environment
from minikafka.net.channel import Channel, ChannelSecurity, ConnectionLost

if TYPE_CHECKING:
    from minikafka.core.metadata.delta import MetadataDelta

OnAnswer = Callable[[Any, "Exception | None"], None]


class _Peer:
    __slots__ = ("channel", "opening", "waiting")

    def __init__(self) -> None:
        self.channel: Channel | None = None
        self.opening: asyncio.Task[None] | None = None
        self.waiting: list[tuple[Any, OnAnswer, int | None, int]] = []


class RaftPeers:
    """Each `send` calls its callback exactly once, unless `close` comes first."""

    def __init__(self, environment: Environment, client_id: str, request_timeout_ms: int, security: ChannelSecurity | None = None) -> None:
        self._environment = environment
        self._client_id = client_id
        self._timeout_ms = request_timeout_ms
        self._security = security
        self._peers: dict[tuple[str, int], _Peer] = {}
        self._closed = False
        self.requests = 0
        self.responses = 0
        self._carried_before = [0, 0]

    @property
    def carried(self) -> tuple[int, int]:
        """Bytes received and sent."""
        living = [peer.channel.carried for peer in self._peers.values() if peer.channel is not None]
        received, sent = self._carried_before
        return received + sum(pair[0] for pair in living), sent + sum(pair[1] for pair in living)

    def send(
        self, host: str, port: int, request: Any, on_answer: OnAnswer, version: int | None = None, timeout_ms: int | None = None
    ) -> None:
        """Calls `on_answer(response, error)`, never before this returns. `version` None: the newest that both sides support; `timeout_ms`
        None: the default."""
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        peer = self._peer(host, port)
        if peer.channel is not None and not peer.channel.closed:
            self._ask(peer.channel, request, on_answer, version, timeout_ms)
            return
        peer.waiting.append((request, on_answer, version, timeout_ms))
        self.connect(host, port)

    def connect(self, host: str, port: int) -> None:
        """Connect in the background, unless a connection exists, because a request will follow soon."""
        peer = self._peer(host, port)
        if peer.opening is None and (peer.channel is None or peer.channel.closed):
            peer.opening = self._environment.supervisor.start(self._open(peer, host, port), f"connecting to {host_port(host, port)}")

    def renew(self, host: str, port: int) -> None:
        """A new process answers at this address. Drop the connections to the old one, even one being opened: its machine may have lost
        power, and only a timeout would show it. Requests in flight fail with ConnectionLost; waiting requests are sent again."""
        peer = self._peers.get((host, port))
        if peer is None:
            return
        if peer.channel is not None:
            peer.channel.close("the broker has registered anew")
        if peer.opening is not None:
            peer.opening.cancel()
            peer.opening = self._environment.supervisor.start(self._open(peer, host, port), f"connecting to {host_port(host, port)}")

    def renew_brokers(self, listener: str, delta: MetadataDelta) -> None:
        """Call `renew` for all brokers that are new incarnations in the metadata. `listener`: the listener whose addresses are used."""
        for broker_id, registration in delta.changed_brokers.items():
            before = delta.base.brokers.get(broker_id)
            if registration is None or before is None or before.epoch == registration.epoch:
                continue
            endpoint = registration.listeners.get(listener)
            if endpoint is not None:
                self.renew(endpoint[0], endpoint[1])

    def _peer(self, host: str, port: int) -> _Peer:
        peer = self._peers.get((host, port))
        if peer is None:
            peer = self._peers[host, port] = _Peer()
        return peer

    async def _open(self, peer: _Peer, host: str, port: int) -> None:
        error: Exception | None = None
        try:
            channel = await Channel.open(
                self._environment.network, host, port, client_id=self._client_id, timeout_ms=self._timeout_ms, security=self._security
            )
        except Exception as problem:  # however a peer fails, the callers must learn it
            error = problem
        waiting, peer.waiting, peer.opening = peer.waiting, [], None
        if self._closed:
            if error is None:
                channel.close()
            return
        if error is None:
            if peer.channel is not None:
                self._carried_before = [a + b for a, b in zip(self._carried_before, peer.channel.carried, strict=True)]
            peer.channel = channel
        for request, on_answer, version, timeout_ms in waiting:
            if error is not None:
                self._report(on_answer, None, error)
            else:
                self._ask(channel, request, on_answer, version, timeout_ms)

    def _ask(self, channel: Channel, request: Any, on_answer: OnAnswer, version: int | None, timeout_ms: int) -> None:
        def answered(response: Any, error: Exception | None) -> None:
            self.responses += error is None
            self._report(on_answer, response, error)

        try:
            channel.send(request, version, answered, timeout_ms, safe=True)
            self.requests += 1
        except Exception as problem:  # closed, or no common version: reported as a lost connection
            error = problem if isinstance(problem, ConnectionLost) else ConnectionLost(str(problem))
            self._environment.supervisor.call_soon("an answer of a peer", on_answer, None, error)

    def _report(self, on_answer: OnAnswer, response: Any, error: Exception | None) -> None:
        with self._environment.supervisor.watching("an answer of a peer"):
            on_answer(response, error)

    def close(self) -> None:
        self._closed = True
        for peer in self._peers.values():
            if peer.opening is not None:
                peer.opening.cancel()
            if peer.channel is not None:
                peer.channel.close()
        self._peers.clear()
