"""A client's view of a cluster: metadata, connections, retries."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from minikafka.client.errors import AuthenticationError, ClientError, NoBrokers, WrongAddress, refusal
from minikafka.net.channel import Channel, UnsupportedVersion
from minikafka.net.network import AuthenticationFailed, Network
from minikafka.net.server import SocketNetwork
from minikafka.wire.errors import ErrorCode, NotEncodable
from minikafka.wire.message import Request, Response
from minikafka.wire.messages.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from minikafka.security.client import ClientSecurity

Answer = TypeVar("Answer")
#: Kafka's client properties of clients that were not told any; the command line sets them once for all that a command does.
default_security: ContextVar[Mapping[str, str] | None] = ContextVar("default_security", default=None)
#: Whether administrators' clients connect to controllers, not to brokers (KIP-919); set as `default_security` is.
ask_controllers: ContextVar[bool] = ContextVar("ask_controllers", default=False)
#: How long a client that has never been answered tries; None: as long as its requests may take. A command's user wants to know soon.
first_answer_ms: ContextVar[int | None] = ContextVar("first_answer_ms", default=None)
BACKOFF_S_MIN = 0.02
BACKOFF_S_MAX = 1.0
CONNECT_TIMEOUT_MS = 5000
METADATA_TIMEOUT_MS = 5000
METADATA_AGE_S_MAX = 300.0
TRANSPORT_ERRORS = (OSError, TimeoutError)


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker as metadata tells."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition as metadata tells; leader -1 = none."""

    topic: str
    index: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline: list[int]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as metadata tells, partitions in order of index."""

    name: str
    topic_id: bytes
    partitions: list[PartitionInfo]
    is_internal: bool = False


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """`host:port,host:port`; the port defaults to 9092. Raises WrongAddress."""
    servers = []
    for entry in text.split(","):
        entry = entry.strip()
        if not entry:
            continue
        host, separator, port = entry.rpartition(":")
        if not separator or (entry.startswith("[") and entry.endswith("]")):
            host, port = entry, "9092"
        if not port.isdigit() or not 0 < int(port) < 65536:
            raise WrongAddress(f"{entry} is not host:port")
        servers.append((host.strip("[]"), int(port)))
    if not servers:
        raise WrongAddress("no bootstrap servers: give host:port, separated by commas")
    return servers


def client_security(properties: Mapping[str, str] | ClientSecurity) -> ClientSecurity | None:
    """What Kafka's client properties say; None for plain text. Raises ClientError with what is wrong."""
    from minikafka.security.client import ClientSecurity
    from minikafka.security.client_properties import client_properties
    from minikafka.security.errors import SecurityError

    if isinstance(properties, ClientSecurity):
        return properties
    try:
        return ClientSecurity.from_properties(client_properties(properties))
    except SecurityError as error:
        raise ClientError(str(error)) from error


