"""Sends one blocking request to one broker: enough to see whether a cluster is up, without a client."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, TypeVar, cast

from minikafka.openssl import forget_failures
from minikafka.wire.frame import encode_request
from minikafka.wire.header import decode_response_header
from minikafka.wire.message import Request, Response
from minikafka.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from minikafka.wire.messages.metadata import MetadataRequest, MetadataResponse
from minikafka.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from minikafka.wire.messages.sasl_handshake import SaslHandshakeRequest
from minikafka.wire.registry import api

if TYPE_CHECKING:
    from minikafka.security.client import ClientSecurity

Answer = TypeVar("Answer", bound=Response)
METADATA_VERSION = 12
METADATA_TOPIC = "__cluster_metadata"
FRAME_BYTES_MAX = 64 << 20


def exchange(
    host: str, port: int, request: Request, version: int, timeout_s: float = 5.0, security: ClientSecurity | None = None
) -> Response:
    """Send one request over a new connection and decode the response. Raises OSError and WireError."""
    with socket.create_connection((host, port), timeout=timeout_s) as plain:
        if security is None:
            return ask(plain, request, version)
        try:
            connection = plain if security.tls is None else security.tls.context.wrap_socket(plain, server_hostname=host)
            with connection:
                if security.mechanism:
                    _log_in(connection, security)
                return ask(connection, request, version)
        except OSError:
            forget_failures()
            raise


def _log_in(connection: socket.socket, security: ClientSecurity) -> None:
    ask(connection, SaslHandshakeRequest(mechanism=security.mechanism), 1)
    exchange = security.login()
    token: bytes | None = exchange.first()
    while token is not None:
        answer = cast(SaslAuthenticateResponse, ask(connection, SaslAuthenticateRequest(auth_bytes=token), 1))
        if answer.error_code:
            raise ConnectionError(answer.error_message or "the broker refuses the login")
        token = exchange.next(bytes(answer.auth_bytes))


def ask(connection: socket.socket, request: Request, version: int) -> Response:
    """Send one request over an open connection and decode the response. Raises OSError and WireError."""
    for piece in encode_request(request, version, 1, "minikafka-probe"):
        connection.sendall(cast(bytes, piece))
    size = int.from_bytes(_receive(connection, 4), "big", signed=True)
    if not 0 < size <= FRAME_BYTES_MAX:
        raise ConnectionError(f"an answer of {size} bytes: not a Kafka broker?")
    frame = memoryview(_receive(connection, size))
    _, position = decode_response_header(frame, request.API_KEY, version, 0)
    entry = api(request.API_KEY)
    assert entry is not None
    return entry.response.decode(version, frame, position)


def _receive(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(min(size - len(data), 1 << 20))
        if not chunk:
            raise ConnectionError("the broker closed the connection")
        data += chunk
    return bytes(data)


def metadata(
    host: str, port: int, topics: list[str] | None = None, timeout_s: float = 5.0, security: ClientSecurity | None = None
) -> MetadataResponse:
    """A broker's metadata: of all topics if `topics` is None, of no topics if it is empty. Raises OSError and WireError."""
    wanted = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    return cast(MetadataResponse, exchange(host, port, request, METADATA_VERSION, timeout_s, security))


def led_epoch(host: str, port: int, timeout_s: float = 5.0) -> int | None:
    """The epoch in which the controller at this address leads the metadata quorum; None if it does not. Raises OSError and WireError."""
    topic = DescribeQuorumRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)])
    answer = cast(DescribeQuorumResponse, exchange(host, port, DescribeQuorumRequest(topics=[topic]), 1, timeout_s))
    if answer.error_code or answer.topics[0].partitions[0].error_code:
        return None
    return answer.topics[0].partitions[0].leader_epoch
