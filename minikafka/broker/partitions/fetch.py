"""Fetch (API key 1) of consumers and followers: sessions, and the limits of a request. `fetch_operation` serves the request."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from minikafka.broker.partitions.fetch_fast_path import FetchFastPath
from minikafka.broker.partitions.fetch_operation import FetchOperation
from minikafka.broker.partitions.fetch_read import CONSUMER, FetchParams, PartitionRead, PartitionReader
from minikafka.broker.partitions.fetch_steps import FetchTurns
from minikafka.broker.partitions.leader_hint import name_leader
from minikafka.core.fetch_session import FetchSessionCache
from minikafka.wire.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    import asyncio

    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.environment import Environment
    from minikafka.broker.front.dispatch import Dispatcher, RequestContext
    from minikafka.broker.partitions.partition import Partition
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.broker.quorum.metadata_log import MetadataHost

REPLICA_STATE_VERSION_MIN = 15
TOPIC_ID_VERSION_MIN = 13
FOLLOWER_READ_VERSION_MIN = 11
LEADER_HINT_VERSION_MIN = 12
ENDPOINTS_VERSION_MIN = 16
_PartitionData = FetchResponse.PartitionData
#: How long a follower's fetch may be parked while no controller answers this broker. FOLLOWED_MS is enough for two such fetches, and a
#: leader without doubt must have seen both.
UNHEARD_WAIT_MS = 250
#: After parked fetches of followers have been answered early, their next fetches are answered early, too, after this time. Two fetches
#: prove that a follower still follows; this proof must arrive before half of minikafka.heartbeat.reconnect.ms has passed.
SECOND_ASKING_MS = 20

#: (context, whether a broker fetches) -> a function that says whether a topic must not be read; None if all topics may be read.
Judge = Callable[["RequestContext", bool], Callable[[str], bool] | None]


class FetchHandlers:
    """Serves Fetch on a broker listener."""

    def __init__(
        self,
        config: BrokerConfig,
        replicas: ReplicaManager,
        metadata: MetadataHost,
        environment: Environment,
        judge: Judge | None = None,
    ) -> None:
        """`judge`: given with an authorizer, tells which topics a request must not read."""
        self.replicas = replicas
        self.metadata = metadata
        self.now_ms = environment.clock.now_ms
        self.fetch_bytes_max: int = config.fetch_max_bytes
        self.reader = PartitionReader(replicas, config.is_rack_aware)
        self._judge = judge
        self._supervisor = environment.supervisor
        self._asking: asyncio.TimerHandle | None = None
        self._cold_reads = environment.cold_reads
        self.entry: Any = None
        self.turns: FetchTurns
        #: Version -> number of requests that came from followers.
        self.follower_counts: list[int] = []
        random = environment.random
        self.sessions = FetchSessionCache(config.max_incremental_fetch_session_cache_slots, lambda: random.randrange(1, 0x7FFFFFFF))

    def register(self, dispatcher: Dispatcher) -> None:
        """Serve Fetch."""
        fast_path = partial(FetchFastPath, self.replicas, self.fetch_bytes_max, self.reader.is_rack_aware)
        entry = self.entry = dispatcher.register(FetchRequest, self.fetch, fast_path)
        self.turns = FetchTurns(self._supervisor, dispatcher.large.turns, self._cold_reads, "a fetch")
        self.follower_counts = [0] * len(entry.counts)

    def ask_followers(self) -> None:
        """Answer the parked fetches of followers now and once more a moment later. No controller hears this broker, and the next fetches
        show which followers still follow it."""
        self._answer_followers()
        if self._asking is None:
            self._asking = self._supervisor.call_later(SECOND_ASKING_MS / 1000, "asking followers", self._ask_again)

    def _ask_again(self) -> None:
        self._asking = None
        if self.replicas.is_unheard():
            self._answer_followers()

    def _answer_followers(self) -> None:
        self.replicas.waiting.fetches.expire_those(lambda fetch: isinstance(fetch, FetchOperation) and fetch.params.is_follower)

    def holds(self, partition: Partition | None) -> bool:
        """Whether this broker still has the partition."""
        return partition is not None and self.replicas.partitions.get(partition.key) is partition

    def _name_of(self, topic_id: bytes) -> str | None:
        topic = self.metadata.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def fetch(self, context: RequestContext, request: FetchRequest) -> None:
        """Answer at once if there is enough data, no wait is asked for, or there is something to report; otherwise park the request."""
        version = context.api_version
        if version >= REPLICA_STATE_VERSION_MIN:
            replica_id, broker_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
        else:
            replica_id, broker_epoch = request.replica_id, -1
        if replica_id >= 0:
            self.follower_counts[version] += 1
        if context.sample is not None:
            context.sample.name = "FetchFollower" if replica_id >= 0 else "FetchConsumer"
        if context.limits is not None:
            _limit(context, request, replica_id >= 0)
        params = FetchParams(
            replica_id if replica_id >= 0 else CONSUMER,
            broker_epoch,
            request.isolation_level,
            request.rack_id,
            by_id=version >= TOPIC_ID_VERSION_MIN,
            may_read_follower=version >= FOLLOWER_READ_VERSION_MIN,
            listener=context.listener,
            is_denied=None if self._judge is None else self._judge(context, replica_id >= 0),
        )
        wanted = self.sessions.context_in_steps(request, version, is_follower=replica_id >= 0, name_of=self._name_of, now_ms=self.now_ms())
        operation = FetchOperation(self, context, request, params)
        operation.start(operation.serving(wanted))

    def wait_ms(self, operation: FetchOperation) -> int:
        """How long a fetch may be parked, in ms."""
        wait_ms = operation.request.max_wait_ms
        return min(wait_ms, UNHEARD_WAIT_MS) if operation.params.is_follower and self.replicas.is_unheard() else wait_ms

    def hint(self, context: RequestContext, read: PartitionRead, data: _PartitionData, response: FetchResponse) -> None:
        """Name the leader, so that the client need not ask for metadata (KIP-951)."""
        if context.api_version < LEADER_HINT_VERSION_MIN:
            return
        image, wanted = self.metadata.image, read.wanted
        name_leader(
            image, image.topics_by_name.get(wanted.topic), wanted.index, context.listener, data, response,
            with_endpoint=context.api_version >= ENDPOINTS_VERSION_MIN,
        )  # fmt: skip


def _limit(context: Any, request: FetchRequest, is_follower: bool) -> None:
    """Limit the response to what a quota window allows the client. Followers have separate throttles."""
    if is_follower:
        context.exempt()
    elif context.limits.fetch is not None:
        request.max_bytes = min(request.max_bytes, context.limits.fetch.window_bytes)
        request.min_bytes = min(request.min_bytes, request.max_bytes)