class Cluster:
    """Metadata and connections, shared by what a client does."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "minikafka-client",
        request_timeout_ms: int = 30_000,
        network: Network | None = None,
        security: Mapping[str, str] | ClientSecurity | None = None,
    ) -> None:
        """`network`: None is this machine's, of the loop that runs when it is first needed. `security`: Kafka's client properties
        (security.protocol, ssl.*, sasl.*), or what was made of them; None is `default_security`. Raises ClientError."""
        self._security = client_security(security if security is not None else default_security.get() or {})
        self._bootstrap = parse_bootstrap(bootstrap)
        self.client_id = client_id
        self.request_timeout_ms = request_timeout_ms
        self._network = network
        self._channels: dict[tuple[str, int, str], Channel] = {}
        self._opening: dict[tuple[str, int, str], asyncio.Task[Channel]] = {}
        self.brokers: dict[int, BrokerInfo] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.cluster_id: str | None = None
        self.controller_id = -1
        self._refreshed_s: dict[str, float] = {}
        self._closed = False

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        for task in self._opening.values():
            task.cancel()
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    # -- connections -----------------------------------------------------------------------------------------------

    async def channel_at(self, host: str, port: int, purpose: str = "") -> Channel:
        """A connection to an address. Raises OSError or TimeoutError. Brokers answer a connection's requests in their order: what is
        made to wait, as fetches are, has a connection of its own `purpose`."""
        key = (host, port, purpose)
        channel = self._channels.get(key)
        if channel is not None and not channel.closed:
            return channel
        task = self._opening.get(key)
        if task is None:
            task = self._opening[key] = asyncio.ensure_future(self._open(key))
            # All who wait for it may give up before it fails.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def _open(self, key: tuple[str, int, str]) -> Channel:
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
            raise AuthenticationError(str(error)) from error
        finally:
            self._opening.pop(key, None)

    async def channel_to(self, node_id: int, purpose: str = "") -> Channel:
        """A connection to a broker, as `channel_at`. Raises OSError or TimeoutError; ConnectionError for a broker that nobody knows."""
        broker = self.brokers.get(node_id)
        if broker is None:
            raise ConnectionError(f"broker {node_id} is not in the cluster's metadata")
        return await self.channel_at(broker.host, broker.port, purpose)

    async def any_channel(self) -> Channel:
        """A connection to some broker: one that is open, one that is known, one of the bootstrap list. Raises NoBrokers."""
        for (_, _, purpose), channel in self._channels.items():
            if not purpose and not channel.closed:
                return channel
        addresses = [(broker.host, broker.port) for broker in self.brokers.values()] + self._bootstrap
        failures: dict[str, None] = {}
        for host, port in dict.fromkeys(addresses):
            try:
                return await self.channel_at(host, port)
            except TRANSPORT_ERRORS as error:
                where = f"{host}:{port}: "
                failures[where + _reason(error).removeprefix(where)] = None
        hint = ", and does it speak TLS (--command-config)" if self._security is None and any("closed" in text for text in failures) else ""
        raise NoBrokers(f"no broker answers ({'; '.join(failures)}). Is the cluster running, and is this the right address{hint}?")

    # -- requests --------------------------------------------------------------------------------------------------

    async def request(self, request: Request, node_id: int | None = None, *, timeout_ms: int | None = None) -> Response:
        """Ask one broker once. Raises transport errors, NoBrokers, ClientError for an API that the broker lacks."""
        channel = await (self.any_channel() if node_id is None else self.channel_to(node_id))
        try:
            return await channel.request(request, None, timeout_ms or self.request_timeout_ms)
        except UnsupportedVersion as error:
            raise ClientError(str(error)) from error
        except NotEncodable as error:
            raise ClientError(f"{channel.host}:{channel.port} cannot take the request: {error}") from error

    async def retry(self, work: Callable[[], Any], timeout_ms: int | None = None) -> Any:
        """Call the coroutine function `work` until it returns something else than None; transport errors count as None.

        Raises NoBrokers when no broker ever answered, TimeoutError when the time is up.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        deadline = started + (timeout_ms or self.request_timeout_ms) / 1000
        patience_ms = first_answer_ms.get()
        backoff = BACKOFF_S_MIN
        last: BaseException | None = None
        while True:
            try:
                result = await work()
                if result is not None:
                    return result
            except NoBrokers as error:
                last = error
                if patience_ms is not None and self.cluster_id is None and loop.time() - started > patience_ms / 1000:
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
        """Ask for metadata once: of `topics`, of all topics for None, of the brokers only for none."""
        wanted = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        channel = await self.any_channel()
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        try:
            response = cast(MetadataResponse, await channel.request(request, None, min(self.request_timeout_ms, METADATA_TIMEOUT_MS)))
        except UnsupportedVersion as error:
            raise ClientError(f"{error}: is this the port of a controller? A broker's is needed") from error
        except TimeoutError:
            # Silent, as a broker behind a broken network is: the next attempt must not choose it again.
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
        """A topic with partitions, from the cache if it is fresh. Raises BrokerError when the cluster says that there is none."""
        cached = self.topics.get(name)
        age = asyncio.get_running_loop().time() - self._refreshed_s.get(name, float("-inf"))
        if cached is not None and cached.partitions and age < METADATA_AGE_S_MAX:
            return cached
        return await self.fresh_topic(name, create=create, timeout_ms=timeout_ms)

    async def fresh_topic(self, name: str, *, create: bool = False, timeout_ms: int | None = None) -> TopicInfo:
        """A topic as the cluster knows it now. Raises BrokerError when it says that there is none, TimeoutError."""

        async def ask() -> TopicInfo | None:
            response = await self.refresh([name], create=create)
            for topic in response.topics:
                if topic.name != name or not topic.error_code:
                    continue
                code = ErrorCode(topic.error_code)
                if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not create and not await self._is_unknown_to_all(name):
                    continue
                if not code.retriable or (code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not create):
                    raise refusal(code, f"topic {name}")
            found = self.topics.get(name)
            return found if found is not None and found.partitions else None

        return cast(TopicInfo, await self.retry(ask, timeout_ms))

    async def _is_unknown_to_all(self, name: str) -> bool:
        """Whether no broker knows the topic: one of them may not have heard of it yet. A broker that does not answer does not count."""
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
        """A partition that has a leader we know the address of. Raises BrokerError, TimeoutError."""

        async def look(fresh: bool) -> PartitionInfo | None:
            info = await (self.fresh_topic(topic) if fresh else self.topic(topic))
            if not 0 <= index < len(info.partitions):
                raise refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {index} of topic {topic}")
            partition = info.partitions[index]
            return partition if partition.leader in self.brokers else None

        return await look(False) or cast(PartitionInfo, await self.retry(lambda: look(True), timeout_ms))

    def forget(self, topic: str) -> None:
        """What is known of the topic has proven wrong."""
        self._refreshed_s.pop(topic, None)

    def moved(self, topic: str, index: int, leader: int, leader_epoch: int) -> bool:
        """A broker hints at a newer leader (KIP-951); whether that was news that can be used."""
        cached = self.topics.get(topic)
        if cached is None or index >= len(cached.partitions) or leader not in self.brokers:
            return False
        old = cached.partitions[index]
        if leader_epoch <= old.leader_epoch:
            return False
        cached.partitions[index] = PartitionInfo(topic, index, leader, leader_epoch, old.replicas, old.isr, old.offline)
        return True


def _reason(error: BaseException | None) -> str:
    # asyncio has words of its own for it, with a tuple of Python's in them.
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
