"""What happens to topics under a stream: what Spark's own connector refuses is refused, and no record is skipped in silence."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")

from helpers import partition_files as files  # noqa: E402
from helpers.own_clock import replace_sleep  # noqa: E402
from helpers.partition_files import OTHER_ID, TOPIC_ID, high_watermarks, one_by_one, partition  # noqa: E402
from pyspark.sql.types import StructType  # noqa: E402

from minikafka.spark import datasource  # noqa: E402
from minikafka.spark.datasource import StreamReader  # noqa: E402
from minikafka.spark.directories import SourceError  # noqa: E402
from minikafka.spark.source_loss import DataLossError  # noqa: E402
from minikafka.spark.source_options import SourceOptions  # noqa: E402
from minikafka.spark.source_reading import read_range  # noqa: E402

SCHEMA = pa.schema([("topic", pa.string()), ("offset", pa.int64())])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """100 records of t, 50 of u."""
    made = files.log_directory(tmp_path / "b1")
    partition(made, "t-0", {0: one_by_one(0, 100)})
    partition(made, "u-0", {0: one_by_one(0, 50)}, topic_id="ABECAwQFBgcICQoLDA0ODw")
    high_watermarks(made, t=100, u=50)
    return made


class Stream:
    """A stream as Spark drives it: a micro-batch from the last one's end to where the source says."""

    def __init__(self, directory: Path, **options: str) -> None:
        settings = {"logdirs": str(directory), "startingoffsets": "earliest", "fetchOffset.retryIntervalMs": "1", **options}
        self.options = SourceOptions.parse(settings)
        self.reader = StreamReader(self.options, StructType())
        self.at: dict[str, Any] = self.reader.initialOffset()

    def batch(self) -> dict[str, list[int]]:
        """{topic: offsets}"""
        end = self.reader.latestOffset(self.at, None)
        found: dict[str, list[int]] = {}
        for one in self.reader.partitions(self.at, end):
            for rows in read_range(one.source_range, "records", SCHEMA):
                for row in rows.to_pylist():
                    found.setdefault(row["topic"], []).append(row["offset"])
        self.at = end
        return found


def again(directory: Path, records: int, topic_id: str = OTHER_ID) -> None:
    shutil.rmtree(directory / "t-0")
    partition(directory, "t-0", {0: one_by_one(0, records)}, topic_id=topic_id)
    high_watermarks(directory, t=records, u=50)


def test_offsets_carry_the_topics_id(directory: Path) -> None:
    stream = Stream(directory)
    assert stream.batch() == {"t": [*range(100)], "u": [*range(50)]}
    assert stream.at == {"t": {"id": TOPIC_ID, "0": 100}, "u": {"id": "ABECAwQFBgcICQoLDA0ODw", "0": 50}}
    partition(directory, "v-0", {0: one_by_one(0, 7)})
    high_watermarks(directory, t=100, u=50, v=7)
    assert stream.batch() == {"v": [*range(7)]}, "a partition that appears is read from its beginning"


@pytest.mark.parametrize("records", [30, 100, 250])
def test_a_topic_that_was_made_again(directory: Path, caplog: pytest.LogCaptureFixture, records: int) -> None:
    """However many records it has by now: Spark's own connector sees only that the end went back."""
    strict, lax = Stream(directory), Stream(directory, failondataloss="false")
    strict.batch(), lax.batch()
    again(directory, records)
    text = rf"the topic was deleted and recreated \(topic id {OTHER_ID}, it was {TOPIC_ID}\)"
    with pytest.raises(DataLossError, match=rf"t-0: everything from offset 100 on is missing: {text}"):
        strict.batch()
    with caplog.at_level(logging.WARNING, "minikafka.spark"):
        assert lax.batch() == {"t": [*range(records)]}, "the new topic from its beginning"
    assert "skipped: t-0: everything from offset 100 on" in caplog.text
    again(directory, records + 5)
    assert lax.batch() == {"t": [*range(records, records + 5)]}


