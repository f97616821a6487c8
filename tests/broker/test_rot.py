"""Flipped bits in internal topics and in the metadata log: readers report them and do not use the damaged data."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.coordinator_world import CoordinatorWorld, append_records, coordinator_log
from helpers.raft_nodes import Listener, close, config_of, environment_of, format_node, host_of

from minikafka.broker.coordinators.group_coordinator import OFFSETS_TOPIC
from minikafka.broker.coordinators.transaction_coordinator import TRANSACTIONS_TOPIC
from minikafka.broker.quorum.raft_log import CorruptMetadata, MetadataLog
from minikafka.broker.quorum.raft_requests import RaftHandlers
from minikafka.core.raft.voters import VoterSet
from minikafka.storage import checkpoint
from minikafka.storage.errors import StorageError
from minikafka.storage.filesystem import OsFileSystem
from minikafka.storage.log import Log
from minikafka.storage.log_dir import LogDirectory
from minikafka.wire.batch import OVERHEAD, iterate_batches
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.fetch import FetchRequest
from minikafka.wire.records.group_records import OffsetCommitKey, OffsetCommitValue
from minikafka.wire.records.metadata_records import FeatureLevelRecord
from minikafka.wire.records.transaction_records import TransactionLogKey, TransactionLogValue
from minikafka.wire.uuid import METADATA_TOPIC_ID

METADATA_FILE = "__cluster_metadata-0/00000000000000000000.log"
CONFIG = {"process.roles": "broker", "node.id": "1", "controller.quorum.voters": "2@localhost:1", "log.dirs": "/data"}


def flip(path: Path, number: int) -> int:
    """Flip the last bit but of batch `number` (from the end if negative); its base offset."""
    data = bytearray(path.read_bytes())
    batch = list(iterate_batches(bytes(data)))[number]
    data[batch.position + batch.size_in_bytes - 2] ^= 1
    path.write_bytes(data)
    return batch.base_offset


async def written(directory: Path, levels: int, *, is_clean: bool) -> Any:
    """A lone voter has written one batch a level, and is gone."""
    config = config_of(directory)
    format_node(config, standalone=True)
    host = host_of(config)
    await host.start()
    for level in range(levels):
        await host.wait_committed(host.append([FeatureLevelRecord(name="feature", feature_level=level)]))
    if is_clean:
        await close(host)
        checkpoint.write_clean_shutdown(OsFileSystem(), f"{directory}/{checkpoint.CLEAN_SHUTDOWN}", -1)
    else:
        host.abandon()
        host._log_directory.abandon()
    return config


# -- the metadata log


async def start(config: Any) -> None:
    host = host_of(config)
    try:
        await host.start()
    finally:
        host._log_directory.abandon()


@pytest.mark.parametrize(("is_clean", "number", "left"), [(True, 3, 2), (False, 3, 2), (True, -1, 4)])
async def test_the_only_voter_does_not_start_without_what_it_has_promised(tmp_path: Path, is_clean: bool, number: int, left: int) -> None:
    """Kafka cuts the log there. Nobody can give it back; what to do is said, and does it."""
    config = await written(tmp_path / "d", 5, is_clean=is_clean)
    path = tmp_path / "d" / METADATA_FILE
    offset = flip(path, number)
    before = path.read_bytes()
    for _ in range(2):  # a restart without a repair reports the same
        with pytest.raises(CorruptMetadata, match=f"offset {offset} .*only voter") as raised:
            await start(config)
        assert path.read_bytes() == before
    said = re.search(r"`truncate -s (\d+) (\S+)`.* and (\S+), and start again", str(raised.value))
    assert said is not None and said[2] == str(path)
    os.truncate(path, int(said[1]))
    with pytest.raises(CorruptMetadata, match=rf"{said[3]} says .* remove that file"):
        await start(config)
    os.unlink(said[3])
    listener = Listener()
    host = host_of(config, listener=listener)
    await host.start()
    assert [record.feature_level for _, record in listener.records] == list(range(left))
    await close(host)


async def test_the_last_batch_is_cut_after_a_crash(tmp_path: Path) -> None:
    """What a power cut left of a write looks no different."""
    config = await written(tmp_path / "d", 5, is_clean=False)
    flip(tmp_path / "d" / METADATA_FILE, -1)
    listener = Listener()
    host = host_of(config, listener=listener)
    await host.start()
    assert [record.feature_level for _, record in listener.records] == [0, 1, 2, 3]
    await close(host)


@pytest.mark.parametrize("is_clean", [True, False])
async def test_an_observer_cuts_and_fetches_again(tmp_path: Path, is_clean: bool) -> None:
    config = await written(tmp_path / "d", 5, is_clean=is_clean)
    offset = flip(tmp_path / "d" / METADATA_FILE, 3)
    directory = LogDirectory(OsFileSystem(), config.metadata_directory)
    directory.open()
    log = MetadataLog(directory, config, lambda: 1)
    log.load(VoterSet([]), is_observer=True)
    assert log.log.log_end_offset == log.state.end_offset == offset and log.lost_promises is None
    log.close()
    directory.close()


async def test_a_disk_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    config = await written(tmp_path / "d", 1, is_clean=True)
    directory = LogDirectory(OsFileSystem(), config.metadata_directory)
    directory.open()
    segment = tmp_path / "d" / METADATA_FILE
    segment.unlink()
    segment.mkdir()
    with pytest.raises(StorageError, match=r"cannot check the metadata log in .*__cluster_metadata-0: .*Is a directory"):
        MetadataLog(directory, config, lambda: 1).load(VoterSet([]))
    directory.close()


async def test_a_batch_that_rots_before_it_is_delivered_stops_the_node(tmp_path: Path) -> None:
    config = config_of(tmp_path / "d")
    format_node(config, standalone=True)
    listener = Listener()
    failures: list[BaseException] = []
    host = host_of(config, listener=listener)
    host._on_failure = failures.append
    await host.start()
    await host.wait_committed(host.append([FeatureLevelRecord(name="feature", feature_level=1)]))
    waiting = asyncio.ensure_future(host.wait_committed(host.append([FeatureLevelRecord(name="feature", feature_level=2)])))
    offset = flip(tmp_path / "d" / METADATA_FILE, -1)
    with pytest.raises(ApiError):
        await waiting
    assert [record.feature_level for _, record in listener.records] == [1]
    assert isinstance(failures[0], CorruptMetadata) and f"offset {offset} " in str(failures[0]) and host.failure is failures[0]
    await close(host)


async def test_a_lone_leader_hands_on_what_is_valid_and_says_what_is_not(tmp_path: Path) -> None:
    """With other voters it would make room for one of them: tests/sim/test_rot.py."""
    config = config_of(tmp_path / "d")
    format_node(config, standalone=True)
    host = host_of(config)
    await host.start()
    for level in range(5):
        await host.wait_committed(host.append([FeatureLevelRecord(name="feature", feature_level=level)]))
    offset = flip(tmp_path / "d" / METADATA_FILE, 3)
    answers: list[Any] = []
    context: Any = SimpleNamespace(api_version=17, respond=answers.append, connection=None)
    for at in (0, offset):
        wanted = FetchRequest.FetchPartition(
            partition=0, fetch_offset=at, current_leader_epoch=1, last_fetched_epoch=0 if at == 0 else 1, partition_max_bytes=1 << 20
        )
        topic = FetchRequest.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[wanted])
        state = FetchRequest.ReplicaState(replica_id=9)
        RaftHandlers(host, environment_of()).fetch(context, FetchRequest(replica_state=state, max_wait_ms=0, topics=[topic]))
    first, second = (answer.responses[0].partitions[0] for answer in answers)
    assert [batch.next_offset for batch in iterate_batches(bytes(first.records))][-1] == offset and not first.error_code
    assert ErrorCode(second.error_code) is ErrorCode.CORRUPT_MESSAGE and not second.records
    assert host.failure is None
    await close(host)


async def test_a_corrupt_batch_of_the_leader_is_refused_and_fetched_again_after_a_pause(tmp_path: Path) -> None:
    """Nor does the leader count as alive for it."""
    config = await written(tmp_path / "d", 5, is_clean=True)
    directory = LogDirectory(OsFileSystem(), config.metadata_directory)
    directory.open()
    log = MetadataLog(directory, config, lambda: 1)
    log.load(VoterSet([]))
    records = bytearray(log.read(0, log.log.log_end_offset, 1 << 20))
    log.log.truncate_to(0)
    records[-2] ^= 1
    assert log.append_fetched(memoryview(records), 1) is None and log.log.log_end_offset == 0
    records[-2] ^= 1
    assert log.append_fetched(memoryview(records), 1)
    log.close()
    directory.close()


# -- coordinators


def offsets(count: int) -> Log:
    value = OffsetCommitValue(offset=7, leader_epoch=-1, metadata="a note", commit_timestamp=1)
    log = coordinator_log(OFFSETS_TOPIC)
    for number in range(count):
        append_records(log, [(OffsetCommitKey(group="g", topic="t", partition=number), value, 3)])
    return log


def transactions(count: int) -> Log:
    value = TransactionLogValue(
        producer_id=7, producer_epoch=0, transaction_timeout_ms=1000, transaction_status=0, transaction_partitions=None
    )
    log = coordinator_log(TRANSACTIONS_TOPIC)
    for number in range(count):
        append_records(log, [(TransactionLogKey(transactional_id=f"id-{number}"), value, 1)])
    return log


def rot(log: Log, byte: int) -> None:
    """In the last batch, `byte` bytes from its end."""
    segment = log.segments[-1]
    data = bytearray(segment.slice(0, segment.size).read())
    assert len(data) > OVERHEAD + byte
    data[-byte] ^= 1
    segment.file.pwrite(bytes(data), 0)


# Where the bit flips, the record may still be one: another offset, another timeout.
@pytest.mark.parametrize("byte", range(1, 30))
@pytest.mark.parametrize("topic", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
async def test_a_coordinator_takes_up_nothing_from_a_corrupt_log(topic: str, byte: int, caplog: pytest.LogCaptureFixture) -> None:
    log = offsets(3) if topic == OFFSETS_TOPIC else transactions(3)
    log.update_high_watermark(log.log_end_offset)
    world = CoordinatorWorld(log, log)
    world.lead(topic)
    assert world.refusal(topic) is None
    world.lead(topic, leader=False)
    rot(log, byte)
    world.lead(topic)
    assert world.refusal(topic) is ErrorCode.NOT_COORDINATOR
    assert f"{topic}-0 cannot be loaded: a batch at offset 2 fails its checksum" in caplog.text
    host = world.groups if topic == OFFSETS_TOPIC else world.transactions
    assert host.shards() == []
    await world.stop()
