"""The data source refuses the options that Spark's Kafka connector refuses, and never guesses what a wrong value may mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from helpers import partition_files as files  # noqa: E402
from helpers.partition_files import high_watermarks, one_by_one, partition  # noqa: E402

from minikafka.spark import source_ranges  # noqa: E402
from minikafka.spark.source_listing import available  # noqa: E402
from minikafka.spark.source_options import SINK_REFUSES, Given, OptionError, SourceOptions, check_kafka_options  # noqa: E402
from minikafka.spark.source_ranges import starting  # noqa: E402

BROKER = {"kafka.bootstrap.servers": "b:1"}


@pytest.mark.parametrize(("options", "text"), [
    ({"subscribe": "t", "failOnDataLoss": "yes"}, "failOnDataLoss 'yes': expected true or false"),
    ({"subscribe": "t", "failOnDataLoss": " true"}, "failOnDataLoss ' true'"),
    ({"subscribe": "t", "failOnDataLoss": ""}, "failOnDataLoss ''"),
    ({"subscribe": "t", "includeHeaders": "1"}, "includeHeaders '1': expected true or false"),
    ({"subscribe": "t", "kafka.check.crcs": "on"}, "kafka.check.crcs 'on': expected true or false"),
    ({"subscribe": " , "}, "subscribe names no topic"),
    ({"subscribe": ""}, "subscribe names no topic"),
    ({"subscribePattern": " "}, "subscribePattern names no topic"),
    ({"subscribePattern": "a["}, "subscribePattern 'a\\[': unterminated"),
    ({"subscribe": "", "assign": '{"t": [0]}'}, "give one of assign, subscribe and subscribePattern"),
    ({"assign": '{"t": "01"}'}, "expected a list of partitions"),
    ({"assign": '{"t": {"0": 5}}'}, "expected a list of partitions"),
    ({"assign": "t"}, "an option cannot be read: assign"),
    ({"subscribe": "t", "minPartitions": "0"}, "minPartitions 0: must be at least 1"),
    ({"subscribe": "t", "minPartitions": "many"}, "an option cannot be read: minPartitions is 'many'"),
    ({"subscribe": "t", "maxRecordsPerPartition": "0"}, "maxRecordsPerPartition 0: must be at least 1"),
    ({"subscribe": "t", "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "minOffsetsPerTrigger 5 is larger"),
    ({"subscribe": "t", "kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset is not supported: use startingOffsets"),
    ({"subscribe": "t", "Kafka.Key.Deserializer": "x"}, "kafka.key.deserializer is not supported"),
    ({"subscribe": "t", "kafka.value.deserializer": "x"}, "kafka.value.deserializer is not supported"),
    ({"subscribe": "t", "kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit is not supported"),
    ({"subscribe": "t", "kafka.interceptor.classes": "x"}, "kafka.interceptor.classes is not supported"),
])  # fmt: skip
def test_wrong_options_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        SourceOptions.parse({**BROKER, **options})


@pytest.mark.parametrize(("options", "text"), [
    ({"startingOffsets": " Latest"}, "startingOffsets cannot be latest in a batch query"),
    ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest in a batch query"),
    ({"startingOffsets": '{"t": {"0": -1}}'}, r"startingOffsets of t-0 cannot be latest \(-1\)"),
    ({"endingOffsets": '{"t": {"0": -2}}'}, r"endingOffsets of t-0 cannot be earliest \(-2\)"),
    ({"startingOffsets": "soon"}, "neither earliest, latest nor JSON"),
])  # fmt: skip
def test_a_batch_query_has_a_beginning_and_an_end(options: dict[str, str], text: str) -> None:
    parsed = SourceOptions.parse({**BROKER, "subscribe": "t", **options})
    with pytest.raises(OptionError, match=text):
        source_ranges.batch_ranges(parsed)
    SourceOptions.parse({**BROKER, "subscribe": "t", **options, "startingTimestamp": "1", "endingTimestamp": "2"}).check_batch()


@pytest.mark.parametrize("option", [
    {"endingOffsets": "latest"}, {"endingOffsetsByTimestamp": '{"t": {"0": 5}}'}, {"endingTimestamp": "5"},
])  # fmt: skip
def test_a_stream_has_no_end(option: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="a stream has no end"):
        SourceOptions.parse({**BROKER, "subscribe": "t", **option}).check_stream()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = files.log_directory(tmp_path / "b1")
    for name in ("orders-0", "old-orders-0", "__consumer_offsets-0"):
        partition(made, name, {0: one_by_one(0, 10)})
    high_watermarks(made, **{"orders": 10, "old-orders": 10, "__consumer_offsets": 10})
    return made


def topics(directory: Path, **options: str) -> set[str]:
    return {key[0] for key in available(SourceOptions.parse({"logdirs": str(directory), **options})).bounds}


def test_a_pattern_may_match_any_part_of_a_name_but_no_internal_topic(directory: Path) -> None:
    assert topics(directory, subscribePattern="order") == {"orders", "old-orders"}
    assert topics(directory, subscribePattern="^order") == {"orders"}
    assert topics(directory, subscribePattern=".*") == {"orders", "old-orders"}
    assert topics(directory, subscribe="__consumer_offsets") == {"__consumer_offsets"}, "named, it is read"


def test_an_assignment_of_nothing_reads_nothing(directory: Path) -> None:
    assert topics(directory, assign="{}") == set()
    assert topics(directory) == {"orders", "old-orders"}


def test_offsets_of_what_is_not_read_are_refused(directory: Path) -> None:
    said = {"startingOffsets": '{"orders": {"0": 0, "1": 5}}'}
    parsed = SourceOptions.parse({"logdirs": str(directory), "subscribe": "orders", **said})
    with pytest.raises(OptionError, match="the offsets include orders-1, which the query does not read"):
        source_ranges.batch_ranges(parsed)
    said = {"startingOffsetsByTimestamp": '{"orders": {"0": 0}, "old-orders": {"0": 5}}'}
    parsed = SourceOptions.parse({"logdirs": str(directory), "subscribe": "orders", **said})
    with pytest.raises(OptionError, match="the timestamps include old-orders-0"):
        source_ranges.batch_ranges(parsed)
    both = {"logdirs": str(directory), "logdirson": "executors", "subscribe": "orders,old-orders"}
    parsed = SourceOptions.parse({**both, "startingOffsets": '{"orders": {"0": 0}, "old-orders": {"0": 4}}'})
    begins = [starting(share, available(share), "earliest") for share in parsed.shares()]
    assert {key: offset for one in begins for key, offset in one.items()} == {("orders", 0): 0, ("old-orders", 0): 4}


def test_the_sink_refuses_other_serializers_and_guesses_no_value() -> None:
    pytest.importorskip("pyspark")
    from minikafka.spark.datasource import SinkWriter, StreamSinkWriter

    def fails(kind: Any, text: str, **options: str) -> None:
        with pytest.raises(OptionError, match=text):
            kind({**BROKER, "topic": "t", **options}, False)

    for name in SINK_REFUSES:
        fails(SinkWriter, f"kafka.{name} is not supported", **{f"kafka.{name}": "x"})
    fails(StreamSinkWriter, "exactlyOnce 'yes': expected true or false", exactlyOnce="yes")
    fails(SinkWriter, "kafka.compression.type best: expected none or gzip", **{"kafka.compression.type": "best"})
    assert SinkWriter({**BROKER, "topic": " t "}, False).topic == "t"
    check_kafka_options(Given({"kafka.acks": "all"}), SINK_REFUSES)
