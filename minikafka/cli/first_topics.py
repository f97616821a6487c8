"""Topics that a node creates once it has started: `KAFKA_CREATE_TOPICS=orders:6:3,audit:1:1:compact` and `start --topic`."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minikafka.broker.config.properties import ConfigurationError

if TYPE_CHECKING:
    from minikafka.client.admin import Admin
    from minikafka.security.client import ClientSecurity

logger = logging.getLogger("minikafka.node")
VARIABLE, SEPARATOR_VARIABLE = "KAFKA_CREATE_TOPICS", "KAFKA_CREATE_TOPICS_SEPARATOR"
POLICIES = ("delete", "compact")
RETRY_S = 0.5
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class FirstTopic:
    """A topic to create; -1 takes the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: dict[str, str] = field(default_factory=dict)


def parse_topics(texts: Iterable[str]) -> list[FirstTopic]:
    """name[:partitions[:replication factor[:cleanup.policy]]]. Raises ConfigurationError with every problem."""
    topics, problems = [], []
    for text in texts:
        parts = [part.strip() for part in text.strip().split(":")]
        if parts == [""]:
            continue
        counts = parts[1:3]
        if not parts[0] or len(parts) > 4 or any(count and not (count.isdigit() and int(count)) for count in counts):
            problems.append(f"{VARIABLE}: {text.strip()!r} is not name:partitions:replication-factor[:cleanup.policy]")
        elif len(parts) == 4 and parts[3] not in POLICIES:
            problems.append(f"{VARIABLE}: {text.strip()!r}: cleanup.policy must be {' or '.join(POLICIES)}")
        else:
            partitions, factor = [int(count) if count else -1 for count in counts] + [-1] * (2 - len(counts))
            topics.append(FirstTopic(parts[0], partitions, factor, {"cleanup.policy": parts[3]} if len(parts) == 4 else {}))
    if problems:
        raise ConfigurationError(problems)
    return topics


def requested_topics(options: Iterable[str]) -> list[FirstTopic]:
    """The topics named in the environment and on the command line. Raises ConfigurationError."""
    separator = os.environ.get(SEPARATOR_VARIABLE) or ","
    return parse_topics([*os.environ.get(VARIABLE, "").split(separator), *options])


async def create_topics(address: str, topics: list[FirstTopic], security: ClientSecurity | None = None) -> None:
    """Create the topics that do not exist yet. Every node of a cluster may try. A node that starts early waits for enough brokers.

    `security`: the settings for connecting to the broker's own listener."""
    from minikafka.client.admin import Admin
    from minikafka.client.errors import BrokerError, ClientError
    from minikafka.wire.errors import ErrorCode

    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    async with Admin(address, client_id="minikafka-first-topics", security=security) as admin:
        for topic in topics:
            while True:
                try:
                    await _create(admin, topic)
                    logger.info("created topic %s (%s)", topic.name, VARIABLE)
                    break
                except BrokerError as error:
                    if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                        break
                    # Too few brokers, or no controller: both can be temporary while the cluster starts.
                    is_early = error.code is ErrorCode.INVALID_REPLICATION_FACTOR or error.code.retriable
                    if not is_early or asyncio.get_running_loop().time() > deadline:
                        logger.error("cannot create topic %s: %s", topic.name, error)
                        break
                except (ClientError, OSError, TimeoutError) as error:
                    if asyncio.get_running_loop().time() > deadline:
                        logger.error("cannot create topic %s: %s", topic.name, error)
                        break
                await asyncio.sleep(RETRY_S)


async def _create(admin: Admin, topic: FirstTopic) -> None:
    await admin.create_topic(
        topic.name, partitions=topic.partitions, replication_factor=topic.replication_factor, configs=topic.configs, wait=False
    )
