"""Metadata and DescribeTopicPartitions: topics, leaders and brokers for clients (Kafka's KRaftMetadataCache)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from minikafka.broker.front.error_responses import failure_response
from minikafka.broker.partitions.partition import INTERNAL_TOPICS
from minikafka.broker.supervise import Ends
from minikafka.core.metadata.image import NO_LEADER, BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage
from minikafka.core.topic_name import topic_name_fault
from minikafka.counted import counted
from minikafka.net.channel import UnsupportedVersion
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.lazy_list import lazy_list
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from minikafka.wire.messages.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.front.dispatch import Dispatcher, RequestContext
    from minikafka.broker.front.forwarding import Forwarder
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.broker.supervise import Supervisor
    from minikafka.core.metadata.delta import MetadataDelta
    from minikafka.net.network import Clock

log = logging.getLogger("minikafka.metadata")

#: All operations that an authorizer can grant on a topic and on the cluster, as bit sets. Reported when there is no authorizer.
TOPIC_OPERATIONS = 3576
CLUSTER_OPERATIONS = 8096
PARTITIONS_PER_RESPONSE_MAX = 2000
#: Bound on unknown topics in one answer; the client continues from the cursor, as it does for partitions.
UNKNOWN_TOPICS_PER_RESPONSE_MAX = 500
#: Time limit of automatic topic creation, and bound on topics being created at a time.
CREATION_WAIT_MS = 2_000
CREATIONS_MAX = 1_000
#: Topics described in one turn of the loop.
TOPICS_AT_ONCE = 64
#: How long a request is held if its answer would name a leader to which this broker has just lost its connection. The leader has probably
#: died, and the client would ask for its successor only after a back-off.
LOST_LEADER_WAIT_MS = 1_000
LOST_LEADER_CHECK_MS = 20
#: How long a fenced broker stays in answers. If the old broker of moved partitions vanishes in the same answer, librdkafka forgets the new
#: leaders, and asks again only a second later.
FENCED_NAMED_MS = 2_000

_ZERO_ID = bytes(16)


class MetadataHandlers:
    """Answers from this broker's image. Creates missing topics if the client and the configuration allow it."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataHost,
        forwarder: Forwarder,
        cluster_id: str,
        clock: Clock,
        supervisor: Supervisor,
        lost_leaders: AbstractSet[int] = frozenset(),
    ) -> None:
        """`lost_leaders`: ids of brokers that replicas here follow and that are not answering at the moment."""
        self._clock = clock
        self._supervisor = supervisor
        self._lost_leaders = lost_leaders
        #: Id of a broker that was fenced -> until when answers still name it.
        self._named_until_ms: dict[int, int] = {}
        metadata.subscribe(self._on_metadata)
        self._config = config
        self._metadata = metadata
        self._forwarder = forwarder
        self._cluster_id = cluster_id
        #: Topics whose creation is in progress; at most CREATIONS_MAX.
        self._creating: set[str] = set()
        #: A cache of described topics, valid for this image.
        self._described_image: MetadataImage | None = None
        self._described: dict[tuple[bytes, str, int, int], MetadataResponse.MetadataResponseTopic] = {}

    def register(self, dispatcher: Dispatcher) -> None:
        """Register both APIs."""
        dispatcher.register(MetadataRequest, self.metadata)
        dispatcher.register(DescribeTopicPartitionsRequest, self.describe_topic_partitions)

    # -- Metadata --------------------------------------------------------------------------------------------------

    def metadata(self, context: RequestContext, request: MetadataRequest) -> MetadataResponse | None:
        """Metadata. Null topics means all topics, an empty list means none (version 0: all)."""
        version = context.api_version
        topics = request.topics
        if topics is not None and version in {10, 11} and any(topic.name is None or topic.topic_id != _ZERO_ID for topic in topics):
            return _refused_by_id(topics)
        image = self._metadata.image
        if self._lost_leaders and self._names_lost_leader(image, topics):
            ends = Ends("connection", context.close)
            self._supervisor.start(self._answer_later(context, request), "an answer to Metadata", ends=ends)
            return None
        return self._answer(context, request)

    def _on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        for broker_id, broker in delta.changed_brokers.items():
            before = delta.base.brokers.get(broker_id)
            if broker is not None and broker.fenced and before is not None and not before.fenced:
                self._named_until_ms[broker_id] = self._clock.now_ms() + FENCED_NAMED_MS

    def _names_lost_leader(self, image: MetadataImage, topics: list[MetadataRequest.MetadataRequestTopic] | None) -> bool:
        """Whether the answer would name a leader that is not answering."""
        if topics is None:
            found = list(image.topics_by_id.values())
        else:
            names, ids = _requested(topics)
            requested = [*map(image.topics_by_name.get, names), *map(image.topics_by_id.get, ids)]
            found = [topic for topic in requested if topic is not None]
        return any(partition.leader in self._lost_leaders for topic in found for partition in topic.partitions.values())

    async def _answer_later(self, context: RequestContext, request: MetadataRequest) -> None:
        """Answer when the leaders are back or others lead, but after LOST_LEADER_WAIT_MS at the latest."""
        deadline_ms = self._clock.now_ms() + LOST_LEADER_WAIT_MS
        while self._clock.now_ms() < deadline_ms and self._lost_leaders and self._names_lost_leader(self._metadata.image, request.topics):
            await self._metadata.wait_until(lambda image: not self._names_lost_leader(image, request.topics), LOST_LEADER_CHECK_MS)
        context.respond(self._answer(context, request))

    def _answer(self, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        version, topics, image = context.api_version, request.topics, self._metadata.image
        if topics is None or (version == 0 and not topics):
            return self._response(context, request, image, None, [])
        names, ids = _requested(topics)
        if request.allow_auto_topic_creation and self._config.auto_create_topics_enable:
            missing = [name for name in dict.fromkeys(names) if name not in image.topics_by_name and topic_name_fault(name) is None]
            missing = [name for name in missing if name not in INTERNAL_TOPICS]
            self._create(missing)
        return self._response(context, request, image, names, ids)

    def _create(self, missing: list[str]) -> None:
        """Start to create topics with this broker's defaults. The client asks again, as with Apache Kafka.

        Topics that are already being created are skipped, and so are topics above the bound: a later request creates them.
        """
        names = [name for name in missing if name not in self._creating][: CREATIONS_MAX - len(self._creating)]
        if names:
            self._creating.update(names)
            self._supervisor.start(self._create_now(names), "creation of topics for Metadata", ends=Ends("creation", log.error))

    async def _create_now(self, names: list[str]) -> None:
        config, kind = self._config, CreateTopicsRequest.CreatableTopic
        partitions, replicas = config.num_partitions, config.default_replication_factor
        topics = [kind(name=name, num_partitions=partitions, replication_factor=replicas) for name in names]
        try:
            response = await self._forwarder.ask(CreateTopicsRequest(topics=topics, timeout_ms=CREATION_WAIT_MS), CREATION_WAIT_MS)
        except (TimeoutError, ConnectionError, UnsupportedVersion) as error:
            log.warning("could not create %s automatically (%s ..): %s", counted(len(names), "topic"), names[0], error)
            return
        finally:
            self._creating.difference_update(names)
        for topic in response.topics:
            code = ErrorCode(topic.error_code)
            if code not in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
                log.warning("could not create topic %s automatically: %s", topic.name, topic.error_message or code.name)

    def _response(
        self,
        context: RequestContext,
        request: MetadataRequest,
        image: MetadataImage,
        names: Sequence[str] | None,
        ids: Sequence[bytes],
    ) -> MetadataResponse:
        """`names` None: all topics."""
        version, listener = context.api_version, context.listener
        operations = TOPIC_OPERATIONS if version >= 8 and request.include_topic_authorized_operations else -(2**31)
        unknown, described, errors = [], [], []
        for topic_id in ids:
            topic = image.topics_by_id.get(topic_id)
            if topic is None:
                unknown.append(_topic_error(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID))
            else:
                described.append(self._topic(image, topic, listener, version, operations))
        for name in dict.fromkeys(names or ()):
            topic = image.topics_by_name.get(name)
            if topic is not None:
                described.append(self._topic(image, topic, listener, version, operations))
            elif topic_name_fault(name) is not None:
                errors.append(_topic_error(name, _ZERO_ID, ErrorCode.INVALID_TOPIC_EXCEPTION))
            else:
                errors.append(_topic_error(name, _ZERO_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        response = MetadataResponse(
            brokers=[
                MetadataResponse.MetadataResponseBroker(
                    node_id=broker.broker_id, host=broker.listeners[listener][0], port=broker.listeners[listener][1], rack=broker.rack
                )
                for broker in self._listed_brokers(image, listener)
            ],
            cluster_id=self._cluster_id,
            controller_id=controller_for_clients(image, self._config.node_id),
            topics=[*unknown, *described, *errors],
        )
        if names is None:
            response.topics = lazy_list(
                image.topics_by_name.values(), lambda topic: self._topic(image, topic, listener, version, operations), TOPICS_AT_ONCE
            )
        if 8 <= version <= 10 and request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = CLUSTER_OPERATIONS
        return response

    def _listed_brokers(self, image: MetadataImage, listener: str) -> list[BrokerRegistration]:
        """Live brokers, and for a moment those that were just fenced; all registered brokers if none is live.

        Apache Kafka names none in that case. Its Java client ignores such an answer, but librdkafka (2.10 and later) forgets all brokers
        that it does not name, and so the last address that it could ask again.
        """
        found, named = alive_on(image, listener), self._named_until_ms
        if named:
            for broker_id, until_ms in list(named.items()):
                broker = image.brokers.get(broker_id)
                if broker is None or not broker.fenced or until_ms <= self._clock.now_ms():
                    del named[broker_id]
                elif listener in broker.listeners:
                    found.append(broker)
            found.sort(key=lambda broker: broker.broker_id)
        return found or registered_on(image, listener)

    def _topic(
        self, image: MetadataImage, topic: TopicImage, listener: str, version: int, operations: int
    ) -> MetadataResponse.MetadataResponseTopic:
        if image is not self._described_image:
            self._described_image = image
            self._described.clear()
        key = (topic.topic_id, listener, version, operations)
        described = self._described.get(key)
        if described is None:
            described = self._described[key] = _topic(image, topic, listener, version, operations)
        return described

    # -- DescribeTopicPartitions -----------------------------------------------------------------------------------

    def describe_topic_partitions(
        self, context: RequestContext, request: DescribeTopicPartitionsRequest
    ) -> DescribeTopicPartitionsResponse:
        """DescribeTopicPartitions (KIP-966): topics by name, up to the requested number of partitions, and a cursor to continue from."""
        cursor = request.cursor
        text = None if cursor is None else cursor_fault_of(request, cursor)
        if text:
            failed: DescribeTopicPartitionsResponse = failure_response(request, 0, ApiError(ErrorCode.INVALID_REQUEST, text))
            return failed
        image = self._metadata.image
        wanted = [topic.name for topic in request.topics] if request.topics else list(image.topics_by_name)
        names = sorted({name: None for name in wanted if cursor is None or name >= cursor.topic_name})
        left = max(1, min(request.response_partition_limit, PARTITIONS_PER_RESPONSE_MAX))
        response, unknown = DescribeTopicPartitionsResponse(), 0
        page: list[tuple[str, TopicImage | None, Sequence[int]]] = []
        for name in names:
            topic = image.topics_by_name.get(name)
            if left == 0 or (topic is None and unknown == UNKNOWN_TOPICS_PER_RESPONSE_MAX):
                response.next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=0)
                break
            if topic is None:
                unknown += 1
                page.append((name, None, ()))
                continue
            start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
            indexes = [index for index in sorted(topic.partitions) if index >= start]
            page.append((name, topic, indexes[:left]))
            if len(indexes) > left:
                response.next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=indexes[left])
                break
            left -= len(indexes)
        response.topics = lazy_list(page, lambda entry: _described(image, *entry, context.listener), TOPICS_AT_ONCE)
        return response


def cursor_fault_of(request: DescribeTopicPartitionsRequest, cursor: DescribeTopicPartitionsRequest.Cursor) -> str | None:
    """What is wrong with the cursor of a request, or None."""
    if request.topics and all(topic.name != cursor.topic_name for topic in request.topics):
        return f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {cursor.topic_name}"
    if cursor.partition_index < 0:
        return f"DescribeTopicPartitionsRequest cursor partition must be valid: {cursor.topic_name}-{cursor.partition_index}"
    return None


# -- parts of responses --------------------------------------------------------------------------------------------


def alive_on(image: MetadataImage, listener: str) -> list[BrokerRegistration]:
    """Unfenced brokers that have the listener, in order of ids."""
    return [broker for broker in registered_on(image, listener) if not broker.fenced]


def registered_on(image: MetadataImage, listener: str) -> list[BrokerRegistration]:
    """Registered brokers that have the listener, in order of ids."""
    found = [broker for broker in image.brokers.values() if listener in broker.listeners]
    return sorted(found, key=lambda broker: broker.broker_id)


def controller_for_clients(image: MetadataImage, node_id: int) -> int:
    """A live broker for administrative requests, -1 if there is none. This one if it is in service, because every broker forwards."""
    own = image.brokers.get(node_id)
    if own is not None and not own.fenced:
        return node_id
    return next((broker.broker_id for broker in image.alive_brokers()), -1)


def _is_online(image: MetadataImage, partition: PartitionRegistration, broker_id: int, listener: str) -> bool:
    broker = image.brokers.get(broker_id)
    if broker is None or broker.fenced or listener not in broker.listeners:
        return False
    return broker.has_online_directory(partition.directory(broker_id))


def _is_reachable(image: MetadataImage, broker_id: int, listener: str) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced and listener in broker.listeners


def _leader_error(image: MetadataImage, leader: int, names_listeners: bool) -> ErrorCode:
    """Why no leader is named: it is not alive, or it does not have the client's listener (an error of its own from version 6 on)."""
    if leader in image.brokers and names_listeners:
        return ErrorCode.LISTENER_NOT_FOUND
    return ErrorCode.LEADER_NOT_AVAILABLE


def _partition(
    image: MetadataImage, index: int, partition: PartitionRegistration, listener: str, version: int
) -> MetadataResponse.MetadataResponsePartition:
    replicas, isr = list(partition.replicas), list(partition.isr)
    offline = [replica for replica in replicas if not _is_online(image, partition, replica, listener)]
    code = ErrorCode.NONE
    if version == 0 and offline:
        replicas = [replica for replica in replicas if _is_reachable(image, replica, listener)]
        isr = [replica for replica in isr if _is_reachable(image, replica, listener)]
        if len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
            code = ErrorCode.REPLICA_NOT_AVAILABLE
    leader = partition.leader
    if not _is_reachable(image, leader, listener):
        code, leader = _leader_error(image, leader, version >= 6), NO_LEADER
    return MetadataResponse.MetadataResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline,
    )


