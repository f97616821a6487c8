"""The internal topics of streams groups: repartition topics and changelogs, which the coordinator's broker has the controllers make."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

from minikafka.core.group.streams.model import InternalTopic, Status
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.create_topics import CreateTopicsRequest

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.environment import Environment
    from minikafka.broker.front.forwarding import Forwarder
    from minikafka.core.group.effects import Creation

#: Topics whose creation has failed and is told of (DefaultAutoTopicCreationManager).
FAILURES_MAX = 1000
#: Topics that are being made at a time; further ones are asked for with a later heartbeat.
CREATIONS_MAX = 1000
#: The request by which they are made. From version 6 on a controller refuses what is beyond a quota, and makes nobody wait for it.
CREATE_TOPICS_VERSION = 7
#: Failures that one answer names before it only counts.
FAILURES_TOLD_MAX = 3
#: (context, topics) -> those that its principal may not create.
Unauthorized = Callable[[Any, Collection[str]], Collection[str]]
logger = logging.getLogger("minikafka.coordinator")


class InternalTopics:
    """Makes them, each once at a time; what failed is told for two heartbeats, and then tried again."""

    def __init__(self, config: BrokerConfig, environment: Environment, forwarder: Forwarder, unauthorized: Unauthorized) -> None:
        self._timeout_ms = config.request_timeout_ms
        self._environment = environment
        self._forwarder = forwarder
        self._unauthorized = unauthorized
        self._creating: set[str] = set()
        #: Topic -> what went wrong, and until when that is told.
        self._failures: dict[str, tuple[str, int]] = {}

    def create(self, creation: Creation) -> None:
        """Have the topics made; if that may not be, or went wrong lately, the answer says so."""
        forbidden = self._unauthorized(creation.reply, creation.topics)
        if forbidden:
            _tell(creation, f"; Unauthorized to CREATE on topics {', '.join(forbidden)}.")
            return
        now_ms = self._environment.clock.now_ms()
        for name, (_, until_ms) in list(self._failures.items()):
            if until_ms <= now_ms:
                del self._failures[name]
        missing = [topic for name, topic in creation.topics.items() if name not in self._failures and name not in self._creating]
        missing = missing[: CREATIONS_MAX - len(self._creating)]
        if missing:
            self._creating.update(topic.name for topic in missing)
            lifetime_ms = creation.answer.heartbeat_interval_ms * 2
            self._environment.supervisor.start(self._create(creation.reply, missing, lifetime_ms), "creation of internal topics")
        failed = [f"{name} ({self._failures[name][0]})" for name in creation.topics if name in self._failures]
        if failed:
            more = f" and {len(failed) - FAILURES_TOLD_MAX} more" if len(failed) > FAILURES_TOLD_MAX else ""
            _tell(creation, f"; Creation failed: {', '.join(failed[:FAILURES_TOLD_MAX])}{more}.")

    async def _create(self, context: Any, topics: list[InternalTopic], lifetime_ms: int) -> None:
        """As whoever sent the heartbeat: what may be made at a time is bounded by the quota of its changes, as in Apache Kafka."""
        request = CreateTopicsRequest(topics=[_creatable(topic) for topic in topics], timeout_ms=self._timeout_ms)
        try:
            response = await self._forwarder.forward(context, request, CREATE_TOPICS_VERSION)
        finally:
            self._creating.difference_update(topic.name for topic in topics)
        failures = {topic.name: topic.error_message or ErrorCode(topic.error_code).text for topic in response.topics if topic.error_code}
        if failures:
            logger.warning("%d internal topics of a streams group were not created (%s ..)", len(failures), next(iter(failures.items())))
        until_ms = self._environment.clock.now_ms() + lifetime_ms
        for name, text in failures.items():
            if len(self._failures) < FAILURES_MAX:
                self._failures[name] = text, until_ms


def _creatable(topic: InternalTopic) -> CreateTopicsRequest.CreatableTopic:
    kind = CreateTopicsRequest.CreatableTopicConfig
    return CreateTopicsRequest.CreatableTopic(
        name=topic.name,
        num_partitions=topic.partition_count,
        replication_factor=topic.replication_factor or -1,
        configs=[kind(name=name, value=value) for name, value in topic.configs.items()],
    )


def _tell(creation: Creation, text: str) -> None:
    statuses: Iterable[Any] = creation.answer.status or ()
    for status in statuses:
        if status.status_code == Status.MISSING_INTERNAL_TOPICS:
            status.status_detail += text
