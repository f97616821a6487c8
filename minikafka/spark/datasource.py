"""`spark.read.format("minikafka")`: a batch and streaming source of records or batches, from log directories or brokers, and a sink.

Column and option names are those of Spark's own Kafka connector. It needs PySpark 4 and pyarrow, but no JAR. With `mode=batches` a row is
a record batch with its stored and computed CRC, and nothing is decompressed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from minikafka.spark import source_ranges
from minikafka.spark.logformat import CODECS
from minikafka.spark.source_listing import Available, available
from minikafka.spark.source_loss import LossPolicy
from minikafka.spark.source_options import SINK_REFUSES, Given, OptionError, SourceOptions, check_kafka_options, from_json
from minikafka.spark.source_reading import read_range
from minikafka.spark.source_transactions import StableOffsets

RECORDS = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
HEADERS = ", headers array<struct<key: string, value: binary>>"
BATCHES = (
    "topic string, partition int, broker string, baseOffset bigint, lastOffset bigint, leaderEpoch int, crc bigint, crcValid boolean, "
    "attributes int, compression string, isControl boolean, baseTimestamp bigint, maxTimestamp bigint, producerId bigint, "
    "producerEpoch int, baseSequence int, records int, sizeInBytes int, position bigint"
)


def arrow_schema(schema: StructType) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


class MinikafkaDataSource(DataSource):
    """`spark.read.format("minikafka")` and its streams, sink and batches. The page about Spark lists its options."""

    @classmethod
    def name(cls) -> str:
        """What `format()` takes."""
        return "minikafka"

    def schema(self) -> str:
        """The schema of records, with headers if requested, or of batches (option `mode`)."""
        options = SourceOptions.parse(self.options)
        if options.mode == "batches":
            return BATCHES
        return RECORDS + (HEADERS if options.include_headers else "")

    def reader(self, schema: StructType) -> DataSourceReader:
        """Of `spark.read`."""
        return BatchReader(SourceOptions.parse(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Of `spark.readStream`."""
        return StreamReader(SourceOptions.parse(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Of `write`."""
        return SinkWriter(dict(self.options), overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Of `writeStream`."""
        return StreamSinkWriter(dict(self.options), overwrite)


@dataclass
class RangePartition(InputPartition):
    source_range: source_ranges.Range


@dataclass
class SharePartition(InputPartition):
    """A share of log directories that only executors see (`logDirsOn=executors`). The task lists them itself."""

    options: SourceOptions


class _RangeReader:
    """Base of the batch and stream readers: an executor reads one range as Arrow batches."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options, self.schema = options, schema

    def read(self, partition: Any) -> Iterator[Any]:
        chosen = []  # Spark makes one partition of nothing out of an empty list
        if isinstance(partition, RangePartition):
            chosen = [partition.source_range]
        elif isinstance(partition, SharePartition):
            chosen = source_ranges.batch_ranges(partition.options)
        for one in chosen:
            yield from read_range(one, self.options.mode, arrow_schema(self.schema))


class BatchReader(_RangeReader, DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        options.check_batch()

    def partitions(self) -> list[InputPartition]:
        if self.options.on_executors:
            return [SharePartition(share) for share in self.options.shares()]
        return [RangePartition(one) for one in source_ranges.batch_ranges(self.options)]


class StreamReader(_RangeReader, DataSourceStreamReader):
    """Offsets are {topic: {"id": topic id, partition: next offset}}. Partitions that appear later are read from their beginning."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        options.check_stream()
        if options.on_executors:
            raise OptionError("logDirsOn=executors works only for batch queries: the driver of a stream must see where the logs end")
        self._stable = StableOffsets()
        #: The last listing, so that planning a micro-batch does not list again.
        self._found: Available | None = None
        self._last_of_now: Available | None = None

    def _look(self) -> Available:
        self._found = available(self.options, self._stable)
        return self._found

    def initialOffset(self) -> dict[str, Any]:
        found = self._look()
        return source_ranges.as_json(source_ranges.starting(self.options, found, "latest"), found.topic_ids)

    def getDefaultReadLimit(self) -> Any:
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        most = self.options.max_offsets_per_trigger
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._last_of_now = self._look()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        begin, ids = from_json(start or {}), source_ranges.ids_in(start or {})
        found = self._last_of_now or self._look()
        for _ in range(self.options.retries if self._last_of_now is None else 0):
            if not _went_back(found, begin, ids):
                break
            time.sleep(self.options.retry_ms / 1000)  # a new leader may learn the log end a little later
            found = self._look()
        end = {key: last for key, (_, last) in found.bounds.items()}
        most = getattr(limit, "max_rows", 0) or (self.options.max_offsets_per_trigger if limit is None else 0)
        return source_ranges.as_json(source_ranges.capped(begin, end, most), found.topic_ids)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, ends = from_json(start), from_json(end)
        found = self._found
        if found is None or any(key not in found.bounds or found.bounds[key][1] < offset for key, offset in ends.items()):
            found = self._look()
        policy = LossPolicy(self.options.fail_on_data_loss)
        begin = source_ranges.went_on(found, begin, ends, source_ranges.ids_in(start), policy)
        return [RangePartition(one) for one in source_ranges.ranges(self.options, found, begin, ends)]

    def commit(self, end: dict[str, Any]) -> None:
        pass

    def stop(self) -> None:
        pass


def _went_back(found: Available, begin: source_ranges.Offsets, ids: dict[str, str]) -> bool:
    """Whether a partition ends before the stream's offset, though its topic is the same."""
    again = {topic for topic, topic_id in ids.items() if found.topic_ids.get(topic, topic_id) != topic_id}
    return any(key in found.bounds and found.bounds[key][1] < offset for key, offset in begin.items() if key[0] not in again)


def _available_now_support() -> None:
    """Declare support for Trigger.AvailableNow, if this PySpark has the interface (4.2)."""
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:
        return
    SupportsTriggerAvailableNow.register(StreamReader)


_available_now_support()


@dataclass
class Written(WriterCommitMessage):
    rows: int


class _Sink:
    """Writes rows with a column value and optional columns key, headers, topic and partition, with acks=all and a producer id per task.

    A task that runs again writes its rows again, as with Spark's own Kafka sink. `minikafka load` writes each row once.
    """

    def __init__(self, options: dict[str, str], overwrite: bool) -> None:
        from minikafka.spark.security import Security
        given = Given(options)
        if overwrite:
            raise OptionError('a topic cannot be overwritten: use mode("append")')
        self.bootstrap, self.topic = given.text("kafka.bootstrap.servers"), given.text("topic").strip()
        if not self.bootstrap:
            raise OptionError("the sink needs kafka.bootstrap.servers")
        check_kafka_options(given, SINK_REFUSES)
        self.exactly_once = given.is_set("exactlyOnce", False)
        self.compression = given.one_of("kafka.compression.type", CODECS)
        try:
            self.security = Security.from_properties(given.kafka)
        except ValueError as error:
            raise OptionError(f"an option cannot be read: {error}") from error

    def transaction(self) -> Any:
        """The transaction for a task's rows. Only streams have one."""
        raise OptionError("exactlyOnce works only for streaming queries; minikafka load and load_dataframe write each row of a table once")

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        from minikafka.spark.sink import write_batches

        transaction = self.transaction() if self.exactly_once else None
        if transaction is not None and not transaction.begin():
            transaction.close()
            return Written(0)
        return Written(write_batches(iterator, self.bootstrap, self.topic, self.compression, self.security, transaction))


class SinkWriter(_Sink, DataSourceArrowWriter):
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        pass

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        pass


class StreamSinkWriter(_Sink, DataSourceStreamArrowWriter):
    """With `exactlyOnce=true`, each task writes its rows of a micro-batch in a transaction that is committed once (sink_transaction.py)."""

    def __init__(self, options: dict[str, str], overwrite: bool) -> None:
        super().__init__(options, overwrite)
        if self.exactly_once and not self.topic:
            raise OptionError("exactlyOnce needs the option topic: a task's transaction writes to one topic")

    def transaction(self) -> Any:
        from pyspark import TaskContext

        from minikafka.spark.sink_transaction import SinkTransaction
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        epoch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
        if context is None or not query or epoch is None:
            raise OptionError("exactlyOnce needs the number of the micro-batch, which Spark does not provide here")
        name = f"minikafka-sink-{query}-{context.partitionId()}"
        return SinkTransaction(self.bootstrap, self.topic, name, int(epoch), security=self.security)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass
