"""Bits that flip in what a batch's checksum does not cover: base offset, length, leader epoch, magic."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
from helpers.memory_filesystem import MemoryFileSystem
from helpers.raft_nodes import config_of, format_node, host_of

from minikafka.broker.quorum.raft_log import CorruptMetadata, MetadataLog
from minikafka.broker.quorum.raft_promises import lost_promises, note_lost
from minikafka.broker.quorum.raft_rot import end_offset_max, find_rot, valid_batches
from minikafka.core.raft.voters import VoterSet
from minikafka.storage.filesystem import OsFileSystem
from minikafka.storage.log_dir import LogDirectory
from minikafka.wire.batch import RecordBatch, iterate_batches
from minikafka.wire.records.metadata_records import FeatureLevelRecord

EPOCHS = 2
BATCHES_AN_EPOCH = 3
#: Of one batch: base offset, length, epoch, magic, CRC, and what the CRC is of.
BASE, LENGTH, EPOCH, MAGIC, CRC, CHECKED = range(8), range(8, 12), range(12, 16), range(16, 17), range(17, 21), range(21, 61)


async def written(directory: Path, **changes: Any) -> Any:
    """A lone voter that was killed has led twice, and written this many batches each time, the LeaderChange among them."""
    config = config_of(directory, **changes)
    format_node(config, standalone=True)
    for _ in range(EPOCHS):
        host = host_of(config)
        await host.start()
        while len(batches(host.metadata_log.directory)) % BATCHES_AN_EPOCH:
            await host.wait_committed(host.append([FeatureLevelRecord(name="feature", feature_level=1)]))
        host.abandon()
        host._log_directory.abandon()
    return config


def batches(directory: str) -> list[tuple[Path, RecordBatch]]:
    return [(path, batch) for path in sorted(Path(directory).glob("*.log")) for batch in iterate_batches(path.read_bytes())]


def directory_of(config: Any) -> str:
    return f"{config.metadata_directory}/__cluster_metadata-0"


@pytest.mark.parametrize("segment_bytes", [1 << 30, 180], ids=["one segment", "several"])
async def test_no_bit_of_a_header_flips_unseen(tmp_path: Path, segment_bytes: int) -> None:
    """Only the last batch may look like a torn write, and only where its checksum fails."""
    directory = directory_of(await written(tmp_path / "d", metadata_log_segment_bytes=segment_bytes))
    found, filesystem = batches(directory), MemoryFileSystem()
    assert len(found) == EPOCHS * BATCHES_AN_EPOCH and (len({path for path, _ in found}) > 1) == (segment_bytes == 180)
    filesystem.mkdir(directory)
    files = {path: filesystem.open(str(path), create=True) for path, _ in found}
    for path, file in files.items():
        file.pwrite(path.read_bytes(), 0)
    assert find_rot(filesystem, directory, EPOCHS) is None
    unseen, end = [], found[-1][1].next_offset
    for number, (path, batch) in enumerate(found):
        for byte in range(CHECKED.stop):
            before = files[path].pread(1, batch.position + byte)
            for bit in range(8):
                files[path].pwrite(bytes([before[0] ^ 1 << bit]), batch.position + byte)
                rot = find_rot(filesystem, directory, EPOCHS)
                may_look_torn = number == len(found) - 1 and byte in (*CRC, *CHECKED)
                # The first epoch of a log may be any; the batch behind it tells.
                may_be_next = number == 0 and byte in EPOCH
                if (
                    rot is None
                    or not (rot.is_certain or may_look_torn)
                    or not (may_be_next or (rot.path, rot.position) == (str(path), batch.position))
                ):
                    unseen.append((number, byte, bit, rot))
                elif rot is not None:
                    # Never less than what may have been promised; of this batch itself it is not known how many records it has.
                    above = end_offset_max(filesystem, directory, rot, is_clean=False)
                    assert above is not None and end <= above <= end + batch.size_in_bytes // 7
            files[path].pwrite(before, batch.position + byte)
    assert unseen == []


async def test_how_far_promises_may_have_gone_is_noted_until_they_are_kept_again(tmp_path: Path) -> None:
    config = await written(tmp_path / "d")
    directory, filesystem = directory_of(config), OsFileSystem()
    found = batches(directory)
    path, end, size = found[0][0], found[-1][1].next_offset, found[-1][0].stat().st_size

    def struck(number: int, *, is_clean: bool) -> int | None:
        data = bytearray(path.read_bytes())
        data[batches(directory)[number][1].position + EPOCH[0]] ^= 1
        path.write_bytes(data)
        rot = find_rot(filesystem, directory, EPOCHS)
        assert rot is not None
        note_lost(filesystem, directory, rot, is_clean=is_clean)
        lost = lost_promises(filesystem, directory)
        assert lost is not None
        os.truncate(path, rot.position)
        return lost.before

    assert lost_promises(filesystem, directory) is None
    assert struck(4, is_clean=True) == end
    assert struck(1, is_clean=True) == end  # the log is shorter now, and the first loss is not made good
    note = Path(directory, "promises-lost")
    text = note.read_text()
    for other in (text.replace(f": {end}\n", ": unknown\n"), text[: text.rindex("promised-before")], "", "promised-before: -1\n", "\xff"):
        note.write_text(other, encoding="latin-1")
        assert lost_promises(filesystem, directory) == (None,)
    assert struck(0, is_clean=True) is None
    note.unlink()
    assert path.stat().st_size == 0 < size


@pytest.mark.parametrize("is_clean", [True, False])
async def test_a_log_whose_end_may_be_missing_tells_nothing_about_promises(tmp_path: Path, is_clean: bool) -> None:
    """After a crash it is a torn write, of which nothing was promised; after a stop in order there was more."""
    config = await written(tmp_path / "d")
    directory, filesystem = directory_of(config), OsFileSystem()
    *_, (path, last) = batches(directory)
    os.truncate(path, last.position + last.size_in_bytes - 1)
    data = bytearray(path.read_bytes())
    data[batches(directory)[1][1].position + LENGTH[0]] ^= 1
    path.write_bytes(data)
    rot = find_rot(filesystem, directory, EPOCHS)
    assert rot is not None and rot.offset < last.base_offset
    before = end_offset_max(filesystem, directory, rot, is_clean=is_clean)
    assert before is None if is_clean else before is not None and before >= last.next_offset


async def test_a_voter_set_behind_a_wrong_length_is_read(tmp_path: Path) -> None:
    """Whether this is the only voter is decided by the newest."""
    config = await written(tmp_path / "d")
    (path, first), *others = batches(directory_of(config))
    data = bytearray(path.read_bytes())
    data[LENGTH[0]] ^= 0x40
    path.write_bytes(data)
    left = [batch.base_offset for batch in valid_batches(OsFileSystem(), directory_of(config))]
    assert left == [batch.base_offset for _, batch in others] and first.base_offset not in left


@pytest.mark.parametrize("segment_bytes", [1 << 30, 180], ids=["one segment", "several"])
@pytest.mark.parametrize("number", [1, EPOCHS * BATCHES_AN_EPOCH - 1])
@pytest.mark.parametrize("byte", [BASE[-1], LENGTH[0], LENGTH[-1], EPOCH[-1], MAGIC[0]])
async def test_the_log_is_cut_there(tmp_path: Path, number: int, byte: int, segment_bytes: int) -> None:
    """And the only voter says so, and does not start."""
    config = await written(tmp_path / "d", metadata_log_segment_bytes=segment_bytes)
    found = batches(directory_of(config))
    path, batch = found[number]
    data = bytearray(path.read_bytes())
    data[batch.position + byte] ^= 1
    path.write_bytes(data)
    host = host_of(config)
    with pytest.raises(CorruptMetadata, match=f"offset {batch.base_offset} .*only voter"):
        await host.start()
    host._log_directory.abandon()
    directory = LogDirectory(OsFileSystem(), config.metadata_directory)
    directory.open()
    log = MetadataLog(directory, config, lambda: 1)
    log.load(VoterSet([]), is_observer=True)
    assert log.log.log_end_offset == log.state.end_offset == batch.base_offset
    assert [kept.base_offset for kept in log.batches(0, batch.base_offset)] == [each.base_offset for _, each in found[:number]]
    log.close()
    directory.close()


async def test_a_reader_of_a_running_log_gets_no_damaged_batch(tmp_path: Path) -> None:
    config = await written(tmp_path / "d")
    directory = LogDirectory(OsFileSystem(), config.metadata_directory)
    directory.open()
    log = MetadataLog(directory, config, lambda: 1)
    log.load(VoterSet([]), is_observer=True)
    end = log.log.log_end_offset
    found = [batch for _, batch in batches(directory_of(config))]
    segment = log.log.segments[0].file
    for number, batch in enumerate(found):
        for byte in range(CHECKED.start):
            before = segment.pread(1, batch.position + byte)
            for bit in range(8):
                segment.pwrite(bytes([before[0] ^ 1 << bit]), batch.position + byte)
                for start in {0, batch.base_offset, found[min(number + 1, len(found) - 1)].base_offset}:
                    whole = [each.base_offset for each in found if start <= each.base_offset < batch.base_offset]
                    read: list[int] = []
                    if start <= batch.base_offset:
                        with pytest.raises(CorruptMetadata):
                            read.extend(each.base_offset for each in log.batches(start, end))
                        given = log.read(start, end, 1 << 20) if whole else b""
                        assert [each.base_offset for each in iterate_batches(given)] == whole
                    else:
                        with contextlib.suppress(CorruptMetadata):
                            read.extend(each.base_offset for each in log.batches(start, end))
                            assert read == [each.base_offset for each in found[number + 1 :]]
            segment.pwrite(before, batch.position + byte)
    assert [each.base_offset for each in log.batches(0, end)] == [each.base_offset for each in found]
    log.close()
    directory.close()
