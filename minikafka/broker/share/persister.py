"""Sends requests to share coordinators, local or remote.

Rules: org.apache.kafka.server.share.persister.PersisterStateManager of Apache Kafka 4.3.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from minikafka.core.share.state import SharePartitionKey
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.delete_share_group_state import DeleteShareGroupStateRequest
from minikafka.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.environment import Environment
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.broker.quorum.raft_peers import RaftPeers
    from minikafka.broker.share.state_host import ShareStateHost
    from minikafka.broker.share.state_requests import ShareStateHandlers
    from minikafka.core.group.effects import StateQuestion

#: How long requests are retried, and the back-off between retries: it doubles from BACKOFF_MS to BACKOFF_MS_MAX.
RETRY_MS_MAX = 15_000
BACKOFF_MS = 50
BACKOFF_MS_MAX = 1000
_RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class SharePersister:
    """Initializes, reads, writes and deletes the states of share partitions; retries while their coordinators are unavailable."""

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        metadata: MetadataHost,
        host: ShareStateHost,
        handlers: ShareStateHandlers,
        peers: RaftPeers,
    ) -> None:
        self._node_id = config.node_id
        self._listener = config.inter_broker_listener
        self._environment = environment
        self._metadata = metadata
        self._host = host
        self._handlers = handlers
        self._peers = peers

    async def ask(self, request_class: Any, key: SharePartitionKey, **partition: Any) -> Any:
        """The partition result of one of the five requests. `partition`: the fields of the request's PartitionData."""
        data = request_class.PartitionData(partition=key.partition, **partition)
        return (await self.ask_all(request_class, key.group_id, {key.topic_id: [data]}))[key.topic_id, key.partition]

    async def answer(self, question: StateQuestion) -> dict[tuple[bytes, int], tuple[ErrorCode, str | None]]:
        """Initialize or delete states for a group coordinator."""
        topics: dict[bytes, list[Any]] = {}
        kind: Any = DeleteShareGroupStateRequest if question.state_epoch is None else InitializeShareGroupStateRequest
        for topic_id, partitions in question.topics.items():
            if question.state_epoch is None:
                topics[topic_id] = [kind.PartitionData(partition=index) for index, _ in partitions]
            else:
                epoch = question.state_epoch
                topics[topic_id] = [kind.PartitionData(partition=p, state_epoch=epoch, start_offset=start) for p, start in partitions]
        found = await self.ask_all(kind, question.group_id, topics)
        return {key: (ErrorCode(result.error_code), result.error_message) for key, result in found.items()}

    async def ask_all(
        self, request_class: Any, group_id: str, topics: dict[bytes, list[Any]]
    ) -> dict[tuple[bytes, int], Any]:
        """Partition results by topic id and partition. `topics`: the request's PartitionData by topic id.

        If a request was sent more than once, its failure is a `Failure`: an earlier request may have been carried out.
        """
        clock = self._environment.clock
        deadline_ms, backoff_ms = clock.now_ms() + RETRY_MS_MAX, BACKOFF_MS
        pending = [(topic_id, data) for topic_id, partitions in topics.items() for data in partitions]
        results: dict[tuple[bytes, int], Any] = {}
        repeated: dict[tuple[bytes, int], None] = {}
        await self._host.ensure_topic()
        while pending:
            for found in await asyncio.gather(*self._send_all(request_class, group_id, pending)):
                results.update(found)
            pending = [(topic_id, data) for topic_id, data in pending if _is_retriable(results[topic_id, data.partition])]
            if not pending or clock.now_ms() + backoff_ms > deadline_ms:
                break
            repeated.update(dict.fromkeys((topic_id, data.partition) for topic_id, data in pending))
            await asyncio.sleep(backoff_ms / 1000)
            backoff_ms = min(2 * backoff_ms, BACKOFF_MS_MAX)
        for key in repeated:
            if results[key].error_code != ErrorCode.NONE:
                results[key] = Failure(ErrorCode(results[key].error_code), results[key].error_message, may_be_done=True)
        return results

    def _send_all(self, request_class: Any, group_id: str, requested: list[tuple[bytes, Any]]) -> list[asyncio.Future[Any]]:
        """One request for each broker that coordinates some of the partitions."""
        by_leader: dict[int | None, dict[bytes, list[Any]]] = {}
        for topic_id, data in requested:
            leader = self._host.topic.leader_of(SharePartitionKey(group_id, topic_id, data.partition).text)
            by_leader.setdefault(leader, {}).setdefault(topic_id, []).append(data)
        return [self._send(leader, request_class, group_id, topics) for leader, topics in by_leader.items()]

    def _send(self, leader: int | None, request_class: Any, group_id: str, topics: dict[bytes, list[Any]]) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        request = _request(request_class, group_id, topics)

        def fail(code: ErrorCode) -> None:
            if not answer.done():
                answer.set_result({(topic_id, data.partition): Failure(code) for topic_id, some in topics.items() for data in some})

        def respond(response: Any) -> None:
            if not answer.done():
                found = {(topic.topic_id, p.partition): p for topic in response.results for p in topic.partitions}
                missing = Failure(ErrorCode.UNKNOWN_SERVER_ERROR)
                keys = [(topic_id, data.partition) for topic_id, some in topics.items() for data in some]
                answer.set_result({key: found.get(key, missing) for key in keys})

        def answered(response: Any, error: Exception | None) -> None:
            if error is not None:
                fail(ErrorCode.NETWORK_EXCEPTION)
            else:
                respond(response)

        broker = None if leader is None else self._metadata.image.brokers.get(leader)
        endpoint = None if broker is None or broker.fenced else broker.listeners.get(self._listener)
        if leader == self._node_id:
            self._handlers.serve(request, respond)
        elif endpoint is None:
            fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            self._peers.send(endpoint[0], endpoint[1], request, answered)
        return answer


class Failure:
    """The partition result when no answer arrived, or when an answer does not tell whether an earlier request was carried out."""

    def __init__(self, code: ErrorCode, message: str | None = None, *, may_be_done: bool = False) -> None:
        self.error_code = code
        self.error_message: str | None = code.text if message is None else message
        self.may_be_done = may_be_done


def _is_retriable(result: Any) -> bool:
    return result.error_code in _RETRIABLE


def _request(request_class: Any, group_id: str, topics: dict[bytes, list[Any]]) -> Any:
    # Each request class has its own name for a topic.
    kind = next(value for name, value in vars(request_class).items() if name.endswith("StateData") or name.endswith("SummaryData"))
    return request_class(
        group_id=group_id, topics=[kind(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()]
    )
