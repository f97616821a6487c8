"""Dead-letter queues of share groups (KIP-1191): archived records of a group are written to its dead-letter topic.

Rules: org.apache.kafka.server.share.dlq.ShareGroupDLQStateManager of Apache Kafka 4.4.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from minikafka.core.metadata.image import RESOURCE_TOPIC
from minikafka.core.share.partition import DeadLetter
from minikafka.core.share.state import SharePartitionKey
from minikafka.net.channel import UnsupportedVersion
from minikafka.storage.errors import StorageError
from minikafka.wire.batch import build_batch, iterate_batches
from minikafka.wire.errors import ApiError, CorruptRecord, ErrorCode
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.produce import ProduceRequest
from minikafka.wire.record import Record

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.environment import Environment
    from minikafka.broker.front.controller_channel import ControllerChannel
    from minikafka.broker.partitions.partition import Partition
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.broker.quorum.raft_peers import RaftPeers
    from minikafka.broker.share.settings import ShareGroupSettings

logger = logging.getLogger("minikafka.coordinator")
#: Maximum number of attempts of a request, and the back-off after the first one; it doubles after each.
TRIES_MAX = 5
BACKOFF_MS = 1000
PRODUCE_TIMEOUT_MS = 30_000
ALL_REPLICAS = -1
#: Copied records are read in chunks of this size.
READ_BYTES = 256 << 10
#: Maximum number of records in one request.
RECORDS_MAX = 500
#: Estimated bytes in addition to keys and values: per record, and per batch.
RECORD_OVERHEAD_BYTES, BATCH_OVERHEAD_BYTES = 512, 128
_HEADER = "__dlq.errors."
_REJECTED = b"Offset rejected by client."
_TOO_OFTEN = b"Offset delivery count exceeded the threshold."
_TRY_AGAIN = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)  # fmt: skip
#: Key and value of a copied record.
Content = tuple["bytes | None", "bytes | None"]


class DeadLetterQueues:
    """Writes the records that share groups archive."""

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        metadata: MetadataHost,
        controller: ControllerChannel,
        peers: RaftPeers,
        settings: ShareGroupSettings,
    ) -> None:
        self._listener = config.inter_broker_listener
        self._environment = environment
        self._metadata = metadata
        self._controller = controller
        self._peers = peers
        self._settings = settings

    async def enqueue(self, key: SharePartitionKey, partition: Partition, letter: DeadLetter) -> None:
        """Write the records to the group's dead-letter topic, or log why that failed. The group does not get them again in either case."""
        rules = self._settings.rules(key.group_id)
        topic = rules.dead_letter_topic
        fault = self._settings.fault_of_dead_letter_topic(topic) or await self._ensure_topic(topic)
        offset = letter.first_offset
        while fault is None and offset <= letter.last_offset:
            contents: Mapping[int, Content] = {}
            end = letter.last_offset + 1
            if rules.copies_dead_letters:
                contents, end = await self._contents(partition, offset, letter.last_offset)
            part = letter._replace(first_offset=offset, last_offset=end - 1)
            batch, following = await self._environment.run_blocking(
                _batch, key, partition.topic, part, contents, self._bytes_max(topic), self._environment.clock.wall_ms()
            )
            fault = await self._written(topic, key.partition, batch)
            offset = offset if fault else following
        if fault is not None:
            logger.error(
                "%s: could not write records %d to %d to the dead-letter queue: %s", key.text, offset, letter.last_offset, fault
            )

    # -- the topic -----------------------------------------------------------------------------------------------------

    async def _ensure_topic(self, topic: str) -> str | None:
        """Create the topic if it is missing. Returns the reason of a failure, or None."""
        if topic in self._metadata.image.topics_by_name:
            return None
        kind = CreateTopicsRequest
        configs = {"errors.deadletterqueue.group.enable": "true", "message.timestamp.type": "CreateTime"}
        creatable = kind.CreatableTopic(
            name=topic, num_partitions=-1, replication_factor=-1,
            configs=[kind.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )  # fmt: skip
        try:
            answer: Any = await self._controller.request(kind(topics=[creatable], timeout_ms=PRODUCE_TIMEOUT_MS))
        except (ConnectionError, TimeoutError, UnsupportedVersion) as error:
            return f"creating {topic}: {error}"
        code = ErrorCode(answer.topics[0].error_code)
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return f"creating {topic}: {answer.topics[0].error_message or code.text}"
        return None

    def _bytes_max(self, topic: str) -> int:
        text = self._metadata.image.config(RESOURCE_TOPIC, topic).get("max.message.bytes", "")
        return int(text) if text.isdecimal() else self._settings.message_bytes_max

    # -- writing -------------------------------------------------------------------------------------------------------

    async def _contents(self, partition: Partition, offset: int, last_offset: int) -> tuple[Mapping[int, Content], int]:
        """Keys and values by offset, and the offset to which they reach. Records that cannot be read are missing, and are written without
        contents."""
        log = partition.log

        def chunk() -> bytes:
            piece = log.read(offset, READ_BYTES, end_offset=log.high_watermark).slice
            try:
                with log.disk("read for a dead-letter queue"):
                    return piece.read()
            finally:
                piece.release()

        try:
            data = await self._environment.cold_reads.look(chunk)
            contents: tuple[Mapping[int, Content], int] = await self._environment.run_blocking(_records, data, offset, last_offset)
            return contents
        except (ApiError, StorageError, CorruptRecord) as error:
            logger.warning("%s: writing records from %d on to the dead-letter queue without contents: %s", partition.key, offset, error)
            return {}, last_offset + 1

    async def _written(self, topic: str, source: int, batch: bytes) -> str | None:
        """Write the batch, with retries. Returns the reason of a failure, or None."""
        backoff_ms, code = BACKOFF_MS, ErrorCode.NONE
        for number in range(TRIES_MAX):
            if number:
                await asyncio.sleep(backoff_ms / 1000)
                backoff_ms *= 2
            code = await self._produce(topic, source, batch)
            if code not in _TRY_AGAIN:
                break
        return None if code is ErrorCode.NONE else f"writing to {topic}: {code.text}"

    def _produce(self, topic: str, source: int, batch: bytes) -> asyncio.Future[ErrorCode]:
        """Send a batch to the partition with the source partition's index, modulo the number of partitions."""
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        image = self._metadata.image
        found = image.topics_by_name.get(topic)
        index = source % len(found.partitions) if found is not None else 0
        broker = None if found is None else image.brokers.get(found.partitions[index].leader)
        endpoint = None if broker is None else broker.listeners.get(self._listener)
        if found is None or endpoint is None:
            answer.set_result(ErrorCode.LEADER_NOT_AVAILABLE)
            return answer

        def answered(response: Any, error: Exception | None) -> None:
            if not answer.done():
                partitions = [] if error is not None else [p for one in response.responses for p in one.partition_responses]
                failed = ErrorCode.NETWORK_EXCEPTION if error is not None else ErrorCode.UNKNOWN_SERVER_ERROR
                answer.set_result(ErrorCode(partitions[0].error_code) if partitions else failed)

        kind = ProduceRequest
        data = kind.TopicProduceData(
            name=topic, topic_id=found.topic_id, partition_data=[kind.PartitionProduceData(index=index, records=batch)]
        )
        request = kind(acks=ALL_REPLICAS, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=[data])
        self._peers.send(endpoint[0], endpoint[1], request, answered)
        return answer


def _records(data: bytes, offset: int, last_offset: int) -> tuple[dict[int, Content], int]:
    """The records' contents by offset, and the offset to which they reach. Raises CorruptRecord
    for flipped bits, which would get a valid checksum in the dead-letter topic. Runs in a thread."""
    found: dict[int, Content] = {}
    end = last_offset + 1
    for batch in iterate_batches(memoryview(data)):
        end = min(batch.next_offset, last_offset + 1)
        if batch.base_offset > last_offset:
            break
        batch.check()
        for record in () if batch.is_control else batch.records():
            if offset <= record.offset <= last_offset:
                found[record.offset] = tuple(None if part is None else bytes(part) for part in (record.key, record.value))  # type: ignore[assignment]
    return found, end


def _batch(
    key: SharePartitionKey, topic: str, letter: DeadLetter, contents: Mapping[int, Content], bytes_max: int, now_ms: int
) -> tuple[bytes, int]:
    """A batch of the first records, and the offset after its last one. A record that the topic does not take with its contents goes
    without them. Runs in a thread."""
    records: list[Record] = []
    offset, size = letter.first_offset, BATCH_OVERHEAD_BYTES
    fixed = {
        "topic": topic.encode(), "partition": b"%d" % key.partition, "offset": b"", "group": key.group_id.encode(),
        "delivery.count": b"%d" % letter.delivery_count, "message": _REJECTED if letter.is_rejected else _TOO_OFTEN,
    }  # fmt: skip
    overhead = RECORD_OVERHEAD_BYTES + sum(map(len, fixed.values()))
    end = min(letter.last_offset + 1, offset + RECORDS_MAX)
    for place in range(offset, end):
        copied_key, value = contents.get(place, (None, None))
        size += overhead + len(copied_key or b"") + len(value or b"")
        if records and size > bytes_max:
            end = place
            break
        headers = tuple((f"{_HEADER}{name}", b"%d" % place if name == "offset" else text) for name, text in fixed.items())
        records.append(Record(offset=place - offset, timestamp=now_ms, key=copied_key, value=value, headers=headers))
    batch = build_batch(records)
    if len(batch) > bytes_max and len(records) == 1 and offset in contents:
        logger.warning("%s: writing record %d to the dead-letter queue without contents: they are too large", key.text, offset)
        batch = build_batch([records[0]._replace(key=None, value=None)])
    return bytes(batch), end
