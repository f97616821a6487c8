"""Produce (API key 0): append, then answer at once (acks=1), never (acks=0), or when every in-sync replica has it (acks=all)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from minikafka.broker.front.error_responses import failure_response
from minikafka.broker.partitions.produce_fast_path import ProduceFastPath
from minikafka.broker.partitions.produce_handover import ServedHere
from minikafka.broker.partitions.produce_preparation import Preparation, Prepared, keep_last_of_each
from minikafka.broker.partitions.produce_run import ProduceParts, ProduceRun
from minikafka.broker.partitions.produce_transactional import lacks_transactional_id
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.produce import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from minikafka.broker.environment import Environment
    from minikafka.broker.front.dispatch import Dispatcher, RequestContext
    from minikafka.broker.front.heavy_work import HeavyWork
    from minikafka.broker.partitions.handover import HandoverHost, Held
    from minikafka.broker.partitions.produce_transactional import TransactionalProduce, Verdicts
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.broker.quorum.metadata_log import MetadataHost


class ProduceHandlers:
    """Serves Produce."""

    def __init__(
        self,
        replicas: ReplicaManager,
        metadata: MetadataHost,
        environment: Environment,
        heavy_work: HeavyWork,
        transactional: TransactionalProduce,
        handover: HandoverHost,
    ) -> None:
        """`transactional` asks transaction coordinators; `handover` passes late requests on to new leaders."""
        self._replicas = replicas
        self._preparation = Preparation(replicas, heavy_work, environment.clock.wall_ms, environment.shares)
        self._clock = environment.clock
        self._shares = environment.shares
        self._transactional = transactional
        self.entry: Any = None
        self._parts = ProduceParts(replicas, metadata, environment, handover, self._serve_held, self._count_error)

    def register(self, dispatcher: Dispatcher) -> None:
        """Serve Produce on a broker listener."""
        fast_path = partial(ProduceFastPath, self._replicas, self._clock, self._shares, self._preparation)
        self.entry = dispatcher.register(ProduceRequest, self.produce, fast_path)

    def produce(self, context: RequestContext, request: ProduceRequest) -> ProduceResponse | None:
        """Append the records of every partition. A batch that begins a transaction waits until the coordinator has verified it."""
        is_unnamed = lacks_transactional_id(request)
        keep_last_of_each(request)
        if is_unnamed:
            return self._refused(context, request, ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        if request.transactional_id is not None and self._transactional.has_two_producers(context, request):
            fault = ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID")
            return self._refused(context, request, fault)
        look = self._preparation.look(context, request)
        if look.found or look.is_used_up or context.connection in self._preparation.under_way:
            self._preparation.start(context, look, partial(self._begin, context, request))
            return None
        return self._begin(context, request, {})

    def _refused(self, context: RequestContext, request: ProduceRequest, fault: ApiError) -> ProduceResponse | None:
        self._count_error(fault.code)
        if request.acks:
            response: ProduceResponse = failure_response(request, context.api_version, fault)
            return response
        context.close("closed after a failed produce with acks=0")
        return None

    def _begin(self, context: RequestContext, request: ProduceRequest, prepared: Prepared) -> ProduceResponse | None:
        verdicts = None
        if request.transactional_id is not None:

            def go_on(verdicts: Verdicts, appended: Callable[[], None]) -> None:
                response = ProduceRun(self._parts, context, request, verdicts, prepared, appended).run()
                if response is not None:
                    context.respond(response)

            verdicts = self._transactional.hold(context, request, go_on)
            if verdicts is None:
                return None
        return ProduceRun(self._parts, context, request, verdicts, prepared).run()

    def _count_error(self, code: ErrorCode) -> None:
        self.entry.count_error(code)

    def _serve_held(self, part: Held) -> None:
        """Append records that were held: this broker leads the partition after all."""
        context = ServedHere(part)
        response = self.produce(context, part.request)  # type: ignore[arg-type]
        if response is not None:
            context.respond(response)
