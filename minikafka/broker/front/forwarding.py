"""Forwards client requests to the active controller in an Envelope (KIP-590), and sends it requests of this broker."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any, Protocol

from minikafka.broker.front.client_turns import ClientTurns
from minikafka.broker.front.connection_order import ConnectionOrder
from minikafka.broker.front.error_responses import failure_response
from minikafka.broker.front.turns import Turns
from minikafka.core.controller.forwarded import KEY_BYTES, TRIES_MAX, Forwarded, SeenTopic
from minikafka.core.delegation_token import TokenPrincipal
from minikafka.net.channel import UnsupportedVersion
from minikafka.wire.errors import ApiError, ErrorCode, WireError
from minikafka.wire.frame import encode_request
from minikafka.wire.header import decode_response_header
from minikafka.wire.messages.create_partitions import CreatePartitionsRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.delete_topics import DeleteTopicsRequest
from minikafka.wire.messages.envelope import EnvelopeRequest
from minikafka.wire.registry import api
from minikafka.wire.varint import append_unsigned_varint, read_unsigned_varint

if TYPE_CHECKING:
    from collections.abc import Callable

    from minikafka.broker.front.controller_channel import ControllerChannel
    from minikafka.broker.supervise import Supervisor
    from minikafka.core.controller.config import RandomSource
    from minikafka.core.metadata.image import MetadataImage

FORWARD_TIMEOUT_MS = 30_000
#: The controller may let a request wait for FORWARD_TIMEOUT_MS (AddRaftVoter), so the connection is considered dead only later.
CONNECTION_TIMEOUT_MS = FORWARD_TIMEOUT_MS + 5_000
#: How long a response is held until this broker has seen the change it reports, so that the client's next request here sees it too.
CATCH_UP_MS = 1_000
#: A client's request that was lost together with the controller is sent once more; the controller may have died for another reason.
RESENDS_MAX = 1
#: A request with more bytes or partitions is long: it may keep the controller busy, and those behind it on its connection wait.
LONG_REQUEST_BYTES, LONG_REQUEST_PARTITIONS = 512, 16
#: Bytes of a topic id.
UUID_BYTES = 16
#: Number of a tagged field; Apache Kafka is unlikely ever to use it.
FORWARDED_TAG = 20_000


class ImageWaiter(Protocol):
    """Publishes images of the metadata (MetadataHost)."""

    @property
    def image(self) -> MetadataImage:
        """The newest image."""

    async def wait_until(self, condition: Callable[[MetadataImage], bool], timeout_ms: int, /) -> bool:
        """Wait until the newest image satisfies `condition`. Returns False after the timeout."""


class Forwarder:
    """Sends requests to the active controller on behalf of clients."""

    def __init__(
        self, controller: ControllerChannel, metadata: ImageWaiter, random: RandomSource, supervisor: Supervisor,
        for_long: ControllerChannel,
    ) -> None:  # fmt: skip
        """`for_long`: for long requests, behind whose answers nothing else must wait."""
        self._controller = controller
        self._for_long = for_long
        self._metadata = metadata
        self._random = random
        self._turns, self._turns_of_long = ClientTurns(supervisor), ClientTurns(supervisor)
        self._order = ConnectionOrder()
        #: Requests whose connection ends fail together. The answer to each may name hundreds of topics.
        self._failures = Turns(supervisor)

    async def forward(self, context: Any, request: Any, version: int | None = None) -> Any:
        """The controller's response to a client's request. If the controller cannot be reached, the response carries an error.

        `version`: set it for a request that this broker makes in the client's name; such a request counts against the client's quotas."""
        version = context.api_version if version is None else version
        frame = encode_request(request, version, context.correlation_id, context.client_id)
        data = b"".join(bytes(piece) for piece in frame if isinstance(piece, (bytes, bytearray, memoryview)))[4:]
        key, seen = self._random.randbytes(KEY_BYTES), seen_topics(self._metadata, request)

        def envelope(tries: int) -> EnvelopeRequest:
            forwarded = Forwarded(key, tries, seen if tries else ()) if tries <= TRIES_MAX else None
            return EnvelopeRequest(
                request_data=data,
                request_principal=principal_bytes(context.principal, forwarded),
                client_host_address=address_bytes(context.connection.peer_host),
            )

        client = (str(context.principal), context.connection.peer_host)
        is_long = len(data) > LONG_REQUEST_BYTES or _partitions_of(request) > LONG_REQUEST_PARTITIONS
        turns, controller = (self._turns_of_long, self._for_long) if is_long else (self._turns, self._controller)
        whole = getattr(context, "whole", None)
        try:
            async with (
                self._order.turn(context.connection, is_long, _timeout_ms(request)) as in_order_ms,
                turns.turn(client, in_order_ms, whole) as left_ms,
            ):
                answer = await controller.request(envelope(0), left_ms, resends_max=RESENDS_MAX, again=envelope)
        except (TimeoutError, ConnectionError, UnsupportedVersion):
            await self._failures.next()
            error = ApiError(ErrorCode.REQUEST_TIMED_OUT, "The active controller did not answer in time.")
            return failure_response(request, version, error)
        if answer.error_code != ErrorCode.NONE or answer.response_data is None:
            error = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "The controller could not read the request.")
            return failure_response(request, version, error)
        api_spec = api(request.API_KEY)
        assert api_spec is not None
        _, position = decode_response_header(answer.response_data, request.API_KEY, version)
        return api_spec.response.decode(version, answer.response_data, position)

    async def ask(self, request: Any, timeout_ms: int = FORWARD_TIMEOUT_MS) -> Any:
        """The controller's response to a request that this broker sends because of a client. Raises TimeoutError, ConnectionError."""
        return await self._controller.request(request, timeout_ms, resends_max=RESENDS_MAX)

    async def until(self, condition: Callable[[MetadataImage], bool], timeout_ms: int = CATCH_UP_MS) -> bool:
        """Wait until this broker's metadata image satisfies `condition`."""
        return await self._metadata.wait_until(condition, timeout_ms)