def test_an_end_that_goes_back(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    strict, lax = Stream(directory), Stream(directory, failondataloss="false")
    strict.batch(), lax.batch()
    again(directory, 30, TOPIC_ID)
    with pytest.raises(DataLossError, match="t-0: offsets 30 to 99 are missing: the log's end went back from 100 to 30"):
        strict.batch()
    with caplog.at_level(logging.WARNING, "minikafka.spark"):
        assert lax.batch() == {}
    assert "skipped: t-0: offsets 30 to 99" in caplog.text


def test_an_end_that_goes_back_only_for_a_moment(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a leader's death, when the next one does not know yet what is committed: asked again fetchOffset.numRetries times."""
    stream = Stream(directory)
    stream.batch()
    high_watermarks(directory, t=90, u=50)
    looks: list[int] = []

    def a_moment_later(seconds: float) -> None:
        looks.append(len(looks))
        if len(looks) == 3:
            high_watermarks(directory, t=100, u=50)

    replace_sleep(monkeypatch, datasource, a_moment_later)
    assert stream.batch() == {} and len(looks) == 3 == stream.options.retries
    high_watermarks(directory, t=90, u=50)
    with pytest.raises(DataLossError, match="went back from 100 to 90"):
        stream.batch()


def test_a_partition_that_vanishes(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    strict, lax = Stream(directory), Stream(directory, failondataloss="false")
    named = Stream(directory, subscribe="t,u")
    strict.batch(), lax.batch(), named.batch()
    shutil.rmtree(directory / "u-0")
    with pytest.raises(DataLossError, match="u-0: everything from offset 50 on is missing: the partition no longer exists"):
        strict.batch()
    with pytest.raises(SourceError, match="topic u does not exist in"):
        named.batch()
    with caplog.at_level(logging.WARNING, "minikafka.spark"):
        assert lax.batch() == {}
        assert "skipped: u-0: everything from offset 50 on" in caplog.text
        caplog.clear()
        assert lax.batch() == {} and not caplog.text, "said once"


def test_a_partition_that_vanishes_before_its_micro_batch_is_repeated(directory: Path) -> None:
    """After a restart from a checkpoint Spark plans the offsets that it had chosen before."""
    stream = Stream(directory)
    end = stream.reader.latestOffset(stream.at, None)
    shutil.rmtree(directory / "u-0")
    fresh = StreamReader(stream.options, StructType())
    with pytest.raises(DataLossError, match="u-0: everything from offset 0 on is missing"):
        fresh.partitions(stream.at, end)


def test_a_new_partition_whose_beginning_is_gone(directory: Path) -> None:
    strict, lax = Stream(directory), Stream(directory, failondataloss="false")
    strict.batch(), lax.batch()
    partition(directory, "v-0", {40: one_by_one(40, 60)})
    high_watermarks(directory, t=100, u=50, v=60)
    with pytest.raises(DataLossError, match="v-0: offsets 0 to 39 are missing: the partition is new to the query"):
        strict.batch()
    assert lax.batch() == {"v": [*range(40, 60)]}


def test_retention_between_two_micro_batches(directory: Path) -> None:
    strict, lax = Stream(directory), Stream(directory, failondataloss="false")
    strict.batch(), lax.batch()
    shutil.rmtree(directory / "t-0")
    partition(directory, "t-0", {200: one_by_one(200, 220)})
    high_watermarks(directory, t=220, u=50)
    with pytest.raises(DataLossError, match="t-0: offsets 100 to 199 are missing: the log begins at 200"):
        strict.batch()
    assert lax.batch() == {"t": [*range(200, 220)]}


def test_offsets_of_an_older_checkpoint_are_understood(directory: Path) -> None:
    stream = Stream(directory)
    stream.at = {"t": {"0": 90}, "u": {"0": 50}}
    assert stream.batch() == {"t": [*range(90, 100)]}


def test_a_micro_batch_lists_once(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from minikafka.spark import datasource

    looks: list[object] = []
    look = datasource.available
    monkeypatch.setattr(datasource, "available", lambda *given: looks.append(given) or look(*given))
    stream = Stream(directory)
    looks.clear()
    for _ in range(5):
        stream.batch()
    assert len(looks) == 5


def test_available_now_ends_where_it_began(directory: Path) -> None:
    stream = Stream(directory)
    stream.reader.prepareForTriggerAvailableNow()
    partition(directory, "v-0", {0: one_by_one(0, 7)})
    files.write_segment(directory / "t-0", 0, list(one_by_one(0, 120)))
    high_watermarks(directory, t=120, u=50, v=7)
    assert stream.batch() == {"t": [*range(100)], "u": [*range(50)]}
