"""Creates the internal topics of streams groups, repartition topics and changelogs, through the active controller."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

from minikafka.core.group.streams.model import InternalTopic, Status
from minikafka.counted import counted
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.create_topics import CreateTopicsRequest

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.environment import Environment
    from minikafka.broker.front.forwarding import Forwarder
    from minikafka.core.group.effects import Creation

#: Bound on failed creations that are remembered (DefaultAutoTopicCreationManager).
FAILURES_MAX = 1000
#: Bound on topics that are being created at a time; a later heartbeat requests the others.
CREATIONS_MAX = 1000
#: From version 6 on, a controller refuses topics beyond a quota instead of delaying its answer.
CREATE_TOPICS_VERSION = 7
#: Failures that one answer names; the others are counted.
FAILURES_NAMED_MAX = 3
#: (context, topics) -> those that its principal may not create.
Unauthorized = Callable[[Any, Collection[str]], Collection[str]]
logger = logging.getLogger("minikafka.coordinator")


class InternalTopics:
    """Creates each topic once at a time. A failure is reported for two heartbeat intervals, then the creation is retried."""

    def __init__(self, config: BrokerConfig, environment: Environment, forwarder: Forwarder, unauthorized: Unauthorized) -> None:
        self._timeout_ms = config.request_timeout_ms
        self._environment = environment
        self._forwarder = forwarder
        self._unauthorized = unauthorized
        #: Topics whose creation is in progress; at most CREATIONS_MAX.
        self._creating: set[str] = set()
        #: Topic -> error message, and until when it is reported.
        self._failures: dict[str, tuple[str, int]] = {}

    def create(self, creation: Creation) -> None:
        """Create the topics. A missing permission or a recent failure is added to the heartbeat's answer."""
        forbidden = self._unauthorized(creation.reply, creation.topics)
        if forbidden:
            _add_detail(creation, f"; Unauthorized to CREATE on topics {', '.join(forbidden)}.")
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
            more = f" and {len(failed) - FAILURES_NAMED_MAX} more" if len(failed) > FAILURES_NAMED_MAX else ""
            _add_detail(creation, f"; Creation failed: {', '.join(failed[:FAILURES_NAMED_MAX])}{more}.")

    async def _create(self, context: Any, topics: list[InternalTopic], lifetime_ms: int) -> None:
        """Create as the heartbeat's principal: its controller mutation quota applies, as in Apache Kafka."""
        request = CreateTopicsRequest(topics=[_creatable(topic) for topic in topics], timeout_ms=self._timeout_ms)
        try:
            response = await self._forwarder.forward(context, request, CREATE_TOPICS_VERSION)
        finally:
            self._creating.difference_update(topic.name for topic in topics)
        failures = {topic.name: topic.error_message or ErrorCode(topic.error_code).text for topic in response.topics if topic.error_code}
        if failures:
            name, text = next(iter(failures.items()))
            logger.warning("could not create %s of a streams group (%s: %s ..)", counted(len(failures), "internal topic"), name, text)
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


def _add_detail(creation: Creation, text: str) -> None:
    statuses: Iterable[Any] = creation.answer.status or ()
    for status in statuses:
        if status.status_code == Status.MISSING_INTERNAL_TOPICS:
            status.status_detail += text