def seen_topics(metadata: ImageWaiter, request: Any) -> tuple[SeenTopic, ...]:
    """This broker's metadata of the topics that the request deletes or adds partitions to."""
    if isinstance(request, DeleteTopicsRequest):
        named = [*request.topic_names, *(topic.name for topic in request.topics)]
        topic_ids = [topic.topic_id for topic in request.topics if topic.name is None]
    elif isinstance(request, CreatePartitionsRequest):
        named, topic_ids = [topic.name for topic in request.topics], []
    else:
        return ()
    image = metadata.image
    found = [image.topics_by_name.get(name) for name in named if name is not None]
    found += [image.topics_by_id.get(topic_id) for topic_id in topic_ids]
    return tuple(SeenTopic(topic.name, topic.topic_id, len(topic.partitions)) for topic in found if topic is not None)


def _partitions_of(request: Any) -> int:
    """How many partitions the request creates, or for CreatePartitions has in the end."""
    if isinstance(request, CreateTopicsRequest):
        return sum(max(topic.num_partitions, len(topic.assignments)) for topic in request.topics)
    return sum(topic.count for topic in request.topics) if isinstance(request, CreatePartitionsRequest) else 0


def _timeout_ms(request: Any) -> int:
    timeout_ms = getattr(request, "timeout_ms", FORWARD_TIMEOUT_MS)
    return max(1, min(timeout_ms if timeout_ms > 0 else FORWARD_TIMEOUT_MS, FORWARD_TIMEOUT_MS))


def principal_bytes(principal: str, forwarded: Forwarded | None = None) -> bytes:
    """DefaultPrincipalData version 0: type, name, whether a delegation token authenticated it. `forwarded` becomes a tagged field that
    others ignore."""
    kind, _, name = principal.partition(":")
    data = bytearray(b"\0\0")
    for text in (kind, name):
        raw = text.encode()
        append_unsigned_varint(data, len(raw) + 1)
        data += raw
    data.append(isinstance(principal, TokenPrincipal))
    append_unsigned_varint(data, 0 if forwarded is None else 1)
    if forwarded is not None:
        field = bytearray(forwarded.key)
        field.append(forwarded.tries)
        for topic in forwarded.seen:
            encoded = topic.name.encode()
            append_unsigned_varint(field, len(encoded))
            field += encoded + topic.topic_id
            append_unsigned_varint(field, topic.partitions)
        append_unsigned_varint(data, FORWARDED_TAG)
        append_unsigned_varint(data, len(field))
        data += field
    return bytes(data)


def forwarded_of(data: bytes | None) -> Forwarded | None:
    """The inverse of `principal_bytes` for `forwarded`; None if the field is missing, as in requests of Apache Kafka's brokers."""
    if data is None:
        return None
    try:
        _, position = _texts(data)
        tags, position = read_unsigned_varint(data, position + 1)
        for _ in range(tags):
            tag, position = read_unsigned_varint(data, position)
            size, position = read_unsigned_varint(data, position)
            if tag == FORWARDED_TAG and KEY_BYTES < size <= len(data) - position:
                return _forwarded(bytes(data[position : position + size]))
            position += size
    except (IndexError, ValueError, WireError):
        return None
    return None


def _forwarded(field: bytes) -> Forwarded:
    """Raises IndexError, ValueError, WireError."""
    seen, position = [], KEY_BYTES + 1
    while position < len(field):
        length, position = read_unsigned_varint(field, position)
        name, position = field[position : position + length].decode(), position + length
        topic_id, position = field[position : position + UUID_BYTES], position + UUID_BYTES
        partitions, position = read_unsigned_varint(field, position)
        seen.append(SeenTopic(name, topic_id, partitions))
    return Forwarded(field[:KEY_BYTES], field[KEY_BYTES], tuple(seen))


def principal_of(data: bytes | None) -> str:
    """The principal in an envelope, for example "User:alice". Raises ValueError unless `data` is DefaultPrincipalData version 0."""
    if data is None:
        raise ValueError("there is no principal")
    try:
        if bytes(data[:2]) != b"\0\0":
            raise ValueError(f"principal data of version {int.from_bytes(data[:2], 'big')}")
        texts, position = _texts(data)
        name = ":".join(text.decode() for text in texts)
        return TokenPrincipal(name) if data[position] else name
    except (IndexError, UnicodeDecodeError, WireError) as error:
        raise ValueError(f"the principal cannot be read: {error}") from error


def _texts(data: bytes) -> tuple[list[bytes], int]:
    """The type and the name in DefaultPrincipalData, and the position after them. Raises ValueError, IndexError, WireError."""
    texts, position = [], 2
    for _ in range(2):
        length, position = read_unsigned_varint(data, position)
        end = position + length - 1
        if length < 1 or end > len(data):
            raise ValueError("the principal is truncated")
        texts.append(bytes(data[position:end]))
        position = end
    return texts, position


def host_of(address: bytes) -> str:
    """The inverse of `address_bytes`. Raises ValueError."""
    return str(ipaddress.ip_address(bytes(address)))


def address_bytes(host: str) -> bytes:
    """The address as java.net.InetAddress.getAddress returns it; the loopback address if `host` is not an IP address."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return bytes((127, 0, 0, 1))
