"""Messages of formats v0 and v1, which brokers of today read and nobody writes: no proof, and no error."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from helpers.audited_clusters import BROKERS, audit, messages_of, registered_topic, verdicts
from helpers.log_clusters import TIME_MS, Partition, plain, write_broker

from minikafka.spark import logformat


def message(offset: int, version: int, value: bytes) -> bytes:
    """LegacyRecord without a key."""
    body = bytes([version, 0]) + (struct.pack(">q", TIME_MS) if version else b"") + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def cluster(path: Path, first: bytes) -> Path:
    """The first of two segments holds these bytes."""
    for broker in BROKERS:
        one = Partition("t-0", [plain(at) for at in range(10, 20)], (0, 10), ((0, 10),))
        root = write_broker(path / f"b{broker}", broker, [one], registered_topic().encode())
        (root / "t-0" / f"{0:020d}.log").write_bytes(first)
    return path


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("size", [0, 1, 30, 5000])
def test_older_messages_are_no_proof(tmp_path: Path, version: int, size: int) -> None:
    """Short ones are shorter than a batch's header."""
    result = audit(cluster(tmp_path, b"".join(message(at, version, b"x" * size) for at in range(10))))
    text = f"the message at offset 0 is of format v{version}, which brokers read and the audit does not"
    assert (result.exit_code, verdicts(result)["t-0"]) == (3, "INCOMPLETE"), [one.message for one in result.findings.kept]
    assert [one for one in messages_of(result, "not-compared") if text in one] == [f"{broker}: {text}" for broker in BROKERS]


@pytest.mark.parametrize("size", [1, 300])
def test_a_broken_one_is_an_error(tmp_path: Path, size: int) -> None:
    broken = bytearray(message(0, 1, b"x" * size))
    broken[-1] ^= 1
    assert audit(cluster(tmp_path, bytes(broken))).exit_code == 1
    assert audit(cluster(tmp_path / "batch", plain(0).encode()[:16] + b"\1" + plain(0).encode()[17:])).exit_code == 1


def test_what_is_an_older_message() -> None:
    good = message(3, 1, b"value")
    assert logformat.older_format(good) == 1 and logformat.older_format(good + b"more") == 1
    assert logformat.older_format(message(0, 0, b"")) == 0
    for wrong in (b"", good[:20], good[:-1], good[:16] + b"\2" + good[17:], bytes(8) + b"\xff" * 4 + good[12:], plain(0).encode()):
        assert logformat.older_format(wrong) is None
