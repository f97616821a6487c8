"""A client's view of a cluster: metadata, connections, retries."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from minikafka.addresses import host_port, split_addresses
from minikafka.client.errors import (
    TRANSPORT_ERRORS,
    AuthenticationError,
    BrokerError,
    ClientError,
    NoBrokers,
    WrongAddress,
    WrongSettings,
    refusal,
)
from minikafka.client.silence import Silence, on_silence
from minikafka.net.channel import Channel, UnsupportedVersion
from minikafka.net.network import AuthenticationFailed, Network
from minikafka.net.server import SocketNetwork
from minikafka.net.tasks import outcome_of
from minikafka.wire.errors import ErrorCode, NotEncodable
from minikafka.wire.message import Request, Response
from minikafka.wire.messages.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from minikafka.security.client import ClientSecurity

Answer = TypeVar("Answer")
#: Kafka's client properties for clients that are created without any. The command line sets them once per command.
default_security: ContextVar[Mapping[str, str] | None] = ContextVar("default_security", default=None)
#: Whether admin clients connect to controllers instead of brokers (KIP-919); set in the same way as `default_security`.
ask_controllers: ContextVar[bool] = ContextVar("ask_controllers", default=False)
#: How long a client tries to reach its first broker; None: as long as its requests may take. Commands set it to fail early.
first_answer_ms: ContextVar[int | None] = ContextVar("first_answer_ms", default=None)
#: Whether a cluster is starting at these addresses: then a client waits before its first connection. Commands set it.
may_be_starting: ContextVar[Callable[[list[tuple[str, int]]], bool] | None] = ContextVar("may_be_starting", default=None)
BACKOFF_S_MIN = 0.02
START_POLL_S = 0.1
BACKOFF_S_MAX = 1.0
CONNECT_TIMEOUT_MS = 5000
METADATA_TIMEOUT_MS = 5000
METADATA_AGE_S_MAX = 300.0


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker as described by the cluster's metadata."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition as described by the cluster's metadata; leader -1 = none."""

    topic: str
    index: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline: list[int]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as described by the cluster's metadata, partitions in order of index."""

    name: str
    topic_id: bytes
    partitions: list[PartitionInfo]
    is_internal: bool = False


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """As `split_addresses`. Raises WrongAddress."""
    try:
        return split_addresses(text)
    except ValueError as error:
        raise WrongAddress(str(error)) from error


def client_security(properties: Mapping[str, str] | ClientSecurity) -> ClientSecurity | None:
    """The security that Kafka's client properties ask for; None for plain text. Raises WrongSettings, whose text names the bad property."""
    from minikafka.security.client import ClientSecurity
    from minikafka.security.client_properties import client_properties
    from minikafka.security.errors import SecurityError

    if isinstance(properties, ClientSecurity):
        return properties
    try:
        return ClientSecurity.from_properties(client_properties(properties))
    except SecurityError as error:
        raise WrongSettings(str(error)) from error


