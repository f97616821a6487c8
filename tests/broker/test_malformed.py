"""Wrong and odd input from the network: what Apache Kafka 4.3 did with 256 of them, and what this broker does."""

from __future__ import annotations

import asyncio
import gzip
import json
import struct
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from differential.comparison import KNOWN
from helpers.live_node import broker_port, controller_port, live_node

from minikafka.client.admin import Admin
from minikafka.client.group import TRANSACTION, find_coordinator
from minikafka.wire.errors import WireError
from minikafka.wire.header import decode_response_header
from minikafka.wire.registry import api

GOLDEN = Path(__file__).parent.parent / "golden" / "wire" / "malformed.jsonl.gz"
#: These need what the captured cluster had: its topic ids, its clock, records that it had deleted.
OTHER_STATE = ("Fetch v17", "Produce v9: timestamp two hours ahead", "Fetch v12: offset below the log start")
#: Where a real broker hangs or fails inside, this one answers cleanly; where it needs transactions, it says that it has none.
BETTER = {
    "Produce v9: records null": "answer",
    # Apache Kafka 4.4 knows that version, and the request has the fields of an older one.
    "ApiVersions v5": "closed",
}
ANSWER_S = 5.0
SILENCE_S = 0.3


def cases() -> Iterator[Any]:
    with gzip.open(GOLDEN, "rt") as file:
        for line in file:
            case = json.loads(line)
            if len(case.get("request_bytes_hex") or "") == 2 * case["request_bytes_len"]:
                yield case


async def outcome(port: int, data: bytes, expected: str) -> tuple[str, bytes]:
    """("answer", frame), ("closed", b"") or ("silence", b"")."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        wait = SILENCE_S if expected == "silence" else ANSWER_S
        size = int.from_bytes(await asyncio.wait_for(reader.readexactly(4), wait), "big")
        return "answer", await asyncio.wait_for(reader.readexactly(size), ANSWER_S)
    except TimeoutError:
        return "silence", b""
    except (asyncio.IncompleteReadError, ConnectionError):
        return "closed", b""
    finally:
        writer.close()


def error_codes(value: Any) -> list[int]:
    """Every error code in a response, in order."""
    found: list[int] = []
    for declared in value.FIELDS:
        held = getattr(value, declared.name)
        if declared.name.endswith("error_code"):
            found.append(int(held))
        for item in held if isinstance(held, list) else [held]:
            if hasattr(item, "FIELDS"):
                found += error_codes(item)
    return found


def listed_codes() -> set[tuple[str, int, int]]:
    """API, error code of Apache Kafka, and ours: those of the listed differences that are about malformed requests."""
    listed = tomllib.loads(KNOWN.read_text())["difference"]
    return {(one["api"], one["kafka"], one["ours"]) for one in listed if one.get("malformed")}


def answered(request: bytes, frame: bytes) -> tuple[str, list[int]]:
    """The API's name and the error codes of its answer."""
    api_key, version = struct.unpack_from(">hh", request, 4)
    entry = api(api_key)
    assert entry is not None
    if api_key == 18 and not entry.min_version <= version <= entry.max_version:
        version = 0
    _, position = decode_response_header(frame, api_key, version)
    return entry.name, error_codes(entry.response.decode(version, frame, position))


async def test_odd_input_gets_kafkas_answer(tmp_path: Path) -> None:
    wrong: list[str] = []
    listed, used = listed_codes(), set()
    exact = counted = 0
    async with live_node(tmp_path) as node:
        async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
            await admin.create_topic("t", partitions=1, replication_factor=1)
            await admin.create_topic("c", partitions=1, replication_factor=1, configs={"cleanup.policy": "compact"})
            await find_coordinator(admin.cluster, "any")
            await find_coordinator(admin.cluster, "any", kind=TRANSACTION)
        for case in cases():
            name = case["case"]
            if name == "half a frame, then FIN" or name.startswith(OTHER_STATE):
                continue
            counted += 1
            request = bytes.fromhex(case["request_bytes_hex"])
            port = broker_port(node) if case["listener"] == "broker" else controller_port(node)
            expected = BETTER.get(name, case["outcome"])
            got, frame = await outcome(port, request, expected)
            if got != expected:
                wrong.append(f"{name}: {expected} expected, {got}")
            elif got == "answer" and case.get("response_hex"):
                golden = bytes.fromhex(case["response_hex"])
                exact += golden == frame
                try:
                    (name_of_api, ours), (_, theirs) = answered(request, frame), answered(request, golden)
                except WireError as error:
                    wrong.append(f"{name}: {error}")
                    continue
                if name.startswith("Metadata v1, topics length"):
                    ours, theirs = sorted(set(ours)), sorted(set(theirs))  # all topics: as many as the cluster has
                if ours != theirs:
                    differing = {(name_of_api, *pair) for pair in zip(theirs, ours, strict=False) if pair[0] != pair[1]}
                    used |= differing
                    if not differing or not differing <= listed:
                        wrong.append(f"{name}: error codes {theirs} expected, {ours}")
        assert not wrong, "\n".join(wrong)
        assert used == listed
        assert counted > 200
        assert exact >= 80, "fewer answers than before are Kafka's to the byte"
        async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
            assert "t" in await admin.list_topics(), "the broker went on serving"


async def test_half_a_frame_holds_nothing_up(tmp_path: Path) -> None:
    async with live_node(tmp_path) as node:
        held = [await asyncio.open_connection("127.0.0.1", broker_port(node)) for _ in range(20)]
        for _, writer in held:
            writer.write(struct.pack(">i", 50_000_000) + b"\0\3\0\1")
        async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
            assert await admin.list_topics() == []
        listener: Any = node.listeners["PLAINTEXT"]
        assert all(len(c._buffer) < 1 << 20 for c in listener.connections.values()), "a claim alone must not allocate"
        for _, writer in held:
            writer.close()


@pytest.mark.parametrize(("start", "cause"), [(b"GET / HTTP/1.1\r\n", "HTTP"), (b"\x16\x03\x01\x02\x00\x01\x00", "TLS")])
async def test_the_log_names_the_likely_cause(tmp_path: Path, start: bytes, cause: str, caplog: pytest.LogCaptureFixture) -> None:
    async with live_node(tmp_path) as node:
        got, _ = await outcome(broker_port(node), start + b"\0" * 16, "closed")
        assert got == "closed"
    assert any(cause in record.getMessage() for record in caplog.records)