def _topic(image: MetadataImage, topic: TopicImage, listener: str, version: int, operations: int) -> MetadataResponse.MetadataResponseTopic:
    return MetadataResponse.MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=lazy_list(topic.partitions.items(), lambda entry: _partition(image, *entry, listener, version)),
        topic_authorized_operations=operations,
    )


def _topic_error(name: str | None, topic_id: bytes, code: ErrorCode) -> MetadataResponse.MetadataResponseTopic:
    return MetadataResponse.MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, is_internal=name in INTERNAL_TOPICS)


def _requested(topics: Sequence[MetadataRequest.MetadataRequestTopic]) -> tuple[list[str], list[bytes]]:
    """(names, ids) of the requested topics. If there is any id, only ids count: Kafka's Admin sends empty names with them
    (KafkaApis.handleTopicMetadataRequest)."""
    ids = [topic.topic_id for topic in topics if topic.topic_id != _ZERO_ID or topic.name is None]
    return ([] if ids else [topic.name for topic in topics if topic.name is not None]), ids


def _refused_by_id(topics: Sequence[MetadataRequest.MetadataRequestTopic]) -> MetadataResponse:
    """Versions 10 and 11 have topic ids in the request but do not support them (KAFKA-12701): refuse all its topics."""
    return MetadataResponse(
        topics=[
            MetadataResponse.MetadataResponseTopic(
                error_code=ErrorCode.INVALID_REQUEST, name="" if topic.name is None else topic.name, topic_id=topic.topic_id
            )
            for topic in topics
        ]
    )


def _described(
    image: MetadataImage, name: str, topic: TopicImage | None, indexes: Sequence[int], listener: str
) -> DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic:
    """The topic with these partitions; None: an error."""
    kind = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
    if topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic_name_fault(name) is None else ErrorCode.INVALID_TOPIC_EXCEPTION
        return kind(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)
    return kind(
        error_code=ErrorCode.NONE,
        name=name,
        topic_id=topic.topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=lazy_list(indexes, lambda index: _described_partition(image, index, topic.partitions[index], listener)),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _described_partition(
    image: MetadataImage, index: int, partition: PartitionRegistration, listener: str
) -> DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition:
    leader, code = partition.leader, ErrorCode.NONE
    if not _is_reachable(image, leader, listener):
        code, leader = _leader_error(image, leader, True), NO_LEADER
    return DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=[replica for replica in partition.replicas if not _is_online(image, partition, replica, listener)],
    )
