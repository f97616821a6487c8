"""The controller listener: requests of brokers, of other controllers and, in envelopes, of clients."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from minikafka.broker.front.error_responses import failure_response
from minikafka.broker.front.forwarding import forwarded_of, host_of, principal_of
from minikafka.broker.front.long_answers import LongAnswers
from minikafka.broker.supervise import Ends
from minikafka.net.channel import CLIENT_SOFTWARE_NAME
from minikafka.wire.errors import ApiError, ErrorCode, WireError
from minikafka.wire.frame import encode_response
from minikafka.wire.header import RequestHeader, decode_request_header
from minikafka.wire.message import Piece
from minikafka.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from minikafka.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from minikafka.wire.messages.alter_configs import AlterConfigsRequest
from minikafka.wire.messages.alter_partition import AlterPartitionRequest
from minikafka.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from minikafka.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from minikafka.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from minikafka.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from minikafka.wire.messages.broker_registration import BrokerRegistrationRequest
from minikafka.wire.messages.controller_registration import ControllerRegistrationRequest
from minikafka.wire.messages.create_acls import CreateAclsRequest
from minikafka.wire.messages.create_partitions import CreatePartitionsRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.delete_acls import DeleteAclsRequest
from minikafka.wire.messages.delete_topics import DeleteTopicsRequest
from minikafka.wire.messages.elect_leaders import ElectLeadersRequest
from minikafka.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minikafka.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from minikafka.wire.messages.unregister_broker import UnregisterBrokerRequest
from minikafka.wire.messages.unregister_controller import UnregisterControllerRequest
from minikafka.wire.messages.update_features import UpdateFeaturesRequest

if TYPE_CHECKING:
    from minikafka.broker.front.dispatch import Dispatcher, RequestContext
    from minikafka.broker.front.quotas import ClientQuotaHost
    from minikafka.broker.quorum.controller_host import ControllerHost
    from minikafka.core.controller.forwarded import Forwarded

log = logging.getLogger("minikafka.controller")

#: The requests that a broker may forward for a client (ApiKeys.forwardable).
FORWARDABLE: tuple[Any, ...] = (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    CreatePartitionsRequest,
    IncrementalAlterConfigsRequest,
    AlterConfigsRequest,
    ElectLeadersRequest,
    UpdateFeaturesRequest,
    AlterClientQuotasRequest,
    AlterUserScramCredentialsRequest,
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    UnregisterBrokerRequest,
    UnregisterControllerRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
)

_OWN: tuple[Any, ...] = (
    BrokerRegistrationRequest,
    BrokerHeartbeatRequest,
    AlterPartitionRequest,
    AllocateProducerIdsRequest,
    AssignReplicasToDirsRequest,
    ControllerRegistrationRequest,
)

#: The API keys of these, and of APIs that other handlers of the listener serve (DescribeQuorum, Add/RemoveRaftVoter, tokens).
FORWARDABLE_KEYS = frozenset({request.API_KEY for request in FORWARDABLE} | {38, 39, 40, 51, 55, 80, 81})


class EnvelopeContext:
    """The context of a request that came in an envelope. The answer is sent in an envelope, too."""

    __slots__ = (
        "_outer",
        "api_key",
        "api_version",
        "client_host",
        "client_id",
        "connection",
        "correlation_id",
        "entry",
        "forwarded",
        "listener",
        "principal",
        "received_ms",
    )

    def __init__(
        self, outer: RequestContext, header: RequestHeader, entry: Any, principal: str, client_host: str, forwarded: Forwarded | None
    ) -> None:
        """`principal` and `client_host`: the client for which the broker forwards the request; `forwarded`: how often the request
        was sent before, if the broker says so."""
        self._outer = outer
        self.api_key = header.api_key
        self.api_version = header.api_version
        self.client_id = header.client_id
        self.correlation_id = header.correlation_id
        self.connection = outer.connection
        self.entry = entry
        self.forwarded = forwarded
        self.listener = outer.listener
        self.principal = principal
        self.client_host = client_host
        self.received_ms = outer.received_ms

    is_forwarded = True

    @property
    def header(self) -> EnvelopeContext:
        """api_key, api_version, correlation_id, client_id."""
        return self

    def respond(self, response: Any) -> None:
        """Answer in an envelope."""
        if LongAnswers.is_long(response):
            self.entry.long_answers.start(self, response, partial(self.respond_encoded, response))
            return
        self.respond_encoded(response, encode_response(response, self.api_version, self.correlation_id))

    @property
    def is_answered(self) -> bool:
        """Whether the envelope has been answered."""
        return self._outer.is_answered

    def complete(self, response: Any) -> None:
        """Nothing to fill in."""

    def keep(self, size: int) -> None:
        """See RequestContext."""
        self._outer.keep(size)

    def respond_encoded(self, response: Any, pieces: list[Any]) -> None:
        """Answer with a response that is already encoded as `pieces`."""
        self._outer.respond(EnvelopeResponse(response_data=_joined(pieces)[4:], error_code=ErrorCode.NONE))

    def not_controller(self) -> None:
        """Answer the envelope itself with NOT_CONTROLLER, so that the broker asks another controller."""
        self._outer.respond(EnvelopeResponse(response_data=None, error_code=ErrorCode.NOT_CONTROLLER))

    def close(self, reason: str = "") -> None:
        """Close the connection, because the request cannot be answered."""
        self._outer.respond(EnvelopeResponse(response_data=None, error_code=ErrorCode.UNKNOWN_SERVER_ERROR))


def _joined(pieces: list[Piece]) -> bytes:
    return b"".join(bytes(piece) for piece in pieces if isinstance(piece, (bytes, bytearray, memoryview)))


class ControllerHandlers:
    """Serves the controller listener. On a node that is not the active controller every answer is NOT_CONTROLLER."""

    def __init__(self, host: ControllerHost, quotas: ClientQuotaHost | None = None) -> None:
        self._host = host
        self._quotas = quotas
        self._dispatcher: Dispatcher | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def register(self, dispatcher: Dispatcher) -> None:
        """Serve every controller API of this module on `dispatcher`."""
        self._dispatcher = dispatcher
        for request in (*_OWN, *FORWARDABLE):
            dispatcher.register(request, self.handle)
        dispatcher.register(EnvelopeRequest, self.envelope)
        dispatcher.subscribe_connection_ends(self._host.connection_closed)

    def handle(self, context: Any, request: Any) -> None:
        """Pass a request to the active controller, which answers when its decision is committed."""
        version = context.api_version
        quotas = self._quotas
        budget = None if quotas is None else quotas.budget(context.principal, context.client_id, context.api_key, version)

        def respond(response: Any, error: ApiError | None) -> None:
            # The answer may be sent after the commit together with others; a failure here must not stop those.
            with self._host.supervisor.watching(f"an answer to {type(request).__name__}", ends=Ends("connection", context.close)):
                answer(response, error)

        def answer(response: Any, error: ApiError | None) -> None:
            if error is None:
                if budget is not None and budget.pause_ms > 0:
                    # The broker that sent the envelope mutes the client's connection, so only report the pause.
                    response.throttle_time_ms = budget.reported_pause_ms()
                    if not context.is_forwarded:
                        context.connection.mute(budget.pause_ms)
                context.respond(response)
            elif error.code is ErrorCode.NOT_CONTROLLER and context.is_forwarded:
                context.not_controller()
            else:
                context.respond(failure_response(request, version, error))

        connect_ms = self._connect_ms(context) if isinstance(request, (BrokerHeartbeatRequest, BrokerRegistrationRequest)) else None
        spend = None if budget is None else budget.spend
        forwarded = context.forwarded if context.is_forwarded else None
        is_direct = not context.is_forwarded
        client = (str(context.principal), context.client_host)
        self._host.handle(request, version, respond, context.connection, spend, connect_ms, forwarded, is_direct, client)

    def _connect_ms(self, context: Any) -> int | None:
        """The time from a minikafka broker's first bytes on this connection to this request, in ms. None for other brokers, which do not
        reconnect before their next heartbeat is due."""
        assert self._dispatcher is not None
        _, name, _ = self._dispatcher.software.get(context.connection, ("", "", ""))
        return self._dispatcher.age_ms(context.connection) if name == CLIENT_SOFTWARE_NAME else None

    def envelope(self, context: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse | None:
        """Envelope (KIP-590): a client's request, forwarded by a broker."""
        if not self._host.is_active:
            return EnvelopeResponse(response_data=None, error_code=ErrorCode.NOT_CONTROLLER)
        assert self._dispatcher is not None
        data = request.request_data
        try:
            header, position = decode_request_header(data)
            entry = next((entry for entry in self._dispatcher.entries if entry.api_key == header.api_key), None)
            if entry is None or header.api_key not in FORWARDABLE_KEYS or not entry.min_version <= header.api_version <= entry.max_version:
                log.warning("an envelope holds API %d version %d, which cannot be forwarded", header.api_key, header.api_version)
                return EnvelopeResponse(response_data=None, error_code=ErrorCode.INVALID_REQUEST)
            inner = self._dispatcher.large.short(entry, header.api_version, data, position)
        except WireError as error:
            log.warning("an envelope holds a request that cannot be read: %s", error)
            return EnvelopeResponse(response_data=None, error_code=ErrorCode.INVALID_REQUEST)
        try:
            principal, host = principal_of(request.request_principal), host_of(request.client_host_address)
        except ValueError as error:
            log.warning("an envelope does not say whose request it holds: %s", error)
            return EnvelopeResponse(response_data=None, error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
        inner_context = EnvelopeContext(context, header, entry, principal, host, forwarded_of(request.request_principal))
        if inner is None:
            self._dispatcher.large.serve(inner_context, entry, data, position)
            return None
        if entry.is_async:
            task = self._dispatcher.supervisor.start(
                self._run(entry, inner_context, inner), f"forwarded {entry.name}", ends=Ends("connection", context.close)
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return None
        handler: Any = entry.handler
        try:
            self._finish(inner_context, handler(inner_context, inner))
        except ApiError as error:
            inner_context.respond(failure_response(inner, header.api_version, error))
        return None

    async def _run(self, entry: Any, context: EnvelopeContext, request: Any) -> None:
        try:
            self._finish(context, await entry.handler(context, request))
        except ApiError as error:
            context.respond(failure_response(request, context.api_version, error))

    @staticmethod
    def _finish(context: EnvelopeContext, response: Any) -> None:
        if response is not None:
            context.respond(response)