class Cluster:
    """Metadata and connections, shared by everything that a client does."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "minikafka-client",
        request_timeout_ms: int = 30_000,
        network: Network | None = None,
        security: Mapping[str, str] | ClientSecurity | None = None,
    ) -> None:
        """`network`: None uses real sockets, on the event loop that runs at the first connection. `security`: Kafka's client properties
        (security.protocol, ssl.*, sasl.*), or a ClientSecurity; None uses `default_security`. Raises ClientError."""
        self._security = client_security(security if security is not None else default_security.get() or {})
        self._bootstrap = parse_bootstrap(bootstrap)
        self.client_id = client_id
        self.request_timeout_ms = request_timeout_ms
        self._network = network
        self._channels: dict[tuple[str, int, str], Channel] = {}
        self._opening: dict[tuple[str, int, str], asyncio.Task[Channel | Exception]] = {}
        self.brokers: dict[int, BrokerInfo] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.cluster_id: str | None = None
        self.controller_id = -1
        self._refreshed_s: dict[str, float] = {}
        self._closed = False
        self.silence = Silence(self._addresses, self._heard_s, lambda: self.cluster_id is None)

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        self.silence.end()
        for task in self._opening.values():
            task.cancel()
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    # -- connections -----------------------------------------------------------------------------------------------

    async def channel_at(self, host: str, port: int, purpose: str = "") -> Channel:
        """A connection to an address. Raises OSError or TimeoutError. A broker answers the requests of one connection in order, so requests
        that may wait at the broker, such as fetches, use a separate connection with its own `purpose`."""
        key = (host, port, purpose)
        channel = self._channels.get(key)
        if channel is not None and not channel.closed:
            return channel
        task = self._opening.get(key)
        if task is None:
            task = self._opening[key] = asyncio.ensure_future(self._open(key))
        opened = await outcome_of(task)
        if opened is None:
            raise ConnectionError("the client is closed")
        if isinstance(opened, Exception):
            raise opened
        return opened

    async def _open(self, key: tuple[str, int, str]) -> Channel | Exception:
        """The new channel, or the error: every waiter may give up before it is there, and asyncio would log what the task raises."""
        try:
            network = self._network
            if network is None:
                network = self._network = SocketNetwork(asyncio.get_running_loop())
            host, port, _ = key
            channel = await Channel.open(
                network, host, port, client_id=self.client_id, timeout_ms=CONNECT_TIMEOUT_MS, security=self._security
            )
            self._channels[key] = channel
            return channel
        except AuthenticationFailed as error:
            refused = AuthenticationError(str(error))
            refused.__cause__ = error
            return refused
        except Exception as error:
            return error
        finally:
            self._opening.pop(key, None)

    async def channel_to(self, node_id: int, purpose: str = "") -> Channel:
        """A connection to a broker, as `channel_at`. Raises OSError or TimeoutError; ConnectionError if the metadata lacks the broker."""
        broker = self.brokers.get(node_id)
        if broker is None:
            raise ConnectionError(f"broker {node_id} is not in the cluster's metadata")
        return await self.channel_at(broker.host, broker.port, purpose)

    async def any_channel(self) -> Channel:
        """A connection to any broker: an open one first, then the brokers of the metadata, then the bootstrap list. Raises NoBrokers."""
        if self.cluster_id is None:
            await self._wait_for_the_start()
        for (_, _, purpose), channel in self._channels.items():
            if not purpose and not channel.closed:
                return channel
        addresses = [(broker.host, broker.port) for broker in self.brokers.values()] + self._bootstrap
        failures: dict[str, None] = {}
        with self.silence.watched():
            for host, port in dict.fromkeys(addresses):
                try:
                    return await self.channel_at(host, port)
                except TRANSPORT_ERRORS as error:
                    where = f"{host_port(host, port)}: "
                    failures[where + _reason(error).removeprefix(where)] = None
            raise self._no_brokers(failures)

    def _no_brokers(self, failures: Iterable[str]) -> NoBrokers:
        hint = ", and does it speak TLS (--command-config)" if self._security is None and any("closed" in text for text in failures) else ""
        return NoBrokers(f"no broker answers ({'; '.join(failures)}). Is the cluster running, and is this the right address{hint}?")

    async def _wait_for_the_start(self) -> None:
        is_starting, say = may_be_starting.get(), on_silence.get()
        while is_starting is not None and is_starting(self._bootstrap):
            if say is not None:
                say(self._addresses(), None)
            await asyncio.sleep(START_POLL_S)

    def _addresses(self) -> str:
        known = [(broker.host, broker.port) for broker in self.brokers.values()]
        return ", ".join(host_port(host, port) for host, port in known or self._bootstrap)

    def _heard_s(self) -> float:
        return max((channel.heard_s for channel in self._channels.values()), default=0.0)

    # -- requests --------------------------------------------------------------------------------------------------

    async def request(self, request: Request, node_id: int | None = None, *, timeout_ms: int | None = None) -> Response:
        """Send one request to one broker, without retries. Raises transport errors, NoBrokers, ClientError for an API that it lacks."""
        channel = await (self.any_channel() if node_id is None else self.channel_to(node_id))
        try:
            return await channel.request(request, None, timeout_ms or self.request_timeout_ms)
        except UnsupportedVersion as error:
            raise ClientError(str(error)) from error
        except NotEncodable as error:
            raise ClientError(f"{host_port(channel.host, channel.port)} cannot take the request: {error}") from error

    async def retry(self, work: Callable[[], Any], timeout_ms: int | None = None) -> Any:
        """Call the coroutine function `work` until it returns something other than None; transport errors count as None.

        When the time is up, raises NoBrokers if that was the last failure, else TimeoutError.
        """
        with self.silence.watched():
            return await self._retry(work, timeout_ms)

    async def retry_refused(
        self, ask: Callable[[], Awaitable[Answer]], is_passing: Callable[[ErrorCode], bool], timeout_ms: int | None = None
    ) -> Answer:
        """The result of `ask()`, which is called again after a refusal with a code that `is_passing` names, and after transport errors.

        When the time is up, raises the last such refusal (a BrokerError); without one, as `retry`.
        """
        refused: BrokerError | None = None

        async def attempt() -> tuple[Answer] | None:
            nonlocal refused
            try:
                return (await ask(),)
            except BrokerError as error:
                if not is_passing(error.code):
                    raise
                refused = error
                return None

        try:
            return cast(tuple[Answer], await self.retry(attempt, timeout_ms))[0]
        except TimeoutError:
            if refused is None:
                raise
            raise refused from None

    async def _retry(self, work: Callable[[], Any], timeout_ms: int | None) -> Any:
        loop = asyncio.get_running_loop()
        started = loop.time()
        deadline = started + (timeout_ms or self.request_timeout_ms) / 1000
        first_ms = first_answer_ms.get()
        backoff = BACKOFF_S_MIN
        last: BaseException | None = None
        while True:
            try:
                result = await work()
                if result is not None:
                    return result
            except NoBrokers as error:
                last = error
                if first_ms is not None and self.cluster_id is None and loop.time() - started > first_ms / 1000:
                    raise
            except TRANSPORT_ERRORS as error:
                last = error
            if loop.time() + backoff > deadline:
                if isinstance(last, NoBrokers):
                    raise last
                raise TimeoutError(
                    f"gave up after {(timeout_ms or self.request_timeout_ms) / 1000:g} s" + (f": {_reason(last)}" if last else "")
                )
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, BACKOFF_S_MAX)

    # -- metadata --------------------------------------------------------------------------------------------------

    async def refresh(self, topics: Iterable[str] | None = (), *, create: bool = False) -> MetadataResponse:
        """Request metadata once: of `topics`; of all topics for None; of the brokers alone if `topics` is empty."""
        wanted = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        channel = await self.any_channel()
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        try:
            response = cast(MetadataResponse, await channel.request(request, None, min(self.request_timeout_ms, METADATA_TIMEOUT_MS)))
        except UnsupportedVersion as error:
            raise ClientError(f"{error}: is this the port of a controller? A broker's is needed") from error
        except TimeoutError:
            # The broker may be unreachable behind a broken network: the next attempt must choose another.
            channel.close("no answer to a metadata request in time")
            raise
        self._take(response)
        return response

    def _take(self, response: MetadataResponse) -> None:
        if response.brokers:
            self.brokers = {b.node_id: BrokerInfo(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        now = asyncio.get_running_loop().time()
        for topic in response.topics:
            name = topic.name or ""
            if topic.error_code and topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
                if topic.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                    self.topics.pop(name, None)
                continue
            before = self.topics.get(name)
            partitions = []
            for p in sorted(topic.partitions, key=lambda entry: entry.partition_index):
                info = PartitionInfo(name, p.partition_index, p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes, p.offline_replicas)
                old = before.partitions[info.index] if before is not None and info.index < len(before.partitions) else None
                # A broker that is behind must not take a newer leader away (KIP-320).
                same_topic = before is not None and before.topic_id == topic.topic_id
                partitions.append(old if old is not None and same_topic and old.leader_epoch > info.leader_epoch >= 0 else info)
            self.topics[name] = TopicInfo(name, topic.topic_id, partitions, topic.is_internal)
            self._refreshed_s[name] = now

    async def topic(self, name: str, *, create: bool = False, timeout_ms: int | None = None) -> TopicInfo:
        """A topic with its partitions, from the cache if that is fresh. Raises BrokerError if the cluster has no such topic."""
        cached = self.topics.get(name)
        age = asyncio.get_running_loop().time() - self._refreshed_s.get(name, float("-inf"))
        if cached is not None and cached.partitions and age < METADATA_AGE_S_MAX:
            return cached
        return await self.fresh_topic(name, create=create, timeout_ms=timeout_ms)

    async def fresh_topic(self, name: str, *, create: bool = False, timeout_ms: int | None = None) -> TopicInfo:
        """A topic from newly requested metadata. Raises BrokerError if the cluster has no such topic, TimeoutError."""

        async def ask() -> TopicInfo | None:
            response = await self.refresh([name], create=create)
            for topic in response.topics:
                if topic.name != name or not topic.error_code:
                    continue
                code = ErrorCode(topic.error_code)
                if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not create and not await self._is_missing_everywhere(name):
                    continue
                if not code.retriable or (code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not create):
                    raise refusal(code, f"topic {name}")
            found = self.topics.get(name)
            return found if found is not None and found.partitions else None

        return cast(TopicInfo, await self.retry(ask, timeout_ms))

    async def _is_missing_everywhere(self, name: str) -> bool:
        """Whether no broker has the topic. One broker alone may lag behind the metadata log. Brokers that do not answer are skipped."""
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        for node_id in list(self.brokers):
            try:
                response = cast(MetadataResponse, await self.request(request, node_id, timeout_ms=METADATA_TIMEOUT_MS))
            except TRANSPORT_ERRORS:
                continue
            self._take(response)
            if name in self.topics:
                return False
        return True

    async def leader(self, topic: str, index: int, *, timeout_ms: int | None = None) -> PartitionInfo:
        """A partition whose leader is a broker in the metadata, so that its address is available. Raises BrokerError, TimeoutError."""

        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + (timeout_ms or self.request_timeout_ms) / 1000

        def left_ms() -> int:
            return max(int((deadline_s - loop.time()) * 1000), 1)

        async def look(fresh: bool) -> PartitionInfo | None:
            info = await (self.fresh_topic if fresh else self.topic)(topic, timeout_ms=left_ms())
            if not 0 <= index < len(info.partitions):
                raise refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {index} of topic {topic}")
            partition = info.partitions[index]
            return partition if partition.leader in self.brokers else None

        return await look(False) or cast(PartitionInfo, await self.retry(lambda: look(True), left_ms()))

    def forget(self, topic: str) -> None:
        """Discard a topic's cached metadata, because it has proved wrong."""
        self._refreshed_s.pop(topic, None)

    def moved(self, topic: str, index: int, leader: int, leader_epoch: int) -> bool:
        """Take over a newer leader that a broker has named in a response (KIP-951). Returns whether the metadata changed."""
        cached = self.topics.get(topic)
        if cached is None or index >= len(cached.partitions) or leader not in self.brokers:
            return False
        old = cached.partitions[index]
        if leader_epoch <= old.leader_epoch:
            return False
        cached.partitions[index] = PartitionInfo(topic, index, leader, leader_epoch, old.replicas, old.isr, old.offline)
        return True


def _reason(error: BaseException | None) -> str:
    # asyncio's own text contains a Python tuple.
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    text = getattr(error, "strerror", None) or str(error)
    return text or type(error).__name__


@contextlib.asynccontextmanager
async def connected(bootstrap: str, **options: Any) -> Any:
    """A `Cluster` that is closed at the end."""
    cluster = Cluster(bootstrap, **options)
    try:
        yield cluster
    finally:
        await cluster.close()
